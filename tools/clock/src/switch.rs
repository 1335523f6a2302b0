//! The change of the running thread.
//!
//! On x86-64 one kernel thread, the carrier, runs the stacks of all threads: a change takes about
//! 20 ns. The kernel thread that `pthread_create` made waits for ever on a small stack of its own.
//! The carrier takes the thread's registers, its stack and its thread pointer, so that thread-local
//! variables stay right. Elsewhere, and with `WEIR_CLOCK_SWITCH=futex`, each thread keeps its
//! kernel thread and waits for its turn by a futex: the same order, but a change takes
//! microseconds.

use crate::{c, order::MAX_THREADS};
use rustix::thread::futex;
use std::{
    cell::UnsafeCell,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Relaxed, SeqCst},
    },
};

/// The variable that selects the way of switching.
const VARIABLE: &std::ffi::CStr = c"WEIR_CLOCK_SWITCH";

/// A thread that does not run. The assembly below knows the offsets.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    stack: u64,
    thread_pointer: u64,
}

struct Contexts(UnsafeCell<[Context; MAX_THREADS]>);
// SAFETY: only the running thread accesses contexts, and a new one its own before it is parked,
// which `wait_until_parked` waits for.
unsafe impl Sync for Contexts {}

static CONTEXTS: Contexts =
    Contexts(UnsafeCell::new([const { Context { stack: 0, thread_pointer: 0 } }; MAX_THREADS]));
/// 1 when the thread has its turn: a futex.
static TURNS: [AtomicU32; MAX_THREADS] = [const { AtomicU32::new(0) }; MAX_THREADS];
/// 1 when a new thread waits for its first turn: a futex.
static PARKED: [AtomicU32; MAX_THREADS] = [const { AtomicU32::new(0) }; MAX_THREADS];
/// Whether each thread keeps its kernel thread.
static BY_FUTEX: AtomicBool = AtomicBool::new(true);

/// Returns the context of a thread.
fn context(place: usize) -> *mut Context {
    CONTEXTS.0.get().cast::<Context>().wrapping_add(place)
}

/// Selects the way of switching, on the first thread.
pub fn begin() {
    let wanted = c::environment(VARIABLE).is_some_and(|value| value == c"futex");
    BY_FUTEX.store(wanted || !carrier::is_possible(), Relaxed);
    // SAFETY: this is the only thread, and place 0 is its own.
    unsafe { (*context(0)).thread_pointer = carrier::thread_pointer() };
}

/// Waits until `word` is not 0, and makes it 0.
fn take(word: &AtomicU32) {
    while word.swap(0, SeqCst) == 0 {
        // An error is a wake-up too many, or a word that has just changed.
        let _ = futex::wait(word, futex::Flags::PRIVATE, 0, None);
    }
}

/// Makes `word` 1 and wakes the thread that waits for it.
fn give(word: &AtomicU32) {
    word.store(1, SeqCst);
    // Fails only for an address that is none.
    let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
}

/// Prepares a place for a new thread.
pub fn prepare(place: usize) {
    TURNS[place].store(0, SeqCst);
    PARKED[place].store(0, SeqCst);
}

/// Waits until the new thread at `place` waits for its first turn.
pub fn wait_until_parked(place: usize) {
    take(&PARKED[place]);
}

/// Has the calling thread, which is new, wait for its first turn.
pub fn wait_for_first_turn(place: usize) {
    if BY_FUTEX.load(Relaxed) {
        give(&PARKED[place]);
        take(&TURNS[place]);
    } else {
        carrier::park(place);
    }
}

/// Changes the running thread; returns when `from`, the calling thread, is it again: never if it
/// `has_ended`, because another thread may have its place then.
pub fn to(from: usize, to: usize, has_ended: bool) {
    if !BY_FUTEX.load(Relaxed) {
        return carrier::switch(context(from), context(to));
    }
    give(&TURNS[to]);
    if has_ended {
        stay();
    }
    take(&TURNS[from]);
}

/// Keeps the kernel thread for ever.
fn stay() -> ! {
    static FOR_EVER: AtomicU32 = AtomicU32::new(0);
    loop {
        let _ = futex::wait(&FOR_EVER, futex::Flags::PRIVATE, 0, None);
    }
}

