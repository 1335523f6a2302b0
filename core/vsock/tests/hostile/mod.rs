//! The fuzz target `virtio`, for as long as a test may take: random drivers, most of which get as
//! far as two queues.

mod play;

use proptest::{
    prelude::*,
    test_runner::{TestError, TestRunner},
};

/// What the fuzzer hands over: options, memory, and what the driver does.
fn inputs() -> impl Strategy<Value = Vec<u8>> {
    let cell = prop_oneof![3 => Just(0), 1 => 0u8..9, 1 => any::<u8>()];
    let memory = prop::collection::vec(cell, 0..0x700);
    let rest = prop::collection::vec(any::<u8>(), 0..400);
    (any::<u8>(), prop::bool::weighted(0.9), memory, rest).prop_map(
        |(options, set_up, memory, rest)| {
            let options = if set_up { options | 32 } else { options };
            [vec![options], memory, rest].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_driver_gets_more_than_its_own(data in inputs()) {
        play::play(&data);
    }
}

/// The same drivers find a device that reads a descriptor's length before it copies the
/// descriptor.
#[test]
fn a_planted_double_fetch_is_found() {
    let config = ProptestConfig {
        failure_persistence: None,
        max_shrink_iters: 0,
        ..ProptestConfig::with_cases(10_000)
    };
    let drivers = std::cell::Cell::new(0);
    let found = TestRunner::new(config).run(&inputs(), |data| {
        drivers.set(drivers.get() + 1);
        play::play_planted(&data);
        Ok(())
    });
    let Err(TestError::Fail(reason, _)) = found else { panic!("not found: {found:?}") };
    assert!(reason.message().contains("was read 2 times"), "{reason}");
    println!("found by driver {}", drivers.get());
}
