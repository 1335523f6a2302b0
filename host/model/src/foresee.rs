//! Whether a system can be built, before all of it is there.

use crate::devicetree;
use crate::fault::Faults;
use crate::image::{Problem, stored, total};
use crate::pack::{Content, Start, arrange, load, start};
use crate::packed::PAGE;
use crate::place::Placement;
use crate::platform::Platform;
use crate::resolve::Source;
use crate::system::System;
use crate::vm::Vm;
use std::borrow::Cow;
use weir_units::Bytes;

/// A file of a VM's image, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreseen<'a> {
    /// Its bytes.
    There(&'a [u8]),
    /// It is not there yet: what it will come from, and about how long it will be.
    Likely(&'a Source, Bytes),
}

/// A VM's image, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect<'a> {
    /// The program or kernel.
    pub image: Foreseen<'a>,
    /// The initial RAM disk, where the image has one.
    pub initrd: Option<Foreseen<'a>>,
}

/// What is, or will be, in a VM's RAM at its start.
#[derive(Clone, PartialEq)]
enum Stuff<'a> {
    There(Cow<'a, [u8]>),
    Likely(&'a Source, u64),
}

impl Content for Stuff<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::There(bytes) => bytes.len() as u64,
            Self::Likely(_, len) => *len,
        }
    }
}

/// Where everything will lie: what [`pack`](crate::pack()) says and refuses, as far as it follows from what is there. `prospects` has each
/// VM's image in the order of [`System::vms`], and `hypervisor_len` is the length of the hypervisor's flat binary, in bytes.
///
/// # Errors
///
/// Images that don't fit their VM, or VMs that don't fit the board.
///
/// # Panics
///
/// When there are not as many prospects as VMs.
pub fn foresee(
    system: &System,
    prospects: &[Prospect<'_>],
    hypervisor_len: u64,
) -> Result<Placement, Faults> {
    assert_eq!(prospects.len(), system.vms.len(), "one prospect for each VM");
    let mut faults = Faults::default();
    let mut starts = Vec::new();
    for (vm, prospect) in system.vms.iter().zip(prospects) {
        match likely_start(vm, &system.platform, prospect) {
            Ok(start) => starts.push(start),
            Err(problems) => {
                for problem in problems {
                    faults.push(vm.image_fault(&system.file, problem));
                }
            }
        }
    }
    faults.into_result(())?;
    Ok(arrange(system, &starts, hypervisor_len.next_multiple_of(PAGE))?.placement)
}

/// What the VM will start with. Where in its RAM that lies is known only of what is there.
fn likely_start<'a>(
    vm: &Vm,
    platform: &Platform,
    prospect: &Prospect<'a>,
) -> Result<Start<Stuff<'a>>, Vec<Problem>> {
    let somewhere = vm.memory.first().map_or(0, |piece| piece.base.0);
    let stuff = |file: Foreseen<'a>| match file {
        Foreseen::There(bytes) => Stuff::There(Cow::Borrowed(stored(bytes))),
        // Whether it fits is not to be guessed.
        Foreseen::Likely(source, len) => Stuff::Likely(source, len.0.min(total(&vm.memory).0)),
    };
    let (known, open) = match prospect.image {
        Foreseen::There(image) => {
            let (initrd, open) = match prospect.initrd {
                Some(Foreseen::There(initrd)) => (Some(initrd), None),
                other => (None, other),
            };
            (start(&load(vm, platform, image, initrd)?), vec![open])
        }
        likely @ Foreseen::Likely(..) => {
            let tree = devicetree::generate(vm, platform, None);
            let known =
                Start { entry: somewhere, parts: vec![(vm.board.device_tree.0, Cow::Owned(tree))] };
            (known, vec![Some(likely), prospect.initrd])
        }
    };
    let open = open.into_iter().flatten().map(|file| (somewhere, stuff(file)));
    let parts = known.parts.into_iter().map(|(ipa, bytes)| (ipa, Stuff::There(bytes)));
    let parts = parts.chain(open).filter(|(_, stuff)| stuff.size() > 0).collect();
    Ok(Start { entry: known.entry, parts })
}
