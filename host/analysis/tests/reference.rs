//! The analysis against a slow reference that is written from the equations of rt-virtio and shares
//! no code with it.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::many_single_char_names,
    reason = "drawn values are small"
)]

use num_bigint::BigInt;
use weir_analysis::flows::{
    Analyzer, Effort, Flow, MinBandwidth, Overheads, Path, Range, Reading, Schedulability,
    UnschedulableCause, transform,
};
use weir_analysis::{Bytes, BytesPerSec, Nanos};

/// Sections IV and V-B, equation by equation. Times are in units of 1/(2b) ns, which makes all of
/// them integers.
mod naive {
    use super::*;

    pub struct Set {
        /// C', D', P', J' and q' of Eq. 3, 4, 19 to 27.
        tasks: Vec<(i128, i128, i128, i128, i128)>,
        b: i128,
    }

    #[derive(Debug, PartialEq)]
    pub enum Answer {
        Schedulable,
        Unschedulable,
        TooManyPoints,
    }

    impl Set {
        pub fn new(flows: &[Flow], path: &Path, bandwidth: u64) -> Self {
            let o = &path.overheads;
            let b = i128::from(bandwidth);
            let unit = 2 * b;
            let max = |r: Range| i128::from(r.max.0) * unit;
            let min = |r: Range| i128::from(r.min.0) * unit;
            let mut sending: Vec<usize> = flows.iter().map(|f| f.from).collect();
            sending.sort_unstable();
            sending.dedup();
            let m = path.queues.map_or(sending.len() as i128, i128::from);
            let os_min = min(o.hc) / 2 + min(o.pt);
            let mut os_max = max(o.hc) / 2 + max(o.pt);
            let o_dma = m * max(o.ps) + max(o.pd) + max(o.hc) + max(o.ip) + max(o.ft);
            let mut o_r = max(o.br) - max(o.hc) / 2;
            if path.reading == Reading::Table3 {
                os_max = (os_max + unit - 1) / unit * unit;
                o_r = max(o.br) - max(o.hc);
            }
            let time = |time: Option<Nanos>| i128::from(time.unwrap().0);
            let transfer = |bytes: i128| bytes * 1_000_000_000 * 2;
            let s_c = i128::from(path.chunk.0);
            let tasks = flows
                .iter()
                .map(|flow| {
                    let gamma: Vec<&Flow> = flows.iter().filter(|f| f.from == flow.from).collect();
                    let pending: i128 = gamma
                        .iter()
                        .map(|f| (time(f.deadline) + time(f.period) - 1) / time(f.period))
                        .sum();
                    let o_qi = max(o.qi) + pending * max(o.qa);
                    let b_b = max(o.ql) + max(o.qr);
                    let b_s = max(o.ql) + o_qi;
                    let o_pckt = b_s + b_b;
                    let jitter = (max(o.pp) + b_s + b_b) * gamma.len() as i128;
                    let size = i128::from(flow.size.0);
                    let chunks = (size + s_c - 1) / s_c;
                    let last = size - (chunks - 1) * s_c;
                    let cost = chunks * o_dma + transfer(size) + o_pckt;
                    let q = if size <= s_c {
                        o_dma + transfer(last) + o_pckt
                    } else {
                        o_dma + transfer(s_c).max(transfer(last) + o_pckt)
                    };
                    let deadline = time(flow.deadline) * unit - os_max - o_r;
                    let period = time(flow.period) * unit + os_min - os_max;
                    (cost, deadline, period, jitter, q)
                })
                .collect();
            Self { tasks, b }
        }

        fn eta(&self, i: usize, t: i128) -> i128 {
            let (_, d, p, j, _) = self.tasks[i];
            (1 + (t - (d - j)).div_euclid(p)).max(0)
        }

        /// The left side of Eq. 10.
        fn demand(&self, t: i128) -> i128 {
            let q = self
                .tasks
                .iter()
                .filter(|(_, d, _, j, _)| d - j > t)
                .map(|x| x.4)
                .max()
                .unwrap_or(0);
            q + (0..self.tasks.len()).map(|i| self.eta(i, t) * self.tasks[i].0).sum::<i128>()
        }

        /// Eq. 14, with T* of Eq. 13 rounded up to the next instant.
        pub fn answer(&self, most_points: usize) -> Answer {
            if self.tasks.iter().any(|(_, d, p, j, _)| d - j <= 0 || *p <= 0) {
                return Answer::Unschedulable;
            }
            let product: BigInt = self.tasks.iter().map(|x| BigInt::from(x.2)).product();
            let numerator: BigInt = self.tasks.iter().map(|x| x.0 * (&product / x.2)).sum();
            if numerator > product {
                return Answer::Unschedulable;
            }
            let mut h = BigInt::from(1);
            for x in &self.tasks {
                let (mut a, mut c) = (h.clone(), BigInt::from(x.2));
                while c != BigInt::ZERO {
                    let r = &a % &c;
                    (a, c) = (c, r);
                }
                h = h / a * x.2;
            }
            let mut end = h;
            if numerator < product {
                let sum: BigInt = self
                    .tasks
                    .iter()
                    .map(|(c, d, p, j, _)| BigInt::from(*c) * (p - (d - j)) * (&product / *p))
                    .sum();
                let spare = &product - &numerator;
                let mut bound: BigInt = (sum + &spare - 1) / spare;
                bound =
                    bound.max(self.tasks.iter().map(|x| BigInt::from(x.1 - x.3)).max().unwrap());
                end = end.min(bound);
            }
            let mut next: Vec<i128> = self.tasks.iter().map(|x| x.1 - x.3).collect();
            for _ in 0..most_points {
                let (i, t) = next.iter().copied().enumerate().min_by_key(|x| x.1).unwrap();
                if BigInt::from(t) >= end {
                    return Answer::Schedulable;
                }
                if self.demand(t) > t {
                    return Answer::Unschedulable;
                }
                next[i] += self.tasks[i].2;
            }
            Answer::TooManyPoints
        }

