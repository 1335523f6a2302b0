//! Transfer of interrupt state from the list registers into the model and back.
//!
//! Both directions are in one file, because each undoes the other: the state that leaves a list
//! register (`shadow`, `gone`, `cancel`, `force`) must be in the model before [`Gic::fill`] chooses
//! again.

use super::lr::{
    Backing, Entry, GicArchitecture, Hardware, ListRegisterState, ListRegisters, Maintenance,
};
use super::order::Set;
use super::{
    Bits, CROWDED, Gic, INTENDED, MAX_LIST_REGISTERS, MAX_VCPUS, OFF, SGIS, VcpuMask, any, place,
};
use weir_units::IntId;

impl<V: GicArchitecture> Gic<V> {
    /// Brings the shadow of this vCPU's list registers up to date, for an access from another core
    /// that [`Gic::remote`] announced. The list registers are not changed.
    #[inline(never)]
    pub fn fold(&mut self, vcpu: usize, lrs: &impl ListRegisters<V>) {
        let empty = lrs.empty_mask();
        let count = self.lr_count();
        let cpu = self.cpu_mut(vcpu);
        let shadows = cpu.shadow.get_mut(..count).unwrap_or_default();
        for (i, shadow) in shadows.iter_mut().enumerate() {
            if *shadow == V::EMPTY {
                continue;
            }
            // The shadow of a register that only reports the end of its interrupt is kept until
            // `fill` overwrites it.
            if empty >> i & 1 == 0 {
                *shadow = lrs.read(i);
            } else {
                let (w, bit) = place(V::intid(*shadow));
                cpu.gone[w] |= bit;
                *shadow = V::EMPTY;
            }
        }
    }

    /// Handles the end of an interrupt by the guest. If the interrupt is relayed, its line becomes
    /// low, and it is deactivated physically at once, or when it is no longer masked.
    #[inline(never)]
    pub(super) fn end_relayed(
        &mut self,
        vcpu: usize,
        w: usize,
        bit: u32,
        hw: &mut impl Hardware<V>,
    ) {
        let n = bit.trailing_zeros();
        if self.spi[w & 7].level & bit != 0 && self.is_relayed(w, n) {
            self.spi[w & 7].level &= !bit;
            if self.vcpu.iter().all(|cpu| cpu.masked[w & 7] & bit == 0) {
                hw.set_active(vcpu, self.pintid(w, n as usize), false);
            }
        }
    }

    /// Moves the state of this vCPU's list registers into the model, applies outstanding changes,
    /// chooses again, and sets its core's PPI enables. Called when the vCPU was kicked (through
    /// [`Gic::drain`]), after [`Gic::set_level`] returned it, and at a maintenance interrupt. The
    /// causes of a maintenance interrupt are the end of a level-sensitive or shared interrupt, no
    /// pending list register while more interrupts wait, or the end of an interrupt that has no
    /// list register. Does nothing for a vCPU that is on no core. Returns the vCPUs to kick.
    #[inline(never)]
    pub fn refresh(&mut self, vcpu: usize, hw: &mut impl Hardware<V>) -> VcpuMask {
        if self.cpu(vcpu).busy & OFF != 0 {
            return VcpuMask::NONE;
        }
        self.collect(vcpu, hw);
        self.fill(vcpu, hw)
    }

