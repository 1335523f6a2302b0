//! Where weir evicts VMs' lines: all places are counted, those with most evictions are listed.

use std::collections::BTreeMap;

use super::report::Intrusion;

/// Most entries of [`ObservedAccesses::intrusions`](super::Observed::intrusions).
pub(super) const LISTED: usize = 64;

/// Evictions by instruction and page.
#[derive(Debug, Default)]
pub(super) struct Places {
    counts: BTreeMap<(u64, u64), u64>,
    /// Of `counts` the greatest, in no order. Kept at each eviction, since a report is made at each
    /// byte of the console, and the hypervisor touches each page of a VM that it restarts.
    heaviest: Vec<Intrusion>,
    evictions: u64,
}

impl Places {
    /// `evictions` more by the instruction at `pc` on `page`.
    pub fn add(&mut self, pc: u64, page: u64, evictions: u64) {
        self.evictions += evictions;
        let count = self.counts.entry((pc, page)).or_default();
        *count += evictions;
        let place = Intrusion { pc, page, count: *count };
        if let Some(listed) =
            self.heaviest.iter_mut().find(|each| (each.pc, each.page) == (pc, page))
        {
            *listed = place;
        } else if self.heaviest.len() < LISTED {
            self.heaviest.push(place);
        } else if let Some(least) = self.heaviest.iter_mut().min_by_key(|each| each.count)
            && least.count < place.count
        {
            *least = place;
        }
    }

    /// The heaviest, in order, and how many places and evictions are not among them.
    pub fn report(&self) -> (Vec<Intrusion>, u64, u64) {
        let mut listed = self.heaviest.clone();
        listed.sort_by_key(|each| (std::cmp::Reverse(each.count), each.pc, each.page));
        let counted: u64 = listed.iter().map(|each| each.count).sum();
        (listed, (self.counts.len() - self.heaviest.len()) as u64, self.evictions - counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_are_listed_and_the_rest_is_counted() {
        let mut places = Places::default();
        // The light ones come first, then one that grows in steps.
        for page in 0..100 {
            places.add(0x1000, page, 1);
        }
        for _ in 0..5 {
            places.add(0x2000, 7, 3);
            places.add(0x1000, 99, 2);
        }
        let (listed, places_left, evictions_left) = places.report();
        assert_eq!(listed.len(), LISTED);
        assert_eq!(listed[0], Intrusion { pc: 0x2000, page: 7, count: 15 });
        assert_eq!(listed[1], Intrusion { pc: 0x1000, page: 99, count: 11 });
        assert!(listed[2..].iter().all(|each| each.count == 1));
        assert_eq!((places_left, evictions_left), (37, 37));
        assert_eq!(Places::default().report(), (Vec::new(), 0, 0));
    }
}
