//! Replaces `budget` in a hypervisor without this part: no VM has a memory budget.

use crate::{
    vcpu::action::Exit,
    vm::{VcpuRef, Vm},
};
use core::{convert::Infallible, ops::Deref};
use weir_units::CoreId;

/// Accesses to memory.
#[derive(Clone, Copy)]
#[expect(dead_code, reason = "without a budget, none is charged")]
pub struct Counts {
    pub reads: u64,
    pub writes: u64,
}

/// What a budget is asked after.
pub enum Event {
    Count,
    Descheduled,
}

/// The budget that no vCPU has.
pub struct Budget {
    pub deadline: u64,
    never: Infallible,
}

/// A core's access to a budget.
pub struct Handle(Budget);

impl Deref for Handle {
    type Target = Budget;

    fn deref(&self) -> &Budget {
        &self.0
    }
}

/// Declares functions of a budget that are not called.
macro_rules! never {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        impl Budget {
            $(pub fn $name(&self $(, _: $argument)*) -> $result {
                match self.never {}
            })*
        }
    };
}

never! {
    resume(&VcpuRef, CoreId) -> ();
    begin_load(&VcpuRef, CoreId) -> ();
    is_off() -> bool;
    is_loading() -> bool;
    charge(&VcpuRef, CoreId, Counts) -> ();
    come_on(&VcpuRef, CoreId) -> ();
    leave(CoreId) -> ();
    enter(CoreId) -> ();
    step(&VcpuRef, CoreId, u64, Event) -> ();
    begin_quickly(&VcpuRef, u64) -> bool;
    stop_quickly(&VcpuRef, u64) -> bool;
    is_counted() -> bool;
    holds() -> bool;
    exit() -> Exit;
    note(&VcpuRef, CoreId, bool) -> ();
}

/// Stands for what the cores of a VM share of its budget.
pub mod shared {
    pub struct VmBudget;

    impl VmBudget {
        pub const fn new() -> Self {
            Self
        }
    }
}

/// Returns that the vCPU has no budget.
pub fn start(_core: CoreId, _place: usize, _vcpu_ref: &VcpuRef) -> Option<Handle> {
    None
}

/// Refuses the call: no VM has a budget.
pub fn set_budget(setter: &Vm, _target: u64, _budget: Counts) -> bool {
    let shared::VmBudget = setter.budget;
    false
}
