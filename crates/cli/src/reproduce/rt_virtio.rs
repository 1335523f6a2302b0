//! The analysis of rt-virtio (RTSS 2021): Table III and Figure 5.

use super::{Outcome, Request, write};
use crate::{
    failure::{Context, Result},
    progress::Bar,
};
use serde_json::{Value, json};
use std::fmt::Write as _;
use weir_analysis::{
    experiments::{self, Curve},
    flows::Effort,
};

/// What is always the difference of the two readings, ns.
const DIFFERENCE: u64 = 474;

/// Table III in both readings.
pub fn table3(request: &Request) -> Result<Outcome> {
    let rows = experiments::table3();
    let mut csv = String::from("bandwidth,size,measured_ns,published_ns,printed_ns,table3_ns\n");
    let mut misses = Vec::new();
    let mut list = Vec::new();
    for row in &rows {
        let (bandwidth, size) = (row.bandwidth.0, row.size.0);
        let (measured, published) = (row.measured.0, row.published.0);
        let (printed, table3) = (row.printed.0, row.table3.0);
        // Writing to a string does not fail.
        let _ = writeln!(csv, "{bandwidth},{size},{measured},{published},{printed},{table3}");
        if table3 != published || printed != published + DIFFERENCE {
            misses.push(format!(
                "{size} B at {bandwidth} B/s: {table3} and {printed} ns for the published {published}"
            ));
        }
        list.push(json!({
            "bandwidth": bandwidth,
            "size": size,
            "measured_ns": measured,
            "published_ns": published,
            "printed_ns": printed,
            "table3_ns": table3,
        }));
    }
    let file = request.directory.join("table3.csv");
    write(&file, &csv)?;
    let text = format!(
        "{}\nprinted: the equations as they are printed, the default of `weir analyze`. table3: O_r = BR_max - HC_max and O_s^max\nrounded up to whole ns, which gives the published values. Those are optimistic: of a hypercall only the exit runs in\nparallel with the IPI, so taking off the entry, too, leaves out time that passes.\n",
        experiments::render_table3(&rows)
    );
    Ok(Outcome { json: json!({ "rows": list }), text, misses, files: vec![file] })
}

/// Utilization at which U' = 1, by bandwidth in MB/s, for packets of 4 and 12 KiB: section V-C's flows with Table II's
/// overheads, computed by hand from Eq. 3.
const CLIFFS: [(u64, [f64; 2]); 3] =
    [(1000, [0.39, 0.41]), (500, [0.56, 0.58]), (150, [0.81, 0.82])];
/// How far the cliff of 48 flows may be off: the figures above have two digits.
const CLOSE: f64 = 0.005;
/// How far those of fewer flows may be: fewer senders have fewer queues, and shorter ones.
const NEAR: f64 = 0.01;

/// Figure 5.
pub fn fig5(request: &Request) -> Result<Outcome> {
    const STEPS: u32 = 20;
    const CURVES: u64 = 18;
    let sets = request.sets.unwrap_or(1000);
    let figure = {
        let bar = Bar::new("flow sets", CURVES * u64::from(STEPS) * u64::from(sets));
        experiments::fig5(sets, STEPS, 1, Effort(1 << 26), |more| bar.add(more))
    };
    let (csv, svg) = (request.directory.join("fig5.csv"), request.directory.join("fig5.svg"));
    write(&csv, &figure.csv())?;
    figure.svg(&svg).context(|| format!("write {}", svg.display()))?;
    let mut text =
        String::from("MB/s flows KiB  cliff  schedulable at utilization 0.05, 0.10, .. 1.00\n");
    let mut misses = Vec::new();
    for curve in &figure.curves {
        let ratios: Vec<String> = curve
            .points
            .iter()
            .map(|point| format!("{:.2}", f64::from(point.schedulable) / f64::from(point.sets)))
            .collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:4} {:5} {:3}  {:.3}  {}",
            curve.bandwidth_mb,
            curve.flows,
            curve.size_kib,
            curve.cliff,
            ratios.join(" ")
        );
        misses.extend(cliff_of(curve));
    }
    let curves: Vec<Value> = figure.curves.iter().map(describe).collect();
    let json = json!({ "sets": sets, "curves": curves });
    Ok(Outcome { json, text, misses, files: vec![csv, svg] })
}

fn expected(curve: &Curve) -> Option<f64> {
    let (_, cliffs) = CLIFFS.iter().find(|(bandwidth, _)| *bandwidth == curve.bandwidth_mb)?;
    Some(cliffs[usize::from(curve.size_kib == 12)])
}

/// What is wrong with where a curve falls: U' = 1 must lie where it does by hand, nothing may hold beyond it, and no set
/// may be left undecided.
fn cliff_of(curve: &Curve) -> Option<String> {
    let which =
        format!("{} MB/s, {} flows, {} KiB", curve.bandwidth_mb, curve.flows, curve.size_kib);
    let expected = expected(curve)?;
    let close = if curve.flows == 48 { CLOSE } else { NEAR };
    if (curve.cliff - expected).abs() > close {
        return Some(format!("{which}: U' = 1 at {:.3}, not {expected}", curve.cliff));
    }
    let undecided: u32 = curve.points.iter().map(|point| point.undecided).sum();
    if undecided > 0 {
        return Some(format!("{which}: {undecided} sets undecided"));
    }
    // Sets of unequal shares reach U' = 1 a little earlier or later than those of equal ones.
    let beyond = curve.points.iter().filter(|point| point.utilization > curve.cliff + 0.05);
    let holding: u32 = beyond.map(|point| point.schedulable).sum();
    (holding > 0).then(|| format!("{which}: {holding} sets hold beyond the cliff"))
}

fn describe(curve: &Curve) -> Value {
    let points = curve.points.iter().map(|point| {
        json!({
            "utilization": point.utilization,
            "sets": point.sets,
            "schedulable": point.schedulable,
            "overloaded": point.overloaded,
            "undecided": point.undecided,
        })
    });
    json!({
        "bandwidth_mb": curve.bandwidth_mb,
        "flows": curve.flows,
        "size_kib": curve.size_kib,
        "cliff": curve.cliff,
        "expected_cliff": expected(curve),
        "points": points.collect::<Vec<_>>(),
    })
}
