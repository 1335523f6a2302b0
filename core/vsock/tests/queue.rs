//! The split ring: what a good driver gets, and what a hostile one can't do.

use crate::support::{Buffer, Driver, LEN, Memory, RAM, TABLES, layout, pop, walk};
use proptest::prelude::*;
use weir_vsock::queue::{Broken, Direction, Layout, MAX_SIZE, Queue, RingOptions};

const PLAIN: RingOptions = RingOptions { indirect: true, event_index: false };
const EVENTS: RingOptions = RingOptions { indirect: true, event_index: true };

/// A chain of any length that a ring can have.
fn buffers() -> impl Strategy<Value = Vec<Buffer>> {
    let most = usize::from(MAX_SIZE);
    let buffer = (RAM + 0x8000..RAM + 0xf000, 1u32..0x1000);
    let sizes = (0..=most, prop::collection::vec(buffer, 1..=most));
    sizes.prop_map(|(readable, buffers)| {
        let buffers = buffers.into_iter().enumerate();
        buffers.map(|(place, (address, len))| (address, len, place >= readable)).collect()
    })
}

proptest! {
    /// Section 2.7.6 and 2.7.8: chains come in the order in which they were made available, and go
    /// back in any.
    #[test]
    fn chains_arrive_in_order_and_return_in_any(
        size in prop::sample::select(vec![1u16, 2, 8, 64]),
        rounds in
            prop::collection::vec((buffers(), any::<bool>(), any::<prop::sample::Index>()), 1..150),
    ) {
        let (mut memory, mut driver) = (Memory::new(), Driver::new(size, PLAIN));
        let mut queue = Queue::new(layout(size), PLAIN);
        let mut device: Vec<u16> = Vec::new();
        for (buffers, indirect, pick) in rounds {
            // Section 2.7.5.3.1: no chain is longer than the ring.
            let buffers = &buffers[..buffers.len().min(size.into())];
            let added = driver.add(&mut memory, buffers, indirect);
            let popped = pop(&mut queue, &mut memory);
            if let Some(head) = added {
                let (found, pieces) = popped.unwrap().expect("one is available");
                prop_assert_eq!(found, head);
                prop_assert_eq!(pieces, buffers);
                prop_assert!(queue.has(head));
                device.push(head);
            } else {
                prop_assert_eq!(popped, Ok(None));
            }
            if device.len() > usize::from(size) / 2 {
                let head = device.swap_remove(pick.index(device.len()));
                queue.push(&mut memory, head, 7).unwrap();
                prop_assert_eq!(driver.take(&memory), vec![(head, 7)]);
                prop_assert!(!queue.has(head));
            }
        }
    }

    /// With any content of the rings, also while it changes between any two reads: nothing panics,
    /// the work is bounded, no byte is read twice in one walk, and what is accepted is in RAM, once.
    #[test]
    fn a_hostile_driver_gets_nothing(
        seed in any::<u64>(),
        size in prop::sample::select(vec![1u16, 4, 64]),
        available in 0u16..4,
        descriptors in prop::collection::vec((0u64..6, 0u32..0x40, 0u16..8, 0u16..70), 1..64),
        options in prop::sample::select(vec![PLAIN, EVENTS, RingOptions::default()]),
        (moving, writes) in any::<(bool, bool)>(),
    ) {
        let direction = if writes { Direction::Write } else { Direction::Read };
        let mut memory = Memory::new();
        for (number, (address, len, flags, next)) in descriptors.into_iter().enumerate() {
            let at = RAM + 16 * number as u64;
            let address = [RAM, RAM + 0x8000, TABLES, RAM + LEN as u64 - 8, 0, u64::MAX - 4]
                [address as usize];
            memory.put(at, &address.to_le_bytes());
            memory.put(at + 8, &len.to_le_bytes());
            memory.put(at + 12, &flags.to_le_bytes());
            memory.put(at + 14, &next.to_le_bytes());
        }
        memory.put(RAM + 0x1002, &available.to_le_bytes());
        memory.hostile = moving.then_some(seed);
        let mut queue = Queue::new(layout(size), options);
        let mut heads = Vec::new();
        for _ in 0..100 {
            memory.watch();
            let popped = queue.pop(&mut memory);
            let walked = popped.and_then(|chain| {
                let Some(chain) = chain else { return Ok(None) };
                heads.push(chain.head());
                Ok(Some(walk(&queue, &mut memory, chain, direction, 5)?))
            });
            // The index, the head, the buffers, and the descriptor that points to a table.
            prop_assert!(memory.reads <= 3 + usize::from(size), "{} reads", memory.reads);
            prop_assert!(memory.again.is_empty(), "read twice: {:x?}", memory.again);
            match walked {
                Ok(Some(pieces)) => {
                    let head = heads[heads.len() - 1];
                    prop_assert!(head < size && !heads[..heads.len() - 1].contains(&head));
                    for (address, len, _) in pieces {
                        prop_assert!(
                            address >= RAM && address + u64::from(len) <= RAM + LEN as u64
                        );
                    }
                }
                Ok(None) | Err(_) => {
                    if let Some(head) = heads.pop() {
                        queue.push(&mut memory, head, 1).unwrap();
                        let _ = queue.wants_interrupt(&mut memory).unwrap();
                        let _ = queue.ask_notification(&mut memory).unwrap();
                    }
                }
            }
        }
    }

    /// Section 2.7.7.2: an interrupt is due if the index passed `used_event`, and not otherwise.
    #[test]
    fn interrupts_come_when_the_index_passes_the_event(
        before in 0u16..100,
        returned in 0u16..8,
        event in 0u16..120,
    ) {
        let (mut memory, mut driver) = (Memory::new(), Driver::new(8, EVENTS));
        let mut queue = Queue::new(layout(8), EVENTS);
        let mut back = |memory: &mut Memory, queue: &mut Queue| {
            let head = driver.add(memory, &[(RAM + 0x8000, 8, true)], false).unwrap();
            assert_eq!(queue.pop(memory).unwrap().unwrap().head(), head);
            queue.push(memory, head, 0).unwrap();
            driver.take(memory);
        };
        (0..before).for_each(|_| back(&mut memory, &mut queue));
        let _ = queue.wants_interrupt(&mut memory).unwrap();
        memory.put(RAM + 0x1004 + 16, &event.to_le_bytes());
        (0..returned).for_each(|_| back(&mut memory, &mut queue));
        let passed = (before..before + returned).contains(&event);
        prop_assert_eq!(queue.wants_interrupt(&mut memory), Ok(passed));
        prop_assert_eq!(queue.wants_interrupt(&mut memory), Ok(false), "asked once");
    }
}

