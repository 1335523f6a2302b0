//! The attacks. Each returns its result, which the guest prints if it survives; many never return.
//!
//! Where stage 1 would stop an attempt before the hypervisor sees it (execution of device memory,
//! vectors in nowhere), the attack turns the guest's MMU off first.

use core::arch::asm;
use weir_guest::{
    Board, BoardGic,
    gic::{self, SgiTarget},
    hypercall, mmio, mmu, psci,
};

/// An access that a VM must not be able to make, or must not gain from.
pub struct Attack {
    pub name: &'static str,
    pub execute: fn(&Board) -> u64,
}

/// Nothing is here on QEMU's `virt` machine, hence nothing on a virtual board.
const NOWHERE: u64 = 0x0b00_0000;
/// Address 2^40 - 16 MiB: what a Cortex-A53 can address at most, and no board has.
const HIGH: u64 = 0xff_ff00_0000;
const PL031: u64 = 0x0901_0000;
const ITS: u64 = 0x0808_0000;
/// GICv2's virtual interface control (GICH), which a hypervisor keeps for itself.
const GICH: u64 = 0x0803_0000;

/// In the order of execution.
pub const ATTACKS: &[Attack] = &[
    Attack { name: "read below its memory", execute: |b| read(b.ram.base.wrapping_sub(0x1000)) },
    Attack { name: "write below its memory", execute: |b| write(b.ram.base.wrapping_sub(0x1000)) },
    Attack { name: "read above its memory", execute: |b| read(b.ram.end()) },
    Attack { name: "write above its memory", execute: |b| write(b.ram.end()) },
    Attack { name: "read another VM's memory", execute: |b| read(victim(b)) },
    Attack { name: "write another VM's memory", execute: |b| write(victim(b)) },
    Attack { name: "read the hypervisor's memory", execute: |b| read(hypervisor(b)) },
    Attack { name: "write the hypervisor's memory", execute: |b| write(hypervisor(b)) },
    Attack { name: "page tables in another VM's memory", execute: foreign_page_tables },
    Attack { name: "wild SMC numbers", execute: |_| wild_calls(smc) },
    Attack { name: "wild HVC numbers", execute: |_| wild_calls(hvc) },
    Attack { name: "SMC and HVC with wild immediates", execute: |_| wild_immediates() },
    Attack { name: "read a device that is not there", execute: |_| read(NOWHERE) },
    Attack { name: "write a device that is not there", execute: |_| write(NOWHERE) },
    Attack { name: "read a clock that was not granted", execute: |_| read(PL031) },
    Attack { name: "write a clock that was not granted", execute: |_| write(PL031) },
    Attack { name: "another core's interrupt controller", execute: foreign_interrupt_controller },
    Attack { name: "the interrupt translation service", execute: |_| write(ITS) },
    Attack { name: "performance monitor registers", execute: |_| performance_monitors() },
    Attack { name: "debug registers", execute: |_| debug_registers() },
    Attack { name: "cache operations by set and way", execute: |_| set_way() },
    Attack { name: "implementation defined registers", execute: |_| implementation_defined() },
    Attack { name: "registers of EL2 and EL3", execute: |_| higher_levels() },
    Attack { name: "undefined instruction, vectors in nowhere", execute: |_| undefined() },
    Attack { name: "jump to a high address", execute: |_| jump(HIGH) },
    Attack { name: "jump to address 0", execute: |_| jump(0) },
    Attack { name: "jump to a device that is not there", execute: |_| jump(NOWHERE) },
    Attack { name: "execute device memory", execute: |b| jump(b.uart.base) },
    Attack { name: "load exclusive from nowhere", execute: |_| load_exclusive(NOWHERE) },
    Attack { name: "load pair from nowhere", execute: |_| load_pair(NOWHERE) },
    Attack { name: "store pair to nowhere", execute: |_| store_pair(NOWHERE) },
    Attack { name: "load pair from the distributor", execute: |b| load_pair(b.gic.gicd()) },
    Attack {
        name: "store with writeback to the distributor",
        execute: |b| writeback(b.gic.gicd()),
    },
    Attack { name: "DC ZVA on nowhere", execute: |_| zero_line(NOWHERE) },
    Attack { name: "DC CIVAC on nowhere", execute: |_| clean_line(NOWHERE) },
    Attack { name: "stack overflow, vectors in nowhere", execute: stack_overflow },
    Attack { name: "SGIs to every affinity", execute: wild_sgis },
    Attack { name: "all of the distributor with ones", execute: distributor_with_ones },
    Attack { name: "all of the distributor, wrong sizes", execute: distributor_wrong_sizes },
    Attack { name: "all of the core's own interface with ones", execute: own_interface_with_ones },
    Attack { name: "CPU_ON with wild arguments", execute: wild_cpu_on },
];

