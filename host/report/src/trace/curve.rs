//! Arrival curves: the accesses that a VM made in any window of a given length.

use super::{
    arrivals::{Arrivals, Curves},
    file::{RecordedTrace, Trace, TraceFacts},
    past,
};
use crate::table::table;
use plotters::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};
use weir_analysis::{
    Nanos,
    curves::{Curve, CurveRecord},
};
use weir_image::{Failure, Result};

/// Rows of the table for a person.
const ROWS: u32 = 20;
/// Width and height of the picture.
const SIZE: (u32, u32) = (900, 560);
const COLORS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

/// A request for arrival curves.
#[derive(Clone, Debug)]
pub struct CurveQuery {
    /// The run, and one to compare with.
    pub runs: Vec<PathBuf>,
    /// The names of the VMs.
    pub vms: Vec<String>,
    /// The interval of the trace, in ns after the hypervisor's start.
    pub between: (u64, u64),
    /// The longest window; default: 20 periods of the budget, at most the whole trace.
    pub window: Option<Nanos>,
    /// The number of window lengths.
    pub points: u32,
}

/// A VM in a run.
#[derive(Debug)]
struct Series {
    label: String,
    arrivals: Arrivals,
    curves: Curves,
}

/// Arrival curves in a JSON result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CurvesRecord {
    /// The longest window in ns.
    pub window_ns: u64,
    /// The number of window lengths.
    pub points: u32,
    /// The curves of each VM in each run.
    pub curves: Vec<SeriesRecord>,
}

/// The curves of a VM in a run, in accesses per window.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SeriesRecord {
    /// The VM, and of several runs the run.
    pub series: String,
    /// All accesses.
    pub accesses: u64,
    /// The time that they were counted in, in ns.
    pub span_ns: u64,
    /// The mean time between two replenishments of the budget, in ns.
    pub period_ns: Option<u64>,
    /// Records that the trace lost.
    pub lost_records: u64,
    /// The upper bound.
    pub at_most: CurveRecord,
    /// The accesses as they were recorded.
    pub recorded: CurveRecord,
    /// The lower bound.
    pub at_least: CurveRecord,
}

/// Curves, all for the same lengths.
#[derive(Debug)]
pub struct ArrivalCurves {
    series: Vec<Series>,
    window: Nanos,
    points: u32,
    /// Warnings about incomplete traces.
    pub warnings: Vec<String>,
    /// Descriptions of the damage in the traces.
    pub damages: Vec<String>,
}

impl ArrivalCurves {
    /// Reads the traces and computes the curves.
    ///
    /// # Errors
    ///
    /// The call is wrong if a trace cannot be read, has no VM of a name, or counted no accesses of
    /// it.
    pub fn to(question: &CurveQuery) -> Result<Self> {
        let mut found = Vec::new();
        let (mut warnings, mut damages) = (Vec::new(), Vec::new());
        let (from, to) = question.between;
        for path in &question.runs {
            let (arrivals, trace) = read(path, question)?;
            let shown = path.display();
            warnings.extend(trace.warning().map(|warning| format!("{shown}: {warning}")));
            let damage = trace.damage();
            for (vm, arrivals) in question.vms.iter().zip(arrivals) {
                if arrivals.is_empty() {
                    let why = if from > trace.end() {
                        past(from, trace.end())
                    } else if (from, to) != (0, u64::MAX) {
                        format!("no accesses of {vm} were counted between --from and --to")
                    } else {
                        format!(
                            "no accesses of {vm} were counted; give it memory_budget = {{ .. }} in \
                             the system file and run it again"
                        )
                    };
                    let damage = damage.map_or(String::new(), |damage| format!("; {damage}"));
                    return Err(Failure::call(format!("{shown}: {why}{damage}")));
                }
                let run = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                let many = question.runs.len() > 1;
                let label = if many { format!("{vm} in {run}") } else { vm.clone() };
                if arrivals.lost() > 0 {
                    warnings.push(format!(
                        "{label}: {} records were lost, and with them counts: the curves are no \
                         bounds",
                        arrivals.lost()
                    ));
                }
                found.push((label, arrivals));
            }
            damages.extend(
                damage.map(|damage| format!("{shown}: {damage}: the curves are no bounds")),
            );
        }
        let longest = found.iter().map(|(_, arrivals)| arrivals.window()).max();
        let window = question.window.or(longest).unwrap_or(Nanos(1));
        let points = question.points;
        let series = found.into_iter().map(|(label, arrivals)| {
            let curves = arrivals.curves(window, points);
            Series { label, arrivals, curves }
        });
        Ok(Self { series: series.collect(), window, points, warnings, damages })
    }

    fn length(&self, point: u32) -> Nanos {
        Nanos((u128::from(self.window.0) * u128::from(point) / u128::from(self.points)) as u64)
    }

