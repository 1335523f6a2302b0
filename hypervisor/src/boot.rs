//! The boot: from the first Rust function to the first guest.

use crate::{
    arch::{
        crc32, gic,
        memory::{self, Stage1},
        sysreg, timer, wait_for_interrupt,
    },
    board::{CORES, LOAD_ADDRESS, RAM, StartError, UART_LINE},
    console::{self, Wire},
    notice::{self, Text},
    start, system,
    vcpu::{
        cpu, pmu,
        prepare::{Purpose, prepare_core},
        run::run,
    },
    virtio,
    vm::{
        self, divided,
        ownership::{self, Found, Made},
        stage2,
    },
};
use weir_abi::{
    Damage, Features, MAX_CORES, PackedSystem, TABLES_LIMIT,
    machine::{self, MachineFacts},
};
use weir_paging::PAGE;
use weir_trace::wire::What;
use weir_units::{CoreId, Pa};
use weir_vdev::smccc::{ARCH_WORKAROUND_2, Mitigations};

/// Boots the hypervisor on the boot core, at its virtual address, with the MMU on. `device_tree`
/// and `image` are physical addresses.
pub extern "C" fn boot_main(device_tree: u64, image: u64) -> ! {
    // SAFETY: the boot core is core 0, and it executes this first.
    let core = unsafe { cpu::claim(CoreId(0)) };
    timer::start();
    // SAFETY: called once, here, and no other core runs.
    let Ok(mut stage1) = (unsafe { Stage1::begin(Pa(image)) }) else {
        // Without its device mappings EL2 has no UART to report the error on.
        loop {
            wait_for_interrupt();
        }
    };
    if image != LOAD_ADDRESS {
        notice::refuse(&[
            b"the image was loaded at 0x",
            Text::number(image, 16).as_bytes(),
            b", but built for 0x",
            Text::number(LOAD_ADDRESS, 16).as_bytes(),
        ]);
    }
    let behind = memory::behind_hypervisor(Pa(image));
    let len = behind.end.saturating_sub(behind.start).min(TABLES_LIMIT);
    // SAFETY: RAM between the hypervisor's two parts, in the image; nothing writes to it.
    let packed = unsafe { stage1.read_only(0, Pa(behind.start), len) };
    let Ok(packed) = packed else { notice::refuse(&[b"no room to map the packed system"]) };
    if !sysreg::has_crc32() {
        notice::refuse(&[b"this core has no CRC32 instructions, by which EL2 checks its image"]);
    }
    let is_gicv2 = cfg!(feature = "gicv2");
    let system = match PackedSystem::parse_with(packed, is_gicv2, Features::BUILT, crc32) {
        Ok(system) => system::set(system),
        Err(Damage::Feature(name)) => notice::refuse(&[
            b"refuses its image: this system needs the feature `",
            name.as_bytes(),
            b"`, which this hypervisor was built without: build the image with weir build",
        ]),
        Err(damage) => notice::refuse(&[b"refuses its image: ", damage.message().as_bytes()]),
    };
    // SAFETY: the system refers only to its tables, which are kept.
    unsafe { stage1.forget(0, system.header.tables_len.into()) };
    check_memory(&mut stage1, device_tree, system);
    if !gic::present() {
        notice::refuse(&[
            b"built for another interrupt controller than this machine's: give weir --platform, \
              or QEMU another gic-version=",
        ]);
    }
    divided::check_cache(system);
    // SAFETY: the boot core, and no other runs; `packed` is in slot 0.
    unsafe { divided::move_in(system) }
    if let Some(pa) = system.exchange() {
        let Ok(()) = stage1.map_exchange(Pa(pa)) else {
            notice::refuse(&[b"no room to map what it shares with the broker"]);
        };
    }
    bring_up(core, system)
}

/// Continues the boot on the boot core, after the hypervisor moved into its page classes, on a new
/// stack.
pub extern "C" fn boot_moved() -> ! {
    // SAFETY: the boot core is core 0; `boot_main`, which had the reference before, does not
    // continue.
    let core = unsafe { cpu::claim(CoreId(0)) };
    bring_up(core, system::get())
}

