//! Synchronous exceptions and SErrors of a guest: selects the handler of each exception and carries
//! it out. A handler returns what the run loop must do next; it never switches vCPUs itself.

use super::{
    action::Exit,
    cpu::Core,
    devices::{self, Trapped},
    fault::fault,
    inject::{inject, inject_undefined, prepare, take},
    irq::drain,
    pmu,
};
use crate::{
    arch::{
        Frame,
        gic::Version,
        pmu::granted::VirtualPmu,
        sysreg::{self, cntpct_el0},
    },
    budget::{self, Counts},
    start,
    trace::RecordKind,
    virtio::{self, Answer, Completions, calls},
    vm::{
        Ending, VcpuRef, debug, ending, focus, ids,
        virtio::notify::Notified,
        virtual_gic::{kick, kick_some},
    },
};
use weir_abi::OnOutside;
use weir_trace::{
    record::MOST_OTHER,
    wire::{Denial, ExitCause, FaultKind, What},
};
use weir_units::{Ipa, VcpuId};
use weir_vdev::{
    esr::{self, DataAbort, Exception, InstructionAbort, Syndrome, SysRegAccess},
    gic::{self, Sgi, SgiRegister, VcpuMask, decode_sgi_register, decode_sgir},
    inject::InjectedException,
    psci::{ALREADY_ON, ON_PENDING, PsciAction as Power, PsciRequest},
    smccc::{self, BrokerCall, Call, Mark, Point},
    stolen::StolenTime,
    sysreg::{Denied, SysRegOutcome},
};

/// Handles an SError that was taken while a guest ran.
pub extern "C" fn handle_serror(core: &mut Core) -> Exit {
    match core.current {
        Some(vcpu_ref) => fault(vcpu_ref, FaultKind::SError, 0),
        // Only exceptions from a guest lead here, and a guest has a vCPU.
        None => Exit::LOOK,
    }
}

/// Handles an HVC or SMC from AArch64. Only x0 to x18 of `frame` are saved. The vectors save the
/// other registers before the run loop acts.
pub extern "C" fn handle_call(frame: &mut Frame, core: &mut Core, syndrome: Syndrome) -> Exit {
    let Some(vcpu_ref) = core.current else { return Exit::LOOK };
    if syndrome.class() == esr::EC_SMC64 {
        skip(syndrome);
    }
    vcpu_ref.exit_by(ExitCause::Call, syndrome.0);
    if syndrome.0 & IMMEDIATE == 0 {
        let [x0, x1, x2, x3, ..] = frame.x;
        if let Some(value) = smccc::constant(x0) {
            frame.x[0] = value;
            return Exit::RESUME;
        }
        if let Some(call) = BrokerCall::decode([x0, x1, x2, x3])
            && vcpu_ref.vm.is_broker()
        {
            return broker_call(frame, vcpu_ref, call);
        }
    }
    call(frame, core, syndrome, vcpu_ref)
}

/// Carries out a call of the broker. Each kind of call is a separate function, so that none saves
/// the registers of another.
#[inline(always)]
fn broker_call(frame: &mut Frame, vcpu_ref: &'static VcpuRef, call: BrokerCall) -> Exit {
    match call {
        BrokerCall::Complete { devices } => complete(frame, vcpu_ref, devices),
        BrokerCall::StartEngine { from, to, len } => {
            let is_started = virtio::engine::start(vcpu_ref, from, to, len);
            answer(frame, vcpu_ref, is_started.then_some(0))
        }
        BrokerCall::FinishEngine { gives_up } => {
            answer(frame, vcpu_ref, virtio::engine::finish(vcpu_ref, gives_up))
        }
    }
}

/// Returns `value` to the guest as the result of its call, or that the call is denied.
#[inline(always)]
fn answer(frame: &mut Frame, vcpu_ref: &VcpuRef, value: Option<u64>) -> Exit {
    match value {
        Some(value) => frame.x[0] = value,
        None => deny_call(frame, vcpu_ref),
    }
    Exit::RESUME
}

#[cold]
#[inline(never)]
fn deny_call(frame: &mut Frame, vcpu_ref: &VcpuRef) {
    vcpu_ref.vm.deny(vcpu_ref.vcpu, Denial::Call, frame.x[0]);
    frame.x[0] = smccc::DENIED;
}

