use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use weir_units::Nanos;

/// An access to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read(u64),
    Write(u64, u32),
}

use Access::{Read, Write};

/// Records all accesses, and replays the values of registers: in turn, the last one forever, and 0
/// for a register without values. CTRL1 holds the value that was last written to it.
#[derive(Debug, Default)]
struct Recording {
    accesses: Vec<Access>,
    values: BTreeMap<u64, VecDeque<u32>>,
}

impl Recording {
    /// Returns a channel that replays `values`: offsets, and the values read there.
    fn with(values: &[(u64, &[u32])]) -> Self {
        let values = values.iter().map(|(offset, read)| (*offset, read.iter().copied().collect()));
        Self { accesses: Vec::new(), values: values.collect() }
    }
}

impl EngineRegisters for Recording {
    fn read(&mut self, offset: u64) -> u32 {
        self.accesses.push(Read(offset));
        if offset == CTRL1 && !self.values.contains_key(&offset) {
            let written = self.accesses.iter().rev().find_map(|access| match access {
                Write(CTRL1, value) => Some(*value),
                _ => None,
            });
            return written.unwrap_or(0);
        }
        let values = self.values.entry(offset).or_default();
        if values.len() > 1 { values.pop_front() } else { values.front().copied() }.unwrap_or(0)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.accesses.push(Write(offset, value));
    }
}

/// Address at which the engine sees the descriptors.
const AT: Pa = Pa(0x8_7000_1040);

/// The extents of a side.
type Extents = Vec<Extent>;

fn side(extents: &[(u64, u32)]) -> Extents {
    extents.iter().map(|(address, len)| Extent { address: Pa(*address), len: *len }).collect()
}

/// Adds the extents of both sides to `table`.
fn describe(table: &mut Descriptors, from: &Extents, to: &Extents) {
    table.clear();
    for (side, extents) in [(Side::Source, from), (Side::Destination, to)] {
        for extent in extents {
            table.push(side, *extent).expect("few extents");
        }
    }
}

/// Returns a transfer on a channel that is not coherent, with its descriptors at `at`.
fn described(from: &Extents, to: &Extents, at: Pa) -> Descriptors {
    let mut table = Descriptors::new(at, false);
    describe(&mut table, from, to);
    table
}

/// Starts a transfer; returns the result and the descriptors that were published.
fn started(
    channel: &mut Recording,
    table: &mut Descriptors,
) -> (Result<(), RefusedTransfer>, Option<Vec<u32>>) {
    let mut published = None;
    let publish = |table: &Descriptors| published = Some(table.words().to_vec());
    let result = start(channel, table, publish);
    (result, published)
}

#[test]
fn init_masks_stops_and_configures() {
    let mut channel = Recording::default();
    assert_eq!(init(&mut channel, ChannelSettings::DEFAULT), Ok(()));
    let expected = [
        Write(0x10c, 0xfff),
        // The channel is stopped.
        Write(0x200, 0),
        Read(0x11c),
        Write(0x100, 0xfff),
        Write(0x110, 0x80),
        Write(0x114, 0x3ff),
        Read(0x114),
        Write(0x118, 0),
        Write(0x120, 0x0481_1204),
        Write(0x124, 0),
        Read(0x190),
        Read(0x194),
        Write(0x108, 0x7f9),
    ];
    assert_eq!(channel.accesses, expected);
}

#[test]
fn settings_decide_attributes_and_limits() {
    let written = |settings| {
        let mut channel = Recording::default();
        assert_eq!(init(&mut channel, settings), Ok(()));
        let attributes = channel.accesses.into_iter().filter_map(|access| match access {
            Write(offset @ (0x114 | 0x120 | 0x124), value) => Some((offset, value)),
            _ => None,
        });
        attributes.collect::<Vec<_>>()
    };
    let settings = ChannelSettings { is_coherent: true, burst: Burst::One, outstanding: 8 };
    assert_eq!(written(settings), [(0x114, 0x3e8), (0x120, 0x07c0_1f00), (0x124, 0x1f0)]);
    let settings =
        ChannelSettings { burst: Burst::Four, outstanding: 0, ..ChannelSettings::default() };
    assert_eq!(written(settings), [(0x114, 0x3e1), (0x120, 0x0480_9202), (0x124, 0)]);
    let settings =
        ChannelSettings { burst: Burst::Eight, outstanding: 99, ..ChannelSettings::default() };
    assert_eq!(written(settings), [(0x114, 0x3ff), (0x120, 0x0480_d203), (0x124, 0)]);
    let settings =
        ChannelSettings { burst: Burst::Two, outstanding: 31, ..ChannelSettings::default() };
    assert_eq!(written(settings), [(0x114, 0x3ff), (0x120, 0x0480_5201), (0x124, 0)]);
}

