//! A VM by itself: its RAM, its virtual board, what it expects.

use super::Checker;
use crate::coloring::tlb::TlbColors;
use crate::diagnostics::Code;
use crate::image::{self, in_ram};
use crate::keys::system as raw;
use crate::pack;
use crate::pci::AssignedFunction;
use crate::platform::Platform;
use crate::ranges::{overlap, span};
use crate::table::At;
use crate::text::hex;
use crate::vm::{
    AssignedDevice, CPU_INTERFACE_LEN, DEFAULT_RAM, DISTRIBUTOR_LEN, REDISTRIBUTOR_LEN, RamPiece,
    Spans, VirtualBoard, Vm,
};
use std::ops::Range;
use weir_abi::{ADDRESS_LIMIT, ECAM_LEN, KEPT_COUNTERS, PAGE};
use weir_units::{Bytes, IntId, Ipa};

/// Address of the PCI configuration space, if the file does not set it.
const DEFAULT_ECAM: u64 = 0x40_1000_0000;

/// Something at an address of a VM.
struct Area {
    what: String,
    range: Range<u64>,
    span: Range<usize>,
}

impl Checker<'_> {
    /// Checks everything but what VMs share.
    pub(super) fn vm(
        &mut self,
        raw: &At<raw::Vm>,
        read: Vm,
        (devices, functions): (Vec<At<AssignedDevice>>, Vec<At<AssignedFunction>>),
        tlb: Option<&TlbColors>,
    ) -> Vm {
        let before = self.faults.0.len();
        let memory = self.memory(raw);
        let memory = match tlb {
            Some(tlb) => self.spread(raw, memory, tlb),
            None => memory,
        };
        let (board, mut areas) = self.board(raw, &memory);
        areas.extend(devices.iter().flat_map(|taken| {
            taken.regions.iter().map(|(start, len)| Area {
                what: format!("the device {}", taken.path),
                range: start.0..start.0 + len.0,
                span: taken.span.clone(),
            })
        }));
        areas.extend(self.pci_areas(raw, &board, &functions));
        self.overlaps(raw, &areas);
        let sound = self.faults.0.len() == before && !memory.is_empty();
        let memory_span = raw.memory_span(&raw.span);
        let mut spans = Spans {
            memory: memory_span.clone(),
            image: raw.image.as_ref().map_or(raw.span.clone(), |image| image.span.clone()),
            initrd: raw.span.clone(),
            device_tree: raw
                .board
                .device_tree
                .as_ref()
                .map_or(memory_span, |tree| tree.span.clone()),
            tlb_colors: tlb.map(|tlb| tlb.span.clone()),
        };
        let lines = devices.iter().map(|taken| {
            let intids = taken.irqs.iter().map(|irq| irq.intid).collect();
            (taken.path.clone(), &taken.span, intids)
        });
        let pci_lines =
            functions.iter().map(|taken| (taken.name(), &taken.span, vec![taken.intid]));
        let lines: Vec<(_, _, Vec<IntId>)> = lines.chain(pci_lines).collect();
        for (name, place, intids) in lines {
            if intids.contains(&board.uart_intid) {
                let span = raw.board.uart_intid.as_ref().map_or(place, |intid| &intid.span);
                let message = format!(
                    "{raw}: its PL011 and {name} have the same interrupt {}",
                    board.uart_intid
                );
                let fault = self.fault(Code::InterruptTwice, span, message).label("this");
                let fault = fault.and(place.clone(), "the device");
                self.faults
                    .push(fault.help("give the PL011 another one: board = { uart_intid = ... }"));
            }
        }
        let devices: Vec<_> = devices.into_iter().map(|taken| taken.value).collect();
        let functions = functions.into_iter().map(|taken| taken.value).collect();
        let expect = self.expect(raw);
        let pmu = self.pmu(raw);
        let image = raw
            .image
            .as_ref()
            .map(|image| self.image(&raw.to_string(), image, &memory, &mut spans));
        let (image, complete) = image.unwrap_or((read.image, None));
        let vm = Vm {
            memory,
            image,
            devices,
            functions,
            on_fault: raw.on_fault,
            on_outside: raw.on_outside,
            ticks: raw.ticks,
            focus: raw.focus,
            pmu,
            expect,
            board,
            spans,
            ..read
        };
        if let (Some(files), Some(platform), true) = (complete, &self.platform, sound) {
            let loaded = pack::load(&vm, platform, &files.image, files.initrd.as_deref());
            for problem in loaded.err().unwrap_or_default() {
                self.faults.push(vm.image_fault(self.file, problem));
            }
        }
        vm
    }

    /// How many event counters it gets; 0 when the board can't give what it wants.
    fn pmu(&mut self, raw: &At<raw::Vm>) -> u8 {
        let (Some(request), Some(platform)) = (&raw.pmu, &self.platform) else { return 0 };
        let pmu = platform.counters.pmu.as_ref();
        let left = pmu.map_or(0, |pmu| pmu.counters.saturating_sub(KEPT_COUNTERS));
        if request.value <= left.into() {
            return request.value as u8;
        }
        let message = format!(
            "{raw}: `pmu` is {}, but {platform} has {left} event counters per core for VMs (weir \
             uses {KEPT_COUNTERS})",
            request.value
        );
        let fault = self.fault(Code::PmuCounters, &request.span, message).label("this");
        self.faults.push(fault.help(match left {
            0 => "remove `pmu`, or add `counters` to [pmu] in the platform file".to_owned(),
            _ => format!("write at most {left}"),
        }));
        0
    }

    /// The VM's RAM; empty when something is wrong with it.
    fn memory(&mut self, raw: &At<raw::Vm>) -> Vec<RamPiece> {
        let Some(memory) = &raw.memory else {
            return Vec::new();
        };
        let before = self.faults.0.len();
        let mut pieces = Vec::new();
        match &memory.value {
            raw::Memory::Size(size) => {
                let ram = raw.board.ram.clone();
                let base = ram.unwrap_or(At { value: DEFAULT_RAM, span: memory.span.clone() });
                let size = At { value: *size, span: memory.span.clone() };
                pieces.extend(self.piece(raw, &base, &size));
            }
            raw::Memory::Pieces(list) => {
                if let Some(ram) = &raw.board.ram {
                    let fault = self.fault(
                        Code::KeyConflict,
                        &ram.span,
                        format!("{raw}: `ram` and `memory` both give the address of the RAM"),
                    );
                    let fault = fault.label("this").and(memory.span.clone(), "and this");
                    self.faults.push(fault.help("leave out `ram`, or write `memory` as one size"));
                }
                if list.is_empty() {
                    let message = format!("{raw}: `memory` is empty");
                    let fault = self.fault(Code::Empty, &memory.span, message).label("empty");
                    self.faults.push(fault.help("write a size, like \"16MiB\""));
                }
                for At { value: raw::Piece { base, size }, .. } in list {
                    pieces.extend(self.piece(raw, base, size));
                }
            }
        }
        if self.faults.0.len() == before { pieces } else { Vec::new() }
    }

    /// RAM of one size is spread over the TLB sets that the VM may use; pieces with addresses must
    /// be there already.
    fn spread(
        &mut self,
        raw: &At<raw::Vm>,
        memory: Vec<RamPiece>,
        tlb: &TlbColors,
    ) -> Vec<RamPiece> {
        let Some(At { value, span }) = &raw.memory else { return memory };
        let mut spread = Vec::new();
        for piece in memory {
            let pieces = match value {
                raw::Memory::Size(_) => tlb.spread_below(piece, ADDRESS_LIMIT),
                raw::Memory::Pieces(_) => tlb.has(piece).then(|| vec![piece]),
            };
            let Some(pieces) = pieces else {
                let given = matches!(value, raw::Memory::Pieces(_));
                let (message, help) = tlb.refusal(&raw.to_string(), piece, given);
                let fault = self.fault(Code::TlbColors, span, message).label("this");
                self.faults.push(fault.and(tlb.span.clone(), "these sets").help(help));
                return Vec::new();
            };
            spread.extend(pieces);
        }
        spread
    }

    fn piece(&mut self, vm: &At<raw::Vm>, base: &At<u64>, size: &At<Bytes>) -> Option<RamPiece> {
        let name = vm.to_string();
        if size.value.0 == 0 {
            let fault = self.fault(Code::Zero, &size.span, format!("{name}: the RAM has size 0"));
            self.faults.push(fault.label("nothing").help("write a size, like \"16MiB\""));
            return None;
        }
        if !size.value.0.is_multiple_of(PAGE) {
            let up = size.value.0.checked_next_multiple_of(PAGE).map_or_else(
                || "write a size that a board has, like \"16MiB\"".to_owned(),
                |up| format!("write \"{}\"", Bytes(up)),
            );
            let message = format!("{name}: its RAM of {} is not a number of pages", size.value);
            let fault =
                self.fault(Code::Unaligned, &size.span, message).label("no multiple of 4KiB");
            self.faults.push(fault.help(up));
            return None;
        }
        self.address(vm, "RAM", base, size.value.0, PAGE)?;
        Some(RamPiece { base: Ipa(base.value), size: size.value })
    }

    /// Whether something of `len` bytes can be at `address`.
    pub(super) fn address(
        &mut self,
        vm: &At<raw::Vm>,
        what: &str,
        address: &At<u64>,
        len: u64,
        alignment: u64,
    ) -> Option<()> {
        let name = vm.to_string();
        if !address.value.is_multiple_of(alignment) {
            let message =
                format!("{name}: the address {} of the {what} is not aligned", hex(address.value));
            let fault = self.fault(Code::Unaligned, &address.span, message);
            let down = address.value - address.value % alignment;
            let fault = fault.label(format!("no multiple of {}", Bytes(alignment)));
            self.faults.push(fault.help(format!("write {}", hex(down))));
            return None;
        }
        if address.value.checked_add(len).is_none_or(|end| end > ADDRESS_LIMIT) {
            let message = format!(
                "{name}: its {what} at {} ends above {}, the highest address of stage 2 (39 bits)",
                hex(address.value),
                hex(ADDRESS_LIMIT - 1)
            );
            let fault = self.fault(Code::AddressTooHigh, &address.span, message);
            let fault = fault.label(format!("{} from here", Bytes(len)));
            let highest = (ADDRESS_LIMIT - len.min(ADDRESS_LIMIT)) / alignment * alignment;
            self.faults.push(fault.help(format!("write {} or less", hex(highest))));
            return None;
        }
        Some(())
    }

    /// The virtual board, and what it has at which address.
    fn board(&mut self, raw: &At<raw::Vm>, memory: &[RamPiece]) -> (VirtualBoard, Vec<Area>) {
        let gic_v2 = self.platform.as_ref().is_some_and(Platform::is_gic_v2);
        let known = self.platform.is_some();
        let (wrong, other, version) = if gic_v2 {
            (&raw.board.redistributors, "cpu_interface", 2)
        } else {
            (&raw.board.cpu_interface, "redistributors", 3)
        };
        if let (Some(wrong), true) = (wrong, known) {
            let key = if gic_v2 { "redistributors" } else { "cpu_interface" };
            let message = format!("{raw}: `board.{key}` is no part of its GICv{version}");
            let fault =
                self.fault(Code::GicVersion, &wrong.span, message).label("not on this platform");
            self.faults.push(fault.help(format!("write `{other}` in place of `{key}`")));
        }
        let vcpus = raw.cpus.as_ref().map_or(1, |cpus| cpus.value.len().max(1) as u64);
        let header = raw.span.clone();
        let at = |address: &Option<At<u64>>, default: u64| {
            address.clone().unwrap_or(At { value: default, span: header.clone() })
        };
        let distributor = at(&raw.board.distributor, 0x0800_0000);
        let (gic_cpu, gic_cpu_what, gic_cpu_len, gic_cpu_alignment) = if gic_v2 {
            (
                at(&raw.board.cpu_interface, 0x0801_0000),
                "GIC CPU interface",
                CPU_INTERFACE_LEN,
                PAGE,
            )
        } else {
            let len = REDISTRIBUTOR_LEN * vcpus;
            (at(&raw.board.redistributors, 0x080a_0000), "GIC redistributors", len, 0x1_0000)
        };
        let uart = at(&raw.board.uart, 0x0900_0000);
        let mut areas = Vec::new();
        let pieces = memory.iter().enumerate().map(|(index, piece)| {
            let span = match raw.memory.as_ref().map(|memory| &memory.value) {
                Some(raw::Memory::Pieces(list)) => list.get(index).map(|piece| piece.span.clone()),
                _ => raw.board.ram.as_ref().map(|ram| ram.span.clone()),
            };
            let span = span.or(raw.memory.as_ref().map(|memory| memory.span.clone()));
            Area {
                what: "RAM".to_owned(),
                range: piece.base.0..piece.end(),
                span: span.unwrap_or(0..0),
            }
        });
        areas.extend(pieces);
        // The distributor's 64 KiB are one translation granule of the largest kind.
        let virtual_devices = [
            (
                "GIC distributor",
                &distributor,
                DISTRIBUTOR_LEN,
                if gic_v2 { PAGE } else { 0x1_0000 },
            ),
            (gic_cpu_what, &gic_cpu, gic_cpu_len, gic_cpu_alignment),
            ("PL011", &uart, PAGE, PAGE),
        ];
        for (what, address, len, alignment) in virtual_devices {
            if self.address(raw, what, address, len, alignment).is_some() {
                let range = address.value..address.value + len;
                areas.push(Area { what: format!("the {what}"), range, span: address.span.clone() });
            }
        }
        let device_tree = self.device_tree(raw, memory);
        let uart_intid =
            raw.board.uart_intid.as_ref().map_or(IntId(33), |intid| IntId(intid.value as u32));
        let board = VirtualBoard {
            distributor: Ipa(distributor.value),
            gic_cpu: Ipa(gic_cpu.value),
            uart: Ipa(uart.value),
            uart_intid,
            ecam: Ipa(raw.board.ecam.as_ref().map_or(DEFAULT_ECAM, |ecam| ecam.value)),
            device_tree,
        };
        (board, areas)
    }

    fn device_tree(&mut self, raw: &At<raw::Vm>, memory: &[RamPiece]) -> Ipa {
        let Some(tree) = &raw.board.device_tree else {
            return memory.first().map_or(Ipa(0), |piece| piece.base);
        };
        if self.address(raw, "device tree", tree, 8, 8).is_some()
            && !memory.is_empty()
            && !in_ram(&(tree.value..tree.value + 8), memory)
        {
            let message =
                format!("{raw}: its device tree at {} is not in its RAM", hex(tree.value));
            let fault = self.fault(Code::OutsideRam, &tree.span, message).label("this");
            let help = format!("write an address in its RAM, {}", image::ram(memory));
            self.faults.push(fault.help(help));
        }
        Ipa(tree.value)
    }

    /// Where a VM has its PCI functions.
    fn pci_areas(
        &mut self,
        raw: &At<raw::Vm>,
        board: &VirtualBoard,
        functions: &[At<AssignedFunction>],
    ) -> Vec<Area> {
        let Some(first) = functions.first() else {
            return Vec::new();
        };
        let span = raw.board.ecam.as_ref().map_or(&first.span, |ecam| &ecam.span).clone();
        let ecam = At { value: board.ecam.0, span: span.clone() };
        let mut areas = Vec::new();
        // As large as it is: an address in it is this one with the function's bits set.
        if self.address(raw, "PCI configuration space", &ecam, ECAM_LEN, ECAM_LEN).is_some() {
            let range = ecam.value..ecam.value + ECAM_LEN;
            areas.push(Area { what: "the PCI configuration space".to_owned(), range, span });
        }
        areas.extend(functions.iter().map(|taken| {
            let AssignedFunction { bars, bars_len, .. } = taken.value;
            Area {
                what: format!("the base addresses of {}", taken.name()),
                range: bars.0..bars.0 + bars_len.0,
                span: taken.span.clone(),
            }
        }));
        areas
    }

    fn overlaps(&mut self, raw: &At<raw::Vm>, areas: &[Area]) {
        for (index, second) in areas.iter().enumerate() {
            for first in &areas[..index] {
                if !overlap(&first.range, &second.range) {
                    continue;
                }
                let message = format!(
                    "{raw}: {} ({}) and {} ({}) overlap",
                    first.what,
                    span(&first.range),
                    second.what,
                    span(&second.range)
                );
                let fault =
                    self.fault(Code::Overlap, &second.span, message).label(second.what.clone());
                let fault = fault.and(first.span.clone(), first.what.clone());
                self.faults
                    .push(fault.help("move one of them: `memory`, or an address of `board`"));
            }
        }
    }

    fn expect(&mut self, raw: &At<raw::Vm>) -> Vec<String> {
        let Some(expect) = &raw.expect else {
            return Vec::new();
        };
        let help = "write a text that a line of the console contains, or leave `expect` out";
        if expect.value.is_empty() {
            let fault = self.fault(Code::Empty, &expect.span, format!("{raw}: `expect` is empty"));
            self.faults.push(fault.label("empty").help(help));
        }
        for text in &expect.value {
            let wrong = if text.value.trim().is_empty() {
                Some("is an empty text, which every line contains")
            } else {
                text.value
                    .contains(['\n', '\r', '\0'])
                    .then_some("is a text of several lines, which no line contains")
            };
            if let Some(wrong) = wrong {
                let message = format!("{raw}: one of `expect` {wrong}");
                let fault = self.fault(Code::Empty, &text.span, message).label("this").help(help);
                self.faults.push(fault);
            }
        }
        expect.value.iter().map(|text| text.value.clone()).collect()
    }
}
