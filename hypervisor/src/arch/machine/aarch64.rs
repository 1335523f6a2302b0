//! The backend for boards.

use super::Width;
use crate::arch::{Frame, sysreg::par_el1};
use core::{arch::asm, arch::global_asm, ptr};
pub use smccc::Smc as Firmware;

/// Reads a system register. `$name` is its name in recordings; `$asm` is its name in the assembler.
macro_rules! mrs {
    ($name:expr, $asm:expr) => {{
        let value: u64;
        // SAFETY: reading a register of `sysreg` has no effect other than the one that its
        // documentation states.
        unsafe {
            core::arch::asm!(
                concat!("mrs {}, ", $asm),
                out(reg) value,
                options(nostack, preserves_flags)
            );
        }
        value
    }};
}

/// Writes a system register.
macro_rules! msr {
    ($name:expr, $asm:expr, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: the registers of `sysreg` configure what EL1 sees and the interrupt interface.
        // The registers that control EL2's own memory (SCTLR_EL2, TTBR0_EL2, TCR_EL2, MAIR_EL2,
        // VBAR_EL2) are not among them.
        unsafe {
            core::arch::asm!(
                concat!("msr ", $asm, ", {}"),
                in(reg) value,
                options(nostack, preserves_flags)
            );
        }
    }};
}

/// Writes to a system register of which only the ones that are written have an effect.
macro_rules! msr_act {
    ($name:expr, $asm:expr, $bits:expr) => {
        $crate::arch::machine::msr!($name, $asm, $bits)
    };
}

/// Executes an instruction without operands.
macro_rules! execute {
    ($asm:expr) => {
        // SAFETY: the instructions of `arch` are hints, barriers and invalidations, which only cost
        // time.
        unsafe { core::arch::asm!($asm, options(nostack, preserves_flags)) }
    };
}

pub(crate) use {execute, mrs, msr, msr_act};

/// The registers of a device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    base: u64,
}

impl Device {
    /// Returns the device whose registers are at virtual address `base`; the name is used in
    /// recordings only.
    ///
    /// # Safety
    ///
    /// [`super::super::memory`] maps the registers. Reads and writes at the offsets that the caller
    /// uses, for any value, harm nothing that EL2 relies on.
    pub const unsafe fn new(_name: &'static str, base: u64) -> Self {
        Self { base }
    }

    /// Returns the registers from `offset` on as a device.
    pub const fn at_offset(self, offset: u64) -> Self {
        Self { base: self.base + offset }
    }

    /// Reads the register at `offset`.
    #[inline(always)]
    pub(in crate::arch) fn load<T: Width>(self, offset: u64) -> T {
        // SAFETY: the contract of `new`.
        unsafe { ptr::read_volatile((self.base + offset) as *const T) }
    }

    /// Writes the register at `offset`.
    #[inline(always)]
    pub(in crate::arch) fn put<T: Width>(self, offset: u64, value: T) {
        // SAFETY: the contract of `new`.
        unsafe { ptr::write_volatile((self.base + offset) as *mut T, value) }
    }

    /// Writes `bits` to the register at `offset`, of which only the ones that are written have an
    /// effect.
    #[inline(always)]
    pub(in crate::arch) fn act_at(self, offset: u64, bits: u32) {
        self.put(offset, bits);
    }
}

/// Stores a value to memory that a device may be reading.
#[inline(always)]
pub fn store(place: &mut u64, value: u64) {
    // SAFETY: a reference is a valid place. The store is volatile because the device also reads the
    // place.
    unsafe { ptr::write_volatile(place, value) }
}

/// Executes hint `64 + N`.
#[inline(always)]
pub fn mark<const N: u32>() {
    // SAFETY: an unallocated hint is a NOP. Not `nomem`, so that the compiler moves no access
    // across it.
    unsafe { asm!("hint #{hint}", hint = const 64 + N, options(nostack, preserves_flags)) }
}

