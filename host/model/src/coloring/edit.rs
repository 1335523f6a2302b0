//! Changes to a file that may resolve a diagnostic about colors or banks.

use super::owner::{Owned, Owner, Part, with_tables};
use crate::fault::Fault;
use std::collections::BTreeSet;
use weir_units::Bytes;

/// What to write instead, and where.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Edit(pub Vec<Change>);

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The owners of the key, by their indices: several share it by a group.
    pub who: Vec<usize>,
    pub part: Part,
    pub to: To,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum To {
    /// These numbers.
    Numbers(BTreeSet<u16>),
    /// These numbers, which they share by a group of the file's, still to be written.
    Shared(BTreeSet<u16>),
    /// A group by its name, which has these numbers.
    Group(String, BTreeSet<u16>),
    /// The key is left out.
    Nothing,
    /// So much RAM; the part has no meaning.
    Ram(Bytes),
    /// A working set of this size; the part has no meaning.
    WorkingSet(Bytes),
}

impl Edit {
    /// That `part` of owner number `who` is left out.
    pub fn nothing(who: usize, part: Part) -> Self {
        Self(vec![Change { who: vec![who], part, to: To::Nothing }])
    }

    /// That owner number `who` has so much RAM.
    pub fn ram(who: usize, part: Part, ram: Bytes) -> Self {
        Self(vec![Change { who: vec![who], part, to: To::Ram(ram) }])
    }

    /// That owner number `who` has so large a working set.
    pub fn working_set(who: usize, part: Part, set: Bytes) -> Self {
        Self(vec![Change { who: vec![who], part, to: To::WorkingSet(set) }])
    }

    /// Whether it asks for less, be it memory or a working set.
    pub fn is_smaller(&self) -> bool {
        self.0.iter().any(|change| matches!(change.to, To::Ram(_) | To::WorkingSet(_)))
    }

    /// That owner number `who` alone has `numbers`, and shares them with no other.
    pub fn own(who: usize, part: Part, numbers: BTreeSet<u16>) -> Self {
        Self(vec![Change { who: vec![who], part, to: To::Numbers(numbers) }])
    }

    /// That these owners have `numbers` together, as members of a new group.
    pub fn share(who: [usize; 2], part: Part, numbers: BTreeSet<u16>) -> Self {
        Self(vec![Change { who: who.to_vec(), part, to: To::Shared(numbers) }])
    }

    /// That owner number `who` takes what `member` has by the same group's name, if it does.
    pub fn join(owners: &[Owner], who: usize, member: usize, part: Part) -> Option<Self> {
        let owned = owners.get(member)?.part(part);
        let to = To::Group(owned.group.clone()?, owned.numbers.clone()?);
        Some(Self(vec![Change { who: vec![who], part, to }]))
    }

    /// That owner number `who` has `numbers` of `part`, and so do the other owners in its group.
    /// None if `numbers` is empty.
    pub fn write(owners: &[Owner], who: usize, part: Part, numbers: BTreeSet<u16>) -> Option<Self> {
        if numbers.is_empty() {
            return None;
        }
        let group = owners.get(who)?.part(part).group.as_ref();
        let member = |&other: &usize| {
            other == who || group.is_some() && owners[other].part(part).group.as_ref() == group
        };
        let who: Vec<usize> = (0..owners.len()).filter(member).collect();
        Some(Self(vec![Change { who, part, to: To::Numbers(numbers) }]))
    }

    /// That two owners get numbers of their own.
    pub fn apart(part: Part, each: [(usize, BTreeSet<u16>); 2]) -> Self {
        let change = |(who, numbers)| Change { who: vec![who], part, to: To::Numbers(numbers) };
        Self(each.map(change).into())
    }

    /// Whether a key is left out.
    pub fn leaves_out(&self) -> bool {
        self.0.iter().any(|change| change.to == To::Nothing)
    }

    pub fn applied(&self, requested: &[Owner]) -> Vec<Owner> {
        let mut owners = requested.to_vec();
        for Change { who, part, to } in &self.0 {
            for &index in who {
                let Some(owner) = owners.get_mut(index) else { continue };
                let assigned = owner.part_mut(*part);
                let span = assigned.span.clone();
                let (numbers, group) = match to {
                    To::Numbers(numbers) if who.len() == 1 => (Some(numbers.clone()), None),
                    To::Numbers(numbers) | To::Shared(numbers) => {
                        (Some(numbers.clone()), Some(String::new()))
                    }
                    To::Group(name, numbers) => (Some(numbers.clone()), Some(name.clone())),
                    To::Nothing => (None, None),
                    To::Ram(ram) => {
                        let image = owner.memory.saturating_sub(with_tables(owner.ram.0));
                        owner.memory = with_tables(ram.0) + image;
                        owner.ram = *ram;
                        continue;
                    }
                    To::WorkingSet(set) => {
                        owner.working_set = Some(*set);
                        continue;
                    }
                };
                *assigned = Owned { numbers, group, auto: false, span };
            }
        }
        owners
    }
}

/// A diagnostic and the changes that may resolve it.
pub(super) struct Refusal {
    pub fault: Fault,
    /// The cause.
    pub cause: String,
    /// Changes that may resolve it, the best first.
    pub edits: Vec<Edit>,
    /// Suggestions that cannot be tried.
    pub rest: Vec<String>,
}

impl Refusal {
    /// Returns a refusal with changes that may resolve it, the best first.
    pub fn new(fault: Fault, edits: impl IntoIterator<Item = Edit>) -> Self {
        Self { fault, cause: String::new(), edits: edits.into_iter().collect(), rest: Vec::new() }
    }

    /// Sets the cause, which precedes the suggestions.
    pub fn cause(self, cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), ..self }
    }

    /// Adds a suggestion that cannot be tried.
    pub fn rest(mut self, suggestion: impl Into<String>) -> Self {
        self.rest.push(suggestion.into());
        self
    }
}

/// A refusal of a reported diagnostic without suggestions so far.
pub(super) struct Open {
    /// The fault's place among all.
    pub index: usize,
    pub cause: String,
    pub edits: Vec<Edit>,
    pub rest: Vec<String>,
}
