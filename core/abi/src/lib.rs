//! The packed form of a system, which `weir build` appends to the hypervisor and EL2 reads.
//!
//! A system image consists of the hypervisor's flat binary, a [`PackedHeader`] with its tables at
//! the next page, and the guests' images. Everything is little endian and 8-byte aligned.
//! [`PackedSystem::parse`] checks all of it: afterwards no number in the tables can make the
//! hypervisor index, add or map out of bounds, whatever the origin of the bytes.
//!
//! This file contains the tables of header, VMs, regions, segments and interrupts together with
//! their check and their packing, because these three must agree on the order and the length of
//! each table. Tables with a separate topic have their own modules.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod features;
mod flows;
pub mod machine;
mod memory;
mod net;
mod pci;
pub mod regulation;
pub mod schedule;
mod stage2;

pub use features::Features;
pub use flows::{
    ENGINE_CHUNK, ENGINE_LEVELS, ENGINE_LIMIT, EXCHANGE, EXCHANGE_IPA, EXCHANGE_LEN, FIRST_GROUP,
    FLOW_TIME_LIMIT, MAX_FLOWS, NO_BROKER, NO_ENGINE, PackedFlow, VIRTIO_LEN, VSOCK_BAR_LEN,
    VSOCK_SLOT, WINDOWS, window,
};
pub use memory::{Functions, PackedCache, PageSpan, VM_LEN};
pub use net::{MAX_PORT_PIECES, PackedNet};
pub use pci::{ECAM_LEN, MAX_FUNCTIONS, PciFunction, STREAM_LIMIT};
pub use regulation::Regulation;
pub use schedule::{PackedSchedule, ReadySchedule, Slot};
pub use stage2::{GICV_LEN, dma_attributes};

#[cfg(feature = "alloc")]
use alloc::vec::Vec;
use core::ops::Range;
use crc::{CRC_32_ISO_HDLC, Crc, Table};
use weir_paging::classes::PageClasses;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of the packed form.
pub const MAGIC: [u8; 8] = *b"weirsys\0";
/// Version of the layout below; it changes with each change of the layout.
pub const VERSION: u32 = 13;
/// The first byte that [`PackedHeader::crc`] covers.
const SUMMED_FROM: usize = 16;
/// Largest number of cores of a board.
pub const MAX_CORES: usize = 8;
/// Largest number of VMs of a system, and of vCPUs of a VM: a core runs at most one vCPU of a VM.
pub const MAX_VMS: usize = MAX_CORES;
/// Largest size of header and tables in bytes; EL2 maps at most this much of them.
pub const TABLES_LIMIT: u64 = 0x1_0000;
/// Page size in bytes; every placement is a multiple of it.
pub const PAGE: u64 = 4096;
/// Limit of physical and intermediate physical addresses: 39 bits, which a stage 2 with one root
/// table spans.
pub const ADDRESS_LIMIT: u64 = 1 << 39;
/// Limit of the interrupt numbers of the virtual GIC.
pub const INTID_LIMIT: u16 = 256;

