//! What the trace of a run shows of each packet, each period of a memory budget, each interrupt
//! with a deadline, and each activation of a task.

use std::{collections::BTreeMap, io::Read};
use weir_image::Result;
use weir_report::{
    run::MissedActivation,
    trace::{
        activations::{Activation, Activations, TaskKey},
        file::{self as trace, Trace},
        packets::PacketNumbers,
    },
};
use weir_trace::record::{Record, RecordKind};
use weir_units::{Events, IntId};

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivedPacket {
    /// From the later of its notification and its eligibility to its receiver's interrupt, and on
    /// until its VM has a core, if it shares all of its cores.
    pub latency_ns: u64,
    /// When it counted as arrived, in nanoseconds since the hypervisor started.
    pub arrived_ns: u64,
    /// True if the receiver had no buffer for it at first.
    pub waited: bool,
}

/// Packets that came before their period began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyPackets {
    /// How many, at least one.
    pub count: u64,
    /// The number of the first of them that arrived, as in the trace; none if none did.
    pub first: Option<u64>,
    /// The most by which one came early, in ns.
    pub most_ns: u64,
}

/// A budget: VM, vCPU, and the number of its [`weir_trace::record::Accesses`].
pub type BudgetKey = (u8, u8, u32);

/// How a vCPU used a memory budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Periods that ended.
    pub periods: u64,
    /// The most accesses in one of them.
    pub most: u64,
    /// The most accesses in one of them above the limit that was then in force.
    pub most_beyond: u64,
    /// Periods in which the vCPU was suspended.
    pub throttled: u64,
    /// The time for which the vCPU was suspended, in ns.
    pub throttled_ns: u64,
    /// The longest time for which it was suspended at once, in ns.
    pub max_throttled_ns: u64,
    /// Periods with more accesses above the limit than the stated overshoot.
    pub exceeded: u64,
}

/// The switches between vCPUs of a core that VMs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// The number of switches whose length is recorded.
    pub times: u64,
    /// The longest: from when EL2 began the work that took the core from a vCPU until the next one
    /// had it, in ns.
    pub max_ns: u64,
}

/// An interrupt line: VM and interrupt number.
pub type LineKey = (u8, IntId);

/// How soon a VM had the core for an interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// How often it came.
    pub times: u64,
    /// How often the VM had the core later than the deadline, or not until the end of the trace.
    pub late: u64,
    /// The maximum.
    pub max_ns: u64,
}

/// An interrupt for which its VM does not have the core yet, or has just got it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    core: u16,
    /// When it arrived.
    since_ns: u64,
    /// Its VM has the core, unless the next record states that the line was masked.
    delivered_ns: Option<u64>,
}

/// The most missed activations of a task that are listed.
const MISSES_LISTED: usize = 20;

/// The activations of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskUse {
    /// How many are known.
    pub activations: u64,
    /// Missed deadlines.
    pub misses: u64,
    /// The longest response time in ns.
    pub max_ns: u64,
    /// The number of the first activation with it.
    pub max_activation: u64,
    /// The first activations with missed deadlines.
    pub missed: Vec<MissedActivation>,
}

impl TaskUse {
    fn take(&mut self, activation: &Activation, deadline_ns: u64) {
        let (response_ns, misses) = (activation.response_ns(), activation.misses(deadline_ns));
        if self.activations == 0 || response_ns > self.max_ns {
            (self.max_ns, self.max_activation) = (response_ns, activation.number);
        }
        self.activations += 1;
        self.misses += misses;
        if misses > 0 && self.missed.len() < MISSES_LISTED {
            self.missed.push(MissedActivation {
                activation: activation.number,
                release_ns: activation.release_ns,
                response_ns,
                skipped: activation.skipped,
            });
        }
    }
}

/// A period under way.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    limit: u64,
    throttled: bool,
}

