//! The verdicts on a run: what was observed against deadlines, bounds and memory budgets.

use crate::{
    findings::{self, BudgetFinding, Clock, Finding, InterruptFinding, Latency, TaskFinding},
    observed::{ArrivedPacket, BudgetKey, EarlyPackets, ObservedTrace},
    report::{CoreRun, Counted, FlowRun, RunReport, State, VmRun},
    start::shares_all_cores,
};
use std::{collections::BTreeMap, fmt::Write as _};
use weir_model::{
    System,
    timing::{SharedCore, Task},
};
use weir_report::trace::activations::TaskKey;
use weir_trace::{
    record::{Accesses, MOST_OTHER, MarkName},
    wire::Denial,
};
use weir_units::IntId;

/// Why what a trace would show is not judged.
const fn without_trace(clock: Clock) -> &'static str {
    match clock {
        Clock::Board => "the board sent no trace: give --trace with --serial",
        Clock::Emulated => "the run left no trace",
    }
}

/// Why a `figure` that holds for the plain emulated clock is not compared with a run to which the
/// time of a board's memory was charged.
fn without_memory(figure: &str, memory: Option<&str>) -> String {
    format!(
        "the {figure} is for instructions of 1 ns, and the run has the memory timing of {}",
        memory.unwrap_or_default()
    )
}

/// Returns the number of a budget of the VM at `vm` in a trace.
pub(crate) fn budget_key(vm: u8, budget: &BudgetFinding) -> Option<BudgetKey> {
    let counts = Accesses::ALL.into_iter().find(|accesses| accesses.name() == budget.counts)?;
    Some((vm, budget.vcpu, counts as u32))
}

/// Returns the switches on each core that VMs share, next to the longest that is stated.
pub(crate) fn cores(system: &System, observed: Option<&ObservedTrace>) -> Vec<CoreRun> {
    let core = |core: &SharedCore| {
        let id = u8::try_from(core.id).ok()?;
        let seen = observed.map(|observed| observed.switches(id.into()).unwrap_or_default());
        Some(CoreRun {
            core: id,
            switches: seen.map(|seen| seen.times),
            max_switch_ns: seen.filter(|seen| seen.times > 0).map(|seen| seen.max_ns),
            stated_switch_ns: system.sharing(core).map(|sharing| sharing.switch.0),
        })
    };
    system.cores.iter().filter_map(core).collect()
}

/// Returns the receivers of the flows, in the order of their numbers in a trace, that share all of
/// their cores.
#[must_use]
pub fn sharers(system: &System) -> Vec<Option<u8>> {
    let receivers = system.flows.iter().flat_map(|flow| flow.to.iter().copied());
    let sharer = |vm: usize| u8::try_from(vm).ok().filter(|_| shares_all_cores(system, vm));
    receivers.map(sharer).collect()
}

/// Returns the finding on what took longer than its bound; none if it did not, or has no bound.
fn above(max_ns: u64, bound_ns: Option<u64>, memory: Option<&str>) -> Option<Finding> {
    let beyond = beyond(max_ns, bound_ns)?;
    Some(match memory {
        Some(_) => Finding::not_judged(without_memory("bound", memory)),
        None => Finding::failed(beyond),
    })
}

/// Returns why what took longer than its bound fails; none if it did not, or has no bound.
fn beyond(max_ns: u64, bound_ns: Option<u64>) -> Option<String> {
    let above = max_ns.checked_sub(bound_ns?).filter(|above| *above > 0)?;
    Some(format!("the longest took {max_ns} ns, {above} ns more than the bound"))
}

