//! A run as a pure function of the wire: consoles, expectations, counts, and the byte it ends at.

use super::{
    demux::{ConsoleSource, Demux, WireStep},
    expect::Expectations,
    report::{End, EngineRun, FlowRun, RunReport, Tally, VmRun, answered},
};

/// The parameters of a run.
#[derive(Clone, Debug, Default)]
pub struct SessionPlan {
    /// The system file's name without its ending.
    pub system: String,
    /// The platform's name.
    pub platform: String,
    /// The VMs, in the order of the file.
    pub vms: Vec<VmRun>,
    /// The flows, in the order of the file.
    pub flows: Vec<FlowRun>,
    /// The broker's DMA engine, if it moves something.
    pub engine: Option<EngineRun>,
    /// The expected lines: a VM's place and a text.
    pub expect: Vec<(usize, String)>,
    /// End when a time on the wire is above this many nanoseconds.
    pub limit_ns: Option<u64>,
    /// Go on when all expected lines have been seen.
    pub keep_running: bool,
    /// Go on behind the last expected line until the flows' counts are those of then or later.
    pub count_flows: bool,
    /// Nothing counts before the image with this identity says that it runs: while it was loaded,
    /// the board ran another one. What weir or a boot loader prints is shown.
    pub awaited: Option<u64>,
}

/// The time on the wire within which a line that meets an expectation ends, unless it is a prompt,
/// in ns. VMs that print at the same time interrupt each other's lines.
const LINE_NS: u64 = 1_000_000;

/// A run under way.
#[derive(Clone, Debug)]
pub struct Session {
    plan: SessionPlan,
    demux: Demux,
    expected: Expectations,
    tally: Tally,
    /// Time at which the last expected line was seen, while the flows' counts of then are awaited.
    awaits_counts: Option<u64>,
    /// Time at which the last expected line was seen, while the rest of a line is awaited.
    met_ns: Option<u64>,
    /// What the machine said of its image since its last start.
    image: ImageNamed,
    /// The last time of the run, if the machine has been reset after its end.
    reset_after_ns: Option<u64>,
    /// The image that ran instead of the awaited one, when it last said so.
    other: Option<u64>,
}

/// What a machine said of the image that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageNamed {
    /// No frame has arrived: weir may not run yet.
    Silent,
    /// Frames have arrived, and none with the identity.
    Unknown,
    /// The identity of the image.
    Known(u64),
}

impl Session {
    /// Before the first byte.
    pub fn new(plan: SessionPlan) -> Self {
        let demux = Demux::new(plan.vms.len());
        let expected = Expectations::new(plan.expect.iter().cloned());
        let tally = Tally::new(&plan.vms);
        let image = ImageNamed::Silent;
        let (reset_after_ns, other) = (None, None);
        let (awaits_counts, met_ns) = (None, None);
        Self { plan, demux, expected, tally, awaits_counts, met_ns, image, reset_after_ns, other }
    }

    /// Has the run end at the first step of this time or later, if it does not end before.
    pub fn end_at(&mut self, time_ns: Option<u64>) {
        let limit_ns = time_ns.map(|time_ns| time_ns.saturating_sub(1));
        self.plan.limit_ns = limit_ns.or(self.plan.limit_ns);
    }

    /// Takes bytes off the wire and puts what they mean at the end of `steps`. Gives the number of
    /// bytes taken and why the run ends there, if it does: the rest of `bytes` is not decoded.
    pub fn feed(&mut self, bytes: &[u8], steps: &mut Vec<WireStep>) -> (usize, Option<End>) {
        let mut seen = steps.len();
        for (position, &byte) in bytes.iter().enumerate() {
            self.demux.push(byte, steps);
            if self.is_awaited(steps, seen) {
                seen = steps.len();
            }
            if steps.len() == seen {
                continue;
            }
            let met_before = self.expected.all_met();
            let late = self.plan.limit_ns.is_some_and(|limit| self.demux.time_ns() > limit);
            let new = steps.get(seen..).unwrap_or(&[]);
            self.take(new, late);
            if let Some(met_ns) = self.awaits_counts {
                // All are reported at once, in their order.
                let last = self.plan.flows.len().saturating_sub(1);
                let is_last = |step: &WireStep| {
                    let WireStep::Flow(flow) = step else { return false };
                    flow.flow as usize == last && flow.time_ns >= met_ns
                };
                if late || new.iter().any(is_last) {
                    return (position + 1, Some(End::AllMet));
                }
            }
            seen = steps.len();
            if late {
                return (position + 1, Some(End::TimeOver));
            }
            if !met_before && self.expected.all_met() && !self.plan.keep_running {
                let now = self.demux.time_ns();
                if self.plan.count_flows {
                    self.awaits_counts = Some(now);
                } else {
                    self.met_ns = Some(now);
                }
            }
            if self.met_ns.is_some_and(|met_ns| {
                !self.expected.is_within_line() || self.demux.time_ns() >= met_ns + LINE_NS
            }) {
                return (position + 1, Some(End::AllMet));
            }
        }
        (bytes.len(), None)
    }

