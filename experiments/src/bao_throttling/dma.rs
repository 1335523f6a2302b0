//! bao-throttling, sections 5.3 and 5.4: programs next to DMA channels (Figures 5.1 to 5.3), with the
//! LPD's regulator (5.5, 5.7), and next to linked descriptors (5.10, 5.12).
//!
//! The thesis prints no numbers of these figures but one, the 1.25 of Figure 5.10: the sentences of
//! its text are judged, as orders and differences.

use super::{Mode, PAPER, board_of, dma_vm};
use crate::memory::{Spread, each_by_seed};
use crate::{
    ExperimentOutcome, ExperimentRequest,
    statement::{
        ClaimSource, Deviation,
        Relation::{Above, AtLeast, AtMost, Near, NotFalling, RisingBy},
        Statement, statements,
    },
};
use serde_json::{Value, json};
use weir_image::{Failure, Result};
use weir_report::{Picture, table};
use weir_simulator::{SimulatedBoard, Span, run_until};
use weir_units::Nanos;

const FIGURE_5_1: ClaimSource = PAPER.at("5.3.1, Figure 5.1");
const FIGURE_5_2: ClaimSource = PAPER.at("5.3.2, Figure 5.2");
const FIGURE_5_3: ClaimSource = PAPER.at("5.3.3, Figure 5.3");
const FIGURE_5_5: ClaimSource = PAPER.at("5.4.1, Figure 5.5");
const FIGURE_5_7: ClaimSource = PAPER.at("5.4.1, Figure 5.7");
const FIGURE_5_10: ClaimSource = PAPER.at("5.4.2, Figure 5.10");
const FIGURE_5_12: ClaimSource = PAPER.at("5.4.2, Figure 5.12");
const WEIR: ClaimSource = ClaimSource::own("docs/explanation/simulation.md");

/// The program of each family of the suite that eight LPD channels slow most, and how long
/// the part of it that is measured may take.
const PROGRAMS: [(&str, u64); 3] =
    [("qsort-large", 20_000), ("susan-edges-large", 8_000), ("bitcount-small", 6_000)];
const QUICK: [(&str, u64); 1] = [PROGRAMS[2]];
/// The first accesses of a process, of which the time is measured.
const ACCESSES: u64 = 100_000;
/// The programs' input is fixed; the seed is that of the caches' random replacement.
const SEEDS: u64 = 3;
const CHANNELS: [u64; 4] = [1, 2, 4, 8];
/// The numbers of channels in the figures with a regulator.
const FEW_AND_MANY: [u64; 2] = [1, 8];
const LEVELS: [u64; 2] = [0x20, 0x10];
/// Bytes of a channel's source and of its destination; the thesis does not print its own.
const ARRAY: &str = "256KiB";

/// The channels that interfere with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interference {
    mode: Mode,
    lpd: u64,
    fpd: u64,
    /// The level of the LPD's regulator.
    level: u64,
    /// True if the L2 allocates the lines of the LPD's engine.
    allocates: bool,
    /// True if the core of the guest with the channels writes their descriptors all the time.
    writes_lists: bool,
}

const NONE: Interference = Interference {
    mode: Mode::Simple,
    lpd: 0,
    fpd: 0,
    level: 0,
    allocates: true,
    writes_lists: false,
};

const fn lpd(mode: Mode, channels: u64, level: u64) -> Interference {
    Interference { mode, lpd: channels, level, ..NONE }
}

const fn fpd(channels: u64) -> Interference {
    Interference { fpd: channels, ..NONE }
}

const fn both(channels: u64) -> Interference {
    Interference { lpd: channels, fpd: channels, ..NONE }
}

/// Eight LPD channels whose lines no cache allocates: the cause that the thesis supposes is removed.
const NOT_ALLOCATED: Interference = Interference { allocates: false, ..lpd(Mode::Simple, 8, 0) };

/// Linked channels with a core that writes their descriptors.
const fn with_lists(channels: u64) -> Interference {
    Interference { writes_lists: true, ..lpd(Mode::Linked, channels, 0x20) }
}

