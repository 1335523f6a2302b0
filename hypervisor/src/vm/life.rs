//! The lives of a VM: how one begins from the pristine image, how it ends, and what a core does meanwhile.
//!
//! The core of a VM's first vCPU leads. Whoever ends a life (a call, a fault) writes down why, and every core of the VM
//! takes its vCPU off and waits here; when all wait, the leader decides by the ending and `on_fault` what comes next. No
//! other VM is touched, and none of its locks is taken.

use super::{
    ALIVE, Ending, Seat, Start, Vm, debug, devices, focus,
    interrupts::{Lines, kick},
    pci, share, space,
};
use crate::{
    arch::{
        context::{Context, enter_guest, stop_timers},
        gic, memory, pmu, serror, sysreg, timer, wait_for_interrupt,
    },
    console,
    cpu::Core,
    mail, meter, system, trace,
    virtio::{device as virtio, link},
};
use core::sync::atomic::{AtomicBool, Ordering};
use weir_budget::Event as Budget;
use weir_model::packed::OnFault;
use weir_trace::wire::{Event, FaultKind, What};
use weir_vdev::{gic::VcpuMask, id::Controls, pl011::Pl011, psci::Power};

/// HCR_EL2: stage 2 on; interrupts and SErrors to EL2; set/way operations, SMC, ID registers, ACTLR and
/// implementation-defined registers trap, as do LORegions and error records; EL1 is 64-bit; broadcasts of the guest reach its other cores (FB, BSU); a
/// page-table walk to device memory faults (PTW).
const HCR: u64 = 1 // VM
    | 1 << 1 // SWIO
    | 1 << 2 // PTW
    | 1 << 3 // FMO
    | 1 << 4 // IMO
    | 1 << 5 // AMO
    | 1 << 9 // FB
    | 1 << 10 // BSU: inner shareable
    | 1 << 18 // TID3
    | 1 << 19 // TSC
    | 1 << 20 // TIDCP
    | 1 << 21 // TACR
    | 1 << 22 // TSW
    | 1 << 31 // RW
    | 1 << 35 // TLOR
    | 1 << 36; // TERR

/// CPTR_EL2: trace, activity monitors and SVE trap; FP and SIMD don't. The rest is RES1.
const CPTR: u64 = 0x33ff & !(1 << 10) | 1 << 20 | 1 << 30;
/// MDCR_EL2: PMU, debug registers and the statistical profiler trap.
const MDCR: u64 = 1 << 5 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 14;
/// CNTHCTL_EL2: EL1 reads the physical counter and uses its physical timer.
const CNTHCTL: u64 = 3;

/// HCR_EL2.TWI: WFI traps, on a core that others can use meanwhile.
const HCR_TWI: u64 = 1 << 13;
/// HCR_EL2.TDZ: DC ZVA is prohibited, and DCZID_EL0 says so.
const HCR_TDZ: u64 = 1 << 28;

/// What a guest can't change, on the calling core, once.
pub fn prepare_core(shared: bool) {
    let observed = system::get().is_observed();
    let observed = if observed { HCR_TDZ } else { 0 };
    let shared = if shared { HCR_TWI } else { 0 };
    sysreg::hcr_el2::write(HCR | observed | shared);
    sysreg::cptr_el2::write(CPTR);
    // MDCR_EL2.HPMN must not exceed the number of counters.
    match pmu::counters() {
        0 => sysreg::mdcr_el2::write(MDCR),
        counters => {
            sysreg::mdcr_el2::write(MDCR | counters);
            sysreg::pmuserenr_el0::write(0);
        }
    }
    sysreg::hstr_el2::write(0);
    sysreg::cnthctl_el2::write(CNTHCTL);
    // No offset: QEMU 7.2 adds it to a guest's deadline without a look at the overflow, and a guest that sets the latest deadline there is
    // would hang the machine.
    sysreg::cntvoff_el2::write(0);
    sysreg::mdscr_el1::write(0);
    sysreg::clear_controls(Controls::of(
        sysreg::id_register(7, 0),
        sysreg::id_register(7, 1),
        sysreg::id_register(4, 0),
    ));
    sysreg::vpidr_el2::write(sysreg::midr_el1::read());
    stop_timers();
}

