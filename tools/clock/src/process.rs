//! The process: its threads, which of them runs, and the clocks.
//!
//! Exactly one thread of the process runs, apart from kernel threads that only wait in [`switch`].
//! That fact makes [`with`] sound: it is established when [`activate`] is called by the only thread
//! of the process, and kept by [`schedule`], which returns only to the thread whose turn it is.

use crate::{
    c,
    input::Looks,
    memory::Memory,
    order::{Cause, MAX_THREADS, NEVER, Order, State},
    reader::Reader,
    switch::{self, Context},
};
use libc::{c_int, c_void, nfds_t, pollfd, pthread_t, sigset_t, timespec};
use std::{
    cell::UnsafeCell,
    ptr::{null, null_mut},
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

/// The virtual time at which QEMU starts, in ns: not 0, which QEMU takes for "not set".
pub const START: u64 = 1_000_000_000;
/// The quantum if none is given, in ns.
const QUANTUM: u64 = 100;

/// The host's silence after which a machine without a core that runs or a timer stands still.
static PATIENCE: timespec = timespec { tv_sec: 1, tv_nsec: 0 };
/// The message that the machine stands still, which weir's runner finds in QEMU's log.
const STANDSTILL: &str = "the machine stands still: all its cores sleep, and no timer is set";
static STANDS_STILL: AtomicBool = AtomicBool::new(false);

/// The function with which a thread starts.
pub type ThreadStart = extern "C" fn(*mut c_void) -> *mut c_void;

/// Facts about a thread that the order does not need.
pub struct Facts {
    /// The function with which it starts.
    pub start: Option<ThreadStart>,
    /// The argument of its function.
    pub argument: *mut c_void,
    /// The result of its function.
    pub result: *mut c_void,
    /// The handle that the C library gave it.
    pub handle: pthread_t,
    /// True if its place becomes free when it ends.
    pub is_detached: bool,
    /// The place of its clock while it runs.
    pub cell: *mut u64,
    /// The mutex of its first wait for a condition: of a core, QEMU's big lock.
    pub first_mutex: usize,
    /// The clock at its last acquisition of the big lock, and the number of acquisitions with at
    /// most one instruction between each and the one before.
    pub locked: (u64, u32),
    /// The files that it waits for.
    pub files: (*mut pollfd, nfds_t, *const sigset_t),
}

impl Facts {
    const NONE: Self = Self {
        start: None,
        argument: null_mut(),
        result: null_mut(),
        handle: 0,
        is_detached: false,
        cell: null_mut(),
        first_mutex: 0,
        locked: (0, 0),
        files: (null_mut(), 0, null()),
    };

    /// Returns the facts of a thread that has not started.
    pub fn new(start: ThreadStart, argument: *mut c_void, is_detached: bool) -> Self {
        Self { start: Some(start), argument, is_detached, cell: shared_cell(), ..Self::NONE }
    }
}

/// The state of the process.
pub struct Process {
    /// The order of turns.
    pub order: Order,
    /// Facts about each thread, by its place in the order.
    pub facts: [Facts; MAX_THREADS],
    /// QEMU's big lock, once a core has run.
    pub big_lock: usize,
    /// The looks at the host's input.
    pub looks: Looks,
    /// The reader of the machine's memory.
    pub reader: Reader,
    /// The memory whose time is charged to the cores, if there is one.
    pub memory: Option<Memory>,
    /// The clock from which the current turn's instructions are counted.
    since: u64,
}

struct Exclusive(UnsafeCell<Process>);
// SAFETY: one thread runs at a time (the module's documentation), so accesses are never concurrent,
// and the switch to another thread orders them.
unsafe impl Sync for Exclusive {}

static PROCESS: Exclusive = Exclusive(UnsafeCell::new(Process {
    order: Order::new(),
    facts: [const { Facts::NONE }; MAX_THREADS],
    big_lock: 0,
    looks: Looks::NONE,
    reader: Reader::NONE,
    memory: None,
    since: START,
}));

struct Cell(UnsafeCell<u64>);
// SAFETY: as of `Exclusive`.
unsafe impl Sync for Cell {}

/// The clock of threads that are no cores, and of cores if QEMU has no counter for each core.
static SHARED_CELL: Cell = Cell(UnsafeCell::new(START));
/// The clock of the running thread.
static CLOCK: AtomicPtr<u64> = AtomicPtr::new(SHARED_CELL.0.get());
/// The clock at which the running core ends its turn. A signal handler sets it to 0.
static LIMIT: AtomicU64 = AtomicU64::new(NEVER);
/// True if a thread or a signal handler has notified the main loop.
static NOTIFIED: AtomicBool = AtomicBool::new(false);
/// True if the order governs the process.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Returns the cell of threads that have none of their own.
pub fn shared_cell() -> *mut u64 {
    SHARED_CELL.0.get()
}

/// Returns whether the order governs the process.
#[inline]
pub fn is_active() -> bool {
    ACTIVE.load(Relaxed)
}

/// Calls `f` with the state of the process. `f` must not end the turn.
pub fn with<R>(f: impl FnOnce(&mut Process) -> R) -> R {
    // SAFETY: only the thread that runs comes here, and it does not call `with` inside of `f`: no
    // closure of this library calls a function that does, and none ends the turn.
    f(unsafe { &mut *PROCESS.0.get() })
}

/// Returns the clock of the running thread in ns.
#[inline]
pub fn now() -> u64 {
    // SAFETY: the pointer is that of a cell that stays: the static one, or one of QEMU's counters.
    // QEMU's translated code changes a counter only on the thread that runs.
    unsafe { CLOCK.load(Relaxed).read_volatile() }
}

/// Sets the clock of the running thread.
pub fn set_now(ns: u64) {
    // SAFETY: as in `now`.
    unsafe { CLOCK.load(Relaxed).write_volatile(ns) };
}

/// Returns whether the running core's turn is over.
#[inline]
pub fn is_over() -> bool {
    now() >= LIMIT.load(Relaxed)
}

/// Ends the running core's turn at `limit` at the latest.
pub fn lower_limit(limit: u64) {
    // Most calls have woken no thread: they need no atomic write.
    if limit != NEVER {
        LIMIT.fetch_min(limit, Relaxed);
    }
}

/// Ends the turn at the next translation block and lets the main loop look at its files. Is fit for
/// a signal handler.
pub fn notify() {
    // In this order for all threads, so that either `schedule` sees the notification, or this limit
    // is the later one: with a kernel thread each, a signal handler is on any of them.
    NOTIFIED.store(true, SeqCst);
    LIMIT.store(0, SeqCst);
}

/// Gives the running thread its own cell, with its clock.
pub fn set_cell(cell: *mut u64) {
    let clock = now();
    with(|process| process.facts[process.order.current()].cell = cell);
    CLOCK.store(cell, Relaxed);
    set_now(clock);
}

/// Begins: the order governs the process from now on. The calling thread must be its only one.
pub fn activate() {
    with(|process| {
        process.order.set_quantum(QUANTUM);
        process.facts[0].cell = shared_cell();
        // SAFETY: the call has no arguments and always succeeds.
        process.facts[0].handle = unsafe { libc::pthread_self() };
    });
    switch::begin();
    ACTIVE.store(true, Relaxed);
}

/// Wakes the threads that wait for an object.
pub fn wake_all(cause: Cause, object: usize) {
    let now = now();
    lower_limit(with(|process| process.order.wake_all(cause, object, now)));
}

/// Wakes the thread that has waited for an object for longest. Returns whether there is one.
pub fn wake_first(cause: Cause, object: usize) -> bool {
    let now = now();
    let limit = with(|process| process.order.wake_first(cause, object, now));
    limit.map(lower_limit).is_some()
}

/// Waits until another thread wakes this one, or until `deadline`. Returns whether the deadline
/// ended the wait. See [`Order::wait`].
pub fn wait(cause: Cause, object: usize, deadline: u64, ages: bool) -> bool {
    with(|process| process.order.wait(cause, object, deadline, ages));
    schedule();
    with(|process| process.order.timed_out())
}

/// Ends the turn; returns when the calling thread has its next one. A thread that has ended never
/// has one.
pub fn schedule() {
    let from = with(|process| {
        process.reader.count(now().saturating_sub(process.since));
        process.order.current()
    });
    with(|process| process.reader.stop_if_due());
    let turn = loop {
        let now = now();
        if NOTIFIED.swap(false, SeqCst) {
            with(|process| process.order.wake_for_files(now));
        }
        with(|process| {
            if let Some(memory) = &mut process.memory {
                memory.advance(&mut process.order, now);
            }
        });
        match with(|process| process.order.next(now)) {
            Some(turn) => break turn,
            None => wait_for_host(),
        }
    };
    let limit = with(|process| {
        let answer = process.memory.as_ref().map_or(NEVER, |memory| memory.limit(&process.order));
        turn.limit.min(process.reader.due(turn.clock)).min(answer)
    });
    LIMIT.store(limit, SeqCst);
    if NOTIFIED.load(SeqCst) {
        // The notification came before the limit was set.
        LIMIT.store(0, SeqCst);
    }
    if turn.thread == from {
        set_now(turn.clock);
    } else {
        let (cell, has_ended) = with(|process| {
            let state = process.order.thread(from).state;
            (process.facts[turn.thread].cell, matches!(state, State::Ended | State::Free))
        });
        CLOCK.store(cell, Relaxed);
        set_now(turn.clock);
        switch::to(from, turn.thread, has_ended);
    }
    begin_turn();
}

/// Counts instructions from here on.
fn begin_turn() {
    let now = now();
    with(|process| process.since = now);
}

/// The first function of each thread: waits for its first turn, and calls the thread's function.
extern "C" fn first(place: *mut c_void) -> *mut c_void {
    let place = place.addr();
    switch::wait_for_first_turn(place);
    begin_turn();
    let (start, argument) = with(|process| {
        let facts = &process.facts[place];
        (facts.start, facts.argument)
    });
    let result = start.map_or(null_mut(), |start| start(argument));
    with(|process| {
        process.facts[place].result = result;
        process.order.end();
        if process.facts[place].is_detached {
            process.order.remove(place);
        }
    });
    wake_all(Cause::Join, place);
    schedule();
    // A thread that has ended has no turn any more.
    std::process::abort()
}

/// Creates a thread that has its first turn when the order says so. Returns an error number, or 0.
///
/// # Safety
///
/// As of `pthread_create`.
pub unsafe fn create(
    handle: *mut pthread_t,
    attributes: *const libc::pthread_attr_t,
    facts: Facts,
) -> c_int {
    let now = now();
    let place = with(|process| {
        let place = process.order.add(now)?;
        process.facts[place] = facts;
        Some(place)
    });
    let Some(place) = place else { return libc::EAGAIN };
    switch::prepare(place);
    // SAFETY: the caller's promise; the function's argument is a number.
    let error = unsafe {
        (c::library().create)(handle, attributes, first, std::ptr::without_provenance_mut(place))
    };
    if error != 0 {
        with(|process| process.order.remove(place));
        return error;
    }
    // SAFETY: `pthread_create` has succeeded and has written the handle.
    with(|process| process.facts[place].handle = unsafe { *handle });
    switch::wait_until_parked(place);
    lower_limit(0);
    0
}

const _: () = assert!(size_of::<Context>() == 16, "the assembly of `switch` knows the offsets");

/// Waits for the host: nothing can happen in the machine without it. If the host is silent, too, the
/// message [`STANDSTILL`] says so once. The process ends if no thread waits for files, because then
/// nothing can happen at all.
fn wait_for_host() {
    let waiting = with(|process| {
        (0..process.order.used()).find(|&place| process.order.thread(place).waits_for_files())
    });
    let Some(place) = waiting else {
        c::report("every thread waits for another one");
        std::process::abort();
    };
    let (files, count, mask) = with(|process| process.facts[place].files);
    // SAFETY: the thread waits in `ppoll`, so that its arguments are valid.
    let wait = |time| unsafe { (c::library().poll)(files, count, time, mask) };
    if wait(&raw const PATIENCE) == 0 {
        if !STANDS_STILL.swap(true, Relaxed) {
            c::report(STANDSTILL);
        }
        wait(null());
    }
    let now = now();
    lower_limit(with(|process| process.order.wake(place, now)));
}