/// Does the rest of the boot core's work, at the final place of the hypervisor.
fn bring_up(core: &'static mut cpu::Core, system: &'static PackedSystem<'static>) -> ! {
    crate::trace::clear();
    if system.broker().is_some() {
        // SAFETY: `PackedSystem::parse` checked that the exchange is RAM without another owner, and
        // the callers have mapped it; no VM runs yet.
        virtio::init(unsafe { memory::exchange() });
    }
    let console_core = CoreId(system.header.console_core as u8);
    console::init(console_core);
    gic::init();
    vm::init_ids();
    vm::pci::init(system, console_core);
    // SAFETY: called once, here, and no other core runs.
    let (mut tables, mut base) = unsafe { memory::stage2_tables() };
    let mut found = Found::default();
    for view in (0..system.vms()).filter_map(|index| system.vm(index)) {
        let root = if system.is_divided() {
            divided::build(system, &view)
        } else {
            stage2::build(system, &view, tables, base).and_then(|(used, root)| {
                let (its, rest) = core::mem::take(&mut tables).split_at_mut_checked(used)?;
                let made = Made { tables: its, base: Pa(base) };
                found += ownership::of_undivided(system, &view, &made, root);
                tables = rest;
                base += used as u64 * PAGE;
                Some(root)
            })
        };
        let Some(root) = root else {
            notice::refuse(&[
                b"VM ",
                view.name(),
                b": its memory does not fit the tables of stage 2 and of the SMMU; give it RAM in \
                  fewer pieces",
            ]);
        };
        // SAFETY: this is the boot core, and no other core runs.
        unsafe { vm::init(view, root) };
    }
    vm::focus::init();
    // SAFETY: this is the boot core, no other core runs, and no window is in use.
    found += unsafe {
        if system.is_divided() { divided::read_back(system) } else { ownership::of_image(system) }
    };
    check_ownership(found, system.is_divided());
    if let Some((answer, syndrome)) = virtio::engine::regulate() {
        console::system_detail(What::Regulator, answer as u32, syndrome);
    }
    let needed = (system.header.cores as usize).min(MAX_CORES);
    for (index, &mpidr) in CORES.iter().enumerate().take(needed).skip(1) {
        match start::start_core(index as u64, mpidr) {
            Ok(()) => {}
            Err(StartError::Absent) => notice::refuse(&[
                b"this system needs ",
                Text::number(needed as u64, 10).as_bytes(),
                b" cores, and the machine has ",
                Text::number(index as u64, 10).as_bytes(),
                b": use fewer in the system file, or start QEMU with -smp ",
                Text::number(needed as u64, 10).as_bytes(),
            ]),
            Err(StartError::Silent) => notice::refuse(&[
                b"core ",
                Text::number(index as u64, 10).as_bytes(),
                b" did not come from the spin table within a second: use fewer cores in the system \
                 file, or check the firmware's stub",
            ]),
            Err(StartError::NoPsci) => notice::refuse(&[
                b"the firmware has no PSCI CPU_ON, by which core ",
                Text::number(index as u64, 10).as_bytes(),
                b" starts: use firmware with PSCI, or give the board file [spin_table]",
            ]),
            Err(StartError::Refused(error)) => notice::refuse(&[
                b"the firmware could not start core ",
                Text::number(index as u64, 10).as_bytes(),
                b", PSCI error -",
                Text::number(error.unsigned_abs().into(), 10).as_bytes(),
            ]),
        }
    }
    start::all_came();
    console::system_event(What::SystemStart);
    start_core(core)
}

/// Starts each core other than the boot core.
pub extern "C" fn secondary_main(index: u64) -> ! {
    // SAFETY: each core starts once. The boot core passed the number, or chose the core's entry of
    // the spin table by it; it is below MAX_CORES, and not 0.
    let core = unsafe { cpu::claim(CoreId(index as u8)) };
    start::came(core.id);
    start_core(core)
}

