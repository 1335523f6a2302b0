//! The backend for tests on the host: a machine of the calling thread that records the operations
//! performed on it.
//!
//! A recording is a list of lines, in order:
//!
//! - `hcr_el2 = 0x80000000`: a write to a system register;
//! - `gicd+0x4 = 0x10`: a write to a device register of 32 bits; ` (8 bits)` or ` (64 bits)`
//!   follows for another width;
//! - `gicd+0x100 acts 0x1`, `pmovsclr_el0 acts 0x3`: a write to a register of which only the ones
//!   have an effect;
//! - `stream+0x8 = 0x0`: a store to memory that a device reads, at a place that the test has named;
//! - `dsb sy`, `tlbi alle2`, `smc 0x84000008`: an instruction.
//!
//! A read returns the value that was last written or [`set`], or 0 if there is none.

use super::Width;
use crate::arch::Frame;
use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    fmt::{Display, Write as _},
    mem,
    panic::resume_unwind,
    ptr, thread,
};

/// Number of iterations of a polling loop after which a test fails, because nothing answers.
const MOST_TURNS: u32 = 1_000_000;

#[derive(Default)]
struct Machine {
    lines: Vec<String>,
    reads: Vec<String>,
    values: HashMap<String, u64>,
    /// The answers to the next reads of a register.
    next: HashMap<String, Vec<u64>>,
    /// The reaction of a device to a write to its register: the function gets the value, and may
    /// [`set`] registers.
    reactions: HashMap<String, fn(u64)>,
    /// Named memory: name, address of the first byte, length.
    memory: Vec<(&'static str, u64, u64)>,
    vectors: Vectors,
    turns: u32,
    /// The interrupts that end the next waits; `None` if every wait ends at once.
    wakes: Option<VecDeque<fn()>>,
    /// The guest's general registers; each thread has its own.
    frame: Option<&'static mut Frame>,
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::default();
}

fn with<R>(body: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(body)
}

fn note(line: impl Display) {
    with(|machine| machine.lines.push(line.to_string()));
}

fn read(name: &str) -> u64 {
    with(|machine| {
        machine.reads.push(name.to_string());
        let next = machine.next.get_mut(name).filter(|next| !next.is_empty());
        if let Some(next) = next {
            return next.remove(0);
        }
        let value = machine.values.get(name).copied().unwrap_or(0);
        // Each read of the counter advances the time.
        if name == "cntpct_el0" {
            machine.values.insert(name.to_string(), value + 1);
        }
        value
    })
}

/// Stores the value of `name` and calls the reaction to the write.
fn write(name: &str, value: u64) {
    set(name, value);
    react(name, value);
}

fn react(name: &str, value: u64) {
    if let Some(reaction) = with(|machine| machine.reactions.get(name).copied()) {
        reaction(value);
    }
}

/// Returns the lines that were recorded since the last call.
pub fn recorded() -> Vec<String> {
    with(|machine| mem::take(&mut machine.lines))
}

/// Returns the registers that were read since the last call.
pub fn reads() -> Vec<String> {
    with(|machine| mem::take(&mut machine.reads))
}

/// Sets the value that a register reads as, by its name in recordings: `ich_vtr`, `gicd+0x4`. A
/// firmware call returns in x0 the value set for its name (`smc 0x84000000`), or -1.
pub fn set(name: &str, value: u64) {
    with(|machine| machine.values.insert(name.to_string(), value));
}

/// Sets the answers to the next reads of a register, or to the next calls of a firmware function,
/// in this order.
pub fn set_next(name: &str, values: &[u64]) {
    with(|machine| machine.next.insert(name.to_string(), values.to_vec()));
}

/// Returns the value that a register reads as.
pub fn value(name: &str) -> u64 {
    with(|machine| machine.values.get(name).copied().unwrap_or(0))
}

/// Calls `reaction` whenever register `name` is written; replaces an earlier reaction.
pub fn on_write(name: &str, reaction: fn(u64)) {
    with(|machine| machine.reactions.insert(name.to_string(), reaction));
}

/// Names memory whose stores are recorded.
pub fn watch<T>(name: &'static str, place: &T) {
    let base = ptr::from_ref(place) as u64;
    with(|machine| machine.memory.push((name, base, size_of::<T>() as u64)));
}

/// Reads register `name`; called by the macro `mrs`.
pub fn read_register(name: &str) -> u64 {
    read(name)
}

/// Writes register `name`.
pub fn write_register(name: &str, value: u64) {
    note(format_args!("{name} = {value:#x}"));
    write(name, value);
}

/// Writes to register `name`, of which only the ones that are written have an effect.
pub fn act_register(name: &str, bits: u64) {
    note(format_args!("{name} acts {bits:#x}"));
    react(name, bits);
}

/// Executes an instruction.
pub fn execute_instruction(text: &str) {
    note(text);
}

macro_rules! mrs {
    ($name:expr, $asm:expr) => {
        $crate::arch::machine::read_register($name)
    };
}

macro_rules! msr {
    ($name:expr, $asm:expr, $value:expr) => {
        $crate::arch::machine::write_register($name, $value)
    };
}

macro_rules! msr_act {
    ($name:expr, $asm:expr, $bits:expr) => {
        $crate::arch::machine::act_register($name, $bits)
    };
}

macro_rules! execute {
    ($asm:expr) => {
        $crate::arch::machine::execute_instruction($asm)
    };
}

pub(crate) use {execute, mrs, msr, msr_act};

/// The registers of a device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    name: &'static str,
    offset: u64,
}