/// Waits until an interrupt is pending, masked or not, after all earlier stores have completed.
pub fn wait_for_interrupt() {
    // SAFETY: WFI changes no state. The DSB completes earlier stores, in particular those to GIC
    // registers, before the core sleeps.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) }
}

/// Returns a zero that the compiler does not know to be zero.
#[inline(always)]
pub fn opaque_zero() -> u64 {
    let zero;
    // SAFETY: writes only its output register.
    unsafe { asm!("mov {}, xzr", out(reg) zero, options(pure, nomem, nostack, preserves_flags)) }
    zero
}

/// Executes `yield`.
#[inline(always)]
pub fn relax() {
    // SAFETY: a hint.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) }
}

/// Translates `va` for a read by the tables of EL2; returns PAR_EL1.
pub fn translate(va: u64) -> u64 {
    let par: u64;
    // SAFETY: a translation that nothing else depends on.
    unsafe {
        asm!("at s1e2r, {}", "isb", "mrs {}, par_el1", in(reg) va, out(reg) par, options(nostack));
    }
    par
}

/// Translates `va` as an access of EL1 would, by the tables of the guest whose registers are on
/// this core; returns PAR_EL1.
pub fn translate_guest(va: u64, is_write: bool) -> u64 {
    // SAFETY: a translation that nothing else depends on.
    unsafe {
        if is_write {
            asm!("at s12e1w, {}", "isb", in(reg) va, options(nostack));
        } else {
            asm!("at s12e1r, {}", "isb", in(reg) va, options(nostack));
        }
    }
    par_el1::read()
}

/// Writes the cache lines that overlap `len` mapped bytes at `va` back to memory and invalidates
/// them.
pub fn clean(va: u64, len: u64, line: u64) {
    for at in (va & !(line - 1)..va + len).step_by(line as usize) {
        // SAFETY: maintenance by virtual address changes no contents.
        unsafe { asm!("dc civac, {}", in(reg) at, options(nostack, preserves_flags)) }
    }
}

/// Zeroes `len` bytes at `va` in blocks of `block` bytes, by DC ZVA, and cleans their lines.
///
/// # Safety
///
/// The bytes are mapped as Normal memory and writable, EL2 has no reference to them, and `va` and
/// `len` are multiples of the page size.
pub unsafe fn zero(va: u64, len: u64, block: u64, line: u64) {
    if block != line {
        for at in (va..va + len).step_by(block as usize) {
            // SAFETY: the contract; pages are multiples of a block.
            unsafe { asm!("dc zva, {}", in(reg) at, options(nostack, preserves_flags)) }
        }
        clean(va, len, line);
    } else if len > 0 {
        // SAFETY: the contract; the page is a multiple of four lines.
        unsafe {
            asm!(
                "2: dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {step}",
                "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {step}",
                "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {step}",
                "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {step}",
                "cmp {at}, {end}", "b.lo 2b",
                at = inout(reg) va => _, step = in(reg) line, end = in(reg) va + len,
                options(nostack)
            );
        }
    }
}

/// The FP and SIMD registers q0 to q31.
pub type Vectors = [u128; 32];

macro_rules! vectors {
    ($op:literal, $place:expr) => {
        // SAFETY: the caller borrows the 512 bytes at `$place` for what `$op` does. The hypervisor
        // is built without FP and SIMD (softfloat), so these registers hold only values of the
        // guest.
        unsafe {
            asm!(
                ".arch_extension fp",
                ".arch_extension simd",
                concat!($op, " q0, q1, [{0}]"), concat!($op, " q2, q3, [{0}, #32]"),
                concat!($op, " q4, q5, [{0}, #64]"), concat!($op, " q6, q7, [{0}, #96]"),
                concat!($op, " q8, q9, [{0}, #128]"), concat!($op, " q10, q11, [{0}, #160]"),
                concat!($op, " q12, q13, [{0}, #192]"), concat!($op, " q14, q15, [{0}, #224]"),
                concat!($op, " q16, q17, [{0}, #256]"), concat!($op, " q18, q19, [{0}, #288]"),
                concat!($op, " q20, q21, [{0}, #320]"), concat!($op, " q22, q23, [{0}, #352]"),
                concat!($op, " q24, q25, [{0}, #384]"), concat!($op, " q26, q27, [{0}, #416]"),
                concat!($op, " q28, q29, [{0}, #448]"), concat!($op, " q30, q31, [{0}, #480]"),
                in(reg) $place, options(nostack)
            )
        }
    };
}

