//! Reports to the host: the counters of each VM, flow and network device.

use crate::{
    arch::timer,
    console::{self, Frame, Records},
    virtio::{flows, switch},
    vm::{self, Ending, Vm},
};
use core::sync::atomic::Ordering;
use weir_trace::wire::{
    Boots, DENIALS, Denial, Denials, EXIT_CAUSES, FAULT_KINDS, FrameKind, VcpuCounters, VcpuState,
    VmState,
};
use weir_units::VcpuId;
use weir_vdev::psci::PowerState;

impl Vm {
    /// Returns the state of the VM for the host.
    fn state(&self) -> VmState {
        match *self.ending.lock() {
            Some(Ending::Off) => VmState::Off,
            Some(Ending::Fault) if self.halted.load(Ordering::Relaxed) => VmState::Halted,
            _ if self.began.load(Ordering::Relaxed) == 0 => VmState::NotStarted,
            _ => VmState::Running,
        }
    }

    fn boots(&self) -> Frame {
        // The time is read before the counts, here and below, so that an event that is missing in
        // the counts is later than this time.
        let time_ns = timer::now_ns();
        let vm = self.index();
        let mut faults = [0; FAULT_KINDS];
        for (to, from) in faults.iter_mut().zip(&self.faults) {
            *to = from.load(Ordering::Relaxed).into();
        }
        Frame::new(
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
        )
    }

    fn counters(&self, vcpu: usize) -> Frame {
        let time_ns = timer::now_ns();
        let counts = &self.vcpu(vcpu).counts;
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
        for (to, from) in exits.iter_mut().zip(&counts.exits) {
            *to = from.load(Ordering::Relaxed);
        }
        Frame::new(
            FrameKind::Counters,
            &VcpuCounters {
                time_ns,
                vm: self.index() as u8,
                vcpu: vcpu as u8,
                state: state as u8,
                reserved: 0,
                restarts: self.restarts.load(Ordering::Relaxed),
                exits,
                injected: counts.all_injected(),
            },
        )
    }

    fn denied(&self) -> Frame {
        let time_ns = timer::now_ns();
        let mut counts = [0; DENIALS];
        for (to, from) in counts.iter_mut().zip(&self.denials) {
            *to = from.load(Ordering::Relaxed);
        }
        // The broker checks packets and frames and counts those that it refuses.
        counts[Denial::Virtio as usize] += flows::refused(self) + switch::refused(self);
        Frame::new(
            FrameKind::Denials,
            &Denials { time_ns, vm: self.index() as u32, reserved: 0, counts },
        )
    }
}

/// A position in a report of the counters of every VM, flow and port of the switch.
#[derive(Clone, Copy)]
pub enum Report {
    /// Record `part` of VM `vm`: first its boots, then each of its vCPUs, last its denials.
    Vm {
        /// Index of the VM in the system.
        vm: usize,
        /// Number of the record, from 0 on.
        part: usize,
    },
    /// The record of the flow with this number.
    Flow(usize),
    /// The record of the switch port of the VM with this number, if the VM has one.
    Port(usize),
}

impl Default for Report {
    fn default() -> Self {
        Self::Vm { vm: 0, part: 0 }
    }
}

impl Records for Report {
    #[inline(never)]
    fn step(self) -> (Option<Frame>, Option<Self>) {
        match self {
            Self::Vm { vm, part } => {
                let Some(its) = vm::at(vm) else { return (None, Some(Self::Flow(0))) };
                let next = Some(Self::Vm { vm, part: part + 1 });
                match part.checked_sub(1) {
                    None => (Some(its.boots()), next),
                    Some(vcpu) if vcpu < its.vcpu_count() => (Some(its.counters(vcpu)), next),
                    Some(_) => (Some(its.denied()), Some(Self::Vm { vm: vm + 1, part: 0 })),
                }
            }
            Self::Flow(flow) => match flows::report(flow) {
                Some(counts) => {
                    (Some(Frame::new(FrameKind::Flow, &counts)), Some(Self::Flow(flow + 1)))
                }
                None => (None, Some(Self::Port(0))),
            },
            Self::Port(vm) => {
                let Some(its) = vm::at(vm) else { return (None, None) };
                let frame = switch::report(its).map(|it| Frame::new(FrameKind::Port, &it));
                (frame, Some(Self::Port(vm + 1)))
            }
        }
    }
}
