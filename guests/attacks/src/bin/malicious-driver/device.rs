//! The registers of the socket device, on the MMIO transport (virtio 1.2, section 4.2.2) or on PCI
//! (section 4.1).

use crate::Random;
use weir_guest::mmio;

/// What the registers on the MMIO transport begin with.
const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// Vendor and device of a socket device on PCI (section 4.1.2.1).
const SOCKET: u32 = 0x1053_1af4;
/// A vendor's capability, and the types of those that matter here (section 4.1.4).
const VENDOR: u32 = 9;
const COMMON: u32 = 1;
const NOTIFY: u32 = 2;
const REASON: u32 = 3;
/// Bytes of the configuration space from one slot to the next, and slots of a bus.
const SLOT: u64 = 1 << 15;
const SLOTS: u64 = 32;
/// Bytes of a function's configuration space.
const SPACE: u64 = 0x1000;
/// Command register: answers at its base address, and may access memory.
const ON: u16 = 6;

/// The device.
#[derive(Clone, Copy)]
pub enum TargetDevice {
    /// Its registers.
    Mmio(u64),
    /// A function: its configuration space, what its base address stands for, and three parts
    /// of that.
    Pci { space: u64, base: u64, common: u64, notify: u64, reason: u64 },
}

/// Reads a word of a device.
fn read(address: u64) -> u32 {
    // SAFETY: callers give registers and configuration spaces, which are mapped as device memory.
    unsafe { mmio::read32(address) }
}

/// Writes a word of a device.
fn write(address: u64, value: u64) {
    // SAFETY: as in `read`; what the device then does to this guest's memory is what this guest is
    // for.
    unsafe { mmio::write32(address, value as u32) }
}

impl TargetDevice {
    /// What is at `base`: the registers, or the configuration space of a bus with the function.
    pub fn find(base: u64) -> Self {
        if read(base) == MAGIC {
            return Self::Mmio(base);
        }
        let mut slots = (0..SLOTS).map(|slot| base + slot * SLOT);
        let space = slots.find(|space| read(*space) == SOCKET).expect("a socket device on bus 0");
        turn_on(space);
        let bar = u64::from(read(space + 0x10) & !0xf);
        let part = |kind| {
            let mut at = read(space + 0x34) & 0xfc;
            while at != 0 {
                let head = read(space + u64::from(at));
                if head & 0xff == VENDOR && head >> 24 == kind {
                    return bar + u64::from(read(space + u64::from(at) + 8));
                }
                at = head >> 8 & 0xfc;
            }
            panic!("no capability of type {kind}");
        };
        let [common, notify, reason] = [COMMON, NOTIFY, REASON].map(part);
        Self::Pci { space, base: bar, common, notify, reason }
    }

    /// Its transport's name.
    pub const fn transport(self) -> &'static str {
        match self {
            Self::Mmio(_) => "MMIO",
            Self::Pci { .. } => "PCI",
        }
    }

    /// Resets it, and accepts `features`, 64 of which there are, by halves.
    pub fn reset(self, features: [u64; 2]) {
        if let Self::Pci { space, .. } = self {
            turn_on(space);
        }
        self.set_status(0);
        self.set_status(3);
        for (half, features) in features.into_iter().enumerate() {
            match self {
                Self::Mmio(base) => {
                    write(base + 0x24, half as u64);
                    write(base + 0x20, features);
                }
                Self::Pci { common, .. } => {
                    write(common + 8, half as u64);
                    write(common + 12, features);
                }
            }
        }
        self.set_status(11);
    }

    /// Writes the status register.
    pub fn set_status(self, status: u8) {
        match self {
            Self::Mmio(base) => write(base + 0x70, status.into()),
            // SAFETY: as in `write`.
            Self::Pci { common, .. } => unsafe { mmio::write8(common + 0x14, status) },
        }
    }

    /// Whether the device says that it needs a reset (section 2.1).
    pub fn needs_reset(self) -> bool {
        let status = match self {
            Self::Mmio(base) => read(base + 0x70),
            // SAFETY: as in `read`.
            Self::Pci { common, .. } => unsafe { mmio::read8(common + 0x14) }.into(),
        };
        status & 64 != 0
    }

    /// Reads what the device interrupts for; on PCI that takes it back (section 4.1.4.5).
    pub fn reason(self) -> u32 {
        match self {
            Self::Mmio(base) => read(base + 0x60),
            // SAFETY: as in `read`.
            Self::Pci { reason, .. } => unsafe { mmio::read8(reason) }.into(),
        }
    }

    /// Takes back what the device interrupts for.
    pub fn acknowledge(self) {
        let reason = self.reason();
        if let Self::Mmio(base) = self {
            write(base + 0x64, reason.into());
        }
    }

    /// Says where the three areas of a queue are, and takes it in use.
    pub fn set_up(self, queue: u64, size: u16, areas: [u64; 3]) {
        match self {
            Self::Mmio(base) => {
                write(base + 0x30, queue);
                write(base + 0x38, size.into());
                for (register, area) in [0x80, 0x90, 0xa0].into_iter().zip(areas) {
                    write(base + register, area);
                    write(base + register + 4, area >> 32);
                }
                write(base + 0x44, 1);
            }
            Self::Pci { common, .. } => {
                let half = |register, value| {
                    // SAFETY: as in `write`.
                    unsafe { mmio::write16(common + register, value) }
                };
                half(0x16, queue as u16);
                half(0x18, size);
                for (register, area) in [0x20, 0x28, 0x30].into_iter().zip(areas) {
                    write(common + register, area);
                    write(common + register + 4, area >> 32);
                }
                half(0x1c, 1);
            }
        }
    }

    /// Notifies it of a queue; on PCI the place is the queue's number in words, as the device's
    /// capability says.
    pub fn notify(self, queue: u64) {
        match self {
            Self::Mmio(base) => write(base + 0x50, queue),
            Self::Pci { notify, .. } => write(notify + 4 * queue, queue),
        }
    }

    /// Does something that no driver does: on PCI to the function's configuration space, or to any
    /// of its registers; on MMIO to a register.
    pub fn abuse(self, random: &Random) {
        let (start, len) = match self {
            Self::Mmio(base) => (base, 0x200),
            Self::Pci { space, .. } if random.below(2) == 0 => (space, SPACE),
            Self::Pci { base, .. } => (base, 0x4000),
        };
        // Mostly where something is.
        let len = if random.below(4) > 0 { len.min(0x100) } else { len };
        let value = if random.below(2) == 0 { random.below(16) } else { random.next() };
        // SAFETY: aligned accesses within the device, as in `write`.
        unsafe {
            match random.below(6) {
                0 => mmio::write8(start + random.below(len), value as u8),
                1 => mmio::write16(start + random.below(len / 2) * 2, value as u16),
                2 => mmio::write64(start + random.below(len / 8) * 8, value),
                3 => drop(mmio::read64(start + random.below(len / 8) * 8)),
                4 => drop(mmio::read8(start + random.below(len))),
                _ => mmio::write32(start + random.below(len / 4) * 4, value as u32),
            }
        }
    }
}

/// Has a function answer at its base address, after any access to it.
fn turn_on(space: u64) {
    // SAFETY: as in `write`; the command register.
    unsafe { mmio::write16(space + 4, ON) }
}
