//! List registers: their two layouts, and the operations that the model requires from the core that
//! owns them.
//!
//! Sources: IHI0069H 12.4.4 (`ICH_LR<n>_EL2`), 12.4.5 (`ICH_ELRSR_EL2`), IHI0048B 5.3.9
//! (`GICH_LRn`).

use super::sgi_words::{SgiWords, SgiWordsV2, SgiWordsV3};
use core::fmt::Debug;
use weir_units::IntId;

/// The pending and active bits of a list register.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ListRegisterState {
    /// Waiting for the guest's acknowledge.
    pub pending: bool,
    /// Acknowledged and not yet deactivated.
    pub active: bool,
}

impl ListRegisterState {
    /// Neither pending nor active: the list register is free.
    #[must_use]
    pub const fn is_invalid(self) -> bool {
        !self.pending && !self.active
    }

    const fn bits(self) -> u32 {
        self.pending as u32 | (self.active as u32) << 1
    }

    const fn from_bits(bits: u32) -> Self {
        Self { pending: bits & 1 != 0, active: bits & 2 != 0 }
    }
}

/// The source of a virtual interrupt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Backing {
    /// A physical interrupt, which is also deactivated when the guest deactivates the virtual one.
    Hardware {
        /// The physical INTID, below 1020.
        pintid: IntId,
    },
    /// No physical interrupt: the model itself makes the interrupt pending.
    Software {
        /// Whether the guest's deactivation raises the maintenance interrupt.
        eoi: bool,
        /// The vCPU that sent this SGI (GICv2 only, 0 otherwise).
        source: u32,
    },
}

/// The content of one list register, decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The virtual INTID.
    pub intid: IntId,
    /// The pending and active state.
    pub state: ListRegisterState,
    /// Priority; the five upper bits are implemented.
    pub priority: u8,
    /// Whether the interrupt is in group 1; otherwise it is in group 0.
    pub group1: bool,
    /// The source: hardware or software.
    pub backing: Backing,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::V2 {}
    impl Sealed for super::V3 {}
}

/// The architecture version of a virtual GIC.
pub trait GicArchitecture: sealed::Sealed + 'static {
    /// A list register's value: `u64` for GICv3, `u32` for GICv2.
    type Raw: Copy + Eq + Debug;
    /// The words in which SGIs wait for one vCPU.
    type SgiWords: SgiWords;
    /// An empty list register.
    const EMPTY: Self::Raw;
    /// Whether this is GICv3 (affinity routing, redistributors).
    const V3: bool;

    /// Returns the register value of an entry.
    fn encode(entry: &Entry) -> Self::Raw;
    /// Returns the entry of a register value.
    fn decode(raw: Self::Raw) -> Entry;
    /// Returns the virtual INTID in a register value.
    fn intid(raw: Self::Raw) -> IntId;
    /// Returns the state in a register value.
    fn state(raw: Self::Raw) -> ListRegisterState;
    /// Returns whether the end of the interrupt in a register value raises the maintenance
    /// interrupt.
    fn reports_end(raw: Self::Raw) -> bool;
    /// Returns the value with another SGI source (GICv2), or unchanged (GICv3).
    fn with_source(raw: Self::Raw, source: u32) -> Self::Raw;
    /// Returns the value with another priority.
    fn with_priority(raw: Self::Raw, priority: u8) -> Self::Raw;
}

/// GICv3 with affinity routing (IHI0069).
#[derive(Clone, Copy, Debug)]
pub enum V3 {}

/// GICv2 (IHI0048).
#[derive(Clone, Copy, Debug)]
pub enum V2 {}

impl GicArchitecture for V3 {
    type Raw = u64;
    type SgiWords = SgiWordsV3;
    const EMPTY: u64 = 0;
    const V3: bool = true;

