//! The statements of the experiment: of the paper, and of weir beyond it.

use super::{
    measure::{Measured, Response},
    paper::{
        ALONE_MS, FIG8_DIP_US, FIG8_MOST_US, FIG8_MS, FIG8_READ_MS, FIG8_SLACK_MS, FIGURE8,
        FIGURE9, FIGURE10, FIGURE11, NONE, SHARED_MS, TABLE_TOLERANCE, TABLE1, WEIR,
    },
    system::{Point, Policy, STORM_US},
};
use crate::statement::{
    Relation::{Above, AtLeast, AtMost, Below, Near, NotFalling, Within},
    Statement, statements,
};

/// The tolerance, in microseconds, of the longest sleep over different loads that do not preempt:
/// for the phases, and for EL2's time for the interrupts.
const INDEPENDENT_US: u32 = 500;

/// Converts an interval from us to ms.
fn ms(us: u32) -> f64 {
    f64::from(us) / 1000.0
}

/// Returns the statements of the paper and of weir.
pub(super) fn statements(measured: &Measured) -> Vec<Statement> {
    let Measured { alone, shared, points } = measured;
    let (alone, shared) = (alone.avg, shared.avg);
    let within = |published| Within(published, TABLE_TOLERANCE);
    let mut all = statements![
        TABLE1, "alone", "a 10 ms sleep of a VM alone" => within(ALONE_MS), [alone], "ms";
        TABLE1, "shared", "the same next to another VM" => within(SHARED_MS), [shared], "ms";
        TABLE1, "added", "what the other VM adds"
            => within(SHARED_MS - ALONE_MS), [shared - alone], "ms";
        TABLE1, "ratio", "the ratio of the two" => within(SHARED_MS / ALONE_MS), [shared / alone];
    ];
    all.extend(preempted(points));
    all.extend(sources(points));
    all.extend(limited(points));
    all
}

/// Returns the points of a curve, by falling interval.
fn curve(
    points: &[(Point, Response)],
    policy: Policy,
    quantum_ms: u64,
    audio: bool,
) -> Vec<(u32, Response)> {
    let mut its: Vec<_> = points
        .iter()
        .filter(|(p, _)| (p.policy, p.quantum_ms, p.audio) == (policy, quantum_ms, audio))
        .filter_map(|(point, response)| Some((point.interval_us?, *response)))
        .collect();
    its.sort_by_key(|(interval, _)| std::cmp::Reverse(*interval));
    its
}

/// Figures 8, 9 and 11: interrupts that preempt.
fn preempted(points: &[(Point, Response)]) -> Vec<Statement> {
    let fig8 = curve(points, Policy::Preempt, 20, false);
    let fig9 = curve(points, Policy::Preempt, 20, true);
    let mut all = figure8(&fig8);
    all.extend(figure9(&fig8, &fig9));
    for (us, response) in curve(points, Policy::Preempt, 10, true) {
        let (at_ms, ratio) = (ms(us), at(&fig9, us).map(|long| response.avg / long));
        all.extend(statements![
            FIGURE11, "fig11-{us}",
            "at {at_ms} ms a quantum of 10 ms makes a sleep shorter than one of 20 ms: ratio"
                => Below(1.0), one(ratio);
        ]);
    }
    all
}

/// Returns the value, if it was measured.
fn one(value: Option<f64>) -> Vec<f64> {
    value.into_iter().collect()
}

/// Returns the mean of a point of a curve.
fn at(curve: &[(u32, Response)], us: u32) -> Option<f64> {
    curve.iter().find(|(interval, _)| *interval == us).map(|(_, response)| response.avg)
}

