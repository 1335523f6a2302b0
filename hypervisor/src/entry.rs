//! The entry points of EL2: the start of each core, and the exception vectors.

use crate::{
    arch::memory,
    board, boot, halt, uart,
    vcpu::{irq, run, traps},
};
use core::arch::global_asm;

global_asm!(include_str!("arch/copy.s"));

global_asm!(
    include_str!("arch/boot.s"),
    // `weir run` reads the name from the image's first page.
    concat!(".asciz \"weir board: ", env!("WEIR_BOARD_NAME"), "\""),
    stage1 = sym memory::STAGE1,
    boot_tables = const memory::BOOT_TABLES,
    boot_main = sym boot::boot_main,
    boot_moved = sym boot::boot_moved,
    secondary_main = sym boot::secondary_main,
    code = const weir_paging::table::stage1::CODE.page(0),
    read = const weir_paging::table::stage1::READ.page(0),
    read_write = const weir_paging::table::stage1::READ_WRITE.page(0),
    hyp_base = const memory::HYP_BASE,
    stack_size = const memory::STACK_SIZE,
    stack_guard = const memory::STACK_GUARD,
    max_cores = const weir_abi::MAX_CORES,
    mair = const memory::MAIR,
    tcr = const memory::TCR,
    sctlr = const memory::SCTLR,
    uart = const board::UART,
    uart_control = const uart::TURN_ON.0,
    uart_on = const uart::TURN_ON.1,
    uart_status = const uart::STATUS,
    uart_full = const uart::FULL_BIT,
    uart_data = const uart::DATA,
);

#[cfg(start = "spin-table")]
global_asm!(include_str!("arch/spin_table.s"));

/// The code of EL3 on a board without firmware.
#[cfg(starts_in_el3)]
mod el3 {
    use crate::board;
    use core::arch::global_asm;

    /// Bytes of the 16 EL3 vectors.
    const LEN: u64 = 0x800;
    /// The address that the EL3 code is copied to, behind the spin table.
    const ADDRESS: u64 = board::SPIN_TABLE_PAGE + LEN;

    global_asm!(
        include_str!("arch/el3.s"),
        // NS, RES1, SMD, HCE, RW, APK, API, FGTEn, HXEn.
        scr = const 0x40_0803_05b1_u64,
        counter = const board::COUNTER,
        gicd = const board::GICD,
        resident = const ADDRESS,
        resident_len = const LEN,
        behind_table = const ADDRESS - board::SPIN_TABLE,
    );
}

global_asm!(
    include_str!("arch/vectors.s"),
    handle_irq = sym irq::handle_irq,
    handle_sync = sym traps::handle_sync,
    handle_call = sym traps::handle_call,
    handle_register = sym traps::handle_register,
    handle_data_abort = sym traps::handle_data_abort,
    handle_serror = sym traps::handle_serror,
    handle_interrupt = sym run::handle_interrupt,
    handle_action = sym run::handle_action,
    own_exception = sym halt::own_exception,
);