#[inline(never)]
fn complete(frame: &mut Frame, vcpu_ref: &VcpuRef, devices: u64) -> Exit {
    match calls::complete(vcpu_ref, devices) {
        Completions::Taken(ticks) => [frame.x[0], frame.x[1]] = [0, ticks],
        // The program counter returns to the call instruction, whose operand is now the rest of its
        // devices.
        Completions::Left(rest) => {
            frame.x[1] = rest;
            sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_sub(4));
        }
        Completions::Denied => deny_call(frame, vcpu_ref),
    }
    Exit::RESUME
}

/// The immediate of an HVC or SMC in its syndrome.
const IMMEDIATE: u64 = 0xffff;

/// Handles an access to a system register. Only x0 to x18 of `frame` are saved, and the access uses
/// one of these. The vectors save the other registers before the run loop acts.
pub extern "C" fn handle_register(frame: &mut Frame, core: &mut Core, syndrome: Syndrome) -> Exit {
    let Some(vcpu_ref) = core.current else { return Exit::LOOK };
    system_register(frame, core, vcpu_ref, SysRegAccess(syndrome.iss()))
}

/// Handles a data abort. As in `handle_register`, only x0 to x18 of `frame` may be saved, and then
/// the access uses one of these.
pub extern "C" fn handle_data_abort(
    frame: &mut Frame,
    core: &mut Core,
    syndrome: Syndrome,
) -> Exit {
    let Some(vcpu_ref) = core.current else { return Exit::LOOK };
    data_abort(frame, core, syndrome, vcpu_ref)
}

/// Handles any other synchronous exception of a guest. It only selects the handler: each handler is
/// a separate function, so that the short ones do not save the registers of the long ones.
pub extern "C" fn handle_sync(frame: &mut Frame, core: &mut Core, syndrome: Syndrome) -> Exit {
    let Some(vcpu_ref) = core.current else { return Exit::LOOK };
    if syndrome.class() == esr::EC_SYSREG {
        return system_register(frame, core, vcpu_ref, SysRegAccess(syndrome.iss()));
    }
    rare(vcpu_ref, syndrome)
}

#[cold]
#[inline(never)]
fn rare(vcpu_ref: &'static VcpuRef, syndrome: Syndrome) -> Exit {
    match syndrome.decode() {
        Exception::InstructionAbort(abort) => return instruction_abort(vcpu_ref, abort),
        Exception::Wfx(kind) => {
            let waits = syndrome.condition_passed(sysreg::spsr_el2::read());
            skip(syndrome);
            // WFIT, which the ID registers do not offer, ends at once, as WFI may: its timeout
            // would be lost if it waited.
            if waits && kind != WFIT {
                return Exit::WAIT;
            }
        }
        Exception::Coprocessor(access) => {
            if syndrome.condition_passed(sysreg::spsr_el2::read()) {
                let denied = weir_vdev::sysreg::coprocessor(access);
                vcpu_ref.rare_exit(ExitCause::SystemRegister);
                vcpu_ref.vm.deny(vcpu_ref.vcpu, denial(denied), syndrome.0);
                inject(InjectedException::Undefined);
            } else {
                skip(syndrome);
            }
        }
        Exception::Hvc32 { .. } | Exception::Smc32 | Exception::FpTrap | Exception::Unknown(_) => {
            vcpu_ref.rare_exit(ExitCause::Other);
            vcpu_ref.vm.deny(vcpu_ref.vcpu, Denial::Register, syndrome.0);
            inject(InjectedException::Undefined);
        }
        Exception::SError(_) => return fault(vcpu_ref, FaultKind::SError, 0),
        _ => return fault(vcpu_ref, FaultKind::Unexpected, sysreg::far_el2::read()),
    }
    Exit::RESUME
}

/// TI of a trapped WFIT (DDI0487, D24.2, ISS of WF* instructions).
const WFIT: u8 = 2;

/// Advances the program counter past the instruction that trapped, which was carried out here or
/// failed its condition.
fn skip(syndrome: Syndrome) {
    sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_add(syndrome.instruction_len()));
    sysreg::spsr_el2::write(Syndrome::behind(sysreg::spsr_el2::read()));
}

/// Advances the program counter past an AArch64 instruction, without handling single step, for the
/// path of an SGI.
#[inline(always)]
fn advance() {
    sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_add(4));
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

