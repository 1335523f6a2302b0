"""Systems: changes, checks, analyses, plans, simulations."""

import json
import os
import pickle
import subprocess
from pathlib import Path

import pytest
import weir
from conftest import ROOT

FLOW = """\
platform = "qemu-virt"

[[vm]]
name = "camera"
cpus = [0]

[[vm]]
name = "control"
cpus = [1]

[[flow]]
name = "frames"
from = "camera"
to = "control"
size = "64KiB"
period = "10ms"
"""


def test_a_change_keeps_the_rest_of_the_file(system: weir.System) -> None:
    changed = system.change(
        {
            "vm.walk.memory_budget": {"accesses": 9, "period": "30us"},
            "vm.writers.cpus": [1],
            "vm.writers.memory_budget.overcommit": True,
            "dram": 'a "name"',
        }
    )
    assert 'memory_budget = { accesses = 9, period = "30us" }' in changed.text
    assert 'memory = "4MiB" # of it 16 KiB are read' in changed.text
    assert "cpus = [1]\n" in changed.text and "overcommit = true" in changed.text
    assert 'dram = "a \\"name\\""' in changed.text
    assert "dram" not in system.text and changed.path == system.path
    with pytest.raises(weir.RefusedError) as refused:
        system.change({"vm.nobody.cpus": [1]})
    assert refused.value.diagnostics[0].name == "no-such-key"
    with pytest.raises(TypeError, match="vm.walk.cpus: a value is"):
        system.change({"vm.walk.cpus": None})


def test_a_check_has_diagnostics_with_places(system: weir.System) -> None:
    good = system.check()
    assert good and good.diagnostics == [] and [vm.name for vm in good.record.vms][0] == "walk"
    bad = system.change({"vm.walk.cpus": [1]}).check()
    assert not bad
    fault = bad.diagnostics[0]
    assert (fault.code, fault.file, fault.line) == ("W0105", "walk.toml", 13), fault
    assert fault.place == f"walk.toml:13:{fault.column}" and fault.help and fault.labels
    assert weir.explain(fault.code).name == fault.name
    with pytest.raises(weir.WeirError, match="no diagnostic `W9999`"):
        weir.explain("W9999")


def test_a_missing_file_and_faults_raise(tmp_path: Path) -> None:
    with pytest.raises(weir.WeirError, match="cannot read .*none.toml"):
        weir.load(tmp_path / "none.toml")
    with pytest.raises(weir.RefusedError) as refused:
        weir.load("cpus = [1\n").analyze()
    assert len(refused.value.diagnostics) == 1 and "cpus = [1" in str(refused.value)
    copy = pickle.loads(pickle.dumps(refused.value))
    assert copy.diagnostics == refused.value.diagnostics


def test_an_analysis_follows_a_change() -> None:
    flows = weir.load(FLOW)
    report = flows.analyze()
    [flow] = report.flows.tasks
    assert report.verdict == "holds" and flow.name == "frames"
    assert flow.bound_ns <= flow.deadline_ns == 10_000_000
    assert flows.change({"flow.frames.period": "20us"}).analyze().verdict == "does-not-hold"
    with pytest.raises(AttributeError, match="no field frames; there are: .*flows"):
        _ = report.frames


def test_a_plan_is_a_system_or_a_conflict() -> None:
    system = weir.load(ROOT / "examples/flows-mmio/flows-mmio.toml")
    plan = system.plan()
    assert plan.report.verdict == "holds" and plan.system.analyze().verdict == "holds"
    assert plan.choices.chunk == 4096 and 'chunk = "4KiB"' in plan.system.text
    assert "chunk" not in system.text and "saturation" in plan.left_out[0]
    short = {"flow.messages.period": "2us", "flow.messages.deadline": "2us"}
    with pytest.raises(weir.NoPlanError, match="cannot be met together\nflow messages") as none:
        system.change(short).plan()
    assert none.value.conflict and none.value.conflict.demands == ["flow messages"]
    with pytest.raises(weir.NoPlanError, match="max_steps"):
        system.plan(max_steps=1)


def test_a_simulation_is_that_of_the_command(system: weir.System, tmp_path: Path) -> None:
    result = system.simulate(
        length="200us", warm_up=100_000, seed=3, values={"caches.l2_misses": 2}
    )
    file = tmp_path / "walk.toml"
    file.write_text(system.text)
    command = [os.environ["WEIR_PROGRAM"], "simulate", "run", str(file), "--json", "--seed", "3"]
    command += ["--for", "200us", "--warm-up", "100us", "--set", "caches.l2_misses=2"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(printed.stdout) == result
    assert result.vms[0].latency_ns.mean < result.vms[1].latency_ns.mean


def test_a_short_run_warns(system: weir.System) -> None:
    with pytest.warns(weir.ShortRunWarning, match="the caches still fill: vm `writers`"):
        system.simulate(length="2ms", warm_up="100us")


def test_what_cannot_be_simulated_raises(system: weir.System) -> None:
    with pytest.raises(ValueError, match="warm_up: write a time above 0"):
        system.simulate(warm_up="soon")
    with pytest.raises(weir.WeirError, match="l2_mises"):
        system.simulate(values={"caches.l2_mises": 2})
    with pytest.raises(weir.RefusedError, match="W0"):
        system.simulate(values={"vm.walk.cpus": [1]})
    with pytest.raises(weir.WeirError, match="walk.toml: no VM has a workload"):
        text = "\n".join(line for line in system.text.split("\n") if "workload" not in line)
        weir.System(text, system.path).simulate()
