//! The board's interrupt controller: GICv3 or GICv2, chosen when the hypervisor is built.
//!
//! EL2 takes all physical interrupts. It masks them while it runs, so they do not nest. There are
//! two priorities: one for the hypervisor's own interrupts and one for the interrupts of guests,
//! which can be held back together. EOI mode 1 splits the end of an interrupt: EL2 drops the
//! priority, and the handler of the interrupt deactivates it (a guest does so by its own EOI,
//! through the HW bit of the list register).

mod distributor;
#[cfg(feature = "gicv2")]
mod v2;
#[cfg(feature = "gicv3")]
mod v3;

#[cfg(feature = "gicv2")]
pub use v2::*;
#[cfg(feature = "gicv3")]
pub use v3::*;

#[cfg(all(feature = "gicv2", feature = "gicv3"))]
compile_error!("one hypervisor drives one kind of GIC: choose gicv2 or gicv3");

#[cfg(feature = "gicv3")]
pub use distributor::LISTS;

use super::{
    lock::Lock,
    mmio::{Device, SetClear},
};
use distributor::{
    CLEAR_ACTIVE, CLEAR_ENABLE, CLEAR_PENDING, CONFIG, CTLR, GICD, GROUP, PRIORITIES, PRIORITY,
    SET_ACTIVE, SET_ENABLE, SET_PENDING, TYPER,
};
use weir_units::{CoreId, IntId};

/// SGI by which a core announces a message in another core's mailbox.
pub const SGI_MESSAGE: IntId = IntId(0);
/// SGI that stands for the SGIs of guests.
pub const SGI_GUEST: IntId = IntId(1);
/// The virtual timer.
pub const PPI_VIRTUAL_TIMER: IntId = IntId(27);
/// The physical timer of EL1.
pub const PPI_PHYSICAL_TIMER: IntId = IntId(30);
/// EL2's own timer.
pub const PPI_HYP_TIMER: IntId = IntId(26);
/// GIC maintenance.
pub const PPI_MAINTENANCE: IntId = IntId(25);
/// INTIDs from this one on are special: there is no interrupt to acknowledge.
pub const SPECIAL: IntId = IntId(1020);
/// The value that [`acknowledge`] returns if no interrupt is pending.
pub const NOTHING: u64 = 1023;

/// Priority of the hypervisor's own interrupts.
const OWN: u8 = 0x40;
/// Priority of all other interrupts.
const GUESTS: u8 = 0xc0;

/// Returns the priority that the distributor of a GIC with two security states stores for
/// `priority` (IHI0069, 4.8.1). The priority mask is translated in the same way only if SCR_EL3.FIQ
/// is set, so EL2's values must be correct in both views.
const fn kept(priority: u8) -> u8 {
    priority >> 1 | 0x80
}
const _: () = assert!(OWN < distributor::OWN_ONLY && distributor::OWN_ONLY <= GUESTS);
const _: () = assert!(kept(OWN) < distributor::OWN_ONLY && distributor::OWN_ONLY <= kept(GUESTS));
/// The largest INTID of an interrupt.
const LAST: IntId = IntId(1019);

/// Number of reads of a register after which EL2 gives up waiting for the GIC. Interrupts are
/// masked during the wait, so a faulty GIC must not make it endless. A working GIC answers within a
/// few accesses.
const PATIENCE: u32 = 10_000;

/// Polls `done` at most `patience` times; returns whether it became true.
fn becomes(patience: u32, done: impl Fn() -> bool) -> bool {
    (0..patience).any(|_| {
        let is_done = done();
        if !is_done {
            super::relax();
        }
        is_done
    })
}

/// An interrupt line of the board's GIC: an INTID and, for those below 32, the core that it is
/// private to.
#[derive(Clone, Copy)]
pub struct PhysicalLine {
    intid: IntId,
    /// The registers of private interrupts of the line's core.
    private: Device,
}

impl PhysicalLine {
    /// Returns line `intid` as core `core` sees it. INTIDs above 1019 do not exist and stand for
    /// the last line here.
    #[must_use]
    pub fn new(intid: IntId, core: CoreId) -> Self {
        Self { intid: intid.min(LAST), private: private_registers(core) }
    }

    /// Returns the line of SPI `intid`, a number from 32 on.
    #[inline(always)]
    #[must_use]
    pub fn spi(intid: IntId) -> Self {
        Self { intid: intid.min(LAST), private: GICD }
    }

    /// Returns the device with the line's registers: the distributor, or for a private line the
    /// registers of its core.
    fn device(self) -> Device {
        if self.intid.is_private() { self.private } else { GICD }
    }

    fn bit(self) -> u32 {
        1 << (self.intid.0 % 32)
    }

    fn act(self, registers: SetClear) {
        self.device().act(registers.nth(u64::from(self.intid.0 / 32)), self.bit());
    }

    fn is(self, registers: SetClear) -> bool {
        self.device().state(registers.nth(u64::from(self.intid.0 / 32))) & self.bit() != 0
    }

    /// Starts or stops forwarding the interrupt.
    pub fn set_enabled(self, enabled: bool) {
        self.act(if enabled { SET_ENABLE } else { CLEAR_ENABLE });
    }

