//! The guest's accesses to the distributor and the redistributors.
//!
//! Sources: IHI0069H 12.9 (GICD), 12.11 (GICR), 12.1.3 (access sizes); IHI0048B 4.3 (GICD), 4.1.4.
//! Registers may be accessed as 32-bit words; IPRIORITYR, ITARGETSR and the SGI pending registers
//! also as bytes; IROUTER and `GICR_TYPER` also as 64 bits. An access of any other size, or to a
//! misaligned or reserved address, reads as zero and ignores writes.
//!
//! All registers are in one file: reads and writes share one decoder of addresses (`Register`), and
//! each write must end with the same refreshes of the affected vCPUs ([`Gic::write`]).

use super::lr::{GicArchitecture, Hardware, ListRegisters};
use super::{Bits, Gic, INTENDED, LineWord, PRIORITY_MASK, SGIS, VcpuMask, place};
use weir_units::IntId;

/// Implementer 0x43b with its own product ID 'W' (IHI0069H 12.9.16).
const IIDR: u32 = 0x5700_043b;

/// One access of a guest to the registers of its GIC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GicAccess {
    /// The vCPU that makes the access; the model is called on its core.
    pub vcpu: usize,
    /// The vCPU whose redistributor is accessed (GICv3); none for the distributor.
    pub redistributor: Option<usize>,
    /// Offset in bytes from the distributor's base, or from RD_base (SGI_base is at 0x1_0000).
    pub offset: u64,
    /// Size in bytes.
    pub size: u32,
}

/// A register that the distributor and redistributors have at the same offset (IHI0069H 12.8), with
/// its word and, for pairs of bitmaps, whether it is the one that sets bits.
#[derive(Clone, Copy)]
enum Register {
    Group(usize),
    Enable(usize, bool),
    Pending(usize, bool),
    Active(usize, bool),
    /// The first INTID that is accessed.
    Priority(usize),
    /// The first of the sixteen INTIDs of the word.
    Config(usize),
    Other,
}

impl GicAccess {
    /// Returns the vCPU whose private interrupts the access sees.
    const fn owner(&self) -> usize {
        match self.redistributor {
            Some(target) => target,
            None => self.vcpu,
        }
    }

    /// Returns whether the access is aligned and has one of the sizes in `sizes`, a set of powers
    /// of two.
    const fn has_size(&self, sizes: u32) -> bool {
        let size = self.size;
        size & sizes != 0 && size.is_power_of_two() && self.offset & (size as u64 - 1) == 0
    }

    /// Returns the register that is accessed. With affinity routing, the redistributors have word 0
    /// of each register and no other word, and the distributor has the others (IHI0069H 12.9.7 and
    /// similar sections).
    #[inline]
    const fn register<V: GicArchitecture>(&self) -> Register {
        let offset = match self.redistributor {
            Some(_) => self.offset.wrapping_sub(0x1_0000),
            None => self.offset,
        };
        if offset < 0x80 || offset >= 0xc40 {
            return Register::Other;
        }
        let set = offset & 0x80 == 0;
        let word = (offset as usize & 0x7f) >> 2;
        let intid = offset as usize & 0xff;
        let (register, w, sizes) = match offset >> 8 {
            0 if !set => (Register::Group(word), word, 4),
            1 => (Register::Enable(word, set), word, 4),
            2 => (Register::Pending(word, set), word, 4),
            3 => (Register::Active(word, set), word, 4),
            4 => (Register::Priority(intid), intid >> 5, 1 | 4),
            0xc => (Register::Config((intid & 0x3c) << 2), intid >> 3, 4),
            _ => return Register::Other,
        };
        let here = match self.redistributor {
            Some(_) => w == 0,
            None => w < 8 && !(V::V3 && w == 0),
        };
        if here && self.has_size(sizes) { register } else { Register::Other }
    }

