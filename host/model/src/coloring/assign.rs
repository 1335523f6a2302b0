//! From requests to page classes.
//!
//! A VM that requests colors or banks owns them: no other VM gets a page in them. A VM without a
//! request gets a share of the rest. `"auto"` requests without a number, for a VM with a
//! criticality other than 0.

use super::auto::{HYPERVISOR_MEMORY, without_image};
use super::division::Division;
use super::owner::{Owner, with_tables};
use super::requests::{Request, Requests};
use super::tlb::{self, Vms};
use super::work::{Demand, Work, named_groups};
use crate::classes::numbers;
use crate::classes::part::Part;
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File};
use crate::platform::Platform;
use crate::vm::Vm;
use std::collections::BTreeSet;
use weir_paging::classes::{ClassSet, PageClasses};

/// What messages call the hypervisor.
const HYPERVISOR: &str = "the hypervisor";
/// What messages call the broker.
pub(crate) const BROKER_TITLE: &str = "the broker";

/// Divides the board's memory as the file requests, or returns why it can't be.
pub(crate) fn assign(
    requests: &Requests,
    platform: &Platform,
    vms: &[Demand],
    timed: &[Vm],
    file: &File,
    faults: &mut Faults,
) -> Division {
    let images = vms.iter().map(|vm| vm.pristine.0).sum();
    let pools = without_image(platform, images);
    let work = Work {
        file,
        faults,
        platform,
        pools,
        classes: PageClasses::ONE,
        groups: Vec::new(),
        demands: vms,
    };
    let (mut division, owners) = work.divide(requests, timed);
    let names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
    let vms = Vms { names: &names, owners: owners.get(1..).unwrap_or_default() };
    division.tlb = tlb::assign(requests, platform, &vms, division.classes.colors(), file, faults);
    division
}

impl Work<'_> {
    /// The page classes of all owners and their requests, the hypervisor first.
    fn divide(mut self, requests: &Requests, timed: &[Vm]) -> (Division, Vec<Owner>) {
        let vms = self.demands;
        let map = self.map(requests.dram.as_ref());
        let name = self.platform.places.dram.get(map).map(|map| map.name.clone());
        let mut division = Division::none(self.platform.places.geometry(map), name, vms.len());
        self.classes = division.classes;
        let before = self.faults.0.len();
        for part in Part::ALL.into_iter().filter(|part| part.count(&division.classes) == 1) {
            self.nothing_to_choose(requests, part);
        }
        if self.classes.count() == 1 || self.faults.0.len() > before {
            return (division, Vec::new());
        }
        self.groups = named_groups(requests, self.platform, &self.classes, self.file, self.faults);
        let hypervisor = self.owner(HYPERVISOR, &requests.hypervisor);
        let mut owners = vec![Owner { memory: HYPERVISOR_MEMORY, ..hypervisor }];
        for (index, vm) in vms.iter().enumerate() {
            let none = Request { span: vm.span.clone(), ..Request::default() };
            let owner = self.owner(&vm.name, requests.vms.get(index).unwrap_or(&none));
            let timed = timed.get(index);
            owners.push(Owner {
                criticality: timed.map_or(0, |timed| timed.criticality),
                working_set: timed.and_then(|timed| timed.working_set),
                memory: with_tables(vm.memory.0) + vm.pristine.0,
                ram: vm.memory,
                ..owner
            });
        }
        // A broker without flows gets nothing, but its keys must be possible together with the
        // others.
        let absent = requests.broker.is_any().then(|| self.owner(BROKER_TITLE, &requests.broker));
        owners.extend(absent);
        let mut asked = requests.vms.iter().chain([&requests.hypervisor]);
        let divided = asked.any(Request::is_any);
        if let Some((hypervisor, vms)) =
            self.settle(&mut owners, divided).as_deref().and_then(<[ClassSet]>::split_first)
        {
            division.hypervisor = *hypervisor;
            division.vms = vms.to_vec();
            division.divided = true;
        }
        if divided {
            division.hypervisor_span = owners.first().map_or(0..0, |owner| owner.span.clone());
        }
        (division, owners)
    }

    /// The page classes of the hypervisor and the VMs, which are the first of the owners; the
    /// others get nothing, and are left out. None without a fault where nothing is to be divided.
    pub(super) fn settle(
        &mut self,
        owners: &mut Vec<Owner>,
        divided: bool,
    ) -> Option<Vec<ClassSet>> {
        let before = self.faults.0.len();
        self.overlaps(owners);
        owners.truncate(1 + self.demands.len());
        if !divided {
            return None;
        }
        if self.faults.0.len() > before {
            return None;
        }
        let requested = owners.clone();
        let sets = self.choose_all(owners, false);
        let chooses =
            |owner: &Owner| owner.criticality > 0 && (owner.colors.auto || owner.banks.auto);
        if self.faults.0.len() == before || !requested.iter().any(chooses) {
            return sets;
        }
        // What an owner gets beyond its need may be what another needs.
        self.faults.0.truncate(before);
        *owners = requested;
        self.choose_all(owners, true)
    }

    /// The page classes of all owners, once those that leave it to the tool have numbers; if
    /// `lean`, no more than they need.
    fn choose_all(&mut self, owners: &mut [Owner], lean: bool) -> Option<Vec<ClassSet>> {
        let before = self.faults.0.len();
        // Banks first: where they are not independent of the colors, they leave the fewer colors to
        // choose from.
        self.choose(owners, Part::Banks, lean);
        self.choose(owners, Part::Colors, lean);
        if self.faults.0.len() > before {
            return None;
        }
        let sets: Vec<_> =
            (0..owners.len()).filter_map(|index| self.classes_of(owners, index)).collect();
        if sets.len() < owners.len() {
            return None;
        }
        for index in 1..sets.len() {
            if let Some(refusal) = self.too_large(owners, index, &sets) {
                self.faults.push(refusal);
            }
        }
        Some(sets)
    }
}