    /// Takes the vCPU off its core. Its list registers are moved into the model and emptied. Its
    /// linked PPIs are physically disabled, inactive and not set pending, so that another VM's vCPU
    /// can use them. Linked SPIs stay as they are, because an active SPI belongs to this VM alone.
    /// Returns the vCPUs to kick.
    pub fn save(&mut self, vcpu: usize, hw: &mut impl Hardware<V>) -> VcpuMask {
        self.collect(vcpu, hw);
        let count = self.lr_count();
        hw.clear(count);
        self.spi_keepers[vcpu & (MAX_VCPUS - 1)] = any(&self.cpu(vcpu).active).into();
        for shadow in self.cpu_mut(vcpu).shadow.iter_mut().take(count) {
            if *shadow != V::EMPTY {
                *shadow = V::EMPTY;
            }
        }
        if self.cpu(vcpu).maintenance != Maintenance::NONE {
            hw.set_maintenance(Maintenance::NONE);
        }
        let cpu = self.cpu_mut(vcpu);
        cpu.busy |= OFF;
        cpu.maintenance = Maintenance::NONE;
        cpu.gone = [0; 8];
        let asked = core::mem::take(&mut cpu.private.asked);
        let held = cpu.private.hw & (cpu.active[0] | cpu.private.pending);
        cpu.private.pending |= asked;
        cpu.private.latched |= asked;
        let applied = core::mem::take(&mut cpu.applied);
        for bit in Bits(applied) {
            hw.set_enabled(vcpu, self.pintid(0, bit), false);
        }
        for bit in Bits(asked) {
            hw.set_pending(vcpu, self.pintid(0, bit), false);
        }
        if held != 0 {
            self.deactivate(vcpu, 0, held, hw);
        }
        // SPIs that are routed to other vCPUs and only waited for this vCPU to release them.
        let mut kick = VcpuMask::NONE;
        for w in Bits(self.waiting & !1) {
            if self.spi[w & 7].signaled() != 0 {
                let free = self.takable(vcpu, w) & !self.cpu(vcpu).mine[w & 7];
                kick = kick | self.targets(vcpu, w, free);
            }
        }
        self.want(kick.without(vcpu))
    }

    /// Empties this vCPU's list registers that are in use.
    fn empty(&mut self, vcpu: usize, lrs: &mut impl ListRegisters<V>) {
        let count = self.lr_count();
        self.spi_keepers[vcpu & (MAX_VCPUS - 1)] = 0;
        let shadows = self.cpu_mut(vcpu).shadow.get_mut(..count).unwrap_or_default();
        for (i, shadow) in shadows.iter_mut().enumerate() {
            if *shadow != V::EMPTY {
                *shadow = V::EMPTY;
                lrs.write(i, V::EMPTY);
            }
        }
    }

    /// Puts the vCPU on this core, whose list registers are empty. Restores the physical active
    /// state and the enables of its linked PPIs, unmasks the SPIs that came while it was off the
    /// core, and fills the list registers. Returns the vCPUs to kick.
    pub fn restore(&mut self, vcpu: usize, hw: &mut impl Hardware<V>) -> VcpuMask {
        let cpu = self.cpu_mut(vcpu);
        cpu.busy &= !OFF;
        let held = cpu.private.hw & (cpu.active[0] | cpu.private.pending);
        let masked = any(&cpu.masked);
        for bit in Bits(held) {
            hw.set_active(vcpu, self.pintid(0, bit), true);
        }
        if masked {
            for w in 0..8 {
                self.unmask(vcpu, w, hw);
            }
        }
        hw.take_eoi_count();
        // The list registers are empty, so only changes by other cores remain to be taken in.
        if self.cpu(vcpu).busy & INTENDED != 0 {
            self.collect(vcpu, hw);
        }
        self.fill(vcpu, hw)
    }

    /// Forwards the linked interrupts of a word that were masked for this vCPU again, and
    /// deactivates the relayed ones that the guest has ended in the meantime.
    #[inline(never)]
    fn unmask(&mut self, vcpu: usize, w: usize, hw: &mut impl Hardware<V>) {
        let mask = core::mem::take(&mut self.cpu_mut(vcpu).masked[w & 7]);
        if mask == 0 {
            return;
        }
        self.reroute(w);
        self.rearm(vcpu, w, mask, hw);
        for bit in Bits(mask & !self.spi[w & 7].level) {
            if self.is_relayed(w, bit as u32) {
                hw.set_active(vcpu, self.pintid(w, bit), false);
            }
        }
    }

