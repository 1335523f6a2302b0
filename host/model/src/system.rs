//! A checked system: only what can be built is one.

use crate::board::Irq;
use crate::coloring::Division;
use crate::diagnostics::Code;
use crate::fault::Fault;
use crate::fault::Faults;
use crate::fault::File;
use crate::image;
use crate::image::Party;
use crate::image::Problem;
use crate::image::overlap;
use crate::packed::FIRST_CID;
use crate::packed::FIRST_GROUP;
use crate::packed::OnFault;
use crate::packed::OnOutside;
use crate::packed::Regulation;
use crate::packed::VIRTIO_LEN;
use crate::packed::VSOCK_BAR_LEN;
use crate::pci::Function;
use crate::platform::Platform;
use crate::resolve::Source;
use crate::timing::Class;
use crate::timing::Timing;
use std::{ops::Range, path::PathBuf};
use weir_units::Bytes;
use weir_units::CoreId;
use weir_units::Ipa;
use weir_units::Nanos;
use weir_units::Pa;

/// Length of a GIC distributor, GICv2 or GICv3.
pub(crate) const DISTRIBUTOR_LEN: u64 = 0x1_0000;
/// Length of a GICv3 redistributor: RD_base and SGI_base, 64 KiB each.
pub(crate) const REDISTRIBUTOR_LEN: u64 = 0x2_0000;
/// Length of a GICv2 CPU interface.
pub(crate) const CPU_INTERFACE_LEN: u64 = 0x2000;
/// Length of an SMMUv3's registers: two pages of 64 KiB.
pub(crate) const SMMU_LEN: u64 = 0x2_0000;
/// The name of the VM that moves the flows' packets.
pub(crate) const BROKER: &str = "broker";
/// Where a VM in a flow finds its socket device on the MMIO transport: the first virtio-mmio slot of QEMU's `virt`.
pub(crate) const VSOCK: u64 = 0x0a00_0000;
/// Where it finds the registers of one on PCI: the end of the window for 32-bit base addresses of QEMU's `virt`.
pub(crate) const VSOCK_BAR: u64 = 0x3eff_0000 - VSOCK_BAR_LEN;
/// Its interrupt.
pub(crate) const VSOCK_INTID: u32 = 48;
/// Where a VM finds its network device: the ninth virtio-mmio slot of QEMU's `virt`, the first one of a page of its own.
pub(crate) const NET: Range<u64> = 0x0a00_1000..0x0a00_1000 + VIRTIO_LEN;
/// Its interrupt.
pub(crate) const NET_INTID: u32 = 56;
/// Where a VM that shares a core finds its vCPUs' stolen time: as on QEMU's `virt`.
pub(crate) const STOLEN_TIME: u64 = 0x090a_0000;

/// A system in which everything that can be known of it was found to be right.
#[derive(Clone, Debug)]
pub struct System {
    /// The file.
    pub path: PathBuf,
    /// The board.
    pub platform: Platform,
    /// Options of the hypervisor.
    pub hypervisor: Hypervisor,
    /// The virtual machines, in the order of the file.
    pub vms: Vec<Vm>,
    /// Whose cells are whose.
    pub division: Division,
    /// How the memory bandwidth of each VM is regulated.
    pub regulations: Vec<Regulation>,
    /// What it says about time and bandwidth.
    pub timing: Timing,
    pub(crate) file: File,
    /// Where the file names its platform.
    pub(crate) platform_span: Range<usize>,
}

/// Options of the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hypervisor {
    /// The core that serves the board's UART.
    pub console_core: CoreId,
    /// Time between two reports of the counters, whole milliseconds.
    pub heartbeat: Option<Nanos>,
    /// The longest time slice of a core under QEMU's instruction counting, whole microseconds. Not
    /// in the file: it belongs to a run, not to the system.
    pub slice: Option<Nanos>,
    /// Whether every store must be one that an emulator's plug-in sees; see [`Header::observed`](crate::packed::Header). Not in the
    /// file either.
    pub observed: bool,
}