fn victim(board: &Board) -> u64 {
    outside(board, board.args.number("victim", 0x5000_0000))
}

fn hypervisor(board: &Board) -> u64 {
    outside(board, board.args.number("hypervisor", 0x7ff0_0000))
}

/// `address`, or one well above the guest's memory where the guest has that address itself.
fn outside(board: &Board, address: u64) -> u64 {
    let own = board.ram.base..board.ram.end();
    if own.contains(&address) { board.ram.end() + 0x1000_0000 } else { address }
}

/// Returns 0 where the load becomes an exception of the guest's own.
fn read(address: u64) -> u64 {
    let mut value = 0;
    // SAFETY: by the hypervisor's promise a load harms no VM.
    unsafe {
        asm!("ldr {value:w}, [{address}]", value = inout(reg) value, address = in(reg) address);
    };
    value
}

fn write(address: u64) -> u64 {
    // SAFETY: not at all: that the store has no effect is what is put to the test.
    unsafe { mmio::write32(address, 0xdead_beef) };
    read(address)
}

fn foreign_page_tables(board: &Board) -> u64 {
    // SAFETY: if this is let through, the guest has no memory any more.
    unsafe {
        asm!(
            "msr ttbr0_el1, {tables}",
            "isb",
            "tlbi vmalle1",
            "dsb sy",
            "isb",
            tables = in(reg) victim(board),
        );
    }
    0
}

fn smc(function: u64) -> u64 {
    let answer;
    // SAFETY: a call that must be refused; all that the convention lets it change is named.
    unsafe { asm!("smc #0", inout("x0") function => answer, clobber_abi("C")) };
    answer
}

fn hvc(function: u64) -> u64 {
    let answer;
    // SAFETY: as in `smc`.
    unsafe { asm!("hvc #0", inout("x0") function => answer, clobber_abi("C")) };
    answer
}

/// All owners but PSCI's and weir's, fast and yielding, both widths, some numbers of each, and
/// numbers that use bits 32 and up. Returns how many were answered other than by "not supported".
fn wild_calls(call: fn(u64) -> u64) -> u64 {
    const PSCI: u64 = 4;
    const WEIR: u64 = 6;
    let mut answered = 0;
    for kind in 0..4 {
        for owner in (0..64).filter(|&owner| owner != PSCI && owner != WEIR) {
            for number in [0, 1, 2, 0x1f, 0xff00, 0xff01, 0xff03, 0xffff] {
                let function = kind << 30 | owner << 24 | number;
                answered += u64::from(call(function) as u32 != u32::MAX);
            }
        }
    }
    for function in [1 << 32, u64::MAX, 0xdead_beef_dead_beef] {
        answered += u64::from(call(function) as u32 != u32::MAX);
    }
    answered
}

fn wild_immediates() -> u64 {
    let mut answer: u64 = 0xdead;
    // SAFETY: as in `smc`.
    unsafe { asm!("smc #1", inout("x0") answer, clobber_abi("C")) };
    // SAFETY: as in `smc`.
    unsafe { asm!("smc #0xffff", inout("x0") answer, clobber_abi("C")) };
    // SAFETY: as in `smc`.
    unsafe { asm!("hvc #1", inout("x0") answer, clobber_abi("C")) };
    // SAFETY: as in `smc`.
    unsafe { asm!("hvc #0xffff", inout("x0") answer, clobber_abi("C")) };
    answer
}