    /// Why a run ended that `end` has cut off: all expected lines were seen, if nothing but the
    /// flows' counts was awaited.
    pub fn ended(&self, end: End) -> End {
        let is_over = matches!(end, End::SystemStop | End::MachineGone | End::Silent);
        if is_over && (self.awaits_counts.is_some() || self.met_ns.is_some()) {
            End::AllMet
        } else {
            end
        }
    }

    /// Returns whether all expected lines were seen, and the rest of one is awaited.
    pub fn awaits_line(&self) -> bool {
        self.met_ns.is_some()
    }

    /// Returns whether the image that counts does not run yet. Then only text of weir's or of a
    /// boot loader stays in `steps` from `seen` on.
    fn is_awaited(&mut self, steps: &mut Vec<WireStep>, seen: usize) -> bool {
        let Some(awaited) = self.plan.awaited else { return false };
        let mut place = seen;
        while let Some(step) = steps.get(place) {
            let id = if let WireStep::Event(event) = step { event.image_id() } else { None };
            if id == Some(awaited) {
                self.plan.awaited = None;
                return false;
            }
            self.other = id.or(self.other);
            if is_text(step) {
                place += 1;
            } else {
                self.image = ImageNamed::Unknown;
                steps.remove(place);
            }
        }
        true
    }

    /// Whether a loaded image has not named itself yet.
    pub fn awaits_image(&self) -> bool {
        self.plan.awaited.is_some()
    }

    /// Returns the image that said since the last call that it runs instead of the awaited one.
    pub fn take_other(&mut self) -> Option<u64> {
        self.other.take()
    }

    /// The same after the run has ended: what still comes is counted, but meets no expectation.
    /// What comes after a reset belongs to no run.
    pub fn drain(&mut self, bytes: &[u8], steps: &mut Vec<WireStep>) {
        for &byte in bytes {
            if self.reset_after_ns.is_some() {
                return;
            }
            let (seen, time_ns) = (steps.len(), self.demux.time_ns());
            self.demux.push(byte, steps);
            let is_reset = |step: &WireStep| *step == WireStep::Reset;
            if let Some(reset) = steps.iter().skip(seen).position(is_reset) {
                steps.truncate(seen + reset);
                self.reset_after_ns = Some(time_ns);
            }
            self.take(steps.get(seen..).unwrap_or(&[]), true);
        }
    }

    /// The wire has ended: lines that were left without an end or a mark come out. They can still
    /// meet an expectation, unless the run ended before (`over`).
    pub fn finish(&mut self, over: bool, steps: &mut Vec<WireStep>) {
        let seen = steps.len();
        self.demux.finish(steps);
        self.take(steps.get(seen..).unwrap_or(&[]), over);
    }

    fn take(&mut self, steps: &[WireStep], late: bool) {
        for step in steps {
            if *step == WireStep::Reset {
                let resets = self.tally.resets();
                self.tally = Tally::new(&self.plan.vms).after_reset(resets + 1);
                self.expected = Expectations::new(self.plan.expect.iter().cloned());
                self.awaits_counts = None;
                self.met_ns = None;
                self.image = ImageNamed::Unknown;
            }
            self.name_image(step);
            self.tally.step(step);
            match step {
                _ if late => {}
                WireStep::Line { source, text, time_ns } => {
                    self.expected.line(*source, text, *time_ns);
                }
                WireStep::Unfinished { source, text, time_ns } => {
                    self.expected.unfinished(*source, text, *time_ns);
                }
                _ => {}
            }
        }
    }

