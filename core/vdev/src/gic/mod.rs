//! The virtual GIC of one VM: GICv3 or GICv2, for up to eight vCPUs and 256 INTIDs.
//!
//! The model accesses no hardware: the hypervisor owns the registers, and the model makes the
//! decisions. The hypervisor calls all functions here except [`SgiBoard::post`] with the VM's
//! interrupt lock held, on the core of the vCPU that it names.
//!
//! # Where an interrupt's state is
//!
//! - In the model: `pending`, `active`, `level` and the configuration, with one bit per interrupt
//!   and 32 interrupts per word. Word 0 (SGIs and PPIs) exists per vCPU, words 1 to 7 (SPIs) once.
//! - In a list register: while an interrupt has one, its pending and active bits are *there* and
//!   not in the model; the model's `pending` then records a later event. A core sees only its own
//!   list registers, so each vCPU keeps a `shadow` of the value that was last written to or read
//!   from each register. [`Gic::fold`] brings it up to date.
//! - In the physical distributor, for interrupts linked to hardware ([`Gic::link`]): an interrupt
//!   that the guest has enabled is enabled there, becomes pending there, and is passed to the model
//!   by [`Gic::deliver_hw`]. From then until the guest's deactivation it is physically active,
//!   wherever its virtual state is.
//!
//! # How a change reaches a vCPU
//!
//! No function here changes another core's list registers. A change that concerns them marks the
//! vCPU and returns it in a [`VcpuMask`]: its core is kicked and runs [`Gic::drain`] or
//! [`Gic::refresh`], which moves all list registers into the model and chooses again. If a guest
//! changes a pending or active bit in another core's list register, the change is kept as an
//! intention (`cancel`, `force`) and applied by that refresh. An interrupt that the guest disabled
//! can still be acknowledged until then, as on hardware until `RWP` is clear. Reads see the state
//! of the last fold: [`Gic::remote`] returns the vCPUs that must fold first.
//!
//! # What is in the list registers
//!
//! After a refresh the list registers hold the highest-priority interrupt that can be taken, then
//! the active interrupts, then the others that can be taken, ordered by priority and then by INTID.
//! So no waiting interrupt is more urgent than all those that have a list register. If some wait,
//! `NPIE` causes the next refresh when no list register is pending any more. Active interrupts that
//! do not fit are ended by `EOIcount`, the most urgent first, by the priority at which each was
//! acknowledged (IHI0069H 4.8, IHI0048B 5.2.2). With EOImode 1 a guest deactivates interrupts in
//! any order, and SPIs on any core: each of these accesses traps, and is carried out as the store
//! to ICACTIVER with the same effect ([`GicAccess::deactivation`]). If `ICC_DIR_EL1` does not trap,
//! the counted ends are assumed to be in the order above.
//!
//! Level-sensitive software interrupts request a maintenance interrupt at their end; if their line
//! is still high, they become pending again. If the line of a hardware-linked interrupt becomes low
//! while the interrupt waits in a list register, it stays pending: the guest finds its device idle,
//! as after any spurious interrupt. A timer interrupt is dropped in this case when the guest reads
//! its pending state and at each refresh ([`Gic::refresh`]).
//!
//! A *relayed* interrupt ([`Gic::relay`]) is emulated. Its line is high from the arrival of its
//! physical interrupt, which stays active, until the guest ends it. Its list register reports that
//! end, for any state that the guest gave it, and then the physical interrupt is deactivated; a
//! deactivation by the guest has the same effect. So such an interrupt can be moved from one VM to
//! another between two occurrences.
//!
//! A physical SPI that arrives at a vCPU that is off its core is *masked* until that vCPU is back
//! ([`Gic::restore`]): a linked interrupt is disabled in the physical distributor, a relayed one
//! stays active. So it interrupts that core only once, whatever the VM's other vCPUs write to the
//! distributor and whichever interrupts they end.
//!
//! The trigger of PPIs is fixed to level-sensitive, which the architecture permits (IHI0069H
//! 12.11.7). Otherwise the edge of a timer would be latched in the core's registers, where the next
//! VM's vCPU would find it.
//!
//! The ISPENDR latch of a linked interrupt is in the physical distributor (`asked`) until the
//! interrupt arrives next. It then belongs to that occurrence (`latched`) until the following one.
//! If the interrupt is returned to the distributor, its latch is returned with it. While there is a
//! latch, the short path is closed. The distributor never keeps an older latch: an interrupt that
//! arrives clears it, even if another vCPU has set it after the core's acknowledge. So
//! [`Gic::save`] knows which latches to take back.
//!
//! The short path relies on the fact that a linked interrupt is physically active while it is in a
//! list register, and therefore does not arrive again. ISACTIVER breaks this, because a core may
//! have acknowledged the interrupt and be waiting for the VM's lock. The end of the guest's active
//! state (an end of interrupt or ICACTIVER) then lets the interrupt arrive again while the first
//! occurrence is not delivered yet. So an interrupt that the guest has once made active takes the
//! long path until the VM's reset, because the long path checks where the interrupt is.
//!
//! The state and the delivery are in one file, because both keep the derived sets (`ready`,
//! `routed`, `waiting`, `spi_keepers`) consistent with the interrupts and with each vCPU's `busy`.