impl Interference {
    fn name(self) -> String {
        let Self { mode, lpd, fpd, level, allocates, writes_lists } = self;
        if self == NONE {
            return "none".to_owned();
        }
        let mut name = match (lpd, fpd) {
            (lpd, 0) => format!("{lpd} LPD"),
            (0, fpd) => format!("{fpd} FPD"),
            (lpd, fpd) => format!("{lpd} LPD, {fpd} FPD"),
        };
        if mode == Mode::Linked {
            name.push_str(", linked");
        }
        if level > 0 {
            name.extend([", 0x".to_owned(), format!("{level:x}")]);
        }
        if !allocates {
            name.push_str(", not allocated");
        }
        if writes_lists {
            name.push_str(", lists written");
        }
        name
    }

    /// The board of a program next to it.
    fn board(self, program: &str) -> Result<SimulatedBoard> {
        let keys = self.mode.keys(&format!("size = \"{ARRAY}\""));
        let memory = if self.mode == Mode::Linked { "272MiB" } else { "8MiB" };
        let mut vms = format!(
            "[[vm]]\nname = \"linux\"\ncpus = [0]\nmemory = \"8MiB\"\n\
             image = {{ elf = \"memory-stressor\" }}\n\
             workload = {{ kind = \"kernel\", kernel = \"{program}\" }}\n"
        );
        vms.push_str(&dma_vm("lpd", 1, memory, self.lpd, &keys));
        vms.push_str(&dma_vm("fpd", 2, memory, self.fpd, &keys));
        if self.writes_lists {
            vms.push_str(LISTS);
        }
        board_of(&vms, self.level, self.allocates)
    }
}

/// A core that writes the descriptors of eight lists of 4096 pieces of 64 B, one each 30 ns.
const LISTS: &str = "[[vm]]\nname = \"lists\"\ncpus = [3]\nmemory = \"4MiB\"\n\
                     image = { elf = \"memory-stressor\" }\n\
                     workload = { kind = \"write\", size = \"2MiB\", gap = \"30ns\" }\n";

fn interferences() -> Vec<Interference> {
    let mut all = vec![NONE];
    all.extend(CHANNELS.map(|channels| lpd(Mode::Simple, channels, 0)));
    all.extend(CHANNELS.map(fpd));
    all.extend(CHANNELS.map(both));
    all.extend(FEW_AND_MANY.map(|channels| lpd(Mode::Linked, channels, 0)));
    for level in LEVELS {
        for mode in [Mode::Simple, Mode::Linked] {
            all.extend(FEW_AND_MANY.map(|channels| lpd(mode, channels, level)));
        }
    }
    all.push(NOT_ALLOCATED);
    all.extend(FEW_AND_MANY.map(with_lists));
    all
}

/// The times of a program next to one kind of interference, in ps, one for each seed.
#[derive(Clone, Debug)]
struct Times {
    program: &'static str,
    interference: Interference,
    ps: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Measured(Vec<Times>);

impl Measured {
    fn of(&self, program: &str, interference: Interference) -> &[f64] {
        let found = |one: &&Times| one.program == program && one.interference == interference;
        self.0.iter().find(found).map_or(&[], |one| &one.ps)
    }

    /// The times relative to that alone.
    fn relative(&self, program: &str, interference: Interference) -> Spread {
        let alone = Spread::of(self.of(program, NONE)).mean;
        let times = self.of(program, interference).iter().map(|time| time / alone);
        Spread::of(&times.collect::<Vec<_>>())
    }

