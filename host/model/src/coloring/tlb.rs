//! TLB colors: sets of a TLB, which the *input* address indexes.
//!
//! The hypervisor chooses no virtual address and no device's address, but it chooses where in a
//! VM's address space there is RAM. A guest that maps it one to one, and a device that is given
//! addresses of RAM, use only the sets of those pages. So a choice of sets is a choice of
//! intermediate physical addresses: RAM lies in pieces, with holes where the other sets are.

use super::owner::Owner;
use super::requests::{Request, Requests};
use crate::classes::numbers;
use crate::classes::part::shortened;
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File};
use crate::platform::Platform;
use crate::vm::RamPiece;
use std::{collections::BTreeSet, ops::Range};
use weir_abi::PAGE;
use weir_units::{Bytes, Ipa};

/// The sets that a VM's RAM may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbColors {
    /// How many there are: those of the TLB that has the fewest.
    pub sets: u16,
    /// Which the VM uses.
    pub numbers: BTreeSet<u16>,
    /// The VM's key in the file.
    pub(crate) span: Range<usize>,
}

/// Most pieces that a VM's RAM is cut into.
const MAX_PIECES: usize = 256;

impl TlbColors {
    /// The sets as a person writes them.
    #[must_use]
    pub fn text(&self) -> String {
        numbers::text(self.numbers.iter().copied())
    }

    /// RAM of the size of `piece` in pages of these sets, from its base on. `None` when there would
    /// be more than 256 pieces, or they would go beyond 64 bits.
    pub(crate) fn spread(&self, piece: RamPiece) -> Option<Vec<RamPiece>> {
        if self.numbers.len() == usize::from(self.sets) {
            return Some(vec![piece]);
        }
        let mut pieces: Vec<RamPiece> = Vec::new();
        let mut left = piece.size.0;
        let mut at = piece.base.0;
        while left > 0 {
            let set = (at / PAGE % u64::from(self.sets)) as u16;
            let Some(&first) = self.numbers.range(set..).next() else {
                at = at.checked_add(u64::from(self.sets - set) * PAGE)?;
                continue;
            };
            let start = at.checked_add(u64::from(first - set) * PAGE)?;
            let run = (first..self.sets).zip(self.numbers.range(first..));
            let run = run.take_while(|(set, number)| set == *number).count() as u64;
            let len = left.min(run * PAGE);
            let full = pieces.len() == MAX_PIECES;
            match pieces.last_mut() {
                Some(last) if last.end() == start => last.size.0 += len,
                _ if full => return None,
                _ => pieces.push(RamPiece { base: Ipa(start), size: Bytes(len) }),
            }
            at = start.checked_add(len)?;
            left -= len;
        }
        Some(pieces)
    }

    /// RAM of the size of `piece` as [`Self::spread`] has it, if that ends at `limit` or below.
    pub(crate) fn spread_below(&self, piece: RamPiece, limit: u64) -> Option<Vec<RamPiece>> {
        self.spread(piece).filter(|pieces| pieces.last().is_none_or(|last| last.end() <= limit))
    }

    /// Returns why a piece of RAM, with an address that was `given` or not, can't lie in these sets,
    /// and what to write instead.
    pub(crate) fn refusal(&self, name: &str, piece: RamPiece, given: bool) -> (String, String) {
        let RamPiece { base, size } = piece;
        let ram = format!("{name}: its RAM of {size} at {base}");
        let sets = self.sets;
        let last = self.numbers.len().saturating_sub(1);
        let own = format!("TLB set{} {}", if last == 0 { "" } else { "s" }, self.text());
        if given {
            let beyond = (base.0 / PAGE..).take(sets.into()).map(|page| page % u64::from(sets));
            let beyond: BTreeSet<u16> = beyond
                .take((size.0 / PAGE).min(sets.into()) as usize)
                .map(|set| set as u16)
                .filter(|set| !self.numbers.contains(set))
                .collect();
            let message = format!(
                "{ram} does not lie in the {own} alone, but in {} of {sets}, too",
                numbers::text(beyond)
            );
            let help = format!(
                "a page's set is its number modulo {sets}: write the memory as one size, like \
                 memory = \"{size}\", which weir cuts itself"
            );
            return (message, help);
        }
        let message = if self.spread(piece).is_none() {
            format!("{ram} in {own} of {sets} is cut into more than {MAX_PIECES} pieces")
        } else {
            format!("{ram} in {own} of {sets} ends above 39 bits")
        };
        let help = format!(
            "write sets in one run, or more of the {sets}, for {name}, or leave `tlb_colors` out"
        );
        (message, help)
    }

