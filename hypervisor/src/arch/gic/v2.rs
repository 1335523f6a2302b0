//! GICv2 (IHI0048): everything in memory; the guest's CPU interface is GICV, of which the first
//! page is mapped into the VM. Accesses to the second one, which has GICV_DIR, trap.

use super::distributor::{GICD, LISTS, OWN_ONLY};
use crate::{
    arch::{
        dsb_ishst, dsb_sy,
        memory::device,
        mmio::{Device, Register},
    },
    board,
};
use weir_units::{CoreId, IntId, Pa};
use weir_vdev::gic::Signaling;

/// The virtual GIC is of the board's version.
pub type Version = weir_vdev::gic::V2;
/// The same as a value.
pub const VERSION: weir_vdev::id::GicVersion = weir_vdev::id::GicVersion::V2;

/// All interrupts are of group 0, the only one that a GIC without the Security Extensions has; they
/// come as IRQ because FIQEn stays clear.
pub(super) const ALL_GROUPS: u32 = 0;

/// The CPU interface of the core that accesses it.
// SAFETY: `Stage1::begin` maps its 8 KiB. The one read with an effect is IAR, meant so.
const GICC: Device = unsafe { Device::new("gicc", device(Pa(board::GICC))) };
/// The virtual interface of the core that accesses it.
// SAFETY: `Stage1::begin` maps its 4 KiB; reading changes nothing.
const GICH: Device = unsafe { Device::new("gich", device(Pa(board::GICH))) };

/// The distributor's: where each shared interrupt goes, SGIs, identification.
const TARGET: Register<u8> = Register::at(0x800);
const SGIR: Register<u32> = Register::at(0xf00);
const ICPIDR2: Register<u32> = Register::at(0xfe8);

const CPU_CTLR: Register<u32> = Register::at(0x00);
const PMR: Register<u32> = Register::at(0x04);
const IAR: Register<u32> = Register::at(0x0c);
const EOIR: Register<u32> = Register::at(0x10);
const DIR: Register<u32> = Register::at(0x1000);
/// GICC_CTLR: group 0 (or, seen from the non-secure side, group 1), and EOI mode for it.
const CPU_ENABLE: u32 = 1 | 1 << 9;

const HCR: Register<u32> = Register::at(0x00);
const VTR: Register<u32> = Register::at(0x04);
const VMCR: Register<u32> = Register::at(0x08);
const ELRSR0: Register<u32> = Register::at(0x30);
const APR: Register<u32> = Register::at(0xf0);
const LIST: Register<u32> = Register::at(0x100);
/// GICH_HCR.En.
const HCR_EN: u32 = 1;
/// GICH_VMCR.VEM.
const VEM: u32 = 1 << 9;

/// The distributor's own first words are banked: each core sees its own.
pub(super) fn private_registers(_core: CoreId) -> Device {
    GICD
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
pub(super) fn wake(_core: CoreId) -> Result<(), &'static str> {
    Ok(())
}

/// Brings up this core's CPU interface and virtual interface.
pub(super) fn start_interface() {
    GICC.write(PMR, 0xff);
    GICC.write(CPU_CTLR, CPU_ENABLE);
    GICH.write(HCR, 0);
    for n in 0..list_registers() {
        write_lr(n, 0);
    }
    dsb_sy();
}

/// The interrupt of highest priority, now active; [`super::SPECIAL`] or above when there is none.
/// For an SGI bits 12:10 tell the sender, and [`end`] needs them.
#[inline(always)]
#[must_use]
pub fn acknowledge() -> u64 {
    GICC.read(IAR).into()
}

/// The INTID of what [`acknowledge`] gave.
#[inline(always)]
#[must_use]
pub fn intid(iar: u64) -> IntId {
    IntId(iar as u32 & 0x3ff)
}

/// Lets the next interrupt come; this one stays active.
#[inline(always)]
pub fn drop_priority(iar: u64) {
    GICC.write(EOIR, iar as u32);
}

/// Ends an interrupt of the hypervisor's own.
#[inline(always)]
pub fn end(iar: u64) {
    GICC.write(EOIR, iar as u32);
    GICC.write(DIR, iar as u32);
}