/// The redistributor after the guest's last one, or GICv2's virtual interface control.
fn foreign_interrupt_controller(board: &Board) -> u64 {
    match board.gic {
        BoardGic::V3 { gicr, .. } => {
            write(gicr.base + board.cores().len() as u64 * 0x2_0000 + 0x1_0100)
        }
        BoardGic::V2 { .. } => write(GICH),
    }
}

macro_rules! write_register {
    ($name:literal, $value:expr) => {
        // SAFETY: a register that the hypervisor must keep from the guest or to the guest alone.
        unsafe { asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) $value) }
    };
}

macro_rules! read_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: as in `write_register`. Where the read fails, the value is 0.
        unsafe { asm!(concat!("mrs {}, ", $name), inout(reg) 0_u64 => value) };
        value
    }};
}

fn performance_monitors() -> u64 {
    write_register!("pmcr_el0", 0x7_u64);
    write_register!("pmintenclr_el1", 0xffff_ffff_u64);
    write_register!("pmovsclr_el0", 0xffff_ffff_u64);
    write_register!("pmcntenclr_el0", 0xffff_ffff_u64);
    for counter in 0_u64..32 {
        write_register!("pmselr_el0", counter);
        write_register!("pmxevtyper_el0", 0x11_u64);
        write_register!("pmxevcntr_el0", 0_u64);
    }
    write_register!("pmccntr_el0", 0_u64);
    write_register!("pmccfiltr_el0", 0x0800_0000_u64);
    write_register!("pmevcntr0_el0", 0xffff_fff0_u64);
    write_register!("pmuserenr_el0", 0xf_u64);
    write_register!("pmcntenset_el0", 0xffff_ffff_u64);
    write_register!("pmintenset_el1", 0xffff_ffff_u64);
    read_register!("pmccntr_el0")
}

fn debug_registers() -> u64 {
    write_register!("oslar_el1", 0_u64);
    write_register!("osdlr_el1", 0_u64);
    write_register!("dbgbvr0_el1", NOWHERE);
    write_register!("dbgbcr0_el1", 0x21e7_u64);
    write_register!("dbgwvr0_el1", NOWHERE);
    write_register!("dbgwcr0_el1", 0x1fff_u64);
    write_register!("dbgprcr_el1", 1_u64);
    write_register!("dbgclaimset_el1", 0xff_u64);
    write_register!("mdscr_el1", 0xa000_u64);
    write_register!("oslar_el1", 1_u64);
    read_register!("mdscr_el1")
}

/// 256 sets of 4 ways of the first two levels, each invalidated, cleaned, and both.
fn set_way() -> u64 {
    for way in 0_u64..4 {
        for set in 0_u64..256 {
            for level in 0_u64..2 {
                // Cortex-A53 L1: 4 ways (bits 31:30), 64-byte lines (bit 6 up).
                let which = way << 30 | set << 6 | level << 1;
                // Cleaned before it is invalidated: if all are carried out, the guest itself has
                // lost nothing and continues.
                // SAFETY: no data is lost by cleaning.
                unsafe { asm!("dc csw, {}", in(reg) which) };
                // SAFETY: as above.
                unsafe { asm!("dc cisw, {}", in(reg) which) };
                // SAFETY: what was dirty has just been cleaned; interrupts are masked.
                unsafe { asm!("dc isw, {}", in(reg) which) };
            }
        }
    }
    0
}