/// The start of the packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PackedHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// CRC-32 (ISO HDLC) of all bytes behind this field, up to `tables_len`.
    pub crc: u32,
    /// The identity of the image, see [`name_image`]: EL2 reports it to the host.
    pub image_id: u64,
    /// Bytes of header and tables.
    pub tables_len: u32,
    /// Number of VMs. The tables are behind the header in the order of these counts.
    pub vms: u32,
    /// Number of [`Region`]s.
    pub regions: u32,
    /// Number of [`PackedSegment`]s.
    pub segments: u32,
    /// Number of [`Irq`]s.
    pub irqs: u32,
    /// Number of cores that the system needs; core `n` is the n-th core of the platform.
    pub cores: u32,
    /// The core that serves the board's UART and the heartbeat.
    pub console_core: u32,
    /// 1 if memory is divided by page classes, otherwise 0. If it is 0, every set contains all page
    /// classes of the board, each [`PageSpan`] is one range, and the spans that only a divided
    /// system has are empty.
    pub colored: u32,
    /// Number of [`PciFunction`]s, behind the [`Irq`]s.
    pub pci: u32,
    /// 1 if QEMU plug-ins observe the system. They do not see DC ZVA, so it is prohibited for
    /// guests, and EL2 does not use it.
    pub observed: u32,
    /// Number of [`PackedFlow`]s, behind the [`PciFunction`]s.
    pub flows: u32,
    /// The I/O service VM, or [`NO_BROKER`].
    pub broker: u32,
    /// Nanoseconds between two reports of the counters; 0 for none.
    pub heartbeat_ns: u64,
    /// Largest rate at which the broker moves bytes, in bytes/s; 0 for no limit.
    pub rate: u64,
    /// Largest number of bytes that the broker moves between two decisions, if there are flows.
    pub chunk: u64,
    /// Smallest chunk in bytes that the DMA engine moves; [`NO_ENGINE`] if the core moves all
    /// chunks.
    pub engine_from: u64,
    /// The level to which the firmware limits the DMA engine's reads and writes, at most
    /// [`ENGINE_LEVELS`]; 0 for no limit.
    pub engine_level: u64,
    /// Time in ns that the DMA engine may take for a chunk before the broker gives up, at most
    /// [`ENGINE_LIMIT`]; 0 if the core moves all chunks.
    pub engine_limit: u64,
    /// Number of [`PackedSchedule`]s, behind the [`PackedFlow`]s.
    pub schedules: u32,
    /// Number of [`Slot`]s, behind the [`PackedSchedule`]s.
    pub slots: u32,
    /// The address to which the image must be loaded: the physical address of the hypervisor's
    /// first byte.
    pub load_address: u64,
    /// Bytes of the whole image, including the guests' images.
    pub image_len: u64,
    /// Address behind the last byte of RAM that the system uses.
    pub memory_end: u64,
    /// The board's address functions.
    pub functions: Functions,
    /// The board's last-level cache, from its platform file.
    pub cache: PackedCache,
    /// The page classes of the hypervisor.
    pub classes: [u64; 4],
    /// The pages to which the hypervisor moves with all its memory, if memory is divided.
    pub memory: PageSpan,
}

/// The reaction to a fault of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OnFault {
    /// Stops the VM for good.
    Halt = 0,
    /// Starts the VM again from its pristine image.
    Restart = 1,
    /// Stops the whole system.
    StopSystem = 2,
}

/// The reaction to an access of a VM to an address at which it has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OnOutside {
    /// The access is a fault: [`OnFault`] determines what follows.
    Fault = 0,
    /// The VM takes an external abort, as on a real machine.
    Abort = 1,
}

/// A VM in the packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PackedVm {
    /// The name, padded with zeros.
    pub name: [u8; 32],
    /// IPA of the first instruction of vCPU 0.
    pub entry: u64,
    /// IPA of the device tree, passed in x0.
    pub device_tree: u64,
    /// IPA of the virtual GIC's distributor.
    pub distributor: u64,
    /// IPA of the redistributors (GICv3; 128 KiB for each vCPU) or of the CPU interface (GICv2; 8
    /// KiB).
    pub gic_cpu: u64,
    /// IPA of the virtual PL011, one page.
    pub uart: u64,
    /// INTID of the virtual PL011.
    pub uart_intid: u32,
    /// INTID of the virtual socket device.
    pub vsock_intid: u32,
    /// IPA of the socket device's registers; 0 if there is none.
    pub vsock: u64,
    /// IPA of the page with the stolen time of the vCPUs; 0 if there is none.
    pub stolen_time: u64,
    /// IPA of the PCI configuration space that contains the socket device; 0 if the device is on
    /// the MMIO transport.
    pub vsock_ecam: u64,
    /// First entry in the table of regions.
    pub first_region: u32,
    /// Number of regions.
    pub regions: u32,
    /// First entry in the table of segments.
    pub first_segment: u32,
    /// Number of segments.
    pub segments: u32,
    /// First entry in the table of interrupts.
    pub first_irq: u32,
    /// Number of interrupts.
    pub irqs: u32,
    /// The reaction to a fault: an [`OnFault`].
    pub on_fault: u8,
    /// Number of vCPUs.
    pub vcpus: u8,
    /// Number of PMU event counters that the VM may use, together with the cycle counter; 0 for no
    /// PMU.
    pub pmu: u8,
    /// [`schedule::KEEP_TICKS`] or [`schedule::LOSE_TICKS`].
    pub ticks: u8,
    /// 1 if the VM may hand the console and the active devices to another VM.
    pub focus: u8,
    /// The reaction to an access outside of its regions: an [`OnOutside`].
    pub on_outside: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// The core of each vCPU.
    pub cores: [u8; MAX_CORES],
    /// The page classes of the VM.
    pub classes: [u64; 4],
    /// The memory that the hypervisor keeps for the VM in the VM's page classes: the stage 2
    /// tables, the root first, and the state of the vCPUs.
    pub own: PageSpan,
    /// The VM's pristine image in its page classes; see [`PackedSegment::kept`].
    pub pristine: PageSpan,
    /// The VM's memory budget.
    pub regulation: Regulation,
    /// The VM's network device.
    pub net: PackedNet,
}

