//! bao-throttling, section 5.4: translations of a network device next to DMA channels behind the
//! same TBU (Figures 5.4, 5.6, 5.8, 5.9, 5.11 and 5.13), and the bandwidth of a channel that shares
//! TLB and regulator (Table 5.1).
//!
//! The thesis prints no numbers of these figures except the levels at which regulated counts
//! stabilize: the sentences of its text are judged, as orders and shares.

use super::{DRIVER_NS, Mode, PAPER, board_of, dma_vm};
use crate::memory::{Spread, each, each_by_seed, simulate};
use crate::{
    ExperimentOutcome, ExperimentRequest,
    statement::{
        ClaimSource,
        Relation::{Above, AtLeast, AtMost, Below, Near, RisingBy, Within},
        Statement, statements,
    },
};
use serde_json::{Value, json};
use weir_image::Result;
use weir_report::{Picture, table};

const FIGURE_5_4: ClaimSource = PAPER.at("5.4.1, Figure 5.4");
const FIGURE_5_6: ClaimSource = PAPER.at("5.4.1, Figure 5.6");
const FIGURE_5_8: ClaimSource = PAPER.at("5.4.1, Figure 5.8");
const FIGURE_5_9: ClaimSource = PAPER.at("5.4.2, Figure 5.9");
const FIGURE_5_11: ClaimSource = PAPER.at("5.4.2, Figure 5.11");
const FIGURE_5_13: ClaimSource = PAPER.at("5.4.2, Figure 5.13");
const TABLE_5_1: ClaimSource = PAPER.at("5.4.3, Table 5.1");
const WEIR: ClaimSource = ClaimSource::own("docs/explanation/simulation.md");

/// Windows of the connection in KiB.
const WINDOWS: [u64; 3] = [4, 16, 64];
const QUICK_WINDOWS: [u64; 1] = [LARGEST];
/// The window from which regulated counts stabilize, and the largest one.
const STABLE: u64 = 16;
const LARGEST: u64 = 64;
const CHANNELS: [u64; 2] = [1, 8];
/// The levels of the regulator: none, 0x20, 0x10.
const LEVELS: [u64; 3] = [0, 0x20, 0x10];
const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 2;
/// Until the TLB is full, and the part that counts. A regulated engine takes longer to fill it.
const WARM_UP_US: u64 = 4_000;
const REGULATED_WARM_UP_US: u64 = 24_000;
const LENGTH_US: u64 = 6_000;

/// The network device next to channels, or alone: the window, and of the channels the mode, how many
/// there are, and the level of their regulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    window: u64,
    interference: Option<(Mode, u64, u64)>,
}

/// A point's writes of the TLB for the network device in a millisecond, one for each seed.
#[derive(Clone, Debug)]
struct Walks {
    point: Point,
    writes: Vec<f64>,
}

/// A row of Table 5.1: how many channels interfere, and the level of the regulator; the published
/// bandwidth and loss, which follows from the bandwidths but for two rows.
#[derive(Clone, Copy, Debug)]
struct Row {
    channels: u64,
    level: u64,
    mb: f64,
    printed: f64,
}

const ROWS: [Row; 5] = [
    Row { channels: 0, level: 0, mb: 10.238, printed: 0.0 },
    Row { channels: 3, level: 0, mb: 7.183, printed: 29.28 },
    Row { channels: 3, level: 0x20, mb: 3.862, printed: 62.28 },
    Row { channels: 3, level: 0x10, mb: 2.374, printed: 76.81 },
    Row { channels: 3, level: 1, mb: 0.180, printed: 93.23 },
];

impl Row {
    /// The loss that follows from the bandwidths of the table, in percent.
    fn loss(self) -> f64 {
        loss(self.mb, ROWS[0].mb)
    }
}

/// The share of a bandwidth that is lost, in percent.
fn loss(mb: f64, alone: f64) -> f64 {
    100.0 * (1.0 - mb / alone)
}

