//! Three-valued verdicts: a promise holds, is not judged because an input is missing, or does not
//! hold.
//!
//! ```
//! use weir_analysis::verdict::{Judgement, Verdict};
//!
//! let judged = Judgement::of(true);
//! let what = "task loop: no delay by other VMs' accesses is known";
//! let open = Judgement::not_judged(what, "add `delay` to [saturation]");
//! let both = judged.and(open);
//! assert_eq!(both.verdict(), Verdict::NotJudged);
//! assert_eq!(both.and(Judgement::of(false)).verdict(), Verdict::DoesNotHold);
//! ```

use core::fmt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The verdict on a promise. The order is from good to bad: the verdict on several promises is the
/// greatest.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is shown to hold.
    #[default]
    Holds,
    /// It is neither shown to hold nor shown not to: an input is missing, or the effort was spent
    /// first.
    NotJudged,
    /// It is shown not to hold, no bound exists, or the sufficient test of the analysis fails.
    DoesNotHold,
}

impl Verdict {
    /// Returns [`Self::Holds`] or [`Self::DoesNotHold`].
    #[must_use]
    pub const fn of(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::DoesNotHold }
    }

    /// Returns the worse of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.max(other)
    }

    /// Returns whether the promise is shown to hold.
    #[must_use]
    pub fn holds(self) -> bool {
        self == Self::Holds
    }

    /// Returns the value for JSON: `holds`, `not-judged` or `does-not-hold`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::NotJudged => "not-judged",
            Self::DoesNotHold => "does-not-hold",
        }
    }

    /// Returns the value for JSON readers that expect a truth value: `None` stands for "not
    /// judged".
    #[must_use]
    pub const fn truth(self) -> Option<bool> {
        match self {
            Self::Holds => Some(true),
            Self::NotJudged => None,
            Self::DoesNotHold => Some(false),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holds => "holds",
            Self::NotJudged => "not judged",
            Self::DoesNotHold => "does not hold",
        })
    }
}

impl FromIterator<Self> for Verdict {
    fn from_iter<I: IntoIterator<Item = Self>>(all: I) -> Self {
        all.into_iter().max().unwrap_or_default()
    }
}

/// An input without which a promise is not judged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Missing {
    /// The promise and what is missing.
    pub what: String,
    /// How to supply it in the file or on the command line. A program calls
    /// [`SystemFile::prefer_overheads`](weir_model::SystemFile::prefer_overheads) for
    /// `--overheads`.
    pub supply: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.supply)
    }
}

/// A verdict on one or more promises, with all inputs that are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    refuted: bool,
    missing: Vec<Missing>,
}

impl Judgement {
    /// Returns a judgement for which all inputs are known.
    #[must_use]
    pub const fn of(holds: bool) -> Self {
        Self { refuted: !holds, missing: Vec::new() }
    }

    /// Returns a judgement without a required input.
    #[must_use]
    pub fn not_judged(what: impl Into<String>, supply: impl Into<String>) -> Self {
        Self::from(Missing { what: what.into(), supply: supply.into() })
    }

    /// Returns the judgement on both: the worse verdict and each missing input once.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.refuted |= other.refuted;
        for missing in other.missing {
            self.miss(missing);
        }
        self
    }

    /// Adds a missing input.
    pub fn miss(&mut self, missing: Missing) {
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }

    /// Returns the verdict. A part that is shown not to hold decides, even if inputs of others are
    /// missing.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match (self.refuted, self.missing.is_empty()) {
            (true, _) => Verdict::DoesNotHold,
            (false, false) => Verdict::NotJudged,
            (false, true) => Verdict::Holds,
        }
    }

    /// Returns what is missing, in the order in which it was found.
    #[must_use]
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }
}

impl From<Missing> for Judgement {
    fn from(missing: Missing) -> Self {
        Self { refuted: false, missing: vec![missing] }
    }
}

impl FromIterator<Self> for Judgement {
    fn from_iter<I: IntoIterator<Item = Self>>(all: I) -> Self {
        all.into_iter().fold(Self::default(), Self::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_severe_verdict_is_the_headline() {
        use Verdict::{DoesNotHold, Holds, NotJudged};
        for (one, other, both) in [
            (Holds, Holds, Holds),
            (Holds, NotJudged, NotJudged),
            (NotJudged, DoesNotHold, DoesNotHold),
            (Holds, DoesNotHold, DoesNotHold),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both));
            assert_eq!([one, other].into_iter().collect::<Verdict>(), both);
        }
        assert_eq!(
            [Holds, NotJudged, DoesNotHold].map(Verdict::truth),
            [Some(true), None, Some(false)]
        );
    }

    #[test]
    fn missing_inputs_are_kept_with_failed_parts() {
        let open = || Judgement::not_judged("a", "b");
        let both = open().and(Judgement::of(false)).and(open());
        assert_eq!(both.verdict(), Verdict::DoesNotHold);
        assert_eq!(both.missing(), [Missing { what: "a".to_owned(), supply: "b".to_owned() }]);
        let none: Judgement = [].into_iter().collect();
        assert_eq!(none.verdict(), Verdict::Holds);
    }
}