    fn time(&self, program: &str, interference: Interference) -> f64 {
        self.relative(program, interference).mean
    }
}

/// The time of a process's first accesses.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn run_one(
    (program, most_us): (&'static str, u64),
    interference: Interference,
    seed: u64,
) -> Result<f64> {
    let span = Span { warm_up: Nanos(0), length: Nanos(most_us * 1000), seed };
    let mark = run_until(&interference.board(program)?, span, 0, ACCESSES);
    let mark = mark.map_err(|error| Failure::system(error.to_string()))?;
    let late = || Failure::system(format!("{program}, {}: too slow", interference.name()));
    Ok(mark.ok_or_else(late)?.at.0 as f64)
}

/// The whole experiment.
pub fn interference(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let (programs, seeds) = if request.quick { (&QUICK[..], 1) } else { (&PROGRAMS[..], SEEDS) };
    let points: Vec<_> = programs
        .iter()
        .flat_map(|program| interferences().into_iter().map(move |each| (*program, each)))
        .collect();
    let times = each_by_seed(&points, seeds, |(program, each), seed| run_one(program, each, seed))?;
    let measured = times.into_iter().map(|((program, interference), ps)| Times {
        program: program.0,
        interference,
        ps,
    });
    let measured = Measured(measured.collect());
    let programs: Vec<_> = programs.iter().map(|(program, _)| *program).collect();
    let mut files = Vec::new();
    for program in &programs {
        let name = format!("fig5-1-{program}.svg");
        files.push(picture(&measured, program).write(request.directory.join(name))?);
    }
    Ok(ExperimentOutcome {
        json: json!({ "times": times_json(&measured) }),
        text: format!("{}\n\n{NOTES}", text(&programs, &measured)),
        statements: stated(&programs, &measured),
        files,
    })
}

const NOTES: &str = "Time of the first 100,000 accesses of a process that starts cold, alone = 1: \
                     mean of the seeds with the least and the greatest. Assumed: arrays of 256 KiB \
                     for each channel, which the thesis\ndoes not print, a driver that sets the \
                     attributes with which the L2 allocates the LPD's lines, and four transactions \
                     of the FPD's engine on their way. Without allocation eight LPD\nchannels slow \
                     a program about as much as eight of the FPD: the thesis supposes this cause.\n";

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn picture(measured: &Measured, program: &str) -> Picture<'static> {
    let line = |name: &str, of: &dyn Fn(u64) -> Interference| {
        let points = CHANNELS.map(|n| (n as f64, measured.time(program, of(n))));
        let alone = (0.0, measured.time(program, NONE));
        (name.to_owned(), std::iter::once(alone).chain(points).collect())
    };
    Picture {
        x: "channels of each engine",
        y: "time, alone = 1",
        lines: vec![
            line("LPD", &|n| lpd(Mode::Simple, n, 0)),
            line("FPD", &fpd),
            line("LPD and FPD", &both),
        ],
    }
}

fn text(programs: &[&str], measured: &Measured) -> String {
    let mut columns = vec!["interference".to_owned()];
    columns.extend(programs.iter().map(|program| (*program).to_owned()));
    let mut rows = table(columns);
    for interference in interferences() {
        let mut row = vec![interference.name()];
        row.extend(programs.iter().map(|p| measured.relative(p, interference).text(3)));
        rows.add_row(row);
    }
    rows.to_string()
}

fn times_json(measured: &Measured) -> Value {
    let each = measured.0.iter().map(|one| {
        let Spread { mean, least, most } = measured.relative(one.program, one.interference);
        json!({
            "program": one.program,
            "interference": one.interference.name(),
            "time": { "mean": mean, "least": least, "most": most },
        })
    });
    each.collect()
}

/// "Greater", "improvement", "diminishes": at least by this, in times of the program alone.
const MORE: f64 = 0.003;
/// "Much more significant".
const MUCH: f64 = 0.05;
/// "Stable", "the same value": within this, as for the periods of Figure 4.8.
const SAME: f64 = 0.06;

/// Figure 5.10: "one point twenty-five times".
const LINKED_20: f64 = 1.25;
/// The distance that counts as near it: other programs have other overheads.
const NEAR: f64 = 0.1;

/// The known deviations.
pub static DEVIATIONS: [Deviation; 1] = [Deviation {
    id: "no-cpu-in-the-linked-guest",
    reason: "16 bytes of each page are next to no traffic, in the model as in the thesis's own \
             explanation by SMMU walks, which a core does not wait for: a guest whose core writes \
             the descriptors of its lists causes such an overhead",
    tested_by: &["lists-qsort-large", "lists-susan-edges-large", "lists-bitcount-small"],
    of: &[
        ("linked-20-qsort-large", Near(1.06, 0.04)),
        ("linked-20-susan-edges-large", Near(1.03, 0.03)),
        ("linked-20-bitcount-small", Near(1.02, 0.02)),
    ],
}];

