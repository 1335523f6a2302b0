//! Figure 5 of rt-virtio: the share of schedulable flow sets over the utilization before overheads.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "times are far below 2^52 ns, or are bounds"
)]

use super::oracle;
use crate::{
    ExperimentOutcome, ExperimentRequest,
    statement::{
        ClaimSource, Paper,
        Relation::{AtLeast, AtMost, NotFalling, RisingBy},
        Statement, statements,
    },
};
use plotters::prelude::*;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::{error::Error, fmt::Write as _, path::Path};
use weir_analysis::{
    Bytes, BytesPerSec, Nanos,
    flows::{
        self, Analyzer, Effort, Flow, Overheads, Schedulability, UnschedulableCause, transform,
    },
};
use weir_image::{Result, failure::Context, progress::CountBar};

const PAPER: Paper = Paper("rt-virtio");
const FIGURE5: ClaimSource = PAPER.at("V-C, Figure 5");
const ORACLE: ClaimSource = PAPER.at("Eq. 3, 4, 10 to 14, 19 to 27; Table II").by_separate_code();
const WEIR: ClaimSource = ClaimSource::own("docs/results/reproduce.md");

/// Points of a curve: utilizations of 1/20, 2/20, .. 1.
const STEPS: u32 = 20;
/// The parameters of the curves: MB/s, flows in a set, KiB of a packet.
const BANDWIDTHS: [u64; 3] = [1000, 500, 150];
const FLOWS: [usize; 3] = [3, 12, 48];
const SIZES: [u64; 2] = [4, 12];
/// VMs that send.
const VMS: u32 = 4;
/// Chunks of 4 KiB, a queue for each VM that sends.
const PATH: flows::Path = flows::Path::paper(Overheads::RT_VIRTIO);
const EFFORT: Effort = Effort(1 << 26);
/// Sets of each point that separate code tests, too.
const SAMPLED: u32 = 20;
/// Instants of a set that the separate code tests.
const INSTANTS: usize = 20_000;

/// How far the utilization at which U' = 1 may be from that of the separate computation: both round
/// periods to whole ns.
const CLOSE: f64 = 1e-4;
/// Sets of unequal shares reach U' = 1 a little earlier or later than those of equal ones.
const SCATTER: f64 = 0.05;
/// The share of sets that the separate code must decide.
const DECIDED: f64 = 0.9;
/// "Significantly better": by so much of all sets, where 0.05 is one of the 20 points.
const SIGNIFICANT: f64 = 0.05;

/// The parameters of a curve.
#[derive(Clone, Copy, Debug)]
struct Family {
    bandwidth_mb: u64,
    flows: usize,
    size_kib: u64,
}

impl Family {
    /// All of them, in the order of the paper.
    fn all() -> Vec<Self> {
        let sizes =
            |bandwidth_mb, flows| SIZES.map(|size_kib| Self { bandwidth_mb, flows, size_kib });
        let curves = |bandwidth_mb| FLOWS.into_iter().flat_map(move |n| sizes(bandwidth_mb, n));
        BANDWIDTHS.into_iter().flat_map(curves).collect()
    }

    const fn bandwidth(self) -> u64 {
        self.bandwidth_mb * 1_000_000
    }

    const fn size(self) -> u64 {
        self.size_kib * 1024
    }

    fn flow(self, period: f64, from: u32) -> Flow {
        let (size, period) = (Bytes(self.size()), Some(Nanos(period as u64)));
        let [from, to] = [from, (from + 1) % VMS].map(|vm| vm as usize);
        Flow { from, to: vec![to], size, period, deadline: period, ..Flow::default() }
    }

    /// Draws a set of this utilization before the overheads. The shares are uniformly distributed
    /// (`UUniFast`, Bini and Buttazzo 2005), and P = (C/b) / U.
    fn draw(self, utilization: f64, random: &mut fastrand::Rng) -> Vec<Flow> {
        let transfer = self.size() as f64 * 1e9 / self.bandwidth() as f64;
        let mut left = 1.0;
        let flow = |rest: usize| {
            let next = match rest {
                0 => 0.0,
                _ => left * (1.0 - random.f64()).powf(1.0 / rest as f64),
            };
            let share: f64 = left - next;
            left = next;
            // A share of 1e-9 would give a period of days; the analysis takes up to 52 days.
            let period = (transfer / (utilization * share).max(1e-9)).round().max(1.0);
            self.flow(period, random.u32(0..VMS))
        };
        (0..self.flows).rev().map(flow).collect()
    }

