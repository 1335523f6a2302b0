//! Which PCI functions, and which socket devices on PCI, VMs can have.

use super::{ECAM_LEN, MAX_FUNCTIONS, PciFunction, STREAM_LIMIT};
use crate::{
    ADDRESS_LIMIT, Damage, Features, PackedSystem, VSOCK_BAR_LEN, VSOCK_SLOT, VmView, overlap,
    page_range,
};
use core::ops::Range;
use weir_paging::smmu::INPUT_LIMIT;

impl PciFunction {
    /// Whether the function's VM has further functions of the same device among `all`.
    #[must_use]
    pub fn has_siblings(&self, all: &[Self]) -> bool {
        all.iter().filter(|other| other.address >> 3 == self.address >> 3).count() > 1
    }
}

impl<'a> PackedSystem<'a> {
    /// The PCI functions of all VMs, at most [`MAX_FUNCTIONS`].
    #[must_use]
    pub const fn pci(&self) -> &'a [PciFunction] {
        if Features::PCI.is_built() { self.pci } else { &[] }
    }

    /// Checks that every function has an address of its own, both on its bus and at the SMMU, and
    /// overlaps with no other device or RAM of its VM and with no other function.
    pub(crate) fn check_pci(&self, gic_v2: bool) -> Result<(), Damage> {
        if self.pci().len() > MAX_FUNCTIONS {
            return Err(Damage::Table);
        }
        for (position, function) in self.pci().iter().enumerate() {
            let vm = self.vm(function.vm as usize).ok_or(Damage::Table)?;
            let damage = Damage::Function(function.vm);
            let bars = page_range(function.bars, function.bars_len).ok_or(damage)?;
            let ecam = page_range(function.ecam, ECAM_LEN).ok_or(damage)?;
            if function.address > 0xff || function.stream >= STREAM_LIMIT || bars.end > 1 << 32 {
                return Err(damage);
            }
            if vm.is_in_the_way(&bars, gic_v2)
                || vm.is_in_the_way(&ecam, gic_v2)
                || overlap(&bars, &ecam)
            {
                return Err(damage);
            }
            // The socket device is another function.
            let beside = vm.vm.vsock_ecam != 0;
            if beside && (function.ecam != vm.vm.vsock_ecam || function.address >> 3 == VSOCK_SLOT)
            {
                return Err(damage);
            }
            if self.is_physical(&bars) {
                return Err(damage);
            }
            let others = self.pci().get(position + 1..).unwrap_or(&[]);
            let clash = others.iter().any(|other| {
                let theirs = page_range(other.bars, other.bars_len);
                let same_vm = other.vm == function.vm;
                other.address == function.address
                    || theirs.is_none_or(|theirs| overlap(&theirs, &bars))
                    // A device's functions, a stream and a configuration space each belong to one
                    // VM.
                    || (!same_vm && other.address >> 3 == function.address >> 3)
                    || (!same_vm && other.stream == function.stream)
                    || (same_vm && other.ecam != function.ecam)
            });
            if clash {
                return Err(damage);
            }
        }
        Ok(())
    }

    /// Whether these physical addresses overlap with memory of a VM or with the image.
    fn is_physical(&self, range: &Range<u64>) -> bool {
        let header = self.header;
        let ram = header.load_address..header.memory_end;
        let regions = (0..self.vms()).filter_map(|index| self.vm(index));
        overlap(range, &ram)
            || regions
                .flat_map(|vm| vm.regions)
                .any(|region| overlap(range, &(region.pa..region.pa.saturating_add(region.len))))
    }
}

impl VmView<'_> {
    /// Checks that a socket device on PCI has a valid base address, and that nothing overlaps with
    /// its configuration space.
    pub(crate) fn check_vsock(&self, devices: &[Option<Range<u64>>]) -> Result<(), Damage> {
        if !Features::PCI.is_built() || self.vm.vsock_ecam == 0 {
            return Ok(());
        }
        let damage = Damage::Address(self.index as u32);
        let ecam = page_range(self.vm.vsock_ecam, ECAM_LEN).ok_or(damage)?;
        let end = self.vm.vsock.checked_add(VSOCK_BAR_LEN).ok_or(damage)?;
        let sound = self.vm.vsock != 0
            && self.vm.vsock.is_multiple_of(VSOCK_BAR_LEN)
            && end <= 1 << 32
            && devices.iter().flatten().all(|device| !overlap(device, &ecam))
            && self.regions.iter().all(|region| {
                !overlap(&ecam, &(region.ipa..region.ipa.saturating_add(region.len)))
            });
        if sound { Ok(()) } else { Err(damage) }
    }

    /// Whether RAM, a device or a virtual device of the VM is at these guest addresses.
    fn is_in_the_way(&self, range: &Range<u64>, gic_v2: bool) -> bool {
        let gic_cpu_len = if gic_v2 { 0x2000 } else { 0x2_0000 * u64::from(self.vm.vcpus) };
        let devices = self.devices(gic_cpu_len);
        range.end > ADDRESS_LIMIT
            || devices
                .is_none_or(|devices| devices.iter().flatten().any(|device| overlap(device, range)))
            || self
                .regions
                .iter()
                .any(|region| overlap(range, &(region.ipa..region.ipa.saturating_add(region.len))))
    }
}

const _: () = assert!(
    size_of::<PciFunction>().is_multiple_of(8) && ADDRESS_LIMIT <= INPUT_LIMIT,
    "what a VM addresses its devices can"
);
