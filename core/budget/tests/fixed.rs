//! The static regulator: a budget, and not one access more.

use crate::support::{Board, Vcpu, actions, budgets};
use proptest::prelude::*;
use weir_budget::BudgetScope;
use weir_budget::Counts;
use weir_budget::Event;
use weir_budget::GroupBudget;
use weir_budget::Refused;
use weir_budget::Regulate;
use weir_budget::Regulator;
use weir_budget::Setting;
use weir_units::Nanos;

const PERIOD: Nanos = Nanos(100);

fn reads(reads: u64) -> Counts {
    Counts { reads, writes: 0 }
}

proptest! {
    #[test]
    fn no_periods_see_more_than_their_budgets(
        budget in budgets(1), phase in 0..100_u64, debt: bool, overshoot in 0..20_u64,
        actions in actions(),
    ) {
        let setting = Setting { debt, phase: Nanos(phase), ..Setting::new(PERIOD, budget, 0, 1) };
        let board = Board::played([setting], true, overshoot, &actions);
        let (each, once) = if debt { (0, overshoot) } else { (overshoot, 0) };
        board.assert_bounded(budget, each, once);
    }

    #[test]
    fn the_parts_of_a_vm_keep_to_its_budget(
        budget in budgets(20), weights: [u16; 8], overshoot in 0..20_u64, actions in actions(),
    ) {
        let settings = (0..4).map(|vcpu| Setting {
            scope: BudgetScope::Vm,
            weights: weights.map(|weight| weight / 2 + 20_000),
            ..Setting::new(PERIOD, budget, vcpu, 4)
        });
        let board = Board::played(settings, true, overshoot, &actions);
        board.assert_bounded(budget, 0, 4 * overshoot);
    }

    #[test]
    fn the_short_step_is_the_step(
        budget in 1..100_u64, phase in 0..100_u64,
        steps in prop::collection::vec((0..250_u64, 0..150_u64), 1..60),
    ) {
        let setting =
            Setting { phase: Nanos(phase), ..Setting::new(PERIOD, Counts::one(budget), 0, 1) };
        let group = GroupBudget::new();
        let mut long = Regulator::new(&setting);
        let mut short = long.clone();
        prop_assert!(short.is_plain());
        prop_assert_eq!(short.next_period(Nanos(0), 0), None, "it has not started");
        let (mut now, mut count) = (Nanos(0), 0);
        for regulator in [&mut long, &mut short] {
            regulator.step(&group, now, Counts::ZERO, Event::Start);
        }
        for (time, more) in steps {
            (now.0, count) = (now.0 + time, count + more);
            let verdict = long.step(&group, now, reads(count), Event::Count);
            if let Some((limit, end)) = short.next_period(now, count) {
                prop_assert_eq!((verdict.run, verdict.limit), (true, Counts::one(limit)));
                prop_assert_eq!(end, setting.periods().next(now));
                prop_assert_eq!(short.next_period(now, count), None, "the period has begun");
            }
            prop_assert_eq!(verdict, short.step(&group, now, reads(count), Event::Count));
        }
    }

    #[test]
    fn with_debt_the_rate_of_one_that_wants_more_is_exact(
        budget in 1..100_u64, overshoots in prop::collection::vec(0..300_u64, 1..60),
    ) {
        let group = GroupBudget::new();
        let mut vcpu = Vcpu::new(Setting::new(PERIOD, Counts::one(budget), 0, 1), Counts::ZERO);
        vcpu.step(&group, 0, Event::Start);
        let mut last = 0;
        for (period, overshoot) in overshoots.iter().enumerate() {
            vcpu.step(&group, period as u64 * PERIOD.0, Event::Period);
            if vcpu.verdict.run {
                // What is over the limit is the last overshoot, independent of the history.
                prop_assert_eq!(vcpu.verdict.limit.reads, (period as u64 + 1) * budget);
                vcpu.access(&group, period as u64 * PERIOD.0, reads(1 << 12), *overshoot);
                last = *overshoot;
                prop_assert_eq!(vcpu.counts.reads, (period as u64 + 1) * budget + last);
            }
        }
        prop_assert!(vcpu.counts.reads <= overshoots.len() as u64 * budget + last);
    }

    #[test]
    fn the_parts_add_up(whole: u64, weights: [u16; 8], vcpus in 1..=8_u8) {
        let mut settings = (0..vcpus).map(|vcpu| Setting {
            scope: BudgetScope::Vm,
            weights,
            ..Setting::new(PERIOD, Counts::one(whole), vcpu, vcpus)
        });
        let group = GroupBudget::new();
        prop_assume!(whole != u64::MAX);
        let sum: u128 = settings
            .try_fold(0_u128, |sum, setting| {
                setting.check().ok()?;
                let mut vcpu = Vcpu::new(setting, Counts::ZERO);
                vcpu.step(&group, 0, Event::Start);
                Some(sum + u128::from(vcpu.verdict.limit.reads))
            })
            .unwrap_or(u128::from(whole));
        prop_assert_eq!(sum, u128::from(whole));
    }
}

