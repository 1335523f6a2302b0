//! A Cadence UART. `weir_uart` decides the register sequences.

use crate::{
    arch::{
        memory::device,
        mmio::{Device, Register},
    },
    board,
};
use weir_uart::{
    UartRegisters,
    cadence::{CR, CR_TX_ON, Cadence, FIFO, SR, SR_TX_FULL_BIT},
};
use weir_units::Pa;

/// The register that boot.s writes to enable the transmitter: offset and value. The reset values of
/// the other registers suffice.
pub const TURN_ON: (u64, u64) = (CR, CR_TX_ON as u64);
/// Offset of the register with the bit [`FULL_BIT`].
pub const STATUS: u64 = SR;
/// The bit that is set while the transmit FIFO is full.
pub const FULL_BIT: u32 = SR_TX_FULL_BIT;
/// Offset of the register that takes a byte to send.
pub const DATA: u64 = FIFO;

/// The controller's registers.
// SAFETY: by the contract of `Uart::take`, stage 1 maps the page; the registers control only the
// UART.
const UART: Device = unsafe { Device::new("uart", device(Pa(board::UART))) };

/// The controller's page.
struct Page;

impl UartRegisters for Page {
    fn read(&mut self, offset: u64) -> u32 {
        UART.read(Register::at(offset))
    }

    fn write(&mut self, offset: u64, value: u32) {
        UART.write(Register::at(offset), value);
    }
}

/// The board's UART.
pub struct Uart(Cadence<Page>);

impl Uart {
    /// Returns the UART in its present state, with the transmitter enabled.
    ///
    /// # Safety
    ///
    /// Stage 1 maps the device, and no other code uses its registers at the same time.
    pub unsafe fn take() -> Self {
        let mut uart = Cadence::new(Page);
        uart.turn_on(board::UART_CLOCK as u32);
        Self(uart)
    }

    /// Sets the UART up for 115200 Bd, with the interrupt for received bytes.
    pub fn enable(&mut self) {
        self.0.enable(board::UART_CLOCK as u32);
    }

    /// Returns whether the transmit FIFO is full.
    pub fn is_full(&mut self) -> bool {
        self.0.is_full()
    }

    /// Returns whether the transmitter is busy.
    pub fn is_busy(&mut self) -> bool {
        self.0.is_busy()
    }

    /// Sends a byte. The transmit FIFO must not be full.
    pub fn write(&mut self, byte: u8) {
        self.0.write(byte);
    }

    /// Takes a received byte. This controller drops damaged bytes itself, so the result is never
    /// `Some(None)`.
    #[expect(clippy::option_option, reason = "a damaged byte does not end the input")]
    pub fn read(&mut self) -> Option<Option<u8>> {
        self.0.read().map(Some)
    }

    /// Enables the interrupt for room in the transmit FIFO. Returns false, without the interrupt,
    /// if there is room already.
    pub fn wait_for_room(&mut self) -> bool {
        self.0.wait_for_room()
    }

    /// Disables the interrupt for room in the transmit FIFO.
    pub fn wait_for_nothing(&mut self) {
        self.0.wait_for_nothing();
    }
}
