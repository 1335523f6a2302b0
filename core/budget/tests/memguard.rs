//! MemGuard: prediction, donation, reclaim, and what they never take.

use crate::support::{Action, Board, actions, budgets};
use proptest::prelude::*;
use weir_budget::Counts;
use weir_budget::Event;
use weir_budget::MAX_VCPUS;
use weir_budget::Refused;
use weir_budget::RegulatorKind;
use weir_budget::Setting;
use weir_units::Nanos;

const PERIOD: Nanos = Nanos(100);

fn memguard(budget: Counts, member: u8, members: u8) -> Setting {
    Setting {
        kind: RegulatorKind::Memguard,
        member,
        members,
        ..Setting::new(PERIOD, budget, member % MAX_VCPUS as u8, MAX_VCPUS as u8)
    }
}

/// A domain with these budgets of reads.
fn domain<const N: usize>(budgets: [u64; N], change: impl Fn(&mut Setting)) -> Board {
    let settings = budgets.into_iter().enumerate().map(|(member, budget)| {
        let mut setting = memguard(Counts::one(budget), member as u8, N as u8);
        change(&mut setting);
        setting
    });
    Board::new(settings, true, 0)
}

proptest! {
    #[test]
    fn the_domain_never_sees_more_than_its_budgets(
        budgets in prop::collection::vec(budgets(1), 1..=4), keep_percent in 0..=100_u8,
        smoothing in 0..4_u8, slice in 0..20_u64, debt: bool, wakes: bool, overshoot in 0..20_u64,
        actions in actions(),
    ) {
        let members = budgets.len() as u8;
        let settings = budgets.iter().zip(0..).map(|(&budget, member)| Setting {
            debt,
            keep_percent,
            smoothing,
            slice: Counts { reads: slice, writes: slice },
            ..memguard(budget, member, members)
        });
        let board = Board::played(settings, wakes, overshoot, &actions);
        let sum = budgets.iter().fold(Counts::ZERO, |sum, &budget| sum.plus(budget));
        let all = u64::from(members) * overshoot;
        let (each, once) = if debt { (0, all) } else { (all, 0) };
        board.assert_bounded(sum, each, once);
    }

    #[test]
    fn a_lender_is_short_by_its_loan_and_not_twice(
        budgets in prop::collection::vec(budgets(1), 1..=4), keep_percent in 0..=100_u8,
        smoothing in 0..4_u8, slice in 0..20_u64, wakes: bool, overshoot in 0..20_u64,
        actions in actions(),
    ) {
        let members = budgets.len() as u8;
        let settings = budgets.iter().zip(0..).map(|(&budget, member)| Setting {
            keep_percent,
            smoothing,
            slice: Counts { reads: slice, writes: slice },
            ..memguard(budget, member, members)
        });
        let board = Board::played(settings, wakes, overshoot, &actions);
        for (vcpu, budget) in board.vcpus.iter().zip(&budgets) {
            // Less its debt, which is an overshoot.
            let own = |budget: u64| budget.saturating_sub(overshoot);
            let kept = |budget: u64| own(budget * u64::from(keep_percent) / 100);
            let mut short_before = false;
            for used in &vcpu.history {
                let got = used.counts;
                let short = used.suspended
                    && !used.stopped
                    && got.reads < own(budget.reads)
                    && got.writes < own(budget.writes);
                prop_assert!(!(short && short_before), "twice short: {:?}", vcpu.history);
                prop_assert!(
                    !short || got.reads >= kept(budget.reads) || got.writes >= kept(budget.writes)
                );
                short_before = short || (short_before && used.passed == 0);
            }
        }
    }

    #[test]
    fn spare_never_comes_while_one_has_budget(
        budgets in prop::collection::vec(1..60_u64, 2..=4), overshoot in 0..20_u64,
        actions in actions(),
    ) {
        let members = budgets.len() as u8;
        let settings = budgets.iter().zip(0..).map(|(&budget, member)| Setting {
            spare: true,
            keep_percent: 20,
            ..memguard(Counts::one(budget), member, members)
        });
        let mut board = Board::new(settings, true, overshoot);
        for action in &actions {
            // Member 0 neither accesses nor stops.
            let vcpu = match action {
                Action::Wait(..) => 1,
                Action::Access(vcpu, _)
                | Action::Poll(vcpu)
                | Action::Stop(vcpu)
                | Action::Resume(vcpu)
                | Action::Restart(vcpu) => vcpu % usize::from(members),
            };
            if vcpu != 0 {
                board.act(action);
            }
        }
        board.end();
        board.assert_bounded(Counts::one(budgets.iter().sum()), 0, u64::from(members) * overshoot);
    }
}