    /// Returns the curves as a table.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Series { label, arrivals, curves } in &self.series {
            // Writing to a string does not fail.
            let (total, span) = (arrivals.total(), arrivals.span());
            let _ = write!(text, "{label}: {total} accesses in {span}");
            let _ = match arrivals.period() {
                Some(period) => {
                    writeln!(text, ", replenished about every {period}")
                }
                None => writeln!(text),
            };
            let mut rows = table(["window ns", "at most", "recorded", "at least"]);
            for row in 1..=ROWS.min(self.points) {
                let length = self.length(self.points * row / ROWS.min(self.points));
                let least = known(&curves.least, length);
                rows.add_row([
                    length.0.to_string(),
                    curves.most.at(length).to_string(),
                    curves.recorded.at(length).to_string(),
                    least.map_or_else(|| "-".into(), |least| least.to_string()),
                ]);
            }
            let _ = writeln!(text, "{rows}");
        }
        text
    }

    /// Returns the curves as CSV.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = String::from("series,window_ns,at_most,recorded,at_least\n");
        for Series { label, curves, .. } in &self.series {
            for length in (1..=self.points).map(|point| self.length(point)) {
                let (most, recorded) = (curves.most.at(length), curves.recorded.at(length));
                let least = known(&curves.least, length).map(|least| least.to_string());
                let least = least.unwrap_or_default();
                let _ = writeln!(text, "{label},{},{most},{recorded},{least}", length.0);
            }
        }
        text
    }

    /// Returns the curves as a JSON result has them.
    #[must_use]
    pub fn record(&self) -> CurvesRecord {
        let series = self.series.iter().map(|Series { label, arrivals, curves }| SeriesRecord {
            series: label.clone(),
            accesses: arrivals.total(),
            span_ns: arrivals.span().0,
            period_ns: arrivals.period().map(|period| period.0),
            lost_records: arrivals.lost(),
            at_most: curves.most.record(),
            recorded: curves.recorded.record(),
            at_least: curves.least.record(),
        });
        CurvesRecord { window_ns: self.window.0, points: self.points, curves: series.collect() }
    }

    /// Draws the curves as SVG: the recorded curve of each series, and thin lines for its bounds.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the picture cannot be drawn.
    pub fn svg(&self) -> Result<String> {
        let mut picture = String::new();
        self.draw(SVGBackend::with_string(&mut picture, SIZE))
            .map_err(|error| Failure::environment(format!("cannot draw the curves: {error}")))?;
        Ok(picture)
    }

    #[expect(clippy::cast_precision_loss, reason = "for a picture")]
    fn draw<'a>(
        &self,
        backend: SVGBackend<'a>,
    ) -> std::result::Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>
    {
        let (unit, name) = match self.window.0 {
            0..10_000 => (1.0, "ns"),
            10_000..10_000_000 => (1e3, "us"),
            10_000_000..10_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        let top = self.series.iter().map(|series| series.curves.most.at(self.window)).max();
        let root = backend.into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(
                0.0..self.window.0 as f64 / unit,
                0.0..top.unwrap_or(1).max(1) as f64 * 1.05,
            )?;
        chart
            .configure_mesh()
            .x_desc(format!("length of the window, {name}"))
            .y_desc("accesses")
            .light_line_style(WHITE)
            .draw()?;
        for (series, color) in self.series.iter().zip(COLORS.iter().cycle().copied()) {
            let curves = &series.curves;
            for (curve, style) in [
                (&curves.most, color.mix(0.5).stroke_width(1)),
                (&curves.least, color.mix(0.5).stroke_width(1)),
                (&curves.recorded, color.stroke_width(2)),
            ] {
                let line = staircase(curve, self.window);
                let line = line.into_iter().map(|(x, y)| (x as f64 / unit, y as f64));
                let drawn = chart.draw_series(LineSeries::new(line, style))?;
                if curve == &curves.recorded {
                    drawn.label(&series.label).legend(move |(x, y)| {
                        PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2))
                    });
                }
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()?;
        root.present()
    }
}

/// The value of a curve, where it is known.
fn known(curve: &Curve, length: Nanos) -> Option<u64> {
    (length <= curve.horizon()).then(|| curve.at(length))
}

/// The corners of a curve, from length 0 to the end of what is known of it.
fn staircase(curve: &Curve, window: Nanos) -> Vec<(u64, u64)> {
    let mut corners = vec![(0, 0)];
    let mut last = 0;
    for (length, count) in curve.steps() {
        corners.extend([(length.0, last), (length.0, count)]);
        last = count;
    }
    corners.push((curve.horizon().0.min(window.0), last));
    corners
}

/// The accesses of the selected VMs, and the trace, which has been read to its end.
fn read(path: &Path, question: &CurveQuery) -> Result<(Vec<Arrivals>, RecordedTrace)> {
    let mut trace = Trace::open(path)?;
    let place = |vm: &String| place(vm, &trace.facts);
    let places = question.vms.iter().map(place).collect::<Result<Vec<_>>>()?;
    let mut arrivals = vec![Arrivals::new(question.between.0 > 0); places.len()];
    let facts = trace.facts.clone();
    while let Some(record) = trace.next_record()? {
        let time = facts.nanos(record.time);
        let within = (question.between.0..=question.between.1).contains(&time);
        for (arrivals, &vm) in arrivals.iter_mut().zip(&places) {
            // The length of its periods follows from all of them.
            arrivals.hear(&record, vm, &facts);
            if within {
                arrivals.take(&record, vm, &facts);
            }
        }
    }
    Ok((arrivals, trace))
}

/// Returns the place of a VM in a trace, by its name.
///
/// # Errors
///
/// The call is wrong if the trace has no VM of this name; the text lists them.
pub fn place(vm: &String, facts: &TraceFacts) -> Result<usize> {
    facts.vms.iter().position(|known| known.name == *vm).ok_or_else(|| {
        let names: Vec<_> = facts.vms.iter().map(|vm| vm.name.as_str()).collect();
        Failure::call(format!("no VM of this run is named {vm}; there are: {}", names.join(", ")))
    })
}