    /// Moves the list registers into the model. The shadow keeps the contents of the registers,
    /// with which `fill` compares; until then it must not be used as state. `gone` records the
    /// interrupts that were in the registers.
    #[inline(never)]
    pub(super) fn collect(&mut self, vcpu: usize, hw: &mut impl Hardware<V>) {
        self.fold(vcpu, hw);
        if self.cpu(vcpu).maintenance.has(Maintenance::ENTRY_MISSING) {
            // Ends interrupts that have no list register, the most urgent first, before those with
            // one join them in `active`.
            for _ in 0..hw.take_eoi_count() {
                let active = Set::of(&self.cpu(vcpu).active);
                let Some(intid) = self.best(vcpu, &active, true) else {
                    break;
                };
                let (w, bit) = place(intid);
                self.cpu_mut(vcpu).active[w] &= !bit;
                self.cpu_mut(vcpu).gone[w] |= bit;
                self.deactivate(vcpu, w, bit, hw);
                if w != 0 {
                    self.end_relayed(vcpu, w, bit, hw);
                }
            }
        }
        for i in 0..self.lr_count() {
            let raw = self.cpu(vcpu).shadow[i & (MAX_LIST_REGISTERS - 1)];
            if raw != V::EMPTY {
                let (w, bit) = place(V::intid(raw));
                self.cpu_mut(vcpu).gone[w] |= bit;
                self.take_entry(vcpu, &V::decode(raw), hw);
                // The list register reported the end of the interrupt.
                if w != 0 && V::state(raw).is_invalid() {
                    self.end_relayed(vcpu, w, bit, hw);
                }
            }
        }
        if self.cpu(vcpu).busy & INTENDED != 0 {
            let cpu = self.cpu_mut(vcpu);
            cpu.cancel = [0; 8];
            let force = core::mem::take(&mut cpu.force);
            for (w, mask) in force.into_iter().enumerate() {
                let set = mask & self.cpu(vcpu).active[w] & self.lines(vcpu, w).hw;
                for bit in Bits(set) {
                    hw.set_active(vcpu, self.pintid(w, bit), true);
                }
            }
        }
    }

    /// Moves one list register into the model.
    fn take_entry(&mut self, vcpu: usize, entry: &Entry, hw: &mut impl Hardware<V>) {
        let (w, bit) = place(entry.intid);
        let cancel = self.cpu(vcpu).cancel[w] & bit != 0;
        let linked = matches!(entry.backing, Backing::Hardware { .. });
        let sgi = (entry.intid.0 & 15) as usize;
        let sender = match entry.backing {
            Backing::Software { source, .. } if !V::V3 && entry.intid.is_sgi() => Some(source),
            _ => None,
        };
        if entry.state.pending {
            let latched = self.lines(vcpu, w).latched & bit != 0;
            if cancel {
                if linked && !entry.state.active {
                    self.deactivate(vcpu, w, bit, hw);
                }
            } else if linked && self.has_fallen(vcpu, entry.intid, hw) {
                self.deactivate(vcpu, w, bit, hw);
            } else if linked || entry.intid.is_sgi() || latched {
                self.lines_mut(vcpu, w).pending |= bit;
                self.note_waiting(w);
                if let Some(source) = sender {
                    self.cpu_mut(vcpu).sources[sgi] |= 1 << (source & 7);
                }
            }
        }
        if entry.state.active {
            let cpu = self.cpu_mut(vcpu);
            if cpu.force[w] & bit == 0 {
                cpu.active[w] |= bit;
                if let Some(source) = sender {
                    cpu.active_source[sgi] = source as u8;
                }
                self.lines_mut(vcpu, w).taken_at[entry.intid.0 as usize & 31] = entry.priority;
            } else if cpu.active[w] & bit == 0 {
                self.deactivate(vcpu, w, bit, hw);
            }
        }
    }

    /// Returns whether a linked PPI that waits in a list register was pending because of its line
    /// alone, and the line is low now. This happens if the guest has quieted its timer after it
    /// ended the previous interrupt. A physical interrupt that is active still reads as pending
    /// while its line is high (IHI0069H 4.1.2, IHI0048B 3.2.4).
    #[inline(never)]
    pub(super) fn has_fallen(&self, vcpu: usize, intid: IntId, hw: &mut impl Hardware<V>) -> bool {
        let (w, bit) = place(intid);
        w == 0
            && self.lines(vcpu, w).latched & bit == 0
            && !hw.pending(vcpu, self.pintid(w, intid.0 as usize))
    }

