//! The board and the file while page classes are given out.

use super::owner::{Owned, Owner};
use super::requests::{Request, Requests};
use crate::classes::groups::{self, Group, beyond};
use crate::classes::numbers;
use crate::classes::part::{Part, shortened};
use crate::classes::places::Places;
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File};
use crate::object::Object;
use crate::platform::Platform;
use crate::shape::suggestion;
use crate::table::At;
use std::{collections::BTreeSet, ops::Range};
use weir_paging::classes::PageClasses;
use weir_units::Bytes;

/// What a VM wants of memory.
pub(crate) struct Demand {
    pub name: String,
    pub memory: Bytes,
    /// About what its pristine image takes.
    pub pristine: Bytes,
    pub span: Range<usize>,
}

/// The board and the file while page classes are given out.
pub(super) struct Work<'a> {
    pub file: &'a File,
    pub faults: &'a mut Faults,
    pub platform: &'a Platform,
    /// RAM without about what the image takes as it is loaded.
    pub pools: Vec<Range<u64>>,
    pub classes: PageClasses,
    pub groups: Vec<Group>,
    /// What the VMs want, in their order.
    pub demands: &'a [Demand],
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
        let message = format!("the system: `dram` names `{value}`, which {} lacks", self.platform);
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

    /// The value of a key.
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
                Some(_) => format!("{name}: {} has no {many}", Object::group(value)),
                None => {
                    format!("{name}: {many} = {:?} is not a list of {many}", shortened(value))
                }
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
        if let Some((number, help)) = beyond(part, &self.classes, &numbers) {
            let message = format!("{name}: {} has no {} {number}", self.platform, part.one());
            let fault = self.fault(Code::PageClassUnknown, span, message).help(help);
            self.faults.push(fault);
            return owned;
        }
        Owned { numbers: Some(numbers), group: group.map(|group| group.name.clone()), ..owned }
    }

    pub(super) fn fault(&self, code: Code, span: &Range<usize>, message: String) -> Fault {
        Fault::new(code, self.file, span.clone(), message).label("this")
    }

    pub(super) const fn places(&self) -> &Places {
        &self.platform.places
    }

    /// The numbers without an owner.
    pub(super) fn free(&self, owners: &[Owner], part: Part) -> BTreeSet<u16> {
        let taken: BTreeSet<_> =
            owners.iter().filter_map(|owner| owner.part(part).numbers.as_ref()).flatten().collect();
        (0..part.count(&self.classes)).filter(|number| !taken.contains(number)).collect()
    }

    /// The RAM that can be given out.
    pub(super) fn ram(&self) -> u64 {
        self.pools.iter().map(|pool| pool.end - pool.start).sum()
    }
}

/// The groups that a system file may name: its own and the platform's. Each is checked, used or
/// not.
pub(super) fn named_groups(
    requests: &Requests,
    platform: &Platform,
    classes: &PageClasses,
    file: &File,
    faults: &mut Faults,
) -> Vec<Group> {
    let mut groups = groups::all(&requests.groups, file, faults);
    for (raw, group) in &mut groups {
        if platform.places.groups.iter().any(|theirs| theirs.name == group.name) {
            let message = format!("{}: {platform} has it already", Object::group(&group.name));
            let fault = Fault::new(Code::Twice, file, raw.name.span.clone(), message);
            faults.push(fault.label("this").help("write another `name`, or leave it out"));
        }
        for (part, key) in [(Part::Colors, &raw.colors), (Part::Banks, &raw.banks)] {
            let numbers = match part {
                Part::Colors => &mut group.colors,
                Part::Banks => &mut group.banks,
            };
            let wrong = numbers.as_ref().and_then(|numbers| beyond(part, classes, numbers));
            if let (Some(key), Some((number, help))) = (key, wrong) {
                let message = format!(
                    "{}: {platform} has no {} {number}",
                    Object::group(&group.name),
                    part.one()
                );
                let fault = Fault::new(Code::PageClassUnknown, file, key.span.clone(), message);
                faults.push(fault.label("this").help(help));
                // Reported once; an owner that names the group is not at fault.
                *numbers = Some(BTreeSet::new());
            }
        }
    }
    // A group refused for its name replaces the platform's, so that an owner that names it is not
    // refused for it.
    let own = groups.into_iter().map(|(_, group)| group);
    platform.places.groups.iter().cloned().chain(own).collect()
}