/// ISS of `msr icc_sgi1r_el1, xt`, without the register number (op0 3, op1 0, CRn 12, CRm 11, op2
/// 5, write).
const WRITE_SGI1R: u32 = SysRegAccess::new([3, 0, 12, 11, 5], 0, true).0;
const RT: u32 = 0x1f << 5;

#[inline(never)]
fn system_register(
    frame: &mut Frame,
    core: &mut Core,
    vcpu_ref: &'static VcpuRef,
    access: SysRegAccess,
) -> Exit {
    advance();
    if access.0 & !RT == WRITE_SGI1R {
        send_sgi(vcpu_ref, SgiRegister::Sgi1, frame.get(access.rt()))
    } else {
        other_register(frame, core, vcpu_ref, access)
    }
}

#[inline(never)]
fn other_register(
    frame: &mut Frame,
    core: &mut Core,
    vcpu_ref: &'static VcpuRef,
    access: SysRegAccess,
) -> Exit {
    // The instruction ends a single step of the guest.
    sysreg::spsr_el2::write(Syndrome::behind(sysreg::spsr_el2::read()));
    if access.op0() == 2 && debug::access(frame, vcpu_ref, access)
        || pmu::access(frame, core, vcpu_ref, access)
    {
        return Exit::RESUME;
    }
    let value = if access.is_write() { frame.get(access.rt()) } else { 0 };
    let outcome = weir_vdev::sysreg::access(access, value, ids());
    if let Some(denied) = outcome.denied() {
        vcpu_ref.vm.deny(vcpu_ref.vcpu, denial(denied), access.0.into());
    }
    vcpu_ref.exit(match outcome {
        SysRegOutcome::Read(_) => ExitCause::IdRegister,
        SysRegOutcome::SendSgi { .. } => ExitCause::Sgi,
        _ => ExitCause::SystemRegister,
    });
    match outcome {
        SysRegOutcome::Read(value) => {
            let value = if core.pmu.is_some() { VirtualPmu::shown(access, value) } else { value };
            frame.set(access.rt(), value);
        }
        SysRegOutcome::Masked(_) if !access.is_write() => frame.set(access.rt(), 0),
        SysRegOutcome::WriteIgnored | SysRegOutcome::SetWay | SysRegOutcome::Masked(_) => {}
        SysRegOutcome::SendSgi { register, value } => {
            return send_other_sgi(vcpu_ref, register, value);
        }
        SysRegOutcome::Deactivate(value) => devices::deactivate(vcpu_ref, value),
        SysRegOutcome::Undefined(_) => inject_undefined(),
    }
    Exit::RESUME
}

#[inline(always)]
fn send_sgi(vcpu_ref: &'static VcpuRef, register: SgiRegister, value: u64) -> Exit {
    let VcpuRef { vcpu, all, .. } = *vcpu_ref;
    post_sgi(vcpu_ref, decode_sgi_register(register, value, vcpu, all))
}

/// Sends an SGI by one of the registers that are rarely used.
#[cold]
#[inline(never)]
fn send_other_sgi(vcpu_ref: &'static VcpuRef, register: SgiRegister, value: u64) -> Exit {
    let VcpuRef { vm, vcpu, all, .. } = *vcpu_ref;
    let mask = vm.sgis.post(vcpu, decode_sgi_register(register, value, vcpu, all));
    if mask.contains(vcpu) {
        return send_to_self(vcpu_ref, mask);
    }
    kick(vm, mask);
    Exit::RESUME
}

/// Sends an SGI of vCPU `vcpu_ref`, which used a system register or a GICv2's GICD_SGIR.
#[inline(always)]
fn post_sgi(vcpu_ref: &'static VcpuRef, sgi: Sgi) -> Exit {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    vcpu_ref.exit(ExitCause::Sgi);
    let mask = vm.sgis.post(vcpu, sgi);
    if mask.contains(vcpu) {
        if mask == VcpuMask::only(vcpu) {
            return drain(vcpu_ref);
        }
        return send_to_self(vcpu_ref, mask);
    }
    if !mask.is_empty() {
        kick_some(vm, mask);
    }
    Exit::resume()
}

