//! The figures of a run.
#![expect(clippy::cast_precision_loss, reason = "a position is of pixels, a ratio of three digits")]

use super::trace::{BudgetUse, CoreState, Lane, span_ns};
use crate::{
    figure::{Anchor, Figure, LINE, LogAxis, Place},
    plan::SystemPlan,
    run::{BudgetFinding, FlowRun, RunReport, VmRun},
    units,
    why::{TimePart, WhyReport},
};
use std::fmt::Write as _;

/// The height of the plot of a distribution or of a budget, in pixels.
const PLOT: f64 = 90.0;
/// The height of a lane of a time line, in pixels.
const LANE: f64 = 22.0;
/// The classes of the colors of parts of a time.
const PARTS: usize = 8;
/// The causes of a VM that a figure has.
const CAUSES: usize = 6;

/// Returns the distribution of a flow's latencies on a logarithmic axis, with bound and deadline.
pub(super) fn latencies(flow: &FlowRun, id: String) -> Option<Figure> {
    let latency = flow.latency_ns?;
    if flow.distribution.is_empty() {
        return None;
    }
    let mut figure = Figure::new(id, format!("Latencies of flow {}", flow.name));
    let edges = flow.distribution.iter().flat_map(|bucket| [bucket.from_ns, bucket.to_ns]);
    let axis = LogAxis::of(edges.chain(flow.bound_ns).chain(flow.deadline_ns));
    let most = flow.distribution.iter().map(|bucket| bucket.packets).max().unwrap_or(1);
    // The axis of counts is logarithmic, too: a single late packet has to be seen among thousands.
    let top_decade = (most.max(2) - 1).ilog10() + 1;
    let height = |packets: u64| {
        PLOT * (1.0 + (packets.max(1) as f64).log10() * 4.0) / (1.0 + 4.0 * f64::from(top_decade))
    };
    let top = 4.0 * LINE;
    let bottom = top + PLOT;
    axis.draw(&mut figure, (top, bottom));
    for decade in 0..=top_decade {
        let packets = 10u64.pow(decade);
        let y = bottom - height(packets);
        figure.line((0.0, y), (100.0, y), "grid");
    }
    for bucket in &flow.distribution {
        let x = axis.at(bucket.from_ns);
        let height = height(bucket.packets);
        let width = (axis.at(bucket.to_ns) - x).max(0.5);
        let tip = format!(
            "{} to {}: {} packets",
            units::time(bucket.from_ns),
            units::time(bucket.to_ns),
            units::count(bucket.packets)
        );
        let place = Place { x, y: bottom - height, width, height };
        figure.bar(place, "data", "", tip);
    }
    let packets = units::count(flow.packets);
    let scale = format!("packets, 1 to {} (log)", units::count(10u64.pow(top_decade)));
    figure.text((0.0, 13.0), Anchor::Start, "axis-text", &scale);
    let max = format!("max {}", units::time(latency.max));
    let limits = [
        (Some(latency.max), "observed", max, 0.0),
        (flow.bound_ns, "bound", flow.bound_ns.map_or_else(String::new, bound), LINE),
        (
            flow.deadline_ns,
            "deadline",
            flow.deadline_ns.map_or_else(String::new, deadline),
            2.0 * LINE,
        ),
    ];
    for (limit, class, text, lower) in limits {
        let Some(limit) = limit else { continue };
        let x = axis.at(limit);
        let y = LINE + lower;
        figure.line((x, y), (x, bottom), class);
        figure.line_label((x, y + 12.0), class, &text);
        let _ = write!(figure.description, "{text}; ");
    }
    let _ = write!(
        figure.description,
        "{packets} packets, min {}, median {}, 99 % {}",
        units::time(latency.min),
        latency.p50.map_or_else(|| "unknown".to_owned(), units::time),
        latency.p99.map_or_else(|| "unknown".to_owned(), units::time)
    );
    figure.caption.clone_from(&figure.description);
    figure.height = bottom + LINE + 8.0;
    Some(figure)
}

fn bound(ns: u64) -> String {
    format!("bound {}", units::time(ns))
}

fn deadline(ns: u64) -> String {
    format!("deadline {}", units::time(ns))
}

