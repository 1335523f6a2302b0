//! The guest's accesses to the distributor and the redistributors.
//!
//! Sources: IHI0069H 12.9 (GICD), 12.11 (GICR), 12.1.3 (access sizes); IHI0048B 4.3 (GICD), 4.1.4.
//! Words may be accessed as 32 bits; IPRIORITYR, ITARGETSR and the SGI pending registers as bytes too;
//! IROUTER and `GICR_TYPER` as 64 bits too. Any other size, a misaligned or a reserved address reads as
//! zero and ignores writes.

use super::lr::{Hardware, ListRegisters, Version};
use super::{Bits, Gic, INTENDED, Lines, MAX_VCPUS, PRIORITY_MASK, SGIS, VcpuMask, place};

/// Implementer 0x43b with a product of its own, 'W' (IHI0069H 12.9.16).
const IIDR: u32 = 0x5700_043b;

/// What a bitmap register is about; a range of 0x80 bytes each (IHI0069H 12.8).
#[derive(Clone, Copy)]
enum Bitmap {
    Group,
    Enable { set: bool },
    Pending { set: bool },
    Active { set: bool },
}

/// A register file's register, as far as both frames share it.
#[derive(Clone, Copy)]
enum Register {
    Bitmap(Bitmap, usize),
    /// First INTID.
    Priority(usize),
    /// Sixteen interrupts from this one on.
    Config(usize),
    Other,
}

const fn shared(offset: u64) -> Register {
    let w = (offset as usize & 0x7f) >> 2;
    let bitmap = match offset >> 7 {
        1 => Bitmap::Group,
        2 => Bitmap::Enable { set: true },
        3 => Bitmap::Enable { set: false },
        4 => Bitmap::Pending { set: true },
        5 => Bitmap::Pending { set: false },
        6 => Bitmap::Active { set: true },
        7 => Bitmap::Active { set: false },
        8 | 9 => return Register::Priority(offset as usize & 0xff),
        0x18 => {
            return if offset < 0xc40 {
                Register::Config((offset as usize & 0x3c) << 2)
            } else {
                Register::Other
            };
        }
        _ => return Register::Other,
    };
    if w < 8 { Register::Bitmap(bitmap, w) } else { Register::Other }
}

const fn is_aligned(offset: u64, size: u32) -> bool {
    matches!(size, 1 | 4 | 8) && offset & (size as u64 - 1) == 0
}

/// The part of a 64-bit register that a 32- or 64-bit access sees.
const fn part(value: u64, offset: u64, size: u32) -> u64 {
    match size {
        8 => value,
        4 => value >> ((offset as u32 & 4) * 8) & 0xffff_ffff,
        _ => 0,
    }
}

impl<V: Version> Gic<V> {
    /// Who must [`Gic::fold`] on its own core before vCPU `vcpu` accesses the distributor at `offset`,
    /// so that the access sees its list registers: those that have an interrupt of that register in
    /// one. Empty for most accesses.
    pub fn dist_remote(&self, vcpu: usize, offset: u64, write: bool) -> VcpuMask {
        match shared(offset) {
            Register::Bitmap(bitmap, w) if w != 0 => self.remote(vcpu, vcpu, bitmap, w, write),
            _ => VcpuMask::NONE,
        }
    }

    /// The same for an access of vCPU `vcpu` to the redistributor of `target`.
    pub fn redist_remote(&self, vcpu: usize, target: usize, offset: u64, write: bool) -> VcpuMask {
        match shared(offset.wrapping_sub(0x1_0000)) {
            Register::Bitmap(bitmap, 0) => self.remote(vcpu, target, bitmap, 0, write),
            _ => VcpuMask::NONE,
        }
    }

    fn remote(&self, vcpu: usize, owner: usize, of: Bitmap, w: usize, write: bool) -> VcpuMask {
        let state = match of {
            Bitmap::Pending { .. } => !write,
            Bitmap::Active { .. } => true,
            _ => false,
        };
        if state { self.holders(owner, w, !0).without(vcpu) } else { VcpuMask::NONE }
    }

