//! Tests with a fake function that records the accesses that reach it.

use super::*;
use proptest::prelude::*;

/// A configuration space with a mask of its writable bits.
#[derive(Clone, Debug)]
struct Board {
    words: [u32; 64],
    writable: [u32; 64],
    /// Offset of the window capability to a virtio device.
    window: u16,
    features: [u32; 2],
    status: u8,
    /// Number of reads of the status before it falls to 0.
    slow: u32,
    /// All writes except those of the window.
    writes: Vec<(u16, u32)>,
    reads: usize,
}

impl Config for Board {
    fn read(&mut self, offset: u16) -> u32 {
        assert!(offset < 0x100 && offset.is_multiple_of(4), "{offset:#x}");
        self.reads += 1;
        if self.window != 0 && offset == self.window + 16 {
            return match self.field() {
                4 => self.features[usize::from(self.words[0x3f] == 1)],
                0x14 => {
                    if self.status != 0 && self.slow == 0 {
                        self.status = 0;
                    }
                    self.slow = self.slow.saturating_sub(1);
                    self.status.into()
                }
                field => panic!("read of {field:#x}"),
            };
        }
        self.words[usize::from(offset / 4)]
    }

    fn write(&mut self, offset: u16, value: u32) {
        assert!(offset < 0x100 && offset.is_multiple_of(4), "{offset:#x}");
        if self.window != 0 && offset == self.window + 16 {
            match self.field() {
                0 => self.words[0x3f] = value,
                0x14 => assert_eq!(value & 0xff, 0),
                field => panic!("write of {field:#x}"),
            }
            return;
        }
        self.writes.push((offset, value));
        let (word, mask) = (usize::from(offset / 4), self.writable[usize::from(offset / 4)]);
        self.words[word] = self.words[word] & !mask | value & mask;
    }
}

const WINDOW_AT: u16 = 0x84;
const COMMON_AT: u32 = 0x2000;

impl Board {
    fn field(&self) -> u32 {
        let word = |offset: u16| self.words[usize::from((self.window + offset) / 4)];
        assert_eq!(word(4), 4, "the bar of the common configuration");
        assert_eq!(word(12), if word(8) - COMMON_AT == 0x14 { 1 } else { 4 });
        word(8) - COMMON_AT
    }

    fn set(&mut self, offset: u16, value: u32, writable: u32) {
        self.words[usize::from(offset / 4)] = value;
        self.writable[usize::from(offset / 4)] = writable;
    }

    /// Returns a function with vendor and device, class, and an empty list of capabilities.
    fn new(id: u32) -> Self {
        let mut board = Self {
            words: [0; 64],
            writable: [0; 64],
            window: 0,
            features: [0x1000_0000, 0b10],
            status: 0xf,
            slow: 0,
            writes: Vec::new(),
            reads: 0,
        };
        board.set(0, id, 0);
        board.set(COMMAND, 0xffff_0547, 0xffff);
        board.set(REVISION, 0x0100_0001, 0);
        board.set(HEADER, 0x8080_0010, 0xffff);
        board.set(SUBSYSTEM, 0x1100_1af4, 0);
        board.set(0x30, 0, 0xffff_f801);
        board.set(CAPABILITIES, 0x40, 0);
        board.set(INTERRUPT, 0x0000_0100, 0xff);
        board.set(0x40, 0, 0);
        board
    }