    fn name_image(&mut self, step: &WireStep) {
        let named = match step {
            WireStep::Event(event) => event.image_id(),
            WireStep::Byte(ConsoleSource::Hypervisor, _)
            | WireStep::Line { .. }
            | WireStep::Unfinished { .. }
            | WireStep::Damaged
            | WireStep::Reset => return,
            _ => None,
        };
        if let Some(id) = named {
            self.image = ImageNamed::Known(id);
        } else if self.image == ImageNamed::Silent {
            self.image = ImageNamed::Unknown;
        }
    }

    /// Returns what the machine said of its image since its last start.
    pub fn image(&self) -> ImageNamed {
        self.image
    }

    /// Whether a VM has begun a line that has no end yet.
    pub fn is_within_line(&self) -> bool {
        self.demux.is_within_line()
    }

    /// Whether the system reported its end.
    pub fn stopped(&self) -> bool {
        self.tally.stopped()
    }

    /// The name of a VM by its index, for any number.
    pub fn name(&self, vm: usize) -> String {
        self.plan.vms.get(vm).map_or_else(|| format!("VM {vm}"), |vm| vm.name.clone())
    }

    /// The report, as far as it goes.
    pub fn report(&self, ended_by: End) -> RunReport {
        let SessionPlan { system, platform, flows, engine, .. } = &self.plan;
        let time_ns = self.reset_after_ns.unwrap_or_else(|| self.demux.time_ns());
        let report = self.tally.report(system, platform, &self.expected, ended_by, time_ns);
        let engine = engine.clone().map(|engine| answered(engine, self.tally.regulator()));
        RunReport { flows: self.tally.flows(flows), engine, ..report }
    }
}

