//! POSIX's threads, locks and condition variables, and the futex system call, as QEMU sees them.
//!
//! A thread gives up its turn only where it waits, and a core also at the start of a translation
//! block. A lock is therefore held across a turn only by a thread that waits while it holds it.

use crate::{
    c,
    order::{Cause, NEVER, State},
    process::{self, Facts, ThreadStart},
    time,
};
use libc::{c_int, c_void, pthread_attr_t, pthread_cond_t, pthread_mutex_t, pthread_t, timespec};

/// Acquisitions of the big lock with at most one instruction in between, from which on each costs
/// time. A core whose exception vector cannot be fetched or executed takes one exception after the
/// other.
const FREE_LOCKS: u32 = 64;
/// The time that each of them costs from then on, in ns: about that of an exception on a board.
const LOCK_COST: u64 = 100;

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: ThreadStart,
    argument: *mut c_void,
) -> c_int {
    if !process::is_active() {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().create)(handle, attributes, start, argument) };
    }
    let mut detached = libc::PTHREAD_CREATE_JOINABLE;
    if !attributes.is_null() {
        // SAFETY: the caller's promise.
        unsafe { pthread_attr_getdetachstate(attributes, &raw mut detached) };
    }
    let facts = Facts::new(start, argument, detached == libc::PTHREAD_CREATE_DETACHED);
    // SAFETY: the caller's promise.
    unsafe { process::create(handle, attributes, facts) }
}

unsafe extern "C" {
    // Not in the crate `libc` for every machine.
    fn pthread_attr_getdetachstate(attributes: *const pthread_attr_t, state: *mut c_int) -> c_int;
}

/// Returns the place of a thread other than the first one.
fn place_of(handle: pthread_t) -> Option<usize> {
    process::with(|process| {
        (1..process.order.used()).find(|&place| {
            process.order.thread(place).state != State::Free
                && process.facts[place].handle == handle
        })
    })
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(handle: pthread_t, result: *mut *mut c_void) -> c_int {
    let Some(place) = place_of(handle).filter(|_| process::is_active()) else {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().join)(handle, result) };
    };
    while process::with(|process| process.order.thread(place).state != State::Ended) {
        process::wait(Cause::Join, place, NEVER, true);
    }
    let of_thread = process::with(|process| {
        process.order.remove(place);
        process.facts[place].result
    });
    if !result.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *result = of_thread };
    }
    0
}

/// Replaces POSIX's function.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_detach(handle: pthread_t) -> c_int {
    let of_order = place_of(handle).filter(|_| process::is_active());
    process::with(|process| {
        let Some(place) = of_order else { return };
        process.facts[place].is_detached = true;
        if process.order.thread(place).state == State::Ended {
            process.order.remove(place);
        }
    });
    // SAFETY: the call takes a number.
    unsafe { (c::library().detach)(handle) }
}

/// Replaces POSIX's function. QEMU sends a thread a signal to end its system call; here no thread
/// is in one.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_kill(handle: pthread_t, signal: c_int) -> c_int {
    if process::is_active() {
        return 0;
    }
    // SAFETY: the call takes two numbers.
    unsafe { (c::library().kill)(handle, signal) }
}

/// Charges a core that takes exception after exception and executes next to nothing, so that
/// virtual time goes on for the others.
fn charge_for_lock(mutex: *mut pthread_mutex_t) {
    let now = process::now();
    let locks = process::with(|process| {
        let place = process.order.current();
        if process.big_lock != mutex.addr() || !process.order.thread(place).is_core {
            return 0;
        }
        let (at, locks) = &mut process.facts[place].locked;
        *locks = if now - *at <= 1 { locks.saturating_add(1) } else { 0 };
        *at = now;
        *locks
    });
    if locks <= FREE_LOCKS {
        return;
    }
    process::set_now(now + LOCK_COST);
    process::with(|process| {
        process.facts[process.order.current()].locked.0 = now + LOCK_COST;
    });
    if process::is_over() {
        process::schedule();
    }
}