/// A piece of a VM's address space that stage 2 maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Region {
    /// IPA of the first byte.
    pub ipa: u64,
    /// Physical address of the first byte. RAM: the pages of the VM's page classes from this page
    /// on. A device: contiguous from here on.
    pub pa: u64,
    /// Length in bytes.
    pub len: u64,
    /// [`RAM`], which is zeroed at each start of the VM; [`DEVICE`], registers of a device passed
    /// through; [`ACTIVE`], registers of a device that is handed from VM to VM; or [`EXCHANGE`].
    pub kind: u64,
}

/// Number of event counters that the hypervisor keeps for memory budgets: the first ones of each
/// core.
pub const KEPT_COUNTERS: u8 = 2;
/// Largest number of event counters of a VM: the rest of PMUv3's 31.
pub const MAX_PMU_COUNTERS: u8 = 31 - KEPT_COUNTERS;

/// [`Region::kind`] of RAM.
pub const RAM: u64 = 0;
/// [`Region::kind`] of a device.
pub const DEVICE: u64 = 1;
/// [`Region::kind`] of a device of the class *active*: it is assigned to several VMs and visible to
/// one of them at a time.
pub const ACTIVE: u64 = 3;

/// Bytes of the image that are copied into a VM's RAM at each start; the rest of the RAM is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PackedSegment {
    /// IPA of the first byte.
    pub ipa: u64,
    /// Offset in the image, from the hypervisor's first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset in [`PackedVm::pristine`], if memory is divided: the hypervisor moves the bytes there
    /// before the first boot.
    pub kept: u64,
}

/// A physical interrupt that is assigned to a VM, which sees it under the same INTID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Irq {
    /// INTID, a shared peripheral interrupt: 32 to 255.
    pub intid: u32,
    /// 1 if edge-triggered, 0 if level-sensitive.
    pub edge: u32,
    /// On a core that its VM shares: time in ns in which another interrupt is earned; 0 if the rate
    /// is not limited.
    pub interval_ns: u64,
    /// Number of interrupts that may come at once, if the rate is limited.
    pub burst: u32,
    /// 1 if it takes a shared core for its VM, for the rest of the current time slice.
    pub preempt: u8,
    /// Priority with which it takes the core; 0 is the most urgent.
    pub priority: u8,
    /// 1 if it belongs to a device of the class *active*; it is delivered to the VM that has the
    /// device.
    pub active: u16,
}

