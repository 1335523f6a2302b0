//! The structures that an SMMUv3 reads from memory and writes there (IHI 0070, chapters 4, 5 and
//! 7), as values: stream table entries, context descriptors, commands and event records. Input
//! addresses have 39 bits, and tables have the 4 KiB granule.

/// Limit of the addresses that a device can use: the tables begin at level 1 with one root.
pub const INPUT_LIMIT: u64 = 1 << 39;

/// T0SZ for 39 bits.
const T0SZ: u64 = 64 - 39;
/// Attributes of table walks: write-back, read- and write-allocate (IR0/OR0, S2IR0/S2OR0).
const WRITE_BACK: u64 = 0b01;
const INNER_SHAREABLE: u64 = 0b11;
/// 40 bits of physical address (IPS, S2PS).
const SIZE_40: u64 = 0b010;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The format of the tables by which the SMMU translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmmuFormat {
    /// Stage 1 tables of EL1, for an SMMU without stage 2.
    Stage1,
    /// Stage 2 tables.
    Stage2,
}

/// A stream table entry (5.2), or a context descriptor (5.4).
pub type SmmuEntry = [u64; 8];

const VALID: u64 = 1;
const TRANSLATE_STAGE1: u64 = 0b101 << 1;
const TRANSLATE_STAGE2: u64 = 0b110 << 1;

/// Entry of a stream whose accesses are all aborted silently (Config = 0b000).
pub const ABORT: SmmuEntry = [VALID, 0, 0, 0, 0, 0, 0, 0];

/// Returns the entry of a stream that is translated by the context descriptor at physical address
/// `context`.
#[must_use]
pub const fn stage1(context: u64) -> SmmuEntry {
    // Walks of the descriptor are write-back and inner shareable; equal events are merged (MEV).
    let walks = WRITE_BACK << 2 | WRITE_BACK << 4 | INNER_SHAREABLE << 6 | MERGE_EVENTS;
    [VALID | TRANSLATE_STAGE1 | context & ADDRESS_64, walks, 0, 0, 0, 0, 0, 0]
}

/// MEV: equal events are merged.
const MERGE_EVENTS: u64 = 1 << 19;
/// Mask of a context descriptor's address, which is 64-byte aligned.
const ADDRESS_64: u64 = 0x000f_ffff_ffff_ffc0;

/// Returns the entry of a stream that is translated by the stage 2 tables at `root`, of VM `vmid`.
/// With `record` set, refused accesses are written to the event queue.
#[must_use]
pub const fn stage2(root: u64, vmid: u16, record: bool) -> SmmuEntry {
    let control = vmid as u64
        | T0SZ << 32
        // S2SL0: the walk begins at level 1.
        | 1 << 38
        | WRITE_BACK << 40
        | WRITE_BACK << 42
        | INNER_SHAREABLE << 44
        | SIZE_40 << 48
        // S2AA64.
        | 1 << 51
        // S2R.
        | (record as u64) << 58;
    [VALID | TRANSLATE_STAGE2, MERGE_EVENTS, control, root & ADDRESS, 0, 0, 0, 0]
}

/// Returns the context descriptor for stage 1 tables at `root`, with an ASID and the meaning of the
/// attribute indexes (MAIR). With `record` set, refused accesses are written to the event queue.
#[must_use]
pub const fn context(root: u64, asid: u16, mair: u64, record: bool) -> SmmuEntry {
    let control = T0SZ
        | WRITE_BACK << 8
        | WRITE_BACK << 10
        | INNER_SHAREABLE << 12
        // EPD1: there are no tables for the upper half.
        | 1 << 30
        // V.
        | 1 << 31
        | SIZE_40 << 32
        // AA64.
        | 1 << 41
        // R, and A: refused accesses are aborted.
        | (record as u64) << 45
        | 1 << 46
        // ASET: broadcasts of cores do not affect this context.
        | 1 << 47
        | (asid as u64) << 48;
    [control, root & ADDRESS, 0, mair, 0, 0, 0, 0]
}

/// Returns a first-level descriptor of the stream table: 64 entries at physical address `entries`
/// (5.1).
#[must_use]
pub const fn level1(entries: u64) -> u64 {
    // Span: 2^(7 - 1) entries.
    7 | entries & ADDRESS
}

/// A command (4.1).
pub type SmmuCommand = [u64; 2];

