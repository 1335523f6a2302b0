//! The colors, banks and budget that each VM needs, and the placement of colors and banks.

use super::problem::{Demand, System};

/// The needs of a VM under some of the demands.
pub(super) struct Need {
    pub(super) colors: u64,
    pub(super) banks: u64,
    pub(super) budget: u64,
    /// The least value of a given budget.
    pub(super) floor: u64,
}

/// Returns the needs of VM `i` under the demands in `kept`.
pub(super) fn need(system: &System, i: usize, kept: &[Demand]) -> Need {
    let (vm, platform) = (&system.vms[i], &system.platform);
    let keeps = |demand| kept.contains(&demand);
    let colors = if keeps(Demand::WorkingSet(i)) {
        vm.working_set.0.div_ceil(platform.color_bytes.0.max(1)).max(1)
    } else {
        // A VM cannot run without a color and a bank.
        1
    };
    let banks = if keeps(Demand::Memory(i)) {
        vm.memory.0.div_ceil(platform.bank_bytes.0.max(1)).max(1)
    } else {
        1
    };
    let (mut budget, mut floor) = (platform.min_accesses, 0);
    if keeps(Demand::Bandwidth(i)) {
        let bytes = u128::from(vm.bandwidth.0) * u128::from(platform.saturation.period().0);
        let accesses = bytes.div_ceil(u128::from(platform.line.0.max(1)) * 1_000_000_000);
        floor = u64::try_from(accesses).unwrap_or(u64::MAX);
        if vm.given.is_none() {
            floor = vm.shape.regulation.enough(floor);
        }
        budget = budget.max(floor);
    }
    let budget = vm.shape.up(budget);
    let colors = if platform.banks_are_colors { colors.max(banks) } else { colors };
    let banks = if platform.banks_are_colors { colors } else { banks };
    Need { colors, banks, budget: vm.given.unwrap_or(budget), floor }
}

/// Returns the positions of the flows among demands.
pub(super) fn flows_among(kept: &[Demand]) -> Vec<usize> {
    kept.iter().filter_map(|d| if let Demand::Flow(i) = d { Some(*i) } else { None }).collect()
}

/// First position and number, per VM.
pub(super) type Ranges = Vec<(u32, u32)>;

/// Returns the ranges of colors and banks: a disjoint range for each VM, and the rest for all
/// best-effort VMs together. `None` if they do not fit.
pub(super) fn place(system: &System, needs: &[Need]) -> Option<(Ranges, Ranges)> {
    let ranges = |most: u32, of: fn(&Need) -> u64| -> Option<Ranges> {
        let mut next = 0u32;
        let mut ranges = vec![(0, 0); needs.len()];
        for (i, need) in needs.iter().enumerate().filter(|(i, _)| !system.vms[*i].best_effort) {
            let count = u32::try_from(of(need)).ok()?;
            ranges[i] = (next, count);
            next = next.checked_add(count).filter(|&n| n <= most)?;
        }
        let left = most - next;
        let shared: u64 = needs
            .iter()
            .enumerate()
            .filter(|(i, _)| system.vms[*i].best_effort)
            .map(|(_, n)| of(n))
            .max()
            .unwrap_or(0);
        if u64::from(left) < shared {
            return None;
        }
        for (range, _) in ranges.iter_mut().zip(&system.vms).filter(|(_, vm)| vm.best_effort) {
            *range = (next, left);
        }
        Some(ranges)
    };
    let banks = |need: &Need| need.banks;
    let colors = |need: &Need| need.colors;
    let memory: u128 =
        system.vms.iter().filter(|vm| vm.best_effort).map(|vm| u128::from(vm.memory.0)).sum();
    let (colors, banks) =
        (ranges(system.platform.colors, colors)?, ranges(system.platform.banks, banks)?);
    // The best-effort VMs' memories are disjoint in the banks that these VMs share; a demand that
    // was dropped counts as one bank.
    let asked: u64 =
        needs.iter().zip(&system.vms).filter(|(_, vm)| vm.best_effort).map(|(n, _)| n.banks).sum();
    let shared = banks.iter().zip(&system.vms).find(|(_, vm)| vm.best_effort).map(|(b, _)| b.1);
    let whole = memory.div_ceil(u128::from(system.platform.bank_bytes.0.max(1)));
    match shared {
        Some(count) if u128::from(count) < whole.min(u128::from(asked)) => None,
        _ => Some((colors, banks)),
    }
}
