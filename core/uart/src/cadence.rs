//! The Cadence UART of the Zynq UltraScale+ (UG1085, chapter "UART Controller"; registers: UG1087,
//! module UART).

use crate::UartRegisters;

/// Control.
pub const CR: u64 = 0x00;
const MR: u64 = 0x04;
const IER: u64 = 0x08;
const IDR: u64 = 0x0c;
const ISR: u64 = 0x14;
const BAUDGEN: u64 = 0x18;
const RXTOUT: u64 = 0x1c;
const RXWM: u64 = 0x20;
/// Channel status.
pub const SR: u64 = 0x2c;
/// Transmit and receive FIFO.
pub const FIFO: u64 = 0x30;
const BAUDDIV: u64 = 0x34;

const CR_RX_RESET: u32 = 1;
const CR_TX_RESET: u32 = 1 << 1;
const CR_RX_ON: u32 = 1 << 2;
const CR_RX_OFF: u32 = 1 << 3;
/// CR.TXEN: the transmitter is on.
pub const CR_TX_ON: u32 = 1 << 4;
const CR_TX_OFF: u32 = 1 << 5;
/// Both directions are switched on, and the bits that switch them off are clear.
const CR_ON: u32 = CR_RX_ON | CR_TX_ON;
const CR_SWITCHES: u32 = CR_ON | CR_RX_OFF | CR_TX_OFF;

/// MR: the reference clock undivided, 8 data bits, no parity, 1 stop bit, normal mode.
const MR_8N1: u32 = 4 << 3;

/// Interrupts of IER, IDR and ISR: the receive FIFO has reached RXWM; the transmit FIFO is empty.
const RX_TRIGGER: u32 = 1;
const TX_EMPTY: u32 = 1 << 3;
/// All interrupts.
const ALL: u32 = 0x3fff;

const SR_RX_EMPTY: u32 = 1 << 1;
const SR_TX_EMPTY: u32 = 1 << 3;
/// Number of the bit SR.TXFULL.
pub const SR_TX_FULL_BIT: u32 = 4;
const SR_TX_ACTIVE: u32 = 1 << 11;

/// Maximum number of reads of a status before the driver gives up: 64 bytes at 115200 Bd take 5.6
/// ms.
const PATIENCE: u32 = 1 << 20;

/// A UART with these registers.
#[derive(Debug)]
pub struct Cadence<R> {
    registers: R,
    /// Whether the interrupt for an empty transmit FIFO is enabled.
    waits: bool,
}

impl<R: UartRegisters> Cadence<R> {
    /// Returns the UART in the state that the firmware left.
    pub const fn new(registers: R) -> Self {
        Self { registers, waits: false }
    }

    /// Configures 115200 Bd, 8 data bits, no parity, unless both directions are enabled already.
    /// `clock` is the reference clock in Hz.
    pub fn turn_on(&mut self, clock: u32) {
        if self.registers.read(CR) & CR_SWITCHES != CR_ON {
            self.enable(clock);
        }
    }

    /// Configures 115200 Bd, 8 data bits, no parity, and enables the interrupt for received bytes.
    pub fn enable(&mut self, clock: u32) {
        // The firmware's last bytes must leave before the reset.
        let mut patience = PATIENCE;
        while self.is_busy() && patience > 0 {
            patience -= 1;
        }
        let (generator, divider) = divisors(clock, 115_200);
        let registers = &mut self.registers;
        registers.write(IDR, ALL);
        // The divisors may change only while both directions are off (UG1085, "Baud Rate
        // Generator").
        registers.write(CR, CR_RX_OFF | CR_TX_OFF);
        registers.write(MR, MR_8N1);
        registers.write(BAUDGEN, generator);
        registers.write(BAUDDIV, divider);
        registers.write(CR, CR_RX_OFF | CR_TX_OFF | CR_RX_RESET | CR_TX_RESET);
        // The controller clears both bits at the end of the reset.
        let mut patience = PATIENCE;
        while registers.read(CR) & (CR_RX_RESET | CR_TX_RESET) != 0 && patience > 0 {
            patience -= 1;
        }
        // The interrupt comes with the first byte, so no timeout is needed.
        registers.write(RXTOUT, 0);
        registers.write(RXWM, 1);
        registers.write(ISR, ALL);
        registers.write(CR, CR_ON);
        registers.write(IER, RX_TRIGGER);
        self.waits = false;
    }

    /// Returns whether the transmit FIFO is full.
    pub fn is_full(&mut self) -> bool {
        self.registers.read(SR) & 1 << SR_TX_FULL_BIT != 0
    }

    /// Returns whether the transmitter is busy.
    pub fn is_busy(&mut self) -> bool {
        self.registers.read(SR) & (SR_TX_EMPTY | SR_TX_ACTIVE) != SR_TX_EMPTY
    }

    /// Returns whether a received byte is pending.
    pub fn has_input(&mut self) -> bool {
        self.registers.read(SR) & SR_RX_EMPTY == 0
    }

    /// Sends a byte. The transmit FIFO must not be full.
    pub fn write(&mut self, byte: u8) {
        self.registers.write(FIFO, byte.into());
    }

    /// Takes a received byte. The call that returns `None` clears the interrupt.
    pub fn read(&mut self) -> Option<u8> {
        if !self.has_input() {
            self.registers.write(ISR, RX_TRIGGER);
            // The write above may have cleared the interrupt of a byte that arrived just before it.
            if !self.has_input() {
                return None;
            }
        }
        Some(self.registers.read(FIFO) as u8)
    }

    /// Enables the interrupt for an empty transmit FIFO. Returns false, without the interrupt, if
    /// the FIFO has room already.
    pub fn wait_for_room(&mut self) -> bool {
        // ISR still holds an earlier event.
        self.registers.write(ISR, TX_EMPTY);
        if !self.is_full() {
            return false;
        }
        if !self.waits {
            self.registers.write(IER, TX_EMPTY);
            self.waits = true;
        }
        true
    }

