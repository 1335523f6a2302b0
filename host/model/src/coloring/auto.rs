//! `"auto"`: how many colors or banks a VM gets, and which.

use super::owner::Owner;
use super::work::Work;
use crate::classes::part::Part;
use crate::fault::Fault;
use crate::platform::Platform;
use crate::resolve::LIKELY_HYPERVISOR;
use crate::resolve::SPARE;
use std::{cmp::Reverse, collections::BTreeSet, ops::Range};
use weir_abi::PAGE;
use weir_paging::classes::Pages;

/// About what the hypervisor takes: its program, tables and rings.
pub(super) const HYPERVISOR_MEMORY: u64 = LIKELY_HYPERVISOR.0 + SPARE;

/// The board's RAM without where an image with guests of `images` bytes is loaded, which is not
/// used again.
pub(super) fn without_image(platform: &Platform, images: u64) -> Vec<Range<u64>> {
    let end = platform.load_address.0.saturating_add(images + LIKELY_HYPERVISOR.0);
    let mut pools = platform.pools();
    for pool in pools.iter_mut().filter(|pool| pool.contains(&platform.load_address.0)) {
        pool.start = end.min(pool.end);
    }
    pools
}

/// The numbers that must be left for another owner.
struct Claim {
    /// The numbers that would do.
    places: BTreeSet<u16>,
    /// How many of them it takes.
    least: u64,
    /// It is for a number of the other part that the file gives.
    given: bool,
}

