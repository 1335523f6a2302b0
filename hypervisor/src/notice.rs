//! Notices of EL2 itself on the bare UART, without the console's rings: from the boot core before
//! the console has the UART, and from a core that stops.

use crate::{
    arch::{relax, wait_for_interrupt},
    start,
    uart::Uart,
};
use core::sync::atomic::{AtomicBool, Ordering};

/// Steps of a loop that take longer than a section of the console core.
const SECTION: u32 = 10_000;

/// Whether a core refuses.
static REFUSING: AtomicBool = AtomicBool::new(false);

/// Reports why this machine or this image can't be used, and turns the machine off. Each core
/// checks what it has for itself, so several can refuse at the same time: the first one reports,
/// and the console core sends no frame in the midst of it.
pub fn refuse(parts: &[&[u8]]) -> ! {
    // Relaxed: the flag orders nothing but itself.
    if !REFUSING.swap(true, Ordering::Relaxed) {
        // The console core may be in the midst of a section, which is shorter than this.
        for _ in 0..SECTION {
            relax();
        }
        say(parts);
        start::power_off();
    }
    loop {
        wait_for_interrupt();
    }
}

/// Returns whether a core refuses, so that the UART is its own.
pub fn is_refusing() -> bool {
    REFUSING.load(Ordering::Relaxed)
}

/// Reports why this core stops, and stops it. It keeps the locks that it has: another core goes on
/// until it wants one of them.
pub fn last_words(parts: &[&[u8]]) -> ! {
    say(parts);
    loop {
        wait_for_interrupt();
    }
}

/// Writes a line to the bare UART, on the boot core before it starts another, or as last words.
pub fn say(parts: &[&[u8]]) {
    // SAFETY: nothing else uses the UART while the boot core refuses. An exception of EL2's own may
    // come while the console core writes: then one of its frames may be damaged, which the host
    // detects, but the line is complete.
    let mut uart = unsafe { Uart::take() };
    let [before, after]: [&[u8]; 2] = [b"weir: ", b"\r\n"];
    for &byte in [before].iter().chain(parts).chain(&[after]).copied().flatten() {
        while uart.is_full() {
            relax();
        }
        uart.write(byte);
    }
    while uart.is_busy() {
        relax();
    }
}

/// A number for a message.
pub struct Text {
    bytes: [u8; 20],
    first: usize,
}

impl Text {
    /// `value` in base 10 or 16.
    #[must_use]
    pub fn number(value: u64, base: u64) -> Self {
        let mut text = Self { bytes: [b'0'; 20], first: 20 };
        let mut rest = value;
        while text.first > 0 && (rest > 0 || text.first == 20) {
            text.first -= 1;
            if let Some(place) = text.bytes.get_mut(text.first) {
                *place = b"0123456789abcdef"[(rest % base.clamp(2, 16)) as usize];
            }
            rest /= base.clamp(2, 16);
        }
        text
    }

    /// The digits.
    #[inline(never)]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.first..).unwrap_or_default()
    }
}