/// Figure 8: network interrupts alone.
fn figure8(fig8: &[(u32, Response)]) -> Vec<Statement> {
    let until_most = || fig8.iter().filter(|(us, _)| *us >= FIG8_MOST_US);
    let first = until_most().next().map(|(us, response)| (*us, response.avg));
    let most = at(fig8, FIG8_MOST_US);
    let means: Vec<f64> = until_most().map(|(_, response)| response.avg).collect();
    let mut all = statements![
        FIGURE8, "fig8-rises",
        "a sleep gets no shorter as the interval of network interrupts falls to 1 ms"
            => NotFalling(FIG8_SLACK_MS), means, "ms";
    ];
    if let Some((us, avg)) = first {
        let longest = ms(us);
        all.extend(statements![
            FIGURE8, "fig8-least", "a sleep at the longest interval, {longest} ms"
                => Near(FIG8_MS.0, FIG8_READ_MS), [avg], "ms";
        ]);
    }
    all.extend(statements![
        FIGURE8, "fig8-most", "a sleep at an interval of 1 ms"
            => Near(FIG8_MS.1, FIG8_READ_MS), one(most), "ms";
    ]);
    let ends = first.zip(most);
    for (us, response) in until_most().skip(1).filter(|(us, _)| *us != FIG8_MOST_US) {
        let beyond = ends.map(|((_, first), most)| {
            let (least, most) = (first.min(most), first.max(most));
            (least - response.avg).max(response.avg - most).max(0.0)
        });
        let at_ms = ms(*us);
        all.extend(statements![
            FIGURE8, "fig8-{us}",
            "a sleep at {at_ms} ms is between those at the ends: beyond them by"
                => AtMost(FIG8_SLACK_MS), one(beyond), "ms";
        ]);
    }
    all
}

/// Figure 9, with a second source, and the interval at which both curves fall.
fn figure9(fig8: &[(u32, Response)], fig9: &[(u32, Response)]) -> Vec<Statement> {
    let mut all = Vec::new();
    for (figure, source, curve) in [(8, FIGURE8, fig8), (9, FIGURE9, fig9)] {
        if let Some(dip) = at(curve, FIG8_DIP_US) {
            let shorter = at(curve, FIG8_MOST_US).map(|most| most - dip);
            all.extend(statements![
                source, "fig{figure}-dip", "a sleep becomes shorter from 1 ms to 0.5 ms: by"
                    => AtLeast(FIG8_READ_MS), one(shorter), "ms";
            ]);
        }
    }
    let longer: Vec<_> = fig9
        .iter()
        .filter_map(|(us, response)| Some((*us, response.avg - at(fig8, *us)?)))
        .collect();
    for (us, longer) in &longer {
        let at_ms = ms(*us);
        all.extend(statements![
            FIGURE9, "fig9-{us}",
            "at {at_ms} ms a second source makes a sleep no shorter: longer by"
                => AtLeast(-FIG8_SLACK_MS), [*longer], "ms";
        ]);
    }
    if !fig9.is_empty() {
        let sum: f64 = longer.iter().map(|(_, longer)| longer).sum();
        let mean = sum / f64::from(longer.len() as u32);
        let others = fig9.iter().filter(|(us, _)| *us != FIG8_MOST_US);
        let others = others.map(|(_, response)| response.avg).fold(f64::NAN, f64::max);
        let beyond = at(fig9, FIG8_MOST_US).map(|most| most - others);
        all.extend(statements![
            FIGURE9, "fig9-overall",
            "a second source makes a sleep longer in the mean over the intervals: by"
                => AtLeast(FIG8_SLACK_MS / 2.0), [mean], "ms";
            FIGURE9, "fig9-most",
            "with a second source a sleep is longest at 1 ms: longer than the longest other by"
                => Above(FIG8_SLACK_MS), one(beyond), "ms";
        ]);
    }
    all
}

/// Figure 10, and the same with a policy of weir: interrupts of the second source that the loaded
/// VM handles in 10 ms.
fn sources(points: &[(Point, Response)]) -> Vec<Statement> {
    let mut all = Vec::new();
    let second = |policy: Policy, us: u32| {
        let its = curve(points, policy, 20, true);
        let at = its.into_iter().find(|(interval, _)| *interval == us)?;
        at.1.came.map(|came| came[1])
    };
    let preempted = curve(points, Policy::Preempt, 20, true);
    if preempted.iter().any(|(us, _)| *us == FIG8_DIP_US) {
        all.extend(statements![
            FIGURE10, "fig10-starved",
            "interrupts of the second source in 10 ms, at an interval of 0.5 ms of the first"
                => NONE, one(second(Policy::Preempt, FIG8_DIP_US));
        ]);
    }
    // The paper has no policy under which interrupts wait.
    all.extend(statements![
        WEIR, "fig10-storm",
        "interrupts of the second source in 10 ms, next to a storm of the first, where interrupts \
         wait"
            => NONE, one(second(Policy::Defer, STORM_US));
    ]);
    all
}

