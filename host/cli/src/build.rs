//! `weir build`: writes the image of a system and the map of what lies where in it.

use crate::{
    cargo::replace,
    coloring,
    environment::Environment,
    failure::{Context, Failure, Result},
    image, output, screen,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};
use weir_analysis::CheckRules;
use weir_image::Format;
use weir_model::{Audited, Faults, MapRecord, Packed, System, audit, platform::Machine};
use weir_report::{check::RefusedFile, coloring::AuditedTables, versioned};

/// Builds the image of a system: the hypervisor for its platform, the guests, and the tables.
///
/// Writes `build/SYSTEM-PLATFORM.img` (`.uimg`, `.itb`, `.elf` with --format) and next to it a
/// `.map` file, the memory map.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir build examples/demo/demo.toml\n  \
        weir build examples/demo/demo.toml --platform qemu-virt-gicv2 --json\n  \
        weir build examples/demo/demo.toml --platform zcu102 --format fit\n  \
        weir build examples/demo/demo.toml --audit\n  \
        weir build examples/demo/demo.toml --dump-dtb build && dtc build/linux.dtb")]
pub struct BuildArguments {
    /// The system file.
    file: PathBuf,
    /// The format of the file: an arm64 Image (`booti`, QEMU), one of U-Boot's for `bootm`, or an
    /// ELF file (gem5).
    #[arg(long, value_name = "FORMAT", default_value = "image", value_parser = format_of)]
    format: Format,
    /// Where to write the image.
    #[arg(short, long, value_name = "IMAGE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: BuildOptions,
    /// Walk every page that the image gives out, and every table of stage 2 and of an SMMU that its
    /// boot makes, and show that none has two owners.
    #[arg(long)]
    audit: bool,
    /// Write the device tree that each VM is given there, as NAME.dtb.
    #[arg(long, value_name = "DIR")]
    dump_dtb: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// The options of an image in addition to the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BuildOptions {
    /// Take this platform instead of the file's.
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Take the hypervisor and the guests as they were built last, without calling cargo.
    #[arg(long)]
    pub no_build: bool,
    /// Build the hypervisor with all its parts, not only those that the system uses.
    #[arg(long, conflicts_with = "no_build")]
    pub all_parts: bool,
    /// Accept a system with timing that does not hold, as `weir check` with this option does.
    #[arg(long)]
    pub ignore_verdict: bool,
}

impl BuildOptions {
    /// The files that these options read of a system, of which `file` is the first.
    pub fn inputs<'a>(&'a self, file: &'a Path) -> impl Iterator<Item = &'a Path> {
        [file].into_iter().chain(self.platform.as_deref().map(Path::new))
    }
}

pub fn format_of(name: &str) -> std::result::Result<Format, String> {
    let found = Format::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| "the formats are image, uimage, fit and elf".to_owned())
}

/// A built image.
#[derive(Serialize, JsonSchema)]
pub struct BuiltImage {
    /// The name of the system file without its extension.
    system: String,
    /// The platform.
    platform: String,
    /// The bytes of the image, without the header of its format.
    bytes: u64,
    /// The address of the image when its first instruction runs, in hexadecimal.
    load_address: String,
    /// The VMs in the order of the file.
    vms: Vec<BuiltVm>,
    /// The memory map.
    placement: Vec<MapRecord>,
    /// The file with the image.
    image: String,
    /// The result of `--audit` for each owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<Vec<Audited>>,
    /// The tables that `--audit` walked.
    #[serde(skip_serializing_if = "Option::is_none")]
    audited_tables: Option<AuditedTables>,
}

/// A VM of a built image.
#[derive(Serialize, JsonSchema)]
struct BuiltVm {
    /// The name of the VM.
    name: String,
    /// The core of each vCPU.
    cores: Vec<u8>,
    /// The CRC-32C of its memory before its first instruction, in hexadecimal.
    pristine_crc32c: String,
}