/// Does the rest of [`post_sgi`] if vCPU `vcpu_ref` is in `mask`.
#[inline(never)]
fn send_to_self(vcpu_ref: &'static VcpuRef, mask: VcpuMask) -> Exit {
    kick(vcpu_ref.vm, mask.without(vcpu_ref.vcpu));
    drain(vcpu_ref)
}

/// Handles a data abort. The virtual GIC is the device that guests access most, so it is tested
/// first.
#[inline(never)]
fn data_abort(
    frame: &mut Frame,
    core: &mut Core,
    syndrome: Syndrome,
    vcpu_ref: &'static VcpuRef,
) -> Exit {
    let abort = DataAbort(syndrome.iss());
    // Nothing is mapped at the virtual GIC, so only translation faults can be accesses to it.
    if !abort.is_translation() {
        return device_abort(frame, syndrome, vcpu_ref);
    }
    let (hpfar, far) = (sysreg::hpfar_el2::read(), sysreg::far_el2::read());
    let Some(access) = abort.mmio(hpfar, far) else {
        return device_abort(frame, syndrome, vcpu_ref);
    };
    let ipa = Ipa(access.ipa);
    let Some((redistributor, offset)) = devices::gic_place(vcpu_ref.vm, ipa) else {
        return match vcpu_ref.vm.notify.find(ipa, access.size) {
            Some(device) if access.write => {
                notification(vcpu_ref, device, syndrome, frame.get(access.reg))
            }
            _ => device_abort(frame, syndrome, vcpu_ref),
        };
    };
    let size = access.size.into();
    let to = gic::GicAccess { vcpu: vcpu_ref.vcpu, redistributor, offset, size };
    if access.write && to.is_sgir::<Version>() {
        let value = access.truncate(frame.get(access.reg)) as u32;
        skip(syndrome);
        return post_sgi(vcpu_ref, decode_sgir(value, to.vcpu, vcpu_ref.all));
    }
    vcpu_ref.exit(ExitCause::Gic);
    if access.write {
        devices::write_gic(vcpu_ref, core.id, &to, access.truncate(frame.get(access.reg)));
    } else {
        frame.set(access.reg, access.extend(devices::read_gic(vcpu_ref, core.id, &to)));
    }
    skip(syndrome);
    Exit::RESUME
}

/// Carries out a store to a register by which a driver notifies the broker.
#[inline(never)]
fn notification(
    vcpu_ref: &'static VcpuRef,
    device: Notified,
    syndrome: Syndrome,
    value: u64,
) -> Exit {
    vcpu_ref.exit(ExitCause::Virtio);
    skip(syndrome);
    calls::notify(vcpu_ref, device, value as u32);
    Exit::resume()
}

/// Handles a data abort at an address outside of the virtual GIC. The access is decoded again:
/// passing it to this function would cost each access to the GIC ten instructions, and save as many
/// here.
#[inline(never)]
fn device_abort(frame: &mut Frame, syndrome: Syndrome, vcpu_ref: &'static VcpuRef) -> Exit {
    let abort = DataAbort(syndrome.iss());
    let (hpfar, far) = (sysreg::hpfar_el2::read(), sysreg::far_el2::read());
    if let Some(access) = abort.mmio(hpfar, far) {
        let value = access.truncate(frame.get(access.reg));
        let trapped = Trapped { vcpu_ref, access: &access, value };
        match devices::access(trapped) {
            Some(Answer::Done(result)) => {
                if !access.write {
                    frame.set(access.reg, access.extend(result));
                }
                skip(syndrome);
                return Exit::RESUME;
            }
            // The program counter stays at the instruction, which the vCPU executes again.
            Some(Answer::Again) => return Exit::RESUME,
            None => {}
        }
    }
    outside(frame, syndrome, vcpu_ref)
}