/// A virtual machine.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Its name, at most 31 bytes of a-z, A-Z, 0-9, `-`, `_`.
    pub name: String,
    /// The core of each vCPU.
    pub cpus: Vec<CoreId>,
    /// Its RAM, at least one piece.
    pub memory: Vec<Piece>,
    /// What it runs.
    pub image: Image,
    /// Devices of the board that are its own.
    pub devices: Vec<Device>,
    /// PCI functions of the board that are its own.
    pub functions: Vec<Function>,
    /// What happens when it faults.
    pub on_fault: OnFault,
    /// What happens when it accesses an address where it has nothing.
    pub on_outside: OnOutside,
    /// What becomes of timer ticks while it is off a core that it shares: [`KEEP_TICKS`](crate::packed::schedule::KEEP_TICKS) or
    /// [`LOSE_TICKS`](crate::packed::schedule::LOSE_TICKS).
    pub ticks: u8,
    /// Whether it may hand the console and the active devices to a VM.
    pub focus: bool,
    /// Event counters of each core's PMU that are its own, the cycle counter with them; 0 for no PMU.
    pub pmu: u8,
    /// Texts that lines of its console must contain.
    pub expect: Vec<String>,
    /// Where its virtual devices are.
    pub board: Board,
    /// Whether it shares a core, and so sees its stolen time.
    pub stolen_time: bool,
    /// Its virtio socket device, if it is in a flow.
    pub socket: Option<Socket>,
    /// Its network device, a port of the system's switch.
    pub net: Option<Net>,
    pub(crate) spans: Spans,
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

/// How a VM sees its virtio socket device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Socket {
    /// By registers at a fixed address.
    #[default]
    Mmio,
    /// As a PCI function.
    Pci,
}

impl Socket {
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
pub struct Piece {
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
        file: Source,
        /// /chosen/bootargs.
        args: String,
    },
    /// A flat binary.
    Bin {
        /// Where it comes from.
        file: Source,
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
        kernel: Source,
        /// Where the initial RAM disk comes from.
        initrd: Option<Source>,
        /// /chosen/bootargs.
        cmdline: String,
    },
}

/// A device of the board that a VM has for itself, at the same address and interrupt as on the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its path in the board's device tree.
    pub path: String,
    /// Its registers, whole pages.
    pub regions: Vec<(Pa, Bytes)>,
    /// Its interrupts.
    pub irqs: Vec<Irq>,
}

/// The virtual board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// The GIC's distributor.
    pub distributor: Ipa,
    /// The redistributors (GICv3) or the CPU interface (GICv2).
    pub gic_cpu: Ipa,
    /// The PL011.
    pub uart: Ipa,
    /// The PL011's interrupt.
    pub uart_intid: u32,
    /// The PCI configuration space, where it has functions or its socket device on PCI.
    pub ecam: Ipa,
    /// The device tree.
    pub device_tree: Ipa,
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

impl Board {
    /// That of QEMU's `virt` machine.
    pub(crate) const fn usual(gic_v2: bool) -> Self {
        Self {
            distributor: Ipa(0x0800_0000),
            gic_cpu: Ipa(if gic_v2 { 0x0801_0000 } else { 0x080a_0000 }),
            uart: Ipa(0x0900_0000),
            uart_intid: 33,
            ecam: Ipa(0x40_1000_0000),
            device_tree: Ipa(0x4000_0000),
        }
    }
}

impl System {
    /// The place of the VM that moves the flows' packets, behind those of the file.
    #[must_use]
    pub fn broker(&self) -> Option<usize> {
        self.vms.len().checked_sub(1).filter(|_| self.vms.iter().any(|vm| vm.socket.is_some()))
    }

    /// The context identifier by which the sender of flow `index` knows its receiver, or all of them.
    #[must_use]
    pub fn destination(&self, index: usize) -> u64 {
        let flows = &self.timing.flows;
        let before = || flows.iter().take(index).map(|flow| flow.to.len() as u64).sum::<u64>();
        match flows.get(index).map(|flow| flow.to.as_slice()) {
            Some([to]) => FIRST_CID + *to as u64,
            _ => FIRST_GROUP + before(),
        }
    }

