//! Bad and extreme input: an error that names the place, or an answer in bounded time; no panic.

use weir_analysis::flows::{
    Effort, FlowDemand, FlowError, FlowErrorKind, FlowSetReport, FlowSetting, MinBandwidth,
    Overheads, Reading, Schedulability, report, transform,
};
use weir_analysis::{Bytes, BytesPerSec, Nanos};

const SETTING: FlowSetting =
    FlowSetting { chunk: Bytes(4096), queues: None, reading: Reading::Printed };

fn analyze(
    flows: &[FlowDemand],
    setting: &FlowSetting,
    overheads: &Overheads,
    bandwidth: BytesPerSec,
    effort: Effort,
) -> Result<FlowSetReport, FlowError> {
    report(&transform(flows, setting, overheads)?, &[], bandwidth, effort, effort)
}

fn flow(size: u64, period: u64, deadline: u64, from: u32, to: u32) -> FlowDemand {
    FlowDemand { size: Bytes(size), period: Nanos(period), deadline: Nanos(deadline), from, to }
}

#[test]
fn each_rule_has_its_error_and_names_the_flow() {
    let good = flow(1, 1_000_000, 1_000_000, 0, 1);
    let cases = [
        (flow(0, 1, 1, 0, 1), FlowErrorKind::ZeroSize),
        (flow(1, 0, 1, 0, 1), FlowErrorKind::ZeroPeriod),
        (flow(1, 1, 0, 0, 1), FlowErrorKind::ZeroDeadline),
        (flow(1, 1, 1, 3, 3), FlowErrorKind::SelfLoop),
        (flow(u64::MAX, 1, 1, 0, 1), FlowErrorKind::SizeTooLarge),
        (flow(1, u64::MAX, 1, 0, 1), FlowErrorKind::TimeTooLarge),
    ];
    let overheads = Overheads::RT_VIRTIO;
    let run = |flows: &[FlowDemand], setting: &FlowSetting, b: u64| {
        analyze(flows, setting, &overheads, BytesPerSec(b), Effort(1 << 20))
    };
    for (bad, kind) in cases {
        let error = run(&[good, bad], &SETTING, 1).unwrap_err();
        assert_eq!((error.flow, error.kind), (Some(1), kind));
    }
    let zero_chunk = FlowSetting { chunk: Bytes(0), ..SETTING };
    assert_eq!(run(&[good], &zero_chunk, 1).unwrap_err().kind, FlowErrorKind::ZeroChunk);
    assert_eq!(run(&[good], &SETTING, 0).unwrap_err().kind, FlowErrorKind::ZeroBandwidth);
    assert_eq!(run(&[], &SETTING, 1).unwrap_err().kind, FlowErrorKind::NoFlows);
}

#[test]
fn extremes_are_answered_without_wrapping() {
    let day = 86_400_000_000_000;
    let sets = [
        vec![flow(1 << 40, 50 * day, 50 * day, 0, 1), flow(1, 30_000, 30_000, 1, 0)],
        vec![flow(1, 1, 1 << 52, 0, 1)],
        vec![flow(1 << 40, 1, 1, 0, 1)],
        vec![flow(12_288, 3_600_000_000_001, 3_599_999_999_999, 0, 1); 7],
    ];
    for flows in &sets {
        for b in [1, 1_000_000_000, 1 << 50] {
            // Either answer will do; a wrap would panic here, since tests check overflow.
            let _ =
                analyze(flows, &SETTING, &Overheads::RT_VIRTIO, BytesPerSec(b), Effort(1 << 18));
        }
    }
}

#[test]
fn ten_thousand_flows() {
    let flows: Vec<FlowDemand> = (0..10_000)
        .map(|i| flow(4096, 40_000_000_000 + 7919 * i, 40_000_000_000, i as u32 % 64, 99))
        .collect();
    let report =
        analyze(&flows, &SETTING, &Overheads::RT_VIRTIO, BytesPerSec(1 << 33), Effort(1 << 26))
            .unwrap();
    assert_eq!(report.verdict, Schedulability::Schedulable);
    assert!(!matches!(report.min_bandwidth, MinBandwidth::Never(_)));
}