#[test]
fn an_idle_member_lends_more_each_period() {
    let mut board = domain([1000, 1000], |setting| setting.slice = Counts::one(1));
    // 1000 of its own, and what the other's prediction of 1000, 500, 250, ... sets free.
    let used: Vec<u64> = (0..5)
        .map(|_| {
            let used = board.read(0, 10_000);
            board.next_period();
            used
        })
        .collect();
    assert_eq!(used, [1000, 1500, 1750, 1875, 1938]);
}

#[test]
fn prediction_follows_use_with_the_weight_it_is_given() {
    for (smoothing, second) in [(0, 1900), (1, 1450), (2, 1225), (10, 1001), (32, 1001)] {
        let mut board = domain([1000, 1000], |setting| setting.smoothing = smoothing);
        board.read(1, 100);
        board.read(0, 10_000);
        board.next_period();
        assert_eq!(board.read(0, 10_000), second, "smoothing {smoothing}");
    }
    // And up again, by half of what is missing: 800 from 0. Member 1 holds the rest of its slice.
    let mut board = domain([1000, 1000], |setting| setting.slice = Counts::one(1000));
    for _ in 0..12 {
        board.next_period();
    }
    assert_eq!((board.read(1, 800), board.read(0, 10_000)), (800, 999));
    board.next_period();
    assert_eq!(board.read(0, 10_000), 1000 + 600);
}

#[test]
fn a_lender_that_erred_is_short_once() {
    let mut board = domain([100, 100], |setting| {
        setting.smoothing = 0;
        setting.keep_percent = 30;
    });
    assert_eq!(board.read(0, 1000), 100);
    board.next_period();
    // Member 1 was idle: it gave 70, which the other takes.
    assert_eq!((board.read(0, 1000), board.read(1, 1000)), (170, 30));
    board.next_period();
    // It gives nothing now, and has all of its own.
    assert_eq!((board.read(0, 1000), board.read(1, 1000)), (100, 100));
}

#[test]
fn a_lenders_shortage_is_drawn_first() {
    let mut board = domain([100, 100, 100], |setting| {
        setting.smoothing = 0;
        setting.slice = Counts::one(10);
    });
    board.read(0, 1000);
    board.next_period();
    // Both others gave 99, and keep an access that shows when they want more.
    assert_eq!((board.read(0, 1000), board.read(1, 1000)), (298, 1));
    board.next_period();
    // Member 2 gave again, but after member 1's boundary. Now 1 draws the 99 that it was short of,
    // in one draw.
    assert_eq!(board.read(1, 101), 101);
    assert_eq!(board.vcpus[1].verdict.limit.reads, 1 + 100 + 99);
    assert_eq!(board.read(0, 1000), 100);
}

#[test]
fn a_member_that_goes_off_gives_and_is_owed_nothing() {
    let mut board = domain([100, 100], |_| ());
    assert_eq!((board.read(1, 30), board.read(0, 1000)), (30, 100));
    assert!(!board.vcpus[0].verdict.run);
    board.send(1, Event::Stop);
    assert!(board.vcpus[0].verdict.run && !board.vcpus[1].verdict.run);
    assert_eq!(board.read(0, 1000), 70);
    // It comes back in the same period.
    for event in [Event::Start, Event::Count] {
        board.send(1, event);
        assert!(!board.vcpus[1].verdict.run);
    }
    board.next_period();
    assert_eq!((board.read(1, 1000), board.read(0, 1000)), (100, 100));
    // While it is off the others have its budget.
    board.vcpus[1].off = true;
    board.next_period();
    assert_eq!(board.read(0, 1000), 200);
    board.next_period();
    assert_eq!(board.read(0, 1000), 200);
}

