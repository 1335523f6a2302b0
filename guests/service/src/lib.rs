//! What a broker's VM does: it asks `weir-broker` what comes next, has it moved, and sleeps in WFI
//! while there is nothing to do. Flows come first; the switch has the time that they leave.

#![no_std]

mod access;
pub mod engine;

use access::CoreAccess;
use weir_broker::{
    broker::{Broker, Mover, Step, Store},
    switch::Switch,
};
use weir_exchange::{
    flows::{self, Exchange},
    switch,
};
use weir_guest::{
    Board, Mutex, cpu,
    gic::{self, Interrupt},
    hypercall, mmu, time,
};

/// What the broker keeps; locked once and for good.
static STORE: Mutex<Store> = Mutex::new(Store::new());

/// Sets memory and interrupts up, and returns the exchanges of the flows and of the switch.
// In a function of its own: a profile separates what runs once from what moves packets.
#[inline(never)]
fn begin(board: &'static Board) -> (&'static Exchange, &'static switch::SwitchExchange) {
    // SAFETY: the hypervisor maps the exchange and the windows there, as memory, and nothing else;
    // nothing has used them yet.
    unsafe {
        mmu::add_memory(flows::WINDOWS);
        mmu::add_memory(flows::ADDRESS..flows::ADDRESS + 1);
    }
    // SAFETY: the exchange of the flows is there for good, and behind it the switch's, all of
    // it atomics, which the hypervisor accesses as such, too.
    let exchanges: (&'static Exchange, &'static switch::SwitchExchange) =
        unsafe { (&*(flows::ADDRESS as *const Exchange), &*(switch::ADDRESS as *const _)) };
    gic::init(|interrupt: Interrupt| {
        if !engine::handle(interrupt) {
            time::disarm();
        }
    });
    gic::enable(flows::SGI.0);
    gic::enable(board.virtual_timer);
    engine::begin(&exchanges.0.settings());
    exchanges
}

/// Serves flows and switch for ever; `mover` moves the bytes of flows. Called once, first of all.
pub fn serve(board: &'static Board, mut mover: impl Mover) -> ! {
    let (exchange, ports) = begin(board);
    let mut store = STORE.lock();
    let mut broker = Broker::new(exchange, &mut store, time::frequency());
    let clock = broker.clock();
    let mut switch = Switch::new(ports);
    loop {
        let now = clock.ns(time::now());
        let background = |access: &mut CoreAccess| switch.step(now, access);
        match broker.step_before(now, &mut mover, &mut CoreAccess, background) {
            Step::Again => {}
            Step::Report(devices) => {
                let called = time::now();
                let inside = hypercall::complete(devices.to_word());
                broker.reported(called, time::now(), inside);
            }
            Step::Wait(until) => {
                if let Some(until) = until {
                    time::arm(clock.ticks(until));
                }
                cpu::wait_for_interrupt();
                // No exception, which would save and restore all registers.
                if cpu::has_interrupt() {
                    gic::dispatch();
                }
            }
        }
    }
}
