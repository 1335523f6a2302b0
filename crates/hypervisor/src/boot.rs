//! From the first line of Rust to the first guest.

use crate::{
    arch::{
        gic,
        memory::{self, Stage1},
        psci::{self, StartError},
        timer, wait_for_interrupt,
    },
    console::{self, Text, Wire},
    cpu,
    platform::{CORES, LOAD_ADDRESS, RAM_BASE, UART_INTID},
    vm::{self, life},
};
use dtoolkit::fdt::Fdt;
use spin::Once;
use weir_config::packed::{MAX_CORES, System};
use weir_layout::table::Builder;
use weir_trace::wire::What;
use weir_vboard::smccc::{ARCH_WORKAROUND_2, Mitigations};

/// The packed system; set by the boot core before it starts the others.
static SYSTEM: Once<System<'static>> = Once::new();

/// On the boot core, at its high address, with the MMU on. `device_tree` and `image` are physical addresses.
pub extern "C" fn boot_main(device_tree: u64, image: u64) -> ! {
    // SAFETY: the boot core is core 0, and this is the first thing it does.
    let core = unsafe { cpu::claim(0) };
    timer::start();
    // SAFETY: called once, here, and no other core runs.
    let Ok(mut stage1) = (unsafe { Stage1::begin(image) }) else {
        // Without its map EL2 has no UART to say so on.
        loop {
            wait_for_interrupt();
        }
    };
    if image != LOAD_ADDRESS {
        console::refuse(&[
            "the image was loaded at 0x",
            Text::number(image, 16).as_str(),
            ", but built for 0x",
            Text::number(LOAD_ADDRESS, 16).as_str(),
        ]);
    }
    // SAFETY: RAM behind the hypervisor, part of the image; nobody writes to it.
    let packed = unsafe { stage1.read_only(0, image + memory::image_len(), 0x1_0000) };
    let Ok(packed) = packed else { console::refuse(&["no room to map the packed system"]) };
    let system = match System::parse(packed, cfg!(feature = "gicv2")) {
        Ok(system) => SYSTEM.call_once(|| system),
        Err(damage) => console::refuse(&["refuses its image: ", damage.message()]),
    };
    check_memory(&mut stage1, device_tree, system);
    if !gic::present() {
        console::refuse(&[
            "built for another interrupt controller than this machine's: give weir --platform, or QEMU another -M virt,gic-version=",
        ]);
    }

    console::init(system.header.console_core as usize);
    gic::init();
    // SAFETY: called once, here, and no other core runs.
    let (mut tables, mut base) = unsafe { memory::stage2_tables() };
    for view in (0..system.vms()).filter_map(|index| system.vm(index)) {
        let Some((used, root)) = build_stage2(tables, base, &view) else {
            console::refuse(&[
                "VM ",
                str::from_utf8(view.name()).unwrap_or("?"),
                ": its memory does not fit the tables of stage 2; give it fewer pieces",
            ]);
        };
        vm::init(view, root);
        tables = &mut tables[used..];
        base += used as u64 * weir_layout::table::PAGE;
    }
    let needed = (system.header.cores as usize).min(MAX_CORES);
    for (index, &mpidr) in CORES.iter().enumerate().take(needed).skip(1) {
        match psci::cpu_on(mpidr, memory::secondary_entry(), index as u64) {
            Ok(()) => {}
            Err(StartError::Absent) => console::refuse(&[
                "this system needs ",
                Text::number(needed as u64, 10).as_str(),
                " cores, and the machine has ",
                Text::number(index as u64, 10).as_str(),
                ": give QEMU -smp ",
                Text::number(needed as u64, 10).as_str(),
            ]),
            Err(StartError::Refused(error)) => console::refuse(&[
                "the firmware could not start core ",
                Text::number(index as u64, 10).as_str(),
                ", PSCI error -",
                Text::number(error.unsigned_abs().into(), 10).as_str(),
            ]),
        }
    }
    vm::system_event(What::SystemStart);
    start_core(core)
}

/// On each other core.
pub extern "C" fn secondary_main(index: u64) -> ! {
    // SAFETY: PSCI starts each core once, with the number that the boot core gave: below MAX_CORES, and not 0.
    let core = unsafe { cpu::claim(index as usize) };
    start_core(core)
}

