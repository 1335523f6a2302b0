//! The keys of a system file.

use super::measured::{Overheads, Saturation};
use super::memory_budget::MemoryBudget;
use super::page_classes::Group;
use super::timing::{Core, Dma, Flow, Irq, Task};
use super::workload::Workload;
use crate::object::Object;
use crate::shape::Kind;
use crate::table::{At, CORE, CORES, Table, Value, choice, table, variant};
use std::{fmt, ops::Range};
use toml::{Spanned, de::DeValue};
use weir_abi::{INTID_LIMIT, MAX_PMU_COUNTERS, OnFault, OnOutside};
use weir_units::{Bytes, BytesPerSec, Nanos};

table! {
    /// A weir system: virtual machines on one board.
    pub(crate) struct System = "the system" {
        /// The board: a name that `weir platforms` lists, or the path of a platform file.
        @required platform: Option<At<String>>,
        /// The virtual machines.
        @required vm: Option<At<Vec<At<Vm>>>>,
        /// Options of the hypervisor.
        hypervisor: At<Hypervisor> = {},
        /// Options of the VM that moves the flows' packets and the switch's frames.
        broker: At<Broker> = {},
        /// The configuration of the board's DRAM controller: the name of one of the platform's
        /// address maps. Default: the first.
        dram: Option<At<String>>,
        /// Names for colors and banks.
        group: Vec<Group> = [],
        /// Messages from one VM to others through virtio sockets; the broker moves them by their
        /// deadlines.
        flow: Vec<At<Flow>> = [],
        /// How the bytes of all flows are moved.
        dma: Option<At<Dma>>,
        /// The overhead of each step of a transfer. Values that are absent are taken from the
        /// platform.
        overheads: Overheads = {},
        /// Memory traffic below saturation. Default: the platform's.
        saturation: Option<Saturation>,
        /// Cores that several VMs share.
        core: Vec<Core> = [],
        /// Interrupts that take time on a shared core.
        irq: Vec<At<Irq>> = [],
    }

    /// Options of the hypervisor.
    pub(crate) struct Hypervisor = "[hypervisor]" {
        /// The core that serves the board's UART. Default: a core that runs no VM, or else the last
        /// core of the last VM.
        console_core: Option<At<u64>> as CORE,
        /// Time between two reports of the counters, in whole milliseconds; "0s" for none.
        heartbeat: At<Nanos> = "1s",
        /// Colors of the last-level cache, exclusive to it: numbers like "0-3,8", the name of a
        /// group, or "auto". Default: the colors that no key takes.
        colors: Option<At<String>>,
        /// DRAM banks, exclusive to it: numbers like "0-3,8", the name of a group, or "auto".
        /// Default: the banks that no key takes.
        banks: Option<At<String>>,
    }

    /// Options of the VM that moves the flows' packets and the switch's frames.
    pub(crate) struct Broker = "[broker]" {
        /// Its core, one; it shares it if that core's schedule names "broker". The default is the
        /// core with such a schedule, else the first that runs no VM.
        cpus: Option<At<Vec<At<u64>>>> as CORES,
        /// Colors of the last-level cache, exclusive to it: numbers like "0-3,8", the name of a
        /// group, or "auto". Default: the colors that no key takes.
        colors: Option<At<String>>,
        /// DRAM banks, exclusive to it: numbers like "0-3,8", the name of a group, or "auto".
        /// Default: the banks that no key takes.
        banks: Option<At<String>>,
        /// A file with measured [overheads], as `weir report --overheads` writes it: flows get
        /// bounds. Relative to this file.
        overheads: Option<At<String>>,
    }

    /// A virtual machine.
    pub(crate) struct Vm = "[[vm]]" {
        /// Its name: 1 to 31 characters of a-z, A-Z, 0-9, `-` and `_`.
        @required name: Option<At<String>>,
        /// The core of each of its vCPUs; no core runs two, unless it has a schedule: [[core]].
        @required cpus: Option<At<Vec<At<u64>>>> as CORES,
        /// Its RAM: a size, like "16MiB", for one piece at 0x4000_0000, or a list of pieces with
        /// their addresses.
        @required memory: Option<At<Memory>>,
        /// Its program.
        @required image: Option<At<Image>>,
        /// Devices of the board that it gets, by their path in the board's device tree or their
        /// name in the platform file, or PCI functions like "pci:00:02.0"; or "rest": all that may
        /// be passed through and that no other VM took.
        devices: Option<At<Devices>>,
        /// The reaction to a fault of the VM: stop it, restart it from its pristine image, or stop
        /// the system.
        on_fault: OnFault = "halt",
        /// The result of an access to an unmapped address: a fault, handled by `on_fault`, or an
        /// external abort that the VM takes, as on a machine.
        on_outside: OnOutside = "fault",
        /// Timer ticks that fall due while it is off a core that it shares are late ("keep"), or
        /// one comes for all ("lose", for a guest that takes its next deadline from the timer).
        ticks: TickPolicy = "keep",
        /// Whether it may hand the console and the devices of class "active" to a VM, by a
        /// hypercall.
        focus: bool = false,
        /// Texts that its console must show, each within a line, for a run to succeed.
        expect: Option<At<Vec<At<String>>>>,
        /// Addresses of its virtual board, where they are not those of QEMU's virt machine.
        board: Board = {},
        /// The transport of its virtio socket device, if it is in a flow: registers at a fixed
        /// address ("mmio", the default), or a PCI function ("pci").
        vsock: Option<At<SocketBus>>,
        /// Its network device: a port of the switch that all VMs with `net` are at.
        net: Option<At<Net>>,
        /// Event counters of the PMU that it may use on each of its cores, and the cycle counter
        /// with them. Default: it sees no PMU.
        pmu: Option<At<u64>> [1, MAX_PMU_COUNTERS as u64],
        /// Colors of the last-level cache, exclusive to it: numbers like "0-3,8", the name of a
        /// group, or "auto". Default: the colors that no key takes.
        colors: Option<At<String>>,
        /// DRAM banks, exclusive to it: numbers like "0-3,8", the name of a group, or "auto".
        /// Default: the banks that no key takes.
        banks: Option<At<String>>,
        /// TLB sets that its RAM is to use: numbers like "0-63", or "auto" for the same part of
        /// them as `colors` is of the cache. Its RAM then lies in pieces, where the addresses
        /// choose these sets.
        tlb_colors: Option<At<String>>,
        /// Its criticality. 0 is best effort: it gets what the other VMs leave.
        criticality: u64 [0, 255] = 0,
        /// The amount of memory that should stay in its part of the cache.
        working_set: Option<Bytes>,
        /// Its memory budget: `accesses` and `period`, or only `required` to have `weir plan`
        /// choose them. Regulators: docs/explanation/regulators.md.
        memory_budget: Option<At<MemoryBudget>>,
        /// Its tasks by falling priority, for the analysis of their response times.
        task: Vec<At<Task>> = [],
        /// The memory accesses of its vCPUs in `weir simulate`. Default: none.
        workload: Option<At<Workload>>,
    }

    /// A network device.
    pub(crate) struct Net = "{ mac = ... }" {
        /// Its MAC address, like "52:54:00:00:00:01".
        @required mac: Option<At<String>>,
        /// Frames a second that the VM may send; frames above it are dropped. Default: no limit.
        rate: Option<u64> [1, 1_000_000_000],
        /// Frames that may be sent at once. Default: 32.
        burst: Option<At<u64>> [1, 1 << 20],
        /// Bytes a second that the VM may send, `burst` frames of 1514 at once; frames above it are
        /// dropped. Default: no limit.
        bandwidth: Option<BytesPerSec>,
        /// Whether frames that are for no VM's address go to this VM: it drives the device that all
        /// share.
        uplink: bool = false,
    }

    /// A piece of RAM.
    pub(crate) struct Piece = "{ base = ..., size = ... }" {
        /// Where the VM sees it: an intermediate physical address.
        base: At<u64> as ADDRESS,
        /// Its size, whole pages of 4 KiB.
        size: At<Bytes>,
    }

    /// An ELF program, loaded at its physical addresses.
    pub(crate) struct Elf = "{ elf = ... }" {
        /// The name of one of weir's own guests, or a file, relative to this one.
        elf: At<String>,
        /// Arguments: /chosen/bootargs of its device tree.
        args: Option<At<String>>,
    }

    /// A flat binary.
    pub(crate) struct Bin = "{ bin = ... }" {
        /// The file, relative to this one; or u-boot, Debian's for QEMU.
        bin: At<String>,
        /// Its load address. Default: 2 MiB above the start of RAM.
        load: Option<u64> as ADDRESS,
        /// Its entry point. Default: its first byte.
        entry: Option<u64> as ADDRESS,
        /// Arguments: /chosen/bootargs of its device tree.
        args: Option<At<String>>,
    }

    /// A Linux kernel.
    pub(crate) struct Linux = "{ linux = ... }" {
        /// The kernel's arm64 Image, relative to this file; or debian-rt, Debian's PREEMPT_RT
        /// kernel.
        linux: At<String>,
        /// The initial RAM disk, relative to this file; or busybox, a shell and its tools; or
        /// debian-rt, with cyclictest in addition; or debian-virtio, with the modules for virtio
        /// disks on PCI; or debian-vsock, with those for virtio sockets and a program that uses
        /// them; or debian-net, with those for the network device and cyclictest; or debian-socat,
        /// with socat in addition.
        initrd: Option<At<String>>,
        /// The kernel's command line.
        cmdline: Option<At<String>>,
    }

    /// Addresses of the virtual board, each an intermediate physical address.
    pub(crate) struct Board = "board" {
        /// Start of RAM, if `memory` is one size. Default: 0x4000_0000.
        ram: Option<At<u64>> as ADDRESS,
        /// The GIC's distributor, 64 KiB. Default: 0x0800_0000.
        distributor: Option<At<u64>> as ADDRESS,
        /// GICv3: the redistributors, 128 KiB for each vCPU. Default: 0x080a_0000.
        redistributors: Option<At<u64>> as ADDRESS,
        /// GICv2: the CPU interface, 8 KiB. Default: 0x0801_0000.
        cpu_interface: Option<At<u64>> as ADDRESS,
        /// The PL011, one page. Default: 0x0900_0000.
        uart: Option<At<u64>> as ADDRESS,
        /// The PL011's interrupt, a shared one. Default: 33 (SPI 1).
        uart_intid: Option<At<u64>> [32, INTID_LIMIT as u64 - 1],
        /// The PCI configuration space, 256 MiB, of a VM that has functions or its socket device on
        /// PCI. Default: 0x40_1000_0000.
        ecam: Option<At<u64>> as ADDRESS,
        /// Address of the device tree, in RAM, 8-byte aligned. Default: the start of RAM.
        device_tree: Option<At<u64>> as ADDRESS,
    }
}

