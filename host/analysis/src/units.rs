//! Quantities with their unit in the type. All are integers: no verdict of this crate depends on a
//! rounding.

use core::fmt;

pub use weir_units::{Bytes, BytesPerSec, Events, Nanos};

/// Half a nanosecond, the grain of transformed times: Eq. 19, 20 and 22 of rt-virtio halve the
/// hypercall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HalfNanos(pub i64);

impl HalfNanos {
    /// The span in nanoseconds; exact below 2^52 ns.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for printing; verdicts use the integer")]
    pub fn as_nanos_f64(self) -> f64 {
        self.0 as f64 / 2.0
    }
}

impl fmt::Display for HalfNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let half = if self.0 & 1 == 1 { ".5" } else { "" };
        write!(f, "{sign}{}{half} ns", self.0.unsigned_abs() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_printed_exactly() {
        for (half, text) in
            [(3, "1.5 ns"), (-3, "-1.5 ns"), (-1, "-0.5 ns"), (4, "2 ns"), (0, "0 ns")]
        {
            assert_eq!(HalfNanos(half).to_string(), text);
        }
    }
}