    /// Removes PPIs whose line has fallen from this vCPU's list registers. The caller folds first.
    #[inline(never)]
    pub(super) fn drop_fallen(&mut self, vcpu: usize, hw: &mut impl Hardware<V>) {
        const WAITS: ListRegisterState = ListRegisterState { pending: true, active: false };
        for i in 0..self.lr_count() {
            let raw = self.cpu(vcpu).shadow[i & (MAX_LIST_REGISTERS - 1)];
            let (w, bit) = place(V::intid(raw));
            let linked = w == 0 && self.cpu(vcpu).private.hw & bit != 0;
            if linked && V::state(raw) == WAITS && self.has_fallen(vcpu, V::intid(raw), hw) {
                self.cpu_mut(vcpu).shadow[i & (MAX_LIST_REGISTERS - 1)] = V::EMPTY;
                hw.write(i, V::EMPTY);
                self.deactivate(vcpu, w, bit, hw);
            }
        }
    }

    /// Physically deactivates the linked interrupts in `mask`.
    #[inline(never)]
    pub(super) fn deactivate(&self, vcpu: usize, w: usize, mask: u32, hw: &mut impl Hardware<V>) {
        for bit in Bits(mask & self.lines(vcpu, w).hw) {
            hw.set_active(vcpu, self.pintid(w, bit), false);
        }
    }

    /// Returns waiting linked interrupts to the physical distributor, which must not forward them
    /// now. An edge, or an interrupt that ISPENDR latched, is made pending there; a level stays
    /// pending as long as its device holds it.
    fn give_back(&mut self, vcpu: usize, w: usize, mask: u32, hw: &mut impl Hardware<V>) {
        let lines = self.lines_mut(vcpu, w);
        lines.pending &= !mask;
        let latched = lines.latched & mask;
        lines.latched &= !latched;
        lines.asked |= latched;
        let edges = lines.edge & mask | latched;
        for bit in Bits(edges) {
            hw.set_pending(vcpu, self.pintid(w, bit), true);
        }
    }

    /// Enables this core's linked PPIs as the guest has configured them.
    pub(super) fn apply_private(&mut self, vcpu: usize, hw: &mut impl Hardware<V>) {
        let lines = &self.cpu(vcpu).private;
        let wanted = lines.hw & self.forwarded(lines);
        let change = wanted ^ self.cpu(vcpu).applied;
        if change != 0 {
            for bit in Bits(change) {
                hw.set_enabled(vcpu, self.pintid(0, bit), wanted >> bit & 1 != 0);
            }
            self.cpu_mut(vcpu).applied = wanted;
        }
    }

    /// Returns the interrupts of word `w` that can be put into this vCPU's list registers as
    /// pending, and the vCPUs that must report whether they still hold some of these, active or
    /// pending. A vCPU whose list register requests maintenance at the interrupt's end reports it
    /// then.
    #[inline(never)]
    pub(super) fn deliverable(&self, vcpu: usize, w: usize) -> (u32, VcpuMask) {
        let cpu = self.cpu(vcpu);
        let mut set = self.takable(vcpu, w) & cpu.mine[w & 7] & !cpu.active[w & 7];
        let mut ask = VcpuMask::NONE;
        if w != 0 && set != 0 {
            for other in self.keepers(vcpu, w).filter(|other| *other != vcpu) {
                let held = self.held_by(other, w);
                if held.silent & set != 0 {
                    ask = ask | VcpuMask::only(other);
                }
                set &= !(held.all() | self.cpu(other).active[w & 7]);
            }
        }
        (set, ask)
    }

    /// Returns the priorities by which the interrupts of word `w` are taken or, if `active`, by
    /// which they end.
    #[inline]
    fn priorities(&self, vcpu: usize, w: usize, active: bool) -> &[u8; 32] {
        let lines = self.lines(vcpu, w);
        if active { &lines.taken_at } else { &lines.priority }
    }

    /// Returns the most urgent interrupt of a set of pending or active interrupts.
    #[inline(never)]
    fn best(&self, vcpu: usize, set: &Set, active: bool) -> Option<IntId> {
        set.first(|w| self.priorities(vcpu, w, active))
    }

