//! Register sequences of UARTs that can be a board's console, without access to hardware.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod cadence;

/// Access to the registers of a UART, by offset: in memory, or in a test's recording.
pub trait UartRegisters {
    /// Reads the 32 bits at `offset`.
    fn read(&mut self, offset: u64) -> u32;

    /// Writes the 32 bits at `offset`.
    fn write(&mut self, offset: u64, value: u32);
}