/// Begins the first life of the VM whose first vCPU is on this core, and waits; what the core does between guests.
pub fn run(core: &mut Core) -> ! {
    if core.share.is_some() {
        share::run(core);
    }
    if let Some(seat) = core.seat
        && seat.vcpu == 0
    {
        begin(core, seat);
    }
    wait(core)
}

/// Nanoseconds between two looks at whether the broker is ready.
const BROKER_POLL: u64 = 10_000;

/// Loads the pristine image and enters the first vCPU.
fn begin(core: &mut Core, seat: &'static Seat) -> ! {
    if seat.vm.restarts() > 0 && core.meter.is_some() {
        load_charged(core, seat);
    } else {
        let index = core.index;
        space::load(system::get(), seat.vm.view(), index, || attend(core));
    }
    if seat.vm.restarts() == 0 {
        await_broker(core, seat.vm);
    }
    let (entry, device_tree) = start(seat);
    come_on(core, seat, entry, device_tree)
}

/// Waits until the broker of the VM's flows is ready, so that no packet waits for the broker's
/// start. The wait is bounded, because a broker may never become ready. A VM in a flow shares no
/// core, so the wait takes no other VM's time.
#[inline(never)]
fn await_broker(core: &mut Core, vm: &Vm) {
    let begun = timer::now_ns();
    while let Some(longest) = link::wait_for_broker(vm) {
        let now = timer::now_ns();
        if now - begun >= longest {
            console::event(vm.event(What::BrokerLate, 0));
            break;
        }
        core.arm_before(now + BROKER_POLL);
        wait_for_interrupt();
        attend(core);
    }
    core.arm();
}

/// Loads the pristine image of a VM with a memory budget, on that budget: whenever it is spent the
/// next piece waits.
fn load_charged(core: &mut Core, seat: &'static Seat) {
    let index = core.index;
    if let Some(meter) = &mut core.meter {
        meter.begin_load(seat, index);
    }
    core.arm();
    let mut load = space::Load::default();
    loop {
        attend(core);
        let Some(meter) = &mut core.meter else { return };
        if meter.holds() {
            wait_for_interrupt();
            continue;
        }
        let pieces = space::Load::CHARGED;
        let done = load.step(system::get(), seat.vm.view(), index, pieces);
        meter.charge(seat, index, pieces.accesses());
        if done {
            return;
        }
        core.arm();
    }
}

/// When the image is loaded: makes everything else what it is at the start of a life, and says where the first vCPU begins, and with what.
pub fn start(seat: &'static Seat) -> (u64, u64) {
    let vm = seat.vm;
    let (entry, device_tree) = (vm.view().vm.entry, vm.view().vm.device_tree);
    vm.gic.lock().reset(&mut Lines::new(vm));
    vm.mail.clear();
    vm.stolen_time().reset();
    *vm.uart.lock() = Pl011::new();
    *vm.power.lock() = Some(Power::new(vm.vcpu_count() as u8));
    vm.denied.store(0, Ordering::Relaxed);
    pci::open(vm);
    virtio::open(vm);
    {
        let mut ending = vm.ending.lock();
        *ending = None;
        vm.vcpu(0).parked.store(false, Ordering::Relaxed);
    }
    vm.began.store(timer::now_ns(), Ordering::Relaxed);
    seat.record(trace::Kind::VmStart, vm.restarts.load(Ordering::Relaxed), 0, 0);
    console::event(Event {
        detail: vm.restarts.load(Ordering::Relaxed),
        pc: entry,
        ..vm.event(What::VmStart, 0)
    });
    (entry, device_tree)
}