const ADDRESS: Kind = Kind::Address;

/// Tables with required keys that a file may leave out if it is analyzed only.
pub(crate) const ABSENT: &[&str] = &[System::SHAPE.name, Vm::SHAPE.name];

choice! {
    /// How a VM sees its virtio socket device.
    pub enum SocketBus {
        /// By registers at a fixed address.
        Mmio = "mmio",
        /// As a PCI function.
        Pci = "pci",
    }
}

choice! {
    /// What becomes of timer ticks while a VM is off a core that it shares.
    pub enum TickPolicy {
        /// They are late.
        Keep = "keep",
        /// One comes for all of them.
        Lose = "lose",
    }
}

variant! {
    /// What a VM runs, as the file names it.
    pub(crate) enum Image { Elf(Elf), Bin(Bin), Linux(Linux) }
}

/// The RAM of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Size(Bytes),
    Pieces(Vec<At<Piece>>),
}

impl Value for Memory {
    const KIND: Kind = Kind::OneOf(&[Kind::Size, Vec::<Piece>::KIND]);

    fn read(value: &Spanned<DeValue<'_>>) -> Option<Self> {
        match value.get_ref() {
            // The rules of the pieces hold for all or for none.
            DeValue::Array(items) => {
                items.iter().map(At::read).collect::<Option<_>>().map(Self::Pieces)
            }
            _ => Bytes::read(value).map(Self::Size),
        }
    }
}

