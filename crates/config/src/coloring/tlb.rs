//! TLB colors: sets of a TLB, which the *input* address indexes.
//!
//! The hypervisor chooses no virtual address and no device's address, but it chooses where in a VM's address space there is RAM. A guest
//! that maps it one to one, and a device that is given addresses of RAM, use only the sets of those pages. So a choice of
//! sets is a choice of intermediate physical addresses: RAM lies in pieces, with holes where the other sets are.

use super::{
    keys::{Wish, Wishes},
    numbers,
};
use crate::{
    fault::{Fault, Faults, File},
    packed::PAGE,
    platform::Platform,
    system::Piece,
    units::{Bytes, Ipa},
};
use std::collections::BTreeSet;

/// A TLB, or one level of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tlb {
    /// What it is: `core`, `smmu`.
    pub name: String,
    /// Its sets, a power of two; the bits of the page's number choose one.
    pub sets: u16,
}

/// The sets that a VM's RAM may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlbColors {
    /// How many there are: those of the TLB that has the fewest.
    pub sets: u16,
    /// Which the VM uses.
    pub numbers: BTreeSet<u16>,
}

/// Most pieces that a VM's RAM is cut into.
const MAX_PIECES: usize = 256;

impl TlbColors {
    /// The sets as a person writes them.
    #[must_use]
    pub fn text(&self) -> String {
        numbers::text(self.numbers.iter().copied())
    }

    /// RAM of the size of `piece` in pages of these sets, from its base on. `None` when there would be more than 256
    /// pieces, or they would go beyond 64 bits.
    pub(crate) fn spread(&self, piece: Piece) -> Option<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut left = piece.size.0;
        let mut at = piece.base.0;
        while left > 0 {
            let set = at / PAGE % u64::from(self.sets);
            if self.numbers.contains(&(set as u16)) {
                left -= PAGE;
                let full = pieces.len() == MAX_PIECES;
                match pieces.last_mut() {
                    Some(last) if last.end() == at => last.size.0 += PAGE,
                    _ if full => return None,
                    _ => pieces.push(Piece { base: Ipa(at), size: Bytes(PAGE) }),
                }
            }
            at = at.checked_add(PAGE)?;
        }
        Some(pieces)
    }

    /// Whether every page of `piece` is in one of these sets.
    pub(crate) fn has(&self, piece: Piece) -> bool {
        let pages = (piece.size.0 / PAGE).min(u64::from(self.sets));
        let first = piece.base.0 / PAGE;
        (first..first + pages)
            .all(|page| self.numbers.contains(&((page % u64::from(self.sets)) as u16)))
    }
}

/// What the wishes for TLB colors come to, one for each VM. `colors` are the page colors that each VM owns, of so many.
pub(super) fn assign(
    wishes: &Wishes,
    platform: &Platform,
    colors: &[Option<BTreeSet<u16>>],
    count: u16,
    file: &File,
    faults: &mut Faults,
) -> Vec<Option<TlbColors>> {
    let sets = platform.places.tlbs.iter().map(|tlb| tlb.sets).min();
    let mut found: Vec<Option<TlbColors>> = Vec::new();
    for (index, wish) in wishes.vms.iter().enumerate() {
        let colors = colors.get(index).and_then(Option::as_ref);
        let mine = match one(wish, platform, sets, colors, count) {
            Ok(mine) => mine,
            Err((message, help)) => {
                let span = wish.tlb_colors.as_ref().map_or(0..0, |key| key.span.clone());
                let fault = Fault::new("tlb-colors", file, span, message).label("this");
                faults.push(fault.help(help));
                None
            }
        };
        let earlier = wishes.vms.iter().zip(&found);
        for (other, theirs) in earlier {
            let (Some(mine), Some(theirs)) = (&mine, theirs) else { continue };
            let both: Vec<u16> = mine.numbers.intersection(&theirs.numbers).copied().collect();
            let keys = wish.tlb_colors.as_ref().zip(other.tlb_colors.as_ref());
            if let (false, Some((key, first))) = (both.is_empty(), keys) {
                let message = format!("TLB sets {} are given to two VMs", numbers::text(both));
                let fault = Fault::new("tlb-colors", file, key.span.clone(), message);
                let fault = fault.label("again here").and(first.span.clone(), "first here");
                faults.push(fault.help("give each VM sets of its own"));
            }
        }
        found.push(mine);
    }
    found
}

/// What one VM wishes, or what is wrong with that, and what to write instead.
fn one(
    wish: &Wish,
    platform: &Platform,
    sets: Option<u16>,
    colors: Option<&BTreeSet<u16>>,
    count: u16,
) -> Result<Option<TlbColors>, (String, String)> {
    let Some(key) = &wish.tlb_colors else { return Ok(None) };
    let Some(sets) = sets else {
        let message = format!("{} tells nothing of its TLBs", platform.name);
        return Err((
            message,
            "describe [[tlb]] in its platform file, or leave the key out".to_owned(),
        ));
    };
    let help =
        format!("write numbers from 0 to {}, like \"0-{}\", or \"auto\"", sets - 1, sets / 2 - 1);
    if key.value == "auto" {
        let Some(colors) = colors else {
            let message =
                "TLB colors follow the page colors, and this VM has none of its own".to_owned();
            return Err((message, format!("give it `colors`, too; or {help}")));
        };
        // The same part of the sets as of the cache, and the same for nobody else.
        let (sets_of, count) = (u32::from(sets), u32::from(count));
        let numbers =
            (0..sets).filter(|&set| colors.contains(&((u32::from(set) * count / sets_of) as u16)));
        return Ok(Some(TlbColors { sets, numbers: numbers.collect() }));
    }
    match numbers::parse(&key.value) {
        Some(numbers) if numbers.iter().all(|&number| number < sets) => {
            Ok(Some(TlbColors { sets, numbers }))
        }
        Some(_) => Err((format!("{} has TLB sets 0 to {} only", platform.name, sets - 1), help)),
        None => Err((format!("`{}` are no TLB sets", key.value), help)),
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
            let colors = TlbColors { sets, numbers };
            let whole = Piece { base: Ipa(base * PAGE), size: Bytes(pages * PAGE) };
            let Some(pieces) = colors.spread(whole) else { return Ok(()) };
            prop_assert_eq!(pieces.iter().map(|piece| piece.size.0).sum::<u64>(), whole.size.0);
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end() < pair[1].base.0));
            prop_assert!(pieces[0].base.0 >= whole.base.0 && pieces[0].base.0 < whole.base.0 + u64::from(sets) * PAGE);
            for piece in &pieces {
                prop_assert!(colors.has(*piece));
                let wider = Piece { base: piece.base, size: Bytes(piece.size.0 + PAGE) };
                let after = (wider.end() / PAGE - 1) % u64::from(sets);
                prop_assert_eq!(colors.has(wider), colors.numbers.contains(&(after as u16)));
            }
        }
    }
}
