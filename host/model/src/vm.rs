//! A virtual machine as it is built: its RAM, its image, its devices, its virtual board.

pub use crate::keys::system::{SocketBus, TickPolicy};

use crate::board::BoardIrq;
use crate::fault::FilePlace;
use crate::object::named;
use crate::pci::AssignedFunction;
use crate::ranges::overlap;
use crate::resolve::ImageSource;
use crate::timing::memory_budget::MemoryBudget;
use crate::timing::task::Task;
use crate::timing::workload::Workload;
use std::ops::Range;
use weir_abi::{OnFault, OnOutside, VIRTIO_LEN, VSOCK_BAR_LEN};
use weir_units::{Bytes, CoreId, IntId, Ipa, Pa};

/// Length of a GIC distributor, GICv2 or GICv3.
pub(crate) const DISTRIBUTOR_LEN: u64 = 0x1_0000;

/// Length of a GICv3 redistributor: RD_base and SGI_base, 64 KiB each.
pub(crate) const REDISTRIBUTOR_LEN: u64 = 0x2_0000;

/// Length of a GICv2 CPU interface.
pub(crate) const CPU_INTERFACE_LEN: u64 = 0x2000;

/// Start of RAM, if the file does not set it.
pub(crate) const DEFAULT_RAM: u64 = 0x4000_0000;

/// The name of the I/O service VM, which moves the flows' packets and the switch's frames.
pub const BROKER: &str = "broker";

/// Where a VM in a flow finds its socket device on the MMIO transport: the first virtio-mmio slot
/// of QEMU's `virt`.
pub(crate) const VSOCK: u64 = 0x0a00_0000;

/// Where it finds the registers of one on PCI: the end of the window for 32-bit base addresses of
/// QEMU's `virt`.
pub(crate) const VSOCK_BAR: u64 = 0x3eff_0000 - VSOCK_BAR_LEN;

/// Its interrupt.
pub(crate) const VSOCK_INTID: IntId = IntId(48);

/// Where a VM finds its network device: the ninth virtio-mmio slot of QEMU's `virt`, the first one
/// of its own page.
pub(crate) const NET: Range<u64> = 0x0a00_1000..0x0a00_1000 + VIRTIO_LEN;

/// Its interrupt.
pub(crate) const NET_INTID: IntId = IntId(56);

/// Where a VM that shares a core finds its vCPUs' stolen time: as on QEMU's `virt`.
pub(crate) const STOLEN_TIME: u64 = 0x090a_0000;

/// A virtual machine.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Vm {
    /// Its name, at most 31 bytes of a-z, A-Z, 0-9, `-`, `_`.
    pub name: String,
    /// The core of each vCPU.
    pub cpus: Vec<CoreId>,
    /// Its RAM, at least one piece.
    pub memory: Vec<RamPiece>,
    /// What it runs.
    pub image: Image,
    /// Devices of the board that are its own.
    pub devices: Vec<AssignedDevice>,
    /// PCI functions of the board that are its own.
    pub functions: Vec<AssignedFunction>,
    /// What happens when it faults.
    pub on_fault: OnFault,
    /// What happens when it accesses an address where it has nothing.
    pub on_outside: OnOutside,
    /// What becomes of timer ticks while it is off a core that it shares.
    pub ticks: TickPolicy,
    /// Whether it may hand the console and the active devices to a VM.
    pub focus: bool,
    /// Event counters of each core's PMU that are its own, the cycle counter with them; 0 for no
    /// PMU.
    pub pmu: u8,
    /// Texts that lines of its console must contain.
    pub expect: Vec<String>,
    /// Where its virtual devices are.
    pub board: VirtualBoard,
    /// Whether it shares a core, and so sees its stolen time.
    pub stolen_time: bool,
    /// Its virtio socket device, if it is in a flow.
    pub socket: Option<SocketBus>,
    /// Its network device, a port of the system's switch.
    pub net: Option<Net>,
    /// What its guest finds as random bytes. Not in the file: it belongs to a build.
    pub seed: Seed,
    /// 0 is best effort.
    pub criticality: u64,
    /// What should stay in its part of the cache.
    pub working_set: Option<Bytes>,
    /// Its memory budget.
    pub memory_budget: Option<MemoryBudget>,
    /// Its tasks by falling priority.
    pub tasks: Vec<Task>,
    /// Whether it has a port of the switch.
    pub has_port: bool,
    /// What it does to memory in a simulation.
    pub workload: Option<Workload>,
    /// Its header.
    pub place: FilePlace,
    /// The names of the board's devices that the file lists for it; none for the rest of them.
    pub(crate) listed: Option<Vec<String>>,
    /// Whether the file sets its image: then it has no devices but these.
    pub(crate) built: bool,
    pub(crate) spans: Spans,
}

