//! Who gets cells, and what the keys say of them.

use super::{assign::Work, keys::Wish, numbers, platform::Group};
use crate::{raw::At, shape::suggestion, units::Bytes};
use std::{collections::BTreeSet, ops::Range};
use weir_layout::cells::{Cell, Cells};

/// Colors or banks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
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

    pub fn count(self, cells: &Cells) -> u16 {
        match self {
            Self::Colors => cells.colors(),
            Self::Banks => cells.bank_groups(),
        }
    }

    pub fn of(self, cells: &Cells, cell: Cell) -> u16 {
        u16::from(match self {
            Self::Colors => cells.color(cell),
            Self::Banks => cells.bank(cell),
        })
    }
}

/// What somebody has of one part.
#[derive(Clone, Debug, Default)]
pub(super) struct Owned {
    /// What is theirs, if they asked.
    pub numbers: Option<BTreeSet<u16>>,
    /// By the name of this group.
    pub group: Option<String>,
    /// They left the choice to the tool.
    pub auto: bool,
    pub span: Range<usize>,
}

/// Somebody who gets cells: the hypervisor, which comes first, or a VM.
pub(super) struct Party {
    pub name: String,
    pub criticality: u64,
    pub memory: u64,
    pub working_set: Option<Bytes>,
    pub span: Range<usize>,
    pub colors: Owned,
    pub banks: Owned,
}

impl Party {
    pub const fn part(&self, part: Part) -> &Owned {
        match part {
            Part::Colors => &self.colors,
            Part::Banks => &self.banks,
        }
    }

    pub const fn part_mut(&mut self, part: Part) -> &mut Owned {
        match part {
            Part::Colors => &mut self.colors,
            Part::Banks => &mut self.banks,
        }
    }
}

impl Work<'_> {
    /// Which of the platform's DRAM maps the file names.
    pub(super) fn map(&mut self, name: Option<&At<String>>) -> usize {
        let Some(At { value, span }) = name else { return 0 };
        let maps = &self.places().dram;
        if let Some(place) = maps.iter().position(|map| map.name == *value) {
            return place;
        }
        let help = suggestion(value, maps.iter().map(|map| map.name.as_str()));
        let message = format!("{} has no DRAM map `{value}`", self.platform.name);
        self.fault("dram-unknown", span, message).help(help).push(self.faults);
        0
    }

    pub(super) fn party(&mut self, name: &str, wish: &Wish) -> Party {
        Party {
            name: name.to_owned(),
            criticality: 0,
            memory: 0,
            working_set: None,
            span: wish.span.clone(),
            colors: self.owned(name, wish.colors.as_ref(), Part::Colors),
            banks: self.owned(name, wish.banks.as_ref(), Part::Banks),
        }
    }

    /// What a key says.
    fn owned(&mut self, name: &str, key: Option<&At<String>>, part: Part) -> Owned {
        let Some(At { value, span }) = key else { return Owned::default() };
        let owned = Owned { span: span.clone(), ..Owned::default() };
        if value == "auto" {
            return Owned { auto: true, ..owned };
        }
        let of = |group: &Group| match part {
            Part::Colors => group.colors.clone(),
            Part::Banks => group.banks.clone(),
        };
        let group = self.groups.iter().find(|group| group.name == *value);
        let numbers = match group {
            Some(group) => of(group),
            None => numbers::parse(value),
        };
        let Some(numbers) = numbers else {
            let many = part.many();
            let known = self.groups.iter().filter(|group| of(group).is_some());
            let known: Vec<_> = known.map(|group| format!("\"{}\"", group.name)).collect();
            let message = format!("{name}: `{value}` are no {many}");
            let help = format!(
                "write numbers like \"0-3,8\", \"auto\"{}",
                if known.is_empty() {
                    format!(", or the name of a [[group]] that has {many}")
                } else {
                    format!(", or one of the groups {}", known.join(", "))
                }
            );
            self.fault("numbers", span, message).help(help).push(self.faults);
            return owned;
        };
        let count = part.count(&self.cells);
        if let Some(beyond) = numbers.iter().find(|&&number| number >= count) {
            let one = part.one();
            let message = format!("{} has no {one} {beyond}", self.platform.name);
            let split = self.cells.banks_in_group();
            let help = if part == Part::Banks && split > 1 {
                format!(
                    "each page lies in {split} banks, so {count} groups of {split} can be chosen: 0 to {}",
                    count - 1
                )
            } else {
                format!("it has {one}s 0 to {}", count - 1)
            };
            self.fault("no-such-cell", span, message).help(help).push(self.faults);
            return owned;
        }
        Owned { numbers: Some(numbers), group: group.map(|group| group.name.clone()), ..owned }
    }
}
