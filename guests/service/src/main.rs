//! The broker's VM: moves packets and frames by the core's own loads and stores, or by a DMA
//! engine. `weir-broker` decides. `weir build` adds this VM to every system with flows or a switch.

#![no_std]
#![no_main]

use broker_vm::engine;
use core::arch::asm;
use weir_broker::broker::{EngineFailed, Mover};
use weir_guest::{Board, entry, time};

entry!(main);

fn main(board: &'static Board) -> ! {
    broker_vm::serve(board, Core)
}

/// The core as the engine that moves bytes. Both VMs can write to these bytes during the copy.
struct Core;

impl Mover for Core {
    fn copy(&mut self, from: u64, to: u64, len: u64) {
        // SAFETY: both ranges were checked against the VMs' RAM, and stage 2 lets nothing else be
        // reached: what is not there ends the broker.
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
                "3: tbz {len}, #4, 4f",
                "ldp {a}, {b}, [{from}], #16",
                "stp {a}, {b}, [{to}], #16",
                "4: tbz {len}, #3, 5f",
                "ldr {a}, [{from}], #8",
                "str {a}, [{to}], #8",
                "5: tbz {len}, #2, 6f",
                "ldr {a:w}, [{from}], #4",
                "str {a:w}, [{to}], #4",
                "6: tbz {len}, #1, 7f",
                "ldrh {a:w}, [{from}], #2",
                "strh {a:w}, [{to}], #2",
                "7: tbz {len}, #0, 8f",
                "ldrb {a:w}, [{from}]",
                "strb {a:w}, [{to}]",
                "8:",
                from = inout(reg) from => _, to = inout(reg) to => _, len = inout(reg) len => _,
                a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                options(nostack),
            );
        }
    }

    fn move_by_engine(&mut self, from: u64, to: u64, len: u64) -> Result<(), EngineFailed> {
        engine::transfer(from, to, len, |from, to, len| self.copy(from, to, len))
    }

    fn ticks(&mut self) -> u64 {
        time::now()
    }
}
