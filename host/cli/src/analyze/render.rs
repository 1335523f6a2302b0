//! A report of the analysis as a person sees it.

use std::fmt::Write as _;
use weir_analysis::{
    Nanos, Report,
    system::{
        FlowAssumptions, FlowsReport, MemoryReport, MinBandwidthIs, OverheadSource, TimeReport,
    },
    verdict::Verdict,
};
use weir_model::{Fault, timing::DataPath};
use weir_report::{paragraph, paragraphs, table};

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut text = String::new();
    let parts = [
        report.flows.as_ref().map(flows),
        report.memory.as_ref().map(memory),
        report.time.as_ref().map(time),
    ];
    for part in parts.into_iter().flatten() {
        text.push_str(&part);
        text.push('\n');
    }
    for missing in &report.not_judged {
        text.push_str(&paragraph("not judged: ", &missing.to_string()));
    }
    text.push_str(&paragraphs("assumed: ", &report.assumed));
    text
}

fn flows(flows: &FlowsReport) -> String {
    let mut text = String::new();
    let header = ["flow", "C' ns", "D' ns", "P' ns", "J' ns", "q' ns", "slack ns", "bound ns"];
    let assumed = &flows.assumed;
    let has_bounds = assumed.data_path == DataPath::Broker || assumed.engine_from.is_some();
    let mut rows = table(if has_bounds { header.to_vec() } else { header[..7].to_vec() });
    for flow in &flows.flows {
        let ns = |time: f64| format!("{time:.1}");
        let or = |bound: Option<u64>| bound.map_or("-".to_owned(), |bound| bound.to_string());
        let mut row = vec![
            flow.name.clone(),
            ns(flow.c_ns),
            ns(flow.d_ns),
            ns(flow.p_ns),
            ns(flow.j_ns),
            ns(flow.q_ns),
            flow.slack_ns.map_or("-".to_owned(), ns),
        ];
        if has_bounds {
            row.push(or(flow.bound_ns));
        }
        rows.add_row(row);
    }
    // Writing to a string does not fail.
    if !rows.is_empty() {
        let _ = writeln!(text, "{rows}");
    }
    for flow in &flows.flows {
        if let Some(away) = flow.absence_ns {
            let _ = writeln!(
                text,
                "{}: {away} ns of the bound are until the receiver has its shared core",
                flow.name
            );
        }
    }
    text.push_str(&assumptions(&flows.assumed));
    if flows.bounds_gave_up {
        text.push_str("latency bounds: given up for some flows; --max-steps allows more\n");
    }
    let verdict = match flows.verdict {
        Verdict::Holds => "schedulable",
        Verdict::DoesNotHold => "not schedulable",
        Verdict::NotJudged => "not judged within the effort",
    };
    let _ = match flows.bandwidth {
        Some(b) if flows.is_bandwidth_given => writeln!(text, "flows: {verdict} at {b} B/s"),
        Some(b) => {
            let which = match flows.min_bandwidth_is {
                MinBandwidthIs::Exact => "the least",
                MinBandwidthIs::None | MinBandwidthIs::GivenUp => "which is proven to be enough",
            };
            writeln!(text, "flows: {verdict} at {b} B/s, {which} (no bandwidth is given)")
        }
        None => writeln!(text, "flows: {verdict}"),
    };
    for cause in &flows.causes {
        text.push_str(&paragraph("  ", &cause.message));
    }
    match (flows.first_failure_ns, &flows.first_failure) {
        (Some(at), Some(what)) => {
            text.push_str(&paragraph("", &format!("first failing instant: {at} ns: {what}")));
        }
        _ if flows.is_failure_unknown => {
            text.push_str("first failing instant: not found within the effort\n");
        }
        _ => {}
    }
    text.push_str(&least(flows));
    match flows.utilization {
        Some(utilization) => {
            let _ = writeln!(text, "utilization U': {utilization:.6}");
        }
        None if rows.is_empty() => {}
        None => text.push_str("utilization U': none, as a flow is left no period\n"),
    }
    match flows.dma_better_from_bytes {
        None => {}
        Some(Some(size)) => {
            let _ =
                writeln!(text, "a DMA engine moves chunks of {size} B and more faster than a copy");
        }
        Some(None) => text.push_str("a DMA engine moves no chunk faster than a copy\n"),
    }
    text
}

/// The least bandwidth, or why there is none.
fn least(flows: &FlowsReport) -> String {
    match (flows.min_bandwidth_is, flows.min_bandwidth) {
        (MinBandwidthIs::Exact, least) => {
            format!("least bandwidth: {} B/s\n", least.unwrap_or(0))
        }
        (MinBandwidthIs::None, _) => {
            paragraphs("no bandwidth is enough: ", flows.no_bandwidth.as_slice())
        }
        (MinBandwidthIs::GivenUp, _) => {
            let at_least = flows.min_bandwidth_at_least.unwrap_or(0);
            let enough = flows.min_bandwidth_enough.flatten();
            let enough = enough.map_or(String::new(), |b| format!(", and {b} B/s is enough"));
            format!("least bandwidth: given up; at least {at_least} B/s{enough}\n")
        }
    }
}

