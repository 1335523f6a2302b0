//! The ticks that end turns, on cores that run one after the other as in QEMU's instruction counting.

use proptest::prelude::*;
use weir_policy::{Nanos, beat::Beat};

/// As `weir run --deterministic` has it.
const INTERVAL: u64 = 100_000;
/// From a core's tick to the next one's planning, and of the whole exit.
const PLANNED: u64 = 30;
const EXIT: u64 = 120;

struct Core {
    beat: Beat,
    /// Its tick was due, and it has not run since.
    pending: bool,
    busy: bool,
    ran: u64,
}

/// How long each core runs in `span`, the turns going round: each ends at the next tick of any core, or when an idle core has dealt with its own.
fn turns(cores: &mut [Core], from: u64, span: u64) {
    let mut now = from;
    for place in (0..cores.len()).cycle() {
        if now >= from + span {
            return;
        }
        let next = |cores: &[Core]| {
            let armed = cores.iter().filter(|core| !core.pending);
            armed.map(|core| core.beat.next()).min().unwrap_or(u64::MAX)
        };
        let core = &mut cores[place];
        let began = now;
        if core.pending {
            core.beat.tick(Nanos(now + PLANNED));
            core.pending = false;
            now += EXIT;
        }
        if core.busy || cores.iter().all(|core| !core.busy && !core.pending) {
            now = now.max(next(cores));
        }
        cores[place].ran += now - began;
        for core in &mut *cores {
            core.pending |= core.beat.next() <= now;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whenever the cores started, and whichever of them have something to do.
    #[test]
    fn no_core_starves(
        starts in prop::collection::vec(0..2 * INTERVAL, 1..9),
        busy in any::<u8>(),
    ) {
        let count = starts.len();
        let mut cores: Vec<_> = starts.iter().enumerate().map(|(index, &start)| Core {
            beat: Beat::new(Nanos(INTERVAL), (index, count), Nanos(start)),
            pending: false,
            busy: busy >> index & 1 != 0,
            ran: 0,
        }).collect();
        turns(&mut cores, 2 * INTERVAL, 20 * INTERVAL);
        let share = 20 * INTERVAL / count as u64;
        for core in cores.iter().filter(|core| core.busy) {
            prop_assert!(core.ran >= share / 2, "{} of {share}", core.ran);
        }
    }

    #[test]
    fn ticks_keep_their_places_however_late_they_come(
        interval in 1..1_000_u64, core in 0..8_usize, lates in prop::collection::vec(0..3_000_u64, 1..50),
    ) {
        let mut beat = Beat::new(Nanos(interval), (core, 8), Nanos(12_345));
        let place = interval * core as u64 / 8;
        for late in lates {
            let now = beat.next() + late;
            beat.tick(Nanos(now));
            prop_assert!(beat.next() > now && beat.next() - now <= interval);
            prop_assert_eq!(beat.next() % interval, place % interval);
        }
    }
}

#[test]
fn without_an_interval_there_is_no_tick() {
    let mut beat = Beat::new(Nanos(0), (1, 4), Nanos(5));
    assert_eq!(beat, Beat::NEVER);
    beat.tick(Nanos(u64::MAX));
    assert_eq!(beat.next(), u64::MAX);
}
