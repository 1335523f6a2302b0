//! Sets of numbers as a person writes them: `0-3,8`.

use std::{collections::BTreeSet, fmt::Write as _};

/// Reads numbers and ranges, separated by commas; `None` for anything else, and for a range that
/// runs backward.
pub(crate) fn parse(text: &str) -> Option<BTreeSet<u16>> {
    let mut ranges = BTreeSet::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| {
            let text = text.trim();
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u16>().ok())?
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last > 1 << 12 {
            return None;
        }
        ranges.insert((first, last));
    }
    // Ascending, so that what many ranges repeat is met once.
    let mut numbers = BTreeSet::new();
    let mut from = 0;
    for (first, last) in ranges {
        numbers.extend(first.max(from)..=last);
        from = from.max(last + 1);
    }
    Some(numbers)
}

/// Writes them that way.
pub(crate) fn text(numbers: impl IntoIterator<Item = u16>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.into_iter().peekable();
    while let Some(first) = numbers.next() {
        let mut last = first;
        while let Some(next) = numbers.next_if(|&next| next == last + 1) {
            last = next;
        }
        let separator = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{separator}{first}");
        if last != first {
            let _ = write!(text, "-{last}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_ranges() {
        let long = vec!["0-4096"; 20_000].join(",");
        let read = |text| parse(text).map(|numbers| numbers.into_iter().collect::<Vec<_>>());
        assert_eq!(read("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(read(" 5 , 2 - 3,5"), Some(vec![2, 3, 5]));
        assert_eq!(read("4-6,0-9,2-5,8-11"), Some((0..=11).collect()));
        assert_eq!(read(&long).map(|all| all.len()), Some(4097));
        for wrong in ["", ",", "1,", "-1", "1-", "3-1", "a", "+1", "1-2-3", "70000", "0-60000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(numbers in prop::collection::btree_set(0u16..300, 1..40)) {
            prop_assert_eq!(parse(&text(numbers.iter().copied())), Some(numbers));
        }
    }
}