fn assumptions(assumed: &FlowAssumptions) -> String {
    let moves = match assumed.data_path {
        DataPath::Dma => match assumed.engine_from {
            Some(0) => "the broker's DMA engine moves the bytes".to_owned(),
            Some(from) => {
                format!("the broker's DMA engine, and below {from} B its core, moves the bytes")
            }
            None => "a DMA engine moves the bytes".to_owned(),
        },
        DataPath::Broker => "the broker's core copies".to_owned(),
    };
    let path = format!("{moves} in chunks of {} B ({})", assumed.chunk, assumed.data_path_from);
    let cores =
        format!("concurrent, waits for locks included; bandwidth: {}", assumed.bandwidth_from);
    let mut text = paragraph("data path: ", &path) + &paragraph("cores: ", &cores);
    text.push_str(&overheads(&assumed.overheads, assumed.build.as_deref()));
    text
}

/// Where overheads come from, and a warning if another build of the hypervisor was measured than
/// that of the checkout.
pub fn overheads(sources: &[OverheadSource], build: Option<&str>) -> String {
    let mut text = String::new();
    for source in sources {
        let file = &source.file;
        let Some(command) = &source.command else {
            text.push_str(&paragraph("overheads: ", &format!("{file}: of unknown origin")));
            continue;
        };
        let date = source.date.as_ref().map_or(String::new(), |date| format!(", {date}"));
        let of = source.build.as_ref();
        let measured = of.map_or(String::new(), |build| format!(", hypervisor build {build}"));
        let origin = format!("{file}: measured, not proven ({command}{date}{measured})");
        text.push_str(&paragraph("overheads: ", &origin));
        if let (Some(of), Some(now), Some(false)) = (of, build, source.same_build) {
            let warning = format!(
                "these overheads are of hypervisor build {of}, and this is build {now}: measure them again (docs/how-to/measure-a-board.md)"
            );
            text.push_str(&paragraph("warning: ", &warning));
        }
    }
    text
}

fn memory(memory: &MemoryReport) -> String {
    let mut rows = table([
        "VM",
        "budget",
        "refills B/s",
        "with write-backs",
        "guaranteed B/s",
        "required B/s",
    ]);
    for vm in &memory.vms {
        let or = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let budget = vm.budget.zip(vm.period_ns.map(Nanos));
        rows.add_row([
            vm.name.clone(),
            budget.map_or("-".to_owned(), |(budget, period)| format!("{budget} in {period}")),
            or(vm.bandwidth),
            or(vm.bandwidth_with_write_backs),
            or(vm.guaranteed),
            or(vm.required),
        ]);
    }
    let mut text = format!("{rows}\n");
    if let Some((total, period)) = memory.total_budget.zip(memory.period_ns.map(Nanos)) {
        let most = memory.max_total_budget.map_or("none".to_owned(), |most| most.to_string());
        let _ = writeln!(
            text,
            "memory: budgets of {total} in {period} next to {} B/s of DMA; below saturation up to {most}",
            memory.dma_bandwidth
        );
    }
    if let Some((level, most)) = memory.qos_level.zip(memory.qos_bandwidth) {
        let _ = writeln!(text, "QoS level {level} lets at most {most} B/s through (Eq. 1)");
    }
    text.push_str(&causes(&memory.causes));
    text.push_str(&paragraphs("  note: ", &memory.notes));
    text
}

/// Causes, each with its suggestion.
fn causes(causes: &[Fault]) -> String {
    let mut text = String::new();
    for cause in causes {
        text.push_str(&paragraph("  ", &cause.message));
        if let Some(help) = &cause.help {
            text.push_str(&paragraph("    help: ", help));
        }
    }
    text
}

