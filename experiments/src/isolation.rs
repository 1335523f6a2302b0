//! Isolation by cache colors and DRAM banks, measured on the accesses of real guests, with and
//! without; and what share of the cache a VM has, after IsolBench.

use super::{
    ExperimentOutcome, ExperimentRequest, figures,
    statement::{
        ClaimSource,
        Relation::{AtLeast, AtMost},
        Statement, statements,
    },
    write,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use weir_image::{self as image, Environment, Failure, Result, progress::CountBar};
use weir_qemu_plugin::caches::{CountMatrix, ObservedAccesses};
use weir_report::{Picture, table};
use weir_runner::{RunOptions, SilentConsole, observe, watch_signals};

/// With fewer evictions or closed rows than this the run without colors or banks shows nothing.
const MANY: f64 = 1000.0;

/// The systems in `examples/` and `tests/systems/`, each with what it has.
const SYSTEMS: [(&str, &str); 4] = [
    ("colors_off", "isolation-colors-off"),
    ("colors_on", "isolation-colors-on"),
    ("banks_off", "isolation-banks-off"),
    ("banks_on", "isolation-banks-on"),
];

/// Colors of the VM that walks, of sixteen.
const WALKER_COLORS: u64 = 4;
/// Its working sets: the smallest, and so many doublings.
const SMALLEST: u64 = 16 << 10;
const SIZES: u32 = 9;
/// How many loads it does in each, at least.
const LOADS: u64 = 400_000;

/// How the walk's neighbors behave and whether there are colors.
const NEIGHBORS: [(&str, bool, bool); 3] = [
    ("colors, quiet neighbors", true, false),
    ("colors, busy neighbors", true, true),
    ("no colors, busy neighbors", false, true),
];
/// The neighbors' cores, each with its colors. One busy neighbor brings lines in about as fast as
/// the walker uses its own, and the cache replaces the line that was not used for longest. So a
/// walker loses a set of a quarter of the cache only to several neighbors, which replace all other
/// lines before the walker returns to a line.
const NEIGHBOR_COLORS: [(u8, &str); 3] = [(1, "4-7"), (2, "8-10"), (3, "11-13")];

/// The figures of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IsolationFigures {
    /// Lines that VMs evict of each other.
    pub evictions_between_vms: WithAndWithoutColors,
    /// Lines that weir evicts of VMs.
    pub evictions_by_weir: WithAndWithoutColors,
    /// Rows that VMs close of each other.
    pub row_conflicts_between_vms: WithAndWithoutBanks,
    /// Rows that weir closes of VMs.
    pub row_conflicts_by_weir: WithAndWithoutBanks,
    /// The plug-in's counts, by system.
    pub matrices: BTreeMap<String, Value>,
    /// The share of the cache that a walk has.
    pub cache_share: Vec<ShareCurve>,
}

/// Counts without colors and with them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WithAndWithoutColors {
    /// Without.
    pub colors_off: u64,
    /// With.
    pub colors_on: u64,
}

/// Counts without banks and with them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WithAndWithoutBanks {
    /// Without.
    pub banks_off: u64,
    /// With.
    pub banks_on: u64,
}

/// The misses of a walk over its working set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShareCurve {
    /// The behavior of its neighbors.
    pub name: String,
    /// A point for each size.
    pub points: Vec<SharePoint>,
}

/// The misses of a walk through a working set.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SharePoint {
    /// The size in bytes.
    pub bytes: u64,
    /// The loads.
    pub loads: u64,
    /// Those that miss the L1.
    pub l1_misses: u64,
    /// Those that miss the L2.
    pub l2_misses: u64,
}

