//! From wishes to cells.
//!
//! Who asks for colors, or for banks, owns them: nobody else gets a page in them. Who doesn't ask gets a share of what nobody
//! owns. `"auto"` is asking without saying how many, for a VM whose criticality is not 0.

use super::{
    Division,
    auto::with_tables,
    keys::{Wish, Wishes},
    numbers,
    party::{Part, Party},
    platform::{Group, Places, resolve},
    tlb,
};
use crate::{
    fault::{Fault, Faults, File},
    packed::PAGE,
    platform::Platform,
    timing::TimedVm,
    units::Bytes,
};
use std::{collections::BTreeSet, ops::Range};
use weir_layout::cells::{CellSet, Cells, Pages};

/// What a VM wants of memory.
pub(crate) struct Demand {
    pub name: String,
    pub memory: Bytes,
    pub span: Range<usize>,
}

/// Divides the board's memory as the file wishes, or says why it can't be.
pub(crate) fn assign(
    wishes: &Wishes,
    platform: &Platform,
    vms: &[Demand],
    timed: &[TimedVm],
    file: &File,
    faults: &mut Faults,
) -> Division {
    let work = Work { file, faults, platform, cells: Cells::ONE, groups: Vec::new() };
    let (mut division, owned) = work.divide(wishes, vms, timed);
    let count = division.cells.colors();
    division.tlb = tlb::assign(wishes, platform, &owned, count, file, faults);
    division
}

/// The board and the file while cells are given out.
pub(super) struct Work<'a> {
    pub file: &'a File,
    pub faults: &'a mut Faults,
    pub platform: &'a Platform,
    pub cells: Cells,
    pub groups: Vec<Group>,
}

impl Work<'_> {
    /// The cells of everybody, and the colors that each VM owns.
    fn divide(
        mut self,
        wishes: &Wishes,
        vms: &[Demand],
        timed: &[TimedVm],
    ) -> (Division, Vec<Option<BTreeSet<u16>>>) {
        let map = self.map(wishes.dram.as_ref());
        let name = self.platform.places.dram.get(map).map(|map| map.name.clone());
        let mut division = Division::none(self.platform.places.geometry(map), name, vms.len());
        let all = wishes.vms.iter().chain([&wishes.hypervisor]);
        if !all.clone().any(Wish::is_any) {
            return (division, vec![None; vms.len()]);
        }
        if division.cells.count() == 1 {
            for key in all.flat_map(|wish| [&wish.colors, &wish.banks]).flatten() {
                let message =
                    format!("{} has no cache colors and no banks to choose", self.platform.name);
                let help =
                    "describe [cache] and [[dram]] in its platform file, or leave the key out";
                self.fault("no-geometry", &key.span, message).help(help).push(self.faults);
            }
            return (division, vec![None; vms.len()]);
        }
        self.cells = division.cells;
        let own = wishes.groups.iter().filter_map(|group| resolve(group, self.file, self.faults));
        self.groups = own.chain(self.platform.places.groups.iter().cloned()).collect();
        let mut parties = vec![self.party("the hypervisor", &wishes.hypervisor)];
        for (index, vm) in vms.iter().enumerate() {
            let none = Wish { span: vm.span.clone(), ..Wish::default() };
            let party = self.party(&vm.name, wishes.vms.get(index).unwrap_or(&none));
            let timed = timed.iter().find(|timed| timed.name == vm.name);
            parties.push(Party {
                criticality: timed.map_or(0, |timed| timed.criticality),
                working_set: timed.and_then(|timed| timed.working_set),
                memory: with_tables(vm.memory.0),
                ..party
            });
        }
        let before = self.faults.0.len();
        self.overlaps(&parties);
        if self.faults.0.len() == before {
            // Banks first: where they are not independent of the colors, they leave the fewer colors to choose from.
            self.choose(&mut parties, Part::Banks);
            self.choose(&mut parties, Part::Colors);
        }
        if self.faults.0.len() == before {
            let sets: Vec<_> =
                (0..parties.len()).filter_map(|index| self.cells_of(&parties, index)).collect();
            if let [hypervisor, vms @ ..] = sets.as_slice()
                && sets.len() == parties.len()
            {
                division.hypervisor = *hypervisor;
                division.vms = vms.to_vec();
                division.divided = true;
            }
        }
        division.hypervisor_span = parties.first().map_or(0..0, |party| party.span.clone());
        if division.divided {
            self.memory(vms, &division);
        }
        let owned = parties.iter().skip(1).map(|party| party.colors.numbers.clone()).collect();
        (division, owned)
    }
}

