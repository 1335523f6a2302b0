//! The virtual GIC of one VM: GICv3 or GICv2, for up to eight vCPUs and 256 INTIDs.
//!
//! Pure: the hypervisor owns the registers, this decides. It calls everything here with the VM's
//! interrupt lock held, on the core of the vCPU that it names, [`SgiBoard::post`] excepted.
//!
//! # Where an interrupt's state is
//!
//! - In the model: `pending`, `active`, `level` and the configuration, one bit an interrupt, 32 to
//!   a word. Word 0 (SGIs and PPIs) exists per vCPU, words 1 to 7 (SPIs) once.
//! - In a list register: while an interrupt has one, its pending and active bits are *there* and
//!   not in the model; what the model's `pending` says is news that came since. A core sees only
//!   its own list registers, so each vCPU keeps a `shadow` of what was last written to or read from
//!   each. [`Gic::fold`] brings it up to date.
//! - In the physical distributor, for lines linked to hardware ([`Gic::link`]): a line that the
//!   guest has enabled is enabled there, is pending there, and comes in by [`Gic::deliver_hw`].
//!   From then to the guest's deactivation it is physically active, wherever its virtual state is.
//!
//! # How a change reaches a vCPU
//!
//! Nothing here touches another core's list registers. A change that concerns them marks the vCPU
//! and returns it in a [`VcpuMask`]: its core is kicked and runs [`Gic::drain`] or
//! [`Gic::refresh`], which takes all list registers into the model and chooses anew. What a guest
//! did meanwhile to a pending or active bit in a foreign list register is kept as an intention
//! (`cancel`, `force`) and applied by that refresh; what it disabled can still be acknowledged
//! until then, as it can on hardware until `RWP` is clear. Reads see the last fold: [`Gic::remote`]
//! returns the vCPUs that must fold first.
//!
//! # What is in the list registers
//!
//! After a refresh: first the highest-priority interrupt that can be taken, then the active ones,
//! then the others that can be taken; by priority, then by INTID. So no waiting interrupt is more
//! urgent than one that has a list register. If some wait, `NPIE` brings the next refresh when none
//! is pending any more. Active interrupts that do not fit are ended by `EOIcount`, the most urgent
//! first, by the priority that each was acknowledged at (IHI0069H 4.8, IHI0048B 5.2.2). With
//! EOImode 1 a guest deactivates in any order, and SPIs on any core: each of these accesses traps,
//! and is carried out as the store to ICACTIVER that does the same ([`GicAccess::deactivation`]).
//! Where `ICC_DIR_EL1` does not trap, the count is taken for ends in the order above.
//!
//! Level-sensitive software interrupts ask for a maintenance interrupt at their end, where a line
//! that is still high makes them pending again. If the line of a hardware-linked one falls while it
//! waits in a list register, it stays pending: the guest finds its device quiet, as after any
//! spurious interrupt. A timer's is dropped where the guest reads its pending state and at each
//! refresh ([`Gic::refresh`]).
//!
//! A *relayed* line ([`Gic::relay`]) is emulated, and high from its physical interrupt, which stays
//! active, to the guest's end of it: that one reports its end, for any state that the guest gave
//! it, and the physical interrupt is deactivated then, as it is by a deactivation. So such a line
//! can be taken from one VM and given to another between two interrupts.
//!
//! A physical SPI that comes to a vCPU that is off its core is *masked* until that vCPU is back
//! ([`Gic::restore`]): a linked line is disabled in the physical distributor, a relayed one stays
//! active. So it interrupts that core once, for any writes to the distributor and any ends of
//! interrupts by the VM's other vCPUs.
//!
//! The trigger of PPIs is fixed to level-sensitive, which the architecture permits (IHI0069H
//! 12.11.7): an edge of a timer would be latched in the core's registers, where the next VM's vCPU
//! would find it.
//!
//! ISPENDR's latch of a linked line is in the physical distributor (`asked`) until the line's next
//! interrupt comes in, and then belongs to that one (`latched`) until the one after it. Given back
//! to the distributor, the line takes its latch along. While there is one, the short path is
//! closed. No other latch is ever there: an interrupt that comes in clears it, even if another vCPU
//! has set it after the core's acknowledge. So [`Gic::save`] knows what to take back.
//!
//! The short path relies on this: a linked line is physically active while it is in a list
//! register, so it does not come again. ISACTIVER breaks that, because a core may have acknowledged
//! the line and wait for the VM's lock: what ends the guest's active state, an end or ICACTIVER,
//! lets the line come again while the first interrupt is not delivered yet. So a line that the
//! guest has once made active takes the long path until the VM's reset: that one sees what has the
//! line.
//!
//! The state and the delivery are one file: both keep the sets that are derived from it (`ready`,
//! `routed`, `waiting`, `spi_keepers`) in step with the lines and with each vCPU's `busy`.

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

