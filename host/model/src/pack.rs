//! From a checked system and the bytes of its images to the system image: what goes where in it.
//! [`tables`] fills the tables that EL2 reads.

mod tables;

use self::tables::{add_schedules, add_vm, flows, tables_len};
use crate::devicetree;
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults};
use crate::image::{self, Part, Problem, Program, Subject, in_ram, stored};
use crate::place::{Placement, Sizes, memory_end, place_all};
use crate::platform::Platform;
use crate::ranges::{overlap, span};
use crate::system::System;
use crate::vm::{RamPiece, Vm};
use crc32c::{crc32c, crc32c_append, crc32c_combine};
use std::borrow::Cow;
use weir_abi::{PAGE, PackedCache, PackedHeader, PackedSegment, PackedTables, TABLES_LIMIT};
use weir_units::Bytes;

/// Something and where it goes: an offset in the image, or an address of a VM.
type Blob<C> = (u64, C);

/// What is copied into a VM's RAM at its start. What is equal is in the image once.
pub(crate) trait Content: Clone + PartialEq {
    /// Its length in bytes.
    fn size(&self) -> u64;
}

impl Content for Cow<'_, [u8]> {
    fn size(&self) -> u64 {
        self.len() as u64
    }
}

/// What a VM starts with.
pub(crate) struct Start<C> {
    /// Its first instruction.
    pub entry: u64,
    /// What of its RAM is not zero, with its address.
    pub parts: Vec<Blob<C>>,
}

/// A VM's RAM, and what is copied there at each start.
type Contents = (Vec<RamPiece>, Vec<PackedSegment>);

/// The bytes of a VM's image.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The program or kernel.
    pub image: &'a [u8],
    /// The initial RAM disk, where the image has one.
    pub initrd: Option<&'a [u8]>,
}

/// The sizes of a hypervisor, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HypervisorSize {
    /// What the image file has of it: code, constants and data, at the front.
    pub file: u64,
    /// All its memory, with `.bss` and the stacks.
    pub memory: u64,
}

impl HypervisorSize {
    /// What is at the front of the image.
    fn front(self) -> u64 {
        self.file.next_multiple_of(PAGE)
    }

    /// What is at the end of the image, behind the end of the file.
    fn end(self) -> u64 {
        self.memory.next_multiple_of(PAGE).saturating_sub(self.front())
    }
}

/// A system image but for the hypervisor in front.
#[derive(Clone, Debug)]
pub struct Packed<'a> {
    /// Where the tables go, from the hypervisor's first byte: the page behind what the file has of
    /// the hypervisor.
    pub tables_offset: u64,
    /// Header and tables, see [`weir_abi`].
    pub tables: Vec<u8>,
    /// The guests' bytes, each with its offset from the hypervisor's first byte, in this order.
    pub blobs: Vec<(u64, Cow<'a, [u8]>)>,
    /// Bytes of the image file.
    pub file_len: u64,
    /// Bytes of the whole image in memory: the file, then the hypervisor's `.bss` and stacks.
    pub image_len: u64,
    /// The owner of each memory.
    pub placement: Placement,
    /// Each VM's flattened device tree.
    pub device_trees: Vec<Vec<u8>>,
    /// For each VM its RAM and what is in it at the start.
    contents: Vec<Contents>,
}

/// A VM's image and device tree, laid out in its RAM.
pub(crate) struct Loaded<'a> {
    pub program: Program<'a>,
    pub device_tree: Vec<u8>,
    /// Where the tree goes.
    pub device_tree_at: u64,
}