    /// Reduces a set of pending or active interrupts to those for which there are list registers.
    /// Returns whether there were more.
    #[inline(never)]
    fn keep_urgent(&self, vcpu: usize, set: &mut Set, active: bool) -> bool {
        let are_many = set.has_more_than(self.lr_count());
        if are_many {
            *set = set.urgent(self.lr_count(), |w| self.priorities(vcpu, w, active));
        }
        are_many
    }

    /// Chooses the interrupts for this vCPU's list registers, and writes the registers that change.
    /// `gone` holds the interrupts that [`Gic::collect`] found. Returns the vCPUs to kick.
    #[inline(never)]
    pub(super) fn fill(&mut self, vcpu: usize, hw: &mut impl Hardware<V>) -> VcpuMask {
        self.apply_private(vcpu, hw);
        let mut kick = VcpuMask::NONE;
        let mut pending = Set::NONE;
        for w in Bits(self.waiting | 1) {
            let lines = self.lines(vcpu, w);
            if lines.signaled() == 0 {
                if lines.pending | lines.level == 0 {
                    self.waiting &= !(1 << w);
                }
                continue;
            }
            kick = kick | self.choose(vcpu, w, &mut pending, hw);
        }
        let maintenance = if pending.used != 0 || any(&self.cpu(vcpu).active) {
            self.put_all(vcpu, &mut pending, hw)
        } else {
            self.empty(vcpu, hw);
            Maintenance::NONE
        };
        if any(&self.cpu(vcpu).gone) {
            kick = kick | self.let_go(vcpu);
        }
        let cpu = self.cpu_mut(vcpu);
        cpu.busy = if maintenance == Maintenance::NONE { 0 } else { CROWDED };
        if cpu.maintenance != maintenance {
            cpu.maintenance = maintenance;
            // Ends that were counted without a request do not belong to interrupts without a list
            // register.
            if maintenance.has(Maintenance::ENTRY_MISSING) {
                hw.take_eoi_count();
            }
            hw.set_maintenance(maintenance);
        }
        self.want(kick.without(vcpu))
    }

    /// Adds to `pending` the interrupts of word `w` that can go into this vCPU's list registers,
    /// and returns those that cannot to the physical distributor. Returns the vCPUs to kick.
    #[inline(never)]
    fn choose(
        &mut self,
        vcpu: usize,
        w: usize,
        pending: &mut Set,
        hw: &mut impl Hardware<V>,
    ) -> VcpuMask {
        let lines = self.lines(vcpu, w);
        let waiting = lines.pending & lines.hw;
        let back = waiting & !self.forwarded(lines);
        if waiting != 0 {
            // Considers all vCPUs: an interrupt that another vCPU has active must stay physically
            // active.
            let mut active = 0;
            for cpu in self.keepers(vcpu, w) {
                active |= waiting & self.cpu(cpu).active[w & 7];
            }
            self.give_back(vcpu, w, back | active, hw);
            self.deactivate(vcpu, w, back & !active, hw);
        }
        let (set, ask) = self.deliverable(vcpu, w);
        pending.add(w, set);
        ask
    }

    /// Puts the active interrupts of this vCPU, and as many of `pending` as fit, into the list
    /// registers. Returns the maintenance interrupts that are needed for those that do not fit.
    #[inline(never)]
    fn put_all(
        &mut self,
        vcpu: usize,
        pending: &mut Set,
        hw: &mut impl Hardware<V>,
    ) -> Maintenance {
        let mut active = Set::of(&self.cpu(vcpu).active);
        let mut has_spi = active.used & !1 != 0;
        let more_pending = self.keep_urgent(vcpu, pending, false);
        let more_active = self.keep_urgent(vcpu, &mut active, true);
        let mut first = self.best(vcpu, pending, false);
        for i in 0..self.lr_count() {
            let next = if let Some(intid) = first.take() {
                Some((intid, false))
            } else if pending.used | active.used == 0 {
                None
            } else if let Some(intid) = self.best(vcpu, &active, true) {
                Some((intid, true))
            } else {
                self.best(vcpu, pending, false).map(|intid| (intid, false))
            };
            let mut raw = V::EMPTY;
            if let Some((intid, is_active)) = next {
                let (w, bit) = place(intid);
                if is_active { &mut active } else { &mut *pending }.remove(w, bit);
                self.cpu_mut(vcpu).gone[w] &= !bit;
                has_spi |= w != 0;
                raw = self.put_entry(vcpu, intid, is_active);
                if intid.is_sgi() {
                    self.cpu_mut(vcpu).slot[intid.0 as usize & 15] = i as u8;
                }
            }
            let shadow = &mut self.cpu_mut(vcpu).shadow[i & (MAX_LIST_REGISTERS - 1)];
            if *shadow != raw {
                *shadow = raw;
                hw.write(i, raw);
            }
        }
        self.spi_keepers[vcpu & (MAX_VCPUS - 1)] = has_spi.into();
        Maintenance::NONE
            .and(Maintenance::NO_PENDING, more_pending || pending.used != 0)
            .and(Maintenance::ENTRY_MISSING, more_active || active.used != 0)
    }

