//! The process: its threads, which of them runs, and the clocks.
//!
//! Exactly one thread of the process runs, apart from kernel threads that only wait in [`switch`].
//! That fact makes [`with`] sound: it is established when [`activate`] is called by the only thread
//! of the process, and kept by [`schedule`], which returns only to the thread whose turn it is.

use crate::{
    c, files,
    order::{Cause, MAX_THREADS, NEVER, Order, State},
    reader::Reader,
    switch::{self, Context},
};
use libc::{c_int, c_void, nfds_t, pollfd, pthread_t, sigset_t};
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
/// The longest turn of a core in ns while the host's files must be looked at.
const INPUT_TURN: u64 = 20_000;

/// The function with which a thread starts.
pub type ThreadStart = extern "C" fn(*mut c_void) -> *mut c_void;

/// Facts about a thread that the order does not need.
pub struct Facts {
    /// Its function and argument.
    pub start: Option<ThreadStart>,
    /// The argument of its function.
    pub argument: *mut c_void,
    /// The result of its function.
    pub result: *mut c_void,
    /// Its handle.
    pub handle: pthread_t,
    /// Whether its place becomes free when it ends.
    pub is_detached: bool,
    /// Where its clock is while it runs.
    pub cell: *mut u64,
    /// The mutex of its first wait for a condition: of a core, QEMU's big lock.
    pub first_mutex: usize,
    /// Its clock at its last acquisition of the big lock, and the acquisitions since that clock.
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

/// Counts of a run, for its statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Changes of the running thread.
    pub switches: u64,
    /// Ends of turns.
    pub turns: u64,
    /// Waits until the host does something.
    pub host_waits: u64,
    /// Nanoseconds that were charged for exceptions without an instruction.
    pub charged: u64,
}

/// The state of the process.
pub struct Process {
    /// The order of turns.
    pub order: Order,
    /// Facts about each thread, by its place in the order.
    pub facts: [Facts; MAX_THREADS],
    /// QEMU's big lock, once a core has run.
    pub big_lock: usize,
    /// Whether the host may give input.
    pub takes_input: bool,
    /// The reader of the machine's memory.
    pub reader: Reader,
    /// What keeps virtual time from being faster than the host's.
    pub pace: Option<files::Pace>,
    /// Counts.
    pub counts: Counts,
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
    takes_input: false,
    reader: Reader::NONE,
    pace: None,
    counts: Counts { switches: 0, turns: 0, host_waits: 0, charged: 0 },
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
/// Whether a thread or a signal handler has notified the main loop.
static NOTIFIED: AtomicBool = AtomicBool::new(false);
/// Whether the order governs the process.
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
    LIMIT.fetch_min(limit, Relaxed);
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
        process.counts.turns += 1;
        process.reader.count(now().saturating_sub(process.since));
        process.order.current()
    });
    if with(|process| process.takes_input) {
        files::look_at_host();
    }
    if with(|process| process.reader.is_due()) {
        with(|process| process.reader.wait());
    }
    let turn = loop {
        let now = now();
        if NOTIFIED.swap(false, SeqCst) {
            with(|process| process.order.wake_for_files(now));
        }
        match with(|process| process.order.next(now)) {
            Some(turn) => break turn,
            None => files::wait_for_host(),
        }
    };
    let limit = with(|process| {
        let input = if process.takes_input { turn.clock + INPUT_TURN } else { NEVER };
        turn.limit.min(input).min(process.reader.due(turn.clock))
    });
    LIMIT.store(limit, SeqCst);
    if NOTIFIED.load(SeqCst) {
        // The notification came before the limit was set.
        LIMIT.store(0, SeqCst);
    }
    if with(|process| process.pace.is_some()) {
        files::keep_pace(turn.clock);
    }
    if turn.thread == from {
        set_now(turn.clock);
    } else {
        let (cell, has_ended) = with(|process| {
            process.counts.switches += 1;
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
    let object = with(|process| {
        process.facts[place].result = result;
        process.order.end();
        if process.facts[place].is_detached {
            process.order.remove(place);
        }
        place
    });
    wake_all(Cause::Join, object);
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

/// Writes the counts and the clock of each thread.
pub fn statistics() -> String {
    use std::fmt::Write as _;
    let now = now();
    with(|process| {
        let Counts { switches, turns, host_waits, charged } = process.counts;
        let mut text = format!(
            "quantum {} ns, {}, virtual {} ns, switches {switches}, turns {turns}, host waits \
             {host_waits}, reader waits {}, charged {charged} ns\n",
            process.order.quantum(),
            switch::way(),
            now - START,
            process.reader.waits(),
        );
        for place in 0..process.order.used() {
            let thread = process.order.thread(place);
            let clock = if place == process.order.current() { now } else { thread.clock };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "thread {place}: {}, {:?}, {} ns",
                if thread.is_core { "core" } else { "other" },
                thread.state,
                clock.saturating_sub(START)
            );
        }
        text
    })
}

const _: () = assert!(size_of::<Context>() == 16, "the assembly of `switch` knows the offsets");
