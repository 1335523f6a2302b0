//! The broker's VM: it moves the flows' packets by the core's own loads and stores, and sleeps in WFI while there is nothing to do.
//! What it decides is in `weir-broker`. `weir build` adds it to every system with flows.

#![no_std]
#![no_main]

use core::arch::asm;
use weir_broker::{
    broker::{Broker, Mover, Step},
    shared::{self, Partition},
};
use weir_guest::{
    Board, cpu, entry,
    gic::{self, Interrupt},
    hypercall, mmu, time,
};

entry!(main);

fn main(board: &'static Board) -> ! {
    // SAFETY: the hypervisor maps the partition and the windows there, as memory, and nothing else; nobody has used them yet.
    unsafe {
        mmu::add_memory(shared::WINDOWS);
        mmu::add_memory(shared::ADDRESS..shared::ADDRESS + 1);
    }
    // SAFETY: the partition is there for good, all of it atomics, which the hypervisor accesses as such, too.
    let partition: &'static Partition = unsafe { &*(shared::ADDRESS as *const Partition) };
    let start = partition.settings().start;
    let hertz = time::frequency();
    gic::init(|_: Interrupt| time::disarm());
    gic::enable(shared::SGI);
    gic::enable(board.virtual_timer);
    let mut broker = Broker::new(partition);
    loop {
        let now = time::ticks_to_ns(time::now().wrapping_sub(start), hertz);
        match broker.step(now, &mut Core) {
            Step::Again => {}
            Step::Tell => {
                let called = time::now();
                let inside = hypercall::complete();
                broker.told(called, time::now(), inside);
            }
            Step::Wait(until) => {
                if let Some(until) = until {
                    time::arm(start.wrapping_add(time::ns_to_ticks(until, hertz)));
                }
                // An interrupt that came since the last look is pending, and ends the wait at once.
                cpu::wait_for_interrupt();
                cpu::unmask_interrupts();
                cpu::mask_interrupts();
            }
        }
    }
}

/// The core as the engine that moves bytes. Both VMs may write what is moved meanwhile; it is moved all the same.
struct Core;

impl Mover for Core {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        // SAFETY: the hypervisor checked both ranges against the VMs' RAM, and stage 2 lets nothing else be reached: what is not there
        // ends the broker.
        unsafe {
            asm!(
                "2: subs {len}, {len}, #32",
                "b.lo 3f",
                "ldp {a}, {b}, [{from}]",
                "ldp {c}, {d}, [{from}, #16]",
                "add {from}, {from}, #32",
                "stp {a}, {b}, [{to}]",
                "stp {c}, {d}, [{to}, #16]",
                "add {to}, {to}, #32",
                "b 2b",
                "3: adds {len}, {len}, #32",
                "b.eq 5f",
                "4: ldrb {a:w}, [{from}], #1",
                "strb {a:w}, [{to}], #1",
                "subs {len}, {len}, #1",
                "b.ne 4b",
                "5:",
                from = inout(reg) from => _, to = inout(reg) to => _, len = inout(reg) len => _,
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                options(nostack),
            );
        }
    }

    fn write(&mut self, to: u64, bytes: &[u8]) {
        self.copy(bytes.as_ptr() as u64, to, bytes.len() as u64);
    }

    fn ticks(&mut self) -> u64 {
        time::now()
    }
}
