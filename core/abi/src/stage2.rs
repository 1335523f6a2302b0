//! The mappings of a VM's stage 2, which the host's audit builds and walks, too.

use crate::{ACTIVE, DEVICE, PAGE, PackedSystem, PageSpan, RAM, Region, VmView};
use weir_paging::table::{Attributes, Builder, MapError, stage1, stage2};

/// Length of a GICv2 board's virtual CPU interface in bytes.
pub const GICV_LEN: u64 = 0x1000;

/// The attributes of RAM in an SMMU's tables, of stage 2 or of stage 1.
#[must_use]
pub const fn dma_attributes(stage2: bool) -> Attributes {
    if stage2 { stage2::RAM } else { stage1::DMA }
}

impl PackedSystem<'_> {
    /// Maps a region of a VM: RAM page by page where memory is divided, everything else in the
    /// largest blocks that fit.
    ///
    /// # Errors
    ///
    /// See [`MapError`].
    pub fn map_region(
        &self,
        builder: &mut Builder<'_>,
        vm: &VmView<'_>,
        region: &Region,
    ) -> Result<(), MapError> {
        if region.kind == DEVICE {
            builder.map(region.ipa, region.pa, region.len, stage2::DEVICE)
        } else if region.kind == ACTIVE {
            // Each page is mapped on its own, so that it can be unmapped and mapped again.
            let mut pages = (0..region.len).step_by(PAGE as usize);
            pages.try_for_each(|page| {
                builder.map(region.ipa + page, region.pa + page, PAGE, stage2::DEVICE)
            })
        } else {
            self.map_ram(builder, vm, region, stage2::RAM)
        }
    }

    pub(super) fn map_ram(
        &self,
        builder: &mut Builder<'_>,
        vm: &VmView<'_>,
        &Region { ipa, pa, len, .. }: &Region,
        attributes: Attributes,
    ) -> Result<(), MapError> {
        if self.is_divided() {
            builder.map_pages(ipa, &mut self.pages(vm, PageSpan { pa, len }), len, attributes)
        } else {
            builder.map(ipa, pa, len, attributes)
        }
    }

    /// Maps all regions of a VM; for the broker, its windows into the memory of other VMs; the GICV
    /// at the physical address `gicv`, if the board has a GICv2; and the page of its vCPUs' stolen
    /// time at `stolen_time`, if the VM has one.
    ///
    /// # Errors
    ///
    /// See [`MapError`].
    pub fn map_stage2(
        &self,
        builder: &mut Builder<'_>,
        vm: &VmView<'_>,
        gicv: Option<u64>,
        stolen_time: u64,
    ) -> Result<(), MapError> {
        for region in vm.regions {
            self.map_region(builder, vm, region)?;
        }
        if self.broker().is_some_and(|broker| broker.index == vm.index) {
            self.map_windows(builder)?;
        }
        if vm.vm.stolen_time != 0 {
            builder.map(vm.vm.stolen_time, stolen_time, PAGE, stage2::READ_ONLY_WINDOW)?;
        }
        match gicv {
            Some(gicv) => builder.map(vm.vm.gic_cpu, gicv, GICV_LEN, stage2::DEVICE),
            None => Ok(()),
        }
    }

    /// Maps what a VM's devices reach by DMA in an SMMU's tables, of stage 2 if `stage2` is set,
    /// otherwise of stage 1: only the VM's RAM, at the addresses at which the VM sees it. No device
    /// is mapped and, on a GICv2 board, no GIC.
    ///
    /// # Errors
    ///
    /// See [`MapError`].
    pub fn map_domain(
        &self,
        builder: &mut Builder<'_>,
        vm: &VmView<'_>,
        stage2: bool,
    ) -> Result<(), MapError> {
        for region in vm.regions.iter().filter(|region| region.kind == RAM) {
            self.map_ram(builder, vm, region, dma_attributes(stage2))?;
        }
        Ok(())
    }
}
