//! The switch: network devices of VMs, and frames from one to another.
//!
//! A device of class *dynamic* (mobivmm, IV) is shared by all: its driver is a service VM, the
//! switch's *uplink*, and EL2 decides whom a frame is for. Whoever notifies his device has one
//! frame taken, on his core and in his time: it is copied once into EL2, checked, and copied from
//! there into a receive buffer of each VM that it is for. There is nothing in between where a frame
//! could wait, so nobody waits for anybody: a receiver without a buffer, or between two lives,
//! loses the frame.
//!
//! A [`Port`]'s lock is taken alone or with the VM's GIC inside, never with another port's.

mod port;

use super::memory::Memory;
use crate::{
    arch::{lock::Lock, memory::peephole::Peephole, sysreg, timer},
    console, system,
    vm::{
        self, VcpuRef, Vm,
        interrupts::{kick, settle},
    },
};
use core::sync::atomic::{AtomicU64, Ordering};
use port::{Counts, Port};
use weir_abi::{Net, VIRTIO_LEN};
use weir_broker::transfer::Bucket;
use weir_trace::wire::{self, Denial};
use weir_units::{CoreId, IntId};
use weir_vdev::{esr::MmioAccess, gic::VcpuMask};
use weir_vsock::{
    mmio::{Effect, Kind, RX, Registers, TX},
    net::{self, Frame, HEADER_LEN, MOST_FRAME, Station},
    queue::Broken,
};

/// Marker for those who count from outside: a frame has gone to those that it is for.
const MARK_FRAME: u32 = 38;

/// The network device of a VM.
pub struct Device {
    port: Lock<Port>,
    /// What became of its frames.
    frames: Counts,
}

/// Returns the device of no VM.
pub const fn new_device() -> Device {
    Device { port: Lock::new(Port::new()), frames: Counts::new() }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn port_of(vm: &Vm) -> Option<&'static Net> {
    vm.view().net()
}

/// The offset of `ipa` in the registers of the VM's network device, if it is there.
pub fn offset(vm: &Vm, ipa: u64) -> Option<u64> {
    let offset = ipa.wrapping_sub(port_of(vm)?.registers);
    (offset < VIRTIO_LEN).then_some(offset)
}

/// A life of a VM begins or has ended, and none of its vCPUs runs: its device is as after power-on,
/// and nobody writes to its memory.
pub fn reset(vm: &Vm) {
    let Some(net) = port_of(vm) else { return };
    let mut port = vm.net.port.lock();
    port.registers = Registers::new(Kind::Network(net.mac));
    // What a life has used up is not given back by a restart.
    port.limits.get_or_insert_with(|| {
        let bytes = net.burst.saturating_mul(MOST_FRAME as u64);
        [Bucket::new(net.rate, net.burst), Bucket::new(net.bandwidth, bytes)]
    });
}

/// Carries out an access to the device: `value` is what a store writes, the result what a load
/// reads.
// By itself: inlined, it makes the frame of each device's path larger than a page.
#[inline(never)]
pub fn access(
    vcpu_ref: &'static VcpuRef,
    core: CoreId,
    access: &MmioAccess,
    at: u64,
    value: u64,
) -> u64 {
    let vm = vcpu_ref.vm;
    // SAFETY: on core `core`, in a trap of its guest: nothing else uses its windows until this
    // returns.
    let mut peephole = unsafe { Peephole::open(core) };
    let mut port = vm.net.port.lock();
    let mut memory = Memory::new(vm.view(), &mut peephole);
    let size = access.size.into();
    if !access.write {
        return port.registers.read(at, size);
    }
    let effect = port.registers.write(at, size, value, &memory);
    match effect {
        Effect::Line | Effect::Reset => {}
        // Receive buffers are taken as frames come.
        Effect::Notified(RX) => {
            if let Some(queue) = port.registers.queue(RX) {
                // A ring that is RAM stays RAM.
                let _ = queue.refuse_notifications(&mut memory);
            }
            return 0;
        }
        Effect::Notified(TX) => {
            drop(port);
            send(vcpu_ref, &mut peephole);
            port = vm.net.port.lock();
        }
        Effect::None | Effect::Notified(_) => return 0,
    }
    let mask = line(vm, &port);
    drop(port);
    settle(vm, vcpu_ref.vcpu, mask);
    0
}

/// Gives the interrupt the level that the registers say.
fn line(vm: &Vm, port: &Port) -> VcpuMask {
    let intid = port_of(vm).map_or(0, |net| net.intid);
    vm.gic.lock().set_level(IntId(intid), port.registers.line())
}

/// Asks the driver whether it wants an interrupt for what it got back from queue `index`.
fn signal(port: &mut Port, index: usize, memory: &mut Memory<'_>) {
    let queue = port.registers.queue(index);
    if queue.is_some_and(|queue| queue.wants_interrupt(memory) == Ok(true)) {
        port.registers.signal_used();
    }
}