    /// Returns the value that a load from a TYPER register gets in a VM of `vcpus` vCPUs, which is
    /// constant; none for other registers.
    #[inline]
    #[must_use]
    pub const fn constant<V: GicArchitecture>(&self, vcpus: usize) -> Option<u64> {
        match (self.redistributor, self.offset) {
            // 256 INTIDs (ITLinesNumber 7), IDbits 9 (ten bits), one Security state. GICv3:
            // affinity 3 valid (A3V).
            (None, 0x4) if self.size == 4 => {
                Some(if V::V3 { 1 << 24 | 9 << 19 | 7 } else { (vcpus as u64 - 1) << 5 | 7 })
            }
            (Some(target), 0x8 | 0xc) if target < vcpus => {
                let last = (target + 1 == vcpus) as u64;
                let number = target as u64;
                let low = number << 8 | last << 4;
                Some(match (self.size, self.offset) {
                    (4, 0x8) => low,
                    (4, _) => number,
                    (8, 0x8) => number << 32 | low,
                    _ => 0,
                })
            }
            _ => None,
        }
    }

    /// Returns whether the access goes to a GICv2's `GICD_SGIR`. [`Gic::write`] ignores that
    /// register: the caller decodes a store to it ([`super::decode_sgir`]) and posts the SGI
    /// ([`super::SgiBoard::post`]).
    #[inline]
    #[must_use]
    pub const fn is_sgir<V: GicArchitecture>(&self) -> bool {
        !V::V3 && self.offset == 0xf00 && self.size == 4
    }

    /// Returns the store to ICACTIVER, and its value, that has the same effect as the store of
    /// `value` to `ICC_DIR_EL1` or `GICV_DIR` by vCPU `vcpu`. `value` is the INTID; for an SGI on
    /// GICv2 it includes the sender, which can be ignored because an SGI is active from only one
    /// sender at a time. Returns none for an INTID that does not exist.
    #[must_use]
    pub const fn deactivation<V: GicArchitecture>(vcpu: usize, value: u32) -> Option<(Self, u64)> {
        let intid = if V::V3 { value & 0xff_ffff } else { value & 0x3ff };
        if intid >= super::INTIDS {
            return None;
        }
        let offset = 0x380 + (intid as u64 >> 5) * 4;
        let (redistributor, offset) =
            if V::V3 && intid < 32 { (Some(vcpu), 0x1_0000 + offset) } else { (None, offset) };
        Some((Self { vcpu, redistributor, offset, size: 4 }, 1 << (intid & 31)))
    }

    /// Returns the bits of a 64-bit register that a 32- or 64-bit access sees.
    const fn accessed_bits(&self, value: u64) -> u64 {
        match self.size {
            _ if !self.has_size(4 | 8) => 0,
            4 => value >> ((self.offset as u32 & 4) * 8) & 0xffff_ffff,
            _ => value,
        }
    }

    /// Returns the accessed bytes of a register that has one byte per interrupt.
    fn bytes(&self, at: impl Fn(usize) -> u8) -> u64 {
        let mut value = 0;
        for i in 0..self.width() {
            value |= u64::from(at(i)) << (8 * i);
        }
        value
    }

    /// Returns how many bytes the access covers in such a register.
    const fn width(&self) -> usize {
        if self.has_size(1 | 4) { self.size as usize } else { 0 }
    }
}

impl<V: GicArchitecture> Gic<V> {
    /// Returns the vCPUs that must [`Gic::fold`] on their own cores before this access, so that it
    /// sees their list registers: those that hold an interrupt of the accessed register in one.
    /// Empty for most accesses.
    #[inline]
    pub fn remote(&self, access: &GicAccess, write: bool) -> VcpuMask {
        // Decodes the access only for the pending and active registers, which are rarely accessed.
        if !(0x200..0x400).contains(&(access.offset & 0xffff)) {
            return VcpuMask::NONE;
        }
        let alone = match access.redistributor {
            Some(target) => target == access.vcpu,
            None => self.keepers(0, 1).all(|keeper| keeper == access.vcpu),
        };
        if alone {
            return VcpuMask::NONE;
        }
        self.remote_holders(access, write)
    }