fn implementation_defined() -> u64 {
    let mut read = 0;
    read |= read_register!("S3_1_C15_C2_0"); // CPUACTLR_EL1
    read |= read_register!("S3_1_C15_C2_1"); // CPUECTLR_EL1
    read |= read_register!("S3_1_C15_C2_2"); // CPUMERRSR_EL1
    read |= read_register!("S3_1_C15_C2_3"); // L2MERRSR_EL1
    read |= read_register!("S3_1_C11_C0_2"); // L2CTLR_EL1
    read |= read_register!("S3_1_C11_C0_3"); // L2ECTLR_EL1
    read |= read_register!("S3_1_C15_C0_0"); // L2ACTLR_EL1
    read |= read_register!("S3_3_C15_C0_0");
    read |= read_register!("actlr_el1");
    write_register!("S3_1_C15_C2_0", u64::MAX);
    write_register!("S3_1_C15_C2_1", 0_u64);
    write_register!("S3_1_C11_C0_2", 0_u64);
    write_register!("S3_1_C11_C0_3", 0_u64);
    write_register!("S3_1_C15_C0_0", u64::MAX);
    write_register!("S3_3_C15_C0_0", u64::MAX);
    write_register!("actlr_el1", u64::MAX);
    read
}

fn higher_levels() -> u64 {
    let mut read = 0;
    read |= read_register!("hcr_el2");
    read |= read_register!("vttbr_el2");
    read |= read_register!("S3_4_C12_C11_0"); // ICH_HCR_EL2
    read |= read_register!("cnthctl_el2");
    read |= read_register!("S3_6_C1_C1_0"); // SCR_EL3
    write_register!("hcr_el2", 0_u64);
    write_register!("vttbr_el2", 0_u64);
    write_register!("vbar_el2", NOWHERE);
    write_register!("S3_4_C12_C11_0", 0_u64);
    write_register!("cntvoff_el2", u64::MAX);
    write_register!("S3_6_C1_C1_0", 0_u64);
    // SAFETY: undefined at EL1: an exception return to where a hypervisor left off.
    unsafe { asm!("tlbi alle1", "tlbi vmalls12e1") };
    read
}

/// Turns stage 1 off and sends exceptions to where there is nothing.
fn break_vectors() {
    // SAFETY: this guest runs on one core, and does not come back from here.
    unsafe { mmu::disable() };
    write_register!("vbar_el1", NOWHERE);
}

fn undefined() -> u64 {
    break_vectors();
    // SAFETY: raises an exception that nothing can take.
    unsafe { asm!("udf #0") };
    0
}

fn jump(address: u64) -> u64 {
    // SAFETY: this guest runs on one core.
    unsafe { mmu::disable() };
    // SAFETY: leads nowhere; if the exception comes back to EL1, `go_on` returns to after the jump.
    unsafe { asm!("blr {}", in(reg) address, clobber_abi("C")) };
    0
}

fn load_exclusive(address: u64) -> u64 {
    let mut value = 0;
    // SAFETY: a load.
    unsafe {
        asm!(
            "ldxr {value:w}, [{address}]",
            "clrex",
            value = inout(reg) value,
            address = in(reg) address,
        );
    }
    value
}

fn load_pair(address: u64) -> u64 {
    let mut value = 0;
    // SAFETY: a load.
    unsafe {
        asm!(
            "ldp {value}, {other}, [{address}]",
            value = inout(reg) value,
            other = out(reg) _,
            address = in(reg) address,
        );
    }
    value
}

fn store_pair(address: u64) -> u64 {
    // SAFETY: see `write`.
    unsafe { asm!("stp {address}, {address}, [{address}]", address = in(reg) address) };
    0
}

fn writeback(address: u64) -> u64 {
    let after;
    // SAFETY: see `write`.
    unsafe { asm!("str wzr, [{address}], #4", address = inout(reg) address => after) };
    after
}

fn zero_line(address: u64) -> u64 {
    // SAFETY: see `write`.
    unsafe { asm!("dc zva, {}", in(reg) address) };
    0
}

fn clean_line(address: u64) -> u64 {
    // SAFETY: cleans a line that the guest does not have.
    unsafe { asm!("dc civac, {}", "dsb sy", in(reg) address) };
    0
}

