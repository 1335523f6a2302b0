//! Compensation: an interfering VM has again what the critical one left.

use crate::support::{Used, Vcpu, budgets};
use proptest::prelude::*;
use weir_budget::BudgetScope;
use weir_budget::Counts;
use weir_budget::Event;
use weir_budget::GroupBudget;
use weir_budget::Refused;
use weir_budget::RegulatorKind;
use weir_budget::Setting;
use weir_units::Nanos;

const PERIOD: Nanos = Nanos(100);

/// A critical VM, and one that it compensates.
struct Pair {
    group: GroupBudget,
    own: GroupBudget,
    critical: Vec<Vcpu>,
    interferer: Vec<Vcpu>,
    now: u64,
}

impl Pair {
    fn new(budget: Counts, window: u32, critical_vcpus: u8, vcpus: u8, debt: bool) -> Self {
        let critical = (0..critical_vcpus).map(|vcpu| Setting {
            publish: true,
            ..Setting::new(PERIOD, Counts::NEVER, vcpu, critical_vcpus)
        });
        let interferer = (0..vcpus).map(|vcpu| Setting {
            kind: RegulatorKind::Compensation,
            scope: BudgetScope::Vm,
            debt,
            window,
            critical_vcpus,
            ..Setting::new(PERIOD, budget, vcpu, vcpus)
        });
        let start = |setting| Vcpu::new(setting, Counts::ZERO);
        let mut pair = Self {
            group: GroupBudget::new(),
            own: GroupBudget::new(),
            critical: critical.map(start).collect(),
            interferer: interferer.map(start).collect(),
            now: 0,
        };
        pair.send(u8::MAX, Event::Start);
        pair
    }

    /// The critical VM's vCPUs are the first in the mask.
    fn send(&mut self, to: u8, event: Event) {
        let all = self.critical.iter_mut().chain(&mut self.interferer);
        for (_, vcpu) in all.enumerate().filter(|(index, _)| to >> index & 1 == 1) {
            vcpu.step(&self.group, self.now, event);
        }
    }

    /// The critical VM uses `critical`, the other as much as it may; how much that is.
    fn period(&mut self, critical: u64) -> u64 {
        let reads = |reads| Counts { reads, writes: 0 };
        self.critical[0].access(&self.group, self.now, reads(critical), 0);
        let before = self.interferer[0].counts.reads;
        self.interferer[0].access(&self.group, self.now, reads(u64::MAX >> 2), 0);
        self.now += PERIOD.0;
        self.send(u8::MAX, Event::Period);
        self.interferer[0].counts.reads - before
    }
}

