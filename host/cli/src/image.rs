//! `weir build`: the image of a system, from its file to the bytes that boot.

use crate::{
    cargo::{Programs, replace},
    check::Rules,
    coloring,
    debian::{self, Kept},
    environment::Environment,
    explain,
    failure::{CALL, Context, Failure, Result, SYSTEM},
    observe, output,
    progress::Spinner,
    screen,
};
use object::{
    Endianness,
    elf::{FileHeader64, PT_LOAD},
    read::elf::{ElfFile, ProgramHeader},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};
use weir_model::{
    Catalog, Code, Fault, Faults, Image, Packed, Payload, Source, Style, System, audit, pack,
    packed::PAGE,
};

/// Builds the image of a system: the hypervisor for its platform, the guests, and the tables.
///
/// Writes `build/SYSTEM-PLATFORM.img` and beside it a `.map` that says what lies where.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  weir build examples/demo/demo.toml\n  weir build examples/demo/demo.toml --platform qemu-virt-gicv2 --json\n  weir build examples/demo/demo.toml --audit\n  weir build examples/demo/demo.toml --dump-dtb build && dtc build/linux.dtb"
)]
pub struct Arguments {
    /// The system file.
    file: PathBuf,
    /// Where to write the image.
    #[arg(short, long, value_name = "IMAGE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Walk every page that the image gives out, and every table of stage 2 and of an SMMU that its boot makes, and show that none has two owners.
    #[arg(long)]
    audit: bool,
    /// Write the device tree that each VM is given there, as NAME.dtb.
    #[arg(long, value_name = "DIR")]
    dump_dtb: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// What goes into an image beside the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Take this platform instead of the file's.
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Take the hypervisor and the guests as they were built last, without calling cargo.
    #[arg(long)]
    pub no_build: bool,
    /// Accept a system whose timing does not hold, as `weir check` with this option does.
    #[arg(long)]
    pub ignore_verdict: bool,
}

impl Options {
    /// The files that these options read of a system, of which `file` is the first.
    pub fn inputs<'a>(&'a self, file: &'a Path) -> Vec<&'a Path> {
        output::inputs([file], self.platform.as_deref())
    }
}

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    if let Some(image) = &arguments.output {
        let map = image.with_extension("map");
        if map == *image {
            return Err(Failure::call(format!(
                "-o: the map goes to {}: name the image otherwise",
                map.display()
            )));
        }
        for output in [image, &map] {
            output::check("-o", output, &arguments.options.inputs(&arguments.file))?;
        }
    }
    let system = checked(&arguments.file, &arguments.options, arguments.json, environment)?;
    let tree_of = |vm: &weir_model::Vm| format!("{}.dtb", vm.name);
    if let Some(directory) = &arguments.dump_dtb {
        let inputs = arguments.options.inputs(&arguments.file);
        output::check_in("--dump-dtb", directory, system.vms.iter().map(tree_of), &inputs)?;
    }
    let mut described = (String::new(), Value::Null);
    let mut audited = None;
    let mut trees = Vec::new();
    let image = build(&system, arguments.options.no_build, environment, |packed| {
        described = describe(&system, packed);
        trees.clone_from(&packed.device_trees);
        audited = arguments.audit.then(|| audit(&system, packed));
    })?;
    if !arguments.options.no_build {
        // A later run with --no-build has all that it takes then.
        Programs::new(environment, false).libraries(environment)?;
    }
    let (map, mut json) = described;
    let audited =
        audited.transpose().map_err(|error| Failure::system(format!("audit: {error}")))?;
    let path = if let Some(path) = &arguments.output {
        path.clone()
    } else {
        let directory = environment.build();
        fs::create_dir_all(&directory).context(|| format!("create {}", directory.display()))?;
        directory.join(format!("{}-{}.img", image_name(&system), system.platform.name))
    };
    replace(&path, &image)?;
    replace(&path.with_extension("map"), map.as_bytes())?;
    if let Some(directory) = &arguments.dump_dtb {
        fs::create_dir_all(directory).context(|| format!("create {}", directory.display()))?;
        for (vm, tree) in system.vms.iter().zip(&trees) {
            replace(&directory.join(tree_of(vm)), tree)?;
        }
    }
    let mut out = screen::stdout();
    if arguments.json {
        json["image"] = path.display().to_string().into();
        if let Some(audited) = &audited {
            json["audit"] = coloring::audit_json(audited);
            json["audited_tables"] = coloring::audited_tables(audited);
        }
        writeln!(out, "{json:#}")?;
    } else {
        writeln!(out, "{map}{} ({} bytes)", path.display(), image.len())?;
        if let Some(audited) = &audited {
            writeln!(out, "{}", coloring::audit_report(audited))?;
        }
    }
    Ok(())
}

