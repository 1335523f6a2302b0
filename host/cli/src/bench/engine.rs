//! `weir bench engine`: messages by the ZCU102's DMA engine and by a core, in QEMU, compared with
//! Tables II and III of rt-virtio.

use super::{
    copies::{self, CopyTime},
    flows::{Case, exactly, load},
    table3::{self, MOVED, PLATFORM, Table3Row},
};
use crate::{
    build_id,
    environment::Environment,
    failure::{Context, Failure, Result, SYSTEM},
    progress::CountBar,
    screen,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fs, io::Write};
use weir_analysis::{system::OtherVms, verdict::Verdict};
use weir_model::{platform::Machine, timing::Overhead};
use weir_report::{
    overheads::{OverheadsRecord, PhaseRecord, measured},
    table,
    trace::file::NAME,
};

/// The system in which a core copies.
const BY_CORE: &str = "flows-overheads";
/// The system in which the engine moves.
const BY_ENGINE: &str = "flows-engine";

/// The figures of `weir bench engine`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EngineReport {
    /// The build of the hypervisor.
    pub build: Option<String>,
    /// Table II.
    pub table2: Vec<PhaseRow>,
    /// Table III.
    pub table3: Vec<Table3Row>,
    /// Chunks by size.
    pub copies: Vec<CopyTime>,
}

/// A row of Table II: a phase in ns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseRow {
    /// The name of the phase.
    pub name: String,
    /// The meaning of the phase.
    pub action: String,
    /// The published value.
    pub paper: Option<PhaseRange>,
    /// If a core copies.
    pub core: Option<PhaseRange>,
    /// If the engine moves.
    pub engine: Option<PhaseRange>,
    /// If a core copies, with the time of the board's caches and DRAM.
    pub memory: Option<PhaseRange>,
}

/// The least and the greatest duration of a phase in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseRange {
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// True if the greatest can be longer, because a record holds no more.
    #[serde(default)]
    pub max_or_more: bool,
}

/// Runs all of them and prints the figures.
pub fn run(json: bool, environment: &Environment) -> Result {
    let scratch = environment.build().join("bench");
    fs::create_dir_all(&scratch).context(|| format!("create {}", scratch.display()))?;
    let runs = 3 + table3::runs() + copies::SIZES.len() * MOVED.len();
    let bar = CountBar::new("running", runs as u64);
    let table2 = phases(environment, &bar)?;
    let (table3, failures) = table3::measure(&scratch, environment, || bar.add(1))?;
    let copies = copies::measure(&scratch.join("copies.toml"), environment, &bar)?;
    drop(bar);
    let build = build_id::of_checkout().map(str::to_owned);
    let report = EngineReport { build, table2, table3, copies };
    let mut out = screen::stdout();
    if json {
        writeln!(out, "{:#}", weir_report::versioned(report))?;
    } else {
        print(&report, &mut out)?;
        for failure in &failures {
            writeln!(out, "does not hold: {failure}")?;
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::reported(SYSTEM)) }
}

/// Table II: each phase as published, when a core copies, when the engine moves, and when a core
/// copies with the time of the board's caches and DRAM.
fn phases(environment: &Environment, bar: &CountBar) -> Result<Vec<PhaseRow>> {
    let of = |case, name| {
        let run = exactly(&environment.system(name)?, &case, environment)?;
        bar.add(1);
        Ok::<_, Failure>(measured(&run.directory.join(NAME))?.0.record())
    };
    let plain = |name| of(Case::on(name, PLATFORM), name);
    let (core, engine) = (plain(BY_CORE)?, plain(BY_ENGINE)?);
    let memory = of(Case::on(BY_CORE, PLATFORM).charged(), BY_CORE)?;
    let by_engine = environment.system(BY_ENGINE)?;
    // The board's own table is the paper's; that of its emulation is not.
    let board = load(&by_engine, Some(PLATFORM), Machine::Board, environment)?;
    Ok(table2(&board.overheads, [&core, &engine, &memory]))
}

/// The rows of Table II.
fn table2(published: &[Overhead], measured: [&OverheadsRecord; 3]) -> Vec<PhaseRow> {
    let range = |phase: &PhaseRecord| {
        let (min, max, max_or_more) = (phase.ns.min, phase.ns.max, phase.max_or_more);
        (phase.count > 0).then_some(PhaseRange { min, max, max_or_more })
    };
    let [core, engine, memory] = measured.map(|record| record.phases.iter());
    let row = |((core, engine), memory): ((&PhaseRecord, &PhaseRecord), &PhaseRecord)| {
        let paper = published.iter().find(|one| core.name == one.name);
        PhaseRow {
            name: core.name.clone(),
            action: core.action.clone(),
            paper: paper.map(|one| PhaseRange {
                min: one.min.0,
                max: one.max.0,
                max_or_more: false,
            }),
            core: range(core),
            engine: range(engine),
            memory: range(memory),
        }
    };
    core.zip(engine).zip(memory).map(row).collect()
}

/// The header of Table II: two columns of text, then a minimum and a maximum of each column.
pub fn header() -> Vec<String> {
    let columns = ["rt-virtio", "core copies", "engine moves", "core copies, memory timing"];
    let ranges = columns.iter().flat_map(|what| ["min", "max"].map(|of| format!("{what}, {of}")));
    [String::new(), "phase".to_owned()].into_iter().chain(ranges).collect()
}

