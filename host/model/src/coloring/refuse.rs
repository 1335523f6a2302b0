//! Diagnostics of requests for page classes: the owners of the numbers, and the keys that can
//! release them.

use super::edit::{Edit, Refusal};
use super::numbers;
use super::owner::{Owner, Part, with_tables, without_tables};
use super::work::Work;
use crate::diagnostics::Code;
use crate::fault::Fault;
use std::{collections::BTreeSet, ops::Range};
use weir_abi::PAGE;
use weir_paging::classes::{ClassSet, PageClass, Pages};
use weir_units::Bytes;

/// Owners of the same numbers.
struct Claim {
    /// `a`, or `a and b`.
    names: String,
    /// Which of the numbers that were asked about.
    numbers: BTreeSet<u16>,
    /// Their key.
    span: Range<usize>,
    /// How many they are.
    count: usize,
}

impl Claim {
    /// `a has 0-3`, `a and b share 0-3`.
    fn text(&self) -> String {
        let verb = if self.count == 1 { "has" } else { "share" };
        format!("{} {verb} {}", self.names, numbers::text(self.numbers.iter().copied()))
    }
}

/// The owners of some of `wanted` of a part, in the order of the file, without owner number
/// `except`.
fn claims(owners: &[Owner], except: usize, part: Part, wanted: impl Fn(u16) -> bool) -> Vec<Claim> {
    let mut found: Vec<Claim> = Vec::new();
    for (index, owner) in owners.iter().enumerate().filter(|(index, _)| *index != except) {
        let owned = owner.part(part);
        let numbers = owned.numbers.iter().flatten().copied();
        let numbers: BTreeSet<u16> = numbers.filter(|&number| wanted(number)).collect();
        // Before overlaps are refused only the members of a group have the same.
        let same = owners[..index].iter().enumerate().any(|(other, earlier)| {
            other != except && owned.group.is_some() && earlier.part(part).group == owned.group
        });
        let known = found.iter_mut().find(|known| same && known.numbers == numbers);
        match known {
            Some(known) => {
                known.names = format!("{} and {}", known.names, owner.name);
                known.count += 1;
            }
            None if !numbers.is_empty() => {
                let span = owned.span.clone();
                found.push(Claim { names: owner.name.clone(), numbers, span, count: 1 });
            }
            None => {}
        }
    }
    found
}

fn texts(claims: &[Claim]) -> String {
    claims.iter().map(Claim::text).collect::<Vec<_>>().join(", ")
}

impl Part {
    /// `color 3`, `colors 0-3`.
    pub fn with(self, numbers: &BTreeSet<u16>) -> String {
        let word = if numbers.len() == 1 { self.one() } else { self.many() };
        format!("{word} {}", numbers::text(numbers.iter().copied()))
    }

    /// `1 color`, `3 colors`.
    fn count_of(self, count: u64) -> String {
        format!("{count} {}", if count == 1 { self.one() } else { self.many() })
    }

    pub const fn other(self) -> Self {
        match self {
            Self::Colors => Self::Banks,
            Self::Banks => Self::Colors,
        }
    }
}

