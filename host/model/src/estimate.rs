//! The placement of a system, estimated before all of its files exist.

use crate::devicetree;
use crate::fault::Faults;
use crate::image::{Problem, stored, total};
use crate::pack::{Content, HypervisorSize, Start, arrange, load, start};
use crate::place::Placement;
use crate::platform::Platform;
use crate::resolve::ImageSource;
use crate::system::System;
use crate::vm::Vm;
use std::borrow::Cow;
use weir_units::Bytes;

/// A file of a VM's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFile<'a> {
    /// Its bytes.
    Known(&'a [u8]),
    /// It does not exist yet: its source and its estimated length.
    Estimated(&'a ImageSource, Bytes),
}

/// The files of a VM's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageFiles<'a> {
    /// The program or kernel.
    pub image: ImageFile<'a>,
    /// The initial RAM disk, where the image has one.
    pub initrd: Option<ImageFile<'a>>,
}

/// What is, or will be, in a VM's RAM at its start.
#[derive(Clone, PartialEq)]
enum Stuff<'a> {
    There(Cow<'a, [u8]>),
    Likely(&'a ImageSource, u64),
}

impl Content for Stuff<'_> {
    fn size(&self) -> u64 {
        match self {
            Self::There(bytes) => bytes.len() as u64,
            Self::Likely(_, len) => *len,
        }
    }
}

/// Estimates the placement of a system of which some files do not exist yet. Refuses what
/// [`pack`](crate::pack()) refuses, as far as it follows from the files that exist. `images` has
/// the files of each VM in the order of [`System::vms`].
///
/// # Errors
///
/// Images that do not fit their VM, or VMs that do not fit the board.
///
/// # Panics
///
/// If `images` has not one element for each VM.
pub fn estimate(
    system: &System,
    images: &[ImageFiles<'_>],
    hypervisor: HypervisorSize,
) -> Result<Placement, Faults> {
    assert_eq!(images.len(), system.vms.len(), "the files of each VM");
    let mut faults = Faults::default();
    let mut starts = Vec::new();
    for (vm, files) in system.vms.iter().zip(images) {
        match estimated_start(vm, system.platform(), files) {
            Ok(start) => starts.push(start),
            Err(problems) => {
                for problem in problems {
                    faults.push(vm.image_fault(&system.file, problem));
                }
            }
        }
    }
    faults.into_result(())?;
    Ok(arrange(system, &starts, hypervisor)?.placement)
}

/// What the VM will start with. Where in its RAM that lies is known only of what is there.
fn estimated_start<'a>(
    vm: &Vm,
    platform: &Platform,
    files: &ImageFiles<'a>,
) -> Result<Start<Stuff<'a>>, Vec<Problem>> {
    let somewhere = vm.memory.first().map_or(0, |piece| piece.base.0);
    let stuff = |file: ImageFile<'a>| match file {
        ImageFile::Known(bytes) => Stuff::There(Cow::Borrowed(stored(bytes))),
        // Whether it fits is not to be guessed.
        ImageFile::Estimated(source, len) => Stuff::Likely(source, len.0.min(total(&vm.memory).0)),
    };
    let (known, open) = match files.image {
        ImageFile::Known(image) => {
            let (initrd, open) = match files.initrd {
                Some(ImageFile::Known(initrd)) => (Some(initrd), None),
                other => (None, other),
            };
            (start(&load(vm, platform, image, initrd)?), vec![open])
        }
        likely @ ImageFile::Estimated(..) => {
            let tree = devicetree::generate(vm, platform, None);
            let known =
                Start { entry: somewhere, parts: vec![(vm.board.device_tree.0, Cow::Owned(tree))] };
            (known, vec![Some(likely), files.initrd])
        }
    };
    let open = open.into_iter().flatten().map(|file| (somewhere, stuff(file)));
    let parts = known.parts.into_iter().map(|(ipa, bytes)| (ipa, Stuff::There(bytes)));
    let parts = parts.chain(open).filter(|(_, stuff)| stuff.size() > 0).collect();
    Ok(Start { entry: known.entry, parts })
}
