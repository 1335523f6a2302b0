//! A board for regulators: vCPUs that access memory as they like, interrupts that come late, and a
//! record of what each used in each of its periods.
#![allow(dead_code, reason = "each test uses a part of it")]

use proptest::prelude::*;
use weir_budget::BudgetVerdict;
use weir_budget::Counts;
use weir_budget::Event;
use weir_budget::GroupBudget;
use weir_budget::Regulate;
use weir_budget::Regulator;
use weir_budget::Setting;
use weir_units::Nanos;

/// What a vCPU used between the steps that entered one period and the next.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// The number of the period.
    pub index: u64,
    /// How many boundaries the step that ended it was late for, 1 for none.
    pub passed: u64,
    pub counts: Counts,
    /// Whether it was suspended at the end.
    pub suspended: bool,
    /// Whether it was stopped in this period.
    pub stopped: bool,
}

/// A vCPU with its regulator, as a driver has it.
pub struct Vcpu {
    pub setting: Setting,
    pub regulator: Regulator,
    pub counts: Counts,
    pub verdict: BudgetVerdict,
    pub history: Vec<Used>,
    /// The times at which it gets the boundaries of periods.
    index: u64,
    opened: Counts,
    pub off: bool,
    stopped: bool,
}

impl Vcpu {
    pub fn new(setting: Setting, counts: Counts) -> Self {
        setting.check().unwrap();
        Self {
            setting,
            regulator: Regulator::new(&setting),
            counts,
            verdict: BudgetVerdict { run: false, limit: Counts::NEVER, wake: 0 },
            history: Vec::new(),
            index: u64::MAX,
            opened: counts,
            off: false,
            stopped: false,
        }
    }

    /// Passes an event to the regulator. Returns the vCPUs to wake.
    pub fn step(&mut self, group: &GroupBudget, now: u64, event: Event) -> u32 {
        let index = self.setting.periods().index(Nanos(now));
        if self.index != u64::MAX && index > self.index {
            self.history.push(Used {
                index: self.index,
                passed: index - self.index,
                counts: self.counts.minus(self.opened),
                suspended: !self.verdict.run,
                stopped: self.stopped,
            });
            self.opened = self.counts;
            self.stopped = self.off;
        }
        self.index = index;
        self.stopped |= event == Event::Stop;
        self.verdict = self.regulator.step(group, Nanos(now), self.counts, event);
        assert!(
            !self.verdict.run || !self.counts.reached(self.verdict.limit),
            "no vCPU runs with a limit that is reached: {:?} at {:?}",
            self.verdict,
            self.counts
        );
        self.verdict.wake
    }

    /// Makes up to `wanted` accesses, each once asked for when a limit is reached, and then up to
    /// `overshoot` more. Returns the vCPUs to wake.
    pub fn access(&mut self, group: &GroupBudget, now: u64, wanted: Counts, overshoot: u64) -> u32 {
        let mut wake = 0;
        let mut left = wanted;
        while !self.off && self.verdict.run && left != Counts::ZERO {
            let room = self.verdict.limit.minus(self.counts);
            // Proportional, so that either counter may be the first.
            let reads = left.reads.min(room.reads.saturating_add(overshoot));
            let writes = left.writes.min(room.writes.saturating_add(overshoot));
            assert!(reads + writes != 0, "no vCPU runs with a limit that is reached");
            self.counts = self.counts.plus(Counts { reads, writes });
            left = left.minus(Counts { reads, writes });
            if self.counts.reached(self.verdict.limit) {
                wake |= self.step(group, now, Event::Count);
            }
        }
        wake
    }

    /// Changes the budget, from the next period on.
    pub fn set_budget(&mut self, budget: Counts) {
        let changed = Setting { budget, ..self.setting };
        assert_eq!(self.regulator.set_budget(budget), changed.check());
    }
}

/// Several vCPUs of one [`GroupBudget`].
pub struct Board {
    pub group: GroupBudget,
    pub vcpus: Vec<Vcpu>,
    pub now: u64,
    /// Whether the driver heeds [`BudgetVerdict::wake`].
    pub wakes: bool,
    /// The most that a vCPU accesses once its limit is reached.
    pub overshoot: u64,
    /// Wake-ups of each vCPU in the period of this number.
    woken: Vec<(u64, u32)>,
}

/// What happens to one of a board's vCPUs, or to the time.
#[derive(Clone, Debug)]
pub enum Action {
    /// Time goes on, and the interrupts at the boundaries come to the vCPUs of the mask.
    Wait(u64, u8),
    /// Accesses.
    Access(usize, Counts),
    /// The counter is polled.
    Poll(usize),
    /// The VM restarts: off, on.
    Restart(usize),
    /// The vCPU goes off.
    Stop(usize),
    /// It comes back.
    Resume(usize),
}

impl Board {
    pub fn new(settings: impl IntoIterator<Item = Setting>, wakes: bool, overshoot: u64) -> Self {
        let vcpus = settings.into_iter().map(|setting| Vcpu::new(setting, Counts::ZERO)).collect();
        let mut board =
            Self { group: GroupBudget::new(), vcpus, now: 0, wakes, overshoot, woken: Vec::new() };
        board.woken.resize(board.vcpus.len(), (0, 0));
        board.every(Event::Start);
        board
    }

    fn every(&mut self, event: Event) {
        for index in 0..self.vcpus.len() {
            self.send(index, event);
        }
    }

    pub fn send(&mut self, index: usize, event: Event) {
        let wake = self.vcpus[index].step(&self.group, self.now, event);
        self.wake(index, wake);
    }

