//! GICv2 (IHI0048): everything in memory; the guest's CPU interface is GICV, mapped into the VM.

use super::distributor::{LISTS, OWN_ONLY, gicd_read, gicd_write};
use crate::{
    arch::{dsb_ishst, dsb_sy, memory::device, mmio},
    platform::{GICC, GICD, GICH},
};

/// The virtual GIC is of the board's version.
pub type Version = weir_vdev::gic::V2;
/// The same as a value.
pub const VERSION: weir_vdev::id::GicVersion = weir_vdev::id::GicVersion::V2;

/// All interrupts are of group 0, the only one that a GIC without the Security Extensions has; they
/// come as IRQ because FIQEn stays clear.
pub(super) const GROUP: u32 = 0;

const ITARGETSR: u64 = 0x800;
const SGIR: u64 = 0xf00;
const ICPIDR2: u64 = 0xfe8;

const GICC_CTLR: u64 = 0x00;
const GICC_PMR: u64 = 0x04;
const GICC_IAR: u64 = 0x0c;
const GICC_EOIR: u64 = 0x10;
const GICC_DIR: u64 = 0x1000;
/// GICC_CTLR: group 0 (or, seen from the non-secure side, group 1), and EOI mode for it.
const GICC_ENABLE: u32 = 1 | 1 << 9;

pub(crate) const GICH_HCR: u64 = 0x00;
const GICH_VTR: u64 = 0x04;
const GICH_VMCR: u64 = 0x08;
const GICH_ELRSR0: u64 = 0x30;
const GICH_APR: u64 = 0xf0;
const GICH_LR: u64 = 0x100;
/// GICH_HCR.En.
const GICH_EN: u32 = 1;

/// The distributor's own first words are banked: each core sees its own.
pub(super) fn private_registers(_core: usize) -> u64 {
    device(GICD)
}

fn gicc_read(offset: u64) -> u32 {
    // SAFETY: `Stage1::begin` maps the 8 KiB of GICC. The one read with an effect is IAR, meant so.
    unsafe { mmio::read32(device(GICC) + offset) }
}

fn gicc_write(offset: u64, value: u32) {
    // SAFETY: as above; this core's interrupt interface.
    unsafe { mmio::write32(device(GICC) + offset, value) }
}

pub(crate) fn gich_read(offset: u64) -> u32 {
    // SAFETY: `Stage1::begin` maps the 4 KiB of GICH; reading changes nothing.
    unsafe { mmio::read32(device(GICH) + offset) }
}

pub(crate) fn gich_write(offset: u64, value: u32) {
    // SAFETY: as above; this core's virtual interface.
    unsafe { mmio::write32(device(GICH) + offset, value) }
}

/// GICD_CTLR: forwards interrupts, or none.
pub(super) const ON: u32 = 1;
/// The same for none.
pub(super) const OFF: u32 = 0;

/// Finds this core's part of the GIC: here it is at the same place for each core.
///
/// # Errors
///
/// None.
#[allow(clippy::unnecessary_wraps, reason = "a GICv3 can refuse")]
pub(super) fn wake(_core: usize) -> Result<(), &'static str> {
    Ok(())
}

/// Brings up this core's CPU interface and virtual interface.
pub(super) fn start_interface() {
    gicc_write(GICC_PMR, 0xff);
    gicc_write(GICC_CTLR, GICC_ENABLE);
    gich_write(GICH_HCR, 0);
    dsb_sy();
}

/// The interrupt of highest priority, now active; [`super::SPECIAL`] or above when there is none.
/// For an SGI bits 12:10 tell the sender, and [`end`] needs them.
#[inline(always)]
#[must_use]
pub fn acknowledge() -> u64 {
    gicc_read(GICC_IAR).into()
}

/// The INTID of what [`acknowledge`] gave.
#[inline(always)]
#[must_use]
pub fn intid(iar: u64) -> u32 {
    iar as u32 & 0x3ff
}

