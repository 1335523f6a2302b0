//! Input from the host: its moments in virtual time, and its record.
//!
//! A machine with input looks at its standard input only at multiples of [`LOOK`] of virtual time,
//! again and again until it reads nothing. Before a look it waits until it is not ahead of the
//! host's clock. What it reads is recorded with the virtual time. A replay has the same looks and gives at
//! each what was read there, so that the machine behaves alike.

use libc::c_int;
use std::fmt::Write as _;

/// Virtual time between two looks at the host's files, in ns.
pub const LOOK: u64 = 1_000_000;

/// The characters of a damaged line that a message shows.
const SHOWN: usize = 40;

/// Bytes that a machine read of its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Virtual time since the machine's start, in ns.
    pub time_ns: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Returns the line of a record: the time and the bytes in hexadecimal.
    ///
    /// ```
    /// use weir_clock::input::Piece;
    /// let piece = Piece { time_ns: 1200, bytes: b"ok".to_vec() };
    /// assert_eq!(piece.line(), "1200 6f6b\n");
    /// ```
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!("{} ", self.time_ns);
        for byte in &self.bytes {
            // Writing to a string does not fail.
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        line
    }

    /// Returns the piece that a line of a record describes.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (time, digits) = line.split_once(' ')?;
        let bytes = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes = bytes.collect::<Option<Vec<_>>>().filter(|bytes| !bytes.is_empty())?;
        Some(Self { time_ns: time.parse().ok()?, bytes })
    }
}

/// Returns the pieces of a record, the last one first.
///
/// # Errors
///
/// The first line that describes no piece, has no end, or is of an earlier time than the one
/// before.
pub fn parse(record: &str) -> Result<Vec<Piece>, String> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (line, number) in record.split_inclusive('\n').zip(1..) {
        let piece = line.strip_suffix('\n').and_then(Piece::parse);
        let piece = piece
            .filter(|piece| pieces.last().is_none_or(|last| last.time_ns <= piece.time_ns))
            .ok_or_else(|| {
                let shown: String = line.chars().take(SHOWN).collect();
                format!("line {number} of the input's record is damaged: {shown:?}")
            })?;
        pieces.push(piece);
    }
    pieces.reverse();
    Ok(pieces)
}

/// The origin of the machine's input.
#[derive(Debug)]
pub enum Input {
    /// There is none.
    None,
    /// The host's files. What comes of standard input is written to this file.
    Live {
        /// The file's number.
        record: c_int,
    },
    /// A record: the pieces that are left, the next one last.
    Replay(Vec<Piece>),
}

/// The looks at the input.
#[derive(Debug)]
pub struct Looks {
    /// The origin.
    pub input: Input,
    /// The time of the next look.
    next: u64,
    /// The virtual time and the host's at the last look.
    last: (u64, u64),
    /// True between a look that found input and the read of it.
    is_ready: bool,
}

impl Looks {
    /// No input.
    pub const NONE: Self = Self { input: Input::None, next: 0, last: (0, 0), is_ready: false };

    /// Returns the looks at `input`, the first one `now`.
    #[must_use]
    pub const fn new(input: Input, now: u64, host: u64) -> Self {
        Self { input, next: now, last: (now, host), is_ready: false }
    }

    /// Returns the time of the next look; none if there is no input.
    #[must_use]
    pub const fn next(&self) -> Option<u64> {
        if matches!(self.input, Input::None) { None } else { Some(self.next) }
    }

    /// Begins the look that is due at `now`, if one is. Returns for how long the machine must wait
    /// for the host's clock, in ns.
    pub fn begin(&mut self, now: u64, host: u64) -> Option<u64> {
        if now < self.next()? {
            return None;
        }
        self.next = now - now % LOOK + LOOK;
        if !matches!(self.input, Input::Live { .. }) {
            return Some(0);
        }
        let (virtual_before, host_before) = self.last;
        let due = host_before.saturating_add(now.saturating_sub(virtual_before));
        // A machine that has been slower than the host does not become faster later.
        self.last = (now, host.max(due));
        Some(due.saturating_sub(host))
    }

