//! Network devices: each is a port of the one switch that a system has.

mod ports;

use crate::{Features, VmView};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most pieces of RAM of all VMs at the switch.
pub const MAX_PORT_PIECES: usize = 256;

/// A VM's network device.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PackedNet {
    /// IPA of its registers, on the MMIO transport; 0 where there is none, and the rest means
    /// nothing then.
    pub registers: u64,
    /// Its MAC address, the first byte in the lowest eight bits.
    pub mac: u64,
    /// Frames a second that its VM may send; 0 for no limit.
    pub rate: u64,
    /// Frames that may go at once, if they or their bytes are limited.
    pub burst: u64,
    /// Bytes a second that its VM may send; 0 for no limit. As many may go at once as
    /// [`Self::burst`] of the longest frames have.
    pub bandwidth: u64,
    /// Its INTID.
    pub intid: u32,
    /// 1 when its VM passes on frames to unknown addresses.
    pub uplink: u32,
}

impl PackedNet {
    /// Whether there is one.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.registers != 0
    }
}

impl<'a> VmView<'a> {
    /// Its network device.
    #[must_use]
    pub fn net(&self) -> Option<&'a PackedNet> {
        let net = &self.vm.net;
        (Features::BROKER.is_built() && net.is_there()).then_some(net)
    }
}