/// Reason why the hypervisor refuses a packed system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Too short, or not at an 8-byte boundary.
    Truncated,
    /// Does not begin with [`MAGIC`].
    Magic,
    /// Another [`VERSION`].
    Version(u32),
    /// The check sum does not fit the bytes.
    Checksum,
    /// A table's entries, lengths or offsets are out of bounds.
    Table,
    /// A VM has no vCPU, a core that the system does not have, one core twice, or a core of another
    /// VM although no schedule shares it.
    Cores(u32),
    /// An address or a length of the VM is not a multiple of the page, wraps, or exceeds 39 bits;
    /// or its regions and devices overlap.
    Address(u32),
    /// A segment of the VM lies outside of its RAM or of the image.
    Segment(u32),
    /// An interrupt of the VM is not a shared peripheral interrupt, or has two owners.
    Interrupt(u32),
    /// RAM of this VM overlaps the image or another VM.
    Overlap(u32),
    /// A value of the VM that selects one of several choices is not one of them.
    Choice(u32),
    /// The address functions are invalid, or a set has page classes that the board lacks.
    Geometry,
    /// A PCI function of the VM also has another owner, or its addresses overlap something else.
    Function(u32),
    /// The memory budget of the VM cannot be regulated.
    Bandwidth(u32),
    /// The core's schedule cannot be run, or does not name exactly the VMs on the core.
    Schedule(u32),
    /// The VM's network device has no valid address, has the address of another, or is a second
    /// uplink.
    Port(u32),
    /// A flow connects VMs that cannot have one, or the broker or its DMA engine is invalid.
    Flow(u32),
    /// The system uses the part of this name, which the hypervisor was built without.
    Feature(&'static str),
}

impl Damage {
    /// Returns the reason as a message for the user.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Truncated => "the packed system is cut short",
            Self::Magic => "no packed system behind the hypervisor",
            Self::Version(_) => "the packed system is of another version",
            Self::Checksum => "the packed system's check sum is wrong",
            Self::Table => "a table of the packed system points beyond its end",
            Self::Cores(_) => "a VM's cores are not there or not its own",
            Self::Address(_) => "a VM's addresses are not aligned, overlap or exceed 39 bits",
            Self::Segment(_) => "a VM's image lies outside of its RAM",
            Self::Interrupt(_) => {
                "a VM's interrupt is not a shared one, has two owners, or a rule that is none"
            }
            Self::Overlap(_) => "a VM's RAM overlaps the image or another VM",
            Self::Choice(_) => {
                "a VM's on_fault, on_outside, ticks, focus or number of counters is unknown"
            }
            Self::Geometry => "the page classes are not those of the board",
            Self::Function(_) => "a VM's PCI function has two owners, or its addresses are taken",
            Self::Port(_) => "a network device has no address of its own, or is a second uplink",
            Self::Flow(_) => {
                "a flow's ends, its broker or its DMA engine are not what they must be"
            }
            Self::Bandwidth(_) => "a VM's memory budget cannot be enforced",
            Self::Schedule(_) => "a core's schedule cannot be run, or is not that of its VMs",
            Self::Feature(_) => {
                "the packed system uses a part that the hypervisor was built without"
            }
        }
    }
}

/// A packed system whose numbers have all been checked.
#[derive(Clone, Copy, Debug)]
pub struct PackedSystem<'a> {
    /// The header.
    pub header: &'a PackedHeader,
    vms: &'a [PackedVm],
    regions: &'a [Region],
    segments: &'a [PackedSegment],
    irqs: &'a [Irq],
    pci: &'a [PciFunction],
    flows: &'a [PackedFlow],
    schedules: &'a [PackedSchedule],
    slots: &'a [Slot],
    classes: PageClasses,
}

/// A VM of a checked system, with its parts of the tables.
#[derive(Clone, Copy, Debug)]
pub struct VmView<'a> {
    /// Index of the VM in the system.
    pub index: usize,
    /// The VM's entry.
    pub vm: &'a PackedVm,
    /// The regions that are mapped.
    pub regions: &'a [Region],
    /// The segments that are copied at each start.
    pub segments: &'a [PackedSegment],
    /// The physical interrupts that are assigned to the VM.
    pub irqs: &'a [Irq],
}

