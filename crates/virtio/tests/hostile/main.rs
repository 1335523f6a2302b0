//! The fuzz target `virtio`, for as long as a test may take: random drivers, most of which get as far as two queues.

mod play;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_driver_gets_more_than_its_own(
        options in any::<u8>(),
        mut memory in prop::collection::vec(prop_oneof![3 => Just(0), 1 => 0u8..9, 1 => any::<u8>()], 0..0x700),
        rest in prop::collection::vec(any::<u8>(), 0..400),
        set_up in prop::bool::weighted(0.9),
    ) {
        let options = if set_up { options | 32 } else { options };
        memory.insert(0, options);
        memory.extend(rest);
        play::play(&memory);
    }
}

/// A device that looks twice at what a driver can change meanwhile is found.
#[test]
#[should_panic(expected = "was read 2 times")]
fn a_second_fetch_is_found() {
    play::fetch_twice();
}
