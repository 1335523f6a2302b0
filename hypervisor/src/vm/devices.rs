//! Accesses of a guest to its virtual devices: the GIC's registers, the PL011, the virtio devices,
//! the configuration space of PCI functions.

use super::{
    VcpuRef, Vm,
    interrupts::{Lines, fold_others, kick, settle},
    pci,
};
use crate::{
    arch::gic::VERSION,
    console,
    virtio::{flows, switch},
};
use weir_trace::wire::ExitCause;
use weir_units::IntId;
use weir_vdev::{
    esr::MmioAccess,
    gic::{self, VcpuMask},
    id::GicVersion,
    pl011::Sink,
};

/// Bytes of the distributor.
const DISTRIBUTOR: u64 = 0x1_0000;
/// Bytes of one vCPU's redistributor.
const REDISTRIBUTOR: u64 = 0x2_0000;
/// Bytes of the PL011.
const UART: u64 = 0x1000;

/// Carries out a guest's access: `value` is what a store writes, the result what a load reads. None
/// when there is no device at that address.
pub fn access(
    vcpu_ref: &'static VcpuRef,
    core: usize,
    access: &MmioAccess,
    value: u64,
) -> Option<u64> {
    let vm = vcpu_ref.vm;
    let board = vm.view().vm;
    let offset = access.ipa.wrapping_sub(board.distributor);
    if offset < DISTRIBUTOR {
        vcpu_ref.exit(ExitCause::Gic);
        return Some(gic(vcpu_ref, core, access, None, offset, value));
    }
    let offset = access.ipa.wrapping_sub(board.uart);
    if offset < UART {
        vcpu_ref.exit(ExitCause::Uart);
        return Some(uart(vcpu_ref, access, offset, value));
    }
    if matches!(VERSION, GicVersion::V3) {
        let offset = access.ipa.wrapping_sub(board.gic_cpu);
        if offset < REDISTRIBUTOR * vm.vcpu_count() as u64 {
            vcpu_ref.exit(ExitCause::Gic);
            let target = Some((offset / REDISTRIBUTOR) as usize);
            return Some(gic(vcpu_ref, core, access, target, offset % REDISTRIBUTOR, value));
        }
    }
    if let Some(place) = flows::place(vm, access.ipa) {
        vcpu_ref.exit(ExitCause::Virtio);
        return Some(flows::access(vcpu_ref, core, access, place, value));
    }
    if let Some(offset) = switch::offset(vm, access.ipa) {
        vcpu_ref.exit(ExitCause::Virtio);
        return Some(switch::access(vcpu_ref, core, access, offset, value));
    }
    let offset = pci::offset(vm, access.ipa)?;
    vcpu_ref.exit(ExitCause::Pci);
    Some(pci::access(vm, access, offset, value))
}

fn gic(
    vcpu_ref: &'static VcpuRef,
    core: usize,
    access: &MmioAccess,
    redistributor: Option<usize>,
    offset: u64,
    value: u64,
) -> u64 {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let &MmioAccess { size, write, .. } = access;
    let access = gic::Access { vcpu, redistributor, offset, size: size.into() };
    let mut gic = vm.gic.lock();
    let asked = gic.remote(&access, write);
    if !asked.is_empty() {
        drop(gic);
        fold_others(vm, vcpu, core, asked);
        gic = vm.gic.lock();
    }
    let mut lines = Lines::new(vm);
    if write {
        let mask = gic.write(&access, value, &mut lines);
        drop(gic);
        kick(vm, mask);
        0
    } else {
        gic.read(&access, &mut lines)
    }
}

fn uart(vcpu_ref: &'static VcpuRef, access: &MmioAccess, offset: u64, value: u64) -> u64 {
    let vm = vcpu_ref.vm;
    let mut output = console::Output::new(vm.index());
    let mut uart = vm.uart.lock();
    let (read, high) = if access.write {
        (0, uart.write(offset, value as u32, &mut output))
    } else {
        let (read, high) = uart.read(offset, &output);
        (u64::from(read), high)
    };
    // A read may have made room for what a person typed meanwhile.
    let high = if access.write { high } else { type_in(vm, &mut uart).unwrap_or(high) };
    let mask = line(vm, high);
    drop(uart);
    settle(vm, vcpu_ref.vcpu, mask);
    read
}

/// Moves what a person typed into the PL011's FIFO, as far as it fits; the new interrupt line if
/// anything moved.
fn type_in(vm: &Vm, uart: &mut weir_vdev::pl011::Pl011) -> Option<bool> {
    let channel = console::channel(vm.index());
    let mut high = None;
    // Bounded by the FIFO, which `can_receive` says is full after at most 32 bytes.
    while uart.can_receive()
        && let Some(byte) = channel.typed()
    {
        high = Some(uart.receive(byte));
    }
    high
}

fn line(vm: &Vm, high: bool) -> VcpuMask {
    vm.gic.lock().set_level(IntId(vm.view().vm.uart_intid), high)
}

/// The console has input for the VM, or room for its output.
pub fn uart_attention(vcpu_ref: &'static VcpuRef) {
    let vm = vcpu_ref.vm;
    let mut uart = vm.uart.lock();
    let _ = type_in(vm, &mut uart);
    let high = uart.drained(console::Output::new(vm.index()).room());
    let mask = line(vm, high);
    drop(uart);
    settle(vm, vcpu_ref.vcpu, mask);
}

/// Whether a virtual device is at `ipa`.
#[must_use]
pub fn covers(vm: &Vm, ipa: u64) -> bool {
    let board = vm.view().vm;
    let redistributors = match VERSION {
        GicVersion::V3 => REDISTRIBUTOR * vm.vcpu_count() as u64,
        GicVersion::V2 => 0,
    };
    ipa.wrapping_sub(board.distributor) < DISTRIBUTOR
        || ipa.wrapping_sub(board.uart) < UART
        || ipa.wrapping_sub(board.gic_cpu) < redistributors
        || flows::place(vm, ipa).is_some()
        || switch::offset(vm, ipa).is_some()
        || pci::offset(vm, ipa).is_some()
}
