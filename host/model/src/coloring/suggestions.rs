//! Suggestions: changes to a file after which every owner has cells. A suggestion is reported only
//! if a trial shows fewer diagnostics.

use super::edit::{Change, Edit, Open, Refusal, To};
use super::numbers;
use super::owner::{Owner, Part};
use super::work::Work;
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults};
use std::{collections::BTreeSet, mem, ops::Range};
use weir_units::Bytes;

/// The most suggestions in a message.
const MAX_SUGGESTIONS: usize = 3;
/// The most changes that are tried for all diagnostics of a file together. Later diagnostics have
/// no tried suggestions.
const MAX_TRIALS: usize = 400;

/// What a fault is known by when something else has changed.
type Known = (Code, Range<usize>);

fn known(fault: &Fault) -> Known {
    (fault.code, fault.span())
}

/// Whether `left` is some of `before` and less.
fn is_less(left: &[Known], before: &[Known]) -> bool {
    let mut before = before.to_vec();
    let count = before.len();
    for fault in left {
        let Some(place) = before.iter().position(|known| known == fault) else { return false };
        before.swap_remove(place);
    }
    left.len() < count
}

impl Work<'_> {
    /// Reports a diagnostic. Its suggestions are added when all diagnostics are known.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        let Refusal { fault, cause, edits, rest } = refusal;
        self.open.push(Open { index: self.faults.0.len(), cause, edits, rest });
        self.faults.push(fault);
    }

    /// Adds suggestions to the diagnostics from index `first` on. `requested` is the content of the
    /// file.
    pub(super) fn mend(&mut self, requested: &[Owner], first: usize) {
        let open = mem::take(&mut self.open);
        let before: Vec<Known> = self.faults.0.iter().skip(first).map(known).collect();
        let mut tried = 0;
        for Open { index, cause, mut edits, rest } in open {
            let Some(this) = self.faults.0.get(index).map(known) else { continue };
            let mut seen: Vec<Edit> = Vec::new();
            edits.retain(|edit| {
                !seen.contains(edit) && {
                    seen.push(edit.clone());
                    true
                }
            });
            let (mut good, mut next) = (Vec::new(), Vec::new());
            for edit in edits {
                if good.len() == MAX_SUGGESTIONS {
                    break;
                }
                tried += 1;
                if tried > MAX_TRIALS {
                    break;
                }
                let owners = edit.applied(requested);
                let (left, open) = self.left(&owners);
                if is_less(&left, &before) {
                    good.push((left.len(), edit));
                } else if good.is_empty()
                    && next.len() < MAX_SUGGESTIONS
                    && left.len() <= before.len()
                    && !left.contains(&this)
                    && self.go_on(&owners, &left, open, &mut tried)
                {
                    next.push((left.len(), edit));
                }
            }
            // A change that leads to another diagnostic is suggested only if no other change is
            // better.
            let mut suggestions = if good.is_empty() { next } else { good };
            suggestions.sort_by_key(|(left, _)| *left);
            let cause = if suggestions.is_empty() {
                // Undivided RAM is no larger.
                if !self.is_too_small(requested) {
                    suggestions.extend(self.without(requested, &before));
                }
                if cause.is_empty() {
                    self.sizes(requested)
                } else {
                    format!("{}; {cause}", self.sizes(requested))
                }
            } else {
                cause
            };
            // An amount that was tried says more than that it must be less.
            let rest = if suggestions.iter().any(|(_, edit)| edit.is_smaller()) {
                Vec::new()
            } else {
                rest
            };
            let suggestions = suggestions.iter().map(|(_, edit)| self.words(requested, edit));
            let mut suggestions: Vec<String> = suggestions.chain(rest).collect();
            if suggestions.is_empty() {
                suggestions.push("ask for less: leave `colors` or `banks` out of some".to_owned());
            }
            let help =
                [cause, suggestions.join(", or ")].into_iter().filter(|text| !text.is_empty());
            let help = help.collect::<Vec<_>>().join("; ");
            if let Some(fault) = self.faults.0.get_mut(index) {
                *fault = fault.clone().help(help);
            }
        }
    }

    /// Returns whether each of the diagnostics `left` has a change after which fewer are left.
    /// Without this check, suggestions could lead in a circle. A reduction of memory does not count
    /// as such a change.
    fn go_on(&self, owners: &[Owner], left: &[Known], open: Vec<Open>, tried: &mut usize) -> bool {
        open.len() == left.len()
            && open.into_iter().all(|Open { edits, .. }| {
                edits.iter().filter(|edit| !edit.is_smaller()).any(|edit| {
                    *tried += 1;
                    *tried <= MAX_TRIALS && is_less(&self.left(&edit.applied(owners)).0, left)
                })
            })
    }

    /// The first that leaves fewer faults than `before`: colors, banks or both left out of all.
    fn without(&self, owners: &[Owner], before: &[Known]) -> Option<(usize, Edit)> {
        let of = |part: Part| {
            let names = |&who: &usize| {
                let owned = owners[who].part(part);
                owned.auto || owned.numbers.is_some()
            };
            let change = |who| Change { who: vec![who], part, to: To::Nothing };
            (0..owners.len()).filter(names).map(change).collect::<Vec<_>>()
        };
        let [colors, banks] = Part::ALL.map(of);
        let both = [colors.clone(), banks.clone()].concat();
        [colors, banks, both].into_iter().map(Edit).find_map(|edit| {
            let (left, _) = self.left(&edit.applied(owners));
            is_less(&left, before).then_some((left.len(), edit))
        })
    }

    /// Whether all need more RAM than there is, however it is divided.
    fn is_too_small(&self, owners: &[Owner]) -> bool {
        owners.iter().map(|owner| owner.memory).sum::<u64>() > self.ram()
    }

    /// How many numbers the memory of each takes, for a file that no change of one key makes better.
    fn sizes(&self, owners: &[Owner]) -> String {
        let ram = self.ram();
        if self.is_too_small(owners) {
            let all = owners.iter().map(|owner| owner.memory).sum::<u64>();
            return format!(
                "the RAM is too small: {} has {} in addition to the loaded image, and all VMs with tables and pristine images need about {}",
                self.platform.name,
                Bytes(ram),
                Bytes(all.next_multiple_of(1 << 20))
            );
        }
        let needs = |part: Part| {
            let count = part.count(&self.cells);
            let each = |owner: &Owner| {
                let need = owner
                    .memory
                    .div_ceil(self.reach(owner.part(part.other()).numbers.as_ref(), part, ram))
                    .max(1);
                if need > u64::from(count) {
                    return format!("{} more than there are", owner.name);
                }
                format!("{} {need}", owner.name)
            };
            let all: Vec<String> = owners.iter().take(1 + self.demands.len()).map(each).collect();
            format!("of {count} {} the memory needs at least: {}", part.many(), all.join(", "))
        };
        let named = |part: &Part| owners.iter().any(|owner| owner.part(*part).numbers.is_some());
        let parts: Vec<String> = Part::ALL.into_iter().filter(named).map(needs).collect();
        ["no change of one key is enough".to_owned()]
            .into_iter()
            .chain(parts)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// The faults that are left with these owners, and what may mend them.
    fn left(&self, owners: &[Owner]) -> (Vec<Known>, Vec<Open>) {
        let mut owners = owners.to_vec();
        let mut faults = Faults::default();
        let mut work = Work {
            file: self.file,
            faults: &mut faults,
            platform: self.platform,
            pools: self.pools.clone(),
            cells: self.cells,
            groups: Vec::new(),
            open: Vec::new(),
            demands: self.demands,
        };
        let asks = |owner: &Owner| {
            let asks = |part: Part| owner.part(part).auto || owner.part(part).numbers.is_some();
            Part::ALL.into_iter().any(asks)
        };
        let vms = 1 + self.demands.len();
        let divided = owners.iter().take(vms).any(asks);
        work.settle(&mut owners, divided);
        let open = mem::take(&mut work.open);
        (faults.0.iter().map(known).collect(), open)
    }

    /// A change in words.
    fn words(&self, owners: &[Owner], edit: &Edit) -> String {
        let change = |Change { who, part, to }: &Change| {
            let names: Vec<&str> = who.iter().map(|&who| owners[who].name.as_str()).collect();
            let names = names.join(" and ");
            let many = part.many();
            let quoted = |numbers: &BTreeSet<u16>| numbers::text(numbers.iter().copied());
            match to {
                To::Nothing => format!("leave `{many}` out of {names}"),
                To::Ram(ram) => format!("give {ram} of memory or less to {names}"),
                To::WorkingSet(set) => format!("give a `working_set` of {set} or less to {names}"),
                To::Group(name, _) => format!("write {many} = \"{name}\" for {names}"),
                To::Shared(numbers) => format!(
                    "let {names} have {many} \"{}\" by the name of one [[group]]",
                    quoted(numbers)
                ),
                To::Numbers(numbers) => {
                    let group = who.first().and_then(|&who| owners[who].part(*part).group.clone());
                    let platforms = &self.platform.places.groups;
                    let numbers = quoted(numbers);
                    match group.filter(|_| who.len() > 1) {
                        Some(name) if platforms.iter().all(|theirs| theirs.name != name) => {
                            format!("write {many} = \"{numbers}\" for the [[group]] {name}")
                        }
                        Some(_) => format!(
                            "let {names} have {many} \"{numbers}\" by the name of one [[group]]"
                        ),
                        None => format!("write {many} = \"{numbers}\" for {names}"),
                    }
                }
            }
        };
        edit.0.iter().map(change).collect::<Vec<_>>().join(" and ")
    }
}
