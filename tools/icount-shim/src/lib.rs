//! Preloaded into QEMU, so that runs under `-icount shift=N,sleep=off` repeat to the instruction.
//!
//! QEMU 7.2 to 10 runs all cores on one thread, and another, its main loop, moves the clock to the
//! next timer when every core sleeps (`icount_start_warp_timer`). It tests this whenever it is
//! woken, for example by each timer that expires on the cores' thread. A core counts as asleep from
//! inside its WFI on, but what it has executed is added to the clock a moment later
//! (`icount_process_data`): if the main loop tests in between, the clock moves by the time to the
//! next timer and then again by the time slice that just ended. How often that happens is up to the
//! host's scheduler: a run of 0.1 s on a loaded machine went wrong in 25 of 200 cases.
//!
//! The machine that weir starts has nothing for the main loop to do while a core runs. So here the
//! main loop comes back from `ppoll` only once the cores' thread waits for it: for a condition
//! variable, which it does after its time slices have been counted.

use libc::{
    EINTR, ETIMEDOUT, FUTEX_PRIVATE_FLAG, FUTEX_WAIT, FUTEX_WAKE, RTLD_NEXT, SYS_futex, c_int,
    c_void, nfds_t, pollfd, pthread_cond_t, pthread_mutex_t, sigset_t, timespec,
};
use std::{
    ffi::CStr,
    io,
    mem::transmute,
    ptr::{self, null_mut},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::SeqCst},
    },
};

/// How long the main loop waits for the cores at most: a core that never sleeps does not keep QEMU
/// from ending.
static PATIENCE: timespec = timespec { tv_sec: 1, tv_nsec: 0 };

/// The cores' thread, 0 before it is known. It is the first thread, apart from the main thread,
/// that waits for a condition variable without a time limit.
static CORES: AtomicI32 = AtomicI32::new(0);
/// What the cores' thread waits for, null while it runs.
static WAITS_FOR: AtomicPtr<pthread_cond_t> = AtomicPtr::new(null_mut());
/// 1 while the cores' thread runs or has been woken; a futex.
static RUNS: AtomicI32 = AtomicI32::new(0);
/// A signal has come: QEMU is to end.
static ENDING: AtomicBool = AtomicBool::new(false);

type Wait = unsafe extern "C" fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
type Broadcast = unsafe extern "C" fn(*mut pthread_cond_t) -> c_int;
type Poll = unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;

/// This thread's number, as the kernel counts.
fn thread() -> c_int {
    // SAFETY: the call has no arguments and always succeeds.
    unsafe { libc::gettid() }
}

fn is_main() -> bool {
    // SAFETY: as above.
    thread() == unsafe { libc::getpid() }
}

/// The next definition of `name` behind this library's: the C library's.
fn next(name: &CStr) -> *mut c_void {
    // glibc's condition variables of before 2.3.2 are others under the same names; other machines
    // than x86-64 never had them. SAFETY: both strings end in zeros.
    let found = unsafe { libc::dlvsym(RTLD_NEXT, name.as_ptr(), VERSION.as_ptr()) };
    if !found.is_null() {
        return found;
    }
    // SAFETY: as above.
    let found = unsafe { libc::dlsym(RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // Nothing can be done without it, and this is not ours to unwind through.
        std::process::abort();
    }
    found
}

const VERSION: &CStr = c"GLIBC_2.3.2";

fn futex(operation: c_int, value: c_int, time: *const timespec) -> c_int {
    // SAFETY: the futex is a static of four bytes; the time is null or a static.
    let result = unsafe {
        libc::syscall(SYS_futex, RUNS.as_ptr(), operation | FUTEX_PRIVATE_FLAG, value, time)
    };
    if result < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 }
}

/// POSIX's; records that the cores' thread is about to wait.
///
/// # Safety
/// The same as the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    static NEXT: OnceLock<Wait> = OnceLock::new();
    // SAFETY: POSIX gives the function this type.
    let next =
        NEXT.get_or_init(|| unsafe { transmute::<*mut c_void, Wait>(next(c"pthread_cond_wait")) });
    let ours = !is_main() && {
        let cores = CORES.compare_exchange(0, thread(), SeqCst, SeqCst);
        cores.map_or_else(|known| known == thread(), |_| true)
    };
    if !ours {
        // SAFETY: the caller's promise.
        return unsafe { next(condition, mutex) };
    }
    // QEMU's lock is still held: a thread that sees this thread waiting has to wait for that lock
    // until it does.
    WAITS_FOR.store(condition, SeqCst);
    RUNS.store(0, SeqCst);
    futex(FUTEX_WAKE, 1, ptr::null());
    // SAFETY: the caller's promise.
    let result = unsafe { next(condition, mutex) };
    // Also after a spurious wake-up.
    RUNS.store(1, SeqCst);
    WAITS_FOR.store(null_mut(), SeqCst);
    result
}

/// POSIX's; the thread that wakes the cores' thread records that it runs before it does.
///
/// # Safety
/// The same as the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int {
    static NEXT: OnceLock<Broadcast> = OnceLock::new();
    // SAFETY: POSIX gives the function this type.
    let next = NEXT.get_or_init(|| unsafe {
        transmute::<*mut c_void, Broadcast>(next(c"pthread_cond_broadcast"))
    });
    if WAITS_FOR.load(SeqCst) == condition {
        RUNS.store(1, SeqCst);
    }
    // SAFETY: the caller's promise.
    unsafe { next(condition) }
}

/// POSIX's; the main loop comes back once the cores' thread waits.
///
/// # Safety
/// The same as the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    descriptors: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    static NEXT: OnceLock<Poll> = OnceLock::new();
    // SAFETY: POSIX gives the function this type.
    let next = NEXT.get_or_init(|| unsafe { transmute::<*mut c_void, Poll>(next(c"ppoll")) });
    // SAFETY: the caller's promise.
    let ready = unsafe { next(descriptors, count, time, signals) };
    // SAFETY: the C library's, for this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: no other thread has this thread's.
    let error = unsafe { *errno };
    if is_main() {
        if ready < 0 && error == EINTR {
            ENDING.store(true, SeqCst);
        }
        wait_for_the_cores();
    }
    // SAFETY: as above.
    unsafe { *errno = error };
    ready
}

fn wait_for_the_cores() {
    while RUNS.load(SeqCst) == 1 && !ENDING.load(SeqCst) {
        match futex(FUTEX_WAIT, 1, &raw const PATIENCE) {
            EINTR => ENDING.store(true, SeqCst),
            ETIMEDOUT => return,
            _ => {}
        }
    }
}