/// What a trace shows.
#[derive(Clone, Debug, Default)]
pub struct ObservedTrace {
    /// The packets of each flow in the order of their arrival, by the flow's place in the system
    /// file.
    packets: BTreeMap<u32, Vec<ArrivedPacket>>,
    /// When the drivers notified of each flow's packets, in ns, and the packets' numbers; none for
    /// those that did not arrive.
    sent: BTreeMap<u32, Vec<(u64, Option<u64>)>>,
    uses: BTreeMap<BudgetKey, Use>,
    periods: BTreeMap<BudgetKey, Period>,
    /// Since when a vCPU has been suspended, in ns.
    suspended: BTreeMap<BudgetKey, u64>,
    switches: BTreeMap<u16, Switches>,
    deliveries: BTreeMap<LineKey, Delivery>,
    waiting: BTreeMap<LineKey, Waiting>,
    tasks: BTreeMap<TaskKey, TaskUse>,
    /// The VM on each core that VMs share.
    current: BTreeMap<u16, u8>,
    /// The VM with its guest on each core that VMs share; none on a free core.
    running: BTreeMap<u16, u8>,
    /// Packets with a receiver that has no core yet: its VM, the flow, the place among its packets.
    awaited: Vec<(u8, u32, usize)>,
    /// Records that are missing, if the trace is not whole.
    pub lost: u64,
}

impl ObservedTrace {
    /// Reads `trace` to its end. `tasks` has the deadlines of tasks in ns, `overshoot` gives the
    /// stated overshoot of a budget, `deadline` the deadline of an interrupt, if there is one, and
    /// `sharer` the receiver of a flow, if it shares all of its cores.
    ///
    /// # Errors
    ///
    /// A trace that cannot be read.
    pub fn read<R: Read>(
        trace: &mut Trace<R>,
        tasks: &BTreeMap<TaskKey, u64>,
        overshoot: impl Fn(BudgetKey) -> Option<Events>,
        deadline: impl Fn(LineKey) -> Option<u64>,
        sharer: impl Fn(u32) -> Option<u8>,
    ) -> Result<Self> {
        let facts = trace.facts.clone();
        let mut observed = Self { lost: facts.lost, ..Self::default() };
        let (mut numbers, mut sent_at) = (PacketNumbers::default(), BTreeMap::new());
        let mut activations = Activations::of(tasks.keys().copied());
        for place in 0.. {
            let Some(record) = trace.next_record()? else { break };
            numbers.take(place, &record);
            activations.take(&record, &facts, |ended| observed.activation(&ended, tasks));
            match RecordKind::from_number(record.kind) {
                Some(RecordKind::PacketArrived) => {
                    let arrived_ns = facts.nanos(record.time);
                    let (latency_ns, waited) = (record.other(), record.has_waited());
                    let packet = ArrivedPacket { latency_ns, arrived_ns, waited };
                    let flow = record.flow();
                    let packets = observed.packets.entry(flow).or_default();
                    packets.push(packet);
                    let away = |vm: &u8| !observed.running.values().any(|running| running == vm);
                    if let Some(vm) = sharer(flow).filter(away) {
                        observed.awaited.push((vm, flow, packets.len() - 1));
                    }
                }
                Some(RecordKind::PacketSent) => {
                    let sent = observed.sent.entry(record.flow()).or_default();
                    sent.push((record.other(), None));
                    sent_at.entry(record.flow()).or_insert_with(Vec::new).push(place);
                }
                Some(kind) => {
                    observed.budget(kind, &record, &overshoot);
                    observed.suspension(kind, &record, facts.nanos(record.time));
                    if kind == RecordKind::VcpuSwitch && record.count > 0 {
                        let switches = observed.switches.entry(trace::core(&record)).or_default();
                        let since = facts.nanos(record.count);
                        let took = facts.nanos(record.time).saturating_sub(since);
                        switches.times += 1;
                        switches.max_ns = switches.max_ns.max(took);
                    }
                    observed.line(kind, &record, facts.nanos(record.time), &deadline);
                    observed.core(kind, &record, facts.nanos(record.time));
                }
                None => {}
            }
        }
        for (flow, places) in sent_at {
            let sent = observed.sent.get_mut(&flow).into_iter().flatten();
            for ((_, number), place) in sent.zip(places) {
                *number = numbers.at(place);
            }
        }
        let end = trace.end();
        activations.finish(end, |ended| observed.activation(&ended, tasks));
        // A receiver that has no core until the end waits so long at least.
        observed.settle_packets(None, end);
        for line in observed.waiting.keys().copied().collect::<Vec<_>>() {
            observed.settle(line, end, &deadline);
        }
        observed.resume(end, |_| true);
        if trace.damage().is_some() {
            observed.lost = observed.lost.max(1);
        }
        Ok(observed)
    }

