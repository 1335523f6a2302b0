//! Configuration space through the ECAM (PCI 3.0, chapter 6).

use weir_guest::mmio;

const COMMAND: u64 = 4;
const BARS: u64 = 0x10;
const CAPABILITIES: u64 = 0x34;
const VENDOR_SPECIFIC: u32 = 9;
/// Command: memory space, bus master, and INTx off, as this guest polls.
const ENABLE: u32 = 1 << 1 | 1 << 2 | 1 << 10;

/// A function of bus 0.
#[derive(Clone, Copy)]
pub struct Function {
    registers: u64,
}

/// A place behind a base address.
#[derive(Clone, Copy)]
pub struct Place {
    pub address: u64,
    /// The capability that names it.
    pub capability: u64,
}

impl Function {
    pub fn new(ecam: u64, slot: u64) -> Self {
        Self::at(ecam, slot << 3)
    }

    /// The function at `place`: a slot in the high bits, a function of it in the lowest three.
    pub fn at(ecam: u64, place: u64) -> Self {
        Self { registers: ecam + (place << 12) }
    }

    /// Its first base address.
    pub fn base(self) -> u64 {
        u64::from(self.read(BARS) & !0xf)
    }

    pub fn read(self, offset: u64) -> u32 {
        // SAFETY: weir emulates all of the configuration space, and the runtime maps it as a
        // device.
        unsafe { mmio::read32(self.registers + offset) }
    }

    fn write(self, offset: u64, value: u32) {
        // SAFETY: as above; what it changes is this VM's function.
        unsafe { mmio::write32(self.registers + offset, value) }
    }

    /// Lets the function answer and access memory.
    pub fn enable(self) {
        self.write(COMMAND, ENABLE);
    }

    /// Whether there is a virtio disk.
    pub fn is_disk(self) -> bool {
        [0x1042_1af4, 0x1001_1af4].contains(&self.read(0))
    }

    /// Where virtio's structure of type `kind` is.
    pub fn structure(self, kind: u32) -> Option<Place> {
        let mut at = u64::from(self.read(CAPABILITIES) & 0xfc);
        for _ in 0..48 {
            if at == 0 {
                break;
            }
            let head = self.read(at);
            if head & 0xff == VENDOR_SPECIFIC && head >> 24 == kind {
                let bar = u64::from(self.read(at + 4) & 0xff);
                let base = u64::from(self.read(BARS + 4 * bar) & !0xf);
                let address = base + u64::from(self.read(at + 8));
                return Some(Place { address, capability: at });
            }
            at = u64::from(head >> 8 & 0xfc);
        }
        None
    }

    /// Writes ones and zeros over all of the configuration space that is not this function's
    /// command, and counts what of this function's is not as before.
    pub fn attack(self, ecam: u64) -> usize {
        let words = || (0..0x1000).step_by(4).filter(|&offset| offset != COMMAND);
        let before = |offset| if offset < 0x100 { self.read(offset) } else { 0 };
        let mut known = [0; 64];
        for (word, offset) in known.iter_mut().zip((0..).step_by(4)) {
            *word = before(offset);
        }
        for value in [u32::MAX, 0] {
            // The buses behind, and the neighboring functions.
            for other in [0, 1 << 12, 1 << 15, 3 << 15, 1 << 20, 255 << 20] {
                let function = Self { registers: ecam + other };
                words().for_each(|offset| function.write(offset, value));
                assert_eq!(function.read(0), u32::MAX, "a function of another VM");
            }
            words().for_each(|offset| self.write(offset, value));
        }
        let after = (0..).step_by(4).zip(known);
        after.filter(|(offset, word)| self.read(*offset) != *word).count()
    }
}
