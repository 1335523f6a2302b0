//! What a system file says, before anything is checked but keys, types and units.
//!
//! Every value carries its place in the file. A value that was wrong, and reported as such, is
//! `None` here, so that the checker goes on with the rest.

use crate::coloring;
use crate::diagnostics::Code;
use crate::fault::Fault;
use crate::fault::Faults;
use crate::fault::File;
use crate::packed::INTID_LIMIT;
use crate::packed::MAX_CORES;
use crate::packed::MAX_PMU_COUNTERS;
use crate::packed::OnFault;
use crate::packed::OnOutside;
use crate::packed::schedule;
use crate::shape::Key;
use crate::shape::Kind;
use crate::shape::Shape;
use crate::shape::Walk;
use crate::shape::integer;
use crate::timing;
use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use weir_units::Bytes;
use weir_units::BytesPerSec;
use weir_units::Nanos;

/// A value and the bytes of the file that say it.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

const fn key(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, doc, required: false, kind }
}

const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, doc, required: true, kind }
}

const TEXTS: Kind = Kind::List(&Kind::Text);
const CORE: Kind = Kind::Number(0, MAX_CORES as u64 - 1);

/// The system file.
pub(crate) static SYSTEM: Shape = Shape {
    name: "the system",
    doc: "A weir system: virtual machines on one board.",
    keys: &[
        required(
            "platform",
            Kind::Text,
            "The board: a name that `weir platforms` lists, or the path of a platform file.",
        ),
        required("vm", Kind::List(&Kind::Table(&VM)), "The virtual machines."),
        key("hypervisor", Kind::Table(&HYPERVISOR), "Options of the hypervisor."),
        key("broker", Kind::Table(&BROKER), "Options of the VM that moves the flows' packets."),
        coloring::DRAM_MAP_KEY,
        coloring::GROUP_KEY,
        timing::FLOW_KEY,
        timing::DMA_KEY,
        timing::OVERHEADS_KEY,
        timing::SATURATION_KEY,
        timing::CORE_KEY,
        timing::IRQ_KEY,
    ],
};

static HYPERVISOR: Shape = Shape {
    name: "[hypervisor]",
    doc: "Options of the hypervisor.",
    keys: &[
        key(
            "console_core",
            CORE,
            "The core that serves the board's UART. Without it a core that runs no VM, or else the last core of the last VM.",
        ),
        key(
            "heartbeat",
            Kind::Duration,
            "Time between two reports of the counters, in whole milliseconds, like \"1s\"; \"0s\" for none. Without it \"1s\".",
        ),
        coloring::COLORS_KEY,
        coloring::BANKS_KEY,
    ],
};

static BROKER: Shape = Shape {
    name: "[broker]",
    doc: "Options of the VM that moves the flows' packets.",
    keys: &[
        key(
            "cpus",
            Kind::List(&CORE),
            "Its core, one; it shares it if that core's schedule names \"broker\". Without it the core whose schedule does, or the first that runs no VM.",
        ),
        coloring::COLORS_KEY,
        coloring::BANKS_KEY,
        key(
            "overheads",
            Kind::Text,
            "A file with measured [overheads], as `weir report --overheads` writes it: flows get bounds. Relative to this file.",
        ),
    ],
};