/// The results of all runs.
#[derive(Clone, Debug)]
struct Measured {
    walks: Vec<Walks>,
    /// MB/s of the channel, in the order of [`ROWS`].
    rows: Vec<f64>,
    /// The loss by interference if the channel makes its transfers without a pause, in percent.
    without_pause: f64,
}

impl Measured {
    /// The mean of a point's writes; no number if it was not measured.
    fn of(&self, window: u64, interference: Option<(Mode, u64, u64)>) -> f64 {
        let wanted = Point { window, interference };
        let found = self.walks.iter().find(|walks| walks.point == wanted);
        found.map_or(f64::NAN, |walks| Spread::of(&walks.writes).mean)
    }

    fn mb(&self, row: usize) -> f64 {
        self.rows.get(row).copied().unwrap_or(f64::NAN)
    }
}

fn points(windows: &[u64]) -> Vec<Point> {
    let of = |&window: &u64| {
        let modes = [Mode::Simple, Mode::Linked].into_iter();
        let all = modes.flat_map(|mode| {
            CHANNELS
                .into_iter()
                .flat_map(move |channels| LEVELS.map(|level| Some((mode, channels, level))))
        });
        let each = std::iter::once(None).chain(all);
        each.map(move |interference| Point { window, interference }).collect::<Vec<_>>()
    };
    windows.iter().flat_map(of).collect()
}

/// A link of 1 Gbit/s to a host that answers after 128 us, which is assumed; the ring of packets has
/// 16 pages.
fn network(window: u64) -> String {
    format!(
        "[[vm]]\nname = \"linux\"\ncpus = [0]\nmemory = \"8MiB\"\n\
         image = {{ elf = \"memory-stressor\" }}\n\
         workload = {{ kind = \"network\", engine = \"gem\", direction = \"send\", \
         size = \"64KiB\", window = \"{window}KiB\", delay = \"128us\", gap = \"12us\" }}\n"
    )
}