/// Lays out `image` and generates the device tree.
pub(crate) fn load<'a>(
    vm: &Vm,
    platform: &Platform,
    image: &'a [u8],
    initrd: Option<&'a [u8]>,
) -> Result<Loaded<'a>, Vec<Problem>> {
    let program = image::lay_out(&vm.image, image, initrd, &vm.memory)?;
    let device_tree = devicetree::generate(vm, platform, program.initrd.as_ref());
    let start = vm.board.device_tree.0;
    let range = start..start.saturating_add(device_tree.len() as u64);
    let problem = |code, message: String, help: &str| {
        vec![Problem { code, message, help: help.to_owned(), subject: Subject::DeviceTree }]
    };
    if !in_ram(&range, &vm.memory) {
        let message = format!("the device tree ({}) is not in the VM's RAM", span(&range));
        return Err(problem(Code::OutsideRam, message, "move it: board = { device_tree = ... }"));
    }
    let in_the_way = |part: &&Part<'_>| overlap(&part.range(), &range);
    if let Some(part) = program.parts.iter().find(in_the_way) {
        let message = format!(
            "the device tree ({}) and {} ({}) overlap",
            span(&range),
            part.what,
            span(&part.range()),
        );
        let help = "move the tree, board = { device_tree = ... }, or load the image higher";
        return Err(problem(Code::Overlap, message, help));
    }
    Ok(Loaded { program, device_tree, device_tree_at: start })
}

/// Packs `system`. `payloads` has the bytes of each VM's image in the order of [`System::vms`].
///
/// # Errors
///
/// Images that don't fit their VM, or VMs that don't fit the board.
///
/// # Panics
///
/// When there are not as many payloads as VMs.
pub fn pack<'a>(
    system: &System,
    payloads: &[Payload<'a>],
    hypervisor: HypervisorSize,
) -> Result<Packed<'a>, Faults> {
    assert_eq!(payloads.len(), system.vms.len(), "one payload for each VM");
    let mut faults = Faults::default();
    let mut loaded = Vec::new();
    for (vm, payload) in system.vms.iter().zip(payloads) {
        match load(vm, system.platform(), payload.image, payload.initrd) {
            Ok(vm) => loaded.push(vm),
            Err(problems) => {
                for problem in problems {
                    faults.push(vm.image_fault(&system.file, problem));
                }
            }
        }
    }
    faults.into_result(())?;

    let starts: Vec<_> = loaded.iter().map(start).collect();
    let Arranged { blobs, contents, file_len, image_len, placement, tables } =
        arrange(system, &starts, hypervisor)?;
    let division = &system.division;
    let header = PackedHeader {
        magic: weir_abi::MAGIC,
        version: weir_abi::VERSION,
        crc: 0,
        image_id: 0,
        tables_len: 0,
        vms: 0,
        regions: 0,
        segments: 0,
        irqs: 0,
        cores: system.cores_needed() as u32,
        console_core: system.hypervisor.console_core.0.into(),
        heartbeat_ns: system.hypervisor.heartbeat.map_or(0, |time| time.0),
        colored: division.divided.into(),
        pci: 0,
        observed: system.hypervisor.observed.into(),
        schedules: 0,
        slots: 0,
        flows: 0,
        broker: system.broker().map_or(weir_abi::NO_BROKER, |broker| broker as u32),
        rate: system.dma.bandwidth.map_or(0, |rate| rate.0),
        chunk: system.chunk().0,
        engine_from: system.moved_by_engine_from().map_or(weir_abi::NO_ENGINE, |from| from.0),
        engine_level: system.qos_level().map_or(0, |(level, _)| level),
        engine_limit: system.moved_by_engine_from().map_or(0, |_| system.engine_limit().0),
        load_address: system.platform().load_address.0,
        image_len,
        memory_end: memory_end(&placement).max(system.platform().load_address.0 + image_len),
        functions: division.geometry.into(),
        cache: system
            .platform()
            .places
            .cache
            .filter(|cache| cache.in_registers)
            .map(|cache| PackedCache {
                size: cache.size.0,
                ways: cache.ways,
                cache_line: cache.line.0,
            })
            .unwrap_or_default(),
        classes: division.hypervisor.words(),
        memory: placement.hypervisor,
    };
    Ok(Packed {
        tables_offset: hypervisor.front(),
        tables: tables.pack(header),
        blobs,
        file_len,
        image_len,
        placement,
        device_trees: loaded.into_iter().map(|vm| vm.device_tree).collect(),
        contents,
    })
}

