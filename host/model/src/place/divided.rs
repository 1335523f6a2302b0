//! Placement by page classes: the memory of each owner is pages of its own page classes.
//!
//! Owners with common page classes get pages of different ranges; owners without common page
//! classes can share a range, with interleaved pages.

use super::{MapOwner, Placed, Placement, Row, Sizes, device_rows, image_range, row};
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults};
use crate::resolve::SPARE;
use crate::system::System;
use crate::vm::{STOLEN_TIME, Vm};
use std::{collections::BTreeSet, ops::Range};
use weir_abi::{EXCHANGE_IPA, PAGE, PageSpan, VM_LEN, window};
use weir_paging::classes::{ClassSet, PageClasses, Pages};
use weir_units::{Bytes, Ipa, Pa};

/// Up to here below the image the loader puts the board's device tree.
const LOADER: u64 = 2 << 20;

/// Memory that is given out, and that is left.
struct Board<'a> {
    classes: &'a PageClasses,
    memory: Vec<Range<u64>>,
    /// What is left to the loader below the image.
    loader: Range<u64>,
    /// The owners of the pages that are taken, with start and end; without a set, all.
    taken: Vec<(Option<ClassSet>, Range<u64>)>,
    rows: Vec<Row>,
}

/// An owner of memory.
struct Claimant<'a> {
    owner: MapOwner,
    set: ClassSet,
    system: &'a System,
    /// The place of the request in the file.
    span: Range<usize>,
}

/// Places the hypervisor, then of each VM its tables and state, its pristine image and its RAM,
/// each at the lowest place that fits.
pub(super) fn place(system: &System, sizes: &Sizes) -> Result<Placement, Faults> {
    let division = &system.division;
    let image = image_range(system, sizes.image)?;
    let pools = system.platform().pools();
    let mut hole = image.clone();
    if let Some(pool) = pools.iter().find(|pool| pool.contains(&image.start))
        && image.start - pool.start <= LOADER
    {
        hole.start = pool.start;
    }
    let mut board = Board {
        classes: &division.classes,
        memory: pools,
        loader: hole.start..image.start,
        taken: vec![(None, hole)],
        rows: vec![row(&image, MapOwner::Hypervisor, None, "image as it is loaded")],
    };
    let mut refused = Faults::default();
    let mut placement = Placement::default();
    let claimant = Claimant {
        owner: MapOwner::Hypervisor,
        set: division.hypervisor,
        system,
        span: division.hypervisor_span.clone(),
    };
    let len = pages(sizes.hypervisor) + SPARE;
    match board.whole(&claimant, len, "hypervisor") {
        Ok(span) => placement.hypervisor = span,
        Err(fault) => refused.push(*fault),
    }
    let vms = system.vms.iter().zip(&division.vms).zip(&sizes.pristine).enumerate();
    for (index, ((vm, &set), &pristine)) in vms {
        let owner = MapOwner::Vm(index, vm.name.clone());
        let claimant = Claimant { owner, set, system, span: vm.spans.memory.clone() };
        // The SMMU has its own tables for the same memory.
        let sets = if vm.functions.is_empty() { 1 } else { 2 };
        // And stage 2 has their base addresses, which lie anywhere: a table of each level for each.
        let bars = 2 * vm.functions.len() as u64;
        let windows = if system.broker() == Some(index) {
            windows(system, &placement.ram)
        } else {
            Vec::new()
        };
        let own = (sets * tables(system, vm, &windows) + bars) * PAGE + VM_LEN;
        let mut kept = [PageSpan::default(); 2];
        let wanted = [(own, "tables and state"), (pages(pristine), "pristine image")];
        for (kept, (len, what)) in kept.iter_mut().zip(wanted).filter(|(_, (len, _))| *len > 0) {
            match board.whole(&claimant, len, what) {
                Ok(span) => *kept = span,
                Err(fault) => refused.push(*fault),
            }
        }
        placement.kept.push(kept);
        let mut ram = Vec::new();
        for piece in &vm.memory {
            // EL2 maps what it shares with the broker as one.
            let placed = if piece.base.0 == EXCHANGE_IPA {
                let span = board.whole(&claimant, piece.size.0, "memory shared with weir");
                span.map(|span| vec![Placed { ipa: piece.base, pa: Pa(span.pa), size: piece.size }])
            } else {
                board.ram(&claimant, piece.base, piece.size)
            };
            match placed {
                Ok(placed) => ram.extend(placed),
                Err(fault) => refused.push(*fault),
            }
        }
        placement.ram.push(ram);
    }
    placement.rows = board.rows;
    placement.rows.extend(device_rows(system));
    placement.rows.sort_by_key(|row| row.address);
    if refused.0.is_empty() { Ok(placement) } else { Err(refused) }
}