/// One vCPU with a budget of so many reads, started.
fn one(budget: u64) -> (GroupBudget, Vcpu) {
    let group = GroupBudget::new();
    let mut vcpu = Vcpu::new(Setting::new(PERIOD, Counts::one(budget), 0, 1), Counts::ZERO);
    vcpu.step(&group, 0, Event::Start);
    (group, vcpu)
}

#[test]
fn weights_divide_a_budget() {
    let limit = |vcpu, weights| {
        let setting = Setting {
            scope: BudgetScope::Vm,
            weights,
            ..Setting::new(PERIOD, Counts { reads: 10, writes: 7 }, vcpu, 3)
        };
        let group = GroupBudget::new();
        let mut vcpu = Vcpu::new(setting, Counts::ZERO);
        vcpu.step(&group, 0, Event::Start);
        (vcpu.verdict.limit.reads, vcpu.verdict.limit.writes)
    };
    let even = [1; 8];
    assert_eq!([0, 1, 2].map(|vcpu| limit(vcpu, even)), [(3, 2), (3, 2), (4, 3)]);
    let weights = [1, 4, 5, 0, 0, 0, 0, 9];
    assert_eq!([1, 2].map(|vcpu| limit(vcpu, weights)), [(4, 3), (5, 4)]);
}

#[test]
fn a_budget_is_spent_and_comes_back() {
    let (group, mut vcpu) = one(10);
    vcpu.access(&group, 5, reads(9), 0);
    assert!(vcpu.verdict.run && vcpu.verdict.limit.reads == 10);
    vcpu.access(&group, 6, reads(9), 0);
    assert_eq!((vcpu.verdict.run, vcpu.counts.reads), (false, 10));
    assert_eq!(vcpu.verdict.limit, Counts::NEVER);
    // A poll, a restart and an interrupt too early change nothing.
    for event in [Event::Count, Event::Start, Event::Stop, Event::Period] {
        vcpu.step(&group, 99, event);
        assert!(!vcpu.verdict.run, "{event:?}");
    }
    vcpu.step(&group, 100, Event::Period);
    assert!(vcpu.verdict.run && vcpu.verdict.limit == Counts { reads: 20, writes: u64::MAX });
    // The boundary's own interrupt may come after the counter's.
    vcpu.step(&group, 200, Event::Count);
    assert_eq!(vcpu.verdict.limit.reads, 20);
    vcpu.access(&group, 201, reads(10), 0);
    vcpu.step(&group, 202, Event::Period);
    assert!(!vcpu.verdict.run);
}

#[test]
fn what_is_left_is_lost() {
    let (group, mut vcpu) = one(10);
    vcpu.access(&group, 0, reads(4), 0);
    vcpu.step(&group, 100, Event::Period);
    assert_eq!(vcpu.verdict.limit.reads, 14);
    vcpu.step(&group, 950, Event::Period);
    assert_eq!(vcpu.verdict.limit.reads, 14);
}

#[test]
fn a_debt_takes_as_many_periods_as_it_needs() {
    let (group, mut vcpu) = one(10);
    vcpu.access(&group, 0, reads(45), 35);
    let mut run = |now| {
        vcpu.step(&group, now, Event::Period);
        vcpu.verdict.run
    };
    assert!(!run(100) && !run(200) && !run(300));
    assert!(run(400));
    assert_eq!(vcpu.verdict.limit.reads, 50);
    // Periods that passed unseen pay too.
    let (group, mut vcpu) = one(10);
    vcpu.access(&group, 0, reads(45), 35);
    vcpu.step(&group, 399, Event::Period);
    assert!(!vcpu.verdict.run);
    vcpu.step(&group, 650, Event::Period);
    assert_eq!(vcpu.verdict.limit.reads, 55);
}