/// Takes a mutex, or waits until another thread leaves it.
///
/// # Safety
///
/// As of `pthread_mutex_lock`.
unsafe fn take(mutex: *mut pthread_mutex_t) -> c_int {
    loop {
        // SAFETY: the caller's promise.
        let result = unsafe { (c::library().try_lock)(mutex) };
        if result != libc::EBUSY {
            return result;
        }
        process::wait(Cause::Mutex, mutex.addr(), NEVER, false);
    }
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    if !process::is_active() {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().lock)(mutex) };
    }
    charge_for_lock(mutex);
    // SAFETY: the caller's promise.
    unsafe { take(mutex) }
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { (c::library().unlock)(mutex) };
    if process::is_active() {
        process::wake_all(Cause::Mutex, mutex.addr());
    }
    result
}

/// Waits for a condition until `deadline`.
///
/// # Safety
///
/// As of `pthread_cond_wait`.
unsafe fn wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: u64,
) -> c_int {
    let ages = process::with(|process| {
        let place = process.order.current();
        let first = &mut process.facts[place].first_mutex;
        if *first == 0 {
            *first = mutex.addr();
        }
        // A core that waits with the big lock waits for an interrupt, and one that waits with
        // another lock for an exclusive section of the emulator.
        !process.order.thread(place).is_core || mutex.addr() == process.big_lock
    });
    // SAFETY: the caller holds the mutex.
    unsafe { (c::library().unlock)(mutex) };
    process::wake_all(Cause::Mutex, mutex.addr());
    let is_late = process::wait(Cause::Condition, condition.addr(), deadline, ages);
    // SAFETY: the caller's promise.
    let result = unsafe { take(mutex) };
    if is_late { libc::ETIMEDOUT } else { result }
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    if !process::is_active() {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().wait)(condition, mutex) };
    }
    // SAFETY: the caller's promise.
    unsafe { wait(condition, mutex, NEVER) }
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    if !process::is_active() {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().timed_wait)(condition, mutex, until) };
    }
    // SAFETY: the caller's promise.
    unsafe { wait(condition, mutex, time::absolute(&*until)) }
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int {
    if !process::is_active() {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().signal)(condition) };
    }
    process::wake_first(Cause::Condition, condition.addr());
    0
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int {
    if !process::is_active() {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().broadcast)(condition) };
    }
    process::wake_all(Cause::Condition, condition.addr());
    0
}

/// Waits until the futex at `word` is woken. Returns 0 or an error number.
fn futex_wait(word: *const i32, expected: i32, deadline: u64) -> c_int {
    // SAFETY: the caller of the system call promises that the word is readable.
    if unsafe { word.read_volatile() } != expected {
        return libc::EAGAIN;
    }
    if process::wait(Cause::Futex, word.addr(), deadline, true) { libc::ETIMEDOUT } else { 0 }
}

/// Replaces Linux's function. The futex operations of QEMU's threads keep the order; all other
/// calls are the host's.
///
/// The C library's function takes a variable number of arguments. On the machines that are
/// supported, callers pass them as if there were seven (System V ABI, AMD64 supplement, 3.2.3;
/// AAPCS64, 6.8.2), and those that are not passed are not used.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: i64,
    word: i64,
    operation: i64,
    value: i64,
    time: i64,
    fifth: i64,
    sixth: i64,
) -> i64 {
    if number == libc::SYS_futex && process::is_active() {
        let word = std::ptr::with_exposed_provenance::<i32>(word.cast_unsigned() as usize);
        let operation =
            operation as c_int & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
        match operation {
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
                let time =
                    std::ptr::with_exposed_provenance::<timespec>(time.cast_unsigned() as usize);
                // SAFETY: the caller's promise: a time or null.
                let time = unsafe { time.as_ref() };
                let deadline = time.map_or(NEVER, |time| {
                    if operation == libc::FUTEX_WAIT {
                        process::now().saturating_add(time::nanoseconds(time))
                    } else {
                        time::absolute(time)
                    }
                });
                return match futex_wait(word, value as i32, deadline) {
                    0 => 0,
                    error => {
                        c::set_error(error);
                        -1
                    }
                };
            }
            libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
                let mut woken = 0;
                while woken < i64::from(value as i32)
                    && process::wake_first(Cause::Futex, word.addr())
                {
                    woken += 1;
                }
                return woken;
            }
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { (c::library().system_call)(number, word, operation, value, time, fifth, sixth) }
}