/// Adds to the finding on an interrupt of the VM at `vm` what the trace shows.
fn interrupt(
    line: &mut InterruptFinding,
    vm: u8,
    observed: Option<&ObservedTrace>,
    (clock, memory): (Clock, Option<&str>),
) {
    let seen = observed.and_then(|observed| observed.delivery((vm, IntId(line.intid))));
    line.finding = match seen {
        Some(seen) if seen.late > 0 => {
            let text = format!(
                "{} of {} interrupts came later than the deadline of {} ns, by {} ns after their \
                 arrival at most",
                seen.late, seen.times, line.deadline_ns, seen.max_ns
            );
            Finding::failed(text)
        }
        None if observed.is_none() => Finding::not_judged(without_trace(clock)),
        None => Finding::not_judged("it did not come"),
        Some(seen) => above(seen.max_ns, line.bound_ns, memory).unwrap_or_else(|| {
            match observed.map_or(0, |observed| observed.lost) {
                0 => Finding::holds(),
                lost => Finding::not_judged(format!("{lost} records of the trace were lost")),
            }
        }),
    };
    let seen = seen.unwrap_or_default();
    (line.delivered, line.late, line.max_ns) = (seen.times, seen.late, seen.max_ns);
}

/// Adds to a report what the trace shows, and the verdicts.
pub fn judge(report: &mut RunReport, observed: Option<&ObservedTrace>, clock: Clock) {
    report.clock = clock;
    let memory = report.memory.clone();
    let memory = memory.as_deref();
    flows(report, observed);
    for (place, vm) in (0..).zip(&mut report.vms) {
        for each in &mut vm.budgets {
            budget(each, place, observed, (clock, memory));
        }
        for line in &mut vm.interrupts {
            interrupt(line, place, observed, (clock, memory));
        }
        let names: Vec<_> = vm.tasks.iter().map(|task| MarkName::new(&task.name)).collect();
        for (task, name) in vm.tasks.iter_mut().zip(&names) {
            let is_unique = names.iter().filter(|other| *other == name).count() == 1;
            let seen = observed.and_then(|observed| observed.task((place, *name)));
            if let Some(seen) = seen.filter(|_| is_unique) {
                task.activations = Some(seen.activations);
                task.misses = Some(seen.misses);
                task.observed_max_ns = Some(seen.max_ns);
                task.max_activation = Some(seen.max_activation);
                task.missed.clone_from(&seen.missed);
            }
            task.finding = if is_unique {
                self::task(task, observed, (clock, memory))
            } else {
                Finding::not_judged(format!(
                    "another task of its VM has the same first {} bytes of its name",
                    MarkName::BYTES
                ))
            };
        }
    }
    let mut all = BTreeMap::new();
    for flow in &report.flows {
        if let Some(finding) = &flow.finding {
            all.insert(format!("flow {}", flow.name), finding.verdict);
        }
    }
    for vm in &report.vms {
        for budget in &vm.budgets {
            let name = format!("budget of {}/{} ({})", vm.name, budget.vcpu, budget.counts);
            all.insert(name, budget.finding.verdict);
        }
        for line in &vm.interrupts {
            let name = format!("interrupt {} of {}", line.intid, vm.name);
            all.insert(name, line.finding.verdict);
        }
        for task in &vm.tasks {
            all.insert(format!("task {} of {}", task.name, vm.name), task.finding.verdict);
        }
    }
    let most_severe = all.values().copied().max();
    report.verdict = most_severe;
    let names = all.into_iter().filter(|(_, verdict)| Some(*verdict) == most_severe);
    report.verdict_of = names.map(|(name, _)| name).collect();
}

/// Returns why no packet of a flow arrived, as far as the records of its sender and the trace show.
fn without_packets(flow: &FlowRun, sender: Option<&VmRun>, sent: bool) -> String {
    let FlowRun { from, address, .. } = flow;
    let refused = sender.and_then(|vm| vm.denials.get(Denial::Virtio.name())).copied();
    let connected = sender.and_then(|vm| vm.connected.as_ref());
    let why = match (sender.map(|vm| vm.state), connected, refused) {
        _ if sent => format!("packets of `{from}` were sent, and none arrived"),
        (_, Some(other), _) if other != address => {
            format!("`{from}` connected to {other}; the flow is at {address}")
        }
        (_, _, Some(refused @ 1..)) => format!(
            "{refused} packets of `{from}` were refused, because no flow allows them or because \
             they are malformed; the flow is at {address}"
        ),
        (Some(state @ (State::NotStarted | State::Halted | State::Off)), ..) => {
            format!("`{from}`, which sends it, was {} at the end", state.name())
        }
        _ => format!("`{from}` must connect to {address}, and no packet may be longer than `size`"),
    };
    format!("no packet is known to have arrived: {why}")
}

