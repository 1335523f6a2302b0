//! Reads a board file into a [`Platform`], and reports what is wrong with it.

use super::description::Counters;
use super::description::{
    DmaEngine, Emulated, EngineQos, Machine, Platform, PlatformGic, RamRange, Uart, UartKind,
};
use crate::board::Board;
use crate::classes::places::{self, Places};
use crate::diagnostics::Code;
use crate::document::{self, Reader};
use crate::fault::{Fault, Faults, File};
use crate::keys::board;
use crate::keys::board::CounterPageSource;
use crate::measured::{OverheadValues, Saturation, Sharing};
use crate::pci::{Pci, Smmu};
use crate::table::At;
use std::{ops::Range, sync::Arc};
use weir_abi::{ADDRESS_LIMIT, MAX_CORES, PAGE};
use weir_units::{Bytes, Pa};

pub(super) fn parse(
    file: &File,
    device_tree: impl FnOnce(&str) -> Result<Vec<u8>, String>,
) -> Result<Platform, Faults> {
    let mut faults = Faults::default();
    let mut found = Faults::default();
    let raw = document::parse::<board::Platform>(file, &mut faults);
    let mut reader = Reader { file, faults: &mut found };
    let platform = raw.and_then(|raw| Platform::of(raw, device_tree, &mut reader));
    // What follows from a value that can't be right anyway is no fault of its own.
    let wrong = |fault: &Fault| {
        let section = section(file.inner(), fault.span().start);
        places::FOLLOWS.contains(&fault.code)
            && faults.0.iter().any(|cause| section.contains(&cause.span().start))
    };
    found.0.retain(|fault| !wrong(fault));
    faults.0.append(&mut found.0);
    match platform {
        Some(platform) => faults.into_result(platform),
        // What is not there was reported as missing.
        None => Err(Faults(faults.sorted())),
    }
}

/// The table that the byte at `place` is in: from its header to the next one.
fn section(text: &str, place: usize) -> Range<usize> {
    let header = |rest: &str| rest.find("\n[").map(|line| line + 1);
    let (before, behind) = text.split_at_checked(place).unwrap_or((text, ""));
    let start = if behind.starts_with('[') { Some(place) } else { None };
    let start = start.or_else(|| before.rfind("\n[").map(|line| line + 1)).unwrap_or(0);
    // A header has no line break in it.
    let end = header(text.get(start..).unwrap_or("")).map_or(text.len(), |end| start + end);
    start..end
}

