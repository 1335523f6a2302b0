//! Notices of EL2 itself on the UART, without the console's rings. The boot core uses them before
//! the console has the UART, and a core uses them when it stops.

use crate::{
    arch::{relax, wait_for_interrupt},
    start,
    uart::Uart,
};
use core::sync::atomic::{AtomicBool, Ordering};

/// Iterations of a delay loop that together take longer than a section of the console core.
const SECTION: u32 = 10_000;

/// Whether a core is refusing to run this machine or image.
static REFUSING: AtomicBool = AtomicBool::new(false);

/// Reports why this machine or this image cannot be used, and turns the machine off. Each core
/// checks its own properties, so several cores can refuse at the same time. Only the first one
/// reports, and the console core sends no bytes during the report.
pub fn refuse(parts: &[&[u8]]) -> ! {
    // Relaxed: the flag orders no other access.
    if !REFUSING.swap(true, Ordering::Relaxed) {
        // The console core may be inside a section, which is shorter than this delay.
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

/// Returns whether a core is refusing and therefore owns the UART.
pub fn is_refusing() -> bool {
    REFUSING.load(Ordering::Relaxed)
}

/// Reports why this core stops, and stops it. The core keeps the locks that it holds, so another
/// core continues until it needs one of them.
pub fn last_words(parts: &[&[u8]]) -> ! {
    say(parts);
    loop {
        wait_for_interrupt();
    }
}

/// Writes a line to the UART directly: on the boot core before it starts another core, or when a
/// core stops.
pub fn say(parts: &[&[u8]]) {
    // SAFETY: no other code uses the UART while the boot core refuses. An exception at EL2 may
    // occur while the console core writes; then one of its frames may be damaged, which the host
    // detects, but this line is complete.
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

/// The text of a number, for a notice.
pub struct Text {
    bytes: [u8; 20],
    first: usize,
}

impl Text {
    /// Returns the text of `value` in base 10 or 16.
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

    /// Returns the digits.
    #[inline(never)]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.first..).unwrap_or_default()
    }
}