/// Sections 2.7.7 and 2.7.10, without EVENT_IDX: the driver's flag.
#[test]
fn a_flag_suppresses_interrupts() {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, PLAIN));
    let mut queue = Queue::new(layout(4), PLAIN);
    for wanted in [true, false] {
        memory.put(RAM + 0x1000, &u16::from(!wanted).to_le_bytes());
        let head = driver.add(&mut memory, &[(RAM + 0x8000, 8, true)], false).unwrap();
        queue.pop(&mut memory).unwrap();
        queue.push(&mut memory, head, 0).unwrap();
        assert_eq!(queue.wants_interrupt(&mut memory), Ok(wanted));
        driver.take(&memory);
    }
}

/// Section 2.7.10.1: `avail_event` is the index of the next chain, and a chain that is there
/// already is not waited for.
#[test]
fn notifications_are_asked_for_at_the_next_chain() {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, EVENTS));
    let mut queue = Queue::new(layout(4), EVENTS);
    for number in 1..4 {
        driver.add(&mut memory, &[(RAM + 0x8000, 8, true)], false).unwrap();
        assert_eq!(queue.ask_notification(&mut memory), Ok(true));
        queue.pop(&mut memory).unwrap();
        assert_eq!(queue.ask_notification(&mut memory), Ok(false));
        assert_eq!(memory.u16(RAM + 0x2004 + 32), number);
    }
}

/// A ring of four with one chain, of one buffer, as `change` leaves it.
fn broken(options: RingOptions, change: impl FnOnce(&mut Memory)) -> Result<(), Broken> {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, options));
    driver.add(&mut memory, &[(RAM + 0x8000, 8, true)], false).unwrap();
    change(&mut memory);
    pop(&mut Queue::new(layout(4), options), &mut memory).map(|_| ())
}

