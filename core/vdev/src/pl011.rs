//! The PL011 UART of a VM.
//!
//! Differences from the real part, on which every byte takes time on a line:
//!
//! - Bytes go to a [`Sink`], the VM's console ring. While the ring has more room than a FIFO holds,
//!   the transmit FIFO is empty; the last 32 bytes of room are the FIFO. So a guest sees the FIFO
//!   fill up when the ring is not drained. A driver that writes half a FIFO at each transmit
//!   interrupt without reading TXFF, as Linux' driver does, loses nothing.
//! - Every write that leaves the FIFO at or below its trigger level raises the transmit interrupt,
//!   because the byte has been sent at once.
//! - A received byte is followed by silence, so the receive timeout is raised together with it.
//!   Drivers that wait for the trigger level and drivers that wait for the timeout both work. On a
//!   real line the timeout is raised 32 bits later, when a driver that emptied the FIFO has cleared
//!   the interrupt. Therefore a store to ICR does not clear the timeout of a byte that arrived
//!   since the guest last accessed RIS, MIS or ICR.
//! - Baud rate, word length and the enable bits in CR have no effect, because programs for QEMU's
//!   `virt` write to DR without any preparation. Modem lines are idle, the only error is overrun,
//!   and DMA requests are ignored.
//! - Registers are 32 bits wide. A narrower access at the register's address acts like a full one.
//!   A store elsewhere in the word is ignored; a load there returns the requested bytes, with the
//!   side effects of a full load.
//!
//! Source: PrimeCell UART (PL011) TRM, DDI0183: chapter 3 for the registers, 2.4 for operation, 2.8
//! for interrupts.

/// Depth of either FIFO in bytes (revision r1p5).
pub const FIFO_DEPTH: usize = 32;

/// The destination of transmitted bytes.
pub trait Sink {
    /// Returns how many bytes can be put now.
    fn room(&self) -> usize;
    /// Takes a byte. If there is no room, the byte is lost; the sink counts it.
    fn put(&mut self, byte: u8);
}

const DR: u64 = 0x000;
const RSR: u64 = 0x004;
const FR: u64 = 0x018;
const ILPR: u64 = 0x020;
const IBRD: u64 = 0x024;
const FBRD: u64 = 0x028;
const LCR_H: u64 = 0x02c;
const CR: u64 = 0x030;
const IFLS: u64 = 0x034;
const IMSC: u64 = 0x038;
const RIS: u64 = 0x03c;
const MIS: u64 = 0x040;
const ICR: u64 = 0x044;
const DMACR: u64 = 0x048;
const PERIPH_ID: u64 = 0xfe0;