/// Handles a data abort at an address without a virtual device, or by an instruction that EL2 does
/// not carry out for the guest.
#[cold]
#[inline(never)]
fn outside(frame: &mut Frame, syndrome: Syndrome, vcpu_ref: &'static VcpuRef) -> Exit {
    let abort = DataAbort(syndrome.iss());
    let (hpfar, far) = (sysreg::hpfar_el2::read(), sysreg::far_el2::read());
    let address = abort.ipa(hpfar, far);
    if let Some(access) = abort.mmio(hpfar, far)
        && focus::covers(vcpu_ref.vm, access.ipa)
    {
        // Another VM has the active device: loads return zero, and stores are ignored.
        vcpu_ref.rare_exit(ExitCause::Other);
        if !access.write {
            frame.set(access.reg, 0);
        }
        skip(syndrome);
        return Exit::RESUME;
    }
    let kind = match abort.fault() {
        esr::AbortFault::External | esr::AbortFault::ExternalOnWalk(_) => FaultKind::External,
        _ if abort.is_on_walk() => FaultKind::TableWalk,
        _ if address.is_some_and(|ipa| devices::covers(vcpu_ref.vm, Ipa(ipa))) => {
            FaultKind::Undescribed
        }
        _ if abort.is_write() => FaultKind::Write,
        _ => FaultKind::Read,
    };
    let walk = walk(abort.is_on_walk(), abort.fault());
    let write = abort.is_write();
    if aborts(vcpu_ref, kind, abort.0, || InjectedException::DataAbort { far, write, walk }) {
        return Exit::RESUME;
    }
    fault(vcpu_ref, kind, address.unwrap_or(far))
}

/// Returns the level of the guest's own table walk that failed, if one did. The first levels of the
/// architecture are negative; a guest has 48-bit addresses and so none of these levels.
fn walk(is_on_walk: bool, fault: esr::AbortFault) -> Option<u8> {
    let level = match fault {
        esr::AbortFault::Translation(level) | esr::AbortFault::Permission(level) => level,
        _ => 0,
    };
    is_on_walk.then(|| level.clamp(0, 3).unsigned_abs())
}

/// Returns whether the guest takes an external abort instead of a fault of this kind, because its
/// `on_outside` requests that.
#[cold]
fn aborts(
    vcpu_ref: &'static VcpuRef,
    kind: FaultKind,
    syndrome: u32,
    abort: impl FnOnce() -> InjectedException,
) -> bool {
    let outside = matches!(
        kind,
        FaultKind::Read | FaultKind::Write | FaultKind::Fetch | FaultKind::TableWalk
    );
    if !outside || vcpu_ref.vm.view().vm.on_outside != OnOutside::Abort as u8 {
        return false;
    }
    let injection = prepare(abort());
    if injection.is_endless() {
        return false;
    }
    vcpu_ref.rare_exit(ExitCause::Other);
    vcpu_ref.vm.deny(vcpu_ref.vcpu, Denial::Outside, syndrome.into());
    take(&injection);
    true
}

fn instruction_abort(vcpu_ref: &'static VcpuRef, abort: InstructionAbort) -> Exit {
    let (hpfar, far) = (sysreg::hpfar_el2::read(), sysreg::far_el2::read());
    let kind = match abort.fault() {
        esr::AbortFault::External | esr::AbortFault::ExternalOnWalk(_) => FaultKind::External,
        _ if abort.is_on_walk() => FaultKind::TableWalk,
        _ => FaultKind::Fetch,
    };
    let walk = walk(abort.is_on_walk(), abort.fault());
    if aborts(vcpu_ref, kind, abort.0, || InjectedException::InstructionAbort { far, walk }) {
        return Exit::RESUME;
    }
    fault(vcpu_ref, kind, abort.ipa(hpfar, far).unwrap_or(far))
}

