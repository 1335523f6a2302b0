//! Colors and banks, the two parts of a page class.

use std::collections::BTreeSet;
use weir_paging::classes::{ClassSet, PageClass, PageClasses};

/// Colors or banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Colors,
    Banks,
}

impl Part {
    pub const ALL: [Self; 2] = [Self::Colors, Self::Banks];

    pub const fn one(self) -> &'static str {
        match self {
            Self::Colors => "color",
            Self::Banks => "bank",
        }
    }

    pub const fn many(self) -> &'static str {
        match self {
            Self::Colors => "colors",
            Self::Banks => "banks",
        }
    }

    pub fn count(self, classes: &PageClasses) -> u16 {
        match self {
            Self::Colors => classes.colors(),
            Self::Banks => classes.bank_groups(),
        }
    }

    /// The numbers of a set's page classes.
    pub fn of_set(self, classes: &PageClasses, set: &ClassSet) -> BTreeSet<u16> {
        set.iter().map(|class| self.of(classes, class)).collect()
    }

    pub fn of(self, classes: &PageClasses, class: PageClass) -> u16 {
        u16::from(match self {
            Self::Colors => classes.color(class),
            Self::Banks => classes.bank(class),
        })
    }
}

/// A value of any length, as a message contains it.
pub(crate) fn shortened(value: &str) -> String {
    match value.char_indices().nth(60) {
        Some((end, _)) => format!("{}..", &value[..end]),
        None => value.to_owned(),
    }
}
