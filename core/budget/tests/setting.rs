//! What a setting may be, when its periods are, and that no input breaks a regulator.

use proptest::prelude::*;
use weir_budget::BudgetScope;
use weir_budget::Counts;
use weir_budget::Event;
use weir_budget::GroupBudget;
use weir_budget::Periods;
use weir_budget::Refused;
use weir_budget::Regulate;
use weir_budget::Regulator;
use weir_budget::RegulatorKind;
use weir_budget::Setting;
use weir_units::Nanos;

const KINDS: [RegulatorKind; 4] = [
    RegulatorKind::Static,
    RegulatorKind::Pool,
    RegulatorKind::Memguard,
    RegulatorKind::Compensation,
];

fn setting() -> Setting {
    Setting::new(Nanos(1000), Counts::one(100), 1, 2)
}

/// What `check` says of a setting with a change.
fn refused(kind: RegulatorKind, change: impl Fn(&mut Setting)) -> Option<Refused> {
    let mut setting = Setting { kind, ..setting() };
    assert_eq!(setting.check(), Ok(()));
    change(&mut setting);
    setting.check().err()
}

#[test]
fn each_rule_refuses() {
    for kind in KINDS {
        assert_eq!(refused(kind, |s| s.period = Nanos(0)), Some(Refused::NoPeriod));
        assert_eq!(refused(kind, |s| s.vcpus = 0), Some(Refused::NoSuchVcpu));
        assert_eq!(refused(kind, |s| s.vcpus = 9), Some(Refused::NoSuchVcpu));
        assert_eq!(refused(kind, |s| s.vcpu = 2), Some(Refused::NoSuchVcpu));
        assert_eq!(refused(kind, |s| s.budget.reads = 0), Some(Refused::NoBudget));
        assert_eq!(refused(kind, |s| s.budget.writes = 0), Some(Refused::NoBudget));
        let pooled = matches!(kind, RegulatorKind::Pool | RegulatorKind::Memguard);
        let large = pooled.then_some(Refused::LargeBudget);
        assert_eq!(refused(kind, |s| s.budget.reads = 1 << 40), large);
        assert_eq!(refused(kind, |s| s.budget.writes = 1 << 40), large);
        assert_eq!(refused(kind, |s| s.budget.writes = (1 << 40) - 1), None);
        let staggered = (kind != RegulatorKind::Static).then_some(Refused::Staggered);
        assert_eq!(refused(kind, |s| s.phase = Nanos(1)), staggered);
        assert_eq!(refused(kind, |s| s.phase = Nanos(2000)), None);
        let publish = !matches!(kind, RegulatorKind::Static | RegulatorKind::Pool);
        assert_eq!(refused(kind, |s| s.publish = true), publish.then_some(Refused::CantPublish));
    }
    let staggered = |s: &mut Setting| (s.publish, s.phase) = (true, Nanos(1));
    assert_eq!(refused(RegulatorKind::Static, staggered), Some(Refused::Staggered));
    let small = |kind| refused(kind, |s| s.budget.writes = 1);
    assert_eq!(small(RegulatorKind::Pool), Some(Refused::SmallPool));
    assert_eq!(refused(RegulatorKind::Pool, |s| s.budget = Counts { reads: 2, writes: 2 }), None);
    for (member, members) in [(0, 0), (33, 33), (2, 2)] {
        let change = |s: &mut Setting| (s.member, s.members) = (member, members);
        assert_eq!(refused(RegulatorKind::Memguard, change), Some(Refused::NoSuchMember));
    }
    assert_eq!(refused(RegulatorKind::Memguard, |s| (s.member, s.members) = (31, 32)), None);
    assert_eq!(
        refused(RegulatorKind::Memguard, |s| s.keep_percent = 101),
        Some(Refused::KeepsTooMuch)
    );
    assert_eq!(refused(RegulatorKind::Memguard, |s| s.smoothing = 33), Some(Refused::Smoothing));
    assert_eq!(refused(RegulatorKind::Compensation, |s| s.window = 0), Some(Refused::NoWindow));
    for vcpus in [0, 9] {
        let change = |s: &mut Setting| s.critical_vcpus = vcpus;
        assert_eq!(refused(RegulatorKind::Compensation, change), Some(Refused::NoCriticalVcpus));
    }
    // A share that is nothing: two vCPUs share one access; a weight of 0; no weights at all.
    for kind in [RegulatorKind::Static, RegulatorKind::Memguard, RegulatorKind::Compensation] {
        let one =
            |s: &mut Setting| (s.scope, s.vcpu, s.budget) = (BudgetScope::Vm, 0, Counts::one(1));
        assert_eq!(refused(kind, one), Some(Refused::NoBudget));
        let light = |s: &mut Setting| (s.scope, s.weights[1]) = (BudgetScope::Vm, 0);
        assert_eq!(refused(kind, light), Some(Refused::NoBudget));
        let none = |s: &mut Setting| (s.scope, s.weights) = (BudgetScope::Vm, [0; 8]);
        assert_eq!(refused(kind, none), Some(Refused::NoBudget));
    }
}

