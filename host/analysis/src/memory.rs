//! Memory bandwidth: the saturation of the DRAM (rt-virtio II-A and V-A) and what budgets let
//! others do to a critical task (MemGuard budgets; the compensation window of xen-throttling
//! III-C).

mod regulation;

use core::fmt;

pub use regulation::RegulatorModel;
pub use weir_model::timing::qos_bandwidth;

use crate::units::{Bytes, BytesPerSec, Events, Nanos};

/// (a b) / c rounded up, saturating.
fn scale_up(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from((u128::from(a) * u128::from(b)).div_ceil(u128::from(c))).unwrap_or(u64::MAX)
}

/// The largest QoS level, 1 to 2^12, with a bandwidth by Eq. 1 of at most `limit`; `None` if even
/// level 1 exceeds it.
#[must_use]
pub fn qos_level(block: Bytes, limit: BytesPerSec, clock_hz: u64) -> Option<u64> {
    let per_level = u128::from(block.0) * u128::from(clock_hz);
    let level = (u128::from(limit.0) << 12).checked_div(per_level)?.min(1 << 12);
    u64::try_from(level).ok().filter(|&l| l > 0)
}

/// A memory budget: at most `accesses` in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Q, line refills (or the event that the regulator counts) per period.
    pub accesses: u64,
    /// P; at least 1 ns.
    pub period: Nanos,
}

impl Budget {
    /// b = Q S_l / P in bytes/s, rounded up: what the refills read; write-backs can write as much
    /// again.
    #[must_use]
    pub fn bandwidth(self, line: Bytes) -> BytesPerSec {
        let bytes = self.accesses.saturating_mul(line.0);
        BytesPerSec(scale_up(bytes, 1_000_000_000, self.period.0.max(1)))
    }

    /// The same, rounded down: at least so much is had of the budget.
    #[must_use]
    pub fn bandwidth_at_least(self, line: Bytes) -> BytesPerSec {
        let bytes = u128::from(self.accesses) * u128::from(line.0) * 1_000_000_000;
        let rate = bytes / u128::from(self.period.0.max(1));
        BytesPerSec(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Refills and write-backs together.
    #[must_use]
    pub fn total_bandwidth(self, line: Bytes) -> BytesPerSec {
        BytesPerSec(self.bandwidth(line).0.saturating_mul(2))
    }

    /// The most accesses in any window of length `t`: ceil(t/P) + 1 budgets, for the window need
    /// not start with a period.
    #[must_use]
    pub fn most_in(self, t: Nanos) -> u64 {
        let periods = t.0.div_ceil(self.period.0.max(1)).saturating_add(1);
        self.accesses.saturating_mul(periods)
    }
}

/// A measured pair that leaves the cores' bandwidth unaffected: a row of Table I.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaturationPoint {
    /// Sum of the budgets of all cores, accesses per period of the table.
    pub total_budget: u64,
    /// DMA bandwidth measured at the highest QoS level below saturation.
    pub dma: BytesPerSec,
}

/// Pairs of total budget and DMA bandwidth at which the DRAM is not saturated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaturationTable {
    period: Nanos,
    /// By budget, with strictly falling DMA bandwidth.
    points: Vec<SaturationPoint>,
}

/// Why a saturation table is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// No points.
    Empty,
    /// The period is 0.
    ZeroPeriod,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a saturation table needs at least one point",
            Self::ZeroPeriod => "the period of the saturation table is 0",
        })
    }
}

impl core::error::Error for TableError {}

