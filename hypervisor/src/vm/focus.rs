//! The *focus*: the console's input, and the devices of the class *active*, which several VMs have
//! and one at a time sees (mobivmm, IV).
//!
//! It moves when input for another VM is typed at the console, or by a hypercall of a VM with
//! `focus = true`. The input moves at once. The devices follow together, when none of their lines
//! is being handled: an interrupt that has come to a VM is that VM's to its end, and the devices
//! with it; one that it has not taken yet is withdrawn, and comes to the next one. To all others
//! the registers read as zero and take nothing.
//!
//! When the VM that has the focus stops, the focus goes to the first other VM of the file that runs
//! and has active devices. Only the first VM with active devices keeps it over a restart.

use super::{OWNERS, Vm, all, at, moving::set_movable, virtual_gic::GicHardware};
use crate::{
    arch::{gic::PhysicalLine, lock::Lock, memory},
    console,
};
use core::sync::atomic::{AtomicU8, Ordering};
use weir_abi::{ACTIVE, Features, Irq, Region};
use weir_units::{IntId, Ipa};

/// No VM.
const NO_VM: u8 = u8::MAX;
/// The VM that has the active devices; changed under [`MOVING`].
static HOLDER: AtomicU8 = AtomicU8::new(NO_VM);
/// Held while devices move. Takes the old holder's `Vm::gic` inside.
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

/// VM `place` of the system, if it has active devices.
fn holder(place: usize) -> Option<&'static Vm> {
    at(place).filter(|vm| lines(vm).next().is_some())
}

/// The VM that has the focus at first.
fn home() -> Option<&'static Vm> {
    all().find(|vm| lines(vm).next().is_some())
}

fn show(vm: &Vm, visible: bool) {
    for region in regions(vm) {
        // SAFETY: the caller holds `MOVING`, or is the boot core; `System::parse` has found that a
        // system with active devices is not divided.
        unsafe { memory::show(vm.root(), vm.id(), Ipa(region.ipa), region.len, visible) };
    }
}

/// Gives the focus to the first VM that has active devices; on the boot core, before it starts
/// another.
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

/// Gives the console's input to `vm`, and the active devices as soon as that can be.
fn give_to(vm: &Vm) {
    console::give_input_to(vm.index() as u8);
    hand_over();
}

/// Whether the active devices are VM `vm`'s now.
#[must_use]
pub fn is_with(vm: &Vm) -> bool {
    Features::SHARED_CORES.is_built() && usize::from(HOLDER.load(Ordering::Relaxed)) == vm.index()
}

/// Whether `ipa` is of an active device of the VM's.
#[cold]
#[inline(never)]
#[must_use]
pub fn covers(vm: &Vm, ipa: u64) -> bool {
    Features::SHARED_CORES.is_built()
        && regions(vm).any(|region| ipa.wrapping_sub(region.ipa) < region.len)
}

/// VM `vm` asks that the focus go to the one at place `to` of the system; whether it may.
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

/// Moves the devices to the VM that has the console's input, unless they are there, or in the midst
/// of an interrupt: then the end of that leads here again.
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

/// Takes all lines from a VM, unless one of them is being handled; whether it has none now.
fn let_go(vm: &'static Vm) -> bool {
    let enable = || lines(vm).for_each(|irq| line(vm, irq).set_enabled(true));
    if !lines(vm).all(|irq| line(vm, irq).withhold()) {
        enable();
        return false;
    }
    // From here on none comes; one that came is active until it is dealt with.
    for irq in lines(vm) {
        let line = line(vm, irq);
        if !line.is_active() {
            continue;
        }
        let mut gic = vm.gic.lock();
        let came = gic.is_high(IntId(irq.intid));
        if !came || !gic.withdraw(IntId(irq.intid)) {
            // What was withdrawn already comes again.
            enable();
            return false;
        }
        // A level is there as long as its device holds it.
        if line.is_edge() {
            line.set_pending(true);
        }
        line.set_active(false);
    }
    true
}

/// A boot of the VM has ended, with all of its vCPUs off; another one `follows` or not.
pub fn give_back(vm: &'static Vm, follows: bool) {
    if !Features::SHARED_CORES.is_built() {
        return;
    }
    let is_home = home().is_some_and(|home| core::ptr::eq(home, vm));
    if console::focus() != vm.index() && !is_with(vm) || follows && is_home {
        return;
    }
    if is_with(vm) {
        // An interrupt of the devices that the VM had not ended must not keep them here.
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
