//! The board's UART. Each driver has a type `Uart` with the same functions, and the constants with
//! which boot.s prints.

#[cfg_attr(uart = "cadence", path = "cadence.rs")]
#[cfg_attr(uart = "pl011", path = "pl011.rs")]
mod driver;

pub use driver::Uart;
#[cfg(target_os = "none")]
pub use driver::{DATA, FULL_BIT, STATUS, TURN_ON};