/// Random bytes in a VM's device tree: `kaslr-seed` of 8 bytes and `rng-seed` of 32. A guest reads
/// its own, so those of two VMs must not follow from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub [u8; Self::LEN]);

impl Seed {
    /// Bytes of both.
    pub const LEN: usize = 40;

    /// Returns the bytes that the VM of this name has in each build that must repeat. They hold no
    /// entropy.
    pub(crate) fn fixed(name: &str) -> Self {
        // FNV-1a, and splitmix64 from there.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut bytes = [0; Self::LEN];
        for (word, number) in bytes.chunks_exact_mut(8).zip(1_u64..) {
            let mut mixed = hash.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
        }
        Self(bytes)
    }
}

/// A network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Its MAC address, the first byte in the lowest eight bits.
    pub mac: u64,
    /// Frames a second that its VM may send; 0 for no limit.
    pub rate: u64,
    /// Frames that may go at once, if they are limited.
    pub burst: u64,
    /// Bytes a second that its VM may send; 0 for no limit.
    pub bandwidth: u64,
    /// Whether its VM passes on frames to unknown addresses.
    pub uplink: bool,
}

impl SocketBus {
    /// Where its registers are.
    pub(crate) const fn registers(self) -> Range<u64> {
        match self {
            Self::Mmio => VSOCK..VSOCK + VIRTIO_LEN,
            Self::Pci => VSOCK_BAR..VSOCK_BAR + VSOCK_BAR_LEN,
        }
    }
}

/// A piece of a VM's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamPiece {
    /// Where the VM sees it.
    pub base: Ipa,
    /// Its size, whole pages.
    pub size: Bytes,
}

/// What a VM runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// An ELF program.
    Elf {
        /// Where it comes from.
        file: ImageSource,
        /// /chosen/bootargs.
        args: String,
    },
    /// A flat binary.
    Bin {
        /// Where it comes from.
        file: ImageSource,
        /// Where its first byte goes.
        load: Ipa,
        /// Its first instruction.
        entry: Ipa,
        /// /chosen/bootargs.
        args: String,
    },
    /// A Linux kernel.
    Linux {
        /// Where the Image comes from.
        kernel: ImageSource,
        /// Where the initial RAM disk comes from.
        initrd: Option<ImageSource>,
        /// /chosen/bootargs.
        cmdline: String,
    },
}

impl Image {
    /// Where the kernel or program comes from.
    #[must_use]
    pub const fn source(&self) -> &ImageSource {
        match self {
            Self::Elf { file, .. } | Self::Bin { file, .. } | Self::Linux { kernel: file, .. } => {
                file
            }
        }
    }

    /// Where the initial RAM disk comes from.
    #[must_use]
    pub const fn initrd(&self) -> Option<&ImageSource> {
        match self {
            Self::Linux { initrd, .. } => initrd.as_ref(),
            _ => None,
        }
    }

    /// What the guest finds in /chosen/bootargs.
    #[must_use]
    pub fn args(&self) -> &str {
        match self {
            Self::Elf { args, .. } | Self::Bin { args, .. } | Self::Linux { cmdline: args, .. } => {
                args
            }
        }
    }
}

/// A device of the board that a VM has for itself, at the same address and interrupt as on the
/// board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedDevice {
    /// Its path in the board's device tree.
    pub path: String,
    /// Its registers, whole pages.
    pub regions: Vec<(Pa, Bytes)>,
    /// Its interrupts.
    pub irqs: Vec<BoardIrq>,
}

/// The virtual board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualBoard {
    /// The GIC's distributor.
    pub distributor: Ipa,
    /// The redistributors (GICv3) or the CPU interface (GICv2).
    pub gic_cpu: Ipa,
    /// The PL011.
    pub uart: Ipa,
    /// The PL011's interrupt.
    pub uart_intid: IntId,
    /// The PCI configuration space, where it has functions or its socket device on PCI.
    pub ecam: Ipa,
    /// The device tree.
    pub device_tree: Ipa,
}

impl VirtualBoard {
    /// That of QEMU's `virt` machine.
    pub(crate) const fn usual(gic_v2: bool) -> Self {
        Self {
            distributor: Ipa(0x0800_0000),
            gic_cpu: Ipa(if gic_v2 { 0x0801_0000 } else { 0x080a_0000 }),
            uart: Ipa(0x0900_0000),
            uart_intid: IntId(33),
            ecam: Ipa(0x40_1000_0000),
            device_tree: Ipa(0x4000_0000),
        }
    }
}