        /// The earliest failing point, in half ns.
        pub fn first_failure(&self, most_points: usize) -> Option<i128> {
            let mut next: Vec<i128> = self.tasks.iter().map(|x| x.1 - x.3).collect();
            for _ in 0..most_points {
                let (i, t) = next.iter().copied().enumerate().min_by_key(|x| x.1).unwrap();
                if self.demand(t) > t {
                    return Some(t / self.b);
                }
                next[i] += self.tasks[i].2;
            }
            None
        }
    }
}

use naive::{Answer, Set};

const SOME: Effort = Effort(1 << 22);

struct Random(fastrand::Rng);

impl Random {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.u64(low..=high)
    }

    /// Evenly spread in the logarithm.
    fn scale(&mut self, low: f64, high: f64) -> f64 {
        (low.ln() + self.0.f64() * (high / low).ln()).exp()
    }

    fn path(&mut self) -> Path {
        let mut path = Path {
            chunk: Bytes([1, 64, 1000, 4096, 16384][self.0.usize(..5)]),
            queues: if self.0.bool() { None } else { Some(self.between(1, 8) as u32) },
            reading: if self.0.bool() { Reading::Printed } else { Reading::Table3 },
            ..Path::paper(Overheads::RT_VIRTIO)
        };
        if self.between(0, 2) == 0 {
            for (name, _) in path.overheads.named() {
                let max = self.between(0, 3000);
                path.overheads.set(name, Range::new(self.between(0, max), max));
            }
        }
        path
    }

    /// Flows of one of the shapes that the issue lists. Sizes stay within 40 chunks.
    fn flows(&mut self, Bytes(chunk): Bytes) -> Vec<Flow> {
        let n = self.between(1, 7);
        let shape = self.between(0, 5);
        let base = self.scale(3e4, 1e6);
        let flow = |r: &mut Self| {
            let period = match shape {
                0 => base * r.scale(1.0, 3e3),
                _ => base * r.scale(1.0, 20.0),
            };
            let deadline = match shape {
                1 => period * r.scale(0.2, 1.0),
                2 => period * r.scale(1.0, 6.0),
                3 => period * r.scale(0.3, 3.0),
                _ => period,
            };
            let size = match r.between(0, 3) {
                0 => r.between(1, chunk),
                1 => chunk,
                2 => chunk * r.between(1, 12),
                _ => r.between(1, chunk * 40),
            };
            let times = [period, deadline].map(|time| (time as u64).max(1));
            timed(size.min(60_000), times, r.between(0, 3) as usize)
        };
        if shape == 4 {
            let one = flow(self);
            return vec![one; n as usize];
        }
        (0..n).map(|_| flow(self)).collect()
    }
}

fn timed(size: u64, times: [u64; 2], from: usize) -> Flow {
    let [period, deadline] = times.map(|time| Some(Nanos(time)));
    Flow { from, to: vec![9], size: Bytes(size), period, deadline, ..Flow::default() }
}