impl Platform {
    /// The board that the keys describe; `None` if there is a fault without which it is none.
    fn of(
        raw: board::Platform,
        read: impl FnOnce(&str) -> Result<Vec<u8>, String>,
        reader: &mut Reader<'_>,
    ) -> Option<Self> {
        let memory = memory(&raw.memory, reader);
        start(&raw, reader);
        let cores = raw.core.len();
        if cores == 0 || cores > MAX_CORES {
            let span = raw.core.get(MAX_CORES).map_or(0..0, |core| core.span.clone());
            let help = "describe 1 to 8 cores with [[core]]";
            let message = format!("[[core]]: {cores} cores (weir supports 1 to {MAX_CORES})");
            reader.fault(Code::PlatformBoard, &span, message, help);
        }
        for (place, core) in raw.core.iter().enumerate() {
            let mpidr = core.value.mpidr;
            if raw.core.iter().take(place).any(|other| other.value.mpidr == mpidr) {
                let message = format!("[[core]]: two cores have mpidr = {mpidr:#x}");
                let help = "give each core the affinity of its own MPIDR_EL1";
                reader.fault(Code::PlatformBoard, &core.span, message, help);
            }
        }
        let gic = gic(&raw.gic, reader);
        let uart = registers(&raw.uart.base, ("[uart]", "base"), reader);
        let dma_engine = dma_engine(&raw, reader);
        let device_tree = device_tree(raw.device_tree.as_ref(), read, reader);
        let places = Places::of(&raw, reader);
        let overheads = OverheadValues::of(&raw.overheads, reader);
        let saturation = Saturation::of(raw.saturation.as_ref(), reader);
        let sharing = raw.sharing.and_then(|sharing| Sharing::of(&sharing, reader));
        let board::Emulated { overheads: of_qemu, sharing: shared_in_qemu } = raw.emulated;
        let emulated = Emulated {
            overheads: OverheadValues::of(&of_qemu, reader),
            sharing: shared_in_qemu.and_then(|sharing| Sharing::of(&sharing, reader)),
        };
        if let Some(CounterPageSource { poll, poll_overhead, .. }) = &raw.counter_page
            && poll_overhead >= &poll.value
        {
            let message = format!(
                "[counter_page]: a poll of {poll_overhead} each {} leaves a vCPU no time",
                poll.value
            );
            let help = format!("write more than \"{poll_overhead}\", the `poll_overhead`");
            reader.fault(Code::BudgetPoll, &poll.span, message, help);
        }
        let pci = raw.pci.and_then(|pci| Pci::of(&pci, reader));
        let smmu = raw.smmu.and_then(|smmu| Smmu::of(&smmu, pci.as_ref(), reader));
        let memory = memory?;
        let load_address = raw.load_address.value;
        let inside = (memory.base.0..memory.base.0 + memory.size.0).contains(&load_address);
        if !inside || !load_address.is_multiple_of(PAGE) {
            let message =
                format!("the platform: `load_address` is no page of [memory] ({load_address:#x})");
            let help = "use an address in [memory], a multiple of 0x1000";
            reader.fault(Code::PlatformBoard, &raw.load_address.span, message, help);
        }
        let (device_tree, board) = device_tree?;
        Some(Self {
            name: raw.name,
            description: raw.description,
            load_address: Pa(load_address),
            memory,
            cores: raw.core.into_iter().map(|core| core.value).collect(),
            gic: gic?,
            uart: Uart {
                kind: raw.uart.kind.unwrap_or(UartKind::Pl011),
                base: uart?,
                intid: raw.uart.intid,
            },
            pci,
            smmu,
            spin_table: raw.spin_table.as_ref().map(|table| Pa(table.value.base)),
            starts_in_el3: raw.el3.is_some(),
            stays_on: raw
                .spin_table
                .is_some_and(|table| table.value.power == board::PowerKind::Nothing),
            psci_conduit: raw.psci.map(|psci| psci.conduit.name().to_owned()),
            qemu: raw.qemu,
            emulated,
            verified: raw.verified,
            devices: raw.device,
            allow: raw.allow.into_iter().map(|device| device.compatible).collect(),
            deny: raw.deny,
            device_tree,
            board: Arc::new(board),
            places,
            overheads,
            dma_engine,
            saturation,
            sharing,
            interference: raw.interference,
            counters: Counters { pmu: raw.pmu, counter_page: raw.counter_page },
            machine: Machine::Board,
            text: Arc::from(reader.file.inner().as_str()),
        })
    }
}

fn memory(raw: &At<board::Memory>, reader: &mut Reader<'_>) -> Option<RamRange> {
    let (base, size) = (raw.base, raw.size);
    if !base.0.is_multiple_of(PAGE) || !size.0.is_multiple_of(PAGE) || size.0 == 0 {
        let help = "use multiples of 4KiB";
        reader.fault(Code::Unaligned, &raw.span, "[memory]: not whole pages", help);
    }
    if base.0.checked_add(size.0).is_none_or(|end| end > ADDRESS_LIMIT) {
        let help = "shorten or move it";
        let message = "[memory]: ends above 39 bits, the addresses of stage 2";
        reader.fault(Code::AddressTooHigh, &raw.span, message, help);
        return None;
    }
    Some(RamRange { base, size })
}

