//! The counts and their results.

use super::{Run, Span};
use crate::{
    LatencyHistogram, Outcome, SecondLevel, TbuOutcome, VmOutcome, WorkMark, jobs::Jobs,
    master::Master,
};
use weir_memory::{Owner, Picos, hierarchy::CoreTraffic, system::Waits};
use weir_units::Nanos;

/// All counts at a time.
pub(super) struct Counts {
    /// How far each VM has come.
    work: Vec<WorkMark>,
    dma_delays: Vec<u64>,
    /// The traffic of each core.
    traffic: Vec<CoreTraffic>,
    waits: Waits,
    /// The lines of each VM in the second level.
    l2_lines: Vec<u64>,
    evictions: Vec<Vec<u64>>,
    closed: Vec<Vec<u64>>,
    blocked: u64,
    /// Bytes of each DMA channel.
    moved: Vec<u64>,
    tbus: Vec<TbuOutcome>,
}

impl Run<'_> {
    fn counts(&self) -> Counts {
        let hierarchy = self.memory.hierarchy();
        let owners = self.board.vms.len();
        let mut evictions = vec![vec![0; owners]; owners];
        for stats in hierarchy.l2() {
            add(&mut evictions, stats.evictions.rows());
        }
        let mut closed = vec![vec![0; owners]; owners];
        for stats in self.memory.channels() {
            add(&mut closed, stats.closed.rows());
        }
        let delay = |owner| self.memory.dma_delay(Owner(owner)).0;
        let moved = |m: &Master| self.memory.moved(m.engine, m.channel).0;
        Counts {
            work: self.work.iter().map(|(_, mark)| *mark).collect(),
            dma_delays: (0..).take(owners).map(delay).collect(),
            traffic: self.cores.iter().map(|core| hierarchy.traffic()[core.number]).collect(),
            waits: self.memory.waits().clone(),
            l2_lines: hierarchy.l2_lines(owners),
            evictions,
            closed,
            blocked: self.memory.blocked().map(|time| time.0).sum(),
            moved: self.masters.iter().map(moved).collect(),
            tbus: self.tbus(),
        }
    }

    /// The lines that each VM's cores have moved.
    fn lines(&self) -> Vec<u64> {
        let mut lines = vec![0; self.board.vms.len()];
        for core in &self.cores {
            let traffic = self.memory.hierarchy().traffic()[core.number];
            lines[usize::from(core.owner.0)] += traffic.refills + traffic.write_backs;
        }
        for master in &self.masters {
            // Each line of a DMA engine's is counted once, as its bandwidth is.
            let moved = self.memory.moved(master.engine, master.channel).0;
            lines[usize::from(master.owner.0)] += moved / 64;
        }
        lines
    }

    pub(super) fn begin(&mut self, now: Picos) {
        self.begun = Some(self.counts());
        self.lines = self.lines();
        self.cores.iter_mut().filter_map(|core| core.jobs.as_mut()).for_each(Jobs::count);
        if let Some(moving) = &mut self.moving {
            moving.count();
        }
        for budget in self.cores.iter_mut().filter_map(|core| core.budget.as_mut()) {
            budget.clear(Nanos(now.0 / 1000));
        }
    }

    fn tbus(&self) -> Vec<TbuOutcome> {
        let names = self.board.memory.tbu_names().enumerate();
        let each = names.filter_map(|(number, name)| {
            let stats = self.memory.tbu(number)?.stats();
            Some(TbuOutcome {
                name: name.to_owned(),
                lookups: stats.accesses.to_vec(),
                misses: stats.misses.to_vec(),
                evictions: stats.evictions.rows().map(<[u64]>::to_vec).collect(),
            })
        });
        each.collect()
    }

    pub(super) fn slice(&mut self) {
        let lines = self.lines();
        for ((slices, now), then) in self.slices.iter_mut().zip(&lines).zip(&self.lines) {
            slices.push(now - then);
        }
        self.lines = lines;
    }

    pub(super) fn finish(mut self, span: Span, slice_ns: u64) -> Outcome {
        let now = Nanos(span.warm_up.0 + span.length.0);
        let end = Picos::from_nanos(now.0);
        let counts = self.counts();
        let begun = self.begun.take().unwrap_or_else(|| self.counts());
        let vm = |name: &String| VmOutcome {
            name: name.clone(),
            accesses: 0,
            latency: LatencyHistogram::default(),
            refills: 0,
            write_backs: 0,
            slices: Vec::new(),
            delay_ps: 0,
            arrivals: Vec::new(),
            budgets: Vec::new(),
            moved: 0,
            pass: None,
            jobs: None,
            work: [WorkMark::default(); 2],
        };
        let mut vms: Vec<_> = self.board.vms.iter().map(|one| vm(&one.name)).collect();
        let recorded = self.latencies.into_iter().zip(self.slices).zip(self.arrivals);
        for (index, (vm, ((latency, slices), arrivals))) in vms.iter_mut().zip(recorded).enumerate()
        {
            vm.accesses = latency.count();
            (vm.latency, vm.slices, vm.arrivals) = (latency, slices, arrivals);
            vm.work = [begun.work[index], counts.work[index]];
            let of_dma = counts.dma_delays[index] - begun.dma_delays[index];
            vm.delay_ps = self.delays[index] + of_dma;
        }
        for (index, core) in self.cores.into_iter().enumerate() {
            let vm = &mut vms[usize::from(core.owner.0)];
            let (traffic, then) = (counts.traffic[index], begun.traffic[index]);
            vm.refills += traffic.refills - then.refills;
            vm.write_backs += traffic.write_backs - then.write_backs;
            vm.pass = vm.pass.or(core.passes.mean());
            if let Some(jobs) = core.jobs {
                let jobs = jobs.finish(end);
                match &mut vm.jobs {
                    Some(all) => all.add(&jobs),
                    none => *none = Some(jobs),
                }
            }
            vm.budgets.extend(core.budget.map(|budget| budget.finish(now)));
        }
        for (master, moved) in self.masters.iter().zip(less(&counts.moved, &begun.moved)) {
            vms[usize::from(master.owner.0)].moved += moved;
        }
        Outcome {
            vms,
            flows: self.moving.map_or_else(Vec::new, |moving| moving.finish(end)),
            waits: counts.waits.since(&begun.waits),
            l2: SecondLevel {
                capacity: self.memory.hierarchy().l2_capacity(),
                lines: begun.l2_lines.into_iter().zip(counts.l2_lines).map(Into::into).collect(),
            },
            evictions: minus(counts.evictions, &begun.evictions),
            closed: minus(counts.closed, &begun.closed),
            tbus: counts.tbus.into_iter().zip(&begun.tbus).map(|(n, t)| n.since(t)).collect(),
            blocked_ps: counts.blocked - begun.blocked,
            span_ns: span.length.0,
            slice_ns,
        }
    }
}

fn less(now: &[u64], then: &[u64]) -> Vec<u64> {
    now.iter().zip(then).map(|(now, then)| now - then).collect()
}

fn minus(now: Vec<Vec<u64>>, then: &[Vec<u64>]) -> Vec<Vec<u64>> {
    now.into_iter().zip(then).map(|(now, then)| less(&now, then)).collect()
}

impl TbuOutcome {
    /// The counts since `then`.
    fn since(self, then: &Self) -> Self {
        Self {
            lookups: less(&self.lookups, &then.lookups),
            misses: less(&self.misses, &then.misses),
            evictions: minus(self.evictions, &then.evictions),
            name: self.name,
        }
    }
}

fn add<'a>(all: &mut [Vec<u64>], rows: impl Iterator<Item = &'a [u64]>) {
    for (sums, row) in all.iter_mut().zip(rows) {
        for (sum, count) in sums.iter_mut().zip(row) {
            *sum += count;
        }
    }
}