    /// Returns the utilization before overheads at which U' = 1 for equal shares and senders in
    /// cyclic order.
    fn cliff(self) -> f64 {
        let transfer = self.size() as f64 * 1e9 / self.bandwidth() as f64;
        let (mut low, mut high) = (0.01, 1.0);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            let period = transfer * self.flows as f64 / middle;
            let set: Vec<_> = (0..self.flows as u32).map(|i| self.flow(period, i % VMS)).collect();
            let over = transform(&set, &PATH).is_ok_and(|tasks| {
                let utilization =
                    Analyzer::new(&tasks, &[]).utilization(BytesPerSec(self.bandwidth()));
                utilization.is_none_or(|utilization| utilization > 1.0)
            });
            if over { high = middle } else { low = middle }
        }
        low
    }

    fn test(self, set: &[Flow]) -> Option<Schedulability> {
        let tasks = transform(set, &PATH).ok()?;
        Analyzer::new(&tasks, &[]).verdict(BytesPerSec(self.bandwidth()), EFFORT).ok()
    }

    /// Tests random sets of one utilization.
    fn point(self, utilization: f64, sets: u32, seed: u64) -> Point {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut point = Point { utilization, sets, ..Point::default() };
        for number in 0..sets {
            let set = self.draw(utilization, &mut random);
            let verdict = self.test(&set);
            match verdict {
                Some(Schedulability::Schedulable) => point.schedulable += 1,
                Some(Schedulability::Unschedulable(UnschedulableCause::Overload)) => {
                    point.overloaded += 1;
                }
                Some(Schedulability::Unschedulable(_)) => {}
                Some(Schedulability::GaveUp { .. }) | None => point.undecided += 1,
            }
            if number < SAMPLED {
                let flows: Vec<_> = set
                    .iter()
                    .filter_map(|flow| Some((flow.period?.0, flow.from as u32)))
                    .collect();
                let set = oracle::Set::new(self.bandwidth(), self.size(), &flows);
                point.add_sample(set.is_schedulable(INSTANTS), verdict);
            }
        }
        point
    }
}

/// A point of a curve.
#[derive(Clone, Debug, Default)]
struct Point {
    /// Utilization before overheads.
    utilization: f64,
    /// Sets drawn.
    sets: u32,
    /// Sets found schedulable.
    schedulable: u32,
    /// Sets with U' > 1.
    overloaded: u32,
    /// Sets that could not be decided within the effort; they count as unschedulable.
    undecided: u32,
    /// Sets that separate code tested, those that it decided, and those of another result.
    sampled: u32,
    compared: u32,
    disagreements: u32,
}

impl Point {
    fn add_sample(&mut self, expected: Option<bool>, found: Option<Schedulability>) {
        self.sampled += 1;
        if let Some(expected) = expected {
            self.compared += 1;
            self.disagreements +=
                u32::from(expected != (found == Some(Schedulability::Schedulable)));
        }
    }

    fn ratio(&self) -> f64 {
        share(self.schedulable, self.sets)
    }
}

fn share(some: u32, all: u32) -> f64 {
    f64::from(some) / f64::from(all.max(1))
}

/// The judged values of a curve.
#[derive(Clone, Debug)]
struct Measured {
    bandwidth_mb: u64,
    flows: usize,
    size_kib: u64,
    /// The share of schedulable sets, by rising utilization.
    ratios: Vec<f64>,
    /// The utilization at which U' = 1, by the analysis.
    cliff: f64,
    /// The same by separate code.
    expected_cliff: f64,
    /// Sets found schedulable well beyond that.
    beyond: f64,
    undecided: f64,
    /// Sets that were decided by separate code as well, as a share of the sampled ones, and those
    /// with another result.
    compared: f64,
    disagreements: f64,
}

impl Measured {
    fn of(family: Family, points: &[Point]) -> Self {
        let Family { bandwidth_mb, flows, size_kib } = family;
        let sum = |of: fn(&Point) -> u32| points.iter().map(of).sum::<u32>();
        let expected_cliff = oracle::cliff(family.bandwidth(), family.size(), flows as u32);
        let beyond = points.iter().filter(|p| p.utilization > expected_cliff + SCATTER);
        Self {
            bandwidth_mb,
            flows,
            size_kib,
            ratios: points.iter().map(Point::ratio).collect(),
            cliff: family.cliff(),
            expected_cliff,
            beyond: f64::from(beyond.map(|p| p.schedulable).sum::<u32>()),
            undecided: f64::from(sum(|p| p.undecided)),
            compared: share(sum(|p| p.compared), sum(|p| p.sampled)),
            disagreements: f64::from(sum(|p| p.disagreements)),
        }
    }

    /// The mean share of schedulable sets over all utilizations.
    fn mean(&self) -> f64 {
        self.ratios.iter().sum::<f64>() / f64::from(self.ratios.len().max(1) as u32)
    }
}

