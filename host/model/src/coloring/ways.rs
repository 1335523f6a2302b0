//! Ways out: what can be written instead so that everybody has cells. A way is only told if the file is better for it, which is tried.

use super::{
    assign::Work,
    auto::with_tables,
    numbers,
    party::{Owned, Part, Party},
};
use crate::diagnostics::Code;
use crate::fault::Fault;
use crate::fault::Faults;
use std::{collections::BTreeSet, mem, ops::Range};
use weir_units::Bytes;

/// Ways that a message tells at most.
const TOLD: usize = 3;
/// Changes that are tried for all faults of a file together; of those beyond the first few are told as they are.
const TRIED: usize = 400;

/// What to write instead, and where.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Edit(Vec<Change>);

#[derive(Clone, PartialEq, Eq)]
struct Change {
    /// Whose key, by their places among the parties: several share it by a group.
    who: Vec<usize>,
    part: Part,
    to: To,
}

#[derive(Clone, PartialEq, Eq)]
enum To {
    /// These numbers.
    Numbers(BTreeSet<u16>),
    /// These numbers, which they share by a group of the file's, still to be written.
    Shared(BTreeSet<u16>),
    /// A group by its name, which has these numbers.
    Group(String, BTreeSet<u16>),
    /// The key is left out.
    Nothing,
    /// So much RAM, whatever the part.
    Ram(Bytes),
    /// A working set of so much, whatever the part.
    WorkingSet(Bytes),
}

impl Edit {
    /// That `part` of party number `who` is left out.
    pub fn nothing(who: usize, part: Part) -> Self {
        Self(vec![Change { who: vec![who], part, to: To::Nothing }])
    }

    /// That party number `who` has so much RAM.
    pub fn ram(who: usize, part: Part, ram: Bytes) -> Self {
        Self(vec![Change { who: vec![who], part, to: To::Ram(ram) }])
    }

    /// That party number `who` has so large a working set.
    pub fn working_set(who: usize, part: Part, set: Bytes) -> Self {
        Self(vec![Change { who: vec![who], part, to: To::WorkingSet(set) }])
    }

    /// Whether it asks for less, be it memory or a working set.
    fn is_smaller(&self) -> bool {
        self.0.iter().any(|change| matches!(change.to, To::Ram(_) | To::WorkingSet(_)))
    }

    /// That party number `who` alone has `numbers`, and shares them with nobody.
    pub fn own(who: usize, part: Part, numbers: BTreeSet<u16>) -> Self {
        Self(vec![Change { who: vec![who], part, to: To::Numbers(numbers) }])
    }

    /// That these parties have `numbers` together, as members of a new group.
    pub fn share(who: [usize; 2], part: Part, numbers: BTreeSet<u16>) -> Self {
        Self(vec![Change { who: who.to_vec(), part, to: To::Shared(numbers) }])
    }

    /// That party number `who` takes what `member` has by the same group's name, if it does.
    pub fn join(parties: &[Party], who: usize, member: usize, part: Part) -> Option<Self> {
        let owned = parties.get(member)?.part(part);
        let to = To::Group(owned.group.clone()?, owned.numbers.clone()?);
        Some(Self(vec![Change { who: vec![who], part, to }]))
    }

    /// That party number `who` has `numbers` of `part`, and those with whom it shares a group, too. None if there are none.
    pub fn write(
        parties: &[Party],
        who: usize,
        part: Part,
        numbers: BTreeSet<u16>,
    ) -> Option<Self> {
        if numbers.is_empty() {
            return None;
        }
        let group = parties.get(who)?.part(part).group.as_ref();
        let member = |&other: &usize| {
            other == who || group.is_some() && parties[other].part(part).group.as_ref() == group
        };
        let who: Vec<usize> = (0..parties.len()).filter(member).collect();
        Some(Self(vec![Change { who, part, to: To::Numbers(numbers) }]))
    }

    /// That two parties get numbers of their own.
    pub fn apart(part: Part, each: [(usize, BTreeSet<u16>); 2]) -> Self {
        let change = |(who, numbers)| Change { who: vec![who], part, to: To::Numbers(numbers) };
        Self(each.map(change).into())
    }

    /// Whether a key is left out.
    pub fn leaves_out(&self) -> bool {
        self.0.iter().any(|change| change.to == To::Nothing)
    }

    fn applied(&self, wished: &[Party]) -> Vec<Party> {
        let mut parties = wished.to_vec();
        for Change { who, part, to } in &self.0 {
            for &index in who {
                let Some(party) = parties.get_mut(index) else { continue };
                let owned = party.part_mut(*part);
                let span = owned.span.clone();
                let (numbers, group) = match to {
                    To::Numbers(numbers) if who.len() == 1 => (Some(numbers.clone()), None),
                    To::Numbers(numbers) | To::Shared(numbers) => {
                        (Some(numbers.clone()), Some(String::new()))
                    }
                    To::Group(name, numbers) => (Some(numbers.clone()), Some(name.clone())),
                    To::Nothing => (None, None),
                    To::Ram(ram) => {
                        let image = party.memory.saturating_sub(with_tables(party.ram.0));
                        party.memory = with_tables(ram.0) + image;
                        party.ram = *ram;
                        continue;
                    }
                    To::WorkingSet(set) => {
                        party.working_set = Some(*set);
                        continue;
                    }
                };
                *owned = Owned { numbers, group, auto: false, span };
            }
        }
        parties
    }
}