impl Work<'_> {
    /// The numbers of `part` in the page classes that `wanted` holds of.
    pub(super) fn numbers_where(
        &self,
        part: Part,
        wanted: impl Fn(PageClass) -> bool,
    ) -> BTreeSet<u16> {
        let of = self.classes.iter().filter(|&class| wanted(class));
        of.map(|class| part.of(&self.classes, class)).collect()
    }

    /// The numbers of `part` that go with those of the other part.
    pub(super) fn compatible(&self, part: Part, others: &BTreeSet<u16>) -> BTreeSet<u16> {
        self.numbers_where(part, |class| others.contains(&part.other().of(&self.classes, class)))
    }

    fn marked(&self, code: Code, span: &Range<usize>, message: String, claims: &[Claim]) -> Fault {
        // An owner without a table in the file is marked at the others.
        let (span, label, rest) = match claims {
            [first, rest @ ..] if span.is_empty() => (&first.span, first.text(), rest),
            all => (span, "this".to_owned(), all),
        };
        let fault = self.fault(code, span, message).label(label);
        rest.iter().fold(fault, |fault, claim| fault.and(claim.span.clone(), claim.text()))
    }

    /// Changes that take `count` of `numbers`, the highest, from one other owner each, which keeps
    /// some.
    fn given_up(
        owners: &[Owner],
        index: usize,
        part: Part,
        (numbers, count): (&BTreeSet<u16>, usize),
    ) -> Vec<Edit> {
        let others = owners.iter().enumerate().filter(|(other, _)| *other != index);
        let less = others.filter_map(|(other, owner)| {
            let own = owner.part(part).numbers.as_ref().filter(|own| !own.is_disjoint(numbers))?;
            let lost = own.iter().rev().filter(|number| numbers.contains(number));
            let lost = lost.take(count).copied().collect();
            Edit::numbers(other, part, own.difference(&lost).copied().collect())
        });
        less.collect()
    }

    /// That an owner needs numbers without an owner, but all have one.
    fn none_left(&self, owners: &[Owner], index: usize, part: Part) -> Refusal {
        let owner = &owners[index];
        let claims = claims(owners, index, part, |_| true);
        let (name, one) = (&owner.name, part.one());
        let message = format!("{name}: no {one} is left: {}", texts(&claims));
        let all: BTreeSet<u16> = (0..part.count(&self.classes)).collect();
        let mut edits = Self::given_up(owners, index, part, (&all, 1));
        edits.extend(Edit::leave_out(owners, index, &[part]));
        let fault = self.marked(Code::PageClassNoneLeft, &owner.span, message, &claims);
        Refusal::new(fault, edits)
            .cause(format!("{name} has the numbers that no key takes, at least one {one}"))
    }

    /// Why an owner that may have these colors and banks has no page class. `None` if it has some.
    pub(super) fn no_class(
        &self,
        owners: &[Owner],
        index: usize,
        (colors, banks): (&BTreeSet<u16>, &BTreeSet<u16>),
    ) -> Option<Refusal> {
        let owner = &owners[index];
        for (part, may) in [(Part::Colors, colors), (Part::Banks, banks)] {
            if may.is_empty() {
                return Some(self.none_left(owners, index, part));
            }
        }
        let compatible = self.compatible(Part::Banks, colors);
        if !compatible.is_disjoint(banks) || Part::ALL.into_iter().any(|part| owner.names(part)) {
            return None;
        }
        let all: Vec<Claim> =
            Part::ALL.into_iter().flat_map(|part| claims(owners, index, part, |_| true)).collect();
        let message = format!(
            "{}: no page is left: it may have {}, which {} in {} on {}, and {}",
            owner.name,
            Part::Colors.with(colors),
            if colors.len() == 1 { "lies" } else { "lie" },
            Part::Banks.with(&compatible),
            self.platform,
            Part::Banks.with(banks),
        );
        let others = self.compatible(Part::Colors, banks);
        let mut edits = Self::given_up(owners, index, Part::Banks, (&compatible, 1));
        edits.extend(Self::given_up(owners, index, Part::Colors, (&others, 1)));
        edits.extend(Edit::leave_out(owners, index, &Part::ALL));
        let fault = self.marked(Code::PageClassNoneLeft, &owner.span, message, &all);
        Some(Refusal::new(fault, edits).cause(SAME_BITS))
    }

    /// That a request can't be had, since on this board the colors and banks are not independent.
    /// `missing` are numbers of `part` that lie in none of the other part's numbers that the owner
    /// may have, `allowed`.
    pub(super) fn cannot_have(
        &self,
        owners: &[Owner],
        index: usize,
        part: Part,
        missing: &BTreeSet<u16>,
        allowed: &BTreeSet<u16>,
    ) -> Refusal {
        let owner = &owners[index];
        let other = part.other();
        let board = self.platform;
        let place = self.compatible(other, missing);
        let lost = part.with(missing);
        let span = &owner.part(part).span;
        let lie = if missing.len() == 1 { "it lies" } else { "they lie" };
        let lie = format!("on {board} {lie} in {} only", other.with(&place));
        let own = owner.part(part).numbers.clone().unwrap_or_default();
        let with = self.compatible(part, allowed);
        let taken = claimed_numbers(owners, index, part);
        let possible: Vec<u16> =
            with.difference(&taken).copied().filter(|number| !own.contains(number)).collect();
        let kept: BTreeSet<u16> = own.difference(missing).copied().collect();
        let moved = kept.iter().copied().chain(possible.iter().copied().take(missing.len()));
        let mut edits: Vec<Edit> =
            Edit::numbers(index, part, moved.collect()).into_iter().collect();
        let fallback = Edit::numbers(index, part, kept.clone())
            .into_iter()
            .chain([Edit::nothing(index, part)]);
        if owner.names(other) {
            // Both keys are its own: the owner of those banks, or colors, is not the cause.
            let message =
                format!("{}: cannot have {lost} with {}: {lie}", owner.name, other.with(allowed));
            edits.extend(Edit::numbers(index, other, self.compatible(other, &own)));
            edits.extend(fallback);
            let fault = self
                .marked(Code::PageClassImpossible, span, message, &[])
                .and(owner.part(other).span.clone(), format!("these {}", other.many()));
            return Refusal::new(fault, edits).cause(SAME_BITS);
        }
        let claims = claims(owners, index, other, |number| place.contains(&number));
        let message = format!("{}: cannot have {lost}: {lie}, and {}", owner.name, texts(&claims));
        edits.extend(Self::given_up(owners, index, other, (&place, place.len())));
        edits.extend(fallback);
        let fault = self.marked(Code::PageClassImpossible, span, message, &claims);
        Refusal::new(fault, edits).cause(SAME_BITS)
    }

    /// The refusal that `"auto"` finds too few numbers. Of `free` numbers `reserve` are for the
    /// owners that share, and the `choosers`, which have none yet, need so many each.
    pub(super) fn short(
        &self,
        owners: &[Owner],
        index: usize,
        part: Part,
        (free, reserve): (u64, u64),
        choosers: &[(usize, u64)],
    ) -> Refusal {
        let owner = &owners[index];
        let of = |wanted: usize| choosers.iter().find(|(index, _)| *index == wanted);
        let need = of(index).map_or(1, |(_, need)| *need);
        let others = choosers.iter().filter(|(other, _)| *other != index);
        let rest = others.clone().map(|(_, need)| need).sum::<u64>() + reserve;
        let claims = claims(owners, index, part, |_| true);
        let mut reasons: Vec<String> = claims.iter().map(Claim::text).collect();
        for (other, need) in others {
            reasons.push(format!("{} needs {need}", owners[*other].name));
        }
        if reserve > 0 {
            let shares = |owner: &&Owner| {
                let assigned = owner.part(part);
                assigned.numbers.is_none() && !(assigned.auto && owner.criticality > 0)
            };
            let together: Vec<_> =
                owners.iter().filter(shares).map(|owner| owner.name.as_str()).collect();
            let verb = if together.len() == 1 { "needs" } else { "share the rest and need" };
            reasons.push(format!("{} {verb} {reserve}", together.join(" and ")));
        }
        let left = free.saturating_sub(rest);
        let message = format!(
            "{}: needs {} of its own, and {} of {} {}: {}",
            owner.name,
            part.count_of(need),
            if left == 0 { "none".to_owned() } else { left.to_string() },
            part.count(&self.classes),
            if left == 1 || left == 0 { "is left" } else { "are left" },
            reasons.join(", ")
        );
        let all: BTreeSet<u16> = (0..part.count(&self.classes)).collect();
        let missing_count = (need + rest).saturating_sub(free) as usize;
        let mut edits = Self::given_up(owners, index, part, (&all, missing_count));
        edits.extend(self.amounts(owners, index, part, left));
        edits.push(Edit::nothing(index, part));
        let fault = self.marked(Code::PageClassTooFew, &owner.part(part).span, message, &claims);
        Refusal::new(fault, edits).cause(self.reason(owner, part))
    }

    /// That too few numbers go with what the owner may have of the other part: it needs `need`, and
    /// `left` remain after the needs of the others.
    pub(super) fn short_next_to(
        &self,
        owners: &[Owner],
        index: usize,
        part: Part,
        (need, left): (u64, u64),
    ) -> Refusal {
        let owner = &owners[index];
        let other = part.other();
        let own = owner.part(other).numbers.clone();
        let may = own.clone().unwrap_or_else(|| self.free(owners, other));
        let possible = self.compatible(part, &may);
        let mut claims = claims(owners, index, part, |number| possible.contains(&number));
        let taken = texts(&claims);
        let (place, shut) = if own.is_some() {
            (format!("its {}", other.with(&may)), BTreeSet::new())
        } else {
            let others = self::claims(owners, index, other, |_| true);
            let place = format!("{}, since {}", other.with(&may), texts(&others));
            claims.extend(others);
            (place, claimed_numbers(owners, index, other))
        };
        let message = format!(
            "{}: needs {} in {place}: on {} that can be {} only{}",
            owner.name,
            part.count_of(need),
            self.platform,
            part.with(&possible),
            if taken.is_empty() { taken } else { format!(", and {taken}") },
        );
        let free: BTreeSet<u16> =
            possible.difference(&claimed_numbers(owners, index, part)).copied().collect();
        let missing_count = need.saturating_sub(free.len() as u64) as usize;
        let mut edits = Self::given_up(owners, index, part, (&possible, missing_count));
        edits.extend(Self::given_up(owners, index, other, (&shut, 1)));
        edits.extend(self.amounts(owners, index, part, left));
        edits.push(Edit::nothing(index, part));
        let fault = self.marked(Code::PageClassTooFew, &owner.part(part).span, message, &claims);
        Refusal::new(fault, edits).cause(self.reason(owner, part))
    }

    /// Changes with which `left` numbers of a part are enough for an owner: less memory, a smaller
    /// working set.
    fn amounts(&self, owners: &[Owner], index: usize, part: Part, left: u64) -> Vec<Edit> {
        let owner = &owners[index];
        let others = self.others(owners, owner, part);
        let holds = self.reach(Some(&others), part, self.ram()) * left;
        let image = owner.memory.saturating_sub(with_tables(owner.ram.0));
        let less = Edit::ram(index, owner, without_tables(holds, image));
        let count = u64::from(part.count(&self.classes));
        let cache = self.places().cache.filter(|_| part == Part::Colors);
        let fills = cache.map_or(0, |cache| cache.size.0 / count * left);
        let smaller = fills > 0 && owner.working_set.is_some_and(|set| set.0 > fills);
        let smaller = smaller.then(|| Edit::working_set(index, Bytes(fills)));
        less.into_iter().chain(smaller).collect()
    }

    /// Whether its working set alone is more than the cache, however it is divided.
    fn never_fits(&self, owner: &Owner, part: Part) -> Option<(Bytes, Bytes)> {
        let cache = self.places().cache.filter(|_| part == Part::Colors)?;
        owner.working_set.filter(|set| *set > cache.size).map(|set| (set, cache.size))
    }

    /// Why an owner needs so many numbers of a part: what one is, or that its working set never
    /// fits.
    fn reason(&self, owner: &Owner, part: Part) -> String {
        self.never_fits(owner, part).map_or_else(
            || self.worth(owner, part),
            |(set, cache)| {
                format!("the `working_set` of {set} never fits: the whole cache has {cache}")
            },
        )
    }

    /// What a number of a part is, and what of it lies in what the file gives an owner of the other
    /// part.
    fn worth(&self, owner: &Owner, part: Part) -> String {
        let count = u64::from(part.count(&self.classes));
        let ram: u64 = self.platform.pools().iter().map(|pool| pool.end - pool.start).sum();
        let cache = self.places().cache.filter(|_| part == Part::Colors);
        let other = part.other();
        let own = owner.part(other).numbers.as_ref().filter(|_| owner.names(other));
        let own = own.map_or(String::new(), |own| {
            let each = Bytes(self.reach(Some(own), part, ram));
            format!("; in the {} of {} it is {each}", other.with(own), owner.name)
        });
        format!(
            "a {} is {} of RAM{}{own}",
            part.one(),
            Bytes(ram / count),
            cache.map_or(String::new(), |cache| {
                format!(" and {} of the cache", Bytes(cache.size.0 / count))
            }),
        )
    }

    /// Why the RAM of the VM that is owner number `index` does not fit into its page classes.
    /// `None` if it does; placement decides whether there is room. `sets` are the page classes of
    /// all.
    pub(super) fn too_large(
        &self,
        owners: &[Owner],
        index: usize,
        sets: &[ClassSet],
    ) -> Option<Refusal> {
        let set = sets.get(index)?;
        let pools = self.platform.pools();
        let reach = |pool: &Range<u64>| Pages::new(&self.classes, *set, pool.clone()).total();
        let reach = Bytes(pools.iter().map(reach).sum::<u64>() * PAGE);
        let demand = self.demands.get(index.checked_sub(1)?)?;
        let owner = owners.get(index)?;
        if owner.ram <= reach {
            return None;
        }
        let numbers = |part: Part| part.of_set(&self.classes, set);
        let has = |part: Part| part.with(&numbers(part));
        let message = format!(
            "{}: has {} of RAM, but its {} and {} hold {reach}",
            owner.name,
            owner.ram,
            has(Part::Colors),
            has(Part::Banks)
        );
        let mut edits = Vec::new();
        let mut marked = Vec::new();
        for part in Part::ALL {
            let free = self.free(owners, part);
            // Owners without numbers must keep one of the shared ones.
            let shared = owners.iter().any(|owner| owner.part(part).numbers.is_none());
            let most = free.len() - usize::from(shared && !free.is_empty());
            // As many more as the whole of it needs, its tables and pristine image too.
            let many = numbers(part).len() as u64;
            let more = (owner.memory * many).div_ceil(reach.0.max(1)).saturating_sub(many);
            let more = usize::try_from(more).unwrap_or(usize::MAX);
            if let Some(own) = &owner.part(part).numbers {
                let all = own.iter().chain(free.iter().take(more.min(most))).copied().collect();
                edits.extend(Edit::numbers(index, part, all));
            } else {
                let all = (0..part.count(&self.classes)).collect();
                edits.extend(Self::given_up(owners, index, part, (&all, more)));
                marked.extend(claims(owners, index, part, |_| true));
            }
        }
        edits.extend(self.fitting(owners, index, sets));
        edits.extend(Edit::leave_out(owners, index, &Part::ALL));
        let fault = self.marked(Code::PageClassTooSmall, &demand.span, message, &marked);
        Some(Refusal::new(fault, edits))
    }

    /// So much RAM of owner number `index` as its page classes hold in addition to its tables, its
    /// image and the memory of all others in any of them.
    fn fitting(&self, owners: &[Owner], index: usize, sets: &[ClassSet]) -> Option<Edit> {
        let (owner, set) = (owners.get(index)?, sets.get(index)?);
        let pages = |pool: &Range<u64>| Pages::new(&self.classes, *set, pool.clone()).total();
        let room = self.pools.iter().map(pages).sum::<u64>() * PAGE;
        let meets =
            |other: &ClassSet| self.classes.iter().any(|c| set.contains(c) && other.contains(c));
        let others = owners.iter().zip(sets).enumerate().filter(|(other, _)| *other != index);
        let compatible =
            others.filter(|(_, (_, its))| meets(its)).map(|(_, (other, _))| other.memory);
        let image = owner.memory.saturating_sub(with_tables(owner.ram.0));
        Edit::ram(index, owner, without_tables(room.saturating_sub(compatible.sum()), image))
    }
}

/// Why some colors and banks don't go together.
const SAME_BITS: &str = "the same address bits choose color and bank there";

/// What others than owner number `index` own.
fn claimed_numbers(owners: &[Owner], index: usize, part: Part) -> BTreeSet<u16> {
    claims(owners, index, part, |_| true).into_iter().flat_map(|claim| claim.numbers).collect()
}