/// UARTPeriphID0 to 3: part 0x011 by Arm, revision r1p5, from which Linux derives the depth of the
/// FIFOs; UARTPCellID0 to 3.
const IDENTIFICATION: [u8; 8] = [0x11, 0x10, 0x34, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

const DR_OE: u32 = 1 << 11;
const RSR_OE: u32 = 1 << 3;
const FR_BUSY: u32 = 1 << 3;
const FR_RXFE: u32 = 1 << 4;
const FR_TXFF: u32 = 1 << 5;
const FR_RXFF: u32 = 1 << 6;
const FR_TXFE: u32 = 1 << 7;
const LCR_H_FEN: u16 = 1 << 4;
const CR_LBE: u16 = 1 << 7;
const CR_RESET: u16 = 0x300;
const IFLS_RESET: u16 = 0x12;
const INT_RX: u16 = 1 << 4;
const INT_TX: u16 = 1 << 5;
const INT_RT: u16 = 1 << 6;
const INT_OE: u16 = 1 << 10;

/// A UART and its interrupt line. The line is high as long as an unmasked interrupt is raised;
/// every function that can change the level returns it.
#[derive(Clone, Debug)]
pub struct Pl011 {
    fifo: [u8; FIFO_DEPTH],
    head: u8,
    len: u8,
    /// Whether a byte was lost and none has entered the FIFO since then (UARTDR.OE).
    overrun: bool,
    /// UARTRSR.OE, until it is cleared through UARTECR.
    overrun_status: bool,
    /// Whether the transmit FIFO holds more than its trigger level.
    tx_above: bool,
    ilpr: u8,
    fbrd: u8,
    ibrd: u16,
    lcr_h: u16,
    cr: u16,
    ifls: u16,
    imsc: u16,
    ris: u16,
    /// The raised interrupts that the next store to ICR does not clear: the timeout, if a byte
    /// arrived since the last access to RIS, MIS or ICR.
    unseen: u16,
    dmacr: u16,
}

impl Default for Pl011 {
    fn default() -> Self {
        Self::new()
    }
}

impl Pl011 {
    /// Returns a UART after reset (DDI0183, table 3-1).
    #[must_use]
    pub const fn new() -> Self {
        Self {
            fifo: [0; FIFO_DEPTH],
            head: 0,
            len: 0,
            overrun: false,
            overrun_status: false,
            tx_above: false,
            ilpr: 0,
            fbrd: 0,
            ibrd: 0,
            lcr_h: 0,
            cr: CR_RESET,
            ifls: IFLS_RESET,
            imsc: 0,
            ris: 0,
            unseen: 0,
            dmacr: 0,
        }
    }

    /// Returns the level of the interrupt line, UARTINTR.
    #[inline]
    #[must_use]
    pub const fn line(&self) -> bool {
        self.ris & self.imsc != 0
    }

    /// Returns whether [`Pl011::receive`] would take a byte. A source that can wait should do so,
    /// because the line has no flow control.
    #[must_use]
    pub const fn can_receive(&self) -> bool {
        self.len < self.rx_depth()
    }

    const fn rx_depth(&self) -> u8 {
        if self.lcr_h & LCR_H_FEN != 0 { FIFO_DEPTH as u8 } else { 1 }
    }

    /// Returns the number of bytes in a FIFO at a trigger level of UARTIFLS: 1/8, 1/4, 1/2, 3/4,
    /// 7/8; the other values are reserved.
    const fn eighths(select: u16) -> u8 {
        match select & 7 {
            0 => 4,
            1 => 8,
            2 => 16,
            3 => 24,
            _ => 28,
        }
    }

    const fn rx_trigger(&self) -> u8 {
        if self.lcr_h & LCR_H_FEN != 0 { Self::eighths(self.ifls >> 3) } else { 1 }
    }

    /// Returns the room in the sink at which the transmit FIFO is at its trigger level.
    const fn tx_trigger_room(&self) -> usize {
        if self.lcr_h & LCR_H_FEN != 0 { FIFO_DEPTH - Self::eighths(self.ifls) as usize } else { 1 }
    }

    /// Receives a byte from the line. If the FIFO is full, the byte is lost, as an overrun. Returns
    /// the level of the interrupt line.
    pub fn receive(&mut self, byte: u8) -> bool {
        if !self.can_receive() {
            self.overrun = true;
            self.overrun_status = true;
            self.ris |= INT_OE;
            return self.line();
        }
        let tail = usize::from(self.head.wrapping_add(self.len)) % FIFO_DEPTH;
        self.fifo[tail] = byte;
        self.len += 1;
        self.overrun = false;
        self.unseen = INT_RT;
        self.ris |= INT_RT;
        if self.len >= self.rx_trigger() {
            self.ris |= INT_RX;
        }
        self.line()
    }

    /// Notes that the sink has room for `room` bytes. Called when the sink has been drained.
    /// Returns the level of the interrupt line.
    pub fn drained(&mut self, room: usize) -> bool {
        if self.tx_above && room >= self.tx_trigger_room() {
            self.tx_above = false;
            self.ris |= INT_TX;
        }
        self.line()
    }

    /// Carries out a load at `offset`, which is truncated to the 4 KiB of the device. Returns the
    /// value of the word, shifted down to the addressed byte, and the level of the interrupt line.
    pub fn read(&mut self, offset: u64, sink: &impl Sink) -> (u32, bool) {
        let value = match offset & 0xffc {
            DR => self.take(),
            RSR if self.overrun_status => RSR_OE,
            FR => self.flags(sink.room()),
            ILPR => u32::from(self.ilpr),
            IBRD => u32::from(self.ibrd),
            FBRD => u32::from(self.fbrd),
            LCR_H => u32::from(self.lcr_h),
            CR => u32::from(self.cr),
            IFLS => u32::from(self.ifls),
            IMSC => u32::from(self.imsc),
            RIS => u32::from(self.seen()),
            MIS => u32::from(self.seen() & self.imsc),
            DMACR => u32::from(self.dmacr),
            id @ PERIPH_ID.. => u32::from(IDENTIFICATION[(id - PERIPH_ID) as usize / 4 % 8]),
            _ => 0,
        };
        (value >> ((offset & 3) * 8), self.line())
    }

    /// Carries out a store of `value` at `offset`, which is truncated to the 4 KiB of the device.
    /// Returns the level of the interrupt line.
    pub fn write(&mut self, offset: u64, value: u32, sink: &mut impl Sink) -> bool {
        let half = value as u16;
        match offset & 0xfff {
            DR => self.transmit(value as u8, sink),
            RSR => self.overrun_status = false,
            ILPR => self.ilpr = value as u8,
            IBRD => self.ibrd = half,
            FBRD => self.fbrd = value as u8 & 0x3f,
            LCR_H => {
                // A change of the FIFO mode cannot keep the order of the bytes, so the FIFO starts
                // empty, as QEMU's does.
                if (self.lcr_h ^ half) & LCR_H_FEN != 0 {
                    self.len = 0;
                    self.ris &= !(INT_RX | INT_RT);
                }
                self.lcr_h = half & 0xff;
                self.drained(sink.room());
            }
            CR => self.cr = half & 0xff87,
            IFLS => {
                self.ifls = half & 0x3f;
                self.drained(sink.room());
            }
            IMSC => self.imsc = half & 0x7ff,
            ICR => {
                self.ris &= !half | self.unseen;
                self.unseen = 0;
            }
            DMACR => self.dmacr = half & 7,
            _ => {}
        }
        self.line()
    }

    /// Returns the raised interrupts, which the guest sees now.
    fn seen(&mut self) -> u16 {
        self.unseen = 0;
        self.ris
    }

    fn flags(&self, room: usize) -> u32 {
        let depth = if self.lcr_h & LCR_H_FEN != 0 { FIFO_DEPTH } else { 1 };
        let transmit = match room {
            0 => FR_TXFF | FR_BUSY,
            _ if room < depth => FR_BUSY,
            _ => FR_TXFE,
        };
        let receive = match self.len {
            0 => FR_RXFE,
            len if len >= self.rx_depth() => FR_RXFF,
            _ => 0,
        };
        transmit | receive
    }

    fn take(&mut self) -> u32 {
        let overrun = if self.overrun { DR_OE } else { 0 };
        // An empty FIFO returns the byte that was read last.
        let head = usize::from(self.head);
        if self.len == 0 {
            return overrun | u32::from(self.fifo[head.wrapping_sub(1) % FIFO_DEPTH]);
        }
        let byte = self.fifo[head % FIFO_DEPTH];
        self.head = self.head.wrapping_add(1) % FIFO_DEPTH as u8;
        self.len -= 1;
        if self.len < self.rx_trigger() {
            self.ris &= !INT_RX;
        }
        if self.len == 0 {
            self.ris &= !INT_RT;
        }
        overrun | u32::from(byte)
    }

    fn transmit(&mut self, byte: u8, sink: &mut impl Sink) {
        if self.cr & CR_LBE != 0 {
            self.receive(byte);
        } else {
            sink.put(byte);
        }
        self.tx_above = sink.room() < self.tx_trigger_room();
        if self.tx_above {
            self.ris &= !INT_TX;
        } else {
            self.ris |= INT_TX;
        }
    }
}