/// The phases that a packet of one chunk has in both systems, up to the interrupt for its receiver,
/// and the wake-up of weir's broker, which is on their way.
const ON_THE_WAY: [&str; 12] =
    ["hc", "pt", "pp", "ql", "qi", "qa", "qr", "ps", "pd", "ft", "ip", "wake"];

impl PhaseRow {
    /// Returns the row of the table; `number` writes its numbers.
    pub fn row(&self, number: impl Fn(Option<u64>) -> String) -> Vec<String> {
        let ranges = self.columns().into_iter().flat_map(|range| {
            let more = if range.is_some_and(|range| range.max_or_more) { " or more" } else { "" };
            [number(range.map(|range| range.min)), number(range.map(|range| range.max)) + more]
        });
        [self.name.clone(), self.action.clone()].into_iter().chain(ranges).collect()
    }

    const fn columns(&self) -> [Option<PhaseRange>; 4] {
        [self.paper, self.core, self.engine, self.memory]
    }

    /// Returns the row of Table II that sums up what a packet of one chunk takes.
    pub fn sum(phases: &[Self]) -> Self {
        let phases = || phases.iter().filter(|phase| ON_THE_WAY.contains(&phase.name.as_str()));
        let [paper, core, engine, memory] = [0, 1, 2, 3].map(|column: usize| {
            let ranges = phases().filter_map(|phase| phase.columns()[column]);
            ranges.reduce(|sum, one| PhaseRange {
                min: sum.min + one.min,
                max: sum.max + one.max,
                max_or_more: sum.max_or_more || one.max_or_more,
            })
        });
        let action = "a packet of one chunk: hc to ip, and wake".to_owned();
        Self { name: "sum".to_owned(), action, paper, core, engine, memory }
    }
}

fn print(report: &EngineReport, out: &mut impl Write) -> Result {
    let number = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| ns.to_string());
    let mut rows = table(header());
    for phase in report.table2.iter().chain([&PhaseRow::sum(&report.table2)]) {
        rows.add_row(phase.row(number));
    }
    writeln!(out, "{rows}")?;
    let header = [
        "B/s",
        "bytes",
        "path",
        "other VMs",
        "period, ns",
        "packets",
        "lost",
        "observed max, ns",
        "bound, ns",
        "verdict",
    ];
    let mut rows = table(header);
    for Table3Row { flow, runs } in &report.table3 {
        for run in runs {
            rows.add_row([
                flow.bandwidth.to_string(),
                flow.size.to_string(),
                run.path.clone(),
                if run.others == OtherVms::Quiet { "quiet" } else { "active" }.to_owned(),
                run.period_ns.to_string(),
                run.packets.to_string(),
                run.lost.to_string(),
                run.observed_max_ns.to_string(),
                number(run.bound_ns),
                run.verdict.map_or("-", Verdict::key).to_owned(),
            ]);
        }
    }
    writeln!(out, "{rows}")?;
    let mut rows = table(copies::HEADER);
    for copy in &report.copies {
        rows.add_row(copy.row(number));
    }
    writeln!(out, "{rows}")?;
    match copies::crossover(&report.copies) {
        Some(from) => writeln!(out, "the engine takes no longer from {from} bytes on")?,
        None => writeln!(out, "the core is faster for each of these sizes")?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::timing::MeasuredOn;
    use weir_report::overheads::Spread;
    use weir_units::Nanos;

    #[test]
    fn a_phase_has_what_was_published_and_measured() {
        let published = [Overhead {
            name: "ip",
            min: Nanos(797),
            max: Nanos(828),
            measured_on: MeasuredOn::Other,
        }];
        let phases = |count: usize| {
            let phase = |name: &str, count| PhaseRecord {
                name: name.to_owned(),
                action: "act".to_owned(),
                count,
                ns: Spread { min: 2, avg: 3, median: 3, max: 4 },
                max_or_more: false,
                instructions: None,
            };
            OverheadsRecord {
                packets: 1,
                records_lost: 0,
                phases: vec![phase("ip", count), phase("wake", 1)],
                copy_bandwidth: None,
                copy_set_up_ns: None,
                engine_bandwidth: None,
                engine_set_up_ns: None,
            }
        };
        let range = Some(PhaseRange { min: 2, max: 4, max_or_more: false });
        let [ip, wake] = &table2(&published, [&phases(0), &phases(1), &phases(0)])[..] else {
            panic!("two phases")
        };
        assert_eq!(ip.paper, Some(PhaseRange { min: 797, max: 828, max_or_more: false }));
        assert_eq!((ip.core, ip.engine, ip.memory), (None, range, None));
        assert_eq!((wake.paper, wake.core), (None, range));
    }

    #[test]
    fn the_sum_has_what_is_on_a_packet_s_way() {
        let range = |min, max| Some(PhaseRange { min, max, max_or_more: false });
        let phase = |name: &str, max: u64| PhaseRow {
            name: name.to_owned(),
            action: String::new(),
            paper: range(1, max),
            core: range(2, 3),
            engine: None,
            memory: None,
        };
        let phases = [phase("hc", 10), phase("br", 100), phase("wake", 1000), phase("copy", 1)];
        let sum = PhaseRow::sum(&phases);
        assert_eq!((sum.paper, sum.core, sum.engine), (range(2, 1010), range(4, 6), None));
    }
}
