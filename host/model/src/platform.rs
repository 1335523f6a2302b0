//! Boards: those that weir knows by name, and files. `description` has what is known of a board,
//! `read` reads it, and `record` is what a JSON result has of it.

mod description;
mod read;
mod record;

pub use self::description::{
    Counters, DmaEngine, EngineKind, EngineQos, Feature, Machine, NamedDevice, Platform,
    PlatformCore, PlatformGic, Qemu, RamRange, Uart, UartKind, Verified,
};
use self::read::parse;
pub use self::record::{
    CacheRecord, DeviceRecord, DramRecord, GicRecord, MemoryRecord, PlatformRecord, QemuRecord,
    UartRecord, VerifiedRecord,
};
use crate::diagnostics::Code;
use crate::fault::{self, Fault, Faults, File};
use crate::files;
pub use crate::keys::board::{CounterPageSource, Pmu};
use crate::object::Object;
use crate::shape::suggestion;
use crate::table::At;
use std::{path::Path, sync::LazyLock};

/// Longest flattened device tree of a board, in bytes; boards' are below 100 KiB.
const TREE_LIMIT: u64 = 1 << 20;

struct Embedded {
    name: &'static str,
    text: &'static str,
    /// The flattened device tree, or nothing.
    device_tree: &'static [&'static [u8]],
}

/// Embeds the board files of these names, each with a device tree if that is there.
macro_rules! embedded {
    ($($name:literal $(with $tree:literal)?),+ $(,)?) => {
        &[$(Embedded {
            name: $name,
            text: include_str!(concat!("../../../boards/", $name, "/board.toml")),
            device_tree: &[$(include_bytes!(concat!("../../../boards/", $tree)).as_slice())?],
        }),+]
    };
}

static EMBEDDED: &[Embedded] = embedded![
    "qemu-virt" with "qemu-virt/qemu-virt.dtb",
    "qemu-virt-gicv2" with "qemu-virt-gicv2/qemu-virt-gicv2.dtb",
    "zcu102",
    "zcu104",
    "rpi4",
    "versal-virt",
    "qemu-virt-el3",
    "gem5",
];

/// The embedded platforms, read once.
static KNOWN: LazyLock<Vec<Platform>> = LazyLock::new(|| {
    let read = |embedded: &Embedded| {
        let file = fault::file(Path::new(embedded.name), embedded.text);
        parse(&file, |_| Ok(embedded.device_tree.concat())).ok()
    };
    EMBEDDED.iter().filter_map(read).collect()
});

impl Platform {
    /// The platforms that weir knows by name.
    #[must_use]
    pub fn all() -> Vec<Self> {
        KNOWN.clone()
    }

    /// The names of [`Platform::all`].
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        EMBEDDED.iter().map(|embedded| embedded.name)
    }

    /// The platform that weir knows by this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.iter().find(|platform| platform.name == name).cloned()
    }

    /// Reads a platform file and the device tree next to it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        let file = fault::read(path)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        parse(&file, |name| {
            let path = directory.join(name);
            files::read_short(&path, TREE_LIMIT)
                .map_err(|error| format!("cannot read {name}: {error}"))
        })
    }
}

/// The platform that a file in `directory` names.
pub(crate) fn find(
    file: &File,
    directory: &Path,
    name: &At<String>,
    faults: &mut Faults,
) -> Option<Platform> {
    let At { value: name, span } = name;
    if let Some(platform) = Platform::named(name) {
        return Some(platform);
    }
    let path = directory.join(name);
    if path.extension().is_some_and(|extension| extension == "toml") && path.exists() {
        return match Platform::load(&path) {
            Ok(platform) => Some(platform),
            Err(broken) => {
                let message = format!("the system: `platform` names {name}, which has faults");
                let fault =
                    Fault::new(Code::PlatformBroken, file, span.clone(), message).label("this");
                let list: Vec<_> = broken
                    .0
                    .iter()
                    .map(|fault| format!("{}: {}: {fault}", fault.location(), fault.code))
                    .collect();
                faults.push(fault.help(list.join("; ")));
                None
            }
        };
    }
    let message = format!("the system: there is no {}", Object::platform(name));
    let help = suggestion(name, Platform::names());
    let fault = Fault::new(Code::PlatformUnknown, file, span.clone(), message).label("unknown");
    faults.push(fault.help(format!("{help}, or the path of a platform's TOML file")));
    None
}
