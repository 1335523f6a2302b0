//! Power state coordination (DEN0022) and the calling convention (DEN0028).

use proptest::prelude::*;
use weir_units::VcpuId;
use weir_vdev::psci::{
    ALREADY_ON, INVALID_ADDRESS, INVALID_PARAMETERS, NOT_SUPPORTED, ON_PENDING, PSCI_SMC32, Power,
    PowerState, PsciAction, PsciRequest, code, function, is_implemented,
};
use weir_vdev::smccc::{self, BrokerCall, Call, Mark, Mitigations, Point, SMCCC_VERSION, decode};

fn call(id: u32, args: [u64; 3]) -> Call {
    decode(&[u64::from(id), args[0], args[1], args[2]], Mitigations::NONE)
}

fn returned(value: i32) -> Call {
    Call::Return(code(value))
}

#[test]
fn hypercalls() {
    assert_eq!(call(0xc600_0000, [1, 2, 3]), Call::Return(0));
    assert_eq!(call(0xc600_0001, [0; 3]), Call::Restarts);
    let set = Call::SetBudget { vm: 1, reads: 2, writes: 3 };
    assert_eq!(call(0xc600_0002, [1, 2, 3]), set);
    assert_eq!(call(0xc600_0004, [3, 0, 0]), Call::HandOver(3));
    assert_eq!(call(0xc600_0005, [0; 3]), Call::HasDevices);
    assert_eq!(call(0xc600_0009, [0; 3]), Call::Unknown);
    let marks = [
        (1 | 5 << 32, Point::Release { skipped: 5, time: 8 }),
        (2, Point::Complete),
        (3, Point::Begin),
        (4, Point::End),
    ];
    for (point, expected) in marks {
        let mark = Mark { point: expected, name: 7 };
        assert_eq!(call(0xc600_0008, [point, 7, 8]), Call::Mark(mark));
    }
    for point in [0, 5, 0xff] {
        assert_eq!(call(0xc600_0008, [point, 7, 8]), Call::Return(smccc::NOT_SUPPORTED));
    }
    // The null hypercall exists in the 64-bit convention only.
    assert_eq!(call(0x8600_0000, [0; 3]), Call::Unknown);
    // Only w0 names the call (DEN0028, 2.7).
    assert_eq!(decode(&[0xdead_0000_c600_0000, 0, 0, 0], Mitigations::NONE), Call::Return(0));
}

#[test]
fn hypercalls_of_the_broker() {
    let calls = [
        ([0xc600_0003, 7, 0, 0], BrokerCall::Complete { devices: 7 }),
        ([0xc600_0006, 1, 2, 3], BrokerCall::StartEngine { from: 1, to: 2, len: 3 }),
        ([0xc600_0007, 0, 0, 0], BrokerCall::FinishEngine { gives_up: false }),
        ([0xdead_0000_c600_0007, 1, 0, 0], BrokerCall::FinishEngine { gives_up: true }),
    ];
    for (x, expected) in calls {
        assert_eq!(BrokerCall::decode(x), Some(expected));
        assert_eq!(decode(&x, Mitigations::NONE), Call::OfBroker, "of another VM it is denied");
    }
}

#[test]
fn uid_is_the_documented_uuid() {
    let Call::Registers(words) = call(0x8600_ff01, [0; 3]) else { panic!("no UID") };
    let bytes: Vec<String> =
        words.iter().flat_map(|word| word.to_le_bytes()).map(|b| format!("{b:02x}")).collect();
    assert_eq!(bytes.concat(), "9f99e9c0c42944e8a53d10f558e3e6b4");
    assert_eq!(call(0x8600_ff03, [0; 3]), Call::Registers([1, 0, 0, 0]));
}

#[test]
fn psci_without_state() {
    assert_eq!(call(0x8400_0000, [0; 3]), Call::Return(0x1_0001));
    assert_eq!(call(0x8400_0006, [0; 3]), Call::Return(2));
    // These exist for 32-bit callers only (DEN0022, table 5).
    for id in [0xc400_0000, 0xc400_0002, 0xc400_0006, 0xc400_0008, 0xc400_0009, 0xc400_000a] {
        assert_eq!(call(id, [0; 3]), Call::Unknown);
    }
}

