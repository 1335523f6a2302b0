//! The order in which QEMU's threads take turns: a function of virtual time alone.
//!
//! Exactly one thread runs. The thread with the lowest clock is next, and it runs until its clock
//! reaches its *limit*: the clock of the second thread in the order, plus the quantum if both are
//! cores that run. A thread that waits for a time is in the order with that time. A thread that
//! waits for another thread is not in the order until the other thread wakes it.
//!
//! This module has no reference to QEMU, the host or its time, so that its laws can be tested.

#![forbid(unsafe_code)]

/// A point in time that never comes, in ns.
pub const NEVER: u64 = u64::MAX;

/// The most threads at a time. QEMU has one for each core, and about five others.
pub const MAX_THREADS: usize = 128;

/// The kind of object that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A mutex that another thread holds.
    Mutex,
    /// A condition variable.
    Condition,
    /// A word of memory, by the system call.
    Futex,
    /// Files, or the time at which to look at them again.
    Files,
    /// A point in time.
    Sleep,
    /// The end of another thread.
    Join,
    /// The memory's answer to a core.
    Memory,
}

/// The number of causes.
const CAUSES: usize = Cause::Memory as usize + 1;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The place has no thread.
    Free,
    /// The thread runs or could run.
    Runs,
    /// The thread waits until another one wakes it, or until its deadline.
    Waits {
        /// The kind of object.
        cause: Cause,
        /// The address of the object.
        object: usize,
    },
    /// The thread has ended.
    Ended,
}

/// A thread in the order.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The state.
    pub state: State,
    /// The clock in ns, while the thread does not run.
    pub clock: u64,
    /// The end of its wait in ns, if nothing ends it before.
    pub deadline: u64,
    /// True for one of the machine's cores.
    pub is_core: bool,
    /// True if time passes for it while it waits: its clock follows the thread that wakes it.
    ages: bool,
    /// True if its last wait ended by the deadline.
    timed_out: bool,
    /// The number of its wait: the thread that has waited for longest is woken first.
    wait: u64,
}

impl Thread {
    const FREE: Self = Self {
        state: State::Free,
        clock: 0,
        deadline: NEVER,
        is_core: false,
        ages: false,
        timed_out: false,
        wait: 0,
    };

    /// The time of its next turn, given its clock.
    const fn turn(&self, clock: u64) -> u64 {
        match self.state {
            State::Runs => clock,
            State::Waits { .. } => self.deadline,
            State::Free | State::Ended => NEVER,
        }
    }

    /// Returns whether it waits for files.
    pub(crate) const fn waits_for_files(&self) -> bool {
        matches!(self.state, State::Waits { cause: Cause::Files, .. })
    }

    const fn waits_for(&self, cause: Cause, object: usize) -> bool {
        match self.state {
            State::Waits { cause: of, object: at } => of as u8 == cause as u8 && at == object,
            _ => false,
        }
    }
}

/// The next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The place of the thread that runs.
    pub thread: usize,
    /// The clock when the turn begins, in ns.
    pub clock: u64,
    /// The clock when the turn ends at the latest, in ns.
    pub limit: u64,
}

/// All threads.
#[derive(Debug)]
pub struct Order {
    threads: [Thread; MAX_THREADS],
    used: usize,
    current: usize,
    quantum: u64,
    waits: u64,
    /// Number of threads that wait, by cause. A core leaves the emulator's lock at each access to a
    /// device, and hardly ever does a thread wait for it.
    waiting: [usize; CAUSES],
}

impl Order {
    /// Returns the order of a process with one thread, at place 0, which runs.
    #[must_use]
    pub const fn new() -> Self {
        let mut threads = [Thread::FREE; MAX_THREADS];
        threads[0].state = State::Runs;
        Self { threads, used: 1, current: 0, quantum: 0, waits: 0, waiting: [0; CAUSES] }
    }

    /// Sets how far the clocks of two running cores may be apart, in ns.
    pub const fn set_quantum(&mut self, quantum: u64) {
        self.quantum = quantum;
    }

    /// Returns how far the clocks of two running cores may be apart, in ns.
    #[must_use]
    pub const fn quantum(&self) -> u64 {
        self.quantum
    }

    /// Returns the place of the thread that runs.
    #[must_use]
    pub const fn current(&self) -> usize {
        self.current
    }

    /// Returns the places that have ever been used.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Returns the thread at `place`, which must be below [`MAX_THREADS`].
    #[must_use]
    pub const fn thread(&self, place: usize) -> &Thread {
        &self.threads[place]
    }

