//! Exceptions of a guest: what arrives at the vectors, and who deals with it.

use super::{
    Ending, Seat, debug, devices, focus, ids,
    interrupts::{Lines, kick},
    life, share,
};
use crate::{
    arch::{
        Frame, context::Context, gic, isb, psci as firmware, sysreg, timer, wait_for_interrupt,
    },
    console,
    cpu::Core,
    mail, meter,
    platform::{SMMU_EVENT, UART_INTID},
    trace,
    virtio::completion,
};
use weir_budget::{Counts, Event as Budget};
use weir_model::packed::{INTID_LIMIT, OnOutside};
use weir_trace::wire::{Denial, Event, ExitCause, FaultKind, What};
use weir_vdev::{
    esr::{self, DataAbort, Exception, InstructionAbort, Syndrome, SysRegAccess},
    gic::{SgiRegister, decode_sgi_register},
    inject::{self, Injection, Interrupted, Kind},
    pmu::Pmu,
    psci::{ALREADY_ON, Action, ON_PENDING, Request},
    smccc::{self, Call},
    stolen::StolenTime,
    sysreg::{Denied, Outcome},
};

/// An interrupt while a guest ran. Non-zero when the rest of the guest's registers must be saved and
/// [`handle_message`] called.
#[inline(always)]
pub extern "C" fn handle_irq(core: &mut Core) -> u64 {
    let iar = gic::acknowledge();
    let intid = gic::intid(iar);
    let Some(seat) = core.seat else { return slow(core, iar) };
    match intid {
        // First, and before what costs the others nothing: each line of these is an instruction for every device interrupt.
        32.. if intid < u32::from(INTID_LIMIT)
            && !meter::is_pmu(intid)
            && intid != UART_INTID as u32
            && intid != SMMU_EVENT as u32 =>
        {
            gic::drop_priority(iar);
            seat.interrupt(ExitCause::DeviceIrq, intid);
            if !seat.vm.gic.lock().put_shared(seat.vcpu, intid, &mut Lines::new(seat.vm)) {
                return deliver(seat, intid);
            }
        }
        gic::PPI_VIRTUAL_TIMER | gic::PPI_PHYSICAL_TIMER => {
            gic::drop_priority(iar);
            seat.interrupt(ExitCause::Timer, intid);
            if !seat.vm.gic.lock().put_private(seat.vcpu, intid, &mut Lines::new(seat.vm)) {
                return deliver(seat, intid);
            }
        }
        gic::SGI_GUEST => {
            gic::end(iar);
            seat.interrupt(ExitCause::Message, intid);
            return drain(seat);
        }
        gic::PPI_HYP_TIMER => {
            seat.counts.exit(ExitCause::OwnIrq);
            return clock(core, Some(seat), iar);
        }
        _ if intid == core.meter_intid => {
            seat.counts.exit(ExitCause::OwnIrq);
            return overflow(core, Some(seat), iar);
        }
        _ => return slow(core, iar),
    }
    0
}

/// The core's own timer: ticks, and the memory budget's periods and polls. Non-zero when the vCPU must not go on, or a report is due.
#[inline(never)]
pub fn clock(core: &mut Core, seat: Option<&'static Seat>, iar: u64) -> u64 {
    let now = timer::now_ns();
    let mut rest = 0;
    if let (Some(meter), Some(seat)) = (&mut core.meter, seat)
        && now >= meter.deadline
    {
        meter.step(seat, core.index, now, Budget::Count);
        rest = u64::from(meter.holds());
        if !meter.is_counted() {
            gic::end(iar);
            fault(core, seat, FaultKind::Uncounted, 0);
        }
    }
    if now >= core.ticks.next {
        return tick(rest, core, iar);
    }
    core.arm();
    isb();
    gic::end(iar);
    rest
}