#[test]
fn features_tell_exactly_what_is_there() {
    for id in (0..0x20).flat_map(|n| [0x8400_0000 | n, 0xc400_0000 | n]) {
        let advertised = call(0x8400_000a, [u64::from(id), 0, 0]);
        let there = !matches!(call(id, [0; 3]), Call::Unknown);
        let expected = if there { returned(0) } else { returned(NOT_SUPPORTED) };
        assert_eq!(advertised, expected, "{id:#x}");
    }
    // How Linux learns that there is SMCCC 1.1 (DEN0028, 7.2.1).
    assert_eq!(call(0x8400_000a, [0x8000_0000, 0, 0]), returned(0));
}

#[test]
fn psci_functions() {
    let exist: Vec<u32> = (0..0x20)
        .flat_map(|n| [0x8400_0000 | n, 0xc400_0000 | n])
        .filter(|id| !matches!(call(*id, [0; 3]), Call::Unknown))
        .map(|id| id & 0xffff | id >> 14 & 1 << 16)
        .collect();
    // Bit 16 stands for SMC64.
    let smc64 = 1 << 16;
    assert_eq!(
        exist,
        [0, 1, smc64 | 1, 2, 3, smc64 | 3, 4, smc64 | 4, 6, 8, 9, 10, 0x12, smc64 | 0x12]
    );
}

#[test]
fn affinity_levels() {
    let mut power = Power::new(2);
    let mut info =
        |target, level| power.call(VcpuId(0), PsciRequest::AffinityInfo { target, level }, in_ram);
    let invalid = PsciAction::Return(code(INVALID_PARAMETERS));
    assert_eq!(info(0, 0), PsciAction::Return(0));
    assert_eq!(info(1, 0), PsciAction::Return(1));
    // Fields below the level do not count (5.7), those from it on do.
    for (level, ignored) in [(1, 0xff), (2, 0xffff), (3, 0x00ff_ffff)] {
        assert_eq!(info(ignored, level), PsciAction::Return(0));
        assert_eq!(info(ignored + 1, level), invalid);
        assert_eq!(info(1 << 32, level), invalid);
        assert_eq!(info(1 << 24, level), invalid);
    }
    assert_eq!(info(2, 0), invalid);
    assert_eq!(info(0, 4), invalid);
}

#[test]
fn psci_arguments() {
    let on = |id, args| call(id, args);
    assert_eq!(
        on(0xc400_0003, [1 << 32 | 1, 0x1_4000_0000, 1 << 40]),
        Call::Psci(PsciRequest::On { target: 1 << 32 | 1, entry: 0x1_4000_0000, context: 1 << 40 })
    );
    // 32-bit calls take w registers.
    assert_eq!(
        on(0x8400_0003, [1 << 32 | 1, 0x1_4000_0000, 1 << 40 | 5]),
        Call::Psci(PsciRequest::On { target: 1, entry: 0x4000_0000, context: 5 })
    );
    assert_eq!(call(0x8400_0002, [0; 3]), Call::Psci(PsciRequest::Off));
    assert_eq!(call(0x8400_0008, [0; 3]), Call::Psci(PsciRequest::SystemOff));
    assert_eq!(call(0x8400_0009, [0; 3]), Call::Psci(PsciRequest::SystemReset));
    // SYSTEM_RESET2: warm reset, then a reserved and a vendor type.
    assert_eq!(call(0xc400_0012, [0; 3]), Call::Psci(PsciRequest::SystemReset));
    assert_eq!(call(0xc400_0012, [1, 0, 0]), returned(INVALID_PARAMETERS));
    assert_eq!(call(0x8400_0012, [1 << 31, 0, 0]), returned(INVALID_PARAMETERS));
    // CPU_SUSPEND: standby, power-down, a cluster, reserved bits.
    assert_eq!(
        call(0xc400_0001, [0x1_0000, 0x4000_0000, 9]),
        Call::Psci(PsciRequest::Suspend { power_down: true, entry: 0x4000_0000, context: 9 })
    );
    assert!(matches!(
        call(0x8400_0001, [3, 0, 0]),
        Call::Psci(PsciRequest::Suspend { power_down: false, .. })
    ));
    assert_eq!(call(0xc400_0001, [0x0100_0000, 0, 0]), returned(INVALID_PARAMETERS));
    assert_eq!(call(0xc400_0001, [0x8000_0000, 0, 0]), returned(INVALID_PARAMETERS));
}

#[test]
fn the_described_calls_are_those_that_exist() {
    let firmware = Mitigations::from_firmware(|_| 0);
    for described in smccc::CALLS {
        let is_unknown = decode(&[described.id.into(), 0, 0, 0], firmware) == Call::Unknown;
        assert_eq!(is_unknown, described.id == smccc::ARCH_WORKAROUND_2, "{}", described.name);
    }
    let numbers = (0..0x20).filter(|number| is_implemented(PSCI_SMC32 | number));
    assert!(numbers.eq(function::FUNCTIONS.iter().map(|described| described.id)));
}

