use super::{Decision, MAX_ENTITIES, Ready};
use core::num::NonZero;
use weir_units::Nanos;

#[derive(Clone, Copy, Debug)]
struct Server {
    budget: u64,
    period: NonZero<u64>,
    /// Remaining budget of this period.
    left: u64,
    /// Time used beyond a budget because the driver was late; subtracted from the next budgets.
    owed: u64,
    /// End of this period.
    end: u64,
}

impl Server {
    /// A server without a budget.
    const NONE: Self = Self { budget: 0, period: NonZero::<u64>::MIN, left: 0, owed: 0, end: 0 };

    fn replenish(&mut self, now: u64) {
        if now >= self.end {
            // The budget of each period that has passed since then is subtracted from the owed
            // time.
            let passed = (now - self.end) / self.period;
            let owed = self.owed.saturating_sub(passed.saturating_mul(self.budget));
            self.left = self.budget.saturating_sub(owed);
            self.owed = owed.saturating_sub(self.budget);
            self.end = (now - now % self.period).saturating_add(self.period.get());
        }
    }

    fn spend(&mut self, time: u64) {
        self.owed = self.owed.saturating_add(time.saturating_sub(self.left));
        self.left = self.left.saturating_sub(time);
    }

    /// Charges a run from `since` to `now`. Time used in a period that is over is charged to that
    /// period's budget.
    fn ran(&mut self, since: u64, now: u64) {
        self.replenish(since.min(now));
        let before = now.min(self.end);
        self.spend(before.saturating_sub(since));
        let beyond = now - before;
        // The periods in between were used completely.
        self.owed = self.owed.saturating_add(beyond - beyond % self.period);
        self.replenish(now);
        self.spend(beyond % self.period);
    }
}

/// Servers with a budget of time in each period, in order of falling priority: the first one that
/// is ready and has budget left runs. A budget is kept until the end of its period (deferrable
/// servers); periods begin at multiples of their length.
#[derive(Clone, Debug)]
pub struct Servers {
    all: [Server; MAX_ENTITIES],
    entities: usize,
    running: Option<usize>,
    since: u64,
    /// The entity that had the core before the running entity, until the guest of the running
    /// entity executes.
    before: Option<usize>,
}

impl Servers {
    /// Returns servers with these budgets and periods, one per entity, in order of falling
    /// priority. A budget longer than its period is treated as the whole period, and entities
    /// beyond [`MAX_ENTITIES`] get none.
    #[must_use]
    pub fn new(servers: &[(Nanos, Nanos)]) -> Self {
        let mut all = [Server::NONE; MAX_ENTITIES];
        for (server, (budget, period)) in all.iter_mut().zip(servers) {
            let period = NonZero::new(period.0).unwrap_or(NonZero::<u64>::MIN);
            *server = Server { budget: budget.0.min(period.get()), period, ..Server::NONE };
        }
        Self {
            all,
            entities: servers.len().min(MAX_ENTITIES),
            running: None,
            since: 0,
            before: None,
        }
    }

    pub(super) fn step(&mut self, now: Nanos, ready: Ready) -> Decision {
        let now = now.0.max(self.since);
        let since = core::mem::replace(&mut self.since, now);
        let running = self.running.take();
        let mut until = u64::MAX;
        for (place, server) in self.all.iter_mut().enumerate().take(self.entities) {
            if running == Some(place) {
                server.ran(since, now);
            } else {
                server.replenish(now);
            }
            if self.running.is_some() || !ready.has(place as u8) {
                continue;
            }
            if server.left > 0 {
                self.running = Some(place);
                until = until.min(now.saturating_add(server.left));
            } else {
                until = until.min(server.end);
            }
        }
        if self.running != running {
            self.before = running;
        }
        Decision { run: self.running.map(|place| place as u8), until: Nanos(until) }
    }

    /// Charges the switch from a server to a less urgent one to the former. Otherwise each
    /// preemption by the urgent server would spend budget of the other one.
    pub(super) fn entered(&mut self, now: Nanos) {
        let before = self.before.take();
        if let (Some(before), Some(running)) = (before, self.running)
            && before < running
            && let Some(server) = self.all.get_mut(before)
        {
            let now = now.0.max(self.since);
            server.replenish(now);
            server.spend(now - self.since);
            self.since = now;
        }
    }

    pub(super) fn charge(&mut self, entity: u8, time: Nanos) {
        let entity = usize::from(entity);
        if self.running == Some(entity) || entity >= self.entities {
            return;
        }
        if let Some(server) = self.all.get_mut(entity) {
            server.spend(time.0);
        }
        // The running entity is treated as if it had begun later by this time.
        if self.running.is_some() {
            self.since = self.since.saturating_add(time.0);
        }
    }
}
