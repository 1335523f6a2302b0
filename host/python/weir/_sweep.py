"""Sweeps: many simulations of a system, in this process or on a Dask cluster."""

import fcntl
import hashlib
import itertools
import json
import math
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from weir import _weir
from weir._errors import ShortRunWarning, WeirError
from weir._record import Record
from weir._run import frame
from weir._system import SimulationRequest

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Grid:
    """All combinations of some values of keys; the last key changes fastest."""

    request: SimulationRequest
    """The system and the options."""
    axes: dict[str, list[Any]]
    """The values of each key."""

    def __len__(self) -> int:
        return math.prod(map(len, self.axes.values()))

    def points(self) -> list[dict[str, Any]]:
        """Returns the values of each point, in the order of the grid."""
        combinations = itertools.product(*self.axes.values())
        return [dict(zip(self.axes, values, strict=True)) for values in combinations]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what the points depend on: system, memory file, keys, times, version."""
        memory = self.request.memory
        is_file = memory is not None and Path(memory).is_file()
        parts = asdict(self.request) | {
            "path": self.request.path.name,
            "memory_file": Path(memory).read_text("utf-8") if memory and is_file else None,
            "axes": self.axes,
            "version": version("weir"),
        }
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def head(self, index: int, point: dict[str, Any]) -> str:
        """Returns the beginning of a point's line, which no other point has."""
        head = {"index": index, "of": len(self), "sweep": self.fingerprint, "point": point}
        return json.dumps(head)[:-1]

    def line(self, index: int, point: dict[str, Any]) -> str:
        """Simulates a point, and returns its line of JSON."""
        request = replace(self.request, values=list(point.items()))
        return f'{self.head(index, point)}, "result": {_weir.simulate(request)}}}\n'


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep."""

    lines: list[str] = field(repr=False)
    """A line of JSON for each point, in the order of the grid: `index`, `of` (points), `sweep` (a
    fingerprint of the system and the grid), `point` (values by key), `result`."""

    @cached_property
    def records(self) -> list[Record]:
        """The lines as objects; `result` is that of `System.simulate`."""
        return [json.loads(line, object_hook=Record) for line in self.lines]

    def vms(self) -> pd.DataFrame:
        """Returns a row for each point and VM, with the values of the point."""
        return self._frame("vms")

    def flows(self) -> pd.DataFrame:
        """Returns a row for each point and flow, with the values of the point."""
        return self._frame("flows")

    def too_short(self) -> list[Record]:
        """Returns the points with a run that is too short for its figures."""
        return [each for each in self.records if each.result.too_short]

    def _frame(self, what: str) -> pd.DataFrame:
        frames = [frame(each.result[what], **each.point) for each in self.records]
        return pd.concat(frames, ignore_index=True)


def sweep(grid: Grid, *, client: "Client | None" = None, output: str | Path | None = None) -> Sweep:
    """Simulates all points of a grid.

    Without `client`, on all cores of this machine. With a `distributed.Client`, on its workers,
    which must have this package; files that the system names must be at the same path there. What a
    worker that died has computed is computed again. The results are the same bytes in each case.

    `output` is a file that gets the lines as they come, in the order of the grid. A sweep that
    was interrupted continues such a file. Warns with `ShortRunWarning` if a run is too short for
    its figures.
    """
    if not len(grid):
        raise WeirError("a key of the grid has no values")
    swept = _swept(grid, client, output)
    if short := swept.too_short():
        why = short[0].result.too_short
        what = f"{len(short)} of {len(grid)} points, such as {short[0].point}: {why}"
        warnings.warn(what, ShortRunWarning, stacklevel=2)
    return swept


def _swept(grid: Grid, client: "Client | None", output: str | Path | None) -> Sweep:
    points = list(enumerate(grid.points()))
    if output is None:
        return Sweep(list(_lines(grid, points, client)))
    with open(output, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WeirError(f"{output} is being written by another sweep") from None
        lines = _done(grid, points, Path(output))
        file.truncate(sum(len(line.encode()) for line in lines))
        for line in _lines(grid, points[len(lines) :], client):
            file.write(line)
            file.flush()
            lines.append(line)
    return Sweep(lines)


def _lines(
    grid: Grid, points: list[tuple[int, dict[str, Any]]], client: "Client | None"
) -> Iterator[str]:
    """Computes the lines of these points, in their order."""
    if client is not None:
        # A key that names the result: a cluster that has it does not compute it again.
        keys = [f"weir-{grid.fingerprint}-{index}" for index, _ in points]
        futures = client.map(grid.line, *zip(*points, strict=True), key=keys) if points else []
        for future in futures:
            yield future.result()
        return
    # The simulator runs without Python's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda point: grid.line(*point), points)


def _done(grid: Grid, points: list[tuple[int, dict[str, Any]]], output: Path) -> list[str]:
    """Returns the whole lines that an earlier call has left in a file. Only the last one may lack
    its end."""
    lines = []
    texts = output.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for number, text in enumerate(texts):
        head = grid.head(*points[number]) + ", " if number < len(points) else "\n"
        if text.endswith("\n") and text.startswith(head):
            lines.append(text)
        elif number + 1 < len(texts) or not (text.startswith(head) or head.startswith(text)):
            raise WeirError(f"{output}:{number + 1}: this is no point of this sweep")
    return lines
