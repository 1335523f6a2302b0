//! The fuzz target `broker`, for as long as a test may take: random drivers.

mod play;

use proptest::{prelude::*, test_runner::TestRunner};
use std::cell::Cell;

#[test]
fn hostile_drivers_harm_no_other_vm() {
    let most = Cell::new(play::Most::default());
    let actions = prop::collection::vec(any::<u8>(), 0..1500);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) };
    let played = TestRunner::new(config).run(&actions, |data| {
        most.set(most.get().max(play::play(&data)));
        Ok(())
    });
    played.unwrap_or_else(|error| panic!("{error}"));
    println!("{:?}", most.get());
}