/// Saves the FP and SIMD registers of this core.
#[inline(always)]
pub fn save_vectors(vectors: &mut Vectors) {
    vectors!("stp", ptr::from_mut(vectors));
}

/// Loads the FP and SIMD registers of this core.
#[inline(always)]
pub fn load_vectors(vectors: &Vectors) {
    vectors!("ldp", ptr::from_ref(vectors));
}

// While D, I and F are masked and no instruction faults, the only exception that can be taken is an
// SError at EL2; its vector returns at once. The exception overwrites the registers that describe
// the guest's exception, so these are restored.
global_asm!(
    ".pushsection .text.take_serror, \"ax\"",
    ".balign 2048",
    "serror_vectors:",
    ".space 0x380",
    "eret",
    // Stop speculation, as in vectors.s.
    "dsb nsh",
    "isb",
    ".global take_serror",
    "take_serror:",
    "mrs x0, vbar_el2",
    "mrs x1, elr_el2",
    "mrs x2, spsr_el2",
    "mrs x3, esr_el2",
    "adr x4, serror_vectors",
    "msr vbar_el2, x4",
    "isb",
    "msr daifclr, #4",
    // The pending SError is taken here.
    "isb",
    "msr daifset, #4",
    "msr vbar_el2, x0",
    "msr elr_el2, x1",
    "msr spsr_el2, x2",
    "msr esr_el2, x3",
    "isb",
    "ret",
    ".popsection",
);

/// Takes the pending SError and discards it.
pub fn take_serror() {
    // SAFETY: it changes x0 to x4, as the C calling convention allows, and nothing else. It
    // restores VBAR_EL2, ELR_EL2, SPSR_EL2 and ESR_EL2, and SErrors are masked at EL2 before and
    // after.
    unsafe { symbols::take_serror() }
}

/// Enters the guest with the general registers at `frame`, which is the top of this core's stack.
/// Gives up this stack.
///
/// # Safety
///
/// The frame holds the registers of the guest whose system registers are on the core, and no value
/// above the frame on this stack is used again.
pub unsafe fn resume(frame: *const Frame) -> ! {
    // SAFETY: the contract.
    unsafe { symbols::resume(frame) }
}

/// Enters the guest with the general registers in `frame`; `stack` is the top of this core's stack.
/// Gives up this stack.
///
/// # Safety
///
/// The frame holds the registers of the guest whose system registers are on the core, and `stack`
/// is the address at which the frame of [`resume`] ends.
pub unsafe fn enter(frame: &Frame, stack: u64) -> ! {
    // SAFETY: the contract.
    unsafe { symbols::enter(frame, stack) }
}

/// Returns the place of the guest's general registers below `top`, the top of this core's stack.
#[inline(always)]
#[must_use]
pub fn frame_below(top: u64) -> *mut Frame {
    (top as *mut Frame).wrapping_sub(1)
}

