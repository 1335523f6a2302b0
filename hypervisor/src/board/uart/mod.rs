//! The board's UART. Each driver has a type `Uart` with the same functions, and the constants with
//! which boot.s prints.

#[cfg(uart = "cadence")]
mod cadence;
#[cfg(uart = "pl011")]
mod pl011;

#[cfg(uart = "cadence")]
pub use cadence::{DATA, FULL_BIT, STATUS, TURN_ON, Uart};
#[cfg(uart = "pl011")]
pub use pl011::{DATA, FULL_BIT, STATUS, TURN_ON, Uart};