/// The whole experiment.
pub(crate) fn isolation(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let environment = &request.environment;
    let bar = CountBar::new("observing", (SYSTEMS.len() + NEIGHBORS.len()) as u64);
    let mut seen = Vec::new();
    let mut matrices = BTreeMap::new();
    let mut files = Vec::new();
    for (key, name) in SYSTEMS {
        let outcome = observed(&environment.system(name)?, environment)?;
        matrices.insert(key.to_owned(), figures(outcome.record()));
        let picture = request.directory.join(name).with_extension("svg");
        write(&picture, &observe::svg(&outcome))?;
        files.push(picture);
        seen.push(outcome.seen);
        bar.add(1);
    }
    let [colors_off, colors_on, banks_off, banks_on] = &seen[..] else {
        return Err(Failure::environment("a run is missing"));
    };
    let mut curves = Vec::new();
    for (name, colors, busy) in NEIGHBORS {
        curves.push((name, walk(colors, busy, request)?));
        bar.add(1);
    }
    drop(bar);

    let pairs = [
        Pair::of("lines", (colors_off, colors_on), |seen| &seen.l2_evictions),
        Pair::of("rows", (banks_off, banks_on), |seen| &seen.rows_closed),
    ];
    let mut statements: Vec<_> = pairs.iter().flat_map(Pair::statements).collect();
    statements.extend(judge(&curves));
    files.push(draw(&curves, &request.directory)?);
    let colors = |of: fn(&ObservedAccesses, &CountMatrix) -> u64| WithAndWithoutColors {
        colors_off: of(colors_off, &colors_off.l2_evictions),
        colors_on: of(colors_on, &colors_on.l2_evictions),
    };
    let banks = |of: fn(&ObservedAccesses, &CountMatrix) -> u64| WithAndWithoutBanks {
        banks_off: of(banks_off, &banks_off.rows_closed),
        banks_on: of(banks_on, &banks_on.rows_closed),
    };
    let point = |point: &Point| SharePoint {
        bytes: point.size,
        loads: point.loads,
        l1_misses: point.l1_misses,
        l2_misses: point.l2_misses,
    };
    let json = figures(IsolationFigures {
        evictions_between_vms: colors(ObservedAccesses::between_vms),
        evictions_by_weir: colors(ObservedAccesses::by_weir),
        row_conflicts_between_vms: banks(ObservedAccesses::between_vms),
        row_conflicts_by_weir: banks(ObservedAccesses::by_weir),
        matrices,
        cache_share: curves
            .iter()
            .map(|(name, points)| ShareCurve {
                name: (*name).to_owned(),
                points: points.iter().map(point).collect(),
            })
            .collect(),
    });
    let [lines, rows] = pairs.map(|pair| pair.table());
    let text = format!("{lines}\n{rows}\n{}", share_table(&curves));
    Ok(ExperimentOutcome { json, text, statements, files })
}

/// Observes a system that must behave as described.
pub(crate) fn observed(file: &Path, environment: &Environment) -> Result<observe::Observation> {
    let system = image::check(file, None, environment)?;
    let options = RunOptions {
        accept_not_judged: true,
        interrupt: watch_signals()?,
        ..RunOptions::new(environment.clone())
    };
    let mut outcome = observe::observe(&system, &options, None, &mut SilentConsole)?;
    outcome.run = outcome.run.good(file)?;
    Ok(outcome)
}

const OBSERVED: ClaimSource = ClaimSource::own("docs/results/reproduce.md, Isolation");

/// The lines and rows that VMs and weir take from each other in two systems, one that shares and
/// one that divides: between VMs, VMs' by weir, weir's by VMs.
#[derive(Clone, Debug)]
struct Pair {
    what: &'static str,
    shared: [u64; 3],
    divided: [u64; 3],
}

impl Pair {
    fn of(
        what: &'static str,
        (off, on): (&ObservedAccesses, &ObservedAccesses),
        counts: fn(&ObservedAccesses) -> &CountMatrix,
    ) -> Self {
        let of = |seen: &ObservedAccesses| {
            let counts = counts(seen);
            [seen.between_vms(counts), seen.by_weir(counts), seen.of_weir(counts)]
        };
        Self { what, shared: of(off), divided: of(on) }
    }

