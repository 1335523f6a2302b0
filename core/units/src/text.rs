//! Text forms of quantities.

use crate::{Bytes, BytesPerSec, Cid, CoreId, Events, IntId, Ipa, Nanos, Pa, VcpuId};
use core::fmt;

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

/// Reason why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadQuantity<'a> {
    /// The text does not begin with a decimal integer.
    Number,
    /// There is no unit after the digits.
    NoUnit,
    /// The unit is unknown.
    Unit(&'a str),
    /// The value has more than 64 bits.
    TooLarge,
}

fn parse<'a>(text: &'a str, units: &[(&str, u64)]) -> Result<u64, BadQuantity<'a>> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let mut number: Option<u64> = None;
    for digit in digits.bytes().filter(u8::is_ascii_digit) {
        let before = number.unwrap_or(0).checked_mul(10).ok_or(BadQuantity::TooLarge)?;
        let after = before.checked_add(u64::from(digit - b'0')).ok_or(BadQuantity::TooLarge)?;
        number = Some(after);
    }
    let number = number.filter(|_| !unit.starts_with('.')).ok_or(BadQuantity::Number)?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(BadQuantity::NoUnit);
    }
    let known = units.iter().find(|(name, _)| *name == unit);
    let (_, factor) = known.ok_or(BadQuantity::Unit(unit))?;
    number.checked_mul(*factor).ok_or(BadQuantity::TooLarge)
}

fn write(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, factor): &&(&str, u64)| value != 0 && value.is_multiple_of(*factor);
    let last = units.last().copied().unwrap_or(("", 1));
    let (name, factor) = units.iter().find(fits).copied().unwrap_or(last);
    write!(f, "{}{name}", value / factor)
}

/// Writes an address in hexadecimal, in groups of four digits, at least two groups: `0x4000_0000`.
fn write_address(f: &mut fmt::Formatter<'_>, address: u64) -> fmt::Result {
    // "0x", 16 digits and 3 separators, filled from the end.
    let mut text = [0; 21];
    let mut start = text.len();
    let mut put = |byte: u8| {
        start -= 1;
        text[start] = byte;
    };
    for place in 0..16 {
        let rest = address >> (4 * place);
        if place >= 8 && rest == 0 {
            break;
        }
        if place != 0 && place % 4 == 0 {
            put(b'_');
        }
        put(b"0123456789abcdef"[(rest & 0xf) as usize]);
    }
    put(b'x');
    put(b'0');
    f.pad(str::from_utf8(&text[start..]).unwrap_or_default())
}

impl Bytes {
    /// Reads `"16MiB"`: an integer and one of B, KiB, MiB, GiB.
    ///
    /// # Errors
    ///
    /// The part of the text that is wrong.
    pub fn parse(text: &str) -> Result<Self, BadQuantity<'_>> {
        parse(text, &SIZES).map(Self)
    }
}

impl Nanos {
    /// Reads `"30us"`: an integer and one of ns, us, ms, s.
    ///
    /// # Errors
    ///
    /// The part of the text that is wrong.
    pub fn parse(text: &str) -> Result<Self, BadQuantity<'_>> {
        parse(text, &DURATIONS).map(Self)
    }
}

impl BytesPerSec {
    /// Reads `"485MB/s"`: an integer and one of B/s, KB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s.
    ///
    /// # Errors
    ///
    /// The part of the text that is wrong.
    pub fn parse(text: &str) -> Result<Self, BadQuantity<'_>> {
        parse(text, &RATES).map(Self)
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

impl fmt::Display for BytesPerSec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: [(&str, u64); 4] =
            [("GB/s", 1_000_000_000), ("MB/s", 1_000_000), ("KB/s", 1_000), ("B/s", 1)];
        write(f, self.0, &DECIMAL)
    }
}

impl fmt::Display for Ipa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_address(f, self.0)
    }
}

impl fmt::Display for Pa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_address(f, self.0)
    }
}

macro_rules! numbers {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

numbers!(Cid, CoreId, Events, IntId, VcpuId);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_need_a_unit_of_their_kind() {
        assert_eq!(Bytes::parse("16MiB"), Ok(Bytes(16 << 20)));
        assert_eq!(Bytes::parse(" 64 B "), Ok(Bytes(64)));
        assert_eq!(Nanos::parse("1_000us"), Ok(Nanos(1_000_000)));
        assert_eq!(Bytes::parse("16"), Err(BadQuantity::NoUnit));
        assert_eq!(Bytes::parse("16MB"), Err(BadQuantity::Unit("MB")));
        assert_eq!(Bytes::parse("1.5GiB"), Err(BadQuantity::Number));
        assert_eq!(Bytes::parse("-1GiB"), Err(BadQuantity::Number));
        assert_eq!(Bytes::parse("_GiB"), Err(BadQuantity::Number));
        assert_eq!(Bytes::parse("17179869184GiB"), Err(BadQuantity::TooLarge));
        assert_eq!(Bytes::parse("18446744073709551616B"), Err(BadQuantity::TooLarge));
        assert_eq!(BytesPerSec::parse("485MB/s"), Ok(BytesPerSec(485_000_000)));
        assert_eq!(BytesPerSec::parse("2MiB/s"), Ok(BytesPerSec(2 << 20)));
        assert_eq!(BytesPerSec::parse("485MB"), Err(BadQuantity::Unit("MB")));
    }

    #[test]
    fn addresses_are_written_in_groups() {
        assert_eq!(Pa(0).to_string(), "0x0000_0000");
        assert_eq!(Ipa(0x40_1000_0000).to_string(), "0x40_1000_0000");
        assert_eq!(Pa(u64::MAX).to_string(), "0xffff_ffff_ffff_ffff");
        assert_eq!(format!("{:>13}", Pa(1)), "  0x0000_0001");
    }

    proptest! {
        #[test]
        fn written_quantities_read_back(value: u64) {
            let [bytes, nanos, rate] = [
                Bytes(value).to_string(),
                Nanos(value).to_string(),
                BytesPerSec(value).to_string(),
            ];
            prop_assert_eq!(Bytes::parse(&bytes), Ok(Bytes(value)));
            prop_assert_eq!(Nanos::parse(&nanos), Ok(Nanos(value)));
            prop_assert_eq!(BytesPerSec::parse(&rate), Ok(BytesPerSec(value)));
        }
    }
}
