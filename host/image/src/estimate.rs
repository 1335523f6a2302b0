//! Where an image will lie, estimated before its parts are built or fetched.

use crate::{
    cargo::Programs, debian, environment::Environment, features::features_of, flat::Flat, image,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};
use weir_model::{
    Faults, HypervisorSize, Image, ImageFile, ImageFiles, ImageSource, LIKELY_HYPERVISOR,
    LIKELY_KERNEL, LIKELY_PROGRAM, Placement, System, read_regular,
};
use weir_units::Bytes;

/// A part of a system that is neither built nor fetched yet, and its estimated size.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Guess {
    /// The VM that the part belongs to; none for the hypervisor.
    vm: Option<String>,
    /// The role of the part, such as `image`.
    what: &'static str,
    /// The source of the part: a path, or the name of a program.
    source: Option<String>,
    /// The estimated size in bytes.
    bytes: u64,
}

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vm, what, source, bytes } = self;
        let vm = vm.as_deref().unwrap_or("weir");
        let source = source.as_ref().map_or(String::new(), |source| format!(" {source}"));
        write!(f, "{vm}'s {what}{source} at {}", Bytes(*bytes))
    }
}

/// Returns the name of a source, or its path.
#[must_use]
pub fn source(source: &ImageSource) -> String {
    match source {
        ImageSource::File(path) => path.display().to_string(),
        ImageSource::Named(name) => name.clone(),
    }
}

/// The parts of a system's image that exist, and the estimated sizes of the others. Nothing is
/// built or fetched.
#[derive(Debug)]
pub struct Estimate {
    contents: BTreeMap<PathBuf, Vec<u8>>,
    /// Of each VM the image and the initial RAM disk.
    of_vms: Vec<(Part, Option<Part>)>,
    hypervisor: HypervisorSize,
    /// The parts with estimated sizes.
    pub guessed: Vec<Guess>,
}

/// A file, or its estimated size.
#[derive(Debug)]
enum Part {
    There(PathBuf),
    Likely(ImageSource, Bytes),
}

impl Estimate {
    /// Finds the parts of `system`.
    #[must_use]
    pub fn of(system: &System, environment: &Environment) -> Self {
        let programs = Programs::new(environment, true);
        let kept = image::hypervisor(system, &programs, features_of(system), environment).ok();
        let mut parts = Self {
            contents: BTreeMap::new(),
            of_vms: Vec::new(),
            hypervisor: kept.as_ref().map_or(
                HypervisorSize { file: LIKELY_HYPERVISOR.0, memory: LIKELY_HYPERVISOR.0 },
                Flat::size,
            ),
            guessed: Vec::new(),
        };
        if kept.is_none() {
            let (vm, source) = (None, None);
            parts.guessed.push(Guess { vm, what: "image", source, bytes: LIKELY_HYPERVISOR.0 });
        }
        for vm in &system.vms {
            let (what, otherwise) = match &vm.image {
                Image::Linux { .. } => ("kernel", LIKELY_KERNEL),
                _ => ("image", LIKELY_PROGRAM),
            };
            let mut part = |what, from: &ImageSource, otherwise: Bytes| {
                if let Some(path) = present(what, from, &programs, environment)
                    && parts.read(&path)
                {
                    return Part::There(path);
                }
                let (vm, source) = (Some(vm.name.clone()), Some(source(from)));
                parts.guessed.push(Guess { vm, what, source, bytes: otherwise.0 });
                Part::Likely(from.clone(), otherwise)
            };
            let image = part(what, vm.image.source(), otherwise);
            let initrd = vm.image.initrd().map(|initrd| part("initrd", initrd, LIKELY_PROGRAM));
            parts.of_vms.push((image, initrd));
        }
        parts
    }

    /// Whether the contents of a file are known now.
    fn read(&mut self, path: &Path) -> bool {
        if !self.contents.contains_key(path) {
            let Ok(contents) = read_regular(path) else { return false };
            self.contents.insert(path.to_owned(), contents);
        }
        true
    }

    /// Returns where everything will lie.
    ///
    /// # Errors
    ///
    /// Why the image cannot be built.
    pub fn placement(&self, system: &System) -> Result<Placement, Faults> {
        let images: Vec<_> = self
            .of_vms
            .iter()
            .map(|(image, initrd)| ImageFiles {
                image: self.estimated(image),
                initrd: initrd.as_ref().map(|initrd| self.estimated(initrd)),
            })
            .collect();
        weir_model::estimate(system, &images, self.hypervisor)
    }

    fn estimated<'a>(&'a self, part: &'a Part) -> ImageFile<'a> {
        match part {
            Part::There(path) => {
                ImageFile::Known(self.contents.get(path).map_or(&[], Vec::as_slice))
            }
            Part::Likely(source, size) => ImageFile::Estimated(source, *size),
        }
    }
}

/// The file behind a source, if nothing must be built or fetched for it.
fn present(
    role: &str,
    source: &ImageSource,
    programs: &Programs,
    environment: &Environment,
) -> Option<PathBuf> {
    let name = match source {
        ImageSource::File(path) => return Some(path.clone()),
        ImageSource::Named(name) => name,
    };
    let path = match debian::Kept::named(role, name) {
        Some(what) => debian::kept(&environment.downloads().ok()?, what),
        None if role == "initrd" => None,
        None => Some(programs.path(name)),
    };
    path.filter(|path| path.is_file())
}