/// The use of a VM in each period. Of several that passed unseen, a critical one may have used all
/// of it in any, another in the first.
fn by_period(vcpus: &[Vcpu], last: u64, any: bool) -> Vec<Counts> {
    let used = |index: u64, used: &Used| {
        let reach = if any { used.passed } else { 1 };
        (used.index..used.index + reach).contains(&index)
    };
    (0..=last)
        .map(|index| {
            vcpus
                .iter()
                .flat_map(|vcpu| &vcpu.history)
                .filter(|history| used(index, history))
                .fold(Counts::ZERO, |sum, used| sum.plus(used.counts))
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Action {
    Wait(u64, u8),
    Critical(usize, Counts),
    Interfere(usize, Counts),
    Poll(u8),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let wanted = || (0..120_u64, 0..120_u64).prop_map(|(reads, writes)| Counts { reads, writes });
    let action = prop_oneof![
        6 => (1..=100_u64).prop_map(|span| Action::Wait(span, 0xff)),
        2 => (0..=250_u64, any::<u8>()).prop_map(|(span, told)| Action::Wait(span, told)),
        6 => (0..2_usize, wanted()).prop_map(|(vcpu, wanted)| Action::Critical(vcpu, wanted)),
        8 => (0..2_usize, wanted()).prop_map(|(vcpu, wanted)| Action::Interfere(vcpu, wanted)),
        1 => any::<u8>().prop_map(Action::Poll),
    ];
    prop::collection::vec(action, 0..200)
}

proptest! {
    #[test]
    fn a_critical_vm_suffers_at_most_the_window_budget(
        budget in budgets(2), window in 1..6_u32, critical in 1..=2_u8, vcpus in 1..=2_u8,
        debt: bool, overshoot in 0..10_u64, actions in actions(),
    ) {
        let mut pair = Pair::new(budget, window, critical, vcpus, debt);
        for action in &actions {
            let (group, now) = (&pair.group, pair.now);
            match *action {
                Action::Wait(span, told) => {
                    pair.now += span;
                    pair.send(told, Event::Period);
                }
                Action::Critical(vcpu, wanted) => {
                    pair.critical[vcpu % usize::from(critical)].access(group, now, wanted, 0);
                }
                Action::Interfere(vcpu, wanted) => {
                    pair.interferer[vcpu % usize::from(vcpus)]
                        .access(group, now, wanted, overshoot);
                }
                Action::Poll(told) => pair.send(told, Event::Count),
            }
        }
        pair.now += PERIOD.0;
        pair.send(u8::MAX, Event::Period);
        let last = pair.now / PERIOD.0 + 1;
        let suffered = by_period(&pair.critical, last, true);
        let interfered = by_period(&pair.interferer, last, false);
        let window = window as usize;
        let slack = u64::from(vcpus) * overshoot * window as u64;
        for first in (0..suffered.len()).step_by(window) {
            let periods = suffered.iter().zip(&interfered).skip(first).take(window);
            let sum = periods.fold(Counts::ZERO, |sum, (a, u)| sum.plus(a.least(*u)));
            let bound = budget.times(window as u64).plus(Counts { reads: slack, writes: slack });
            prop_assert!(
                sum.reads <= bound.reads && sum.writes <= bound.writes,
                "{sum:?} from \
                    {first}, over {bound:?}"
            );
        }
    }

    #[test]
    fn what_is_used_in_a_window_is_bounded(
        budget in 1..100_u64, window in 1..6_u32, uses in prop::collection::vec(0..200_u64, 30),
    ) {
        let mut pair = Pair::new(Counts::one(budget), window, 1, 1, true);
        let mut used = vec![0];
        used.extend(uses.iter().map(|&critical| pair.period(critical)));
        for chunk in used.chunks(window as usize) {
            let n = u64::from(window);
            prop_assert!(chunk.iter().sum::<u64>() <= n * (n + 1) / 2 * budget);
        }
    }

    #[test]
    fn one_critical_use_gives_the_papers_budgets(budget in 1..100_u64, critical in 0..100_u64) {
        // Windows of two, III-C: Q, then 2Q - A. The first window has lost period 0.
        let mut pair = Pair::new(Counts::one(budget), 2, 1, 1, true);
        prop_assert_eq!(pair.period(critical), budget);
        for _ in 0..5 {
            prop_assert_eq!(pair.period(critical), budget);
            prop_assert_eq!(pair.period(0), 2 * budget - critical.min(budget));
        }
    }
}

#[test]
fn an_idle_critical_vm_donates_until_the_window_ends() {
    let mut pair = Pair::new(Counts::one(100), 4, 1, 1, true);
    let used: Vec<u64> = (0..11).map(|_| pair.period(0)).collect();
    // Periods are counted from 1; a window begins with 4 and 8.
    assert_eq!(used, [100, 200, 300, 100, 200, 300, 400, 100, 200, 300, 400]);
}

#[test]
fn credit_used_in_the_window_is_gone() {
    let mut pair = Pair::new(Counts::one(100), 4, 1, 1, true);
    for (critical, used) in [(0, 100), (0, 200), (0, 300)] {
        assert_eq!(pair.period(critical), used);
    }
    for (critical, used) in [(40, 100), (500, 160), (500, 100), (90, 100)] {
        assert_eq!(pair.period(critical), used);
    }
}

#[test]
fn an_unknown_use_gives_nothing_until_it_is_known() {
    let mut pair = Pair::new(Counts::one(100), 4, 2, 1, true);
    pair.now = 100;
    // One of the two has not published.
    pair.send(0b101, Event::Period);
    assert_eq!(pair.interferer[0].verdict.limit.reads, 100);
    pair.interferer[0].access(&pair.group, 101, Counts { reads: 60, writes: 0 }, 0);
    pair.send(0b010, Event::Period);
    pair.interferer[0].access(&pair.group, 102, Counts { reads: 400, writes: 0 }, 0);
    assert_eq!(pair.interferer[0].counts.reads, 200);
    // Another VM's record has no effect.
    let mut alone = Pair::new(Counts::one(100), 4, 1, 1, true);
    for period in 1..6 {
        alone.interferer[0].access(&alone.own, alone.now, Counts { reads: 1000, writes: 0 }, 0);
        assert_eq!(alone.interferer[0].counts.reads, period * 100);
        alone.now += 100;
        alone.interferer[0].step(&alone.own, alone.now, Event::Period);
    }
}

#[test]
fn a_use_over_unseen_periods_counts_in_the_last_one() {
    let mut pair = Pair::new(Counts::one(100), 8, 1, 1, true);
    pair.critical[0].access(&pair.group, 0, Counts { reads: 70, writes: 0 }, 0);
    pair.now = 100;
    pair.send(0b10, Event::Period);
    pair.now = 200;
    pair.send(0b11, Event::Period);
    // 30 of the second period; the first is not known and not given.
    assert_eq!(pair.interferer[0].verdict.limit.reads, 130);
}

#[test]
fn an_interferer_that_missed_periods_begins_anew() {
    let mut pair = Pair::new(Counts::one(100), 8, 1, 1, true);
    assert_eq!([0, 0].map(|critical| pair.period(critical)), [100, 200]);
    pair.now += 200;
    pair.send(0b11, Event::Period);
    assert_eq!(pair.interferer[0].verdict.limit.reads, pair.interferer[0].counts.reads + 100);
}

#[test]
fn parts_of_a_vm_share_what_was_left() {
    let mut pair = Pair::new(Counts::one(101), 4, 1, 2, true);
    pair.critical[0].access(&pair.group, 0, Counts { reads: 50, writes: 0 }, 0);
    pair.now = 100;
    pair.send(0b111, Event::Period);
    let limits: Vec<u64> = pair.interferer.iter().map(|vcpu| vcpu.verdict.limit.reads).collect();
    assert_eq!(limits, [50 + 25, 51 + 26]);
}

#[test]
fn an_overshoot_is_paid_and_can_be_forgiven() {
    for (debt, second) in [(true, 193), (false, 200)] {
        let mut pair = Pair::new(Counts::one(100), 2, 1, 1, debt);
        pair.period(500);
        pair.interferer[0].access(&pair.group, pair.now, Counts { reads: 500, writes: 0 }, 7);
        pair.now += 100;
        pair.send(0b11, Event::Period);
        let room = pair.interferer[0].verdict.limit.minus(pair.interferer[0].counts);
        assert_eq!(room.reads, second, "debt: {debt}");
    }
}

#[test]
fn a_changed_budget_begins_a_window() {
    let mut pair = Pair::new(Counts::one(100), 8, 1, 1, true);
    assert_eq!([0, 0].map(|critical| pair.period(critical)), [100, 200]);
    pair.interferer[0].set_budget(Counts::one(10));
    // Until then the old one holds, with its credit.
    assert_eq!([0, 0, 0].map(|critical| pair.period(critical)), [300, 10, 20]);
    assert_eq!(pair.interferer[0].regulator.set_budget(Counts::one(0)), Err(Refused::NoBudget));
}

#[test]
fn a_changed_budget_compensates_nothing_of_before() {
    let mut pair = Pair::new(Counts::one(100), 8, 1, 1, true);
    pair.now = 100;
    pair.send(0b10, Event::Period);
    pair.interferer[0].set_budget(Counts::one(1000));
    pair.send(0b01, Event::Period);
    pair.interferer[0].access(&pair.group, 101, Counts { reads: 5000, writes: 0 }, 0);
    assert_eq!(pair.interferer[0].counts.reads, 100);
}

#[test]
fn a_critical_vm_may_have_a_pool() {
    let mut pair = Pair::new(Counts::one(100), 4, 1, 1, true);
    pair.critical[0] = Vcpu::new(
        Setting {
            kind: RegulatorKind::Pool,
            publish: true,
            ..Setting::new(PERIOD, Counts::one(50), 0, 1)
        },
        Counts::ZERO,
    );
    pair.critical[0].step(&pair.group, 0, Event::Start);
    assert_eq!([200, 200].map(|critical| pair.period(critical)), [100, 150]);
}

#[test]
fn small_and_large_budgets() {
    for budget in [1, 2, 1 << 32, 1 << 40, 1 << 60] {
        let mut pair = Pair::new(Counts::one(budget), 2, 1, 1, true);
        assert_eq!([0, 0, 0].map(|_| pair.period(0)), [budget, budget, 2 * budget]);
    }
}