    /// Wakes vCPUs, and checks that it may: only those that are suspended for their budget, and
    /// each once in a period.
    fn wake(&mut self, from: usize, wake: u32) {
        for (index, vcpu) in self.vcpus.iter_mut().enumerate() {
            if wake & vcpu.setting.member_bit() == 0 {
                continue;
            }
            assert!(index != from && !vcpu.verdict.run && !vcpu.off, "{index} is not suspended");
            let period = vcpu.setting.periods().index(Nanos(self.now));
            let (of, times) = &mut self.woken[index];
            *times = if *of == period { *times + 1 } else { 1 };
            *of = period;
            // All may have spent their budgets once in a period.
            let most = 1 + u32::from(vcpu.setting.spare);
            assert!(*times <= most, "{index} is woken {times} times in period {period}");
            if self.wakes {
                // What is woken is not the last to spend and gives nothing.
                assert_eq!(vcpu.step(&self.group, self.now, Event::Count), 0);
            }
        }
    }

    /// The boundary's interrupt, as the driver passes it on.
    pub fn boundary(&mut self, index: usize) {
        let off = self.vcpus[index].off;
        self.send(index, if off { Event::Stop } else { Event::Period });
    }

    /// To the next boundary of a period, and a step of every vCPU.
    pub fn next_period(&mut self) {
        self.now = self.vcpus[0].setting.periods().next(Nanos(self.now)).0;
        for index in 0..self.vcpus.len() {
            self.boundary(index);
        }
    }

    pub fn access(&mut self, index: usize, wanted: Counts) {
        let (now, overshoot) = (self.now, self.overshoot);
        let wake = self.vcpus[index].access(&self.group, now, wanted, overshoot);
        self.wake(index, wake);
    }

    /// Reads of one, with no overshoot but the board's; how many were made.
    pub fn read(&mut self, index: usize, wanted: u64) -> u64 {
        let before = self.vcpus[index].counts.reads;
        self.access(index, Counts { reads: wanted, writes: 0 });
        self.vcpus[index].counts.reads - before
    }

    /// A new board after these actions, and the periods that end what they began.
    pub fn played(
        settings: impl IntoIterator<Item = Setting>,
        wakes: bool,
        overshoot: u64,
        actions: &[Action],
    ) -> Self {
        let mut board = Self::new(settings, wakes, overshoot);
        for action in actions {
            board.act(action);
        }
        board.end();
        board
    }

    pub fn act(&mut self, action: &Action) {
        let count = self.vcpus.len();
        match *action {
            Action::Wait(span, to) => {
                self.now += span;
                for index in (0..count).filter(|index| to >> index & 1 == 1) {
                    self.boundary(index);
                }
            }
            Action::Access(index, wanted) => self.access(index % count, wanted),
            Action::Poll(index) if !self.vcpus[index % count].off => {
                self.send(index % count, Event::Count);
            }
            Action::Poll(_) => {}
            Action::Stop(index) => {
                self.vcpus[index % count].off = true;
                self.send(index % count, Event::Stop);
            }
            Action::Resume(index) => {
                self.vcpus[index % count].off = false;
                self.send(index % count, Event::Count);
            }
            Action::Restart(index) => {
                self.vcpus[index % count].off = false;
                self.send(index % count, Event::Stop);
                self.send(index % count, Event::Start);
            }
        }
    }

    /// Ends the running period of all, so that the history has it.
    pub fn end(&mut self) {
        for _ in 0..2 {
            self.next_period();
        }
    }

    /// Checks that in any consecutive periods all together used no more than a budget and `each`
    /// for each of the periods, and `once` more.
    pub fn assert_bounded(&self, budget: Counts, each: u64, once: u64) {
        let history = || self.vcpus.iter().flat_map(|vcpu| &vcpu.history);
        let periods = history().map(|used| used.index + 1).max().unwrap_or(0);
        let mut used = vec![Counts::ZERO; periods as usize];
        for period in history() {
            let sum = &mut used[period.index as usize];
            *sum = sum.plus(period.counts);
        }
        let excess =
            |used: u64, budget: u64| i128::from(used) - i128::from(budget.saturating_add(each));
        // The most that the periods up to this one, and from any one on, are over their budgets.
        let (mut reads, mut writes) = (0, 0);
        for (index, used) in used.iter().enumerate() {
            reads = excess(used.reads, budget.reads) + reads.max(0);
            writes = excess(used.writes, budget.writes) + writes.max(0);
            assert!(
                reads.max(writes) <= i128::from(once),
                "over {budget:?} by {reads} reads, {writes} writes in periods up to {index}"
            );
        }
    }
}

/// Histories of up to 200 actions on periods of 100 ns.
pub fn actions() -> impl Strategy<Value = Vec<Action>> {
    let vcpu = 0..8_usize;
    let wanted = (0..80_u64, 0..80_u64).prop_map(|(reads, writes)| Counts { reads, writes });
    let action = prop_oneof![
        // Often the interrupts come to all, in time.
        4 => (1..=100_u64).prop_map(|span| Action::Wait(span, 0xff)),
        2 => (0..=450_u64, any::<u8>()).prop_map(|(span, told)| Action::Wait(span, told)),
        8 => (vcpu.clone(), wanted).prop_map(|(vcpu, wanted)| Action::Access(vcpu, wanted)),
        1 => vcpu.clone().prop_map(Action::Poll),
        1 => vcpu.clone().prop_map(Action::Stop),
        1 => vcpu.clone().prop_map(Action::Resume),
        1 => vcpu.prop_map(Action::Restart),
    ];
    prop::collection::vec(action, 0..200)
}

/// A budget for reads, or for both.
pub fn budgets(least: u64) -> impl Strategy<Value = Counts> {
    let writes = prop_oneof![Just(u64::MAX), least..60_u64];
    (least..60_u64, writes).prop_map(|(reads, writes)| Counts { reads, writes })
}
