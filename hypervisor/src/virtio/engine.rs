//! The DMA engine that moves chunks of packets for the broker.
//!
//! The broker has no register of it: with one, it would reach all memory. It asks by hypercall for
//! bytes to be moved between addresses of its own, which EL2 translates by the broker's tables as
//! they are at that moment, page by page; so the engine reaches what the broker's core reaches, and
//! nothing else. The engine's interrupt is a line of the broker's, as that of a device that a VM is
//! given, and a second hypercall ends the transfer.
//!
//! Not locked while the engine works: another start is refused.

use crate::{
    arch::{
        dsb_sy,
        engine::{Channel, guest_ram, publish},
        lock::Lock,
        memory, relax, timer,
    },
    board::{ENGINE_BURST, ENGINE_IS_COHERENT, ENGINE_OUTSTANDING, ENGINE_PORT, HAS_ENGINE},
    notice, start as firmware, system,
    vm::VcpuRef,
};
use weir_abi::{ENGINE_CHUNK, NO_ENGINE};
use weir_exchange::flows::ENGINE_LIMIT;
use weir_trace::wire::{Denial, Regulator};
use weir_units::{Nanos, Pa};
use weir_vdev::smccc::{ENGINE_HAS_FAILED, ENGINE_IS_BUSY};
use weir_zdma::{
    Answer, Burst, ChannelSettings, Descriptors, FUNCTION, LONGEST, Outcome, Side, Transfer,
};

const _: () = assert!(LONGEST as u64 == ENGINE_CHUNK);

/// The engine, as EL2 keeps it.
struct Engine {
    channel: Channel,
    /// The transfer, where the channel reads it if a side is in several places.
    descriptors: Descriptors,
    transfer: Transfer,
    /// Since when it is to stop for good, if it is.
    closing: Option<Nanos>,
}

/// The engine may still write to the memory of its transfer. This core stops, and keeps the lock
/// that its caller has: each VM waits for it that is about to use that memory again.
fn stuck() -> ! {
    notice::last_words(&[b"the DMA engine does not stop"])
}

static ENGINE: Lock<Engine> = Lock::new(Engine {
    channel: Channel,
    descriptors: Descriptors::new(Pa(0), ENGINE_IS_COHERENT),
    transfer: Transfer::none(ENGINE_LIMIT),
    closing: None,
});

/// As the board file says.
const SETTINGS: ChannelSettings = ChannelSettings {
    is_coherent: ENGINE_IS_COHERENT,
    burst: Burst::of(ENGINE_BURST),
    outstanding: ENGINE_OUTSTANDING,
};

fn is_used() -> bool {
    HAS_ENGINE && system::get().header.engine_from != NO_ENGINE
}

/// Sets the channel up; on the boot core, before another starts.
pub fn init() {
    if !is_used() {
        return;
    }
    let mut engine = ENGINE.lock();
    let at = memory::physical(core::ptr::from_ref(&engine.descriptors) as u64);
    engine.descriptors.set_address(at);
    if let Err(error) = weir_zdma::init(&mut engine.channel, SETTINGS) {
        notice::refuse(&[b"the DMA engine of this board can't be used: ", error.text().as_bytes()]);
    }
}

/// Has the firmware limit what the engine reads and writes, if the system sets a level; on the boot
/// core, before another starts. Returns its answer, with the syndrome of the event that reports it.
/// The broker's pacing does not depend on the answer.
pub fn regulate() -> Option<(Regulator, u64)> {
    let level = system::get().header.engine_level;
    if !is_used() || level == 0 {
        return None;
    }
    Some(match limit(level) {
        Answer::Set => (Regulator::Set, level),
        Answer::Absent => (Regulator::Absent, 0),
        Answer::Version(version) => (Regulator::Version, version.into()),
        Answer::Refused(error) => (Regulator::Refused, error),
    })
}