    /// Adds a thread that could run, with the clock `now`. Returns its place; none if there are
    /// [`MAX_THREADS`].
    pub fn add(&mut self, now: u64) -> Option<usize> {
        let place = self.threads.iter().position(|thread| thread.state == State::Free)?;
        self.threads[place] = Thread { state: State::Runs, clock: now, ..Thread::FREE };
        self.used = self.used.max(place + 1);
        Some(place)
    }

    /// Frees the place of a thread that has ended.
    pub fn remove(&mut self, place: usize) {
        self.threads[place] = Thread::FREE;
    }

    /// Changes the state of a thread, and the number of those that wait.
    const fn set_state(&mut self, place: usize, state: State) {
        if let State::Waits { cause, .. } = self.threads[place].state {
            self.waiting[cause as usize] -= 1;
        }
        if let State::Waits { cause, .. } = state {
            self.waiting[cause as usize] += 1;
        }
        self.threads[place].state = state;
    }

    /// Records that the current thread is a core.
    pub const fn set_core(&mut self) {
        self.threads[self.current].is_core = true;
    }

    /// Records that the current thread has ended.
    pub const fn end(&mut self) {
        self.set_state(self.current, State::Ended);
    }

    /// Records that the current thread waits. Time passes for it meanwhile if it `ages`: a core
    /// that waits for an interrupt ages, a core that waits for a lock of the emulator does not.
    pub const fn wait(&mut self, cause: Cause, object: usize, deadline: u64, ages: bool) {
        self.waits += 1;
        self.set_state(self.current, State::Waits { cause, object });
        let thread = &mut self.threads[self.current];
        thread.deadline = deadline;
        thread.ages = ages;
        thread.timed_out = false;
        thread.wait = self.waits;
    }

    /// Returns whether the last wait of the current thread ended by its deadline.
    #[must_use]
    pub const fn timed_out(&self) -> bool {
        self.threads[self.current].timed_out
    }

    /// Returns how far `other` may be ahead of `thread`.
    fn slack(&self, thread: &Thread, other: &Thread) -> u64 {
        let both_run = thread.is_core && other.is_core && thread.state == State::Runs;
        if both_run { self.quantum } else { 0 }
    }

    /// Wakes the thread at `place` at the current thread's clock `now`. Returns the limit that this
    /// puts on the current thread's turn.
    pub fn wake(&mut self, place: usize, now: u64) -> u64 {
        self.set_state(place, State::Runs);
        let thread = &mut self.threads[place];
        if !thread.is_core || thread.ages {
            thread.clock = thread.clock.max(now);
        }
        thread.deadline = NEVER;
        thread.ages = false;
        let thread = self.threads[place];
        thread.clock.saturating_add(self.slack(&thread, &self.threads[self.current]))
    }

    /// Wakes every thread that waits for the object. Returns the limit on the current turn.
    pub fn wake_all(&mut self, cause: Cause, object: usize, now: u64) -> u64 {
        let mut limit = NEVER;
        if self.waiting[cause as usize] == 0 {
            return limit;
        }
        for place in 0..self.used {
            if self.threads[place].waits_for(cause, object) {
                limit = limit.min(self.wake(place, now));
            }
        }
        limit
    }

    /// Wakes the thread that has waited for the object for longest. Returns the limit on the
    /// current turn; none if no thread waits for it.
    pub fn wake_first(&mut self, cause: Cause, object: usize, now: u64) -> Option<u64> {
        let waiting = (0..self.used).filter(|&place| self.threads[place].waits_for(cause, object));
        let first = waiting.min_by_key(|&place| self.threads[place].wait)?;
        Some(self.wake(first, now))
    }

    /// Wakes every thread that waits for files. Returns the limit on the current turn.
    pub fn wake_for_files(&mut self, now: u64) -> u64 {
        let mut limit = NEVER;
        for place in 0..self.used {
            if self.threads[place].waits_for_files() {
                limit = limit.min(self.wake(place, now));
            }
        }
        limit
    }

    /// Returns the time of the first turn if the current one ends at the clock `now`; [`NEVER`] if
    /// every thread waits for another one, the host or the memory.
    #[must_use]
    pub fn first(&self, now: u64) -> u64 {
        let threads = self.threads[..self.used].iter().enumerate();
        let turns = threads.map(|(place, thread)| {
            let from = if place == self.current { now } else { 0 };
            thread.turn(thread.clock.max(from))
        });
        turns.min().unwrap_or(NEVER)
    }