/// Lets the next interrupt come; this one stays active.
#[inline(always)]
pub fn drop_priority(iar: u64) {
    gicc_write(GICC_EOIR, iar as u32);
}

/// Ends an interrupt of the hypervisor's own.
#[inline(always)]
pub fn end(iar: u64) {
    gicc_write(GICC_EOIR, iar as u32);
    gicc_write(GICC_DIR, iar as u32);
}

/// Sends an SGI to core `core`.
#[inline(always)]
pub fn send(core: usize, sgi: u32) {
    // The stores that the message speaks of before the SGI that makes the other core look.
    dsb_ishst();
    gicd_write(SGIR, 1 << (16 + (core & 7)) | sgi);
}

/// Sends shared interrupt `intid` to core `core`: the platform counts cores as the GIC counts its
/// interfaces.
pub(super) fn route(intid: u32, core: usize) {
    // SAFETY: GICD_ITARGETSR has a byte of its own for each line.
    unsafe { mmio::write8(device(GICD) + ITARGETSR + u64::from(intid), 1 << (core & 7)) }
}

/// How many list registers are in use: those of this core, of the first [`LISTS`].
#[must_use]
pub fn list_registers() -> usize {
    weir_vdev::gic::used((gich_read(GICH_VTR) & 0x3f) as usize + 1, LISTS)
}

/// Lets the guest take virtual interrupts, or not: while a vCPU is off or waits, its list registers
/// must not end a WFI of EL2's.
pub fn enable_virtual(enabled: bool) {
    switch_virtual(enabled);
    dsb_sy();
}

#[inline(always)]
fn switch_virtual(enabled: bool) {
    let hcr = gich_read(GICH_HCR);
    gich_write(GICH_HCR, if enabled { hcr | GICH_EN } else { hcr & !GICH_EN });
}

/// Holds all of the guest's interrupts back, or lets them through: while they are held neither its
/// virtual ones nor the lines of guests interrupt this core or end a WFI.
pub fn hold_guests(held: bool) {
    switch_virtual(!held);
    gicc_write(GICC_PMR, if held { OWN_ONLY.into() } else { 0xff });
    dsb_sy();
}

/// Whether this is a GICv2: ICPIDR2.ArchRev. A GICv3 has its identification elsewhere, and nothing
/// there.
#[must_use]
pub fn present() -> bool {
    gicd_read(ICPIDR2) >> 4 & 0xf == 2
}

/// What of the virtual interface a vCPU takes along.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    lists: [u32; LISTS],
    vmcr: u32,
    apr: u32,
}

impl Interface {
    /// As after reset: nothing pending, everything masked and disabled.
    pub const RESET: Self = Self { lists: [0; LISTS], vmcr: 0, apr: 0 };

    /// Reads it from this core.
    #[must_use]
    pub fn save() -> Self {
        let mut lists = [0; LISTS];
        for (n, list) in lists.iter_mut().enumerate().take(list_registers()) {
            *list = read_lr(n);
        }
        Self { lists, vmcr: gich_read(GICH_VMCR), apr: gich_read(GICH_APR) }
    }

    /// Puts it onto this core.
    pub fn load(self) {
        for (n, list) in self.lists.into_iter().enumerate().take(list_registers()) {
            write_lr(n, list);
        }
        gich_write(GICH_VMCR, self.vmcr);
        gich_write(GICH_APR, self.apr);
    }
}

/// List register `n`.
#[inline(always)]
pub fn read_lr(n: usize) -> u32 {
    gich_read(GICH_LR + 4 * (n as u64 & 0x3f))
}

/// Writes list register `n`.
#[inline(always)]
pub fn write_lr(n: usize, value: u32) {
    gich_write(GICH_LR + 4 * (n as u64 & 0x3f), value);
}

/// Which of the list registers in use are empty.
#[inline(always)]
pub fn empty_list_registers() -> u32 {
    weir_vdev::gic::free_of(gich_read(GICH_ELRSR0), LISTS)
}