#[test]
fn every_refusal_says_something_else() {
    use Refused::*;
    let all = [
        NoPeriod,
        NoSuchVcpu,
        NoBudget,
        SmallPool,
        LargeBudget,
        Staggered,
        CantPublish,
        NoSuchMember,
        KeepsTooMuch,
        Smoothing,
        NoWindow,
        NoCriticalVcpus,
    ];
    let texts: std::collections::HashSet<_> = all.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), all.len());
    assert!(texts.iter().all(|text| text.len() > 20));
}

#[test]
fn the_regulators_are_made_at_compile_time() {
    const REGULATOR: Regulator = Regulator::new(&Setting::new(Nanos(10), Counts::one(5), 0, 1));
    static GROUP: GroupBudget = GroupBudget::new();
    let mut regulator = REGULATOR;
    let verdict = regulator.step(&GROUP, Nanos(3), Counts::ZERO, Event::Start);
    assert_eq!((verdict.run, verdict.limit), (true, Counts { reads: 5, writes: u64::MAX }));
}

proptest! {
    #[test]
    fn boundaries_are_a_period_apart(period: u64, phase: u64, now: u64, small in 1..1000_u64) {
        for period in [period, small] {
            let periods = Periods::with_phase(Nanos(period), Nanos(phase));
            let period = periods.period().0;
            let next = periods.next(Nanos(now)).0;
            prop_assert!(next > now || now == u64::MAX);
            prop_assert!(next - now <= period);
            let index = periods.index(Nanos(now));
            if next != u64::MAX {
                prop_assert_eq!(next % period, periods.phase().0 % period);
                prop_assert_eq!(periods.index(Nanos(next)), index + 1);
                prop_assert_eq!(periods.index(Nanos(next - 1)), index);
            }
        }
    }

    #[test]
    fn staggered_cores_are_spread(period in 8..1_000_000_u64, cores in 1..=8_u8) {
        let phases: Vec<u64> = (0..cores)
            .map(|core| Periods::staggered(Nanos(period), core, cores).phase().0)
            .collect();
        let even = period / u64::from(cores);
        prop_assert_eq!(phases[0], 0);
        for pair in phases.windows(2) {
            prop_assert!((even..=even + 1).contains(&(pair[1] - pair[0])));
        }
        prop_assert_eq!(Periods::staggered(Nanos(period), cores, cores).phase(), Nanos(0));
        prop_assert_eq!(Periods::staggered(Nanos(period), 3, 0), Periods::aligned(Nanos(period)));
    }

    #[test]
    fn nothing_breaks_a_regulator(
        kind in prop::sample::select(KINDS.to_vec()), numbers: [u64; 6], bytes: [u8; 10],
        flags: [bool; 4], weights: [u16; 8],
        events in prop::collection::vec((extreme(), extreme(), extreme(), 0..5_u8), 0..60),
    ) {
        let setting = Setting {
            kind,
            scope: if flags[0] { BudgetScope::Vm } else { BudgetScope::Vcpu },
            period: Nanos(numbers[0] >> (bytes[0] % 64)),
            phase: Nanos(numbers[1] >> (bytes[0] % 64)),
            budget: Counts {
                reads: numbers[2] >> (bytes[1] % 64),
                writes: numbers[3] >> (bytes[2] % 64),
            },
            debt: flags[1],
            vcpu: bytes[3],
            vcpus: bytes[4],
            weights,
            publish: flags[2],
            slice: Counts {
                reads: numbers[4] >> (bytes[5] % 64),
                writes: numbers[5] >> (bytes[5] % 64),
            },
            member: bytes[5],
            members: bytes[6],
            keep_percent: bytes[7],
            smoothing: bytes[8],
            spare: flags[3],
            window: numbers[5] as u32 >> (bytes[9] % 32),
            critical_vcpus: bytes[9],
        };
        let group = GroupBudget::new();
        let mut regulator = Regulator::new(&setting);
        for (now, reads, writes, event) in events {
            let counts = Counts { reads, writes };
            let event = match event {
                0 => Event::Start,
                1 => Event::Period,
                2 => Event::Stop,
                3 => Event::Count,
                _ => {
                    let changed = regulator.set_budget(counts);
                    prop_assert!(reads != 0 && writes != 0 || changed == Err(Refused::NoBudget));
                    continue;
                }
            };
            let verdict = regulator.step(&group, Nanos(now), counts, event);
            prop_assert!(!verdict.run || !counts.reached(verdict.limit));
            prop_assert!(verdict.run || verdict.limit == Counts::NEVER);
        }
    }
}

/// Numbers of every size, near the ends too.
fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift),
        (0..4_u64).prop_map(|below| u64::MAX - below),
        0..300_u64,
    ]
}