/// Whether a step is text that came outside of frames.
fn is_text(step: &WireStep) -> bool {
    matches!(
        step,
        WireStep::Byte(ConsoleSource::Hypervisor, _)
            | WireStep::Line { source: ConsoleSource::Hypervisor, .. }
            | WireStep::Unfinished { source: ConsoleSource::Hypervisor, .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::VcpuRun, synthetic::SyntheticWire};
    use proptest::prelude::*;
    use weir_trace::wire::{Denial, FaultKind, HYPERVISOR, What};

    fn plan() -> SessionPlan {
        let vm = |name: &str, core| VmRun {
            name: name.into(),
            vcpus: vec![VcpuRun { core, ..VcpuRun::default() }],
            ..VmRun::default()
        };
        SessionPlan {
            system: "demo".into(),
            platform: "qemu-virt".into(),
            flows: Vec::new(),
            engine: None,
            vms: vec![vm("control", 0), vm("attacker", 1)],
            expect: vec![(0, "0 misses".into()), (1, "again".into())],
            limit_ns: None,
            keep_running: false,
            count_flows: false,
            awaited: None,
        }
    }

    fn wire() -> SyntheticWire {
        SyntheticWire::default()
            .text("weir on 2 cores\r\n")
            .event(1_000, What::SystemStart, HYPERVISOR, 0)
            .event(2_000, What::VmStart, 0, 0)
            .event(2_100, What::VmStart, 1, 0)
            .line(3_000, 1, "attacker: here\r")
            .event(4_000, What::Denied, 1, Denial::Pmu as u32)
            .fault(5_000, 1, FaultKind::Read, 0x9200_0006)
            .event(6_000, What::VmStart, 1, 1)
            .line(7_000, 1, "attacker: here again\r")
            .mark_dropped(7_500, 1, 3)
            .counters(8_000, 0, 0, 4)
            .counters(8_000, 1, 0, 9)
            .denials(8_000, 1, 1)
            .line(9_000, 0, "control: 1000 activations, 0 misses\r")
            .line(10_000, 0, "more that no run waits for")
    }

    fn run(plan: SessionPlan, bytes: &[u8], cut: usize) -> (usize, Option<End>, String) {
        let mut session = Session::new(plan);
        let (mut steps, mut taken, mut end) = (Vec::new(), 0, None);
        for chunk in bytes.chunks(cut.max(1)) {
            let (some, ended) = session.feed(chunk, &mut steps);
            taken += some;
            end = ended;
            if end.is_some() {
                break;
            }
        }
        session.finish(end.is_some(), &mut steps);
        let report = session.report(end.unwrap_or(End::MachineGone));
        (taken, end, format!("{:#}", report.json()))
    }

    #[test]
    fn the_report_of_a_synthetic_wire_is_as_recorded() {
        let (_, end, report) = run(plan(), wire().bytes(), 7);
        assert_eq!(end, Some(End::AllMet));
        snapbox::assert_data_eq!(report, snapbox::file!["golden.json": Text].raw());
    }

    #[test]
    fn the_run_ends_at_the_mark_after_the_last_line() {
        let mut longer = wire();
        let (taken, ..) = run(plan(), longer.bytes(), 1);
        let tail = SyntheticWire::default().mark(10_000, 0).text("more that no run waits for\n");
        assert_eq!(taken + tail.mark(10_000, 0).bytes().len(), longer.bytes().len());
        longer = longer.line(11_000, 1, "even more").garbage(b"\x10\x10\x10");
        assert_eq!(run(plan(), longer.bytes(), 4096), run(plan(), wire().bytes(), 1));
    }

    #[test]
    fn staying_sees_what_follows() {
        let (taken, end, report) =
            run(SessionPlan { keep_running: true, ..plan() }, wire().bytes(), 16);
        assert_eq!((taken, end), (wire().bytes().len(), None));
        assert!(report.contains("\"time_ns\": 10000"), "{report}");
    }

    /// Counts of before the last expected line are not the last ones, and those of one flow are not
    /// all.
    #[test]
    fn a_run_with_flows_ends_after_the_counts_of_all() {
        let flows =
            ["there", "back"].map(|name| FlowRun { name: name.into(), ..FlowRun::default() });
        let plan = SessionPlan { flows: flows.into(), count_flows: true, ..plan() };
        let met = || {
            let early = wire().flow(8_900, 0, [1, 0, 5]).flow(8_900, 1, [1, 0, 5]);
            early.flow(1_000_000, 0, [20, 0, 5]).line(1_000_001, 1, "later")
        };
        let whole = met().flow(1_000_100, 1, [30, 0, 7]);
        for cut in [1, 4096] {
            let (taken, end, report) =
                run(plan.clone(), whole.clone().line(2_000_000, 0, "no more").bytes(), cut);
            assert_eq!((taken, end), (whole.bytes().len(), Some(End::AllMet)));
            assert!(
                report.contains("\"packets\": 20") && report.contains("\"packets\": 30"),
                "{report}"
            );
        }
        let mut session = Session::new(SessionPlan { limit_ns: Some(1_000_000), ..plan });
        let cut = met();
        let (_, end) = session.feed(cut.bytes(), &mut Vec::new());
        assert_eq!(end, Some(End::AllMet), "the time is over, and nothing but counts is missing");
        for (end, reported) in
            [(End::SystemStop, End::AllMet), (End::Interrupted, End::Interrupted)]
        {
            assert_eq!(session.ended(end), reported);
        }
        assert_eq!(Session::new(self::plan()).ended(End::SystemStop), End::SystemStop);
    }

    #[test]
    fn the_time_limit_is_the_wires() {
        let limited = |limit_ns| SessionPlan { limit_ns: Some(limit_ns), ..plan() };
        let (_, end, report) = run(limited(8_999), wire().bytes(), 5);
        assert_eq!(end, Some(End::TimeOver));
        let met = report.matches("\"met\": true").count();
        assert_eq!(met, 1, "the line of 9000 came too late: {report}");
        assert_eq!(run(limited(9_000), wire().bytes(), 5).1, Some(End::AllMet));
    }

    /// VMs that print at the same time interrupt each other's lines: the last one is not cut. A
    /// prompt has no end, so its line is awaited for a while only.
    #[test]
    fn the_last_line_is_whole() {
        let parts = SyntheticWire::default().line(1, 0, "0 misses").mark(2, 1).text("again");
        let cut = parts.clone().mark(3, 0).text("more\n").mark(4, 1).text(" and the rest\n");
        let cut = cut.mark(5, 0).text("too late\n");
        let (_, end, report) = run(plan(), cut.bytes(), 1);
        assert_eq!(end, Some(End::AllMet));
        assert!(report.contains("\"time_ns\": 5"), "{report}");
        let prompt = parts.mark(3, 0).text("more\n").mark(3 + LINE_NS, 0).text("more\n");
        assert_eq!(run(plan(), prompt.bytes(), 1).1, Some(End::AllMet));
    }

    #[test]
    fn the_last_line_counts_if_the_machine_then_dies() {
        let wire = SyntheticWire::default().mark(1, 0).text("0 misses").mark(2, 1).text("again");
        let mut session = Session::new(plan());
        let mut steps = Vec::new();
        assert_eq!(session.feed(wire.bytes(), &mut steps).1, None);
        session.finish(false, &mut steps);
        assert!(session.expected.all_met());
        let line =
            WireStep::Line { source: ConsoleSource::Vm(1), text: "again".into(), time_ns: 2 };
        assert!(steps.contains(&line));
    }

    /// A board that starts by itself runs the image of before while the new one is loaded.
    #[test]
    fn only_what_the_loaded_image_does_counts() {
        let old = SyntheticWire::default().text("U-Boot\r\n");
        let old = old.system_event(1, What::SystemStart, 7).line(2, 0, "control: 0 misses");
        let old = old.line(3, 1, "again").text("\r\nU-Boot\r\n");
        let new = |wire: SyntheticWire| wire.system_event(1, What::SystemStart, 8);
        let mut session = Session::new(SessionPlan { awaited: Some(8), ..plan() });
        let mut steps = Vec::new();
        assert_eq!(session.feed(old.bytes(), &mut steps), (old.bytes().len(), None));
        assert!(steps.iter().all(is_text) && !steps.is_empty(), "{steps:?}");
        assert_eq!((session.image(), session.take_other()), (ImageNamed::Unknown, Some(7)));
        assert!(session.awaits_image());
        let start = new(SyntheticWire::default()).line(2, 0, "control: 0 misses");
        assert_eq!(session.feed(start.bytes(), &mut steps).1, None);
        assert_eq!((session.image(), session.take_other()), (ImageNamed::Known(8), None));
        assert!(!session.awaits_image());
        let end = SyntheticWire::default().line(3, 1, "again");
        assert_eq!(session.feed(end.bytes(), &mut steps).1, Some(End::AllMet));
    }

    /// The counters of the next start are not those of the run.
    #[test]
    fn a_reset_after_the_end_changes_nothing() {
        let mut session = Session::new(plan());
        let started = SyntheticWire::default().system_event(1, What::SystemStart, 7);
        let met = started.line(2, 0, "0 misses").line(3, 1, "again");
        let mut steps = Vec::new();
        assert_eq!(session.feed(met.bytes(), &mut steps).1, Some(End::AllMet));
        let before = session.report(End::AllMet);
        let next = SyntheticWire::default().system_event(1, What::SystemStart, 7);
        let next = next.counters(5, 0, 0, 4).line(6, 0, "0 misses");
        steps.clear();
        session.drain(next.bytes(), &mut steps);
        session.finish(true, &mut steps);
        assert_eq!(session.report(End::AllMet).json(), before.json());
        assert!(!steps.contains(&WireStep::Reset), "{steps:?}");
    }

    proptest! {
        #[test]
        fn cutting_the_reads_elsewhere_changes_nothing(cut in 1usize..300) {
            prop_assert_eq!(run(plan(), wire().bytes(), cut), run(plan(), wire().bytes(), 1));
        }

        #[test]
        fn any_bytes_make_a_report(
            bytes in prop::collection::vec(any::<u8>(), 0..3000), cut in 1usize..100,
        ) {
            prop_assert_eq!(run(plan(), &bytes, cut), run(plan(), &bytes, 4096));
        }
    }

    #[test]
    fn an_image_is_named_anew_after_each_start() {
        let mut session = Session::new(plan());
        let mut after = |wire: SyntheticWire| {
            session.feed(wire.bytes(), &mut Vec::new());
            session.image()
        };
        let wire = SyntheticWire::default;
        assert_eq!(after(wire().text("U-Boot 2025.01\n=> ")), ImageNamed::Silent);
        assert_eq!(after(wire().mark(1, 0).text("on")), ImageNamed::Unknown);
        assert_eq!(after(wire().system_event(2, What::SystemRuns, 7)), ImageNamed::Known(7));
        assert_eq!(after(wire().event(3, What::VmStart, 0, 0)), ImageNamed::Known(7));
        assert_eq!(after(wire().system_event(1, What::SystemStart, 8)), ImageNamed::Known(8));
        assert_eq!(after(wire().system_event(4, What::SystemStop, 9)), ImageNamed::Known(9));
    }
}
