//! Messages from other cores and from the host.

use super::{action::Exit, cpu::Core, devices, schedule::leads};
use crate::{
    arch::{gic, timer, wait_for_interrupt},
    budget::Event as BudgetEvent,
    console, mail, system, trace,
    vm::{self, ending, focus, virtual_gic},
};
use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, Ordering},
};
use weir_sched::vcpu::{VcpuEvent, VcpuState};

/// The longest time that the console core waits for the other cores when the system stops, in ns:
/// many times the longest section with interrupts masked.
const STOP_LIMIT_NS: u64 = 1_000_000;

/// Carries out the messages in this core's mailbox.
#[inline(always)]
pub fn serve(core: &mut Core) -> Exit {
    if mail::is_quiet(core.id) { Exit::RESUME } else { serve_each(core) }
}

#[inline(never)]
fn serve_each(core: &mut Core) -> Exit {
    if mail::take(core.id, mail::FOLD) != 0 {
        virtual_gic::fold_all(core.id);
    }
    if mail::take(core.id, mail::INPUT | mail::ROOM) != 0 {
        vm::vcpus_of_core(core.id).for_each(devices::uart_attention);
    }
    let exit = serve_vcpus(core);
    if mail::take(core.id, mail::HAND_OVER) != 0 {
        focus::hand_over();
    }
    if mail::take(core.id, mail::CONSOLE) != 0
        && let Some(wire) = &mut core.wire
    {
        wire.drain();
    }
    if mail::take(core.id, mail::SHUTDOWN) != 0 {
        shut_down(core);
    }
    exit
}

/// Carries out the messages that concern the vCPUs of this core.
fn serve_vcpus(core: &mut Core) -> Exit {
    let index = core.id;
    let freed = mail::take(index, mail::BUDGET) != 0;
    let start = mail::take(index, mail::START) != 0;
    let stop = mail::take(index, mail::STOP) != 0;
    let ended = mail::take(index, mail::ENDED) != 0;
    let Some(schedule) = core.schedule.as_deref_mut() else { return Exit::RESUME };
    schedule.rouse();
    schedule.stale |= start | stop | ended | freed;
    let (current, mut account) = (schedule.current, schedule.account);
    let shares = schedule.shared.is_some();
    for (place, member) in schedule.members() {
        let is_current = current == Some(place);
        if start
            && member.state() == VcpuState::Off
            && let Some((entry, x0)) = ending::claim_start(member.vcpu_ref)
        {
            member.come_on(VcpuEvent::TurnedOn, index, entry, x0);
            account = account.with(place);
        }
        if stop && !is_current && ending::must_stop(member.vcpu_ref) {
            member.vcpu_ref.record(trace::RecordKind::VcpuOff, 0, 0, 0);
            member.go_off(index);
            account = account.with(place);
            // As in `run::park`: from now on other vCPUs can use this vCPU's budget.
            if let (false, Some(budget)) = (shares, member.budget.as_mut()) {
                budget.note(member.vcpu_ref, index, false);
            }
        }
        if ended && member.state() == VcpuState::Off && leads(member.vcpu_ref) {
            member.befall(VcpuEvent::OthersOff);
            account = account.with(place);
        }
        let budget = if is_current { &mut core.budget } else { &mut member.budget };
        let Some(budget) = budget.as_mut() else { continue };
        if freed && (is_current || budget.holds()) {
            let event = if is_current { BudgetEvent::Count } else { BudgetEvent::Descheduled };
            budget.step(member.vcpu_ref, index, timer::now_ns(), event);
            account = account.with(place);
        }
    }
    schedule.account = account;
    if freed {
        core.arm();
    }
    let must_stop = stop && core.current.is_some_and(ending::must_stop);
    if must_stop { Exit::OFF } else { Exit::RESUME }
}

/// Stops this core for good. The console core also sends the bytes that wait for the host and the
/// last report, and turns the machine off.
fn shut_down(core: &mut Core) -> ! {
    static STOPPED: AtomicU32 = AtomicU32::new(0);
    // Release: the counts of this core are written before; the console core acquires them and
    // reports them.
    STOPPED.fetch_add(1, Ordering::Release);
    if core.id == console::core() {
        // A core that has failed does not answer, so the wait is bounded.
        let due = timer::now_ns().saturating_add(STOP_LIMIT_NS);
        while STOPPED.load(Ordering::Acquire) < system::get().header.cores && timer::now_ns() < due
        {
            spin_loop();
        }
        end_system(core);
    }
    // All interrupts are held back, because a core that a pending interrupt woke again and again
    // would waste power.
    gic::hold_all();
    loop {
        wait_for_interrupt();
    }
}

/// Sends the bytes that wait for the host and the last report, and turns the machine off.
fn end_system(core: &mut Core) {
    if let Some(wire) = &mut core.wire {
        wire.flush();
    }
    crate::start::power_off();
}
