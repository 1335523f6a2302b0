//! More colors or banks for an owner with too few.

use super::division::Division;
use super::numbers;
use super::owner::Part;
use std::collections::BTreeSet;
use weir_paging::cells::CellSet;

impl Division {
    /// With more colors, and with more banks, for a VM by its place, or for the hypervisor: the
    /// division and the key that asks for it, one number more each time. They are taken from those
    /// without a request, of which one is kept. Empty for an owner without a request or with a
    /// group.
    pub(crate) fn wider(&self, vm: Option<usize>) -> [Vec<(Self, String)>; 2] {
        let [colors, banks] = &self.common;
        [(Part::Colors, colors), (Part::Banks, banks)].map(|(part, common)| {
            let Some(set) = self.sets().find(|(of, _)| *of == vm).map(|(_, set)| *set) else {
                return Vec::new();
            };
            let cells = &self.cells;
            let numbers = |set: &CellSet| part.of_set(cells, set);
            let own = numbers(&set);
            let others = || self.sets().filter(|(of, _)| *of != vm).map(|(_, set)| numbers(set));
            if !own.is_disjoint(common) || others().any(|theirs| !own.is_disjoint(&theirs)) {
                return Vec::new();
            }
            let kept = usize::from(others().any(|theirs| !theirs.is_disjoint(common)));
            let more = common.len().saturating_sub(kept);
            (1..=more)
                .filter_map(|more| {
                    let added: BTreeSet<u16> = common.iter().take(more).copied().collect();
                    let all: BTreeSet<u16> = own.union(&added).copied().collect();
                    let wider = self.with(vm, part, (&set, &all, &added))?;
                    let numbers = numbers::text(all.iter().copied());
                    Some((wider, format!("{} = \"{numbers}\"", part.many())))
                })
                .collect()
        })
    }

    fn sets(&self) -> impl Iterator<Item = (Option<usize>, &CellSet)> {
        let vms = self.vms.iter().enumerate().map(|(vm, set)| (Some(vm), set));
        [(None, &self.hypervisor)].into_iter().chain(vms)
    }

    /// With `all` numbers of `part` for the owner of `set`; the others lose those in `added`. None
    /// if another owner has nothing left.
    fn with(
        &self,
        vm: Option<usize>,
        part: Part,
        (set, all, added): (&CellSet, &BTreeSet<u16>, &BTreeSet<u16>),
    ) -> Option<Self> {
        let cells = &self.cells;
        let other = part.other();
        let beside = other.of_set(cells, set);
        let changed = |(of, theirs): (Option<usize>, &CellSet)| {
            cells.select(|cell| {
                let number = part.of(cells, cell);
                if of == vm {
                    all.contains(&number) && beside.contains(&other.of(cells, cell))
                } else {
                    theirs.contains(cell) && !added.contains(&number)
                }
            })
        };
        let mut sets = self.sets().map(changed);
        let hypervisor = sets.next()??;
        let vms = sets.collect::<Option<Vec<_>>>()?;
        Some(Self { hypervisor, vms, ..self.clone() })
    }
}
