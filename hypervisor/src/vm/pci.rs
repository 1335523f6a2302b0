//! PCI functions that are assigned to VMs: found and confined at boot, accessed through a filter
//! (`weir_vdev::pci`), and reset between two boots.

use super::Vm;
use crate::{
    arch::{
        dsb_ishst,
        ecam::Function as EcamFunction,
        gic::{self, PhysicalLine},
        lock::Lock,
        set_once::SetOnce,
        smmu::{self, Domain, Silent},
        timer,
    },
    board::SMMU_LINE,
    console,
    notice::{self, Text},
};
use weir_abi::{ECAM_LEN, Features, MAX_FUNCTIONS, MAX_VMS, PackedSystem, PciFunction, VmView};
use weir_paging::{
    smmu::SmmuFormat,
    table::{Builder, MapError, stage2},
};
use weir_trace::wire::{Denial, What, WireEvent, dma_syndrome};
use weir_units::{CoreId, Pa, VmId};
use weir_vdev::{
    esr::MmioAccess,
    pci::{Config, Obstacle, PassedFunction, Release, Reset, quiesce},
};

/// A function and its owner.
struct Assigned {
    entry: PciFunction,
    /// The guest's view of the function.
    view: Lock<PassedFunction>,
}

static FUNCTIONS: [SetOnce<Assigned>; MAX_FUNCTIONS] = [const { SetOnce::new() }; MAX_FUNCTIONS];
/// The memory that the devices of each VM can reach.
static DOMAINS: [SetOnce<Domain>; MAX_VMS] = [const { SetOnce::new() }; MAX_VMS];
/// The resets in progress of each VM's functions.
static RELEASES: [Lock<Option<Release>>; MAX_VMS] = [const { Lock::new(None) }; MAX_VMS];
static FORMAT: SetOnce<SmmuFormat> = SetOnce::new();

/// Returns the functions of VM `vm`.
fn of(vm: usize) -> impl Iterator<Item = &'static Assigned> + Clone {
    let functions: &'static [SetOnce<Assigned>] =
        if Features::PCI.is_built() { &FUNCTIONS } else { &[] };
    functions.iter().filter_map(SetOnce::get).filter(move |one| one.entry.vm as usize == vm)
}

fn streams(vm: usize) -> impl Iterator<Item = u32> + Clone {
    of(vm).map(|one| one.entry.stream)
}

impl Assigned {
    fn registers(&self) -> EcamFunction {
        EcamFunction::new(self.entry.address as u8)
    }
}

/// Finds the functions of a system, disables all of them and aborts their accesses. Called on the
/// boot core, before any VM is built. `console_core` takes the SMMU's interrupt.
pub fn init(system: &PackedSystem<'static>, console_core: CoreId) {
    if system.pci().is_empty() {
        return;
    }
    // A function that the firmware left enabled must not access memory of any owner.
    for address in 0..=u8::MAX {
        let mut registers = EcamFunction::new(address);
        if registers.read(0) & 0xffff != 0xffff {
            quiesce(&mut registers);
        }
    }
    match smmu::init() {
        Ok(format) => FORMAT.set(format),
        Err(what) => notice::refuse(&[b"the machine's SMMU can't be used: ", what.as_bytes()]),
    }
    for (entry, place) in system.pci().iter().zip(&FUNCTIONS) {
        let mut registers = EcamFunction::new(entry.address as u8);
        let mut function =
            match PassedFunction::probe(&mut registers, entry.has_siblings(system.pci())) {
                Ok(function) => function,
                Err(obstacle) => refuse(entry, words(obstacle)),
            };
        if let Err(room) = function.place(entry.bars, entry.bars_len) {
            let kib = |bytes: u64| Text::number(bytes.div_ceil(1024), 10);
            refuse(
                entry,
                &[
                    b" needs ",
                    kib(room.needed).as_bytes(),
                    b" KiB for its base addresses and has ",
                    kib(entry.bars_len).as_bytes(),
                    b": make `aperture` of the platform file's [pci] larger",
                ],
            );
        }
        place.set(Assigned { entry: *entry, view: Lock::new(function) });
        let assigned = || place.get().into_iter();
        let release = begin_reset(assigned(), timer::now_ns());
        // Polling is acceptable here, because no VM runs yet.
        while release.due(timer::now_ns(), || is_reset(assigned())).is_some() {
            crate::arch::relax();
        }
        end_reset(assigned());
    }
    let line = PhysicalLine::new(SMMU_LINE, console_core);
    {
        let _words = gic::DISTRIBUTOR.lock();
        line.set_edge(true);
    }
    line.claim(console_core);
}

