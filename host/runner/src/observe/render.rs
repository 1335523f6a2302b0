//! What was seen, as tables and as data.

use super::{
    Observation,
    result::{
        IntrusionRecord, IsolationSums, LeftOut, MarkRecord, Matrices, ObservationRecord,
        OwnerRecord,
    },
    symbols::Symbols,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};
use weir_qemu_plugin::caches::{
    CountMatrix, Intrusion, MarkerCounts, ObservedAccesses, OwnerCounts, OwnerKind,
};
use weir_report::table;

/// What the interface of QEMU's plug-ins does not show, or the model does not follow.
const BLIND: [&str; 5] = [
    "table walks: neither stage 1's nor stage 2's descriptors are counted",
    "devices' DMA",
    "cache maintenance: lines that software wrote back or dropped stay in the model",
    "the end of an access that crosses into another page",
    "speculation and prefetching: only what was executed is counted; fetches go by whole blocks of \
     code",
];

/// Functions of the hypervisor that are listed with what they evicted.
const PLACES_SHOWN: usize = 10;

/// The text for a run in which nothing is counted.
pub const NOTHING: &str = "no guest started: the run ended before the first guest's first \
                           instruction, so nothing was counted";

/// Why evictions and misses are not the same.
const WRITE_BACKS: &str = "a dirty line that leaves an L1 when the shared cache no longer has it \
                           goes there again: it evicts, and nothing missed\n";

/// The owners that did anything.
pub fn active(seen: &ObservedAccesses) -> Vec<usize> {
    let active = |owner: &&usize| {
        let owner = &seen.owners[**owner];
        owner.accesses + owner.fetches > 0
    };
    (0..seen.owners.len()).collect::<Vec<_>>().iter().filter(active).copied().collect()
}

/// For a person.
#[must_use]
pub fn render(outcome: &Observation) -> String {
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
        "L2 accesses",
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
    text = text + &matrices(seen) + &places(seen, &outcome.symbols) + WRITE_BACKS;
    let _ = writeln!(
        text,
        "counted from the first guest's first instruction on; \"weir for NAME\" is weir on NAME's \
         RAM, pristine image, tables and\nstate, which lie in NAME's page classes; \"weir, \
         elsewhere\" is weir on memory without an owner"
    );
    let _ = writeln!(text, "{} device accesses, which reach no cache", seen.device_accesses);
    text + "not seen: " + &BLIND.join(";\n          ")
}

/// The evictions and closed rows per pair of owners, each with its sums.
fn matrices(seen: &ObservedAccesses) -> String {
    let mut text = String::new();
    // Of VMs with their own cores no line is in another's L1.
    let l1_shared = seen.between_vms(&seen.l1_evictions) > 0;
    for (title, did, counts, drawn) in [
        ("Lines in the cores' L1 data caches", "evicted", &seen.l1_evictions, l1_shared),
        ("Lines in the shared cache", "evicted", &seen.l2_evictions, true),
        ("DRAM rows", "closed", &seen.rows_closed, true),
    ] {
        let _ = if drawn {
            writeln!(text, "{title}: {did} by (row), of (column):\n{}", matrix(seen, counts))
        } else {
            writeln!(text, "{title}: no VM {did} another's")
        };
        let _ = writeln!(
            text,
            "between VMs {}, weir from VMs {}, VMs from weir {}",
            seen.between_vms(counts),
            seen.by_weir(counts),
            seen.of_weir(counts)
        );
    }
    text
}

/// Where the hypervisor evicted VMs' lines: its functions with most evictions.
fn places(seen: &ObservedAccesses, symbols: &Symbols) -> String {
    let mut sums = BTreeMap::<String, (u64, BTreeSet<u64>)>::new();
    for place in &seen.intrusions {
        let name = match place.pc {
            0 => "instruction fetches".to_owned(),
            pc => symbols.at(pc).map_or_else(|| format!("{pc:#x}"), str::to_owned),
        };
        let (lines, pages) = sums.entry(name).or_default();
        *lines += place.count;
        pages.insert(place.page);
    }
    if sums.is_empty() {
        return String::new();
    }
    let mut functions: Vec<_> = sums.into_iter().collect();
    functions.sort_by_key(|(_, (lines, _))| Reverse(*lines));
    let (shown, rest) = functions.split_at(functions.len().min(PLACES_SHOWN));
    let mut rows = table(["weir's function that evicted VMs' lines", "lines", "pages"]);
    for (name, (lines, pages)) in shown {
        let page = pages.first().copied().unwrap_or(0);
        let pages = match pages.len() {
            1 => format!("{page:#x}"),
            many => format!("{many}, from {page:#x}"),
        };
        rows.add_row([name.clone(), lines.to_string(), pages]);
    }
    let mut text = format!("{rows}\n");
    let left_out = rest.iter().map(|(_, (lines, _))| lines).sum::<u64>() + seen.evictions_left_out;
    let places = rest.len() as u64 + seen.places_left_out;
    if places > 0 {
        let _ = writeln!(text, "and {left_out} at {places} more places (--json lists them)");
    }
    text
}