    #[inline(never)]
    fn remote_holders(&self, access: &GicAccess, write: bool) -> VcpuMask {
        let owner = access.owner();
        let (w, mask) = match access.register::<V>() {
            Register::Pending(w, _) if !write => (w, !0),
            // The list registers determine whether the latch is kept in the model or in the
            // physical distributor.
            Register::Pending(w, true) => (w, self.lines(owner, w).hw),
            Register::Active(w, _) => (w, !0),
            _ => return VcpuMask::NONE,
        };
        if mask == 0 {
            return VcpuMask::NONE;
        }
        self.holders(owner, w, mask).without(access.vcpu)
    }

    /// Returns the value that a guest's load gets.
    pub fn read(&mut self, access: &GicAccess, hw: &mut impl Hardware<V>) -> u64 {
        if access.owner() >= self.vcpu_count() {
            return 0;
        }
        if let Some(value) = access.constant::<V>(self.vcpu_count()) {
            return value;
        }
        let owner = access.owner();
        u64::from(match access.register::<V>() {
            Register::Group(w) => self.lines(owner, w).group,
            Register::Enable(w, _) => self.lines(owner, w).enabled,
            Register::Pending(w, _) => {
                self.fold(access.vcpu, hw);
                if w == 0 && owner == access.vcpu {
                    self.drop_fallen(owner, hw);
                }
                self.pending_word(owner, w, hw)
            }
            Register::Active(w, _) => {
                self.fold(access.vcpu, hw);
                self.active_word(owner, w)
            }
            Register::Priority(intid) => {
                let priority = &self.lines(owner, intid >> 5).priority;
                return access.bytes(|i| priority[(intid + i) & 31]);
            }
            Register::Config(intid) => {
                let edge = self.lines(owner, intid >> 5).edge;
                spread(edge >> (intid & 16) & 0xffff) << 1
            }
            Register::Other => {
                return match access.redistributor {
                    None => self.read_distributor(access, hw),
                    Some(target) => self.read_redistributor(target, access),
                };
            }
        })
    }

    fn read_distributor(&mut self, access: &GicAccess, lrs: &impl ListRegisters<V>) -> u64 {
        let count = self.vcpu_count() as u32;
        let intid = access.offset as usize & 0xff;
        let value = match access.offset {
            0x0 if V::V3 => self.enabled_groups | 1 << 4 | 1 << 6,
            0x0 => self.enabled_groups,
            0x8 => IIDR,
            0xffe8 if V::V3 => 0x3b,
            0xfe8 if !V::V3 => 0x2b,
            0x6100..0x6800 if V::V3 => {
                return access.accessed_bits(self.router(access.offset as usize >> 3 & 0xff));
            }
            // ITARGETSR of private interrupts reads as the reader's own bit.
            0x800..0x820 if !V::V3 && count > 1 => {
                return access.bytes(|_| VcpuMask::only(access.vcpu).bits());
            }
            0x820..0x900 if !V::V3 && count > 1 => {
                return access.bytes(|i| self.route[(intid + i) & 0xff] as u8);
            }
            0xf10..0xf30 if !V::V3 => {
                self.fold(access.vcpu, lrs);
                return access.bytes(|i| self.sgi_senders(access.vcpu, (intid + i) & 15));
            }
            _ => 0,
        };
        if access.size == 4 { u64::from(value) } else { 0 }
    }

    fn read_redistributor(&self, target: usize, access: &GicAccess) -> u64 {
        let value = match access.offset {
            0x4 => IIDR,
            // ChildrenAsleep follows ProcessorSleep at once.
            0x14 if self.cpu(target).asleep => 0b110,
            0xffe8 => 0x3b,
            _ => 0,
        };
        if access.size == 4 { u64::from(value) } else { 0 }
    }

