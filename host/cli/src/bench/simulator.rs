//! `weir bench simulator`: how fast the model of the memory system is, on one core of this machine.

use crate::{failure::Result, screen};
use serde_json::json;
use std::io::Write;
use weir_memory::bench::{self, Rate};
use weir_report::table;

/// Measures and prints events per second of host time, the best and the median of several rounds
/// over which the requests are divided.
pub fn run(requests: u64, rounds: u64, json: bool) -> Result {
    let speed = bench::measure(requests.div_ceil(rounds), rounds as usize);
    let mut out = screen::stdout();
    if json {
        let dram = |of: fn(&Rate) -> f64| {
            json!({
                "random": of(&speed.dram_random).round(),
                "stream": of(&speed.dram_stream).round(),
                "rowmiss": of(&speed.dram_rowmiss).round(),
            })
        };
        let figures = json!({
            "dram_requests_per_s": dram(|rate| rate.best),
            "cache_hits_per_s": speed.cache_hits.best.round(),
            "cache_misses_per_s": speed.cache_misses.best.round(),
            "rounds": rounds,
            "median": {
                "dram_requests_per_s": dram(|rate| rate.median),
                "cache_hits_per_s": speed.cache_hits.median.round(),
                "cache_misses_per_s": speed.cache_misses.median.round(),
            },
        });
        writeln!(out, "{:#}", weir_report::versioned(figures))?;
        return Ok(());
    }
    let mut rows = table(["million a second", "best", "median"]);
    for (what, rate) in [
        ("DRAM reads, random", speed.dram_random),
        ("DRAM reads, a stream", speed.dram_stream),
        ("DRAM reads, one bank, another row each time", speed.dram_rowmiss),
        ("accesses that hit the L1", speed.cache_hits),
        ("accesses that miss the L2", speed.cache_misses),
    ] {
        let million = |rate: f64| format!("{:.1}", rate / 1e6);
        rows.add_row([what.to_owned(), million(rate.best), million(rate.median)]);
    }
    writeln!(out, "{rows}")?;
    if cfg!(debug_assertions) {
        writeln!(out, "this build is not optimized: the figures mean little")?;
    }
    Ok(())
}
