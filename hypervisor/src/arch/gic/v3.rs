//! GICv3 (IHI0069): the CPU interface is accessed by system registers, and each core has a
//! redistributor.

use super::distributor::{GICD, LISTS, OWN_ONLY};
use crate::{
    arch::{
        dsb_ishst, isb,
        memory::device,
        mmio::{Device, Register},
        sysreg::{icc, id_register},
    },
    board::{self, CORES, GICR_LEN},
};
use core::sync::atomic::{AtomicU64, Ordering};
use weir_units::{CoreId, IntId, Pa};
use weir_vdev::gic::{
    Signaling,
    redistributor::{self, RedistributorFrames},
    sgi_target,
};

/// The virtual GIC is of the board's version.
pub type Version = weir_vdev::gic::V3;
/// The GIC version as a value.
pub const VERSION: weir_vdev::id::GicVersion = weir_vdev::id::GicVersion::V3;

/// The group register value that puts all interrupts into group 1, which EL2 takes as IRQ.
pub(super) const ALL_GROUPS: u32 = u32::MAX;

/// GICD_CTLR: affinity routing and group 1. With one security state, bit 1 enables group 1; with
/// two, it enables group 1 in the non-secure copy that EL2 sees.
pub(super) const ON: u32 = OFF | 1 << 1;
/// GICD_CTLR: affinity routing, with no group enabled.
pub(super) const OFF: u32 = 1 << 4;
/// The core that each shared interrupt is routed to.
const IROUTER: Register<u64> = Register::at(0x6000);
/// Power management of a redistributor: ProcessorSleep (bit 1), ChildrenAsleep (bit 2).
const WAKER: Register<u32> = Register::at(0x14);
/// Number of reads of WAKER after which EL2 gives up waiting for a redistributor. The limit is
/// generous because nothing else runs yet.
const WAKE_PATIENCE: u32 = 100_000;
/// Offset from the first frame of a redistributor to the frame of its private interrupts.
const SGI_FRAME: u64 = 0x1_0000;
/// ICC_CTLR_EL1.EOImode.
const EOI_MODE: u64 = 1 << 1;
/// ICH_HCR_EL2.En.
const ICH_EN: u64 = 1;
/// ICH_HCR_EL2.TDIR: writes by a guest to ICC_DIR_EL1 trap, if ICH_VTR_EL2.TDS says that they can.
/// The virtual interface itself could only count those for interrupts that are in no list register.
const TRAP_DIR: u64 = 1 << 14;
/// ICH_VMCR_EL2.VEOIM.
const VEOIM: u64 = 1 << 9;

/// ICC_SRE_EL2: system registers, no bypass of FIQ or IRQ, and ICC_SRE_EL1 traps (Enable, bit 3, is
/// clear).
const SRE_EL2: u64 = 7;
/// ICC_SRE_EL1: the same bits, which are also the value that a guest reads.
const SRE_EL1: u64 = 7;

/// Offset of each core's redistributor from the first one; [`super::init_core`] sets it on that
/// core.
static REDISTRIBUTORS: [AtomicU64; CORES.len()] = [const { AtomicU64::new(0) }; CORES.len()];

/// The redistributors.
// SAFETY: `Stage1::begin` maps `GICR_LEN` bytes. Callers stay within the frames of a redistributor,
// and `find` has checked that these are in this range. Interrupts reach EL2 or a guest, never
// memory.
const GICR: Device = unsafe { Device::new("gicr", device(Pa(board::GICR))) };

/// The frames of all redistributors, which `redistributor::find` searches.
struct Redistributors;

impl RedistributorFrames for Redistributors {
    fn read(&mut self, offset: u64) -> u32 {
        GICR.read(Register::<u32>::at(offset))
    }

    fn read_long(&mut self, offset: u64) -> u64 {
        GICR.read(Register::<u64>::at(offset))
    }

    fn write(&mut self, offset: u64, value: u32) {
        GICR.write(Register::at(offset), value);
    }
}