/// The statements of weir: with an admission rule, or if interrupts wait, responses have a bound
/// and do not depend on the load.
fn limited(points: &[(Point, Response)]) -> Vec<Statement> {
    let mut all = Vec::new();
    for (point, response) in points {
        let (Some(bound), Some(us)) = (response.bound, point.interval_us) else { continue };
        let (policy, at_ms) = (point.policy.name(), ms(us));
        all.extend(statements![
            WEIR, "bound-{policy}-{us}",
            "{policy} at {at_ms} ms: the longest sleep is within the bound of {bound:.1} ms"
                => AtMost(bound), [response.max], "ms";
        ]);
    }
    // If a few interrupts may preempt, some of the sleeps contain one.
    for (policy, which) in [
        (Policy::Admit, "mean"),
        (Policy::Defer, "longest"),
        (Policy::FixedPriority, "longest"),
        (Policy::Table, "longest"),
    ] {
        let its = points.iter().filter(|(point, _)| point.policy == policy);
        let mut sleeps: Vec<f64> = its
            .map(|(_, response)| if which == "mean" { response.avg } else { response.max })
            .collect();
        sleeps.sort_by(f64::total_cmp);
        // One load, or none, shows nothing of the others.
        let range = match sleeps[..] {
            [least, .., most] => Some((least, most)),
            _ => None,
        };
        let between = range.map_or_else(
            || "less than two loads".to_owned(),
            |(least, most)| format!("{least:.2} to {most:.2} ms"),
        );
        let may = if which == "mean" { 2.0 } else { ms(INDEPENDENT_US) };
        let policy = policy.name();
        all.extend(statements![
            WEIR, "load-{policy}",
            "{policy}: the {which} sleep does not depend on the load ({between}): spread"
                => AtMost(may), one(range.map(|(least, most)| most - least)), "ms";
        ]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        mobivmm::paper::DEVIATIONS,
        statement::{
            Judged,
            tests::{Change, each_can_fail},
        },
    };

    /// Returns the measurements of a whole run.
    fn good() -> Measured {
        let response = |avg: f64, max: f64, second| Response {
            avg,
            max,
            came: Some([9.0, second]),
            bound: None,
        };
        let mut points = Vec::new();
        let mut add = |policy, quantum_ms, audio, us, response: Response| {
            let interval_us = Some(us);
            points.push((Point { policy, quantum_ms, audio, interval_us, sleeps: 40 }, response));
        };
        let intervals = [500, 1_000, 2_000, 5_000, 10_000, 20_000];
        let fig8 = [41.839, 40.03, 39.806, 39.623, 34.832, 24.287];
        let fig9 = [41.496, 43.167, 41.015, 40.044, 39.598, 39.86];
        let fig11 = [19.924, 20.328, 20.362, 19.116, 19.298, 18.864];
        for (quantum, audio, curve) in [(20, false, fig8), (20, true, fig9), (10, true, fig11)] {
            for (us, avg) in intervals.into_iter().zip(curve) {
                add(Policy::Preempt, quantum, audio, us, response(avg, 60.0, 2.0));
            }
        }
        for policy in [Policy::Admit, Policy::Defer, Policy::FixedPriority, Policy::Table] {
            for us in std::iter::once(STORM_US).chain(intervals) {
                let second = if us == STORM_US { 0.0 } else { 1.2 };
                let limited = Response { bound: Some(40.0), ..response(35.18, 39.86, second) };
                add(policy, 20, true, us, limited);
            }
        }
        Measured { alone: response(15.2, 20.0, 0.0), shared: response(35.2, 40.0, 0.0), points }
    }

    /// A policy without measured loads shows nothing.
    #[test]
    fn the_load_is_not_judged_without_two_loads() {
        for left in [0, 1] {
            let mut measured = good();
            let mut seen = Vec::new();
            measured.points.retain(|(point, _)| {
                seen.push(point.policy.name());
                seen.iter().filter(|name| **name == point.policy.name()).count() <= left
            });
            let judged = Judged::new(statements(&measured), &DEVIATIONS, true);
            for policy in [Policy::Admit, Policy::Defer, Policy::FixedPriority, Policy::Table] {
                let id = format!("load-{}", policy.name());
                let failed = judged.failures.iter().any(|failure| failure.contains(&id));
                assert!(failed, "{id} with {left}: {:?}", judged.failures);
            }
        }
    }

    #[test]
    fn each_statement_can_fail() {
        each_can_fail(&good(), &DEVIATIONS, statements, |all| {
            let mut values: Vec<&mut dyn Change> = vec![&mut all.alone.avg, &mut all.shared.avg];
            for (_, response) in &mut all.points {
                values.push(&mut response.avg);
                values.push(&mut response.max);
                if let Some([_, second]) = &mut response.came {
                    values.push(second);
                }
            }
            values
        });
    }
}
