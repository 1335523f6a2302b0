//! Why somebody can't have cells, in words: who holds what, and which key gives it back.

use super::{
    assign::{Demand, Work},
    numbers,
    party::{Part, Party},
};
use crate::{fault::Fault, packed::PAGE, units::Bytes};
use std::{collections::BTreeSet, ops::Range};
use weir_layout::cells::{Cell, CellSet, Pages};

/// Parties that own the same numbers.
struct Holder {
    /// `a`, or `a and b`.
    names: String,
    /// Which of the numbers that were asked about.
    numbers: BTreeSet<u16>,
    /// Their key.
    span: Range<usize>,
    /// How many they are.
    count: usize,
    /// The key is "auto".
    auto: bool,
}

impl Holder {
    /// `a has 0-3`, `a and b share 0-3`.
    fn text(&self) -> String {
        let verb = if self.count == 1 { "has" } else { "share" };
        format!("{} {verb} {}", self.names, numbers::text(self.numbers.iter().copied()))
    }
}

/// Who owns some of `wanted` of a part, in the order of the file; party number `except` aside.
fn holders(
    parties: &[Party],
    except: usize,
    part: Part,
    wanted: impl Fn(u16) -> bool,
) -> Vec<Holder> {
    let mut found: Vec<Holder> = Vec::new();
    for (index, party) in parties.iter().enumerate().filter(|(index, _)| *index != except) {
        let owned = party.part(part);
        let numbers = owned.numbers.iter().flatten().copied();
        let numbers: BTreeSet<u16> = numbers.filter(|&number| wanted(number)).collect();
        // Before overlaps are refused only the members of a group have the same.
        let same = parties[..index].iter().enumerate().any(|(other, earlier)| {
            other != except && owned.group.is_some() && earlier.part(part).group == owned.group
        });
        let known = found.iter_mut().find(|known| same && known.numbers == numbers);
        match known {
            Some(known) => {
                known.names = format!("{} and {}", known.names, party.name);
                known.count += 1;
            }
            None if !numbers.is_empty() => {
                let span = owned.span.clone();
                let (names, auto) = (party.name.clone(), owned.auto);
                found.push(Holder { names, numbers, span, count: 1, auto });
            }
            None => {}
        }
    }
    found
}

fn texts(holders: &[Holder]) -> String {
    holders.iter().map(Holder::text).collect::<Vec<_>>().join(", ")
}