/// The rest of [`clock`] where a tick is due: the short way does not pay for its registers, nor for moving `rest`, which comes and goes in the
/// first.
#[cold]
#[inline(never)]
fn tick(rest: u64, core: &mut Core, iar: u64) -> u64 {
    // QEMU 7.2 gives the next core nothing when a deadline has ended this one's turn; now it goes on at once, and this one has its
    // interval from when it is back.
    let rest = rest | u64::from(core.give_turn());
    core.arm();
    isb();
    gic::end(iar);
    rest
}

/// A counter reached the limit of the memory budget. Non-zero when the vCPU must not go on.
#[inline(never)]
pub fn overflow(core: &mut Core, seat: Option<&'static Seat>, iar: u64) -> u64 {
    let mut rest = 0;
    if let (Some(meter), Some(seat)) = (&mut core.meter, seat) {
        let deadline = meter.deadline;
        meter.step(seat, core.index, timer::now_ns(), Budget::Count);
        rest = u64::from(meter.holds());
        // Only where a period began meanwhile.
        if meter.deadline != deadline {
            core.arm();
        }
    }
    gic::end(iar);
    rest
}

#[cold]
fn slow(core: &mut Core, iar: u64) -> u64 {
    core.acknowledged = iar;
    1
}

/// Puts a physical interrupt into a list register, or where it waits for one. 0: the guest goes on.
#[inline(never)]
fn deliver(seat: &'static Seat, intid: u32) -> u64 {
    let Seat { vm, vcpu, .. } = *seat;
    let mask = vm.gic.lock().deliver_hw(vcpu, intid, &mut Lines::new(vm));
    kick(vm, mask);
    0
}

/// The same for an interrupt that did not come by the fast path, which counts it as an exit.
pub fn deliver_slowly(seat: &'static Seat, intid: u32) {
    seat.counts.injected();
    deliver(seat, intid);
}

/// Takes in what other vCPUs sent. 0: the guest goes on.
#[inline(never)]
pub fn drain(seat: &'static Seat) -> u64 {
    let Seat { vm, vcpu, counts, .. } = *seat;
    counts.injected();
    let mask = vm.gic.lock().drain(vcpu, &vm.mail, &mut Lines::new(vm));
    kick(vm, mask);
    0
}

/// An interrupt that the fast path left: the hypervisor's own, and messages.
pub extern "C" fn handle_message(frame: &mut Frame, core: &mut Core) {
    let Some(seat) = core.seat else { return share::handle_message(frame, core) };
    // The fast path may have ended its interrupt already.
    if core.acknowledged != gic::NOTHING || core.report {
        own_interrupt(core);
    }
    if !mail::is_quiet(core.index) {
        serve_guest(core, seat);
    }
    meter::hold(core, seat);
}

