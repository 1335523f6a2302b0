//! A core: it makes the accesses of its vCPU's program, as far as its waiting lines and its
//! regulator let it.

use crate::{budget::Budget, jobs::Jobs, program::Program};
use weir_memory::{Access, Owner, Pa, Picos};

/// A core with a vCPU.
pub(crate) struct Core {
    /// Its number on the chip.
    pub number: usize,
    /// Its VM.
    pub owner: Owner,
    pub program: Option<Program>,
    /// Least time between two accesses.
    pub gap: Picos,
    /// Lines that it waits for at once.
    pub most_waiting: usize,
    pub budget: Option<Budget>,
    /// What it does is released, job by job.
    pub jobs: Option<Jobs>,
    /// The access that was refused or is next.
    pub next: Option<(Access, Pa)>,
    /// Lines that it waits for: when they were asked for. A place is a token.
    pub waiting: Vec<Option<Picos>>,
    pub outstanding: usize,
    /// Whether only an answer lets it go on.
    pub blocked: bool,
    /// Whether its next access is planned.
    pub armed: bool,
    /// No access before: the hypervisor has the core.
    pub busy_until: Picos,
    /// The least time between two accesses is over.
    pub gap_until: Picos,
    pub accesses: u64,
    pub passes: Passes,
}

/// Passes through what a program does, that began in the span.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passes {
    first: Option<Picos>,
    last: Picos,
    begun: u64,
}

impl Passes {
    /// One begins.
    pub fn begin(&mut self, now: Picos) {
        self.first.get_or_insert(now);
        self.last = now;
        self.begun += 1;
    }

    /// Mean time of a pass; `None` if none ended.
    pub fn mean(self) -> Option<Picos> {
        let ended = self.begun.checked_sub(1).filter(|ended| *ended > 0)?;
        Some(Picos(self.last.since(self.first?).0 / ended))
    }
}

impl Core {
    /// Whether its regulator lets it run.
    pub fn may_run(&self) -> bool {
        self.program.is_some() && self.budget.as_ref().is_none_or(|budget| budget.runs)
    }

    /// Whether the present job has nothing left to do or to wait for.
    pub fn job_is_over(&self) -> bool {
        self.outstanding == 0
            && self.next.is_none()
            && self.jobs.as_ref().is_some_and(Jobs::has_begun)
            && self.program.as_ref().is_some_and(Program::is_between_jobs)
    }

    /// A line is asked for; gives its token.
    pub fn wait(&mut self, since: Picos) -> usize {
        self.outstanding += 1;
        let free = self.waiting.iter().position(Option::is_none);
        let token = free.unwrap_or_else(|| {
            self.waiting.push(None);
            self.waiting.len() - 1
        });
        self.waiting[token] = Some(since);
        token
    }

    /// A line has come; gives when it was asked for.
    pub fn answered(&mut self, token: usize) -> Option<Picos> {
        let since = self.waiting.get_mut(token)?.take()?;
        self.outstanding -= 1;
        Some(since)
    }
}
