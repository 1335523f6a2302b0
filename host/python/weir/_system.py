"""Systems, and the questions that are asked about them."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weir import _weir
from weir._errors import Diagnostic, ShortRunWarning, WeirError
from weir._record import Record
from weir._run import Run, run_program

if TYPE_CHECKING:
    from weir._sweep import Grid

Time = int | str


@dataclass(frozen=True)
class Check:
    """The result of a check."""

    record: Record
    """All fields, as `weir check --json` prints them."""

    @property
    def good(self) -> bool:
        """True if the system has no faults."""
        return bool(self.record.good)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The faults in the order of the file."""
        return [Diagnostic.of(fault) for fault in self.record.faults]

    def __bool__(self) -> bool:
        return self.good


@dataclass(frozen=True)
class Plan:
    """A plan for a system."""

    system: "System"
    """The system with the choices written into it."""
    choices: Record
    """The choices."""
    report: Record
    """The analysis of the planned system."""
    left_out: list[str]
    """The values that were not chosen, and what it takes to have them chosen."""


@dataclass(frozen=True)
class SimulationRequest:
    """A system and the options of its simulation."""

    path: Path
    text: str
    values: list[tuple[str, Any]]
    memory: str | None
    length: Time
    warm_up: Time
    seed: int


@dataclass(frozen=True)
class System:
    """A system: the text of its file. It does not change: methods return another one."""

    text: str
    """The text of the system file."""
    path: Path = Path("system.toml")
    """The name of the file in messages. Images, traces and a platform are relative to it."""

    def change(self, values: Mapping[str, Any]) -> "System":
        """Returns the system with other values for these keys, such as `flow.NAME.period`.

        A name in a key selects a key of a table or, in a list, the table with that `name`. A key
        that is not there is added. Comments stay. The result is not checked.
        """
        return replace(self, text=_weir.change(self.path, self.text, list(values.items())))

    def check(self, *, planning: bool = False, ignore_verdict: bool = False) -> Check:
        """Checks the system, as `weir check` does: all its faults, or its VMs and memory map."""
        return Check(
            _weir.check(
                self.path, self.text, planning=planning, ignore_verdict=ignore_verdict
            )
        )

    def analyze(self) -> Record:
        """Bounds flows, budgets, tasks and interrupts, as `weir analyze --json` does.

        Raises `RefusedError` if the system has faults; one that misses a deadline has none.
        """
        return _weir.analyze(self.path, self.text)

    def plan(self, *, max_steps: int | None = None) -> Plan:
        """Chooses what the system leaves open, as `weir plan` does.

        Raises `NoPlanError` if the demands conflict, and `RefusedError` if the system has faults.
        """
        text, choices, report, left_out = _weir.plan(self.path, self.text, max_steps=max_steps)
        return Plan(replace(self, text=text), choices, report, left_out)

    def simulate(
        self,
        *,
        values: Mapping[str, Any] | None = None,
        memory: str | None = None,
        length: Time = "5ms",
        warm_up: Time = "2ms",
        seed: int = 1,
    ) -> Record:
        """Simulates the system on a model of its memory, as `weir simulate run --json` does.

        `values` are other values for keys of the memory file and of the system, `memory` is a name
        that weir knows or the path of a memory file. Warns with `ShortRunWarning` if the run is too
        short for its figures.
        """
        pairs = list((values or {}).items())
        request = SimulationRequest(self.path, self.text, pairs, memory, length, warm_up, seed)
        result: Record = json.loads(_weir.simulate(request), object_hook=Record)
        if result.too_short:
            warnings.warn(result.too_short, ShortRunWarning, stacklevel=2)
        return result

    def grid(
        self,
        axes: Mapping[str, Sequence[Any]],
        *,
        memory: str | None = None,
        length: Time = "5ms",
        warm_up: Time = "2ms",
        seed: int = 1,
    ) -> "Grid":
        """Returns all combinations of these values of keys, for `weir.sweep`.

        The key `seed` is the seed. Other keys and options are those of `simulate`.
        """
        from weir._sweep import Grid

        request = SimulationRequest(self.path, self.text, [], memory, length, warm_up, seed)
        return Grid(request, {key: list(values) for key, values in axes.items()})

    def run(self, *arguments: str, time: str | None = None) -> Run:
        """Runs the system in QEMU by the command `weir run`, and returns the run.

        `time` ends the run after so much virtual time, such as `"2s"`; `arguments` are more
        arguments of the command. A verdict that does not hold is no error: see `Run.good`.
        """
        if time is not None:
            arguments = (*arguments, "--for", time)
        return run_program(self.path, self.text, arguments)


def load(system: str | Path) -> System:
    """Returns the system in a file, or one with this text if it has several lines."""
    if isinstance(system, str) and "\n" in system:
        return System(system)
    path = Path(system)
    try:
        return System(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise WeirError(f"cannot read {path}: {error}") from error


def explain(code: str) -> Record:
    """Explains a diagnostic by its code, such as `W0105`, or by its name."""
    page = _weir.explain(code)
    if page is None:
        raise WeirError(f"there is no diagnostic `{code}`")
    return page