mod lists;
mod lr;
mod mmio;
mod order;
pub mod redistributor;
mod reset;
mod sgi;
mod sgi_words;
mod signal;
#[cfg(test)]
mod tests;

pub use lr::{
    Backing, Entry, GicArchitecture, Hardware, ListRegisterState, ListRegisters, Maintenance, V2,
    V3, free_of, used,
};
pub use mmio::GicAccess;
pub use reset::ResetStep;
pub use sgi::{Sgi, SgiBoard, SgiRegister, decode_sgi_register, decode_sgir, sgi_target};
pub use sgi_words::SgiWords;
pub use signal::Signaling;

use core::ops::BitOr;
use weir_units::IntId;

/// The largest number of vCPUs of a VM.
pub const MAX_VCPUS: usize = 8;
/// INTIDs 0 to 255 exist.
pub const INTIDS: u32 = 256;
/// The largest number of list registers of a core.
pub const MAX_LIST_REGISTERS: usize = 16;

/// Mask of the SGIs in word 0.
const SGIS: u32 = 0xffff;
/// The priority bits that every virtual CPU interface implements: the five upper ones (IHI0069H
/// 4.8.6, IHI0048B 5.3.9).
const PRIORITY_MASK: u8 = 0xf8;

/// A set of vCPUs of one VM.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use]
pub struct VcpuMask(u8);

impl VcpuMask {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set with one vCPU, `vcpu` modulo 8.
    #[inline]
    pub const fn only(vcpu: usize) -> Self {
        Self(1 << (vcpu & (MAX_VCPUS - 1)))
    }

    /// Returns the set of vCPUs 0 to `count - 1`.
    #[inline]
    pub const fn first(count: usize) -> Self {
        if count >= MAX_VCPUS { Self(0xff) } else { Self((1 << count) - 1) }
    }

    /// Returns the set in which bit `i` stands for vCPU `i`.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the set as bits; bit `i` stands for vCPU `i`.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether the set is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether `vcpu` is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, vcpu: usize) -> bool {
        self.0 >> (vcpu & (MAX_VCPUS - 1)) & 1 != 0
    }

    /// Returns the members, lowest first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        Bits(u32::from(self.0))
    }

    /// Returns the set without `vcpu`.
    #[inline]
    pub const fn without(self, vcpu: usize) -> Self {
        Self(self.0 & !Self::only(vcpu).0)
    }
}

impl BitOr for VcpuMask {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Iterator over the vCPUs of [`Gic::keepers`], which are stored as a byte of 0 or 1 each.
struct Keepers(u64);

impl Iterator for Keepers {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let vcpu = self.0.trailing_zeros() as usize / 8;
        self.0 &= self.0 - 1;
        Some(vcpu)
    }
}

/// Iterator over the set bits of a word, lowest first.
struct Bits(u32);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

/// The state of 32 interrupts, one bit per interrupt.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
struct LineWord {
    enabled: u32,
    /// Latched pending state: edges, writes to ISPENDR, SGIs. For hardware-linked interrupts: those
    /// that are physically active and wait for a list register.
    pending: u32,
    /// The levels of the lines of emulated devices.
    level: u32,
    /// Edge-triggered; otherwise level-sensitive.
    edge: u32,
    /// In group 1; otherwise in group 0.
    group: u32,
    /// Linked to a physical interrupt.
    hw: u32,
    /// The interrupt in the list register (for linked interrupts: or the one that waits in
    /// `pending`) comes from a latch, possibly in addition to the line's level.
    latched: u32,
    /// Linked interrupts whose ISPENDR latch is in the physical distributor; it arrives with the
    /// next occurrence of the interrupt.
    asked: u32,
    /// Linked interrupts that the guest has once made active itself; they take the long path.
    made_active: u32,
    /// `GICD_IROUTER.Interrupt_Routing_Mode`.
    any: u32,
    priority: [u8; 32],
    /// The priority at which each active interrupt was acknowledged. The guest may have changed the
    /// priority since then, but the order in which nested interrupts end has not changed.
    taken_at: [u8; 32],
}

impl LineWord {
    const RESET: Self = Self {
        enabled: 0,
        pending: 0,
        level: 0,
        edge: 0,
        group: 0,
        hw: 0,
        latched: 0,
        asked: 0,
        made_active: 0,
        any: 0,
        priority: [0; 32],
        taken_at: [0; 32],
    };

    /// Returns the interrupts that are enabled and in a group of `mask`, which has the bits of
    /// `GICD_CTLR`.
    const fn enabled_in(&self, mask: u32) -> u32 {
        let group0 = if mask & 1 != 0 { !self.group } else { 0 };
        let group1 = if mask & 2 != 0 { self.group } else { 0 };
        self.enabled & (group0 | group1)
    }

