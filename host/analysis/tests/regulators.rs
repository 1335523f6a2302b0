//! The bounds of the analysis for a regulator, against the regulator itself: no history of
//! accesses, late interrupts, restarts and sleeping vCPUs takes more, and none leaves a VM less
//! than is guaranteed.

use crate::support::{Action, Board, actions};
use proptest::prelude::*;
use weir_analysis::memory::RegulatorModel;
use weir_budget::BudgetScope;
use weir_budget::Counts;
use weir_budget::RegulatorKind;
use weir_budget::Setting;
use weir_units::Nanos;

const PERIOD: Nanos = Nanos(100);

/// The settings of a VM of `vcpus` with this budget, as the hypervisor would have them.
fn settings(regulation: RegulatorModel, budget: u64, vcpus: u8) -> Vec<Setting> {
    let of = |vcpu| {
        let setting = Setting::new(PERIOD, Counts::one(budget), vcpu, vcpus);
        let setting = Setting { scope: BudgetScope::Vm, ..setting };
        match regulation {
            RegulatorModel::Static => setting,
            RegulatorModel::Pool { .. } => Setting { kind: RegulatorKind::Pool, ..setting },
            RegulatorModel::Memguard { spare } => {
                Setting { kind: RegulatorKind::Memguard, spare, ..setting }
            }
            RegulatorModel::Compensation { window, .. } => {
                Setting { kind: RegulatorKind::Compensation, window, ..setting }
            }
        }
    };
    (0..vcpus).map(of).collect()
}

/// What the vCPUs from `first` on used in each period.
fn used(board: &Board, first: usize) -> Vec<u64> {
    let history = || board.vcpus[first..].iter().flat_map(|vcpu| &vcpu.history);
    let last = history().map(|used| used.index).max().unwrap_or(0);
    let mut all = vec![0; last as usize + 1];
    for used in history() {
        all[used.index as usize] += used.counts.reads;
    }
    all
}

/// The periods' uses, from any on and for any number of them, are within `regulation`'s bound and
/// an overshoot of each vCPU: one with debt, one in each period without.
fn assert_within(
    used: &[u64],
    regulation: RegulatorModel,
    budget: u64,
    overshoot: u64,
    debt: bool,
) {
    for start in 0..used.len() {
        let mut sum = 0;
        for (count, used) in used[start..].iter().enumerate() {
            sum += used;
            let periods = count as u64 + 1;
            let most = regulation.most(budget, periods).expect("a bound");
            let overshoots = if debt { overshoot } else { overshoot * periods };
            assert!(
                sum <= most + overshoots,
                "{sum} in {periods} periods from {start} on, {regulation:?} of {budget} promises \
                 {most} and {overshoots}"
            );
        }
    }
}

/// A regulator with a bound on all of its vCPUs together.
fn alone(vcpus: u8) -> impl Strategy<Value = RegulatorModel> {
    prop_oneof![
        Just(RegulatorModel::Static),
        Just(RegulatorModel::Pool { vcpus: vcpus.into() }),
        Just(RegulatorModel::Memguard { spare: false }),
    ]
}