fn start_core(core: &'static mut cpu::Core) -> ! {
    if let Err(reason) = gic::init_core(core.id) {
        let core = Text::number(core.id.0.into(), 10);
        notice::refuse(&[b"GIC of core ", core.as_bytes(), b": ", reason.as_bytes()]);
    }
    core.connect();
    let stage2 = vm::vcpus_of_core(core.id).next().map(|first| (first.vm.root(), first.vm.id()));
    let shared = stage2.is_some() && core.is_shared();
    prepare_core(Purpose { shared, observed: system::get().is_observed(), stage2 });
    core.mitigations = Mitigations::from_firmware(start::arch_features);
    if core.mitigations.needs_workaround_2() {
        start::forward(ARCH_WORKAROUND_2, 1);
    }
    let header = system::get().header;
    if core.id == console::core() {
        // SAFETY: called once, on the console core; `Stage1::begin` ran before this core started.
        core.wire = Some(unsafe { Wire::take() });
        gic::PhysicalLine::new(UART_LINE, core.id).claim(core.id);
        let period_ns = header.heartbeat_ns;
        if period_ns > 0 {
            core.heartbeat = cpu::Heartbeat { period_ns, next: timer::now_ns() + period_ns };
        }
    }
    crate::trace::begin(core.id);
    if let Some(schedule) = &mut core.schedule {
        schedule.start_budgets(core.id);
    }
    pmu::start(core);
    core.arm();
    run(core)
}

/// Refuses to start if a table maps a page outside of its owner's page classes or ranges.
fn check_ownership(found: Found, is_divided: bool) {
    let pages = Text::number(found.pages, 10);
    if found.strays > 0 {
        let strays = Text::number(found.strays, 10);
        notice::refuse(&[
            strays.as_bytes(),
            b" of ",
            pages.as_bytes(),
            if is_divided {
                b" pages in its tables are not in their owner's page classes"
            } else {
                b" pages in its tables are not their owner's"
            },
        ]);
    }
    if is_divided {
        notice::say(&[pages.as_bytes(), b" pages in its tables, each in its owner's page classes"]);
    }
}

/// Compares the RAM and the SMMU in the machine's device tree with the needs of the system. Without
/// a device tree the values of the board file are used.
fn check_memory(stage1: &mut Stage1, device_tree: u64, system: &PackedSystem) {
    let needs_smmu = !system.pci().is_empty();
    let machine = machine(stage1, device_tree, needs_smmu);
    // The device tree is unmapped because it lies in RAM that may belong to a VM.
    // SAFETY: `machine` has returned only a number and a flag, and no reference to the device tree.
    unsafe {
        stage1.forget(1, 0);
        stage1.forget(2, 0);
    }
    let Some(MachineFacts { ram, has_smmu }) = machine else { return };
    if needs_smmu && !has_smmu {
        notice::refuse(&[
            b"this system has PCI functions, and the machine has no SMMU: take them out, or start \
              QEMU's machine with iommu=smmuv3",
        ]);
    }
    // All RAM below the end of the last page with an owner.
    let needed = |&(base, top): &(u64, u64)| top.min(system.header.memory_end).saturating_sub(base);
    let needed = RAM.iter().map(needed).sum::<u64>();
    if ram < needed {
        let mib = |bytes: u64| Text::number(bytes.div_ceil(1 << 20), 10);
        notice::refuse(&[
            b"this system needs ",
            mib(needed).as_bytes(),
            b" MiB of RAM, and the machine has ",
            mib(ram).as_bytes(),
            b": give its VMs less, or start QEMU with -m ",
            mib(needed).as_bytes(),
        ]);
    }
}

/// Reads the machine's device tree, if there is one.
///
/// If RAM has a gap, QEMU's tree describes one piece of the total size. Therefore sizes are
/// compared instead of ends.
fn machine(stage1: &mut Stage1, device_tree: u64, asks_smmu: bool) -> Option<MachineFacts> {
    let in_ram = RAM.iter().any(|&(base, top)| (base..top).contains(&device_tree));
    if device_tree == 0 || !device_tree.is_multiple_of(8) || !in_ram {
        return None;
    }
    // SAFETY: by the boot protocol the device tree is in RAM, and nothing writes to it now. It
    // stays mapped until `check_memory` unmaps it, before any VM starts.
    let header =
        unsafe { stage1.read_only(1, Pa(device_tree), machine::HEADER_LEN as u64) }.ok()?;
    let total = machine::tree_len(header)?;
    // SAFETY: as above.
    let bytes = unsafe { stage1.read_only(2, Pa(device_tree), total.into()) }.ok()?;
    machine::read(bytes, RAM[0].0, asks_smmu)
}