/// Deals with the interrupt in `core.acknowledged`.
pub fn own_interrupt(core: &mut Core) {
    let iar = core::mem::replace(&mut core.acknowledged, gic::NOTHING);
    let intid = gic::intid(iar);
    let seat = core.current();
    let count = |cause| {
        if let Some(seat) = seat {
            seat.interrupt(cause, intid);
        }
    };
    // Not recorded: what comes of the core's own timer and of its meter is, and under QEMU's instruction counting most ticks are nothing.
    let tick = || {
        if let Some(seat) = seat {
            seat.counts.exit(ExitCause::OwnIrq);
        }
    };
    match intid {
        gic::SGI_MESSAGE => {
            count(ExitCause::Message);
            gic::end(iar);
        }
        gic::SGI_GUEST => {
            gic::end(iar);
            match core.seat {
                Some(seat) => _ = drain(seat),
                None => share::message(core),
            }
        }
        gic::PPI_MAINTENANCE => {
            count(ExitCause::Maintenance);
            if let Some(&Seat { vm, vcpu, .. }) = seat {
                let mask = vm.gic.lock().refresh(vcpu, &mut Lines::new(vm));
                kick(vm, mask);
            }
            // Its level falls with what the model just changed; ended before, it would come again.
            isb();
            gic::end(iar);
        }
        gic::PPI_HYP_TIMER => {
            tick();
            clock(core, seat, iar);
        }
        _ if meter::is_pmu(intid) => {
            tick();
            if let Some(seat) = seat {
                super::pmu::update(core, seat);
            }
            overflow(core, seat, iar);
        }
        gic::PPI_VIRTUAL_TIMER | gic::PPI_PHYSICAL_TIMER => {
            // Of a vCPU that is being taken off, or that waits in CPU_SUSPEND.
            match seat {
                Some(seat) => {
                    gic::drop_priority(iar);
                    deliver_slowly(seat, intid);
                }
                // Of one that has just left a core that it shares: it comes again when it is back.
                None => gic::end(iar),
            }
        }
        _ if intid == UART_INTID as u32 => {
            count(ExitCause::OwnIrq);
            if let Some(wire) = &mut core.wire {
                let console::Asked { report, hand_over } = wire.receive();
                core.report |= report;
                wire.drain();
                if hand_over {
                    focus::hand_over();
                }
            }
            gic::end(iar);
        }
        _ if intid == SMMU_EVENT as u32 => {
            count(ExitCause::OwnIrq);
            super::pci::report_faults();
            gic::end(iar);
        }
        32.. if intid < u32::from(INTID_LIMIT) => {
            gic::drop_priority(iar);
            match core.seat {
                Some(seat) => deliver_slowly(seat, intid),
                None => share::deliver(core, intid),
            }
        }
        gic::SPECIAL.. => {}
        // A private interrupt that nobody enabled.
        _ => gic::end(iar),
    }
    if core::mem::take(&mut core.report) {
        super::report::report();
    }
}

/// Messages, while a guest runs on this core.
fn serve_guest(core: &mut Core, seat: &'static Seat) {
    end_standstill(core, seat);
    life::serve(core);
    if mail::take(core.index, mail::STOP) != 0 {
        life::park(core, seat);
    }
}

/// If the host says that virtual time stands still, and this core's guest is why: ends its life.
pub fn end_standstill(core: &mut Core, seat: &'static Seat) {
    if mail::take(core.index, mail::STANDSTILL) == 0 {
        return;
    }
    let guest = interrupted();
    if inject::is_stuck(&guest, sysreg::elr_el1::read()) {
        fault(core, seat, FaultKind::Vectors, guest.elr);
    }
}

/// Ends the life of the guest on this core by a fault.
pub fn fault(core: &mut Core, seat: &'static Seat, kind: FaultKind, address: u64) -> ! {
    seat.exit(ExitCause::Fault);
    seat.record(trace::Kind::VmFault, kind as u32, sysreg::esr_el2::read(), address);
    let event = Event {
        detail: kind as u32,
        syndrome: sysreg::esr_el2::read(),
        address,
        pc: sysreg::elr_el2::read(),
        guest_syndrome: sysreg::esr_el1::read(),
        guest_elr: sysreg::elr_el1::read(),
        ..seat.vm.event(What::VmFault, seat.vcpu)
    };
    life::end(core, seat, Ending::Fault, event)
}

/// An SError while a guest ran.
pub extern "C" fn handle_serror(frame: &mut Frame, core: &mut Core) {
    let _ = frame;
    match core.current() {
        Some(seat) => fault(core, seat, FaultKind::SError, 0),
        None => crate::boot::own_exception(
            sysreg::esr_el2::read(),
            sysreg::elr_el2::read(),
            sysreg::far_el2::read(),
        ),
    }
}

/// A synchronous exception of a guest. Only chooses: each of the four is a function of its own, so that the short ones
/// don't pay for the registers of the long.
pub extern "C" fn handle_sync(frame: &mut Frame, core: &mut Core) {
    let syndrome = Syndrome(sysreg::esr_el2::read());
    let Some(seat) = core.seat else { return share::handle_sync(frame, core) };
    dispatch(frame, core, seat, syndrome);
}