    #[inline]
    fn encode(e: &Entry) -> u64 {
        let common = u64::from(e.intid.0)
            | u64::from(e.priority) << 48
            | u64::from(e.group1) << 60
            | u64::from(e.state.bits()) << 62;
        match e.backing {
            Backing::Hardware { pintid } => common | 1 << 61 | u64::from(pintid.0 & 0x3ff) << 32,
            Backing::Software { eoi, .. } => common | u64::from(eoi) << 41,
        }
    }

    #[inline]
    fn decode(raw: u64) -> Entry {
        let backing = if raw >> 61 & 1 != 0 {
            Backing::Hardware { pintid: IntId((raw >> 32) as u32 & 0x3ff) }
        } else {
            Backing::Software { eoi: raw >> 41 & 1 != 0, source: 0 }
        };
        Entry {
            intid: Self::intid(raw),
            state: Self::state(raw),
            priority: (raw >> 48) as u8,
            group1: raw >> 60 & 1 != 0,
            backing,
        }
    }

    #[inline]
    fn intid(raw: u64) -> IntId {
        IntId(raw as u32)
    }

    #[inline]
    fn state(raw: u64) -> ListRegisterState {
        ListRegisterState::from_bits((raw >> 62) as u32)
    }

    #[inline]
    fn reports_end(raw: u64) -> bool {
        raw >> 61 & 1 == 0 && raw >> 41 & 1 != 0
    }

    #[inline]
    fn with_source(raw: u64, _source: u32) -> u64 {
        raw
    }

    #[inline]
    fn with_priority(raw: u64, priority: u8) -> u64 {
        raw & !(0xff << 48) | u64::from(priority) << 48
    }
}

impl GicArchitecture for V2 {
    type Raw = u32;
    type SgiWords = SgiWordsV2;
    const EMPTY: u32 = 0;
    const V3: bool = false;

    #[inline]
    fn encode(e: &Entry) -> u32 {
        let common = e.intid.0 & 0x3ff
            | u32::from(e.priority >> 3) << 23
            | e.state.bits() << 28
            | u32::from(e.group1) << 30;
        match e.backing {
            Backing::Hardware { pintid } => common | 1 << 31 | (pintid.0 & 0x3ff) << 10,
            Backing::Software { eoi, source } => common | u32::from(eoi) << 19 | (source & 7) << 10,
        }
    }

    #[inline]
    fn decode(raw: u32) -> Entry {
        let backing = if raw >> 31 != 0 {
            Backing::Hardware { pintid: IntId(raw >> 10 & 0x3ff) }
        } else {
            Backing::Software { eoi: raw >> 19 & 1 != 0, source: raw >> 10 & 7 }
        };
        Entry {
            intid: Self::intid(raw),
            state: Self::state(raw),
            priority: (raw >> 23 << 3) as u8,
            group1: raw >> 30 & 1 != 0,
            backing,
        }
    }

    #[inline]
    fn intid(raw: u32) -> IntId {
        IntId(raw & 0x3ff)
    }

    #[inline]
    fn state(raw: u32) -> ListRegisterState {
        ListRegisterState::from_bits(raw >> 28)
    }

    #[inline]
    fn reports_end(raw: u32) -> bool {
        raw >> 31 == 0 && raw >> 19 & 1 != 0
    }

    #[inline]
    fn with_source(raw: u32, source: u32) -> u32 {
        raw | (source & 7) << 10
    }

    #[inline]
    fn with_priority(raw: u32, priority: u8) -> u32 {
        raw & !(0x1f << 23) | u32::from(priority >> 3) << 23
    }
}

/// The maintenance interrupts that the model requests, as bits of `ICH_HCR_EL2` and `GICH_HCR`,
/// which have them in the same positions (IHI0069H 12.4.2, IHI0048B 5.3.1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Maintenance(u32);

impl Maintenance {
    /// None, except for the end-of-interrupt maintenance that each list register requests itself.
    pub const NONE: Self = Self(0);
    /// `LRENPIE`: the guest ended an interrupt that has no list register.
    pub const ENTRY_MISSING: Self = Self(1 << 2);
    /// `NPIE`: no list register is pending any more.
    pub const NO_PENDING: Self = Self(1 << 3);
    /// Every bit that a value can have, for the read-modify-write of the register.
    pub const MASK: u32 = 0b1100;