/// SGIs in word 0.
const SGIS: u32 = 0xffff;
/// The five upper bits are what every virtual CPU interface implements (IHI0069H 4.8.6, IHI0048B
/// 5.3.9).
const PRIORITY_MASK: u8 = 0xf8;

/// A set of vCPUs of one VM.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use]
pub struct VcpuMask(u8);

impl VcpuMask {
    /// No vCPU.
    pub const NONE: Self = Self(0);

    /// One vCPU, `vcpu` modulo 8.
    #[inline]
    pub const fn only(vcpu: usize) -> Self {
        Self(1 << (vcpu & (MAX_VCPUS - 1)))
    }

    /// The vCPUs 0 to `count - 1`.
    #[inline]
    pub const fn first(count: usize) -> Self {
        if count >= MAX_VCPUS { Self(0xff) } else { Self((1 << count) - 1) }
    }

    /// Bit `i` is vCPU `i`.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Bit `i` is vCPU `i`.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether it has no member.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `vcpu` is a member.
    #[inline]
    #[must_use]
    pub const fn contains(self, vcpu: usize) -> bool {
        self.0 >> (vcpu & (MAX_VCPUS - 1)) & 1 != 0
    }

    /// The members, lowest first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        Bits(u32::from(self.0))
    }

    /// All members but `vcpu`.
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

/// The vCPUs of [`Gic::keepers`], a byte of 0 or 1 each.
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

/// The members of a word, lowest first.
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

/// The state of 32 interrupt lines, one bit a line.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
struct LineWord {
    enabled: u32,
    /// Latched: edges, writes to ISPENDR, SGIs; for hardware-linked lines those that are physically
    /// active and wait for a list register.
    pending: u32,
    /// The input line of emulated devices.
    level: u32,
    /// Edge-triggered, else level-sensitive.
    edge: u32,
    /// Group 1, else group 0.
    group: u32,
    /// Linked to a physical interrupt.
    hw: u32,
    /// What went into the list register (linked lines: or waits in `pending`) is a latch, perhaps
    /// besides the line's level.
    latched: u32,
    /// Linked lines: ISPENDR's latch is in the physical distributor, and comes with the line's next
    /// interrupt.
    asked: u32,
    /// Linked lines that the guest has once made active itself: they take the long path.
    made_active: u32,
    /// `GICD_IROUTER.Interrupt_Routing_Mode`.
    any: u32,
    priority: [u8; 32],
    /// The priority that each active interrupt was acknowledged at: the guest may have changed it
    /// since, but the order in which nested ones end has not.
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

    /// Those that are enabled and of a group in `mask`, which has bits as `GICD_CTLR`.
    const fn enabled_in(&self, mask: u32) -> u32 {
        let group0 = if mask & 1 != 0 { !self.group } else { 0 };
        let group1 = if mask & 2 != 0 { self.group } else { 0 };
        self.enabled & (group0 | group1)
    }

    /// Those that are pending, as far as the model knows.
    const fn signaled(&self) -> u32 {
        self.pending | self.level & !self.edge
    }
}

/// The lines of a word that are in one vCPU's list registers.
struct Held {
    pending: u32,
    active: u32,
    /// Those that raise no maintenance interrupt at their end.
    silent: u32,
}

impl Held {
    const NONE: Self = Self { pending: 0, active: 0, silent: 0 };

    const fn all(&self) -> u32 {
        self.pending | self.active
    }
}

