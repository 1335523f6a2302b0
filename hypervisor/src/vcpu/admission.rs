//! Admission of device interrupts on a core that VMs share. A device interrupt that has no credit
//! left is masked at the distributor until it has credit again, or waits for its VM's slot.
//!
//! A device interrupt of a VM that is off the core comes once, and then stays active until the VM
//! has handled it. So two rates are limited: how often a device interrupt takes the core for its VM
//! (`preempt`), and how often it comes while its VM has the core.

use crate::{
    arch::gic::PhysicalLine,
    trace::RecordKind,
    vm::{VcpuRef, Vm, masked::set_masked, virtual_gic::GicHardware},
};
use weir_abi::Irq;
use weir_sched::admission::TokenBucket;
use weir_units::{CoreId, IntId, Nanos};
use weir_vdev::gic::Hardware;

/// The admission rule of a device interrupt on one core.
pub struct Rule {
    vm: &'static Vm,
    intid: IntId,
    /// Priority with which the interrupt takes the core for its VM; none if it does not.
    preempt: Option<u8>,
    bucket: Option<TokenBucket>,
    /// Number of interrupts that came without credit.
    deferred: u64,
    /// Time at which the interrupt is unmasked, in ns; `u64::MAX` if it is not masked.
    pub masked_until: u64,
}

/// Decision about a device interrupt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LineVerdict {
    /// The interrupt is delivered: now if its VM has the core, otherwise when its VM's slot begins.
    Deliver,
    /// The interrupt is delivered, and takes the core for its VM with this priority.
    Preempt(u8),
    /// The interrupt is masked, and nothing is delivered now.
    Mask,
}

impl Rule {
    /// Returns the rule of an interrupt of VM `vm`, if it has one.
    #[must_use]
    pub fn new(vm: &'static Vm, irq: &Irq) -> Option<Self> {
        let bucket = (irq.interval_ns > 0)
            .then(|| TokenBucket::new(irq.burst.into(), Nanos(irq.interval_ns)));
        let preempt = (irq.preempt != 0).then_some(irq.priority);
        let rule = Self {
            vm,
            intid: IntId(irq.intid),
            preempt,
            bucket,
            deferred: 0,
            masked_until: u64::MAX,
        };
        (preempt.is_some() || rule.bucket.is_some()).then_some(rule)
    }

    /// Returns whether this is the rule of interrupt `intid`.
    #[must_use]
    pub const fn is_of(&self, intid: IntId) -> bool {
        self.intid.0 == intid.0
    }

    /// Decides about the interrupt, which came at `now`, was acknowledged, and whose priority was
    /// dropped. `is_current` states whether its VM has the core, and `may_take` returns whether an
    /// interrupt of a given priority may take the core. An interrupt that must wait because a more
    /// urgent VM has the core needs no credit.
    pub fn come(
        &mut self,
        vcpu_ref: &VcpuRef,
        core: CoreId,
        now: u64,
        is_current: bool,
        may_take: impl FnOnce(u8) -> bool,
    ) -> LineVerdict {
        let preempt = self.preempt.filter(|_| !is_current);
        if preempt.is_some_and(|priority| !may_take(priority)) {
            return LineVerdict::Deliver;
        }
        let credit = self.bucket.as_mut().map_or(Ok(()), |bucket| bucket.admit(Nanos(now)));
        match credit {
            Ok(()) => preempt.map_or(LineVerdict::Deliver, |priority| {
                vcpu_ref.record(RecordKind::LinePreempted, self.intid.0, 0, 0);
                LineVerdict::Preempt(priority)
            }),
            Err(at) => {
                self.deferred = self.deferred.saturating_add(1);
                let until = if is_current { at.0 } else { 0 };
                vcpu_ref.record(RecordKind::LineDeferred, self.intid.0, self.deferred, until);
                if !is_current {
                    return LineVerdict::Deliver;
                }
                self.mask(core, at.0);
                LineVerdict::Mask
            }
        }
    }

    /// Returns the interrupt to the distributor, which does not forward it for now. A level stays
    /// pending as long as its device holds it. An edge, or an interrupt that the guest made
    /// pending, is made pending again, and later ones merge with it.
    fn mask(&mut self, core: CoreId, until: u64) {
        let gic = self.vm.gic.lock();
        set_masked(self.intid, true);
        self.masked_until = until;
        let line = PhysicalLine::new(self.intid, core);
        line.set_enabled(false);
        if line.is_edge() || gic.is_latched(self.intid) {
            line.set_pending(true);
        }
        line.set_active(false);
    }

    /// Unmasks the interrupt, because there is credit again.
    pub fn unmask(&mut self) {
        self.masked_until = u64::MAX;
        let gic = self.vm.gic.lock();
        set_masked(self.intid, false);
        if gic.is_forwarded(self.intid) {
            GicHardware::new(self.vm).set_enabled(0, self.intid, true);
        }
    }
}