fn page_range(start: u64, len: u64) -> Option<Range<u64>> {
    let end = start.checked_add(len)?;
    (len > 0 && (start | len).is_multiple_of(PAGE) && end <= ADDRESS_LIMIT).then_some(start..end)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

fn table_entries<T>(table: &[T], first: u32, count: u32) -> Option<&[T]> {
    table.get(first as usize..)?.get(..count as usize)
}

impl Irq {
    /// Returns whether the interrupt has an admission rule: its rate is limited, or it takes the
    /// core.
    #[must_use]
    pub const fn has_rule(&self) -> bool {
        self.interval_ns != 0 || self.preempt != 0
    }

    /// Returns a physical interrupt without an admission rule.
    #[must_use]
    pub const fn new(intid: u32, edge: bool) -> Self {
        Self {
            intid,
            edge: edge as u32,
            interval_ns: 0,
            burst: 0,
            preempt: 0,
            priority: 0,
            active: 0,
        }
    }
}

impl<'a> VmView<'a> {
    /// Returns the name up to its first zero.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        let end = self.vm.name.iter().position(|&byte| byte == 0).unwrap_or(self.vm.name.len());
        &self.vm.name[..end]
    }

    /// Returns the reaction to a fault of the VM.
    #[must_use]
    pub fn on_fault(&self) -> OnFault {
        match self.vm.on_fault {
            1 => OnFault::Restart,
            2 => OnFault::StopSystem,
            _ => OnFault::Halt,
        }
    }

    /// Returns the core of each vCPU.
    #[must_use]
    pub fn cores(&self) -> &'a [u8] {
        self.vm.cores.get(..usize::from(self.vm.vcpus)).unwrap_or(&[])
    }

    /// Returns whether `ipa` lies in the VM's RAM.
    #[must_use]
    pub fn is_ram(&self, ipa: u64) -> bool {
        self.regions
            .iter()
            .any(|region| region.kind == RAM && ipa.wrapping_sub(region.ipa) < region.len)
    }

    /// Returns the address ranges of the virtual devices: distributor, CPU side of the GIC, UART,
    /// and (if they exist) the socket device, the network device and the stolen time. GICv3 boards
    /// have 128 KiB of redistributor per vCPU, GICv2 boards 8 KiB of CPU interface.
    fn devices(&self, gic_cpu_len: u64) -> Option<[Option<Range<u64>>; 6]> {
        let one = |start, len| page_range(start, len).map(Some);
        let may = |start, len| if start == 0 { Some(None) } else { one(start, len) };
        let vsock_len = if self.vm.vsock_ecam == 0 { VIRTIO_LEN } else { VSOCK_BAR_LEN };
        Some([
            one(self.vm.distributor, 0x1_0000)?,
            one(self.vm.gic_cpu, gic_cpu_len)?,
            one(self.vm.uart, PAGE)?,
            may(self.vm.vsock, vsock_len)?,
            may(self.vm.net.registers, VIRTIO_LEN)?,
            may(self.vm.stolen_time, PAGE)?,
        ])
    }

    fn check(&self, image: &Range<u64>, divided: bool, gic_v2: bool) -> Result<(), Damage> {
        let index = self.index as u32;
        if self.vm.on_fault > OnFault::StopSystem as u8
            || self.vm.ticks > schedule::LOSE_TICKS
            || self.vm.pmu > MAX_PMU_COUNTERS
            || self.vm.focus > 1
            || self.vm.on_outside > OnOutside::Abort as u8
        {
            return Err(Damage::Choice(index));
        }
        let gic_cpu_len = if gic_v2 { 0x2000 } else { 0x2_0000 * u64::from(self.vm.vcpus) };
        let devices = self.devices(gic_cpu_len).ok_or(Damage::Address(index))?;
        for (position, region) in self.regions.iter().enumerate() {
            let ipa = page_range(region.ipa, region.len).ok_or(Damage::Address(index))?;
            if region.kind > ACTIVE || (divided && region.kind == ACTIVE) {
                return Err(Damage::Choice(index));
            }
            let others = self.regions.get(position + 1..).unwrap_or(&[]);
            let among_regions = others.iter().any(|other| {
                page_range(other.ipa, other.len).is_none_or(|other| overlap(&ipa, &other))
            });
            if among_regions || devices.iter().flatten().any(|device| overlap(&ipa, device)) {
                return Err(Damage::Address(index));
            }
        }
        for (position, device) in devices.iter().enumerate() {
            let mut before = devices.iter().take(position).flatten();
            if device.as_ref().is_some_and(|device| before.any(|other| overlap(other, device))) {
                return Err(Damage::Address(index));
            }
        }
        self.check_vsock(&devices)?;
        for segment in self.segments {
            let end = segment.ipa.checked_add(segment.len);
            let in_ram = end.is_some_and(|end| {
                self.regions.iter().any(|region| {
                    region.kind == RAM
                        && segment.ipa >= region.ipa
                        && end <= region.ipa.saturating_add(region.len)
                })
            });
            let in_image = segment
                .offset
                .checked_add(segment.len)
                .is_some_and(|end| end <= image.end - image.start);
            let kept = segment.kept.checked_add(segment.len);
            let in_store = !divided || kept.is_some_and(|end| end <= self.vm.pristine.len);
            if !in_ram || !in_image || !in_store {
                return Err(Damage::Segment(index));
            }
        }
        let ruled = |irq: &Irq| {
            irq.preempt <= 1
                && irq.active <= 1
                && !(irq.active == 1 && irq.has_rule())
                && (irq.interval_ns == 0) == (irq.burst == 0)
                && irq.interval_ns <= schedule::MOST_SLOT_NS
        };
        if !self.irqs.iter().all(ruled) {
            return Err(Damage::Interrupt(index));
        }
        let mut taken = [false; INTID_LIMIT as usize];
        let vsock = (self.vm.vsock != 0).then_some(self.vm.vsock_intid);
        let net = self.net().map(|net| net.intid);
        let virtual_lines = [self.vm.uart_intid].into_iter().chain(vsock).chain(net);
        for intid in self.irqs.iter().map(|irq| irq.intid).chain(virtual_lines) {
            match taken.get_mut(intid as usize) {
                Some(taken) if intid >= 32 && !*taken => *taken = true,
                _ => return Err(Damage::Interrupt(index)),
            }
        }
        Ok(())
    }
}

