//! Table III of rt-virtio: the smallest schedulable period of one flow with D = P.

use weir_analysis::flows::{
    Analyzer, Effort, Flow, Overheads, Reading, Setting, Verdict, transform,
};
use weir_analysis::{Bytes, BytesPerSec, Nanos};

fn smallest_period(bandwidth: u64, size: u64, reading: Reading) -> u64 {
    let setting = Setting { chunk: Bytes(4096), queues: Some(1), reading };
    let mut analyzer = Analyzer::new();
    let mut holds = |period: u64| {
        let flow = Flow {
            size: Bytes(size),
            period: Nanos(period),
            deadline: Nanos(period),
            from: 0,
            to: 1,
        };
        analyzer.load(&transform(&[flow], &setting, &Overheads::RT_VIRTIO).unwrap());
        analyzer.verdict(BytesPerSec(bandwidth), Effort::default()).unwrap() == Verdict::Schedulable
    };
    let (mut bad, mut good) = (1, 1 << 30);
    while good - bad > 1 {
        let middle = u64::midpoint(bad, good);
        if holds(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

#[test]
fn smallest_periods_of_both_readings() {
    let rows = [
        (148_000_000, 4096, 37_407, 36_933),
        (148_000_000, 12288, 103_645, 103_171),
        (485_000_000, 4096, 18_177, 17_703),
        (485_000_000, 12288, 45_954, 45_480),
    ];
    for (bandwidth, size, printed, published) in rows {
        assert_eq!(smallest_period(bandwidth, size, Reading::Printed), printed);
        assert_eq!(smallest_period(bandwidth, size, Reading::Table3), published);
    }
}