/// Enters vCPU `seat` as after a reset.
fn come_on(core: &mut Core, seat: &'static Seat, entry: u64, x0: u64) -> ! {
    let vm = seat.vm;
    let context = Context::reset(entry, x0);
    context.load();
    sysreg::vmpidr_el2::write(1 << 31 | seat.vcpu as u64);
    memory::enter_stage2(vm.root.load(Ordering::Relaxed), vm.index() as u64 + 1);
    let others = vm.gic.lock().restore(seat.vcpu, &mut Lines::new(vm));
    kick(vm, others);
    super::pmu::reset(core);
    core.acknowledged = gic::NOTHING;
    started(seat);
    debug::enter(seat);
    // A life does not begin with more budget than the last one left.
    meter::note(core, seat, true);
    meter::hold(core, seat);
    gic::enable_virtual(true);
    enter_guest(core.index, context.frame)
}

/// Notes that a vCPU has come on; on its core.
pub fn started(seat: &Seat) {
    if let Some(power) = seat.vm.power.lock().as_mut() {
        power.started(seat.vcpu as u8);
    }
    debug::reset(seat);
    seat.record(trace::Kind::VcpuOn, 0, 0, 0);
}

/// Goes on with a vCPU that was taken off for a while.
pub fn resume(core: &Core, context: &Context) -> ! {
    context.load();
    gic::enable_virtual(true);
    enter_guest(core.index, context.frame)
}

/// Goes on with a vCPU that was powered down in CPU_SUSPEND: what its list registers hold goes
/// through the model of its GIC, as the virtual interface is reset with the rest of its core.
pub fn wake(core: &Core, seat: &'static Seat, context: &Context) -> ! {
    let Seat { vm, vcpu, .. } = *seat;
    let others = vm.gic.lock().save(vcpu, &mut Lines::new(vm));
    kick(vm, others);
    context.load();
    let others = vm.gic.lock().restore(vcpu, &mut Lines::new(vm));
    kick(vm, others);
    gic::enable_virtual(true);
    enter_guest(core.index, context.frame)
}

/// Turns vCPU `vcpu` on at `entry` with `x0`; its core carries it out.
pub fn turn_on(vm: &Vm, vcpu: usize, entry: u64, x0: u64) {
    let life = vm.restarts.load(Ordering::Relaxed);
    *vm.vcpu(vcpu).start.lock() = Start { entry, x0, life, asked: true };
    mail::tell(vm.core_of(vcpu), mail::START);
}

/// Ends the life of the VM on this core; `detail` is the event that tells of it. The first to end a life says why.
pub fn end(core: &mut Core, seat: &'static Seat, ending: Ending, detail: Event) -> ! {
    let vm = seat.vm;
    let mut on = VcpuMask::NONE;
    let first = {
        let mut place = vm.ending.lock();
        let first = place.is_none();
        place.get_or_insert(ending);
        // Who is off stays off, as `claim_start` looks under this lock, and its core has nothing to stop.
        for vcpu in (0..vm.vcpu_count()).filter(|vcpu| *vcpu != seat.vcpu) {
            if !vm.vcpu(vcpu).parked.load(Ordering::Relaxed) {
                on = on | VcpuMask::only(vcpu);
            }
        }
        first
    };
    if first {
        vm.count_ending(ending, detail.detail);
        console::event(detail);
        for vcpu in on.iter() {
            mail::tell(vm.core_of(vcpu), mail::STOP);
        }
    }
    park(core, seat)
}

/// Ends the life of a VM, for a fault, from another one's core, which does not wait for it.
pub fn stop(vm: &'static Vm, kind: FaultKind) {
    {
        let mut place = vm.ending.lock();
        if place.is_some() {
            return;
        }
        *place = Some(Ending::Fault);
    }
    vm.count_ending(Ending::Fault, kind as u32);
    console::event(Event { detail: kind as u32, ..vm.event(What::VmFault, 0) });
    for &core in vm.cores() {
        mail::tell(core.into(), mail::STOP);
    }
}

