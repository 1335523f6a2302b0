//! The time of a chunk by the broker's core and by the DMA engine, by its size, for `weir bench
//! engine`.

use super::{
    flows,
    table3::{MOVED, PLATFORM, SIZE, TABLE3},
};
use crate::{
    environment::Environment,
    failure::{Failure, Result},
    progress::CountBar,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use weir_experiments::write_changed;
use weir_model::{System, platform::Machine};
use weir_report::{
    overheads::{OverheadsRecord, measured},
    trace::file::NAME,
};

/// Bytes of a message: each fits a receive buffer, so that it is one chunk.
pub const SIZES: [u64; 7] = [64, 128, 256, 512, 1024, 2048, 3072];
/// Messages of a run.
const MESSAGES: u64 = 100;

/// The changes of Table III's system for these runs, beside the size.
const CHANGES: [(&str, &str); 5] = [
    ("messages=1000", "messages=100"),
    ("1000 messages", "100 messages"),
    ("period_ns=150000", "period_ns=200000"),
    ("\"150us\"", "\"200us\""),
    ("\"148MB/s\"", "\"4000MB/s\""),
];
/// The bytes of all messages of Table III's system.
const ALL_BYTES: &str = "12288000";

/// The time of a chunk of one size, in ns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CopyTime {
    /// The size in bytes.
    pub size: u64,
    /// The time if a core copies.
    pub core_ns: Option<u64>,
    /// The time of the calls that program the engine and handle its interrupt.
    pub engine_calls_ns: Option<u64>,
    /// The time of the transfer.
    pub engine_transfer_ns: Option<u64>,
    /// The time if the engine moves.
    pub engine_ns: Option<u64>,
}

/// The header of the table of chunks by size.
pub const HEADER: [&str; 5] =
    ["bytes", "core copies, ns", "engine: calls, ns", "engine: transfer, ns", "engine, ns"];

impl CopyTime {
    /// Returns the row of the table; `number` writes its numbers.
    pub fn row(&self, number: impl Fn(Option<u64>) -> String) -> [String; 5] {
        let Self { size, core_ns, engine_calls_ns, engine_transfer_ns, engine_ns } = *self;
        [Some(size), core_ns, engine_calls_ns, engine_transfer_ns, engine_ns].map(number)
    }
}

/// Measures each size by both, with the time of the board's caches and DRAM. The systems are
/// written to `file`.
pub fn measure(file: &Path, environment: &Environment, bar: &CountBar) -> Result<Vec<CopyTime>> {
    let system = environment.system(TABLE3)?;
    let board = flows::load(&system, Some(PLATFORM), Machine::Board, environment)?;
    let mut rows = Vec::new();
    for size in SIZES {
        let of = |keys: &str, phase: &str| {
            let taken = phases(size, keys, file, environment)?;
            bar.add(1);
            let both = median(&taken, "pd").zip(median(&taken, phase));
            Ok::<_, Failure>(both.map(|(program, phase)| program + phase))
        };
        let core = of(MOVED[1].1, "copy")?;
        let calls = of(MOVED[0].1, "ip")?;
        let moving = transfer(&board, size);
        rows.push(CopyTime {
            size,
            core_ns: core,
            engine_calls_ns: calls,
            engine_transfer_ns: moving,
            engine_ns: calls.zip(moving).map(|(calls, moving)| calls + moving),
        });
    }
    Ok(rows)
}

/// Returns the phases of messages of `size` bytes that are moved as `keys` say.
fn phases(
    size: u64,
    keys: &str,
    file: &Path,
    environment: &Environment,
) -> Result<OverheadsRecord> {
    let (size_text, all) = (size.to_string(), (size * MESSAGES).to_string());
    let changes =
        CHANGES.into_iter().chain([(ALL_BYTES, &*all), (SIZE, &*size_text), (MOVED[0].1, keys)]);
    write_changed(&environment.system(TABLE3)?, changes, file)?;
    let case = flows::Case::on(TABLE3, PLATFORM).unjudged().charged();
    let run = flows::exactly(file, &case, environment)?;
    Ok(measured(&run.directory.join(NAME))?.0.record())
}

/// Returns the median of a phase, in ns; none if no chunk had it.
fn median(taken: &OverheadsRecord, name: &str) -> Option<u64> {
    let phase = taken.phases.iter().find(|phase| phase.name == name)?;
    (phase.count > 0).then_some(phase.ns.median)
}

/// Returns the least time in which the board's engine moves `size` bytes, in ns: shorter chunks are
/// slower than the shortest one of `[saturation]`.
fn transfer(board: &System, size: u64) -> Option<u64> {
    let chunks = &board.saturation.as_ref()?.chunks;
    let (_, rate) = chunks.iter().min_by_key(|(chunk, _)| *chunk)?;
    Some((size * 1_000_000_000).div_ceil(rate.0.max(1)))
}

/// Returns the least size of `rows` from which on the engine takes no more than the core.
pub fn crossover(rows: &[CopyTime]) -> Option<u64> {
    let is_slower =
        |row: &CopyTime| row.engine_ns.zip(row.core_ns).is_none_or(|(engine, core)| engine > core);
    let from = rows.iter().rposition(is_slower).map_or(0, |last| last + 1);
    Some(rows.get(from)?.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_worth_it_behind_the_last_faster_copy() {
        let rows = |times: [(u64, u64); 3]| {
            let row = |(size, (core, engine))| CopyTime {
                size,
                core_ns: Some(core),
                engine_calls_ns: None,
                engine_transfer_ns: None,
                engine_ns: Some(engine),
            };
            SIZES.into_iter().zip(times).map(row).collect::<Vec<_>>()
        };
        assert_eq!(crossover(&rows([(1, 5), (6, 5), (9, 6)])), Some(SIZES[1]));
        assert_eq!(crossover(&rows([(6, 5), (1, 5), (6, 6)])), Some(SIZES[2]));
        assert_eq!(crossover(&rows([(1, 5), (1, 5), (5, 6)])), None);
        assert_eq!(crossover(&rows([(5, 5), (5, 5), (9, 6)])), Some(SIZES[0]));
    }

    #[test]
    fn the_system_has_each_change() {
        let scratch = tempfile::tempdir().expect("a directory");
        let copy = scratch.path().join("copy.toml");
        let system = Environment::find().system(TABLE3).expect("a checkout");
        let changes = CHANGES.into_iter().chain([(ALL_BYTES, "6400"), (SIZE, "64")]);
        write_changed(&system, changes, &copy).expect("a copy");
        let text = std::fs::read_to_string(&copy).expect("text");
        for part in ["messages=100 size=64", "100 messages of 64 bytes", "bytes=6400 ", "200us"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