impl Fault {
    /// Adds it to the others.
    pub(super) fn push(self, faults: &mut Faults) {
        faults.push(self);
    }
}

impl Work<'_> {
    pub(super) fn fault(&self, code: &'static str, span: &Range<usize>, message: String) -> Fault {
        Fault::new(code, self.file, span.clone(), message).label("this")
    }

    pub(super) const fn places(&self) -> &Places {
        &self.platform.places
    }

    /// Nobody owns what somebody else owns, unless both take it by the same group's name and are as critical as each other.
    fn overlaps(&mut self, parties: &[Party]) {
        for part in Part::ALL {
            for (index, second) in parties.iter().enumerate() {
                for first in &parties[..index] {
                    let (mine, theirs) = (second.part(part), first.part(part));
                    let (Some(a), Some(b)) = (&mine.numbers, &theirs.numbers) else { continue };
                    let both: Vec<_> = a.intersection(b).copied().collect();
                    if both.is_empty() {
                        continue;
                    }
                    let (one, two) = (&first.name, &second.name);
                    let (many, are) = match both.len() {
                        1 => (part.one(), "is"),
                        _ => (part.many(), "are"),
                    };
                    let both = numbers::text(both);
                    let grouped = mine.group.is_some() && mine.group == theirs.group;
                    let (code, message, help) = if !grouped {
                        let message = format!("{many} {both} {are} given to {one} and to {two}");
                        let free = self.free(parties, part);
                        let free = if free.is_empty() {
                            "none is free".to_owned()
                        } else {
                            format!("free: {}", numbers::text(free))
                        };
                        let help = format!(
                            "{free}; those who are to share take them by the name of one [[group]]"
                        );
                        ("cells-taken", message, help)
                    } else if first.criticality != second.criticality {
                        let message = format!(
                            "{one} (criticality {}) and {two} (criticality {}) share {many} {both}",
                            first.criticality, second.criticality
                        );
                        let help =
                            "give the more critical one a group or numbers of its own".to_owned();
                        ("cells-criticality", message, help)
                    } else {
                        continue;
                    };
                    self.fault(code, &mine.span, message)
                        .and(theirs.span.clone(), format!("{one} has them"))
                        .help(help)
                        .push(self.faults);
                }
            }
        }
    }

    /// What nobody owns.
    pub(super) fn free(&self, parties: &[Party], part: Part) -> BTreeSet<u16> {
        let taken: BTreeSet<_> = parties
            .iter()
            .filter_map(|party| party.part(part).numbers.as_ref())
            .flatten()
            .collect();
        (0..part.count(&self.cells)).filter(|number| !taken.contains(number)).collect()
    }

    /// The cells of a party: of its own colors, or else of those that nobody owns, and likewise of its banks. A fault if a number that
    /// it asked for is in none of them.
    fn cells_of(&mut self, parties: &[Party], index: usize) -> Option<CellSet> {
        let party = &parties[index];
        let may = |part: Part| match &party.part(part).numbers {
            Some(numbers) => numbers.clone(),
            None => self.free(parties, part),
        };
        let (colors, banks) = (may(Part::Colors), may(Part::Banks));
        let cells = self.cells;
        let set = cells.select(|cell| {
            colors.contains(&Part::Colors.of(&cells, cell))
                && banks.contains(&Part::Banks.of(&cells, cell))
        });
        for part in Part::ALL {
            let Some(numbers) = &party.part(part).numbers else { continue };
            if party.part(part).auto {
                continue;
            }
            let found: BTreeSet<u16> =
                set.iter().flat_map(CellSet::iter).map(|cell| part.of(&cells, cell)).collect();
            let missing: Vec<u16> = numbers.difference(&found).copied().collect();
            if missing.is_empty() {
                continue;
            }
            let fault = self.cannot_have(party, part, &missing, (&colors, &banks));
            fault.push(self.faults);
            return None;
        }
        if set.is_none() {
            let short = Part::ALL.into_iter().find(|&part| may(part).is_empty());
            let what = short.map_or("cell", Part::one);
            let message = format!("no {what} is left for {}: others own them all", party.name);
            let other = parties
                .iter()
                .find(|party| party.colors.numbers.is_some() || party.banks.numbers.is_some());
            let span = if party.span.is_empty() {
                other.map_or(0..0, |other| other.span.clone())
            } else {
                party.span.clone()
            };
            let help = "give somebody less; who has neither `colors` nor `banks` needs some that nobody owns";
            self.fault("cells-none", &span, message).help(help).push(self.faults);
        }
        set
    }

    /// A VM's RAM fits into its cells; whether it finds room beside the others' is for placement to say.
    fn memory(&mut self, vms: &[Demand], division: &Division) {
        let pools = self.platform.pools();
        for (vm, set) in vms.iter().zip(&division.vms) {
            let reach = |pool: &Range<u64>| Pages::new(&self.cells, *set, pool.clone()).total();
            let reach = Bytes(pools.iter().map(reach).sum::<u64>() * PAGE);
            let wanted = vm.memory;
            if wanted > reach {
                let cells = match set.len() {
                    1 => "one cell holds".to_owned(),
                    count => format!("{count} cells hold"),
                };
                let message = format!("{} has {wanted} of RAM, but its {cells} {reach}", vm.name);
                let help = "give it more colors or banks, or less memory";
                self.fault("cells-memory", &vm.span, message).help(help).push(self.faults);
            }
        }
    }

    /// That a wish can't be had, since on this board the colors and banks are not independent.
    fn cannot_have(
        &self,
        party: &Party,
        part: Part,
        missing: &[u16],
        (colors, banks): (&BTreeSet<u16>, &BTreeSet<u16>),
    ) -> Fault {
        let (other, allowed) = match part {
            Part::Colors => (Part::Banks, banks),
            Part::Banks => (Part::Colors, colors),
        };
        let cells = self.cells;
        let with = |numbers: &dyn Fn(u16) -> bool| -> BTreeSet<u16> {
            let of = cells.iter().filter(|&cell| numbers(part.of(&cells, cell)));
            of.map(|cell| other.of(&cells, cell)).collect()
        };
        let (many, others) = (part.many(), other.many());
        let place = numbers::text(with(&|number| missing.contains(&number)));
        let lost = numbers::text(missing.iter().copied());
        let owned = party.part(other);
        let span = &party.part(part).span;
        let board = &self.platform.name;
        if owned.numbers.is_none() {
            let message = format!(
                "{} can't have {many} {lost}: on {board} they lie in {others} {place} only, which somebody else owns",
                party.name
            );
            let help = format!(
                "the same address bits choose color and bank there; take other {many}, or {others} {place} away from their owner"
            );
            return self.fault("cells-impossible", span, message).help(help);
        }
        let message = format!(
            "{} can't have {many} {lost} with {others} {}: on {board} they lie in {others} {place} only",
            party.name,
            numbers::text(allowed.iter().copied()),
        );
        let all = party.part(part).numbers.clone().unwrap_or_default();
        let help = format!(
            "the same address bits choose color and bank there; leave `{others}` out, or write {others} = \"{}\"",
            numbers::text(with(&|number| all.contains(&number)))
        );
        let fault = self.fault("cells-impossible", span, message);
        fault.and(owned.span.clone(), format!("these {others}")).help(help)
    }
}