/// Carries out an HVC or SMC whose result depends on the VM.
#[inline(never)]
fn call(
    frame: &mut Frame,
    core: &mut Core,
    syndrome: Syndrome,
    vcpu_ref: &'static VcpuRef,
) -> Exit {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    // The calling convention has no immediate other than 0.
    if syndrome.0 & IMMEDIATE != 0 {
        vm.deny(vcpu, Denial::Call, syndrome.0);
        frame.x[0] = smccc::NOT_SUPPORTED;
        return Exit::RESUME;
    }
    let [x0, x1, x2, x3, ..] = frame.x;
    let or_denied = |granted: Option<u64>| {
        granted.unwrap_or_else(|| {
            vm.deny(vcpu, Denial::Call, x0);
            smccc::DENIED
        })
    };
    match smccc::decode(&[x0, x1, x2, x3], core.mitigations) {
        Call::Return(value) => frame.x[0] = value,
        Call::Registers(words) => {
            for (register, word) in frame.x.iter_mut().zip(words) {
                *register = word.into();
            }
        }
        Call::Mark(mark) => {
            record_mark(vcpu_ref, mark);
            frame.x[0] = 0;
        }
        Call::Restarts => frame.x[0] = vm.restarts(),
        Call::SetBudget { vm: target, reads, writes } => {
            let granted = budget::set_budget(vm, target, Counts { reads, writes });
            frame.x[0] = or_denied(granted.then_some(0));
        }
        Call::HandOver(to) => frame.x[0] = or_denied(focus::request(vm, to).then_some(0)),
        Call::HasDevices => frame.x[0] = focus::is_with(vm).into(),
        Call::HasStolenTime | Call::StolenTime => stolen_time(frame, vcpu_ref),
        Call::OfBroker => frame.x[0] = or_denied(None),
        Call::Mitigate(function) => {
            start::forward(function, x1);
            frame.x[0] = 0;
        }
        Call::Unknown => {
            vm.deny(vcpu, Denial::Call, x0);
            frame.x[0] = smccc::NOT_SUPPORTED;
        }
        Call::Psci(request) => return power(frame, vcpu_ref, request),
    }
    Exit::RESUME
}

/// Records a point of the guest's program. The name is the guest's own, so a record is about the
/// calling vCPU, whatever the name says.
fn record_mark(vcpu_ref: &VcpuRef, Mark { point, name }: Mark) {
    let now = cntpct_el0::read();
    let (kind, skipped, age) = match point {
        // A guest's virtual counter is the physical one. A release in the future has no age.
        Point::Release { skipped, time } => {
            (RecordKind::TaskRelease, skipped, now.saturating_sub(time).min(MOST_OTHER))
        }
        Point::Complete => (RecordKind::TaskComplete, 0, 0),
        Point::Begin => (RecordKind::SectionBegin, 0, 0),
        Point::End => (RecordKind::SectionEnd, 0, 0),
    };
    vcpu_ref.ring.push(now, vcpu_ref.origin.tag(kind, skipped), name, age);
}

/// Carries out PV_TIME_FEATURES and PV_TIME_ST, and SMCCC_ARCH_FEATURES for the former.
#[cold]
#[inline(never)]
fn stolen_time(frame: &mut Frame, vcpu_ref: &'static VcpuRef) {
    let page = vcpu_ref.vm.view().vm.stolen_time;
    frame.x[0] = match frame.x[0] as u32 {
        _ if page == 0 => smccc::NOT_SUPPORTED,
        smccc::PV_TIME_ST => StolenTime::address(page, vcpu_ref.vcpu),
        _ => 0,
    };
}

#[inline(never)]
fn power(frame: &mut Frame, vcpu_ref: &'static VcpuRef, request: PsciRequest) -> Exit {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let action = {
        let mut power = vm.power.lock();
        let Some(power) = power.as_mut() else { return Exit::RESUME };
        power.call(VcpuId(vcpu as u8), request, |address| vm.view().is_ram(address))
    };
    match action {
        Power::Return(value) => {
            // Turning on a vCPU that is already on is harmless, so it is not counted as denied.
            let harmless: [i64; 2] = [ALREADY_ON.into(), ON_PENDING.into()];
            if value.cast_signed() < 0 && !harmless.contains(&value.cast_signed()) {
                vm.deny(vcpu, Denial::Psci, frame.x[1]);
            }
            frame.x[0] = value;
        }
        Power::Start { vcpu: target, entry, context } => {
            frame.x[0] = 0;
            ending::turn_on(vm, usize::from(target.0), entry, context);
        }
        Power::StopSelf => return Exit::OFF,
        Power::Standby => {
            frame.x[0] = 0;
            return Exit::WAIT;
        }
        Power::PowerDown { entry, context } => {
            // The address and the value with which the vCPU starts: see `Exit::POWER_DOWN`.
            frame.x[0] = context;
            sysreg::elr_el2::write(entry);
            return Exit::POWER_DOWN;
        }
        Power::SystemOff => {
            ending::end(vcpu_ref, Ending::Off, vm.event(What::VmOff, vcpu));
            return Exit::OFF;
        }
        Power::SystemReset => {
            ending::end(vcpu_ref, Ending::Reset, vm.event(What::VmReset, vcpu));
            return Exit::OFF;
        }
    }
    Exit::RESUME
}
