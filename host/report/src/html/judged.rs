//! The sections on what a run is judged by: flows, memory budgets, interrupts, tasks and expected
//! lines.

use super::{
    draft::Draft,
    fields::{Fields, shown},
    page::Cell,
};
use weir_analysis::verdict::Verdict;
use weir_image::Result;

/// A key of an object and the title of its column.
type Column = (&'static str, &'static str);

/// The rows of a table of objects.
struct Objects {
    title: &'static str,
    columns: &'static [Column],
    rows: Vec<Vec<Cell>>,
}

impl Objects {
    const fn new(title: &'static str, columns: &'static [Column]) -> Self {
        Self { title, columns, rows: Vec::new() }
    }

    /// Adds an object, which begins with its name.
    fn add(&mut self, name: &str, fields: &mut Fields<'_>) -> Result {
        let value = |key: &str| -> Result<Cell> { Ok(shown(&fields.take(key)?).into()) };
        let values = self.columns.iter().map(|(key, _)| *key).map(value);
        let row = [Ok(name.into())].into_iter().chain(values).collect::<Result<_>>()?;
        self.rows.push(row);
        Ok(())
    }

    /// Writes the table, unless it is empty.
    fn write(self, draft: &mut Draft) {
        if self.rows.is_empty() {
            return;
        }
        draft.body.element("h2", "", self.title);
        let titles: Vec<_> =
            ["name"].into_iter().chain(self.columns.iter().map(|(_, title)| *title)).collect();
        draft.body.table(&titles, &self.rows);
    }
}

/// Writes the sections about VMs' expected lines and all objects with verdicts.
pub(super) fn sections(report: &mut Fields<'_>, draft: &mut Draft) -> Result {
    expected(report, draft)?;
    flows(report, draft)?;
    budgets(report, draft)?;
    interrupts(report, draft)?;
    tasks(report, draft)
}

/// Writes the expected lines with their outcome.
fn expected(report: &mut Fields<'_>, draft: &mut Draft) -> Result {
    let mut rows = Vec::new();
    for mut vm in report.objects("vms")? {
        let name = vm.name()?;
        for mut line in vm.objects("expect")? {
            let (text, met) = (line.text("text")?, line.is("met")?);
            if !met {
                draft.warnings.push(format!("{name} did not print \"{text}\""));
            }
            let outcome = if met { "printed" } else { "missed" };
            let time = shown(&line.take("time_ns")?);
            rows.push(vec![name.clone().into(), text.into(), outcome.into(), time.into()]);
        }
    }
    draft.body.element("h2", "", "Expected lines");
    if rows.is_empty() {
        draft.body.element("p", "", "The system file expects no lines.");
    } else {
        draft.body.table(&["VM", "line contains", "outcome", "time ns"], &rows);
    }
    Ok(())
}

/// Writes the latencies of flows.
fn flows(report: &mut Fields<'_>, draft: &mut Draft) -> Result {
    const COLUMNS: &[Column] = &[
        ("packets", "packets"),
        ("lost", "lost"),
        ("late", "late"),
        ("observed_max_ns", "max ns (EL2)"),
        ("dropped", "receiver dropped"),
        ("counted_ns", "counted until ns"),
    ];
    const LATENCIES: &[Column] = &[
        ("min", "min ns"),
        ("p50", "p50 ns"),
        ("p99", "p99 ns"),
        ("max", "max ns"),
        ("max_packet", "packet of max"),
        ("max_arrived_ns", "its arrival ns"),
    ];
    let mut counts = Objects::new("Flows", COLUMNS);
    let mut latencies = Objects::new("Latencies of flows", LATENCIES);
    for mut flow in report.objects("flows")? {
        let name = format!("flow {}", flow.text("name")?);
        let finding = flow.finding()?;
        let verdict = draft.finding(&name, finding);
        let mut observed = None;
        if let Some(mut latency) = flow.object("latency_ns")? {
            observed = latency.peek("max");
            latencies.add(&name, &mut latency)?;
        }
        let counted = flow.peek("observed_max_ns").filter(|_| observed.is_some());
        let observed = observed.max(counted);
        let limits =
            [("bound", flow.number("bound_ns")?), ("deadline", flow.number("deadline_ns")?)];
        for (kind, limit) in limits {
            if limit.is_some() || kind == "bound" {
                draft.limit(&name, [kind, "ns"], (observed, limit), verdict);
            }
        }
        for (key, what) in [
            ("lost", "packets were dropped at a reset of an end"),
            ("dropped", "times this receiver was dropped because it delayed others"),
        ] {
            if let Some(count) = flow.peek(key).filter(|count| *count > 0) {
                draft.warnings.push(format!("{name}: {count} {what}"));
            }
        }
        if flow.peek("counted_ns").is_none() {
            draft.warnings.push(format!("{name}: no counts arrived"));
        }
        counts.add(&name, &mut flow)?;
    }
    counts.write(draft);
    latencies.write(draft);
    Ok(())
}

