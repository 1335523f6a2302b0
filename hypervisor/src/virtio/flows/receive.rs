//! The ring by which a driver receives: buffers for control packets, and buffers that the broker
//! fills.

use super::{
    link::{LINK, Link, break_down, broker_pieces, raise, raise_own},
    memory::Memory,
    socket::{Socket, WAITING},
};
use crate::{
    arch::memory::peephole::Peephole,
    vm::{self, VcpuRef, Vm},
};
use weir_broker::shared::RING;
use weir_trace::wire::Denial;
use weir_vsock::{
    GuestMemory,
    device::RX,
    queue::{Broken, Chain},
    vsock::{HEADER_LEN, Header},
};

/// The part of a receiver's ring that is kept for control packets.
const RESERVE: u16 = 8;
/// The part that the broker has at most. What is kept and what the broker has are together less
/// than half of the ring: Linux makes no buffers available before more than half of them have come
/// back.
const OFFERED: u16 = 4;
/// Takes new receive buffers in: for control packets that wait, for the stock, and for the broker.
/// The device is free between two of them: the broker's core may wait for it.
pub(super) fn supply(vcpu_ref: &VcpuRef, peephole: &mut Peephole) {
    let Some(link) = LINK.get() else { return };
    // Bounded: the ring has no more chains that the device does not have already.
    for _ in 0..=RING {
        let mut socket = vcpu_ref.vm.socket.lock();
        match take_buffer(vcpu_ref.vm, &mut socket, link, peephole) {
            Ok(true) => {}
            Ok(false) => break,
            Err(broken) => {
                break_down(vcpu_ref, &mut socket, broken);
                break;
            }
        }
    }
    raise_own(&mut vcpu_ref.vm.socket.lock(), &mut Memory::new(vcpu_ref.vm.view(), peephole));
}

/// Takes the next receive buffer in; false if there is none.
fn take_buffer(
    vm: &Vm,
    socket: &mut Socket,
    link: &Link,
    peephole: &mut Peephole,
) -> Result<bool, Broken> {
    let mut memory = Memory::new(vm.view(), peephole);
    let Some(queue) = socket.transport.queue(RX) else { return Ok(false) };
    let mut popped = queue.pop(&mut memory)?;
    if popped.is_none() && queue.ask_notification(&mut memory)? {
        popped = queue.pop(&mut memory)?;
    }
    let Some(chain) = popped else { return Ok(false) };
    let room: u64 = chain.writable().iter().map(|segment| u64::from(segment.len)).sum();
    if room <= HEADER_LEN as u64 {
        return Err(Broken::TooShort);
    }
    if socket.waits > 0 {
        let header = socket.waiting[0];
        socket.waiting.copy_within(1..socket.waits, 0);
        socket.waits -= 1;
        give(socket, &chain, &header, &mut memory)?;
    } else if let Some(place) = socket.stock.get_mut(socket.stocked) {
        *place = chain;
        socket.stocked += 1;
    }
    // A broker without buffers of this receiver's may wait for one.
    let had_none = socket.offered == 0;
    if offer(vm, socket, link, 1) > 0 && had_none {
        link.service.wake();
    }
    Ok(true)
}

/// Lends receive buffers to the broker until it has its part, `limit` at the most; how many it got.
pub(super) fn offer(vm: &Vm, socket: &mut Socket, link: &Link, limit: u32) -> u32 {
    let size = socket.transport.queue(RX).map_or(0, |queue| queue.size());
    let (kept, most) = (usize::from(size / RESERVE), u32::from((size / OFFERED).max(1)));
    let mut lent = 0;
    // Bounded: each turn takes one out of the stock.
    while lent < limit && socket.stocked > kept && socket.offered.count_ones() < most {
        socket.stocked -= 1;
        let chain = socket.stock[socket.stocked];
        // It was in the VM's RAM when it was taken in, and RAM stays RAM.
        let Some(pieces) = broker_pieces(vm, chain.writable()) else { continue };
        socket.offered |= 1u64.checked_shl(chain.head.into()).unwrap_or(0);
        link.service.partition.port(vm.index()).offer(chain.head, &pieces);
        lent += 1;
    }
    lent
}

/// Writes a control packet into a buffer and returns it to the driver.
fn give(
    socket: &mut Socket,
    chain: &Chain,
    header: &Header,
    memory: &mut Memory<'_>,
) -> Result<(), Broken> {
    let bytes = header.to_bytes();
    let mut rest = bytes.as_slice();
    for segment in chain.writable() {
        let len = rest.len().min(segment.len as usize);
        let (now, later) = rest.split_at(len);
        memory.write(segment.address, now)?;
        rest = later;
    }
    if let Some(queue) = socket.transport.queue(RX) {
        queue.push(memory, chain.head, HEADER_LEN as u32)?;
    }
    Ok(())
}

/// Passes a control packet to the VM that it is for. Gives the answer if there is nobody.
pub(super) fn deliver(header: &Header, peephole: &mut Peephole) -> Option<Header> {
    let index = header.dst_cid.vm().and_then(|index| usize::try_from(index).ok());
    let Some(vm) = index.and_then(|index| vm::all().nth(index)) else { return header.refusal() };
    let mut socket = vm.socket.lock();
    if socket.transport.queue(RX).is_none() {
        return header.refusal();
    }
    if let Some(last) = socket.stocked.checked_sub(1) {
        let chain = socket.stock[last];
        socket.stocked = last;
        let mut memory = Memory::new(vm.view(), peephole);
        if give(&mut socket, &chain, header, &mut memory).is_err() {
            socket.transport.break_down();
        }
        let _ = raise(vm, &mut socket, peephole);
    } else if socket.waits < WAITING {
        let place = socket.waits;
        socket.waiting[place] = *header;
        socket.waits += 1;
    } else {
        // Its own driver returns no buffers: what is lost is lost to it.
        vm.count_denial(Denial::Virtio);
    }
    None
}
