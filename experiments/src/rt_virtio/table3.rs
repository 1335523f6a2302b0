//! The analysis of rt-virtio (RTSS 2021): Table III.

use crate::{
    ExperimentOutcome, ExperimentRequest,
    statement::{ClaimSource, Deviation, Paper, Relation, Statement, statements},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;
use weir_analysis::{
    Bytes, BytesPerSec, Nanos,
    flows::{Analyzer, Effort, Flow, Overheads, Path, Reading, Schedulability, transform},
};
use weir_image::Result;

const TABLE3: ClaimSource = Paper("rt-virtio").at("Table III");
/// The reason for which the published periods do not judge the reading `table3`.
const READING: &str = "the reading `table3`, which was chosen because these periods follow from it";

/// Table III: MB/s, KiB, measured latency and period in ns.
const PUBLISHED: [(u64, u64, u64, u64); 4] = [
    (148, 4, 34_535, 36_933),
    (148, 12, 99_818, 103_171),
    (485, 4, 14_747, 17_703),
    (485, 12, 42_777, 45_480),
];

/// A flow of Table III: the published values, and the smallest periods by this analysis with the
/// overheads of the paper's Table II.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Table3Flow {
    /// The DMA engine's bandwidth in bytes/s.
    pub bandwidth: u64,
    /// The size of a packet in bytes.
    pub size: u64,
    /// The published maximum of the measured latency in ns.
    pub measured_ns: u64,
    /// The published period in ns.
    pub published_ns: u64,
    /// The smallest period by the equations as printed, in ns.
    pub printed_ns: u64,
    /// The smallest period by the equations as Table III was computed, in ns.
    pub table3_ns: u64,
}

impl Table3Flow {
    /// Returns the bandwidth in MB/s and the size in KiB, as Table III has them.
    #[must_use]
    pub const fn in_table(self) -> (u64, u64) {
        (self.bandwidth / 1_000_000, self.size / 1024)
    }
}

/// Returns the flows of Table III in its order.
#[must_use]
pub fn table3_flows() -> [Table3Flow; 4] {
    PUBLISHED.map(|(mb, kib, measured_ns, published_ns)| {
        let smallest = |reading| smallest_period(mb, kib, reading);
        let [printed_ns, table3_ns] = [Reading::Printed, Reading::Table3].map(smallest);
        let (bandwidth, size) = (mb * 1_000_000, kib * 1024);
        Table3Flow { bandwidth, size, measured_ns, published_ns, printed_ns, table3_ns }
    })
}

/// The known deviations in Table III.
pub static DEVIATIONS: [Deviation; 1] = [Deviation {
    id: "table3-exit-counted-twice",
    reason: "the published periods follow from the equations only if all of a hypercall is taken \
             off the notification delay and O_s^max is rounded up; the equations as printed take \
             off half of it (Eq. 22), which is 474 ns more",
    tested_by: &["table3-148-4", "table3-148-12", "table3-485-4", "table3-485-12"],
    of: &[
        ("printed-148-4", Relation::exactly(37_407.0)),
        ("printed-148-12", Relation::exactly(103_645.0)),
        ("printed-485-4", Relation::exactly(18_177.0)),
        ("printed-485-12", Relation::exactly(45_954.0)),
    ],
}];

/// Returns the smallest period, with D = P, at which one flow is schedulable: by halving as in the
/// paper, since a longer period is never worse.
fn smallest_period(mb: u64, kib: u64, reading: Reading) -> u64 {
    let path = Path { queues: Some(1), reading, ..Path::paper(Overheads::RT_VIRTIO) };
    let holds = |period: u64| {
        let (size, period) = (Bytes(kib * 1024), Some(Nanos(period)));
        let flow = Flow { size, period, deadline: period, to: vec![1], ..Flow::default() };
        transform(&[flow], &path).is_ok_and(|tasks| {
            let bandwidth = BytesPerSec(mb * 1_000_000);
            let verdict = Analyzer::new(&tasks, &[]).verdict(bandwidth, Effort::default());
            verdict == Ok(Schedulability::Schedulable)
        })
    };
    let (mut bad, mut good) = (0, 1 << 40);
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    good
}

/// Computes Table III in both readings.
#[expect(clippy::unnecessary_wraps, reason = "all experiments have this type")]
pub fn table3(_: &ExperimentRequest) -> Result<ExperimentOutcome> {
    let mut text =
        String::from("  MB/s  KiB  measured  published   printed  ratio    table3  ratio   (ns)\n");
    let (mut rows, mut periods) = (Vec::new(), Vec::new());
    for flow in table3_flows() {
        let (mb, kib) = flow.in_table();
        let (measured, published) = (flow.measured_ns, flow.published_ns);
        let (printed, table3) = (flow.printed_ns, flow.table3_ns);
        #[expect(clippy::cast_precision_loss, reason = "periods of microseconds")]
        let [own_printed, own_table3, of] = [printed, table3, published].map(|ns| ns as f64);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{mb:6} {kib:4} {measured:9} {published:10} {printed:9} {:6.4} {table3:9} {:6.4}",
            own_printed / of,
            own_table3 / of,
        );
        rows.push(flow);
        periods.push([own_printed, own_table3]);
    }
    text.push_str(
        "\nprinted: the equations as they are printed, the default of `weir analyze`. table3: O_r \
         = BR_max - HC_max and O_s^max\nrounded up to whole ns, which gives the published values. \
         Those are optimistic: of a hypercall only the exit runs in\n\
         parallel with the IPI, so taking off the entry, too, leaves out time that passes.\n",
    );
    let statements = periods_stated(&periods);
    Ok(ExperimentOutcome { json: json!({ "rows": rows }), text, statements, files: Vec::new() })
}

/// Statements on the smallest periods, in both readings.
#[expect(clippy::cast_precision_loss, reason = "periods of microseconds")]
fn periods_stated(periods: &[[f64; 2]]) -> Vec<Statement> {
    let rows = PUBLISHED.iter().zip(periods);
    let each = rows.flat_map(|(&(mb, kib, measured, published), &[printed, table3])| {
        let published = Relation::exactly(published as f64);
        let mut all = statements![
            TABLE3, "table3-{mb}-{kib}",
            "smallest period for {kib} KiB at {mb} MB/s, in the reading `table3`"
                => published, [table3], "ns";
            TABLE3, "printed-{mb}-{kib}",
            "smallest period for {kib} KiB at {mb} MB/s, by the equations as printed"
                => published, [printed], "ns";
            TABLE3, "measured-{mb}-{kib}",
            "the period for {kib} KiB at {mb} MB/s is not below the latency that was measured"
                => Relation::AtLeast(measured as f64), [printed], "ns";
        ];
        all[0].fitted = Some(READING);
        all
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::{Change, each_can_fail};

    #[test]
    fn each_statement_on_table_iii_can_fail() {
        let good = vec![
            [37_407.0, 36_933.0],
            [103_645.0, 103_171.0],
            [18_177.0, 17_703.0],
            [45_954.0, 45_480.0],
        ];
        each_can_fail(
            &good,
            &DEVIATIONS,
            |periods| periods_stated(periods),
            |periods| periods.iter_mut().flatten().map(|ns| ns as &mut dyn Change).collect(),
        );
    }
}
