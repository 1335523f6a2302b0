//! Numbers with units, for people.

/// Returns a count with a comma between thousands.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number of `unit`s with at most four digits, without zeros at the end of a fraction.
fn scaled(value: u64, units: &[(u64, &str)]) -> String {
    let (size, unit) =
        units.iter().copied().rev().find(|(size, _)| value >= *size).unwrap_or(units[0]);
    let (whole, rest) = (value / size, value % size);
    let places = 3 - whole.max(1).ilog10().min(3) as usize;
    let parts = 10u128.pow(places as u32);
    let fraction = (u128::from(rest) * parts + u128::from(size / 2)) / u128::from(size);
    let (whole, fraction) = if fraction >= parts { (whole + 1, 0) } else { (whole, fraction) };
    if fraction == 0 && whole > value / size && units.iter().any(|unit| unit.0 == whole * size) {
        return scaled(whole * size, units);
    }
    let fraction = format!("{fraction:0places$}");
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{whole}{point}{fraction} {unit}")
}

/// Returns a time of `ns` with a unit, in at most four digits.
#[must_use]
pub(crate) fn time(ns: u64) -> String {
    scaled(ns, &[(1, "ns"), (1000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")])
}

/// Returns a size with a unit, in at most four digits.
#[must_use]
pub(crate) fn bytes(size: u64) -> String {
    scaled(size, &[(1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")])
}

/// Returns an address in hexadecimal, with a separator between its halves.
#[must_use]
pub(crate) fn address(address: u64) -> String {
    let (high, low) = (address >> 16, address & 0xffff);
    if high == 0 { format!("{low:#06x}") } else { format!("{high:#x}_{low:04x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_a_unit() {
        let times = [0, 999, 1000, 4981, 15_029, 463_253, 1_000_000, 2_233_456_789];
        let expected =
            ["0 ns", "999 ns", "1 us", "4.981 us", "15.03 us", "463.3 us", "1 ms", "2.233 s"];
        assert_eq!(times.map(time), expected);
        assert_eq!([time(999_960), time(999_400)], ["1 ms", "999.4 us"]);
        assert_eq!([bytes(4096), bytes(5 << 19)], ["4 KiB", "2.5 MiB"]);
        assert_eq!([count(7), count(1000), count(1_234_567)], ["7", "1,000", "1,234,567"]);
        assert_eq!([address(0), address(0x4008_0000)], ["0x0000", "0x4008_0000"]);
    }
}