#[test]
fn a_burst_has_no_more_beats_than_the_limit() {
    let beats = [0, 1, 2, 3, 4, 7, 8, 15, 16, 255].map(Burst::of);
    let [one, two, four, eight, sixteen] =
        [Burst::One, Burst::Two, Burst::Four, Burst::Eight, Burst::Sixteen];
    assert_eq!(beats, [one, one, two, two, four, four, eight, eight, sixteen, sixteen]);
}

/// A channel that is absent, or has no clock, reads as zeros or ones; its interrupts stay masked.
#[test]
fn init_of_a_silent_channel_fails() {
    for read in [0, u32::MAX] {
        let mut channel = Recording::with(&[(0x114, &[read])]);
        assert_eq!(init(&mut channel, ChannelSettings::DEFAULT), Err(InitError::Silent));
        assert!(!channel.accesses.iter().any(|access| matches!(access, Write(0x108, _))));
    }
    assert_ne!(InitError::Silent.text(), InitError::Busy.text());
}

/// Each page is translated once, adjacent pages make one extent, and all is refused if a page can't
/// be reached.
#[test]
fn translation_goes_page_by_page() {
    let translated = |address, len, translate: &mut dyn FnMut(u64) -> Option<Pa>| {
        let mut table = Descriptors::new(AT, false);
        table.push_translated(Side::Destination, address, len, translate)?;
        Some(extents(&table, Side::Destination))
    };
    let mut asked = Vec::new();
    let side = translated(0x7_1ff0, 0x2020, &mut |address| {
        asked.push(address);
        // The second page follows the first one, the third one is elsewhere.
        let page = if address < 0x7_3000 { 0x8000_0000 } else { 0x9000_0000 };
        Some(Pa(page + (address & 0xf_ffff)))
    });
    assert_eq!(asked, [0x7_1ff0, 0x7_2000, 0x7_3000, 0x7_4000]);
    assert_eq!(side.expect("a side"), [(0x8007_1ff0, 0x1010), (0x9007_3000, 0x1010)]);
    assert_eq!(translated(0, 0, &mut |_| panic!("no byte is asked for")), Some(Vec::new()));
    let unreachable = &mut |address| (address < 0x2000).then_some(Pa(address));
    assert!(translated(0x1800, 0x800, unreachable).is_some());
    assert!(translated(0x1800, 0x801, unreachable).is_none());
    // This range exceeds the last address.
    assert!(translated(u64::MAX - 8, 64, &mut |address| Some(Pa(address & 0xfff))).is_none());
    // A side has at most 17 pages if no two are adjacent.
    let scattered = &mut |address: u64| Some(Pa(address * 2));
    assert!(translated(0x800, LONGEST, scattered).is_some());
    assert!(translated(0x800, LONGEST + 0x1000, scattered).is_none());
}

/// Returns address and length of each extent of a side.
fn extents(table: &Descriptors, side: Side) -> Vec<(u64, u32)> {
    let extent = |words: &[u32; 8]| (u64::from(words[0]) | u64::from(words[1]) << 32, words[2]);
    table.used()[side as usize].iter().map(extent).collect()
}

#[test]
fn init_of_a_channel_that_runs_on_masks_it() {
    let mut channel = Recording::with(&[(0x11c, &[2])]);
    assert_eq!(init(&mut channel, ChannelSettings::DEFAULT), Err(InitError::Busy));
    let mut expected = vec![Write(0x10c, 0xfff), Write(0x200, 0)];
    expected.extend([Read(0x11c); POLLS as usize]);
    assert_eq!(channel.accesses, expected);
}