    /// Whether everything in the file is carried out by this version.
    ///
    /// # Errors
    ///
    /// A fault for each key that is not.
    pub fn carried_out(&self) -> Result<(), Faults> {
        self.timing.carried_out()?;
        let timing = &self.timing;
        let mut faults = Faults::default();
        for line in timing.lines.iter().filter(|line| line.class == Class::Active) {
            if self.division.divided {
                let message = "this version of weir hands no device over where memory is divided";
                let help = "give the device to one VM, or take `colors` and `banks` out";
                faults.push(timing.fault(Code::NotEnforced, &line.place, message, help));
            }
        }
        for line in timing.lines.iter().filter(|line| line.class == Class::Dynamic) {
            let owner = self.vms.get(line.vm);
            if !owner.and_then(|vm| vm.net).is_some_and(|net| net.uplink) {
                let name = owner.map_or("a VM", |vm| vm.name.as_str());
                let message = format!(
                    "interrupt {} of {name} is of class \"dynamic\", and {name} shares no device with others",
                    line.name
                );
                let help = "give the device to a VM with net = { mac = ..., uplink = true }, which drives it for all";
                faults.push(timing.fault(Code::NotEnforced, &line.place, message, help));
            }
        }
        for (index, vm) in self.vms.iter().enumerate().filter(|(index, _)| timing.is_shared(*index))
        {
            let Some(place) = timing.vms.get(index).map(|vm| &vm.place) else { continue };
            let mut refuse = |what: &str, help: &str| {
                let message = format!(
                    "this version of weir gives no {what} to {}, which shares a core",
                    vm.name
                );
                faults.push(timing.fault(Code::NotEnforced, place, message, help));
            };
            if vm.pmu > 0 {
                refuse("event counters", "take its `pmu` out, or give it cores of its own");
            }
        }
        faults.into_result(())
    }

    /// Whether this version of weir runs on the platform, or why not.
    ///
    /// # Errors
    ///
    /// The fault that says why.
    pub fn can_run(&self) -> Result<(), Faults> {
        let Some(reason) = &self.platform.places.planned else { return Ok(()) };
        let message = format!("{} is for checking and planning only: {reason}", self.platform.name);
        let fault =
            Fault::new(Code::PlatformPlanned, &self.file, self.platform_span.clone(), message);
        let help = "name a platform that `weir platforms` lists as runnable";
        Err(Faults(vec![fault.label("this").help(help)]))
    }

    /// How many cores must run: one more than the number of the highest that is used.
    #[must_use]
    pub fn cores_needed(&self) -> usize {
        let used = self.vms.iter().flat_map(|vm| &vm.cpus).chain([&self.hypervisor.console_core]);
        used.map(|core| usize::from(core.0) + 1).max().unwrap_or(1)
    }

    /// How many cores to start an emulated board with.
    #[must_use]
    pub fn machine_cores(&self) -> usize {
        self.platform.qemu.as_ref().map_or(0, |qemu| qemu.cores).max(self.cores_needed())
    }
}

impl Image {
    /// Where the kernel or program comes from.
    #[must_use]
    pub const fn source(&self) -> &Source {
        match self {
            Self::Elf { file, .. } | Self::Bin { file, .. } | Self::Linux { kernel: file, .. } => {
                file
            }
        }
    }

    /// Where the initial RAM disk comes from.
    #[must_use]
    pub const fn initrd(&self) -> Option<&Source> {
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

impl Vm {
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

    /// Whether it has a PCI host bridge.
    pub(crate) fn has_pci(&self) -> bool {
        !self.functions.is_empty() || self.socket == Some(Socket::Pci)
    }

    /// Where an image can be in RAM that `tlb_colors` cuts.
    fn pieces_help(&self) -> String {
        let longest = self.memory.iter().map(|piece| piece.size.0).max().unwrap_or(0);
        format!(
            "`tlb_colors` leaves holes in the RAM of {}: its {} pieces, of at most {}, are {}; link each segment to lie in one of them, give it more adjacent sets, or leave `tlb_colors` out",
            self.name,
            self.memory.len(),
            Bytes(longest),
            image::ram(&self.memory),
        )
    }

    /// The fault that `problem` with its image is.
    pub(crate) fn image_fault(&self, file: &File, problem: Problem) -> Fault {
        let place = match problem.party {
            Party::Image => &self.spans.image,
            Party::Initrd => &self.spans.initrd,
            Party::DeviceTree => &self.spans.device_tree,
        };
        let message = format!("{}: {}", self.name, problem.message);
        let fault = Fault::new(problem.code, file, place.clone(), message).help(problem.help);
        if problem.code == Code::OutsideRam {
            let fault =
                fault.label("this does not fit").and(self.spans.memory.clone(), "into this RAM");
            match &self.spans.tlb_colors {
                Some(span) => fault
                    .and(span.clone(), "which these sets cut into pieces")
                    .help(self.pieces_help()),
                None => fault,
            }
        } else if problem.party == Party::DeviceTree {
            fault
                .label("the device tree lies in here")
                .and(self.spans.image.clone(), "and this too")
        } else {
            fault.label("this")
        }
    }
}