/// Channels that go through twice as many pages as the TLB has entries (section 5.2), and through
/// 32 more, so that the arrays of the channels do not all begin in the same set of the TLB.
fn sweep(mode: Mode, channels: u64) -> String {
    let keys = mode.keys("size = \"8320KiB\", chunk = \"4KiB\"");
    dma_vm("lpd", 1, "272MiB", channels, &keys)
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn writes(point: Point, seed: u64) -> Result<f64> {
    let (mut vms, mut level) = (network(point.window), 0);
    if let Some((mode, channels, its)) = point.interference {
        vms.push_str(&sweep(mode, channels));
        level = its;
    }
    let warm_up = if level > 0 { REGULATED_WARM_UP_US } else { WARM_UP_US };
    let outcome = simulate(&board_of(&vms, level, true)?, seed, warm_up, LENGTH_US)?;
    let misses = outcome.tbus.first().map_or(f64::NAN, |tbu| tbu.misses[0] as f64);
    Ok(misses * 1000.0 / LENGTH_US as f64)
}

/// MB/s of a channel that makes transfers of 16 bytes with a pause between two: those of the time
/// from the begin of a transfer to its end, and of the driver.
#[expect(clippy::cast_precision_loss, reason = "picoseconds of a run")]
fn bandwidth(row: Row, pause: &str, transfers: u64) -> Result<f64> {
    let keys = format!("size = \"4KiB\", chunk = \"16B\", gap = \"{pause}\"");
    let one = dma_vm("lpd", 2, "4MiB", 1, &keys).replace("lpd-channels", "benchmark");
    let board = board_of(&format!("{one}{}", sweep(Mode::Linked, row.channels)), row.level, true)?;
    let outcome = simulate(&board, 1, REGULATED_WARM_UP_US, transfers * 1000)?;
    let taken = outcome.vms[0].latency.mean().0 as f64 / 1e3 + DRIVER_NS as f64;
    Ok(16e3 / taken)
}

/// Transfers of which the mean time is taken, as in the thesis.
const TRANSFERS: u64 = 100;
const QUICK_TRANSFERS: u64 = 10;
/// A pause in which three sweeping channels replace all of the TLB; the thesis does not print its
/// own. A regulated engine takes longer for that.
const PAUSE: &str = "1ms";

/// The whole experiment.
pub fn translations(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let (windows, seeds, transfers) = if request.quick {
        (&QUICK_WINDOWS[..], QUICK_SEEDS, QUICK_TRANSFERS)
    } else {
        (&WINDOWS[..], SEEDS, TRANSFERS)
    };
    let points = points(windows);
    let walks = each_by_seed(&points, seeds, writes)?;
    let walks = walks.into_iter().map(|(point, writes)| Walks { point, writes });
    let none = format!("{DRIVER_NS}ns");
    let rows = ROWS.map(|row| (row, PAUSE)).into_iter();
    let rows: Vec<_> = rows.chain([(ROWS[0], &*none), (ROWS[1], &*none)]).collect();
    let rows = each(&rows, |(row, pause)| bandwidth(*row, pause, transfers))?;
    let (rows, back_to_back) = rows.split_at(ROWS.len());
    let measured = Measured {
        walks: walks.collect(),
        rows: rows.to_vec(),
        without_pause: loss(back_to_back[1], back_to_back[0]),
    };
    let mut files = Vec::new();
    for (mode, name) in [(Mode::Simple, "fig5-4.svg"), (Mode::Linked, "fig5-9.svg")] {
        files.push(picture(windows, &measured, mode).write(request.directory.join(name))?);
    }
    Ok(ExperimentOutcome {
        json: json!({ "writes": writes_json(&measured), "table_5_1": rows_json(&measured) }),
        text: format!("{}\n\n{}\n\n{NOTES}", walks_text(windows, &measured), rows_text(&measured)),
        statements: stated(windows, &measured),
        files,
    })
}

const NOTES: &str = "Writes of the TLB for the network device in 1 ms, mean of all seeds with the \
                     least and the greatest. Fitted: the time of the driver, to the 10.238 MB/s of \
                     Table 5.1.\nAssumed: random replacement, ways, walks of three levels without a \
                     cache, the link, the ring, and a pause of 1 ms between the benchmark's \
                     transfers.\nTwo percentages of Table 5.1 do not follow from its bandwidths: \
                     1 - 7.183 / 10.238 is 29.84 % (printed: 29.28), and 1 - 0.180 / 10.238 is \
                     98.24 % (printed: 93.23).\n";

fn label(interference: Option<(Mode, u64, u64)>) -> String {
    match interference {
        None => "no interference".to_owned(),
        Some((_, channels, level)) => {
            let plural = if channels == 1 { "" } else { "s" };
            let level = if level == 0 { String::new() } else { format!(", 0x{level:x}") };
            format!("{channels} channel{plural}{level}")
        }
    }
}

/// The rows of a mode: alone, then each number of channels at each level.
fn interferences(mode: Mode) -> Vec<Option<(Mode, u64, u64)>> {
    let of = |level| CHANNELS.map(|channels| Some((mode, channels, level)));
    std::iter::once(None).chain(LEVELS.into_iter().flat_map(of)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "small sizes")]
fn picture(windows: &[u64], measured: &Measured, mode: Mode) -> Picture<'static> {
    let lines = interferences(mode).into_iter().map(|interference| {
        let points = windows.iter().map(|&w| (w as f64, measured.of(w, interference)));
        (label(interference), points.collect())
    });
    Picture { x: "window in KiB", y: "TLB writes in 1 ms", lines: lines.collect() }
}

fn walks_text(windows: &[u64], measured: &Measured) -> String {
    let mut columns = vec!["mode".to_owned(), "interference".to_owned()];
    columns.extend(windows.iter().map(|window| format!("{window} KiB")));
    let mut rows = table(columns);
    for mode in [Mode::Simple, Mode::Linked] {
        for interference in interferences(mode) {
            let mut row = vec![mode.name().to_owned(), label(interference)];
            for &window in windows {
                let point = Point { window, interference };
                let walks = measured.walks.iter().find(|walks| walks.point == point);
                row.push(walks.map_or("-".to_owned(), |w| Spread::of(&w.writes).text(1)));
            }
            rows.add_row(row);
        }
    }
    rows.to_string()
}