fn pages(len: u64) -> u64 {
    len.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX - PAGE)
}

/// Where the broker sees the RAM of the VMs that it serves, with the places `ram`.
fn windows(system: &System, ram: &[Vec<Placed>]) -> Vec<Range<u64>> {
    let vms = system.vms.iter().zip(ram).enumerate().filter(|(_, (vm, _))| vm.is_served());
    vms.flat_map(|(index, (_, ram))| {
        let ram = ram.iter().map(|placed| (placed.size.0, placed.ipa.0, placed.size.0));
        window(index, ram).map(|(start, len)| start..start + len)
    })
    .collect()
}

/// Tables of a stage 2 that maps everything page by page from a root of one page, `more` in
/// addition to the VM's own: one below the root for each GiB that is met, and one for each 2 MiB.
pub(super) fn tables(system: &System, vm: &Vm, more: &[Range<u64>]) -> u64 {
    let ram = vm.memory.iter().map(|piece| piece.base.0..piece.end());
    let devices = vm.devices.iter().flat_map(|device| &device.regions);
    let devices = devices.map(|(start, len)| start.0..start.0 + len.0);
    // On a GICv2 board the board's own CPU interface is mapped there.
    let gic = vm.board.gic_cpu.0;
    let gic = system.platform().is_gic_v2().then_some(gic..gic + 2 * PAGE);
    let stolen_time = vm.stolen_time.then_some(STOLEN_TIME..STOLEN_TIME + PAGE);
    let (mut upper, mut lower) = (BTreeSet::new(), BTreeSet::new());
    let all = ram.chain(devices).chain(gic).chain(stolen_time).chain(more.iter().cloned());
    for range in all.filter(|range| !range.is_empty()) {
        upper.extend(range.start >> 30..=(range.end - 1) >> 30);
        lower.extend(range.start >> 21..=(range.end - 1) >> 21);
    }
    (1 + upper.len() + lower.len()) as u64
}