impl SaturationTable {
    /// A table of points measured with budgets per `period`. A point that another one covers is
    /// dropped.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn new(period: Nanos, mut points: Vec<SaturationPoint>) -> Result<Self, TableError> {
        if period.0 == 0 {
            return Err(TableError::ZeroPeriod);
        }
        points.sort_unstable_by_key(|p| {
            (core::cmp::Reverse(p.total_budget), core::cmp::Reverse(p.dma))
        });
        let mut kept: Vec<SaturationPoint> = Vec::new();
        for point in points {
            if kept.last().is_none_or(|last| last.dma < point.dma) {
                kept.push(point);
            }
        }
        kept.reverse();
        if kept.is_empty() { Err(TableError::Empty) } else { Ok(Self { period, points: kept }) }
    }

    /// Table I of rt-virtio: ZCU102, P = 30 us.
    #[must_use]
    pub fn rt_virtio() -> Self {
        let points = [(150, 1074), (165, 649), (180, 485), (195, 148), (210, 47)].map(
            |(total_budget, mb)| SaturationPoint { total_budget, dma: BytesPerSec(mb * 1_000_000) },
        );
        Self { period: Nanos(30_000), points: points.to_vec() }
    }

    /// The period that budgets of the table refer to.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.period
    }

    /// The points, by rising budget.
    #[must_use]
    pub fn points(&self) -> &[SaturationPoint] {
        &self.points
    }

    /// A budget as one of the table's period that lets through at least as much in any window;
    /// `None` where its regulator sets no limit. One with a longer period counts whole, since it
    /// may be spent in one burst; one with a shorter period counts as often as it is needed to fill
    /// the table's, rounded up, since a window holds at most so many of its periods for each one of
    /// the table's. That is enough because a regulator lets through no more in a span of periods
    /// than in its parts.
    #[must_use]
    pub fn counted(&self, budget: Budget, regulation: RegulatorModel) -> Option<u64> {
        regulation.most(budget.accesses, self.period.0.div_ceil(budget.period.0.max(1)))
    }

    /// Eq. 2, U^b(b) + sum U^c(b_k) <= 1: whether a total budget and a DMA bandwidth are together
    /// below saturation. They are if a measured point has at least as much of both. Between two
    /// points nothing was measured, so the next point with more budget decides; a line drawn
    /// between them could lie on the wrong side.
    #[must_use]
    pub fn holds(&self, total_budget: u64, dma: BytesPerSec) -> bool {
        self.max_dma(total_budget).is_some_and(|most| dma <= most)
    }

    /// The largest DMA bandwidth below saturation next to a total budget; `None` if the cores alone
    /// saturate the DRAM.
    #[must_use]
    pub fn max_dma(&self, total_budget: u64) -> Option<BytesPerSec> {
        self.points.iter().find(|p| p.total_budget >= total_budget).map(|p| p.dma)
    }

    /// The largest total budget below saturation next to a DMA bandwidth; `None` if no point has
    /// that much.
    #[must_use]
    pub fn max_budget(&self, dma: BytesPerSec) -> Option<u64> {
        self.points.iter().rev().find(|p| p.dma >= dma).map(|p| p.total_budget)
    }
}

/// Another VM, as the critical one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interferer {
    /// Its budget.
    pub budget: Budget,
    /// How the budget is spent.
    pub regulation: RegulatorModel,
    /// Accesses that still pass in each period between the overflow and the stop.
    pub overshoot: Events,
    /// Whether each counted access can cause an additional write-back that is not counted.
    pub write_back: bool,
    /// How many VMs it stands for: those of MemGuard's domain have one budget together.
    pub vms: u64,
}

impl Interferer {
    /// Has one budget with another of MemGuard's domain from now on. Their periods are the same;
    /// where they are not, the shorter one is taken, which lets through more.
    pub fn join(&mut self, other: &Self) {
        let both = Budget {
            accesses: self.budget.accesses.saturating_add(other.budget.accesses),
            period: self.budget.period.min(other.budget.period),
        };
        self.budget = both;
        self.overshoot = self.overshoot.saturating_add(other.overshoot);
        self.vms = self.vms.saturating_add(other.vms);
    }

    /// The most transactions that it can issue in any window of length `t`, which touches at most
    /// ceil(t/P) + 1 periods; `u64::MAX` where its regulator sets no limit.
    #[must_use]
    pub fn issued(&self, t: Nanos) -> u64 {
        let periods = t.0.div_ceil(self.budget.period.0.max(1)).saturating_add(1);
        let Some(most) = self.regulation.most(self.budget.accesses, periods) else {
            return u64::MAX;
        };
        let overshoots = self.overshoot.saturating_mul(periods);
        most.saturating_add(overshoots.0).saturating_mul(1 + u64::from(self.write_back))
    }

    /// The most transactions of it that a VM can meet in a window of length `t`, if each of the
    /// latter's accesses meets at most one. Where that VM is the critical one of a compensation,
    /// what it left is what was added, so N periods meet N Q.
    #[must_use]
    pub fn met(&self, t: Nanos) -> u64 {
        let issued = self.issued(t);
        let RegulatorModel::Compensation { window, critical: true } = self.regulation else {
            return issued;
        };
        let n = u64::from(window.max(1));
        let each = self.budget.accesses.saturating_add(self.overshoot.0).saturating_mul(n);
        let period = Nanos(self.budget.period.0.max(1).saturating_mul(n));
        let windows = Budget { accesses: each, period }.most_in(t);
        windows.saturating_mul(1 + u64::from(self.write_back)).min(issued)
    }