    fn activation(&mut self, activation: &Activation, tasks: &BTreeMap<TaskKey, u64>) {
        if let Some(&deadline) = tasks.get(&activation.task)
            && activation.is_known(deadline)
        {
            self.tasks.entry(activation.task).or_default().take(activation, deadline);
        }
    }

    /// Returns the activations of a task; none without a mark.
    pub fn task(&self, task: TaskKey) -> Option<&TaskUse> {
        self.tasks.get(&task)
    }

    /// Shows these activations of a task, in a trace that lost so many records.
    #[cfg(test)]
    pub fn of_task(task: TaskKey, used: TaskUse, lost: u64) -> Self {
        Self { tasks: [(task, used)].into(), lost, ..Self::default() }
    }

    fn budget(
        &mut self,
        kind: RecordKind,
        record: &Record,
        overshoot: impl Fn(BudgetKey) -> Option<Events>,
    ) {
        let key = (record.vm, record.vcpu, record.detail);
        let limit = record.other();
        match kind {
            RecordKind::Replenish => {
                let begun = Period { limit, throttled: false };
                let Some(ended) = self.periods.insert(key, begun) else { return };
                let used = self.uses.entry(key).or_default();
                let beyond = record.count.saturating_sub(ended.limit);
                used.periods += 1;
                used.most = used.most.max(record.count);
                used.most_beyond = used.most_beyond.max(beyond);
                used.throttled += u64::from(ended.throttled);
                let exceeded = overshoot(key).is_some_and(|overshoot| beyond > overshoot.0);
                used.exceeded += u64::from(exceeded);
            }
            // A limit can only grow within a period: others' budgets are added to it.
            RecordKind::Draw | RecordKind::Throttle | RecordKind::Overflow | RecordKind::Wake => {
                if let Some(period) = self.periods.get_mut(&key) {
                    period.limit = period.limit.max(limit);
                    period.throttled |= kind == RecordKind::Throttle;
                }
            }
            _ => {}
        }
    }

    /// Takes a record that begins or ends the suspension of a vCPU.
    fn suspension(&mut self, kind: RecordKind, record: &Record, now: u64) {
        match kind {
            RecordKind::Throttle => {
                let key = (record.vm, record.vcpu, record.detail);
                self.suspended.entry(key).or_insert(now);
            }
            RecordKind::Wake => {
                self.resume(now, |key| (key.0, key.1) == (record.vm, record.vcpu));
            }
            RecordKind::VmStop | RecordKind::VmFault | RecordKind::VmRestart => {
                self.resume(now, |key| key.0 == record.vm);
            }
            _ => {}
        }
    }

    /// Ends the suspensions of the vCPUs with these budgets.
    fn resume(&mut self, now: u64, of: impl Fn(&BudgetKey) -> bool) {
        let all = &mut self.uses;
        self.suspended.retain(|key, since| {
            if !of(key) {
                return true;
            }
            let took = now.saturating_sub(*since);
            let budget = all.entry(*key).or_default();
            budget.throttled_ns = budget.throttled_ns.saturating_add(took);
            budget.max_throttled_ns = budget.max_throttled_ns.max(took);
            false
        });
    }

    /// Returns the switches on a core.
    pub fn switches(&self, core: u16) -> Option<Switches> {
        self.switches.get(&core).copied()
    }

    /// Returns whether the trace has a packet that the sender of this flow sent.
    pub fn has_sent(&self, flow: u32) -> bool {
        self.sent.contains_key(&flow)
    }

    /// Returns the packets of a flow that came before a period of this length in ns had passed
    /// since the packet before; none if all came in time. A packet that comes early counts as sent
    /// when the period ends, as in EL2. What is less than 1 % of the period is within the precision
    /// of a guest's timer.
    pub fn early(&self, flow: u32, period: u64) -> Option<EarlyPackets> {
        let mut next = 0;
        let mut early: Option<EarlyPackets> = None;
        for &(sent, number) in self.sent.get(&flow)? {
            let before = u64::saturating_sub(next, sent);
            if before > period / 100 {
                let known = early.unwrap_or(EarlyPackets { count: 0, first: None, most_ns: 0 });
                let (count, most_ns) = (known.count + 1, known.most_ns.max(before));
                early = Some(EarlyPackets { count, most_ns, first: known.first.or(number) });
            }
            next = sent.max(next).saturating_add(period);
        }
        early
    }