proptest! {
    #[test]
    fn no_history_takes_more_than_is_promised(
        (vcpus, regulation) in (1..=4_u8).prop_flat_map(|vcpus| (Just(vcpus), alone(vcpus))),
        budget in 4..60_u64, debt: bool, wakes: bool, overshoot in 0..10_u64, actions in actions(),
    ) {
        let settings = settings(regulation, budget, vcpus).into_iter();
        let settings = settings.map(|setting| Setting { debt, ..setting });
        let board = Board::played(settings, wakes, overshoot, &actions);
        let all = overshoot * u64::from(vcpus);
        assert_within(&used(&board, 0), regulation, budget, all, debt);
    }

    #[test]
    fn no_history_exceeds_the_compensation_bound(
        window in 1..6_u32, vcpus in 1..=3_u8, budget in 3..60_u64, debt: bool,
        overshoot in 0..10_u64, actions in actions(),
        busy in prop::collection::vec((0..80_u64, 0..400_u64), 0..40),
    ) {
        let regulation = RegulatorModel::Compensation { window, critical: true };
        let critical =
            Setting { publish: true, debt, ..Setting::new(PERIOD, Counts::one(budget), 0, 1) };
        let compensated = settings(regulation, budget, vcpus).into_iter();
        let compensated = compensated.map(|setting| Setting { debt, critical_vcpus: 1, ..setting });
        let mut board = Board::new([critical].into_iter().chain(compensated), true, overshoot);
        // First a greedy one in time, which wants all that is there, then anything.
        for (own, wanted) in busy {
            board.read(0, own);
            board.next_period();
            for vcpu in 1..=usize::from(vcpus) {
                board.read(vcpu, wanted);
            }
        }
        for action in &actions {
            board.act(action);
        }
        board.end();
        assert_within(&used(&board, 1), regulation, budget, overshoot * u64::from(vcpus), debt);
    }

    #[test]
    fn a_busy_vm_gets_the_guaranteed_part(
        (vcpus, regulation) in (1..=4_u8).prop_flat_map(|vcpus| (Just(vcpus), alone(vcpus))),
        budget in 8..200_u64, hungry in 0..4_usize,
        wants in prop::collection::vec(prop::collection::vec(0..80_u64, 4), 1..40),
    ) {
        let hungry = hungry % usize::from(vcpus);
        let mut board = Board::new(settings(regulation, budget, vcpus), true, 0);
        let mut got = 0;
        // A static part is each vCPU's own: there all must want more.
        let all = regulation == RegulatorModel::Static;
        let lends = matches!(regulation, RegulatorModel::Memguard { .. });
        for wants in &wants {
            board.next_period();
            let before: u64 = board.vcpus.iter().map(|vcpu| vcpu.counts.reads).sum();
            for (vcpu, wanted) in (0..usize::from(vcpus)).zip(wants) {
                board.read(vcpu, if all { budget } else { *wanted });
            }
            board.read(hungry, budget);
            let after: u64 = board.vcpus.iter().map(|vcpu| vcpu.counts.reads).sum();
            if !lends {
                prop_assert!(
                    after - before >= regulation.guaranteed(budget),
                    "{} of {budget}",
                    after - before
                );
            }
            got += after - before;
        }
        if !lends {
            prop_assert!(got >= wants.len() as u64 * regulation.guaranteed(budget));
        }
    }

    #[test]
    fn a_lender_that_wants_more_gets_half_in_the_long_run(
        budget in 2..100_u64, others in 1..=3_u8,
        wants in prop::collection::vec((prop::collection::vec(0..300_u64, 3), 0..120_u64), 2..60),
    ) {
        let members = others + 1;
        let whole = budget * u64::from(members);
        let regulation = RegulatorModel::Memguard { spare: false };
        let mut board = Board::new(settings(regulation, whole, members), true, 0);
        // It is short only in a period in which it wants more than it gets; what it does not want
        // it has not missed.
        let (mut wanted, mut got) = (0, 0);
        for (wants, own) in &wants {
            board.next_period();
            for (other, want) in (1..usize::from(members)).zip(wants) {
                board.read(other, *want);
            }
            let want = (*own).min(budget);
            got += board.read(0, want);
            wanted += want;
        }
        // One period's gift more: the first may be short, and the last.
        prop_assert!(
            got + budget
                >= wanted - wanted.min(regulation.guaranteed(budget) * wants.len() as u64 + budget)
        );
        let short = wanted - got;
        prop_assert!(
            short <= (wants.len() as u64).div_ceil(2) * budget,
            "{short} short in {} \
                periods",
            wants.len()
        );
    }
}

/// Spare sharing has no bound, which is why none is promised.
#[test]
fn spare_sharing_takes_any_amount() {
    let regulation = RegulatorModel::Memguard { spare: true };
    assert_eq!(regulation.most(10, 1), None);
    let mut board = Board::new(settings(regulation, 10, 2), true, 0);
    board.read(0, 5);
    board.read(1, 5);
    assert_eq!(board.read(0, 1_000_000), 1_000_000);
}

/// The bounds are reached: less would be too little.
#[test]
fn the_bounds_are_tight() {
    let regulation = RegulatorModel::Compensation { window: 4, critical: true };
    let critical = Setting { publish: true, ..Setting::new(PERIOD, Counts::one(10), 0, 1) };
    let compensated = settings(regulation, 10, 1)[0];
    let mut board = Board::new([critical, compensated], true, 0);
    for _ in 0..20 {
        board.next_period();
        board.act(&Action::Access(1, Counts { reads: 1000, writes: 0 }));
    }
    board.end();
    let used = used(&board, 1);
    for periods in 1..=9_usize {
        let most = used.windows(periods).map(|some| some.iter().sum()).max();
        assert_eq!(most, regulation.most(10, periods as u64));
    }
}
