//! The DMA engine that moves chunks of packets for the broker.
//!
//! The broker has no register of the engine, because with one it would reach all memory. It
//! requests, by hypercall, that bytes be moved between addresses of its own. EL2 translates these
//! page by page by the broker's tables at that moment, so the engine reaches what the broker's core
//! reaches, and nothing else. The engine's interrupt is assigned to the broker like that of a
//! device that a VM is given. A second hypercall ends the transfer.
//!
//! The lock is not held while the engine works; another start is refused until the transfer has
//! ended.

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

/// The state that EL2 keeps for the engine.
struct Engine {
    channel: Channel,
    /// The description of the transfer; the channel reads it if a side is in several places.
    descriptors: Descriptors,
    transfer: Transfer,
    /// Time since which the engine is being stopped for good, if it is.
    closing: Option<Nanos>,
}

/// Stops this core, because the engine may still write to the memory of its transfer. The core
/// keeps the lock that its caller holds, so each VM that is about to use that memory again waits
/// for it.
fn stuck() -> ! {
    notice::last_words(&[b"the DMA engine does not stop"])
}

static ENGINE: Lock<Engine> = Lock::new(Engine {
    channel: Channel,
    descriptors: Descriptors::new(Pa(0), ENGINE_IS_COHERENT),
    transfer: Transfer::none(ENGINE_LIMIT),
    closing: None,
});

/// The channel settings in the board file.
const SETTINGS: ChannelSettings = ChannelSettings {
    is_coherent: ENGINE_IS_COHERENT,
    burst: Burst::of(ENGINE_BURST),
    outstanding: ENGINE_OUTSTANDING,
};

fn is_used() -> bool {
    HAS_ENGINE && system::get().header.engine_from != NO_ENGINE
}

/// Sets the channel up. Called on the boot core, before it starts another core.
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

/// Has the firmware limit the engine's memory bandwidth, if the system sets a level. Called on the
/// boot core, before it starts another core. Returns the firmware's answer, with the syndrome of
/// the event that reports it. The broker's pacing does not depend on the answer.
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

/// Has the engine move `len` bytes from address `from` of the broker to `to`. Called on the
/// broker's core. Returns false if the caller is not the broker, if the engine is at work, or if it
/// must not move these bytes.
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
    // The stores of VMs and the broker complete before the store that starts the channel.
    dsb_sy();
    let started = weir_zdma::start(channel, descriptors, publish);
    if started.is_ok() {
        transfer.begin(Nanos(timer::now_ns()));
    }
    started.is_ok()
}

/// Returns the value for x0 of the hypercall, which states whether the engine has finished its
/// transfer; see [`Transfer::finish`]. Returns none if the caller is not the broker or has started
/// nothing.
#[inline(never)]
pub fn finish(vcpu_ref: &VcpuRef, gives_up: bool) -> Option<u64> {
    if !HAS_ENGINE || !vcpu_ref.vm.is_broker() {
        return None;
    }
    let mut engine = ENGINE.lock();
    let Engine { channel, transfer, .. } = &mut *engine;
    // The engine completes what it has begun. The broker waits for that, because while EL2 waited
    // nothing else could run on the core.
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

/// Closes the engine, because the broker has stopped or is stopping. Returns whether the engine,
/// which completes what it has begun, has stopped accessing memory. Does not wait: the caller calls
/// again after its core has taken interrupts.
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