/// What one vCPU has for itself.
#[cfg_attr(test, derive(Debug))]
struct Vcpu<V: GicArchitecture> {
    /// `WANTED`, `CROWDED`, `INTENDED`, `OFF`: nonzero keeps the short paths away.
    busy: u32,
    /// What was last asked of the list registers.
    maintenance: Maintenance,
    /// Word 0.
    private: LineWord,
    /// SPIs that are routed here; word 0 is all ones.
    mine: [u32; 8],
    /// Active here and without a list register.
    active: [u32; 8],
    /// The pending bit in the list register is void (ICPENDR from another core).
    cancel: [u32; 8],
    /// The active bit in the list register is void, `active` counts (ISACTIVER, ICACTIVER from
    /// another core).
    force: [u32; 8],
    /// What has left the list registers since the last refresh, as far as it was taken in.
    gone: [u32; 8],
    /// SPIs that came physically while this vCPU was off its core: masked until it is
    /// back.
    masked: [u32; 8],
    /// The hardware-linked PPIs that are enabled in this core's redistributor.
    applied: u32,
    /// The list register values of SGIs and PPIs that can be taken now; else empty.
    ready: [V::Raw; 32],
    /// The list registers as last read or written.
    shadow: [V::Raw; MAX_LIST_REGISTERS],
    /// The list register that each SGI used last: if it has one now, it is that.
    slot: [u8; 16],
    /// GICv2: the vCPUs that each pending SGI waits from.
    sources: [u8; 16],
    /// GICv2: the sender of each active SGI without a list register.
    active_source: [u8; 16],
    /// `GICR_WAKER.ProcessorSleep`.
    asleep: bool,
}

/// A refresh is outstanding.
const WANTED: u32 = 1;
/// Not everything has a list register.
const CROWDED: u32 = 2;
/// `cancel` or `force` has a member.
const INTENDED: u32 = 4;
/// On no core, so that everything waits in the model.
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

    /// Writes `raw` to a free list register, if there are both and nothing is outstanding; whether
    /// it did.
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
    /// One bit each.
    intids: u32,
    bits: <V::SgiWords as SgiWords>::Bits,
}

/// The virtual GIC of one VM. In this order, what the short paths need is near its beginning, where
/// a load or store reaches it without another instruction.
#[repr(C)]
#[cfg_attr(test, derive(Debug))]
pub struct Gic<V: GicArchitecture> {
    /// Number of vCPUs, 1 to 8.
    vcpu_count: u8,
    /// Number of list registers, 1 to 16.
    lr_count: u8,
    /// `GICD_CTLR.EnableGrp0` and `EnableGrp1`, in place.
    enabled_groups: u32,
    /// The words of `spi`, one bit each, of which some line may be pending or high. A refresh takes
    /// out those that have none.
    waiting: u32,
    /// The SPIs that are routed to a vCPU for which they are not masked; word 0 is all ones.
    routed: [u32; 8],
    /// The lines that are implemented: the others are never pending or active.
    exists: [u32; 8],
    /// 1 for each vCPU that may have an SPI in a list register or active without one, 0 for those
    /// that have none.
    spi_keepers: [u8; MAX_VCPUS],
    vcpu: [Vcpu<V>; MAX_VCPUS],
    /// The list register values of linked SPIs that can be taken now; else empty.
    ready: [V::Raw; 256],
    /// Words 1 to 7; word 0 is unused.
    spi: [LineWord; 8],
    /// GICv3: affinity 3 to 0, a byte each. GICv2: the CPU targets.
    route: [u32; 256],
    /// The physical INTIDs of linked and of relayed lines.
    pintid: [u16; 256],
}

impl<V: GicArchitecture> Gic<V> {
    /// A GIC after reset, no line linked, no vCPU on a core yet ([`Gic::restore`]). `vcpus` is
    /// clamped to 1 to 8, `list_registers` (the number that every core has, `ICH_VTR_EL2.ListRegs +
    /// 1`) to 1 to 16.
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

    /// Makes a GIC that is new one of other numbers of vCPUs and of list registers; as
    /// [`Self::new`], in its place.
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

    /// The number of vCPUs.
    #[inline]
    #[must_use]
    pub const fn vcpu_count(&self) -> usize {
        self.vcpu_count as usize
    }

    /// Links a line to a physical interrupt of the same kind: the PPI `intid` of every vCPU to the
    /// PPI `pintid` of its core, or an SPI to an SPI. Called before the guest runs, with the
    /// physical line disabled, inactive and not pending. SGIs and INTIDs from 256 up are ignored.
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

    /// Relays the physical SPI `pintid` to the SPI `intid`: it is delivered by [`Gic::deliver_hw`]
    /// like a linked one. Called before the guest runs.
    pub fn relay(&mut self, intid: IntId, pintid: IntId) {
        if (32..INTIDS).contains(&intid.0) {
            self.implement(intid);
            self.pintid[intid.0 as usize & 255] = (pintid.0 & 0x3ff) as u16;
        }
    }

