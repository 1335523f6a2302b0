//! The memory accesses of a vCPU: one access after the other, for ever.

use crate::kernels;
use std::sync::Arc;
use weir_memory::{Access, AddressMap, Pa, Picos, recording::RecordedAccess};
use weir_model::timing::{Mode, Workload, WorkloadKind, WorkloadPhase};

const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// A vCPU's accesses.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The steps, which repeat.
    steps: Arc<[(Access, Pa)]>,
    at: usize,
    /// Steps of a job.
    job: usize,
    /// Where the steps of each phase end, and the least time between two of them; none of a program
    /// without phases.
    phases: Arc<[(usize, Picos)]>,
    phase: usize,
    /// The cycles before each step, as recorded; none of a program that was not, or not with these.
    since: Arc<[u32]>,
    /// The least time between two steps, from the workload.
    least: Picos,
    /// Whether each access waits for the one before.
    pub dependent: bool,
    /// True if each pass is a process of its own, of which no cache has a line when it starts.
    pub starts_cold: bool,
    /// Cycles between two accesses, if the workload does not set them.
    pub cycles: u64,
}

impl Program {
    /// The accesses of vCPU number `vcpu` in these pages of its VM. Each vCPU has its own pages as
    /// long as there are enough.
    pub fn new(
        workload: &Workload,
        trace: &[RecordedAccess],
        pages: &[u64],
        vcpu: usize,
        map: &AddressMap,
        seed: u64,
    ) -> Self {
        let share = (workload.size.0.div_ceil(PAGE) as usize).clamp(1, pages.len());
        let start = if (vcpu + 1) * share <= pages.len() { vcpu * share } else { 0 };
        let own = &pages[start..start + share];
        let lines =
            || own.iter().flat_map(|page| (0..PAGE / LINE).map(move |l| Pa(page + l * LINE)));
        let all = |access: Access| lines().map(|pa| (access, pa)).collect::<Vec<_>>();
        let mut cycles = 0;
        let place = |offset: u64| Pa(pages[(offset / PAGE) as usize % pages.len()] + offset % PAGE);
        let steps = match workload.kind {
            WorkloadKind::Latency | WorkloadKind::Cyclictest => shuffled(all(Access::Read), seed),
            WorkloadKind::Read => all(Access::Read),
            WorkloadKind::Write => all(Access::Write),
            WorkloadKind::ReadWrite => {
                lines().flat_map(|pa| [(Access::Read, pa), (Access::Write, pa)]).collect()
            }
            WorkloadKind::RowMiss => row_misses(own, map),
            WorkloadKind::Dma => Vec::new(),
            WorkloadKind::Network => packets(workload, place),
            WorkloadKind::Profile => {
                workload.phases.iter().flat_map(|phase| accesses(phase, own, seed)).collect()
            }
            WorkloadKind::Trace => trace
                .iter()
                .map(|step| (if step.write { Access::Write } else { Access::Read }, place(step.at)))
                .collect(),
            WorkloadKind::Kernel => {
                let recording = workload.kernel.as_deref().and_then(kernels::record);
                let (steps, between) = recording.map_or((Vec::new(), 0), |r| (r.steps, r.cycles));
                cycles = between;
                let place = |(access, at): (Access, u32)| (access, place(u64::from(at)));
                steps.into_iter().map(place).collect()
            }
        };
        // An in-order core waits for a kernel's loads.
        let dependent = matches!(
            workload.kind,
            WorkloadKind::Latency | WorkloadKind::Kernel | WorkloadKind::Cyclictest
        );
        let packets =
            workload.transfers.as_ref().map_or(1, |t| (workload.size.0 / t.chunk.0).max(1));
        let job = steps.len() / packets as usize;
        let ends = workload.phases.iter().scan(0, |end, phase| {
            *end += phase.accesses as usize;
            Some((*end, Picos::from_nanos(phase.gap.0)))
        });
        let phases = ends.collect();
        let is_timed =
            workload.kind == WorkloadKind::Trace && trace.iter().any(|step| step.cycles > 0);
        let since = trace.iter().filter(|_| is_timed).map(|step| step.cycles).collect();
        let least = Picos::from_nanos(workload.gap.0);
        Self {
            steps: steps.into(),
            at: 0,
            job,
            phases,
            phase: 0,
            since,
            least,
            dependent,
            starts_cold: workload.kind == WorkloadKind::Kernel,
            cycles,
        }
    }

    /// Whether the next step is the first of a pass.
    pub const fn begins(&self) -> bool {
        self.at == 0
    }