    /// Adds when packets of the first flow were sent.
    #[cfg(test)]
    pub fn with_sent(mut self, sent: &[u64]) -> Self {
        let sent = sent.iter().copied().zip((1..).map(Some));
        self.sent.insert(0, sent.collect());
        self
    }

    /// Shows these packets of the first flow, in a trace that lost so many records.
    #[cfg(test)]
    pub fn of_packets(packets: Vec<ArrivedPacket>, lost: u64) -> Self {
        Self { packets: [(0, packets)].into(), lost, ..Self::default() }
    }

    /// Shows this use of a budget, in a trace that lost so many records.
    #[cfg(test)]
    pub fn of_use(budget: BudgetKey, used: Use, lost: u64) -> Self {
        Self { uses: [(budget, used)].into(), lost, ..Self::default() }
    }

    /// Takes a record of the VM that has a core. A packet arrives when its receiver has one. A wait
    /// that ends before EL2 has recorded the interrupt, in the same hypercall, counts as none.
    fn core(&mut self, kind: RecordKind, record: &Record, now: u64) {
        let core = trace::core(record);
        match kind {
            RecordKind::VcpuSwitch | RecordKind::VcpuResume => {
                self.running.insert(core, record.vm);
                self.settle_packets(Some(record.vm), now);
            }
            RecordKind::CoreFree => _ = self.running.remove(&core),
            // A pending interrupt ends with the boot of its VM.
            RecordKind::VmStop | RecordKind::VmFault | RecordKind::VmRestart => {
                self.awaited.retain(|(vm, ..)| *vm != record.vm);
            }
            _ => {}
        }
    }

    /// Adds the wait until `now` to the packets for `vm`, or for each VM.
    fn settle_packets(&mut self, vm: Option<u8>, now: u64) {
        let packets = &mut self.packets;
        self.awaited.retain(|&(receiver, flow, place)| {
            if vm.is_some_and(|vm| vm != receiver) {
                return true;
            }
            if let Some(packet) = packets.get_mut(&flow).and_then(|all| all.get_mut(place)) {
                packet.latency_ns += now.saturating_sub(packet.arrived_ns);
                packet.arrived_ns = packet.arrived_ns.max(now);
            }
            false
        });
    }

    /// Takes a record of an interrupt line, or of the vCPU that has a core.
    fn line(
        &mut self,
        kind: RecordKind,
        record: &Record,
        now: u64,
        deadline: impl Fn(LineKey) -> Option<u64>,
    ) {
        let (key, core) = ((record.vm, IntId(record.detail)), trace::core(record));
        match kind {
            RecordKind::Interrupt if deadline(key).is_some() => {
                // What has been delivered came before.
                if self.waiting.get(&key).is_some_and(|waiting| waiting.delivered_ns.is_some()) {
                    self.settle(key, now, &deadline);
                }
                let waiting = Waiting { core, since_ns: now, delivered_ns: None };
                let waiting = self.waiting.entry(key).or_insert(waiting);
                // A core that VMs do not share has no record of switches.
                if self.current.get(&core).is_none_or(|vm| *vm == record.vm) {
                    waiting.delivered_ns = Some(now);
                }
            }
            // Until then the line is masked, and the interrupt is with the distributor.
            RecordKind::LineDeferred if record.other() > 0 => {
                if let Some(waiting) = self.waiting.get_mut(&key) {
                    waiting.delivered_ns = None;
                }
            }
            RecordKind::VcpuSwitch => {
                self.current.insert(core, record.vm);
                let its = |(line, waiting): (&LineKey, &Waiting)| {
                    (line.0 == record.vm && waiting.core == core && waiting.delivered_ns.is_none())
                        .then_some(*line)
                };
                for line in self.waiting.iter().filter_map(its).collect::<Vec<_>>() {
                    if let Some(waiting) = self.waiting.get_mut(&line) {
                        waiting.delivered_ns = Some(now);
                    }
                }
            }
            // A pending line ends with the boot of its VM.
            RecordKind::VmStop | RecordKind::VmFault | RecordKind::VmRestart => {
                self.waiting
                    .retain(|line, waiting| line.0 != record.vm || waiting.delivered_ns.is_some());
            }
            _ => {}
        }
    }