impl Work<'_> {
    /// That all of the board is one color, or one bank, so that no key can divide by it.
    fn nothing_to_choose(&mut self, requests: &Requests, part: Part) {
        let all = requests.vms.iter().chain([&requests.hypervisor, &requests.broker]);
        let keys = all.map(|request| (&request.colors, &request.banks));
        let keys = keys.chain(requests.groups.iter().map(|group| (&group.colors, &group.banks)));
        for (colors, banks) in keys {
            let (key, whole, table) = match part {
                Part::Colors => (colors, "cache colors", "[cache]"),
                Part::Banks => (banks, "banks", "[[dram]]"),
            };
            let Some(key) = key else { continue };
            let message =
                format!("{}: has no {whole} for `{}` to choose", self.platform, part.many());
            let help = format!(
                "all of its RAM is one {}: leave the key out, or describe more in {table} of its \
                 platform file",
                part.one()
            );
            let fault = self.fault(Code::NoPageClasses, &key.span, message).help(help);
            self.faults.push(fault);
        }
    }

    /// No two owners have the same number, unless both name the same group and have the same
    /// criticality.
    fn overlaps(&mut self, owners: &[Owner]) {
        for part in Part::ALL {
            for second in 0..owners.len() {
                for first in 0..second {
                    if let Some(refusal) = self.overlap(owners, part, first, second) {
                        self.faults.push(refusal);
                    }
                }
            }
        }
    }

    /// Why two owners can't both have what they ask for.
    fn overlap(&self, owners: &[Owner], part: Part, first: usize, second: usize) -> Option<Fault> {
        let (one, two) = (&owners[first], &owners[second]);
        let (theirs, mine) = (one.part(part), two.part(part));
        let (a, b) = (theirs.numbers.as_ref()?, mine.numbers.as_ref()?);
        let both: BTreeSet<u16> = a.intersection(b).copied().collect();
        let grouped = mine.group.is_some() && mine.group == theirs.group;
        let alike = one.criticality == two.criticality;
        if both.is_empty() || grouped && alike {
            return None;
        }
        let are = if both.len() == 1 { "is" } else { "are" };
        let (code, message) = if grouped {
            let message = format!(
                "{}: has criticality {} and shares with {} of criticality {}: {}",
                one.name,
                one.criticality,
                two.name,
                two.criticality,
                part.with(&both)
            );
            (Code::PageClassTaken, message)
        } else {
            let both = part.with(&both);
            (Code::PageClassTaken, format!("{}: {both} {are} given to {}, too", two.name, one.name))
        };
        let free = self.free(owners, part);
        let many = part.many();
        let change = if grouped {
            let less = if one.criticality > two.criticality { two } else { one };
            format!("write other `{many}` for {}", less.name)
        } else {
            let rest: BTreeSet<u16> = b.difference(&both).copied().collect();
            if rest.len() + free.len() == 0 {
                format!("leave `{many}` out of {}", two.name)
            } else {
                let others = free.iter().copied().take(both.len());
                let numbers = numbers::text(rest.into_iter().chain(others));
                format!("write {many} = \"{numbers}\" for {}", two.name)
            }
        };
        let free = if free.is_empty() {
            "none is free".to_owned()
        } else {
            format!("free: {}", numbers::text(free))
        };
        let fault = self
            .fault(code, &mine.span, message)
            .and(theirs.span.clone(), format!("{} has them", one.name));
        Some(fault.help(format!("{free}; {change}")))
    }

    /// The page classes of an owner: of its own colors, or else of those without an owner, and
    /// likewise of its banks. A fault if a number that it asked for is in none of them.
    fn classes_of(&mut self, owners: &[Owner], index: usize) -> Option<ClassSet> {
        let owner = &owners[index];
        let may = |part: Part| match &owner.part(part).numbers {
            Some(numbers) => numbers.clone(),
            None => self.free(owners, part),
        };
        let (colors, banks) = (may(Part::Colors), may(Part::Banks));
        if let Some(refusal) = self.no_class(owners, index, (&colors, &banks)) {
            self.faults.push(refusal);
            return None;
        }
        let classes = self.classes;
        let set = classes.select(|class| {
            colors.contains(&Part::Colors.of(&classes, class))
                && banks.contains(&Part::Banks.of(&classes, class))
        });
        for (part, allowed) in [(Part::Colors, &banks), (Part::Banks, &colors)] {
            let Some(numbers) = &owner.part(part).numbers else { continue };
            if owner.part(part).auto {
                continue;
            }
            let missing: BTreeSet<u16> =
                numbers.difference(&self.compatible(part, allowed)).copied().collect();
            if !missing.is_empty() {
                let refusal = self.cannot_have(owners, index, part, &missing, allowed);
                self.faults.push(refusal);
                return None;
            }
        }
        set
    }
}