/// Where everything lies.
pub(crate) struct Arranged<C> {
    /// What goes into the image behind the tables, each with its offset from the hypervisor's first
    /// byte.
    blobs: Vec<Blob<C>>,
    /// For each VM its RAM and what is in it at the start.
    contents: Vec<Contents>,
    file_len: u64,
    image_len: u64,
    pub placement: Placement,
    tables: PackedTables,
}

/// Finds a place for everything, between the two parts of the hypervisor.
///
/// # Errors
///
/// VMs that don't fit the board, or have a description that EL2 does not read.
pub(crate) fn arrange<C: Content>(
    system: &System,
    starts: &[Start<C>],
    hypervisor: HypervisorSize,
) -> Result<Arranged<C>, Faults> {
    let segments = starts.iter().map(|start| start.parts.len()).sum();
    let mut reserved = tables_len(system, segments) as u64;
    // Where memory is divided, a piece of RAM can lie in several places, and each is its own entry.
    let arranged = loop {
        let (blobs, contents, file_len) = lay_out(system, starts, hypervisor.front() + reserved);
        let image_len = file_len + hypervisor.end();
        let sizes = Sizes {
            image: image_len,
            hypervisor: hypervisor.front() + hypervisor.end() + reserved,
            pristine: contents.iter().map(|(_, segments)| kept(segments)).collect(),
        };
        let placement = place_all(system, &sizes)?;
        let mut tables = PackedTables::default();
        for (index, vm) in system.vms.iter().enumerate() {
            let entry = starts[index].entry;
            add_vm(&mut tables, system, (index, vm), entry, &placement, &contents[index].1);
        }
        add_schedules(&mut tables, system);
        tables.flows = flows(system);
        let needed = tables.packed_len() as u64;
        if needed <= reserved {
            break Arranged { blobs, contents, file_len, image_len, placement, tables };
        }
        reserved = needed;
    };
    if reserved > TABLES_LIMIT {
        let message = format!(
            "the system: its description takes {} (EL2 reads {})",
            Bytes(reserved),
            Bytes(TABLES_LIMIT)
        );
        let fault = Fault::new(Code::TooMany, &system.file, 0..0, message);
        let help =
            "give the VMs RAM in fewer pieces: sizes instead of lists, more adjacent TLB sets";
        return Err(Faults(vec![fault.help(help)]));
    }
    Ok(arranged)
}

/// Places what the VMs start with in the image, from `start` on: all of it with its offsets, for
/// each VM its RAM and what is copied there, and the file's length.
fn lay_out<C: Content>(
    system: &System,
    starts: &[Start<C>],
    start: u64,
) -> (Vec<Blob<C>>, Vec<Contents>, u64) {
    let mut end = start.next_multiple_of(PAGE);
    let mut blobs: Vec<Blob<C>> = Vec::new();
    let mut contents = Vec::new();
    for (vm, start) in system.vms.iter().zip(starts) {
        let mut segments = Vec::new();
        let mut kept = 0;
        for (ipa, bytes) in &start.parts {
            let len = bytes.size();
            // Two VMs that run the same kernel need it once.
            let known = blobs.iter().find(|(_, known)| known == bytes).map(|(offset, _)| *offset);
            let offset = known.unwrap_or_else(|| {
                let offset = end;
                end = (end + len).next_multiple_of(PAGE);
                blobs.push((offset, bytes.clone()));
                offset
            });
            segments.push(PackedSegment { ipa: *ipa, offset, len, kept });
            // At a page, so that where both are whole pages a copy can go page by page.
            kept = (kept + len).next_multiple_of(PAGE);
        }
        contents.push((vm.memory.clone(), segments));
    }
    (blobs, contents, end)
}