#[test]
fn arm_architecture_calls() {
    assert_eq!(call(SMCCC_VERSION, [0; 3]), Call::Return(0x1_0002));
    let features = |mitigations, id: u32| {
        decode(&[u64::from(smccc::ARCH_FEATURES), u64::from(id), 0, 0], mitigations)
    };
    assert_eq!(features(Mitigations::NONE, SMCCC_VERSION), returned(0));
    assert_eq!(features(Mitigations::NONE, smccc::ARCH_FEATURES), returned(0));
    // DEN0057: asked by SMCCC_ARCH_FEATURES first, then by its own call.
    let asks_time = |id: u32| call(smccc::PV_TIME_FEATURES, [id.into(), 0, 0]);
    assert_eq!(features(Mitigations::NONE, smccc::PV_TIME_FEATURES), Call::HasStolenTime);
    assert_eq!(asks_time(smccc::PV_TIME_FEATURES), Call::HasStolenTime);
    assert_eq!(asks_time(smccc::PV_TIME_ST), Call::HasStolenTime);
    assert_eq!(asks_time(0xc500_0022), Call::Return(smccc::NOT_SUPPORTED));
    assert_eq!(call(smccc::PV_TIME_ST, [0; 3]), Call::StolenTime);
    assert_eq!(features(Mitigations::NONE, smccc::PV_TIME_ST), returned(-1));
    for id in [smccc::ARCH_WORKAROUND_1, smccc::ARCH_WORKAROUND_2, smccc::ARCH_WORKAROUND_3] {
        assert_eq!(features(Mitigations::NONE, id), returned(-1));
        assert_eq!(call(id, [0; 3]), Call::Unknown);
    }

    let firmware = Mitigations::from_firmware(|id| match id {
        smccc::ARCH_WORKAROUND_1 | smccc::ARCH_WORKAROUND_2 => 0,
        _ => 1,
    });
    assert_eq!(features(firmware, smccc::ARCH_WORKAROUND_1), returned(0));
    assert_eq!(features(firmware, smccc::ARCH_WORKAROUND_3), returned(1));
    let do_it = |id: u32| decode(&[u64::from(id), 0, 0, 0], firmware);
    assert_eq!(do_it(smccc::ARCH_WORKAROUND_1), Call::Mitigate(smccc::ARCH_WORKAROUND_1));
    assert_eq!(do_it(smccc::ARCH_WORKAROUND_3), Call::Return(0));
    // No guest switches the store bypass mitigation: it is on, and they are told that they need
    // not.
    assert!(firmware.needs_workaround_2());
    assert_eq!(features(firmware, smccc::ARCH_WORKAROUND_2), returned(-2));
    assert_eq!(do_it(smccc::ARCH_WORKAROUND_2), Call::Unknown);
}

#[test]
fn queries_are_not_refused() {
    // TRNG_VERSION, FFA_VERSION, SDEI_VERSION; the UID of a trusted OS and of an OEM service.
    for id in [0x8400_0050, 0x8400_0063, 0xc400_0020, 0xbf00_ff01, 0x8300_ff01] {
        assert_eq!(call(id, [0; 3]), Call::Return(smccc::NOT_SUPPORTED), "{id:#x}");
    }
    // A yielding call of a trusted OS, a SiP call, PSCI's SYSTEM_SUSPEND.
    for id in [0x0200_0000, 0x3200_0000, 0xc200_0010, 0xc400_000e, 0xffff_ffff, 0] {
        assert_eq!(call(id, [0; 3]), Call::Unknown, "{id:#x}");
    }
}

fn in_ram(ipa: u64) -> bool {
    (0x4000_0000..0x5000_0000).contains(&ipa)
}