/// The name of a system: its file's, without the ending.
pub fn name(system: &System) -> String {
    system
        .path
        .file_stem()
        .map_or_else(|| "system".into(), |stem| stem.to_string_lossy().into_owned())
}

/// The name of its image: the same, but of a `system.toml` its directory's, since each of these is called so.
fn image_name(system: &System) -> String {
    let name = name(system);
    if name != "system" {
        return name;
    }
    let directory = std::path::absolute(&system.path).ok();
    let directory = directory.as_deref().and_then(Path::parent).and_then(Path::file_name);
    directory.map_or(name, |directory| directory.to_string_lossy().into_owned())
}

/// What the names in a system file may stand for.
pub fn catalog(environment: &Environment) -> Catalog {
    let initrds = debian::Initramfs::ALL.iter().map(|kind| kind.name().to_owned()).collect();
    let guests = environment.guests();
    let keys = |name: &String| Some((name.clone(), environment.arguments(name)?));
    let arguments = guests.iter().filter_map(keys).collect();
    Catalog { guests, arguments, initrds, ..Catalog::default() }
}

/// Reads and checks a system file; its faults are the failure's text, and go to standard output where a
/// program waits for JSON there.
pub fn checked(
    file: &Path,
    options: &Options,
    json: bool,
    environment: &Environment,
) -> Result<System> {
    if let Some(platform) = &options.platform {
        crate::check::known(platform)?;
    }
    let checked = crate::check::load(file, options.platform.as_deref(), environment);
    taken(file, checked, options.ignore_verdict, json)
}

/// The system of a file that has been checked, if it runs; else says why not.
pub fn taken(
    file: &Path,
    checked: std::result::Result<System, Faults>,
    ignore_verdict: bool,
    json: bool,
) -> Result<System> {
    let carried_out = |mut system: System| {
        Rules { planning: false, ignore_verdict }.judge(&system)?;
        // What the plug-in counts, EL2 must do in a way that it sees.
        system.hypervisor.observed = observe::plugin::is_needed(&system);
        Ok(system)
    };
    let faults = match checked.and_then(carried_out) {
        Ok(system) => return Ok(system),
        Err(faults) => faults,
    };
    if json {
        writeln!(std::io::stdout(), "{:#}", crate::check::refusal(file, &faults))?;
    }
    Err(Failure { status: whose(&faults), text: rendered(&faults) })
}

/// Whose fault it is: the call's if a system file cannot be read, else the system's.
pub fn whose(faults: &Faults) -> u8 {
    let no_file =
        |fault: &Fault| matches!(fault.code, Code::FileUnreadable | Code::FileIsDirectory);
    if faults.0.iter().any(no_file) { CALL } else { SYSTEM }
}

/// Faults as they are shown on standard error.
pub fn rendered(faults: &Faults) -> String {
    explain::record(faults);
    let fancy = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let style = if fancy { Style::Fancy } else { Style::Plain };
    let width =
        rustix::termios::tcgetwinsize(std::io::stderr()).map_or(100, |size| size.ws_col.into());
    let count = faults.0.len();
    let faults = faults.render(style, width);
    format!("{count} {} in the system:\n{faults}", if count == 1 { "fault" } else { "faults" })
}

