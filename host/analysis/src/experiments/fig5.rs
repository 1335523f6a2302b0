//! Figure 5 of rt-virtio: the ratio of schedulable flow sets over the utilization before overheads.

use core::fmt::Write as _;
use std::path::Path;

use plotters::prelude::*;
use rayon::prelude::*;

use crate::bench::Family;
use crate::flows::{Analyzer, Effort, Overheads, Verdict, transform};
use crate::units::{Bytes, BytesPerSec};

/// A point of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Utilization before overheads.
    pub utilization: f64,
    /// Sets drawn.
    pub sets: u32,
    /// Sets found schedulable.
    pub schedulable: u32,
    /// Sets with U' > 1.
    pub overloaded: u32,
    /// Sets that could not be decided within the effort; they count as unschedulable.
    pub undecided: u32,
    /// The first few sets: the period in ns and the sender of each flow, and whether the set was
    /// found schedulable.
    pub sampled: Vec<(Vec<(u64, u32)>, bool)>,
}

/// How many sets of each point are kept.
const SAMPLED: u32 = 20;

/// One of the 18 curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// DMA bandwidth, MB/s.
    pub bandwidth_mb: u64,
    /// Flows in a set.
    pub flows: usize,
    /// Packet size, KiB.
    pub size_kib: u64,
    /// By rising utilization.
    pub points: Vec<Point>,
    /// The utilization at which U' = 1 for flows of equal shares.
    pub cliff: f64,
}

/// The whole figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Fig5 {
    /// By bandwidth, flows, size, as in the paper.
    pub curves: Vec<Curve>,
}