    /// Counts what waited, until `now` if its VM has not had the core.
    fn settle(&mut self, line: LineKey, now: u64, deadline: impl Fn(LineKey) -> Option<u64>) {
        let Some(waiting) = self.waiting.remove(&line) else { return };
        let took = waiting.delivered_ns.unwrap_or(now).saturating_sub(waiting.since_ns);
        let late = deadline(line).is_some_and(|deadline| took > deadline);
        // One that still waits within its deadline is neither late nor delivered.
        if waiting.delivered_ns.is_some() || late {
            let delivery = self.deliveries.entry(line).or_default();
            delivery.times += 1;
            delivery.late += u64::from(late);
            delivery.max_ns = delivery.max_ns.max(took);
        }
    }

    /// How soon a VM had the core for an interrupt; none if it did not come.
    pub fn delivery(&self, line: LineKey) -> Option<Delivery> {
        self.deliveries.get(&line).copied()
    }

    /// The packets of a flow in the order of their arrival.
    pub fn packets(&self, flow: u32) -> &[ArrivedPacket] {
        self.packets.get(&flow).map_or(&[], Vec::as_slice)
    }

    /// How a budget was used; nothing where no period ended.
    pub fn used(&self, budget: BudgetKey) -> Option<Use> {
        self.uses.get(&budget).copied()
    }
}

