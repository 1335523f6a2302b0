//! Bad and extreme input: an error that names the place, or an answer in bounded time; no panic.

use weir_analysis::flows::{
    Analyzer, Effort, Flow, InputError, InputRule, MinBandwidth, Overheads, Path, Schedulability,
    transform,
};
use weir_analysis::{Bytes, BytesPerSec, Nanos};

const PATH: Path = Path::paper(Overheads::RT_VIRTIO);

fn analyze(
    flows: &[Flow],
    path: &Path,
    bandwidth: BytesPerSec,
    effort: Effort,
) -> Result<(Schedulability, MinBandwidth), InputError> {
    let mut analyzer = Analyzer::new(&transform(flows, path)?, &[]);
    let verdict = analyzer.verdict(bandwidth, effort)?;
    analyzer.first_failure(bandwidth, effort)?;
    analyzer.slack(bandwidth, effort)?;
    Ok((verdict, analyzer.min_bandwidth(effort)))
}

fn flow(size: u64, period: u64, deadline: u64, from: usize, to: usize) -> Flow {
    let [period, deadline] = [period, deadline].map(|time| Some(Nanos(time)));
    Flow { from, to: vec![to], size: Bytes(size), period, deadline, ..Flow::default() }
}

#[test]
fn each_rule_has_its_error_and_names_the_flow() {
    let good = flow(1, 1_000_000, 1_000_000, 0, 1);
    let cases = [
        (flow(0, 1, 1, 0, 1), InputRule::ZeroSize),
        (flow(1, 0, 1, 0, 1), InputRule::ZeroPeriod),
        (flow(1, 1, 0, 0, 1), InputRule::ZeroDeadline),
        (flow(1, 1, 1, 3, 3), InputRule::SelfLoop),
        (flow(u64::MAX, 1, 1, 0, 1), InputRule::SizeTooLarge),
        (flow(1, u64::MAX, 1, 0, 1), InputRule::TimeTooLarge),
    ];
    let run =
        |flows: &[Flow], path: &Path, b: u64| analyze(flows, path, BytesPerSec(b), Effort(1 << 20));
    for (bad, kind) in cases {
        let error = run(&[good.clone(), bad], &PATH, 1).unwrap_err();
        assert_eq!((error.flow, error.kind), (Some(1), kind));
    }
    let zero_chunk = Path { chunk: Bytes(0), ..PATH };
    assert_eq!(
        run(std::slice::from_ref(&good), &zero_chunk, 1).unwrap_err().kind,
        InputRule::ZeroChunk
    );
    assert_eq!(run(&[good], &PATH, 0).unwrap_err().kind, InputRule::ZeroBandwidth);
    assert_eq!(run(&[], &PATH, 1).unwrap_err().kind, InputRule::NoFlows);
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
            let _ = analyze(flows, &PATH, BytesPerSec(b), Effort(1 << 18));
        }
    }
}

#[test]
fn ten_thousand_flows() {
    let flows: Vec<Flow> = (0..10_000)
        .map(|i| flow(4096, 40_000_000_000 + 7919 * i, 40_000_000_000, i as usize % 64, 99))
        .collect();
    let (verdict, least) = analyze(&flows, &PATH, BytesPerSec(1 << 33), Effort(1 << 26)).unwrap();
    assert_eq!(verdict, Schedulability::Schedulable);
    assert!(!matches!(least, MinBandwidth::Never(_)));
}
