//! Ranges of addresses.

use crate::text::hex;
use std::ops::Range;

pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

pub(crate) fn span(range: &Range<u64>) -> String {
    format!("{} to {}", hex(range.start), hex(range.end))
}