impl Board<'_> {
    /// The ranges where the pages of `set` have no owner, ascending.
    fn gaps(&self, set: &ClassSet) -> Vec<Range<u64>> {
        let mut taken: Vec<_> = self
            .taken
            .iter()
            .filter(|(theirs, _)| theirs.is_none_or(|theirs| !set.is_apart_from(&theirs)))
            .map(|(_, range)| range.clone())
            .collect();
        taken.sort_by_key(|range| range.start);
        let mut gaps = Vec::new();
        for pool in &self.memory {
            let mut from = pool.start;
            for range in &taken {
                if range.start >= pool.end || range.end <= from {
                    continue;
                }
                if from < range.start {
                    gaps.push(from..range.start);
                }
                from = range.end;
            }
            if from < pool.end {
                gaps.push(from..pool.end);
            }
        }
        gaps
    }

    /// Takes the first `len` bytes of the owner's pages in `gap`.
    fn take(&mut self, claimant: &Claimant<'_>, gap: Range<u64>, len: u64) -> Option<PageSpan> {
        let pa = Pages::new(self.classes, claimant.set, gap).nth_page(0)?;
        let extent = self.classes.extent(&claimant.set, pa, len)?;
        self.taken.push((Some(claimant.set), extent));
        Some(PageSpan { pa, len })
    }

    fn record(&mut self, claimant: &Claimant<'_>, span: PageSpan, ipa: Option<Ipa>, what: &str) {
        let end =
            self.classes.extent(&claimant.set, span.pa, span.len).map_or(0, |extent| extent.end);
        self.rows.push(Row {
            size: Bytes(span.len),
            classes: Some(claimant.set),
            ..row(&(span.pa..end), claimant.owner.clone(), ipa, what)
        });
    }

    /// A place for all of `len` bytes.
    fn whole(
        &mut self,
        claimant: &Claimant<'_>,
        len: u64,
        what: &str,
    ) -> Result<PageSpan, Box<Fault>> {
        let gap = self.gaps(&claimant.set).into_iter().find(|gap| self.room(claimant, gap) >= len);
        let span = gap.and_then(|gap| self.take(claimant, gap, len));
        let span = span.ok_or_else(|| Box::new(self.no_room(claimant, len, what)))?;
        self.record(claimant, span, None, what);
        Ok(span)
    }

    /// A place for a piece of RAM, or several places.
    fn ram(
        &mut self,
        claimant: &Claimant<'_>,
        ipa: Ipa,
        size: Bytes,
    ) -> Result<Vec<Placed>, Box<Fault>> {
        let gaps = self.gaps(&claimant.set);
        // An owner that does not fit takes nothing; otherwise the next would be refused for it.
        if gaps.iter().map(|gap| self.room(claimant, gap)).sum::<u64>() < size.0 {
            return Err(Box::new(self.no_room(claimant, size.0, "RAM")));
        }
        let whole = gaps.iter().find(|gap| self.room(claimant, gap) >= size.0).cloned();
        let gaps = whole.map_or(gaps, |gap| vec![gap]);
        let mut placed = Vec::new();
        let mut left = size.0;
        for gap in gaps {
            let len = self.room(claimant, &gap).min(left);
            if len == 0 {
                continue;
            }
            let Some(span) = self.take(claimant, gap, len) else { continue };
            placed.push(Placed {
                ipa: Ipa(ipa.0 + size.0 - left),
                pa: Pa(span.pa),
                size: Bytes(len),
            });
            left -= len;
        }
        if left > 0 {
            return Err(Box::new(self.no_room(claimant, size.0, "RAM")));
        }
        for part in &placed {
            let span = PageSpan { pa: part.pa.0, len: part.size.0 };
            self.record(claimant, span, Some(part.ipa), "RAM");
        }
        Ok(placed)
    }

    fn room(&self, claimant: &Claimant<'_>, gap: &Range<u64>) -> u64 {
        Pages::new(self.classes, claimant.set, gap.clone()).total() * PAGE
    }

    fn no_room(&self, claimant: &Claimant<'_>, len: u64, what: &str) -> Fault {
        let system = claimant.system;
        let division = &system.division;
        let all: u64 = self.memory.iter().map(|pool| self.room(claimant, pool)).sum();
        let left: u64 = self.gaps(&claimant.set).iter().map(|gap| self.room(claimant, gap)).sum();
        let message = format!(
            "{}: no room for {what} of {} in its page classes on {}: {} hold {}, of which {} are \
             left",
            claimant.owner.title(),
            Bytes(len),
            system.platform(),
            division.describe(&claimant.set),
            Bytes(all),
            Bytes(left),
        );
        let loader = self.room(claimant, &self.loader);
        let loader = ("the room for the board's device tree below the image".to_owned(), loader);
        let mut taken: Vec<(String, u64)> = Vec::new();
        taken.extend((loader.1 > 0).then_some(loader));
        for row in &self.rows {
            let set = row
                .classes
                .map_or(Some(claimant.set), |classes| claimant.set.intersection(&classes));
            let range = row.address.0..row.end.0;
            let len = set.map_or(0, |set| Pages::new(self.classes, set, range).total() * PAGE);
            let name = match row.classes {
                Some(_) => format!("{} of {}", row.what, row.owner.title()),
                None => format!("the {}", row.what),
            };
            match taken.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += len,
                None if len > 0 => taken.push((name, len)),
                None => {}
            }
        }
        let taken: Vec<_> =
            taken.iter().map(|(name, len)| format!("{name} {}", Bytes(*len))).collect();
        let fault = Fault::new(Code::NoRoom, &system.file, claimant.span.clone(), message);
        let less = match claimant.owner {
            MapOwner::Vm(..) => format!("{} or another VM", claimant.owner.title()),
            MapOwner::Hypervisor | MapOwner::Free => "the VMs".to_owned(),
        };
        let help = format!("taken are {}; write less `memory` for {less}", taken.join(", "));
        fault.label("this").help(help)
    }
}
