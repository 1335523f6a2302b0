//! Excludes long intervals of the demand test: only instants at which deadlines align can fail.

use super::{Analyzer, EPS, OnFailure, REACH, Swept, float};
use crate::flows::alignment::{self, Budget, Wave};

/// From this many evaluations on, alignment is tried; it costs about as much as a few thousand of
/// them.
const FAR_EVALUATIONS: f64 = 400_000.0;
/// Alignments to be expected at most among the tasks that are tested: fewer tasks are reduced
/// faster, more branch less.
const UNLIKELY: f64 = 1e-5;
/// Most groups of tasks whose alignments are searched one by one,
const GROUPS: usize = 8;
/// and how far each should reach, in periods, at most.
pub(super) const GROUP_REACH: f64 = 0.33;
/// Of so many tasks with the longest periods the groups are made.
const LONGEST: usize = 2 * alignment::MOST;
/// What a branch in the search for alignments costs, in evaluations.
const NODE: u64 = 256;

impl Analyzer {
    /// Whether visiting (lo, end] of segment `count` - 1 would take longer than excluding it by
    /// alignment.
    pub(super) fn worth_alignment(&self, count: usize, lo: i64, end: i64) -> bool {
        // QPA descends by about half the sum of costs at a time.
        float(end - lo) * count as f64 > FAR_EVALUATIONS * self.total[count - 1]
    }

    /// Sweeps the instants in (lo, end], all of them after the last d, where the deadlines align;
    /// no other can fail. `None` if they are too many.
    pub(super) fn sweep_alignments(
        &mut self,
        lo: i64,
        end: i128,
        on_failure: OnFailure,
    ) -> Option<Swept> {
        let spans = self.alignments(self.window.len(), (lo, end))?;
        let before = self.bandwidth;
        let mut outcome = Swept::Clean;
        for (first, last) in spans {
            let last = i64::try_from(end).map_or(last, |end| last.min(end));
            if last > REACH {
                outcome = Swept::Spent;
            }
            match self.sweep_points(first.max(lo), last.min(REACH), on_failure, false) {
                Swept::Clean if self.bandwidth == before => {}
                other => return Some(other),
            }
        }
        Some(outcome)
    }

    /// Spans that hold every instant of `within`, a part of segment `count` - 1, at which Eq. 10
    /// can fail.
    pub(super) fn alignments(
        &mut self,
        count: usize,
        within: (i64, i128),
    ) -> Option<Vec<(i64, i64)>> {
        // Q_k + A_k - (1 - U_k) t, from above: it is nothing at T_k.
        let (offset, until) = (self.offset[count - 1], self.until[count - 1]);
        let slope = offset / until * (1.0 - 8.0 * EPS);
        let length = (within.1 - i128::from(within.0)) as f64 * (1.0 - EPS);
        let first = (offset - slope * float(within.0)).max(0.0) + offset * 4.0 * EPS;
        let budget = Budget { first, fall: (slope * length / first * (1.0 - 8.0 * EPS)).min(1.0) };
        let (longest, found) = self.longest_periods(count);
        let longest = &longest[..found];
        // One of several groups of tasks must stay under its part of the budget, and bodies that
        // reach over a small part of the periods need neither much reduction nor many branches.
        let groups = (first / self.c[longest[0] as usize] / GROUP_REACH).ceil();
        let groups = (groups as usize).clamp(1, GROUPS);
        let part = Budget { first: first / groups as f64 * (1.0 + 4.0 * EPS), ..budget };
        let nodes = self.effort / (4 * NODE);
        let mut left = nodes;
        let mut waves = Vec::with_capacity(alignment::MOST);
        let mut spans = Some(Vec::new());
        for group in 0..groups {
            // The tasks with the longest periods pass their deadlines least often: as many of them
            // as make an alignment unlikely, were the phases random.
            waves.clear();
            let (mut rate, mut share) = (0.0, 1.0);
            for &i in longest.iter().skip(group).step_by(groups).take(alignment::MOST) {
                let i = i as usize;
                let cost = self.c[i] * (1.0 - 16.0 * EPS);
                waves.push(Wave { window: self.window[i], period: self.period[i], cost });
                rate += 1.0 / float(self.period[i]);
                let others = (waves.len() - 1) as f64;
                if others > 0.0 {
                    share *= part.first / cost / others;
                }
                // The budget falls: on average that leaves this part of the volume.
                let average = 1.0 / (1.0 + others * part.fall);
                if rate * share * average * length < UNLIKELY {
                    break;
                }
            }
            let found = alignment::candidates(&waves, part, within, &mut left);
            spans = spans.zip(found).map(|(mut all, found)| {
                all.extend(found);
                all
            });
            if spans.is_none() {
                break;
            }
        }
        self.effort -= (nodes - left) * NODE;
        spans
    }

    /// The tasks with the longest periods among the first `count`, longest first, and how many
    /// these are.
    pub(super) fn longest_periods(&self, count: usize) -> ([u32; LONGEST], usize) {
        let (mut longest, mut found) = ([0u32; LONGEST], 0);
        // The latest d mostly have the longest periods, so that hardly any has to move up.
        for i in (0..count).rev() {
            let period = self.period[i];
            let mut at = found;
            while at > 0 && self.period[longest[at - 1] as usize] < period {
                at -= 1;
            }
            if at < longest.len() {
                found = (found + 1).min(longest.len());
                longest.copy_within(at..found - 1, at + 1);
                longest[at] = i as u32;
            }
        }
        (longest, found)
    }
}
