//! One budget for all vCPUs of a VM, drawn as they need it.

use crate::support::{Board, actions, budgets};
use proptest::prelude::*;
use weir_budget::Counts;
use weir_budget::Event;
use weir_budget::Refused;
use weir_budget::RegulatorKind;
use weir_budget::Setting;
use weir_units::Nanos;

const PERIOD: Nanos = Nanos(100);

fn pool(budget: Counts, vcpu: u8, vcpus: u8) -> Setting {
    Setting { kind: RegulatorKind::Pool, ..Setting::new(PERIOD, budget, vcpu, vcpus) }
}

/// A board with one VM.
fn board(budget: Counts, vcpus: u8, change: impl Fn(&mut Setting)) -> Board {
    let settings = (0..vcpus).map(|vcpu| {
        let mut setting = pool(budget, vcpu, vcpus);
        change(&mut setting);
        setting
    });
    Board::new(settings, true, 0)
}

proptest! {
    #[test]
    fn the_vcpus_together_never_see_more_than_the_budget(
        budget in budgets(4), vcpus in 1..=4_u8, slice in 0..20_u64, debt: bool, wakes: bool,
        overshoot in 0..20_u64, actions in actions(),
    ) {
        let settings = (0..vcpus).map(|vcpu| Setting {
            debt,
            slice: Counts { reads: slice, writes: slice },
            ..pool(budget, vcpu, vcpus)
        });
        let board = Board::played(settings, wakes, overshoot, &actions);
        let all = u64::from(vcpus) * overshoot;
        let (each, once) = if debt { (0, all) } else { (all, 0) };
        board.assert_bounded(budget, each, once);
    }

    #[test]
    fn nothing_is_withheld_from_those_who_want_it(
        budget in 8..1000_u64, vcpus in 1..=8_u8, slice in 0..50_u64,
        order in prop::collection::vec(0..8_usize, 1..10),
    ) {
        let mut board =
            board(Counts::one(budget), vcpus, |setting| setting.slice = Counts::one(slice));
        for period in 0..10 {
            let used: u64 = order
                .iter()
                .cycle()
                .take(40)
                .map(|&vcpu| board.read(vcpu % usize::from(vcpus), 30_000))
                .sum();
            // The others hold what they drew at the boundary, a slice at most.
            let slice = if slice == 0 { (budget / (8 * u64::from(vcpus))).max(1) } else { slice };
            prop_assert!(
                used <= budget && used + slice * u64::from(vcpus) >= budget,
                "{used} in {period}"
            );
            board.next_period();
        }
    }
}

#[test]
fn one_busy_vcpu_gets_all() {
    let mut board = board(Counts::one(4000), 2, |_| ());
    for _ in 0..5 {
        // An idle one keeps an access for itself.
        assert_eq!(board.read(0, 10_000), 3999);
        assert!(!board.vcpus[0].verdict.run && board.vcpus[1].verdict.run);
        board.next_period();
    }
}

#[test]
fn two_busy_vcpus_share() {
    let mut board = board(Counts::one(1000), 2, |_| ());
    for _ in 0..4 {
        let mut used = [0, 0];
        for _ in 0..1000 {
            for (vcpu, used) in used.iter_mut().enumerate() {
                *used += board.read(vcpu, 1);
            }
        }
        // By slices of 62.
        assert!(used[0] + used[1] == 1000 && used[0].abs_diff(used[1]) <= 62, "{used:?}");
        board.next_period();
    }
}

#[test]
fn what_a_stopped_vcpu_has_left_wakes_others() {
    let mut board = board(Counts::one(100), 2, |setting| setting.slice = Counts::one(60));
    assert_eq!(board.read(1, 2), 2);
    assert_eq!(board.read(0, 1000), 39);
    assert!(!board.vcpus[0].verdict.run);
    // It had drawn 61 and used 2.
    board.send(1, Event::Stop);
    assert!(!board.vcpus[1].verdict.run && board.vcpus[0].verdict.run);
    assert_eq!(board.read(0, 1000), 59);
    // A restart brings nothing.
    for event in [Event::Start, Event::Count, Event::Stop, Event::Start] {
        board.send(1, event);
        assert!(!board.vcpus[1].verdict.run);
    }
}

