//! How much memory broker and exchange take, next to rt-virtio's figures (section V): printed with
//! `-- --nocapture`, and never more than `docs/results/performance.md` says.

use weir_broker::broker::{Broker, Store};
use weir_exchange::flows::{Exchange, FLOWS, PORTS, PortRings};

#[test]
fn broker_and_exchange_have_documented_sizes() {
    let [broker, store, exchange, port] = [
        size_of::<Broker<'_>>(),
        size_of::<Store>(),
        size_of::<Exchange>(),
        size_of::<PortRings>(),
    ];
    println!("the broker's state: {broker} B and {store} B for {FLOWS} flows and {PORTS} VMs");
    println!("the exchange: {exchange} B, of which {port} B for each VM");
    assert!(broker <= 8904, "more than the paper's data: {broker}");
    assert!(store <= 131_072, "{store}");
    assert!(exchange <= 20_480 && port <= 320, "{exchange} {port}");
}