    fn table(&self) -> String {
        let mut rows = table([self.what, "between VMs", "VMs' by weir", "weir's by VMs"]);
        for (name, sums) in [("shared", self.shared), ("divided", self.divided)] {
            rows.add_row(std::iter::once(name.to_owned()).chain(sums.map(|sum| sum.to_string())));
        }
        rows.to_string()
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn statements(&self) -> Vec<Statement> {
        let Self { what, shared, divided } = self;
        let kinds = [
            ("vms", "between VMs"),
            ("by-weir", "by weir from VMs"),
            ("of-weir", "by VMs from weir"),
        ];
        let each = kinds.into_iter().zip(shared.iter().zip(divided));
        each.flat_map(|((id, direction), (&shared, &divided))| {
            statements![
                OBSERVED, "{what}-shared-{id}", "{what} taken {direction} in a system that shares \
                    them"
                    => AtLeast(MANY), [shared as f64];
                OBSERVED, "{what}-divided-{id}",
                "{what} taken {direction} in a system that divides them"
                    => AtMost(0.0), [divided as f64];
            ]
        })
        .collect()
    }
}

/// One working set.
#[derive(Clone, Debug)]
struct Point {
    size: u64,
    loads: u64,
    l1_misses: u64,
    l2_misses: u64,
}

impl Point {
    /// L2 misses in a hundred loads.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn percent(&self) -> f64 {
        100.0 * self.l2_misses as f64 / self.loads.max(1) as f64
    }
}

/// The walk, over all working sets in one run.
fn walk(colors: bool, busy: bool, request: &ExperimentRequest) -> Result<Vec<Point>> {
    let key = |numbers: &str| {
        if colors { format!("colors = \"{numbers}\"\n") } else { String::new() }
    };
    let largest = SMALLEST << (SIZES - 1);
    // 0 is for ever.
    let passes = u8::from(!busy);
    let neighbor = |(core, colors): (u8, &str)| {
        format!(
            "\n[[vm]]\nname = \"neighbor{core}\"\ncpus = [{core}]\nmemory = \"8MiB\"\n{}image = {{ \
             elf = \"memory-stressor\", args = \"mode=write size=0x200000 passes={passes}\" }}\n",
            key(colors)
        )
    };
    let text = format!(
        "platform = \"qemu-virt\"\n\n[hypervisor]\nconsole_core = 1\n{}\n[[vm]]\n\
         name = \"walker\"\ncpus = [0]\nmemory = \"8MiB\"\n{}image = {{ elf = \"memory-stressor\", \
         args = \"mode=walk size={SMALLEST} upto={largest} loads={LOADS}\" }}\n\
         expect = [\"memory-stressor: walked\"]\n{}",
        key("14-15"),
        key(&format!("0-{}", WALKER_COLORS - 1)),
        NEIGHBOR_COLORS.map(neighbor).concat(),
    );
    let name = format!(
        "walk-{}-{}",
        ["shared", "colors"][usize::from(colors)],
        ["quiet", "busy"][usize::from(busy)]
    );
    let file = request.directory.join(name).with_extension("toml");
    write(&file, &text)?;
    let outcome = observed(&file, &request.environment)?;
    let marks = &outcome.seen.marks;
    let points: Vec<Point> = marks
        .iter()
        .filter(|mark| mark.vm == 0)
        .collect::<Vec<_>>()
        .chunks_exact(2)
        .enumerate()
        .map(|(place, marks)| {
            let size = SMALLEST << place;
            Point {
                size,
                loads: LOADS.next_multiple_of(size / 64),
                l1_misses: marks[1].l1_misses - marks[0].l1_misses,
                l2_misses: marks[1].l2_misses - marks[0].l2_misses,
            }
        })
        .collect();
    if points.len() == SIZES as usize {
        return Ok(points);
    }
    let name = image::name(&outcome.system);
    Err(Failure::system(format!("{name}: {} working sets of {SIZES} were marked", points.len())))
}