/// Bytes of the pristine image that has these segments.
fn kept(segments: &[PackedSegment]) -> u64 {
    segments.last().map_or(0, |last| last.kept + last.len)
}

/// What a VM with this image starts with.
pub(crate) fn start<'a>(vm: &Loaded<'a>) -> Start<Cow<'a, [u8]>> {
    let parts = vm.program.parts.iter().map(|part| (part.start, Cow::Borrowed(stored(part.data))));
    let tree = (vm.device_tree_at, Cow::Owned(vm.device_tree.clone()));
    let parts = parts.filter(|(_, bytes)| !bytes.is_empty()).chain([tree]);
    Start { entry: vm.program.entry, parts: parts.collect() }
}

impl Packed<'_> {
    /// Copies the guests' bytes, so that the files that they come from can go.
    #[must_use]
    pub fn into_owned(self) -> Packed<'static> {
        let own = |(offset, blob): (u64, Cow<'_, [u8]>)| (offset, Cow::Owned(blob.into_owned()));
        Packed {
            tables_offset: self.tables_offset,
            tables: self.tables,
            blobs: self.blobs.into_iter().map(own).collect(),
            file_len: self.file_len,
            image_len: self.image_len,
            placement: self.placement,
            device_trees: self.device_trees,
            contents: self.contents,
        }
    }

    /// The whole image: `hypervisor`, which is the flat binary with the length that was given to
    /// [`pack`], then tables and blobs. Its identity in the header is the CRC-64 (XZ) of the image
    /// without an identity.
    ///
    /// # Panics
    ///
    /// If `hypervisor` is longer than was stated, up to a page.
    #[must_use]
    pub fn image(&self, hypervisor: &[u8]) -> Vec<u8> {
        assert!(hypervisor.len() as u64 <= self.tables_offset, "the hypervisor has grown");
        let mut image = vec![0; self.file_len as usize];
        let tables = [(self.tables_offset, self.tables.as_slice())];
        let blobs = self.blobs.iter().map(|(offset, bytes)| (*offset, bytes.as_ref()));
        for (offset, bytes) in [(0, hypervisor)].into_iter().chain(tables).chain(blobs) {
            let offset = offset as usize;
            image[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        let mut id = crc64fast::Digest::new();
        id.write(&image);
        weir_abi::name_image(&mut image[self.tables_offset as usize..], id.sum64());
        image
    }

    /// CRC-32C (iSCSI) over VM `vm`'s RAM as it is when the VM starts, piece after piece.
    ///
    /// # Panics
    ///
    /// When there is no such VM.
    #[must_use]
    pub fn pristine_crc32c(&self, vm: usize) -> u32 {
        let (memory, segments) = &self.contents[vm];
        let mut crc = 0;
        let mut segments: Vec<_> = segments.iter().collect();
        segments.sort_by_key(|segment| segment.ipa);
        for piece in memory {
            let mut from = piece.base.0;
            let inside =
                |segment: &&&PackedSegment| (piece.base.0..piece.end()).contains(&segment.ipa);
            for segment in segments.iter().filter(inside) {
                crc = with_zeros(crc, segment.ipa - from);
                let blob = self.blobs.iter().find(|(offset, _)| *offset == segment.offset);
                let bytes = blob.map_or(&[][..], |(_, bytes)| bytes.as_ref());
                crc = crc32c_append(crc, bytes);
                from = segment.ipa + bytes.len() as u64;
            }
            crc = with_zeros(crc, piece.end() - from);
        }
        crc
    }
}

/// Returns a check sum with so many zero bytes behind what it is of, by powers of two.
fn with_zeros(mut crc: u32, mut len: u64) -> u32 {
    let (mut zeros, mut count) = (crc32c(&[0]), 1);
    while len > 0 {
        if !len.is_multiple_of(2) {
            crc = crc32c_combine(crc, zeros, count);
        }
        zeros = crc32c_combine(zeros, zeros, count);
        count *= 2;
        len /= 2;
    }
    crc
}
