//! The counts and their results.

use super::{Run, Span};
use crate::{Mark, Outcome, TbuOutcome, VmOutcome, core::Core, jobs::Jobs, master::Master};
use weir_memory::{Owner, Picos, hierarchy::CoreTraffic, system::Waits};
use weir_units::Nanos;

/// The counts when the span began.
pub(super) struct Begun {
    work: Vec<Mark>,
    dma_delays: Vec<u64>,
    traffic: Vec<CoreTraffic>,
    waits: Waits,
    evictions: Vec<Vec<u64>>,
    closed: Vec<Vec<u64>>,
    blocked: u64,
    /// Bytes of each DMA channel.
    moved: Vec<u64>,
    tbus: Vec<TbuOutcome>,
    /// Lines of each VM at the end of the last slice.
    lines: Vec<u64>,
}

impl Run<'_> {
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
        let traffic = |core: &Core| self.memory.hierarchy().traffic()[core.number];
        self.begun = Some(Begun {
            work: self.marks(),
            dma_delays: self.dma_delays(),
            traffic: self.cores.iter().map(traffic).collect(),
            waits: self.memory.waits().clone(),
            evictions: self.evictions(),
            closed: self.closed(),
            blocked: self.memory.blocked().map(|time| time.0).sum(),
            moved: self.moved(),
            tbus: self.tbus(),
            lines: self.lines(),
        });
        self.cores.iter_mut().filter_map(|core| core.jobs.as_mut()).for_each(Jobs::count);
        if let Some(moving) = &mut self.moving {
            moving.count();
        }
        for meter in self.cores.iter_mut().filter_map(|core| core.meter.as_mut()) {
            meter.clear(Nanos(now.0 / 1000));
        }
    }

    fn moved(&self) -> Vec<u64> {
        let moved = |m: &Master| self.memory.moved(m.engine, m.channel).0;
        self.masters.iter().map(moved).collect()
    }

    fn marks(&self) -> Vec<Mark> {
        self.work.iter().map(|(_, mark)| *mark).collect()
    }

    fn dma_delays(&self) -> Vec<u64> {
        let owners = (0..).take(self.board.vms.len());
        owners.map(|owner| self.memory.dma_delay(Owner(owner)).0).collect()
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
        let Some(begun) = &mut self.begun else { return };
        for ((slices, now), then) in self.slices.iter_mut().zip(&lines).zip(&begun.lines) {
            slices.push(now - then);
        }
        begun.lines = lines;
    }

    fn evictions(&self) -> Vec<Vec<u64>> {
        let owners = self.board.vms.len();
        let mut all = vec![vec![0; owners]; owners];
        let hierarchy = self.memory.hierarchy();
        for stats in hierarchy.l2().chain(hierarchy.l3()) {
            add(&mut all, stats.evictions.rows());
        }
        all
    }

    fn closed(&self) -> Vec<Vec<u64>> {
        let owners = self.board.vms.len();
        let mut all = vec![vec![0; owners]; owners];
        for stats in self.memory.channels() {
            add(&mut all, stats.closed.rows());
        }
        all
    }

    pub(super) fn finish(mut self, span: Span, slice_ns: u64) -> Outcome {
        let now = Nanos(span.warm_up.0 + span.length.0);
        if self.begun.is_none() {
            self.begin(self.memory.now());
        }
        let (evictions, closed) = (self.evictions(), self.closed());
        let (moved, tbus) = (self.moved(), self.tbus());
        let (work, dma_delays) = (self.marks(), self.dma_delays());
        let waits = self.memory.waits().clone();
        let blocked: u64 = self.memory.blocked().map(|time| time.0).sum();
        let traffic: Vec<_> =
            self.cores.iter().map(|core| self.memory.hierarchy().traffic()[core.number]).collect();
        let mut vms: Vec<_> = self
            .board
            .vms
            .iter()
            .zip(self.latencies)
            .zip(self.slices)
            .zip(self.arrivals)
            .zip(&self.delays)
            .map(|((((vm, latency), slices), arrivals), delay)| VmOutcome {
                name: vm.name.clone(),
                accesses: latency.count(),
                latency,
                refills: 0,
                write_backs: 0,
                slices,
                delay_ps: *delay,
                arrivals,
                budgets: Vec::new(),
                moved: 0,
                pass: None,
                jobs: None,
                work: [Mark::default(); 2],
            })
            .collect();
        let begun = self.begun.as_ref();
        for (index, vm) in vms.iter_mut().enumerate() {
            let then = begun.map_or((Mark::default(), 0), |b| (b.work[index], b.dma_delays[index]));
            vm.work = [then.0, work[index]];
            vm.delay_ps += dma_delays[index] - then.1;
        }
        for (index, core) in self.cores.into_iter().enumerate() {
            let vm = &mut vms[usize::from(core.owner.0)];
            let then = begun.map_or(CoreTraffic::default(), |begun| begun.traffic[index]);
            vm.refills += traffic[index].refills - then.refills;
            vm.write_backs += traffic[index].write_backs - then.write_backs;
            vm.pass = vm.pass.or(core.passes.mean());
            if let Some(jobs) = core.jobs {
                let end = Picos::from_nanos(now.0);
                let jobs = jobs.finish(end);
                match &mut vm.jobs {
                    Some(all) => all.add(&jobs),
                    none => *none = Some(jobs),
                }
            }
            vm.budgets.extend(core.meter.map(|meter| meter.finish(now)));
        }
        for (index, (master, moved)) in self.masters.iter().zip(moved).enumerate() {
            let then = begun.map_or(0, |begun| begun.moved[index]);
            vms[usize::from(master.owner.0)].moved += moved - then;
        }
        let tbus = match begun {
            Some(begun) => tbus.into_iter().zip(&begun.tbus).map(|(n, t)| n.since(t)).collect(),
            None => tbus,
        };
        let zero = Vec::new();
        let end = Picos::from_nanos(now.0);
        Outcome {
            vms,
            flows: self.moving.map_or_else(Vec::new, |moving| moving.finish(end)),
            waits: begun.map_or_else(|| waits.clone(), |begun| waits.since(&begun.waits)),
            evictions: minus(evictions, begun.map_or(&zero, |begun| &begun.evictions)),
            closed: minus(closed, begun.map_or(&zero, |begun| &begun.closed)),
            tbus,
            blocked_ps: blocked - begun.map_or(0, |begun| begun.blocked),
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
