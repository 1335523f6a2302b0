//! Reports to the host: the counters of each VM, flow and network device, and events of the system.

use super::{self as vm, Ending, Vm};
use crate::{
    arch::timer,
    console, system,
    virtio::{flows, switch},
};
use core::sync::atomic::Ordering;
use weir_trace::wire::{
    Boots, DENIALS, Denial, Denials, EXIT_CAUSES, FAULT_KINDS, FrameKind, HYPERVISOR, VcpuCounters,
    VcpuState, VmState, What, WireEvent,
};
use weir_units::VcpuId;
use weir_vdev::psci::PowerState;

impl Vm {
    /// What it is doing.
    fn state(&self) -> VmState {
        match *self.ending.lock() {
            Some(Ending::Off) => VmState::Off,
            Some(Ending::Fault) if self.halted.load(Ordering::Relaxed) => VmState::Halted,
            _ if self.began.load(Ordering::Relaxed) == 0 => VmState::NotStarted,
            _ => VmState::Running,
        }
    }

    fn report(&self) {
        // Before what it is the time of: an event that is not in the counts is later.
        let time_ns = timer::now_ns();
        let vm = self.index();
        let mut faults = [0; FAULT_KINDS];
        for (to, from) in faults.iter_mut().zip(&self.faults) {
            *to = from.load(Ordering::Relaxed).into();
        }
        console::record(
            FrameKind::Boots,
            &Boots {
                time_ns,
                vm: vm as u8,
                state: self.state() as u8,
                reserved: [0; 2],
                restarts: self.restarts.load(Ordering::Relaxed),
                resets: self.resets.load(Ordering::Relaxed),
                lost: console::lost(vm),
                faults,
            },
        );
        for vcpu in 0..self.cores().len() {
            let shared = self.vcpu(vcpu);
            let on = self
                .power
                .lock()
                .as_ref()
                .is_some_and(|power| power.state(VcpuId(vcpu as u8)) != PowerState::Off);
            let state = match (self.halted.load(Ordering::Relaxed), on) {
                (true, _) => VcpuState::Halted,
                (false, true) => VcpuState::On,
                (false, false) => VcpuState::Off,
            };
            let mut exits = [0; EXIT_CAUSES];
            for (to, from) in exits.iter_mut().zip(&shared.counts.exits) {
                *to = from.load(Ordering::Relaxed);
            }
            console::record(
                FrameKind::Counters,
                &VcpuCounters {
                    time_ns,
                    vm: vm as u8,
                    vcpu: vcpu as u8,
                    state: state as u8,
                    reserved: 0,
                    restarts: self.restarts.load(Ordering::Relaxed),
                    exits,
                    injected: shared.counts.all_injected(),
                },
            );
        }
        let mut counts = [0; DENIALS];
        for (to, from) in counts.iter_mut().zip(&self.denials) {
            *to = from.load(Ordering::Relaxed);
        }
        // The broker checks packets and frames and counts those that it refuses.
        counts[Denial::Virtio as usize] += flows::refused(self) + switch::refused(self);
        console::record(
            FrameKind::Denials,
            &Denials { time_ns, vm: vm as u32, reserved: 0, counts },
        );
    }
}

/// Sends the counters of every VM.
pub fn report() {
    for vm in vm::all() {
        vm.report();
    }
    flows::report();
    switch::report();
}

/// Sends an event of the whole system, with the identity of the image.
pub fn system_event(what: What) {
    system_detail(what, 0, system::get().header.image_id);
}

/// Sends an event of the whole system, with these two facts.
pub fn system_detail(what: What, detail: u32, syndrome: u64) {
    console::event(WireEvent {
        what: what as u16,
        vm: HYPERVISOR,
        detail,
        syndrome,
        ..WireEvent::default()
    });
}