/// Draws and tests `sets` flow sets for each point of each curve. The result depends on `seed`
/// only.
fn curves(sets: u32, seed: u64, bar: &CountBar) -> Vec<(Family, Vec<Point>)> {
    let curve = |(number, family): (u64, Family)| {
        let point = |k: u32| {
            let place = number << 32 | u64::from(k);
            let seed = seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let point = family.point(f64::from(k) / f64::from(STEPS), sets, seed);
            bar.add(u64::from(sets));
            point
        };
        (family, (1..=STEPS).into_par_iter().map(point).collect())
    };
    (0..).zip(Family::all()).map(curve).collect()
}

/// Computes Figure 5.
pub fn fig5(request: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let sets = request.sets.unwrap_or(1000);
    let all = Family::all().len() as u64 * u64::from(STEPS) * u64::from(sets);
    let curves = curves(sets, 1, &CountBar::new("flow sets", all));
    let measured: Vec<_> = curves.iter().map(|(family, of)| Measured::of(*family, of)).collect();
    let mut text =
        String::from("MB/s flows KiB  cliff  schedulable at utilization 0.05, 0.10, .. 1.00\n");
    let mut json = Vec::new();
    for (own, (_, points)) in measured.iter().zip(&curves) {
        let Measured { bandwidth_mb, flows, size_kib, cliff, .. } = own;
        let ratios: Vec<String> = own.ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let ratios = ratios.join(" ");
        // Writing to a string does not fail.
        let _ = writeln!(text, "{bandwidth_mb:4} {flows:5} {size_kib:3}  {cliff:.3}  {ratios}");
        json.push(describe(own, points));
    }
    let svg = request.directory.join("fig5.svg");
    draw(&measured, &svg).context(|| format!("write {}", svg.display()))?;
    let statements = curves_stated(sets, &measured);
    let json = json!({ "sets": sets, "curves": json });
    Ok(ExperimentOutcome { json, text, statements, files: vec![svg] })
}

fn describe(own: &Measured, points: &[Point]) -> Value {
    let points = points.iter().map(|point| {
        json!({
            "utilization": point.utilization,
            "sets": point.sets,
            "schedulable": point.schedulable,
            "overloaded": point.overloaded,
            "undecided": point.undecided,
        })
    });
    json!({
        "bandwidth_mb": own.bandwidth_mb,
        "flows": own.flows,
        "size_kib": own.size_kib,
        "cliff": own.cliff,
        "expected_cliff": own.expected_cliff,
        "points": points.collect::<Vec<_>>(),
    })
}

/// Draws one panel for each bandwidth and size, with one line for each number of flows.
fn draw(curves: &[Measured], file: &Path) -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
    let root = SVGBackend::new(file, (1200, 760)).into_drawing_area();
    root.fill(&WHITE)?;
    let panels = SIZES.into_iter().flat_map(|size| BANDWIDTHS.map(|bandwidth| (size, bandwidth)));
    for (area, (size, bandwidth)) in root.split_evenly((2, 3)).iter().zip(panels) {
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{bandwidth} MB/s, {size} KiB"), ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(38)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..1.0, 0.0..1.02)?;
        chart.configure_mesh().x_desc("utilization").y_desc("schedulable").x_labels(6).draw()?;
        let is_here = |curve: &&Measured| (curve.size_kib, curve.bandwidth_mb) == (size, bandwidth);
        for (curve, color) in curves.iter().filter(is_here).zip([RED, BLUE, BLACK]) {
            let utilizations = (1..=STEPS).map(|k| f64::from(k) / f64::from(STEPS));
            let line = utilizations.zip(curve.ratios.iter().copied());
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)))?
                .label(format!("{} flows", curve.flows))
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color));
        }
        chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    }
    root.present()?;
    Ok(())
}

/// Three standard deviations of the difference of two shares of `sets` sets each.
fn noise(sets: u32) -> f64 {
    3.0 * (0.5 / f64::from(sets)).sqrt()
}