/// The least of sorted values that at least `percent` of them do not exceed (nearest rank); none
/// without values.
pub fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use weir_report::trace::file::TraceFacts;
    use weir_trace::record::{MarkName, NO_VM, packet};
    use zerocopy::IntoBytes as _;

    const NO_TASKS: BTreeMap<TaskKey, u64> = BTreeMap::new();

    #[test]
    fn a_task_s_worst_activation_and_misses_are_known() {
        let mark = |time, kind, skipped, age| Record {
            count: MarkName::new("loop").0,
            ..at(time, kind, 1, skipped, age)
        };
        let release = |time, skipped, age| mark(time, RecordKind::TaskRelease, skipped, age);
        let complete = |time| mark(time, RecordKind::TaskComplete, 0, 0);
        let records = [
            release(110, 0, 10),
            complete(150),
            release(1300, 2, 100),
            complete(1310),
            release(2000, 0, 0),
            complete(2110),
            // Under way at the end of the trace.
            release(3000, 0, 0),
        ];
        let facts = TraceFacts { frequency: 1_000_000_000, ..TraceFacts::default() };
        let tasks = [((1, MarkName::new("loop")), 100)].into();
        let mut trace = trace(facts, &records);
        let observed = ObservedTrace::read(&mut trace, &tasks, |_| None, |_| None, |_| None);
        let observed = observed.expect("a trace");
        let missed = |activation, release_ns, response_ns, skipped| MissedActivation {
            activation,
            release_ns,
            response_ns,
            skipped,
        };
        let expected = TaskUse {
            activations: 3,
            misses: 3,
            max_ns: 110,
            max_activation: 2,
            missed: vec![missed(2, 1200, 110, 2), missed(3, 2000, 110, 0)],
        };
        assert_eq!(observed.task((1, MarkName::new("loop"))), Some(&expected));
        assert_eq!(observed.task((2, MarkName::new("loop"))), None);
    }

    fn trace(mut facts: TraceFacts, records: &[Record]) -> Trace<Cursor<Vec<u8>>> {
        facts.records = records.len() as u64;
        let mut bytes = Vec::new();
        facts.write(&mut bytes).expect("memory");
        bytes.extend_from_slice(records.as_bytes());
        Trace::read(Cursor::new(bytes)).expect("a trace")
    }

    fn record(kind: RecordKind, detail: u32, count: u64, other: u64) -> Record {
        Record { kind: kind as u16, vm: 1, detail, count, rest: other, ..Record::default() }
    }

    /// A record at a time, of a VM.
    fn at(time: u64, kind: RecordKind, vm: u8, detail: u32, other: u64) -> Record {
        Record { time, vm, ..record(kind, detail, 0, other) }
    }

    fn read(records: &[Record], overshoot: Option<Events>) -> ObservedTrace {
        let facts = TraceFacts {
            frequency: 1_000_000_000,
            records: records.len() as u64,
            ..TraceFacts::default()
        };
        ObservedTrace::read(
            &mut trace(facts, records),
            &NO_TASKS,
            |_| overshoot,
            |_| None,
            |_| None,
        )
        .expect("a trace")
    }

    #[test]
    fn percentiles_are_of_nearest_rank() {
        let values: Vec<u64> = (1..=98).collect();
        assert_eq!([50, 99, 100].map(|p| percentile(&values, p)), [Some(49), Some(98), Some(98)]);
        assert_eq!((percentile(&[7], 50), percentile(&[], 50)), (Some(7), None));
    }

    #[test]
    fn an_interrupt_waits_until_its_vm_has_the_core() {
        let records = [
            at(0, RecordKind::VcpuSwitch, 0, 0, 0),
            at(100, RecordKind::Interrupt, 1, 34, 0),
            // It joins the one that waits.
            at(150, RecordKind::Interrupt, 1, 34, 0),
            at(400, RecordKind::VcpuSwitch, 1, 0, 0),
            at(500, RecordKind::Interrupt, 1, 34, 0),
            at(600, RecordKind::Interrupt, 1, 34, 0),
            // Masked for want of credit: the one of 600 comes again.
            at(601, RecordKind::LineDeferred, 1, 34, 800),
            at(800, RecordKind::Interrupt, 1, 34, 0),
            at(900, RecordKind::VcpuSwitch, 0, 0, 0),
            // Without a deadline.
            at(950, RecordKind::Interrupt, 1, 35, 0),
            at(1000, RecordKind::Interrupt, 1, 34, 0),
            at(1300, RecordKind::Interrupt, 0, 36, 0),
        ];
        let facts = TraceFacts { frequency: 1_000_000_000, ..TraceFacts::default() };
        let deadline = |(_, intid)| (intid != IntId(35)).then_some(250);
        let read = |records: &[Record]| {
            ObservedTrace::read(
                &mut trace(facts.clone(), records),
                &NO_TASKS,
                |_| None,
                deadline,
                |_| None,
            )
            .expect("a trace")
        };
        let observed = read(&records);
        let expected = Delivery { times: 4, late: 2, max_ns: 300 };
        assert_eq!(observed.delivery((1, IntId(34))), Some(expected), "the last waits to the end");
        assert_eq!(observed.delivery((1, IntId(35))), None);
        assert_eq!(
            observed.delivery((0, IntId(36))),
            Some(Delivery { times: 1, late: 0, max_ns: 0 })
        );
        // What waits for a VM that ends is not late.
        let mut ended = records.to_vec();
        ended.push(at(1301, RecordKind::VmStop, 1, 0, 0));
        assert_eq!(
            read(&ended).delivery((1, IntId(34))),
            Some(Delivery { times: 3, late: 1, max_ns: 300 })
        );
    }

    /// The receiver's VM is 1, and shares core 0 with VM 0.
    #[test]
    fn a_packet_waits_until_its_receiver_has_the_core() {
        let arrived = |time, flow| at(time, RecordKind::PacketArrived, 2, packet(flow, 1), 10);
        let switch = |time, vm| at(time, RecordKind::VcpuSwitch, vm, 0, 0);
        let free = |time| at(time, RecordKind::CoreFree, NO_VM, 0, 0);
        let records = [
            switch(0, 0),
            arrived(100, 0),
            arrived(150, 0),
            // Of a receiver with its own core.
            arrived(160, 1),
            switch(400, 1),
            arrived(500, 0),
            free(600),
            arrived(650, 0),
            at(700, RecordKind::VcpuResume, 1, 0, 0),
            arrived(750, 0),
            free(760),
            arrived(800, 0),
            at(900, RecordKind::VmStop, 1, 0, 0),
            arrived(950, 0),
            free(1000),
        ];
        let facts = TraceFacts { frequency: 1_000_000_000, ..TraceFacts::default() };
        let sharer = |flow| (flow == 0).then_some(1);
        let observed =
            ObservedTrace::read(&mut trace(facts, &records), &NO_TASKS, |_| None, |_| None, sharer)
                .expect("a trace");
        let latencies = |flow| -> Vec<u64> {
            observed.packets(flow).iter().map(|packet| packet.latency_ns).collect()
        };
        let end = 10 + 50;
        assert_eq!(latencies(0), [310, 260, 10, 60, 10, 10, end]);
        assert_eq!(latencies(1), [10]);
    }

    #[test]
    fn throttled_time_ends_with_the_wake_up_or_the_boot() {
        let throttle = |time| at(time, RecordKind::Throttle, 1, 0, 100);
        let records = [
            at(0, RecordKind::Replenish, 1, 0, 100),
            throttle(40),
            // The vCPU is suspended already.
            throttle(45),
            at(100, RecordKind::Replenish, 1, 0, 100),
            at(110, RecordKind::Wake, 1, 0, 100),
            throttle(150),
            // Of another VM.
            at(160, RecordKind::Wake, 2, 0, 100),
            at(175, RecordKind::VmStop, 1, 0, 0),
            at(300, RecordKind::Replenish, 1, 0, 100),
            throttle(390),
            at(400, RecordKind::Exit, 1, 0, 0),
        ];
        let used = read(&records, None).used((1, 0, 0)).expect("periods");
        assert_eq!((used.throttled_ns, used.max_throttled_ns), (70 + 25 + 10, 70));
    }

    #[test]
    fn the_longest_switch_of_each_core_is_known() {
        let switch = |time, began, core: u16| {
            let record = Record { time, ..record(RecordKind::VcpuSwitch, 0, began, 0) };
            record.with_sequence(core)
        };
        // Without a beginning, the length is not known.
        let records = [switch(500, 0, 2), switch(900, 893, 2), switch(950, 948, 2)];
        let observed = read(&records, None);
        assert_eq!(observed.switches(2), Some(Switches { times: 2, max_ns: 7 }));
        assert_eq!(observed.switches(3), None);
    }

    #[test]
    fn packets_are_distinguished_by_flow() {
        let arrived =
            |flow, latency| record(RecordKind::PacketArrived, packet(flow, 3), 0, latency);
        let observed = read(&[arrived(0, 10), arrived(2, 30), arrived(0, 20)], None);
        let latencies = |flow| -> Vec<u64> {
            observed.packets(flow).iter().map(|packet| packet.latency_ns).collect()
        };
        assert_eq!([latencies(0), latencies(1), latencies(2)], [vec![10, 20], vec![], vec![30]]);
    }

    #[test]
    fn an_early_packet_has_its_number_of_arrival() {
        let sent = |head, seen| record(RecordKind::PacketSent, packet(0, head), 0, seen);
        let arrived = |head| record(RecordKind::PacketArrived, packet(0, head), 0, 10);
        let records = [
            sent(0, 0),
            arrived(0),
            // Its receiver was reset before it arrived.
            sent(1, 1000),
            sent(1, 1100),
            sent(2, 3500),
            arrived(1),
            arrived(2),
        ];
        let early = read(&records, None).early(0, 1000);
        assert_eq!(early, Some(EarlyPackets { count: 1, first: Some(2), most_ns: 900 }));
    }

    #[test]
    fn a_period_is_judged_by_the_limit_at_its_end() {
        let records = [
            record(RecordKind::Replenish, 0, 0, 100),
            record(RecordKind::Throttle, 0, 104, 100),
            // The next budget is smaller by what was counted beyond.
            record(RecordKind::Replenish, 0, 104, 96),
            // Others' budgets are added.
            record(RecordKind::Draw, 0, 96, 196),
            record(RecordKind::Replenish, 0, 150, 100),
            record(RecordKind::Throttle, 0, 130, 100),
            record(RecordKind::Replenish, 0, 130, 70),
            // The period under way is not judged.
            record(RecordKind::Throttle, 0, 900, 70),
        ];
        let used = read(&records, Some(Events(10))).used((1, 0, 0)).expect("periods");
        let expected = Use {
            periods: 3,
            most: 150,
            most_beyond: 30,
            throttled: 2,
            exceeded: 1,
            ..Use::default()
        };
        assert_eq!(used, expected);
        assert_eq!(read(&records, Some(Events(30))).used((1, 0, 0)).expect("periods").exceeded, 0);
        assert_eq!(read(&records, None).used((1, 0, 0)).expect("periods").exceeded, 0);
        assert_eq!(read(&records, None).used((1, 0, 1)), None);
    }
}
