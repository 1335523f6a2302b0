"""The systems of the tests."""

from pathlib import Path

import pytest
import weir

ROOT = Path(__file__).resolve().parents[3]

WALK = """\
platform = "zcu102"

[[vm]]
name = "walk"
cpus = [0]
memory = "4MiB" # of it 16 KiB are read
image = { elf = "memory-stressor" }
workload = { kind = "latency", size = "16KiB" }
memory_budget = { accesses = 50, period = "30us" }

[[vm]]
name = "writers"
cpus = [1, 2]
memory = "4MiB"
image = { elf = "memory-stressor" }
workload = { kind = "write", size = "1MiB" }
memory_budget = { accesses = 80, period = "30us" }
"""


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guests have the names of the checkout's."""
    monkeypatch.setenv("WEIR_ROOT", str(ROOT))


@pytest.fixture
def system() -> weir.System:
    """A walk next to writers with a budget."""
    return weir.System(WALK, Path("walk.toml"))


@pytest.fixture
def grid(system: weir.System) -> weir.Grid:
    """A grid of twelve short simulations."""
    axes = {"vm.writers.memory_budget.accesses": [40, 80], "seed": [1, 2, 3, 4, 5, 6]}
    return system.grid(axes, length="200us", warm_up="100us")