    /// Ends the wait of the thread that waits for the memory's answer to `core`, at the time `at`.
    pub fn answer(&mut self, core: usize, at: u64) {
        for place in 0..self.used {
            if self.threads[place].waits_for(Cause::Memory, core) {
                self.set_state(place, State::Runs);
                let thread = &mut self.threads[place];
                thread.clock = thread.clock.max(at);
                thread.deadline = NEVER;
            }
        }
    }

    /// Ends the current turn at the clock `now` and begins the next one. Returns none if every
    /// thread waits for another one or for the host.
    pub fn next(&mut self, now: u64) -> Option<Turn> {
        // The memory may have answered the current thread since.
        let current = &mut self.threads[self.current];
        current.clock = current.clock.max(now);
        // The first two in the order; of equal ones a core is behind the others, so that devices
        // act at their time, and the first place is before the others.
        let mut best: Option<(u64, usize)> = None;
        for (place, thread) in self.threads[..self.used].iter().enumerate() {
            let turn = thread.turn(thread.clock);
            let is_before = best.is_none_or(|(first, of)| {
                turn < first || turn == first && self.threads[of].is_core && !thread.is_core
            });
            if turn != NEVER && is_before {
                best = Some((turn, place));
            }
        }
        let (turn, place) = best?;
        if self.threads[place].state != State::Runs {
            self.set_state(place, State::Runs);
            let thread = &mut self.threads[place];
            thread.timed_out = true;
            thread.deadline = NEVER;
            thread.ages = false;
            thread.clock = thread.clock.max(turn);
        }
        self.current = place;
        Some(Turn { thread: place, clock: self.threads[place].clock, limit: self.limit() })
    }

    /// Returns the limit on the turn of the current thread. A thread that is not known to be a core
    /// has none of its own: it stops at its first translation block, to become known.
    fn limit(&self) -> u64 {
        let current = &self.threads[self.current];
        if !current.is_core {
            return 0;
        }
        let others = self.threads[..self.used].iter().enumerate();
        let others = others.filter(|&(place, _)| place != self.current);
        let limits = others.filter_map(|(_, other)| {
            let turn = other.turn(other.clock);
            (turn != NEVER).then(|| turn.saturating_add(self.slack(other, current)))
        });
        limits.min().unwrap_or(NEVER)
    }
}

impl Default for Order {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The longest translation block, in ns.
    const BLOCK: u64 = 20;
    const CORES: usize = 4;
    const MAIN: usize = 0;