#[test]
fn cpu_on_errors() {
    let mut power = Power::new(3);
    let mut on = |target, entry| {
        power.call(VcpuId(0), PsciRequest::On { target, entry, context: 7 }, in_ram)
    };
    assert_eq!(on(3, 0x4000_0000), PsciAction::Return(code(INVALID_PARAMETERS)));
    assert_eq!(on(1 << 8 | 1, 0x4000_0000), PsciAction::Return(code(INVALID_PARAMETERS)));
    assert_eq!(on(1 << 31 | 1, 0x4000_0000), PsciAction::Return(code(INVALID_PARAMETERS)));
    assert_eq!(on(1, 0x5000_0000), PsciAction::Return(code(INVALID_ADDRESS)));
    assert_eq!(on(1, 0x4000_0002), PsciAction::Return(code(INVALID_ADDRESS)));
    assert_eq!(on(0, 0x4000_0000), PsciAction::Return(code(ALREADY_ON)));
    assert_eq!(
        on(1, 0x4000_0000),
        PsciAction::Start { vcpu: VcpuId(1), entry: 0x4000_0000, context: 7 }
    );
    assert_eq!(on(1, 0x4000_0000), PsciAction::Return(code(ON_PENDING)));
    power.started(VcpuId(1));
    assert_eq!(power.state(VcpuId(1)), PowerState::On);
    // The last vCPU to leave ends the VM.
    assert_eq!(power.call(VcpuId(0), PsciRequest::Off, in_ram), PsciAction::StopSelf);
    assert_eq!(power.call(VcpuId(1), PsciRequest::Off, in_ram), PsciAction::SystemOff);
}

#[test]
fn suspend() {
    let mut power = Power::new(1);
    let mut to = |power_down, entry| {
        power.call(VcpuId(0), PsciRequest::Suspend { power_down, entry, context: 3 }, in_ram)
    };
    assert_eq!(to(false, 0), PsciAction::Standby);
    assert_eq!(to(true, 0x4000_0004), PsciAction::PowerDown { entry: 0x4000_0004, context: 3 });
    assert_eq!(to(true, 0), PsciAction::Return(code(INVALID_ADDRESS)));
    assert_eq!(power.state(VcpuId(0)), PowerState::On);
}

#[test]
fn out_of_range_is_brought_in() {
    assert_eq!(Power::new(0), Power::new(1));
    assert_eq!(Power::new(200), Power::new(8));
    let mut power = Power::new(8);
    power.started(VcpuId(255));
    assert_eq!(power.state(VcpuId(255)), PowerState::Off);
    assert_eq!(power.call(VcpuId(99), PsciRequest::Off, in_ram), PsciAction::StopSelf);
}

/// The state machine written down naively: one state a vCPU.
#[derive(Clone)]
struct Reference(Vec<PowerState>);

impl Reference {
    fn call(&mut self, vcpu: u8, request: PsciRequest) -> PsciAction {
        let error = |value| PsciAction::Return(code(value));
        match request {
            PsciRequest::Suspend { power_down: false, .. } => PsciAction::Standby,
            PsciRequest::Suspend { entry, .. } if !in_ram(entry) || entry % 4 != 0 => {
                error(INVALID_ADDRESS)
            }
            PsciRequest::Suspend { entry, context, .. } => PsciAction::PowerDown { entry, context },
            PsciRequest::Off => {
                self.0[usize::from(vcpu)] = PowerState::Off;
                if self.0.iter().all(|state| *state == PowerState::Off) {
                    PsciAction::SystemOff
                } else {
                    PsciAction::StopSelf
                }
            }
            PsciRequest::On { target, entry, context } => {
                let Some(vcpu) = (0..self.0.len()).find(|n| *n as u64 == target) else {
                    return error(INVALID_PARAMETERS);
                };
                match self.0[vcpu] {
                    PowerState::On => error(ALREADY_ON),
                    PowerState::OnPending => error(ON_PENDING),
                    PowerState::Off if !in_ram(entry) || entry % 4 != 0 => error(INVALID_ADDRESS),
                    PowerState::Off => {
                        self.0[vcpu] = PowerState::OnPending;
                        PsciAction::Start { vcpu: VcpuId(vcpu as u8), entry, context }
                    }
                }
            }
            PsciRequest::AffinityInfo { target, level } => {
                let aff = |mpidr: u64| {
                    [mpidr & 0xff, mpidr >> 8 & 0xff, mpidr >> 16 & 0xff, mpidr >> 32 & 0xff]
                };
                let reserved = target & !0xff_00ff_ffff != 0;
                let matching: Vec<PowerState> = (0..self.0.len())
                    .filter(|n| {
                        level < 4
                            && !reserved
                            && aff(*n as u64)[level as usize..] == aff(target)[level as usize..]
                    })
                    .map(|n| self.0[n])
                    .collect();
                if matching.is_empty() {
                    error(INVALID_PARAMETERS)
                } else if matching.contains(&PowerState::On) {
                    PsciAction::Return(0)
                } else if matching.contains(&PowerState::OnPending) {
                    PsciAction::Return(2)
                } else {
                    PsciAction::Return(1)
                }
            }
            PsciRequest::SystemOff => PsciAction::SystemOff,
            PsciRequest::SystemReset => PsciAction::SystemReset,
        }
    }
}