impl Device {
    /// Returns the device `name`.
    ///
    /// # Safety
    ///
    /// The contract of the backend for boards; here there is no memory behind the device.
    pub const unsafe fn new(name: &'static str, _base: u64) -> Self {
        Self { name, offset: 0 }
    }

    /// Returns the registers from `offset` on as a device.
    pub const fn at_offset(self, offset: u64) -> Self {
        Self { offset: self.offset + offset, ..self }
    }

    fn register(self, offset: u64) -> String {
        let Self { name, offset: base } = self;
        format!("{name}+{:#x}", base + offset)
    }

    /// Reads the register at `offset`.
    pub(in crate::arch) fn load<T: Width>(self, offset: u64) -> T {
        let bits = read(&self.register(offset)) << (64 - 8 * T::BYTES) >> (64 - 8 * T::BYTES);
        T::try_from(bits).unwrap_or_else(|_| unreachable!("it has no more bits"))
    }

    /// Writes the register at `offset`.
    pub(in crate::arch) fn put<T: Width>(self, offset: u64, value: T) {
        let (name, value) = (self.register(offset), value.into());
        let mut line = format!("{name} = {value:#x}");
        if T::BYTES != 4 {
            let _ = write!(line, " ({} bits)", 8 * T::BYTES);
        }
        note(line);
        write(&name, value);
    }

    /// Writes `bits` to the register at `offset`, of which only the ones that are written have an
    /// effect.
    pub(in crate::arch) fn act_at(self, offset: u64, bits: u32) {
        act_register(&self.register(offset), bits.into());
    }
}

/// Stores a value to memory that a device may be reading.
pub fn store(place: &mut u64, value: u64) {
    let at = ptr::from_mut(place) as u64;
    *place = value;
    let name = with(|machine| {
        let mut memory = machine.memory.iter();
        memory.find(|(_, base, len)| at.wrapping_sub(*base) < *len).copied()
    });
    if let Some((name, base, _)) = name {
        note(format_args!("{name}+{:#x} = {value:#x}", at - base));
    }
}

/// Executes hint `64 + N`.
pub fn mark<const N: u32>() {
    note(format_args!("hint #{}", 64 + N));
}

/// Makes `wakes` end the core's next waits for an interrupt, one after the other; the wait after
/// the last of them unwinds with [`Asleep`].
pub fn wake_by(wakes: &[fn()]) {
    with(|machine| machine.wakes = Some(wakes.iter().copied().collect()));
}

/// The payload by which [`wait_for_interrupt`] unwinds if the core waits for an interrupt that does
/// not come.
pub struct Asleep;

/// Waits for an interrupt.
pub fn wait_for_interrupt() {
    note("dsb sy");
    note("wfi");
    match with(|machine| machine.wakes.as_mut().map(VecDeque::pop_front)) {
        None => relax(),
        Some(Some(wake)) => wake(),
        Some(None) => resume_unwind(Box::new(Asleep)),
    }
}

/// Returns the check sum of an image.
pub fn crc32(bytes: &[u8]) -> u32 {
    weir_abi::checksum(bytes)
}

/// Returns zero.
pub fn opaque_zero() -> u64 {
    0
}

/// Counts one iteration of a polling loop.
pub fn relax() {
    let turns = with(|machine| {
        machine.turns += 1;
        machine.turns
    });
    assert!(turns < MOST_TURNS, "nothing answers");
    thread::yield_now();
}

/// Translates `va`, which equals its physical address here; returns PAR_EL1.
pub fn translate(va: u64) -> u64 {
    va & !0xfff
}

/// Translates `va` of the guest, which is Normal memory and equals its physical address here;
/// returns PAR_EL1.
pub fn translate_guest(va: u64, is_write: bool) -> u64 {
    note(format_args!("at s12e1{} {va:#x}", if is_write { 'w' } else { 'r' }));
    0xff << 56 | va & !0xfff
}

/// Records that the cache lines of `len` bytes at `va` are cleaned.
pub fn clean(va: u64, len: u64, _line: u64) {
    note(format_args!("dc civac {va:#x} to {:#x}", va + len));
}