/// Returns the observed maxima of tasks and interrupts next to their bounds and deadlines, on a
/// logarithmic axis.
pub(super) fn responses(report: &RunReport) -> Option<Figure> {
    let mut rows = Vec::new();
    for vm in &report.vms {
        for task in &vm.tasks {
            let name = format!("task {} of {}", task.name, vm.name);
            rows.push((name, task.observed_max_ns, task.bound_ns, task.deadline_ns));
        }
        for line in &vm.interrupts {
            let name = format!("interrupt {} of {}", line.intid, vm.name);
            let max = (line.delivered > 0).then_some(line.max_ns);
            rows.push((name, max, line.bound_ns, line.deadline_ns));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut figure = Figure::new("responses", "Responses of tasks and interrupts");
    let values = rows.iter().flat_map(|(_, max, bound, deadline)| {
        [*max, *bound, Some(*deadline)].into_iter().flatten()
    });
    let axis = LogAxis::of(values);
    let mut y = 0.0;
    for (name, max, limit, end) in rows {
        let text = max.map_or_else(
            || format!("{name}: no activation was marked"),
            |max| format!("{name}: max {}", units::time(max)),
        );
        y = figure.lines((0.0, y), "label", &text) - LINE;
        let top = y + 2.0 * LINE;
        if let Some(max) = max {
            let place = Place { x: 0.0, y: top, width: axis.at(max), height: 14.0 };
            figure.bar(place, "data", "", &text);
        }
        let _ = write!(figure.description, "{text}");
        let limits =
            [(limit, "bound", limit.map(bound)), (Some(end), "deadline", Some(deadline(end)))];
        for ((at, class, text), row) in limits.into_iter().zip([0.0, 2.0 * LINE - 1.0]) {
            let (Some(at), Some(text)) = (at, text) else { continue };
            let x = axis.at(at);
            figure.line((x, top - 4.0), (x, top + 18.0), class);
            figure.line_label((x, y + LINE + 12.0 + row), class, &text);
            let _ = write!(figure.description, ", {text}");
        }
        figure.description.push_str("; ");
        y = top + 2.0 * LINE + 8.0;
    }
    axis.draw(&mut figure, (y - 4.0, y));
    figure.height = y + LINE + 8.0;
    Some(figure)
}

/// Returns the use of a memory budget over a run: the most accesses in a period, and the part of
/// the time for which the vCPU was suspended.
pub(super) fn budget(
    (vm, finding, used): (&str, &BudgetFinding, &BudgetUse),
    run_ns: u64,
    id: String,
) -> Figure {
    let name = format!("{vm}/{} ({})", finding.vcpu, finding.counts);
    let mut figure = Figure::new(id, format!("Memory budget of {name}"));
    let most = used.spans.values().map(|span| span.used).max().unwrap_or(0);
    let (top, full) = (2.0 * LINE, most.max(finding.budget).max(1) as f64 * 1.05);
    let bottom = top + PLOT;
    let span = span_ns(run_ns);
    let width = 100.0 * span as f64 / run_ns.max(1) as f64;
    for (place, at) in &used.spans {
        let x = (width * *place as f64).min(100.0 - width);
        let height = PLOT * at.used as f64 / full;
        let when = units::time(place.saturating_mul(span));
        let tip = format!("at {when}: at most {} accesses in a period", units::count(at.used));
        let bar = Place { x, y: bottom - height, width, height };
        figure.bar(bar, "data", "", tip);
        let part = (at.throttled_ns as f64 / span as f64).min(1.0);
        let height = 20.0 * part;
        let tip = format!("at {when}: suspended for {}", units::time(at.throttled_ns));
        let strip = Place { x, y: bottom + LINE + 22.0 - height, width, height };
        if at.throttled_ns > 0 {
            figure.bar(strip, "throttled", "", tip);
        }
    }
    let y = bottom - PLOT * finding.budget as f64 / full;
    figure.line((0.0, y), (100.0, y), "bound");
    let limit = format!(
        "budget {} accesses in {}",
        units::count(finding.budget),
        units::time(finding.period_ns)
    );
    figure.text((0.0, top - 6.0), Anchor::Start, "bound", &limit);
    let unit = "most accesses in a period";
    figure.text((0.0, 13.0), Anchor::Start, "axis-text", unit);
    figure.line((0.0, bottom), (100.0, bottom), "axis");
    let all = 100.0 * finding.throttled_ns as f64 / run_ns.max(1) as f64;
    let strip = format!(
        "throttled {all:.1} % of the time, {} in all, {} at once",
        units::time(finding.throttled_ns),
        units::time(finding.max_throttled_ns)
    );
    figure.text((0.0, bottom + LINE - 3.0), Anchor::Start, "bad-text", &strip);
    figure.line((0.0, bottom + LINE + 22.0), (100.0, bottom + LINE + 22.0), "axis");
    time_axis(&mut figure, (0, run_ns), (0, run_ns), bottom + LINE + 22.0);
    figure.description = format!(
        "{limit}; {} periods, {} of them throttled, at most {} accesses in one; {strip}",
        units::count(finding.periods),
        units::count(finding.throttled_periods),
        units::count(finding.max_used)
    );
    figure.height = bottom + 2.0 * LINE + 28.0;
    figure
}

/// Adds labels of times since `zero` to the axis of a span of time.
fn time_axis(figure: &mut Figure, (from, to): (u64, u64), (zero, last): (u64, u64), y: f64) {
    let length = (last - zero).max(1);
    let steps = (0..19).flat_map(|decade| [1, 2, 5].map(|digit| digit * 10u64.pow(decade)));
    let step = steps.into_iter().find(|step| length / step <= 5).unwrap_or(length);
    let mut at = 0;
    while at <= length {
        let x = 100.0 * (zero + at - from) as f64 / (to - from).max(1) as f64;
        figure.line((x, y), (x, y + 4.0), "axis");
        figure.axis_label((x, y + LINE), "axis-text", &units::time(at));
        at += step;
    }
}

/// Returns the exits of the VMs by cause.
pub(super) fn exits(vms: &[VmRun], run_ns: u64) -> Option<Figure> {
    let mut figure = Figure::new("exits", "Exits to EL2 by cause");
    let counted: Vec<_> = vms.iter().filter_map(|vm| Some((vm, vm.exits.as_ref()?))).collect();
    let most = counted.iter().flat_map(|(_, exits)| exits.values()).max().copied().unwrap_or(0);
    let mut y = 0.0;
    for (vm, exits) in counted {
        let mut causes: Vec<_> = exits.iter().filter(|(_, count)| **count > 0).collect();
        causes.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let all: u64 = exits.values().sum();
        let rate = u128::from(all) * 1_000_000_000 / u128::from(run_ns.max(1));
        let rate = units::count(u64::try_from(rate).unwrap_or(u64::MAX));
        let title = format!("{}: {} exits, {rate} per second", vm.name, units::count(all));
        y = figure.lines((0.0, y), "label", &title);
        let _ = write!(figure.description, "{title}: ");
        // A single other cause has the line that names it.
        let most_shown = if causes.len() == CAUSES + 1 { causes.len() } else { CAUSES };
        let rest: u64 = causes.iter().skip(most_shown).map(|(_, count)| **count).sum();
        let others =
            (rest > 0).then(|| (format!("of {} other causes", causes.len() - CAUSES), rest));
        let shown =
            causes.iter().take(most_shown).map(|(cause, count)| ((*cause).clone(), **count));
        for (cause, count) in shown.chain(others) {
            let width = 50.0 * count as f64 / most.max(1) as f64;
            let text = format!("{} {cause}", units::count(count));
            let place = Place { x: 0.0, y: y + 3.0, width: width.max(0.3), height: 12.0 };
            figure.bar(place, "data", "", &text);
            figure.text((width.max(0.3), y + 13.0), Anchor::Start, "", &text);
            let _ = write!(figure.description, "{text}, ");
            y += LINE;
        }
        y += 8.0;
    }
    figure.height = y;
    (!figure.is_empty()).then_some(figure)
}

/// Returns the span of time that a figure of an event shows: the event, and a part before and
/// behind it.
pub(super) fn window(why: &WhyReport) -> Option<(u64, u64)> {
    let from = why.from_ns?;
    let margin = (why.total_ns / 7).max(1);
    Some((from.saturating_sub(margin), from.saturating_add(why.total_ns).saturating_add(margin)))
}

/// A part of a time with the class of its color.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct ColoredPart {
    /// The class of its color.
    pub class: String,
    /// The first of the parts with this name, VM, core and term.
    pub part: TimePart,
    /// The sum of their times in ns.
    pub sum_ns: u64,
    /// The number of them.
    pub times: u64,
    /// The part of the whole, in percent.
    pub percent: f64,
}

/// Returns the sums of the parts of a time.
pub(super) fn parts(why: &WhyReport) -> Vec<ColoredPart> {
    let mut all: Vec<ColoredPart> = Vec::new();
    for part in &why.parts {
        let is_same = |other: &&mut ColoredPart| {
            (&other.part.what, &other.part.vm, other.part.core, &other.part.term)
                == (&part.what, &part.vm, part.core, &part.term)
        };
        match all.iter_mut().find(is_same) {
            Some(known) => {
                known.sum_ns = known.sum_ns.saturating_add(part.ns);
                known.times += 1;
            }
            None => all.push(ColoredPart {
                class: format!("part{}", all.len() % PARTS),
                part: part.clone(),
                sum_ns: part.ns,
                times: 1,
                percent: 0.0,
            }),
        }
    }
    for part in &mut all {
        part.percent = 100.0 * part.sum_ns as f64 / why.total_ns.max(1) as f64;
    }
    all
}

/// Returns the time line of the cores around an event, and the parts of its time.
pub(super) fn time_line(
    (why, parts): (&WhyReport, &[ColoredPart]),
    ((from, to), lanes): ((u64, u64), &[Lane]),
    (plan, vms): (&SystemPlan, &[String]),
    id: String,
) -> Figure {
    let mut figure = Figure::new(id, title(why));
    let scale = 100.0 / (to - from).max(1) as f64;
    let x = |now: u64| now.saturating_sub(from) as f64 * scale;
    let name = |vm: u8| vms.get(usize::from(vm)).map_or("?", String::as_str);
    let begin = why.from_ns.unwrap_or(from);
    let end = begin.saturating_add(why.total_ns);
    let bottom = LANE + 8.0 + lanes.len() as f64 * (LINE + LANE + 6.0);
    for now in [begin, end] {
        figure.line((x(now), 0.0), (x(now), bottom), "event");
    }
    let mut y = 0.0;
    for part in &why.parts {
        let known = parts.iter().find(|known| {
            (&known.part.what, &known.part.vm, &known.part.term)
                == (&part.what, &part.vm, &part.term)
        });
        let tip = format!("{}: {}", part.what, units::time(part.ns));
        let width = part.ns as f64 * scale;
        let place = Place { x: x(part.from_ns), y, width, height: LANE };
        figure.bar(place, known.map_or("free", |known| &known.class), &part.what, tip);
    }
    y += LANE + 8.0;
    for lane in lanes {
        let mut states: Vec<String> = Vec::new();
        for span in &lane.spans {
            let (class, label, text) = match span.state {
                CoreState::Vm(vm) => (plan.color(name(vm)), name(vm), name(vm).to_owned()),
                CoreState::Throttled(vm) => {
                    ("throttled".to_owned(), "throttled", format!("{} throttled", name(vm)))
                }
                CoreState::Free => ("free".to_owned(), "no VM", "no VM".to_owned()),
            };
            let width = (span.to - span.from) as f64 * scale;
            let place = Place { x: x(span.from), y: y + LINE, width, height: LANE };
            let tip =
                format!("core {}: {text} for {}", lane.core, units::time(span.to - span.from));
            figure.bar(place, &class, label, tip);
            if !states.contains(&text) {
                states.push(text);
            }
        }
        for now in &lane.interrupts {
            figure.line((x(*now), y + LINE - 3.0), (x(*now), y + LINE + LANE), "interrupt");
        }
        let text = match lane.interrupts.len() {
            0 => format!("core {}: {}", lane.core, states.join(", ")),
            1 => format!("core {}: {}; 1 interrupt", lane.core, states.join(", ")),
            count => format!("core {}: {}; {count} interrupts", lane.core, states.join(", ")),
        };
        let columns = textwrap::wrap(&text, 50);
        let shown = columns.first().map_or(text.as_str(), AsRef::as_ref);
        figure.text((0.0, y + 13.0), Anchor::Start, "", shown);
        let _ = write!(figure.description, "{text}; ");
        y += LINE + LANE + 6.0;
    }
    figure.line((0.0, y), (100.0, y), "axis");
    time_axis(&mut figure, (from, to), (begin, end), y);
    for part in parts {
        let _ = write!(figure.description, "{}: {}; ", part.part.what, units::time(part.sum_ns));
    }
    figure.height = y + LINE + 8.0;
    figure
}

/// Returns what a time line is about.
fn title(why: &WhyReport) -> String {
    let (number, total) = (why.number.unwrap_or(0), units::time(why.total_ns));
    match why.kind {
        crate::why::SubjectKind::Budget => {
            format!("budget {}, period {number} of {}: {total}", why.name, units::count(why.count))
        }
        crate::why::SubjectKind::Task => {
            format!(
                "task {}, activation {number} of {}: {total}",
                why.name,
                units::count(why.count)
            )
        }
        crate::why::SubjectKind::Flow => {
            format!("flow {}, packet {number} of {}: {total}", why.name, units::count(why.count))
        }
    }
}
