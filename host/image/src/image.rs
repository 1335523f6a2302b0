//! The image of a system: the hypervisor, the guests and the tables, as one file that boots.

use crate::{
    cargo::Programs,
    debian::{self, Kept},
    environment::Environment,
    failure::{Context, Failure, Result, SYSTEM},
    features::features_of,
    flat::{Flat, flatten},
    seed,
    system::rendered,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use weir_abi::Features;
use weir_model::{Image as VmImage, ImageSource, Packed, Payload, System, pack};

/// How an image is built.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    /// The checkout and the tools.
    pub environment: Environment,
    /// Takes the hypervisor and the guests as they were built last, without calling cargo.
    pub no_build: bool,
    /// Builds the hypervisor with all its parts, not only those that the system uses.
    pub all_parts: bool,
    /// Gives each VM the same `kaslr-seed` and `rng-seed` everywhere; otherwise they follow from
    /// random bytes of this checkout.
    pub fixed_seeds: bool,
}

/// An image that boots.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    /// The contents of the image file.
    pub bytes: Vec<u8>,
    /// Where everything lies in memory, the device trees and the tables.
    pub packed: Packed<'static>,
}

/// Builds the hypervisor and the guests of a system and packs them.
///
/// # Errors
///
/// The system is at fault if its parts do not fit into memory; the environment is if a part can
/// neither be built nor be fetched.
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
/// use weir_image::{Environment, ImageOptions, build, check};
///
/// # fn main() -> weir_image::Result {
/// let environment = Environment::find();
/// let system = check(Path::new("examples/demo/demo.toml"), None, &environment)?;
/// let image = build(&system, &ImageOptions {
///     environment,
///     no_build: false,
///     all_parts: false,
///     fixed_seeds: false,
/// })?;
/// println!("{} bytes, {} pieces", image.bytes.len(), image.packed.placement.rows.len());
/// # Ok(())
/// # }
/// ```
pub fn build(system: &System, options: &ImageOptions) -> Result<BuiltImage> {
    let ImageOptions { environment, no_build, all_parts, fixed_seeds } = options;
    let mut system = system.clone();
    if !fixed_seeds {
        let secret = seed::secret(environment)?;
        system.vms.iter_mut().for_each(|vm| vm.seed = seed::of(&secret, &vm.name));
    }
    let system = &system;
    let programs = Programs::new(environment, *no_build);
    let parts = if *all_parts { Features::ALL } else { features_of(system) };
    let hypervisor = hypervisor(system, &programs, parts, environment)?;
    let files = Files::gather(system, &programs, environment)?;
    let payloads: Vec<Payload> = files
        .of_vms
        .iter()
        .map(|(image, initrd)| Payload {
            image: files.bytes(image),
            initrd: initrd.as_ref().map(|initrd| files.bytes(initrd)),
        })
        .collect();
    let packed = pack(system, &payloads, hypervisor.size())
        .map_err(|faults| Failure { status: SYSTEM, text: rendered(&faults) })?;
    let mut bytes = packed.image(&hypervisor.bytes);
    write_size(&mut bytes, packed.image_len);
    Ok(BuiltImage { bytes, packed: packed.into_owned() })
}

/// Returns the hypervisor with these parts for the system's board, as it lies in memory.
pub(crate) fn hypervisor(
    system: &System,
    programs: &Programs,
    parts: Features,
    environment: &Environment,
) -> Result<Flat> {
    let elf = programs.hypervisor(environment, system.platform(), parts)?;
    let hypervisor = fs::read(&elf).context(|| format!("read {}", elf.display()))?;
    flatten(&hypervisor).map_err(|error| {
        Failure::environment(format!("{} is not a hypervisor: {error}", elf.display()))
    })
}

/// The files that a system's images come from, each read once.
#[derive(Debug, Default)]
struct Files {
    contents: BTreeMap<PathBuf, Vec<u8>>,
    of_vms: Vec<(PathBuf, Option<PathBuf>)>,
}

impl Files {
    fn gather(system: &System, programs: &Programs, environment: &Environment) -> Result<Self> {
        let named = |image: &VmImage| match image {
            VmImage::Elf { file: ImageSource::Named(name), .. } => Some(name.clone()),
            _ => None,
        };
        let mut guests: Vec<String> = system.vms.iter().filter_map(|vm| named(&vm.image)).collect();
        guests.sort();
        guests.dedup();
        let guests = programs.guests(environment, &guests)?;
        let mut files = Self::default();
        for vm in &system.vms {
            let (image, initrd) = match &vm.image {
                VmImage::Elf { file: ImageSource::Named(name), .. } => {
                    let path = guests.get(name).cloned();
                    (path.ok_or_else(|| unknown("guest", name))?, None)
                }
                VmImage::Elf { file: ImageSource::File(path), .. } => (path.clone(), None),
                VmImage::Bin { file, .. } => (fetch("image", file, programs, environment)?, None),
                VmImage::Linux { kernel, initrd, .. } => {
                    let initrd = initrd.as_ref();
                    let initrd =
                        initrd.map(|initrd| fetch("initrd", initrd, programs, environment));
                    (fetch("kernel", kernel, programs, environment)?, initrd.transpose()?)
                }
            };
            for path in std::iter::once(&image).chain(&initrd) {
                if !files.contents.contains_key(path) {
                    let contents = weir_model::read_regular(path)
                        .context(|| format!("read {}", path.display()))?;
                    files.contents.insert(path.clone(), contents);
                }
            }
            files.of_vms.push((image, initrd));
        }
        Ok(files)
    }

    fn bytes(&self, path: &Path) -> &[u8] {
        self.contents.get(path).map_or(&[], Vec::as_slice)
    }
}

fn unknown(role: &str, name: &str) -> Failure {
    Failure::environment(format!("this weir cannot provide the {role} {name}"))
}

/// The file behind a source, out of Debian's packages if it is a name.
fn fetch(
    role: &str,
    source: &ImageSource,
    programs: &Programs,
    environment: &Environment,
) -> Result<PathBuf> {
    let name = match source {
        ImageSource::File(path) => return Ok(path.clone()),
        ImageSource::Named(name) => name,
    };
    let what = Kept::named(role, name).ok_or_else(|| unknown(role, name))?;
    let cache = environment.downloads()?;
    let talk = match what {
        Kept::Initramfs(kind) if kind.has_vsock_tool => {
            let path = programs.vsock_tool(environment)?;
            Some(fs::read(&path).context(|| format!("read {}", path.display()))?)
        }
        _ => None,
    };
    debian::make(&cache, what, talk)
}

/// Writes the length of the whole image in memory into its arm64 Image header. A boot loader reads
/// the memory there that it must not use; the hypervisor finds its `.bss` and its stacks at the end
/// of it. Source: Linux, Documentation/arch/arm64/booting.rst, section 4.
fn write_size(image: &mut [u8], length: u64) {
    const MAGIC: (usize, &[u8]) = (56, b"ARM\x64");
    const SIZE: usize = 16;
    if image.get(MAGIC.0..).is_some_and(|rest| rest.starts_with(MAGIC.1))
        && let Some(size) = image.get_mut(SIZE..SIZE + 8)
    {
        size.copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_header_has_the_whole_length() {
        let mut image = vec![0; 4096];
        write_size(&mut image, 8192);
        assert_eq!(image, [0; 4096], "no header, no change");
        image[56..60].copy_from_slice(b"ARM\x64");
        write_size(&mut image, 8192);
        assert_eq!(image[16..24], 8192u64.to_le_bytes());
        write_size(&mut [], 8192);
    }
}