    /// Returns the bits at their positions in the register.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    pub(super) const fn and(self, other: Self, when: bool) -> Self {
        if when { Self(self.0 | other.0) } else { self }
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Returns the number of list registers to use: all that the core implements, but at most `most`.
#[must_use]
pub const fn used(implemented: usize, most: usize) -> usize {
    if implemented < most { implemented } else { most }
}

/// Returns the free list registers among the first `most`, in the form that
/// [`ListRegisters::empty_mask`] returns. `status` is `ICH_ELRSR_EL2` or `GICH_ELRSR0`: it has one
/// bit for each implemented register, whether it is used or not; the other bits are zero (IHI0069H
/// 12.4.5, IHI0048B 5.3.8).
#[inline]
#[must_use]
pub const fn free_of(status: u32, most: usize) -> u32 {
    if most >= 32 { status } else { status & ((1 << most) - 1) }
}

/// The list registers of the core that the caller runs on.
///
/// `index` is always below the count that [`super::Gic::new`] was given.
pub trait ListRegisters<V: GicArchitecture> {
    /// Reads `ICH_LR<index>_EL2` or `GICH_LR<index>`.
    fn read(&self, index: usize) -> V::Raw;
    /// Writes `ICH_LR<index>_EL2` or `GICH_LR<index>`.
    fn write(&mut self, index: usize, raw: V::Raw);
    /// Empties the first `count` list registers, which are all that are used.
    fn clear(&mut self, count: usize) {
        (0..count).for_each(|index| self.write(index, V::EMPTY));
    }
    /// Returns `ICH_ELRSR_EL2` or `GICH_ELRSR0`: a bit is set if the list register is free and has
    /// no end-of-interrupt maintenance to report. Bits from the count up are zero ([`free_of`]).
    fn empty_mask(&self) -> u32;
    /// Sets the maintenance enables of `HCR` to `wanted`, without changing its other bits.
    fn set_maintenance(&mut self, wanted: Maintenance);
    /// Returns `HCR.EOIcount` (0 to 31) and sets it to 0.
    fn take_eoi_count(&mut self) -> u32;
}

/// The operations that the model requires from the core that its caller runs on: the list
/// registers, and the physical interrupts to which [`super::Gic::link`] linked virtual ones.
///
/// These functions act on the physical distributor or redistributor. For a PPI (`pintid` below 32)
/// they act on the PPI of the core that runs `vcpu`. For a PPI, all of them except
/// [`Hardware::pending`], [`Hardware::set_pending`] and [`Hardware::set_active`] on GICv3 are
/// called only on that core, so a GICv2's banked registers suffice.
pub trait Hardware<V: GicArchitecture>: ListRegisters<V> {
    /// Starts or stops forwarding the interrupt (GICD_ISENABLER, GICD_ICENABLER).
    fn set_enabled(&mut self, vcpu: usize, pintid: IntId, on: bool);
    /// Makes the interrupt edge-triggered or level-sensitive (GICD_ICFGR).
    fn set_edge(&mut self, vcpu: usize, pintid: IntId, edge: bool);
    /// Routes an SPI to the core that runs `vcpu` (GICD_IROUTER, GICD_ITARGETSR).
    fn route(&mut self, pintid: IntId, vcpu: usize);
    /// Returns whether the interrupt is pending (GICD_ISPENDR).
    fn pending(&mut self, vcpu: usize, pintid: IntId) -> bool;
    /// Sets or clears the pending state (GICD_ISPENDR, GICD_ICPENDR).
    fn set_pending(&mut self, vcpu: usize, pintid: IntId, on: bool);
    /// Sets or clears the active state (GICD_ISACTIVER, GICD_ICACTIVER).
    fn set_active(&mut self, vcpu: usize, pintid: IntId, on: bool);
}