    /// Disables the interrupt of the transmit FIFO.
    pub fn wait_for_nothing(&mut self) {
        if self.waits {
            self.registers.write(IDR, TX_EMPTY);
            self.waits = false;
        }
    }
}

/// Returns BAUDGEN and BAUDDIV for the rate closest to `rate` Bd: a bit takes BAUDGEN * (BAUDDIV +
/// 1) cycles of the reference clock, BAUDGEN is 1 to 65535 and BAUDDIV 4 to 255.
const fn divisors(clock: u32, rate: u32) -> (u32, u32) {
    let (mut best, mut least) = ((1, 4), u32::MAX);
    let mut divider = 4;
    while divider < 256 {
        let step = rate * (divider + 1);
        let generator = (clock + step / 2) / step;
        let error = clock.abs_diff(generator * step);
        if generator > 0 && generator <= 0xffff && error < least {
            (best, least) = ((generator, divider), error);
        }
        divider += 1;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Records all writes, and models a controller with `input` in its receive FIFO.
    #[derive(Default)]
    struct Recording {
        writes: Vec<(u64, u32)>,
        control: u32,
        input: VecDeque<u8>,
        /// Values of SR without the receive bits, one for each read; the last value repeats.
        status: VecDeque<u32>,
        /// A byte that arrives when ISR is written.
        late: Option<u8>,
    }

    impl UartRegisters for &mut Recording {
        fn read(&mut self, offset: u64) -> u32 {
            match offset {
                CR => self.control,
                FIFO => self.input.pop_front().expect("a byte").into(),
                SR => {
                    let rest = if self.status.len() > 1 {
                        self.status.pop_front()
                    } else {
                        self.status.front().copied()
                    };
                    let empty = if self.input.is_empty() { SR_RX_EMPTY } else { 0 };
                    rest.unwrap_or(SR_TX_EMPTY) | empty
                }
                _ => panic!("a read of {offset:#x}"),
            }
        }

        fn write(&mut self, offset: u64, value: u32) {
            self.writes.push((offset, value));
            match offset {
                CR => self.control = value & !(CR_RX_RESET | CR_TX_RESET),
                ISR => self.input.extend(self.late.take()),
                _ => {}
            }
        }
    }

    #[test]
    fn it_is_set_up_while_it_is_off() {
        let mut recording = Recording::default();
        let mut uart = Cadence::new(&mut recording);
        uart.turn_on(100_000_000);
        uart.turn_on(100_000_000);
        let writes = [
            (0x0c, 0x3fff),
            (0x00, 0x28),
            (0x04, 0x20),
            (0x18, 124),
            (0x34, 6),
            (0x00, 0x2b),
            (0x1c, 0),
            (0x20, 1),
            (0x14, 0x3fff),
            (0x00, 0x14),
            (0x08, 1),
        ];
        assert_eq!(recording.writes, writes);
    }

    #[test]
    fn the_last_bytes_of_firmware_leave_first() {
        let status = [0, SR_TX_EMPTY | SR_TX_ACTIVE, SR_TX_EMPTY].into();
        let mut recording = Recording { status, ..Recording::default() };
        Cadence::new(&mut recording).enable(100_000_000);
        assert_eq!(recording.status, [SR_TX_EMPTY]);
        // A transmitter that is stuck does not stop the boot.
        let mut recording = Recording { status: [0].into(), ..Recording::default() };
        Cadence::new(&mut recording).enable(100_000_000);
        assert_eq!(recording.control, CR_ON);
    }

    #[test]
    fn no_received_byte_loses_its_interrupt() {
        let input = [b'a', b'b'].into();
        let mut recording = Recording { input, late: Some(b'c'), ..Recording::default() };
        let mut uart = Cadence::new(&mut recording);
        let taken: Vec<u8> = std::iter::from_fn(|| uart.read()).collect();
        assert_eq!(taken, b"abc");
        // The last write comes after the last byte was taken.
        assert_eq!(recording.writes, [(ISR, RX_TRIGGER), (ISR, RX_TRIGGER)]);
    }

    #[test]
    fn a_full_fifo_interrupts_when_it_is_empty() {
        let full = 1 << SR_TX_FULL_BIT;
        let mut recording = Recording { status: [full].into(), ..Recording::default() };
        let mut uart = Cadence::new(&mut recording);
        assert!(uart.is_full() && uart.is_busy());
        assert!(uart.wait_for_room() && uart.wait_for_room());
        uart.wait_for_nothing();
        uart.wait_for_nothing();
        let events = [(ISR, TX_EMPTY), (IER, TX_EMPTY), (ISR, TX_EMPTY), (IDR, TX_EMPTY)];
        assert_eq!(recording.writes, events);
        // The FIFO became empty in between.
        let mut recording =
            Recording { status: [full, SR_TX_EMPTY].into(), ..Recording::default() };
        let mut uart = Cadence::new(&mut recording);
        assert!(uart.is_full() && !uart.wait_for_room());
        assert_eq!(recording.writes, [(ISR, TX_EMPTY)]);
    }

    #[test]
    fn rates_are_within_a_percent() {
        for clock in [1_843_200, 24_000_000, 33_333_333, 50_000_000, 99_999_000, 1_000_000_000] {
            let (generator, divider) = divisors(clock, 115_200);
            let rate = f64::from(clock) / f64::from(generator * (divider + 1));
            assert!((rate / 115_200.0 - 1.0).abs() < 0.01, "{clock}: {rate}");
            assert!((1..=0xffff).contains(&generator) && (4..=255).contains(&divider), "{clock}");
        }
    }
}
