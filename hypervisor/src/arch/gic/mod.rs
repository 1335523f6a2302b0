//! The board's interrupt controller: GICv3 or GICv2, chosen when the hypervisor is built.
//!
//! Physical interrupts are taken at EL2 only, which masks them while it runs, so that none nests.
//! There are two priorities: the hypervisor's own, and that of the guests' lines, which can be held
//! back together. EOI mode 1 splits the end of an interrupt: EL2 drops the priority, and who
//! handles the interrupt deactivates it (a guest by its own EOI, through the HW bit of the list
//! register).

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

use super::{lock::Lock, memory::device, mmio};
use crate::platform::GICD;
use distributor::{CTLR, gicd_read, gicd_write};

/// SGI by which a core says that it put something into another's mailbox.
pub const SGI_MESSAGE: u32 = 0;
/// SGI that stands for SGIs of a guest.
pub const SGI_GUEST: u32 = 1;
/// The virtual timer.
pub const PPI_VIRTUAL_TIMER: u32 = 27;
/// The physical timer of EL1.
pub const PPI_PHYSICAL_TIMER: u32 = 30;
/// EL2's own timer.
pub const PPI_HYP_TIMER: u32 = 26;
/// GIC maintenance.
pub const PPI_MAINTENANCE: u32 = 25;
/// INTIDs from here on mean that nothing is to be acknowledged.
pub const SPECIAL: u32 = 1020;
/// What [`acknowledge`] gives when there is nothing.
pub const NOTHING: u64 = 1023;

/// Priority of the hypervisor's own interrupts.
const OWN: u8 = 0x80;
/// Priority of all others.
const GUESTS: u8 = 0xa0;
/// Registers of the distributor (IHI0069, 12.9; the same in IHI0048, 4.3). Those that act where a
/// one is written, and only there, are written by [`Line::act`] one bit at a time, and never read
/// first.
#[derive(Clone, Copy)]
enum Bits {
    Group = 0x080,
    SetEnable = 0x100,
    ClearEnable = 0x180,
    SetPending = 0x200,
    ClearPending = 0x280,
    SetActive = 0x300,
    ClearActive = 0x380,
}

const TYPER: u64 = 0x004;
const PRIORITIES: u64 = 0x400;
const CONFIG: u64 = 0xc00;

/// Where the word of register group `bits` for `intid` lies: in the distributor, or for the first
/// 32 in the place that belongs to a core.
fn word(private: u64, bits: Bits, intid: u32) -> u64 {
    let base = if intid < 32 { private } else { device(GICD) };
    base + bits as u64 + u64::from(intid / 32 * 4)
}

/// A line of the GIC: an INTID and, for those below 32, the core that it is private to.
#[derive(Clone, Copy)]
pub struct Line {
    intid: u32,
    /// Base of the registers of private interrupts of the line's core.
    private: u64,
}

impl Line {
    /// Line `intid` as core `core` sees it. INTIDs above 1019 are none; they stand for the last one
    /// here.
    #[must_use]
    pub fn new(intid: u32, core: usize) -> Self {
        Self { intid: intid.min(1019), private: private_registers(core) }
    }

    fn act(self, bits: Bits) {
        // SAFETY: the word lies in the distributor or in a redistributor of the board, both mapped
        // by `Stage1::begin`. A write acts on this line alone.
        unsafe { mmio::write32(word(self.private, bits, self.intid), 1 << (self.intid % 32)) }
    }

    fn is(self, bits: Bits) -> bool {
        // SAFETY: as in `act`; reading changes nothing.
        let word = unsafe { mmio::read32(word(self.private, bits, self.intid)) };
        word & 1 << (self.intid % 32) != 0
    }

    /// Forwards the interrupt, or no longer.
    pub fn set_enabled(self, enabled: bool) {
        self.act(if enabled { Bits::SetEnable } else { Bits::ClearEnable });
    }

    /// Forwards the shared interrupt no longer, as of the return: none that comes later than that
    /// is seen by a core.
    pub fn withhold(self) {
        self.set_enabled(false);
        // GICD_CTLR.RWP, which a GICv2 does not have, and does not need (IHI0069, 12.9.4).
        while cfg!(feature = "gicv3") && gicd_read(CTLR) >> 31 != 0 {
            super::relax();
        }
    }

    /// Whether the interrupt is active.
    #[must_use]
    pub fn is_active(self) -> bool {
        self.is(Bits::SetActive)
    }

    /// Whether the interrupt is pending.
    #[must_use]
    pub fn is_pending(self) -> bool {
        self.is(Bits::SetPending)
    }

    /// Makes it pending, or takes that back.
    pub fn set_pending(self, pending: bool) {
        self.act(if pending { Bits::SetPending } else { Bits::ClearPending });
    }