/// Sends an SGI to each of `cores`.
#[inline(always)]
pub fn send(cores: impl IntoIterator<Item = CoreId>, sgi: IntId) {
    // The stores that the message speaks of before the SGI that makes the other cores read it.
    dsb_ishst();
    let targets = cores.into_iter().fold(0, |targets, core| targets | 1 << (16 + (core.0 & 7)));
    GICD.write(SGIR, targets | sgi.0);
}

/// Sends shared interrupt `intid` to core `core`: the platform counts cores as the GIC counts its
/// interfaces.
pub(super) fn route(intid: IntId, core: CoreId) {
    GICD.write(TARGET.nth(intid.0.into()), 1 << (core.0 & 7));
}

/// How many list registers are in use: those of this core, of the first [`LISTS`].
#[must_use]
pub fn list_registers() -> usize {
    weir_vdev::gic::used((GICH.read(VTR) & 0x3f) as usize + 1, LISTS)
}

/// Whether this core's guest ends interrupts in two steps (EOImode 1).
#[must_use]
pub fn ends_in_two_steps() -> bool {
    GICH.read(VMCR) & VEM != 0
}

/// Lets the guest take virtual interrupts, or not: while a vCPU is off or waits, its list registers
/// must not end a WFI of EL2's.
pub fn enable_virtual(enabled: bool) {
    switch_virtual(enabled);
    dsb_sy();
}

#[inline(always)]
fn switch_virtual(enabled: bool) {
    let hcr = GICH.read(HCR);
    GICH.write(HCR, if enabled { hcr | HCR_EN } else { hcr & !HCR_EN });
}

/// Holds all of the guest's interrupts back, or lets them through: while they are held neither its
/// virtual ones nor the lines of guests interrupt this core or end a WFI.
pub fn hold_guests(held: bool) {
    switch_virtual(!held);
    GICC.write(PMR, if held { OWN_ONLY.into() } else { 0xff });
    dsb_sy();
}

/// Holds every interrupt back: none ends a WFI of this core.
pub fn hold_all() {
    switch_virtual(false);
    GICC.write(PMR, 0);
    dsb_sy();
}

/// Whether this is a GICv2: ICPIDR2.ArchRev. A GICv3 has its identification elsewhere, and nothing
/// there.
#[must_use]
pub fn present() -> bool {
    GICD.read(ICPIDR2) >> 4 & 0xf == 2
}

/// What of the virtual interface a vCPU takes along.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    vmcr: u32,
    apr: u32,
}

impl Interface {
    /// As after reset: nothing pending, everything masked and disabled.
    pub const RESET: Self = Self { vmcr: 0, apr: 0 };

    /// Reads it from this core.
    #[must_use]
    pub fn save() -> Self {
        Self { vmcr: GICH.read(VMCR), apr: GICH.read(APR) }
    }

    /// Which of its interrupts it signals to the core.
    #[must_use]
    pub fn signaling(self) -> Signaling {
        Signaling::new(self.vmcr, self.apr)
    }

    /// Puts it onto this core.
    pub fn load(self) {
        GICH.write(VMCR, self.vmcr);
        GICH.write(APR, self.apr);
    }
}

/// List register `n`.
#[inline(always)]
pub fn read_lr(n: usize) -> u32 {
    GICH.read(LIST.nth(n as u64 & 0x3f))
}

/// Writes list register `n`.
#[inline(always)]
pub fn write_lr(n: usize, value: u32) {
    GICH.write(LIST.nth(n as u64 & 0x3f), value);
}

/// The control register of this core's virtual interface.
#[inline(always)]
pub fn virtual_control() -> u32 {
    GICH.read(HCR)
}

/// Writes the control register of this core's virtual interface.
#[inline(always)]
pub fn set_virtual_control(value: u32) {
    GICH.write(HCR, value);
}

/// Which of the list registers in use are empty.
#[inline(always)]
pub fn empty_list_registers() -> u32 {
    weir_vdev::gic::free_of(GICH.read(ELRSR0), LISTS)
}