    /// Carries out a guest's store. The list registers of the vCPU that makes it are up to date
    /// afterwards. Returns the vCPUs to kick. `GICD_SGIR` is ignored here ([`GicAccess::is_sgir`]).
    pub fn write(&mut self, access: &GicAccess, value: u64, hw: &mut impl Hardware<V>) -> VcpuMask {
        if access.owner() >= self.vcpu_count() {
            return VcpuMask::NONE;
        }
        let (owner, bits) = (access.owner(), value as u32);
        let kick = match access.register::<V>() {
            Register::Group(w) => {
                let lines = self.lines_mut(owner, w);
                let change = lines.group ^ bits;
                lines.group = bits;
                self.reconfigured(access, w, change, hw)
            }
            Register::Enable(w, set) => self.enable(access, w, bits, set, hw),
            Register::Pending(w, true) => {
                let kick = self.set_pending(access.vcpu, owner, w, bits, hw);
                if kick == VcpuMask::only(access.vcpu) && self.put_now(access.vcpu, w, bits, hw) {
                    return VcpuMask::NONE;
                }
                kick
            }
            // The state in the writer's list registers is moved into the model first; changes of
            // the state in the list registers of other vCPUs become intentions for their refresh.
            register @ (Register::Pending(w, _) | Register::Active(w, _)) => {
                let vcpu = access.vcpu;
                if w == 0 && owner != vcpu {
                    self.change_held(vcpu, owner, register, bits, hw)
                } else {
                    self.collect(vcpu, hw);
                    // The vCPU's interrupts are in the model now, so the shadow must not claim that
                    // they are in list registers.
                    let shadow = self.cpu(vcpu).shadow;
                    self.cpu_mut(vcpu).shadow = [V::EMPTY; super::MAX_LIST_REGISTERS];
                    let kick = self.change_held(vcpu, owner, register, bits, hw);
                    self.cpu_mut(vcpu).shadow = shadow;
                    kick.without(vcpu) | self.fill(vcpu, hw)
                }
            }
            Register::Priority(intid) => {
                let lines = self.lines_mut(owner, intid >> 5);
                let mut change = 0;
                for i in 0..access.width() {
                    let n = (intid + i) & 31;
                    let new = (value >> (8 * i)) as u8 & PRIORITY_MASK;
                    change |= u32::from(lines.priority[n] != new) << n;
                    lines.priority[n] = new;
                }
                self.reprioritized(access, intid >> 5, change, hw)
            }
            // The trigger of SGIs and PPIs is fixed.
            Register::Config(0..32) => VcpuMask::NONE,
            Register::Config(intid) => {
                let (w, shift) = (intid >> 5, intid & 16);
                let edge = gather(bits >> 1) << shift;
                let lines = self.lines_mut(owner, w);
                let change = (lines.edge ^ edge) & 0xffff << shift;
                lines.edge ^= change;
                // The trigger of an interrupt may be changed only while it is disabled (IHI0069H
                // 12.9.9); `reconfigured` enables it again.
                for bit in Bits(self.lines(owner, w).hw & change) {
                    let pintid = self.pintid(w, bit);
                    hw.set_enabled(owner, pintid, false);
                    hw.set_edge(owner, pintid, edge >> bit & 1 != 0);
                }
                self.reconfigured(access, w, change, hw)
            }
            Register::Other => match access.redistributor {
                None => self.write_distributor(access, value, hw),
                Some(target) => {
                    // GICR_WAKER.
                    if access.offset == 0x14 && access.size == 4 {
                        self.cpu_mut(target).asleep = value & 2 != 0;
                    }
                    VcpuMask::NONE
                }
            },
        };
        self.settle(access.vcpu, kick, hw)
    }

    fn write_distributor(
        &mut self,
        access: &GicAccess,
        value: u64,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let &GicAccess { offset, size, .. } = access;
        let intid = offset as usize & 0xff;
        let mut kick = VcpuMask::NONE;
        match offset {
            0x0 if size == 4 => kick = self.control(value as u32, hw),
            0x6100..0x6800 if V::V3 && access.has_size(4 | 8) => {
                kick = self.set_router(access, value, hw);
            }
            0x820..0x900 if !V::V3 && self.vcpu_count() > 1 => {
                for i in 0..access.width() {
                    let target = (value >> (8 * i)) as u32 & 0xff;
                    kick = kick | self.set_route((intid + i) & 0xff, target, false, hw);
                }
            }
            0xf10..0xf30 if !V::V3 => kick = self.write_sgi_senders(access, value, hw),
            _ => {}
        }
        kick
    }

    /// Marks the vCPUs that a write affects, and refreshes the writer itself if it is among them.
    #[inline]
    fn settle(&mut self, vcpu: usize, kick: VcpuMask, hw: &mut impl Hardware<V>) -> VcpuMask {
        if kick.is_empty() { kick } else { self.settle_each(vcpu, kick, hw) }
    }

