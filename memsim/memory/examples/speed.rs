//! Prints how fast the model is: `cargo run --release -p weir-memory --example speed`.
#![forbid(unsafe_code)]

fn main() {
    let speed = weir_memory::bench::measure(20_000, 100);
    for (what, rate) in [
        ("DRAM requests, random", speed.dram_random),
        ("DRAM requests, stream", speed.dram_stream),
        ("DRAM requests, row miss", speed.dram_rowmiss),
        ("cache hits", speed.cache_hits),
        ("cache misses", speed.cache_misses),
    ] {
        println!("{what:24} {:7.2} M/s, {:7.2} in the median", rate.best / 1e6, rate.median / 1e6);
    }
}