/// What to change in the `part` of the holders so that they have `what` no longer. Of a key that is "auto" nothing can be left out.
fn leave_out(what: &str, part: Part, holders: &[Holder]) -> String {
    let names = |auto: bool| {
        let names = holders.iter().filter(|holder| holder.auto == auto);
        names.map(|holder| holder.names.as_str()).collect::<Vec<_>>().join(" or ")
    };
    let many = part.many();
    let (given, chosen) = (names(false), names(true));
    let mut ways = Vec::new();
    if !given.is_empty() {
        ways.push(format!("leave {what} out of the `{many}` of {given}"));
    }
    if !chosen.is_empty() {
        ways.push(format!("write numbers instead of \"auto\" as the `{many}` of {chosen}"));
    }
    ways.join(", or ")
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
    /// The numbers of `part` in the cells that `wanted` holds of.
    pub(super) fn numbers_where(&self, part: Part, wanted: impl Fn(Cell) -> bool) -> BTreeSet<u16> {
        let of = self.cells.iter().filter(|&cell| wanted(cell));
        of.map(|cell| part.of(&self.cells, cell)).collect()
    }

    /// The numbers of `part` that go with those of the other part.
    pub(super) fn beside(&self, part: Part, others: &BTreeSet<u16>) -> BTreeSet<u16> {
        self.numbers_where(part, |cell| others.contains(&part.other().of(&self.cells, cell)))
    }

    fn refusal(
        &self,
        code: &'static str,
        span: &Range<usize>,
        message: String,
        holders: &[Holder],
    ) -> Fault {
        // Whoever is in no table of the file is marked where the others are.
        let (span, label, rest) = match holders {
            [first, rest @ ..] if span.is_empty() => (&first.span, first.text(), rest),
            all => (span, "this".to_owned(), all),
        };
        let fault = self.fault(code, span, message).label(label);
        rest.iter().fold(fault, |fault, holder| fault.and(holder.span.clone(), holder.text()))
    }

    /// That a party shares what nobody owns, and others own all.
    fn none_left(&self, parties: &[Party], index: usize, part: Part) -> Fault {
        let party = &parties[index];
        let holders = holders(parties, index, part, |_| true);
        let (name, one) = (&party.name, part.one());
        let message = format!("no {one} is left for {name}: {}", texts(&holders));
        let help = if holders.iter().all(|holder| holder.numbers.len() == 1) {
            format!(
                "{} can't be had by all of these: let some share by the name of a [[group]], or leave the key `{}` out of one",
                part.count_of(u64::from(part.count(&self.cells))),
                part.many()
            )
        } else {
            format!(
                "{name} has what nobody owns, and that must be a {one} at least: {}",
                leave_out("one", part, &holders)
            )
        };
        self.refusal("cells-none", &party.span, message, &holders).help(help)
    }

    /// Why a party that may have these colors and banks has no cell. `None` if it has some.
    pub(super) fn no_cell(
        &self,
        parties: &[Party],
        index: usize,
        (colors, banks): (&BTreeSet<u16>, &BTreeSet<u16>),
    ) -> Option<Fault> {
        let party = &parties[index];
        for (part, may) in [(Part::Colors, colors), (Part::Banks, banks)] {
            if may.is_empty() {
                return Some(self.none_left(parties, index, part));
            }
        }
        let beside = self.beside(Part::Banks, colors);
        if !beside.is_disjoint(banks) || Part::ALL.into_iter().any(|part| party.names(part)) {
            return None;
        }
        let all: Vec<Holder> = Part::ALL
            .into_iter()
            .flat_map(|part| holders(parties, index, part, |_| true))
            .collect();
        let message = format!(
            "no page is left for {}: it may have {}, which lie in {} on {}, and {}",
            party.name,
            Part::Colors.with(colors),
            Part::Banks.with(&beside),
            self.platform.name,
            Part::Banks.with(banks),
        );
        let help = format!(
            "the same address bits choose color and bank there; leave out of the `colors` and `banks` of {} some that go together{}",
            all.iter().map(|holder| holder.names.as_str()).collect::<Vec<_>>().join(" or "),
            if all.iter().any(|holder| holder.auto) {
                ", with numbers instead of \"auto\""
            } else {
                ""
            },
        );
        Some(self.refusal("cells-none", &party.span, message, &all).help(help))
    }

    /// That a wish can't be had, since on this board the colors and banks are not independent. `missing` are numbers of `part` that
    /// lie in none of the other part's numbers that the party may have, `allowed`.
    pub(super) fn cannot_have(
        &self,
        parties: &[Party],
        index: usize,
        part: Part,
        missing: &BTreeSet<u16>,
        allowed: &BTreeSet<u16>,
    ) -> Fault {
        let party = &parties[index];
        let other = part.other();
        let (many, others, board) = (part.many(), other.many(), &self.platform.name);
        let place = self.beside(other, missing);
        let holders = holders(parties, index, other, |number| place.contains(&number));
        let owned = party.part(other);
        let lost = part.with(missing);
        let span = &party.part(part).span;
        let lie = if missing.len() == 1 { "it lies" } else { "they lie" };
        let lie = format!("on {board} {lie} in {} only", other.with(&place));
        if party.names(other) {
            let message = format!(
                "{} can't have {lost} with {}: {lie}{}",
                party.name,
                other.with(allowed),
                if holders.is_empty() {
                    String::new()
                } else {
                    format!(", and {}", texts(&holders))
                },
            );
            let all = party.part(part).numbers.clone().unwrap_or_default();
            let help = if holders.is_empty() {
                format!(
                    "the same address bits choose color and bank there; leave `{others}` out, or write {others} = \"{}\"",
                    numbers::text(self.beside(other, &all))
                )
            } else {
                let with = numbers::text(self.beside(part, allowed));
                format!(
                    "the same address bits choose color and bank there; {many} {with} go with these {others}"
                )
            };
            let fault = self.refusal("cells-impossible", span, message, &holders);
            return fault.and(owned.span.clone(), format!("these {others}")).help(help);
        }
        let message = format!("{} can't have {lost}: {lie}, and {}", party.name, texts(&holders));
        let taken = holders_of_part(parties, index, part);
        let possible = self.beside(part, &self.free_beside(parties, index, other));
        let possible: BTreeSet<u16> = possible.difference(&taken).copied().collect();
        let take = if possible.is_empty() {
            String::new()
        } else {
            format!("take of {many} {} instead, or ", numbers::text(possible))
        };
        let help = format!(
            "the same address bits choose color and bank there; {take}{}",
            leave_out(&numbers::text(place), other, &holders)
        );
        self.refusal("cells-impossible", span, message, &holders).help(help)
    }

    /// What nobody but party number `index` owns.
    fn free_beside(&self, parties: &[Party], index: usize, part: Part) -> BTreeSet<u16> {
        let taken = holders_of_part(parties, index, part);
        (0..part.count(&self.cells)).filter(|number| !taken.contains(number)).collect()
    }

    /// That `"auto"` finds too few numbers. Of `free` ones `reserve` are for those who share, and the `choosers`, who have none
    /// yet, need so many each.
    pub(super) fn short(
        &self,
        parties: &[Party],
        index: usize,
        part: Part,
        (free, reserve): (u64, u64),
        choosers: &[(usize, u64)],
    ) -> Fault {
        let party = &parties[index];
        let of = |wanted: usize| choosers.iter().find(|(index, _)| *index == wanted);
        let need = of(index).map_or(1, |(_, need)| *need);
        let others = choosers.iter().filter(|(other, _)| *other != index);
        let rest = others.clone().map(|(_, need)| need).sum::<u64>() + reserve;
        let holders = holders(parties, index, part, |_| true);
        let mut reasons: Vec<String> = holders.iter().map(Holder::text).collect();
        for (other, need) in others {
            reasons.push(format!("{} needs {need}", parties[*other].name));
        }
        if reserve > 0 {
            let shares = |party: &&Party| {
                let owned = party.part(part);
                owned.numbers.is_none() && !(owned.auto && party.criticality > 0)
            };
            let together: Vec<_> =
                parties.iter().filter(shares).map(|party| party.name.as_str()).collect();
            let verb = if together.len() == 1 { "needs" } else { "share the rest and need" };
            reasons.push(format!("{} {verb} {reserve}", together.join(" and ")));
        }
        let left = free.saturating_sub(rest);
        let message = format!(
            "{} needs {} of its own, and {} of {} {}: {}",
            party.name,
            part.count_of(need),
            if left == 0 { "none".to_owned() } else { left.to_string() },
            part.count(&self.cells),
            if left == 1 || left == 0 { "is left" } else { "are left" },
            reasons.join(", ")
        );
        self.refusal("cells-short", &party.part(part).span, message, &holders)
            .help(self.smaller(part))
    }

    /// That too few numbers go with what the party has of the other part.
    pub(super) fn short_beside(
        &self,
        parties: &[Party],
        index: usize,
        part: Part,
        need: u64,
    ) -> Fault {
        let party = &parties[index];
        let other = part.other();
        let owned = party.part(other).numbers.clone().unwrap_or_default();
        let possible = self.beside(part, &owned);
        let holders = holders(parties, index, part, |number| possible.contains(&number));
        let message = format!(
            "{} needs {} in its {}: on {} that can be {} only{}",
            party.name,
            part.count_of(need),
            other.with(&owned),
            self.platform.name,
            part.with(&possible),
            if holders.is_empty() { String::new() } else { format!(", and {}", texts(&holders)) },
        );
        self.refusal("cells-short", &party.part(part).span, message, &holders)
            .help(self.smaller(part))
    }

    /// What to do where there are too few numbers of a part.
    fn smaller(&self, part: Part) -> String {
        let count = u64::from(part.count(&self.cells));
        let ram: u64 = self.platform.pools().iter().map(|pool| pool.end - pool.start).sum();
        let cache = self.places().cache.filter(|_| part == Part::Colors);
        format!(
            "a {} is {} of RAM{}; give less memory{}, or leave `{}` out",
            part.one(),
            Bytes(ram / count),
            cache.map_or(String::new(), |cache| {
                format!(" and {} of the cache", Bytes(cache.size.0 / count))
            }),
            if cache.is_some() { " or a smaller `working_set`" } else { "" },
            part.many()
        )
    }

    /// Why the RAM of VM number `vm` does not fit into its cells. `None` if it does; whether it finds room beside the others' is for
    /// placement to say.
    pub(super) fn too_large(
        &self,
        parties: &[Party],
        vm: usize,
        demand: &Demand,
        set: &CellSet,
    ) -> Option<Fault> {
        let pools = self.platform.pools();
        let reach = |pool: &Range<u64>| Pages::new(&self.cells, *set, pool.clone()).total();
        let reach = Bytes(pools.iter().map(reach).sum::<u64>() * PAGE);
        if demand.memory <= reach {
            return None;
        }
        let has = |part: Part| part.with(&part.of_set(&self.cells, set));
        let message = format!(
            "{} has {} of RAM, but its {} and {} hold {reach}",
            demand.name,
            demand.memory,
            has(Part::Colors),
            has(Part::Banks)
        );
        let index = vm + 1;
        let party = parties.get(index)?;
        let mut ways = Vec::new();
        let mut marked = Vec::new();
        for part in Part::ALL {
            let many = part.many();
            let free = self.free(parties, part);
            let holders = holders(parties, index, part, |_| true);
            if party.part(part).numbers.is_some() && !free.is_empty() {
                ways.push(format!("add some of {} to its `{many}`", part.with(&free)));
            } else if !holders.is_empty() {
                ways.push(leave_out("some", part, &holders));
                marked.extend(holders);
            }
        }
        ways.push("give it less memory".to_owned());
        let help = ways.join(", or ");
        Some(self.refusal("cells-memory", &demand.span, message, &marked).help(help))
    }
}

/// What others than party number `index` own.
fn holders_of_part(parties: &[Party], index: usize, part: Part) -> BTreeSet<u16> {
    holders(parties, index, part, |_| true).into_iter().flat_map(|holder| holder.numbers).collect()
}