fn refuse(entry: &PciFunction, why: &[&[u8]]) -> ! {
    let digits = b"0123456789abcdef";
    let digit = |value: u32| digits[(value & 0xf) as usize];
    let name = [
        b'0',
        b'0',
        b':',
        digit(entry.address >> 7),
        digit(entry.address >> 3),
        b'.',
        digit(entry.address & 7),
    ];
    let mut parts: [&[u8]; 8] = [b""; 8];
    let head: [&[u8]; 2] = [b"PCI function ", &name];
    parts.iter_mut().zip(head.iter().chain(why)).for_each(|(to, from)| *to = from);
    notice::refuse(&parts)
}

fn words(obstacle: Obstacle) -> &'static [&'static [u8]] {
    match obstacle {
        Obstacle::Absent => {
            &[b" is not there: put the device into that slot, for QEMU -device ..,addr=SLOT"]
        }
        Obstacle::Bridge => &[b" is a bridge, which can't be passed through"],
        Obstacle::Pin => &[b" interrupts by another pin than INTA"],
        Obstacle::BaseAddress => &[b" has a base address of an unknown kind"],
        Obstacle::PastSmmu => {
            &[b" goes past the SMMU: give QEMU's virtio device iommu_platform=on,disable-legacy=on"]
        }
    }
}

/// Maps the base addresses of a VM's functions into its stage 2.
///
/// # Errors
///
/// Returns a [`MapError`] if a region does not fit the tables.
pub fn map_bars(builder: &mut Builder<'_>, vm: usize) -> Result<(), MapError> {
    for one in of(vm) {
        let view = one.view.lock();
        for (address, len) in view.regions() {
            builder.map(address, address, len, stage2::DEVICE)?;
        }
    }
    Ok(())
}

/// Returns whether a VM has PCI functions, and therefore a domain.
#[must_use]
pub fn has_domain(vm: usize) -> bool {
    of(vm).next().is_some()
}

/// Fills in the tables by which a VM's functions reach its RAM, in the format of the SMMU.
///
/// # Errors
///
/// Returns a [`MapError`] if a region does not fit the tables.
pub fn map_domain(
    builder: &mut Builder<'_>,
    system: &PackedSystem<'_>,
    view: &VmView<'_>,
) -> Result<(), MapError> {
    system.map_domain(builder, view, matches!(FORMAT.get(), Some(SmmuFormat::Stage2)))
}

/// Returns the domain of VM `vm`, if its devices have one.
fn domain_of(vm: usize) -> Option<&'static Domain> {
    if Features::PCI.is_built() { DOMAINS.get(vm)?.get() } else { None }
}

/// Returns the physical address of the DMA tables of VM `vm`, if it has some.
pub fn domain(vm: usize) -> Option<u64> {
    domain_of(vm).map(|domain| domain.root.0)
}

/// Sets the physical address of the tables that [`map_domain`] filled in for VM `vm`.
pub fn set_domain(vm: usize, root: u64) {
    if let Some(place) = DOMAINS.get(vm) {
        place.set(Domain { vm: VmId(vm as u8), root: Pa(root) });
    }
}

/// Lets a VM's functions reach its RAM, which now has the contents that its boot begins with.
pub fn open(vm: &Vm) {
    let index = vm.index();
    let Some(domain) = domain_of(index) else { return };
    smmu::attach(streams(index), domain).unwrap_or_else(|silent| give_up(silent));
}