/// A fault and what may mend it.
pub(super) struct Refusal {
    fault: Fault,
    /// What else there is to know.
    why: String,
    /// Changes that may mend it, the best first.
    edits: Vec<Edit>,
    /// Ways that can't be tried.
    rest: Vec<String>,
}

impl Refusal {
    /// With changes that may mend it, the best first.
    pub fn new(fault: Fault, edits: impl IntoIterator<Item = Edit>) -> Self {
        Self { fault, why: String::new(), edits: edits.into_iter().collect(), rest: Vec::new() }
    }

    /// Says something before the ways.
    pub fn why(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), ..self }
    }

    /// Adds a way that can't be tried.
    pub fn rest(mut self, way: impl Into<String>) -> Self {
        self.rest.push(way.into());
        self
    }
}

/// A refusal whose fault has been told, but not yet how to mend it.
pub(super) struct Open {
    /// The fault's place among all.
    index: usize,
    why: String,
    edits: Vec<Edit>,
    rest: Vec<String>,
}

/// What a fault is known by when something else has changed.
type Known = (Code, Range<usize>);

fn known(fault: &Fault) -> Known {
    (fault.code, fault.span())
}

/// Whether `left` is some of `before` and less.
fn is_less(left: &[Known], before: &[Known]) -> bool {
    let mut before = before.to_vec();
    let count = before.len();
    for fault in left {
        let Some(place) = before.iter().position(|known| known == fault) else { return false };
        before.swap_remove(place);
    }
    left.len() < count
}