/// Carries the verb out.
pub fn run(arguments: &BuildArguments, environment: &Environment) -> Result {
    if let Some(image) = &arguments.output {
        let map = image.with_extension("map");
        if map == *image {
            return Err(Failure::call(format!(
                "--output: the map goes to {}: name the image otherwise",
                map.display()
            )));
        }
        for output in [image, &map] {
            output::check(Some(output.as_path()), arguments.options.inputs(&arguments.file))?;
        }
    }
    let BuildArguments { file, options, json, .. } = arguments;
    let system = checked(file, options, Machine::Board, *json, environment)?;
    let tree_of = |vm: &weir_model::Vm| format!("{}.dtb", vm.name);
    let BuildOptions { no_build, all_parts, .. } = arguments.options;
    let options = image::ImageOptions {
        environment: environment.clone(),
        no_build,
        all_parts,
        fixed_seeds: false,
    };
    let built = image::build(&system, &options)?;
    let audited = arguments.audit.then(|| audit(&system, &built.packed)).transpose();
    let audited = audited.map_err(|error| Failure::system(format!("audit: {error}")))?;
    let path = if let Some(path) = &arguments.output {
        path.clone()
    } else {
        let directory = environment.images();
        fs::create_dir_all(&directory).context(|| format!("create {}", directory.display()))?;
        let extension = arguments.format.extension();
        directory.join(format!("{}-{}.{extension}", image_name(&system), system.platform().name))
    };
    let (map, mut described) = describe(&system, &built.packed, &path);
    let file = arguments.format.wrap(built.bytes, &system)?;
    replace(&path, &file)?;
    replace(&path.with_extension("map"), map.as_bytes())?;
    if let Some(directory) = &arguments.dump_dtb {
        fs::create_dir_all(directory).context(|| format!("create {}", directory.display()))?;
        for (vm, tree) in system.vms.iter().zip(&built.packed.device_trees) {
            replace(&directory.join(tree_of(vm)), tree)?;
        }
    }
    let mut out = screen::stdout();
    if arguments.json {
        described.audited_tables = audited.as_deref().map(coloring::audited_tables);
        described.audit = audited;
        writeln!(out, "{:#}", versioned(described))?;
    } else {
        writeln!(out, "{map}{} ({} bytes)", path.display(), file.len())?;
        if let Some(audited) = &audited {
            writeln!(out, "{}", coloring::audit_report(audited))?;
        }
    }
    Ok(())
}

/// Returns the memory map, with the check sum of each VM's memory as it is before its first
/// instruction, for a person and for a program.
fn describe(system: &System, packed: &Packed, image: &Path) -> (String, BuiltImage) {
    let mut map = format!("{}\n\n", crate::check::map(&packed.placement).for_file());
    let mut vms = Vec::new();
    for (place, vm) in system.vms.iter().enumerate() {
        let crc = format!("{:08x}", packed.pristine_crc32c(place));
        let _ = writeln!(map, "{}: pristine memory has CRC-32C {crc}", vm.name);
        vms.push(BuiltVm {
            name: vm.name.clone(),
            cores: vm.cpus.iter().map(|core| core.0).collect(),
            pristine_crc32c: crc,
        });
    }
    let built = BuiltImage {
        system: image::name(system),
        platform: system.platform().name.clone(),
        bytes: packed.file_len,
        load_address: format!("{:#x}", system.platform().load_address.0),
        vms,
        placement: packed.placement.records(),
        image: image.display().to_string(),
        audit: None,
        audited_tables: None,
    };
    (map, built)
}

/// The name of its image: the same, but of a `system.toml` its directory's, since each of these is
/// called so.
pub fn image_name(system: &System) -> String {
    let name = image::name(system);
    if name != "system" {
        return name;
    }
    let directory = std::path::absolute(&system.path).ok();
    let directory = directory.as_deref().and_then(Path::parent).and_then(Path::file_name);
    directory.map_or(name, |directory| directory.to_string_lossy().into_owned())
}

/// Reads and checks a system file for a board or QEMU's machine of the board. Its faults are the
/// failure's text, and go to standard output where a program waits for JSON there.
pub fn checked(
    file: &Path,
    options: &BuildOptions,
    machine: Machine,
    json: bool,
    environment: &Environment,
) -> Result<System> {
    if let Some(platform) = &options.platform {
        image::check_platform(platform)?;
    }
    let checked = image::load(file, options.platform.as_deref(), machine, environment);
    taken(file, checked, options.ignore_verdict, json)
}

/// The system of a file that has been checked, if it runs; else returns why not.
pub fn taken(
    file: &Path,
    checked: std::result::Result<System, Faults>,
    ignore_verdict: bool,
    json: bool,
) -> Result<System> {
    let to_build = |system: System| {
        CheckRules { planning: false, ignore_verdict }.judge(&system)?;
        Ok(image::to_build(system))
    };
    let faults = match checked.and_then(to_build) {
        Ok(system) => return Ok(system),
        Err(faults) => faults,
    };
    if json {
        writeln!(std::io::stdout(), "{:#}", versioned(RefusedFile::new(file, &faults)))?;
    }
    Err(image::refused(&faults))
}