    /// Returns the vCPUs that may now take the interrupts that this vCPU has released.
    #[inline(never)]
    fn let_go(&mut self, vcpu: usize) -> VcpuMask {
        let mut kick = VcpuMask::NONE;
        for w in 0..8 {
            let gone = core::mem::take(&mut self.cpu_mut(vcpu).gone[w]);
            if w != 0 && gone != 0 {
                let free = gone & self.takable(vcpu, w) & !self.cpu(vcpu).mine[w];
                kick = kick | self.targets(vcpu, w, free);
            }
        }
        kick
    }

    /// Puts the one interrupt of `bits` that has just become pending for this vCPU into a free list
    /// register, without a refresh. Returns false if that is not possible: there are several
    /// interrupts, a vCPU holds the interrupt already, or a change is outstanding.
    pub(super) fn put_now(
        &mut self,
        vcpu: usize,
        w: usize,
        bits: u32,
        lrs: &mut impl ListRegisters<V>,
    ) -> bool {
        let bits = bits & self.takable(vcpu, w);
        if !bits.is_power_of_two() || self.cpu(vcpu).busy != 0 {
            return false;
        }
        self.fold(vcpu, lrs);
        let free = lrs.empty_mask();
        let mut taken = !self.holders(vcpu, w, bits).is_empty();
        for cpu in self.keepers(vcpu, w) {
            taken |= self.cpu(cpu).active[w & 7] & bits != 0;
        }
        if free == 0 || taken {
            return false;
        }
        let i = free.trailing_zeros() as usize & (MAX_LIST_REGISTERS - 1);
        let bit = bits.trailing_zeros() as usize;
        let raw = self.put_entry(vcpu, IntId((w << 5 | bit) as u32), false);
        let cpu = self.cpu_mut(vcpu);
        cpu.shadow[i] = raw;
        if w == 0 && bit < 16 {
            cpu.slot[bit & 15] = i as u8;
        }
        if w != 0 {
            self.spi_keepers[vcpu & (MAX_VCPUS - 1)] = 1;
        }
        lrs.write(i, raw);
        true
    }

    /// Moves an interrupt's state from the model into a list register value.
    #[inline(never)]
    fn put_entry(&mut self, vcpu: usize, intid: IntId, active: bool) -> V::Raw {
        let (w, bit) = place(intid);
        let cpu = self.cpu_mut(vcpu);
        cpu.active[w] &= !bit;
        let sgi = intid.0 as usize & 15;
        let state = ListRegisterState { pending: !active, active };
        let mut source = 0;
        let relayed = w != 0 && self.is_relayed(w, bit.trailing_zeros());
        let lines = self.lines_mut(vcpu, w);
        let mut eoi = lines.edge & bit == 0 || relayed;
        let is_by_sender = !V::V3 && intid.is_sgi();
        // If the interrupt is pending in addition to being active, that is checked again at its
        // end: if both were in one list register, it would be taken next even if a more urgent
        // interrupt waits for a list register.
        if state.pending && !is_by_sender {
            if lines.hw & bit == 0 {
                lines.latched = lines.latched & !bit | lines.pending & bit;
            }
            lines.pending &= !bit;
        }
        eoi |= lines.pending & bit != 0;
        if is_by_sender {
            let cpu = self.cpu_mut(vcpu);
            if state.pending {
                source = cpu.sources[sgi].trailing_zeros() & 7;
                cpu.sources[sgi] &= !(1 << source);
            } else {
                source = u32::from(cpu.active_source[sgi]);
            }
            eoi = cpu.sources[sgi] != 0;
            if !eoi {
                cpu.private.pending &= !bit;
            }
        }
        self.compose(vcpu, intid, state, eoi, source)
    }