    #[inline(never)]
    fn settle_each(&mut self, vcpu: usize, kick: VcpuMask, hw: &mut impl Hardware<V>) -> VcpuMask {
        let kick = self.want(kick);
        if kick.contains(vcpu) { kick.without(vcpu) | self.refresh(vcpu, hw) } else { kick }
    }

    /// Applies changed priorities of interrupts. Returns the affected vCPUs.
    fn reprioritized(
        &mut self,
        access: &GicAccess,
        w: usize,
        change: u32,
        lrs: &impl ListRegisters<V>,
    ) -> VcpuMask {
        if change == 0 {
            return VcpuMask::NONE;
        }
        let owner = access.owner();
        self.prepare_priority(owner, w, change);
        let lines = self.lines(owner, w);
        // A vCPU in WFI waits for its timers only if their priorities pass its mask.
        let timers = if w == 0 && owner != access.vcpu { lines.hw } else { 0 };
        let pending = change & (lines.signaled() | timers);
        let targets = self.targets(owner, w, pending);
        // The writer can check at once that none of its own list registers is in use.
        let all = (1 << self.lr_count()) - 1;
        if w == 0 && owner == access.vcpu && lrs.empty_mask() == all {
            return targets;
        }
        targets | self.holders(owner, w, change)
    }

    /// Applies a changed group or trigger of interrupts. Returns the affected vCPUs.
    fn reconfigured(
        &mut self,
        access: &GicAccess,
        w: usize,
        change: u32,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        if change == 0 {
            return VcpuMask::NONE;
        }
        let owner = access.owner();
        self.rearm(owner, w, change, hw);
        self.affected(access, w, change, hw) | self.holders(owner, w, change)
    }

    /// Returns the vCPUs for which the change can affect which interrupts they take. The physical
    /// enable of a linked PPI must be updated on the PPI's own core: at once, if that is the
    /// writer's core.
    #[inline]
    fn affected(
        &mut self,
        access: &GicAccess,
        w: usize,
        change: u32,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let owner = access.owner();
        if w != 0 {
            return self.targets(owner, w, change & self.spi[w & 7].signaled());
        }
        let mut follow = 0;
        if owner == access.vcpu {
            self.apply_private(owner, hw);
        } else {
            follow = self.lines(owner, w).hw;
        }
        let lines = self.lines(owner, w);
        self.targets(owner, w, change & (lines.signaled() | follow))
    }

    /// Carries out a write to ISENABLER or ICENABLER.
    fn enable(
        &mut self,
        access: &GicAccess,
        w: usize,
        bits: u32,
        set: bool,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let owner = access.owner();
        // GICv2: SGIs are always enabled (IHI0048B 4.3.5 permits it).
        let fixed = if !V::V3 && w == 0 { SGIS } else { 0 };
        let lines = self.lines_mut(owner, w);
        let change = bits & !fixed & if set { !lines.enabled } else { lines.enabled };
        if change == 0 {
            return VcpuMask::NONE;
        }
        lines.enabled ^= change;
        self.rearm(owner, w, change, hw);
        let kick = self.affected(access, w, change, hw);
        if set { kick } else { kick | self.holders(owner, w, change) }
    }

    /// Carries out a write to ISPENDR. GICv2's SGIs ignore it (IHI0048B 4.3.7).
    fn set_pending(
        &mut self,
        vcpu: usize,
        owner: usize,
        w: usize,
        bits: u32,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let bits = bits & self.exists[w & 7];
        let bits = if !V::V3 && w == 0 { bits & !SGIS } else { bits };
        let mut linked = bits & self.lines(owner, w).hw;
        if self.is_away(owner, w) {
            // Recorded in the same way as `save` records the state of the distributor.
            self.lines_mut(owner, w).latched |= linked;
            self.close(owner, w, linked);
            linked = 0;
        }
        if linked != 0 {
            self.fold(vcpu, hw);
            // If the interrupt is already pending, one acknowledge takes both.
            let mut waiting = self.lines(owner, w).pending;
            for cpu in self.keepers(owner, w) {
                waiting |= self.held_by(cpu, w).pending & !self.cpu(cpu).cancel[w & 7];
            }
            let lines = self.lines_mut(owner, w);
            lines.latched |= linked & waiting;
            lines.asked |= linked & !waiting;
            for bit in Bits(linked & !waiting) {
                hw.set_pending(owner, self.pintid(w, bit), true);
            }
            self.close(owner, w, linked);
        }
        let latched = bits & !linked;
        if latched != 0 {
            self.lines_mut(owner, w).pending |= latched;
            self.note_waiting(w);
        }
        self.targets(owner, w, self.takable(owner, w) & bits)
    }

