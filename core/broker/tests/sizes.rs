//! How much memory broker and partition take, next to rt-virtio's figures (section V): printed with
//! `-- --nocapture`, and never more than `docs/results/performance.md` says.

use weir_broker::broker::{Broker, Store};
use weir_partition::flows::{FLOWS, PORTS, Partition, PortRings};

#[test]
fn broker_and_partition_have_documented_sizes() {
    let [broker, store, partition, port] = [
        size_of::<Broker<'_>>(),
        size_of::<Store>(),
        size_of::<Partition>(),
        size_of::<PortRings>(),
    ];
    println!("the broker's state: {broker} B and {store} B for {FLOWS} flows and {PORTS} VMs");
    println!("the partition: {partition} B, of which {port} B for each VM");
    assert!(broker <= 8904, "more than the paper's data: {broker}");
    assert!(store <= 131_072, "{store}");
    assert!(partition <= 20_480 && port <= 320, "{partition} {port}");
}
