"""Systems of weir from Python: check, analyze, plan, simulate, sweep, run, and read runs.

>>> import weir
>>> system = weir.load("tests/systems/simulate-isolation.toml")
>>> system.change({"vm.writers.memory_budget.accesses": 45}).simulate().vms[0].slowdown

The results are those of the commands with `--json`: the page "JSON outputs" of the documentation
has their fields. Times are in the unit of a field's name, such as `_ns`. Arguments that are times
are numbers of nanoseconds, or texts such as `"5ms"`.
"""

from weir import plot
from weir._errors import Diagnostic, NoPlanError, RefusedError, ShortRunWarning, WeirError
from weir._record import Record
from weir._run import Run, read_run
from weir._sweep import Grid, Sweep, sweep
from weir._system import Check, Plan, System, explain, load

__all__ = [
    "Check",
    "Diagnostic",
    "Grid",
    "NoPlanError",
    "Plan",
    "Record",
    "RefusedError",
    "Run",
    "ShortRunWarning",
    "Sweep",
    "System",
    "WeirError",
    "explain",
    "load",
    "plot",
    "read_run",
    "sweep",
]
