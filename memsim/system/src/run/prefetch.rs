//! Lines that are brought in, asked for by a core or ahead of it.

use super::{ARRIVALS, LINE, Run};
use crate::core::Core;
use weir_memory::{Access, Pa, Picos, system::Issue};

impl Run<'_> {
    /// Notes a line that a core had brought into the second level, if it had more than `before`.
    pub(super) fn refilled(&mut self, core: usize, before: u64, now: Picos) {
        let Core { number, owner, .. } = self.cores[core];
        let arrivals = &mut self.arrivals[usize::from(owner.0)];
        if self.memory.hierarchy().traffic()[number].refills > before
            && self.begun.is_some()
            && arrivals.len() < ARRIVALS
        {
            arrivals.push(now.since(self.begin).0 / 1000);
        }
    }

    /// Passes an access to a core's prefetcher.
    pub(super) fn prefetch(&mut self, core: usize, pa: Pa, missed: bool, now: Picos) {
        let lines = self.cores[core].prefetcher.accessed(pa.0 / LINE, missed);
        for line in lines {
            let c = &mut self.cores[core];
            let (number, owner, token) = (c.number, c.owner, c.prefetch(now));
            let before = self.memory.hierarchy().traffic()[number].refills;
            let pa = Pa(line * LINE);
            match self.memory.issue(number, owner, Access::Read, pa, token as u64, now) {
                Issue::Pending => self.refilled(core, before, now),
                Issue::Hit(_) => {
                    self.cores[core].answered(token);
                }
                Issue::Refused => {
                    let c = &mut self.cores[core];
                    c.answered(token);
                    c.prefetcher.refused(line);
                    return;
                }
            }
        }
    }
}
