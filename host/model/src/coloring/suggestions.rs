//! Suggestions: changes of one key that resolve a diagnostic about colors or banks.
//!
//! A diagnostic comes with a few changes. Its suggestion is the first after which the file has
//! fewer diagnostics, else the last, which leaves a key out. A file has finitely many keys, so that
//! suggestions always lead to a file without these diagnostics.

use super::edit::{Edit, Open, Refusal};
use super::owner::{Owner, Part};
use super::work::Work;
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults};
use std::{mem, ops::Range};

/// The most changes that are tried for all diagnostics of a file together. Later diagnostics get
/// their last change.
const MAX_TRIALS: usize = 200;

/// Identifies a diagnostic before and after a change.
type Known = (Code, Range<usize>);

fn known(fault: &Fault) -> Known {
    (fault.code, fault.span())
}

impl Work<'_> {
    /// Reports a diagnostic. Its suggestion is added when all diagnostics are known.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        let Refusal { fault, cause, edits } = refusal;
        self.open.push(Open { index: self.faults.0.len(), cause, edits });
        self.faults.push(fault);
    }

    /// Adds a suggestion to each diagnostic from index `first` on. `requested` is the content of
    /// the file.
    pub(super) fn mend(&mut self, requested: &[Owner], first: usize) {
        let before: Vec<Known> = self.faults.0.iter().skip(first).map(known).collect();
        let mut trials = 0..MAX_TRIALS;
        for Open { index, cause, edits } in mem::take(&mut self.open) {
            let Some(fault) = self.faults.0.get(index).cloned() else { continue };
            let is_better = |edit: &&Edit| {
                trials.next().is_some() && self.is_less(&edit.applied(requested), &before)
            };
            let best = edits.iter().find(is_better).or(edits.last());
            let suggestion = best.map(|edit| edit.words(requested)).unwrap_or_default();
            let help = if cause.is_empty() { suggestion } else { format!("{cause}; {suggestion}") };
            self.faults.0[index] = fault.help(help);
        }
    }

    /// Returns whether fewer of the diagnostics `before`, and no others, are left with these
    /// owners.
    fn is_less(&self, owners: &[Owner], before: &[Known]) -> bool {
        let mut owners = owners.to_vec();
        let mut faults = Faults::default();
        let mut work = Work {
            file: self.file,
            faults: &mut faults,
            platform: self.platform,
            pools: self.pools.clone(),
            classes: self.classes,
            groups: Vec::new(),
            open: Vec::new(),
            demands: self.demands,
        };
        let has_key = |owner: &Owner| {
            Part::ALL
                .iter()
                .any(|&part| owner.part(part).auto || owner.part(part).numbers.is_some())
        };
        let divided = owners.iter().take(1 + self.demands.len()).any(has_key);
        work.settle(&mut owners, divided);
        let mut before = before.to_vec();
        let count = before.len();
        faults.0.len() < count
            && faults.0.iter().map(known).all(|fault| {
                let place = before.iter().position(|known| *known == fault);
                place.map(|place| before.swap_remove(place)).is_some()
            })
    }
}