    /// What a core does when its turn is over, and the main loop at its time.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Run,
        Sleep,
        Wake(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => Just(Act::Run),
            1 => Just(Act::Sleep),
            2 => (1..=CORES).prop_map(Act::Wake),
        ]
    }

    /// A main loop with a timer, and cores that execute blocks.
    struct Machine {
        order: Order,
        /// The clock and the limit of the thread that runs.
        now: u64,
        limit: u64,
        clocks: [u64; CORES + 1],
    }

    impl Machine {
        fn new(quantum: u64) -> Self {
            let mut order = Order::new();
            order.set_quantum(quantum);
            for _ in 0..CORES {
                order.add(0).expect("a place");
            }
            let clocks = [0; CORES + 1];
            let mut machine = Self { order, now: 0, limit: NEVER, clocks };
            machine.order.wait(Cause::Files, 0, 1, true);
            machine.next();
            machine
        }

        /// Ends the turn, and checks the laws of the next one.
        fn next(&mut self) -> bool {
            let Some(turn) = self.order.next(self.now) else { return false };
            assert!(turn.clock >= self.clocks[turn.thread], "a clock goes back: {turn:?}");
            (self.now, self.limit) = (turn.clock, turn.limit);
            self.clocks[turn.thread] = turn.clock;
            for cause in [Cause::Condition, Cause::Files] {
                let waits = |thread: &&Thread| match thread.state {
                    State::Waits { cause: of, .. } => of == cause,
                    _ => false,
                };
                let waiting = self.order.threads.iter().filter(waits).count();
                assert_eq!(self.order.waiting[cause as usize], waiting, "{cause:?}");
            }
            let running = (1..=CORES).map(|core| self.order.thread(core));
            let running = running.filter(|core| core.is_core && core.state == State::Runs);
            let (mut least, mut most) = (NEVER, 0);
            for core in running {
                (least, most) = (least.min(core.clock), most.max(core.clock));
            }
            let apart = self.order.quantum() + BLOCK;
            assert!(most <= least.saturating_add(apart), "{least} and {most} are apart");
            if turn.thread == MAIN && least != NEVER {
                assert!(least >= turn.clock, "a core is behind the timer: {least}");
            }
            true
        }

        /// Runs the current thread until its turn is over, and does `act` then.
        fn run(&mut self, blocks: &mut impl Iterator<Item = u64>, act: Act) -> bool {
            let current = self.order.current();
            if current == MAIN {
                if let Act::Wake(core) = act
                    && self.order.wake_first(Cause::Condition, core, self.now).is_some()
                {
                    assert!(self.order.thread(core).clock >= self.now, "it has slept until now");
                }
                let deadline = self.now + 50 + blocks.next().unwrap_or(1);
                self.order.wait(Cause::Files, 0, deadline, true);
                return self.next();
            }
            self.order.set_core();
            while self.now < self.limit {
                let Some(block) = blocks.next() else { return false };
                self.now += block;
            }
            match act {
                Act::Run => {}
                Act::Sleep => self.order.wait(Cause::Condition, current, NEVER, true),
                Act::Wake(core) => {
                    self.order.wake_first(Cause::Condition, core, self.now);
                }
            }
            self.next()
        }
    }

    proptest! {
        #[test]
        fn cores_stay_together_and_timers_are_punctual(
            quantum in 0_u64..200,
            blocks in prop::collection::vec(1..=BLOCK, 2000),
            acts in prop::collection::vec(act(), 1..300),
        ) {
            let mut machine = Machine::new(quantum);
            let mut blocks = blocks.into_iter();
            for act in acts {
                if !machine.run(&mut blocks, act) {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let mut order = Order::new();
        order.wait(Cause::Sleep, 0, 500, true);
        assert_eq!(order.next(100), Some(Turn { thread: 0, clock: 500, limit: 0 }));
        assert!(order.timed_out());
        order.wait(Cause::Join, 1, NEVER, true);
        assert_eq!(order.next(500), None, "nothing can end this wait");
    }

    #[test]
    fn the_first_that_waits_is_the_first_that_is_woken() {
        let mut order = Order::new();
        let [one, two] = [(); 2].map(|()| order.add(0).expect("a place"));
        order.wait(Cause::Sleep, 0, 10, true);
        for place in [one, two] {
            assert_eq!(order.next(0).map(|turn| turn.thread), Some(place));
            order.set_core();
            order.wait(Cause::Futex, 8, NEVER, true);
        }
        assert_eq!(order.next(0).map(|turn| turn.thread), Some(0));
        assert!(order.wake_first(Cause::Futex, 8, 10).is_some());
        assert_eq!(order.thread(one).state, State::Runs);
        assert_eq!(order.thread(one).clock, 10, "time has passed while it waited");
        assert_ne!(order.thread(two).state, State::Runs);
        assert!(order.wake_first(Cause::Futex, 9, 10).is_none());
    }

    #[test]
    fn a_core_does_not_age_at_a_lock() {
        let mut order = Order::new();
        let core = order.add(0).expect("a place");
        order.wait(Cause::Sleep, 0, 1000, true);
        order.next(0);
        order.set_core();
        order.wait(Cause::Mutex, 3, NEVER, false);
        assert_eq!(order.next(40).map(|turn| turn.clock), Some(1000));
        order.wake_all(Cause::Mutex, 3, 1000);
        assert_eq!(order.thread(core).clock, 40);
    }

    #[test]
    fn a_core_continues_at_the_answer_of_the_memory() {
        let mut order = Order::new();
        let core = order.add(0).expect("a place");
        order.wait(Cause::Files, 0, 500, true);
        assert_eq!(order.next(0).map(|turn| turn.thread), Some(core));
        order.set_core();
        order.wait(Cause::Memory, 7, NEVER, false);
        assert_eq!(order.first(40), 500, "only the main loop has a turn");
        order.answer(6, 100);
        assert_eq!(order.first(40), 500, "another core's answer");
        order.answer(7, 120);
        assert_eq!(order.first(40), 120);
        let turn = order.next(40).expect("a turn");
        assert_eq!((turn.thread, turn.clock), (core, 120), "it was the current thread");
    }

    #[test]
    fn places_are_limited_and_used_again() {
        let mut order = Order::new();
        let places = (1..MAX_THREADS).map(|_| order.add(0)).collect::<Option<Vec<_>>>();
        assert_eq!(places.map(|places| places.len()), Some(MAX_THREADS - 1));
        assert_eq!(order.add(0), None);
        order.remove(5);
        assert_eq!(order.add(0), Some(5));
    }
}