/// Returns the first frame of core `core`'s redistributor.
fn redistributor(core: CoreId) -> Device {
    // Relaxed: only the core itself, and cores that share a lock with it, use its private
    // interrupts.
    GICR.at_offset(REDISTRIBUTORS[core.index().min(CORES.len() - 1)].load(Ordering::Relaxed))
}

/// Returns the registers of core `core`'s private interrupts.
pub(super) fn private_registers(core: CoreId) -> Device {
    redistributor(core).at_offset(SGI_FRAME)
}

/// Finds this core's redistributor and wakes it.
///
/// # Errors
///
/// Returns the reason why this core's redistributor cannot be used.
pub(super) fn wake(core: CoreId) -> Result<(), &'static str> {
    let index = core.index().min(CORES.len() - 1);
    let at = redistributor::find(&mut Redistributors, GICR_LEN, CORES[index])
        .ok_or("no redistributor has its affinity")?;
    REDISTRIBUTORS[index].store(at, Ordering::Relaxed);
    redistributor::stop_lpis(&mut Redistributors, at)
        .map_err(|_| "the firmware left LPIs on, and its redistributor does not turn them off")?;
    // Clearing ProcessorSleep wakes the redistributor, which then clears ChildrenAsleep (IHI0069,
    // 12.11.42).
    redistributor(core).modify(WAKER, |waker| waker & !2);
    let is_awake = super::becomes(WAKE_PATIENCE, || redistributor(core).read(WAKER) & 4 == 0);
    is_awake.then_some(()).ok_or("its redistributor does not wake")
}

/// Initializes this core's CPU interface and virtual interface.
pub(super) fn start_interface() {
    icc::sre_el2::write(SRE_EL2);
    isb();
    icc::sre_el1::write(SRE_EL1);
    icc::ctlr::write(icc::ctlr::read() | EOI_MODE);
    icc::pmr::write(0xff);
    icc::igrpen1::write(1);
    icc::ich_hcr::write(TRAP_DIR);
    for n in 0..list_registers() {
        icc::write_lr(n, 0);
    }
    isb();
}

/// Acknowledges the interrupt of highest priority, which becomes active. Returns its INTID, or
/// [`super::SPECIAL`] or above if there is no interrupt.
#[inline(always)]
#[must_use]
pub fn acknowledge() -> u64 {
    icc::iar1::read()
}

/// Returns the INTID in a value that [`acknowledge`] returned.
#[inline(always)]
#[must_use]
pub fn intid(iar: u64) -> IntId {
    IntId(iar as u32)
}

/// Drops the running priority, so that the next interrupt can be taken; this one stays active.
#[inline(always)]
pub fn drop_priority(iar: u64) {
    icc::eoir1::write(iar);
}

/// Ends an interrupt of the hypervisor's own.
#[inline(always)]
pub fn end(iar: u64) {
    icc::eoir1::write(iar);
    icc::dir::write(iar);
}

/// The ICC_SGI1R_EL1 value that sends an SGI to each core, without the INTID.
const TARGETS: [u64; CORES.len()] = {
    let mut targets = [0; CORES.len()];
    let mut core = 0;
    while core < CORES.len() {
        targets[core] = sgi_target(CORES[core]);
        core += 1;
    }
    targets
};

/// Whether one write reaches all cores, because their values differ in the target list alone.
const ONE_CLUSTER: bool = {
    let mut same = true;
    let mut core = 1;
    while core < CORES.len() {
        same &= TARGETS[core] >> 16 == TARGETS[0] >> 16;
        core += 1;
    }
    same
};

/// Sends an SGI to each of `cores`.
#[inline(always)]
pub fn send(cores: impl IntoIterator<Item = CoreId>, sgi: IntId) {
    // The stores that the message refers to complete before the SGI that makes the other cores read
    // them.
    dsb_ishst();
    let intid = u64::from(sgi.0) << 24;
    let mut targets = 0;
    for core in cores {
        let Some(target) = TARGETS.get(core.index()) else { continue };
        if ONE_CLUSTER {
            targets |= target;
        } else {
            icc::sgi1r::write(target | intid);
        }
    }
    if targets != 0 {
        icc::sgi1r::write(targets | intid);
    }
}