    /// Returns whether a machine that looks at `time_ns` since its start finds input. `is_readable`
    /// states whether the host's file has some.
    pub fn look(&mut self, time_ns: u64, is_readable: bool) -> bool {
        self.is_ready = match &self.input {
            Input::None => false,
            Input::Live { .. } => is_readable,
            Input::Replay(pieces) => pieces.last().is_some_and(|next| next.time_ns <= time_ns),
        };
        self.is_ready
    }

    /// Takes the piece that a replay reads at `now`; none where a recorded machine read nothing.
    pub fn take(&mut self, now: u64) -> Option<Piece> {
        match &mut self.input {
            Input::Replay(pieces) if std::mem::take(&mut self.is_ready) => {
                self.next = now;
                pieces.pop()
            }
            _ => None,
        }
    }

    /// Returns the file that records what the machine has read at `now`, if it is to be recorded.
    pub const fn record(&mut self, now: u64) -> Option<c_int> {
        let Input::Live { record } = self.input else { return None };
        // There may be more.
        self.next = now;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_damaged_record_is_refused() {
        for (record, line) in [
            ("12\n", 1),
            ("12 \n", 1),
            ("12 6\n", 1),
            ("12 6g\n", 1),
            ("x 61\n", 1),
            ("-1 61\n", 1),
            ("12 61\n11 62\n", 2),
            ("12 61\n\n13 62\n", 2),
            ("12 é1\n", 1),
            ("12 61\n13 62", 2),
        ] {
            let error = parse(record).expect_err(record);
            assert!(error.starts_with(&format!("line {line} of ")), "{record}: {error}");
        }
        assert!(parse(&"0".repeat(1_000_000)).expect_err("damaged").len() < 100);
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    /// The machine waits for as long as it was quicker than the host since the look before.
    #[test]
    fn live_input_keeps_the_host_s_pace() {
        let mut looks = Looks::new(Input::Live { record: 3 }, 1000, 0);
        assert_eq!(looks.begin(1000, 0), Some(0));
        assert_eq!(looks.begin(LOOK - 1, 5), None);
        assert_eq!(looks.begin(LOOK, 40_000), Some(LOOK - 1000 - 40_000));
        assert_eq!(looks.begin(2 * LOOK + 50, 10 * LOOK), Some(0), "slower than the host");
        assert_eq!(looks.next(), Some(3 * LOOK));
        assert_eq!(looks.begin(3 * LOOK, 10 * LOOK), Some(LOOK - 50));
        assert_eq!(Looks::NONE.next(), None);
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(
            pieces in prop::collection::vec(
                (0..1_000_000_u64, prop::collection::vec(any::<u8>(), 1..20)), 0..20),
        ) {
            let mut time_ns = 0;
            let mut pieces: Vec<Piece> = pieces
                .into_iter()
                .map(|(gap, bytes)| {
                    time_ns += gap;
                    Piece { time_ns, bytes }
                })
                .collect();
            let text: String = pieces.iter().map(Piece::line).collect();
            pieces.reverse();
            prop_assert_eq!(parse(&text), Ok(pieces));
        }

        /// A replay that looks at the same times gives each piece where it was read.
        #[test]
        fn a_replay_gives_each_piece_at_its_look(
            found in prop::collection::vec(0..3, 1..50),
        ) {
            let mut record = String::new();
            for (&found, time_ns) in found.iter().zip((0..).step_by(1_000_000)) {
                for _ in 0..found {
                    record += &Piece { time_ns, bytes: vec![7] }.line();
                }
            }
            let pieces = parse(&record).expect("a record");
            let mut looks = Looks::new(Input::Replay(pieces), 0, 0);
            for (&found, time_ns) in found.iter().zip((0..).step_by(1_000_000)) {
                prop_assert_eq!(looks.begin(time_ns, 0), Some(0));
                prop_assert_eq!(looks.look(time_ns, true), found > 0);
                for left in (0..found).rev() {
                    prop_assert_eq!(looks.take(time_ns).map(|piece| piece.time_ns), Some(time_ns));
                    prop_assert_eq!(looks.begin(time_ns, 0), Some(0), "it looks again");
                    prop_assert_eq!(looks.look(time_ns, true), left > 0);
                }
                prop_assert_eq!(looks.take(time_ns), None);
                prop_assert_eq!(looks.begin(time_ns, 0), None);
            }
        }
    }
}