/// The paper prints no numbers for this figure. Its text says how bandwidth, flows and packet size
/// change the curves: these sentences are judged. Separate code gives the sets that are schedulable
/// and where U' = 1 lies. That the code decides most sets and that the curves fall are conditions
/// that weir adds.
fn curves_stated(sets: u32, curves: &[Measured]) -> Vec<Statement> {
    let mut all = Vec::new();
    for curve in curves {
        let Measured { bandwidth_mb, flows, size_kib, .. } = curve;
        let which = format!("{bandwidth_mb} MB/s, {flows} flows, {size_kib} KiB");
        let curve_id = format!("{bandwidth_mb}-{flows}-{size_kib}");
        let Measured { cliff, beyond, disagreements, compared, undecided, .. } = *curve;
        let falling: Vec<f64> = curve.ratios.iter().rev().copied().collect();
        all.extend(statements![
            ORACLE, "cliff-{curve_id}",
            "{which}: U' = 1 at {cliff:.4}; off from what separate code computes by"
                => AtMost(CLOSE), [(cliff - curve.expected_cliff).abs()];
            ORACLE, "beyond-{curve_id}", "{which}: sets found schedulable beyond U' = 1"
                => AtMost(0.0), [beyond];
            ORACLE, "sets-{curve_id}", "{which}: sets that separate code decides otherwise"
                => AtMost(0.0), [disagreements];
            WEIR, "compared-{curve_id}",
            "{which}: share of the sampled sets that separate code decides"
                => AtLeast(DECIDED), [compared];
            WEIR, "undecided-{curve_id}", "{which}: sets that the analysis leaves undecided"
                => AtMost(0.0), [undecided];
            WEIR, "falls-{curve_id}",
            "{which}: schedulability does not grow with the utilization (from 1 down to 0.05)"
                => NotFalling(noise(sets)), falling;
        ]);
    }
    let means = |wanted: &dyn Fn(&&Measured) -> bool| -> Vec<f64> {
        curves.iter().filter(wanted).map(Measured::mean).collect()
    };
    for flows in FLOWS {
        for size in SIZES {
            let means = means(&|curve| (curve.flows, curve.size_kib) == (flows, size));
            all.extend(statements![
                FIGURE5, "bandwidth-{flows}-{size}",
                "{flows} flows of {size} KiB: schedulability improves significantly as the \
                 bandwidth falls (1000, 500, 150 MB/s)"
                    => RisingBy(SIGNIFICANT), means;
            ]);
        }
    }
    // Means of 20 points with independent sets; half of them are 0 or 1 and do not scatter.
    let slack = noise(sets) / 20.0_f64.sqrt() / 2.0;
    for bandwidth in BANDWIDTHS {
        for size in SIZES {
            let means = means(&|curve| (curve.bandwidth_mb, curve.size_kib) == (bandwidth, size));
            all.extend(statements![
                FIGURE5, "flows-{bandwidth}-{size}",
                "{size} KiB at {bandwidth} MB/s: more flows are better (3, 12, 48)"
                    => NotFalling(slack), means;
            ]);
        }
        for flows in FLOWS {
            let means = means(&|curve| (curve.bandwidth_mb, curve.flows) == (bandwidth, flows));
            all.extend(statements![
                FIGURE5, "size-{bandwidth}-{flows}",
                "{flows} flows at {bandwidth} MB/s: larger packets are better (4, 12 KiB)"
                    => NotFalling(slack), means;
            ]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    /// Measurements as the paper's text has them, at 20 points.
    fn good() -> Vec<Measured> {
        let mut all = Vec::new();
        for (bandwidth_mb, cliff) in [(1000, 0.4), (500, 0.57), (150, 0.81)] {
            for flows in [3_usize, 12, 48] {
                for size_kib in [4, 12] {
                    let worse = if flows == 3 { 0.05 } else { 0.0 }
                        - if size_kib == 12 { 0.01 } else { 0.0 };
                    let ratio =
                        |k: u32| ((cliff - worse - 0.05 * f64::from(k)) * 20.0).clamp(0.0, 1.0);
                    all.push(Measured {
                        bandwidth_mb,
                        flows,
                        size_kib,
                        ratios: (1..=20).map(ratio).collect(),
                        cliff,
                        expected_cliff: cliff,
                        beyond: 0.0,
                        undecided: 0.0,
                        compared: 0.97,
                        disagreements: 0.0,
                    });
                }
            }
        }
        all
    }

    #[test]
    fn each_statement_on_figure_5_can_fail() {
        each_can_fail(
            &good(),
            &[],
            |curves| curves_stated(1000, curves),
            |curves| {
                let mut all: Vec<&mut dyn Change> = Vec::new();
                for curve in curves {
                    for ratio in &mut curve.ratios {
                        all.push(ratio);
                    }
                    all.push(&mut curve.cliff);
                    all.push(&mut curve.beyond);
                    all.push(&mut curve.undecided);
                    all.push(&mut curve.compared);
                    all.push(&mut curve.disagreements);
                }
                all
            },
        );
    }

    #[test]
    fn only_correct_curves_match_the_separate_code() {
        let curves = curves(5, 7, &CountBar::new("flow sets", 1));
        let (family, points) = &curves[0];
        let own = Measured::of(*family, points);
        assert!(own.disagreements == 0.0 && own.compared > DECIDED, "{own:?}");
        let mut wrong = Point::default();
        wrong.add_sample(Some(false), Some(Schedulability::Schedulable));
        wrong.add_sample(Some(true), None);
        assert!(Measured::of(*family, &[wrong]).disagreements > 1.5);
    }
}
