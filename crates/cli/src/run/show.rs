//! A run as a person sees it: `name | text`, and a table at its end.

use super::{
    demux::{Source, Step},
    report::{Counted, End, Flow, Frames, Report},
};
use anstyle::{AnsiColor, Style};
use comfy_table::{Row, Table, presets};
use std::{
    fmt::Write as _,
    io::{self, Write},
};

/// Colors of the VMs' names, in turn. Red is for what went wrong.
const COLORS: [AnsiColor; 6] = [
    AnsiColor::Cyan,
    AnsiColor::Green,
    AnsiColor::Yellow,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightCyan,
];
/// The name that the hypervisor's own lines come under.
const OWN: &str = "weir";

/// Prints what VMs say.
pub struct Screen {
    out: Box<dyn Write>,
    names: Vec<String>,
    width: usize,
    events: bool,
}

impl Screen {
    /// On `out`; escape sequences in it are for a terminal. With `events`, what happens to the VMs is
    /// shown, too.
    pub fn new(out: Box<dyn Write>, names: Vec<String>, events: bool) -> Self {
        let width = names.iter().map(String::len).max().unwrap_or(0).max(OWN.len());
        Self { out, names, width, events }
    }

    /// Shows a step, if it is one that people look at.
    pub fn step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::Line { source, text, .. } => self.line(*source, text),
            Step::Dropped { source: Source::Vm(vm), bytes, .. } => {
                let name = self.names.get(*vm).map_or("?", String::as_str);
                let text =
                    format!("{name}: {bytes} console bytes lost: it wrote faster than the wire");
                self.own(&text)
            }
            Step::Event(event) if self.events => {
                let name = |vm: u8| self.names.get(usize::from(vm)).cloned().unwrap_or_default();
                let text = super::report::in_words(event, name);
                self.own(text.strip_prefix("weir: ").unwrap_or(&text))
            }
            _ => Ok(()),
        }
    }

    fn line(&mut self, source: Source, text: &str) -> io::Result<()> {
        let Source::Vm(vm) = source else {
            return self.own(text);
        };
        let color = COLORS.get(vm % COLORS.len()).copied().unwrap_or(AnsiColor::White);
        let name = self.names.get(vm).map_or("?", String::as_str);
        print(&mut self.out, color.on_default(), name, self.width, text)
    }

    /// A line of weir's own.
    pub fn own(&mut self, text: &str) -> io::Result<()> {
        print(&mut self.out, Style::new().bold(), OWN, self.width, text)
    }

    /// Lets out what is held back.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn print(
    out: &mut impl Write,
    style: Style,
    name: &str,
    width: usize,
    text: &str,
) -> io::Result<()> {
    writeln!(out, "{style}{name:width$}{style:#} | {text}")
}

/// Virtual time for a person.
pub fn seconds(time_ns: u64) -> String {
    format!("{}.{:06} s", time_ns / 1_000_000_000, time_ns / 1_000 % 1_000_000)
}

/// A table in weir's style.
pub fn table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}

/// The counts of a map, most frequent first, one a line.
pub fn counts<K: AsRef<str>>(counts: impl IntoIterator<Item = (K, u64)>) -> String {
    let mut counts: Vec<(K, u64)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.as_ref().cmp(b.0.as_ref())));
    let lines: Vec<String> =
        counts.iter().map(|(name, count)| format!("{count} {}", name.as_ref())).collect();
    if lines.is_empty() { "-".into() } else { lines.join("\n") }
}

/// The flows' packets, with what they took at most, what the analysis says of that, and the part of the one in the other.
fn flows(flows: &[Flow]) -> Table {
    let mut rows = table(["flow", "packets", "lost", "worst ns", "bound ns", "worst/bound"]);
    for flow in flows {
        let part = |bound: u64| {
            let permille = u128::from(flow.worst_ns) * 1000 / u128::from(bound.max(1));
            format!("{}.{:03}", permille / 1000, permille % 1000)
        };
        rows.add_row([
            flow.name.clone(),
            flow.packets.to_string(),
            match flow.dropped {
                Some(times) if times > 0 => format!("{}, dropped {times} times", flow.lost),
                _ => flow.lost.to_string(),
            },
            flow.worst_ns.to_string(),
            flow.bound_ns.map_or_else(|| "-".into(), |bound| bound.to_string()),
            flow.bound_ns.map_or_else(|| "-".into(), part),
        ]);
    }
    rows
}