#[test]
fn one_part_on_each_side_is_simple() {
    let mut channel = Recording::default();
    // Both sides have two adjacent extents.
    let from = side(&[(0x8_1234_5670, 0x100), (0x8_1234_5770, 0x23)]);
    let to = side(&[(0x7fff_0001, 0x120), (0x7fff_0121, 3)]);
    assert_eq!(started(&mut channel, &mut described(&from, &to, AT)), (Ok(()), None));
    let expected = [
        Read(0x11c),
        Write(0x100, 0xfff),
        Write(0x188, 0xffff_ffff),
        Write(0x110, 0x80),
        Write(0x128, 0x1234_5670),
        Write(0x12c, 8),
        Write(0x130, 0x123),
        Write(0x134, 0),
        Write(0x138, 0x7fff_0001),
        Write(0x13c, 0),
        Write(0x140, 0x123),
        Write(0x144, 0),
        Write(0x200, 1),
    ];
    assert_eq!(channel.accesses, expected);
}

#[test]
fn a_coherent_channel_moves_coherently() {
    let one = side(&[(0x1000, 64)]);
    let mut channel = Recording::default();
    let mut table = Descriptors::new(AT, true);
    describe(&mut table, &one, &one);
    assert_eq!(started(&mut channel, &mut table).0, Ok(()));
    assert!(channel.accesses.contains(&Write(0x134, 1)));
    assert!(channel.accesses.contains(&Write(0x144, 1)));
    describe(&mut table, &one, &side(&[(0x1000, 32), (0x2000, 32)]));
    let words = started(&mut channel, &mut table).1.expect("descriptors");
    // Control words of the source's descriptor, and of the destination's two.
    let controls = [3, 17 * 8 + 3, 18 * 8 + 3].map(|word: usize| words[word]);
    assert_eq!(controls, [0x13, 3, 3]);
}

/// Register accesses of a start with descriptors in memory.
const SCATTER_GATHER: [Access; 9] = [
    Read(0x11c),
    Write(0x100, 0xfff),
    Write(0x188, 0xffff_ffff),
    Write(0x110, 0xc0),
    Write(0x158, 0x7000_1040),
    Write(0x15c, 8),
    Write(0x160, 0x7000_1260),
    Write(0x164, 8),
    Write(0x200, 1),
];

#[test]
fn several_parts_on_one_side_are_a_list() {
    let one = side(&[(0x9_0000_1000, 0x30)]);
    let three = side(&[(0x4000, 0x10), (0x2_0000_6000, 0x18), (0x5000, 8)]);
    let mut channel = Recording::default();
    let (result, words) = started(&mut channel, &mut described(&one, &three, AT));
    assert_eq!((result, &channel.accesses[..]), (Ok(()), &SCATTER_GATHER[..]));
    let words = words.expect("descriptors");
    let (source, destination) = words.split_at(17 * 8);
    // The source's only descriptor: linked, stop, without a next one.
    assert_eq!(source[..8], [0x1000, 9, 0x30, 0x12, 0, 0, 0, 0]);
    assert!(source[8..].iter().all(|word| *word == 0));
    let expected = [
        [0x4000, 0, 0x10, 2, 0x7000_1280, 8, 0, 0],
        [0x6000, 2, 0x18, 2, 0x7000_12a0, 8, 0, 0],
        [0x5000, 0, 8, 2, 0, 0, 0, 0],
    ];
    assert_eq!(destination[..24], *expected.as_flattened());
    assert!(destination[24..].iter().all(|word| *word == 0));
}

#[test]
fn several_parts_on_both_sides_are_two_lists() {
    let from = side(&[(0x4000, 0x10), (0x6000, 0x20)]);
    let to = side(&[(0xa000, 0x28), (0x8000, 8)]);
    let mut channel = Recording::default();
    let (result, words) = started(&mut channel, &mut described(&from, &to, AT));
    assert_eq!((result, &channel.accesses[..]), (Ok(()), &SCATTER_GATHER[..]));
    let words = words.expect("descriptors");
    let expected =
        [[0x4000, 0, 0x10, 2, 0x7000_1060, 8, 0, 0], [0x6000, 0, 0x20, 0x12, 0, 0, 0, 0]];
    assert_eq!(words[..16], *expected.as_flattened());
    let expected = [[0xa000, 0, 0x28, 2, 0x7000_1280, 8, 0, 0], [0x8000, 0, 8, 2, 0, 0, 0, 0]];
    assert_eq!(words[17 * 8..19 * 8], *expected.as_flattened());
}

