//! The host: files that QEMU writes and waits for.

use crate::{
    c,
    input::{Input, Piece},
    order::{Cause, NEVER},
    process, time,
};
use libc::{c_int, c_uint, c_void, iovec, nfds_t, pollfd, sigset_t, size_t, ssize_t, timespec};
use std::{
    ptr::{null, null_mut},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

static NO_TIME: timespec = timespec { tv_sec: 0, tv_nsec: 0 };
/// The files that can be event counters. QEMU has tens of files.
const EVENTS: usize = 1024;
/// True for each file that is an event counter, which wakes the main loop.
static IS_EVENT: [AtomicBool; EVENTS] = [const { AtomicBool::new(false) }; EVENTS];

/// Returns the place of a file in [`IS_EVENT`]; none if its number is too high.
fn event(file: c_int) -> Option<&'static AtomicBool> {
    IS_EVENT.get(usize::try_from(file).ok()?)
}

/// Replaces Linux's function, and records which files are event counters.
#[unsafe(no_mangle)]
pub extern "C" fn eventfd(value: c_uint, flags: c_int) -> c_int {
    // SAFETY: the call takes two numbers.
    let file = unsafe { (c::library().event)(value, flags) };
    if let Some(event) = event(file) {
        event.store(true, Relaxed);
    }
    file
}

/// Waits until the host takes more output: time stands still.
fn wait_for_room(file: c_int) {
    let mut files = pollfd { fd: file, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one file, which is ours.
    unsafe { (c::library().poll)(&raw mut files, 1, null(), null()) };
}

/// Replaces POSIX's function. A write to an event counter wakes the main loop at the writer's next
/// block. QEMU's signal handlers write, so only atomic variables are used.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, data: *const c_void, size: size_t) -> ssize_t {
    loop {
        // SAFETY: the caller's promise.
        let written = unsafe { (c::library().write)(file, data, size) };
        if !process::is_active() {
            return written;
        }
        if size == 8 && event(file).is_some_and(|event| event.load(Relaxed)) {
            process::notify();
            return written;
        }
        if written >= 0 || c::error() != libc::EAGAIN {
            return written;
        }
        wait_for_room(file);
    }
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(file: c_int, data: *const iovec, count: c_int) -> ssize_t {
    loop {
        // SAFETY: the caller's promise.
        let written = unsafe { (c::library().write_vector)(file, data, count) };
        if !process::is_active() || written >= 0 || c::error() != libc::EAGAIN {
            return written;
        }
        wait_for_room(file);
    }
}

/// Asks the host for files without waiting. Standard input is ready at a look only, before which
/// the machine waits until it is not ahead of the host. Returns what `ppoll` returns.
///
/// # Safety
///
/// The contract is that of [`ppoll`].
unsafe fn ask_now(files: *mut pollfd, count: nfds_t, mask: *const sigset_t) -> c_int {
    // SAFETY: the caller's promise.
    let ask = || unsafe { (c::library().poll)(files, count, &raw const NO_TIME, mask) };
    if process::with(|process| process.looks.next().is_none()) {
        return ask();
    }
    let (now, host) = (process::now(), c::host_ns());
    let look = process::with(|process| process.looks.begin(now, host));
    if let Some(early @ 1..) = look {
        let early = time::timespec_of(early);
        // SAFETY: no files; the time is ours, and the mask is by the caller's promise.
        if unsafe { (c::library().poll)(null_mut(), 0, &raw const early, mask) } < 0 {
            // A signal, which QEMU handles.
            return -1;
        }
    }
    let mut ready = ask();
    if files.is_null() || ready < 0 {
        return ready;
    }
    let places = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller's promise: so many files, which are valid and the caller's alone.
    let files = unsafe { std::slice::from_raw_parts_mut(files, places) };
    for input in files.iter_mut().filter(|input| input.fd == 0) {
        let is_readable = std::mem::take(&mut input.revents) != 0;
        ready -= c_int::from(is_readable);
        let wants = input.events & libc::POLLIN != 0 && look.is_some();
        let time_ns = now - process::START;
        if wants && process::with(|process| process.looks.look(time_ns, is_readable)) {
            input.revents = libc::POLLIN;
            ready += 1;
        }
    }
    ready
}

/// Replaces Linux's function. The wait for files ends when a thread of the process notifies the
/// caller, or at the deadline in virtual time. With input, it looks at the host's files in between.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    files: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !process::is_active() {
        // SAFETY: the caller's promise.
        return unsafe { (c::library().poll)(files, count, time, mask) };
    }
    // SAFETY: the caller's promise: a time or null.
    let wait = unsafe { time.as_ref() };
    let deadline =
        wait.map_or(NEVER, |wait| process::now().saturating_add(time::nanoseconds(wait)));
    loop {
        // SAFETY: the caller's promise.
        let ready = unsafe { ask_now(files, count, mask) };
        if ready != 0 || process::now() >= deadline {
            return ready;
        }
        let look = process::with(|process| {
            process.facts[process.order.current()].files = (files, count, mask);
            process.looks.next().unwrap_or(NEVER)
        });
        process::wait(Cause::Files, 0, deadline.min(look), true);
    }
}

/// Replaces POSIX's function.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(files: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    let time = u32::try_from(milliseconds).ok().map(|milliseconds| timespec {
        tv_sec: i64::from(milliseconds / 1000),
        tv_nsec: i64::from(milliseconds % 1000 * 1_000_000),
    });
    let time = time.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: the caller's promise.
    unsafe { ppoll(files, count, time, null()) }
}

/// Records bytes that the machine has read of its standard input.
fn record(bytes: Vec<u8>) {
    let now = process::now();
    let Some(record) = process::with(|process| process.looks.record(now)) else { return };
    let line = Piece { time_ns: now - process::START, bytes }.line();
    // SAFETY: the line is ours. Lines are short, and a file takes them whole; if it takes none, the
    // record ends, which a replay shows.
    unsafe { (c::library().write)(record, line.as_ptr().cast(), line.len()) };
}

/// Replaces POSIX's function, by which QEMU reads its standard input.
///
/// # Safety
///
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(file: c_int, into: *const iovec, count: c_int) -> ssize_t {
    let is_input = process::is_active() && file == 0 && count > 0;
    if is_input && process::with(|process| matches!(process.looks.input, Input::Replay(_))) {
        let now = process::now();
        let Some(piece) = process::with(|process| process.looks.take(now)) else {
            c::set_error(libc::EAGAIN);
            return -1;
        };
        // SAFETY: the caller's promise: one part or more.
        let part = unsafe { &*into };
        let size = piece.bytes.len();
        if size > part.iov_len {
            c::report("this machine reads less at a time than the recorded one");
            std::process::abort();
        }
        // SAFETY: the caller's promise, and the size is at most that of both.
        unsafe { part.iov_base.cast::<u8>().copy_from_nonoverlapping(piece.bytes.as_ptr(), size) };
        return size.cast_signed();
    }
    // SAFETY: the caller's promise.
    let size = unsafe { (c::library().read_vector)(file, into, count) };
    if is_input && size > 0 {
        // SAFETY: the caller's promise: one part or more.
        let part = unsafe { &*into };
        let size = size.cast_unsigned().min(part.iov_len);
        // SAFETY: the call has filled the first part before any other.
        let bytes = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), size) };
        record(bytes.to_vec());
    }
    size
}
