//! A hostile driver against the socket device's registers and rings, in memory that changes while
//! it is read: nothing panics, work is bounded, no byte is read twice in one go, and what is
//! accepted is in RAM and well formed.
//!
//! In `fuzz/`: `cargo +nightly fuzz run virtio -- -max_len=4096`
#![no_main]

#[path = "../../core/vsock/tests/hostile/play.rs"]
mod play;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| play::play(data));
