//! Replaces `admission` in a hypervisor without shared cores: no line has a rule.

use crate::vm::{VcpuRef, Vm};
use core::convert::Infallible;
use weir_abi::Irq;
use weir_units::{CoreId, IntId};

/// The rule that no line has.
pub struct Rule {
    pub masked_until: u64,
    never: Infallible,
}

/// What becomes of an interrupt.
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "without a rule, each interrupt is delivered")]
pub enum LineVerdict {
    Deliver,
    Preempt(u8),
    Mask,
}

impl Rule {
    /// Returns that the line has no rule.
    pub fn new(_vm: &'static Vm, _irq: &Irq) -> Option<Self> {
        None
    }

    pub fn is_of(&self, _intid: IntId) -> bool {
        match self.never {}
    }

    pub fn come(
        &self,
        _vcpu_ref: &VcpuRef,
        _core: CoreId,
        _now: u64,
        _is_current: bool,
        _may_take: impl FnOnce(u8) -> bool,
    ) -> LineVerdict {
        match self.never {}
    }

    pub fn unmask(&self) {
        match self.never {}
    }
}