/// Calls who deals with it.
#[inline(always)]
pub fn dispatch(frame: &mut Frame, core: &mut Core, seat: &'static Seat, syndrome: Syndrome) {
    match syndrome.class() {
        esr::EC_HVC64 if syndrome.0 & 0xffff == 0 => call(frame, core, seat),
        esr::EC_SYSREG => system_register(frame, core, seat, SysRegAccess(syndrome.iss())),
        esr::EC_DATA_ABORT => data_abort(frame, core, seat, DataAbort(syndrome.iss())),
        _ => rare(frame, core, seat, syndrome),
    }
}

#[cold]
#[inline(never)]
fn rare(frame: &mut Frame, core: &mut Core, seat: &'static Seat, syndrome: Syndrome) {
    match syndrome.decode() {
        Exception::Smc { imm: 0 } => {
            skip();
            call(frame, core, seat);
        }
        // The calling convention has no other immediate than 0.
        Exception::Hvc { .. } => refuse_call(frame, seat, syndrome),
        Exception::Smc { .. } => {
            skip();
            refuse_call(frame, seat, syndrome);
        }
        Exception::InstructionAbort(abort) => instruction_abort(core, seat, abort),
        // WFIT, which the ID registers do not offer: it ends at once, as WFI may, since its timeout
        // would be lost.
        Exception::Wfx(WFIT) => skip(),
        Exception::Wfx(_) => {
            skip();
            share::wait_for_interrupt(frame, core);
        }
        Exception::Coprocessor(access) => {
            if syndrome.condition_passed(sysreg::spsr_el2::read()) {
                let denied = weir_vdev::sysreg::coprocessor(access);
                seat.exit(ExitCause::SystemRegister);
                seat.vm.deny(seat.vcpu, denial(denied), syndrome.0);
                inject(Kind::Undefined);
            } else {
                sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_add(syndrome.skip()));
            }
        }
        Exception::Hvc32 { .. } | Exception::Smc32 | Exception::FpTrap | Exception::Unknown(_) => {
            seat.exit(ExitCause::Other);
            seat.vm.deny(seat.vcpu, Denial::Register, syndrome.0);
            inject(Kind::Undefined);
        }
        Exception::SError(_) => fault(core, seat, FaultKind::SError, 0),
        _ => fault(core, seat, FaultKind::Unexpected, sysreg::far_el2::read()),
    }
}

/// TI of a trapped WFIT (DDI0487, D24.2, ISS of WF* instructions).
const WFIT: u8 = 2;
/// SPSR_EL2.SS: the instruction to be stepped was not executed yet.
const SPSR_SS: u64 = 1 << 21;

/// Steps over the instruction that trapped.
fn skip() {
    advance();
    // It was carried out here, so single step is done with it.
    sysreg::spsr_el2::write(sysreg::spsr_el2::read() & !SPSR_SS);
}

/// The same without a look at single step, for the path of an SGI.
#[inline(always)]
fn advance() {
    sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_add(4));
}

/// Lets the guest take an exception of its own.
fn inject(kind: Kind) {
    take(&prepare(kind));
}

/// What the guest's EL1 is told of `kind`.
fn prepare(kind: Kind) -> Injection {
    inject::inject(kind, &interrupted(), ids())
}

/// The guest on this core at the exception that brought it here.
fn interrupted() -> Interrupted {
    Interrupted {
        spsr: sysreg::spsr_el2::read(),
        elr: sysreg::elr_el2::read(),
        vbar: sysreg::vbar_el1::read(),
        sctlr: sysreg::sctlr_el1::read(),
    }
}

/// Goes on at the guest's vector.
fn take(injection: &Injection) {
    sysreg::esr_el1::write(injection.esr);
    sysreg::elr_el1::write(injection.elr);
    sysreg::spsr_el1::write(injection.spsr);
    if let Some(far) = injection.far {
        sysreg::far_el1::write(far);
    }
    sysreg::elr_el2::write(injection.pc);
    sysreg::spsr_el2::write(injection.pstate);
}

/// The instruction that was stepped over is UNDEFINED.
pub fn inject_undefined() {
    sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_sub(4));
    inject(Kind::Undefined);
}