fn flows(report: &mut RunReport, observed: Option<&ObservedTrace>) {
    let senders = report.vms.clone();
    let to_the_end = report.flows_counted() == Counted::ToTheEnd;
    for (place, flow) in (0..).zip(&mut report.flows) {
        let packets = observed.map_or(&[][..], |observed| observed.packets(place));
        let whole = observed.is_some_and(|observed| observed.lost == 0);
        let traced = findings::latency(packets);
        // The hypervisor's counts may be older than the end of the run, and the trace may have lost
        // records: each is complete where the other is not.
        let is_newer =
            |traced: &Latency| flow.latency_ns.is_none_or(|counted| traced.max > counted.max);
        flow.latency_ns = match (flow.latency_ns, traced) {
            (_, Some(traced)) if whole => Some(traced),
            (_, Some(traced)) if is_newer(&traced) => {
                Some(Latency { p50: None, p99: None, max_packet: 0, ..traced })
            }
            (counted, _) => counted,
        };
        flow.distribution = findings::distribution(packets);
        // Late packets are counted among these: both counts are of the same packets.
        flow.packets = flow.packets.max(packets.len() as u64);
        if let Some(deadline) = flow.deadline_ns {
            let late = packets.iter().filter(|packet| packet.latency_ns > deadline).count() as u64;
            flow.late = flow.late.max(late);
        }
        if flow.deadline_ns.is_none() && flow.bound_ns.is_none() {
            continue;
        }
        let Some(latency) = flow.latency_ns else {
            let sender = senders.iter().find(|vm| vm.name == flow.from);
            let sent = observed.is_some_and(|observed| observed.has_sent(flow.first_receiver));
            flow.finding = Some(Finding::not_judged(without_packets(flow, sender, sent)));
            continue;
        };
        let (arrived, packets) = (packets, flow.packets);
        let early =
            || flow.period_ns.and_then(|period| observed?.early(flow.first_receiver, period));
        let beyond = beyond(latency.max, flow.bound_ns);
        flow.finding = Some(match (flow.deadline_ns, beyond) {
            (Some(deadline), _) if flow.late > 0 => {
                let text = format!(
                    "{} of {packets} packets missed the deadline of {deadline} ns, the longest \
                     took {} ns",
                    flow.late, latency.max
                );
                Finding::failed(text + &culprits(flow, arrived, early()))
            }
            _ if report.memory.is_some() && flow.bound_ns.is_some() => {
                Finding::not_judged(without_memory("bound", report.memory.as_deref()))
            }
            (_, Some(text)) => Finding::failed(text + &culprits(flow, arrived, early())),
            _ if !whole && flow.ends_on_core => Finding::not_judged(
                "only a whole trace shows when a receiver on a shared core has that core",
            ),
            _ if !whole && !to_the_end => Finding::not_judged(
                "the counts end before the run, and records of the trace were lost",
            ),
            _ => Finding::holds(),
        });
    }
}

/// Returns who broke the rules that a flow's deadline and bound assume, as the end of a sentence.
fn culprits(flow: &FlowRun, arrived: &[ArrivedPacket], early: Option<EarlyPackets>) -> String {
    let mut text = String::new();
    if let (Some(EarlyPackets { count, first, most_ns }), Some(period)) = (early, flow.period_ns) {
        let first = first.map(|number| format!("packet {number} first, ")).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "; its sender broke the period of {period} ns, which deadline and bound assume: \
             {count} packets came early, {first}by {most_ns} ns at most"
        );
    }
    let waits = arrived.iter().filter(|packet| packet.waited).map(|packet| packet.latency_ns);
    if let (waited, Some(longest)) = (waits.clone().count(), waits.max()) {
        let _ = write!(
            text,
            "; its receiver had no buffers, and deadline and bound assume a driver that returns \
             them in time: {waited} packets waited for buffers, the longest of them took {longest} \
             ns"
        );
    }
    text
}