    /// Returns the interrupts that are pending according to the model.
    const fn signaled(&self) -> u32 {
        self.pending | self.level & !self.edge
    }
}

/// The interrupts of a word that are in one vCPU's list registers.
struct Held {
    pending: u32,
    active: u32,
    /// Interrupts of these that raise no maintenance interrupt at their end.
    silent: u32,
}

impl Held {
    const NONE: Self = Self { pending: 0, active: 0, silent: 0 };

    const fn all(&self) -> u32 {
        self.pending | self.active
    }
}

/// The state of one vCPU.
#[cfg_attr(test, derive(Debug))]
struct Vcpu<V: GicArchitecture> {
    /// `WANTED`, `CROWDED`, `INTENDED`, `OFF`: if nonzero, the short paths are closed.
    busy: u32,
    /// The maintenance interrupts that were last requested.
    maintenance: Maintenance,
    /// The state of word 0 (SGIs and PPIs).
    private: LineWord,
    /// The SPIs that are routed to this vCPU; word 0 is all ones.
    mine: [u32; 8],
    /// The interrupts that are active at this vCPU and have no list register.
    active: [u32; 8],
    /// The pending bit in the list register is void, because another core wrote ICPENDR.
    cancel: [u32; 8],
    /// The active bit in the list register is void and `active` is valid, because another core
    /// wrote ISACTIVER or ICACTIVER.
    force: [u32; 8],
    /// Interrupts that have left the list registers since the last refresh, as far as they were
    /// taken in.
    gone: [u32; 8],
    /// SPIs that arrived physically while this vCPU was off its core; they are masked until it is
    /// back.
    masked: [u32; 8],
    /// The hardware-linked PPIs that are enabled in this core's redistributor.
    applied: u32,
    /// The list register values of SGIs and PPIs that can be taken now; empty for the others.
    ready: [V::Raw; 32],
    /// The list registers as last read or written.
    shadow: [V::Raw; MAX_LIST_REGISTERS],
    /// The list register that each SGI used last: if the SGI has one now, it is this one.
    slot: [u8; 16],
    /// GICv2: the vCPUs from which each SGI is pending.
    sources: [u8; 16],
    /// GICv2: the sender of each active SGI without a list register.
    active_source: [u8; 16],
    /// `GICR_WAKER.ProcessorSleep`.
    asleep: bool,
}

/// A refresh is outstanding.
const WANTED: u32 = 1;
/// Not every interrupt has a list register.
const CROWDED: u32 = 2;
/// `cancel` or `force` has a member.
const INTENDED: u32 = 4;
/// The vCPU is on no core, so all its interrupts wait in the model.
const OFF: u32 = 8;

impl<V: GicArchitecture> Vcpu<V> {
    const RESET: Self = Self {
        busy: OFF,
        maintenance: Maintenance::NONE,
        private: LineWord { edge: SGIS, enabled: if V::V3 { 0 } else { SGIS }, ..LineWord::RESET },
        mine: [!0, 0, 0, 0, 0, 0, 0, 0],
        active: [0; 8],
        cancel: [0; 8],
        force: [0; 8],
        gone: [0; 8],
        masked: [0; 8],
        applied: 0,
        ready: [V::EMPTY; 32],
        shadow: [V::EMPTY; MAX_LIST_REGISTERS],
        slot: [0; 16],
        sources: [0; 16],
        active_source: [0; 16],
        asleep: true,
    };

    /// Writes `raw` to a free list register, if `raw` is not empty, a list register is free and
    /// nothing is outstanding. Returns whether it did.
    #[inline]
    fn put(&mut self, raw: V::Raw, hw: &mut impl Hardware<V>) -> bool {
        let free = hw.empty_mask();
        if raw == V::EMPTY || free == 0 || self.busy != 0 {
            return false;
        }
        let i = free.trailing_zeros() as usize & (MAX_LIST_REGISTERS - 1);
        self.shadow[i] = raw;
        hw.write(i, raw);
        true
    }
}

/// SGIs that were taken from the [`SgiBoard`] and are in no list register yet.
pub struct Posted<V: GicArchitecture> {
    /// The INTIDs, one bit each.
    intids: u32,
    bits: <V::SgiWords as SgiWords>::Bits,
}