impl Work<'_> {
    /// Gives each critical owner with `"auto"` its own numbers: as many as its
    /// memory and its working set need, or, without a working set, an equal share if that is more.
    /// The others share what is left, at least as much as their memory needs. The order is falling
    /// criticality, then the order of the file; each takes the lowest. If `lean`, no owner gets
    /// more than it needs.
    pub(super) fn choose(&mut self, owners: &mut [Owner], part: Part, lean: bool) {
        let count = u64::from(part.count(&self.classes));
        let ram = self.ram();
        let each = (ram / count).max(1);
        let colors = u64::from(Part::Colors.count(&self.classes));
        let color_fills =
            self.places().cache.map_or(u64::MAX, |cache| cache.size.0 / colors).max(1);
        let (own, shared): (Vec<usize>, Vec<usize>) = (0..owners.len())
            .filter(|&index| owners[index].part(part).numbers.is_none())
            .partition(|&index| owners[index].part(part).auto && owners[index].criticality > 0);
        if own.is_empty() {
            return;
        }
        let needs = |work: &Self, owner: &Owner| {
            let memory = owner
                .memory
                .div_ceil(work.reach(Some(&work.others(owners, owner, part)), part, ram))
                .max(1);
            let memory = match (part, owner.working_set) {
                (Part::Colors, Some(set)) => memory.max(set.0.div_ceil(color_fills)),
                // The banks must have as many colors as it is to choose then.
                (Part::Banks, Some(set)) if owner.colors.auto => {
                    let compatible =
                        work.compatible(Part::Colors, &BTreeSet::from([0])).len().max(1);
                    memory.max(set.0.div_ceil(color_fills).div_ceil(compatible as u64))
                }
                _ => memory,
            };
            let free = work.possible(owners, owner, part);
            memory.max(work.cover(owner, part, &free).len() as u64)
        };
        let free = self.free(owners, part).len() as u64;
        let together: u64 = shared.iter().map(|&index| owners[index].memory).sum();
        let reserve = if shared.is_empty() { 0 } else { together.div_ceil(each).max(1) };
        let mut order: Vec<(usize, u64)> =
            own.into_iter().map(|index| (index, needs(self, &owners[index]))).collect();
        order.sort_by_key(|&(index, _)| Reverse(owners[index].criticality));
        let mut wanted: u64 = order.iter().map(|(_, need)| need).sum();
        let fair = free / (order.len() as u64 + u64::from(!shared.is_empty()));
        for (place, &(index, need)) in order.iter().enumerate() {
            let spare = free.saturating_sub(reserve + wanted);
            let open = !lean && (part == Part::Banks || owners[index].working_set.is_none());
            let more = if open { fair.saturating_sub(need).min(spare) } else { 0 };
            let candidates = self.possible(owners, &owners[index], part);
            let refusal = if free < reserve + wanted {
                let left = self.free(owners, part).len() as u64;
                Some(self.short(owners, index, part, (left, reserve), &order[place..]))
            } else {
                self.uncovered(owners, index, part, &candidates).or_else(|| {
                    let short = (candidates.len() as u64) < need;
                    short.then(|| self.short_next_to(owners, index, part, need))
                })
            };
            if let Some(refusal) = refusal {
                self.faults.push(refusal);
                return;
            }
            let mut numbers = self.cover(&owners[index], part, &candidates);
            let others = self.others(owners, &owners[index], part);
            let claims = self.claims(owners, index, part, (&order[place + 1..], reserve));
            let mut ordered: Vec<u16> = candidates.into_iter().collect();
            ordered.sort_by_key(|number| {
                let claim = |claim: &&Claim| claim.places.contains(number);
                let claimed: Vec<&Claim> = claims.iter().filter(claim).collect();
                (claimed.iter().any(|claim| claim.given), claimed.len())
            });
            let mut last = Vec::new();
            // The numbers are not equally large everywhere, so what is spare fills up what is too
            // small.
            for number in ordered {
                let remains = |claim: &Claim| {
                    let left = |other: &&u16| **other != number && !numbers.contains(*other);
                    !claim.places.contains(&number)
                        || claim.places.iter().filter(left).count() as u64 >= claim.least
                };
                let taken = numbers.len() as u64;
                let small = || self.room(&others, part, &numbers) < owners[index].memory;
                if !claims.iter().all(remains) {
                    last.push(number);
                } else if taken < need + more || taken < need + spare && small() {
                    numbers.insert(number);
                }
            }
            // What makes a request impossible is taken only where it must be; the request is
            // refused then, and the message names the owner.
            for number in last {
                if (numbers.len() as u64) < need {
                    numbers.insert(number);
                }
            }
            wanted += (numbers.len() as u64).saturating_sub(need);
            owners[index].part_mut(part).numbers = Some(numbers);
        }
    }

    /// The RAM behind one number of `part` in the numbers `others` of the other part, or in all of
    /// them.
    pub(super) fn reach(&self, others: Option<&BTreeSet<u16>>, part: Part, ram: u64) -> u64 {
        let other = part.other();
        let each = ram / u64::from(part.count(&self.classes));
        let Some(owned) = others else { return each.max(1) };
        let classes = self.classes.iter();
        let classes =
            classes.filter(|&class| owned.contains(&other.of(&self.classes, class))).count();
        let numbers = self.compatible(part, owned).len();
        if numbers == 0 {
            return each.max(1);
        }
        (ram / self.classes.count() as u64 * classes as u64 / numbers as u64).max(1)
    }

    /// The numbers of the other part in which an owner may have pages: its own, or else those
    /// without an owner.
    pub(super) fn others(&self, owners: &[Owner], owner: &Owner, part: Part) -> BTreeSet<u16> {
        let other = part.other();
        owner.part(other).numbers.clone().unwrap_or_else(|| self.free(owners, other))
    }

    /// What the others must find once owner number `index` has chosen: those that choose `later` as
    /// many as they need, those that share the rest `reserve`, and each number of the other part
    /// that the file gives a place.
    fn claims(
        &self,
        owners: &[Owner],
        index: usize,
        part: Part,
        (later, reserve): (&[(usize, u64)], u64),
    ) -> Vec<Claim> {
        let claim = |(other, least): (usize, u64)| Claim {
            places: self.possible(owners, &owners[other], part),
            least,
            given: false,
        };
        let shares = |&other: &usize| {
            let owned = owners[other].part(part);
            owned.numbers.is_none()
                && !(owned.auto && owners[other].criticality > 0)
                && owners[other].part(part.other()).numbers.is_none()
        };
        let together = (0..owners.len()).find(shares).map(|other| (other, reserve));
        let mut claims: Vec<Claim> = later.iter().copied().chain(together).map(claim).collect();
        // Claims to the same numbers come on top of each other.
        let sums: Vec<u64> = claims
            .iter()
            .map(|claim| {
                let within = claims.iter().filter(|other| other.places.is_subset(&claim.places));
                within.map(|other| other.least).sum()
            })
            .collect();
        for (claim, sum) in claims.iter_mut().zip(sums) {
            claim.least = sum;
        }
        let requests = self.requests(owners, index, part).into_iter();
        claims.extend(requests.map(|places| Claim { places, least: 1, given: true }));
        claims
    }

    /// For each number of the other part that the file gives to another owner without numbers of
    /// `part`: the free numbers of `part` that go with it, one of which it must keep.
    fn requests(&self, owners: &[Owner], index: usize, part: Part) -> Vec<BTreeSet<u16>> {
        let other = part.other();
        let free = self.free(owners, part);
        let requested = owners.iter().enumerate().filter(|(owner, _)| *owner != index);
        let requested =
            requested.filter(|(_, owner)| owner.part(part).numbers.is_none() && owner.names(other));
        let numbers = requested.flat_map(|(_, owner)| owner.part(other).numbers.iter().flatten());
        let places = numbers.map(|&number| {
            let places = self.compatible(part, &BTreeSet::from([number]));
            places.intersection(&free).copied().collect::<BTreeSet<u16>>()
        });
        places.filter(|places| !places.is_empty()).collect()
    }

    /// The RAM in these numbers of `part` and the numbers `others` of the other part.
    fn room(&self, others: &BTreeSet<u16>, part: Part, numbers: &BTreeSet<u16>) -> u64 {
        let other = part.other();
        let set = self.classes.select(|class| {
            numbers.contains(&part.of(&self.classes, class))
                && others.contains(&other.of(&self.classes, class))
        });
        let pages = |set| {
            let pools = self.pools.iter();
            pools.map(|pool| Pages::new(&self.classes, set, pool.clone()).total()).sum::<u64>()
        };
        set.map_or(0, pages) * PAGE
    }

    /// The free numbers of `part` that go with what the owner may have of the other part.
    fn possible(&self, owners: &[Owner], owner: &Owner, part: Part) -> BTreeSet<u16> {
        let compatible = self.compatible(part, &self.others(owners, owner, part));
        self.free(owners, part).intersection(&compatible).copied().collect()
    }

    /// Of the free numbers of `part` the lowest that let the owner use every number of the other
    /// part that the file gives it.
    fn cover(&self, owner: &Owner, part: Part, free: &BTreeSet<u16>) -> BTreeSet<u16> {
        let other = part.other();
        let request = owner.part(other).numbers.as_ref().filter(|_| owner.names(other));
        let mut open = request.cloned().unwrap_or_default();
        let mut taken = BTreeSet::new();
        for &number in free {
            let before = open.len();
            let met = self.compatible(other, &BTreeSet::from([number]));
            open.retain(|number| !met.contains(number));
            if open.len() < before {
                taken.insert(number);
            }
        }
        taken
    }

    /// The fault if the file gives the owner numbers of the other part with which none of `free`
    /// goes.
    fn uncovered(
        &self,
        owners: &[Owner],
        index: usize,
        part: Part,
        free: &BTreeSet<u16>,
    ) -> Option<Fault> {
        let (owner, other) = (&owners[index], part.other());
        let assigned = owner.part(other).numbers.as_ref().filter(|_| owner.names(other))?;
        let missing: BTreeSet<u16> =
            assigned.difference(&self.compatible(other, free)).copied().collect();
        (!missing.is_empty()).then(|| self.cannot_have(owners, index, other, &missing, free))
    }
}