    /// Carries out a write to ICPENDR, ISACTIVER or ICACTIVER, when no interrupt of the word is in
    /// the writer's own list registers.
    fn change_held(
        &mut self,
        vcpu: usize,
        owner: usize,
        register: Register,
        bits: u32,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        match register {
            Register::Pending(w, _) => self.clear_pending(owner, w, bits, hw),
            Register::Active(w, true) => self.set_active(vcpu, owner, w, bits, hw),
            Register::Active(w, false) => self.clear_active(vcpu, owner, w, bits, hw),
            _ => VcpuMask::NONE,
        }
    }

    fn clear_pending(
        &mut self,
        owner: usize,
        w: usize,
        bits: u32,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let bits = if !V::V3 && w == 0 { bits & !SGIS } else { bits };
        let mut kick = VcpuMask::NONE;
        for cpu in self.scope(owner, w).iter() {
            let held = self.held(cpu, w).all() & bits;
            if held != 0 {
                let other = self.cpu_mut(cpu);
                other.busy |= INTENDED;
                other.cancel[w & 7] |= held;
                kick = kick | VcpuMask::only(cpu);
            }
        }
        let lines = self.lines_mut(owner, w);
        let linked = lines.hw & bits;
        let waiting = lines.pending & linked;
        lines.pending &= !bits;
        lines.latched &= !linked;
        lines.asked &= !linked;
        self.prepare(owner, w, linked, false, hw);
        if !self.is_away(owner, w) {
            for bit in Bits(linked) {
                hw.set_pending(owner, self.pintid(w, bit), false);
            }
            self.deactivate(owner, w, waiting, hw);
        }
        kick
    }

    fn set_active(
        &mut self,
        vcpu: usize,
        owner: usize,
        w: usize,
        bits: u32,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let mut kick = VcpuMask::NONE;
        let mut rest = bits & self.exists[w & 7] & !self.active_word(owner, w);
        let lines = self.lines_mut(owner, w);
        for bit in Bits(rest) {
            lines.taken_at[bit & 31] = lines.priority[bit & 31];
        }
        for cpu in self.scope(owner, w).iter() {
            let held = self.held(cpu, w).all() & rest;
            if held != 0 {
                rest &= !held;
                let other = self.cpu_mut(cpu);
                other.busy |= INTENDED;
                other.force[w & 7] |= held;
                other.active[w & 7] |= held;
                kick = kick | VcpuMask::only(cpu);
            }
        }
        for bit in Bits(rest) {
            // An interrupt that is routed to no vCPU becomes active at the writer.
            let to = self.targets(owner, w, 1 << bit);
            let cpu = to.iter().next().unwrap_or(vcpu);
            self.cpu_mut(cpu).active[w & 7] |= 1 << bit;
            if w != 0 {
                self.spi_keepers[cpu & (super::MAX_VCPUS - 1)] = 1;
            }
            kick = kick | VcpuMask::only(cpu);
        }
        let linked = if self.is_away(owner, w) { 0 } else { rest & self.lines(owner, w).hw };
        self.lines_mut(owner, w).made_active |= linked;
        self.close(owner, w, linked);
        for bit in Bits(linked) {
            hw.set_active(owner, self.pintid(w, bit), true);
        }
        kick
    }