/// Takes the vCPU off this core and waits for what comes next.
pub fn park(core: &mut Core, seat: &'static Seat) -> ! {
    let vm = seat.vm;
    // Before the leader sees that this vCPU is off, and before another VM has the core.
    if core.share.is_some() && serror::take() {
        stop(vm, FaultKind::SError);
    }
    seat.record(trace::Kind::VcpuOff, 0, 0, 0);
    meter::note(core, seat, false);
    stop_timers();
    super::pmu::reset(core);
    gic::enable_virtual(false);
    let others = vm.gic.lock().save(seat.vcpu, &mut Lines::new(vm));
    kick(vm, others);
    parked(seat, core.index);
    if core.share.is_some() {
        share::parked(core);
    }
    wait(core)
}

/// Says that a vCPU is off, on core `core`, to the leader.
pub fn parked(seat: &Seat, core: usize) {
    let vm = seat.vm;
    // Release: all that this vCPU did comes before the leader's next step.
    vm.vcpu(seat.vcpu).parked.store(true, Ordering::Release);
    let leader = vm.core_of(0);
    // Who goes off in the midst of a life is no news to the leader: when that ends, whoever ends it sees under the lock that this one is off.
    if leader != core && vm.ending.lock().is_some() {
        mail::tell(leader, mail::ENDED);
    }
}

/// Whether `vm` is stopping, and not for good yet.
pub fn is_ending(vm: &Vm) -> bool {
    vm.ending.lock().is_some() && !vm.halted.load(Ordering::Relaxed)
}

/// Whether the life of its VM has ended and it is not off yet.
pub fn must_stop(seat: &Seat) -> bool {
    let ended = seat.vm.ending.lock().is_some();
    ended && !seat.vm.vcpu(seat.vcpu).parked.load(Ordering::Relaxed)
}

/// What a core does while it has no guest to run.
fn wait(core: &mut Core) -> ! {
    gic::enable_virtual(false);
    loop {
        attend(core);
        if let Some(seat) = core.seat {
            if mail::take(core.index, mail::START) != 0
                && let Some((entry, x0)) = claim_start(seat)
            {
                come_on(core, seat, entry, x0);
            }
            if seat.vcpu == 0 {
                match lead(core, seat) {
                    Next::Life => begin(core, seat),
                    Next::Later(due) => core.arm_before(due),
                    Next::Nothing => {}
                }
            }
        }
        wait_for_interrupt();
    }
}

/// Where a vCPU that was turned on comes on; none when the life in which that was asked for has ended, or ends. Decided under the
/// lock that the leader looks under, so that it either sees the vCPU running or this sees the end.
pub fn claim_start(seat: &'static Seat) -> Option<(u64, u64)> {
    let vcpu = seat.vm.vcpu(seat.vcpu);
    let ending = seat.vm.ending.lock();
    let Start { entry, x0, life, asked } = {
        let mut start = vcpu.start.lock();
        let found = *start;
        start.asked = false;
        found
    };
    if !asked || ending.is_some() || life != seat.vm.restarts.load(Ordering::Relaxed) {
        return None;
    }
    vcpu.parked.store(false, Ordering::Relaxed);
    Some((entry, x0))
}

/// Takes the interrupts that are pending, and what others have to say but to a guest. Also between the chunks of a load.
pub fn attend(core: &mut Core) {
    loop {
        let iar = gic::acknowledge();
        if gic::intid(iar) >= gic::SPECIAL {
            break;
        }
        core.acknowledged = iar;
        super::traps::own_interrupt(core);
    }
    serve(core);
}

/// Carries out the messages that concern the core rather than its guest.
#[inline(always)]
pub fn serve(core: &mut Core) {
    if !mail::is_quiet(core.index) {
        serve_each(core);
    }
}

