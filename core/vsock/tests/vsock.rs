//! Packets and their permitted senders.

use proptest::prelude::*;
use weir_units::Cid;
use weir_vsock::{
    flows::{FlowRule, PacketVerdict, admit},
    vsock::{HEADER_LEN, Header, MAX_PAYLOAD, Malformed, Operation, STREAM},
};

fn header() -> impl Strategy<Value = Header> {
    prop::collection::vec(any::<u8>(), HEADER_LEN)
        .prop_map(|bytes| Header::from_bytes(bytes.as_slice().try_into().unwrap()))
}

proptest! {
    #[test]
    fn a_header_is_its_bytes(header in header()) {
        prop_assert_eq!(Header::from_bytes(&header.to_bytes()), header);
    }

    #[test]
    fn what_passes_the_check_is_well_formed(header in header(), room in 0u64..100_000) {
        if let Ok(operation) = header.check(header.src_cid, room) {
            prop_assert!(u64::from(header.len) <= room && header.len <= MAX_PAYLOAD);
            prop_assert_eq!(header.len > 0, operation == Operation::Data);
        }
    }
}

#[test]
fn malformed_packets_have_names() {
    let good = Header { src_cid: Cid(3), len: 8, kind: STREAM, op: 5, ..Header::ZERO };
    assert_eq!(good.check(Cid(3), 8), Ok(Operation::Data));
    let cases = [
        (Header { src_cid: Cid(4), ..good }, Malformed::Source),
        (Header { kind: 3, ..good }, Malformed::Kind),
        (Header { kind: 3, src_cid: Cid(4), ..good }, Malformed::Source),
        (Header { op: 0, ..good }, Malformed::Unknown),
        (Header { op: 8, ..good }, Malformed::Unknown),
        (Header { len: 9, ..good }, Malformed::Length),
        (Header { len: 0, ..good }, Malformed::Length),
        (Header { op: 1, ..good }, Malformed::Length),
    ];
    for (header, malformed) in cases {
        assert_eq!(header.check(Cid(3), 8), Err(malformed), "{header:?}");
    }
    let long = Header { len: MAX_PAYLOAD + 1, ..good };
    assert_eq!(long.check(Cid(3), 1 << 20), Err(Malformed::Length));
}

/// Two flows from 3 to 4, one back, as (from, to, port).
const RULES: [FlowRule; 3] = [
    FlowRule { from: Cid(3), to: Cid(4), port: 5000 },
    FlowRule { from: Cid(3), to: Cid(4), port: 5001 },
    FlowRule { from: Cid(4), to: Cid(3), port: 6000 },
];

fn verdict(from: (u64, u32), to: (u64, u32), operation: Operation) -> PacketVerdict {
    let header = Header {
        src_cid: Cid(from.0),
        src_port: from.1,
        dst_cid: Cid(to.0),
        dst_port: to.1,
        ..Header::ZERO
    };
    admit(RULES, &header, operation)
}

#[test]
fn a_flow_has_data_one_way_and_control_both_ways() {
    use Operation::{CreditRequest, CreditUpdate, Data, Request, Reset, Response, Shutdown};
    use PacketVerdict::{Pass, Refuse, Transfer};
    let (sender, receiver) = ((3, 77), (4, 5001));
    for (operation, forth, back) in [
        (Request, Pass(1), Refuse),
        (Response, Refuse, Pass(1)),
        (Data, Transfer(1), Refuse),
        (Shutdown, Transfer(1), Pass(1)),
        (Reset, Transfer(1), Pass(1)),
        (CreditUpdate, Pass(1), Pass(1)),
        (CreditRequest, Pass(1), Pass(1)),
    ] {
        assert_eq!(verdict(sender, receiver, operation), forth, "{operation:?} forth");
        assert_eq!(verdict(receiver, sender, operation), back, "{operation:?} back");
    }
    assert_eq!(verdict((4, 9), (3, 6000), Data), Transfer(2));
    for stranger in [(2, 5000), (5, 5000), (4, 4999), (u64::MAX, 5000)] {
        for operation in [Request, Data, CreditUpdate, Shutdown] {
            assert_eq!(
                verdict(sender, stranger, operation),
                Refuse,
                "{operation:?} to {stranger:?}"
            );
        }
    }
}

#[test]
fn a_refusal_goes_back_and_is_not_refused_itself() {
    let packet = Header {
        src_cid: Cid(3),
        dst_cid: Cid(9),
        src_port: 1,
        dst_port: 2,
        kind: STREAM,
        op: 1,
        ..Header::ZERO
    };
    let refusal = packet.refusal().unwrap();
    assert_eq!(
        (refusal.src_cid, refusal.src_port, refusal.dst_cid, refusal.dst_port),
        (Cid(9), 2, Cid(3), 1)
    );
    assert_eq!(refusal.operation(), Some(Operation::Reset));
    assert_eq!(refusal.refusal(), None);
}