fn denial(denied: Denied) -> Denial {
    match denied {
        Denied::Pmu => Denial::Pmu,
        Denied::Debug => Denial::Debug,
        Denied::Trace => Denial::Trace,
        Denied::ImplementationDefined => Denial::ImplementationDefined,
        Denied::SetWay => Denial::SetWay,
        Denied::Other => Denial::Register,
    }
}

/// ISS of `msr icc_sgi1r_el1, xt`, without the register (op0 3, op1 0, CRn 12, CRm 11, op2 5, write).
const WRITE_SGI1R: u32 = SysRegAccess::new([3, 0, 12, 11, 5], 0, true).0;
const RT: u32 = 0x1f << 5;

#[inline(never)]
fn system_register(frame: &mut Frame, core: &mut Core, seat: &'static Seat, access: SysRegAccess) {
    advance();
    if access.0 & !RT == WRITE_SGI1R {
        send_sgi(seat, SgiRegister::Sgi1, frame.get(access.rt()));
    } else {
        other_register(frame, core, seat, access);
    }
}

#[inline(never)]
fn other_register(frame: &mut Frame, core: &mut Core, seat: &'static Seat, access: SysRegAccess) {
    // As in `skip`.
    sysreg::spsr_el2::write(sysreg::spsr_el2::read() & !SPSR_SS);
    if access.op0() == 2 && debug::access(frame, seat, access)
        || super::pmu::access(frame, core, seat, access)
    {
        return;
    }
    let value = if access.is_write() { frame.get(access.rt()) } else { 0 };
    let outcome = weir_vdev::sysreg::access(access, value, ids());
    if let Some(denied) = outcome.denied() {
        seat.vm.deny(seat.vcpu, denial(denied), access.0.into());
    }
    seat.exit(if matches!(outcome, Outcome::Read(_)) {
        ExitCause::IdRegister
    } else {
        ExitCause::SystemRegister
    });
    match outcome {
        Outcome::Read(value) => {
            let value = if core.pmu.is_some() { Pmu::shown(access, value) } else { value };
            frame.set(access.rt(), value);
        }
        Outcome::Masked(_) if !access.is_write() => frame.set(access.rt(), 0),
        Outcome::WriteIgnored | Outcome::SetWay | Outcome::Masked(_) => {}
        Outcome::SendSgi { register, value } => send_sgi(seat, register, value),
        Outcome::Undefined(_) => inject_undefined(),
    }
}

fn send_sgi(seat: &'static Seat, register: SgiRegister, value: u64) {
    let Seat { vm, vcpu, .. } = *seat;
    seat.exit(ExitCause::Sgi);
    let sgi = decode_sgi_register(register, value, vcpu, vm.vcpu_count());
    let mask = vm.mail.post(vcpu, sgi);
    if mask.contains(vcpu) {
        drain(seat);
    }
    kick(vm, mask.without(vcpu));
}

#[inline(never)]
fn data_abort(frame: &mut Frame, core: &mut Core, seat: &'static Seat, abort: DataAbort) {
    let (hpfar, far) = (sysreg::hpfar_el2::read(), sysreg::far_el2::read());
    if let Some(access) = abort.mmio(hpfar, far) {
        let value = access.truncate(frame.get(access.reg));
        if let Some(result) = devices::access(seat, core.index, &access, value) {
            if !access.write {
                frame.set(access.reg, access.extend(result));
            }
            return skip();
        }
    }
    let address = abort.ipa(hpfar, far);
    if let Some(access) = abort.mmio(hpfar, far)
        && focus::covers(seat.vm, access.ipa)
    {
        // Another VM has the device: it reads as zero, and takes nothing.
        seat.exit(ExitCause::Other);
        if !access.write {
            frame.set(access.reg, 0);
        }
        return skip();
    }
    let kind = match abort.fault() {
        esr::Fault::External | esr::Fault::ExternalOnWalk(_) => FaultKind::External,
        _ if abort.is_on_walk() => FaultKind::TableWalk,
        _ if address.is_some_and(|ipa| devices::covers(seat.vm, ipa)) => FaultKind::Undescribed,
        _ if abort.is_write() => FaultKind::Write,
        _ => FaultKind::Read,
    };
    let walk = walk(abort.is_on_walk(), abort.fault());
    let write = abort.is_write();
    if !aborts(seat, kind, abort.0, || Kind::DataAbort { far, write, walk }) {
        fault(core, seat, kind, address.unwrap_or(far));
    }
}