#[inline(never)]
fn serve_each(core: &mut Core) {
    if mail::take(core.index, mail::FOLD) != 0 {
        super::interrupts::fold_all(core.index);
    }
    if mail::take(core.index, mail::INPUT | mail::ROOM) != 0 {
        super::seats(core.index).for_each(devices::uart_attention);
    }
    if core.share.is_some() {
        share::serve(core);
    }
    if mail::take(core.index, mail::BUDGET) != 0
        && let (Some(meter), Some(seat)) = (&mut core.meter, core.seat)
    {
        meter.step(seat, core.index, timer::now_ns(), Budget::Count);
        core.arm();
    }
    if mail::take(core.index, mail::HAND_OVER) != 0 {
        focus::hand_over();
    }
    if mail::take(core.index, mail::CONSOLE) != 0
        && let Some(wire) = &mut core.wire
    {
        wire.drain();
    }
    // A guest that runs here was looked at before.
    let _ = mail::take(core.index, mail::STANDSTILL);
    if mail::take(core.index, mail::SHUTDOWN) != 0 {
        shut_down(core);
    }
    // Already off: nothing to stop, and the leader looks at `ending` itself.
    let is_off = |seat: &Seat| seat.vm.vcpu(seat.vcpu).parked.load(Ordering::Relaxed);
    if core.seat.is_none_or(is_off) && core.share.is_none() {
        let _ = mail::take(core.index, mail::STOP | mail::ENDED);
    }
}

/// What the leader of a VM does next.
pub enum Next {
    /// No life has ended, or none follows.
    Nothing,
    /// Another life follows, and this is the time to see to it.
    Later(u64),
    /// Another life follows now.
    Life,
}

/// When a life has ended and every vCPU is off: what comes next.
pub fn lead(core: &mut Core, seat: &'static Seat) -> Next {
    let vm = seat.vm;
    let ending = {
        let ending = vm.ending.lock();
        if vm.halted.load(Ordering::Relaxed) || !vm.is_parked() {
            return Next::Nothing;
        }
        let Some(ending) = *ending else { return Next::Nothing };
        ending
    };
    // Each life interrupts the cores that it shares for what it does and ends: not more often than it has a turn there.
    if vm.vcpu_count() > 1 {
        let due = vm.began.load(Ordering::Relaxed).saturating_add(share::round(seat));
        if timer::now_ns() < due {
            return Next::Later(due);
        }
    }
    if let Some(due) = pci::close(vm) {
        return Next::Later(due);
    }
    virtio::close(vm, core.index);
    let life = vm.restarts.load(Ordering::Relaxed);
    seat.record(trace::Kind::VmStop, life, 0, 0);
    match (ending, vm.view().on_fault()) {
        (Ending::Reset, _) | (Ending::Fault, OnFault::Restart) => {
            focus::give_back(vm, true);
            vm.restarts.fetch_add(1, Ordering::Relaxed);
            seat.record(trace::Kind::VmRestart, life.wrapping_add(1), 0, 0);
            return Next::Life;
        }
        (Ending::Off, _) => {}
        (Ending::Fault, OnFault::Halt) => console::event(vm.event(What::VmHalted, 0)),
        (Ending::Fault, OnFault::StopSystem) => {
            console::event(vm.event(What::VmHalted, 0));
            stop_system();
        }
    }
    vm.halted.store(true, Ordering::Relaxed);
    *vm.power.lock() = None;
    // Nothing of an ended VM's may interrupt a core any more.
    vm.gic.lock().reset(&mut Lines::new(vm));
    focus::give_back(vm, false);
    if !vm.is_broker() && ALIVE.fetch_sub(1, Ordering::AcqRel) == 1 {
        stop_system();
    }
    Next::Nothing
}

/// Ends the system: the console core sends the last records and turns the machine off.
fn stop_system() {
    static STOPPING: AtomicBool = AtomicBool::new(false);
    if !STOPPING.swap(true, Ordering::AcqRel) {
        mail::tell(console::core(), mail::SHUTDOWN);
    }
}

fn shut_down(core: &mut Core) -> ! {
    // What waits makes room first: the last counts must not be lost.
    if let Some(wire) = &mut core.wire {
        wire.flush();
    }
    super::report::report();
    super::report::system_event(What::SystemStop);
    if let Some(wire) = &mut core.wire {
        wire.flush();
    }
    crate::arch::psci::system_off();
    loop {
        wait_for_interrupt();
    }
}