/// The virtual GIC of one VM. The order of the fields puts those of the short paths near the
/// beginning, where a load or store reaches them without an additional instruction.
#[repr(C)]
#[cfg_attr(test, derive(Debug))]
pub struct Gic<V: GicArchitecture> {
    /// Number of vCPUs, 1 to 8.
    vcpu_count: u8,
    /// Number of list registers, 1 to 16.
    lr_count: u8,
    /// `GICD_CTLR.EnableGrp0` and `EnableGrp1`, at their positions in the register.
    enabled_groups: u32,
    /// The words of `spi` in which an interrupt may be pending or high, one bit each. A refresh
    /// removes the words that have none.
    waiting: u32,
    /// The SPIs that are routed to a vCPU for which they are not masked; word 0 is all ones.
    routed: [u32; 8],
    /// The interrupts that are implemented; the others are never pending or active.
    exists: [u32; 8],
    /// 1 for each vCPU that may have an SPI in a list register, or active without one; 0 for the
    /// others.
    spi_keepers: [u8; MAX_VCPUS],
    vcpu: [Vcpu<V>; MAX_VCPUS],
    /// The list register values of linked SPIs that can be taken now; empty for the others.
    ready: [V::Raw; 256],
    /// The state of words 1 to 7; word 0 is unused.
    spi: [LineWord; 8],
    /// GICv3: affinity 3 to 0, one byte each. GICv2: the CPU targets.
    route: [u32; 256],
    /// The physical INTIDs of linked and of relayed interrupts.
    pintid: [u16; 256],
}

impl<V: GicArchitecture> Gic<V> {
    /// Returns a GIC after reset: no interrupt is linked, and no vCPU is on a core yet
    /// ([`Gic::restore`]). `vcpus` is clamped to 1 to 8, and `list_registers` (the number that
    /// every core has, `ICH_VTR_EL2.ListRegs + 1`) to 1 to 16.
    #[must_use]
    pub const fn new(vcpus: usize, list_registers: usize) -> Self {
        let mut gic = Self {
            vcpu_count: 1,
            lr_count: 1,
            enabled_groups: 0,
            waiting: 0,
            routed: [!0, 0, 0, 0, 0, 0, 0, 0],
            exists: [!0; 8],
            spi_keepers: [0; MAX_VCPUS],
            vcpu: [const { Vcpu::RESET }; MAX_VCPUS],
            ready: [V::EMPTY; 256],
            spi: [LineWord::RESET; 8],
            route: [0; 256],
            pintid: [0; 256],
        };
        gic.resize(vcpus, list_registers);
        gic
    }

    /// Changes the numbers of vCPUs and list registers of a new GIC in place; the result is the
    /// same as that of [`Self::new`].
    pub const fn resize(&mut self, vcpus: usize, list_registers: usize) {
        self.vcpu_count = match vcpus {
            0 => 1,
            1..=MAX_VCPUS => vcpus as u8,
            _ => MAX_VCPUS as u8,
        };
        self.lr_count = match list_registers {
            0 => 1,
            1..=MAX_LIST_REGISTERS => list_registers as u8,
            _ => MAX_LIST_REGISTERS as u8,
        };
        let is_alone = V::V3 || self.vcpu_count == 1;
        let others = if is_alone { !0 } else { 0 };
        self.routed = [!0, others, others, others, others, others, others, others];
        self.vcpu[0].mine = if is_alone { [!0; 8] } else { Vcpu::<V>::RESET.mine };
    }

    /// Returns the number of vCPUs.
    #[inline]
    #[must_use]
    pub const fn vcpu_count(&self) -> usize {
        self.vcpu_count as usize
    }

    /// Links an interrupt to a physical interrupt of the same kind: the PPI `intid` of every vCPU
    /// to the PPI `pintid` of its core, or an SPI to an SPI. Called before the guest runs, with the
    /// physical interrupt disabled, inactive and not pending. SGIs and INTIDs from 256 up are
    /// ignored.
    pub fn link(&mut self, intid: IntId, pintid: IntId) {
        if !(16..INTIDS).contains(&intid.0) {
            return;
        }
        self.implement(intid);
        let (w, bit) = place(intid);
        if let Some(p) = self.pintid.get_mut(intid.0 as usize) {
            *p = (pintid.0 & 0x3ff) as u16;
        }
        if w == 0 {
            for vcpu in &mut self.vcpu {
                vcpu.private.hw |= bit;
            }
        } else {
            self.spi[w & 7].hw |= bit;
        }
    }

    /// Relays the physical SPI `pintid` to the SPI `intid`, which is delivered by
    /// [`Gic::deliver_hw`] like a linked one. Called before the guest runs.
    pub fn relay(&mut self, intid: IntId, pintid: IntId) {
        if (32..INTIDS).contains(&intid.0) {
            self.implement(intid);
            self.pintid[intid.0 as usize & 255] = (pintid.0 & 0x3ff) as u16;
        }
    }

    /// Makes SGIs the only implemented interrupts, until others are linked, relayed or implemented:
    /// the pending and active bits of unimplemented interrupts read as zero and ignore writes
    /// (IHI0069H 12.9.12, 12.9.14). So a guest cannot lengthen loops over pending interrupts with
    /// interrupts for which it has no device. Called before the guest runs.
    pub const fn limit(&mut self) {
        self.exists = [SGIS, 0, 0, 0, 0, 0, 0, 0];
    }

    /// Implements the interrupt `intid` of an emulated device.
    #[inline(never)]
    pub fn implement(&mut self, intid: IntId) {
        if intid.0 < INTIDS {
            let (w, bit) = place(intid);
            self.exists[w] |= bit;
        }
    }