/// Checks what starts the cores: PSCI, or a spin table outside of RAM.
fn start(raw: &board::Platform, reader: &mut Reader<'_>) {
    let help = "describe the start of the cores by [psci] or by [spin_table]";
    if let (Some(el3), None) = (&raw.el3, &raw.spin_table) {
        let message = "[el3]: without firmware only a spin table starts the other cores";
        reader.fault(Code::PlatformStart, &el3.span, message, "add [spin_table]");
        return;
    }
    if let (Some(el3), 2) = (&raw.el3, raw.gic.version) {
        let message = "[el3]: weir sets up a GICv3 only, and this board has a GICv2";
        let help = "use firmware that sets up EL3, and remove [el3]";
        reader.fault(Code::PlatformStart, &el3.span, message, help);
    }
    match (&raw.psci, &raw.spin_table) {
        (None, None) => {
            let message = "the platform: neither PSCI nor a spin table starts the cores";
            reader.fault(Code::PlatformStart, &(0..0), message, help);
        }
        (Some(_), Some(table)) => {
            let message = "[spin_table]: PSCI starts the cores already";
            reader.fault(Code::PlatformStart, &table.span, message, help);
        }
        (None, Some(At { value: table, span })) => {
            match (table.power, &table.watchdog) {
                (_, Some(watchdog)) => {
                    registers(watchdog, ("[spin_table]", "watchdog"), reader);
                }
                (board::PowerKind::Bcm2711, None) => {
                    let message =
                        "[spin_table]: `watchdog` is missing: nothing turns the board off";
                    let help = "add `watchdog`, the registers of the BCM2711's";
                    reader.fault(Code::PlatformStart, span, message, help);
                }
                (board::PowerKind::Gem5 | board::PowerKind::Nothing, None) => {}
            }
            let page = table.base & !(PAGE - 1);
            let more = raw.memory.more.iter().map(|more| (more.base, more.size));
            let mut ram = [(raw.memory.base, raw.memory.size)].into_iter().chain(more);
            let end = table.base.saturating_add(8 * MAX_CORES as u64);
            // Without firmware the upper half of the page has what stays of EL3.
            let room = if raw.el3.is_some() { PAGE / 2 } else { PAGE };
            if !table.base.is_multiple_of(8)
                || end > page + room
                || page >= ADDRESS_LIMIT
                || ram.any(|(base, size)| page < base.0.saturating_add(size.0) && end > base.0)
            {
                let (message, help) = if raw.el3.is_some() {
                    (
                        "[spin_table]: not in the lower half of a page outside of [memory]",
                        "place it at the start of a page of SRAM",
                    )
                } else {
                    (
                        "[spin_table]: not in one page outside of [memory]",
                        "begin [memory] behind the pages that the firmware keeps",
                    )
                };
                reader.fault(Code::PlatformStart, span, message, help);
            }
        }
        (Some(_), None) => {}
    }
}

/// The address of a device's registers.
fn registers(address: &At<u64>, (table, key): (&str, &str), reader: &mut Reader<'_>) -> Option<Pa> {
    if !address.value.is_multiple_of(PAGE) || address.value >= ADDRESS_LIMIT {
        let message =
            format!("{table}: `{key}` is at no page below 39 bits ({:#x})", address.value);
        let help = "use a multiple of 0x1000 below 0x100_0000_0000";
        reader.fault(Code::Unaligned, &address.span, message, help);
        return None;
    }
    Some(Pa(address.value))
}

