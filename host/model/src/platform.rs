//! Boards: those that weir knows by name, and files. `description` has what is known of a board,
//! `read` reads it, and `record` is what a JSON result has of it.

mod description;
mod read;
mod record;

pub use self::description::{
    DmaEngine, EngineKind, EngineQos, Feature, Machine, NamedDevice, Platform, PlatformCore,
    PlatformGic, Qemu, RamRange, Uart, UartKind, Verified,
};
use self::read::parse;
pub use self::record::{
    CacheRecord, DeviceRecord, DramRecord, GicRecord, MemoryRecord, PlatformRecord, QemuRecord,
    UartRecord, VerifiedRecord,
};
use crate::diagnostics::Code;
use crate::fault::{self, Fault, Faults, File};
use crate::files;
use crate::shape::suggestion;
use crate::table::At;
use std::{path::Path, sync::LazyLock};

/// Longest flattened device tree of a board, in bytes; boards' are below 100 KiB.
const TREE_LIMIT: u64 = 1 << 20;

struct Embedded {
    name: &'static str,
    text: &'static str,
    device_tree: &'static [u8],
}

static EMBEDDED: [Embedded; 8] = [
    Embedded {
        name: "qemu-virt",
        text: include_str!("../../../boards/qemu-virt/board.toml"),
        device_tree: include_bytes!("../../../boards/qemu-virt/qemu-virt.dtb"),
    },
    Embedded {
        name: "qemu-virt-gicv2",
        text: include_str!("../../../boards/qemu-virt-gicv2/board.toml"),
        device_tree: include_bytes!("../../../boards/qemu-virt-gicv2/qemu-virt-gicv2.dtb"),
    },
    Embedded {
        name: "zcu102",
        text: include_str!("../../../boards/zcu102/board.toml"),
        device_tree: &[],
    },
    Embedded {
        name: "zcu104",
        text: include_str!("../../../boards/zcu104/board.toml"),
        device_tree: &[],
    },
    Embedded {
        name: "rpi4",
        text: include_str!("../../../boards/rpi4/board.toml"),
        device_tree: &[],
    },
    Embedded {
        name: "versal-virt",
        text: include_str!("../../../boards/versal-virt/board.toml"),
        device_tree: &[],
    },
    Embedded {
        name: "qemu-virt-el3",
        text: include_str!("../../../boards/qemu-virt-el3/board.toml"),
        device_tree: &[],
    },
    Embedded {
        name: "gem5",
        text: include_str!("../../../boards/gem5/board.toml"),
        device_tree: &[],
    },
];

/// The embedded platforms, read once.
static KNOWN: LazyLock<Vec<Platform>> = LazyLock::new(|| {
    let read = |embedded: &Embedded| {
        let file = fault::file(Path::new(embedded.name), embedded.text);
        parse(&file, |_| Ok(embedded.device_tree.to_vec())).ok()
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
                let message = format!("the platform file {name} is at fault");
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
    let message = format!("there is no platform `{name}`");
    let help = suggestion(name, Platform::names());
    let fault = Fault::new(Code::PlatformUnknown, file, span.clone(), message).label("unknown");
    faults.push(fault.help(format!("{help}, or the path of a platform's TOML file")));
    None
}