    /// Whether every page of `piece` is in one of these sets.
    pub(crate) fn has(&self, piece: RamPiece) -> bool {
        let pages = (piece.size.0 / PAGE).min(u64::from(self.sets));
        let first = piece.base.0 / PAGE;
        (first..first + pages)
            .all(|page| self.numbers.contains(&((page % u64::from(self.sets)) as u16)))
    }
}

/// The VMs that request, as the choice of colors has left them.
pub(super) struct Vms<'a> {
    pub names: &'a [&'a str],
    /// Of each VM; none where the board has no colors.
    pub owners: &'a [Owner],
}

/// What the requests for TLB colors come to, one for each VM; `count` is how many page colors there
/// are.
pub(super) fn assign(
    requests: &Requests,
    platform: &Platform,
    vms: &Vms<'_>,
    count: u16,
    file: &File,
    faults: &mut Faults,
) -> Vec<Option<TlbColors>> {
    let sets = platform.places.tlbs.iter().map(|tlb| tlb.sets).min();
    let name = |index: usize| vms.names.get(index).copied().unwrap_or("a VM");
    let mut found: Vec<Option<TlbColors>> = Vec::new();
    for (index, request) in requests.vms.iter().enumerate() {
        let Some(key) = &request.tlb_colors else {
            found.push(None);
            continue;
        };
        let owner = vms.owners.get(index);
        let read = match (sets, owner) {
            (None, _) => Err((
                format!(
                    "{}: `tlb_colors` needs [[tlb]], which {platform} does not describe",
                    name(index)
                ),
                "describe [[tlb]] in its platform file, or leave the key out".to_owned(),
            )),
            (Some(sets), Some(owner)) if key.value == "auto" => {
                following(request, owner, name(index), sets, count)
            }
            (Some(sets), _) => numbered(&key.value, name(index), platform, sets).map(Some),
        };
        let mine = read.unwrap_or_else(|(message, help)| {
            let fault = Fault::new(Code::TlbColors, file, key.span.clone(), message).label("this");
            faults.push(fault.help(help));
            None
        });
        let mine = mine.zip(sets).map(|(numbers, sets)| TlbColors {
            sets,
            numbers,
            span: key.span.clone(),
        });
        for (other, theirs) in found.iter().enumerate() {
            let (Some(mine), Some(theirs)) = (&mine, theirs) else { continue };
            let both: BTreeSet<u16> = mine.numbers.intersection(&theirs.numbers).copied().collect();
            if both.is_empty() || together(requests, vms.owners, (index, other)) {
                continue;
            }
            let taken = found.iter().flatten().flat_map(|tlb| &tlb.numbers);
            let taken: BTreeSet<u16> = taken.copied().collect();
            let free: Vec<u16> = (0..mine.sets).filter(|set| !taken.contains(set)).collect();
            let written = |name: &str, sets: &mut dyn Iterator<Item = u16>| {
                let sets = numbers::text(sets);
                (!sets.is_empty()).then(|| format!("write tlb_colors = \"{sets}\" for {name}"))
            };
            // As many of the free ones, else those that are its own alone.
            let mut rest = mine.numbers.iter().filter(|set| !taken.contains(set)).copied();
            let suggestion =
                written(name(index), &mut free.iter().copied().take(mine.numbers.len()))
                    .or_else(|| written(name(index), &mut rest))
                    .unwrap_or_else(|| format!("leave `tlb_colors` out of {}", name(index)));
            let (word, are) = if both.len() == 1 { ("set", "is") } else { ("sets", "are") };
            let message = format!(
                "{}: TLB {word} {} {are} given to {}, too",
                name(index),
                numbers::text(both),
                name(other)
            );
            let fault = Fault::new(Code::TlbColors, file, key.span.clone(), message).label("this");
            let fault =
                fault.and(theirs.span.clone(), format!("{} has {}", name(other), theirs.text()));
            faults.push(fault.help(format!(
                "{suggestion}; \"auto\" shares sets only among VMs with the `colors` of one \
                 [[group]]"
            )));
        }
        found.push(mine);
    }
    found
}