/// The level of the guest's own table walk that failed, where one did. The architecture's first
/// levels are negative; a guest has 48 bits of address and so none of these.
fn walk(is_on_walk: bool, fault: esr::Fault) -> Option<u8> {
    let level = match fault {
        esr::Fault::Translation(level) | esr::Fault::Permission(level) => level,
        _ => 0,
    };
    is_on_walk.then(|| level.clamp(0, 3).unsigned_abs())
}

/// Whether the guest takes an external abort for what would be a fault of this kind, as its
/// `on_outside` says.
#[cold]
fn aborts(
    seat: &'static Seat,
    kind: FaultKind,
    syndrome: u32,
    abort: impl FnOnce() -> Kind,
) -> bool {
    let outside = matches!(
        kind,
        FaultKind::Read | FaultKind::Write | FaultKind::Fetch | FaultKind::TableWalk
    );
    if !outside || seat.vm.view().vm.on_outside != OnOutside::Abort as u8 {
        return false;
    }
    let injection = prepare(abort());
    if injection.is_endless() {
        return false;
    }
    seat.exit(ExitCause::Other);
    seat.vm.deny(seat.vcpu, Denial::Outside, syndrome.into());
    take(&injection);
    true
}

fn instruction_abort(core: &mut Core, seat: &'static Seat, abort: InstructionAbort) {
    let (hpfar, far) = (sysreg::hpfar_el2::read(), sysreg::far_el2::read());
    let kind = match abort.fault() {
        esr::Fault::External | esr::Fault::ExternalOnWalk(_) => FaultKind::External,
        _ if abort.is_on_walk() => FaultKind::TableWalk,
        _ => FaultKind::Fetch,
    };
    let walk = walk(abort.is_on_walk(), abort.fault());
    if !aborts(seat, kind, abort.0, || Kind::InstructionAbort { far, walk }) {
        fault(core, seat, kind, abort.ipa(hpfar, far).unwrap_or(far));
    }
}

fn refuse_call(frame: &mut Frame, seat: &'static Seat, syndrome: Syndrome) {
    seat.exit(ExitCause::Call);
    seat.vm.deny(seat.vcpu, Denial::Call, syndrome.0);
    frame.x[0] = smccc::NOT_SUPPORTED;
}

/// HVC or SMC with immediate 0.
#[inline(never)]
fn call(frame: &mut Frame, core: &mut Core, seat: &'static Seat) {
    let Seat { vm, vcpu, .. } = *seat;
    seat.exit(ExitCause::Call);
    let [x0, x1, x2, x3, ..] = frame.x;
    match smccc::decode(&[x0, x1, x2, x3], core.mitigations) {
        Call::Return(value) => frame.x[0] = value,
        Call::Registers(words) => {
            for (register, word) in frame.x.iter_mut().zip(words) {
                *register = word.into();
            }
        }
        Call::Restarts => frame.x[0] = vm.restarts(),
        Call::SetBudget { vm: target, reads, writes } => {
            let granted = meter::set_budget(vm, target, Counts { reads, writes });
            if !granted {
                vm.deny(vcpu, Denial::Call, x0);
            }
            frame.x[0] = if granted { 0 } else { smccc::DENIED };
        }
        Call::HandOver(to) => {
            let granted = focus::request(vm, to);
            if !granted {
                vm.deny(vcpu, Denial::Call, x0);
            }
            frame.x[0] = if granted { 0 } else { smccc::DENIED };
        }
        Call::HasDevices => frame.x[0] = focus::is_with(vm).into(),
        Call::HasStolenTime | Call::StolenTime => stolen_time(frame, seat),
        Call::Complete => {
            let taken = completion::complete(core.index, seat);
            if taken.is_none() {
                vm.deny(vcpu, Denial::Call, x0);
            }
            frame.x[0] = if taken.is_some() { 0 } else { smccc::DENIED };
            frame.x[1] = taken.unwrap_or(0);
        }
        Call::Mitigate(function) => {
            firmware::forward(function, x1);
            frame.x[0] = 0;
        }
        Call::Unknown => {
            vm.deny(vcpu, Denial::Call, x0);
            frame.x[0] = smccc::NOT_SUPPORTED;
        }
        Call::Psci(request) => power(frame, core, seat, request),
    }
}