    /// Returns whether the relayed interrupt `intid` has arrived at the guest and not ended yet.
    #[must_use]
    pub fn is_high(&self, intid: IntId) -> bool {
        let (w, bit) = place(intid);
        self.is_relayed(w, bit.trailing_zeros()) && self.spi[w & 7].level & bit != 0
    }

    /// Takes the relayed interrupt `intid` back from a guest that has not taken it, if its line was
    /// high. Returns whether the guest no longer has the interrupt; it still has it if it is in a
    /// list register or active. The caller handles the physical interrupt.
    pub fn withdraw(&mut self, intid: IntId) -> bool {
        let (w, bit) = place(intid);
        if !self.is_high(intid) {
            return true;
        }
        let is_active = self.vcpu.iter().any(|vcpu| vcpu.active[w & 7] & bit != 0);
        if is_active || !self.holders(0, w, bit).is_empty() {
            return false;
        }
        self.spi[w & 7].level &= !bit;
        self.spi[w & 7].pending &= !bit;
        for vcpu in &mut self.vcpu {
            vcpu.masked[w & 7] &= !bit;
        }
        self.reroute(w);
        true
    }

    /// Delivers the physical interrupt that is linked or relayed to `intid`. This core has
    /// acknowledged it and dropped its priority, and has not deactivated it. Returns the vCPUs to
    /// kick.
    #[inline]
    pub fn deliver_hw(&mut self, vcpu: usize, intid: IntId, hw: &mut impl Hardware<V>) -> VcpuMask {
        let put = if intid.is_private() {
            self.put_private(vcpu, intid, hw)
        } else {
            self.put_spi(vcpu, intid, hw)
        };
        if put { VcpuMask::NONE } else { self.deliver_slowly(vcpu, intid, hw) }
    }

    /// Tries the short path of [`Gic::deliver_hw`] for a private interrupt, INTID 16 to 31: one
    /// table look-up and one list register write. Returns whether it was taken. This is the case if
    /// the guest can take the interrupt, a list register is free and nothing is outstanding for the
    /// vCPU; otherwise nothing is done.
    #[inline]
    pub fn put_private(&mut self, vcpu: usize, intid: IntId, hw: &mut impl Hardware<V>) -> bool {
        let cpu = &mut self.vcpu[vcpu & (MAX_VCPUS - 1)];
        let raw = cpu.ready[intid.0 as usize & 31];
        cpu.put(raw, hw)
    }

    /// Tries the short path of [`Gic::deliver_hw`] for an SPI, INTID 32 to 255; see
    /// [`Gic::put_private`].
    #[inline]
    pub fn put_spi(&mut self, vcpu: usize, intid: IntId, hw: &mut impl Hardware<V>) -> bool {
        let raw = self.ready[intid.0 as usize & 255];
        self.spi_keepers[vcpu & (MAX_VCPUS - 1)] = 1;
        self.vcpu[vcpu & (MAX_VCPUS - 1)].put(raw, hw)
    }

    /// Delivers an interrupt as [`Gic::deliver_hw`] does if the short path is not open.
    #[cold]
    #[inline(never)]
    pub fn deliver_slowly(
        &mut self,
        vcpu: usize,
        intid: IntId,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let (w, bit) = place(intid);
        let is_off = w != 0 && self.cpu(vcpu).busy & OFF != 0;
        if (32..INTIDS).contains(&intid.0) && self.is_relayed(w, bit.trailing_zeros()) {
            if is_off {
                self.mask(vcpu, w, bit);
            }
            let notified = self.set_line(vcpu, intid, true);
            let is_here = notified.contains(vcpu);
            let more = if is_here { self.refresh(vcpu, hw) } else { VcpuMask::NONE };
            return notified.without(vcpu) | more.without(vcpu);
        }
        let lines = self.lines_mut(vcpu, w);
        if intid.0 >= INTIDS || lines.hw & bit == 0 {
            return VcpuMask::NONE;
        }
        lines.pending |= bit;
        let (was, asked) = (lines.latched & bit, lines.asked & bit);
        lines.latched = lines.latched & !bit | asked;
        lines.asked &= !bit;
        self.note_waiting(w);
        if asked != 0 {
            // The core may have acknowledged the interrupt before ISPENDR set the latch. Both are
            // combined into this occurrence: a latch that stayed would outlast the vCPU on this
            // core, and interrupt the next VM.
            hw.set_pending(vcpu, self.pintid(w, bit.trailing_zeros() as usize), false);
        }
        if is_off {
            self.mask(vcpu, w, bit);
            self.rearm(vcpu, w, bit, hw);
        } else if was != 0 && asked == 0 {
            self.prepare(vcpu, w, bit, false, hw);
        }
        if self.cpu(vcpu).mine[w] & bit != 0 && self.put_now(vcpu, w, bit, hw) {
            return VcpuMask::NONE;
        }
        let kick = self.refresh(vcpu, hw) | self.targets(vcpu, w, bit & self.takable(vcpu, w));
        self.want(kick.without(vcpu))
    }