/// Takes one frame and passes it on; if there is more, the notification traps again, behind
/// whatever interrupts came.
fn send(vcpu_ref: &'static VcpuRef, peephole: &mut Peephole) {
    let vm = vcpu_ref.vm;
    let mut frame = Frame::EMPTY;
    let taken = {
        let mut port = vm.net.port.lock();
        let mut memory = Memory::new(vm.view(), peephole);
        let taken = take(vm, &mut port, &mut frame, &mut memory);
        if let Err(broken) = taken {
            vm.deny(vcpu_ref.vcpu, Denial::Virtio, broken as u64);
            port.registers.break_down();
        }
        signal(&mut port, TX, &mut memory);
        taken
    };
    let Ok(Some(is_whole)) = taken else { return };
    if is_whole {
        pass(vm, &frame, peephole);
        crate::arch::mark::<MARK_FRAME>();
    }
    let mut port = vm.net.port.lock();
    let mut memory = Memory::new(vm.view(), peephole);
    let queue = port.registers.queue(TX);
    if queue.is_some_and(|queue| queue.ask_notification(&mut memory) == Ok(true)) {
        // The caller steps over the store; so it is carried out once more.
        sysreg::elr_el2::write(sysreg::elr_el2::read().wrapping_sub(4));
    }
}

/// Takes the next frame out of the ring: none if that is empty; whether it was copied, and not
/// dropped.
fn take(
    vm: &Vm,
    port: &mut Port,
    frame: &mut Frame,
    memory: &mut Memory<'_>,
) -> Result<Option<bool>, Broken> {
    let Some(queue) = port.registers.queue(TX) else { return Ok(None) };
    let Some(chain) = net::take(queue, memory)? else { return Ok(None) };
    let admitted = match net::length(&chain) {
        None => {
            count(&vm.net.frames.refused);
            vm.count_denial(Denial::Virtio);
            false
        }
        Some(len) if port.admits(timer::now_ns(), len as u64) => {
            frame.copy(&chain, len, memory)?;
            true
        }
        Some(_) => {
            count(&vm.net.frames.over_rate);
            false
        }
    };
    if let Some(queue) = port.registers.queue(TX) {
        queue.push(memory, chain.head, 0)?;
    }
    Ok(Some(admitted))
}

/// Gives a frame to those that it is for.
fn pass(vm: &'static Vm, frame: &Frame, peephole: &mut Peephole) {
    let ports = (0..system::get().vms()).map(|index| {
        let net = vm::all().nth(index).and_then(port_of);
        // Nobody has the address 0, so where there is no device nobody is found.
        net.map_or(Station { mac: 0, uplink: false }, |net| Station {
            mac: net.mac,
            uplink: net.uplink != 0,
        })
    });
    let Ok(targets) = net::targets(ports, vm.index(), frame.addresses()) else {
        count(&vm.net.frames.refused);
        vm.count_denial(Denial::Virtio);
        return;
    };
    count(&vm.net.frames.sent);
    for receiver in vm::all().filter(|to| targets >> to.index() & 1 != 0) {
        if port_of(receiver).is_some() {
            deliver(receiver, frame, peephole);
        }
    }
}

/// Gives a frame to one VM, if it has a buffer for it.
fn deliver(vm: &'static Vm, frame: &Frame, peephole: &mut Peephole) {
    let mut port = vm.net.port.lock();
    let mut memory = Memory::new(vm.view(), peephole);
    let given = port.registers.queue(RX).map(|queue| net::give(queue, frame, &mut memory));
    match given {
        Some(Ok(true)) => count(&vm.net.frames.received),
        Some(Err(_)) => {
            vm.count_denial(Denial::Virtio);
            port.registers.break_down();
        }
        Some(Ok(false)) | None => {
            count(&vm.net.frames.missed);
            return;
        }
    }
    signal(&mut port, RX, &mut memory);
    let mask = line(vm, &port);
    drop(port);
    kick(vm, mask);
}

/// Sends the counts of every port.
pub fn report() {
    let time_ns = timer::now_ns();
    for vm in vm::all().filter(|vm| port_of(vm).is_some()) {
        let Counts { sent, received, over_rate, refused, missed } = &vm.net.frames;
        let [sent, received, over_rate, refused, missed] =
            [sent, received, over_rate, refused, missed].map(|count| count.load(Ordering::Relaxed));
        let vm = vm.index() as u32;
        let counts =
            wire::Port { time_ns, vm, reserved: 0, sent, received, over_rate, refused, missed };
        console::record(wire::Kind::Port, &counts);
    }
}

const _: () = assert!(HEADER_LEN + MOST_FRAME < 4096, "a frame lies on the stack");