/// Detaches a VM's functions from its RAM and resets them, so that the RAM can be reused. All vCPUs
/// are off, so only the hypervisor uses the functions' registers in the meantime. Does not wait:
/// returns the time at which to call again, or `None` once the functions are reset.
pub fn close(vm: &Vm) -> Option<u64> {
    let index = vm.index();
    let domain = domain_of(index)?;
    let mut release = RELEASES.get(index)?.lock();
    let now = timer::now_ns();
    let begun = release.get_or_insert_with(|| {
        for one in of(index) {
            quiesce(&mut one.registers());
        }
        smmu::detach(streams(index), domain).unwrap_or_else(|silent| give_up(silent));
        // Fault records that are on their way to the console core belong to the boot that ends.
        report_faults();
        begin_reset(of(index), now)
    });
    let due = begun.due(now, || is_reset(of(index)));
    if due.is_none() {
        *release = None;
        end_reset(of(index));
    }
    due
}

/// Begins to reset functions.
fn begin_reset(functions: impl Iterator<Item = &'static Assigned>, now: u64) -> Release {
    let reset = |one: &Assigned| one.view.lock().reset(&mut one.registers());
    let resets = functions.map(reset);
    // `count` resets every function, including those behind a slow one.
    let slow = resets.filter(|reset| *reset == Reset::FunctionLevel).count() > 0;
    Release::new(now, slow)
}

fn is_reset(mut functions: impl Iterator<Item = &'static Assigned>) -> bool {
    functions.all(|one| one.view.lock().is_reset(&mut one.registers()))
}

/// Writes the base addresses of functions again. A virtio device that did not complete its reset in
/// time is left to its next driver; it cannot reach any memory until then.
fn end_reset(functions: impl Iterator<Item = &'static Assigned>) {
    for one in functions {
        one.view.lock().assign(&mut one.registers());
    }
}

/// Stops this core because the SMMU does not execute its commands. The memory that devices reach is
/// then unknown, so the core must not use that memory.
fn give_up(Silent: Silent) -> ! {
    notice::last_words(&[b"the SMMU does not complete its commands"])
}

/// Returns the offset of `ipa` in the configuration space of a VM's functions, or of its socket
/// device, or none if it lies outside.
#[must_use]
pub fn offset(vm: &Vm, ipa: u64) -> Option<u64> {
    if !Features::PCI.is_built() {
        return None;
    }
    let ecam = match vm.view().vm.vsock_ecam {
        0 => of(vm.index()).next()?.entry.ecam,
        ecam => ecam,
    };
    let offset = ipa.wrapping_sub(ecam);
    (offset < ECAM_LEN).then_some(offset)
}

/// Carries out a guest's access at `offset` of its configuration space. `value` is the value that a
/// store writes; the result is the value that a load reads.
// Not inlined, because it would make the frame of each device's path larger than a page.
#[inline(never)]
pub fn access(vm: &Vm, access: &MmioAccess, offset: u64, value: u64) -> u64 {
    let (place, register) = (offset >> 12, (offset & 0xfff) as u16);
    // A load without a function at its address returns all ones, as on a PCI bus.
    let Some(one) = of(vm.index()).find(|one| u64::from(one.entry.address) == place) else {
        return u64::MAX;
    };
    let mut registers = one.registers();
    let mut view = one.view.lock();
    if access.write {
        view.write(&mut registers, register, access.size, value);
        // The write completes before the guest's next access that may rely on it: a store to a base
        // address, or to memory that the function reads.
        dsb_ishst();
        return 0;
    }
    view.read(&mut registers, register, access.size)
}

/// Reports accesses that the SMMU has refused. If more records wait than are taken at once, the
/// SMMU's interrupt is made pending again on the console core, so that other interrupts are taken
/// in between.
pub fn report_faults() {
    if !Features::PCI.is_built() {
        return;
    }
    let (faults, more) = smmu::take_faults().unwrap_or_else(|silent| give_up(silent));
    for fault in faults.into_iter().flatten() {
        let owner =
            FUNCTIONS.iter().filter_map(SetOnce::get).find(|one| one.entry.stream == fault.stream);
        let Some(vm) = owner.and_then(|one| super::at(one.entry.vm as usize)) else {
            continue;
        };
        vm.count_denial(Denial::Dma);
        console::event(WireEvent {
            detail: Denial::Dma as u32,
            syndrome: dma_syndrome(fault.stream, fault.write, fault.number),
            address: fault.address,
            ..vm.event(What::Denied, 0)
        });
    }
    if more {
        // SPIs belong to the distributor, so any core number can be passed.
        PhysicalLine::new(SMMU_LINE, CoreId(0)).set_pending(true);
    }
}
