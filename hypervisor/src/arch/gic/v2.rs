//! GICv2 (IHI0048): all registers are memory-mapped. The guest's CPU interface is GICV, whose first
//! page is mapped into the VM. Accesses to its second page, which has GICV_DIR, trap.

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
/// The GIC version as a value.
pub const VERSION: weir_vdev::id::GicVersion = weir_vdev::id::GicVersion::V2;

/// The group register value that puts all interrupts into group 0, the only group that a GIC
/// without the Security Extensions has. They are signaled as IRQ because FIQEn stays clear.
pub(super) const ALL_GROUPS: u32 = 0;

/// The CPU interface of the core that accesses it.
// SAFETY: `Stage1::begin` maps its 8 KiB. The only read with an effect is that of IAR, where the
// effect is intended.
const GICC: Device = unsafe { Device::new("gicc", device(Pa(board::GICC))) };
/// The virtual interface of the core that accesses it.
// SAFETY: `Stage1::begin` maps its 4 KiB; reading changes nothing.
const GICH: Device = unsafe { Device::new("gich", device(Pa(board::GICH))) };

/// Distributor registers of the GICv2: targets of shared interrupts, SGIs, identification.
const TARGET: Register<u8> = Register::at(0x800);
const SGIR: Register<u32> = Register::at(0xf00);
const ICPIDR2: Register<u32> = Register::at(0xfe8);

const CPU_CTLR: Register<u32> = Register::at(0x00);
const PMR: Register<u32> = Register::at(0x04);
const IAR: Register<u32> = Register::at(0x0c);
const EOIR: Register<u32> = Register::at(0x10);
const DIR: Register<u32> = Register::at(0x1000);
/// GICC_CTLR: enables group 0 (group 1 in the non-secure view), and EOI mode 1 for it.
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

/// Returns the distributor: its first words are banked, so each core sees its own there.
pub(super) fn private_registers(_core: CoreId) -> Device {
    GICD
}

/// GICD_CTLR: forwards interrupts.
pub(super) const ON: u32 = 1;
/// GICD_CTLR: forwards no interrupt.
pub(super) const OFF: u32 = 0;

/// Does nothing: on a GICv2 the private registers are at the same place for each core.
///
/// # Errors
///
/// Returns none.
#[allow(clippy::unnecessary_wraps, reason = "a GICv3 can refuse")]
pub(super) fn wake(_core: CoreId) -> Result<(), &'static str> {
    Ok(())
}

/// Initializes this core's CPU interface and virtual interface.
pub(super) fn start_interface() {
    GICC.write(PMR, 0xff);
    GICC.write(CPU_CTLR, CPU_ENABLE);
    GICH.write(HCR, 0);
    for n in 0..list_registers() {
        write_lr(n, 0);
    }
    dsb_sy();
}

/// Acknowledges the interrupt of highest priority, which becomes active. Returns the value of IAR:
/// its INTID is [`super::SPECIAL`] or above if there is no interrupt. For an SGI, bits 12:10
/// identify the sender, and [`end`] needs them.
#[inline(always)]
#[must_use]
pub fn acknowledge() -> u64 {
    GICC.read(IAR).into()
}

/// Returns the INTID in a value that [`acknowledge`] returned.
#[inline(always)]
#[must_use]
pub fn intid(iar: u64) -> IntId {
    IntId(iar as u32 & 0x3ff)
}

/// Drops the running priority, so that the next interrupt can be taken; this one stays active.
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
    // The stores that the message refers to complete before the SGI that makes the other cores read
    // them.
    dsb_ishst();
    let targets = cores.into_iter().fold(0, |targets, core| targets | 1 << (16 + (core.0 & 7)));
    GICD.write(SGIR, targets | sgi.0);
}

/// Routes shared interrupt `intid` to core `core`. A board with a GICv2 numbers its cores as the
/// GIC numbers its CPU interfaces.
pub(super) fn route(intid: IntId, core: CoreId) {
    GICD.write(TARGET.nth(intid.0.into()), 1 << (core.0 & 7));
}

/// Returns how many list registers are in use: those of this core, at most [`LISTS`].
#[must_use]
pub fn list_registers() -> usize {
    weir_vdev::gic::used((GICH.read(VTR) & 0x3f) as usize + 1, LISTS)
}

/// Returns whether this core's guest ends interrupts in two steps (EOImode 1).
#[must_use]
pub fn ends_in_two_steps() -> bool {
    GICH.read(VMCR) & VEM != 0
}

/// Enables or disables the guest's virtual interrupts. While a vCPU is off or waits, interrupts in
/// its list registers must not end a WFI that EL2 executes.
pub fn enable_virtual(enabled: bool) {
    switch_virtual(enabled);
    dsb_sy();
}

#[inline(always)]
fn switch_virtual(enabled: bool) {
    let hcr = GICH.read(HCR);
    GICH.write(HCR, if enabled { hcr | HCR_EN } else { hcr & !HCR_EN });
}

/// Holds all interrupts of guests back, or lets them through. While they are held, neither virtual
/// interrupts nor physical interrupts of guests interrupt this core or end a WFI.
pub fn hold_guests(held: bool) {
    switch_virtual(!held);
    GICC.write(PMR, if held { OWN_ONLY.into() } else { 0xff });
    dsb_sy();
}

/// Holds every interrupt back, so that none ends a WFI of this core.
pub fn hold_all() {
    switch_virtual(false);
    GICC.write(PMR, 0);
    dsb_sy();
}

/// Returns whether this is a GICv2 (ICPIDR2.ArchRev). A GICv3 has its identification register at
/// another offset and zero here.
#[must_use]
pub fn present() -> bool {
    GICD.read(ICPIDR2) >> 4 & 0xf == 2
}

/// The state of the virtual interface that is saved with a vCPU.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    vmcr: u32,
    apr: u32,
}

impl Interface {
    /// The state after reset: nothing pending, everything masked and disabled.
    pub const RESET: Self = Self { vmcr: 0, apr: 0 };

    /// Reads the state from this core.
    #[must_use]
    pub fn save() -> Self {
        Self { vmcr: GICH.read(VMCR), apr: GICH.read(APR) }
    }

    /// Returns which of its interrupts the virtual interface signals to the core.
    #[must_use]
    pub fn signaling(self) -> Signaling {
        Signaling::new(self.vmcr, self.apr)
    }

    /// Writes the state to this core.
    pub fn load(self) {
        GICH.write(VMCR, self.vmcr);
        GICH.write(APR, self.apr);
    }
}

/// Reads list register `n`.
#[inline(always)]
pub fn read_lr(n: usize) -> u32 {
    GICH.read(LIST.nth(n as u64 & 0x3f))
}

/// Writes list register `n`.
#[inline(always)]
pub fn write_lr(n: usize, value: u32) {
    GICH.write(LIST.nth(n as u64 & 0x3f), value);
}

/// Reads the control register of this core's virtual interface.
#[inline(always)]
pub fn virtual_control() -> u32 {
    GICH.read(HCR)
}

/// Writes the control register of this core's virtual interface.
#[inline(always)]
pub fn set_virtual_control(value: u32) {
    GICH.write(HCR, value);
}

/// Returns the set of list registers in use that are empty.
#[inline(always)]
pub fn empty_list_registers() -> u32 {
    weir_vdev::gic::free_of(GICH.read(ELRSR0), LISTS)
}