fn stack_overflow(board: &Board) -> u64 {
    break_vectors();
    // SAFETY: pushes on a stack that ends where the memory does; nothing after it is reached.
    unsafe {
        asm!(
            "mov sp, {bottom}",
            "2: stp x0, x1, [sp, #-16]!",
            "b 2b",
            bottom = in(reg) board.ram.base,
            options(noreturn),
        );
    }
}

fn wild_sgis(board: &Board) -> u64 {
    if let BoardGic::V2 { gicd, .. } = board.gic {
        for filter in 0..4 {
            for sgi in 0..16 {
                // SAFETY: sends SGIs to all that the distributor lets this guest reach.
                unsafe { mmio::write32(gicd.base + 0xf00, filter << 24 | 0xff << 16 | sgi) };
            }
        }
        return 0;
    }
    for affinity in 0..256 {
        for range in [0, 1, 15] {
            for place in [16, 32, 48] {
                gic::send_raw(affinity << place | range << 44 | 7 << 24 | 0xffff);
            }
        }
    }
    let others = gic::sgi1r(15, SgiTarget::Others);
    gic::send_raw(others);
    write_register!("S3_0_C12_C11_6", others); // ICC_ASGI1R_EL1
    write_register!("S3_0_C12_C11_7", others); // ICC_SGI0R_EL1
    0
}

/// The distributor's size in bytes.
fn distributor_size(board: &Board) -> u64 {
    match board.gic {
        BoardGic::V2 { .. } => 0x1000,
        BoardGic::V3 { .. } => 0x1_0000,
    }
}

fn distributor_with_ones(board: &Board) -> u64 {
    for offset in (0..distributor_size(board)).step_by(4) {
        // SAFETY: the distributor does not touch this guest's memory; interrupts are masked.
        unsafe { mmio::write32(board.gic.gicd() + offset, u32::MAX) };
    }
    read(board.gic.gicd())
}

/// Bytes, and doublewords that straddle registers.
fn distributor_wrong_sizes(board: &Board) -> u64 {
    let mut sum = 0;
    for offset in (0..distributor_size(board)).step_by(8) {
        let address = board.gic.gicd() + offset;
        // SAFETY: as in `distributor_with_ones`.
        sum |= u64::from(unsafe { mmio::read8(address + 1) });
        // SAFETY: as above.
        unsafe { mmio::write8(address + 3, 0xff) };
        // SAFETY: as above.
        sum |= unsafe { mmio::read64(address) };
        // SAFETY: as above.
        unsafe { mmio::write64(address, u64::MAX) };
    }
    sum
}

fn own_interface_with_ones(board: &Board) -> u64 {
    let (base, size) = match board.gic {
        BoardGic::V2 { gicc, .. } => (gicc.base, 0x1000),
        BoardGic::V3 { gicr, .. } => (gicr.base, 0x2_0000),
    };
    for offset in (0..size).step_by(4) {
        // SAFETY: as in `distributor_with_ones`.
        unsafe { mmio::write32(base + offset, u32::MAX) };
    }
    read(base)
}

/// Cores that do not exist, this core, and, if there is a second one, an entry point in nowhere.
fn wild_cpu_on(board: &Board) -> u64 {
    let mut accepted = 0;
    for mpidr in (0..256).map(|n| (0x80 + n) << 8).chain([u64::MAX, 1 << 63, 0xff_0000_0000]) {
        accepted += u64::from(cpu_on(mpidr, board.ram.base) == 0);
    }
    accepted += u64::from(cpu_on(board.cores()[0], NOWHERE) == 0);
    if let Some(&second) = board.cores().get(1) {
        for entry in [u64::MAX, board.ram.base + 1, HIGH, NOWHERE] {
            accepted += u64::from(cpu_on(second, entry) == 0);
        }
    }
    accepted
}

fn cpu_on(mpidr: u64, entry: u64) -> i64 {
    hypercall::call(psci::PSCI_CPU_ON_64, [mpidr, entry, 0])
}