/// What a section says of an object of a VM: its name, the kind and unit of its limit, and the
/// observed maximum with that limit.
struct Judged {
    name: String,
    kind: [&'static str; 2],
    observed: Option<u64>,
    limit: Option<u64>,
}

/// Adds the objects of all VMs in the list `key`, each with its finding and its limit.
fn add_judged(
    report: &mut Fields<'_>,
    draft: &mut Draft,
    (key, rows): (&str, &mut Objects),
    judged: impl Fn(&str, &mut Fields<'_>) -> Result<Judged>,
) -> Result {
    for mut vm in report.objects("vms")? {
        let vm_name = vm.name()?;
        for mut object in vm.objects(key)? {
            let Judged { name, kind, observed, limit } = judged(&vm_name, &mut object)?;
            let finding = object.finding()?;
            let verdict = draft.finding(&name, finding);
            draft.limit(&name, kind, (observed, limit), verdict);
            rows.add(&name, &mut object)?;
        }
    }
    Ok(())
}

/// Writes how vCPUs used their memory budgets.
fn budgets(report: &mut Fields<'_>, draft: &mut Draft) -> Result {
    const COLUMNS: &[Column] = &[
        ("budget", "budget"),
        ("period_ns", "period ns"),
        ("periods", "periods"),
        ("max_used", "max used"),
        ("throttled_periods", "throttled periods"),
        ("max_beyond", "max above limit"),
        ("overshoot", "stated overshoot"),
        ("exceeded_periods", "exceeded periods"),
    ];
    let mut rows = Objects::new("Memory budgets, in accesses", COLUMNS);
    add_judged(report, draft, ("budgets", &mut rows), |vm, budget| {
        let (vcpu, counts) = (budget.count("vcpu")?, budget.text("counts")?);
        Ok(Judged {
            name: format!("budget of {vm}/{vcpu} ({counts})"),
            kind: ["overshoot", "accesses above the budget"],
            observed: budget.peek("max_beyond").filter(|_| budget.peek("periods") > Some(0)),
            limit: budget.peek("overshoot"),
        })
    })?;
    rows.write(draft);
    Ok(())
}

/// Writes the delays of interrupts with deadlines.
fn interrupts(report: &mut Fields<'_>, draft: &mut Draft) -> Result {
    const COLUMNS: &[Column] = &[
        ("delivered", "delivered"),
        ("late", "late"),
        ("max_ns", "max ns"),
        ("bound_ns", "bound ns"),
        ("deadline_ns", "deadline ns"),
    ];
    let mut rows = Objects::new("Interrupts with deadlines", COLUMNS);
    add_judged(report, draft, ("interrupts", &mut rows), |vm, line| {
        Ok(Judged {
            name: format!("interrupt {} of {vm}", line.count("intid")?),
            kind: ["deadline", "ns"],
            observed: line.peek("max_ns").filter(|_| line.peek("delivered") > Some(0)),
            limit: line.peek("deadline_ns"),
        })
    })?;
    rows.write(draft);
    Ok(())
}

/// Writes what guests reported of their tasks.
fn tasks(report: &mut Fields<'_>, draft: &mut Draft) -> Result {
    const COLUMNS: &[Column] = &[
        ("activations", "activations"),
        ("misses", "missed deadlines"),
        ("observed_max_ns", "observed max ns"),
        ("bound_ns", "bound ns"),
        ("deadline_ns", "deadline ns"),
    ];
    let mut rows = Objects::new("Tasks, as their guests report them", COLUMNS);
    add_judged(report, draft, ("tasks", &mut rows), |vm, task| {
        Ok(Judged {
            name: format!("task {} of {vm}", task.text("name")?),
            // Not each guest reports its response times.
            kind: ["missed deadlines", "activations"],
            observed: task.peek("misses"),
            limit: Some(0),
        })
    })?;
    if !rows.rows.is_empty() {
        let text = "The verdict on a task is as good as the report of its guest.";
        draft.assumptions.push(text.to_owned());
    }
    rows.write(draft);
    Ok(())
}

/// Returns the most severe verdict.
pub(super) fn most_severe(draft: &Draft) -> Option<Verdict> {
    draft.findings.iter().map(|(_, verdict, _)| *verdict).max()
}
