//! From `aarch64-rt`'s entry to the guest's main function.

use crate::{Board, console, cpu, mmu, println, psci};
use core::panic::PanicInfo;
use spin::once::Once;

static BOARD: Once<Board, crate::YieldingWait> = Once::new();

unsafe extern "C" {
    /// Start of RAM by the linker script.
    safe static __dtb_default: u8;
}

/// The magic number that a flattened device tree starts with, as its bytes.
const MAGIC: [u8; 4] = [0xd0, 0x0d, 0xfe, 0xed];

/// The board; known before main.
///
/// # Panics
///
/// Before the runtime has read it.
#[must_use]
pub fn board() -> &'static Board {
    BOARD.get().expect("the board is read before main")
}

/// Reads the device tree, turns on MMU and console and enters the guest.
#[doc(hidden)]
pub fn start(dtb: u64, main: fn(&'static Board) -> !) -> ! {
    // QEMU leaves x0 zero for an ELF file and puts the tree at the start of RAM.
    let dtb = if dtb == 0 { &raw const __dtb_default } else { dtb as *const u8 };
    // SAFETY: x0 or the boot protocol say that the tree is there; its header is 40 bytes.
    let header = unsafe { core::slice::from_raw_parts(dtb, 40) };
    // Nothing can be printed yet: a guest without a device tree stops here, visible in a debugger.
    assert!(header.starts_with(&MAGIC), "no device tree");
    let size = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    // SAFETY: the tree's header gives its size; nothing writes to it while the guest runs.
    let blob = unsafe { core::slice::from_raw_parts(dtb, size as usize) };
    let board = Board::from_dtb(blob).expect("a usable device tree");
    // SAFETY: the boot core comes here once, before any other runs; the image is in RAM.
    unsafe { mmu::init(board.ram) };
    let board = BOARD.call_once(|| board);
    // SAFETY: once; the device tree says that a PL011 is there, and it is mapped as device memory.
    unsafe { console::init(board.uart.base) };
    cpu::set_index(board.core_of_mpidr(cpu::mpidr()).expect("the boot core is in the device tree"));
    main(board)
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    cpu::mask_interrupts();
    if BOARD.is_completed() {
        // SAFETY: in a panic.
        unsafe { console::break_lock() };
        println!("panic: {info}");
        psci::system_off();
    }
    loop {
        cpu::wait_for_interrupt();
    }
}