/// Returns the check sum of an image, as `weir_abi::checksum` computes it (CRC-32, ISO HDLC). The
/// core must have the CRC32 instructions: `sysreg::has_crc32`.
pub fn crc32(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = !0u32;
    for word in words {
        let word = u64::from_le_bytes(*word);
        // SAFETY: changes only its operand. The core has the instruction, see above.
        unsafe {
            asm!(
                ".arch_extension crc",
                "crc32x {sum:w}, {sum:w}, {word}",
                sum = inout(reg) sum,
                word = in(reg) word,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
    }
    for byte in rest {
        // SAFETY: as above.
        unsafe {
            asm!(
                ".arch_extension crc",
                "crc32b {sum:w}, {sum:w}, {byte:w}",
                sum = inout(reg) sum,
                byte = in(reg) u32::from(*byte),
                options(pure, nomem, nostack, preserves_flags)
            );
        }
    }
    !sum
}

/// Copies the registers of a frame.
#[inline(always)]
pub fn copy_frame(from: &Frame, to: &mut Frame) {
    // SAFETY: both frames are 256 bytes that are borrowed here; only `to` is written.
    unsafe {
        asm!(
            ".irp at, 0, 32, 64, 96, 128, 160, 192, 224",
            "ldp {a}, {b}, [{from}, #\\at]",
            "ldp {c}, {d}, [{from}, #\\at + 16]",
            "stp {a}, {b}, [{to}, #\\at]",
            "stp {c}, {d}, [{to}, #\\at + 16]",
            ".endr",
            from = in(reg) ptr::from_ref(from), to = in(reg) ptr::from_mut(to),
            a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            options(nostack, preserves_flags)
        );
    }
}

/// Ends a gem5 simulation at once by its pseudo-instruction "exit", which takes the delay in x0.
/// The instruction is undefined on any other machine.
pub fn end_simulation() {
    // SAFETY: `start` calls this only if the board's power is `Power::Gem5`; the simulator executes
    // the instruction and changes no register.
    unsafe { asm!(".inst 0xff210110", in("x0") 0_u64, options(nostack)) };
}

/// Continues in the copy of the trampoline at physical address `to`, from the trampoline at `from`,
/// by the tables that the copy names, at `boot::boot_moved`.
///
/// # Safety
///
/// Both addresses hold the trampoline. The copy is in memory and not only in caches, and its tables
/// map the image.
pub unsafe fn move_in(from: u64, to: u64) -> ! {
    // SAFETY: the contract.
    unsafe { symbols::move_in(from, to) }
}

mod symbols {
    use super::Frame;

    // boot.s, spin_table.s, vectors.s and link.ld define them.
    unsafe extern "C" {
        pub static __text_end: u8;
        pub static __rodata_end: u8;
        pub static __file_end: u8;
        pub static __bss_end: u8;
        pub static __data_end: u8;
        pub static __image_end: u8;
        pub static stage1_root: u64;
        #[cfg_attr(start = "spin-table", link_name = "spin_table_start")]
        pub fn secondary_start();
        pub fn move_in(from: u64, to: u64) -> !;
        pub fn resume(frame: *const Frame) -> !;
        pub fn enter(frame: *const Frame, stack: u64) -> !;
        pub fn take_serror();
    }
}

/// Virtual addresses in the image.
pub mod image {
    use super::symbols;

    /// Returns the address behind the last byte of code.
    #[must_use]
    pub fn text_end() -> u64 {
        (&raw const symbols::__text_end) as u64
    }

    /// Returns the address behind the last constant.
    #[must_use]
    pub fn rodata_end() -> u64 {
        (&raw const symbols::__rodata_end) as u64
    }

    /// Returns the address behind the last byte of the image file; .bss follows.
    #[must_use]
    pub fn file_end() -> u64 {
        (&raw const symbols::__file_end) as u64
    }

    /// Returns the address behind the last variable that is zero at the start; variables without an
    /// initial value follow.
    #[must_use]
    pub fn bss_end() -> u64 {
        (&raw const symbols::__bss_end) as u64
    }

    /// Returns the address behind the last variable; the stacks follow.
    #[must_use]
    pub fn data_end() -> u64 {
        (&raw const symbols::__data_end) as u64
    }

    /// Returns the address behind the last stack.
    #[must_use]
    pub fn end() -> u64 {
        (&raw const symbols::__image_end) as u64
    }

    /// Returns the address of the trampoline's variable that holds the physical address of the
    /// stage 1 tables.
    #[must_use]
    pub fn stage1_root() -> u64 {
        (&raw const symbols::stage1_root) as u64
    }

    /// Returns the address at which the other cores start.
    #[must_use]
    pub fn secondary_start() -> u64 {
        symbols::secondary_start as *const () as u64
    }
}