fn rows_text(measured: &Measured) -> String {
    let columns = ["channels", "level", "MB/s", "published", "lost %", "of the published"];
    let mut rows = table(columns.map(str::to_owned));
    for (row, at) in ROWS.into_iter().zip(0..) {
        let mb = measured.mb(at);
        rows.add_row([
            row.channels.to_string(),
            format!("0x{:x}", row.level),
            format!("{mb:.3}"),
            format!("{:.3}", row.mb),
            format!("{:.2}", loss(mb, measured.mb(0))),
            format!("{:.2}", row.loss()),
        ]);
    }
    rows.to_string()
}

fn writes_json(measured: &Measured) -> Value {
    let each = measured.walks.iter().map(|Walks { point, writes }| {
        let Spread { mean, least, most } = Spread::of(writes);
        json!({
            "window_kib": point.window,
            "mode": point.interference.map(|(mode, ..)| mode.name()),
            "channels": point.interference.map_or(0, |(_, channels, _)| channels),
            "level": point.interference.map_or(0, |(.., level)| level),
            "writes_in_1_ms": { "mean": mean, "least": least, "most": most },
        })
    });
    each.collect()
}

fn rows_json(measured: &Measured) -> Value {
    let each = ROWS.into_iter().zip(0..).map(|(row, at)| {
        json!({
            "channels": row.channels,
            "level": row.level,
            "mb_per_s": measured.mb(at),
            "published": row.mb,
            "published_loss": row.printed,
            "loss_of_the_published": row.loss(),
        })
    });
    each.collect()
}

/// "Significant", "much higher": at least this factor.
const MUCH: f64 = 1.5;
/// "Relatively close", "the same value": within this share, which the spread of the seeds needs.
const CLOSE: f64 = 0.35;
/// A write in a millisecond more.
const MORE: f64 = 0.1;

fn stated(windows: &[u64], measured: &Measured) -> Vec<Statement> {
    let mut all = Vec::new();
    for &window in windows {
        all.extend(of_window(window, measured));
    }
    let of = |mode, channels, level| measured.of(LARGEST, Some((mode, channels, level)));
    let share = |a: f64, b: f64| a / b;
    let apart = |mode, level| (share(of(mode, 8, level), of(mode, 1, level)) - 1.0).abs();
    let gap = |mode| of(mode, 8, 0) - of(mode, 1, 0);
    all.extend(statements![
        FIGURE_5_6, "left-20",
        "0x20 is not enough to lower the writes to those without interference (8 channels, window \
         of {LARGEST} KiB): above them by"
            => AtLeast(MORE), [of(Mode::Simple, 8, 0x20) - measured.of(LARGEST, None)];
        FIGURE_5_9, "linked-gap",
        "with linked descriptors there is more between 1 and 8 channels than in simple mode: by"
            => AtLeast(MORE), [gap(Mode::Linked) - gap(Mode::Simple)];
        FIGURE_5_11, "linked-20-evident",
        "linked, 1 channel: the difference that 0x20 makes is evident: share that is left"
            => Below(1.0), [share(of(Mode::Linked, 1, 0x20), of(Mode::Linked, 1, 0))];
        FIGURE_5_11, "linked-20-small",
        "linked, 1 channel: the difference that 0x20 makes is not very big: share that is left"
            => AtLeast(0.5), [share(of(Mode::Linked, 1, 0x20), of(Mode::Linked, 1, 0))];
        FIGURE_5_11, "linked-20-close",
        "linked: 1 and 8 channels at 0x20 stabilize relatively close: apart by"
            => AtMost(CLOSE), [apart(Mode::Linked, 0x20)];
        FIGURE_5_11, "linked-20-far",
        "linked: 0x20 is a long way from no interference, compared to simple mode: share of that"
            => AtLeast(MUCH), [share(of(Mode::Linked, 8, 0x20), of(Mode::Simple, 8, 0x20))];
        FIGURE_5_13, "linked-10-remarkable",
        "linked: 1 and 8 channels at 0x10 are remarkably below 1 channel without regulation: shares"
            => AtMost(0.75),
            [1, 8].map(|channels| share(of(Mode::Linked, channels, 0x10), of(Mode::Linked, 1, 0)));
        FIGURE_5_13, "linked-10-close",
        "linked: 1 and 8 channels at 0x10 tend towards the same value: apart by"
            => AtMost(CLOSE), [apart(Mode::Linked, 0x10)];
        FIGURE_5_13, "linked-10-left",
        "linked: at 0x10 there is still a significant amount of writes: share of simple mode"
            => AtLeast(MUCH), [share(of(Mode::Linked, 8, 0x10), of(Mode::Simple, 8, 0x10))];
    ]);
    if windows.contains(&STABLE) {
        let stable = |level: u64| {
            CHANNELS.map(|channels| {
                let of = |window| measured.of(window, Some((Mode::Simple, channels, level)));
                share(of(LARGEST), of(STABLE))
            })
        };
        all.extend(statements![
        FIGURE_5_8, "stable-ratio",
        "the writes stabilize at 10,000 at 0x10 and at 20,000 at 0x20 (mean of 1 and 8 channels): \
         ratio"
            => Near(0.5, 0.2),
            [share(
                of(Mode::Simple, 1, 0x10) + of(Mode::Simple, 8, 0x10),
                of(Mode::Simple, 1, 0x20) + of(Mode::Simple, 8, 0x20)
            )];
            FIGURE_5_6, "stable-20",
            "at 0x20 the writes stabilize from a window of {STABLE} KiB on: those of {LARGEST} KiB \
             over those of {STABLE} KiB"
                => Near(1.0, CLOSE), stable(0x20);
        ]);
    }
    all.extend(of_table(measured));
    all
}