/// PV_TIME_FEATURES and PV_TIME_ST, and what SMCCC_ARCH_FEATURES says of the first.
#[cold]
#[inline(never)]
fn stolen_time(frame: &mut Frame, seat: &'static Seat) {
    let page = seat.vm.view().vm.stolen_time;
    frame.x[0] = match frame.x[0] as u32 {
        _ if page == 0 => smccc::NOT_SUPPORTED,
        smccc::PV_TIME_ST => StolenTime::address(page, seat.vcpu),
        _ => 0,
    };
}

#[inline(never)]
fn power(frame: &mut Frame, core: &mut Core, seat: &'static Seat, request: Request) {
    let Seat { vm, vcpu, .. } = *seat;
    let action = {
        let mut power = vm.power.lock();
        let Some(power) = power.as_mut() else { return };
        power.call(vcpu as u8, request, |address| vm.view().is_ram(address))
    };
    match action {
        Action::Return(value) => {
            // A core that is on already is no offense.
            let harmless: [i64; 2] = [ALREADY_ON.into(), ON_PENDING.into()];
            if value.cast_signed() < 0 && !harmless.contains(&value.cast_signed()) {
                vm.deny(vcpu, Denial::Psci, frame.x[1]);
            }
            frame.x[0] = value;
        }
        Action::Start { vcpu: target, entry, context } => {
            frame.x[0] = 0;
            life::turn_on(vm, usize::from(target), entry, context);
        }
        Action::StopSelf => life::park(core, seat),
        Action::Standby => {
            frame.x[0] = 0;
            if core.share.is_some() {
                return share::wait_for_interrupt(frame, core);
            }
            suspend(core, seat);
            // The vCPU's state leaves the core and comes back, as when another had it meanwhile.
            let context = Context::save(frame);
            Context::reset(0, 0).load();
            life::resume(core, &context);
        }
        Action::PowerDown { entry, context } => {
            if core.share.is_some() {
                share::power_down(frame, core, entry, context);
            }
            suspend(core, seat);
            // As on a shared core, its timers and what its list registers hold are not lost.
            let timers = Context::save(frame);
            life::wake(core, seat, &Context::reset(entry, context).with_timers_of(&timers));
        }
        Action::SystemOff => life::end(core, seat, Ending::Off, vm.event(What::VmOff, vcpu)),
        Action::SystemReset => life::end(core, seat, Ending::Reset, vm.event(What::VmReset, vcpu)),
    }
}

/// Waits until the guest has an interrupt pending, with its list registers held back so that this core can sleep.
fn suspend(core: &mut Core, seat: &'static Seat) {
    let Seat { vm, vcpu, .. } = *seat;
    gic::enable_virtual(false);
    let mut noted = false;
    loop {
        life::attend(core);
        if mail::take(core.index, mail::STOP) != 0 {
            life::park(core, seat);
        }
        let pending = {
            let mut gic = vm.gic.lock();
            gic.fold(vcpu, &Lines::new(vm));
            gic.has_pending(vcpu)
        };
        if pending {
            if noted {
                meter::note(core, seat, true);
            }
            return meter::hold(core, seat);
        }
        // Only now: a vCPU with a pending interrupt does not wait, and returns no budget.
        if !noted {
            meter::note(core, seat, false);
            noted = true;
        }
        wait_for_interrupt();
    }
}
