//! The values of a system file, of which only keys, types and units are checked.
//!
//! Every value carries its place in the file. A value that was wrong, and reported as such, is
//! `None` here, so that the checker goes on with the rest.

use crate::document::{At, Values, number, text};
use std::ops::Range;
use toml::{Spanned, de::DeTable};
use weir_abi::{OnFault, OnOutside, schedule};
use weir_units::{Bytes, BytesPerSec, Nanos};

/// A file as it stands.
#[derive(Debug, Default)]
pub(crate) struct System {
    pub platform: Option<At<String>>,
    pub hypervisor: Hypervisor,
    /// The broker's `cpus`.
    pub broker: Option<At<Vec<At<u64>>>>,
    pub vms: Vec<Vm>,
    /// Where `vm` is a list with nothing in it.
    pub no_vms: Option<Range<usize>>,
}

impl System {
    /// Returns whether the file has all that is needed to build the system.
    pub(crate) fn is_complete(&self) -> bool {
        let is_given = |vm: &Vm| vm.cpus.is_some() && vm.memory.is_some() && vm.image.is_some();
        self.platform.is_some() && !self.vms.is_empty() && self.vms.iter().all(is_given)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Hypervisor {
    pub console_core: Option<At<u64>>,
    pub heartbeat: Option<At<Nanos>>,
}

#[derive(Debug)]
pub(crate) struct Vm {
    /// The table's header.
    pub span: Range<usize>,
    pub name: Option<At<String>>,
    /// Of the whole list.
    pub cpus: Option<At<Vec<At<u64>>>>,
    pub memory: Option<At<Memory>>,
    pub image: Option<At<Image>>,
    pub devices: Option<At<Devices>>,
    pub on_fault: OnFault,
    pub on_outside: OnOutside,
    pub ticks: u8,
    pub focus: bool,
    pub vsock: Option<At<String>>,
    pub net: Option<At<Net>>,
    pub pmu: Option<At<u64>>,
    pub expect: Option<At<Vec<At<String>>>>,
    pub board: Board,
}

impl Vm {
    /// What to call it in a message.
    pub(crate) fn title(&self) -> String {
        self.name.as_ref().map_or("a VM".to_owned(), |name| name.value.clone())
    }
}

#[derive(Debug)]
pub(crate) struct Net {
    pub mac: Option<At<String>>,
    pub rate: Option<At<u64>>,
    pub burst: Option<At<u64>>,
    pub bandwidth: Option<At<BytesPerSec>>,
    pub uplink: bool,
}

#[derive(Debug)]
pub(crate) enum Memory {
    Size(Bytes),
    Pieces(Vec<At<Piece>>),
}

impl Memory {
    /// The sizes of all pieces together; none for an empty list.
    pub(crate) fn total(&self) -> Option<Bytes> {
        match self {
            Self::Size(size) => Some(*size),
            Self::Pieces(pieces) if pieces.is_empty() => None,
            Self::Pieces(pieces) => {
                let sizes = pieces.iter().map(|piece| piece.value.size.value.0);
                Some(Bytes(sizes.fold(0, u64::saturating_add)))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Piece {
    pub base: At<u64>,
    pub size: At<Bytes>,
}

#[derive(Debug)]
pub(crate) enum Image {
    Elf { elf: At<String>, args: Option<At<String>> },
    Bin { bin: At<String>, load: Option<At<u64>>, entry: Option<At<u64>>, args: Option<At<String>> },
    Linux { linux: At<String>, initrd: Option<At<String>>, cmdline: Option<At<String>> },
}

#[derive(Debug)]
pub(crate) enum Devices {
    Rest,
    List(Vec<At<String>>),
}

#[derive(Debug, Default)]
pub(crate) struct Board {
    pub ram: Option<At<u64>>,
    pub distributor: Option<At<u64>>,
    pub redistributors: Option<At<u64>>,
    pub cpu_interface: Option<At<u64>>,
    pub uart: Option<At<u64>>,
    pub uart_intid: Option<At<u64>>,
    pub ecam: Option<At<u64>>,
    pub device_tree: Option<At<u64>>,
}

pub(crate) fn read(table: &DeTable<'_>) -> System {
    let hypervisor = table.inner("hypervisor").map(|(table, _)| Hypervisor {
        console_core: table.number("console_core"),
        heartbeat: table.duration("heartbeat"),
    });
    let list = table.value("vm");
    let empty = list.filter(|list| list.get_ref().as_array().is_some_and(|vms| vms.is_empty()));
    System {
        no_vms: empty.map(Spanned::span),
        broker: table.inner("broker").and_then(|(table, _)| table.list("cpus", number)),
        platform: table.text("platform"),
        hypervisor: hypervisor.unwrap_or_default(),
        vms: table.tables("vm").into_iter().map(|(table, span)| read_vm(table, span)).collect(),
    }
}

fn read_vm(table: &DeTable<'_>, span: Range<usize>) -> Vm {
    let board = table.inner("board").map(|(table, _)| Board {
        ram: table.number("ram"),
        distributor: table.number("distributor"),
        redistributors: table.number("redistributors"),
        cpu_interface: table.number("cpu_interface"),
        uart: table.number("uart"),
        uart_intid: table.number("uart_intid"),
        ecam: table.number("ecam"),
        device_tree: table.number("device_tree"),
    });
    Vm {
        span,
        name: table.text("name"),
        cpus: table.list("cpus", number),
        memory: read_memory(table),
        image: table
            .inner("image")
            .and_then(|(image, span)| Some(At { value: read_image(image)?, span })),
        devices: read_devices(table),
        on_fault: match table.text("on_fault").as_ref().map(|choice| choice.value.as_str()) {
            Some("restart") => OnFault::Restart,
            Some("stop-system") => OnFault::StopSystem,
            _ => OnFault::Halt,
        },
        on_outside: match table.text("on_outside").as_ref().map(|choice| choice.value.as_str()) {
            Some("abort") => OnOutside::Abort,
            _ => OnOutside::Fault,
        },
        ticks: match table.text("ticks").as_ref().map(|choice| choice.value.as_str()) {
            Some("lose") => schedule::LOSE_TICKS,
            _ => schedule::KEEP_TICKS,
        },
        focus: table.boolean("focus").unwrap_or(false),
        vsock: table.text("vsock"),
        net: table.inner("net").map(|(net, span)| At { value: read_net(net), span }),
        pmu: table.number("pmu"),
        expect: table.list("expect", text),
        board: board.unwrap_or_default(),
    }
}

fn read_net(table: &DeTable<'_>) -> Net {
    Net {
        mac: table.text("mac"),
        rate: table.number("rate"),
        burst: table.number("burst"),
        bandwidth: table.rate("bandwidth"),
        uplink: table.boolean("uplink").unwrap_or(false),
    }
}

fn read_memory(table: &DeTable<'_>) -> Option<At<Memory>> {
    if let Some(size) = table.size("memory") {
        return Some(At { value: Memory::Size(size.value), span: size.span });
    }
    let pieces = table.list("memory", |item| {
        let piece = item.get_ref().as_table()?;
        let piece = Piece { base: piece.number("base")?, size: piece.size("size")? };
        Some(At { value: piece, span: item.span() })
    })?;
    Some(At { value: Memory::Pieces(pieces.value), span: pieces.span })
}

fn read_image(table: &DeTable<'_>) -> Option<Image> {
    if let Some(elf) = table.text("elf") {
        Some(Image::Elf { elf, args: table.text("args") })
    } else if let Some(bin) = table.text("bin") {
        let (load, entry) = (table.number("load"), table.number("entry"));
        Some(Image::Bin { bin, load, entry, args: table.text("args") })
    } else {
        let (initrd, cmdline) = (table.text("initrd"), table.text("cmdline"));
        Some(Image::Linux { linux: table.text("linux")?, initrd, cmdline })
    }
}

fn read_devices(table: &DeTable<'_>) -> Option<At<Devices>> {
    if let Some(list) = table.list("devices", text) {
        return Some(At { value: Devices::List(list.value), span: list.span });
    }
    let rest = table.text("devices")?;
    (rest.value == "rest").then_some(At { value: Devices::Rest, span: rest.span })
}
