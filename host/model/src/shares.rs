//! The shares of a division, and its costs.

use crate::classes::numbers;
use crate::classes::part::Part;
use crate::image::total;
use crate::place::{MapOwner, Placement, Row};
use crate::system::System;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use weir_abi::PAGE;
use weir_paging::classes::{ClassSet, Pages};
use weir_units::Bytes;

/// The share of an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Share {
    /// `weir` or the VM's name.
    pub name: String,
    /// Its colors.
    pub colors: BTreeSet<u16>,
    /// Its banks, or groups of as many banks as a page lies in.
    pub banks: BTreeSet<u16>,
    /// Its page classes, which have these colors and banks.
    #[serde(rename = "page_classes", serialize_with = "numbers_of")]
    #[schemars(with = "Vec<u16>")]
    pub classes: ClassSet,
    /// The part of the last-level cache that lines of these colors fill, in bytes, if the platform
    /// file has the size of the cache.
    #[serde(rename = "cache_bytes", serialize_with = "bytes")]
    #[schemars(with = "Option<u64>")]
    pub cache: Option<Bytes>,
    /// The RAM that lies in these page classes, in bytes.
    #[serde(rename = "reach_bytes", serialize_with = "bytes_of")]
    #[schemars(with = "u64")]
    pub reach: Bytes,
    /// Pages that are taken: RAM, and what the hypervisor keeps for it. The hypervisor's own are
    /// its image, undivided with the guests'.
    pub pages: u64,
    /// Of these, pages that hold the tables of stage 2, the state of the vCPUs, and the pristine
    /// image.
    pub kept_pages: u64,
    /// The owners that share a color with it: they can evict each other's lines.
    #[serde(rename = "shares_colors_with")]
    pub shares_colors: Vec<String>,
    /// The owners that share a bank with it: they can close each other's rows.
    #[serde(rename = "shares_banks_with")]
    pub shares_banks: Vec<String>,
}

fn numbers_of<S: Serializer>(classes: &ClassSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(classes.iter().map(|class| class.0))
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn bytes<S: Serializer>(size: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    size.map(Bytes::get).serialize(serializer)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn bytes_of<S: Serializer>(size: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    size.0.serialize(serializer)
}

/// The shares of all owners, the hypervisor first.
#[must_use]
pub fn shares(system: &System, placement: &Placement) -> Vec<Share> {
    let division = &system.division;
    let classes = &division.classes;
    let names = ["weir"].into_iter().chain(system.vms.iter().map(|vm| vm.name.as_str()));
    let sets = [&division.hypervisor].into_iter().chain(&division.vms);
    let owners: Vec<(&str, &ClassSet)> = names.zip(sets).collect();
    owners
        .iter()
        .enumerate()
        .map(|(index, &(name, set))| {
            let (colors, banks) =
                (Part::Colors.of_set(classes, set), Part::Banks.of_set(classes, set));
            let others = || owners.iter().enumerate().filter(|(other, _)| *other != index);
            let meeting = |part: Part, mine: &BTreeSet<u16>| {
                let meets = others()
                    .filter(|(_, (_, theirs))| !part.of_set(classes, theirs).is_disjoint(mine));
                meets.map(|(_, (name, _))| (*name).to_owned()).collect::<Vec<_>>()
            };
            let size = system.platform().places.cache.map(|cache| cache.size.0);
            let pools = system.platform().pools();
            let reach: u64 =
                pools.into_iter().map(|pool| Pages::new(classes, *set, pool).total() * PAGE).sum();
            let mine = placement.rows.iter().filter(|row| match (&row.owner, index) {
                (MapOwner::Hypervisor, 0) => true,
                (MapOwner::Vm(vm, _), _) => vm + 1 == index,
                _ => false,
            });
            let pages = |row: &Row| row.size.0 / PAGE;
            let ram = index.checked_sub(1).map(|vm| total(&system.vms[vm].memory).0 / PAGE);
            let pages: u64 = match ram {
                _ if division.divided => mine.filter(|row| row.classes.is_some()).map(pages).sum(),
                // A VM's other rows are devices.
                Some(ram) => ram,
                None => mine.map(pages).sum(),
            };
            Share {
                name: name.to_owned(),
                classes: *set,
                shares_colors: meeting(Part::Colors, &colors),
                shares_banks: meeting(Part::Banks, &banks),
                cache: size
                    .map(|size| Bytes(size / u64::from(classes.colors()) * colors.len() as u64)),
                reach: Bytes(reach),
                pages,
                kept_pages: if division.divided {
                    pages.saturating_sub(ram.unwrap_or(0))
                } else {
                    0
                },
                colors,
                banks,
            }
        })
        .collect()
}

impl Share {
    /// The colors as a person writes them.
    #[must_use]
    pub fn colors_text(&self) -> String {
        numbers::text(self.colors.iter().copied())
    }

    /// The banks as a person writes them.
    #[must_use]
    pub fn banks_text(&self) -> String {
        numbers::text(self.banks.iter().copied())
    }
}