impl<'a> PackedSystem<'a> {
    /// Reads and checks a packed system.
    ///
    /// `bytes` begins with the header and may continue behind the tables; `gic_v2` states which
    /// virtual GIC this hypervisor has.
    ///
    /// # Errors
    ///
    /// Returns the first [`Damage`] found.
    pub fn parse(bytes: &'a [u8], gic_v2: bool) -> Result<Self, Damage> {
        Self::parse_with(bytes, gic_v2, Features::ALL, checksum)
    }

    /// Does what [`Self::parse`] does, for a hypervisor that has only the parts in `built`, and
    /// with `checksum` as a faster implementation of [`checksum()`].
    ///
    /// # Errors
    ///
    /// Returns the first [`Damage`] found.
    pub fn parse_with(
        bytes: &'a [u8],
        gic_v2: bool,
        built: Features,
        checksum: impl Fn(&[u8]) -> u32,
    ) -> Result<Self, Damage> {
        let (header, rest) = PackedHeader::ref_from_prefix(bytes).map_err(|_| Damage::Truncated)?;
        if header.magic != MAGIC {
            return Err(Damage::Magic);
        }
        if header.version != VERSION {
            return Err(Damage::Version(header.version));
        }
        let summed = bytes.get(SUMMED_FROM..header.tables_len as usize).ok_or(Damage::Truncated)?;
        if checksum(summed) != header.crc {
            return Err(Damage::Checksum);
        }
        let rest = rest
            .get(..(header.tables_len as usize).saturating_sub(size_of::<PackedHeader>()))
            .ok_or(Damage::Truncated)?;
        let (vms, rest) = table::<PackedVm>(rest, header.vms)?;
        let (regions, rest) = table::<Region>(rest, header.regions)?;
        let (segments, rest) = table::<PackedSegment>(rest, header.segments)?;
        let (irqs, rest) = table::<Irq>(rest, header.irqs)?;
        let (pci, rest) = table::<PciFunction>(rest, header.pci)?;
        let (flows, rest) = table::<PackedFlow>(rest, header.flows)?;
        let (schedules, rest) = table::<PackedSchedule>(rest, header.schedules)?;
        let (slots, _) = table::<Slot>(rest, header.slots)?;
        let classes = header.functions.classes().ok_or(Damage::Geometry)?;
        let system =
            Self { header, vms, regions, segments, irqs, pci, flows, schedules, slots, classes };
        system.check(gic_v2, built)?;
        Ok(system)
    }