    /// Takes the SGIs that were posted to this vCPU, and does a refresh if one is outstanding.
    /// Called by the receiver of a kick, and by the sender of an SGI to itself. Returns the vCPUs
    /// to kick in turn.
    pub fn drain(
        &mut self,
        vcpu: usize,
        sgis: &SgiBoard<V>,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        match self.put_posted(vcpu, sgis, hw) {
            None => VcpuMask::NONE,
            Some(left) => self.take_posted(vcpu, &left, hw),
        }
    }

    /// Does the short path of [`Gic::drain`]. Returns the work that it leaves to
    /// [`Gic::take_posted`]: SGIs that have no list register, or only the refresh.
    #[inline]
    pub fn put_posted(
        &mut self,
        vcpu: usize,
        sgis: &SgiBoard<V>,
        hw: &mut impl Hardware<V>,
    ) -> Option<Posted<V>> {
        let bits = sgis.take(vcpu);
        let cpu = &mut self.vcpu[vcpu & (MAX_VCPUS - 1)];
        let mut intids = V::SgiWords::intids(&bits, cpu.private.group);
        if cpu.busy != 0 {
            return Some(Posted { intids, bits });
        }
        let mut free = hw.empty_mask();
        while intids != 0 {
            let intid = intids.trailing_zeros() as usize & 15;
            let senders = V::SgiWords::senders(&bits, IntId(intid as u32));
            let raw = cpu.ready[intid];
            let mut slot = cpu.slot[intid] as usize & (MAX_LIST_REGISTERS - 1);
            if free >> slot & 1 == 0 {
                // The SGI's last list register is in use, by this SGI or by another interrupt.
                if V::intid(cpu.shadow[slot]).0 == intid as u32 || free == 0 {
                    return Some(Posted { intids, bits });
                }
                slot = free.trailing_zeros() as usize & (MAX_LIST_REGISTERS - 1);
            }
            let several = !V::V3 && (senders & senders.wrapping_sub(1) != 0);
            if raw == V::EMPTY || several {
                return Some(Posted { intids, bits });
            }
            let raw = V::with_source(raw, senders.trailing_zeros());
            cpu.slot[intid] = slot as u8;
            cpu.shadow[slot] = raw;
            hw.write(slot, raw);
            intids &= intids - 1;
            free &= !(1 << slot);
        }
        None
    }

    /// Does the rest of [`Gic::drain`]: moves the SGIs that [`Gic::put_posted`] left into the
    /// model. Returns the vCPUs to kick.
    #[cold]
    #[inline(never)]
    pub fn take_posted(
        &mut self,
        vcpu: usize,
        left: &Posted<V>,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let cpu = self.cpu_mut(vcpu);
        cpu.private.pending |= left.intids;
        for intid in Bits(left.intids & SGIS) {
            cpu.sources[intid & 15] |= V::SgiWords::senders(&left.bits, IntId(intid as u32));
        }
        self.refresh(vcpu, hw)
    }

    /// Sets the level of the emulated SPI `intid`. Returns the vCPUs to kick; if the caller's own
    /// vCPU is among them, the caller calls [`Gic::refresh`] for it instead. An interrupt that the
    /// guest made edge-triggered becomes pending when its line rises. Linked interrupts and INTIDs
    /// outside 32 to 255 are ignored.
    pub fn set_level(&mut self, intid: IntId, high: bool) -> VcpuMask {
        if intid.is_private() { VcpuMask::NONE } else { self.set_line(0, intid, high) }
    }

    /// Sets the level of the emulated PPI `intid` of vCPU `vcpu`; see [`Gic::set_level`].
    pub fn set_private_level(&mut self, vcpu: usize, intid: IntId, high: bool) -> VcpuMask {
        if intid.is_private() && !intid.is_sgi() {
            self.set_line(vcpu, intid, high)
        } else {
            VcpuMask::NONE
        }
    }

    fn set_line(&mut self, vcpu: usize, intid: IntId, high: bool) -> VcpuMask {
        let (w, bit) = place(intid);
        let lines = self.lines_mut(vcpu, w);
        let same = (lines.level & bit != 0) == high;
        if intid.0 >= INTIDS || lines.hw & bit != 0 || same {
            return VcpuMask::NONE;
        }
        lines.level ^= bit;
        let edge = lines.edge & bit;
        let kick = if high {
            lines.pending |= edge;
            self.note_waiting(w);
            self.targets(vcpu, w, bit & self.takable(vcpu, w))
        } else {
            self.holders(vcpu, w, bit & !edge)
        };
        self.want(kick)
    }