impl Memory {
    /// The sizes of all pieces together; none for an empty list.
    pub(crate) fn total(&self) -> Option<Bytes> {
        match self {
            Self::Size(size) => Some(*size),
            Self::Pieces(pieces) if pieces.is_empty() => None,
            Self::Pieces(pieces) => {
                let sizes = pieces.iter().map(|piece| piece.size.value.0);
                Some(Bytes(sizes.fold(0, u64::saturating_add)))
            }
        }
    }
}

/// The devices of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    Rest,
    List(Vec<At<String>>),
}

impl Value for Devices {
    const KIND: Kind = Kind::OneOf(&[Kind::Choice(&["rest"]), Vec::<String>::KIND]);

    fn read(value: &Spanned<DeValue<'_>>) -> Option<Self> {
        match value.get_ref().as_str() {
            Some(text) => (text == "rest").then_some(Self::Rest),
            None => Value::read(value).map(Self::List),
        }
    }
}

impl System {
    /// The VMs, each with its header.
    pub(crate) fn vms(&self) -> &[At<Vm>] {
        self.vm.as_ref().map_or(&[], |vms| &vms.value)
    }

    /// Returns whether the file has all that is needed to build the system.
    pub(crate) fn is_complete(&self) -> bool {
        let is_given = |vm: &At<Vm>| vm.cpus.is_some() && vm.memory.is_some() && vm.image.is_some();
        self.platform.is_some() && !self.vms().is_empty() && self.vms().iter().all(is_given)
    }
}

impl fmt::Display for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or("?", |name| &name.value);
        fmt::Display::fmt(&Object::vm(name), f)
    }
}

impl Vm {
    /// The place of its RAM in the file, or else `header`.
    pub(crate) fn memory_span(&self, header: &Range<usize>) -> Range<usize> {
        self.memory.as_ref().map_or(header, |memory| &memory.span).clone()
    }
}
