"""Errors and diagnostics."""

from dataclasses import dataclass
from typing import Any

from weir._record import Record


@dataclass(frozen=True)
class Diagnostic:
    """A fault of a system, with its place in the file."""

    code: str
    """The code, such as `W0105`, for `weir.explain`."""
    name: str
    """The name of the diagnostic."""
    message: str
    """The rule that is broken, with the values."""
    file: str
    """The name of the file."""
    line: int
    """The line of the fault, from 1."""
    column: int
    """The column in characters, from 1."""
    help: str | None
    """The suggested change."""
    labels: tuple[Record, ...]
    """The places that the fault is about; the first is that of the fault."""

    @classmethod
    def of(cls, record: Record) -> "Diagnostic":
        """Makes a diagnostic of its record."""
        return cls(**{**record, "labels": tuple(record.labels)})

    @property
    def place(self) -> str:
        """The place as `file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        help = f" (help: {self.help})" if self.help else ""
        return f"{self.place}: {self.code}: {self.message}{help}"


class WeirError(Exception):
    """A call that failed."""


class RefusedError(WeirError):
    """A system with faults. The text shows each with an excerpt of the file."""

    def __init__(self, text: str, records: list[Record]) -> None:
        super().__init__(text, records)
        self.diagnostics = [Diagnostic.of(record) for record in records]

    def __str__(self) -> str:
        return str(self.args[0])


class NoPlanError(WeirError):
    """A system without a plan."""

    def __init__(self, text: str, conflict: Record | None) -> None:
        super().__init__(text, conflict)
        self.conflict = conflict
        """The demands that conflict; none if the effort was spent before."""

    def __str__(self) -> str:
        demands: list[Any] = self.conflict.demands if self.conflict else []
        return "\n".join([str(self.args[0]), *map(str, demands)])


class ShortRunWarning(UserWarning):
    """A simulation that is too short for its figures."""