/// Adds to the finding on a memory budget of the VM at `vm` what the trace shows.
fn budget(
    budget: &mut BudgetFinding,
    vm: u8,
    observed: Option<&ObservedTrace>,
    (clock, memory): (Clock, Option<&str>),
) {
    let used = observed.and_then(|observed| observed.used(budget_key(vm, budget)?));
    budget.finding = match (used, budget.overshoot) {
        (None, _) if observed.is_none() => Finding::not_judged(without_trace(clock)),
        (None, _) => Finding::not_judged("no period ended"),
        (Some(used), None) if used.most_beyond > 0 => {
            Finding::not_judged("no overshoot is stated: add `overshoot` to [saturation]")
        }
        (Some(used), Some(_)) if used.exceeded > 0 && memory.is_some() => {
            Finding::not_judged(without_memory("overshoot", memory))
        }
        (Some(used), Some(overshoot)) if used.exceeded > 0 => {
            let text = format!(
                "{} of {} periods exceeded the limit by more than the overshoot of {overshoot}, by \
                 {} at most",
                used.exceeded, used.periods, used.most_beyond
            );
            Finding::failed(text)
        }
        _ => match observed.map_or(0, |observed| observed.lost) {
            0 => Finding::holds(),
            lost => Finding::not_judged(format!("{lost} records of the trace were lost")),
        },
    };
    let used = used.unwrap_or_default();
    budget.periods = used.periods;
    budget.max_used = used.most.min(MOST_OTHER);
    budget.throttled_periods = used.throttled;
    budget.throttled_ns = used.throttled_ns;
    budget.max_throttled_ns = used.max_throttled_ns;
    budget.max_beyond = used.most_beyond;
    budget.exceeded_periods = used.exceeded;
}

/// Returns the deadlines of all tasks in ns, by their names in a trace.
#[must_use]
pub fn tasks(system: &System) -> BTreeMap<TaskKey, u64> {
    let tasks = |(vm, place): (&weir_model::Vm, u8)| {
        let task = move |task: &Task| ((place, MarkName::new(&task.name)), task.deadline.0);
        vm.tasks.iter().map(task).collect::<Vec<_>>()
    };
    system.vms.iter().zip(0..).flat_map(tasks).collect()
}

