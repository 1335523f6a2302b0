//! The table of the states of a vCPU: what is true of each way through it.

use weir_sched::vcpu::{Impossible, NEVER, VcpuAction, VcpuEvent, VcpuState};
use weir_units::Nanos;

/// Every event, with the times and the choices that it can have.
fn events() -> Vec<VcpuEvent> {
    let timed = [Nanos(0), Nanos(7), NEVER].into_iter().flat_map(|due| {
        [VcpuEvent::Waits { due }, VcpuEvent::Deferred { due }, VcpuEvent::Delayed { due }]
    });
    let others = VcpuEvent::ALL.into_iter();
    others.chain(timed).chain([VcpuEvent::TurnedOff { leads: true }]).collect()
}

/// Every state that a vCPU can get to from `starts` by events for which `may` is true.
fn reached(starts: &[VcpuState], may: impl Fn(VcpuEvent) -> bool) -> Vec<VcpuState> {
    let mut found = starts.to_vec();
    let mut next = 0;
    while let Some(&state) = found.get(next) {
        next += 1;
        for event in events().into_iter().filter(|event| may(*event)) {
            if let Ok((after, _)) = state.after(event)
                && !found.contains(&after)
            {
                found.push(after);
            }
        }
    }
    found
}

/// The first vCPU of a VM begins with the load of the VM's image, the others are off.
const STARTS: [VcpuState; 2] = [VcpuState::Loading, VcpuState::Off];

fn same_kind<T>(one: &T, other: &T) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

#[test]
fn each_state_is_reached_and_is_left() {
    let found = reached(&STARTS, |_| true);
    for state in VcpuState::ALL {
        assert!(found.iter().any(|found| same_kind(found, &state)), "{state:?} is never reached");
        let leaves = |event: VcpuEvent| {
            state.after(event).is_ok_and(|(after, _)| !same_kind(&after, &state))
        };
        assert!(events().into_iter().any(leaves), "{state:?} is never left");
    }
}

#[test]
fn each_event_and_each_reason_has_its_place() {
    for event in VcpuEvent::ALL {
        let may = VcpuState::ALL.into_iter().any(|state| state.after(event).is_ok());
        assert!(may, "{event:?} befalls no vCPU");
    }
    let reasons: Vec<Impossible> = VcpuState::ALL
        .into_iter()
        .flat_map(|state| events().into_iter().filter_map(move |event| state.after(event).err()))
        .collect();
    let all = [
        Impossible::IsNotOff,
        Impossible::WantsNoCore,
        Impossible::HasNoCore,
        Impossible::DoesNotWait,
        Impossible::NamesNoTime,
        Impossible::IsNotThrottled,
        Impossible::IsOff,
        Impossible::HasOtherWork,
    ];
    for reason in all {
        assert!(reasons.contains(&reason) && !reason.reason().is_empty(), "{reason:?}");
    }
}

#[test]
fn the_schedule_chooses_what_wants_the_core() {
    for state in reached(&STARTS, |_| true) {
        let chosen = state.after(VcpuEvent::Chosen);
        if state.wants_core() {
            let (_, action) = chosen.expect("it wants the core");
            assert_ne!(action, VcpuAction::Nothing, "{state:?} would be chosen again and again");
        }
        // While its time has not come, it does not want the core, and is due.
        let may_be_due = matches!(state, VcpuState::Ending { .. } | VcpuState::Blocked { .. });
        assert_eq!(chosen.is_ok(), state.wants_core() || may_be_due, "{state:?}");
        if let Some(due) = state.due() {
            assert!(
                !state.wants_core() && due > Nanos(0) || matches!(state, VcpuState::Waiting { .. })
            );
            let (after, _) = state.after(VcpuEvent::Due).expect("the time comes");
            assert!(after.wants_core() && after.due().is_none(), "{state:?}");
        }
    }
}

/// Only the start of its VM and PSCI CPU_ON let a vCPU that is off run instructions of its guest.
#[test]
fn a_vcpu_that_is_off_stays_off_without_a_start() {
    let off = [
        VcpuState::Off,
        VcpuState::Ending { due: Nanos(0) },
        VcpuState::Halting,
        VcpuState::Loading,
        VcpuState::Blocked { due: Nanos(0) },
        VcpuState::Resetting,
    ];
    let starts = |event| matches!(event, VcpuEvent::TurnedOn | VcpuEvent::Reset);
    for state in reached(&off, |event| !starts(event)) {
        let runs =
            state.after(VcpuEvent::Chosen).is_ok_and(|(_, action)| action == VcpuAction::Run);
        assert!(!runs, "{state:?} runs without a start");
    }
}

#[test]
fn a_vcpu_that_is_on_can_be_turned_off_at_any_time() {
    let on = reached(&[VcpuState::Ready], |event| !matches!(event, VcpuEvent::TurnedOff { .. }));
    assert_eq!(on.len(), 6, "ready, running, throttled, waiting with and without a time: {on:?}");
    for state in on {
        for (leads, expected) in
            [(true, VcpuState::Ending { due: Nanos(0) }), (false, VcpuState::Off)]
        {
            let after = state.after(VcpuEvent::TurnedOff { leads });
            assert_eq!(after, Ok((expected, VcpuAction::Nothing)), "{state:?}");
        }
    }
}

/// A VM that ends comes to rest or starts again, whatever its leader decides, and its vCPU cannot
/// be turned on from outside meanwhile.
#[test]
fn the_end_of_a_vm_is_the_leaders() {
    for state in [VcpuState::Ending { due: Nanos(0) }, VcpuState::Halting, VcpuState::Loading] {
        assert_eq!(state.after(VcpuEvent::TurnedOn), Err(Impossible::IsNotOff), "{state:?}");
    }
    let after = |event| VcpuState::Ending { due: Nanos(0) }.after(event).map(|(after, _)| after);
    assert_eq!(after(VcpuEvent::Settled), Ok(VcpuState::Off));
    assert_eq!(after(VcpuEvent::Halts), Ok(VcpuState::Halting));
    assert_eq!(after(VcpuEvent::Restarts), Ok(VcpuState::Loading));
    let due = Nanos(70);
    assert_eq!(after(VcpuEvent::Deferred { due }), Ok(VcpuState::Ending { due }));
}