#[test]
fn without_debt_an_overshoot_is_forgiven() {
    let group = GroupBudget::new();
    let setting = Setting { debt: false, ..Setting::new(PERIOD, Counts::one(10), 0, 1) };
    let mut vcpu = Vcpu::new(setting, Counts::ZERO);
    vcpu.step(&group, 0, Event::Start);
    vcpu.access(&group, 0, reads(45), 35);
    vcpu.step(&group, 100, Event::Period);
    assert_eq!((vcpu.verdict.run, vcpu.verdict.limit.reads), (true, 55));
}

#[test]
fn whichever_counter_is_first_suspends() {
    for (accesses, first) in [((10, 1), true), ((1, 5), true), ((9, 4), false)] {
        let group = GroupBudget::new();
        let setting = Setting::new(PERIOD, Counts { reads: 10, writes: 5 }, 0, 1);
        let mut vcpu = Vcpu::new(setting, Counts::ZERO);
        vcpu.step(&group, 0, Event::Start);
        vcpu.access(&group, 0, Counts { reads: accesses.0, writes: accesses.1 }, 0);
        assert_eq!(vcpu.verdict.run, !first, "{accesses:?}");
    }
}

#[test]
fn a_changed_budget_waits_for_the_next_period() {
    let (group, mut vcpu) = one(10);
    vcpu.set_budget(Counts::one(3));
    vcpu.step(&group, 50, Event::Count);
    assert_eq!(vcpu.verdict.limit.reads, 10);
    vcpu.step(&group, 100, Event::Period);
    assert_eq!(vcpu.verdict.limit.reads, 3);
    assert_eq!(vcpu.regulator.set_budget(Counts::one(0)), Err(Refused::NoBudget));
    assert_eq!(vcpu.regulator.set_budget(Counts { reads: 1, writes: 0 }), Err(Refused::NoBudget));
    vcpu.step(&group, 200, Event::Period);
    assert_eq!(vcpu.verdict.limit.reads, 3);
    vcpu.set_budget(Counts::NEVER);
    vcpu.step(&group, 300, Event::Period);
    assert_eq!(vcpu.verdict.limit, Counts::NEVER);
    vcpu.set_budget(Counts::one(7));
    vcpu.step(&group, 400, Event::Period);
    assert_eq!(vcpu.verdict.limit.reads, 7);
}

#[test]
fn small_and_large_budgets() {
    for budget in [1, 2, (1 << 32) - 1, 1 << 32, (1 << 40) + 1, u64::MAX - 1] {
        let (group, mut vcpu) = one(budget);
        vcpu.access(&group, 0, reads(budget - 1), 0);
        assert_eq!((vcpu.verdict.run, vcpu.verdict.limit.reads), (true, budget));
        vcpu.access(&group, 0, reads(1), 0);
        assert!(!vcpu.verdict.run);
        vcpu.step(&group, 100, Event::Period);
        assert_eq!(vcpu.verdict.limit.reads, budget.saturating_mul(2));
    }
}

#[test]
fn time_and_counts_end_without_a_fault() {
    let setting = Setting::new(PERIOD, Counts::one(10), 0, 1);
    let group = GroupBudget::new();
    let mut vcpu = Vcpu::new(setting, reads(u64::MAX - 3));
    vcpu.step(&group, 100, Event::Period);
    assert!(vcpu.verdict.run);
    vcpu.counts = reads(u64::MAX);
    vcpu.step(&group, 200, Event::Period);
    assert!(!vcpu.verdict.run);
    // The last period has no end.
    let (group, mut vcpu) = one(10);
    vcpu.step(&group, u64::MAX - 1, Event::Period);
    vcpu.access(&group, u64::MAX - 1, reads(10), 0);
    for _ in 0..3 {
        vcpu.step(&group, u64::MAX, Event::Period);
        assert!(!vcpu.verdict.run);
    }
}