    fn clear_active(
        &mut self,
        vcpu: usize,
        owner: usize,
        w: usize,
        bits: u32,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let mut kick = VcpuMask::NONE;
        let mut ended = 0;
        for cpu in self.scope(owner, w).iter() {
            let in_register = self.held(cpu, w).active & bits;
            let other = self.cpu_mut(cpu);
            let in_model = other.active[w & 7] & bits;
            other.active[w & 7] &= !bits;
            if in_register != 0 {
                other.busy |= INTENDED;
                other.force[w & 7] |= in_register;
            }
            if in_model | in_register != 0 {
                kick = kick | VcpuMask::only(cpu);
                ended |= in_model | in_register;
            }
            if !self.is_away(owner, w) {
                // An interrupt that also waits in the model, for a vCPU that is off its core, stays
                // physically active: otherwise it could come again and be in two list registers.
                let waiting = self.lines(owner, w).pending;
                self.deactivate(owner, w, in_model & !in_register & !waiting, hw);
            }
        }
        if w != 0 {
            for bit in Bits(ended) {
                self.end_relayed(vcpu, w, 1 << bit, hw);
            }
        }
        // The interrupts may be taken again, by the vCPUs to which they are routed.
        kick | self.targets(owner, w, bits & self.takable(owner, w))
    }

    /// Returns the value of ISPENDR and ICPENDR: latched, signaled, in a list register, or
    /// physically pending.
    fn pending_word(&self, owner: usize, w: usize, hw: &mut impl Hardware<V>) -> u32 {
        let lines = self.lines(owner, w);
        let mut word = lines.signaled();
        let kept = lines.hw | lines.latched | if w == 0 { SGIS } else { 0 };
        for cpu in self.scope(owner, w).iter() {
            word |= self.held(cpu, w).pending & kept & !self.cpu(cpu).cancel[w & 7];
        }
        let outside = if self.is_away(owner, w) { 0 } else { lines.hw & !word };
        for bit in Bits(outside) {
            word |= u32::from(hw.pending(owner, self.pintid(w, bit))) << bit;
        }
        word
    }

    /// Returns the value of ISACTIVER and ICACTIVER.
    fn active_word(&self, owner: usize, w: usize) -> u32 {
        let mut word = 0;
        for cpu in self.scope(owner, w).iter() {
            let this = self.cpu(cpu);
            word |= this.active[w & 7] | self.held(cpu, w).active & !this.force[w & 7];
        }
        word
    }

    /// Carries out a write of the group enables to `GICD_CTLR`. ARE and DS are RAO/WI on GICv3, and
    /// `RWP` reads as 0. Only interrupts that are enabled and in a group whose enable changes are
    /// updated: a disabled interrupt has no value for the short path, and is disabled physically.
    #[cold]
    #[inline(never)]
    fn control(&mut self, value: u32, hw: &mut impl Hardware<V>) -> VcpuMask {
        let groups = value & 0b11;
        let change = groups ^ self.enabled_groups;
        if change == 0 {
            return VcpuMask::NONE;
        }
        self.enabled_groups = groups;
        let all = VcpuMask::first(self.vcpu_count());
        for vcpu in all.iter() {
            self.rearm_groups(vcpu, 0, change, hw);
        }
        for w in 1..8 {
            self.rearm_groups(0, w, change, hw);
        }
        all
    }

    /// Updates the state of the interrupts of a word that depends on the enables of `groups`.
    #[inline]
    fn rearm_groups(&mut self, owner: usize, w: usize, groups: u32, hw: &mut impl Hardware<V>) {
        let mask = self.lines(owner, w).enabled_in(groups);
        if mask != 0 {
            self.rearm(owner, w, mask, hw);
        }
    }

    /// Returns the value of `GICD_IROUTER<n>` (IHI0069H 12.9.22).
    fn router(&self, intid: usize) -> u64 {
        let route = u64::from(self.route[intid & 255]);
        let any = u64::from(self.spi[intid >> 5 & 7].any >> (intid & 31) & 1);
        route & 0x00ff_ffff | any << 31 | (route >> 24) << 32
    }

    fn set_router(
        &mut self,
        access: &GicAccess,
        value: u64,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let intid = access.offset as usize >> 3 & 0xff;
        let old = self.router(intid);
        let new = match (access.size, access.offset & 4) {
            (8, _) => value,
            (_, 0) => old & !0xffff_ffff | value & 0xffff_ffff,
            _ => old & 0xffff_ffff | value << 32,
        };
        let affinity = new as u32 & 0x00ff_ffff | ((new >> 32) as u32) << 24;
        self.set_route(intid, affinity, new >> 31 & 1 != 0, hw)
    }