#[test]
fn spare_comes_when_all_have_spent_theirs() {
    let mut board = domain([100, 100, 100], |setting| setting.spare = true);
    assert_eq!((board.read(0, 1000), board.read(1, 1000)), (100, 100));
    assert!(!board.vcpus[0].verdict.run && !board.vcpus[1].verdict.run);
    assert_eq!(board.read(2, 99), 99);
    assert!(!board.vcpus[0].verdict.run);
    // The last one's last access wakes all.
    assert_eq!(board.read(2, 1000), 1000);
    for vcpu in &board.vcpus {
        assert_eq!((vcpu.verdict.run, vcpu.verdict.limit), (true, Counts::NEVER));
    }
    assert_eq!(board.read(0, 5000), 5000);
    // No debt comes of it.
    board.next_period();
    assert_eq!([0, 1].map(|vcpu| board.read(vcpu, 1000)), [100, 100]);
    // One that goes off has spent its budget too.
    assert!(!board.vcpus[0].verdict.run);
    board.send(2, Event::Stop);
    assert_eq!([0, 1].map(|vcpu| board.read(vcpu, 1 << 20)), [1 << 20; 2]);
}

#[test]
fn without_spare_all_wait() {
    let mut board = domain([100, 100], |_| ());
    assert_eq!((board.read(0, 1000), board.read(1, 1000)), (100, 100));
    assert!(board.vcpus.iter().all(|vcpu| !vcpu.verdict.run));
}

#[test]
fn an_overshoot_is_paid() {
    let mut board = domain([100], |_| ());
    board.overshoot = 7;
    assert_eq!(board.read(0, 1000), 107);
    board.overshoot = 0;
    board.next_period();
    assert_eq!(board.read(0, 1000), 93);
    // The debt is no shortage: nothing is owed.
    board.next_period();
    assert_eq!(board.read(0, 1000), 100);
}

#[test]
fn a_changed_budget_waits_for_the_next_period() {
    let mut board = domain([100, 10], |_| ());
    board.vcpus[0].set_budget(Counts::one(50));
    assert_eq!(board.read(0, 1000), 100);
    board.next_period();
    assert_eq!(board.read(0, 50), 50);
    let regulator = &mut board.vcpus[0].regulator;
    assert_eq!(regulator.set_budget(Counts::one(0)), Err(Refused::NoBudget));
    assert_eq!(regulator.set_budget(Counts::one(1 << 40)), Err(Refused::LargeBudget));
}

#[test]
fn small_and_large_budgets() {
    for budget in [1, 2, 1 << 32, (1 << 40) - 1] {
        let mut board = domain([budget], |_| ());
        for _ in 0..3 {
            assert_eq!(board.read(0, u64::MAX >> 2), budget);
            board.next_period();
        }
    }
}

#[test]
fn thirty_two_members() {
    let mut board = domain([1; 32], |setting| setting.spare = true);
    for member in 0..31 {
        assert_eq!(board.read(member, 10), 1);
    }
    assert_eq!(board.read(31, 10), 10);
    assert!(board.vcpus.iter().all(|vcpu| vcpu.verdict.run));
}

#[test]
fn what_was_given_at_a_stop_is_not_owed() {
    let mut board = domain([100, 100, 100], |setting| setting.smoothing = 0);
    assert_eq!(board.read(2, 30), 30);
    board.send(2, Event::Stop);
    assert_eq!(board.read(1, 1000), 170);
    board.send(2, Event::Count);
    assert!(!board.vcpus[2].verdict.run);
    board.next_period();
    // Member 2 has all of its own now, and nothing of what member 0 has just given.
    let vcpu = &board.vcpus[2];
    assert_eq!(vcpu.verdict.limit.reads, vcpu.counts.reads + 100);
}

#[test]
fn a_member_that_comes_back_draws_what_it_gave() {
    let mut board = domain([100, 100], |_| ());
    assert_eq!(board.read(1, 30), 30);
    board.send(1, Event::Stop);
    board.send(1, Event::Count);
    assert_eq!(board.read(1, 1000), 70);
}

#[test]
fn a_debt_is_kept_beside_what_is_needed() {
    let mut board = domain([100, 100], |setting| setting.slice = Counts::one(50));
    board.next_period();
    board.overshoot = 7;
    // Predicted 50, it draws what both gave, and overshoots.
    assert_eq!(board.read(0, 1000), 100 + 50 + 7);
    board.next_period();
    let vcpu = &board.vcpus[0];
    assert_eq!(vcpu.verdict.limit.reads, vcpu.counts.reads + 75);
}
