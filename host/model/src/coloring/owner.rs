//! The owners of cells, and their keys.

use super::{assign::Work, groups::beyond, keys::Request, numbers, platform::Group};
use crate::diagnostics::Code;
use crate::raw::At;
use crate::shape::suggestion;
use std::{collections::BTreeSet, ops::Range};
use weir_paging::cells::{Cell, CellSet, Cells};
use weir_units::Bytes;

/// Colors or banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// The numbers of a set's cells.
    pub fn of_set(self, cells: &Cells, set: &CellSet) -> BTreeSet<u16> {
        set.iter().map(|cell| self.of(cells, cell)).collect()
    }

    pub fn of(self, cells: &Cells, cell: Cell) -> u16 {
        u16::from(match self {
            Self::Colors => cells.color(cell),
            Self::Banks => cells.bank(cell),
        })
    }
}

/// The colors or the banks of an owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Owned {
    /// Its numbers, if it requested some.
    pub numbers: Option<BTreeSet<u16>>,
    /// By the name of this group.
    pub group: Option<String>,
    /// The key is "auto".
    pub auto: bool,
    pub span: Range<usize>,
}

/// An owner of cells: the hypervisor, which comes first, or a VM.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub name: String,
    pub criticality: u64,
    /// With its tables and its pristine image.
    pub memory: u64,
    /// Its RAM alone.
    pub ram: Bytes,
    pub working_set: Option<Bytes>,
    pub span: Range<usize>,
    pub colors: Owned,
    pub banks: Owned,
}

impl Owner {
    /// Whether the file says which numbers of a part it has, or gives a group that does.
    pub const fn names(&self, part: Part) -> bool {
        let owned = self.part(part);
        owned.numbers.is_some() && !owned.auto
    }

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
        let fault = self.fault(Code::DramMapUnknown, span, message).help(help);
        self.faults.push(fault);
        0
    }

    pub(super) fn owner(&mut self, name: &str, request: &Request) -> Owner {
        Owner {
            name: name.to_owned(),
            criticality: 0,
            memory: 0,
            ram: Bytes(0),
            working_set: None,
            span: request.span.clone(),
            colors: self.owned(name, request.colors.as_ref(), Part::Colors),
            banks: self.owned(name, request.banks.as_ref(), Part::Banks),
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
            let message = match group {
                Some(_) => format!("{name}: the group `{value}` has no {many}"),
                None => format!("{name}: `{}` are no {many}", shortened(value)),
            };
            let known = self.groups.iter().filter(|group| of(group).is_some());
            let known: Vec<&str> = known.map(|group| group.name.as_str()).collect();
            let groups = if known.is_empty() {
                format!(", or the name of a [[group]] that has {many}")
            } else {
                let shown: Vec<_> =
                    known.iter().take(8).map(|name| format!("\"{name}\"")).collect();
                let more = if known.len() > 8 { ", .." } else { "" };
                format!(", or one of the groups {}{more}", shown.join(", "))
            };
            let help = format!("write numbers like \"0-3,8\", \"auto\"{groups}");
            let fault = self.fault(Code::BadNumbers, span, message).help(help);
            self.faults.push(fault);
            return owned;
        };
        if numbers.is_empty() {
            // The group was refused where it stands.
            return owned;
        }
        if let Some((number, help)) = beyond(part, &self.cells, &numbers) {
            let message = format!("{} has no {} {number}", self.platform.name, part.one());
            let fault = self.fault(Code::PageClassUnknown, span, message).help(help);
            self.faults.push(fault);
            return owned;
        }
        Owned { numbers: Some(numbers), group: group.map(|group| group.name.clone()), ..owned }
    }
}

/// What a message says of a value that may be of any length.
pub(super) fn shortened(value: &str) -> String {
    match value.char_indices().nth(60) {
        Some((end, _)) => format!("{}..", &value[..end]),
        None => value.to_owned(),
    }
}
