//! Work that is released: passes by a period, or packets as they come.

use crate::LatencyHistogram;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;
use weir_memory::Picos;

/// Releases that wait; one that comes when there are so many is a job that is never begun.
const MOST_WAITING: usize = 1024;

/// The outcome of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JobsOutcome {
    /// By when after its release a job must have ended, in ns.
    pub deadline_ns: Option<u64>,
    /// Jobs that ended in the span.
    pub ended: u64,
    /// Those that ended by their deadline; all of them, if there is none.
    pub met: u64,
    /// Jobs that ended after their deadline, or had not ended by then.
    pub missed: u64,
    /// From the release to the end.
    #[serde(rename = "response_ns")]
    pub response: LatencyHistogram,
}

/// The jobs of a core.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    /// Time between two releases; without it another component releases.
    pub period: Option<Picos>,
    deadline: Option<Picos>,
    released: VecDeque<Picos>,
    /// When the present job was released.
    present: Option<Picos>,
    /// Whether what happens is counted.
    counts: bool,
    outcome: JobsOutcome,
}

impl Jobs {
    pub fn new(period: Option<Picos>, deadline: Option<Picos>) -> Self {
        let outcome =
            JobsOutcome { deadline_ns: deadline.map(|d| d.0 / 1000), ..JobsOutcome::default() };
        Self { period, deadline, released: VecDeque::new(), present: None, counts: false, outcome }
    }

    /// A job may begin from now on.
    pub fn release(&mut self, now: Picos) {
        if self.released.len() < MOST_WAITING {
            self.released.push_back(now);
        } else if self.counts {
            self.outcome.missed += 1;
        }
    }

    /// Begins a job, if none has begun and one was released; whether one has begun.
    pub fn begin(&mut self) -> bool {
        if self.present.is_none() {
            self.present = self.released.pop_front();
        }
        self.present.is_some()
    }

    /// Whether a job has begun and not ended.
    pub const fn has_begun(&self) -> bool {
        self.present.is_some()
    }

    /// The present job has ended; gives the time since its release.
    pub fn end(&mut self, at: Picos) -> Option<Picos> {
        let response = at.since(self.present.take()?);
        if self.counts {
            self.outcome.ended += 1;
            let late = self.deadline.is_some_and(|deadline| response > deadline);
            self.outcome.met += u64::from(!late);
            self.outcome.missed += u64::from(late);
            self.outcome.response.add(response);
        }
        Some(response)
    }

    /// From now on it is counted.
    pub const fn count(&mut self) {
        self.counts = true;
    }

    /// The counts until `now`: what had not ended by its deadline is missed.
    pub fn finish(mut self, now: Picos) -> JobsOutcome {
        if let Some(deadline) = self.deadline {
            let waiting = self.present.iter().chain(&self.released);
            self.outcome.missed += waiting.filter(|at| now.since(**at) > deadline).count() as u64;
        }
        self.outcome
    }
}

impl JobsOutcome {
    /// Those of two cores together.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ended += other.ended;
        self.met += other.met;
        self.missed += other.missed;
        self.response.join(&other.response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_jobs_and_those_that_never_end_are_missed() {
        let mut jobs = Jobs::new(None, Some(Picos(100)));
        jobs.count();
        for at in [0, 50, 60, 200] {
            jobs.release(Picos(at));
        }
        assert!(jobs.begin() && jobs.has_begun());
        jobs.end(Picos(100));
        assert!(jobs.begin());
        jobs.end(Picos(151));
        assert!(jobs.begin());
        // Of 60 and 200 one is late at 250.
        let outcome = jobs.finish(Picos(250));
        assert_eq!((outcome.ended, outcome.met, outcome.missed), (2, 1, 2));
    }

    #[test]
    fn no_job_starts_early_and_the_backlog_is_bounded() {
        let mut jobs = Jobs::new(None, None);
        jobs.count();
        assert!(!jobs.begin());
        for _ in 0..MOST_WAITING + 3 {
            jobs.release(Picos(0));
        }
        assert_eq!(jobs.finish(Picos(1)).missed, 3);
    }
}