/// The list of an earlier, longer transfer must not continue this one.
#[test]
fn descriptors_of_an_earlier_transfer_are_cut_off() {
    let mut table = Descriptors::new(AT, false);
    let mut moved = |from: &Extents, to: &Extents| {
        describe(&mut table, from, to);
        assert_eq!(start(&mut Recording::default(), &mut table, |_| {}), Ok(()));
        table.words().to_vec()
    };
    let long: Vec<_> = (0..17).map(|page| (page * 0x2000, 0x1000)).collect();
    let long = side(&long[..16]);
    moved(&long, &long);
    let short = side(&[(0x1000, 8), (0x3000, 8)]);
    let words = moved(&short, &short);
    let mut read = Vec::new();
    assert_eq!(walk(&words, AT.0, &mut read), 2);
    assert_eq!(read, [(0x1000, 8), (0x3000, 8)]);
}

#[test]
fn impossible_transfers_touch_nothing() {
    let refused = |from: &Extents, to: &Extents, at: Pa| {
        let mut channel = Recording::default();
        let publish = |_: &Descriptors| panic!("published");
        let result = start(&mut channel, &mut described(from, to, at), publish);
        assert!(channel.accesses.is_empty(), "{:?}", channel.accesses);
        result.expect_err("refused")
    };
    let one = side(&[(0x1000, 0x10)]);
    assert_eq!(refused(&side(&[]), &one, AT), RefusedTransfer::Empty);
    assert_eq!(refused(&one, &side(&[(0x1000, 0)]), AT), RefusedTransfer::Empty);
    let other = side(&[(0x1000, 8), (0x4000, 7)]);
    assert_eq!(refused(&one, &other, AT), RefusedTransfer::Lengths { from: 16, to: 15 });
    let long = side(&[(0x1000, LONGEST), (0x8000_0000, 1)]);
    assert_eq!(refused(&long, &long, AT), RefusedTransfer::TooLong(LONGEST + 1));
    // This is longer than a length can express.
    let longer = side(&[(0, u32::MAX), (1 << 40, 2)]);
    assert_eq!(refused(&longer, &longer, AT), RefusedTransfer::TooLong(u32::MAX));
    for address in [(1 << 44) - 15, 1 << 44, u64::MAX - 3] {
        let extent = Extent { address: Pa(address), len: 16 };
        let high = side(&[(address, 16)]);
        assert_eq!(refused(&high, &one, AT), RefusedTransfer::Beyond(extent));
        assert_eq!(refused(&one, &high, AT), RefusedTransfer::Beyond(extent));
    }
    for at in [Pa(0x1020), Pa(1 << 44), Pa((1 << 44) - 64), Pa(u64::MAX - 63)] {
        assert_eq!(refused(&one, &one, at), RefusedTransfer::Descriptors(at));
    }
}

#[test]
fn the_longest_and_highest_transfers_are_possible() {
    let long = side(&[((1 << 44) - u64::from(LONGEST), LONGEST)]);
    let mut channel = Recording::default();
    let mut table = described(&long, &long, AT);
    let bytes = size_of_val(table.words());
    assert_eq!((bytes, align_of::<Descriptors>()), (1088, 64));
    table.set_address(Pa((1 << 44) - bytes as u64));
    assert_eq!(start(&mut channel, &mut table, |_| {}), Ok(()));
}

#[test]
fn a_busy_channel_is_not_started() {
    let one = side(&[(0x1000, 0x10)]);
    for state in [1, 2, 0xffff_fffe] {
        let mut channel = Recording::with(&[(0x11c, &[state])]);
        assert_eq!(
            started(&mut channel, &mut described(&one, &one, AT)),
            (Err(RefusedTransfer::Busy), None)
        );
        assert_eq!(channel.accesses, [Read(0x11c)]);
    }
    // After an error the channel is free.
    let mut channel = Recording::with(&[(0x11c, &[3])]);
    assert_eq!(started(&mut channel, &mut described(&one, &one, AT)).0, Ok(()));
}

#[test]
fn a_finished_transfer_is_acknowledged() {
    let mut channel = Recording::with(&[(0x100, &[0x406, 0])]);
    assert_eq!(finish(&mut channel), ChannelProgress::Done);
    assert_eq!(channel.accesses, [Read(0x100), Read(0x11c), Write(0x100, 0x406)]);
    // The end is reported once.
    assert_eq!(finish(&mut channel), ChannelProgress::Busy);
}

