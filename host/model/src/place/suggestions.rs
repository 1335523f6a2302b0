//! Suggestions for a board that is too small. A suggestion is reported only if a trial shows fewer
//! diagnostics.

use super::{Placement, Sizes, attempt};
use crate::fault::{Fault, Faults};
use crate::image::total;
use crate::packed::PAGE;
use crate::system::System;
use std::ops::Range;
use weir_units::Bytes;

/// The most suggestions in a message.
const MAX_SUGGESTIONS: usize = 3;
/// Memory of this size and more is suggested in steps of 1 MiB.
const COARSE: u64 = 4 << 20;

/// The result of a trial of a placement.
pub(super) type Attempt = Result<Placement, Vec<Refused>>;

/// An owner without room.
pub(super) struct Refused {
    /// The diagnostic, without help.
    pub fault: Fault,
    /// The cause.
    pub cause: String,
    /// The VM, by its index; `None` for the hypervisor.
    pub vm: Option<usize>,
    /// The suggestion if no change of one VM is enough.
    pub fallback: &'static str,
}

/// The suggestion if the memory is too small for all VMs.
pub(super) const LESS: &str = "no change of one VM is enough: give less memory to several";

/// Returns the diagnostics with their suggestions.
pub(super) fn mend(system: &System, sizes: &Sizes, refused: Vec<Refused>) -> Faults {
    let spans: Vec<_> = refused.iter().map(|refused| refused.fault.span()).collect();
    let faults = refused.into_iter().map(|Refused { fault, cause, vm, fallback }| {
        let span = fault.span();
        let better = |other: &System| is_better(other, sizes, &spans, &span);
        let suggestions = suggestions(system, sizes, vm, better);
        let suggestions =
            if suggestions.is_empty() { fallback.to_owned() } else { suggestions.join(", or ") };
        fault.help(format!("{cause}; {suggestions}"))
    });
    let mut faults: Vec<Fault> = faults.collect();
    faults.sort_by_key(|fault| fault.span().start);
    Faults(faults)
}

/// Whether fewer of the faults at `before` are left, and fewer at `span`.
fn is_better(system: &System, sizes: &Sizes, before: &[Range<usize>], span: &Range<usize>) -> bool {
    let Err(left) = attempt(system, sizes) else { return true };
    let here =
        |spans: &mut dyn Iterator<Item = Range<usize>>| spans.filter(|at| at == span).count();
    left.len() < before.len()
        && here(&mut left.iter().map(|refused| refused.fault.span()))
            < here(&mut before.iter().cloned())
}

fn suggestions(
    system: &System,
    sizes: &Sizes,
    vm: Option<usize>,
    better: impl Fn(&System) -> bool,
) -> Vec<String> {
    let mut suggestions = Vec::new();
    for wider in system.division.wider(vm) {
        let suggestion = wider.into_iter().find_map(|(division, numbers)| {
            let target = vm.and_then(|vm| system.vms.get(vm));
            let target = target.map_or("in [hypervisor]".into(), |vm| format!("for {}", vm.name));
            better(&System { division, ..system.clone() })
                .then(|| format!("write {numbers} {target}"))
        });
        suggestions.extend(suggestion);
    }
    // Its own memory, then the others', the largest first.
    let size = |vm: usize| total(&system.vms[vm].memory).0;
    let mut order: Vec<usize> =
        (0..system.vms.len()).filter(|&vm| Some(vm) != system.broker()).collect();
    order.sort_by_key(|&other| (Some(other) != vm, std::cmp::Reverse(size(other))));
    for other in order {
        if suggestions.len() >= MAX_SUGGESTIONS {
            break;
        }
        let least = sizes.pristine.get(other).copied().unwrap_or(0);
        let most = most((least, size(other)), |size| better(&with_memory(system, other, size)));
        let name = &system.vms[other].name;
        suggestions.extend(most.map(|most| format!("give {name} {} or less", Bytes(most))));
    }
    suggestions
}

/// Returns the most memory, below `size` and at least `least`, that makes the trial better.
fn most((least, size): (u64, u64), better: impl Fn(u64) -> bool) -> Option<u64> {
    let unit = if size >= COARSE { 1 << 20 } else { PAGE };
    let (mut good, mut bad) = (least.div_ceil(unit).max(1), size.div_ceil(unit));
    if good >= bad || !better(good * unit) {
        return None;
    }
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if better(middle * unit) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Some(good * unit)
}

/// The system with the first `size` bytes of a VM's RAM.
fn with_memory(system: &System, vm: usize, size: u64) -> System {
    let mut system = system.clone();
    let mut left = size;
    system.vms[vm].memory.retain_mut(|piece| {
        piece.size = Bytes(piece.size.0.min(left));
        left -= piece.size.0;
        piece.size.0 > 0
    });
    system
}