    /// Routes an SPI. On GICv3 the target is the vCPU with that affinity, or vCPU 0 if `any` vCPU
    /// may take it; on GICv2 it is the lowest vCPU of the target list. An SPI whose route names no
    /// vCPU is delivered to none.
    fn set_route(
        &mut self,
        intid: usize,
        route: u32,
        any: bool,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let count = self.vcpu_count();
        let route = if V::V3 { route } else { route & u32::from(VcpuMask::first(count).bits()) };
        let (w, bit) = place(IntId(intid as u32));
        let Some(slot) = self.route.get_mut(intid) else {
            return VcpuMask::NONE;
        };
        *slot = route;
        let lines: &mut LineWord = &mut self.spi[w];
        lines.any = if any { lines.any | bit } else { lines.any & !bit };
        let target = match (V::V3, any) {
            (true, true) => 0,
            (true, false) => route as usize,
            (false, _) => route.trailing_zeros() as usize,
        };
        let mut moved = false;
        for (i, cpu) in self.vcpu.iter_mut().enumerate().take(count) {
            let mine = if i == target { cpu.mine[w] | bit } else { cpu.mine[w] & !bit };
            moved |= mine != cpu.mine[w];
            cpu.mine[w] = mine;
        }
        if !moved {
            return VcpuMask::NONE;
        }
        self.reroute(w);
        let linked = self.spi[w].hw & bit != 0;
        if linked && target < count {
            hw.route(self.pintid(w, intid & 31), target);
        }
        self.rearm(0, w, bit, hw);
        self.targets(0, w, bit & self.takable(0, w)) | self.holders(0, w, bit)
    }

    /// Returns the vCPUs from which an SGI of `vcpu` is pending: a byte of `GICD_CPENDSGIR` and
    /// `GICD_SPENDSGIR`.
    fn sgi_senders(&self, vcpu: usize, intid: usize) -> u8 {
        let mut senders = self.cpu(vcpu).sources[intid & 15];
        for &raw in self.shadow(vcpu) {
            if V::intid(raw).0 == intid as u32
                && V::state(raw).pending
                && let super::Backing::Software { source, .. } = V::decode(raw).backing
            {
                senders |= 1 << (source & 7);
            }
        }
        senders
    }

    /// Carries out a write to `GICD_CPENDSGIR` (0xf10) or `GICD_SPENDSGIR` (0xf20) of the writer
    /// (IHI0048B 4.3.16, 4.3.17).
    fn write_sgi_senders(
        &mut self,
        access: &GicAccess,
        value: u64,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        self.collect(access.vcpu, hw);
        let exist = VcpuMask::first(self.vcpu_count()).bits();
        let cpu = self.cpu_mut(access.vcpu);
        for i in 0..access.width() {
            let intid = (access.offset as usize + i) & 15;
            let senders = (value >> (8 * i)) as u8 & exist;
            let sources = &mut cpu.sources[intid];
            *sources = if access.offset < 0xf20 { *sources & !senders } else { *sources | senders };
            let pending = cpu.private.pending & !(1 << intid);
            cpu.private.pending = pending | u32::from(*sources != 0) << intid;
        }
        self.fill(access.vcpu, hw)
    }
}

/// Moves bit `i` of the lower half to bit `2 i`.
const fn spread(x: u32) -> u32 {
    let x = (x | x << 8) & 0x00ff_00ff;
    let x = (x | x << 4) & 0x0f0f_0f0f;
    let x = (x | x << 2) & 0x3333_3333;
    (x | x << 1) & 0x5555_5555
}

/// Moves bit `2 i` to bit `i`.
const fn gather(x: u32) -> u32 {
    let x = x & 0x5555_5555;
    let x = (x | x >> 1) & 0x3333_3333;
    let x = (x | x >> 2) & 0x0f0f_0f0f;
    let x = (x | x >> 4) & 0x00ff_00ff;
    (x | x >> 8) & 0xffff
}
