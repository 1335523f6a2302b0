//! The reset of a VM's GIC between two boots, in steps that are each short enough for a section
//! with interrupts masked.
//!
//! Between two steps other cores can use the model, and physical interrupts can arrive. The first
//! step clears the group enables, so that no interrupt is forwarded to a vCPU, and all vCPUs are
//! off their cores. A physical interrupt that arrives before its own step is therefore kept in the
//! model, and if it is linked it is disabled ([`Gic::deliver_hw`]); its step drops and deactivates
//! it. If a core acknowledged an interrupt before the distributor stopped forwarding it, and
//! delivers it after its step, it can be physically active. The later steps keep it in the model,
//! like an interrupt that is delivered after the reset: the next boot handles it or returns it to
//! the distributor, and either of these deactivates it.

use super::lr::{GicArchitecture, Hardware};
use super::{Bits, Gic, INTIDS, LineWord, MAX_VCPUS, Vcpu, place};
use weir_units::IntId;

/// Largest number of physical interrupts in a step.
const LINES: usize = 8;

/// A step of [`Gic::reset`], the first one by default.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ResetStep(ResetTarget);

/// The state that a step resets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ResetTarget {
    /// The physical interrupts of the SPIs from this INTID on.
    Lines(u8),
    /// The state that all vCPUs have in common.
    Common,
    /// The state of this vCPU.
    Vcpu(u8),
}

impl Default for ResetTarget {
    fn default() -> Self {
        Self::Lines(32)
    }
}

impl<V: GicArchitecture> Gic<V> {
    /// Does a step of the reset, which brings the VM's GIC back to its state after [`Gic::new`] and
    /// the links, and its physical SPIs to disabled, not pending and inactive. Returns the next
    /// step, or none after the last one. All vCPUs have been taken off their cores by
    /// [`Gic::save`], and none gets a core before the last step.
    pub fn reset(&mut self, step: ResetStep, hw: &mut impl Hardware<V>) -> Option<ResetStep> {
        let next = match step.0 {
            ResetTarget::Lines(first) => {
                self.enabled_groups = 0;
                self.release_from(first.into(), hw).map_or(ResetTarget::Common, ResetTarget::Lines)
            }
            ResetTarget::Common => {
                self.reset_common();
                ResetTarget::Vcpu(0)
            }
            ResetTarget::Vcpu(vcpu) => {
                self.reset_vcpu(vcpu.into());
                if vcpu + 1 >= self.vcpu_count {
                    (0..8).for_each(|w| self.reroute(w));
                    return None;
                }
                ResetTarget::Vcpu(vcpu + 1)
            }
        };
        Some(ResetStep(next))
    }

    /// Releases the relayed interrupt `intid` if it has arrived at the guest. All vCPUs have been
    /// taken off their cores and do not continue. The physical interrupt is deactivated.
    pub fn release_relayed(&mut self, intid: IntId, hw: &mut impl Hardware<V>) {
        let (w, bit) = place(intid);
        if (32..INTIDS).contains(&intid.0) && self.behind(w) & bit != 0 {
            self.release(w, bit.trailing_zeros() as usize, hw);
        }
    }

    /// Releases the next [`LINES`] SPIs from INTID `first` on that have a physical interrupt.
    /// Returns the first one that is left.
    fn release_from(&mut self, first: usize, hw: &mut impl Hardware<V>) -> Option<u8> {
        let mut done = 0;
        let mut mask = !0 << (first & 31);
        for w in first >> 5..8 {
            for bit in Bits(self.behind(w) & mask) {
                if done == LINES {
                    return Some((w << 5 | bit) as u8);
                }
                done += 1;
                self.release(w, bit, hw);
            }
            mask = !0;
        }
        None
    }

    /// Returns the SPIs of a word whose physical interrupt may have to be reset: linked ones, and
    /// relayed ones that are physically active, which is the case while they are high or masked.
    fn behind(&self, w: usize) -> u32 {
        let lines = &self.spi[w & 7];
        let mut behind = lines.hw | lines.level;
        for cpu in self.vcpu.iter().take(self.vcpu_count()) {
            behind |= cpu.masked[w & 7];
        }
        behind
    }

    /// Resets the physical interrupt of an SPI, and the SPI's state in the model.
    fn release(&mut self, w: usize, bit: usize, hw: &mut impl Hardware<V>) {
        let (pintid, mask) = (self.pintid(w, bit), 1 << (bit & 31));
        if self.spi[w & 7].hw & mask != 0 {
            hw.set_enabled(0, pintid, false);
            hw.set_edge(0, pintid, false);
            hw.route(pintid, 0);
            hw.set_pending(0, pintid, false);
        }
        if pintid.0 != 0 {
            hw.set_active(0, pintid, false);
        }
        let lines = &mut self.spi[w & 7];
        lines.pending &= !mask;
        lines.level &= !mask;
        for cpu in self.vcpu.iter_mut().take(self.vcpu_count.into()) {
            cpu.active[w & 7] &= !mask;
            cpu.masked[w & 7] &= !mask;
        }
    }

    /// Resets the state that all vCPUs have in common. The physical interrupts have been reset;
    /// those that the model still has have arrived since then.
    fn reset_common(&mut self) {
        self.waiting = 0;
        for w in 1..8 {
            let LineWord { hw, pending, level, .. } = self.spi[w];
            let mut came = LineWord { hw, pending: pending & hw, ..LineWord::RESET };
            for bit in Bits(level) {
                came.level |= u32::from(self.is_relayed(w, bit as u32)) << bit;
            }
            self.waiting |= u32::from(came.signaled() != 0) << w;
            self.spi[w] = came;
        }
        self.spi_keepers = [0; MAX_VCPUS];
        self.route = [0; 256];
        self.ready = [V::EMPTY; 256];
    }

    /// Resets the state of vCPU `vcpu`.
    fn reset_vcpu(&mut self, vcpu: usize) {
        let is_target = vcpu == 0 && (V::V3 || self.vcpu_count == 1);
        let cpu = self.cpu_mut(vcpu);
        let linked = cpu.private.hw;
        *cpu = Vcpu::RESET;
        cpu.private.hw = linked;
        if is_target {
            cpu.mine = [!0; 8];
        }
    }
}
