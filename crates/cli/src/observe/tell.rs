//! What was seen, as tables and as data.

use super::{Outcome, record};
use crate::run::show::table;
use serde_json::{Value, json};
use std::fmt::Write as _;
use weir_observer::caches::{Counts, Observed, OwnerCounts, Who};

/// What the interface of QEMU's plug-ins does not show, or the model does not follow.
const BLIND: [&str; 5] = [
    "table walks: neither stage 1's nor stage 2's descriptors are counted",
    "devices' DMA",
    "cache maintenance: lines that software wrote back or dropped stay in the model",
    "the end of an access that crosses into another page",
    "speculation and prefetching: only what was executed is counted; fetches go by whole blocks of code",
];

/// What is said of a run in which nothing is counted.
pub const NOTHING: &str = "no guest started: the run ended before the first guest's first instruction, so nothing was counted";

/// The owners that did anything.
pub fn active(seen: &Observed) -> Vec<usize> {
    let active = |owner: &&usize| {
        let owner = &seen.owners[**owner];
        owner.accesses + owner.fetches > 0
    };
    (0..seen.owners.len()).collect::<Vec<_>>().iter().filter(active).copied().collect()
}

/// For a person.
pub fn report(outcome: &Outcome) -> String {
    let seen = &outcome.seen;
    if !seen.started {
        return NOTHING.to_owned();
    }
    let mut text = String::from("Accesses, in lines, and where they missed:\n");
    let mut rows = table([
        "owner",
        "loads, stores",
        "L1 misses",
        "fetches",
        "L1I misses",
        "L2 look-ups",
        "L2 misses",
        "DRAM",
        "row hits",
    ]);
    for &owner in &active(seen) {
        let owner = &seen.owners[owner];
        let counts = [
            owner.accesses,
            owner.l1_misses,
            owner.fetches,
            owner.l1i_misses,
            owner.l2_accesses,
            owner.l2_misses,
            owner.dram_accesses,
            owner.row_hits,
        ];
        rows.add_row(std::iter::once(owner.name.clone()).chain(counts.map(|n| n.to_string())));
    }
    let _ = writeln!(text, "{rows}");
    // Of VMs with cores of their own no line is in another's L1.
    let private = "Lines in the cores' L1 data caches: who (row) evicted whose (column)";
    let private = Some((private, &seen.l1_evictions));
    let private = private.filter(|(_, counts)| seen.between_vms(counts) > 0);
    for (title, counts) in private.into_iter().chain([
        ("Lines in the shared cache: who (row) evicted whose (column)", &seen.l2_evictions),
        ("DRAM rows: who (row) closed whose (column)", &seen.rows_closed),
    ]) {
        let _ = writeln!(text, "{title}:\n{}", matrix(seen, counts));
        let _ = writeln!(
            text,
            "between VMs {}, weir from VMs {}, VMs from weir {}",
            seen.between_vms(counts),
            seen.by_weir(counts),
            seen.of_weir(counts)
        );
    }
    for intrusion in &seen.intrusions {
        let _ = writeln!(
            text,
            "weir evicted VMs' lines: {} times at {:#x}, page {:#x}",
            intrusion.count, intrusion.pc, intrusion.page
        );
    }
    let _ = writeln!(
        text,
        "counted from the first guest's first instruction on; \"weir for NAME\" is weir on NAME's RAM, pristine image, tables and\n\
         state, which lie in NAME's cells; \"weir, elsewhere\" is it on memory that is nobody's"
    );
    let _ = writeln!(text, "{} device accesses, which reach no cache", seen.device_accesses);
    text + "not seen: " + &BLIND.join(";\n          ")
}

fn matrix(seen: &Observed, counts: &Counts) -> String {
    let active = active(seen);
    let name = |owner: &usize| seen.owners[*owner].name.clone();
    let mut rows = table(std::iter::once(String::new()).chain(active.iter().map(name)));
    for by in &active {
        let row = active.iter().map(|of| counts[*by][*of].to_string());
        rows.add_row(std::iter::once(name(by)).chain(row));
    }
    rows.to_string()
}

/// The sums that isolation is about.
fn sums(seen: &Observed, counts: &Counts) -> Value {
    json!({
        "between_vms": seen.between_vms(counts),
        "of_vms_by_weir": seen.by_weir(counts),
        "of_weir_by_vms": seen.of_weir(counts),
    })
}

/// For a program.
pub fn json(outcome: &Outcome) -> Value {
    let seen = &outcome.seen;
    let owner = |owner: &OwnerCounts| {
        let mut value = serde_json::to_value(owner).unwrap_or_default();
        let (kind, vm) = match owner.who {
            Who::Vm(vm) => ("vm", Some(vm)),
            Who::Weir => ("weir", None),
            Who::WeirFor(vm) => ("weir-for-vm", Some(vm)),
            Who::Nobody => ("elsewhere", None),
        };
        value["who"] = kind.into();
        value["vm"] = vm.map(|vm| outcome.system.vms[vm].name.as_str()).into();
        value
    };
    json!({
        "system": crate::image::name(&outcome.system),
        "ended_by": outcome.run.report.ended_by,
        "time_ns": outcome.run.report.time_ns,
        "as_expected": outcome.run.status == crate::failure::GOOD && seen.started,
        "guest_started": seen.started,
        "owners": seen.owners.iter().map(owner).collect::<Vec<_>>(),
        "evictions": sums(seen, &seen.l2_evictions),
        "l1_evictions": sums(seen, &seen.l1_evictions),
        "row_conflicts": sums(seen, &seen.rows_closed),
        "matrices": {
            "l1_evictions": seen.l1_evictions,
            "l2_evictions": seen.l2_evictions,
            "rows_closed": seen.rows_closed,
        },
        "intrusions": seen.intrusions.iter().map(|each| json!({
            "pc": format!("{:#x}", each.pc),
            "page": format!("{:#x}", each.page),
            "count": each.count,
        })).collect::<Vec<_>>(),
        "marks": seen.marks.iter().map(|mark| json!({
            "vm": outcome.system.vms[mark.vm].name,
            "marker": mark.number,
            "accesses": mark.accesses,
            "l1_misses": mark.l1_misses,
            "l2_misses": mark.l2_misses,
        })).collect::<Vec<_>>(),
        "device_accesses": seen.device_accesses,
        "unseen_blocks": seen.unseen_blocks,
        "recorded": record::json(&outcome.traces),
        "not_seen": BLIND,
    })
}