    /// Whether the next step is the first of a job: of a pass, or of a packet.
    pub const fn is_between_jobs(&self) -> bool {
        self.at.is_multiple_of(self.job)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The least time from the last step to the next one, on a core of this clock, if the workload
    /// does not set `gap`: in a phase, or as recorded.
    pub fn gap(&self, clock: Picos) -> Option<Picos> {
        if let Some((_, gap)) = self.phases.get(self.phase) {
            return Some(*gap);
        }
        let cycles = u64::from(*self.since.get(self.at)?);
        Some((clock * cycles).max(self.least))
    }

    pub fn next(&mut self) -> (Access, Pa) {
        let step = self.steps[self.at];
        if let Some((end, _)) = self.phases.get(self.phase) {
            if self.at == 0 {
                self.phase = 0;
            } else if self.at == *end {
                self.phase += 1;
            }
        }
        self.at = if self.at + 1 == self.steps.len() { 0 } else { self.at + 1 };
        step
    }
}

/// Each packet of a ring is copied. One that came is read from the ring and written behind it; one
/// that is to be sent is read from behind the ring and written to it.
fn packets(workload: &Workload, place: impl Fn(u64) -> Pa) -> Vec<(Access, Pa)> {
    let size = workload.size.0;
    let packet = workload.transfers.as_ref().map_or(size, |transfers| transfers.chunk.0);
    let starts = (0..(size / packet).max(1)).map(|number| number * packet);
    let lines =
        |start: u64| (start / LINE..(start + packet).div_ceil(LINE)).map(|line| line * LINE);
    // Where the device writes its ring, or reads it: see `Master`.
    let span = size.div_ceil(PAGE) * PAGE;
    let sends = workload.transfers.as_ref().is_some_and(|its| its.mode == Mode::ReadOnly);
    let (from, to) = if sends { (2 * span, 0) } else { (span, 2 * span) };
    starts
        .flat_map(lines)
        .flat_map(|at| [(Access::Read, place(from + at)), (Access::Write, place(to + at))])
        .collect()
}

/// The accesses of a phase, the same ones for the same seed.
fn accesses(phase: &WorkloadPhase, pages: &[u64], seed: u64) -> Vec<(Access, Pa)> {
    let mut random = Random(seed);
    let lines = phase.size.0 / LINE;
    let step = |number: u64| {
        let line = if phase.stream { number % lines } else { random.below(lines) };
        let writes = random.below(100) < phase.writes;
        let page = pages[(line * LINE / PAGE) as usize % pages.len()];
        let access = if writes { Access::Write } else { Access::Read };
        (access, Pa(page + line * LINE % PAGE))
    };
    (0..phase.accesses).map(step).collect()
}

/// Knuth's MMIX generator, of which the upper bits are the random ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    /// A number below `end`, of equal chances; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

/// Fisher and Yates; the order is the same for the same seed.
fn shuffled(mut steps: Vec<(Access, Pa)>, seed: u64) -> Vec<(Access, Pa)> {
    let mut random = Random(seed | 1);
    for end in (1..steps.len()).rev() {
        steps.swap(end, random.below(end as u64 + 1) as usize);
    }
    steps
}

/// Writes that each need another row of the bank of the first: all lines of that bank, row by row,
/// the first line of each row before the second of any.
fn row_misses(pages: &[u64], map: &AddressMap) -> Vec<(Access, Pa)> {
    let bank = map.locate(Pa(pages[0])).bank;
    let mut places = Vec::new();
    for page in pages {
        for pa in (0..PAGE / LINE).map(|line| Pa(page + line * LINE)) {
            let place = map.locate(pa);
            if place.bank == bank {
                places.push((place.row, pa));
            }
        }
    }
    places.sort_by_key(|(row, pa)| (*row, pa.0));
    let mut column = 0;
    let mut ordered = Vec::with_capacity(places.len());
    for (index, &(row, pa)) in places.iter().enumerate() {
        column = if index > 0 && places[index - 1].0 == row { column + 1 } else { 0 };
        ordered.push((column, row, pa));
    }
    ordered.sort_by_key(|(column, row, _)| (*column, *row));
    ordered.into_iter().map(|(_, _, pa)| (Access::Write, pa)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use weir_memory::bench::ddr4_2400_map;
    use weir_units::Bytes;
    use weir_units::Nanos;

    fn program(kind: WorkloadKind, pages: &[u64], vcpu: usize) -> Vec<(Access, Pa)> {
        let workload = Workload {
            kind,
            size: Bytes(4 * PAGE),
            gap: Nanos(0),
            outstanding: None,
            file: None,
            kernel: None,
            transfers: None,
            period: None,
            deadline: None,
            phases: Vec::new(),
            network: None,
        };
        let step = |at, cycles, write| RecordedAccess { at, cycles, write };
        let trace = [step(0x40, 0, false), step(0x9008, 7, true)];
        let mut program = Program::new(&workload, &trace, pages, vcpu, &ddr4_2400_map(), 7);
        let steps = program.steps.len();
        (0..steps).map(|_| program.next()).collect()
    }

    #[test]
    fn a_walk_visits_each_line_of_its_pages_once() {
        let pages: Vec<_> = (0..8).map(|page| page * 0x3000).collect();
        let own: BTreeSet<_> =
            pages[4..].iter().flat_map(|p| (0..64).map(move |l| p + l * 64)).collect();
        let walk = program(WorkloadKind::Latency, &pages, 1);
        assert_eq!(walk.len(), own.len());
        assert_eq!(walk.iter().map(|(_, pa)| pa.0).collect::<BTreeSet<_>>(), own);
        let steps = walk.windows(2).filter(|pair| pair[1].1.0 == pair[0].1.0 + 64).count();
        assert!(steps < 16, "{steps} of 256 go to the next line");
    }

    #[test]
    fn row_misses_need_another_row_of_one_bank_each_time() {
        let pages: Vec<_> = (0..4).map(|row| row << 17).collect();
        let map = ddr4_2400_map();
        let steps = program(WorkloadKind::RowMiss, &pages, 0);
        assert_eq!(steps.len(), 4 * 64);
        for pair in steps.windows(2) {
            let [a, b] = [map.locate(pair[0].1), map.locate(pair[1].1)];
            assert!(a.bank == b.bank && a.row != b.row);
        }
    }

    #[test]
    fn stressor_and_trace_accesses_are_as_specified() {
        let pages: Vec<_> = (0..4).map(|page| 0x10_0000 + page * PAGE).collect();
        let stressor = program(WorkloadKind::ReadWrite, &pages, 0);
        assert_eq!(stressor[..2], [(Access::Read, Pa(pages[0])), (Access::Write, Pa(pages[0]))]);
        let trace = program(WorkloadKind::Trace, &pages, 0);
        // Page 9 of 4 is page 1 again.
        assert_eq!(trace, [(Access::Read, Pa(pages[0] + 0x40)), (Access::Write, Pa(pages[1] + 8))]);
    }
}
