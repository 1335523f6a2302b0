//! Table III of rt-virtio: the smallest period, with D = P, at which one flow is schedulable.

use core::fmt::Write as _;

use crate::flows::{Analyzer, Effort, Flow, Overheads, Reading, Setting, Verdict, transform};
use crate::units::{Bytes, BytesPerSec, Nanos};

/// A row of Table III.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// DMA bandwidth; the paper's MB are 10^6 bytes.
    pub bandwidth: BytesPerSec,
    /// Packet size.
    pub size: Bytes,
    /// Latency measured in the paper (FreeRTOS, 1000 packets).
    pub measured: Nanos,
    /// Period in the paper.
    pub published: Nanos,
    /// Smallest period by the equations as printed.
    pub printed: Nanos,
    /// Smallest period in the reading that gives the published values.
    pub table3: Nanos,
}

/// Computes Table III in both readings.
#[must_use]
pub fn table3() -> Vec<Row> {
    let published = [
        (148, 4, 34_535, 36_933),
        (148, 12, 99_818, 103_171),
        (485, 4, 14_747, 17_703),
        (485, 12, 42_777, 45_480),
    ];
    published
        .into_iter()
        .map(|(mb, kib, measured, period)| {
            let (bandwidth, size) = (BytesPerSec(mb * 1_000_000), Bytes(kib * 1024));
            Row {
                bandwidth,
                size,
                measured: Nanos(measured),
                published: Nanos(period),
                printed: smallest_period(bandwidth, size, Reading::Printed),
                table3: smallest_period(bandwidth, size, Reading::Table3),
            }
        })
        .collect()
}

/// Binary search as in the paper: with D = P a longer period is never worse.
fn smallest_period(bandwidth: BytesPerSec, size: Bytes, reading: Reading) -> Nanos {
    let setting = Setting { chunk: Bytes(4096), queues: Some(1), reading };
    let mut analyzer = Analyzer::new();
    let mut holds = |period: u64| {
        let flow = Flow { size, period: Nanos(period), deadline: Nanos(period), from: 0, to: 1 };
        transform(&[flow], &setting, &Overheads::RT_VIRTIO).is_ok_and(|tasks| {
            analyzer.load(&tasks);
            analyzer.verdict(bandwidth, Effort::default()) == Ok(Verdict::Schedulable)
        })
    };
    let (mut bad, mut good) = (0, 1 << 40);
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if holds(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Nanos(good)
}

/// The rows as a text table: the paper's value, both readings and their ratio to the paper's.
#[must_use]
pub fn render(rows: &[Row]) -> String {
    let mut out =
        String::from("  MB/s  KiB  measured  published   printed  ratio    table3  ratio   (ns)\n");
    for r in rows {
        let ratio = |x: Nanos| x.0 as f64 / r.published.0 as f64;
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{:6} {:4} {:9} {:10} {:9} {:6.4} {:9} {:6.4}",
            r.bandwidth.0 / 1_000_000,
            r.size.0 / 1024,
            r.measured.0,
            r.published.0,
            r.printed.0,
            ratio(r.printed),
            r.table3.0,
            ratio(r.table3),
        );
    }
    out
}