    /// Leaves only SGIs implemented, and what is linked, relayed or implemented after that: the
    /// pending and active bits of other interrupts read as zero and ignore writes (IHI0069H
    /// 12.9.12, 12.9.14). So a guest can't lengthen what goes through pending lines by lines that
    /// it has no device for. Called before it runs.
    pub const fn limit(&mut self) {
        self.exists = [SGIS, 0, 0, 0, 0, 0, 0, 0];
    }

    /// Implements the line `intid`, of an emulated device.
    #[inline(never)]
    pub fn implement(&mut self, intid: IntId) {
        if intid.0 < INTIDS {
            let (w, bit) = place(intid);
            self.exists[w] |= bit;
        }
    }

    /// Whether the relayed line `intid` has come to the guest and not been ended.
    #[must_use]
    pub fn is_high(&self, intid: IntId) -> bool {
        let (w, bit) = place(intid);
        self.is_relayed(w, bit.trailing_zeros()) && self.spi[w & 7].level & bit != 0
    }

    /// Takes the relayed line `intid` back from a guest that has not taken it, if it was high.
    /// Whether the guest has nothing to do with it now; while it is in a list register or active it
    /// has. The physical interrupt is the caller's.
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

    /// Delivers the physical interrupt behind a linked line: this core has acknowledged it and
    /// dropped its priority, and has not deactivated it. Returns the vCPUs to kick.
    #[inline]
    pub fn deliver_hw(&mut self, vcpu: usize, intid: IntId, hw: &mut impl Hardware<V>) -> VcpuMask {
        let put = if intid.is_private() {
            self.put_private(vcpu, intid, hw)
        } else {
            self.put_spi(vcpu, intid, hw)
        };
        if put { VcpuMask::NONE } else { self.deliver_slowly(vcpu, intid, hw) }
    }

    /// The short path of [`Gic::deliver_hw`] for a private line, INTID 16 to 31: one look-up and
    /// one list register write. Taken, as it says, when the line can be taken by the guest, a list
    /// register is free and nothing is outstanding for the vCPU; otherwise nothing is done.
    #[inline]
    pub fn put_private(&mut self, vcpu: usize, intid: IntId, hw: &mut impl Hardware<V>) -> bool {
        let cpu = &mut self.vcpu[vcpu & (MAX_VCPUS - 1)];
        let raw = cpu.ready[intid.0 as usize & 31];
        cpu.put(raw, hw)
    }

    /// The short path of [`Gic::deliver_hw`] for an SPI, INTID 32 to 255; see [`Gic::put_private`].
    #[inline]
    pub fn put_spi(&mut self, vcpu: usize, intid: IntId, hw: &mut impl Hardware<V>) -> bool {
        let raw = self.ready[intid.0 as usize & 255];
        self.spi_keepers[vcpu & (MAX_VCPUS - 1)] = 1;
        self.vcpu[vcpu & (MAX_VCPUS - 1)].put(raw, hw)
    }

    /// Delivers as [`Gic::deliver_hw`] does where the short path is not open.
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
            // this interrupt now; a latch that stayed would outlast the vCPU on this core, and
            // interrupt the next VM.
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

    /// Takes the SGIs that were posted to this vCPU, and does a refresh if one is outstanding: what
    /// the receiver of a kick calls, and the sender of an SGI to itself. Returns the vCPUs to
    /// kick in turn.
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

    /// The short path of [`Gic::drain`]. Returns what it leaves to [`Gic::take_posted`]: SGIs that
    /// have no list register, or nothing but the refresh.
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
                // Its last list register is in use: by itself, or by another interrupt.
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

    /// The rest of [`Gic::drain`]: takes what [`Gic::put_posted`] left into the model. Returns the
    /// vCPUs to kick.
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

    /// Sets the input line of the emulated SPI `intid`. Returns the vCPUs to kick (the caller's own
    /// perhaps among them, for which it calls [`Gic::refresh`] instead). A line that the guest made
    /// edge-triggered becomes pending as it rises. Linked lines and INTIDs outside 32 to 255 are
    /// ignored.
    pub fn set_level(&mut self, intid: IntId, high: bool) -> VcpuMask {
        if intid.is_private() { VcpuMask::NONE } else { self.set_line(0, intid, high) }
    }

    /// As [`Gic::set_level`], of the emulated PPI `intid` of vCPU `vcpu`.
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

