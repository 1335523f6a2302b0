//! How much memory broker and partition take, beside rt-virtio's figures (section V): printed with
//! `-- --nocapture`, and never more than `docs/results/performance.md` says.

use weir_broker::{
    broker::Broker,
    shared::{FLOWS, PORTS, Partition, PortRings, RING},
};

#[test]
fn broker_and_partition_have_documented_sizes() {
    let [broker, partition, port] =
        [size_of::<Broker<'_>>(), size_of::<Partition>(), size_of::<PortRings>()];
    println!(
        "the broker's state: {broker} B for {FLOWS} flows and {PORTS} VMs of {RING} packets each"
    );
    println!("the partition: {partition} B, of which {port} B for each VM");
    assert!(broker <= 8904, "more than the paper's data: {broker}");
    assert!(partition <= 110_592 && port <= 11_304, "{partition} {port}");
}