#[test]
fn a_transfer_that_goes_on_keeps_its_reports() {
    for (reports, state) in [(0, 2), (6, 2), (0x400, 2), (0x400, 1), (0, 0), (0, 3)] {
        let mut channel = Recording::with(&[(0x100, &[reports]), (0x11c, &[state])]);
        assert_eq!(finish(&mut channel), ChannelProgress::Busy, "{reports:#x} {state}");
        assert_eq!(channel.accesses, [Read(0x100), Read(0x11c)]);
    }
}

#[test]
fn each_error_fails_the_transfer() {
    let causes = [
        (9, "AXI error when writing data"),
        (8, "AXI error when reading data"),
        (7, "AXI error when reading a descriptor of the destination"),
        (6, "AXI error when reading a descriptor of the source"),
        (5, "overflow of the count of the destination's descriptors"),
        (4, "overflow of the count of the source's descriptors"),
        (3, "overflow of the count of bytes"),
        (0, "access to a register that does not exist"),
    ];
    for (bit, cause) in causes {
        // This is checked before the channel has recovered from the error, and after that.
        for (reports, state) in [(1 << bit, 2), (1 << bit | 1 << 10, 3)] {
            let mut channel = Recording::with(&[(0x100, &[reports]), (0x11c, &[state])]);
            let ChannelProgress::Failed(failure) = finish(&mut channel) else { panic!("{cause}") };
            assert_eq!(channel.accesses, [Read(0x100), Read(0x11c), Write(0x100, reports)]);
            assert_eq!(failure.bits(), 1 << bit);
            assert_eq!(failure.to_string(), format!("DMA transfer: {cause}"));
        }
    }
    let mut channel = Recording::with(&[(0x100, &[0x700]), (0x11c, &[3])]);
    let ChannelProgress::Failed(failure) = finish(&mut channel) else { panic!("two") };
    let both = "DMA transfer: AXI error when writing data, AXI error when reading data";
    assert_eq!(failure.to_string(), both);
    let mut channel = Recording::with(&[(0x100, &[0x400]), (0x11c, &[3])]);
    let ChannelProgress::Failed(failure) = finish(&mut channel) else { panic!("none") };
    let none = "DMA transfer: an error that the channel does not name";
    assert_eq!((failure.bits(), failure.to_string().as_str()), (0, none));
}

#[test]
fn a_channel_is_stopped_at_once_or_later() {
    for idle in [0, 3] {
        let mut channel = Recording::with(&[(0x11c, &[idle])]);
        assert_eq!(stop(&mut channel), Ok(()));
        assert_eq!(channel.accesses, [Write(0x200, 0), Read(0x11c), Write(0x100, 0xfff)]);
    }
    let mut channel = Recording::with(&[(0x11c, &[2, 2, 2, 0])]);
    assert_eq!(stop(&mut channel), Ok(()));
    let reads = [Read(0x11c); 4];
    assert_eq!(channel.accesses[1..5], reads);
    assert_eq!(channel.accesses[5..], [Write(0x100, 0xfff)]);
}

#[test]
fn a_paused_channel_leaves_the_pause() {
    let mut channel = Recording::with(&[(0x11c, &[1, 0])]);
    assert_eq!(stop(&mut channel), Ok(()));
    let expected =
        [Write(0x200, 0), Read(0x11c), Write(0x110, 0x82), Read(0x11c), Write(0x100, 0xfff)];
    assert_eq!(channel.accesses, expected);
}

#[test]
fn a_channel_that_never_stops_is_given_up() {
    let mut channel = Recording::with(&[(0x11c, &[2])]);
    assert_eq!(stop(&mut channel), Err(Busy));
    let mut expected = vec![Write(0x200, 0)];
    expected.extend([Read(0x11c); POLLS as usize]);
    assert_eq!(channel.accesses, expected);
}