fn start_core(core: &'static mut cpu::Core) -> ! {
    gic::init_core(core.index);
    life::prepare_core();
    core.seat = vm::seat(core.index);
    core.mitigations = Mitigations::from_firmware(psci::arch_features);
    if core.mitigations.needs_workaround_2() {
        psci::forward(ARCH_WORKAROUND_2, 1);
    }
    let header = SYSTEM.get().map(|system| system.header);
    core.ticks.interval_us = header.map_or(0, |header| header.slice_us);
    if core.index == console::core() {
        // SAFETY: on the console core, once; `Stage1::begin` was before this core started.
        core.wire = Some(unsafe { Wire::take() });
        let line = gic::Line::new(UART_INTID as u32, core.index);
        line.route(core.index);
        line.set_enabled(true);
        let heartbeat_ms = header.map_or(0, |header| header.heartbeat_ms);
        core.ticks.report_ns = u64::from(heartbeat_ms) * 1_000_000;
        if core.ticks.interval_us == 0 {
            core.ticks.interval_us = heartbeat_ms.saturating_mul(1000);
        }
    }
    if core.ticks.interval_us > 0 {
        timer::fire_in(core.ticks.interval_us);
    }
    life::run(core)
}

/// Builds the stage 2 of a VM in `tables`, at physical address `base`: how many were used, and the root's address.
fn build_stage2(
    tables: &mut [weir_layout::table::Table],
    base: u64,
    view: &weir_config::packed::VmView,
) -> Option<(usize, u64)> {
    let mut builder = Builder::new(tables, 1, base).ok()?;
    for region in view.regions {
        let attributes = memory::stage2_attributes(region.kind);
        builder.map(region.ipa, region.pa, region.len, attributes).ok()?;
    }
    #[cfg(feature = "gicv2")]
    {
        use weir_layout::table::stage2;
        builder.map(view.vm.gic_cpu, crate::platform::GICV, 0x2000, stage2::DEVICE).ok()?;
    }
    Some((builder.used(), base))
}

/// Compares the RAM that the machine says it has with what the system needs. A machine that hands over no device tree isn't asked.
fn check_memory(stage1: &mut Stage1, device_tree: u64, system: &System) {
    let end = ram_end(stage1, device_tree);
    // The device tree lies in RAM that may be a VM's.
    // SAFETY: `ram_end` has given nothing of it out but a number.
    unsafe {
        stage1.forget(1);
        stage1.forget(2);
    }
    let Some(end) = end else { return };
    if end < system.header.memory_end {
        let mib =
            |address: u64| Text::number(address.saturating_sub(RAM_BASE).div_ceil(1 << 20), 10);
        console::refuse(&[
            "this system needs ",
            mib(system.header.memory_end).as_str(),
            " MiB of RAM, and the machine has ",
            mib(end).as_str(),
            ": give QEMU -m ",
            mib(system.header.memory_end).as_str(),
        ]);
    }
}

/// One above the last byte of the RAM at [`RAM_BASE`], from the machine's device tree.
fn ram_end(stage1: &mut Stage1, device_tree: u64) -> Option<u64> {
    const HEADER: u64 = 40;
    if device_tree == 0 || !device_tree.is_multiple_of(8) || device_tree < RAM_BASE {
        return None;
    }
    // SAFETY: the boot protocol has the device tree in RAM, and nobody writes to it now. It is mapped until `check_memory` takes it
    // out, before any VM starts.
    let header = unsafe { stage1.read_only(1, device_tree, HEADER) }.ok()?;
    let magic = u32::from_be_bytes(header.get(..4)?.try_into().ok()?);
    let total = u32::from_be_bytes(header.get(4..8)?.try_into().ok()?);
    if magic != 0xd00d_feed {
        return None;
    }
    // SAFETY: as above.
    let bytes = unsafe { stage1.read_only(2, device_tree, total.into()) }.ok()?;
    // Unchecked, as checking it all costs more than the rest of the boot: it comes from the firmware, and no guest can have touched it.
    let tree = Fdt::new_unchecked(bytes);
    let memory = tree.memory().ok()?;
    memory.reg().ok()??.find_map(|reg| {
        let base = reg.address::<u64>().ok()?;
        let size = reg.size::<u64>().ok()?;
        (base <= RAM_BASE).then(|| base.saturating_add(size))
    })
}

/// An exception of EL2 itself. Nothing a guest does leads here; a mistake of ours or a broken machine does. This core stops, the
/// others go on.
pub extern "C" fn own_exception(esr: u64, elr: u64, far: u64) -> ! {
    let texts = [esr, elr, far].map(|value| Text::number(value, 16));
    console::last_words(&[
        "exception at EL2: ESR 0x",
        texts[0].as_str(),
        ", ELR 0x",
        texts[1].as_str(),
        ", FAR 0x",
        texts[2].as_str(),
    ])
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let (file, line) = info.location().map_or(("?", 0), |place| (place.file(), place.line()));
    console::last_words(&["panic at ", file, ":", Text::number(line.into(), 10).as_str()])
}