fn matrix(seen: &ObservedAccesses, counts: &CountMatrix) -> String {
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
fn sums(seen: &ObservedAccesses, counts: &CountMatrix) -> IsolationSums {
    IsolationSums {
        between_vms: seen.between_vms(counts),
        of_vms_by_weir: seen.by_weir(counts),
        of_weir_by_vms: seen.of_weir(counts),
    }
}

/// Returns what was seen as a JSON result has it.
pub fn record(outcome: &Observation) -> ObservationRecord {
    let Observation { system, seen, run, traces, symbols } = outcome;
    let owner = |owner: &OwnerCounts| {
        let (kind, vm) = match owner.kind {
            OwnerKind::Vm(vm) => ("vm", Some(vm)),
            OwnerKind::Weir => ("weir", None),
            OwnerKind::WeirFor(vm) => ("weir-for-vm", Some(vm)),
            OwnerKind::Unowned => ("elsewhere", None),
        };
        OwnerRecord {
            name: owner.name.clone(),
            kind,
            accesses: owner.accesses,
            l1_misses: owner.l1_misses,
            fetches: owner.fetches,
            l1i_misses: owner.l1i_misses,
            l2_accesses: owner.l2_accesses,
            l2_misses: owner.l2_misses,
            dram_accesses: owner.dram_accesses,
            row_hits: owner.row_hits,
            vm: vm.map(|vm| system.vms[vm].name.clone()),
        }
    };
    let intrusion = |each: &Intrusion| IntrusionRecord {
        pc: (each.pc != 0).then(|| format!("{:#x}", each.pc)),
        function: symbols.at(each.pc).map(str::to_owned),
        page: format!("{:#x}", each.page),
        count: each.count,
    };
    let mark = |mark: &MarkerCounts| MarkRecord {
        vm: system.vms[mark.vm].name.clone(),
        marker: mark.number,
        accesses: mark.accesses,
        l1_misses: mark.l1_misses,
        l2_misses: mark.l2_misses,
    };
    ObservationRecord {
        system: weir_image::name(system),
        ended_by: run.report.ended_by,
        time_ns: run.report.time_ns,
        as_expected: run.status == weir_image::failure::GOOD && seen.started,
        guest_started: seen.started,
        owners: seen.owners.iter().map(owner).collect(),
        evictions: sums(seen, &seen.l2_evictions),
        l1_evictions: sums(seen, &seen.l1_evictions),
        row_conflicts: sums(seen, &seen.rows_closed),
        matrices: Matrices {
            l1_evictions: seen.l1_evictions.clone(),
            l2_evictions: seen.l2_evictions.clone(),
            rows_closed: seen.rows_closed.clone(),
        },
        intrusions: seen.intrusions.iter().map(intrusion).collect(),
        intrusions_left_out: LeftOut {
            places: seen.places_left_out,
            evictions: seen.evictions_left_out,
        },
        marks: seen.marks.iter().map(mark).collect(),
        device_accesses: seen.device_accesses,
        unseen_blocks: seen.unseen_blocks,
        recorded: traces.clone(),
        not_seen: BLIND.to_vec(),
    }
}

/// Two VMs and weir; `between` is what the first took from the second in an L1.
#[cfg(test)]
pub fn synthetic(between: u64) -> ObservedAccesses {
    let owner = |(name, kind): (&str, OwnerKind)| OwnerCounts {
        name: name.to_owned(),
        kind,
        accesses: 1,
        l1_misses: 0,
        fetches: 0,
        l1i_misses: 0,
        l2_accesses: 0,
        l2_misses: 0,
        dram_accesses: 0,
        row_hits: 0,
    };
    let place = |pc, count| Intrusion { pc, page: 0x4000_1000, count };
    ObservedAccesses {
        started: true,
        owners: [("a", OwnerKind::Vm(0)), ("b", OwnerKind::Vm(1)), ("weir", OwnerKind::Weir)]
            .map(owner)
            .into(),
        l1_evictions: vec![vec![9, between, 0], vec![0; 3], vec![20, 2, 0]],
        l2_evictions: vec![vec![0; 3]; 3],
        rows_closed: vec![vec![0; 3]; 3],
        intrusions: vec![place(0, 40), place(0x8010, 30)],
        places_left_out: 5,
        evictions_left_out: 7,
        marks: Vec::new(),
        device_accesses: 0,
        unseen_blocks: 0,
        console_bytes: 0,
        recorded: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn l1_sums_are_printed_with_a_table_for_shared_l1s() {
        let apart = matrices(&synthetic(0));
        let sums = "Lines in the cores' L1 data caches: no VM evicted another's\n\
                    between VMs 0, weir from VMs 22, VMs from weir 0\n";
        assert!(apart.starts_with(sums), "{apart}");
        let shared = matrices(&synthetic(3));
        let table = "Lines in the cores' L1 data caches: evicted by (row), of (column):\n";
        assert!(shared.starts_with(table), "{shared}");
        assert!(
            shared.contains("\nbetween VMs 3, weir from VMs 22, VMs from weir 0\n"),
            "{shared}"
        );
    }

    #[test]
    fn places_are_listed_by_function_or_counted() {
        let mut seen = synthetic(0);
        let place = |pc| Intrusion { pc, page: 0x4000_3000, count: 1 };
        seen.intrusions.push(Intrusion { page: 0x4000_2000, ..place(0x8014) });
        seen.intrusions.extend((0..12).map(|n| place(0x9000 + n)));
        let shown = places(&seen, &Symbols::of(&[(0x8000..0x8100, "weir::load")]));
        let rows: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let row = |words: &[&str]| rows.iter().any(|row| row == words);
        assert!(row(&["instruction", "fetches", "40", "0x40001000"]), "{shown}");
        assert!(row(&["weir::load", "31", "2,", "from", "0x40001000"]), "{shown}");
        assert!(row(&["0x9000", "1", "0x40003000"]), "{shown}");
        assert!(shown.ends_with("and 11 at 9 more places (--json lists them)\n"), "{shown}");
        seen.intrusions.clear();
        assert_eq!(places(&seen, &Symbols::default()), "");
    }
}