#[test]
fn parts_merge_where_they_meet() {
    let all = [(0x1000, 0x800), (0x1800, 0x800), (0x3000, 8), (0x2000, 8), (0x9000, 0)];
    let table = described(&side(&all), &side(&[]), AT);
    let merged = [(0x1000, 0x1000), (0x3000, 8), (0x2000, 8)];
    assert_eq!(extents(&table, Side::Source), merged);
    assert_eq!([Side::Source, Side::Destination].map(|side| table.len(side)), [0x1010, 0]);
    // Two extents are not merged if the sum does not fit the type, or at the end of the address
    // space.
    for all in [[(0, u32::MAX), (u64::from(u32::MAX), 1)], [(u64::MAX - 7, 8), (0, 8)]] {
        let table = described(&side(&[]), &side(&all), AT);
        assert_eq!(extents(&table, Side::Destination), all);
    }
}

#[test]
fn the_eighteenth_part_is_refused() {
    let pages: Vec<_> = (0..17).map(|page| (page * 0x2000, 0x1000)).collect();
    let mut full = described(&side(&pages), &side(&[]), AT);
    let mut push = |address, len| full.push(Side::Source, Extent { address: Pa(address), len });
    assert_eq!(push(0x8_0000, 1), Err(TooManyExtents));
    // The last extent can still grow at its end.
    assert_eq!(push(16 * 0x2000 + 0x1000, 1), Ok(()));
    assert_eq!(full.used()[0].len(), 17);
    assert_eq!(full.len(Side::Source), 17 * 0x1000 + 1);
}

#[test]
fn messages_name_the_object_and_the_limit() {
    let extent = Extent { address: Pa(1 << 44), len: 8 };
    let messages = [
        (RefusedTransfer::Empty.to_string(), "DMA transfer: a side has no bytes"),
        (
            RefusedTransfer::Lengths { from: 8, to: 4 }.to_string(),
            "DMA transfer: the source has 8 bytes, the destination 4; make them equal",
        ),
        (
            RefusedTransfer::TooLong(70_000).to_string(),
            "DMA transfer: 70000 bytes are more than 65536; split the transfer",
        ),
        (
            RefusedTransfer::Beyond(extent).to_string(),
            "DMA transfer: 8 bytes at 0x100000000000 end above 44 address bits",
        ),
        (
            RefusedTransfer::Descriptors(Pa(0x20)).to_string(),
            "DMA descriptors: address 0x20 is not a multiple of 64 below 2^44",
        ),
        (
            RefusedTransfer::Busy.to_string(),
            "DMA channel: it is busy; finish or stop its transfer first",
        ),
        (
            Busy.to_string(),
            "the DMA channel is still busy after 256 reads of its state; stop it again",
        ),
        (
            TooManyExtents.to_string(),
            "DMA transfer: a side has more than 17 extents; split the transfer",
        ),
    ];
    for (message, expected) in messages {
        assert_eq!(message, expected);
    }
}

/// Reads the list that starts at address `at` as the engine does, from the table that lies at
/// [`AT`]. Appends address and length of each descriptor to `found`, and returns the number of
/// descriptors. The source's list ends by its command; a list without the command ends after a link
/// to 0.
fn walk(words: &[u32], mut at: u64, found: &mut Vec<(u64, u32)>) -> usize {
    let memory: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for count in 1.. {
        // The hardware requires a linked descriptor to be aligned to its size.
        assert_eq!(at % 32, 0, "{at:#x}");
        let offset = usize::try_from(at.checked_sub(AT.0).expect("above the start")).expect("near");
        let bytes: &[u8; 32] = memory[offset..offset + 32].try_into().expect("in the table");
        let bits = u128::from_le_bytes(bytes[..16].try_into().expect("half"));
        let control = (bits >> 96) as u32;
        assert_eq!(control & !0x10, 2, "linked, no interrupt, not coherent");
        // The address has 44 bits, and the rest of its two words is reserved. The size has 30 bits.
        assert_eq!((bits >> 44) & 0xf_ffff, 0);
        let size = (bits >> 64) as u32;
        assert!(size > 0 && size < 1 << 30);
        found.push((bits as u64, size));
        assert!(count <= 17, "a loop");
        let next = u64::from_le_bytes(bytes[16..24].try_into().expect("a link"));
        if control & 0x10 != 0 || next == 0 {
            return count;
        }
        at = next;
    }
    unreachable!("it returns")
}

