//! The clocks and the sleep of QEMU's threads: virtual time.

use crate::{
    c,
    order::{Cause, NEVER},
    process,
};
use libc::{c_int, c_uint, c_void, clockid_t, time_t, timespec, timeval};
use std::ptr::null_mut;

/// The date at virtual time 0, in seconds: 2026-01-01, as `-rtc base` has it.
const EPOCH: u64 = 1_767_225_600;
const SECOND: u64 = 1_000_000_000;

/// Returns a duration in ns; [`NEVER`] for centuries.
pub fn nanoseconds(time: &timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.checked_mul(SECOND).and_then(|ns| ns.checked_add(rest)).unwrap_or(NEVER)
}

/// Returns a point in time in ns of virtual time. It may be of the date's clock, which is half a
/// century or more ahead of the other one.
pub fn absolute(time: &timespec) -> u64 {
    let ns = nanoseconds(time);
    if ns == NEVER {
        return NEVER;
    }
    if ns > EPOCH / 2 * SECOND { ns.saturating_sub(EPOCH * SECOND) } else { ns }
}

/// Returns the C library's form of a time in ns.
pub fn timespec_of(ns: u64) -> timespec {
    // Both fit: fewer than 2^35 seconds.
    timespec { tv_sec: (ns / SECOND).cast_signed(), tv_nsec: (ns % SECOND).cast_signed() }
}

/// Replaces POSIX's function. The clocks of processes and threads stay the host's.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let date = match clock {
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME => Some(0),
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Some(EPOCH * SECOND),
        _ => None,
    };
    match date.filter(|_| process::is_active()) {
        Some(date) => {
            // SAFETY: the caller's promise.
            unsafe { *time = timespec_of(process::now() + date) };
            0
        }
        // SAFETY: the caller's promise.
        None => unsafe { (c::library().clock)(clock, time) },
    }
}

/// Returns the date of the process.
fn date() -> timespec {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(into: *mut timeval, _zone: *mut c_void) -> c_int {
    let date = date();
    // SAFETY: the caller's promise.
    unsafe { *into = timeval { tv_sec: date.tv_sec, tv_usec: date.tv_nsec / 1000 } };
    0
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(into: *mut time_t) -> time_t {
    let seconds = date().tv_sec;
    if !into.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *into = seconds };
    }
    seconds
}

fn sleep_until(ns: u64) {
    while process::now() < ns {
        process::wait(Cause::Sleep, 0, ns, true);
    }
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    wanted: *const timespec,
    left: *mut timespec,
) -> c_int {
    if !process::is_active() {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().sleep)(clock, flags, wanted, left) };
    }
    // SAFETY: the caller's promise.
    let wanted = unsafe { &*wanted };
    sleep_until(if flags & libc::TIMER_ABSTIME == 0 {
        process::now().saturating_add(nanoseconds(wanted))
    } else {
        absolute(wanted)
    });
    0
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(wanted: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, wanted, left) } {
        0 => 0,
        error => {
            c::set_error(error);
            -1
        }
    }
}

/// Replaces POSIX's function.
#[unsafe(no_mangle)]
pub extern "C" fn usleep(microseconds: c_uint) -> c_int {
    let wanted = timespec_of(u64::from(microseconds) * 1000);
    // SAFETY: the time is ours.
    unsafe { nanosleep(&raw const wanted, null_mut()) }
}
