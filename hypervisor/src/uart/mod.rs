//! The board's UART. Each driver has a type `Uart` with the same functions, and the constants with
//! which boot.s prints.

#[cfg(uart = "cadence")]
mod cadence;
#[cfg(uart = "pl011")]
mod pl011;

#[cfg(uart = "cadence")]
pub use cadence::*;
#[cfg(uart = "pl011")]
pub use pl011::*;
