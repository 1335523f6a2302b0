//! The I/O service VM, also called the broker: the memory that EL2 shares with it, and how EL2
//! wakes it.

use super::engine;
use crate::{
    arch::{relax, set_once::SetOnce, timer},
    board::{ENGINE_IS_COHERENT, ENGINE_LINE},
    system,
    vm::{self, Vm, ending, virtual_gic::kick_some},
};
use core::sync::atomic::{AtomicBool, Ordering};
use weir_abi::{EXCHANGE_IPA, EXCHANGE_LEN, Features, WINDOWS};
use weir_exchange::{
    flows::{self, BrokerSettings, Doorbell, Exchange},
    switch as ports,
};
use weir_trace::wire::FaultKind;
use weir_units::Nanos;
use weir_vdev::gic::{Sgi, VcpuMask};

/// The most time on its core that a broker may need for an access that it has begun. A broker that
/// needs more is stopped.
const LONGEST_ACCESS: Nanos = Nanos(20_000_000);

/// The time on its core that the broker has to become ready, before the VMs in flows start without
/// it.
const LONGEST_START: Nanos = Nanos(100_000_000);

/// EL2's state of the broker: the exchange with it, and its progress.
pub struct Service {
    /// The exchange of the flows.
    pub exchange: &'static Exchange,
    /// The exchange of the switch.
    pub ports: &'static ports::SwitchExchange,
    /// The broker's index in the system.
    broker: usize,
    /// Upper bound on the time in ns within which the broker's core has given it
    /// [`LONGEST_ACCESS`].
    longest_access: u64,
    /// Upper bound on the time in ns within which the broker's core has given it [`LONGEST_START`].
    longest_start: u64,
    doorbell: Doorbell,
    /// Whether the broker has stopped.
    abandoned: AtomicBool,
}

static SERVICE: SetOnce<Service> = SetOnce::new();

const _: () = assert!(size_of::<Exchange>() as u64 <= ports::OFFSET);
const _: () = assert!(ports::OFFSET + size_of::<ports::SwitchExchange>() as u64 <= EXCHANGE_LEN);
const _: () = assert!(ports::OFFSET.is_multiple_of(align_of::<ports::SwitchExchange>() as u64));
const _: () = assert!(flows::ADDRESS == EXCHANGE_IPA);
const _: () = assert!(flows::ENGINE_LIMIT.0 == weir_abi::ENGINE_LIMIT);
const _: () = assert!(flows::WINDOWS.start == WINDOWS.start && flows::WINDOWS.end == WINDOWS.end);

/// Sets up the exchange with the broker: see [`super::init`].
pub fn init(address: u64) -> Option<&'static Service> {
    let system = system::get();
    // SAFETY: `memory::exchange` mapped EXCHANGE_LEN bytes there permanently, page-aligned and
    // zeroed; by the assertions above they suffice. The type consists of atomics, for which each
    // bit pattern is valid, and both sides access it only through atomics.
    let exchange: &'static Exchange = unsafe { &*(address as *const Exchange) };
    // SAFETY: as above; this part lies behind the exchange of the flows.
    let ports: &'static ports::SwitchExchange =
        unsafe { &*((address + ports::OFFSET) as *const ports::SwitchExchange) };
    let settings = BrokerSettings {
        flows: system.flows().len() as u8,
        chunk: u32::try_from(system.header.chunk).unwrap_or(u32::MAX),
        rate: system.header.rate,
        start: timer::base().1,
        engine_from: system.header.engine_from,
        engine_intid: ENGINE_LINE,
        engine_is_coherent: ENGINE_IS_COHERENT,
        engine_limit: Nanos(system.header.engine_limit),
    };
    let flows = system.flows().iter().map(|flow| flows::BrokerFlow {
        from: flow.from as u8,
        to: flow.to as u8,
        first: flow.first as u8,
        members: flow.members as u8,
        port: flow.port,
        destination: flow.destination(),
        size: flow.size,
        period: flow.period,
        deadline: flow.deadline,
        rate: flow.rate,
        burst: flow.burst(),
    });
    exchange.configure(&settings, flows);
    let broker = system.header.broker as usize;
    SERVICE.set(Service {
        exchange,
        ports,
        broker,
        longest_access: system.served(broker, LONGEST_ACCESS).0,
        longest_start: system.served(broker, LONGEST_START).0,
        doorbell: Doorbell::new(),
        abandoned: AtomicBool::new(false),
    });
    get()
}

/// Returns the state that EL2 shares with the broker, if the system has one.
pub fn get() -> Option<&'static Service> {
    if Features::BROKER.is_built() { SERVICE.get() } else { None }
}

/// Records that the broker has stopped.
pub fn abandon() {
    if let Some(service) = get() {
        // Relaxed: code for which the order matters also takes a lock.
        service.abandoned.store(true, Ordering::Relaxed);
    }
}

/// Returns the longest time in ns that the first start of `vm` waits for the broker; none if the VM
/// is in no flow, if the broker is ready, or if the broker has stopped.
pub fn wait_for_broker(vm: &Vm) -> Option<u64> {
    let service = get().filter(|_| vm.view().vm.vsock != 0)?;
    let waits = !service.exchange.is_ready() && !service.is_abandoned();
    waits.then_some(service.longest_start)
}

/// Returns the state that EL2 shares with the broker, if `vm` is the broker.
pub fn of(vm: &Vm) -> Option<&'static Service> {
    get().filter(|service| service.broker == vm.index())
}

impl Service {
    /// Returns whether the broker has stopped, so that no more packets or frames are moved.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Wakes the broker if it sleeps or is about to sleep. A broker that is working is not
    /// interrupted, so guests cannot delay it by notifications.
    pub fn wake(&self) {
        if !self.doorbell.must_ring(self.exchange) {
            return;
        }
        if let Some(broker) = vm::at(self.broker) {
            let sgi = Sgi { intid: flows::SGI, group1: true, targets: VcpuMask::only(0) };
            let mask = broker.sgis.post(0, sgi);
            if !mask.is_empty() {
                kick_some(broker, mask);
            }
        }
    }

    /// Returns whether the broker has stopped accessing the memory of a device that was reset;
    /// `is_busy` states that an access is under way. Does not wait: the caller calls again after
    /// its core has taken interrupts, in the time of the device's VM. Until then `reset` holds the
    /// time of the first call, in ns, and the device must publish no queue; so each access that is
    /// seen is the one that the first call saw. If the access takes too long, the broker is
    /// stopped.
    pub fn has_let_go(&self, reset: &mut Option<u64>, is_busy: bool) -> bool {
        let is_over = !is_busy
            || match vm::at(self.broker).filter(|broker| !broker.is_parked()) {
                Some(broker) => {
                    let now = timer::now_ns();
                    if now.saturating_sub(*reset.get_or_insert(now)) > self.longest_access {
                        ending::stop(broker, FaultKind::Stuck);
                    }
                    false
                }
                // A transfer that the broker has started does not end with the broker.
                None => engine::close(),
            };
        if is_over {
            *reset = None;
        } else {
            reset.get_or_insert_with(timer::now_ns);
            relax();
        }
        is_over
    }
}
