"""Runs: what `weir run` leaves behind, as data frames."""

import hashlib
import io
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from weir import _weir
from weir._errors import WeirError
from weir._record import Record


def frame(records: Iterable[Record], **columns: Any) -> pd.DataFrame:
    """Returns a row for each record, with `columns` in front. Objects become columns with a dot in
    their name, such as `latency_ns.mean`; lists are left out."""
    flat = [{**columns, **_flat("", record)} for record in records]
    return pd.DataFrame(flat)


def _flat(prefix: str, record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Record):
            fields |= _flat(f"{prefix}{key}.", value)
        elif not isinstance(value, list):
            fields[prefix + key] = value
    return fields


@dataclass(frozen=True)
class Run:
    """A run, by its directory."""

    directory: Path

    @cached_property
    def _read(self) -> tuple[Record, Record | None]:
        return _weir.read_run(self.directory)

    @property
    def report(self) -> Record:
        """The report: all fields of `report.json`."""
        return self._read[0]

    @property
    def facts(self) -> Record | None:
        """The fields of `run.json`, such as `command` and `qemu`; none if it is missing."""
        return self._read[1]

    @property
    def good(self) -> bool:
        """True if the verdict holds, or there was nothing to judge, and all lines were seen."""
        totals = self.report.totals
        return self.report.get("verdict") in (None, "holds") and totals.met == totals.expected

    def flows(self) -> pd.DataFrame:
        """Returns a row for each flow: packets, latency, bound, deadline."""
        return frame(self.report.get("flows", []))

    def vms(self) -> pd.DataFrame:
        """Returns a row for each VM: boots, exits by cause, faults."""
        return frame(self.report.vms)

    def budgets(self) -> pd.DataFrame:
        """Returns a row for each memory budget: limit, maximum, throttled time."""
        return self._of_vms("budgets")

    def tasks(self) -> pd.DataFrame:
        """Returns a row for each task: response time, bound, deadline."""
        return self._of_vms("tasks")

    def _of_vms(self, what: str) -> pd.DataFrame:
        frames = [frame(vm.get(what, []), vm=vm.name) for vm in self.report.vms]
        return pd.concat(frames, ignore_index=True)

    def trace(self, *, vms: Iterable[str] = (), kinds: Iterable[str] = ()) -> pd.DataFrame:
        """Returns a row for each record of the trace, of these VMs and kinds or of all."""
        text = _weir.trace_csv(self.directory, vms=list(vms), kinds=list(kinds))
        return pd.read_csv(io.StringIO(text), keep_default_na=False, na_values={"packet": [""]})

    def why(
        self,
        *,
        flow: str | None = None,
        task: str | None = None,
        budget: str | None = None,
        number: int | None = None,
    ) -> Record:
        """Explains where the time of a packet, a task or a budget's period went; without a subject
        that of the worst one."""
        return _weir.why(self.directory, flow=flow, task=task, budget=budget, number=number)

    def console(self, vm: str) -> str:
        """Returns what a VM printed."""
        path = self.directory / f"{vm}.log"
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise WeirError(f"cannot read {path}: {error}") from error


def read_run(directory: str | Path) -> Run:
    """Returns the run in a directory, such as `runs/2026-01-31T12-00-00Z`."""
    run = Run(Path(directory))
    _ = run.report
    return run


def _program() -> str:
    """Returns the command: `WEIR_PROGRAM`, `./weir` of the checkout `WEIR_ROOT` or of one upward
    from here, or `weir` on the `PATH`."""
    if program := os.environ.get("WEIR_PROGRAM"):
        return program
    root = os.environ.get("WEIR_ROOT")
    here = Path.cwd()
    for folder in [Path(root)] if root else [here, *here.parents]:
        if (folder / "weir").is_file() and (folder / "hypervisor").is_dir():
            return str(folder / "weir")
    if program := shutil.which("weir"):
        return program
    raise WeirError("there is no command weir: install it, or set WEIR_PROGRAM to its path")


def run_program(path: Path, text: str, arguments: Iterable[str]) -> Run:
    """Runs a system by the command, and returns the run."""
    try:
        is_file = path.read_text(encoding="utf-8") == text
    except OSError:
        is_file = False
    # Images are relative to the file, so that a changed one must lie next to it.
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    file = path if is_file else path.with_name(f"{path.stem}-{name}.toml")
    try:
        if not is_file:
            file.write_text(text, encoding="utf-8")
        command = [_program(), "run", str(file), "--quiet", *arguments]
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    finally:
        if not is_file:
            file.unlink(missing_ok=True)
    # A run that was not good has a directory, too.
    for line in ended.stdout.splitlines():
        if line.startswith("logs and report: "):
            return read_run(line.removeprefix("logs and report: "))
    raise WeirError(f"{' '.join(command)}: {ended.stderr.strip()}")