/// Whether the sets of two VMs follow colors that they share as a group.
fn together(requests: &Requests, owners: &[Owner], (one, two): (usize, usize)) -> bool {
    let group = |index: usize| {
        let auto = requests.vms.get(index)?.tlb_colors.as_ref()?.value == "auto";
        owners.get(index)?.colors.group.as_ref().filter(|_| auto)
    };
    group(one).is_some() && group(one) == group(two)
}

/// The same part of the sets as a VM's colors are of the cache; nothing if what it has of these was
/// refused before.
fn following(
    request: &Request,
    owner: &Owner,
    name: &str,
    sets: u16,
    count: u16,
) -> Result<Option<BTreeSet<u16>>, (String, String)> {
    let explicit = format!(
        "write numbers from 0 to {} as `tlb_colors`, like \"0-{}\"",
        sets - 1,
        (sets / 2).saturating_sub(1)
    );
    if let Some(colors) = &owner.colors.numbers {
        let color = |set: u16| (u32::from(set) * u32::from(count) / u32::from(sets)) as u16;
        let numbers: BTreeSet<u16> =
            (0..sets).filter(|&set| colors.contains(&color(set))).collect();
        if numbers.is_empty() {
            // Fewer sets than colors: these colors have none of their own.
            let message = format!("{name}: its colors are less than one of the {sets} TLB sets");
            return Err((message, explicit));
        }
        return Ok(Some(numbers));
    }
    if request.colors.is_none() {
        let message = format!("{name}: `tlb_colors` follows its `colors`, but it has none");
        return Err((message, explicit));
    }
    if owner.colors.auto && owner.criticality == 0 {
        let message = format!(
            "{name}: `tlb_colors` follows its `colors`, but \"auto\" at criticality 0 gives shared \
             colors"
        );
        return Err((message, explicit));
    }
    Ok(None)
}

/// What the file lists.
fn numbered(
    text: &str,
    name: &str,
    platform: &Platform,
    sets: u16,
) -> Result<BTreeSet<u16>, (String, String)> {
    let help = format!(
        "write numbers from 0 to {}, like \"0-{}\", or \"auto\"",
        sets - 1,
        (sets / 2).saturating_sub(1)
    );
    match numbers::parse(text) {
        Some(numbers) if numbers.iter().all(|&number| number < sets) => Ok(numbers),
        Some(_) => {
            let wrong = format!("{name}: {platform} has TLB sets 0 to {} only", sets - 1);
            Err((wrong, help))
        }
        None => {
            let text = shortened(text);
            Err((format!("{name}: tlb_colors = {text:?} is not a list of TLB sets"), help))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ram_lies_in_its_sets_only(
            bits in 3u32..8, seed: u128, base in 0u64..400, pages in 1u64..600,
        ) {
            let sets = 1u16 << bits;
            let numbers: BTreeSet<u16> = (0..sets).filter(|set| seed >> set & 1 != 0).collect();
            prop_assume!(!numbers.is_empty());
            let colors = TlbColors { sets, numbers, span: 0..0 };
            let whole = RamPiece { base: Ipa(base * PAGE), size: Bytes(pages * PAGE) };
            let Some(pieces) = colors.spread(whole) else { return Ok(()) };
            prop_assert_eq!(pieces.iter().map(|piece| piece.size.0).sum::<u64>(), whole.size.0);
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end() < pair[1].base.0));
            prop_assert!(
                pieces[0].base.0 >= whole.base.0
                    && pieces[0].base.0 < whole.base.0 + u64::from(sets) * PAGE
            );
            for piece in &pieces {
                prop_assert!(colors.has(*piece));
                let wider = RamPiece { base: piece.base, size: Bytes(piece.size.0 + PAGE) };
                let after = (wider.end() / PAGE - 1) % u64::from(sets);
                prop_assert_eq!(colors.has(wider), colors.numbers.contains(&(after as u16)));
            }
        }
    }
}