    fn check(&self, gic_v2: bool, built: Features) -> Result<(), Damage> {
        let header = self.header;
        if self.vms.is_empty()
            || self.vms.len() > MAX_VMS
            || header.cores as usize > MAX_CORES
            || header.console_core >= header.cores
        {
            return Err(Damage::Table);
        }
        self.check_features(built)?;
        let image_len = header.image_len.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let image = page_range(header.load_address, image_len).ok_or(Damage::Table)?;
        if image.end > header.memory_end {
            return Err(Damage::Table);
        }
        let shared_cores = self
            .schedules
            .iter()
            .fold(0u32, |cores, schedule| cores | 1u32.checked_shl(schedule.core).unwrap_or(0));
        let mut taken = 0u32;
        for index in 0..self.vms.len() {
            let vm = self.vm(index).ok_or(Damage::Table)?;
            if vm.vm.vcpus == 0 || usize::from(vm.vm.vcpus) > MAX_CORES {
                return Err(Damage::Cores(index as u32));
            }
            let mut own = 0u32;
            for &core in vm.cores() {
                let others = taken & !shared_cores | own;
                if u32::from(core) >= header.cores || others & (1 << core) != 0 {
                    return Err(Damage::Cores(index as u32));
                }
                own |= 1 << core;
            }
            taken |= own;
            vm.check(&image, self.is_divided(), gic_v2)?;
            self.check_regulation(&vm)?;
            for other in 0..index {
                let other = self.vm(other).ok_or(Damage::Table)?;
                vm.apart_from(&other)?;
            }
        }
        // For a part that is not used, nothing is left to check: see `used`.
        self.check_schedules()?;
        self.check_pci(gic_v2)?;
        self.check_flows()?;
        self.check_engine()?;
        self.check_ports()?;
        self.check_memory(&image)
    }

    /// Returns the number of VMs, at least one and at most [`MAX_VMS`].
    #[must_use]
    pub fn vms(&self) -> usize {
        self.vms.len()
    }

    /// Returns VM number `index`.
    #[must_use]
    pub fn vm(&self, index: usize) -> Option<VmView<'a>> {
        let vm = self.vms.get(index)?;
        Some(VmView {
            index,
            vm,
            regions: table_entries(self.regions, vm.first_region, vm.regions)?,
            segments: table_entries(self.segments, vm.first_segment, vm.segments)?,
            irqs: table_entries(self.irqs, vm.first_irq, vm.irqs)?,
        })
    }
}

impl VmView<'_> {
    /// Checks that the two VMs have no interrupt in common, except interrupts of active devices.
    fn apart_from(&self, other: &Self) -> Result<(), Damage> {
        let index = self.index as u32;
        let is_taken = |irq: &Irq| {
            let same = |theirs: &&Irq| theirs.intid == irq.intid;
            other.irqs.iter().filter(same).any(|theirs| theirs.active & irq.active == 0)
        };
        if self.irqs.iter().any(is_taken) { Err(Damage::Interrupt(index)) } else { Ok(()) }
    }
}

fn table<T: FromBytes + Immutable + KnownLayout>(
    bytes: &[u8],
    count: u32,
) -> Result<(&[T], &[u8]), Damage> {
    <[T]>::ref_from_prefix_with_elems(bytes, count as usize).map_err(|_| Damage::Table)
}

/// Returns the CRC-32 (ISO HDLC, as in zlib and Ethernet).
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC).checksum(bytes)
}

