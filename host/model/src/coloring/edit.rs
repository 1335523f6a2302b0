//! Changes of one key that may resolve a diagnostic about colors or banks.

use super::numbers;
use super::owner::{Owned, Owner, Part, with_tables};
use crate::fault::Fault;
use std::collections::BTreeSet;
use weir_units::Bytes;

/// A change of one key of an owner.
#[derive(Clone)]
pub(super) struct Edit {
    /// The owner, by its index.
    index: usize,
    to: To,
}

#[derive(Clone)]
enum To {
    /// These numbers, owned.
    Numbers(Part, BTreeSet<u16>),
    /// The key is left out.
    Nothing(Part),
    /// So much RAM.
    Ram(Bytes),
    /// A working set of this size.
    WorkingSet(Bytes),
}

impl Edit {
    /// Returns the change that gives an owner `numbers` of its own. None if `numbers` is empty.
    pub fn numbers(index: usize, part: Part, numbers: BTreeSet<u16>) -> Option<Self> {
        (!numbers.is_empty()).then_some(Self { index, to: To::Numbers(part, numbers) })
    }

    /// Returns the change that leaves a key out.
    pub const fn nothing(index: usize, part: Part) -> Self {
        Self { index, to: To::Nothing(part) }
    }

    /// Returns the change that leaves out a key of one of `parts`: that of owner number `index` if
    /// it has one, else that of the owner with the most numbers.
    pub fn leave_out(owners: &[Owner], index: usize, parts: &[Part]) -> Option<Self> {
        let keys = parts.iter().flat_map(|&part| {
            let count = move |owner: &Owner| {
                let Owned { numbers, auto, .. } = owner.part(part);
                let count = numbers.as_ref().map(BTreeSet::len);
                count.or(auto.then_some(0))
            };
            let counts = owners.iter().enumerate();
            counts.filter_map(move |(index, owner)| Some((index, part, count(owner)?)))
        });
        let best = keys.max_by_key(|&(other, _, count)| (other == index, count));
        best.map(|(index, part, _)| Self::nothing(index, part))
    }

    /// Returns the change to `ram` bytes of RAM. None if these are none, or no less than it has.
    pub fn ram(index: usize, owner: &Owner, ram: u64) -> Option<Self> {
        (ram > 0 && ram < owner.ram.0).then_some(Self { index, to: To::Ram(Bytes(ram)) })
    }

    /// Returns the change of the working set.
    pub const fn working_set(index: usize, set: Bytes) -> Self {
        Self { index, to: To::WorkingSet(set) }
    }

    /// Returns the owners after the change.
    pub fn applied(&self, owners: &[Owner]) -> Vec<Owner> {
        let mut owners = owners.to_vec();
        let Some(owner) = owners.get_mut(self.index) else { return owners };
        match &self.to {
            To::Numbers(part, numbers) => {
                let span = owner.part(*part).span.clone();
                let numbers = Some(numbers.clone());
                *owner.part_mut(*part) = Owned { numbers, span, ..Owned::default() };
            }
            To::Nothing(part) => {
                let span = owner.part(*part).span.clone();
                *owner.part_mut(*part) = Owned { span, ..Owned::default() };
            }
            To::Ram(ram) => {
                let image = owner.memory.saturating_sub(with_tables(owner.ram.0));
                owner.memory = with_tables(ram.0) + image;
                owner.ram = *ram;
            }
            To::WorkingSet(set) => owner.working_set = Some(*set),
        }
        owners
    }

    /// Returns the change in words.
    pub fn words(&self, owners: &[Owner]) -> String {
        let name = owners.get(self.index).map_or("?", |owner| &owner.name);
        match &self.to {
            To::Numbers(part, numbers) => {
                let numbers = numbers::text(numbers.iter().copied());
                format!("write {} = \"{numbers}\" for {name}", part.many())
            }
            To::Nothing(part) => format!("leave `{}` out of {name}", part.many()),
            To::Ram(ram) => format!("give {ram} of memory or less to {name}"),
            To::WorkingSet(set) => format!("give a `working_set` of {set} or less to {name}"),
        }
    }
}

/// A diagnostic, its cause, and changes that may resolve it, the best first. The last one always
/// does: it leaves a key out.
pub(super) struct Refusal {
    pub fault: Fault,
    pub cause: String,
    pub edits: Vec<Edit>,
}

impl Refusal {
    /// Returns a refusal without a cause.
    pub fn new(fault: Fault, edits: impl IntoIterator<Item = Edit>) -> Self {
        Self { fault, cause: String::new(), edits: edits.into_iter().collect() }
    }

    /// Sets the cause, which precedes the suggestion.
    pub fn cause(self, cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), ..self }
    }
}

/// A reported diagnostic without a suggestion so far.
pub(super) struct Open {
    /// The place of the diagnostic among all.
    pub index: usize,
    pub cause: String,
    pub edits: Vec<Edit>,
}