/// Records that `len` bytes at `va` are zeroed.
///
/// # Safety
///
/// The contract of the backend for boards; here the bytes are left unchanged.
pub unsafe fn zero(va: u64, len: u64, _block: u64, _line: u64) {
    note(format_args!("dc zva {va:#x} to {:#x}", va + len));
}

/// The FP and SIMD registers q0 to q31.
pub type Vectors = [u128; 32];

/// Saves the FP and SIMD registers of this core.
pub fn save_vectors(vectors: &mut Vectors) {
    *vectors = with(|machine| machine.vectors);
}

/// Loads the FP and SIMD registers of this core.
pub fn load_vectors(vectors: &Vectors) {
    note("vectors");
    with(|machine| machine.vectors = *vectors);
}

/// Takes the pending SError.
pub fn take_serror() {
    note("SError taken");
    set("isr_el1", 0);
}

/// The payload by which [`resume`] unwinds when the guest is entered.
pub struct Entered;

/// Enters the guest: unwinds with [`Entered`].
///
/// # Safety
///
/// The contract of the backend for boards.
pub unsafe fn resume(_frame: *const Frame) -> ! {
    note("eret");
    resume_unwind(Box::new(Entered))
}

/// Enters the guest: unwinds with [`Entered`].
///
/// # Safety
///
/// Nothing is required here; the backend for boards has a contract.
pub unsafe fn enter(frame: &Frame, _stack: u64) -> ! {
    with(|machine| **machine.frame.get_or_insert_with(new_frame) = *frame);
    note("eret");
    resume_unwind(Box::new(Entered))
}

fn new_frame() -> &'static mut Frame {
    Box::leak(Box::new(Frame::new(0)))
}

/// Returns the place of the guest's general registers in this thread's machine.
pub fn frame_below(_top: u64) -> *mut Frame {
    with(|machine| ptr::from_mut(*machine.frame.get_or_insert_with(new_frame)))
}

/// Copies the registers of a frame.
pub fn copy_frame(from: &Frame, to: &mut Frame) {
    *to = *from;
}

/// Ends a simulation of gem5.
pub fn end_simulation() {
    note("m5 exit");
}

/// Continues in the copy of the trampoline at `to`: unwinds with [`Entered`].
///
/// # Safety
///
/// The contract of the backend for boards.
pub unsafe fn move_in(from: u64, to: u64) -> ! {
    note(format_args!("moves from {from:#x} to {to:#x}"));
    resume_unwind(Box::new(Entered))
}

/// The firmware, which is called by SMC.
pub struct Firmware;

impl Firmware {
    fn call(function: u32, arguments: &[u64]) -> u64 {
        let name = format!("smc {function:#x}");
        let used = arguments.iter().rposition(|&argument| argument != 0).map_or(0, |last| last + 1);
        let mut line = name.clone();
        for argument in &arguments[..used] {
            let _ = write!(line, " {argument:#x}");
        }
        note(line);
        with(|machine| {
            let next = machine.next.get_mut(&name).filter(|next| !next.is_empty());
            let next = next.map(|next| next.remove(0));
            next.or_else(|| machine.values.get(&name).copied()).unwrap_or(u64::MAX)
        })
    }
}

impl smccc::Call for Firmware {
    fn call32(function: u32, args: [u32; 7]) -> [u32; 8] {
        let mut results = [0; 8];
        results[0] = Self::call(function, &args.map(u64::from)) as u32;
        results
    }

    fn call64(function: u32, args: [u64; 17]) -> [u64; 18] {
        let mut results = [0; 18];
        results[0] = Self::call(function, &args);
        results
    }
}

/// Virtual addresses in an image of a made-up layout.
pub mod image {
    use crate::arch::memory::HYP_BASE;

    /// Returns the address behind the last byte of code.
    #[must_use]
    pub fn text_end() -> u64 {
        HYP_BASE + 0x4_0000
    }

    /// Returns the address behind the last constant.
    #[must_use]
    pub fn rodata_end() -> u64 {
        HYP_BASE + 0x6_0000
    }

    /// Returns the address behind the last byte of the image file.
    #[must_use]
    pub fn file_end() -> u64 {
        HYP_BASE + 0x8_0000
    }

    /// Returns the address behind the last variable that is zero at the start.
    #[must_use]
    pub fn bss_end() -> u64 {
        HYP_BASE + 0xc_0000
    }

    /// Returns the address behind the last variable.
    #[must_use]
    pub fn data_end() -> u64 {
        HYP_BASE + 0x10_0000
    }

    /// Returns the address behind the last stack.
    #[must_use]
    pub fn end() -> u64 {
        HYP_BASE + 0x18_0000
    }

    /// Returns the address of the trampoline's variable that holds the address of the stage 1
    /// tables.
    #[must_use]
    pub fn stage1_root() -> u64 {
        HYP_BASE + 0x800
    }

    /// Returns the address at which the other cores start.
    #[must_use]
    pub fn secondary_start() -> u64 {
        HYP_BASE + 0x400
    }
}
