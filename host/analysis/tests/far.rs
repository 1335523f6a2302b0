//! Instants that no integer of 64 bits holds.

use weir_analysis::flows::{
    Analyzer, Cause, Effort, Flow, MinBandwidth, Overheads, Reading, Setting, Verdict, transform,
};
use weir_analysis::{Bytes, BytesPerSec, Nanos};

/// Sender and period, ns, of flows of 12 KiB whose U' is below 1 by so little, at the smallest
/// bandwidth at which it is, that T* is 200 years.
const FLOWS: [(u32, u64); 48] = [
    (0, 15_817_121),
    (0, 10_630_836),
    (3, 4_996_709),
    (2, 5_051_641),
    (1, 24_893_035),
    (3, 2_985_707),
    (0, 4_471_519),
    (1, 19_027_168),
    (2, 3_124_814),
    (1, 2_463_704),
    (2, 4_729_641),
    (2, 3_442_234),
    (1, 6_540_053),
    (3, 10_837_505),
    (2, 386_514_148),
    (0, 11_785_047),
    (1, 1_628_493),
    (3, 4_966_329),
    (1, 9_295_607),
    (0, 4_959_190),
    (2, 2_001_141),
    (3, 7_960_760),
    (1, 78_317_288),
    (0, 6_462_713),
    (2, 3_490_166),
    (3, 4_913_842),
    (0, 16_266_554),
    (1, 5_329_089),
    (0, 3_313_873),
    (2, 9_573_458),
    (2, 33_396_277),
    (2, 1_269_737),
    (3, 2_779_544),
    (1, 5_620_803),
    (2, 3_711_396),
    (1, 10_512_018),
    (0, 23_818_615),
    (0, 14_487_272),
    (0, 8_727_378),
    (3, 17_709_286),
    (1, 301_809_637),
    (0, 53_190_725),
    (2, 1_892_613),
    (2, 5_300_656),
    (1, 2_127_638),
    (0, 5_067_879),
    (2, 8_073_407),
    (3, 11_863_987),
];

#[test]
fn a_set_with_a_distant_last_instant_is_exact() {
    let flows = FLOWS.map(|(from, period)| Flow {
        size: Bytes(12 * 1024),
        period: Nanos(period),
        deadline: Nanos(period),
        from,
        to: from + 1,
    });
    let setting = Setting { chunk: Bytes(4096), queues: None, reading: Reading::Printed };
    let tasks = transform(&flows, &setting, &Overheads::RT_VIRTIO).unwrap();
    let mut analyzer = Analyzer::new();
    analyzer.load(&tasks);
    let effort = Effort(1 << 20);
    let least = BytesPerSec(139_525_315);
    assert_eq!(analyzer.min_bandwidth(effort), MinBandwidth::Exactly(least));
    analyzer.load(&tasks);
    assert_eq!(analyzer.verdict(least, effort), Ok(Verdict::Schedulable));
    let less = analyzer.verdict(BytesPerSec(least.0 - 1), effort);
    assert_eq!(less, Ok(Verdict::Unschedulable(Cause::Overload)));
}