/// What schedules supply, and the bounds of tasks and interrupts.
pub fn time(time: &TimeReport) -> String {
    let mut text = String::new();
    let or = |bound: Option<u64>| bound.map_or("no bound".to_owned(), |bound| bound.to_string());
    let rows_of = |header: [&str; 5], rows: Vec<[String; 5]>| {
        let mut table = table(header);
        let is_empty = rows.is_empty();
        for row in rows {
            table.add_row(row);
        }
        if is_empty { String::new() } else { format!("{table}\n") }
    };
    if !time.cores.is_empty() {
        let mut rows = table(["core", "VM", "share", "after ns"]);
        for core in &time.cores {
            for vm in &core.vms {
                let share = vm.share.map_or("none".to_owned(), |share| format!("{share:.4}"));
                let delay = vm.delay_ns.map_or("-".to_owned(), |delay| delay.to_string());
                rows.add_row([core.id.to_string(), vm.name.clone(), share, delay]);
            }
        }
        let _ = writeln!(text, "{rows}");
    }
    let row = |[vm, name]: [&String; 2], bound, deadline: u64, verdict: Verdict| {
        [vm.clone(), name.clone(), or(bound), deadline.to_string(), verdict.to_string()]
    };
    let tasks = time
        .tasks
        .iter()
        .map(|task| row([&task.vm, &task.name], task.response_ns, task.deadline_ns, task.verdict));
    text.push_str(&rows_of(
        ["VM", "task", "response ns", "deadline ns", "verdict"],
        tasks.collect(),
    ));
    let interrupts = time
        .interrupts
        .iter()
        .map(|irq| row([&irq.vm, &irq.interrupt], irq.wait_ns, irq.deadline_ns, irq.verdict));
    text.push_str(&rows_of(
        ["VM", "interrupt", "wait ns", "deadline ns", "verdict"],
        interrupts.collect(),
    ));
    text.push_str(&causes(&time.causes));
    text.push_str(&paragraphs("", &time.notes));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_analysis::{BytesPerSec, Options, analyze, flows::Effort};
    use weir_model::{Catalog, SystemFile};

    /// Flows of these periods and deadlines, with all overheads.
    fn analyzed(head: &str, periods: &[u64], options: &Options) -> Report {
        let flows = periods.iter().enumerate().map(|(index, ns)| {
            format!(
                "[[flow]]\nname = \"f{index}\"\nfrom = \"v{index}\"\nto = \"b\"\n\
                 size = \"12KiB\"\nperiod = \"{ns}ns\"\ndeadline = \"{ns}ns\"\n"
            )
        });
        let kinds = ["hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "br"];
        let overheads = kinds.map(|kind| format!("{kind} = {{ min = 50, max = 900 }}\n")).concat();
        let text = format!("{head}{}[overheads]\n{overheads}", flows.collect::<String>());
        let file = SystemFile::parse(Path::new("x.toml"), &text, &Catalog::default());
        analyze(&file.expect("a file"), options).expect("a report")
    }

    #[test]
    fn what_was_given_up_is_not_called_the_least() {
        let periods: Vec<u64> = (0..16).map(|i| 1_000_003 + i * i * 700_001).collect();
        let least = analyzed("", &periods, &Options::default());
        let text = report(&least);
        assert!(text.contains("B/s, the least (no bandwidth is given)"), "{text}");
        assert!(text.contains("flows: schedulable at "), "{text}");
        let least = least.flows.and_then(|flows| flows.min_bandwidth).expect("a bandwidth");
        let given = |steps: u64, bandwidth: u64| {
            let bandwidth = Some(BytesPerSec(bandwidth));
            let options = Options { bandwidth, effort: Effort(steps), ..Options::default() };
            report(&analyzed("", &periods, &options))
        };
        let text = given(100, least);
        assert!(text.contains("flows: not judged within the effort"), "{text}");
        assert!(text.contains("could be tested within the effort; --max-steps allows"), "{text}");
        assert!(text.contains("latency bounds: given up for some flows"), "{text}");
        let text = given(1, least - 1000);
        assert!(text.contains("first failing instant: not found within the effort"), "{text}");
        let mut proven = 0;
        for bits in 6..26 {
            let options = Options { effort: Effort(1 << bits), ..Options::default() };
            let found = analyzed("", &periods, &options);
            let text = report(&found);
            let flows = found.flows.expect("flows");
            let is_exact = flows.min_bandwidth_is == MinBandwidthIs::Exact;
            assert_eq!(text.contains("the least ("), is_exact, "{bits}: {text}");
            if let Some(enough) = flows.min_bandwidth_enough.flatten() {
                proven += 1;
                let proof = format!("at {enough} B/s, which is proven to be enough");
                assert!(text.contains(&proof), "{bits}: {text}");
            }
        }
        assert!(proven > 0, "some effort is enough for a proof, but not for the least");
    }

    #[test]
    fn a_flow_without_a_period_has_no_utilization() {
        let text = report(&analyzed("[dma]\nbandwidth = \"485MB/s\"\n", &[1], &Options::default()));
        assert!(text.contains("utilization U': none, as a flow is left no period"), "{text}");
    }

    /// Another build than the checkout's causes a warning.
    #[test]
    fn overheads_name_their_origin_and_stale_ones_warn() {
        let source = |same_build| OverheadSource {
            file: "x.toml".to_owned(),
            command: Some("weir run x".to_owned()),
            build: Some("0".to_owned()),
            date: Some("2026-01-31".to_owned()),
            same_build,
        };
        let origin = "measured, not proven (weir run x, 2026-01-31, hypervisor build 0)";
        let text = overheads(&[source(Some(false))], Some("1"));
        assert!(text.contains(origin), "{text}");
        assert!(text.contains("warning: these overheads are of hypervisor build 0"), "{text}");
        for same in [Some(true), None] {
            let text = overheads(&[source(same)], Some("0"));
            assert!(text.contains(origin) && !text.contains("warning:"), "{text}");
        }
    }
}