    /// Returns a function like QEMU's virtio-blk-pci on its root bus: two base addresses, MSI-X,
    /// five vendor-specific capabilities.
    fn virtio() -> Self {
        let mut board = Self::new(0x1042_1af4);
        board.set(0x14, 0, 0xffff_f000);
        board.set(0x20, 0b1100, 0xffff_c000);
        board.set(0x24, 0, 0xffff_ffff);
        board.set(CAPABILITIES, 0x98, 0);
        // MSI-X, enabled.
        board.set(0x98, 0x8001_8411, 0xc000_0000);
        board.set(0x9c, 1, 0);
        // The window.
        board.set(0x84, 0x0514_7009, 0);
        for offset in [0x88, 0x8c, 0x90, 0x94] {
            board.set(offset, 0, u32::MAX);
        }
        board.window = WINDOW_AT;
        board.set(0x70, 0x0214_6009, 0);
        board.set(0x74, 4, 0);
        // The common configuration.
        board.set(0x60, 0x0110_4009, 0);
        board.set(0x64, 4, 0);
        board.set(0x68, COMMON_AT, 0);
        board.set(0x6c, 0x1000, 0);
        board.set(0x40, 0x0310_0009, 0);
        board
    }
}

fn probe(board: &mut Board) -> PassedFunction {
    let mut function = PassedFunction::probe(board, false).unwrap();
    function.place(0x1000_0000, 0x20_0000).unwrap();
    function.assign(board);
    board.writes.clear();
    function
}

#[test]
fn a_probe_leaves_the_function_quiet() {
    let mut board = Board::virtio();
    let mut function = PassedFunction::probe(&mut board, false).unwrap();
    assert_eq!(board.words[1] & 0xffff, INTX_OFF);
    assert_eq!(board.words[0x98 / 4] >> 31, 0, "MSI-X is off");
    function.place(0x1000_0000, 0x20_0000).unwrap();
    function.assign(&mut board);
    // The larger region is placed first.
    assert_eq!((board.words[0x20 / 4], board.words[0x24 / 4]), (0x1000_000c, 0));
    assert_eq!(board.words[0x14 / 4], 0x1000_4000);
    let regions: Vec<_> = function.regions().collect();
    assert_eq!(regions, [(0x1000_4000, 0x1000), (0x1000_0000, 0x4000)]);
}

#[test]
fn what_can_t_be_passed_through_is_refused() {
    let refused = |board: &mut Board| PassedFunction::probe(board, false).unwrap_err();
    assert_eq!(refused(&mut Board::new(0xffff_ffff)), Obstacle::Absent);
    assert_eq!(refused(&mut Board::new(0)), Obstacle::Absent);
    let mut bridge = Board::new(0x0008_1b36);
    bridge.set(REVISION, 0x0600_0000, 0);
    assert_eq!(refused(&mut bridge), Obstacle::Bridge);
    assert_eq!(bridge.words[1] & 0xffff, INTX_OFF, "nothing behind it moves either");
    let mut bridge = Board::new(0x0008_1b36);
    bridge.set(HEADER, 0x0001_0000, 0);
    assert_eq!(refused(&mut bridge), Obstacle::Bridge);
    let mut pin = Board::virtio();
    pin.set(INTERRUPT, 0x200, 0);
    assert_eq!(refused(&mut pin), Obstacle::Pin);
    let mut kind = Board::virtio();
    kind.set(0x10, 0b010, 0xffff_f000);
    assert_eq!(refused(&mut kind), Obstacle::BaseAddress);
    let mut last = Board::virtio();
    last.set(0x20, 0, 0);
    last.set(0x24, 0b100, 0xffff_f000);
    assert_eq!(refused(&mut last), Obstacle::BaseAddress, "no place for an upper half");
    let mut past = Board::virtio();
    past.features[1] = 0b01;
    assert_eq!(refused(&mut past), Obstacle::PastSmmu);
    let mut legacy = Board::virtio();
    legacy.set(COMMAND, 0, 0xffff);
    assert_eq!(refused(&mut legacy), Obstacle::PastSmmu, "without capabilities it is of old");
    let mut old = Board::virtio();
    old.set(0, 0x1001_1af4, 0);
    PassedFunction::probe(&mut old, false).unwrap();
    // Another vendor's device has no such feature and needs none.
    let mut other = Board::new(0x1042_8086);
    other.features[1] = 0;
    PassedFunction::probe(&mut other, false).unwrap();
}

