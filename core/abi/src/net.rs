//! Network devices: each is a port of the single switch of a system.

mod ports;

use crate::{Features, VmView};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Largest number of pieces of RAM of all VMs at the switch.
pub const MAX_PORT_PIECES: usize = 256;

/// A VM's network device.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PackedNet {
    /// IPA of the device's registers, on the MMIO transport; 0 if there is no device. The other
    /// fields are then ignored.
    pub registers: u64,
    /// MAC address, with the first byte in the lowest eight bits.
    pub mac: u64,
    /// Frames per second that the VM may send; 0 for no limit.
    pub rate: u64,
    /// Number of frames that may be sent at once, if frames or bytes are limited.
    pub burst: u64,
    /// Bytes per second that the VM may send; 0 for no limit. The bytes of [`Self::burst`] frames
    /// of maximum length may be sent at once.
    pub bandwidth: u64,
    /// INTID of the device.
    pub intid: u32,
    /// 1 if the VM passes on frames to unknown addresses.
    pub uplink: u32,
}

impl PackedNet {
    /// Returns whether there is a device.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.registers != 0
    }
}

impl<'a> VmView<'a> {
    /// Returns the VM's network device, if it has one.
    #[must_use]
    pub fn net(&self) -> Option<&'a PackedNet> {
        let net = &self.vm.net;
        (Features::BROKER.is_built() && net.is_there()).then_some(net)
    }
}