/// Draws and tests `sets` flow sets at each of `steps` utilizations (k / steps) for each of the 18
/// curves, on all cores of the rayon pool; the result depends on `seed` only. `progress` is called
/// with the number of sets that have been added, from any thread.
#[must_use]
pub fn fig5(
    sets: u32,
    steps: u32,
    seed: u64,
    effort: Effort,
    progress: impl Fn(u64) + Sync,
) -> Fig5 {
    let mut families = Vec::new();
    for bandwidth_mb in [1000, 500, 150] {
        for flows in [3, 12, 48] {
            for size_kib in [4, 12] {
                families.push((bandwidth_mb, flows, size_kib));
            }
        }
    }
    let jobs: Vec<(usize, u32)> =
        (0..families.len()).flat_map(|c| (1..=steps).map(move |k| (c, k))).collect();
    let points: Vec<Point> = jobs
        .par_iter()
        .map(|&(c, k)| {
            let (bandwidth_mb, flows, size_kib) = families[c];
            let family = Family {
                flows,
                vms: 4,
                size: Bytes(size_kib * 1024),
                bandwidth: BytesPerSec(bandwidth_mb * 1_000_000),
            };
            let utilization = f64::from(k) / f64::from(steps);
            let stream =
                seed ^ (((c as u64) << 32 | u64::from(k)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let point = point(&family, utilization, sets, stream, effort);
            progress(u64::from(sets));
            point
        })
        .collect();
    let curves = families
        .iter()
        .zip(points.chunks(steps.max(1) as usize))
        .map(|(&(bandwidth_mb, flows, size_kib), points)| Curve {
            bandwidth_mb,
            flows,
            size_kib,
            points: points.to_vec(),
            cliff: cliff(bandwidth_mb, flows, size_kib),
        })
        .collect();
    Fig5 { curves }
}

fn point(family: &Family, utilization: f64, sets: u32, seed: u64, effort: Effort) -> Point {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut analyzer = Analyzer::new();
    let mut point = Point {
        utilization,
        sets,
        schedulable: 0,
        overloaded: 0,
        undecided: 0,
        sampled: Vec::new(),
    };
    for number in 0..sets {
        let flows = family.set(utilization, &mut random);
        let verdict =
            transform(&flows, &Family::SETTING, &Overheads::RT_VIRTIO).and_then(|tasks| {
                analyzer.load(&tasks);
                analyzer.verdict(family.bandwidth, effort)
            });
        if number < SAMPLED {
            let set = flows.iter().map(|flow| (flow.period.0, flow.from)).collect();
            point.sampled.push((set, verdict == Ok(Verdict::Schedulable)));
        }
        match verdict {
            Ok(Verdict::Schedulable) => point.schedulable += 1,
            Ok(Verdict::Unschedulable(crate::flows::Cause::Overload)) => point.overloaded += 1,
            Ok(Verdict::Unschedulable(_)) => {}
            Ok(Verdict::GaveUp { .. }) | Err(_) => point.undecided += 1,
        }
    }
    point
}

/// Where U' = 1: every flow an equal share, senders in cyclic order.
fn cliff(bandwidth_mb: u64, flows: usize, size_kib: u64) -> f64 {
    let family = Family {
        flows,
        vms: 4,
        size: Bytes(size_kib * 1024),
        bandwidth: BytesPerSec(bandwidth_mb * 1_000_000),
    };
    let transfer = family.size.0 as f64 * 1e3 / bandwidth_mb as f64;
    let mut analyzer = Analyzer::new();
    let (mut low, mut high) = (0.01, 1.0);
    for _ in 0..40 {
        let middle: f64 = f64::midpoint(low, high);
        let period = crate::Nanos((transfer * flows as f64 / middle) as u64);
        let set: Vec<_> = (0..flows)
            .map(|i| crate::flows::Flow {
                size: family.size,
                period,
                deadline: period,
                from: i as u32 % 4,
                to: (i as u32 + 1) % 4,
            })
            .collect();
        let over = transform(&set, &Family::SETTING, &Overheads::RT_VIRTIO).is_ok_and(|tasks| {
            analyzer.load(&tasks);
            analyzer.utilization(family.bandwidth).is_none_or(|u| u > 1.0)
        });
        if over { high = middle } else { low = middle }
    }
    low
}

impl Fig5 {
    /// One line a point.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "bandwidth_mb,flows,size_kib,utilization,sets,schedulable,overloaded,undecided\n",
        );
        for c in &self.curves {
            for p in &c.points {
                // Writing to a string does not fail.
                let _ = writeln!(
                    out,
                    "{},{},{},{},{},{},{},{}",
                    c.bandwidth_mb,
                    c.flows,
                    c.size_kib,
                    p.utilization,
                    p.sets,
                    p.schedulable,
                    p.overloaded,
                    p.undecided
                );
            }
        }
        out
    }

    /// Draws the figure: one panel for each bandwidth and size, one line for each number of flows.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn svg(&self, path: &Path) -> Result<(), Box<dyn core::error::Error>> {
        let root = SVGBackend::new(path, (1200, 760)).into_drawing_area();
        root.fill(&WHITE)?;
        let panels = root.split_evenly((2, 3));
        for (panel, (size_kib, bandwidth_mb)) in
            panels.iter().zip([4, 12].into_iter().flat_map(|s| [1000, 500, 150].map(|b| (s, b))))
        {
            let mut chart = ChartBuilder::on(panel)
                .caption(format!("{bandwidth_mb} MB/s, {size_kib} KiB"), ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(38)
                .y_label_area_size(44)
                .build_cartesian_2d(0.0..1.0, 0.0..1.02)?;
            chart
                .configure_mesh()
                .x_desc("utilization")
                .y_desc("schedulable")
                .x_labels(6)
                .draw()?;
            for (flows, color) in [(3, RED), (12, BLUE), (48, BLACK)] {
                let of_panel = |c: &&Curve| {
                    c.flows == flows && c.size_kib == size_kib && c.bandwidth_mb == bandwidth_mb
                };
                let Some(curve) = self.curves.iter().find(of_panel) else {
                    continue;
                };
                let line = curve
                    .points
                    .iter()
                    .map(|p| (p.utilization, f64::from(p.schedulable) / f64::from(p.sets.max(1))));
                chart
                    .draw_series(LineSeries::new(line, color.stroke_width(2)))?
                    .label(format!("{flows} flows"))
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color));
            }
            chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
        }
        root.present()?;
        Ok(())
    }
}