    /// Makes it active, or deactivates it.
    pub fn set_active(self, active: bool) {
        self.act(if active { Bits::SetActive } else { Bits::ClearActive });
    }

    /// Edge-triggered or level-sensitive. The line must be disabled (IHI0069, 12.9.9).
    pub fn set_edge(self, edge: bool) {
        let base = if self.intid < 32 { self.private } else { device(GICD) };
        let address = base + CONFIG + u64::from(self.intid / 16 * 4);
        let bit = 2 << (self.intid % 16 * 2);
        // SAFETY: as in `act`. Sixteen lines share the word; shared lines of two VMs may be among
        // them, so callers hold the lock of the distributor (`DISTRIBUTOR`) for a shared line.
        unsafe {
            let old = mmio::read32(address);
            let new = if edge { old | bit } else { old & !bit };
            if new != old {
                mmio::write32(address, new);
            }
        }
    }

    /// Whether it is edge-triggered.
    #[must_use]
    pub fn is_edge(self) -> bool {
        let base = if self.intid < 32 { self.private } else { device(GICD) };
        // SAFETY: as in `act`; reading changes nothing.
        let word = unsafe { mmio::read32(base + CONFIG + u64::from(self.intid / 16 * 4)) };
        word & 2 << (self.intid % 16 * 2) != 0
    }

    /// Sends a shared interrupt to core `core`.
    pub fn route(self, core: usize) {
        if self.intid >= 32 {
            route(self.intid, core);
        }
    }

    fn set_priority(self, priority: u8) {
        let base = if self.intid < 32 { self.private } else { device(GICD) };
        // SAFETY: as in `act`; a byte of its own for each line.
        unsafe { mmio::write8(base + PRIORITIES + u64::from(self.intid), priority) }
    }

    /// Makes it an interrupt of the hypervisor's own, for core `core`.
    pub fn claim(self, core: usize) {
        self.set_priority(OWN);
        self.route(core);
        self.set_enabled(true);
    }
}

/// Serialises the read-modify-write of words that several lines share.
pub static DISTRIBUTOR: Lock<()> = Lock::new(());

/// Brings up the distributor; on the boot core, once.
pub fn init() {
    gicd_write(CTLR, OFF);
    reset_shared();
    gicd_write(CTLR, ON);
}

/// Brings up this core's part of the GIC, its CPU interface and its virtual interface.
///
/// # Errors
///
/// Why this core's redistributor can't be used.
pub fn init_core(core: usize) -> Result<(), &'static str> {
    wake(core)?;
    reset_private(core);
    start_interface();
    Ok(())
}

/// Puts every shared interrupt into a known state: disabled, inactive, of EL2's priority and group.
fn reset_shared() {
    let lines = (gicd_read(TYPER) & 0x1f) * 32 + 32;
    for first in (32..lines.min(1020)).step_by(32) {
        let offset = |bits: Bits| bits as u64 + u64::from(first / 8);
        gicd_write(offset(Bits::ClearEnable), u32::MAX);
        gicd_write(offset(Bits::ClearPending), u32::MAX);
        gicd_write(offset(Bits::ClearActive), u32::MAX);
        gicd_write(offset(Bits::Group), GROUP);
        for intid in (first..first + 32).step_by(4) {
            gicd_write(PRIORITIES + u64::from(intid), u32::from_ne_bytes([GUESTS; 4]));
        }
    }
}

/// Puts this core's private interrupts into a known state and enables those of the hypervisor's
/// own.
fn reset_private(core: usize) {
    let base = private_registers(core);
    let own = [SGI_MESSAGE, SGI_GUEST, PPI_HYP_TIMER, PPI_MAINTENANCE];
    let enable = own.iter().fold(0, |word, intid| word | 1u32 << intid);
    // SAFETY: the first words of each group, of this core's private interrupts.
    unsafe {
        mmio::write32(base + Bits::ClearEnable as u64, u32::MAX);
        mmio::write32(base + Bits::ClearPending as u64, u32::MAX);
        mmio::write32(base + Bits::ClearActive as u64, u32::MAX);
        mmio::write32(base + Bits::Group as u64, GROUP);
        // PPIs are level-sensitive: an edge that one VM's timer makes would be latched for the next
        // VM's vCPU.
        mmio::write32(base + CONFIG + 4, 0);
    }
    for intid in 0..32 {
        let priority = if own.contains(&intid) && intid != SGI_GUEST { OWN } else { GUESTS };
        Line::new(intid, core).set_priority(priority);
    }
    // SAFETY: as above.
    unsafe { mmio::write32(base + Bits::SetEnable as u64, enable) }
}