static VM: Shape = Shape {
    name: "[[vm]]",
    doc: "A virtual machine.",
    keys: &[
        required("name", Kind::Text, "Its name: 1 to 31 characters of a-z, A-Z, 0-9, `-` and `_`."),
        required(
            "cpus",
            Kind::List(&CORE),
            "The core of each of its vCPUs; no core runs two, unless it has a schedule: [[core]].",
        ),
        required(
            "memory",
            Kind::OneOf(&[Kind::Size, Kind::List(&Kind::Table(&PIECE))]),
            "Its RAM: a size, like \"16MiB\", for one piece at 0x4000_0000, or a list of pieces with their addresses.",
        ),
        required("image", Kind::Variant(&IMAGES), "What it runs."),
        key(
            "devices",
            Kind::OneOf(&[Kind::Choice(&["rest"]), TEXTS]),
            "Devices of the board that it gets, by their path in the board's device tree or their name in the platform file, or PCI functions like \"pci:00:02.0\"; or \"rest\": all that may be passed through and that no other VM took.",
        ),
        key(
            "on_fault",
            Kind::Choice(&["halt", "restart", "stop-system"]),
            "What to do when it does what it must not: stop it (as without the key), start it again from its pristine image, or stop all.",
        ),
        key(
            "on_outside",
            Kind::Choice(&["fault", "abort"]),
            "What an access to an address is where it has nothing: a fault, for which `on_fault` holds (as without the key), or an external abort that it takes itself, as on a machine.",
        ),
        key(
            "ticks",
            Kind::Choice(&["keep", "lose"]),
            "What becomes of timer ticks that fall due while it is off a core that it shares: they are late (\"keep\", as without the key), or one comes for all (\"lose\", for a guest that takes its next deadline from the timer).",
        ),
        key(
            "focus",
            Kind::Boolean,
            "Whether it may hand the console and the devices of class \"active\" to a VM, by a hypercall.",
        ),
        key(
            "expect",
            TEXTS,
            "Texts that its console must show, each within a line, for a run to succeed.",
        ),
        key(
            "board",
            Kind::Table(&BOARD),
            "Addresses of its virtual board, where they are not those of QEMU's virt machine.",
        ),
        key(
            "vsock",
            Kind::Choice(&["mmio", "pci"]),
            "How it sees its virtio socket device, if it is in a flow: by registers at a fixed address (\"mmio\", as without the key), or as a PCI function (\"pci\").",
        ),
        key(
            "net",
            Kind::Table(&NET),
            "Its network device: a port of the switch that all VMs with `net` are at.",
        ),
        key(
            "pmu",
            Kind::Number(1, MAX_PMU_COUNTERS as u64),
            "Event counters of the PMU that it may use on each of its cores, and the cycle counter with them. Without it it sees no PMU.",
        ),
        coloring::COLORS_KEY,
        coloring::BANKS_KEY,
        coloring::TLB_COLORS_KEY,
        timing::CRITICALITY_KEY,
        timing::WORKING_SET_KEY,
        timing::MEMORY_BUDGET_KEY,
        timing::TASK_KEY,
        timing::WORKLOAD_KEY,
    ],
};

static NET: Shape = Shape {
    name: "{ mac = ... }",
    doc: "A network device.",
    keys: &[
        required("mac", Kind::Text, "Its MAC address, like \"52:54:00:00:00:01\"."),
        key(
            "rate",
            Kind::Number(1, 1_000_000_000),
            "Frames a second that the VM may send; what is more is dropped. Without it no limit.",
        ),
        key("burst", Kind::Number(1, 1 << 20), "Frames that may go at once; 32 without it."),
        key(
            "bandwidth",
            Kind::Rate,
            "Bytes a second that the VM may send, `burst` frames of 1514 at once; what is more is dropped. Without it no limit.",
        ),
        key(
            "uplink",
            Kind::Boolean,
            "Whether frames that are for no VM's address go to this VM: it drives the device that all share.",
        ),
    ],
};

static PIECE: Shape = Shape {
    name: "{ base = ..., size = ... }",
    doc: "A piece of RAM.",
    keys: &[
        required("base", Kind::Address, "Where the VM sees it: an intermediate physical address."),
        required("size", Kind::Size, "Its size, whole pages of 4 KiB."),
    ],
};