/// Routes shared interrupt `intid` to core `core`.
pub(super) fn route(intid: IntId, core: CoreId) {
    if let Some(&mpidr) = CORES.get(core.index()) {
        GICD.write(IROUTER.nth(intid.0.into()), mpidr);
    }
}

/// Returns how many list registers are in use: those of this core, at most [`LISTS`].
#[must_use]
pub fn list_registers() -> usize {
    weir_vdev::gic::used((icc::ich_vtr::read() & 0x1f) as usize + 1, LISTS)
}

/// Returns whether this core's guest ends interrupts in two steps (EOImode 1).
#[must_use]
pub fn ends_in_two_steps() -> bool {
    icc::ich_vmcr::read() & VEOIM != 0
}

/// Enables or disables the guest's virtual interrupts. While a vCPU is off or waits, interrupts in
/// its list registers must not end a WFI that EL2 executes.
pub fn enable_virtual(enabled: bool) {
    switch_virtual(enabled);
    isb();
}

#[inline(always)]
fn switch_virtual(enabled: bool) {
    let hcr = icc::ich_hcr::read();
    icc::ich_hcr::write(if enabled { hcr | ICH_EN } else { hcr & !ICH_EN });
}

/// Holds all interrupts of guests back, or lets them through. While they are held, neither virtual
/// interrupts nor physical interrupts of guests interrupt this core or end a WFI.
pub fn hold_guests(held: bool) {
    switch_virtual(!held);
    icc::pmr::write(if held { OWN_ONLY.into() } else { 0xff });
    isb();
}

/// Holds every interrupt back, so that none ends a WFI of this core.
pub fn hold_all() {
    switch_virtual(false);
    icc::pmr::write(0);
    isb();
}

/// Returns whether this core has the system register interface of the GIC (ID_AA64PFR0_EL1.GIC).
#[must_use]
pub fn present() -> bool {
    // On a board without firmware el3.s has used the interface already. The ID register is not read
    // there, because gem5 v24.0 has the interface but its ID register reports none.
    cfg!(starts_in_el3) || id_register(4, 0) >> 24 & 0xf != 0
}

/// The state of the virtual interface that is saved with a vCPU. It has no list registers, because
/// they are empty while no vCPU has the core: see `weir_vdev::gic::Gic::save`.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    vmcr: u64,
    ap0r0: u64,
    ap1r0: u64,
}

impl Interface {
    /// The state after reset: nothing pending, everything masked and disabled.
    pub const RESET: Self = Self { vmcr: 0, ap0r0: 0, ap1r0: 0 };

    /// Reads the state from this core.
    #[must_use]
    pub fn save() -> Self {
        Self {
            vmcr: icc::ich_vmcr::read(),
            ap0r0: icc::ich_ap0r0::read(),
            ap1r0: icc::ich_ap1r0::read(),
        }
    }

    /// Returns which of its interrupts the virtual interface signals to the core.
    #[must_use]
    pub fn signaling(self) -> Signaling {
        Signaling::new(self.vmcr as u32, (self.ap0r0 | self.ap1r0) as u32)
    }

    /// Writes the state to this core.
    pub fn load(self) {
        // A GIC may fix ICC_SRE_EL2.Enable to 1 (IHI0069H 12.2.24). Then the previous guest may
        // have written ICC_SRE_EL1, and reads of ISR and acknowledges by the next guest would not
        // use its virtual interface.
        icc::sre_el1::write(SRE_EL1);
        icc::ich_vmcr::write(self.vmcr);
        icc::ich_ap0r0::write(self.ap0r0);
        icc::ich_ap1r0::write(self.ap1r0);
    }
}