    /// A read of the distributor by vCPU `vcpu`. `size` in bytes.
    pub fn dist_read(
        &mut self,
        vcpu: usize,
        offset: u64,
        size: u32,
        lrs: &impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> u64 {
        if !is_aligned(offset, size) {
            return 0;
        }
        let count = self.vcpu_count() as u32;
        let value = match offset {
            0x0 if V::V3 => self.enabled_groups | 1 << 4 | 1 << 6,
            0x0 => self.enabled_groups,
            // 256 INTIDs (ITLinesNumber 7), IDbits 9 (ten bits), one Security state. GICv3: affinity 3
            // valid (A3V).
            0x4 if V::V3 => 1 << 24 | 9 << 19 | 7,
            0x4 => (count - 1) << 5 | 7,
            0x8 => IIDR,
            0xffe8 if V::V3 => 0x3b,
            0xfe8 if !V::V3 => 0x2b,
            0x6100..0x6800 if V::V3 => {
                return part(self.router(offset as usize >> 3 & 0xff), offset, size);
            }
            0x820..0x900 if !V::V3 && count > 1 => {
                return self.targets_read(offset as usize & 0xff, size);
            }
            0x800..0x820 if !V::V3 && count > 1 => {
                let own = 1u64 << (vcpu & (MAX_VCPUS - 1));
                return match size {
                    1 => own,
                    4 => own * 0x0101_0101,
                    _ => 0,
                };
            }
            0xf10..0xf30 if !V::V3 => {
                self.fold(vcpu, lrs);
                return self.sgi_sources(vcpu, offset as usize & 15, size);
            }
            _ => {
                let frame = Frame::Distributor;
                return self.shared_read(vcpu, vcpu, frame, offset, size, lrs, hw);
            }
        };
        if size == 4 { u64::from(value) } else { 0 }
    }

    /// A read of the redistributor of `target` by vCPU `vcpu`: `offset` from its RD_base, SGI_base being
    /// at 0x1_0000.
    #[allow(clippy::too_many_arguments, reason = "an access is that many facts")]
    pub fn redist_read(
        &mut self,
        vcpu: usize,
        target: usize,
        offset: u64,
        size: u32,
        lrs: &impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> u64 {
        if !is_aligned(offset, size) || target >= self.vcpu_count() {
            return 0;
        }
        let value = match offset {
            0x4 => IIDR,
            0x8 | 0xc => {
                let last = u64::from(target + 1 == self.vcpu_count());
                let number = target as u64;
                return part(number << 32 | number << 8 | last << 4, offset, size);
            }
            // ChildrenAsleep follows ProcessorSleep at once.
            0x14 if self.cpu(target).asleep => 0b110,
            0xffe8 => 0x3b,
            0x1_0000..0x2_0000 => {
                let (frame, offset) = (Frame::Redistributor, offset - 0x1_0000);
                return self.shared_read(vcpu, target, frame, offset, size, lrs, hw);
            }
            _ => 0,
        };
        if size == 4 { u64::from(value) } else { 0 }
    }

    /// A write to the distributor by vCPU `vcpu`. Its own list registers are up to date afterwards;
    /// returns whom to kick.
    #[allow(clippy::too_many_arguments, reason = "an access is that many facts")]
    pub fn dist_write(
        &mut self,
        vcpu: usize,
        offset: u64,
        size: u32,
        value: u64,
        lrs: &mut impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        if !is_aligned(offset, size) {
            return VcpuMask::NONE;
        }
        let kick = match offset {
            0x0 if size == 4 => self.control(value as u32, hw),
            0x6100..0x6800 if V::V3 && size >= 4 => {
                self.set_router(offset as usize >> 3 & 0xff, offset, size, value, hw)
            }
            0x820..0x900 if !V::V3 && self.vcpu_count() > 1 && size <= 4 => {
                let mut kick = VcpuMask::NONE;
                for i in 0..size as usize {
                    let target = (value >> (8 * i)) as u32 & 0xff;
                    kick = kick | self.set_route((offset as usize + i) & 0xff, target, false, hw);
                }
                kick
            }
            0xf00 if !V::V3 && size == 4 => {
                let sgi = super::decode_sgir(value as u32, vcpu, self.vcpu_count());
                let mut kick = VcpuMask::NONE;
                for target in sgi.targets.iter() {
                    kick = kick | self.pend_sgi(target, sgi.intid as usize, 1 << (vcpu & 7));
                }
                kick
            }
            0xf10..0xf30 if !V::V3 && size <= 4 => {
                return self.write_sgi_sources(vcpu, offset, size, value, lrs, hw);
            }
            _ => {
                let frame = Frame::Distributor;
                return self.shared_write(vcpu, vcpu, frame, offset, size, value, lrs, hw);
            }
        };
        self.settle(vcpu, kick, lrs, hw)
    }

    /// A write of vCPU `vcpu` to the redistributor of `target`; offsets as in [`Gic::redist_read`], the
    /// rest as in [`Gic::dist_write`].
    #[allow(clippy::too_many_arguments, reason = "an access is that many facts")]
    pub fn redist_write(
        &mut self,
        vcpu: usize,
        target: usize,
        offset: u64,
        size: u32,
        value: u64,
        lrs: &mut impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        if !is_aligned(offset, size) || target >= self.vcpu_count() {
            return VcpuMask::NONE;
        }
        match offset {
            0x14 if size == 4 => self.cpu_mut(target).asleep = value & 2 != 0,
            0x1_0000..0x2_0000 => {
                let (frame, offset) = (Frame::Redistributor, offset - 0x1_0000);
                return self.shared_write(vcpu, target, frame, offset, size, value, lrs, hw);
            }
            _ => {}
        }
        VcpuMask::NONE
    }

    /// Whether word `w` is reachable in this frame: with affinity routing, word 0 belongs to the
    /// redistributors (IHI0069H 12.9.7 and its like), and nothing else does.
    const fn in_frame(frame: Frame, w: usize) -> bool {
        match frame {
            Frame::Distributor => !V::V3 || w != 0,
            Frame::Redistributor => w == 0,
        }
    }

    #[allow(clippy::too_many_arguments, reason = "an access is that many facts")]
    fn shared_read(
        &mut self,
        vcpu: usize,
        owner: usize,
        frame: Frame,
        offset: u64,
        size: u32,
        lrs: &impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> u64 {
        match shared(offset) {
            Register::Bitmap(of, w) if size == 4 && Self::in_frame(frame, w) => {
                let lines = self.lines(owner, w);
                u64::from(match of {
                    Bitmap::Group => lines.group,
                    Bitmap::Enable { .. } => lines.enabled,
                    Bitmap::Pending { .. } => {
                        self.fold(vcpu, lrs);
                        self.pending_word(owner, w, hw)
                    }
                    Bitmap::Active { .. } => {
                        self.fold(vcpu, lrs);
                        self.active_word(owner, w)
                    }
                })
            }
            Register::Priority(intid) if Self::in_frame(frame, intid >> 5) => {
                let priority = &self.lines(owner, intid >> 5).priority;
                let at = |i: usize| u64::from(priority[(intid + i) & 31]);
                match size {
                    1 => at(0),
                    4 => at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24,
                    _ => 0,
                }
            }
            Register::Config(intid) if size == 4 && Self::in_frame(frame, intid >> 5) => {
                let lines = self.lines(owner, intid >> 5);
                u64::from(spread(lines.edge >> (intid & 16) & 0xffff) << 1)
            }
            _ => 0,
        }
    }

    #[allow(clippy::too_many_arguments, reason = "an access is that many facts")]
    fn shared_write(
        &mut self,
        vcpu: usize,
        owner: usize,
        frame: Frame,
        offset: u64,
        size: u32,
        value: u64,
        lrs: &mut impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        let bits = value as u32;
        let kick = match shared(offset) {
            Register::Bitmap(of, w) if size == 4 && Self::in_frame(frame, w) => match of {
                Bitmap::Group => {
                    let change = self.lines(owner, w).group ^ bits;
                    self.lines_mut(owner, w).group = bits;
                    self.reconfigured(owner, w, change, hw)
                }
                Bitmap::Enable { set } => self.enable(owner, w, bits, set, hw),
                _ => return self.change_state(vcpu, owner, of, w, bits, lrs, hw),
            },
            Register::Priority(intid) if size <= 4 && Self::in_frame(frame, intid >> 5) => {
                let w = intid >> 5;
                let lines = self.lines_mut(owner, w);
                let mut change = 0;
                for i in 0..size as usize {
                    let old = &mut lines.priority[(intid + i) & 31];
                    let new = (value >> (8 * i)) as u8 & PRIORITY_MASK;
                    if *old != new {
                        *old = new;
                        change |= 1 << ((intid + i) & 31);
                    }
                }
                self.reconfigured(owner, w, change, hw)
            }
            // The SGIs' configuration is fixed.
            Register::Config(intid)
                if size == 4 && intid != 0 && Self::in_frame(frame, intid >> 5) =>
            {
                let shift = intid & 16;
                let edge = gather(bits >> 1) << shift;
                let lines = self.lines_mut(owner, intid >> 5);
                let change = (lines.edge ^ edge) & 0xffff << shift;
                lines.edge ^= change;
                let linked = lines.hw & change;
                for bit in Bits(linked) {
                    let pintid = self.pintid(intid >> 5, bit);
                    hw.set_edge(owner, pintid, edge >> bit & 1 != 0);
                }
                self.reconfigured(owner, intid >> 5, change, hw)
            }
            _ => return VcpuMask::NONE,
        };
        self.settle(vcpu, kick, lrs, hw)
    }

    /// Marks whom a write concerns, and refreshes the writer itself if it is among them.
    #[inline(never)]
    fn settle(
        &mut self,
        vcpu: usize,
        kick: VcpuMask,
        lrs: &mut impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        self.want(kick);
        if kick.contains(vcpu) { kick.without(vcpu) | self.refresh(vcpu, lrs, hw) } else { kick }
    }

    /// Interrupts whose group, priority or trigger changed.
    fn reconfigured(
        &mut self,
        owner: usize,
        w: usize,
        change: u32,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        if change == 0 {
            return VcpuMask::NONE;
        }
        self.rearm(owner, w, change, hw);
        let lines = self.lines(owner, w);
        // A linked PPI's physical enable may have to follow on its own core.
        let follow = if w == 0 { lines.hw } else { 0 };
        self.targets(owner, w, change & (lines.signaled() | follow))
            | self.holders(owner, w, change)
    }

    /// ISENABLER and ICENABLER.
    fn enable(
        &mut self,
        owner: usize,
        w: usize,
        bits: u32,
        set: bool,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        // GICv2: SGIs are always enabled (IHI0048B 4.3.5 permits it).
        let fixed = if !V::V3 && w == 0 { SGIS } else { 0 };
        let lines = self.lines_mut(owner, w);
        let change = bits & !fixed & if set { !lines.enabled } else { lines.enabled };
        if change == 0 {
            return VcpuMask::NONE;
        }
        lines.enabled ^= change;
        let follow = if w == 0 { lines.hw } else { 0 };
        let affected = change & (lines.signaled() | follow);
        self.rearm(owner, w, change, hw);
        let kick = if affected == 0 { VcpuMask::NONE } else { self.targets(owner, w, affected) };
        if set { kick } else { kick | self.holders(owner, w, change) }
    }

    /// ISPENDR, ICPENDR, ISACTIVER and ICACTIVER: what is in the writer's list registers is taken into
    /// the model first; what is in others' becomes an intention for their refresh.
    #[allow(clippy::too_many_arguments, reason = "an access is that many facts")]
    fn change_state(
        &mut self,
        vcpu: usize,
        owner: usize,
        of: Bitmap,
        w: usize,
        bits: u32,
        lrs: &mut impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        let local = w != 0 || owner == vcpu;
        let kick = match of {
            Bitmap::Pending { set: true } => {
                let kick = self.set_pending(owner, w, bits, hw);
                if kick == VcpuMask::only(vcpu) && self.put_now(vcpu, w, bits, lrs) {
                    return VcpuMask::NONE;
                }
                return self.settle(vcpu, kick, lrs, hw);
            }
            _ if !local => self.change_held(vcpu, owner, of, w, bits, hw),
            _ => {
                let was = self.collect(vcpu, lrs, hw);
                // Its interrupts are in the model now: the shadow must not say that they are not.
                let shadow = self.cpu(vcpu).shadow;
                self.cpu_mut(vcpu).shadow = [V::EMPTY; super::MAX_LIST_REGISTERS];
                let kick = self.change_held(vcpu, owner, of, w, bits, hw);
                self.cpu_mut(vcpu).shadow = shadow;
                self.want(kick);
                kick | self.fill(vcpu, was, lrs, hw)
            }
        };
        let kick = kick.without(vcpu);
        self.want(kick);
        kick
    }

    /// ISPENDR. GICv2's SGIs ignore it (IHI0048B 4.3.7).
    fn set_pending(
        &mut self,
        owner: usize,
        w: usize,
        bits: u32,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        let bits = if !V::V3 && w == 0 { bits & !SGIS } else { bits };
        let lines = self.lines_mut(owner, w);
        let linked = bits & lines.hw;
        lines.pending |= bits & !linked;
        lines.latched |= linked;
        for bit in Bits(linked) {
            hw.set_pending(owner, self.pintid(w, bit), true);
        }
        let takable = self.takable(owner, w) & bits;
        if takable == 0 { VcpuMask::NONE } else { self.targets(owner, w, takable) }
    }

    /// The other three, when nothing of the word is in the writer's own list registers.
    fn change_held(
        &mut self,
        vcpu: usize,
        owner: usize,
        of: Bitmap,
        w: usize,
        bits: u32,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        let scope = self.scope(owner, w);
        let mut kick = VcpuMask::NONE;
        match of {
            Bitmap::Pending { .. } => {
                let bits = if !V::V3 && w == 0 { bits & !SGIS } else { bits };
                for cpu in scope.iter() {
                    let held = self.held(cpu, w).all() & bits;
                    if held != 0 {
                        let other = self.cpu_mut(cpu);
                        other.busy |= INTENDED;
                        other.cancel[w & 7] |= held;
                        kick = kick | VcpuMask::only(cpu);
                    }
                }
                let lines = self.lines_mut(owner, w);
                let waiting = lines.pending & lines.hw & bits;
                let linked = lines.hw & bits;
                lines.pending &= !bits;
                lines.latched &= !linked;
                for bit in Bits(linked) {
                    hw.set_pending(owner, self.pintid(w, bit), false);
                }
                self.deactivate(owner, w, waiting, hw);
            }
            Bitmap::Active { set: true } => {
                let mut rest = bits & !self.active_word(owner, w);
                for cpu in scope.iter() {
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
                    // One that is routed to no vCPU becomes active at the writer.
                    let to = self.targets(owner, w, 1 << bit);
                    let cpu = to.iter().next().unwrap_or(vcpu);
                    self.cpu_mut(cpu).active[w & 7] |= 1 << bit;
                    kick = kick | VcpuMask::only(cpu);
                }
                let linked = rest & self.lines(owner, w).hw;
                for bit in Bits(linked) {
                    hw.set_active(owner, self.pintid(w, bit), true);
                }
            }
            _ => {
                for cpu in scope.iter() {
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
                    }
                    self.deactivate(owner, w, in_model & !in_register, hw);
                }
                // They may be taken again, wherever they are routed.
                let again = bits & self.takable(owner, w);
                if again != 0 {
                    kick = kick | self.targets(owner, w, again);
                }
            }
        }
        kick
    }

    /// ISPENDR and ICPENDR as read: latched, signaled, in a list register, or pending physically.
    fn pending_word(&self, owner: usize, w: usize, hw: &mut impl Hardware) -> u32 {
        let lines = self.lines(owner, w);
        let mut word = lines.signaled();
        let kept = lines.hw | lines.latched | if w == 0 { SGIS } else { 0 };
        let scope = self.scope(owner, w);
        for cpu in scope.iter() {
            let held = self.held(cpu, w).pending;
            word |= held & kept & !self.cpu(cpu).cancel[w & 7];
        }
        for bit in Bits(lines.hw & !word) {
            if hw.pending(owner, self.pintid(w, bit)) {
                word |= 1 << bit;
            }
        }
        word
    }

    /// ISACTIVER and ICACTIVER as read.
    fn active_word(&self, owner: usize, w: usize) -> u32 {
        let scope = self.scope(owner, w);
        let mut word = 0;
        for cpu in scope.iter() {
            let this = self.cpu(cpu);
            word |= this.active[w & 7] | self.held(cpu, w).active & !this.force[w & 7];
        }
        word
    }

    /// `GICD_CTLR`: the group enables. ARE and DS are RAO/WI on GICv3, `RWP` reads 0.
    #[cold]
    #[inline(never)]
    fn control(&mut self, value: u32, hw: &mut impl Hardware) -> VcpuMask {
        let groups = value & 0b11;
        if groups == self.enabled_groups {
            return VcpuMask::NONE;
        }
        self.enabled_groups = groups;
        let all = VcpuMask::first(self.vcpu_count());
        for vcpu in all.iter() {
            self.rearm(vcpu, 0, !0, hw);
        }
        for w in 1..8 {
            self.rearm(0, w, !0, hw);
        }
        all
    }

    /// `GICD_IROUTER<n>` as read (IHI0069H 12.9.22).
    fn router(&self, intid: usize) -> u64 {
        let route = u64::from(self.route[intid & 255]);
        let any = u64::from(self.spi[intid >> 5 & 7].any >> (intid & 31) & 1);
        route & 0x00ff_ffff | any << 31 | (route >> 24) << 32
    }

    fn set_router(
        &mut self,
        intid: usize,
        offset: u64,
        size: u32,
        value: u64,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        let old = self.router(intid);
        let new = match (size, offset & 4) {
            (8, _) => value,
            (_, 0) => old & !0xffff_ffff | value & 0xffff_ffff,
            _ => old & 0xffff_ffff | value << 32,
        };
        let affinity = new as u32 & 0x00ff_ffff | ((new >> 32) as u32) << 24;
        self.set_route(intid, affinity, new >> 31 & 1 != 0, hw)
    }

    /// Routes an SPI. GICv3: to the vCPU of that affinity, or to vCPU 0 if `any` may take it; GICv2: to
    /// the lowest vCPU of the target list. A route that names no vCPU delivers to none.
    fn set_route(
        &mut self,
        intid: usize,
        route: u32,
        any: bool,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        let count = self.vcpu_count();
        let route = if V::V3 { route } else { route & u32::from(VcpuMask::first(count).bits()) };
        let (w, bit) = place(intid as u32);
        let Some(slot) = self.route.get_mut(intid) else {
            return VcpuMask::NONE;
        };
        *slot = route;
        let lines: &mut Lines = &mut self.spi[w];
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
        let linked = self.spi[w].hw & bit != 0;
        if linked && target < count {
            hw.route(self.pintid(w, intid & 31), target);
        }
        self.rearm(0, w, bit, hw);
        self.targets(0, w, bit & self.takable(0, w)) | self.holders(0, w, bit)
    }

    /// ITARGETSR of SPIs as read.
    fn targets_read(&self, intid: usize, size: u32) -> u64 {
        let at = |i: usize| u64::from(self.route[(intid + i) & 255]);
        match size {
            1 => at(0),
            4 => at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24,
            _ => 0,
        }
    }

    /// An SGI under the lock (GICv2).
    fn pend_sgi(&mut self, target: usize, intid: usize, senders: u8) -> VcpuMask {
        let cpu = self.cpu_mut(target);
        cpu.sources[intid & 15] |= senders;
        cpu.private.pending |= 1 << (intid & 15);
        VcpuMask::only(target)
    }

    /// `GICD_CPENDSGIR` and `GICD_SPENDSGIR` as read: a byte an SGI, a bit a sender.
    fn sgi_sources(&self, vcpu: usize, first: usize, size: u32) -> u64 {
        let mut value = 0;
        for i in 0..size.min(4) as usize {
            let intid = (first + i) & 15;
            let mut senders = self.cpu(vcpu).sources[intid];
            for &raw in self.shadow(vcpu) {
                if V::intid(raw) == intid as u32
                    && V::state(raw).pending
                    && let super::Backing::Software { source, .. } = V::decode(raw).backing
                {
                    senders |= 1 << (source & 7);
                }
            }
            value |= u64::from(senders) << (8 * i);
        }
        if size == 8 { 0 } else { value }
    }

    /// `GICD_CPENDSGIR` (0xf10) and `GICD_SPENDSGIR` (0xf20), the writer's own (IHI0048B 4.3.16,
    /// 4.3.17).
    fn write_sgi_sources(
        &mut self,
        vcpu: usize,
        offset: u64,
        size: u32,
        value: u64,
        lrs: &mut impl ListRegisters<V>,
        hw: &mut impl Hardware,
    ) -> VcpuMask {
        let was = self.collect(vcpu, lrs, hw);
        let exist = VcpuMask::first(self.vcpu_count()).bits();
        let cpu = self.cpu_mut(vcpu);
        for i in 0..size as usize {
            let intid = (offset as usize + i) & 15;
            let senders = (value >> (8 * i)) as u8 & exist;
            let sources = &mut cpu.sources[intid];
            *sources = if offset < 0xf20 { *sources & !senders } else { *sources | senders };
            let bit = 1 << intid;
            let pending = cpu.private.pending & !bit;
            cpu.private.pending = if *sources == 0 { pending } else { pending | bit };
        }
        self.fill(vcpu, was, lrs, hw)
    }
}

/// Which register file an access went to.
#[derive(Clone, Copy)]
enum Frame {
    Distributor,
    Redistributor,
}

/// Bit `i` of the lower half to bit `2 i`.
const fn spread(x: u32) -> u32 {
    let x = (x | x << 8) & 0x00ff_00ff;
    let x = (x | x << 4) & 0x0f0f_0f0f;
    let x = (x | x << 2) & 0x3333_3333;
    (x | x << 1) & 0x5555_5555
}

/// Bit `2 i` to bit `i`.
const fn gather(x: u32) -> u32 {
    let x = x & 0x5555_5555;
    let x = (x | x >> 1) & 0x3333_3333;
    let x = (x | x >> 2) & 0x0f0f_0f0f;
    let x = (x | x >> 4) & 0x00ff_00ff;
    (x | x >> 8) & 0xffff
}