/// The statements on one window.
fn of_window(window: u64, measured: &Measured) -> Vec<Statement> {
    let of = |mode, channels, level| measured.of(window, Some((mode, channels, level)));
    let none = measured.of(window, None);
    let mut all = Vec::new();
    for (source, mode) in [(FIGURE_5_4, Mode::Simple), (FIGURE_5_9, Mode::Linked)] {
        let name = mode.name();
        all.extend(statements![
            source, "rising-{name}-{window}",
            "{name}, window of {window} KiB: writes without interference, with 1 channel, with 8"
                => RisingBy(MORE), [none, of(mode, 1, 0), of(mode, 8, 0)];
        ]);
    }
    all.extend(statements![
        FIGURE_5_9, "linked-{window}",
        "window of {window} KiB: linked descriptors cause far more writes than simple mode (1, 8 \
         channels): times as many"
            => AtLeast(MUCH),
            CHANNELS.map(|channels| of(Mode::Linked, channels, 0) / of(Mode::Simple, channels, 0));
    ]);
    let levels = [
        (FIGURE_5_6, Mode::Simple, 0x20),
        (FIGURE_5_8, Mode::Simple, 0x10),
        (FIGURE_5_11, Mode::Linked, 0x20),
        (FIGURE_5_13, Mode::Linked, 0x10),
    ];
    for (source, mode, level) in levels {
        let name = mode.name();
        all.extend(statements![
            source, "regulated-{name}-{level:x}-{window}",
            "{name}, window of {window} KiB: 0x{level:x} lowers the writes next to 8 channels: \
             share that is left"
                => Below(1.0), [of(mode, 8, level) / of(mode, 8, 0)];
        ]);
        if level == 0x10 {
            all.extend(statements![
                source, "levels-{name}-{window}",
                "{name}, window of {window} KiB: 0x10 leaves no more writes than 0x20 (1 and 8 \
                 channels together): share"
                    => AtMost(1.0),
                    [(of(mode, 1, 0x10) + of(mode, 8, 0x10)) / (of(mode, 1, 0x20) + of(mode, 8, 0x20))];
            ]);
        }
    }
    all
}

