//! Quantities with their unit in the type, and how a person writes them.

use std::fmt;

macro_rules! quantity {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The bare number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    )*};
}

quantity! {
    /// A number of bytes.
    Bytes;
    /// An intermediate physical address: what a VM takes for a physical one.
    Ipa;
    /// A physical address of the board.
    Pa;
    /// A duration in nanoseconds.
    Nanos;
    /// A rate in bytes per second.
    BytesPerSec;
}

/// A core's place among the platform's cores, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u8);

/// A VM's place among the system's VMs, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(pub u8);

const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const DURATIONS: [(&str, u64); 4] =
    [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

const RATES: [(&str, u64); 8] = [
    ("GiB/s", 1 << 30),
    ("GB/s", 1_000_000_000),
    ("MiB/s", 1 << 20),
    ("MB/s", 1_000_000),
    ("KiB/s", 1 << 10),
    ("KB/s", 1_000),
    ("kB/s", 1_000),
    ("B/s", 1),
];

/// What is wrong with a quantity in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadQuantity {
    /// No digits in front, or something that is no digit among them.
    Number,
    /// Digits alone.
    NoUnit,
    /// A unit that is not one of these.
    Unit(String),
    /// More than 64 bits.
    TooLarge,
}

fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64, BadQuantity> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let digits = digits.replace('_', "");
    if digits.is_empty() || unit.starts_with('.') {
        return Err(BadQuantity::Number);
    }
    let number: u64 = digits.parse().map_err(|_| BadQuantity::TooLarge)?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(BadQuantity::NoUnit);
    }
    let (_, factor) = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| BadQuantity::Unit(unit.to_owned()))?;
    number.checked_mul(*factor).ok_or(BadQuantity::TooLarge)
}

fn write(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value != 0 && value.is_multiple_of(*factor);
    let last = units.last().copied().unwrap_or(("", 1));
    let (name, factor) = units.iter().find(fits).copied().unwrap_or(last);
    write!(f, "{}{name}", value / factor)
}

impl Bytes {
    /// Reads `"16MiB"`: an integer and one of B, KiB, MiB, GiB.
    pub(crate) fn parse(text: &str) -> Result<Self, BadQuantity> {
        parse(text, &SIZES).map(Self)
    }
}

impl Nanos {
    /// Reads `"30us"`: an integer and one of ns, us, ms, s.
    pub(crate) fn parse(text: &str) -> Result<Self, BadQuantity> {
        parse(text, &DURATIONS).map(Self)
    }
}

impl BytesPerSec {
    /// Reads `"485MB/s"`: an integer and one of B/s, KB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s.
    pub(crate) fn parse(text: &str) -> Result<Self, BadQuantity> {
        parse(text, &RATES).map(Self)
    }
}

impl BytesPerSec {
    /// Reads a rate as a system file has it; none if it is not one.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }
}

impl Nanos {
    /// Reads a duration as a system file has it; none if it is not one.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }
}

impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: [(&str, u64); 4] =
            [("GB/s", 1_000_000_000), ("MB/s", 1_000_000), ("KB/s", 1_000), ("B/s", 1)];
        write(f, self.0, &DECIMAL)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, &SIZES)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0, &DURATIONS)
    }
}

/// Hexadecimal in groups of four digits, at least two groups: `0x4000_0000`.
pub(crate) fn hex(address: u64) -> String {
    let digits = format!("{address:08x}");
    let mut grouped = String::from("0x");
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index).is_multiple_of(4) {
            grouped.push('_');
        }
        grouped.push(digit);
    }
    grouped
}

impl fmt::Display for Ipa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(self.0))
    }
}

impl fmt::Display for Pa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(self.0))
    }
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units() {
        assert_eq!(Bytes::parse("16MiB"), Ok(Bytes(16 << 20)));
        assert_eq!(Bytes::parse(" 64 B "), Ok(Bytes(64)));
        assert_eq!(Nanos::parse("1_000us"), Ok(Nanos(1_000_000)));
        assert_eq!(Bytes::parse("16"), Err(BadQuantity::NoUnit));
        assert_eq!(Bytes::parse("16MB"), Err(BadQuantity::Unit("MB".into())));
        assert_eq!(Bytes::parse("1.5GiB"), Err(BadQuantity::Number));
        assert_eq!(Bytes::parse("-1GiB"), Err(BadQuantity::Number));
        assert_eq!(Bytes::parse("17179869184GiB"), Err(BadQuantity::TooLarge));
        assert_eq!(BytesPerSec::parse("485MB/s"), Ok(BytesPerSec(485_000_000)));
        assert_eq!(BytesPerSec::parse("2MiB/s"), Ok(BytesPerSec(2 << 20)));
        assert_eq!(BytesPerSec::parse("485MB"), Err(BadQuantity::Unit("MB".into())));
        assert_eq!(hex(0), "0x0000_0000");
        assert_eq!(hex(0x40_1000_0000), "0x40_1000_0000");
    }

    proptest! {
        #[test]
        fn written_quantities_read_back(value: u64) {
            prop_assert_eq!(Bytes::parse(&Bytes(value).to_string()), Ok(Bytes(value)));
            prop_assert_eq!(Nanos::parse(&Nanos(value).to_string()), Ok(Nanos(value)));
            let rate = BytesPerSec(value);
            prop_assert_eq!(BytesPerSec::parse(&rate.to_string()), Ok(rate));
        }
    }
}
