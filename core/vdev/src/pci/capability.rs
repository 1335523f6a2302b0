//! The list of capabilities (PCI 3.0, 6.7), with the hidden ones taken out.

use super::{CAPABILITIES, Config, virtio::Virtio};

const POWER_MANAGEMENT: u32 = 0x01;
const MSI: u32 = 0x05;
const VENDOR_SPECIFIC: u32 = 0x09;
const PCI_EXPRESS: u32 = 0x10;
const MSI_X: u32 = 0x11;

/// As many capabilities as fit the space behind the header.
const MOST: usize = 48;

/// PCI Express capability: Device Capabilities and Device Control (PCIe 5.0, 7.5.3.3 and 7.5.3.4).
const DEVICE_CAPABILITIES: u16 = 4;
const DEVICE_CONTROL: u16 = 8;
const CAN_RESET: u32 = 1 << 28;
const RESET: u32 = 1 << 15;

/// The part of the capabilities that a guest sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Offset of the first shown capability; 0 if none is shown.
    pub first: u8,
    /// Words that are shown, one bit each.
    shown: u64,
    /// Words that begin a shown capability, one bit each.
    heads: u64,
    /// Offset of the PCI Express capability, or 0.
    express: u16,
    /// The virtio registers that the hypervisor uses.
    pub virtio: Option<Virtio>,
}

fn bit(offset: u16) -> u64 {
    1_u64.checked_shl(u32::from(offset) / 4).unwrap_or(0)
}

impl Capabilities {
    /// Reads the list of capabilities, if there is `any`. Turns off MSI and MSI-X, and turns on the
    /// power.
    pub fn probe(config: &mut impl Config, any: bool, is_virtio: bool) -> Self {
        let mut found = Self { first: 0, shown: 0, heads: 0, express: 0, virtio: None };
        let mut virtio = Virtio::default();
        let mut at = if any { pointer(config.read(CAPABILITIES)) } else { 0 };
        for _ in 0..MOST {
            if at < 0x40 {
                break;
            }
            let head = config.read(at);
            match head & 0xff {
                POWER_MANAGEMENT if at + 4 < 0x100 => {
                    let control = config.read(at + 4);
                    // Sets state D0. Bit 15 is written as zero, because a one would clear it.
                    config.write(at + 4, control & !(1 << 15 | 3));
                }
                MSI => config.write(at, head & !(1 << 16)),
                MSI_X => config.write(at, head & !(1 << 31)),
                PCI_EXPRESS if at + DEVICE_CONTROL < 0x100 => found.express = at,
                // The hypervisor's own access to the device, which is not shown.
                VENDOR_SPECIFIC if is_virtio && virtio.take(config, at, head) => {}
                VENDOR_SPECIFIC => {
                    let len = (head >> 16 & 0xff) as u16;
                    (at..at + len.max(4)).step_by(4).for_each(|word| found.shown |= bit(word));
                    found.heads |= bit(at);
                    if found.first == 0 {
                        found.first = at as u8;
                    }
                }
                _ => {}
            }
            at = pointer(head >> 8);
        }
        found.virtio = virtio.complete();
        found
    }

    /// Returns the value that the guest reads at `offset`.
    pub fn read(&self, config: &mut impl Config, offset: u16) -> u32 {
        if self.shown & bit(offset) == 0 {
            return 0;
        }
        let word = config.read(offset);
        if self.heads & bit(offset) == 0 {
            return word;
        }
        // Finds the next capability that is shown, by skipping those that are not.
        let mut next = pointer(word >> 8);
        for _ in 0..MOST {
            if next < 0x40 || self.heads & bit(next) != 0 {
                break;
            }
            next = pointer(config.read(next) >> 8);
        }
        let next = if next < 0x40 || self.heads & bit(next) == 0 { 0 } else { next };
        word & !0xff00 | u32::from(next) << 8
    }

    /// Begins a function-level reset, if the function has one.
    pub fn function_level_reset(&self, config: &mut impl Config) -> bool {
        if self.express == 0 || config.read(self.express + DEVICE_CAPABILITIES) & CAN_RESET == 0 {
            return false;
        }
        let control = config.read(self.express + DEVICE_CONTROL) & 0xffff;
        config.write(self.express + DEVICE_CONTROL, control | RESET);
        true
    }
}

/// Returns the offset in a pointer of the list; its low two bits are reserved.
fn pointer(word: u32) -> u16 {
    (word & 0xfc) as u16
}
