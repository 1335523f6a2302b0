//! Sections IV and V-B of rt-virtio point by point: slow, written from the paper's equations and
//! its Table II alone, and without any code of `weir_analysis::flows`, so that a mistake there
//! shows.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "times are far below 2^52 ns, or are bounds"
)]

/// Table II, in ns: MIN where the analysis needs it, and MAX.
const HC: [i128; 2] = [939, 949];
const PT: [i128; 2] = [111, 757];
const PP: i128 = 1161;
const QL: i128 = 142;
const QI: i128 = 101;
const QA: i128 = 30;
const QR: i128 = 40;
const PS: i128 = 71;
const PD: i128 = 949;
const FT: i128 = 2646;
const IP: i128 = 828;
const BR: i128 = 1460;
/// Chunk of a transfer, in bytes.
const CHUNK: i128 = 4096;

/// A flow after Eq. 3 and 4; times in units of 1/(2b) ns, of which all of them are whole numbers.
#[derive(Clone, Copy, Debug)]
struct Task {
    /// C'.
    cost: i128,
    /// D' - J'.
    first: i128,
    /// P'.
    period: i128,
    /// q', the longest piece that is not preempted.
    piece: i128,
}

/// A set of flows with implicit deadlines.
#[derive(Clone, Debug)]
pub struct Set(Vec<Task>);

impl Set {
    /// Flows of packets of `size` bytes, each with its period in ns and its sender, over a DMA of
    /// `bandwidth` bytes a second.
    #[must_use]
    pub fn new(bandwidth: u64, size: u64, flows: &[(u64, u32)]) -> Self {
        let unit = 2 * i128::from(bandwidth);
        let size = i128::from(size);
        let mut senders: Vec<u32> = flows.iter().map(|flow| flow.1).collect();
        senders.sort_unstable();
        senders.dedup();
        // Eq. 19 to 22.
        let [send_min, send_max] = [0, 1].map(|i| HC[i] * unit / 2 + PT[i] * unit);
        let dma = (senders.len() as i128 * PS + PD + HC[1] + IP + FT) * unit;
        let receive = BR * unit - HC[1] * unit / 2;
        let transfer = |bytes: i128| bytes * 2_000_000_000;
        let chunks = (size + CHUNK - 1) / CHUNK;
        let last = size - (chunks - 1) * CHUNK;
        let task = |&(period, sender): &(u64, u32)| {
            // Eq. 23 to 27; with D = P one packet of each flow can be pending.
            let own = flows.iter().filter(|flow| flow.1 == sender).count() as i128;
            let by_broker = (QL + QR) * unit;
            let by_sender = (QL + QI + own * QA) * unit;
            let removal = by_sender + by_broker;
            let jitter = own * (PP * unit + by_sender + by_broker);
            let period = i128::from(period) * unit;
            Task {
                cost: chunks * dma + transfer(size) + removal,
                first: period - send_max - receive - jitter,
                period: period + send_min - send_max,
                piece: if chunks == 1 {
                    dma + transfer(last) + removal
                } else {
                    dma + transfer(CHUNK).max(transfer(last) + removal)
                },
            }
        };
        Self(flows.iter().map(task).collect())
    }

    /// U', with all overheads.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.0.iter().map(|task| task.cost as f64 / task.period as f64).sum()
    }

    /// Whether Eq. 14 holds at each of its instants, as far as it can fail. `None` if these are
    /// more than `most` or U' is too close to 1 to decide.
    #[must_use]
    pub fn is_schedulable(&self, most: usize) -> Option<bool> {
        let tasks = &self.0;
        if tasks.iter().any(|task| task.first <= 0 || task.period <= 0) {
            return Some(false);
        }
        let spare = 1.0 - self.utilization();
        if spare.abs() < 1e-9 {
            return None;
        }
        if spare < 0.0 {
            return Some(false);
        }
        let sum: f64 = tasks
            .iter()
            .map(|task| task.cost as f64 * ((task.period - task.first) as f64 / task.period as f64))
            .sum();
        // Each flow's demand is below C' (t - (D' - J') + P') / P'. So from here on the left side
        // of Eq. 10 is below t, independently of the pieces of flows with later deadlines; testing
        // a little further does not change the answer.
        let piece = tasks.iter().map(|task| task.piece).max()?;
        let end = ((sum + piece as f64) / spare * 1.000_001) as i128 + 1;
        let mut next: Vec<i128> = tasks.iter().map(|task| task.first).collect();
        for _ in 0..most {
            let (place, t) = next.iter().copied().enumerate().min_by_key(|next| next.1)?;
            if t >= end {
                return Some(true);
            }
            if self.demand(t) > t {
                return Some(false);
            }
            next[place] += tasks[place].period;
        }
        None
    }

    /// The left side of Eq. 10 at `t`.
    fn demand(&self, t: i128) -> i128 {
        let started = self.0.iter().filter(|task| task.first > t).map(|task| task.piece).max();
        let due = |task: &Task| (1 + (t - task.first).div_euclid(task.period)).max(0) * task.cost;
        started.unwrap_or(0) + self.0.iter().map(due).sum::<i128>()
    }
}

/// The utilization before overheads at which U' = 1, of `flows` flows of equal shares from four
/// senders, one after the other.
#[must_use]
pub fn cliff(bandwidth: u64, size: u64, flows: u32) -> f64 {
    let transfer = size as f64 * 1e9 / bandwidth as f64;
    let (mut below, mut above) = (0.0, 1.0);
    for _ in 0..30 {
        let middle = f64::midpoint(below, above);
        let period = (transfer * f64::from(flows) / middle) as u64;
        let set: Vec<_> = (0..flows).map(|flow| (period, flow % 4)).collect();
        let set = Set::new(bandwidth, size, &set);
        // Where overheads leave nothing of a period, U' is no number to compare.
        let over = set.0.iter().any(|task| task.period <= 0) || set.utilization() > 1.0;
        if over { above = middle } else { below = middle }
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's values are 474.5 ns below what its equations give, rounded up.
    #[test]
    fn table_iii_follows_from_the_equations() {
        for (mb, kib, published) in
            [(148, 4, 36_933), (148, 12, 103_171), (485, 4, 17_703), (485, 12, 45_480)]
        {
            let holds = |period| {
                Set::new(mb * 1_000_000, kib * 1024, &[(period, 0)]).is_schedulable(100_000)
            };
            assert_eq!(holds(published + 475), Some(true), "{mb} {kib}");
            assert_eq!(holds(published + 473), Some(false), "{mb} {kib}");
        }
    }

    #[test]
    fn overload_is_refused_and_long_searches_end() {
        let of = |period| Set::new(1_000_000_000, 4096, &[(period, 0), (period, 1)]);
        assert_eq!(of(4000).is_schedulable(1000), Some(false));
        assert_eq!(of(19_000).is_schedulable(1000), Some(false));
        assert_eq!(of(100_000).is_schedulable(1000), Some(true));
        assert_eq!(of(100_000).is_schedulable(0), None);
    }
}