#[test]
fn base_addresses_that_do_not_fit_are_refused() {
    let mut board = Board::virtio();
    let mut function = PassedFunction::probe(&mut board, false).unwrap();
    assert_eq!(function.place(0x1000_0000, 0x4000), Err(NoRoom { needed: 0x5000 }));
    assert_eq!(function.place(0xffff_c000, 0x20_0000), Err(NoRoom { needed: 0x5000 }));
    assert_eq!(function.place(0x1000_0000, 0x5000), Ok(()));
    // Alignment may need more room than the sum of the sizes.
    assert_eq!(function.place(0x1000_1000, 0x5000), Err(NoRoom { needed: 0x5000 }));
    let mut wide = Board::virtio();
    wide.set(0x20, 0b1100, 0);
    wide.set(0x24, 0, 0xffff_fff0);
    let mut function = PassedFunction::probe(&mut wide, false).unwrap();
    assert_eq!(function.place(0x1000_0000, 0x20_0000), Err(NoRoom { needed: 0x10_0000_1000 }));
}

#[test]
fn the_guest_sees_what_it_may() {
    let mut board = Board::virtio();
    let function = probe(&mut board);
    let mut read = |offset: u16, size: u8| function.read(&mut board, offset, size);
    assert_eq!(read(0, 4), 0x1042_1af4);
    assert_eq!((read(0, 2), read(2, 2)), (0x1af4, 0x1042));
    assert_eq!(read(4, 2), 0x400);
    assert_eq!(read(6, 2), 0xffff);
    assert_eq!((read(0xb, 1), read(0x2c, 4)), (0x01, 0x1100_1af4));
    assert_eq!(read(0xc, 4), 0x0000_0010, "one function, no self-test");
    assert_eq!(read(0x3d, 1), 1);
    assert_eq!((read(0x30, 4), read(0x28, 4)), (0, 0), "no expansion ROM, no CardBus");
    assert_eq!(read(0x100, 4), 0, "no extended capabilities");
    let mut list = Vec::new();
    let mut at = read(0x34, 1) as u16;
    while at != 0 {
        assert_eq!(read(at, 1), 0x09);
        list.push(at);
        at = read(at + 1, 1) as u16;
    }
    assert_eq!(list, [0x70, 0x60, 0x40], "neither MSI-X nor the window");
    assert_eq!(read(0x68, 4), COMMON_AT.into());
    for hidden in [0x98, 0x9c, 0x84, 0x88, 0x94, 0xfc] {
        assert_eq!(read(hidden, 4), 0, "{hidden:#x}");
    }
    for (offset, size) in [(0, 8), (2, 4), (1, 2), (0x1000, 4), (0, 3), (0, 0)] {
        assert_eq!(read(offset, size), u64::MAX);
    }
    let mut alone = Board::virtio();
    let siblings = PassedFunction::probe(&mut alone, true).unwrap();
    assert_eq!(siblings.read(&mut alone, 0xe, 1), 0x80);
    let mut bare = Board::new(0x1042_8086);
    bare.set(COMMAND, 0, 0xffff);
    let bare_function = PassedFunction::probe(&mut bare, false).unwrap();
    assert_eq!(
        (bare_function.read(&mut bare, 6, 2), bare_function.read(&mut bare, 0x34, 1)),
        (0, 0)
    );
}

#[test]
fn three_bits_of_the_command_are_the_guests() {
    let mut board = Board::virtio();
    let mut function = probe(&mut board);
    function.write(&mut board, 4, 2, 0xffff);
    assert_eq!(board.writes, [(4, 0x406)]);
    assert_eq!(function.read(&mut board, 4, 2), 0x406);
    function.write(&mut board, 4, 1, 0);
    assert_eq!(board.writes.last(), Some(&(4, 0x400)));
    function.write(&mut board, 5, 1, 0);
    assert_eq!(board.writes.last(), Some(&(4, 0)));
    board.writes.clear();
    function.write(&mut board, 6, 2, 0xffff);
    assert!(board.writes.is_empty(), "status");
    function.write(&mut board, 4, 4, 0xffff_0002);
    assert_eq!(board.writes, [(4, 2)]);
}

