//! The lifecycle of a VM: the steps that start it once its image is loaded, and the steps after it
//! has stopped. The run loop of the core of its first vCPU calls both.

use crate::{
    arch::timer,
    console, mail, system, trace, virtio,
    vm::{ALIVE, Ending, VcpuRef, Vm, debug, focus, pci, virtual_gic::GicHardware},
};
use core::sync::atomic::{AtomicBool, Ordering};
use weir_abi::OnFault;
use weir_sched::vcpu::VcpuEvent;
use weir_trace::wire::{What, WireEvent};
use weir_units::{Nanos, VcpuId};
use weir_vdev::{gic::ResetStep, pl011::Pl011, psci::Power};

/// The next step of the start of a VM whose image is loaded. Between two steps the core takes
/// interrupts.
#[derive(Clone, Copy)]
pub enum Start {
    /// Resets the VM's interrupts, beginning with this step.
    Interrupts(ResetStep),
    /// Resets the VM's other virtual devices.
    Devices,
    /// Reports the start. From here on the VM can stop.
    Report,
    /// No step is left.
    Done,
}

impl Default for Start {
    fn default() -> Self {
        Self::Interrupts(ResetStep::default())
    }
}

impl Start {
    /// Does the step for the VM whose first vCPU is `vcpu_ref`, and returns the next step. If none
    /// is left, the first vCPU can start.
    pub fn step(self, vcpu_ref: &'static VcpuRef) -> Option<Self> {
        let vm = vcpu_ref.vm;
        match self {
            Self::Interrupts(step) => {
                let next = vm.gic.lock().reset(step, &mut GicHardware::new(vm));
                Some(next.map_or(Self::Devices, Self::Interrupts))
            }
            Self::Devices => {
                vm.sgis.clear();
                vm.stolen_time().reset();
                *vm.uart.lock() = Pl011::new();
                *vm.power.lock() = Some(Power::new(vm.vcpu_count() as u8));
                vm.denied.store(0, Ordering::Relaxed);
                pci::open(vm);
                virtio::open(vm);
                Some(Self::Report)
            }
            Self::Report => {
                report(vcpu_ref);
                Some(Self::Done)
            }
            Self::Done => None,
        }
    }
}

/// Reports the start of a VM, which can stop from here on.
fn report(vcpu_ref: &'static VcpuRef) {
    let vm = vcpu_ref.vm;
    {
        let mut ending = vm.ending.lock();
        *ending = None;
        vm.vcpu(0).parked.store(false, Ordering::Relaxed);
    }
    vm.began.store(timer::now_ns(), Ordering::Relaxed);
    vcpu_ref.record(trace::RecordKind::VmStart, vm.restarts.load(Ordering::Relaxed), 0, 0);
    console::event(WireEvent {
        detail: vm.restarts.load(Ordering::Relaxed),
        pc: vm.view().vm.entry,
        ..vm.event(What::VmStart, 0)
    });
}

/// Records that a vCPU has started. Called on the vCPU's core.
pub fn started(vcpu_ref: &VcpuRef) {
    if let Some(power) = vcpu_ref.vm.power.lock().as_mut() {
        power.started(VcpuId(vcpu_ref.vcpu as u8));
    }
    debug::reset(vcpu_ref);
    vcpu_ref.record(trace::RecordKind::VcpuOn, 0, 0, 0);
}

/// Decides what follows when a VM is stopping and all its vCPUs are off. Called on the core of its
/// first vCPU `vcpu_ref`.
pub fn lead(vcpu_ref: &'static VcpuRef) -> VcpuEvent {
    let vm = vcpu_ref.vm;
    let ending = {
        let ending = vm.ending.lock();
        if vm.halted.load(Ordering::Relaxed) || !vm.is_parked() {
            return VcpuEvent::Settled;
        }
        let Some(ending) = *ending else { return VcpuEvent::Settled };
        ending
    };
    // A restart interrupts the cores that the VM shares, so it happens at most once per round of
    // their schedules.
    if vm.vcpu_count() > 1 {
        let round = system::get().round(vm.index(), vm.core_of(vcpu_ref.vcpu).index()).0;
        let due = vm.began.load(Ordering::Relaxed).saturating_add(round);
        if timer::now_ns() < due {
            return VcpuEvent::Deferred { due: Nanos(due.max(1)) };
        }
    }
    // The virtio devices are closed before the PCI functions, because once these are reset they are
    // not reset again.
    if !virtio::close(vm) {
        return VcpuEvent::Deferred { due: Nanos(0) };
    }
    if let Some(due) = pci::close(vm) {
        return VcpuEvent::Deferred { due: Nanos(due.max(1)) };
    }
    let boot = vm.restarts.load(Ordering::Relaxed);
    vcpu_ref.record(trace::RecordKind::VmStop, boot, 0, 0);
    match (ending, vm.view().on_fault()) {
        (Ending::Reset, _) | (Ending::Fault, OnFault::Restart) => {
            focus::give_back(vm, true);
            vm.restarts.fetch_add(1, Ordering::Relaxed);
            vcpu_ref.record(trace::RecordKind::VmRestart, boot.wrapping_add(1), 0, 0);
            VcpuEvent::Restarts
        }
        (Ending::Off, _) => VcpuEvent::Halts,
        (Ending::Fault, _) => {
            console::event(vm.event(What::VmHalted, 0));
            VcpuEvent::Halts
        }
    }
}

/// Does a step of stopping VM `vm` for good, after its vCPUs are off. Called on the core of its
/// first vCPU. Returns the next step, or none if the VM has stopped. Between two steps the core
/// takes interrupts.
pub fn halt(vm: &'static Vm, step: ResetStep) -> Option<ResetStep> {
    vm.halted.store(true, Ordering::Relaxed);
    *vm.power.lock() = None;
    // No interrupt of a stopped VM may reach a core.
    let next = vm.gic.lock().reset(step, &mut GicHardware::new(vm));
    if next.is_some() {
        return next;
    }
    focus::give_back(vm, false);
    let last = !vm.is_broker() && ALIVE.fetch_sub(1, Ordering::AcqRel) == 1;
    let fault = matches!(*vm.ending.lock(), Some(Ending::Fault));
    // Done last, so that the final report shows the VM as halted.
    if last || fault && vm.view().on_fault() == OnFault::StopSystem {
        stop_system();
    }
    None
}

/// Stops the system: every core stops, then the console core sends the last records and turns the
/// machine off.
fn stop_system() {
    static STOPPING: AtomicBool = AtomicBool::new(false);
    if !STOPPING.swap(true, Ordering::AcqRel) {
        mail::send_to_all(mail::SHUTDOWN);
    }
}