type Curve = (&'static str, Vec<Point>);

/// The colored VM's share: a quarter of the L2 of 1 MiB.
const SHARE: u64 = WALKER_COLORS * (64 << 10);

/// With colors, no misses up to the share and nothing but misses from twice the share on; without
/// them misses in a set of the share's size.
fn judge(curves: &[Curve]) -> Vec<Statement> {
    let mut all = Vec::new();
    for ((name, points), (_, colors, busy)) in curves.iter().zip(NEIGHBORS) {
        for point in points {
            let (percent, size) = (point.percent(), point.size);
            let relation = if colors && size <= SHARE {
                AtMost(1.0)
            } else if colors && size >= 2 * SHARE {
                AtLeast(90.0)
            } else if !colors && size == SHARE {
                AtLeast(2.0)
            } else {
                continue;
            };
            let id = match (colors, busy) {
                (true, false) => "quiet",
                (true, true) => "busy",
                (false, _) => "no-colors",
            };
            let kib = size >> 10;
            all.extend(statements![
                OBSERVED, "walk-{id}-{kib}", "{name}: L2 misses in a hundred loads over {kib} KiB"
                    => relation, [percent], "%";
            ]);
        }
    }
    all
}

fn share_table(curves: &[Curve]) -> String {
    let names = curves.iter().map(|(name, _)| (*name).to_owned());
    let mut rows = table(std::iter::once("working set, KiB".to_owned()).chain(names));
    for place in 0..SIZES as usize {
        let cells = curves.iter().map(|(_, points)| format!("{:.1} %", points[place].percent()));
        let size = (SMALLEST << place) >> 10;
        rows.add_row(std::iter::once(size.to_string()).chain(cells));
    }
    format!(
        "L2 misses in a hundred loads of a random walk; the colored VM has {} KiB of the L2\n\
         {rows}",
        SHARE >> 10
    )
}

fn draw(curves: &[Curve], directory: &Path) -> Result<PathBuf> {
    let kib = |size: u64| f64::from((size >> 10).ilog2());
    let line = |points: &[Point]| points.iter().map(|at| (kib(at.size), at.percent())).collect();
    let share = ("its share".to_owned(), vec![(kib(SHARE), 0.0), (kib(SHARE), 100.0)]);
    let lines = curves.iter().map(|(name, points)| ((*name).to_owned(), line(points)));
    let picture = Picture {
        x: "log2 of the working set in KiB",
        y: "L2 misses in a hundred loads",
        lines: lines.chain([share]).collect(),
    };
    picture.write(directory.join("cache-share.svg"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    fn curve(percent: impl Fn(u64) -> u64) -> Vec<Point> {
        let point =
            |size: u64| Point { size, loads: 100, l1_misses: 100, l2_misses: percent(size) };
        (0..SIZES).map(|place| point(SMALLEST << place)).collect()
    }

    fn good() -> ([Pair; 2], Vec<Curve>) {
        let pair = |what| Pair { what, shared: [800_000, 80_000, 80_000], divided: [0; 3] };
        let step = |at: u64| curve(move |size| if size > at { 100 } else { 0 });
        let names = NEIGHBORS.map(|(name, ..)| name);
        let curves =
            vec![(names[0], step(SHARE)), (names[1], step(SHARE)), (names[2], step(SHARE / 2))];
        ([pair("lines"), pair("rows")], curves)
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(
            &good(),
            &[],
            |(pairs, curves)| {
                pairs.iter().flat_map(Pair::statements).chain(judge(curves)).collect()
            },
            |(pairs, curves)| {
                let sums = pairs.iter_mut().flat_map(|p| p.shared.iter_mut().chain(&mut p.divided));
                let misses =
                    curves.iter_mut().flat_map(|(_, points)| points).map(|p| &mut p.l2_misses);
                sums.chain(misses).map(|value| value as &mut dyn Change).collect()
            },
        );
    }

    #[test]
    fn the_share_is_judged_where_it_ends() {
        let failing = |curves: &[Curve]| -> Vec<String> {
            let all = judge(curves).into_iter().filter(|s| !s.relation.holds(&s.own));
            all.map(|statement| statement.id).collect()
        };
        let step = |at: u64| curve(move |size| if size > at { 100 } else { 0 });
        let names = NEIGHBORS.map(|(name, ..)| name);
        assert_eq!(failing(&good().1), [""; 0]);
        assert_eq!(failing(&[(names[0], step(SHARE / 2))]), ["walk-quiet-256"]);
        assert_eq!(failing(&[(names[0], step(2 * SHARE))]), ["walk-quiet-512"]);
        let unshared = [(names[0], step(SHARE)), (names[1], step(SHARE)), (names[2], step(SHARE))];
        assert_eq!(failing(&unshared), ["walk-no-colors-256"]);
    }
}