/// Has the firmware limit the engine to `level`; see [`weir_zdma::regulate`].
fn limit(level: u64) -> Answer {
    weir_zdma::regulate(ENGINE_PORT, level, |arguments| firmware::sip(FUNCTION, arguments))
}

/// Has the engine move `len` bytes from address `from` of the broker's to `to`, on the broker's
/// core. Returns false if the caller is not the broker, if the engine is at work, or if it must not
/// move these bytes.
#[inline(never)]
pub fn start(vcpu_ref: &VcpuRef, from: u64, to: u64, len: u64) -> bool {
    if !is_used() || !vcpu_ref.vm.is_broker() {
        return false;
    }
    let mut engine = ENGINE.lock();
    if engine.transfer.is_busy() {
        return false;
    }
    let Some(len) = u32::try_from(len).ok().filter(|len| *len <= LONGEST) else { return false };
    let Engine { channel, descriptors, transfer, .. } = &mut *engine;
    descriptors.clear();
    let described = guest_ram(|ram| {
        let read = |address| ram.translate(address, false);
        descriptors.push_translated(Side::Source, from, len, read)?;
        descriptors
            .push_translated(Side::Destination, to, len, |address| ram.translate(address, true))
    });
    if described.is_none() {
        return false;
    }
    // What VMs and broker have stored, before the store that starts the channel.
    dsb_sy();
    let started = weir_zdma::start(channel, descriptors, publish);
    if started.is_ok() {
        transfer.begin(Nanos(timer::now_ns()));
    }
    started.is_ok()
}

/// Returns in x0 of the hypercall whether the engine has moved what it was to move; see
/// [`Transfer::finish`]. Returns none if the caller is not the broker or has started nothing.
#[inline(never)]
pub fn finish(vcpu_ref: &VcpuRef, gives_up: bool) -> Option<u64> {
    if !HAS_ENGINE || !vcpu_ref.vm.is_broker() {
        return None;
    }
    let mut engine = ENGINE.lock();
    let Engine { channel, transfer, .. } = &mut *engine;
    // It completes what it has begun, for which the caller waits: at EL2 nothing else would run.
    let bits = match transfer.finish(channel, gives_up, Nanos(timer::now_ns()))? {
        Outcome::Done => return Some(0),
        Outcome::Busy => return Some(ENGINE_IS_BUSY),
        Outcome::Failed(bits) => bits,
        Outcome::Stuck => stuck(),
    };
    drop(engine);
    vcpu_ref.vm.deny(vcpu_ref.vcpu, Denial::Engine, bits.into());
    Some(ENGINE_HAS_FAILED)
}

/// The broker has stopped, or stops, and with it the engine. Returns whether the engine, which
/// completes what it has begun, accesses no memory any more. Does not wait: the caller asks again
/// after its core has taken interrupts.
pub fn close() -> bool {
    if !HAS_ENGINE {
        return true;
    }
    let mut engine = ENGINE.lock();
    let now = Nanos(timer::now_ns());
    let Engine { channel, transfer, closing, .. } = &mut *engine;
    let since = *closing.get_or_insert(now);
    match transfer.close(channel, since, now) {
        Outcome::Busy => {
            relax();
            return false;
        }
        Outcome::Stuck => stuck(),
        Outcome::Done | Outcome::Failed(_) => {}
    }
    *closing = None;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::machine::{recorded, set_next};

    #[test]
    fn the_firmware_is_asked_once_it_said_its_version() {
        let version = "smc 0xc2002000 0x7765697200000000";
        assert_eq!(limit(40), Answer::Absent, "-1");
        assert_eq!(recorded(), [version]);
        set_next("smc 0xc2002000", &[0x7765_6972_0001_0000, 0]);
        assert_eq!(limit(40), Answer::Set);
        let level = format!("smc 0xc2002000 0x7765697200000001 {ENGINE_PORT:#x} 0x28 0x28");
        assert_eq!(recorded(), [version, &level]);
    }
}
