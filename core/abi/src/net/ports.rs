//! The check of the network devices of VMs.

use super::PackedNet;
use crate::{Damage, Features, PackedSystem};

/// Bits of a MAC address.
const MAC_BITS: u32 = 48;

impl PackedNet {
    fn is_sound(&self) -> bool {
        let address = self.mac != 0 && self.mac & 1 == 0 && self.mac >> MAC_BITS == 0;
        address && self.uplink <= 1 && (self.rate | self.bandwidth == 0 || self.burst > 0)
    }
}

impl PackedSystem<'_> {
    /// Checks that each port is valid, that no two have the same address, and that there is at most
    /// one uplink.
    pub(crate) fn check_ports(&self) -> Result<(), Damage> {
        if !Features::BROKER.is_built() {
            return Ok(());
        }
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