static IMAGES: [Shape; 3] = [
    Shape {
        name: "{ elf = ... }",
        doc: "An ELF program, loaded at its physical addresses.",
        keys: &[
            required(
                "elf",
                Kind::Text,
                "The name of one of weir's own guests, or a file, relative to this one.",
            ),
            key("args", Kind::Text, "Arguments: /chosen/bootargs of its device tree."),
        ],
    },
    Shape {
        name: "{ bin = ... }",
        doc: "A flat binary.",
        keys: &[
            required(
                "bin",
                Kind::Text,
                "The file, relative to this one; or u-boot, Debian's for QEMU.",
            ),
            key(
                "load",
                Kind::Address,
                "Where its first byte goes. Without it 2 MiB above the start of RAM.",
            ),
            key("entry", Kind::Address, "Its first instruction. Without it its first byte."),
            key("args", Kind::Text, "Arguments: /chosen/bootargs of its device tree."),
        ],
    },
    Shape {
        name: "{ linux = ... }",
        doc: "A Linux kernel.",
        keys: &[
            required(
                "linux",
                Kind::Text,
                "The kernel's arm64 Image, relative to this file; or debian-rt, Debian's PREEMPT_RT kernel.",
            ),
            key(
                "initrd",
                Kind::Text,
                "The initial RAM disk, relative to this file; or busybox, a shell and its tools; or debian-rt, with cyclictest in addition; or debian-virtio, with the modules for virtio disks on PCI; or debian-vsock, with those for virtio sockets and a program that uses them; or debian-net, with those for the network device and cyclictest; or debian-socat, with socat besides.",
            ),
            key("cmdline", Kind::Text, "The kernel's command line."),
        ],
    },
];

static BOARD: Shape = Shape {
    name: "board",
    doc: "Addresses of the virtual board, each an intermediate physical address.",
    keys: &[
        key(
            "ram",
            Kind::Address,
            "Start of RAM, where `memory` is one size; 0x4000_0000 without it.",
        ),
        key("distributor", Kind::Address, "The GIC's distributor, 64 KiB; 0x0800_0000 without it."),
        key(
            "redistributors",
            Kind::Address,
            "GICv3: the redistributors, 128 KiB for each vCPU; 0x080a_0000 without it.",
        ),
        key(
            "cpu_interface",
            Kind::Address,
            "GICv2: the CPU interface, 8 KiB; 0x0801_0000 without it.",
        ),
        key("uart", Kind::Address, "The PL011, one page; 0x0900_0000 without it."),
        key(
            "uart_intid",
            Kind::Number(32, INTID_LIMIT as u64 - 1),
            "The PL011's interrupt, a shared one; 33 (SPI 1) without it.",
        ),
        key(
            "ecam",
            Kind::Address,
            "The PCI configuration space, 256 MiB, of a VM that has functions or its socket device on PCI; 0x40_1000_0000 without it.",
        ),
        key(
            "device_tree",
            Kind::Address,
            "Where the device tree lies, in RAM, 8-byte aligned; the start of RAM without it.",
        ),
    ],
};