/// Invalidates all configuration that the SMMU has cached.
pub const FORGET_CONFIGURATION: SmmuCommand = [0x04, 31];
/// Invalidates all translations of EL1's regimes, of both stages.
pub const FORGET_TRANSLATIONS: SmmuCommand = [0x30, 0];
/// Completes all earlier commands; the consumer index shows the completion.
pub const SYNC: SmmuCommand = [0x46, 0];

/// Invalidates the cached entry and context of stream `stream`.
#[must_use]
pub const fn forget_stream(stream: u32) -> SmmuCommand {
    // Leaf.
    [0x03 | (stream as u64) << 32, 1]
}

/// Invalidates the translations of VM `id`, which is its VMID or ASID.
#[must_use]
pub const fn forget_domain(format: SmmuFormat, id: u16) -> SmmuCommand {
    match format {
        SmmuFormat::Stage1 => [0x11 | (id as u64) << 48, 0],
        SmmuFormat::Stage2 => [0x28 | (id as u64) << 32, 0],
    }
}

/// A record of the event queue (7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmmuFault {
    /// Event number; [`fault_name`] returns its name.
    pub number: u8,
    /// The stream.
    pub stream: u32,
    /// Whether the access was a write; otherwise it was a read.
    pub write: bool,
    /// The address that the device used.
    pub address: u64,
}

impl SmmuFault {
    /// Reads a record.
    #[must_use]
    pub const fn from_record(record: [u64; 4]) -> Self {
        Self {
            number: record[0] as u8,
            stream: (record[0] >> 32) as u32,
            // RnW.
            write: record[1] >> 35 & 1 == 0,
            address: record[2],
        }
    }
}

/// Returns the name of an event number (7.3.1).
#[must_use]
pub const fn fault_name(number: u8) -> &'static str {
    match number {
        0x02 => "bad stream",
        0x03 => "stream table fetch",
        0x04 => "bad stream table entry",
        0x08 => "bad substream",
        0x09 => "context fetch",
        0x0a => "bad context",
        0x0b => "table walk",
        0x10 => "translation fault",
        0x11 => "address size fault",
        0x12 => "access flag fault",
        0x13 => "permission fault",
        _ => "other fault",
    }
}

/// An index of a queue of `1 << LOG2` entries between processor and SMMU, with a wrap bit above it
/// that changes with each pass (3.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Index<const LOG2: u32>(pub u32);