#[test]
fn base_addresses_can_be_sized_and_stay() {
    let mut board = Board::virtio();
    let mut function = probe(&mut board);
    for (offset, size, address) in
        [(0x14, 0xffff_f000, 0x1000_4000), (0x20, 0xffff_c00c, 0x1000_000c), (0x24, 0xffff_ffff, 0)]
    {
        assert_eq!(function.read(&mut board, offset, 4), address);
        function.write(&mut board, offset, 4, 0xffff_ffff);
        assert_eq!(function.read(&mut board, offset, 4), size);
        function.write(&mut board, offset, 4, 0x2000_0000);
        assert_eq!(function.read(&mut board, offset, 4), address);
        function.write(&mut board, offset, 4, 0xffff_fff0);
        function.write(&mut board, offset, 2, 0);
        let sized = function.read(&mut board, offset, 4);
        assert_eq!(sized == size, offset != 0x24, "half a register is ignored");
        function.reset(&mut board);
        assert_eq!(function.read(&mut board, offset, 4), address);
    }
    function.write(&mut board, 0x10, 4, 0xffff_ffff);
    assert_eq!(function.read(&mut board, 0x10, 4), 0, "there is none");
    assert!(board.writes.iter().all(|(offset, _)| !(0x10..0x28).contains(offset)));
}

#[test]
fn the_interrupt_line_is_a_note_for_the_guest() {
    let mut board = Board::virtio();
    let mut function = probe(&mut board);
    function.write(&mut board, 0x3c, 1, 0x23);
    assert_eq!(function.read(&mut board, 0x3c, 2), 0x0123);
    function.write(&mut board, 0x3d, 1, 0x4);
    assert_eq!(function.read(&mut board, 0x3c, 2), 0x0123);
    assert!(board.writes.is_empty());
    function.reset(&mut board);
    assert_eq!(function.read(&mut board, 0x3c, 1), 0);
}

#[test]
fn a_function_is_reset_as_it_can_be() {
    let mut board = Board::virtio();
    let mut function = probe(&mut board);
    board.slow = 2;
    board.words[1] = 6;
    assert_eq!(function.reset(&mut board), Reset::Virtio);
    assert_eq!(board.words[1], INTX_OFF, "quiet before it is reset");
    assert_eq!([(); 3].map(|()| function.is_reset(&mut board)), [false, false, true]);

    let mut plain = Board::new(0x1234_8086);
    let mut function = probe(&mut plain);
    assert_eq!(function.reset(&mut plain), Reset::None);
    assert!(function.is_reset(&mut plain));

    // A PCI Express capability, with and without function-level reset.
    for able in [true, false] {
        let mut express = Board::new(0x1234_8086);
        express.set(0x40, 0x0002_0010, 0);
        express.set(0x44, u32::from(able) << 28, 0);
        express.set(0x48, 0x000f_2810, 0xffff);
        let mut function = probe(&mut express);
        assert_eq!(function.read(&mut express, 0x34, 1), 0, "not shown");
        let reset = function.reset(&mut express);
        assert_eq!(reset, if able { Reset::FunctionLevel } else { Reset::None });
        let asked = express.writes.contains(&(0x48, 0xa810));
        assert_eq!(asked, able, "errors in the upper half stay: {:x?}", express.writes);
    }
}

#[test]
fn the_power_is_turned_on_and_msi_off() {
    let mut board = Board::new(0x1234_8086);
    board.set(0x40, 0x0003_5001, 0);
    board.set(0x44, 0x8103, 0xffff);
    board.set(0x50, 0x0081_0005, 0xffff_0000);
    let function = probe(&mut board);
    assert_eq!(board.words[0x44 / 4], 0x100, "D0; the status bit is not cleared");
    assert_eq!(board.words[0x50 / 4], 0x0080_0005);
    assert_eq!(function.read(&mut board, 6, 2) & 0x10, 0, "no capability is left");
}

