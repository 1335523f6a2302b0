//! The findings on a run before they are judged, and the latencies of packets.

use crate::observed::{ArrivedPacket, percentile};
use std::collections::BTreeMap;
pub use weir_report::run::{
    BudgetFinding, Clock, Finding, InterruptFinding, Latency, LatencyBucket, MissedActivation,
    TaskFinding,
};

/// Returns the latencies of all packets of a flow; none without a packet.
#[must_use]
pub fn latency(packets: &[ArrivedPacket]) -> Option<Latency> {
    let mut sorted: Vec<u64> = packets.iter().map(|packet| packet.latency_ns).collect();
    sorted.sort_unstable();
    let (&min, &max) = (sorted.first()?, sorted.last()?);
    let place = packets.iter().position(|packet| packet.latency_ns == max)?;
    Some(Latency {
        min,
        p50: percentile(&sorted, 50),
        p99: percentile(&sorted, 99),
        max,
        max_packet: place as u64 + 1,
        max_arrived_ns: packets.get(place)?.arrived_ns,
    })
}

/// Classes of latencies in a decade.
const CLASSES: i32 = 20;

/// Returns the number of packets by latency, in classes of equal width on a logarithmic axis.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "edges are positive, and a class that rounding misses is corrected"
)]
pub fn distribution(packets: &[ArrivedPacket]) -> Vec<LatencyBucket> {
    let edge = |class: i32| 10f64.powf(f64::from(class) / f64::from(CLASSES)).ceil() as u64;
    let mut counts = BTreeMap::new();
    for packet in packets {
        let latency = packet.latency_ns.max(1);
        let guess = (latency as f64).log10() * f64::from(CLASSES);
        let mut class = guess as i32;
        // Rounding can miss the class by one at its edges.
        class -= i32::from(latency < edge(class));
        class += i32::from(latency >= edge(class + 1));
        *counts.entry(class).or_default() += 1;
    }
    let bucket =
        |(class, packets)| LatencyBucket { from_ns: edge(class), to_ns: edge(class + 1), packets };
    counts.into_iter().map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_in_the_class_of_its_latency() {
        let edges = [1, 2, 9, 10, 11, 99, 100, 101, 4981, 1_000_000, u64::MAX];
        let packet = |latency_ns| ArrivedPacket { latency_ns, arrived_ns: 0, waited: false };
        for latency in edges {
            let [class] = distribution(&[packet(latency)])[..] else { panic!("{latency}") };
            let is_last = class.to_ns == u64::MAX;
            assert!(class.from_ns <= latency && (latency < class.to_ns || is_last), "{class:?}");
        }
        let all: Vec<_> = edges.map(packet).into();
        let classes = distribution(&all);
        assert_eq!(classes.iter().map(|class| class.packets).sum::<u64>(), all.len() as u64);
        assert!(classes.windows(2).all(|pair| pair[0].to_ns <= pair[1].from_ns), "{classes:?}");
        assert_eq!(distribution(&[]), []);
    }
}