impl<const LOG2: u32> Index<LOG2> {
    /// Returns the slot that the index points to.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & ((1 << LOG2) - 1)) as usize
    }

    /// Returns the next index.
    #[must_use]
    pub const fn next(self) -> Self {
        Self((self.0 + 1) & ((2 << LOG2) - 1))
    }

    /// Returns whether both indexes point to the same slot of the same pass. Other bits of the
    /// register value are ignored.
    #[must_use]
    pub const fn is(self, other: u32) -> bool {
        (self.0 ^ other) & ((2 << LOG2) - 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns bits `high` to `low` of a structure of several words, as the manual numbers them.
    fn field(words: &[u64], high: usize, low: usize) -> u64 {
        assert_eq!(high / 64, low / 64);
        words[low / 64] >> (low % 64) & (u64::MAX >> (63 - (high - low)))
    }

    #[test]
    fn an_aborting_stream_is_valid_and_set_to_abort() {
        assert_eq!((field(&ABORT, 0, 0), field(&ABORT, 3, 1)), (1, 0));
        assert!(ABORT[1..].iter().all(|word| *word == 0));
    }

    #[test]
    fn a_stream_of_stage_2_has_the_manual_s_fields() {
        let entry = stage2(0x40_1234_5000, 0x9abc, true);
        assert_eq!((field(&entry, 0, 0), field(&entry, 3, 1)), (1, 0b110));
        assert_eq!(field(&entry, 143, 128), 0x9abc, "S2VMID");
        assert_eq!(field(&entry, 165, 160), 25, "S2T0SZ");
        assert_eq!(field(&entry, 167, 166), 1, "S2SL0: level 1 of the 4 KiB granule");
        assert_eq!((field(&entry, 169, 168), field(&entry, 171, 170)), (1, 1), "S2IR0, S2OR0");
        assert_eq!(field(&entry, 173, 172), 3, "S2SH0");
        assert_eq!(field(&entry, 175, 174), 0, "S2TG");
        assert_eq!(field(&entry, 178, 176), 2, "S2PS");
        assert_eq!(field(&entry, 179, 179), 1, "S2AA64");
        assert_eq!((field(&entry, 185, 185), field(&entry, 186, 186)), (0, 1), "S2S, S2R");
        assert_eq!(field(&entry, 243, 196) << 4, 0x40_1234_5000, "S2TTB");
        assert_eq!(field(&entry, 93, 92), 0, "EATS: no translated accesses");
        assert_eq!(field(&stage2(0, 1, false), 186, 186), 0);
    }

    #[test]
    fn a_stream_of_stage_1_has_the_manual_s_fields() {
        let entry = stage1(0x40_1234_5640);
        assert_eq!((field(&entry, 0, 0), field(&entry, 3, 1)), (1, 0b101));
        assert_eq!(field(&entry, 5, 4), 0, "S1Fmt");
        assert_eq!(field(&entry, 51, 6) << 6, 0x40_1234_5640, "S1ContextPtr");
        assert_eq!(field(&entry, 63, 59), 0, "S1CDMax: no substreams");
        assert_eq!(field(&entry, 67, 66), 1, "S1CIR");
        assert_eq!(field(&entry, 69, 68), 1, "S1COR");
        assert_eq!(field(&entry, 71, 70), 3, "S1CSH");
        assert_eq!((field(&entry, 91, 91), field(&entry, 93, 92)), (0, 0), "S1STALLD, EATS");
        let context = context(0x40_1234_5000, 7, 0xff00, true);
        assert_eq!(field(&context, 5, 0), 25, "T0SZ");
        assert_eq!(field(&context, 7, 6), 0, "TG0");
        assert_eq!((field(&context, 9, 8), field(&context, 11, 10)), (1, 1), "IR0, OR0");
        assert_eq!(field(&context, 13, 12), 3, "SH0");
        assert_eq!((field(&context, 14, 14), field(&context, 30, 30)), (0, 1), "EPD0, EPD1");
        assert_eq!((field(&context, 15, 15), field(&context, 31, 31)), (0, 1), "ENDI, V");
        assert_eq!(field(&context, 34, 32), 2, "IPS");
        assert_eq!(field(&context, 41, 41), 1, "AA64");
        assert_eq!(field(&context, 46, 44), 0b110, "A, R, S");
        assert_eq!(field(&context, 47, 47), 1, "ASET");
        assert_eq!(field(&context, 63, 48), 7, "ASID");
        assert_eq!(field(&context, 115, 68) << 4, 0x40_1234_5000, "TTB0");
        assert_eq!(field(&context, 223, 192), 0xff00, "MAIR0");
        assert_eq!(field(&super::context(0, 7, 0, false), 45, 45), 0);
    }

    #[test]
    fn the_first_stream_level_points_to_64_entries() {
        let descriptor = [level1(0x40_1234_5000)];
        assert_eq!(1 << (field(&descriptor, 4, 0) - 1), 64);
        assert_eq!(field(&descriptor, 51, 6) << 6, 0x40_1234_5000);
    }

    #[test]
    fn commands_have_the_manual_s_numbers() {
        assert_eq!(forget_stream(0x1234), [0x1234_0000_0003, 1]);
        assert_eq!(forget_domain(SmmuFormat::Stage1, 3), [0x0003_0000_0000_0011, 0]);
        assert_eq!(forget_domain(SmmuFormat::Stage2, 3), [0x0003_0000_0028, 0]);
        assert_eq!(
            (FORGET_CONFIGURATION, FORGET_TRANSLATIONS, SYNC),
            ([4, 31], [0x30, 0], [0x46, 0])
        );
    }

    #[test]
    fn a_record_tells_who_did_what_where() {
        let record = [0x0000_0010_0000_0010, 1 << 35 | 1 << 33, 0x5000_0040, 0x5000_0000];
        let fault = SmmuFault { number: 0x10, stream: 16, write: false, address: 0x5000_0040 };
        assert_eq!(SmmuFault::from_record(record), fault);
        assert!(SmmuFault::from_record([0x13, 0, 0, 0]).write);
        assert_eq!((fault_name(0x10), fault_name(0xff)), ("translation fault", "other fault"));
    }

    #[test]
    fn an_index_turns_with_its_queue() {
        let mut index = Index::<2>(0);
        let mut slots = Vec::new();
        for _ in 0..9 {
            slots.push(index.slot());
            index = index.next();
        }
        assert_eq!(slots, [0, 1, 2, 3, 0, 1, 2, 3, 0]);
        assert_eq!(index, Index(1));
        // The same slot in different passes; the overflow flag is not part of the index.
        assert!(!Index::<2>(1).is(5) && Index::<2>(5).is(0x8000_0005));
    }
}
