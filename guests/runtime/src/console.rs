//! The console: the board's PL011, polled. A line is written under a lock that does not mask
//! interrupts, so that printing delays no handler; a handler therefore must not print.

use crate::Mutex;
use arm_pl011_uart::{LineConfig, PL011Registers, Uart};
use core::fmt::{self, Write};
use core::ptr::NonNull;
use safe_mmio::UniqueMmioPointer;

static CONSOLE: Mutex<Option<Uart<'static>>> = Mutex::new(None);

/// Takes the PL011 at `base` for the console.
///
/// # Safety
///
/// Once, with the address of a PL011 that is mapped as device memory and that nothing else drives.
pub(crate) unsafe fn init(base: u64) {
    let registers = NonNull::new(base as *mut PL011Registers).expect("a UART is not at address 0");
    // SAFETY: the caller's promise.
    let mut uart = Uart::new(unsafe { UniqueMmioPointer::new(registers) });
    let line = LineConfig {
        data_bits: arm_pl011_uart::DataBits::Bits8,
        parity: arm_pl011_uart::Parity::None,
        stop_bits: arm_pl011_uart::StopBits::One,
    };
    uart.enable(line, 115_200, 24_000_000).expect("24 MHz can be divided to 115200 Bd");
    *CONSOLE.lock() = Some(uart);
}

#[doc(hidden)]
pub fn print(text: fmt::Arguments<'_>) {
    if let Some(uart) = CONSOLE.lock().as_mut() {
        // A PL011 reports no errors.
        let _ = uart.write_fmt(text);
    }
}

/// Writes formatted text to the console.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::console::print(format_args!($($text)*)) };
}

/// Writes formatted text and a line feed to the console.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($($text:tt)*) => {
        $crate::console::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Takes the lock away from a core that panicked while holding it.
///
/// # Safety
///
/// Only from a panic: another core's line may be torn.
pub(crate) unsafe fn break_lock() {
    // SAFETY: the caller's promise; the worst is a torn line.
    unsafe { CONSOLE.force_unlock() };
}
