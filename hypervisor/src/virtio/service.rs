//! The I/O service VM, the broker: the memory that EL2 shares with it, and its wake-up.

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

/// How much of its core's time a broker may need for an access that was begun; one that needs more
/// is stopped.
const LONGEST_ACCESS: Nanos = Nanos(20_000_000);

/// How much of its core's time the broker has to become ready, before the VMs in flows start
/// without it.
const LONGEST_START: Nanos = Nanos(100_000_000);

/// The broker as EL2 sees it: the exchange with it, and its progress.
pub struct Service {
    /// The exchange of the flows.
    pub exchange: &'static Exchange,
    /// The exchange of the switch.
    pub ports: &'static ports::SwitchExchange,
    /// The broker's place in the system.
    broker: usize,
    /// In how many ns it has had [`LONGEST_ACCESS`], at the latest.
    longest_access: u64,
    /// In how many ns it has had [`LONGEST_START`], at the latest.
    longest_start: u64,
    doorbell: Doorbell,
    /// The broker has stopped.
    abandoned: AtomicBool,
}

static SERVICE: SetOnce<Service> = SetOnce::new();

const _: () = assert!(size_of::<Exchange>() as u64 <= ports::OFFSET);
const _: () = assert!(ports::OFFSET + size_of::<ports::SwitchExchange>() as u64 <= EXCHANGE_LEN);
const _: () = assert!(ports::OFFSET.is_multiple_of(align_of::<ports::SwitchExchange>() as u64));
const _: () = assert!(flows::ADDRESS == EXCHANGE_IPA);
const _: () = assert!(flows::ENGINE_LIMIT.0 == weir_abi::ENGINE_LIMIT);
const _: () = assert!(flows::WINDOWS.start == WINDOWS.start && flows::WINDOWS.end == WINDOWS.end);

/// Takes the broker in: see [`super::init`].
pub fn init(address: u64) -> Option<&'static Service> {
    let system = system::get();
    // SAFETY: `memory::exchange` gave EXCHANGE_LEN bytes there for good, which the assertions above
    // say is enough, page-aligned, all zeros; the type is atomics only, of which each bit pattern
    // is one, and both sides use it through atomics alone.
    let exchange: &'static Exchange = unsafe { &*(address as *const Exchange) };
    // SAFETY: as above, behind the exchange of the flows.
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

/// Returns what EL2 shares with the broker, if the system has one.
pub fn get() -> Option<&'static Service> {
    if Features::BROKER.is_built() { SERVICE.get() } else { None }
}

/// The broker has stopped.
pub fn abandon() {
    if let Some(service) = get() {
        // Relaxed: code to which the order matters also takes a lock.
        service.abandoned.store(true, Ordering::Relaxed);
    }
}

/// How long, in ns, the first start of `vm` waits for the broker at most; none if the VM is in no
/// flow, if the broker is ready, or if it has ended.
pub fn wait_for_broker(vm: &Vm) -> Option<u64> {
    let service = get().filter(|_| vm.view().vm.vsock != 0)?;
    let waits = !service.exchange.is_ready() && !service.is_abandoned();
    waits.then_some(service.longest_start)
}

/// Returns what EL2 shares with the broker, if `vm` is the broker.
pub fn of(vm: &Vm) -> Option<&'static Service> {
    get().filter(|service| service.broker == vm.index())
}

impl Service {
    /// Returns whether the broker has stopped, so that no packet or frame is moved any more.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Wakes the broker if it sleeps or is about to. A broker at work is not interrupted, so guests
    /// cannot delay it by notifications.
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

    /// Returns whether the broker accesses no memory any more of a device that was reset, which it
    /// does if `is_busy`. Does not wait: the caller asks again after its core has taken interrupts,
    /// in the time of the device's VM. Until then `reset` is when it first asked, in ns, and the
    /// device must publish no queue: so each access that is seen is the one of the first time. If
    /// that takes too long, the broker is stopped.
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
                // A transfer that it has started does not end with it.
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