impl Work<'_> {
    /// Tells a fault. How to mend it is found out when all are known.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        let Refusal { fault, why, edits, rest } = refusal;
        self.open.push(Open { index: self.faults.0.len(), why, edits, rest });
        self.faults.push(fault);
    }

    /// Gives the faults from number `first` on their ways out. `wished` is what the file asks for.
    pub(super) fn mend(&mut self, wished: &[Party], first: usize) {
        let open = mem::take(&mut self.open);
        let before: Vec<Known> = self.faults.0.iter().skip(first).map(known).collect();
        let mut tried = 0;
        for Open { index, why, mut edits, rest } in open {
            let Some(this) = self.faults.0.get(index).map(known) else { continue };
            let mut seen: Vec<Edit> = Vec::new();
            edits.retain(|edit| {
                !seen.contains(edit) && {
                    seen.push(edit.clone());
                    true
                }
            });
            let (mut good, mut next) = (Vec::new(), Vec::new());
            for edit in edits {
                if good.len() == TOLD {
                    break;
                }
                tried += 1;
                if tried > TRIED {
                    break;
                }
                let parties = edit.applied(wished);
                let (left, open) = self.left(&parties);
                if is_less(&left, &before) {
                    good.push((left.len(), edit));
                } else if good.is_empty()
                    && next.len() < TOLD
                    && left.len() <= before.len()
                    && !left.contains(&this)
                    && self.go_on(&parties, &left, open, &mut tried)
                {
                    next.push((left.len(), edit));
                }
            }
            // What only leads to another fault is told if nothing else does better.
            let mut ways = if good.is_empty() { next } else { good };
            ways.sort_by_key(|(left, _)| *left);
            let why = if ways.is_empty() {
                // Undivided RAM is no larger.
                if !self.is_too_small(wished) {
                    ways.extend(self.without(wished, &before));
                }
                if why.is_empty() {
                    self.sizes(wished)
                } else {
                    format!("{}; {why}", self.sizes(wished))
                }
            } else {
                why
            };
            // An amount that was tried says more than that it must be less.
            let rest =
                if ways.iter().any(|(_, edit)| edit.is_smaller()) { Vec::new() } else { rest };
            let ways = ways.iter().map(|(_, edit)| self.words(wished, edit));
            let mut ways: Vec<String> = ways.chain(rest).collect();
            if ways.is_empty() {
                ways.push("ask for less: leave `colors` or `banks` out of some".to_owned());
            }
            let help = [why, ways.join(", or ")].into_iter().filter(|text| !text.is_empty());
            let help = help.collect::<Vec<_>>().join("; ");
            if let Some(fault) = self.faults.0.get_mut(index) {
                *fault = fault.clone().help(help);
            }
        }
    }

    /// Whether each of the faults `left` has a way to fewer of them. A way that only leads to other faults must lead on, or who follows
    /// what each file is told would go round in a circle. Nor is it a way to lack room then, and to be told to have less.
    fn go_on(&self, parties: &[Party], left: &[Known], open: Vec<Open>, tried: &mut usize) -> bool {
        open.len() == left.len()
            && open.into_iter().all(|Open { edits, .. }| {
                edits.iter().filter(|edit| !edit.is_smaller()).any(|edit| {
                    *tried += 1;
                    *tried <= TRIED && is_less(&self.left(&edit.applied(parties)).0, left)
                })
            })
    }

    /// The first that leaves fewer faults than `before`: colors, banks or both left out of all.
    fn without(&self, parties: &[Party], before: &[Known]) -> Option<(usize, Edit)> {
        let of = |part: Part| {
            let names = |&who: &usize| {
                let owned = parties[who].part(part);
                owned.auto || owned.numbers.is_some()
            };
            let change = |who| Change { who: vec![who], part, to: To::Nothing };
            (0..parties.len()).filter(names).map(change).collect::<Vec<_>>()
        };
        let [colors, banks] = Part::ALL.map(of);
        let both = [colors.clone(), banks.clone()].concat();
        [colors, banks, both].into_iter().map(Edit).find_map(|edit| {
            let (left, _) = self.left(&edit.applied(parties));
            is_less(&left, before).then_some((left.len(), edit))
        })
    }

    /// The RAM that can be given out.
    pub(super) fn ram(&self) -> u64 {
        self.pools.iter().map(|pool| pool.end - pool.start).sum()
    }

    /// Whether all need more RAM than there is, however it is divided.
    fn is_too_small(&self, parties: &[Party]) -> bool {
        parties.iter().map(|party| party.memory).sum::<u64>() > self.ram()
    }

    /// How many numbers the memory of each takes, for a file that no change of one key makes better.
    fn sizes(&self, parties: &[Party]) -> String {
        let ram = self.ram();
        if self.is_too_small(parties) {
            let all = parties.iter().map(|party| party.memory).sum::<u64>();
            return format!(
                "the RAM is too small: {} has {} beside the image as it is loaded, and all need about {} with their tables and pristine images",
                self.platform.name,
                Bytes(ram),
                Bytes(all.next_multiple_of(1 << 20))
            );
        }
        let needs = |part: Part| {
            let count = part.count(&self.cells);
            let each = |party: &Party| {
                let need = party
                    .memory
                    .div_ceil(self.reach(party.part(part.other()).numbers.as_ref(), part, ram))
                    .max(1);
                if need > u64::from(count) {
                    return format!("{} more than there are", party.name);
                }
                format!("{} {need}", party.name)
            };
            let all: Vec<String> = parties.iter().take(1 + self.demands.len()).map(each).collect();
            format!("of {count} {} the memory needs at least: {}", part.many(), all.join(", "))
        };
        let named = |part: &Part| parties.iter().any(|party| party.part(*part).numbers.is_some());
        let parts: Vec<String> = Part::ALL.into_iter().filter(named).map(needs).collect();
        ["no change of one key is enough".to_owned()]
            .into_iter()
            .chain(parts)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// The faults that are left with these parties, and what may mend them.
    fn left(&self, parties: &[Party]) -> (Vec<Known>, Vec<Open>) {
        let mut parties = parties.to_vec();
        let mut faults = Faults::default();
        let mut work = Work {
            file: self.file,
            faults: &mut faults,
            platform: self.platform,
            pools: self.pools.clone(),
            cells: self.cells,
            groups: Vec::new(),
            open: Vec::new(),
            demands: self.demands,
        };
        let asks = |party: &Party| {
            let asks = |part: Part| party.part(part).auto || party.part(part).numbers.is_some();
            Part::ALL.into_iter().any(asks)
        };
        let vms = 1 + self.demands.len();
        let divided = parties.iter().take(vms).any(asks);
        work.settle(&mut parties, divided);
        let open = mem::take(&mut work.open);
        (faults.0.iter().map(known).collect(), open)
    }

    /// A change in words.
    fn words(&self, parties: &[Party], edit: &Edit) -> String {
        let change = |Change { who, part, to }: &Change| {
            let names: Vec<&str> = who.iter().map(|&who| parties[who].name.as_str()).collect();
            let names = names.join(" and ");
            let many = part.many();
            let quoted = |numbers: &BTreeSet<u16>| numbers::text(numbers.iter().copied());
            match to {
                To::Nothing => format!("leave `{many}` out of {names}"),
                To::Ram(ram) => format!("give {ram} of memory or less to {names}"),
                To::WorkingSet(set) => format!("give a `working_set` of {set} or less to {names}"),
                To::Group(name, _) => format!("write {many} = \"{name}\" for {names}"),
                To::Shared(numbers) => format!(
                    "let {names} have {many} \"{}\" by the name of one [[group]]",
                    quoted(numbers)
                ),
                To::Numbers(numbers) => {
                    let group = who.first().and_then(|&who| parties[who].part(*part).group.clone());
                    let platforms = &self.platform.places.groups;
                    let numbers = quoted(numbers);
                    match group.filter(|_| who.len() > 1) {
                        Some(name) if platforms.iter().all(|theirs| theirs.name != name) => {
                            format!("write {many} = \"{numbers}\" for the [[group]] {name}")
                        }
                        Some(_) => format!(
                            "let {names} have {many} \"{numbers}\" by the name of one [[group]]"
                        ),
                        None => format!("write {many} = \"{numbers}\" for {names}"),
                    }
                }
            }
        };
        edit.0.iter().map(change).collect::<Vec<_>>().join(" and ")
    }
}