#[test]
fn each_way_to_break_a_ring_has_its_name() {
    let put = |at: u64, value: u16| move |memory: &mut Memory| memory.put(at, &value.to_le_bytes());
    let cases: [(Broken, u64, u16); 5] = [
        (Broken::Index, RAM + 0x1002, 5),
        (Broken::Number, RAM + 0x1004, 4),
        // Next, and the number is no descriptor.
        (Broken::Number, RAM + 12, 3),
        (Broken::Outside, RAM + 6, 0x7000),
        (Broken::Indirect, RAM + 12, 4 | 1),
    ];
    for (wanted, at, value) in cases {
        let found = broken(PLAIN, |memory| {
            put(RAM + 14, 9)(memory);
            put(at, value)(memory);
        });
        assert_eq!(found, Err(wanted), "{at:#x}");
    }
    assert_eq!(broken(RingOptions::default(), put(RAM + 12, 4)), Err(Broken::Indirect));
    // A table in the ring itself: its bytes would be read twice, by the descriptor that points to
    // it, the last one, and the available ring.
    for address in [RAM, RAM + 48, RAM + 0x1000 - 8] {
        let table = |memory: &mut Memory| {
            memory.put(RAM, &address.to_le_bytes());
            memory.put(RAM + 8, &16u32.to_le_bytes());
            put(RAM + 12, 4)(memory);
        };
        assert_eq!(broken(PLAIN, table), Err(Broken::Indirect), "{address:#x}");
    }
    // A chain that ends in itself.
    let circle = |memory: &mut Memory| {
        put(RAM + 12, 3)(memory);
        put(RAM + 14, 0)(memory);
    };
    assert_eq!(broken(PLAIN, circle), Err(Broken::Circle));
    // A table of as many as the ring has, behind one that is in the ring.
    let long = |memory: &mut Memory| {
        put(RAM + 12, 2 | 1)(memory);
        put(RAM + 14, 1)(memory);
        memory.put(RAM + 16, &TABLES.to_le_bytes());
        memory.put(RAM + 24, &64u32.to_le_bytes());
        put(RAM + 28, 4)(memory);
        for number in 0..4u16 {
            let at = TABLES + 16 * u64::from(number);
            memory.put(at, &(RAM + 0x8000).to_le_bytes());
            put(at + 12, u16::from(number < 3) | 2)(memory);
            put(at + 14, number + 1)(memory);
        }
    };
    assert_eq!(broken(PLAIN, long), Err(Broken::TooLong));
    // Readable behind writable.
    let order = |memory: &mut Memory| {
        put(RAM + 12, 3)(memory);
        put(RAM + 14, 1)(memory);
        memory.put(RAM + 16, &(RAM + 0x8000).to_le_bytes());
        put(RAM + 16 + 12, 0)(memory);
    };
    assert_eq!(broken(PLAIN, order), Err(Broken::Order));
}

#[test]
fn a_head_that_the_device_has_is_not_taken_twice() {
    let (mut memory, mut driver) = (Memory::new(), Driver::new(4, PLAIN));
    let mut queue = Queue::new(layout(4), PLAIN);
    let head = driver.add(&mut memory, &[(RAM + 0x8000, 8, true)], false).unwrap();
    queue.pop(&mut memory).unwrap();
    memory.put(RAM + 0x1004 + 2, &head.to_le_bytes());
    memory.put(RAM + 0x1002, &2u16.to_le_bytes());
    assert_eq!(queue.pop(&mut memory), Err(Broken::InFlight));
    queue.push(&mut memory, 3, 0).unwrap();
    assert_eq!(memory.u16(RAM + 0x2002), 0, "what the device does not have is not returned");
}

#[test]
fn queue_layouts_are_checked() {
    let memory = Memory::new();
    assert!(layout(MAX_SIZE).is_sound(&memory));
    let end = RAM + LEN as u64;
    let wrong = [
        Layout { size: 0, ..layout(4) },
        Layout { size: 3, ..layout(4) },
        Layout { size: 2 * MAX_SIZE, ..layout(4) },
        Layout { descriptors: RAM + 8, ..layout(4) },
        Layout { available: RAM + 0x1001, ..layout(4) },
        Layout { used: RAM + 0x2002, ..layout(4) },
        Layout { descriptors: end - 48, ..layout(4) },
        Layout { available: end - 12, ..layout(4) },
        Layout { used: end - 36, ..layout(4) },
        Layout { used: u64::MAX - 3, ..layout(4) },
        Layout { available: RAM + 62, ..layout(4) },
        Layout { used: RAM + 60, ..layout(4) },
        Layout { used: RAM + 0x100c, ..layout(4) },
    ];
    for layout in wrong {
        assert!(!layout.is_sound(&memory), "{layout:?}");
    }
}
