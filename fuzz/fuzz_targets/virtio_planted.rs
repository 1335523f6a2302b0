//! The target `virtio` against a device with a planted double fetch: a fuzzer that is worth its
//! name ends here at once.
//!
//! In `fuzz/`: `cargo +nightly fuzz run virtio_planted -- -max_len=4096`
#![no_main]

#[path = "../../core/vsock/tests/hostile/play.rs"]
mod play;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| play::play_planted(data));