/// Compares one set; returns which of the answers the reference could give.
fn compare(
    flows: &[Flow],
    path: &Path,
    bandwidth: Option<u64>,
    r: &mut Random,
    most_points: usize,
) -> [bool; 3] {
    let context = || format!("{flows:?} {path:?}");
    let mut analyzer = Analyzer::new(&transform(flows, path).unwrap(), &[]);
    let least = analyzer.min_bandwidth(SOME);
    let mut seen = [false; 3];
    match least {
        MinBandwidth::Exactly(BytesPerSec(b)) => {
            match Set::new(flows, path, b).answer(most_points) {
                Answer::TooManyPoints => {}
                answer => {
                    assert_eq!(answer, Answer::Schedulable, "at the minimum {b}: {}", context());
                    seen[0] = true;
                }
            }
            if b > 1 {
                match Set::new(flows, path, b - 1).answer(most_points) {
                    Answer::TooManyPoints => {}
                    answer => {
                        assert_eq!(
                            answer,
                            Answer::Unschedulable,
                            "just under the minimum {b}: {}",
                            context()
                        );
                    }
                }
            }
        }
        MinBandwidth::Never(_) => {
            let answer = Set::new(flows, path, 1 << 49).answer(most_points);
            assert_ne!(answer, Answer::Schedulable, "{}", context());
        }
        MinBandwidth::GaveUp { at_least, enough } => {
            assert!(enough.is_none_or(|e| e > at_least), "{}", context());
        }
    }
    let b = bandwidth.unwrap_or_else(|| match least {
        MinBandwidth::Exactly(BytesPerSec(b)) => ((b as f64 * r.scale(0.8, 1.6)) as u64).max(1),
        _ => r.scale(1e7, 1e10) as u64,
    });
    let set = Set::new(flows, path, b);
    let verdict = analyzer.verdict(BytesPerSec(b), SOME).unwrap();
    match (set.answer(most_points), verdict) {
        (Answer::TooManyPoints, _) | (_, Schedulability::GaveUp { .. }) => {}
        (answer, verdict) => {
            let expected = match verdict {
                Schedulability::Schedulable => Answer::Schedulable,
                _ => Answer::Unschedulable,
            };
            assert_eq!(answer, expected, "{verdict:?} at {b}: {}", context());
            seen[1 + usize::from(answer == Answer::Schedulable)] = true;
        }
    }
    if let Schedulability::Unschedulable(
        UnschedulableCause::Demand(_) | UnschedulableCause::Overload,
    ) = verdict
        && let Some(at) = set.first_failure(most_points)
    {
        let found = analyzer.first_failure(BytesPerSec(b), SOME).unwrap();
        assert_eq!(found.map(|f| i128::from(f.at.0)), Some(at), "at {b}: {}", context());
        let failure = found.unwrap();
        assert!(i128::from(failure.demand) > at);
    }
    seen
}

#[test]
fn verdict_minimum_and_failure_match_the_reference() {
    let sets = if cfg!(debug_assertions) { 1500 } else { 100_000 };
    let mut r = Random(fastrand::Rng::with_seed(6));
    let mut counts = [0; 3];
    for _ in 0..sets {
        let path = r.path();
        let flows = r.flows(path.chunk);
        let seen = compare(&flows, &path, None, &mut r, 3000);
        for (count, seen) in counts.iter_mut().zip(seen) {
            *count += usize::from(seen);
        }
    }
    // Minimum confirmed, unschedulable, schedulable: none of them a rarity.
    println!(
        "{sets} sets: minimum confirmed {}, unschedulable {}, schedulable {}",
        counts[0], counts[1], counts[2]
    );
    assert!(counts[0] * 5 > sets && counts[1] * 10 > sets && counts[2] * 10 > sets, "{counts:?}");
}

#[test]
fn tiny_sets_without_overheads_reach_full_utilization() {
    // Periods of a few ns and 1 byte a ns: U' = 1 and the hyperperiod decide, and D reaches far
    // beyond it.
    let sets = if cfg!(debug_assertions) { 3000 } else { 60_000 };
    let mut r = Random(fastrand::Rng::with_seed(7));
    let mut full = 0;
    for _ in 0..sets {
        let chunk = Bytes(r.between(1, 4));
        let path = Path { chunk, ..Path::paper(Overheads::default()) };
        let flows: Vec<Flow> = (0..r.between(1, 4))
            .map(|_| {
                let period = r.between(2, 12);
                let deadline = if r.0.bool() { period } else { r.between(1, 40) };
                timed(r.between(1, 5), [period, deadline], r.between(0, 2) as usize)
            })
            .collect();
        let u: f64 = flows.iter().map(|f| f.size.0 as f64 / f.period.unwrap().0 as f64).sum();
        full += usize::from((u - 1.0).abs() < 1e-9);
        compare(&flows, &path, Some(1_000_000_000), &mut r, 60_000);
    }
    assert!(full * 100 > sets, "{full}");
}

#[test]
fn periods_that_differ_by_a_million() {
    let mut r = Random(fastrand::Rng::with_seed(8));
    for _ in 0..if cfg!(debug_assertions) { 2 } else { 20 } {
        let flows: Vec<Flow> = [1.0, r.scale(1.0, 3.0), 1e6]
            .map(|factor| {
                let period = (r.scale(5e4, 2e5) * factor) as u64;
                timed(r.between(1, 20_000), [period; 2], r.between(0, 1) as usize)
            })
            .to_vec();
        compare(&flows, &Path::paper(Overheads::RT_VIRTIO), None, &mut r, 8_000_000);
    }
}

#[test]
fn more_bandwidth_never_hurts() {
    let mut r = Random(fastrand::Rng::with_seed(9));
    for _ in 0..2000 {
        let path = Path { overheads: Overheads::RT_VIRTIO, ..r.path() };
        let tasks = transform(&r.flows(path.chunk), &path).unwrap();
        let mut analyzer = Analyzer::new(&tasks, &[]);
        let MinBandwidth::Exactly(BytesPerSec(b)) = analyzer.min_bandwidth(SOME) else {
            continue;
        };
        for factor in [1.0, 1.01, 1.7, 30.0] {
            let verdict =
                analyzer.verdict(BytesPerSec((b as f64 * factor).ceil() as u64), SOME).unwrap();
            assert!(
                matches!(verdict, Schedulability::Schedulable | Schedulability::GaveUp { .. }),
                "{verdict:?}"
            );
        }
    }
}
