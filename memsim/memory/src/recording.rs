//! Recorded accesses as text: what `weir observe` writes and `weir simulate` reads.
//!
//! ```text
//! # a comment
//! vcpu 1
//! R 0x40
//! W 0x1000 12
//! ```
//!
//! Vcpu 1 reads at 0x40, and 12 cycles later writes at 0x1000. A line `vcpu N` sets the vCPU of the
//! lines below it. The reader or writer of the file defines the base of the addresses.

use core::fmt;

use crate::{dram::trace::parse_line, units::Pa};

/// A line of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingLine {
    /// The owner of the accesses in the next lines.
    Vcpu(usize),
    /// An access.
    Access(RecordedAccess),
}

/// An access of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedAccess {
    /// Its address, below 2^52.
    pub at: u64,
    /// Cycles since the access before, at least; 0 if the recording does not state them.
    pub cycles: u32,
    /// It writes.
    pub write: bool,
}

/// Why a line belongs to no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The line, shortened.
    pub text: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no access: write `R 0xOFFSET` or `W 0xOFFSET`, with the cycles since the \
             access before behind it or without, or `vcpu N`",
            self.text
        )
    }
}

impl core::error::Error for BadLine {}

impl RecordingLine {
    /// The contents of a line. `None` for an empty line or one that begins with `#`.
    ///
    /// # Errors
    /// [`BadLine`], for any other line; the caller knows the line's number.
    pub fn parse(line: &str) -> Result<Option<Self>, BadLine> {
        let text = line.trim();
        let bad = || BadLine { text: text.chars().take(40).collect() };
        if let Some(number) = text.strip_prefix("vcpu ") {
            return decimal(number.trim_start())
                .map(|n| Some(Self::Vcpu(n as usize)))
                .ok_or_else(bad);
        }
        let mut words = text.split_ascii_whitespace().skip(2);
        let (access, cycles) = match words.next() {
            Some(last) if !text.starts_with('#') => {
                let access = text.strip_suffix(last).filter(|_| words.next().is_none());
                (access.ok_or_else(bad)?, decimal(last).ok_or_else(bad)?)
            }
            _ => (text, 0),
        };
        let access = parse_line(access).map_err(|_| bad())?;
        Ok(access.map(|(Pa(at), write)| Self::Access(RecordedAccess { at, cycles, write })))
    }
}

/// Digits and nothing else: `parse` alone would take a sign.
fn decimal(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for RecordingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vcpu(number) => write!(f, "vcpu {number}"),
            Self::Access(RecordedAccess { at, cycles, write }) => {
                write!(f, "{} {at:#x}", if *write { 'W' } else { 'R' })?;
                if *cycles > 0 { write!(f, " {cycles}") } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line() -> impl Strategy<Value = RecordingLine> {
        let step = (0..1_u64 << 52, any::<u32>(), any::<bool>());
        prop_oneof![
            (0..1_usize << 16).prop_map(RecordingLine::Vcpu),
            step.prop_map(|(at, cycles, write)| RecordingLine::Access(RecordedAccess {
                at,
                cycles,
                write
            })),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(line in line()) {
            prop_assert_eq!(RecordingLine::parse(&format!("  {line}\r")), Ok(Some(line)));
        }

        #[test]
        fn any_text_is_a_line_or_refused(text in "\\PC{0,30}|[RWvcpu# 0-9x]{0,16}") {
            if let Ok(Some(line)) = RecordingLine::parse(&text) {
                prop_assert_eq!(RecordingLine::parse(&line.to_string()), Ok(Some(line)));
            }
        }
    }

    #[test]
    fn empty_lines_and_malformed_lines() {
        for nothing in ["", "  ", "#", "# R 0x40 3", "#R 1 2 3 4"] {
            assert_eq!(RecordingLine::parse(nothing), Ok(None), "{nothing}");
        }
        for bad in [
            "R",
            "R 40",
            "X 0x40",
            "R 0x40 +3",
            "R 0x40 -3",
            "R 0x40 3 4",
            "R 0x40 4294967296",
            "R 0x10000000000000",
            "vcpu",
            "vcpu one",
            "vcpu +1",
            "vcpu 1 2",
        ] {
            let error = RecordingLine::parse(bad).expect_err(bad);
            assert!(error.to_string().contains(&format!("`{bad}` is no access")), "{error}");
        }
    }
}
