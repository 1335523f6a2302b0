//! The part of a schedule that only a core needs that several VMs share: the decision between the
//! VMs, the admission rules of the core's device interrupts, and the account of the time that EL2
//! takes for vCPUs that do not have the core.

use super::{Calls, CoreSchedule, Member};
use crate::{arch::timer, vcpu::admission::Rule, vm::VcpuRef};
use weir_abi::{MAX_VMS, schedule::MAX_RULES};
use weir_sched::scheduler::Ready;
use weir_units::Nanos;

/// Admission rules of the device interrupts routed to a core; `None` after the last rule.
pub type Rules = [Option<Rule>; MAX_RULES];

/// Returns the rules of the device interrupts of `members`, if they share their core.
pub fn rules(members: &[Option<Member>], share: bool) -> Rules {
    let mut rules = [const { None }; MAX_RULES];
    let lines = members.iter().flatten().filter(|_| share).flat_map(|member| {
        let vm = member.vcpu_ref.vm;
        vm.view().irqs.iter().filter_map(move |irq| Rule::new(vm, irq))
    });
    for (place, rule) in rules.iter_mut().zip(lines) {
        *place = Some(rule);
    }
    rules
}

impl Calls {
    fn of(vcpu_ref: &VcpuRef) -> Self {
        let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
        Self { sgis: !vm.sgis.is_empty(vcpu), changes: vm.gic.lock().is_wanted(vcpu) }
    }
}

impl CoreSchedule {
    /// Returns the entity of VM `vm`.
    #[must_use]
    pub fn entity(&self, vm: usize) -> Option<u8> {
        self.shared.as_ref().and_then(|shared| shared.entity(vm))
    }

    /// Decides which of the entities in `ready` has the core at `now`. `wake` is the time at which
    /// the next entity becomes ready.
    pub(super) fn choose(&mut self, now: u64, ready: Ready, wake: u64) -> Option<u8> {
        let mut credit = u64::MAX;
        for rule in self.rules.iter_mut().map_while(Option::as_mut) {
            if now >= rule.masked_until {
                rule.unmask();
            }
            credit = credit.min(rule.masked_until);
        }
        let decision = self.shared.as_mut()?.scheduler.step(Nanos(now), ready);
        self.until = decision.until.0.min(wake).min(credit);
        decision.run
    }

    /// Charges the time that EL2 has used since the counter was `came`, while another vCPU has the
    /// core, to the entities on behalf of which it was used, in equal parts.
    #[inline(always)]
    pub fn charge(&mut self, came: u64) {
        let account = core::mem::take(&mut self.account);
        if account != Ready::NONE {
            self.charge_to(account, came);
        }
    }

    #[inline(never)]
    fn charge_to(&mut self, account: Ready, came: u64) {
        let (Some(current), Some(shared)) = (self.current, self.shared.as_mut()) else { return };
        let entities =
            (0..MAX_VMS as u8).filter(|entity| *entity != current && account.has(*entity));
        let count = entities.clone().count() as u64;
        let used = timer::now_ns().saturating_sub(timer::ns_at(came));
        if let Some(each) = used.checked_div(count) {
            entities.for_each(|entity| shared.scheduler.charge(entity, Nanos(each)));
        }
    }

    /// Charges this interrupt to the vCPUs off the core for which new SGIs or changes were left
    /// since they were last charged for such an event.
    pub fn blame(&mut self) {
        for (place, member) in self.members.iter_mut().flatten().enumerate() {
            let (place, calls) = (place as u8, Calls::of(member.vcpu_ref));
            if self.current != Some(place) && calls != member.called {
                member.called = calls;
                self.account = self.account.with(place);
            }
        }
    }
}