#[cfg(target_arch = "x86_64")]
mod carrier {
    use super::{Context, PARKED, context, give};
    use std::{mem::MaybeUninit, ptr::null_mut};

    /// `AT_HWCAP2`'s bit for the instructions that change the thread pointer (Linux,
    /// `arch/x86/include/uapi/asm/hwcap2.h`).
    const FSGSBASE: u64 = 1 << 1;
    /// Bytes of the stack on which a kernel thread waits for ever.
    const STACK: usize = 16 << 10;

    // `weir_clock_switch(from, to)` and `weir_clock_park(from, stack)`: both save the registers
    // that a function must keep (System V ABI, AMD64 supplement, 3.2.1), MXCSR and the x87 control
    // word included, on the caller's stack, and the stack pointer in `from`.
    std::arch::global_asm!(
        ".pushsection .text.weir_clock_switch, \"ax\", @progbits",
        ".macro save_context",
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        ".endm",
        ".globl weir_clock_switch",
        ".hidden weir_clock_switch",
        ".type weir_clock_switch, @function",
        "weir_clock_switch:",
        "save_context",
        "mov rax, [rsi + 8]",
        "wrfsbase rax",
        "mov rsp, [rsi]",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        ".globl weir_clock_park",
        ".hidden weir_clock_park",
        ".type weir_clock_park, @function",
        "weir_clock_park:",
        "save_context",
        "mov rsp, rsi",
        "mov rdi, rdx",
        "call {parked}",
        "ud2",
        ".purgem save_context",
        ".popsection",
        parked = sym parked,
    );

    unsafe extern "C" {
        fn weir_clock_switch(from: *mut Context, to: *mut Context);
        fn weir_clock_park(from: *mut Context, stack: *mut u8, place: usize);
    }

    /// Returns whether a program may change its thread pointer.
    pub fn is_possible() -> bool {
        // SAFETY: the call has no requirements.
        unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
    }

    /// Returns the calling thread's pointer, which its first word holds (ELF Handling for
    /// Thread-Local Storage, 3.4.6).
    pub fn thread_pointer() -> u64 {
        let pointer;
        // SAFETY: the word belongs to the thread for its whole life and is only read.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, pure));
        }
        pointer
    }

    /// Leaves the calling thread's stack to the carrier. Returns on the carrier, in the thread's
    /// first turn.
    pub fn park(place: usize) {
        // The carrier takes signals. SAFETY: the set is initialized by the first call.
        unsafe {
            let mut all = MaybeUninit::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), null_mut());
        }
        // SAFETY: a new mapping has no other user.
        let stack = unsafe {
            libc::mmap(
                null_mut(),
                STACK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if stack == libc::MAP_FAILED {
            std::process::abort();
        }
        // SAFETY: this thread is new, so that no other one accesses its context before it says that
        // it is parked, which `parked` does on the other stack. The stack's end is aligned to 16
        // bytes, as a call requires.
        unsafe {
            (*context(place)).thread_pointer = thread_pointer();
            weir_clock_park(context(place), stack.cast::<u8>().add(STACK), place);
        }
    }

    /// Says that the thread is parked and keeps its kernel thread for ever. Must not use
    /// thread-local variables: they are the carrier's from then on. The futex calls are system
    /// calls without an error number of the C library's.
    extern "C" fn parked(place: usize) -> ! {
        give(&PARKED[place]);
        super::stay()
    }

    /// Runs the thread with the context `to` until another one switches back to `from`.
    pub fn switch(from: *mut Context, to: *mut Context) {
        // SAFETY: both are contexts of threads, `from` is the running thread's, and `to` was saved
        // by one of the two functions.
        unsafe { weir_clock_switch(from, to) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod carrier {
    use super::Context;

    pub const fn is_possible() -> bool {
        false
    }

    pub const fn thread_pointer() -> u64 {
        0
    }

    pub fn park(_place: usize) {
        unreachable!("no carrier on this machine");
    }

    pub fn switch(_from: *mut Context, _to: *mut Context) {
        unreachable!("no carrier on this machine");
    }
}