fn mpidr() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0u64..9,
        1 => (0u32..64, 0u64..4).prop_map(|(bit, n)| 1 << bit | n),
        1 => any::<u64>(),
    ]
}

fn entry() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0x4000_0000u64..0x4000_0008, 1 => any::<u64>(), 1 => Just(0x5000_0000)]
}

fn request() -> impl Strategy<Value = PsciRequest> {
    prop_oneof![
        8 => (mpidr(), entry(), any::<u64>())
            .prop_map(|(target, entry, context)| PsciRequest::On { target, entry, context }),
        4 => Just(PsciRequest::Off),
        4 => (mpidr(), 0u64..6).prop_map(|(target, level)| PsciRequest::AffinityInfo { target, level }),
        2 => (any::<bool>(), entry(), any::<u64>())
            .prop_map(|(power_down, entry, context)| PsciRequest::Suspend { power_down, entry, context }),
        1 => Just(PsciRequest::SystemOff),
        1 => Just(PsciRequest::SystemReset),
    ]
}

proptest! {
    #[test]
    fn power_follows_the_reference(
        vcpus in 1u8..=8,
        steps in prop::collection::vec((0u8..8, request(), any::<bool>()), 1..200),
    ) {
        let mut power = Power::new(vcpus);
        let mut reference = Reference(vec![PowerState::Off; usize::from(vcpus)]);
        reference.0[0] = PowerState::On;
        for (caller, request, start) in steps {
            // Only a vCPU that runs can call; now and then one that was switched on begins to.
            let vcpu = caller % vcpus;
            match power.state(VcpuId(vcpu)) {
                PowerState::On => {
                    prop_assert_eq!(
                        power.call(VcpuId(vcpu), request, in_ram),
                        reference.call(vcpu, request)
                    );
                }
                PowerState::OnPending if start => {
                    power.started(VcpuId(vcpu));
                    reference.0[usize::from(vcpu)] = PowerState::On;
                }
                _ => {
                    let before = power.clone();
                    if power.state(VcpuId(vcpu)) == PowerState::Off {
                        power.started(VcpuId(vcpu));
                        prop_assert_eq!(&power, &before);
                    }
                }
            }
            for n in 0..vcpus {
                prop_assert_eq!(power.state(VcpuId(n)), reference.0[usize::from(n)]);
            }
        }
    }

    /// Any four registers are a call with a meaning, and none that the table does not name has an
    /// effect.
    #[test]
    fn any_call_decodes(id: u32, service in 0u32..8, number in 0u32..0x30, x: [u64; 3]) {
        for id in [id, 0x8000_0000 | service << 24 | number, 0xc000_0000 | service << 24 | number] {
            match call(id, x) {
                Call::Psci(_) => prop_assert_eq!(id & 0xbfff_ffe0, 0x8400_0000),
                Call::Mitigate(_) => prop_assert!(false),
                Call::Restarts => prop_assert_eq!(id, smccc::RESTARTS),
                Call::OfBroker => {
                    prop_assert!(BrokerCall::decode([id.into(), x[0], x[1], x[2]]).is_some());
                }
                Call::HandOver(vm) => prop_assert_eq!((id, vm), (smccc::HAND_OVER, x[0])),
                Call::HasDevices => prop_assert_eq!(id, smccc::HAS_DEVICES),
                Call::Mark(_) => prop_assert_eq!(id, smccc::MARK),
                Call::SetBudget { .. } => prop_assert_eq!(id, smccc::SET_BUDGET),
                Call::Registers(_) => prop_assert_eq!(id & 0xffff_0000, 0x8600_0000),
                Call::Return(_) | Call::Unknown | Call::HasStolenTime | Call::StolenTime => {}
            }
        }
    }

    #[test]
    fn power_takes_anything(vcpu: u8, vcpus: u8, target: u64, level: u64, entry: u64) {
        let mut power = Power::new(vcpus);
        for request in [
            PsciRequest::On { target, entry, context: 0 },
            PsciRequest::AffinityInfo { target, level },
            PsciRequest::Off,
        ] {
            if let PsciAction::Start { vcpu: VcpuId(vcpu), .. } =
                power.call(VcpuId(vcpu), request, |_| true)
            {
                prop_assert!(vcpu < vcpus.clamp(1, 8));
            }
        }
        power.started(VcpuId(vcpu));
    }
}