fn stated(programs: &[&'static str], measured: &Measured) -> Vec<Statement> {
    programs.iter().flat_map(|program| of_program(program, measured)).collect()
}

fn of_program(program: &str, measured: &Measured) -> Vec<Statement> {
    let time = |interference| measured.time(program, interference);
    let simple = |channels, level| time(lpd(Mode::Simple, channels, level));
    let rising: Vec<_> = [0, 1, 2, 4, 8].map(|n| if n == 0 { 1.0 } else { simple(n, 0) }).to_vec();
    let (lpd_8, fpd_8) = (simple(8, 0), time(fpd(8)));
    let mut all = statements![
        FIGURE_5_1, "lpd-{program}",
        "{program}: the interference grows with the number of LPD channels (none, 1, 2, 4, 8)"
            => RisingBy(MORE), rising;
        FIGURE_5_2, "fpd-{program}", "{program}: 8 FPD channels interfere: by"
            => AtLeast(MUCH), [fpd_8 - 1.0];
        FIGURE_5_2, "fpd-stable-{program}",
        "{program}: after a number of FPD channels the interference is stable: 8 from 4 by"
            => AtMost(SAME), [(fpd_8 / time(fpd(4)) - 1.0).abs()];
        FIGURE_5_2, "fpd-less-{program}",
        "{program}: 8 FPD channels do not interfere as much as 8 LPD channels: less by"
            => AtLeast(MORE), [lpd_8 - fpd_8];
        FIGURE_5_3, "both-{program}",
        "{program}: both engines interfere much more than each (8 channels): by"
            => AtLeast(MUCH), [lpd_8, fpd_8].map(|one| time(both(8)) - one);
        WEIR, "not-allocated-{program}",
        "{program}: the difference between 8 LPD and 8 FPD channels comes from lines that the L2 \
         allocates: share of it that is left without them"
            => AtMost(0.25), [(time(NOT_ALLOCATED) - fpd_8) / (lpd_8 - fpd_8)];
    ];
    all.extend(regulated(program, measured));
    all
}

/// The statements on the regulator.
fn regulated(program: &str, measured: &Measured) -> Vec<Statement> {
    let time = |interference| measured.time(program, interference);
    let of = |mode, channels, level| time(lpd(mode, channels, level));
    let simple = |channels, level| of(Mode::Simple, channels, level);
    let linked = |channels, level| of(Mode::Linked, channels, level);
    let drop = |mode| of(mode, 8, 0) - of(mode, 8, 0x20);
    statements![
        FIGURE_5_5, "regulated-20-{program}",
        "{program}: 0x20 diminishes the interference of 8 channels: by"
            => AtLeast(MUCH), [simple(8, 0) - simple(8, 0x20)];
        FIGURE_5_5, "left-20-{program}",
        "{program}: at 0x20 not all the interference of 8 channels went away: left"
            => AtLeast(MORE), [simple(8, 0x20) - 1.0];
        FIGURE_5_5, "eight-20-{program}",
        "{program}: at 0x20, 8 channels have a little more overhead than 1: by"
            => Above(0.0), [simple(8, 0x20) - simple(1, 0x20)];
        FIGURE_5_7, "regulated-10-{program}",
        "{program}: 0x10 is a slight improvement over 0x20 (8 channels): by"
            => AtLeast(MORE), [simple(8, 0x20) - simple(8, 0x10)];
        FIGURE_5_7, "levels-{program}",
        "{program}: 8 channels at 0x10, at 0x20 and without regulation"
            => NotFalling(0.0), [simple(8, 0x10), simple(8, 0x20), simple(8, 0)];
        FIGURE_5_10, "linked-drop-{program}",
        "{program}: with linked descriptors 0x20 lowers the interference of 8 channels less than in \
         Figure 5.5: by"
            => AtLeast(MUCH), [drop(Mode::Simple) - drop(Mode::Linked)];
        FIGURE_5_10, "linked-20-same-{program}",
        "{program}: linked, 1 and 8 channels at 0x20 have the same overhead: apart by"
            => AtMost(SAME), [(linked(8, 0x20) - linked(1, 0x20)).abs()];
        FIGURE_5_10, "linked-20-{program}",
        "{program}: linked, 1 and 8 channels at 0x20 have an overhead of {LINKED_20}"
            => Near(LINKED_20, NEAR), FEW_AND_MANY.map(|channels| linked(channels, 0x20));
        FIGURE_5_12, "linked-10-same-{program}",
        "{program}: linked, 1 and 8 channels at 0x10 have the same overhead: apart by"
            => AtMost(SAME), [(linked(8, 0x10) - linked(1, 0x10)).abs()];
        FIGURE_5_12, "linked-10-less-{program}",
        "{program}: linked, 8 channels have less overhead at 0x10 than at 0x20: by"
            => AtLeast(MORE), [linked(8, 0x20) - linked(8, 0x10)];
        WEIR, "lists-{program}",
        "{program}: a core that writes the descriptors of the lists brings the overhead of linked \
         channels at 0x20 near {LINKED_20} or above"
            => AtLeast(LINKED_20 - NEAR), FEW_AND_MANY.map(|channels| time(with_lists(channels)));
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    const NAMES: [&str; 3] = [PROGRAMS[0].0, PROGRAMS[1].0, PROGRAMS[2].0];

    /// Returns the model's times; those of susan-edges-large stand for the others, too.
    fn good() -> Measured {
        let time = |one: Interference| match (one.mode, one.lpd, one.fpd, one.level) {
            _ if one.writes_lists => 1.29,
            _ if !one.allocates => 1.5,
            (_, 0, 0, _) => 1.0,
            (Mode::Simple, 1, 0, 0) => 1.013,
            (Mode::Simple, 2, 0, 0) => 1.21,
            (Mode::Simple, 4, 0, 0) => 1.94,
            (Mode::Simple, _, 0, 0) => 2.08,
            (Mode::Simple, 0, 8, _) => 1.52,
            (Mode::Simple, 0, ..) => 1.56,
            (Mode::Simple, 1, 0, 0x20) => 1.004,
            (Mode::Simple, _, 0, 0x20) => 1.035,
            (Mode::Simple, 1, 0, _) => 1.006,
            (Mode::Simple, _, 0, _) => 1.017,
            (Mode::Simple, ..) => 2.98,
            (Mode::Linked, 1, _, 0) => 1.031,
            (Mode::Linked, _, _, 0) => 1.192,
            (Mode::Linked, 1, _, 0x20) => 1.027,
            (Mode::Linked, _, _, 0x20) => 1.03,
            (Mode::Linked, 1, ..) => 1.016,
            (Mode::Linked, ..) => 1.019,
        };
        let of = |program| {
            let times = move |interference| vec![1e9 * time(interference)];
            interferences().into_iter().map(move |interference| Times {
                program,
                interference,
                ps: times(interference),
            })
        };
        Measured(NAMES.into_iter().flat_map(of).collect())
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(
            &good(),
            &DEVIATIONS,
            |all| stated(&NAMES, all),
            |all| {
                let times = all.0.iter_mut().flat_map(|one| &mut one.ps);
                times.map(|time| time as &mut dyn Change).collect()
            },
        );
    }

    #[test]
    fn a_time_that_was_not_measured_fails() {
        let mut all = good();
        let lost = |one: &Times| one.program == NAMES[0] && one.interference == both(8);
        all.0.retain(|one| !lost(one));
        let failing: Vec<_> = stated(&NAMES, &all)
            .into_iter()
            .filter(|statement| statement.own.iter().any(|own| own.is_nan()))
            .map(|statement| statement.id)
            .collect();
        assert_eq!(failing, ["both-qsort-large"]);
    }
}
