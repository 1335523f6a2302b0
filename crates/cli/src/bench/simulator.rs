//! `weir bench simulator`: how fast the model of the memory system is, on one core of this machine.

use crate::{failure::Result, run::show::table};
use serde_json::json;
use std::io::Write;
use weir_memsys::bench;

/// Measures and prints events per second of host time.
pub fn run(requests: u64, json: bool) -> Result {
    let speed = bench::measure(requests);
    let mut out = anstream::stdout().lock();
    if json {
        let figures = json!({
            "dram_requests_per_s": {
                "random": speed.dram_random.round(),
                "stream": speed.dram_stream.round(),
                "rowmiss": speed.dram_rowmiss.round(),
            },
            "cache_hits_per_s": speed.cache_hits.round(),
            "cache_misses_per_s": speed.cache_misses.round(),
        });
        writeln!(out, "{figures:#}")?;
        return Ok(());
    }
    let mut rows = table(["what", "million a second"]);
    for (what, rate) in [
        ("DRAM reads, random", speed.dram_random),
        ("DRAM reads, a stream", speed.dram_stream),
        ("DRAM reads, one bank, another row each time", speed.dram_rowmiss),
        ("accesses that hit the L1", speed.cache_hits),
        ("accesses that miss the L2", speed.cache_misses),
    ] {
        rows.add_row([what.to_owned(), format!("{:.1}", rate / 1e6)]);
    }
    writeln!(out, "{rows}")?;
    if cfg!(debug_assertions) {
        writeln!(out, "this build is not optimized: the figures mean little")?;
    }
    Ok(())
}
