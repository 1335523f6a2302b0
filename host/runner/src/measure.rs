//! The measured values of a budget, from a ledger.

use std::ops::Range;
use weir_qemu_plugin::ledger::{CoreLedger, GuestCounts, Period};

/// Selects the count that a budget limits.
pub type Pick = fn(&GuestCounts) -> u64;

/// The use of a budget by a vCPU with a demand that always exceeds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The most accesses in one period.
    pub max_per_period: u64,
    /// The most accesses in one period above the budget less the debt of the periods before.
    pub overshoot_max: u64,
    /// The relative error of the rate over all periods: accesses per period and budget, less 1.
    pub rate_error: f64,
    /// The number of these periods.
    pub periods: u64,
    /// All accesses in them.
    pub total: u64,
}

impl Measured {
    /// Judges the periods of `core` with a budget of `budget` a period of `period` ns, which began
    /// at `boundaries` if that is known. What counts is the longest stretch of periods in which the
    /// vCPU wanted more than it got, less the first of them: before and behind, the guest was
    /// starting, printing or ending. `None` if there are no two such periods.
    pub fn of(
        core: &CoreLedger,
        pick: Pick,
        budget: u64,
        period: u64,
        boundaries: Option<&Vec<u64>>,
    ) -> Option<Self> {
        let periods = &core.periods;
        let hungry = hungry(periods, pick, budget);
        let (first, last) = (hungry.start, hungry.end.checked_sub(1)?);
        let counted = periods.get(first + 1..=last).filter(|counted| !counted.is_empty())?;
        let (mut owed, mut overshoot) = (0_u64, 0_u64);
        for used in periods.iter().map(|period| pick(&period.counts)) {
            let left = budget.saturating_sub(owed);
            overshoot = overshoot.max(used.saturating_sub(left));
            owed = (owed + used).saturating_sub(budget);
        }
        let total: u64 = counted.iter().map(|period| pick(&period.counts)).sum();
        // A period without a recorded start counts, too: it follows from the clock.
        let seen = counted.len() as u64;
        let passed = boundaries
            .filter(|boundaries| boundaries.len() == periods.len() + 1 && core.dropped == 0)
            .and_then(|boundaries| Some(boundaries.get(last + 1)? - boundaries.get(first + 1)?))
            .map_or(seen, |time| (time + period / 2) / period);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let rate = total as f64 / (passed.max(1) as f64 * budget as f64);
        Some(Self {
            max_per_period: periods.iter().map(|period| pick(&period.counts)).max()?,
            overshoot_max: overshoot,
            rate_error: rate - 1.0,
            periods: passed,
            total,
        })
    }
}

/// The longest stretch of periods in which the vCPU was suspended, be it by what it owed from
/// before.
pub fn hungry(periods: &[Period], pick: Pick, budget: u64) -> Range<usize> {
    let (mut owed, mut start, mut longest) = (0_u64, 0, 0..0);
    for (place, period) in periods.iter().enumerate() {
        if !period.throttled && owed < budget {
            start = place + 1;
        } else if place + 1 - start > longest.len() {
            longest = start..place + 1;
        }
        owed = (owed + pick(&period.counts)).saturating_sub(budget);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(used: &[(u64, bool)]) -> CoreLedger {
        let period = |&(refills, throttled): &(u64, bool)| Period {
            counts: GuestCounts { refills, ..GuestCounts::default() },
            polls: 1,
            throttled,
        };
        CoreLedger { periods: used.iter().map(period).collect(), ..CoreLedger::default() }
    }

    #[test]
    fn begin_and_end_do_not_count_and_debts_do() {
        let used = [(7, false), (104, true), (96, true), (103, true), (97, true), (40, false)];
        let seen = Measured::of(&core(&used), |counts| counts.refills, 100, 10, None).expect("it");
        assert_eq!((seen.max_per_period, seen.periods, seen.total), (104, 3, 296));
        // The second has 96 of 100 left and takes no more, the third 100 and 3 more.
        assert_eq!(seen.overshoot_max, 4);
        assert!((seen.rate_error - (296.0 / 300.0 - 1.0)).abs() < 1e-12);
    }

    #[test]
    fn an_unrecorded_period_makes_the_rate_less() {
        let used = [(100, true), (100, true), (100, true)];
        let boundaries = vec![0, 10, 21, 40];
        let of = |boundaries| {
            Measured::of(&core(&used), |counts| counts.refills, 100, 10, boundaries).expect("it")
        };
        assert_eq!((of(Some(&boundaries)).periods, of(None).periods), (3, 2));
        assert!((of(Some(&boundaries)).rate_error + 1.0 / 3.0).abs() < 1e-12);
        // The trace has lost a boundary: then the periods seen are what there is.
        assert_eq!(of(Some(&boundaries[1..].to_vec())).periods, 2);
    }

    #[test]
    fn the_longest_hungry_interval_counts() {
        let used =
            [(100, true), (100, true), (3, false), (350, true), (0, false), (0, false), (50, true)];
        let periods = core(&used).periods;
        assert_eq!(hungry(&periods, |counts| counts.refills, 100), 3..7);
        let seen = Measured::of(&core(&used), |counts| counts.refills, 100, 10, None).expect("it");
        assert_eq!((seen.periods, seen.total, seen.overshoot_max), (3, 50, 250));
    }

    #[test]
    fn a_core_that_was_never_suspended_gives_nothing() {
        for used in [&[][..], &[(5, false)], &[(5, false), (100, true), (5, false)]] {
            assert_eq!(Measured::of(&core(used), |counts| counts.refills, 100, 10, None), None);
        }
    }
}
