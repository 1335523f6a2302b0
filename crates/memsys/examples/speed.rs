//! Prints how fast the model is: `cargo run --release -p weir-memsys --example speed`.
#![forbid(unsafe_code)]

fn main() {
    let speed = weir_memsys::bench::measure(2_000_000);
    for (what, rate) in [
        ("DRAM requests, random", speed.dram_random),
        ("DRAM requests, stream", speed.dram_stream),
        ("DRAM requests, row miss", speed.dram_rowmiss),
        ("cache hits", speed.cache_hits),
        ("cache misses", speed.cache_misses),
    ] {
        println!("{what:24} {:7.2} M/s", rate / 1e6);
    }
}
