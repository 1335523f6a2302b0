//! Executes one attack per boot, in the order of the list; the other VMs must not be affected.
//!
//! Boot n (from 0, the restart count that weir keeps) announces `attacker: attack N: NAME` with
//! N = n + 1 and executes attack n of [`attacks::ATTACKS`]. A fault ends the boot;
//! where it does not (a call was refused, an access was ignored or became an exception of the
//! guest's own), the guest prints `attacker: survived: ...` and asks for SYSTEM_RESET. The boot after
//! the last attack prints `attacker: all N attacks executed` and powers off.
//!
//! Arguments: `attack=N` executes that attack in every boot; `victim=ADDRESS` is where another VM is
//! supposed to be (0x50000000), `hypervisor=ADDRESS` where weir is (0x7ff00000), both physical;
//! `wait_ms=N` sleeps so long in each life before its attack.
//!
//! Run it with `on_fault = "restart"`. It takes no interrupts; on QEMU without weir each boot is the
//! first, and the attacks that break the vectors hang.

#![no_std]
#![no_main]

mod attacks;

use attacks::ATTACKS;
use core::sync::atomic::{AtomicU64, Ordering};
use weir_guest::{
    Board, cpu, entry,
    exceptions::{self, Sync},
    gic, hypercall, println, psci, time,
};

entry!(main);

/// Exceptions that this EL took itself, and the syndrome of the last.
static EXCEPTIONS: AtomicU64 = AtomicU64::new(0);
static SYNDROME: AtomicU64 = AtomicU64::new(0);

/// Sleeps with interrupts masked: the timer's ends WFI all the same.
fn sleep(board: &Board, milliseconds: u64) {
    gic::init(|_| {});
    gic::enable(board.virtual_timer);
    let end = time::now() + time::ns_to_ticks(milliseconds * 1_000_000, time::frequency());
    time::arm(end);
    while time::now() < end {
        cpu::wait_for_interrupt();
    }
    time::disarm();
}

fn main(board: &'static Board) -> ! {
    exceptions::on_sync(go_on);
    let count = ATTACKS.len() as u64;
    let next = match board.args.number("attack", 0) {
        0 => hypercall::restarts(),
        chosen => chosen - 1,
    };
    let Some(attack) = ATTACKS.get(next as usize) else {
        println!("attacker: all {count} attacks executed");
        psci::system_off()
    };
    cpu::mask_interrupts();
    sleep(board, board.args.number("wait_ms", 0));
    println!("attacker: attack {}: {}", next + 1, attack.name);
    let answer = (attack.execute)(board);
    let exceptions = EXCEPTIONS.load(Ordering::Relaxed);
    let syndrome = SYNDROME.load(Ordering::Relaxed);
    println!(
        "attacker: survived: answer {answer:#x}, {exceptions} exceptions of its own, last syndrome \
         {syndrome:#x}"
    );
    psci::system_reset()
}

/// Goes on after the instruction that failed, or where a jump to nowhere would have returned to.
fn go_on(exception: Sync) -> u64 {
    unsafe extern "C" {
        safe static text_begin: u8;
        safe static text_end: u8;
    }
    EXCEPTIONS.fetch_add(1, Ordering::Relaxed);
    SYNDROME.store(exception.esr, Ordering::Relaxed);
    let text = (&raw const text_begin) as u64..(&raw const text_end) as u64;
    if text.contains(&exception.elr) { exception.elr + 4 } else { exception.lr }
}