    /// The most transactions of it that can delay a VM in a window of length `t` in which that VM
    /// makes `own` accesses, if that is known and each of them meets at most `per_access` of each
    /// other VM.
    #[must_use]
    pub fn delaying(&self, t: Nanos, own: Option<u64>, per_access: Option<u64>) -> u64 {
        let (Some(own), Some(each)) = (own, per_access) else { return self.issued(t) };
        let cap = own.saturating_mul(each).saturating_mul(self.vms.max(1));
        if each == 1 { self.met(t).min(cap) } else { self.issued(t).min(cap) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: Bytes = Bytes(64);

    #[test]
    fn equation_1_on_the_zcu102() {
        for (level, mb) in [(3, 47), (10, 156), (40, 625), (60, 938)] {
            let b = qos_bandwidth(Bytes(128), level, 500_000_000);
            assert_eq!((b.0 + 500_000) / 1_000_000, mb);
            assert_eq!(qos_level(Bytes(128), b, 500_000_000), Some(level));
        }
        assert_eq!(qos_level(Bytes(128), BytesPerSec(1000), 500_000_000), None);
        assert_eq!(qos_level(Bytes(128), BytesPerSec(u64::MAX), 500_000_000), Some(4096));
    }

    #[test]
    fn saturation_of_the_zcu102_is_225_refills_in_30_us() {
        let total = Budget { accesses: 225, period: Nanos(30_000) };
        assert_eq!(total.total_bandwidth(LINE), BytesPerSec(960_000_000));
    }

    #[test]
    fn the_point_of_higher_budget_decides() {
        let table = SaturationTable::rt_virtio();
        assert_eq!(table.max_dma(180), Some(BytesPerSec(485_000_000)));
        assert_eq!(table.max_dma(181), Some(BytesPerSec(148_000_000)));
        assert_eq!(table.max_dma(211), None);
        assert_eq!(table.max_budget(BytesPerSec(485_000_001)), Some(165));
        assert!(!table.holds(0, BytesPerSec(1_075_000_000)));
        let long = Budget { accesses: 200, period: Nanos(1_000_000) };
        let short = Budget { accesses: 5, period: Nanos(10_000) };
        let counted = |budget| table.counted(budget, RegulatorModel::Static);
        assert_eq!([long, short].map(counted), [Some(200), Some(15)]);
    }

    proptest! {
        #[test]
        fn what_a_table_allows_a_measured_point_covers(
            points in prop::collection::vec((1u64..300, 1u64..2000), 1..8),
            budget in 0u64..320,
            dma in 0u64..2200,
        ) {
            let points: Vec<_> = points
                .into_iter()
                .map(|(total_budget, dma)| SaturationPoint { total_budget, dma: BytesPerSec(dma) })
                .collect();
            let table = SaturationTable::new(Nanos(1000), points.clone()).unwrap();
            let covered = points.iter().any(|p| p.total_budget >= budget && p.dma.0 >= dma);
            prop_assert_eq!(table.holds(budget, BytesPerSec(dma)), covered);
            if let Some(most) = table.max_budget(BytesPerSec(dma)) {
                prop_assert!(table.holds(most, BytesPerSec(dma)));
                prop_assert!(!table.holds(most + 1, BytesPerSec(dma)));
            }
        }

        /// The table is asked about an amount that is at least the budget itself, for every window.
        #[test]
        fn a_budget_of_the_tables_period_covers_the_given_one(
            q in 1u64..50, period in 1u64..100, of_table in 1u64..100, window in 0u64..500,
        ) {
            let points = vec![SaturationPoint { total_budget: 1, dma: BytesPerSec(1) }];
            let table = SaturationTable::new(Nanos(of_table), points).unwrap();
            let given = Budget { accesses: q, period: Nanos(period) };
            let accesses = table.counted(given, RegulatorModel::Static).unwrap();
            let counted = Budget { accesses, period: Nanos(of_table) };
            prop_assert!(counted.most_in(Nanos(window)) >= given.most_in(Nanos(window)));
            // And not without need: whole periods of the one in the other.
            if of_table % period == 0 {
                prop_assert_eq!(counted.accesses, q * (of_table / period));
            }
        }

        /// A regulator played period by period with every offset of the window never beats the
        /// bound.
        #[test]
        fn no_schedule_of_budgets_exceeds_the_bound(
            q in 0u64..20, period in 1u64..30, start in 0u64..60, length in 0u64..200,
        ) {
            let budget = Budget { accesses: q, period: Nanos(period) };
            // All of a budget can fall anywhere in its period: count every period that the window
            // touches.
            let touched =
                if length == 0 { 0 } else { (start + length - 1) / period - start / period + 1 };
            prop_assert!(budget.most_in(Nanos(length)) >= q * touched);
        }

        /// xen-throttling III-C played literally against every behavior of the critical VM.
        #[test]
        fn compensation_meets_at_most_a_window_of_budgets(
            q in 1u64..9, window in 1u32..5, own in prop::collection::vec(0u64..20, 1..20),
        ) {
            let i = Interferer {
                budget: Budget { accesses: q, period: Nanos(10) },
                regulation: RegulatorModel::Compensation { window, critical: true },
                overshoot: Events(0),
                write_back: false,
                vms: 1,
            };
            let (mut budget, mut met, mut issued) = (0, 0, 0);
            for (k, &a) in own.iter().enumerate() {
                if k % window as usize == 0 {
                    budget = q;
                } else {
                    budget += q;
                }
                met += a.min(budget);
                issued += budget;
                // Unused by interference stays; the rest of what the critical VM could have met is
                // gone.
                budget -= a.min(budget);
            }
            let t = Nanos(10 * own.len() as u64);
            prop_assert!(met <= i.met(t));
            prop_assert!(issued <= i.issued(t));
        }
    }
}
