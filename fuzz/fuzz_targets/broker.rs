//! Hostile drivers against the broker, next to two VMs that keep the rules: nothing panics, no
//! memory but RAM of VMs is accessed, the accesses of each step are bounded, and packets between
//! the two arrive.
//!
//! In `fuzz/`: `cargo +nightly fuzz run broker -- -max_len=4096`
#![no_main]

#[path = "../../core/broker/tests/hostile/play.rs"]
mod play;
#[path = "../../core/broker/tests/world/mod.rs"]
mod world;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    play::play(data);
});
