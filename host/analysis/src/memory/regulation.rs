/// How a regulator spends a budget of Q accesses in each period P, and so what it bounds:
/// docs/explanation/regulators.md. `core/budget` has the regulators themselves; a test of this
/// crate compares them with these bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegulatorModel {
    /// At most Q in each period, each vCPU its part of it.
    Static,
    /// At most Q in each period, which the VM's vCPUs draw from one pool in slices of Q / (8
    /// vCPUs).
    Pool {
        /// How many vCPUs draw.
        vcpus: u32,
    },
    /// What its members do not need they lend to each other. What is bounded is the sum of the
    /// domain's budgets.
    Memguard {
        /// Whether all run without a limit once all have spent theirs.
        spare: bool,
    },
    /// xen-throttling III-C: what the critical VM left of Q in a period is granted again in each
    /// later period of the same window.
    Compensation {
        /// Periods between two resets; at least 1.
        window: u32,
        /// Whether the VM that is asked about is the critical one. Others meet what it does not.
        critical: bool,
    },
}

impl RegulatorModel {
    /// The most accesses in any `periods` consecutive periods, without overshoots, where the budget
    /// is `budget`; `None` where the regulator sets no limit. Of MemGuard's members only the sum is
    /// bounded: by the sum of this.
    ///
    /// A compensated VM may use i Q in period i of its window of N: the critical VM may have used
    /// nothing in those before. So the most is N (N + 1) / 2 Q for each whole window, and N Q,
    /// (N - 1) Q, .. for what is left, the last periods of a window.
    #[must_use]
    pub fn most(self, budget: u64, periods: u64) -> Option<u64> {
        match self {
            Self::Static | Self::Pool { .. } | Self::Memguard { spare: false } => {
                Some(budget.saturating_mul(periods))
            }
            Self::Memguard { spare: true } => None,
            Self::Compensation { window, .. } => {
                let n = u64::from(window.max(1));
                let rest = periods % n;
                // Below 2^64: n is below 2^32.
                let whole = n * (n + 1) / 2;
                let last = rest * n - rest * rest.saturating_sub(1) / 2;
                let budgets = (periods / n).saturating_mul(whole).saturating_add(last);
                Some(budget.saturating_mul(budgets))
            }
        }
    }

    /// What a VM that requests more is guaranteed per period in the long run, of a budget of
    /// `budget`.
    ///
    /// - A pool keeps up to a slice, or one access, for each vCPU that becomes idle.
    /// - MemGuard's member can fall short by all that it gave, which is less than Q, in every other
    ///   period.
    #[must_use]
    pub fn guaranteed(self, budget: u64) -> u64 {
        match self {
            Self::Static | Self::Compensation { .. } => budget,
            Self::Pool { vcpus } => {
                let (vcpus, others) = (u128::from(vcpus.max(1)), u128::from(vcpus.max(1)) - 1);
                let slices = (others * u128::from(budget)).div_ceil(8 * vcpus);
                let kept = u64::try_from(slices.max(others)).unwrap_or(u64::MAX);
                budget.saturating_sub(kept)
            }
            Self::Memguard { .. } => budget / 2,
        }
    }

    /// The least budget of which `guaranteed` accesses are guaranteed; `u64::MAX` if there is none.
    #[must_use]
    pub fn enough(self, guaranteed: u64) -> u64 {
        // The guaranteed part does not fall with the budget, and is at least half of it less an
        // access for each vCPU.
        let (mut low, mut high) = (guaranteed, guaranteed.saturating_mul(2).saturating_add(64));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.guaranteed(middle) >= guaranteed {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn regulations() -> impl Strategy<Value = RegulatorModel> {
        prop_oneof![
            Just(RegulatorModel::Static),
            (1..=8_u32).prop_map(|vcpus| RegulatorModel::Pool { vcpus }),
            any::<bool>().prop_map(|spare| RegulatorModel::Memguard { spare }),
            (1..9_u32, any::<bool>())
                .prop_map(|(window, critical)| RegulatorModel::Compensation { window, critical }),
        ]
    }

    proptest! {
        #[test]
        fn a_compensated_vms_maximum_is_of_its_full_periods(
            window in 1..9_u32, budget in 0..50_u64, periods in 0..40_u64,
        ) {
            let regulation = RegulatorModel::Compensation { window, critical: true };
            let of = |start: u64| -> u64 {
                (start..start + periods)
                    .map(|period| budget * (period % u64::from(window) + 1))
                    .sum()
            };
            let max = (0..u64::from(window)).map(of).max();
            prop_assert_eq!(regulation.most(budget, periods), max);
        }

        #[test]
        fn longer_spans_let_through_no_more_than_their_parts(
            regulation in regulations(), budget in 0..1000_u64, one in 0..40_u64,
            other in 0..40_u64,
        ) {
            let most = |periods| regulation.most(budget, periods).unwrap_or(u64::MAX);
            prop_assert!(most(one + other) <= most(one).saturating_add(most(other)));
            prop_assert!(most(one) <= most(one + other));
        }

        #[test]
        fn enough_is_the_least_budget(regulation in regulations(), guaranteed in 0..100_000_u64) {
            let enough = regulation.enough(guaranteed);
            prop_assert!(regulation.guaranteed(enough) >= guaranteed);
            prop_assert!(
                enough == 0 || guaranteed == 0 || regulation.guaranteed(enough - 1) < guaranteed
            );
            prop_assert!(regulation.guaranteed(enough) <= regulation.guaranteed(enough + 1));
        }

        #[test]
        fn nothing_overflows(regulation in regulations(), budget: u64, periods: u64) {
            let _ = (
                regulation.most(budget, periods),
                regulation.guaranteed(budget),
                regulation.enough(budget),
            );
        }
    }
}
