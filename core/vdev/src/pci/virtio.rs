//! The hypervisor's own accesses to a virtio device (virtio 1.2, 4.1): it checks whether the
//! device's accesses go through the SMMU, and resets the device. Both use the capability
//! VIRTIO_PCI_CAP_PCI_CFG, so that EL2 need not map a base address.

use super::Config;

const VENDOR: u32 = 0x1af4;
/// Capability types.
const COMMON: u32 = 1;
const WINDOW: u32 = 5;
/// Fields of a capability (struct virtio_pci_cap).
const BAR: u16 = 4;
const OFFSET: u16 = 8;
const LENGTH: u16 = 12;
/// Offset of the window's data.
const DATA: u16 = 16;
/// Fields of the common configuration.
const FEATURE_SELECT: u32 = 0;
const FEATURE: u32 = 4;
const STATUS: u32 = 0x14;
/// VIRTIO_F_ACCESS_PLATFORM is feature 33: bit 1 of the second word.
const ACCESS_PLATFORM: u32 = 1 << 1;

/// Returns whether a function with this identification is a virtio device.
pub fn is_virtio(id: u32) -> bool {
    id & 0xffff == VENDOR && (0x1000..0x1080).contains(&(id >> 16))
}

/// The common configuration of a device, and the window by which it is accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Virtio {
    window: u16,
    /// The base address register and the offset of the common configuration from it.
    common: Option<(u32, u32)>,
}

impl Virtio {
    /// Records the vendor-specific capability at `at` whose first word is `head`. Returns true for
    /// the window, which is hidden from the guest.
    pub fn take(&mut self, config: &mut impl Config, at: u16, head: u32) -> bool {
        match head >> 24 {
            COMMON if self.common.is_none() && at + OFFSET < 0x100 => {
                self.common = Some((config.read(at + BAR) & 0xff, config.read(at + OFFSET)));
            }
            WINDOW if self.window == 0 && at + DATA < 0x100 => self.window = at,
            _ => {}
        }
        head >> 24 == WINDOW
    }

    /// Returns this value if both capabilities were found.
    pub fn complete(self) -> Option<Self> {
        (self.window != 0 && self.common.is_some()).then_some(self)
    }

    /// Points the window at `len` bytes at `field` of the common configuration.
    fn point(self, config: &mut impl Config, field: u32, len: u32) {
        let (bar, offset) = self.common.unwrap_or_default();
        config.write(self.window + BAR, bar);
        config.write(self.window + OFFSET, offset.wrapping_add(field));
        config.write(self.window + LENGTH, len);
    }

    /// Returns whether the device offers to have its accesses translated.
    pub fn is_translated(self, config: &mut impl Config) -> bool {
        self.point(config, FEATURE_SELECT, 4);
        config.write(self.window + DATA, 1);
        self.point(config, FEATURE, 4);
        config.read(self.window + DATA) & ACCESS_PLATFORM != 0
    }

    pub fn begin_reset(self, config: &mut impl Config) {
        self.point(config, STATUS, 1);
        config.write(self.window + DATA, 0);
    }

    pub fn is_reset(self, config: &mut impl Config) -> bool {
        self.point(config, STATUS, 1);
        config.read(self.window + DATA) & 0xff == 0
    }
}