/// What the table of the flows leaves open: who came later than the analysis allows, and until when it counts.
fn about_flows(report: &Report) -> String {
    let mut text = String::new();
    for Flow { name, worst_ns, bound_ns, .. } in &report.flows {
        let Some(above) = bound_ns.and_then(|bound| worst_ns.checked_sub(bound)) else { continue };
        if above > 0 {
            let turns = "the emulated cores run in turn, and others' turns are in the latency (docs/flows.md, The bound: --no-slices)";
            let _ = writeln!(
                text,
                "{name}: worst {above} ns above its bound: {turns}, or the overheads are of another build or system"
            );
        }
    }
    match report.flows_counted() {
        Counted::ToTheEnd => {}
        Counted::Never => {
            let _ = writeln!(text, "no counts of some flows came before the run ended");
        }
        Counted::Until(counted) => {
            let _ = writeln!(
                text,
                "the flows' counts are as of {}, the last that came: later packets are not in them",
                seconds(counted)
            );
        }
    }
    text
}

/// What became of the frames of the VMs' network devices.
fn frames<'a>(vms: impl Iterator<Item = (&'a String, Frames)>) -> Table {
    let mut rows = table(["network", "sent", "received", "over rate", "refused", "missed"]);
    for (name, Frames { sent, received, over_rate, refused, missed }) in vms {
        let counts = [sent, received, over_rate, refused, missed].map(|count| count.to_string());
        rows.add_row([name.clone()].into_iter().chain(counts));
    }
    rows
}

/// The summary of a run: a table of the VMs, what was missed and why it ended.
pub fn summary(report: &Report) -> String {
    let mut rows =
        table(["VM", "state", "restarts", "exits", "interrupts", "expected", "faults", "refused"]);
    let told = |count: Option<u64>| count.map_or_else(|| "-".into(), |count| count.to_string());
    for vm in &report.vms {
        let met = vm.expect.iter().filter(|expected| expected.met).count();
        rows.add_row([
            vm.name.clone(),
            vm.state.name().into(),
            vm.restarts.to_string(),
            told(vm.exit_count()),
            told(vm.injected),
            if vm.expect.is_empty() { "-".into() } else { format!("{met} of {}", vm.expect.len()) },
            counts(vm.fault_counts.iter().map(|(name, count)| (name, *count))),
            counts(vm.denials.iter().map(|(name, count)| (name, *count))),
        ]);
    }
    let mut text = format!("{rows}\n");
    for vm in &report.vms {
        for missed in vm.expect.iter().filter(|expected| !expected.met) {
            let _ = writeln!(text, "missed: {} did not print \"{}\"", vm.name, missed.text);
        }
        if vm.console.dropped > 0 {
            let _ = writeln!(text, "{}: {} console bytes lost", vm.name, vm.console.dropped);
        }
    }
    if !report.flows.is_empty() {
        let _ = writeln!(text, "{}", flows(&report.flows));
        text += &about_flows(report);
    }
    let ports = || report.vms.iter().filter_map(|vm| Some((&vm.name, vm.frames?)));
    if ports().next().is_some() {
        let _ = writeln!(text, "{}", frames(ports()));
    }
    if report.totals.damaged_frames > 0 {
        let _ = writeln!(text, "{} frames were damaged on the wire", report.totals.damaged_frames);
    }
    let why = match report.ended_by {
        End::AllMet => "every expected line was seen",
        End::TimeOver => "the time is over",
        End::SystemStop => "the system ended itself",
        End::Interrupted => "interrupted",
        End::MachineGone => "the machine was gone before the system ended",
        End::Silent => "the machine fell silent",
    };
    let _ = if report.started {
        write!(text, "{why}, {} after the hypervisor's start", seconds(report.time_ns))
    } else {
        write!(text, "{why}; the hypervisor never said that it runs")
    };
    text
}
