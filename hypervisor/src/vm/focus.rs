//! The *focus*: the console's input, and the devices of the class *active*, which are assigned to
//! several VMs and visible to one of them at a time (mobivmm, IV).
//!
//! The focus moves when a user selects another VM at the console, or by a hypercall of a VM with
//! `focus = true`. The console input moves at once. The devices follow together when none of their
//! interrupts is being handled. An interrupt that a VM has taken belongs to that VM until its end,
//! and so do the devices. An interrupt that the VM has not taken yet is withdrawn, and goes to the
//! next VM. For all other VMs the registers read as zero and ignore stores.
//!
//! When the VM that has the focus stops, the focus goes to the first other VM in the system file
//! that runs and has active devices. Only the first VM with active devices keeps the focus over a
//! restart.

use super::{OWNERS, Vm, all, at, moving::set_movable, virtual_gic::GicHardware};
use crate::{
    arch::{gic::PhysicalLine, lock::Lock, memory},
    console,
};
use core::sync::atomic::{AtomicU8, Ordering};
use weir_abi::{ACTIVE, Features, Irq, Region};
use weir_units::{IntId, Ipa};

/// Index that stands for no VM.
const NO_VM: u8 = u8::MAX;
/// The VM that has the active devices; changed under [`MOVING`].
static HOLDER: AtomicU8 = AtomicU8::new(NO_VM);
/// Lock that is held while devices move. The old holder's `Vm::gic` is locked inside it.
static MOVING: Lock<()> = Lock::new(());

fn regions(vm: &Vm) -> impl Iterator<Item = &'static Region> {
    vm.view().regions.iter().filter(|region| region.kind == ACTIVE)
}

fn lines(vm: &Vm) -> impl Iterator<Item = &'static Irq> {
    vm.view().irqs.iter().filter(|irq| irq.active != 0)
}

fn line(vm: &Vm, irq: &Irq) -> PhysicalLine {
    PhysicalLine::new(IntId(irq.intid), vm.core_of(0))
}

/// Returns the VM with index `place`, if it has active devices.
fn holder(place: usize) -> Option<&'static Vm> {
    at(place).filter(|vm| lines(vm).next().is_some())
}

/// Returns the VM that has the focus at first.
fn home() -> Option<&'static Vm> {
    all().find(|vm| lines(vm).next().is_some())
}

fn show(vm: &Vm, visible: bool) {
    for region in regions(vm) {
        // SAFETY: the caller holds `MOVING`, or is the boot core; `System::parse` has checked that
        // a system with active devices is not divided.
        unsafe { memory::show(vm.root(), vm.id(), Ipa(region.ipa), region.len, visible) };
    }
}

/// Gives the focus to the first VM that has active devices. Called on the boot core, before it
/// starts another core.
pub fn init() {
    if !Features::SHARED_CORES.is_built() {
        return;
    }
    let Some(home) = home() else { return };
    for vm in all() {
        show(vm, false);
        for irq in lines(vm) {
            line(vm, irq).set_edge(irq.edge != 0);
        }
    }
    give_to(home);
}

/// Gives the console's input to `vm` at once, and the active devices as soon as possible.
fn give_to(vm: &Vm) {
    console::give_input_to(vm.index() as u8);
    hand_over();
}

/// Returns whether VM `vm` has the active devices now.
#[must_use]
pub fn is_with(vm: &Vm) -> bool {
    Features::SHARED_CORES.is_built() && usize::from(HOLDER.load(Ordering::Relaxed)) == vm.index()
}

/// Returns whether `ipa` belongs to an active device of the VM.
#[cold]
#[inline(never)]
#[must_use]
pub fn covers(vm: &Vm, ipa: u64) -> bool {
    Features::SHARED_CORES.is_built()
        && regions(vm).any(|region| ipa.wrapping_sub(region.ipa) < region.len)
}

/// Carries out the request of VM `vm` to move the focus to the VM with index `to`. Returns whether
/// the request was allowed.
#[must_use]
pub fn request(vm: &Vm, to: u64) -> bool {
    if !Features::SHARED_CORES.is_built() {
        return false;
    }
    let there = usize::try_from(to).ok().and_then(|to| at(to));
    let runs = |there: &&Vm| !there.halted.load(Ordering::Relaxed);
    let Some(there) = there.filter(runs).filter(|_| vm.view().vm.focus != 0) else {
        return false;
    };
    give_to(there);
    true
}

/// Moves the devices to the VM that has the console's input, unless they are there already or one
/// of their interrupts is being handled; in that case the end of that interrupt calls this function
/// again.
pub fn hand_over() {
    if !Features::SHARED_CORES.is_built() {
        return;
    }
    let _moving = MOVING.lock();
    let to = console::focus();
    let from = usize::from(HOLDER.load(Ordering::Relaxed));
    if from == to || home().is_none() {
        return;
    }
    if let Some(from) = holder(from) {
        if !let_go(from) {
            return;
        }
        show(from, false);
    }
    let to = holder(to);
    HOLDER.store(to.map_or(NO_VM, |to| to.index() as u8), Ordering::Relaxed);
    let Some(to) = to else { return };
    set_movable();
    show(to, true);
    for irq in lines(to) {
        if let Some(owner) = OWNERS.get(irq.intid as usize) {
            owner.store(to.index() as u8, Ordering::Relaxed);
        }
        let line = line(to, irq);
        line.route(to.core_of(0));
        line.set_enabled(true);
    }
}

/// Takes all interrupts of the devices from a VM, unless one of them is being handled. Returns
/// whether the VM has none of them now.
fn let_go(vm: &'static Vm) -> bool {
    let enable = || lines(vm).for_each(|irq| line(vm, irq).set_enabled(true));
    if !lines(vm).all(|irq| line(vm, irq).withhold()) {
        enable();
        return false;
    }
    // From here on no interrupt arrives; one that has arrived stays active until it is handled.
    for irq in lines(vm) {
        let line = line(vm, irq);
        if !line.is_active() {
            continue;
        }
        let mut gic = vm.gic.lock();
        let came = gic.is_high(IntId(irq.intid));
        if !came || !gic.withdraw(IntId(irq.intid)) {
            // The interrupts that were already withdrawn are forwarded again.
            enable();
            return false;
        }
        // A level stays pending as long as its device holds it; an edge must be made pending again.
        if line.is_edge() {
            line.set_pending(true);
        }
        line.set_active(false);
    }
    true
}

/// Gives the focus away because a boot of the VM has ended, with all of its vCPUs off. `follows`
/// states whether another boot follows.
pub fn give_back(vm: &'static Vm, follows: bool) {
    if !Features::SHARED_CORES.is_built() {
        return;
    }
    let is_home = home().is_some_and(|home| core::ptr::eq(home, vm));
    if console::focus() != vm.index() && !is_with(vm) || follows && is_home {
        return;
    }
    if is_with(vm) {
        // An interrupt of the devices that the VM has not ended must not keep the devices here.
        let mut gic = vm.gic.lock();
        for irq in lines(vm) {
            gic.release_relayed(IntId(irq.intid), &mut GicHardware::new(vm));
        }
    }
    let runs = |next: &&Vm| {
        !core::ptr::eq(*next, vm)
            && !next.halted.load(Ordering::Relaxed)
            && lines(next).next().is_some()
    };
    if console::focus() == vm.index()
        && let Some(next) = all().find(runs)
    {
        give_to(next);
    }
}