/// Places in the file that later faults are about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    pub memory: Range<usize>,
    pub image: Range<usize>,
    pub initrd: Range<usize>,
    pub device_tree: Range<usize>,
    /// What cuts its RAM into pieces.
    pub tlb_colors: Option<Range<usize>>,
}

named! { Vm: vm(name) }

impl Vm {
    /// Returns a VM of which the file has no more than the name.
    pub(crate) fn named(name: &str, place: FilePlace) -> Self {
        Self {
            name: name.to_owned(),
            cpus: Vec::new(),
            memory: Vec::new(),
            image: Image::Elf { file: ImageSource::Named(String::new()), args: String::new() },
            devices: Vec::new(),
            functions: Vec::new(),
            on_fault: OnFault::Halt,
            on_outside: OnOutside::Fault,
            ticks: TickPolicy::Keep,
            focus: false,
            pmu: 0,
            expect: Vec::new(),
            board: VirtualBoard::usual(false),
            stolen_time: false,
            socket: None,
            net: None,
            seed: Seed::fixed(name),
            criticality: 0,
            working_set: None,
            memory_budget: None,
            tasks: Vec::new(),
            has_port: false,
            workload: None,
            place,
            listed: Some(Vec::new()),
            built: false,
            spans: Spans::default(),
        }
    }

    /// Returns whether a vCPU of it is on core `core`.
    #[must_use]
    pub fn is_on(&self, core: u64) -> bool {
        self.cpus.iter().any(|own| u64::from(own.0) == core)
    }

    /// Returns the core of its first vCPU, if the file states it.
    #[must_use]
    pub fn first_core(&self) -> Option<u64> {
        self.cpus.first().map(|core| core.0.into())
    }

    /// Returns whether the broker serves it: it is in a flow or at the switch.
    pub(crate) const fn is_served(&self) -> bool {
        self.socket.is_some() || self.net.is_some()
    }

    /// What the VM has at one of these addresses, virtual devices at fixed places aside.
    pub(crate) fn in_the_way(&self, range: &Range<u64>) -> Option<&'static str> {
        let board = &self.board;
        let pieces = self.memory.iter().map(|piece| ("RAM", piece.base.0..piece.end()));
        let own = [
            ("the GIC distributor", board.distributor.0, DISTRIBUTOR_LEN),
            ("the GIC's CPU side", board.gic_cpu.0, REDISTRIBUTOR_LEN * self.cpus.len() as u64),
            ("the PL011", board.uart.0, 0x1000),
        ];
        let own = own.into_iter().map(|(what, start, len)| (what, start..start + len));
        let regions = self.devices.iter().flat_map(|device| &device.regions);
        let passed = regions.map(|(start, len)| ("a device", start.0..start.0 + len.0));
        let bars = self.functions.iter().map(|one| (one.bars.0, one.bars.0 + one.bars_len.0));
        let bars = bars.map(|(start, end)| ("the base addresses of a PCI function", start..end));
        let mut all = pieces.chain(own).chain(passed).chain(bars);
        all.find(|(_, taken)| overlap(taken, range)).map(|(what, _)| what)
    }

    /// The device with this interrupt, the virtio devices aside.
    pub(crate) fn device_with(&self, intid: IntId) -> Option<String> {
        let has = |device: &&AssignedDevice| device.irqs.iter().any(|irq| irq.intid == intid);
        let device = self.devices.iter().find(has).map(|device| device.path.clone());
        let function = || self.functions.iter().find(|function| function.intid == intid);
        let function = || function().map(AssignedFunction::name);
        let uart = || (self.board.uart_intid == intid).then(|| "the PL011".to_owned());
        device.or_else(function).or_else(uart)
    }

    /// Whether it has a PCI host bridge.
    pub(crate) fn has_pci(&self) -> bool {
        !self.functions.is_empty() || self.socket == Some(SocketBus::Pci)
    }

    /// The interrupts of its PCI functions; functions on one line share it.
    pub(crate) fn pci_lines(&self) -> impl Iterator<Item = BoardIrq> {
        let mut lines: Vec<_> = self.functions.iter().map(|function| function.intid).collect();
        lines.sort_unstable();
        lines.dedup();
        lines.into_iter().map(|intid| BoardIrq { intid, edge: false })
    }
}

impl RamPiece {
    /// One above its last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.base.0.saturating_add(self.size.0)
    }
}
