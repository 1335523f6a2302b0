//! `"auto"`: how many colors or banks a VM gets, and which.

use super::{
    assign::Work,
    party::{Part, Party},
};
use crate::units::Bytes;
use std::cmp::Reverse;

/// About what a VM with so much RAM takes: the tables that map it page by page are a 512th, and its pristine image comes on top.
pub(super) const fn with_tables(memory: u64) -> u64 {
    memory + memory / 64 + (2 << 20)
}

impl Work<'_> {
    /// Gives every party that says `"auto"` and is critical numbers of its own: as many as its memory and its working set need,
    /// or, without a working set, an equal share if that is more. The others share what is left, at least as much as their memory
    /// needs. Who is more critical chooses first, then who comes first in the file, and each takes the lowest.
    pub(super) fn choose(&mut self, parties: &mut [Party], part: Part) {
        let count = u64::from(part.count(&self.cells));
        let ram: u64 = self.platform.pools().iter().map(|pool| pool.end - pool.start).sum();
        let each = (ram / count).max(1);
        let line_share = self.places().cache.map_or(u64::MAX, |cache| cache.size.0 / count);
        let (own, shared): (Vec<usize>, Vec<usize>) = (0..parties.len())
            .filter(|&index| parties[index].part(part).numbers.is_none())
            .partition(|&index| parties[index].part(part).auto && parties[index].criticality > 0);
        if own.is_empty() {
            return;
        }
        // Of the memory behind these numbers a party reaches only what its other part leaves.
        let reach = |party: &Party| match part {
            Part::Banks => each,
            Part::Colors => {
                let banks = party.banks.numbers.as_ref().map_or(1, |banks| banks.len() as u64);
                let of =
                    party.banks.numbers.as_ref().map_or(1, |_| u64::from(self.cells.bank_groups()));
                (each * banks / of).max(1)
            }
        };
        let needs = |party: &Party| {
            let memory = party.memory.div_ceil(reach(party)).max(1);
            match (part, party.working_set) {
                (Part::Colors, Some(set)) => memory.max(set.0.div_ceil(line_share.max(1))),
                _ => memory,
            }
        };
        let free = self.free(parties, part).len() as u64;
        let together: u64 = shared.iter().map(|&index| parties[index].memory).sum();
        let reserve = if shared.is_empty() { 0 } else { together.div_ceil(each).max(1) };
        let mut order = own;
        order.sort_by_key(|&index| Reverse(parties[index].criticality));
        let mut wanted: u64 = order.iter().map(|&index| needs(&parties[index])).sum();
        let fair = free / (order.len() as u64 + u64::from(!shared.is_empty()));
        for index in order {
            let need = needs(&parties[index]);
            let spare = free.saturating_sub(reserve + wanted);
            let open = part == Part::Banks || parties[index].working_set.is_none();
            let more = if open { fair.saturating_sub(need).min(spare) } else { 0 };
            wanted += more;
            let candidates: Vec<u16> = self
                .free(parties, part)
                .into_iter()
                .filter(|&number| self.is_possible(&parties[index], part, number))
                .collect();
            if free < reserve + wanted || (candidates.len() as u64) < need {
                let many = part.many();
                let party = &parties[index];
                let message = format!(
                    "{} needs {need} {many} of its own, and {} are left of {free} when the others have theirs",
                    party.name,
                    (candidates.len() as u64).min((free + need).saturating_sub(reserve + wanted)),
                );
                let help = format!(
                    "each is {} of RAM; give less memory or a smaller working set, or leave `{many}` out",
                    Bytes(each)
                );
                let span = party.part(part).span.clone();
                self.fault("cells-short", &span, message).help(help).push(self.faults);
                return;
            }
            let take = usize::try_from(need + more).unwrap_or(usize::MAX);
            let numbers = candidates.into_iter().take(take).collect();
            parties[index].part_mut(part).numbers = Some(numbers);
        }
    }

    /// Whether a number of one part goes with what the party has of the other.
    fn is_possible(&self, party: &Party, part: Part, number: u16) -> bool {
        let (other, owned) = match part {
            Part::Colors => (Part::Banks, &party.banks.numbers),
            Part::Banks => (Part::Colors, &party.colors.numbers),
        };
        let Some(owned) = owned else { return true };
        self.cells.iter().any(|cell| {
            part.of(&self.cells, cell) == number && owned.contains(&other.of(&self.cells, cell))
        })
    }
}
