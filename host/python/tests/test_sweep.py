"""Sweeps: in this process, on a cluster, with a worker that dies, interrupted."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import weir
from distributed import Client, LocalCluster


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A cluster of two worker processes."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_points_are_all_combinations(grid: weir.Grid) -> None:
    points = grid.points()
    assert len(grid) == len(points) == 12
    assert [point["seed"] for point in points[:3]] == [1, 2, 3]
    assert points[6] == {"vm.writers.memory_budget.accesses": 80, "seed": 1}


def test_a_point_is_the_simulation(grid: weir.Grid, system: weir.System) -> None:
    swept = weir.sweep(grid)
    values = {"vm.writers.memory_budget.accesses": 80, "seed": 2}
    alone = system.simulate(values=values, length="200us", warm_up="100us")
    assert swept.records[7].result == alone and swept.records[7].point == values
    rows = swept.vms()
    assert len(rows) == 24 and set(rows["name"]) == {"walk", "writers"}
    few, many = (rows[rows["vm.writers.memory_budget.accesses"] == budget] for budget in (40, 80))
    assert few["refills"].sum() < many["refills"].sum()
    assert {"latency_ns.mean", "slowdown", "seed"} < set(rows.columns)


def test_a_cluster_gives_the_same_bytes(grid: weir.Grid, client: Client) -> None:
    assert weir.sweep(grid, client=client).lines == weir.sweep(grid).lines


def test_a_worker_that_dies_loses_nothing(
    grid: weir.Grid, client: Client, tmp_path: Path
) -> None:
    # Other points than those that the cluster has.
    axes = grid.axes | {"seed": list(range(20, 32))}
    grid = weir.Grid(grid.request, axes)
    killed = []
    output = tmp_path / "points.jsonl"

    def kill() -> None:
        while not output.exists() or output.read_bytes().count(b"\n") < 2:
            time.sleep(0.001)
        # Both workers are busy and have results.
        tasks = client.processing()
        worker, pid = max(client.run(os.getpid).items(), key=lambda each: len(tasks[each[0]]))
        os.kill(pid, signal.SIGKILL)
        killed.append((pid, len(output.read_bytes().splitlines()), len(tasks[worker])))

    killer = threading.Thread(target=kill)
    killer.start()
    swept = weir.sweep(grid, client=client, output=output)
    killer.join()
    [(pid, lines, tasks)] = killed
    assert lines < len(grid) and tasks > 0, "the worker died in the sweep, with points to compute"
    assert pid not in client.run(os.getpid).values()
    assert swept.lines == weir.sweep(grid).lines
    assert output.read_text() == "".join(swept.lines)


def test_an_interrupted_sweep_continues(grid: weir.Grid, tmp_path: Path) -> None:
    whole = "".join(weir.sweep(grid).lines).encode()
    output = tmp_path / "points.jsonl"
    for size in (0, 20, len(whole) // 2, len(whole) - 1, len(whole)):
        output.write_bytes(whole[:size])
        weir.sweep(grid, output=output)
        assert output.read_bytes() == whole, size


def test_a_file_of_another_sweep_stays(grid: weir.Grid, tmp_path: Path) -> None:
    output = tmp_path / "points.jsonl"
    other = weir.Grid(grid.request, grid.axes | {"seed": [1, 2]})
    weir.sweep(other, output=output)
    lines = output.read_bytes()
    for bad in (lines, b"my notes", lines[:-5], b"\xff\xfe"):
        output.write_bytes(bad)
        with pytest.raises(weir.WeirError, match=":1: this is no point of this sweep"):
            weir.sweep(grid, output=output)
        assert output.read_bytes() == bad
    assert other.fingerprint != grid.fingerprint


def test_a_file_that_is_being_written_is_refused(grid: weir.Grid, tmp_path: Path) -> None:
    import fcntl

    output = tmp_path / "points.jsonl"
    with output.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(weir.WeirError, match="being written by another sweep"):
            weir.sweep(grid, output=output)


def test_a_grid_without_points_is_refused(grid: weir.Grid) -> None:
    with pytest.raises(weir.WeirError, match="no values"):
        weir.sweep(weir.Grid(grid.request, {"seed": []}))
