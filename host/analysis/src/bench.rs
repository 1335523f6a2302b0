//! Random flow sets as in rt-virtio V-C, and how long the analysis takes on them.

use std::time::Instant;

use crate::flows::{
    Analyzer, Effort, Flow, MinBandwidth, Overheads, Reading, Setting, Verdict, transform,
};
use crate::units::{Bytes, BytesPerSec, Nanos};

/// A family of random flow sets (rt-virtio V-C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Number of flows.
    pub flows: usize,
    /// Number of VMs; each flow gets one of them as its sender.
    pub vms: u32,
    /// Packet size of every flow.
    pub size: Bytes,
    /// DMA bandwidth from which periods are computed.
    pub bandwidth: BytesPerSec,
}

impl Family {
    /// The setting of section V: chunks of 4 KiB, a queue for each VM that sends.
    pub const SETTING: Setting =
        Setting { chunk: Bytes(4096), queues: None, reading: Reading::Printed };

    /// The shares of the utilization of the flows (`UUniFast`, Bini and Buttazzo 2005) and their
    /// senders.
    fn draw(&self, random: &mut fastrand::Rng) -> Vec<(f64, u32)> {
        let mut left = 1.0;
        (0..self.flows)
            .map(|i| {
                let rest = self.flows - 1 - i;
                let next = if rest == 0 {
                    0.0
                } else {
                    left * (1.0 - random.f64()).powf(1.0 / rest as f64)
                };
                let share = left - next;
                left = next;
                (share, random.u32(0..self.vms))
            })
            .collect()
    }

    /// P = (C/b) / U, rounded to whole ns.
    fn at(&self, shares: &[(f64, u32)], utilization: f64) -> Vec<Flow> {
        let transfer = self.size.0 as f64 * 1e9 / self.bandwidth.0 as f64;
        shares
            .iter()
            .map(|&(share, from)| {
                // A share of 1e-9 would give a period of days; the analysis takes up to 52 days.
                let period =
                    Nanos((transfer / (utilization * share).max(1e-9)).round().max(1.0) as u64);
                Flow {
                    size: self.size,
                    period,
                    deadline: period,
                    from,
                    to: (from + 1) % self.vms.max(2),
                }
            })
            .collect()
    }

    /// A set of the given utilization before the overheads.
    #[must_use]
    pub fn set(&self, utilization: f64, random: &mut fastrand::Rng) -> Vec<Flow> {
        self.at(&self.draw(random), utilization)
    }

    /// A set whose U', with all overheads, is `inflated` (within 1e-6).
    #[must_use]
    pub fn set_inflated(
        &self,
        inflated: f64,
        overheads: &Overheads,
        random: &mut fastrand::Rng,
    ) -> Vec<Flow> {
        let shares = self.draw(random);
        let (mut low, mut high) = (1e-3, 1.0);
        let mut analyzer = Analyzer::new();
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            let over = transform(&self.at(&shares, middle), &Self::SETTING, overheads).is_ok_and(
                |tasks| {
                    analyzer.load(&tasks);
                    analyzer.utilization(self.bandwidth).is_none_or(|u| u > inflated)
                },
            );
            if over { high = middle } else { low = middle }
        }
        self.at(&shares, low)
    }
}

/// How long the analysis took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Sets that were timed.
    pub sets: usize,
    /// The time of each, ns, rising.
    pub times: Vec<u64>,
    /// Half of the sets took at most this, ns.
    pub median_ns: u64,
    /// 95 % of the sets took at most this, ns.
    pub p95_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// Sets schedulable at the bandwidth asked.
    pub schedulable: usize,
    /// Sets for which the exact minimum was not reached within the effort.
    pub gave_up: usize,
}

impl Timing {
    /// So many thousandths of the sets took at most this, ns.
    #[must_use]
    pub fn at(&self, thousandths: usize) -> u64 {
        let last = self.times.len().saturating_sub(1);
        self.times.get((self.times.len() * thousandths / 1000).min(last)).copied().unwrap_or(0)
    }
}

/// A set that took longer may have lost its core to another process: it is analyzed again, and the
/// least time counts.
const OUTLIER_NS: u64 = 1_000_000;
/// Sets that are drawn before they are analyzed one after the other, so that no analysis begins
/// with the caches and the branch history of the drawing, which takes longer than it.
const BATCH: usize = 256;
/// Times that a set is analyzed at most.
const REPEATS: usize = 4;

/// Times verdict and minimum bandwidth, from the flows on, over random sets of 48 flows of 12 KiB
/// from 4 VMs whose U' at the bandwidth asked is spread evenly over 0.5 to 0.99; the bandwidths are
/// those of section V-C, in cyclic order.
///
/// # Panics
/// Never: the families lie within the limits of the analysis.
#[must_use]
pub fn analysis(sets: usize, seed: u64, effort: Effort, mut progress: impl FnMut(usize)) -> Timing {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut times = Vec::with_capacity(sets);
    let mut analyzer = Analyzer::new();
    let (mut schedulable, mut gave_up) = (0, 0);
    let overheads = Overheads::RT_VIRTIO;
    let mut drawn = Vec::with_capacity(BATCH);
    for i in 0..sets {
        if drawn.is_empty() {
            for i in i..sets.min(i + BATCH) {
                let bandwidth = BytesPerSec([150_000_000, 500_000_000, 1_000_000_000][i % 3]);
                let family = Family { flows: 48, vms: 4, size: Bytes(12 * 1024), bandwidth };
                let inflated = 0.5 + 0.49 * random.f64();
                drawn.push((bandwidth, family.set_inflated(inflated, &overheads, &mut random)));
            }
            drawn.reverse();
        }
        let Some((bandwidth, flows)) = drawn.pop() else { break };
        let mut time = u64::MAX;
        let mut answer = None;
        for _ in 0..REPEATS {
            let start = Instant::now();
            let this = transform(&flows, &Family::SETTING, &overheads).and_then(|tasks| {
                analyzer.load(&tasks);
                // In this order the minimum answers the other question too.
                let least = analyzer.min_bandwidth(effort);
                Ok((analyzer.verdict(bandwidth, effort)?, least))
            });
            time = time.min(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            answer = Some(this);
            if time < OUTLIER_NS {
                break;
            }
        }
        times.push(time);
        if let Some(Ok((verdict, least))) = answer {
            schedulable += usize::from(verdict == Verdict::Schedulable);
            gave_up += usize::from(matches!(least, MinBandwidth::GaveUp { .. }));
        }
        progress(i + 1);
    }
    times.sort_unstable();
    let mut timing =
        Timing { sets, times, median_ns: 0, p95_ns: 0, max_ns: 0, schedulable, gave_up };
    (timing.median_ns, timing.p95_ns, timing.max_ns) =
        (timing.at(500), timing.at(950), timing.at(1000));
    timing
}
