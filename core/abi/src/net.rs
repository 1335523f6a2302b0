//! Network devices: each is a port of the one switch that a system has.

use crate::{Damage, PackedSystem, VmView};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most pieces of RAM of all VMs at the switch.
pub const MAX_PORT_PIECES: usize = 256;

/// Bits of a MAC address.
const MAC_BITS: u32 = 48;

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

    fn is_sound(&self) -> bool {
        let address = self.mac != 0 && self.mac & 1 == 0 && self.mac >> MAC_BITS == 0;
        address && self.uplink <= 1 && (self.rate | self.bandwidth == 0 || self.burst > 0)
    }
}

impl<'a> VmView<'a> {
    /// Its network device.
    #[must_use]
    pub fn net(&self) -> Option<&'a PackedNet> {
        let net = &self.vm.net;
        net.is_there().then_some(net)
    }
}

impl PackedSystem<'_> {
    /// Each port is one, no two have the same address, and there is one uplink at most.
    pub(super) fn check_ports(&self) -> Result<(), Damage> {
        let ports = || self.vms.iter().enumerate().filter(|(_, vm)| vm.net.is_there());
        for (index, vm) in ports() {
            let mut before = ports().take_while(|(other, _)| *other < index);
            let clashes =
                |other: &PackedNet| other.mac == vm.net.mac || other.uplink + vm.net.uplink > 1;
            if !vm.net.is_sound() || before.any(|(_, other)| clashes(&other.net)) {
                return Err(Damage::Port(index as u32));
            }
        }
        Ok(())
    }
}
