//! The time of a chunk by the broker's core and by the DMA engine, by its size, for `weir bench
//! engine`.

use super::{engine, flows};
use crate::{
    environment::Environment,
    failure::{Failure, Result},
    progress::CountBar,
};
use serde_json::{Value, json};
use std::path::Path;
use weir_experiments::write_changed;
use weir_model::{platform::Machine, timing::Timing};
use weir_report::{overheads::measured, trace::file::NAME};

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

/// Measures each size by both, with the time of the board's caches and DRAM. The systems are
/// written to `file`.
pub fn measure(file: &Path, environment: &Environment, bar: &CountBar) -> Result<Vec<Value>> {
    let system = environment.system(engine::TABLE3)?;
    let board = flows::load(&system, Some(engine::PLATFORM), Machine::Board, environment)?;
    let mut rows = Vec::new();
    for size in SIZES {
        let of = |keys: &str, phase: &str| {
            let taken = phases(size, keys, file, environment)?;
            bar.add(1);
            let both = median(&taken, "pd").zip(median(&taken, phase));
            Ok::<_, Failure>(both.map(|(program, phase)| program + phase))
        };
        let core = of(engine::MOVED[1].1, "copy")?;
        let calls = of(engine::MOVED[0].1, "ip")?;
        let moving = transfer(&board, size);
        rows.push(json!({
            "size": size,
            "core_ns": core,
            "engine_calls_ns": calls,
            "engine_transfer_ns": moving,
            "engine_ns": calls.zip(moving).map(|(calls, moving)| calls + moving),
        }));
    }
    Ok(rows)
}

/// Returns the phases of messages of `size` bytes that are moved as `keys` say.
fn phases(size: u64, keys: &str, file: &Path, environment: &Environment) -> Result<Value> {
    let (size_text, all) = (size.to_string(), (size * MESSAGES).to_string());
    let changes = CHANGES.into_iter().chain([
        (ALL_BYTES, &*all),
        (engine::SIZE, &*size_text),
        (engine::MOVED[0].1, keys),
    ]);
    write_changed(&environment.system(engine::TABLE3)?, changes, file)?;
    let case = flows::Case::on(engine::TABLE3, engine::PLATFORM).unjudged().charged();
    let run = flows::exactly(file, &case, environment)?;
    Ok(json!(measured(&run.directory.join(NAME))?.0.record()))
}

/// Returns the median of a phase, in ns; none if no chunk had it.
fn median(taken: &Value, name: &str) -> Option<u64> {
    let mut phases = taken["phases"].as_array()?.iter();
    let phase = phases.find(|phase| phase["name"] == name && phase["count"] != 0)?;
    phase["ns"]["median"].as_u64()
}

/// Returns the least time in which the board's engine moves `size` bytes, in ns: shorter chunks are
/// slower than the shortest one of `[saturation]`.
fn transfer(board: &Timing, size: u64) -> Option<u64> {
    let chunks = &board.saturation.as_ref()?.chunks;
    let (_, rate) = chunks.iter().min_by_key(|(chunk, _)| *chunk)?;
    Some((size * 1_000_000_000).div_ceil(rate.0.max(1)))
}

/// Returns the least size of `rows` from which on the engine takes no more than the core.
pub fn crossover(rows: &Value) -> Option<u64> {
    let rows = rows.as_array()?;
    let is_slower = |row: &Value| {
        let (core, engine) = (row["core_ns"].as_u64(), row["engine_ns"].as_u64());
        engine.zip(core).is_none_or(|(engine, core)| engine > core)
    };
    let from = rows.iter().rposition(is_slower).map_or(0, |last| last + 1);
    rows.get(from)?["size"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_worth_it_behind_the_last_faster_copy() {
        let rows = |times: [(u64, u64); 3]| {
            let row = |(size, (core, engine))| json!({ "size": size, "core_ns": core, "engine_ns": engine });
            SIZES.into_iter().zip(times).map(row).collect::<Value>()
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
        let system = Environment::find().system(engine::TABLE3).expect("a checkout");
        let changes = CHANGES.into_iter().chain([(ALL_BYTES, "6400"), (engine::SIZE, "64")]);
        write_changed(&system, changes, &copy).expect("a copy");
        let text = std::fs::read_to_string(&copy).expect("text");
        for part in ["messages=100 size=64", "100 messages of 64 bytes", "bytes=6400 ", "200us"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