/// What a file may leave out where only its timing is asked.
pub(crate) const ABSENT: &[&str] = &["the system", VM.name];

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
    /// Returns whether the file says enough to build the system.
    pub(crate) fn is_complete(&self) -> bool {
        let is_said = |vm: &Vm| vm.cpus.is_some() && vm.memory.is_some() && vm.image.is_some();
        self.platform.is_some() && !self.vms.is_empty() && self.vms.iter().all(is_said)
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

/// Parses `file` and compares it with `shape`; gives its table if it has no syntax error, even with
/// other errors.
pub(crate) fn parse<T>(
    file: &File,
    shape: &Shape,
    faults: &mut Faults,
    read: impl FnOnce(&DeTable<'_>) -> T,
) -> Option<T> {
    parse_part(file, shape, &[], faults, read)
}

/// The same where the shapes in `partial` may lack keys.
pub(crate) fn parse_part<T>(
    file: &File,
    shape: &Shape,
    partial: &[&'static str],
    faults: &mut Faults,
    read: impl FnOnce(&DeTable<'_>) -> T,
) -> Option<T> {
    let (document, errors) = DeTable::parse_recoverable(file.inner());
    if let Some(fault) = excess(file, document.get_ref()) {
        faults.push(fault);
        return None;
    }
    let single = if errors.is_empty() { None } else { single_brackets(file, shape) };
    let explained = single.as_ref().map_or(0..0, |(_, lines)| lines.clone());
    for error in &errors {
        let end = file.inner().len();
        let span = error.span().unwrap_or(0..0);
        let span = span.start.min(end)..span.end.min(end);
        let mut message = error.message().trim().replace('\n', ", ");
        if message.is_empty() {
            "this is not TOML".clone_into(&mut message);
        }
        // Tables that were meant to be several are one to the parser, and each key is there twice.
        if explained.contains(&span.start) && message.contains("duplicate key") {
            continue;
        }
        let fault = Fault::new(Code::Syntax, file, span, message).label("here");
        faults
            .push(fault.help(
                "write `key = value`; text and quantities stand in double quotes: \"16MiB\"",
            ));
    }
    if let Some((fault, _)) = single {
        faults.push(fault);
    }
    let broken = !errors.is_empty();
    let mut walked = Faults::default();
    let mut walk = Walk { file, faults: &mut walked, missing: !broken, partial };
    // A file's own span is its beginning: excerpts of all of it would say nothing.
    let start = file.inner().find(|c: char| !c.is_whitespace()).unwrap_or(0);
    let end = file.inner()[start..].find('\n').map_or(file.inner().len(), |line| start + line);
    walk.table(document.get_ref(), &(start..end), shape);
    // What stands behind an error is perhaps not what the parser took it for.
    let first = faults.0.iter().map(|fault| fault.span().start).min();
    let first = first.map_or(usize::MAX, |place| {
        file.inner().get(..place).and_then(|before| before.rfind('\n')).map_or(0, |line| line + 1)
    });
    for fault in walked.0.into_iter().filter(|fault| fault.span().start < first) {
        faults.push(fault);
    }
    (!broken).then(|| read(document.get_ref()))
}

/// Most values in a file, and in one of its lists. Files of systems have far fewer; rules between
/// any two of a list's elements take long for more.
const MOST_VALUES: usize = 200_000;
const LONGEST_LIST: usize = 16_384;

/// The fault of a file that has more values than any system needs.
fn excess(file: &File, table: &DeTable<'_>) -> Option<Fault> {
    fn visit<'a>(
        values: impl IntoIterator<Item = &'a Spanned<DeValue<'a>>>,
        count: &mut usize,
    ) -> Option<(Range<usize>, String)> {
        for value in values {
            *count += 1;
            if *count > MOST_VALUES {
                return Some((value.span(), format!("more than {MOST_VALUES} values")));
            }
            let found = match value.get_ref() {
                DeValue::Array(items) if items.len() > LONGEST_LIST => {
                    let what =
                        format!("a list of {} values, more than {LONGEST_LIST}", items.len());
                    let extra = items.get(LONGEST_LIST).map_or(value.span(), Spanned::span);
                    Some((extra, what))
                }
                DeValue::Array(items) => visit(items, count),
                DeValue::Table(table) => visit(table.values(), count),
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }
    let (span, what) = visit(table.values(), &mut 0)?;
    let fault = Fault::new(Code::TooManyValues, file, span, format!("the file has {what}"));
    Some(fault.label("one too many").help("describe the system with fewer values"))
}

/// The fault of headers in single brackets whose tables are elements of a list, such as `[vm]`, and
/// the part of the file where the parser takes them for one table. Only of use where the file has
/// syntax errors: of a single such header the walk says that it is no list.
fn single_brackets(file: &File, shape: &Shape) -> Option<(Fault, Range<usize>)> {
    let text = file.inner();
    let mut found: Option<(Fault, Range<usize>)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let header = line.split('#').next().unwrap_or("").trim();
        let Some(inner) = header.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            continue;
        };
        if inner.starts_with('[') || !is_list(shape, inner.split('.').map(str::trim)) {
            continue;
        }
        let start = start + line.find('[').unwrap_or(0);
        let span = start..start + header.len();
        match &mut found {
            None => {
                let message = format!("`{header}` is one table, but `{inner}` is a list of tables");
                let fault = Fault::new(Code::SingleBrackets, file, span.clone(), message);
                let help = format!("write `[{header}]`, with double brackets, for each element");
                found = Some((fault.label("one table").help(help), span.start..text.len()));
            }
            Some((fault, _)) if fault.labels() < 3 => {
                let more = fault.clone().and(span, "again");
                *fault = more;
            }
            Some(_) => {}
        }
    }
    found
}

/// Whether the table at `path` is an element of a list.
fn is_list<'a>(shape: &Shape, mut path: impl Iterator<Item = &'a str>) -> bool {
    let mut shape = shape;
    let mut listed = false;
    path.all(|name| {
        let Some(key) = shape.keys.iter().find(|key| key.name == name) else { return false };
        let inner = match &key.kind {
            Kind::List(Kind::Table(inner)) => (true, inner),
            Kind::Table(inner) => (false, inner),
            _ => return false,
        };
        listed = inner.0;
        shape = inner.1;
        true
    }) && listed
}

/// Reading of a table's values; what has the wrong type or value was reported by the walk.
pub(crate) trait Values {
    fn value(&self, key: &str) -> Option<&Spanned<DeValue<'_>>>;

    fn text(&self, key: &str) -> Option<At<String>> {
        text(self.value(key)?)
    }

    fn number(&self, key: &str) -> Option<At<u64>> {
        number(self.value(key)?)
    }

    fn size(&self, key: &str) -> Option<At<Bytes>> {
        let text = self.text(key)?;
        Some(At { value: Bytes::parse(&text.value).ok()?, span: text.span })
    }

    fn duration(&self, key: &str) -> Option<At<Nanos>> {
        let text = self.text(key)?;
        Some(At { value: Nanos::parse(&text.value).ok()?, span: text.span })
    }

    fn inner(&self, key: &str) -> Option<(&DeTable<'_>, Range<usize>)> {
        let value = self.value(key)?;
        Some((value.get_ref().as_table()?, value.span()))
    }

    /// The tables of a list, with the place of each.
    fn tables(&self, key: &str) -> Vec<(&DeTable<'_>, Range<usize>)> {
        let items = self.value(key).and_then(|value| value.get_ref().as_array());
        items
            .into_iter()
            .flatten()
            .filter_map(|item| Some((item.get_ref().as_table()?, item.span())))
            .collect()
    }

    /// The values of a list, if none of them was wrong.
    fn list<T>(
        &self,
        key: &str,
        read: impl Fn(&Spanned<DeValue<'_>>) -> Option<At<T>>,
    ) -> Option<At<Vec<At<T>>>> {
        let value = self.value(key)?;
        let items = value.get_ref().as_array()?;
        let items = items.iter().map(read).collect::<Option<Vec<_>>>()?;
        Some(At { value: items, span: value.span() })
    }
}

impl Values for DeTable<'_> {
    fn value(&self, key: &str) -> Option<&Spanned<DeValue<'_>>> {
        self.get(key)
    }
}

pub(crate) fn text(value: &Spanned<DeValue<'_>>) -> Option<At<String>> {
    Some(At { value: value.get_ref().as_str()?.to_owned(), span: value.span() })
}

pub(crate) fn number(value: &Spanned<DeValue<'_>>) -> Option<At<u64>> {
    Some(At { value: integer(value.get_ref().as_integer()?)?, span: value.span() })
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
        focus: timing::boolean(table, "focus").unwrap_or(false),
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
        bandwidth: timing::rate(table, "bandwidth"),
        uplink: timing::boolean(table, "uplink").unwrap_or(false),
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
