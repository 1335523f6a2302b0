//! Suggestions for a board that is too small: the amount of memory of one VM with which a trial
//! shows fewer diagnostics.

use super::{Placement, Sizes, attempt};
use crate::fault::{Fault, Faults};
use crate::image::total;
use crate::system::System;
use std::ops::Range;
use weir_abi::PAGE;
use weir_units::Bytes;

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

/// Returns the diagnostics with one suggestion each.
pub(super) fn mend(system: &System, sizes: &Sizes, refused: Vec<Refused>) -> Faults {
    let spans: Vec<_> = refused.iter().map(|refused| refused.fault.span()).collect();
    let faults = refused.into_iter().map(|Refused { fault, cause, vm, fallback }| {
        let span = fault.span();
        let better = |other: &System| is_better(other, sizes, &spans, &span);
        let suggestion = suggestion(system, sizes, vm, better).unwrap_or(fallback.to_owned());
        fault.help(format!("{cause}; {suggestion}"))
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

/// Returns the least change of the memory of one VM that makes the trial better. Tries the VM
/// itself, then the others, the largest first.
fn suggestion(
    system: &System,
    sizes: &Sizes,
    vm: Option<usize>,
    better: impl Fn(&System) -> bool,
) -> Option<String> {
    let size = |vm: usize| total(&system.vms[vm].memory).0;
    let mut order: Vec<usize> =
        (0..system.vms.len()).filter(|&vm| Some(vm) != system.broker()).collect();
    order.sort_by_key(|&other| (Some(other) != vm, std::cmp::Reverse(size(other))));
    order.into_iter().find_map(|other| {
        let least = sizes.pristine.get(other).copied().unwrap_or(0);
        let most = most((least, size(other)), |size| better(&with_memory(system, other, size)));
        most.map(|most| format!("give {} {} or less", system.vms[other], Bytes(most)))
    })
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