    /// Whether an interrupt of the vCPU is pending that `interface` signals: what a vCPU in WFI
    /// waits for. Fold first; SGIs still on the [`SgiBoard`] do not count. A masked line counts:
    /// while it is masked, its device may have asked again.
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

    /// Whether `interface` would signal the linked PPI `intid` of a vCPU that is off its core, when
    /// it comes. If that changes by another vCPU's writes, they notify this one.
    #[must_use]
    pub fn may_signal(&self, vcpu: usize, intid: IntId, interface: Signaling) -> bool {
        let (w, bit) = place(intid);
        let lines = self.lines(vcpu, w);
        let set = bit & self.forwarded(lines) & !self.cpu(vcpu).active[w];
        intid.is_private() && self.signals(vcpu, w, set, interface)
    }

    /// Whether `interface` would signal one of `set`.
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

    /// Word `w` as vCPU `vcpu` sees it.
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

    /// Whether bit `bit` of word `w`, of shared lines, is relayed: it has a physical interrupt
    /// without being linked to it.
    fn is_relayed(&self, w: usize, bit: u32) -> bool {
        self.spi[w & 7].hw >> (bit & 31) & 1 == 0 && self.pintid(w, bit as usize).0 != 0
    }

    /// The lines of a word that the distributor forwards when they are pending (IHI0069H 4.1.1:
    /// enabled, and their group too).
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

    /// Says that some line of word `w` may be pending or high.
    #[inline]
    fn note_waiting(&mut self, w: usize) {
        self.waiting |= 1 << (w & 7);
    }

    /// The vCPUs that may have some of a word in their list registers or active without one.
    #[inline]
    fn keepers(&self, owner: usize, w: usize) -> Keepers {
        if w == 0 {
            Keepers(1 << (8 * (owner & (MAX_VCPUS - 1))))
        } else {
            Keepers(u64::from_le_bytes(self.spi_keepers))
        }
    }

    /// Those that are pending and forwarded.
    fn takable(&self, vcpu: usize, w: usize) -> u32 {
        let lines = self.lines(vcpu, w);
        lines.signaled() & self.forwarded(lines)
    }

    /// The lines of a word that are in this vCPU's list registers, by its shadow.
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

    /// The vCPUs that a word can concern: all, or for word 0 its owner.
    fn scope(&self, owner: usize, w: usize) -> VcpuMask {
        if w == 0 { VcpuMask::only(owner) } else { VcpuMask::first(self.vcpu_count()) }
    }

    /// The vCPUs that `mask` of a word is routed to.
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

    /// The vCPUs that have some of `mask` in their list registers.
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

    /// Marks vCPUs for a refresh; gives those that are to be notified. A vCPU that is on no core is
    /// notified once: it finds everything when it gets a core, so others can't take its core's time
    /// by further notifications.
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

    /// Whether the private lines of a vCPU are those of a core that it does not have: then
    /// physically they are another's.
    fn is_away(&self, vcpu: usize, w: usize) -> bool {
        w == 0 && self.cpu(vcpu).busy & OFF != 0
    }

    /// Whether ISPENDR's latch of the linked SPI `intid` came, or is to come, with its interrupt.
    #[must_use]
    pub fn is_latched(&self, intid: IntId) -> bool {
        let (w, bit) = place(intid);
        self.spi[w & 7].asked & bit != 0
    }

    /// Whether the linked SPI `intid` is to come: it is enabled, its group too, and it is routed to
    /// a vCPU for which it is not masked.
    #[must_use]
    pub fn is_forwarded(&self, intid: IntId) -> bool {
        let (w, bit) = place(intid);
        let routed = self.routed[w] & bit != 0;
        (32..INTIDS).contains(&intid.0) && routed && self.forwarded(&self.spi[w & 7]) & bit != 0
    }

    /// Whether a vCPU that is on no core was to be notified since [`Gic::save`], or when it
    /// was called.
    #[must_use]
    pub fn is_wanted(&self, vcpu: usize) -> bool {
        self.cpu(vcpu).busy & WANTED != 0
    }
}

/// Whether a set has a member.
#[inline]
const fn any(words: &[u32; 8]) -> bool {
    let w = words;
    w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7] != 0
}

/// The word and the bit of an INTID below 256.
const fn place(intid: IntId) -> (usize, u32) {
    ((intid.0 >> 5) as usize & 7, 1 << (intid.0 & 31))
}