    /// Returns whether an interrupt of the vCPU is pending that `interface` signals, which ends a
    /// WFI of the vCPU. The caller folds first; SGIs that are still on the [`SgiBoard`] do not
    /// count. A masked interrupt counts, because its device may have requested another interrupt
    /// while it was masked.
    #[must_use]
    pub fn has_pending(&self, vcpu: usize, interface: Signaling) -> bool {
        Bits(self.waiting | 1).any(|w| {
            let (set, _) = self.deliverable(vcpu, w);
            self.signals(vcpu, w, set, interface)
        }) || any(&self.cpu(vcpu).masked)
            || self.shadow(vcpu).iter().any(|&raw| {
                V::state(raw).pending && {
                    let entry = V::decode(raw);
                    interface.passes(entry.priority, entry.group1)
                }
            })
    }

    /// Returns whether `interface` would signal the linked PPI `intid` of a vCPU that is off its
    /// core, when the PPI arrives. If writes of other vCPUs change the result, they notify this
    /// vCPU.
    #[must_use]
    pub fn may_signal(&self, vcpu: usize, intid: IntId, interface: Signaling) -> bool {
        let (w, bit) = place(intid);
        let lines = self.lines(vcpu, w);
        let set = bit & self.forwarded(lines) & !self.cpu(vcpu).active[w];
        intid.is_private() && self.signals(vcpu, w, set, interface)
    }

    /// Returns whether `interface` would signal one of `set`.
    fn signals(&self, vcpu: usize, w: usize, set: u32, interface: Signaling) -> bool {
        let lines = self.lines(vcpu, w);
        Bits(set).any(|n| interface.passes(lines.priority[n & 31], lines.group >> n & 1 != 0))
    }

    #[inline]
    fn lr_count(&self) -> usize {
        self.lr_count as usize
    }

    #[inline]
    fn cpu(&self, vcpu: usize) -> &Vcpu<V> {
        &self.vcpu[vcpu & (MAX_VCPUS - 1)]
    }

    #[inline]
    fn cpu_mut(&mut self, vcpu: usize) -> &mut Vcpu<V> {
        &mut self.vcpu[vcpu & (MAX_VCPUS - 1)]
    }

    #[inline]
    fn shadow(&self, vcpu: usize) -> &[V::Raw] {
        let shadow = &self.cpu(vcpu).shadow;
        shadow.get(..self.lr_count()).unwrap_or(shadow)
    }

    /// Returns word `w` as vCPU `vcpu` sees it.
    #[inline]
    fn lines(&self, vcpu: usize, w: usize) -> &LineWord {
        if w == 0 { &self.cpu(vcpu).private } else { &self.spi[w & 7] }
    }

    #[inline]
    fn lines_mut(&mut self, vcpu: usize, w: usize) -> &mut LineWord {
        if w == 0 { &mut self.cpu_mut(vcpu).private } else { &mut self.spi[w & 7] }
    }

    #[inline]
    fn pintid(&self, w: usize, bit: usize) -> IntId {
        IntId(u32::from(self.pintid[(w & 7) << 5 | bit & 31]))
    }

    /// Returns whether bit `bit` of word `w`, a word of SPIs, is relayed: it has a physical
    /// interrupt without being linked to it.
    fn is_relayed(&self, w: usize, bit: u32) -> bool {
        self.spi[w & 7].hw >> (bit & 31) & 1 == 0 && self.pintid(w, bit as usize).0 != 0
    }

    /// Returns the interrupts of a word that the distributor forwards when they are pending: they
    /// and their group are enabled (IHI0069H 4.1.1).
    fn forwarded(&self, lines: &LineWord) -> u32 {
        lines.enabled_in(self.enabled_groups)
    }

    /// Brings `routed` up to date after a change of `mine` or `masked`.
    fn reroute(&mut self, w: usize) {
        let mut routed = 0;
        for cpu in self.vcpu.iter().take(self.vcpu_count()) {
            routed |= cpu.mine[w & 7] & !cpu.masked[w & 7];
        }
        self.routed[w & 7] = routed;
    }

    /// Masks lines of a word for a vCPU that is off its core.
    fn mask(&mut self, vcpu: usize, w: usize, bits: u32) {
        self.cpu_mut(vcpu).masked[w & 7] |= bits;
        self.reroute(w);
    }

    /// Notes that an interrupt of word `w` may be pending or high.
    #[inline]
    fn note_waiting(&mut self, w: usize) {
        self.waiting |= 1 << (w & 7);
    }

    /// Returns the vCPUs that may have some interrupt of a word in their list registers, or active
    /// without one.
    #[inline]
    fn keepers(&self, owner: usize, w: usize) -> Keepers {
        if w == 0 {
            Keepers(1 << (8 * (owner & (MAX_VCPUS - 1))))
        } else {
            Keepers(u64::from_le_bytes(self.spi_keepers))
        }
    }

    /// Returns the interrupts of a word that are pending and forwarded.
    fn takable(&self, vcpu: usize, w: usize) -> u32 {
        let lines = self.lines(vcpu, w);
        lines.signaled() & self.forwarded(lines)
    }

