//! A PL011 (DDI0183), driven by the crate `arm-pl011-uart`.

use crate::{arch::memory::device, board};
use arm_pl011_uart::{
    DataBits, Interrupts, LineConfig, PL011Registers, Parity, StopBits, Uart as Pl011,
    UniqueMmioPointer,
};
use core::ptr::NonNull;
use weir_units::Pa;

/// The register that boot.s writes to enable the transmitter: offset and value; UARTCR.UARTEN, TXE,
/// RXE.
pub const TURN_ON: (u64, u64) = (0x30, 0x301);
/// Offset of the register with the bit [`FULL_BIT`]: UARTFR.
pub const STATUS: u64 = 0x18;
/// The bit that is set while the transmit FIFO is full: UARTFR.TXFF.
pub const FULL_BIT: u32 = 5;
/// Offset of the register that takes a byte to send: UARTDR.
pub const DATA: u64 = 0;

const RECEIVE: Interrupts = Interrupts::RXI.union(Interrupts::RTI);

/// The board's UART.
pub struct Uart(Pl011<'static>);

impl Uart {
    /// Returns the UART as the firmware or the emulator has set it up.
    ///
    /// # Safety
    ///
    /// Stage 1 maps the device, and no other code uses its registers at the same time.
    pub unsafe fn take() -> Self {
        let registers = device(Pa(board::UART)) as *mut PL011Registers;
        // SAFETY: the page of a PL011 is mapped there (`Stage1::begin`), so the pointer is not
        // null; the contract gives it to this caller.
        Self(unsafe { Pl011::new(UniqueMmioPointer::new(NonNull::new_unchecked(registers))) })
    }

    /// Sets the UART up for 115200 Bd, with the interrupt for received bytes.
    pub fn enable(&mut self) {
        // This rate is valid for each clock that `weir check` accepts.
        let _ = self.0.enable(
            LineConfig {
                data_bits: DataBits::Bits8,
                parity: Parity::None,
                stop_bits: StopBits::One,
            },
            115_200,
            board::UART_CLOCK as u32,
        );
        self.wait_for_nothing();
    }

    /// Returns whether the transmit FIFO is full.
    pub fn is_full(&mut self) -> bool {
        self.0.is_tx_fifo_full()
    }

    /// Returns whether the transmitter is busy.
    pub fn is_busy(&mut self) -> bool {
        self.0.is_busy()
    }

    /// Sends a byte. The transmit FIFO must not be full.
    pub fn write(&mut self, byte: u8) {
        self.0.write_word(byte);
    }

    /// Takes a received byte. `Some(None)` is a byte with a framing, parity, break or overrun
    /// error.
    ///
    /// The receive interrupts end when the FIFO is empty. Clearing them explicitly could lose the
    /// interrupt of a later byte.
    #[expect(clippy::option_option, reason = "a damaged byte does not end the input")]
    pub fn read(&mut self) -> Option<Option<u8>> {
        self.0.read_word().map_or(Some(None), |byte| byte.map(Some))
    }

    /// Enables the interrupt for room in the transmit FIFO. Returns false, without the interrupt,
    /// if there is room already.
    pub fn wait_for_room(&mut self) -> bool {
        self.0.set_interrupt_masks(RECEIVE.union(Interrupts::TXI));
        true
    }

    /// Disables the interrupt for room in the transmit FIFO.
    pub fn wait_for_nothing(&mut self) {
        self.0.set_interrupt_masks(RECEIVE);
    }
}