/// Merges adjacent extents.
fn joined(ranges: &[(u64, u32)]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (address, len) in ranges {
        match all.last_mut() {
            Some((start, end)) if *start + *end == *address => *end += u64::from(*len),
            _ => all.push((*address, u64::from(*len))),
        }
    }
    all
}

/// Returns extents of one side with `total` bytes: cut anywhere, and each at an address of its own
/// or adjacent to the one before it.
fn anywhere(total: u32) -> impl Strategy<Value = Vec<(u64, u32)>> {
    let cuts = prop::collection::btree_set(0..=total, 0..16);
    let places = prop::collection::vec((0u64..1 << 43, any::<bool>()), 17);
    (cuts, places).prop_map(move |(mut cuts, places)| {
        cuts.extend([0, total]);
        let cuts: Vec<_> = cuts.into_iter().collect();
        let mut behind = 0;
        let extent = |(cut, (place, follows)): (&[u32], (u64, bool))| {
            let len = cut[1] - cut[0];
            let address = if follows { behind } else { place };
            behind = address + u64::from(len);
            (address, len)
        };
        cuts.windows(2).zip(places).map(extent).collect()
    })
}

proptest! {
    #[test]
    fn descriptors_are_the_bytes_in_order(
        (from, to) in (1..=LONGEST).prop_flat_map(|total| (anywhere(total), anywhere(total))),
    ) {
        let mut channel = Recording::default();
        let (result, words) = started(&mut channel, &mut described(&side(&from), &side(&to), AT));
        prop_assert_eq!(result, Ok(()));
        let value = |offset| {
            let written = channel.accesses.iter().rev().find_map(|access| match access {
                Write(at, value) if *at == offset => Some(u64::from(*value)),
                _ => None,
            });
            written.expect("written")
        };
        let mut found = [Vec::new(), Vec::new()];
        if let Some(words) = words {
            prop_assert_eq!(value(0x110), 0xc0);
            for (found, base) in found.iter_mut().zip([0x158, 0x160]) {
                walk(&words, value(base) | value(base + 4) << 32, found);
            }
            // Only the source's last descriptor has the command to stop.
            let stops: Vec<_> = words.chunks(8).map(|words| words[3] & 0x18).collect();
            prop_assert_eq!(stops.iter().filter(|stop| **stop != 0).count(), 1);
            prop_assert_eq!(stops[found[0].len() - 1], 0x10);
        } else {
            prop_assert_eq!(value(0x110), 0x80);
            for (found, base) in found.iter_mut().zip([0x128, 0x138]) {
                let address = value(base) | value(base + 4) << 32;
                found.push((address, value(base + 8) as u32));
            }
        }
        for (found, given) in found.iter().zip([&from, &to]) {
            prop_assert_eq!(joined(found), joined(given));
        }
        let [read, written] = found.map(|side| side.iter().map(|(_, len)| len).sum::<u32>());
        prop_assert_eq!(read, written);
        // The enable is last, after everything that it depends on.
        prop_assert_eq!(channel.accesses.last(), Some(&Write(0x200, 1)));
    }
}