    /// Returns the list register value of an interrupt in the given state.
    #[inline]
    fn compose(
        &self,
        vcpu: usize,
        intid: IntId,
        state: ListRegisterState,
        eoi: bool,
        source: u32,
    ) -> V::Raw {
        let (w, bit) = place(intid);
        let lines = self.lines(vcpu, w);
        let n = intid.0 as usize & 31;
        let backing = if lines.hw & bit != 0 {
            Backing::Hardware { pintid: self.pintid(w, n) }
        } else {
            Backing::Software { eoi, source }
        };
        V::encode(&Entry {
            intid,
            state,
            priority: if state.active { lines.taken_at[n] } else { lines.priority[n] },
            group1: lines.group & bit != 0,
            backing,
        })
    }

    /// Updates the prepared values of the short paths after a change of enable, group or route, and
    /// for SPIs the physical enables. The physical enables of private interrupts are updated on
    /// their own core.
    #[inline]
    pub(super) fn rearm(&mut self, vcpu: usize, w: usize, mask: u32, hw: &mut impl Hardware<V>) {
        self.prepare(vcpu, w, mask, w != 0, hw);
    }

    /// Updates the prepared values of the short paths and, if `enables` is set, the physical
    /// enables of linked interrupts.
    #[inline(never)]
    pub(super) fn prepare(
        &mut self,
        vcpu: usize,
        w: usize,
        mask: u32,
        enables: bool,
        hw: &mut impl Hardware<V>,
    ) {
        let lines = self.lines(vcpu, w);
        let short = mask & (lines.hw | if w == 0 { SGIS } else { 0 });
        // An SPI that is routed to no vCPU, or is masked, stays in the physical distributor.
        let forwarded = self.forwarded(lines) & self.routed[w & 7];
        // An interrupt with a latch, or one that the guest has made active itself, takes the long
        // path, which handles that state.
        let slow = lines.latched | lines.asked | lines.made_active;
        let at_once = forwarded & !(lines.hw & slow);
        for bit in Bits(short) {
            let raw = if at_once >> bit & 1 != 0 {
                let state = ListRegisterState { pending: true, active: false };
                self.compose(vcpu, IntId((w << 5 | bit) as u32), state, false, 0)
            } else {
                V::EMPTY
            };
            *self.ready_mut(vcpu, w, bit) = raw;
            if enables {
                hw.set_enabled(vcpu, self.pintid(w, bit), forwarded >> bit & 1 != 0);
            }
        }
    }

    /// Updates the prepared values of the short paths after a change of priorities.
    pub(super) fn prepare_priority(&mut self, vcpu: usize, w: usize, mask: u32) {
        for bit in Bits(mask) {
            let priority = self.lines(vcpu, w).priority[bit & 31];
            let ready = self.ready_mut(vcpu, w, bit);
            if *ready != V::EMPTY {
                *ready = V::with_priority(*ready, priority);
            }
        }
    }

    /// Closes the short path of interrupts that now have a latch or were made active by the guest.
    pub(super) fn close(&mut self, vcpu: usize, w: usize, mask: u32) {
        for bit in Bits(mask) {
            *self.ready_mut(vcpu, w, bit) = V::EMPTY;
        }
    }

    #[inline]
    fn ready_mut(&mut self, vcpu: usize, w: usize, bit: usize) -> &mut V::Raw {
        if w == 0 {
            &mut self.cpu_mut(vcpu).ready[bit & 31]
        } else {
            &mut self.ready[(w & 7) << 5 | bit & 31]
        }
    }
}
