//! Diagnostics of requests for page classes: the owners of the numbers, and the keys that can
//! release them.

use super::owner::Owner;
use super::work::Work;
use crate::classes::numbers;
use crate::classes::part::Part;
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

    /// Returns the change that releases a number of the owner that has the most of `claims`.
    fn fewer(self, claims: &[Claim]) -> String {
        let many = self.many();
        match claims.iter().max_by_key(|claim| claim.numbers.len()) {
            Some(claim) if claim.numbers.len() > 1 => {
                format!("write fewer `{many}` for {}", claim.names)
            }
            Some(claim) => format!("leave `{many}` out of {}", claim.names),
            None => format!("write fewer `{many}` for the others"),
        }
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

    /// Returns the refusal of an owner that needs numbers without an owner, but all have one.
    fn none_left(&self, owners: &[Owner], index: usize, part: Part) -> Fault {
        let owner = &owners[index];
        let claims = claims(owners, index, part, |_| true);
        let (name, one) = (&owner.name, part.one());
        let message = format!("{name}: no {one} is left: {}", texts(&claims));
        let help = format!(
            "{name} has the numbers that no key takes, at least one {one}; {}",
            part.fewer(&claims)
        );
        self.marked(Code::PageClassNoneLeft, &owner.span, message, &claims).help(help)
    }

    /// Returns the refusal of an owner that may have these colors and banks, if it has no page
    /// class then.
    pub(super) fn no_class(
        &self,
        owners: &[Owner],
        index: usize,
        (colors, banks): (&BTreeSet<u16>, &BTreeSet<u16>),
    ) -> Option<Fault> {
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
        let banks = claims(owners, index, Part::Banks, |bank| compatible.contains(&bank));
        let help = format!("{SAME_BITS}; {}", Part::Banks.fewer(&banks));
        Some(self.marked(Code::PageClassNoneLeft, &owner.span, message, &all).help(help))
    }

    /// Returns the refusal of a request that no page class meets, since on this board the colors
    /// and banks are not independent.
    /// `missing` are numbers of `part` that lie in none of the other part's numbers that the owner
    /// may have, `allowed`.
    pub(super) fn cannot_have(
        &self,
        owners: &[Owner],
        index: usize,
        part: Part,
        missing: &BTreeSet<u16>,
        allowed: &BTreeSet<u16>,
    ) -> Fault {
        let owner = &owners[index];
        let other = part.other();
        let board = self.platform;
        let place = self.compatible(other, missing);
        let lost = part.with(missing);
        let span = &owner.part(part).span;
        let lie = if missing.len() == 1 { "it lies" } else { "they lie" };
        let lie = format!("on {board} {lie} in {} only", other.with(&place));
        let own = owner.part(part).numbers.clone().unwrap_or_default();
        let kept: BTreeSet<u16> = own.difference(missing).copied().collect();
        let help = if kept.is_empty() {
            format!("{SAME_BITS}; leave `{}` out of {}", part.many(), owner.name)
        } else {
            let kept = numbers::text(kept);
            format!("{SAME_BITS}; write {} = \"{kept}\" for {}", part.many(), owner.name)
        };
        if owner.names(other) {
            // Both keys are its own: the owner of those banks, or colors, is not the cause.
            let message =
                format!("{}: cannot have {lost} with {}: {lie}", owner.name, other.with(allowed));
            let fault = self.marked(Code::PageClassImpossible, span, message, &[]);
            let both = format!("these {}", other.many());
            return fault.and(owner.part(other).span.clone(), both).help(help);
        }
        let claims = claims(owners, index, other, |number| place.contains(&number));
        let message = format!("{}: cannot have {lost}: {lie}, and {}", owner.name, texts(&claims));
        self.marked(Code::PageClassImpossible, span, message, &claims).help(help)
    }

    /// Returns the refusal of an `"auto"` that finds too few numbers. Of `free` numbers `reserve` are for the
    /// owners that share, and the `choosers`, which have none yet, need so many each.
    pub(super) fn short(
        &self,
        owners: &[Owner],
        index: usize,
        part: Part,
        (free, reserve): (u64, u64),
        choosers: &[(usize, u64)],
    ) -> Fault {
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
        self.marked(Code::PageClassTooFew, &owner.part(part).span, message, &claims)
            .help(self.less(owner, part))
    }

    /// Returns the refusal of an owner that needs `need` numbers, of which too few go with what it
    /// may have of the other part.
    pub(super) fn short_next_to(
        &self,
        owners: &[Owner],
        index: usize,
        part: Part,
        need: u64,
    ) -> Fault {
        let owner = &owners[index];
        let other = part.other();
        let own = owner.part(other).numbers.clone();
        let may = own.clone().unwrap_or_else(|| self.free(owners, other));
        let possible = self.compatible(part, &may);
        let mut claims = claims(owners, index, part, |number| possible.contains(&number));
        let taken = texts(&claims);
        let place = if own.is_some() {
            format!("its {}", other.with(&may))
        } else {
            let others = self::claims(owners, index, other, |_| true);
            let place = format!("{}, since {}", other.with(&may), texts(&others));
            claims.extend(others);
            place
        };
        let message = format!(
            "{}: needs {} in {place}: on {} that can be {} only{}",
            owner.name,
            part.count_of(need),
            self.platform,
            part.with(&possible),
            if taken.is_empty() { taken } else { format!(", and {taken}") },
        );
        self.marked(Code::PageClassTooFew, &owner.part(part).span, message, &claims)
            .help(self.less(owner, part))
    }

    /// Returns the help for an owner that needs more numbers than it can have.
    fn less(&self, owner: &Owner, part: Part) -> String {
        let (name, many) = (&owner.name, part.many());
        if let Some((set, cache)) = self.never_fits(owner, part) {
            return format!(
                "the `working_set` of {set} never fits: the whole cache has {cache}; write a \
                 smaller one for {name}"
            );
        }
        let set = owner.working_set.filter(|_| part == Part::Colors);
        let what = set.map_or("less `memory`", |_| "less `memory` and a smaller `working_set`");
        let worth = self.worth(owner, part);
        format!("{worth}; write {what} for {name}, or leave its `{many}` out")
    }

    /// Returns the working set of an owner and the size of the cache, if the first is larger.
    fn never_fits(&self, owner: &Owner, part: Part) -> Option<(Bytes, Bytes)> {
        let cache = self.places().cache.filter(|_| part == Part::Colors)?;
        owner.working_set.filter(|set| *set > cache.size).map(|set| (set, cache.size))
    }

    /// Returns the size of one number of a part, and how much of it lies in what the file gives an
    /// owner of the other part.
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

    /// Returns the refusal of the VM that is owner number `index`, if its RAM does not fit into its
    /// page classes. Whether the pages are free, placement decides. `sets` are the page classes of
    /// all.
    pub(super) fn too_large(
        &self,
        owners: &[Owner],
        index: usize,
        sets: &[ClassSet],
    ) -> Option<Fault> {
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
        let mut marked = Vec::new();
        for part in Part::ALL.into_iter().filter(|&part| owner.part(part).numbers.is_none()) {
            marked.extend(claims(owners, index, part, |_| true));
        }
        let help =
            format!("give {reach} of memory or less to {}, or more page classes", owner.name);
        let fault = self.marked(Code::PageClassTooFew, &demand.span, message, &marked);
        Some(fault.help(help))
    }
}

/// Why some colors and banks don't go together.
const SAME_BITS: &str = "the same address bits choose color and bank there";
