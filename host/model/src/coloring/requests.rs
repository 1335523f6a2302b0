//! What a file requests of colors, banks and TLB sets.

use crate::keys::page_classes::Group;
use crate::keys::system::System;
use crate::table::At;
use std::ops::Range;

/// What a file requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    pub dram: Option<At<String>>,
    pub groups: Vec<Group>,
    pub hypervisor: Request,
    pub broker: Request,
    /// Of each VM, in the order of the file.
    pub vms: Vec<Request>,
}

/// What one owner requests, or nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub colors: Option<At<String>>,
    pub banks: Option<At<String>>,
    pub tlb_colors: Option<At<String>>,
    /// The owner's table.
    pub span: Range<usize>,
}

impl Requests {
    /// Those of a system file.
    pub(crate) fn of(raw: &System) -> Self {
        let request = |colors: &Option<At<String>>, banks: &Option<At<String>>, span| Request {
            colors: colors.clone(),
            banks: banks.clone(),
            tlb_colors: None,
            span,
        };
        let At { value: hypervisor, span } = &raw.hypervisor;
        let hypervisor = request(&hypervisor.colors, &hypervisor.banks, span.clone());
        let At { value: broker, span } = &raw.broker;
        let vm = |vm: &At<crate::keys::system::Vm>| Request {
            tlb_colors: vm.tlb_colors.clone(),
            ..request(&vm.colors, &vm.banks, vm.span.clone())
        };
        Self {
            dram: raw.dram.clone(),
            groups: raw.group.clone(),
            hypervisor,
            broker: request(&broker.colors, &broker.banks, span.clone()),
            vms: raw.vms().iter().map(vm).collect(),
        }
    }
}

impl Request {
    /// Whether there is any.
    pub(crate) const fn is_any(&self) -> bool {
        self.colors.is_some() || self.banks.is_some()
    }
}