/// Builds what the system needs and packs it; gives the image. `look` sees what was packed.
pub fn build(
    system: &System,
    no_build: bool,
    environment: &Environment,
    look: impl FnOnce(&Packed),
) -> Result<Vec<u8>> {
    let programs = Programs::new(environment, no_build);
    let hypervisor = hypervisor(system, &programs, environment)?;
    let files = Files::gather(system, &programs, environment)?;
    let payloads: Vec<Payload> = files
        .of_vms
        .iter()
        .map(|(image, initrd)| Payload {
            image: files.bytes(image),
            initrd: initrd.as_ref().map(|initrd| files.bytes(initrd)),
        })
        .collect();
    let packed = pack(system, &payloads, hypervisor.len() as u64)
        .map_err(|faults| Failure { status: SYSTEM, text: rendered(&faults) })?;
    look(&packed);
    let mut image = packed.image(&hypervisor);
    tell_size(&mut image);
    Ok(image)
}

/// The hypervisor for the system's board, as it lies in memory.
pub fn hypervisor(
    system: &System,
    programs: &Programs,
    environment: &Environment,
) -> Result<Vec<u8>> {
    let elf = programs.hypervisor(environment, system.platform.is_gic_v2())?;
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
        let named = |image: &Image| match image {
            Image::Elf { file: Source::Named(name), .. } => Some(name.clone()),
            _ => None,
        };
        let mut guests: Vec<String> = system.vms.iter().filter_map(|vm| named(&vm.image)).collect();
        guests.sort();
        guests.dedup();
        let guests = programs.guests(environment, &guests)?;
        let mut files = Self::default();
        for vm in &system.vms {
            let (image, initrd) = match &vm.image {
                Image::Elf { file: Source::Named(name), .. } => {
                    let path = guests.get(name).cloned();
                    (path.ok_or_else(|| unknown("guest", name))?, None)
                }
                Image::Elf { file: Source::File(path), .. } => (path.clone(), None),
                Image::Bin { file, .. } => (fetch("image", file, programs, environment)?, None),
                Image::Linux { kernel, initrd, .. } => {
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
    source: &Source,
    programs: &Programs,
    environment: &Environment,
) -> Result<PathBuf> {
    let name = match source {
        Source::File(path) => return Ok(path.clone()),
        Source::Named(name) => name,
    };
    let what = Kept::named(role, name).ok_or_else(|| unknown(role, name))?;
    let cache = debian::cache_dir(environment.root()?);
    let talk = match what {
        Kept::Initramfs(debian::Initramfs::Vsock) => {
            let path = programs.talk(environment)?;
            Some(fs::read(&path).context(|| format!("read {}", path.display()))?)
        }
        _ => None,
    };
    let _spinner = Spinner::new(format!("looking for Debian's {name}"));
    let path = match what {
        Kept::Linux => debian::linux_rt(&cache).map(|linux| linux.image),
        Kept::Initramfs(kind) => debian::initramfs(&cache, kind, talk),
        Kept::UBoot => debian::u_boot(&cache),
    };
    path.map_err(|error| Failure::environment(error.to_string()))
}

/// The hypervisor as it lies in memory: its PT_LOAD segments at their physical addresses, from the
/// lowest on, what the file does not have as zeros, up to a multiple of the page.
fn flatten(elf: &[u8]) -> std::result::Result<Vec<u8>, String> {
    const LARGEST: u64 = 64 << 20;
    let file =
        ElfFile::<FileHeader64<Endianness>>::parse(elf).map_err(|error| error.to_string())?;
    let endian = file.endian();
    let segments = || {
        let loaded = file.elf_program_headers().iter();
        loaded.filter(|header| header.p_type(endian) == PT_LOAD && header.p_memsz(endian) > 0)
    };
    let start =
        segments().map(|header| header.p_paddr(endian)).min().ok_or("it has no segments")?;
    let mut flat = Vec::new();
    for header in segments() {
        let data = header.data(endian, elf).map_err(|()| "a segment is cut short")?;
        let offset = header.p_paddr(endian) - start;
        let length = header.p_memsz(endian).max(data.len() as u64);
        let end = offset.checked_add(length).filter(|end| *end <= LARGEST);
        let end = end.ok_or("its segments are too far apart")?.next_multiple_of(PAGE) as usize;
        if flat.len() < end {
            flat.resize(end, 0);
        }
        let offset = offset as usize;
        let place = flat.get_mut(offset..offset + data.len()).ok_or("a segment is too long")?;
        place.copy_from_slice(data);
    }
    Ok(flat)
}

/// Writes the length of the whole image into its arm64 Image header, where a boot loader looks for the
/// memory that it must leave alone. Source: Linux, Documentation/arch/arm64/booting.rst, section 4.
fn tell_size(image: &mut [u8]) {
    const MAGIC: (usize, &[u8]) = (56, b"ARM\x64");
    const SIZE: usize = 16;
    let length = image.len() as u64;
    if image.get(MAGIC.0..).is_some_and(|rest| rest.starts_with(MAGIC.1))
        && let Some(size) = image.get_mut(SIZE..SIZE + 8)
    {
        size.copy_from_slice(&length.to_le_bytes());
    }
}

/// What lies where, for a person and for a program, with the check sum of each VM's memory as it is before
/// its first instruction.
fn describe(system: &System, packed: &Packed) -> (String, Value) {
    let mut map = format!("{}\n\n", crate::check::map(&packed.placement).for_file());
    let mut vms = Vec::new();
    for (place, vm) in system.vms.iter().enumerate() {
        let crc = format!("{:08x}", packed.pristine_crc32c(place));
        let _ = writeln!(map, "{}: pristine memory has CRC-32C {crc}", vm.name);
        vms.push(json!({
            "name": vm.name,
            "cores": vm.cpus.iter().map(|core| core.0).collect::<Vec<_>>(),
            "pristine_crc32c": crc,
        }));
    }
    let json = json!({
        "system": name(system),
        "platform": system.platform.name,
        "bytes": packed.image_len,
        "load_address": format!("{:#x}", system.platform.load_address.0),
        "vms": vms,
        "placement": crate::check::placement(&packed.placement),
    });
    (map, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_header_tells_the_whole_length() {
        let mut image = vec![0; 4096];
        tell_size(&mut image);
        assert_eq!(image, [0; 4096], "no header, no change");
        image[56..60].copy_from_slice(b"ARM\x64");
        tell_size(&mut image);
        assert_eq!(image[16..24], 4096u64.to_le_bytes());
        tell_size(&mut []);
    }

    /// An ELF file with these segments: (physical address, size in memory, contents).
    fn elf(segments: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56 * segments.len()];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[16..20].copy_from_slice(&[2, 0, 183, 0]);
        file[20] = 1;
        file[32] = 64;
        file[52] = 64;
        file[54] = 56;
        file[56] = segments.len() as u8;
        for (n, (address, size, contents)) in segments.iter().enumerate() {
            let offset = file.len() as u64;
            file.extend_from_slice(contents);
            let header = &mut file[64 + 56 * n..][..56];
            header[0] = 1;
            let fields = [offset, 0xffff_0000_0000_0000, *address, contents.len() as u64, *size];
            for (field, value) in fields.iter().enumerate() {
                header[8 + 8 * field..][..8].copy_from_slice(&value.to_le_bytes());
            }
        }
        file
    }

    #[test]
    fn segments_lie_at_their_physical_addresses() {
        let file = elf(&[(0x3000, 0x1800, b"data"), (0x1000, 4, b"code"), (0, 0, b"")]);
        let flat = flatten(&file).expect("an ELF file");
        assert_eq!(flat.len(), 0x4000, "with .bss, up to a page");
        assert_eq!((&flat[..5], &flat[0x2000..0x2005]), (&b"code\0"[..], &b"data\0"[..]));
    }

    #[test]
    fn strange_files_are_refused() {
        assert!(flatten(b"no ELF file").is_err());
        assert!(flatten(&elf(&[])).is_err());
        assert!(flatten(&elf(&[(0, 1, b""), (1 << 40, 1, b"")])).is_err());
        assert!(flatten(&elf(&[(0, u64::MAX, b"")])).is_err());
        assert!(flatten(&elf(&[(0, 1, b"more than its size")])).is_ok());
        let file = elf(&[(0, 16, b"0123456789")]);
        assert!(flatten(&file[..file.len() - 1]).is_err(), "cut short");
    }
}