/// Checks the order of `publish` and the enable, which a recording of registers does not show.
#[test]
fn descriptors_are_visible_before_the_enable() {
    use std::{cell::RefCell, rc::Rc};
    struct Shared(Rc<RefCell<Vec<&'static str>>>);
    impl EngineRegisters for Shared {
        fn read(&mut self, _: u64) -> u32 {
            0
        }
        fn write(&mut self, offset: u64, _: u32) {
            if offset == 0x200 {
                self.0.borrow_mut().push("enable");
            }
        }
    }
    let events = Rc::new(RefCell::new(Vec::new()));
    let publish = |table: &Descriptors| {
        assert_eq!(table.words()[..4], [0x1000, 0, 16, 0x12]);
        events.borrow_mut().push("publish");
    };
    let (one, two) = (side(&[(0x1000, 16)]), side(&[(0x1000, 8), (0x2000, 8)]));
    let mut channel = Shared(Rc::clone(&events));
    assert_eq!(start(&mut channel, &mut described(&one, &two, AT), publish), Ok(()));
    assert_eq!(*events.borrow(), ["publish", "enable"]);
}

/// STATUS of a busy channel, of one that has ended by itself, and of one with an error.
const STATES: [u32; 3] = [1, STATE_DONE, STATE_ERROR];

#[test]
fn a_transfer_ends_once() {
    let [busy, done, error] = STATES;
    let mut transfer = Transfer::none(Nanos(100));
    assert_eq!(transfer.finish(&mut Recording::default(), true, Nanos(0)), None, "none was begun");
    transfer.begin(Nanos(1000));
    let mut channel = Recording::with(&[(ISR, &[0]), (STATUS, &[busy])]);
    assert_eq!(transfer.finish(&mut channel, false, Nanos(1200)), Some(Outcome::Busy));
    let mut channel = Recording::with(&[(ISR, &[DMA_DONE]), (STATUS, &[done])]);
    assert_eq!(transfer.finish(&mut channel, false, Nanos(1200)), Some(Outcome::Done));
    assert_eq!(transfer.finish(&mut channel, false, Nanos(1200)), None);
    transfer.begin(Nanos(2000));
    let mut channel = Recording::with(&[(ISR, &[1 << 9]), (STATUS, &[error])]);
    assert_eq!(transfer.finish(&mut channel, false, Nanos(2001)), Some(Outcome::Failed(1 << 9)));
    assert!(!transfer.is_busy());
}

/// A caller that never gives up gets an end, too.
#[test]
fn a_transfer_that_does_not_stop_is_stuck() {
    let [busy, done, _] = STATES;
    let mut transfer = Transfer::none(Nanos(100));
    transfer.begin(Nanos(1000));
    let mut hangs = Recording::with(&[(ISR, &[0]), (STATUS, &[busy])]);
    assert_eq!(transfer.finish(&mut hangs, true, Nanos(1100)), Some(Outcome::Busy));
    assert_eq!(transfer.finish(&mut hangs, true, Nanos(1200)), Some(Outcome::Busy));
    for gives_up in [false, true] {
        assert_eq!(transfer.finish(&mut hangs, gives_up, Nanos(1201)), Some(Outcome::Stuck));
    }
    assert!(transfer.is_busy(), "no other transfer starts");
    // The transfer ends, though late.
    let mut late = Recording::with(&[(ISR, &[0]), (STATUS, &[busy, done])]);
    assert_eq!(transfer.finish(&mut late, false, Nanos(1201)), Some(Outcome::Failed(0)));
}

/// The channel may report an end without an error after all; the transfer has failed all the same.
#[test]
fn a_transfer_that_is_being_stopped_has_failed() {
    let [busy, done, _] = STATES;
    for (reported, gives_up) in [(0, true), (1 << 9, false)] {
        let mut transfer = Transfer::none(Nanos(100));
        transfer.begin(Nanos(1000));
        let mut hangs = Recording::with(&[(ISR, &[reported]), (STATUS, &[busy])]);
        assert_eq!(transfer.finish(&mut hangs, gives_up, Nanos(1050)), Some(Outcome::Busy));
        let mut ends = Recording::with(&[(ISR, &[DMA_DONE]), (STATUS, &[done])]);
        let outcome = transfer.finish(&mut ends, false, Nanos(1060));
        assert_eq!(outcome, Some(Outcome::Failed(reported)));
        transfer.begin(Nanos(2000));
        let outcome = transfer.finish(&mut ends, false, Nanos(2001));
        assert_eq!(outcome, Some(Outcome::Done), "the next one is another");
    }
}

#[test]
fn what_runs_is_stopped_before_its_memory_is_reused() {
    let [busy, done, _] = STATES;
    let mut transfer = Transfer::none(Nanos(100));
    let mut idle = Recording::default();
    assert_eq!(transfer.close(&mut idle, Nanos(0), Nanos(0)), Outcome::Done);
    assert!(idle.accesses.is_empty(), "nothing was started");
    transfer.begin(Nanos(1000));
    let mut hangs = Recording::with(&[(STATUS, &[busy])]);
    assert_eq!(transfer.close(&mut hangs, Nanos(5000), Nanos(5100)), Outcome::Busy);
    assert_eq!(transfer.close(&mut hangs, Nanos(5000), Nanos(5101)), Outcome::Stuck);
    let mut ends = Recording::with(&[(STATUS, &[done])]);
    assert_eq!(transfer.close(&mut ends, Nanos(5000), Nanos(5101)), Outcome::Failed(0));
    assert!(!transfer.is_busy());
}