fn of_table(measured: &Measured) -> Vec<Statement> {
    let mb = |row| measured.mb(row);
    let lost = |row| loss(mb(row), mb(0));
    let alone = statements![
        TABLE_5_1, "alone", "a channel that makes transfers of 16 B, without interference"
            => Within(ROWS[0].mb, 0.02), [mb(0)], "MB/s";
    ];
    let fitted = "the time of the driver (DRIVER_NS of experiments/src/bao_throttling/mod.rs)";
    let mut all: Vec<_> = alone.into_iter().map(|one: Statement| one.fitted(fitted)).collect();
    all.extend(statements![
        TABLE_5_1, "order",
        "the bandwidth falls from no interference over 3 channels to 3 channels at 0x20, 0x10 and \
         0x01: from the last to the first"
            => RisingBy(0.01), [4, 3, 2, 1, 0].map(mb), "MB/s";
        TABLE_5_1, "lost-interference",
        "lost by 3 channels that interfere; it follows from 10.238 and 7.183 MB/s, and the thesis \
         prints 29.28"
            => Near(ROWS[1].loss(), 10.0), [lost(1)], "%";
        TABLE_5_1, "lost-01",
        "lost at 0x01; from 10.238 and 0.180 MB/s follow 98.24, and the thesis prints 93.23"
            => AtLeast(95.0), [lost(4)], "%";
        WEIR, "without-pause",
        "a benchmark that makes its transfers without a pause keeps its translations and loses \
         less than a quarter of that to interference"
            => Below(ROWS[1].loss() / 4.0), [measured.without_pause], "%";
        WEIR, "no-interference", "alone, each translation of the network device is a hit, once its \
         pages are there: writes in 1 ms"
            => AtMost(0.0), [measured.of(LARGEST, None)];
        WEIR, "some-walks", "8 channels with linked descriptors cost the network device writes: in 1 ms"
            => Above(1.0), [measured.of(LARGEST, Some((Mode::Linked, 8, 0)))];
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    /// Returns the model's values.
    fn good() -> Measured {
        let writes = |point: &Point| match point.interference {
            None => 0.0,
            Some((mode, channels, level)) => {
                let most = match (mode, channels, level) {
                    (Mode::Simple, 1, 0) => 4.2,
                    (Mode::Simple, _, 0) => 13.0,
                    (Mode::Simple, 1, 0x20) => 2.0,
                    (Mode::Simple, _, 0x20) => 2.2,
                    (Mode::Simple, 1, _) => 1.0,
                    (Mode::Simple, ..) => 1.1,
                    (Mode::Linked, 1, 0) => 19.2,
                    (Mode::Linked, _, 0) => 35.8,
                    (Mode::Linked, 1, 0x20) => 16.8,
                    (Mode::Linked, _, 0x20) => 15.0,
                    (Mode::Linked, 1, _) => 10.5,
                    (Mode::Linked, ..) => 9.5,
                };
                if point.window == 4 { most / 2.0 } else { most }
            }
        };
        let walks = points(&WINDOWS).into_iter();
        Measured {
            walks: walks.map(|point| Walks { point, writes: vec![writes(&point)] }).collect(),
            rows: vec![10.24, 7.0, 5.0, 4.0, 0.4],
            without_pause: 0.5,
        }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(
            &good(),
            &[],
            |all| stated(&WINDOWS, all),
            |all| {
                let mut values: Vec<&mut dyn Change> = Vec::new();
                for walks in &mut all.walks {
                    values.extend(walks.writes.iter_mut().map(|one| one as &mut dyn Change));
                }
                values.extend(all.rows.iter_mut().map(|one| one as &mut dyn Change));
                values.push(&mut all.without_pause);
                values
            },
        );
    }

    #[test]
    fn two_published_losses_do_not_follow() {
        let off = |row: &&Row| (row.loss() - row.printed).abs() > 0.02;
        let wrong: Vec<_> = ROWS.iter().filter(off).map(|row| (row.printed, row.loss())).collect();
        assert_eq!(wrong.len(), 2);
        assert!((wrong[0].1 - 29.84).abs() < 0.005 && (wrong[1].1 - 98.24).abs() < 0.005);
    }
}