    /// Stops forwarding the SPI: no core sees an interrupt that arrives after the return. Returns
    /// false if the distributor does not confirm this within [`PATIENCE`] reads.
    #[must_use]
    pub fn withhold(self) -> bool {
        self.set_enabled(false);
        // A GICv2 has no GICD_CTLR.RWP and does not need it (IHI0069, 12.9.4).
        !cfg!(feature = "gicv3") || becomes(PATIENCE, || GICD.read(CTLR) >> 31 == 0)
    }

    /// Returns whether the interrupt is active.
    #[must_use]
    pub fn is_active(self) -> bool {
        self.is(SET_ACTIVE)
    }

    /// Returns whether the interrupt is pending.
    #[must_use]
    pub fn is_pending(self) -> bool {
        self.is(SET_PENDING)
    }

    /// Makes the interrupt pending or not pending.
    pub fn set_pending(self, pending: bool) {
        self.act(if pending { SET_PENDING } else { CLEAR_PENDING });
    }

    /// Activates or deactivates the interrupt.
    pub fn set_active(self, active: bool) {
        self.act(if active { SET_ACTIVE } else { CLEAR_ACTIVE });
    }

    /// Makes the line edge-triggered or level-sensitive. The line must be disabled (IHI0069,
    /// 12.9.9). Sixteen lines are configured in one word, and SPIs of two VMs can be among them.
    /// For an SPI the caller therefore holds the lock of the distributor ([`DISTRIBUTOR`]).
    pub fn set_edge(self, edge: bool) {
        let word = CONFIG.nth(u64::from(self.intid.0 / 16));
        let bit = 2 << (self.intid.0 % 16 * 2);
        let old = self.device().read(word);
        let new = if edge { old | bit } else { old & !bit };
        if new != old {
            self.device().write(word, new);
        }
    }

    /// Returns whether the line is edge-triggered.
    #[must_use]
    pub fn is_edge(self) -> bool {
        let word = self.device().read(CONFIG.nth(u64::from(self.intid.0 / 16)));
        word & 2 << (self.intid.0 % 16 * 2) != 0
    }

    /// Routes an SPI to core `core`; does nothing for a private line.
    pub fn route(self, core: CoreId) {
        if !self.intid.is_private() {
            route(self.intid, core);
        }
    }

    fn set_priority(self, priority: u8) {
        self.device().write(PRIORITY.nth(self.intid.0.into()), priority);
    }

    /// Makes this line an interrupt of the hypervisor's own, handled on core `core`.
    pub fn claim(self, core: CoreId) {
        self.set_priority(OWN);
        self.route(core);
        self.set_enabled(true);
    }
}

/// Serializes the read-modify-write of words that configure several lines.
pub static DISTRIBUTOR: Lock<()> = Lock::new(());

/// Initializes the distributor. Called once, on the boot core.
pub fn init() {
    GICD.write(CTLR, OFF);
    reset_spis();
    GICD.write(CTLR, ON);
}

/// Initializes this core's part of the GIC: its private interrupts, its CPU interface and its
/// virtual interface.
///
/// # Errors
///
/// Returns the reason why this core's redistributor cannot be used.
pub fn init_core(core: CoreId) -> Result<(), &'static str> {
    wake(core)?;
    reset_private(core);
    start_interface();
    Ok(())
}

/// Puts every SPI into a known state: disabled, inactive, with the priority of guest interrupts and
/// the group that EL2 uses.
fn reset_spis() {
    let lines = (GICD.read(TYPER) & 0x1f) * 32 + 32;
    for first in (32..lines.min(1020)).step_by(32) {
        let word = u64::from(first / 32);
        GICD.act(CLEAR_ENABLE.nth(word), u32::MAX);
        GICD.act(CLEAR_PENDING.nth(word), u32::MAX);
        GICD.act(CLEAR_ACTIVE.nth(word), u32::MAX);
        GICD.write(GROUP.nth(word), ALL_GROUPS);
        for intid in (first..first + 32).step_by(4) {
            GICD.write(PRIORITIES.nth(u64::from(intid / 4)), u32::from_ne_bytes([GUESTS; 4]));
        }
    }
}

/// Puts this core's private interrupts into a known state and enables those of the hypervisor's
/// own.
fn reset_private(core: CoreId) {
    let registers = private_registers(core);
    let own = [SGI_MESSAGE, SGI_GUEST, PPI_HYP_TIMER, PPI_MAINTENANCE];
    let enable = own.iter().fold(0, |word, intid| word | 1u32 << intid.0);
    registers.act(CLEAR_ENABLE, u32::MAX);
    registers.act(CLEAR_PENDING, u32::MAX);
    registers.act(CLEAR_ACTIVE, u32::MAX);
    registers.write(GROUP, ALL_GROUPS);
    // PPIs are level-sensitive: if they were edge-triggered, an edge from one VM's timer would be
    // latched and delivered to the next VM's vCPU.
    registers.write(CONFIG.nth(1), 0);
    for intid in (0..32).map(IntId) {
        let priority = if own.contains(&intid) && intid != SGI_GUEST { OWN } else { GUESTS };
        PhysicalLine::new(intid, core).set_priority(priority);
    }
    registers.act(SET_ENABLE, enable);
}

#[cfg(test)]
mod tests;