/// Writes the identity of an image into its packed form, which begins with the header, and updates
/// the check sum. Writes nothing if the packed form is incomplete.
pub fn name_image(packed: &mut [u8], image_id: u64) {
    let Ok((mut header, _)) = PackedHeader::read_from_prefix(packed) else { return };
    let Some(packed) = packed.get_mut(..header.tables_len as usize) else { return };
    header.image_id = image_id;
    let _ = header.write_to_prefix(packed);
    header.crc = checksum(packed.get(SUMMED_FROM..).unwrap_or(&[]));
    let _ = header.write_to_prefix(packed);
}

/// Returns the identity of the image in a file of any format that contains the image's bytes
/// unchanged. None if the file has no packed system of this [`VERSION`].
#[must_use]
pub fn image_id(file: &[u8]) -> Option<u64> {
    let mut starts = file.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC);
    starts.find_map(|(start, _)| {
        let packed = file.get(start..)?;
        let (header, _) = PackedHeader::read_from_prefix(packed).ok()?;
        let summed = packed.get(SUMMED_FROM..header.tables_len as usize)?;
        let is_whole = header.version == VERSION && checksum(summed) == header.crc;
        is_whole.then_some(header.image_id)
    })
}

/// The tables of a system about to be packed.
#[cfg(feature = "alloc")]
#[derive(Clone, Debug, Default)]
pub struct PackedTables {
    /// The VMs; their `first_*` and counts point into the tables below.
    pub vms: Vec<PackedVm>,
    /// The regions that are mapped.
    pub regions: Vec<Region>,
    /// The segments that are copied.
    pub segments: Vec<PackedSegment>,
    /// The interrupts, with their owners.
    pub irqs: Vec<Irq>,
    /// The PCI functions, with their owners.
    pub pci: Vec<PciFunction>,
    /// The flows.
    pub flows: Vec<PackedFlow>,
    /// The shared cores' schedules; their first slots and counts point into the table below.
    pub schedules: Vec<PackedSchedule>,
    /// The slots of the schedules.
    pub slots: Vec<Slot>,
}

#[cfg(feature = "alloc")]
impl PackedTables {
    /// Returns the size of header and tables in bytes.
    #[must_use]
    pub fn packed_len(&self) -> usize {
        size_of::<PackedHeader>()
            + size_of_val(self.vms.as_slice())
            + size_of_val(self.regions.as_slice())
            + size_of_val(self.segments.as_slice())
            + size_of_val(self.irqs.as_slice())
            + size_of_val(self.pci.as_slice())
            + size_of_val(self.flows.as_slice())
            + size_of_val(self.schedules.as_slice())
            + size_of_val(self.slots.as_slice())
    }

    /// Packs the tables behind `header`, and fills in its counts, lengths, version and check sum.
    #[must_use]
    pub fn pack(&self, header: PackedHeader) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(self.vms.as_bytes());
        body.extend_from_slice(self.regions.as_bytes());
        body.extend_from_slice(self.segments.as_bytes());
        body.extend_from_slice(self.irqs.as_bytes());
        body.extend_from_slice(self.pci.as_bytes());
        body.extend_from_slice(self.flows.as_bytes());
        body.extend_from_slice(self.schedules.as_bytes());
        body.extend_from_slice(self.slots.as_bytes());
        let mut header = PackedHeader {
            magic: MAGIC,
            version: VERSION,
            crc: 0,
            tables_len: (size_of::<PackedHeader>() + body.len()) as u32,
            vms: self.vms.len() as u32,
            regions: self.regions.len() as u32,
            segments: self.segments.len() as u32,
            irqs: self.irqs.len() as u32,
            pci: self.pci.len() as u32,
            flows: self.flows.len() as u32,
            schedules: self.schedules.len() as u32,
            slots: self.slots.len() as u32,
            ..header
        };
        let mut packed = header.as_bytes().to_vec();
        packed.extend_from_slice(&body);
        header.crc = checksum(&packed[SUMMED_FROM..]);
        packed[..size_of::<PackedHeader>()].copy_from_slice(header.as_bytes());
        packed
    }
}
