"""Figures of results by matplotlib, which is imported at the first call.

Each function draws into `axes`, or into new ones, and returns them.
"""

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from weir._run import Run


def _axes(axes: "Axes | None", x: str, y: str) -> "Axes":
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(layout="constrained")[1]
    axes.set(xlabel=x, ylabel=y)
    return axes


def lines(
    data: pd.DataFrame, x: str, y: str, by: str, *, axes: "Axes | None" = None, **style: Any
) -> "Axes":
    """Draws column `y` over column `x`, a line for each value of column `by`."""
    axes = _axes(axes, x, y)
    for name, rows in data.groupby(by, sort=False):
        rows = rows.sort_values(x)
        axes.plot(rows[x], rows[y], label=str(name), **({"marker": "o"} | style))
    axes.legend(title=by)
    return axes


def latencies(run: "Run", *, axes: "Axes | None" = None) -> "Axes":
    """Draws the distribution of each flow's latency, with its bound as a dashed line."""
    axes = _axes(axes, "latency, ns", "share of packets")
    for flow in run.report.get("flows", []):
        buckets = flow.get("distribution", [])
        if not buckets:
            continue
        packets = pd.Series([bucket.packets for bucket in buckets]).cumsum()
        upper = [bucket.to_ns for bucket in buckets]
        (line,) = axes.step(upper, packets / packets.iloc[-1], where="pre", label=flow.name)
        if flow.get("bound_ns"):
            axes.axvline(flow.bound_ns, color=line.get_color(), linestyle="--")
    axes.set_xscale("log")
    axes.legend(title="flow")
    return axes


def events(trace: pd.DataFrame, *, axes: "Axes | None" = None) -> "Axes":
    """Draws the records of a trace over time: a row for each kind, a color for each VM."""
    axes = _axes(axes, "time, ms", "")
    for vm, rows in trace.groupby("vm"):
        axes.plot(rows["time_ns"] / 1e6, rows["kind"], "|", label=str(vm) or "-")
    axes.legend(title="VM")
    return axes