fn any_board() -> impl Strategy<Value = Board> {
    (prop::array::uniform32(any::<[u32; 2]>()), any::<[u32; 6]>(), any::<bool>()).prop_map(
        |(words, writable, own)| {
            let mut board = Board::new(0x1042_1af4);
            for (offset, word) in (0..).step_by(4).zip(words.iter().flatten()).skip(4) {
                board.set(offset, *word, u32::MAX);
            }
            for (offset, mask) in (0x10..).step_by(4).zip(writable) {
                board.set(offset, mask & 0xf, !0 << (mask & 31) & !0xf);
            }
            board.set(INTERRUPT, 0x100, 0);
            if own {
                board.set(0, 0x1234_5678, 0);
            }
            board
        },
    )
}

proptest! {
    /// Any configuration of a function is probed with a bounded number of accesses, and its base
    /// addresses are inside their range and do not overlap.
    #[test]
    fn any_function_is_probed_in_bounded_time(mut board in any_board()) {
        let probed = PassedFunction::probe(&mut board, false);
        prop_assert!(board.reads < 400, "{} reads", board.reads);
        let Ok(mut function) = probed else { return Ok(()) };
        let (base, len) = (0x1000_0000, 0x100_0000);
        if function.place(base, len).is_ok() {
            let mut regions: Vec<_> = function.regions().collect();
            regions.sort_unstable();
            let mut end = base;
            for (start, size) in regions {
                prop_assert!(start >= end && start % 4096 == 0 && size % 4096 == 0);
                end = start + size;
            }
            prop_assert!(end <= base + len);
        }
        // The list of capabilities as the guest sees it ends, and contains only those that are
        // shown.
        let mut at = function.read(&mut board, 0x34, 1) as u16;
        for _ in 0..48 {
            if at == 0 {
                break;
            }
            prop_assert_eq!(function.read(&mut board, at, 1), 0x09);
            at = function.read(&mut board, at + 1, 1) as u16;
        }
    }

    /// No sequence of accesses changes anything in the function except three bits of its command
    /// register.
    #[test]
    fn a_guest_changes_its_command_only(
        accesses in prop::collection::vec((0_u16..0x1100, 0_u8..10, any::<u64>()), 1..60),
        virtio: bool,
    ) {
        let mut board = if virtio { Board::virtio() } else { Board::new(0x1234_8086) };
        let mut function = probe(&mut board);
        let before = (function.regions().collect::<Vec<_>>(), board.words);
        for (offset, size, value) in accesses {
            function.write(&mut board, offset, size, value);
            function.read(&mut board, offset, size);
        }
        let wild = board.writes.iter().find(|(at, value)| *at != 4 || value & !COMMAND_BITS != 0);
        prop_assert_eq!(wild, None);
        prop_assert_eq!(function.regions().collect::<Vec<_>>(), before.0);
        board.words[1] = before.1[1];
        prop_assert_eq!(board.words, before.1);
    }
}

#[test]
fn a_reset_has_its_time_without_anybody_who_waits() {
    let begun = Release::new(1000, true);
    let end = 1000 + Reset::FLR_NS;
    // A function-level reset needs the whole time, regardless of the registers meanwhile.
    assert_eq!(begun.due(1000, || true), Some(end));
    assert_eq!(begun.due(end - 1, || true), Some(end));
    assert_eq!(begun.due(end, || false), None);
    // A virtio device is polled, at most for the same time.
    let begun = Release::new(1000, false);
    assert_eq!(begun.due(1000, || true), None);
    assert_eq!(begun.due(1000, || false), Some(1000 + Release::POLL_NS));
    assert_eq!(begun.due(end - 5, || false), Some(end));
    assert_eq!(begun.due(end, || false), None);
    // The time does not overflow at the end of time.
    assert_eq!(Release::new(u64::MAX, true).due(u64::MAX, || false), None);
}