fn task(
    task: &TaskFinding,
    observed: Option<&ObservedTrace>,
    (clock, memory): (Clock, Option<&str>),
) -> Finding {
    let Some(observed) = observed else { return Finding::not_judged(without_trace(clock)) };
    match (task.activations, task.misses, observed.lost) {
        (Some(activations), Some(misses), _) if misses > 0 => {
            let first = task.missed.first().map(|first| {
                format!(
                    "; the first was activation {}, released at {} ns",
                    first.activation, first.release_ns
                )
            });
            Finding::failed(format!(
                "{misses} missed deadlines of {} ns in {activations} activations{}",
                task.deadline_ns,
                first.unwrap_or_default()
            ))
        }
        (Some(_), _, lost) => {
            let max = task.observed_max_ns;
            let above = max.and_then(|max| above(max, task.bound_ns, memory));
            above.unwrap_or_else(|| match lost {
                0 => Finding::holds(),
                lost => Finding::not_judged(format!("{lost} records of the trace were lost")),
            })
        }
        _ => Finding::not_judged(
            "its VM marked no activation of it, by the hypercall MARK (`weir_task_release` in C)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        demux::{Demux, WireStep},
        expect::Expectations,
        findings::MissedActivation,
        observed::{ArrivedPacket, TaskUse, Use},
        report::{End, Tally},
        synthetic::SyntheticWire,
    };
    use weir_analysis::verdict::Verdict::{DoesNotHold, Holds, NotJudged};
    use weir_trace::wire::What;

    /// The report of a wire, of a VM `a` with a task and a flow of three packets.
    fn report(
        wire: &SyntheticWire,
        max: u64,
        deadline: Option<u64>,
        bound: Option<u64>,
    ) -> RunReport {
        let task = TaskFinding {
            name: "loop".into(),
            deadline_ns: 1_000_000,
            bound_ns: Some(800_000),
            ..TaskFinding::default()
        };
        let mut tally =
            Tally::new(&[VmRun { name: "a".into(), tasks: vec![task], ..VmRun::default() }]);
        let wire = wire.clone().flow(9_000, 0, [3, 0, max]);
        let (mut demux, mut steps) = (Demux::new(1), Vec::<WireStep>::new());
        for &byte in wire.bytes() {
            demux.push(byte, &mut steps);
        }
        demux.finish(&mut steps);
        for step in &steps {
            tally.step(step);
        }
        let flow = FlowRun {
            name: "f".into(),
            from: "a".into(),
            to: "b".into(),
            address: "4:5000".into(),
            bound_ns: bound,
            deadline_ns: deadline,
            period_ns: Some(1_000_000),
            ..FlowRun::default()
        };
        let report = tally.report("s", "p", &Expectations::default(), End::TimeOver, 9_000);
        RunReport { flows: tally.flows(&[flow]), ..report }
    }

    fn observed(latencies: &[u64], lost: u64) -> ObservedTrace {
        let packet = |(&latency_ns, n)| ArrivedPacket { latency_ns, arrived_ns: n, waited: false };
        ObservedTrace::of_packets(latencies.iter().zip(1..).map(packet).collect(), lost)
    }

    fn verdict(max: u64, limits: [Option<u64>; 2]) -> Finding {
        let mut report = report(&SyntheticWire::default(), max, limits[0], limits[1]);
        report.vms[0].tasks.clear();
        let observed = observed(&[max / 2, max, max / 4], 0);
        judge(&mut report, Some(&observed), Clock::Emulated);
        let finding = report.flows.remove(0).finding.expect("a finding");
        assert_eq!(report.verdict, Some(finding.verdict));
        finding
    }

    #[test]
    fn a_missed_deadline_fails() {
        let finding = verdict(9_600_000, [Some(1_000_000), None]);
        assert_eq!(finding.verdict, DoesNotHold);
        let text = "3 of 3 packets missed the deadline of 1000000 ns, the longest took 9600000 ns";
        assert_eq!(finding.reason, text);
        assert_eq!(verdict(1_000_000, [Some(1_000_000), None]).verdict, Holds);
    }

    #[test]
    fn a_latency_above_its_bound_fails() {
        let finding = verdict(843_000, [Some(5_000_000), Some(103_000)]);
        assert_eq!(finding.verdict, DoesNotHold);
        assert!(finding.reason.contains("740000 ns more than the bound"), "{}", finding.reason);
        assert_eq!(verdict(103_000, [None, Some(103_000)]).verdict, Holds);
    }

    #[test]
    fn bounds_are_not_compared_with_memory_timing() {
        let finding = |max, deadline| {
            let mut report = report(&SyntheticWire::default(), max, deadline, Some(103_000));
            report.memory = Some("zcu102".into());
            judge(&mut report, Some(&observed(&[max], 0)), Clock::Emulated);
            report.flows.remove(0).finding.expect("a finding")
        };
        for max in [1000, 843_000] {
            let finding = finding(max, Some(1_000_000));
            assert_eq!(finding.verdict, NotJudged);
            assert!(finding.reason.ends_with("memory timing of zcu102"), "{}", finding.reason);
        }
        assert_eq!(finding(843_000, Some(800_000)).verdict, DoesNotHold, "a missed deadline");
    }

    #[test]
    fn a_receiver_without_buffers_is_named() {
        let packet = |(latency_ns, waited)| ArrivedPacket { latency_ns, arrived_ns: 1, waited };
        let packets = [(843_000, true), (90_000, false), (104_000, true)].map(packet);
        let observed = ObservedTrace::of_packets(packets.to_vec(), 0);
        let judged = |bound| {
            let mut report = report(&SyntheticWire::default(), 843_000, None, Some(bound));
            judge(&mut report, Some(&observed), Clock::Emulated);
            report.flows.remove(0).finding.expect("a finding")
        };
        let text = "its receiver had no buffers, and deadline and bound assume a driver that \
                    returns them in time: 2 packets waited for buffers, the longest of them took \
                    843000 ns";
        let broken = judged(103_000);
        assert_eq!(broken.verdict, DoesNotHold);
        assert!(broken.reason.ends_with(text), "{}", broken.reason);
        assert_eq!(judged(843_000).verdict, Holds);
    }

    #[test]
    fn a_sender_that_breaks_its_period_is_named() {
        let reason = |sent: &[u64], deadline: Option<u64>| {
            let observed = observed(&[843_000], 0).with_sent(sent);
            let mut report = report(&SyntheticWire::default(), 843_000, deadline, Some(103_000));
            judge(&mut report, Some(&observed), Clock::Emulated);
            let finding = report.flows.remove(0).finding.expect("a finding");
            assert_eq!(finding.verdict, DoesNotHold);
            finding.reason
        };
        let text = "its sender broke the period of 1000000 ns, which deadline and bound assume: 2 \
                    packets came early, packet 2 first, by 800000 ns at most";
        // Of a missed deadline, too.
        for deadline in [None, Some(500_000)] {
            let broken = reason(&[0, 600_000, 1_200_000, 9_000_000], deadline);
            assert!(broken.ends_with(text), "{broken}");
        }
        // A guest's timer is not exact to the nanosecond.
        for kept in [&[0, 1_000_000, 2_500_000, 3_495_000][..], &[]] {
            assert!(reason(kept, None).ends_with("740000 ns more than the bound"), "{kept:?}");
        }
        // The trace has a packet for several receivers under the number of the first one.
        let observed = observed(&[843_000], 0).with_sent(&[0, 600_000]);
        let mut several = report(&SyntheticWire::default(), 843_000, None, Some(103_000));
        let second = several.flows[0].clone();
        several.flows.extend([second.clone(), FlowRun { first_receiver: 2, ..second }]);
        judge(&mut several, Some(&observed), Clock::Emulated);
        let is_named = several.flows.iter().map(|flow| {
            let finding = flow.finding.as_ref().expect("a finding");
            finding.reason.contains("its sender broke the period")
        });
        assert_eq!(is_named.collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn the_latencies_are_those_of_all_packets() {
        let mut whole = report(&SyntheticWire::default(), 70, Some(50), None);
        judge(&mut whole, Some(&observed(&[10, 70, 40, 70, 30], 0)), Clock::Emulated);
        let flow = &whole.flows[0];
        let expected = Latency {
            min: 10,
            p50: Some(40),
            p99: Some(70),
            max: 70,
            max_packet: 2,
            max_arrived_ns: 2,
        };
        assert_eq!((flow.latency_ns, flow.late), (Some(expected), 2));
        let json = serde_json::to_value(flow).expect("JSON");
        assert_eq!(
            (&json["verdict"], &json["latency_ns"]["max_packet"]),
            (&"does-not-hold".into(), &2.into())
        );
        // Where records were lost, the hypervisor's own counts stay.
        let mut torn = report(&SyntheticWire::default(), 70, Some(80), None);
        judge(&mut torn, Some(&observed(&[10, 60], 5)), Clock::Emulated);
        let latency = torn.flows[0].latency_ns.expect("packets");
        assert_eq!((latency.max, latency.max_packet, latency.p50), (70, 3, None));
        let finding = torn.flows[0].finding.as_ref().expect("a finding");
        assert_eq!(finding.verdict, Holds);
        // They end with the interrupt, as no trace shows when the receiver has its shared core.
        torn.flows[0].ends_on_core = true;
        judge(&mut torn, Some(&observed(&[10, 60], 5)), Clock::Emulated);
        let finding = torn.flows[0].finding.as_ref().expect("a finding");
        assert_eq!(finding.verdict, NotJudged);
    }

    #[test]
    fn the_packets_are_those_of_trace_and_counts() {
        // The counts are of the receiver's last boot, the trace is of all boots.
        let mut again = report(&SyntheticWire::default(), 70, Some(50), None);
        judge(&mut again, Some(&observed(&[70; 5], 0)), Clock::Emulated);
        let flow = &again.flows[0];
        assert_eq!((flow.packets, flow.late), (5, 5));
        let finding = flow.finding.as_ref().expect("a finding");
        assert!(finding.reason.starts_with("5 of 5 packets missed"), "{}", finding.reason);
        let mut free = report(&SyntheticWire::default(), 70, None, None);
        judge(&mut free, Some(&observed(&[70; 5], 0)), Clock::Emulated);
        assert_eq!(free.flows[0].packets, 5);
        let mut torn = report(&SyntheticWire::default(), 70, Some(50), None);
        judge(&mut torn, Some(&observed(&[70], 9)), Clock::Emulated);
        assert_eq!((torn.flows[0].packets, torn.flows[0].late), (3, 1));
    }

    #[test]
    fn flows_without_packets_are_not_judged() {
        let mut none = report(&SyntheticWire::default(), 0, Some(50), None);
        none.flows[0].latency_ns = None;
        judge(&mut none, Some(&observed(&[], 0)), Clock::Emulated);
        assert_eq!(none.verdict, Some(NotJudged));
        let mut free = report(&SyntheticWire::default(), 70, None, None);
        free.vms[0].tasks.clear();
        judge(&mut free, None, Clock::Emulated);
        assert_eq!((free.verdict, free.flows[0].finding.is_none()), (None, true));
    }

    #[test]
    fn a_flow_without_packets_says_what_happened() {
        let reason = |wire: SyntheticWire, sent: &[u64]| {
            let mut none = report(&wire, 0, Some(50), None);
            none.flows[0].latency_ns = None;
            let observed = observed(&[], 0);
            let observed = if sent.is_empty() { observed } else { observed.with_sent(sent) };
            judge(&mut none, Some(&observed), Clock::Emulated);
            none.flows.remove(0).finding.expect("a finding").reason
        };
        let wire = SyntheticWire::default;
        let elsewhere = reason(wire().line(1, 0, "tool: connected to 5:5000"), &[]);
        assert!(elsewhere.ends_with("`a` connected to 5:5000; the flow is at 4:5000"));
        let started = wire().event(1, What::VmStart, 0, 0);
        let there = reason(started.clone().line(1, 0, "connected to 4:5000, once"), &[]);
        assert!(there.contains("`a` must connect to 4:5000"), "{there}");
        let refused = started.event(2, What::Denied, 0, Denial::Virtio as u32);
        assert!(reason(refused, &[]).contains("1 packets of `a` were refused"));
        assert!(reason(wire(), &[]).ends_with("`a`, which sends it, was not started at the end"));
        assert!(reason(wire(), &[7]).ends_with("packets of `a` were sent, and none arrived"));
    }

    #[test]
    fn a_task_is_judged_by_its_activations() {
        let judge_task = |used: TaskUse, lost, memory: Option<&str>| {
            let mut report = report(&SyntheticWire::default(), 1, Some(50), None);
            report.memory = memory.map(Into::into);
            let observed = ObservedTrace::of_task((0, MarkName::new("loop")), used, lost);
            judge(&mut report, Some(&observed), Clock::Emulated);
            report.vms.remove(0).tasks.remove(0)
        };
        let used = |misses, max_ns| {
            let missed = MissedActivation {
                activation: 7,
                release_ns: 7_000,
                response_ns: max_ns,
                skipped: 2,
            };
            let missed = if misses > 0 { vec![missed] } else { Vec::new() };
            TaskUse { activations: 10, misses, max_ns, max_activation: 4, missed }
        };
        let verdict = |used, lost, memory| judge_task(used, lost, memory).finding.verdict;
        let good = judge_task(used(0, 800_000), 0, None);
        assert_eq!(
            (good.activations, good.misses, good.finding.verdict),
            (Some(10), Some(0), Holds)
        );
        assert_eq!((good.observed_max_ns, good.max_activation), (Some(800_000), Some(4)));
        let late = judge_task(used(3, 2_000_000), 0, None);
        assert_eq!((late.finding.verdict, late.missed.len()), (DoesNotHold, 1));
        assert_eq!(
            late.finding.reason,
            "3 missed deadlines of 1000000 ns in 10 activations; the first was activation 7, \
             released at 7000 ns"
        );
        // A miss that was seen is one, whatever was lost; without it nothing is known.
        assert_eq!(verdict(used(3, 2_000_000), 9, None), DoesNotHold);
        assert_eq!(verdict(used(0, 1), 9, None), NotJudged);
        assert_eq!(verdict(used(0, 800_001), 0, None), DoesNotHold);
        assert_eq!(verdict(used(0, 800_001), 0, Some("zcu102")), NotJudged);
        let mut unmarked = report(&SyntheticWire::default(), 1, Some(50), None);
        judge(&mut unmarked, Some(&observed(&[1], 0)), Clock::Emulated);
        let task = &unmarked.vms[0].tasks[0];
        assert_eq!((task.activations, task.finding.verdict), (None, NotJudged));
        // No trace, and two tasks that the marks do not tell apart.
        judge(&mut unmarked, None, Clock::Board);
        assert!(unmarked.vms[0].tasks[0].finding.reason.contains("--trace"));
        let tasks = &mut unmarked.vms[0].tasks;
        tasks[0].name = "setpoint-a".into();
        tasks.push(TaskFinding { name: "setpoint-b".into(), ..tasks[0].clone() });
        let observed = ObservedTrace::of_task((0, MarkName::new("setpoint")), used(3, 9), 0);
        judge(&mut unmarked, Some(&observed), Clock::Emulated);
        for task in &unmarked.vms[0].tasks {
            assert_eq!((task.activations, task.finding.verdict), (None, NotJudged), "{task:?}");
        }
    }

    #[test]
    fn a_budget_is_judged_by_its_stated_overshoot() {
        let used = Use {
            periods: 9,
            most: 400,
            most_beyond: 300,
            throttled: 4,
            exceeded: 2,
            ..Use::default()
        };
        let found = |overshoot, observed: Option<&ObservedTrace>, memory, clock| {
            let counts = Accesses::All.name().to_owned();
            let mut found =
                BudgetFinding { overshoot, counts, budget: 100, ..BudgetFinding::default() };
            budget(&mut found, 0, observed, (clock, memory));
            found.finding
        };
        let judged = |exceeded, overshoot, lost| {
            let observed = ObservedTrace::of_use((0, 0, 0), Use { exceeded, ..used }, lost);
            let finding = |memory| found(overshoot, Some(&observed), memory, Clock::Emulated);
            let charged = finding(Some("zcu102")).verdict;
            assert_eq!(charged == NotJudged, exceeded > 0 || lost > 0 || overshoot.is_none());
            finding(None)
        };
        let exceeded = judged(2, Some(200), 0);
        assert_eq!(exceeded.verdict, DoesNotHold);
        let text =
            "2 of 9 periods exceeded the limit by more than the overshoot of 200, by 300 at most";
        assert_eq!(exceeded.reason, text);
        assert_eq!(judged(0, Some(300), 0).verdict, Holds);
        assert_eq!(judged(0, Some(300), 7).verdict, NotJudged);
        assert_eq!(judged(0, None, 0).verdict, NotJudged);
        let without_trace = |clock| found(None, None, None, clock);
        assert_eq!(without_trace(Clock::Emulated).verdict, NotJudged);
        assert!(without_trace(Clock::Board).reason.contains("--trace"));
    }
}