    /// Returns the interrupts of a word that are in this vCPU's list registers, according to its
    /// shadow.
    #[inline]
    fn held(&self, vcpu: usize, w: usize) -> Held {
        if w != 0 && self.spi_keepers[vcpu & (MAX_VCPUS - 1)] == 0 {
            Held::NONE
        } else {
            self.held_by(vcpu, w)
        }
    }

    #[inline(never)]
    fn held_by(&self, vcpu: usize, w: usize) -> Held {
        let mut held = Held::NONE;
        for &raw in self.shadow(vcpu) {
            if raw == V::EMPTY {
                continue;
            }
            let IntId(intid) = V::intid(raw);
            if intid >> 5 == w as u32 {
                let state = V::state(raw);
                let shift = intid & 31;
                held.pending |= u32::from(state.pending) << shift;
                held.active |= u32::from(state.active) << shift;
                held.silent |= u32::from(!state.is_invalid() && !V::reports_end(raw)) << shift;
            }
        }
        held
    }

    /// Returns the vCPUs that a word can concern: all of them, or for word 0 its owner.
    fn scope(&self, owner: usize, w: usize) -> VcpuMask {
        if w == 0 { VcpuMask::only(owner) } else { VcpuMask::first(self.vcpu_count()) }
    }

    /// Returns the vCPUs to which interrupts in `mask` of a word are routed.
    #[inline]
    fn targets(&self, owner: usize, w: usize, mask: u32) -> VcpuMask {
        if mask == 0 { VcpuMask::NONE } else { self.targets_of_some(owner, w, mask) }
    }

    #[inline(never)]
    fn targets_of_some(&self, owner: usize, w: usize, mask: u32) -> VcpuMask {
        let mut chosen = VcpuMask::NONE;
        for cpu in self.scope(owner, w).iter() {
            if self.cpu(cpu).mine[w & 7] & mask != 0 {
                chosen = chosen | VcpuMask::only(cpu);
            }
        }
        chosen
    }

    /// Returns the vCPUs that have some of `mask` in their list registers.
    #[inline(never)]
    fn holders(&self, owner: usize, w: usize, mask: u32) -> VcpuMask {
        let mut chosen = VcpuMask::NONE;
        for cpu in self.keepers(owner, w) {
            for &raw in self.shadow(cpu) {
                if raw == V::EMPTY {
                    continue;
                }
                let IntId(intid) = V::intid(raw);
                let here = intid >> 5 == w as u32 && mask >> (intid & 31) & 1 != 0;
                if here && !V::state(raw).is_invalid() {
                    chosen = chosen | VcpuMask::only(cpu);
                }
            }
        }
        chosen
    }

    /// Marks vCPUs for a refresh, and returns those that must be notified. A vCPU that is on no
    /// core is notified only once: it finds all changes when it gets a core, so other vCPUs cannot
    /// take its core's time by further notifications.
    #[inline]
    fn want(&mut self, vcpus: VcpuMask) -> VcpuMask {
        if vcpus.is_empty() { vcpus } else { self.want_each(vcpus) }
    }

    #[inline(never)]
    fn want_each(&mut self, vcpus: VcpuMask) -> VcpuMask {
        let mut notified = vcpus;
        for vcpu in vcpus.iter() {
            let busy = &mut self.cpu_mut(vcpu).busy;
            if *busy & (OFF | WANTED) == OFF | WANTED {
                notified = notified.without(vcpu);
            }
            *busy |= WANTED;
        }
        notified
    }

    /// Returns whether word `w` is the private word of a vCPU that is off its core: the physical
    /// registers of these interrupts then belong to another vCPU.
    fn is_away(&self, vcpu: usize, w: usize) -> bool {
        w == 0 && self.cpu(vcpu).busy & OFF != 0
    }

    /// Returns whether the ISPENDR latch of the linked SPI `intid` is in the physical distributor.
    #[must_use]
    pub fn is_latched(&self, intid: IntId) -> bool {
        let (w, bit) = place(intid);
        self.spi[w & 7].asked & bit != 0
    }

    /// Returns whether the linked SPI `intid` can arrive: it and its group are enabled, and it is
    /// routed to a vCPU for which it is not masked.
    #[must_use]
    pub fn is_forwarded(&self, intid: IntId) -> bool {
        let (w, bit) = place(intid);
        let routed = self.routed[w] & bit != 0;
        (32..INTIDS).contains(&intid.0) && routed && self.forwarded(&self.spi[w & 7]) & bit != 0
    }

    /// Returns whether a vCPU that is on no core had to be notified since [`Gic::save`], or when
    /// [`Gic::save`] was called.
    #[must_use]
    pub fn is_wanted(&self, vcpu: usize) -> bool {
        self.cpu(vcpu).busy & WANTED != 0
    }
}

/// Returns whether a set has a member.
#[inline]
const fn any(words: &[u32; 8]) -> bool {
    let w = words;
    w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7] != 0
}

/// Returns the word and the bit of an INTID below 256.
const fn place(intid: IntId) -> (usize, u32) {
    ((intid.0 >> 5) as usize & 7, 1 << (intid.0 & 31))
}