/// The DMA engine, if it is apart from the rest of the board.
fn dma_engine(raw: &board::Platform, reader: &mut Reader<'_>) -> Option<DmaEngine> {
    let engine = &raw.dma_engine.as_ref()?.value;
    let base = registers(&engine.base, ("[dma_engine]", "base"), reader)?;
    let more = raw.memory.more.iter().map(|more| (more.base, more.size));
    let mut ram = [(raw.memory.base, raw.memory.size)].into_iter().chain(more);
    let gic = &raw.gic;
    let parts = [&gic.redistributors, &gic.cpu_interface, &gic.hyp, &gic.virtual_cpu];
    let parts = parts.into_iter().flatten().chain([&gic.distributor, &raw.uart.base]);
    let mut taken = parts.map(|part| part.value);
    if ram.any(|(start, size)| base.0 >= start.0 && base.0 - start.0 < size.0)
        || taken.any(|part| part == base.0)
    {
        let message = format!("[dma_engine]: `base` is taken ({base})");
        let help = "write the address of the channel's registers, as in the board's manual";
        reader.fault(Code::PlatformEngine, &engine.base.span, message, help);
    }
    let intid = engine.intid.value;
    let pmu = raw.pmu.iter().flat_map(|pmu| &pmu.intids);
    let intx = raw.pci.iter().flat_map(|pci| &pci.intx);
    let event = raw.smmu.iter().map(|smmu| &smmu.event_intid);
    if pmu.chain(intx).chain(event).chain([&raw.uart.intid]).any(|taken| *taken == intid) {
        let message = format!("[dma_engine]: `intid` is that of another device ({intid})");
        let help = "write the interrupt of the channel, as in the board's manual";
        reader.fault(Code::PlatformEngine, &engine.intid.span, message, help);
    }
    if let Some(At { value: beats, span }) = &engine.burst
        && !beats.is_power_of_two()
    {
        let message = format!("[dma_engine]: `burst` is not one of the engine's ({beats})");
        reader.fault(Code::PlatformEngine, span, message, "write 1, 2, 4, 8 or 16");
    }
    // A transaction has as many bytes less as it has beats less.
    let beats = engine.burst.as_ref().map_or(16, |burst| burst.value);
    let shorter = |qos: &EngineQos| EngineQos {
        block: Bytes((qos.block.0 * beats / 16).max(1)),
        ..qos.clone()
    };
    Some(DmaEngine {
        name: engine.name.clone(),
        kind: engine.kind,
        base,
        intid,
        is_coherent: engine.coherent,
        qos: engine.qos.as_ref().map(shorter),
    })
}

fn gic(At { value: raw, span }: &At<board::Gic>, reader: &mut Reader<'_>) -> Option<PlatformGic> {
    let distributor = registers(&raw.distributor, ("[gic]", "distributor"), reader)?;
    match raw {
        board::Gic { version: 3, redistributors: Some(redistributors), .. } => {
            let redistributors = registers(redistributors, ("[gic]", "redistributors"), reader)?;
            Some(PlatformGic::V3 { distributor, redistributors })
        }
        board::Gic {
            version: 2,
            cpu_interface: Some(cpu_interface),
            hyp: Some(hyp),
            virtual_cpu: Some(virtual_cpu),
            ..
        } => Some(PlatformGic::V2 {
            distributor,
            cpu_interface: registers(cpu_interface, ("[gic]", "cpu_interface"), reader)?,
            hyp: registers(hyp, ("[gic]", "hyp"), reader)?,
            virtual_cpu: registers(virtual_cpu, ("[gic]", "virtual_cpu"), reader)?,
        }),
        _ => {
            let help = "version 2 has `cpu_interface`, `hyp` and `virtual_cpu`, version 3 \
                        `redistributors`";
            reader.fault(Code::MissingKey, span, "[gic]: an address is missing", help);
            None
        }
    }
}

fn device_tree(
    path: Option<&At<String>>,
    read: impl FnOnce(&str) -> Result<Vec<u8>, String>,
    reader: &mut Reader<'_>,
) -> Option<(Vec<u8>, Board)> {
    let Some(At { value: path, span }) = path else {
        return Some((Vec::new(), Board::unknown()));
    };
    let (code, message, help) = match read(path).map(|bytes| (Board::read(&bytes), bytes)) {
        Ok((Ok(board), bytes)) => return Some((bytes, board)),
        Ok((Err(message), _)) => (
            Code::PlatformBoard,
            format!("the platform: device_tree = {path:?} is damaged: {message}"),
            "dump the board's with `dumpdtb` or compile one with `dtc`",
        ),
        Err(message) => {
            let message = format!("the platform: `device_tree`: {message}");
            (Code::PlatformBoard, message, "give the path of a flattened device tree")
        }
    };
    reader.fault(code, span, message, help);
    None
}
