//! Ways out of a board that is too small: what can be written instead so that more finds room. A way is only told if the file is
//! better for it, which is tried.

use super::{Placement, Sizes, attempt};
use crate::fault::Fault;
use crate::fault::Faults;
use crate::image::total;
use crate::packed::PAGE;
use crate::system::System;
use std::ops::Range;
use weir_units::Bytes;

/// Ways that a message tells at most.
const TOLD: usize = 3;
/// Memory of this size and more is told in steps of a MiB.
const COARSE: u64 = 4 << 20;

/// What found no room, or did.
pub(super) type Attempt = Result<Placement, Vec<Refused>>;

/// Something that found no room.
pub(super) struct Refused {
    /// What is to be told, without help.
    pub fault: Fault,
    /// What else there is to know.
    pub why: String,
    /// Whose it is: a VM's by its place, or the hypervisor's.
    pub vm: Option<usize>,
    /// What to do if no change of one VM is enough.
    pub else_way: &'static str,
}

/// What to do where memory is too little for all.
pub(super) const LESS: &str = "no change of one VM is enough: give less memory to several";

/// The faults with their ways out.
pub(super) fn mend(system: &System, sizes: &Sizes, refused: Vec<Refused>) -> Faults {
    let spans: Vec<_> = refused.iter().map(|refused| refused.fault.span()).collect();
    let faults = refused.into_iter().map(|Refused { fault, why, vm, else_way }| {
        let span = fault.span();
        let better = |other: &System| is_better(other, sizes, &spans, &span);
        let ways = ways(system, sizes, vm, better);
        let ways = if ways.is_empty() { else_way.to_owned() } else { ways.join(", or ") };
        fault.help(format!("{why}; {ways}"))
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

fn ways(
    system: &System,
    sizes: &Sizes,
    vm: Option<usize>,
    better: impl Fn(&System) -> bool,
) -> Vec<String> {
    let mut ways = Vec::new();
    for wider in system.division.wider(vm) {
        let way = wider.into_iter().find_map(|(division, numbers)| {
            let whose = vm.and_then(|vm| system.vms.get(vm));
            let whose = whose.map_or("in [hypervisor]".into(), |vm| format!("for {}", vm.name));
            better(&System { division, ..system.clone() })
                .then(|| format!("write {numbers} {whose}"))
        });
        ways.extend(way);
    }
    // Its own memory, then the others', the largest first.
    let size = |vm: usize| total(&system.vms[vm].memory).0;
    let mut who: Vec<usize> =
        (0..system.vms.len()).filter(|&vm| Some(vm) != system.broker()).collect();
    who.sort_by_key(|&other| (Some(other) != vm, std::cmp::Reverse(size(other))));
    for other in who {
        if ways.len() >= TOLD {
            break;
        }
        let least = sizes.pristine.get(other).copied().unwrap_or(0);
        let most = most((least, size(other)), |size| better(&with_memory(system, other, size)));
        let name = &system.vms[other].name;
        ways.extend(most.map(|most| format!("give {name} {} or less", Bytes(most))));
    }
    ways
}

/// The most memory, below `size` and not below `least`, with which all is better.
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