#[test]
fn returned_shares_wake_the_other_once_per_period() {
    let settings =
        [0, 1].map(|vcpu| Setting { slice: Counts::one(60), ..pool(Counts::one(100), vcpu, 2) });
    let mut board = Board::new(settings, false, 0);
    let mut named = [0; 3];
    for named in &mut named {
        board.read(0, 2);
        board.read(1, 1000);
        assert!(board.vcpus[0].verdict.run && !board.vcpus[1].verdict.run);
        for _ in 0..50 {
            board.vcpus[0].off = true;
            board.send(0, Event::Stop);
            *named += u32::from(board.vcpus[0].verdict.wake == 0b10);
            board.vcpus[0].off = false;
            board.send(0, Event::Count);
            assert!(board.vcpus[0].verdict.run, "it draws what it returned");
        }
        board.next_period();
    }
    assert_eq!(named, [1; 3]);
    // A vCPU that does not have its core does not ask.
    board.read(0, 2);
    board.read(1, 1000);
    board.now += PERIOD.0;
    board.send(0, Event::Period);
    board.read(0, 1000);
    board.send(1, Event::Descheduled);
    assert!(!board.vcpus[1].verdict.run);
    board.send(0, Event::Stop);
    assert_eq!(board.vcpus[0].verdict.wake, 0);
}

#[test]
fn a_driver_that_wakes_nobody_loses_only_time() {
    let settings =
        [0, 1].map(|vcpu| Setting { slice: Counts::one(60), ..pool(Counts::one(100), vcpu, 2) });
    let mut board = Board::new(settings, false, 0);
    assert_eq!(board.read(1, 2) + board.read(0, 1000), 41);
    board.send(1, Event::Stop);
    assert!(!board.vcpus[0].verdict.run);
    board.send(0, Event::Count);
    assert_eq!(board.read(0, 1000), 59);
}

#[test]
fn an_overshoot_is_drawn_from_slice_then_next_pool() {
    let mut board = board(Counts::one(10), 1, |setting| setting.slice = Counts::one(2));
    board.overshoot = 3;
    // Each draw pays for 3 and brings 2 more; the last leaves a debt of 3.
    assert_eq!(board.read(0, 1000), 13);
    board.next_period();
    assert!(board.vcpus[0].verdict.run);
    assert_eq!(board.vcpus[0].verdict.limit.reads, 10 + 3 + 2);
    // Of that pool 5 are drawn.
    assert_eq!(board.read(0, 1000), 23 - 13);
    // A debt of 3 is larger than a budget of 1.
    board.vcpus[0].set_budget(Counts::one(1));
    for run in [false, false, false, true] {
        board.next_period();
        assert_eq!(board.vcpus[0].verdict.run, run);
    }
}

#[test]
fn reads_and_writes_are_two_pools() {
    let budget = Counts { reads: 100, writes: 10 };
    let mut board = board(budget, 2, |setting| setting.slice = Counts { reads: 10, writes: 1 });
    board.access(0, Counts { reads: 50, writes: 100 });
    let used = board.vcpus[0].counts;
    assert!(!board.vcpus[0].verdict.run && used.writes == 9, "{used:?}");
    board.access(1, Counts { reads: 1000, writes: 0 });
    assert!(board.vcpus[1].counts.reads + used.reads >= 90);
}

#[test]
fn a_changed_budget_fills_the_next_pool() {
    let mut board = board(Counts::one(10), 2, |_| ());
    for vcpu in &mut board.vcpus {
        vcpu.set_budget(Counts::one(30));
    }
    assert_eq!(board.read(0, 100), 9);
    board.next_period();
    assert_eq!(board.read(0, 100), 29);
    let vcpu = &mut board.vcpus[0];
    assert_eq!(vcpu.regulator.set_budget(Counts::one(0)), Err(Refused::NoBudget));
    assert_eq!(vcpu.regulator.set_budget(Counts::one(1 << 40)), Err(Refused::LargeBudget));
    board.next_period();
    assert_eq!(board.read(0, 100), 29);
}

#[test]
fn small_and_large_pools() {
    for budget in [1, 2, 1 << 32, (1 << 40) - 1] {
        let mut board = board(Counts::one(budget), 1, |_| ());
        for _ in 0..3 {
            assert_eq!(board.read(0, u64::MAX >> 2), budget);
            assert!(!board.vcpus[0].verdict.run);
            board.next_period();
        }
    }
    let mut board = board(Counts::NEVER, 1, |_| ());
    assert_eq!(board.read(0, 1 << 50), 1 << 50);
}

#[test]
fn a_pool_that_nobody_touched_for_long_is_full() {
    for periods in [1, (1 << 23) - 1] {
        let mut board = board(Counts::one(50), 1, |_| ());
        board.now = 100 * periods;
        board.boundary(0);
        assert_eq!(board.read(0, 1000), 50);
    }
}

#[test]
fn without_debt_an_unpaid_overshoot_is_forgiven() {
    for (debt, used) in [(true, [13, 10, 10]), (false, [13; 3])] {
        let mut board = board(Counts::one(10), 1, |setting| {
            (setting.debt, setting.slice) = (debt, Counts::one(10));
        });
        board.overshoot = 3;
        for used in used {
            assert_eq!(board.read(0, 1000), used, "debt: {debt}");
            board.next_period();
        }
    }
}
