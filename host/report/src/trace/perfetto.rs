//! A trace as ui.perfetto.dev opens it: Chrome's trace event format, one object with a list of
//! events.
//!
//! Process 1 has a track for each core: the vCPU that has it, and inside of that exits and
//! interrupts: as stretches where their ends were recorded, else as moments. Each VM is a process
//! with a track for each vCPU: running, throttled; one for each vCPU with marks of its guest, the
//! activations of tasks and the sections; and a counter of the accesses of its period next to its
//! budget. An arrow leads from where a packet was sent to where it arrived. Times are microseconds
//! since the hypervisor's start.

use super::{
    file::{TraceFacts, core},
    words,
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};
use weir_trace::record::{Accesses, MarkName, NO_VM, Record, RecordKind};

/// The process of the cores; that of VM `n` is this plus 1 plus `n`.
const CORES: u64 = 1;

/// The first track with marks of a VM; that of vCPU `n` is this plus `n`.
const MARKS: u64 = 256;

/// A slice that has not ended.
#[derive(Clone, Debug)]
struct Open {
    name: String,
    since: u64,
}

/// A track: process and thread.
type Track = (u64, u64);

/// An event of the format.
#[derive(Default, Serialize)]
struct TraceEvent<'a> {
    /// The phase: `M` names a track, `X` is a slice, `B` and `E` begin and end one, `i` is a
    /// moment, `C` a counter, `s` and `f` begin and end an arrow.
    ph: &'static str,
    /// The arrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The kind of an arrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// The end of an arrow: at the slice that surrounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    /// The scope of a moment: its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    name: &'a str,
    pid: u64,
    tid: u64,
    /// The time in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    /// The length in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

/// The arguments of an event.
#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Track { name: &'a str },
    Record { vcpu: String, values: String },
    Budget { used: u64, budget: u64 },
}

/// Writes events one by one.
pub struct PerfettoEvents<'a, W: Write> {
    facts: &'a TraceFacts,
    out: W,
    first: bool,
    /// What goes on, by track.
    open: BTreeMap<Track, Open>,
    /// The last exit of each core, as long as its end may come.
    exits: BTreeMap<Track, (u64, Record)>,
    /// The tracks with marks.
    marked: BTreeSet<Track>,
    /// The receiver of the last chunk that each core moved.
    receivers: BTreeMap<u16, Track>,
    now: u64,
    /// The number of the packet of the record under way.
    number: Option<u64>,
}

/// Whole nanoseconds as the format's microseconds.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53 ns, which is 104 days")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

fn core_track(record: &Record) -> Track {
    (CORES, u64::from(core(record)))
}

fn vcpu_track(vm: u8, vcpu: u8) -> Track {
    (CORES + 1 + u64::from(vm), u64::from(vcpu))
}

impl<'a, W: Write> PerfettoEvents<'a, W> {
    /// Writes the beginning of the list: the names of the tracks.
    pub fn new(facts: &'a TraceFacts, mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let (open, exits) = (BTreeMap::new(), BTreeMap::new());
        let (marked, receivers) = (BTreeSet::new(), BTreeMap::new());
        let mut events =
            Self { facts, out, first: true, open, exits, marked, receivers, now: 0, number: None };
        events.name((CORES, 0), "process_name", "cores")?;
        for core in 0..facts.cores.min(256) {
            events.name((CORES, core.into()), "thread_name", &format!("core {core}"))?;
        }
        for (vm, number) in facts.vms.iter().zip(0u8..) {
            events.name(vcpu_track(number, 0), "process_name", &vm.name)?;
            for (vcpu, core) in (0u8..).zip(&vm.cores) {
                let name = format!("vCPU {vcpu} (core {core})");
                events.name(vcpu_track(number, vcpu), "thread_name", &name)?;
            }
        }
        Ok(events)
    }

    /// Takes the next record, and the number of its packet, if it has one.
    pub fn take(&mut self, record: &Record, number: Option<u64>) -> io::Result<()> {
        self.number = number;
        self.now = self.facts.nanos(record.time).max(self.now);
        let (on_core, on_vcpu) = (core_track(record), vcpu_track(record.vm, record.vcpu));
        let Some(kind) = RecordKind::from_number(record.kind) else {
            return self.instant(on_core, record);
        };
        let sits = record.vm != NO_VM && !matches!(kind, RecordKind::VcpuOff | RecordKind::Lost);
        if sits {
            self.becomes(on_core, &words::vcpu_name(record, self.facts))?;
            if !self.open.contains_key(&on_vcpu) {
                self.becomes(on_vcpu, "running")?;
            }
        }
        match kind {
            RecordKind::Exit => {
                if let Some((since, exit)) = self.exits.insert(on_core, (self.now, *record)) {
                    self.moment(on_core, &exit, since)?;
                }
            }
            RecordKind::Enter => {
                if let Some((since, exit)) = self.exits.remove(&on_core) {
                    let cause = words::detail(&exit, None, self.facts);
                    let name = format!("EL2: {}", cause.unwrap_or_else(|| "exit".into()));
                    self.slice(on_core, &name, since)?;
                }
            }
            RecordKind::VcpuSwitch => {
                // The other's last exit is over, independently of the next vCPU.
                if let Some((since, exit)) = self.exits.remove(&on_core) {
                    self.moment(on_core, &exit, since)?;
                }
                let [vcpu, vm, ..] = record.detail.to_le_bytes();
                if (vm, vcpu) != (record.vm, record.vcpu) {
                    self.end(vcpu_track(vm, vcpu))?;
                }
                self.instant(on_core, record)?;
            }
            RecordKind::VcpuOff => {
                self.instant(on_core, record)?;
                self.end(on_core)?;
                self.end(on_vcpu)?;
            }
            RecordKind::Throttle => {
                self.counter(record)?;
                self.becomes(on_vcpu, "throttled")?;
            }
            RecordKind::Wake => {
                self.instant(on_vcpu, record)?;
                self.becomes(on_vcpu, "running")?;
            }
            RecordKind::Replenish => {
                self.counter(record)?;
                self.counter(&Record { count: 0, ..*record })?;
            }
            RecordKind::Draw => self.counter(record)?,
            // A number for each period, of EL2's own work; and what switches and exits show.
            RecordKind::Polls | RecordKind::CoreFree | RecordKind::VcpuResume => {}
            RecordKind::Overflow => {
                self.counter(record)?;
                self.instant(on_vcpu, record)?;
            }
            RecordKind::BudgetChanged
            | RecordKind::VmStart
            | RecordKind::VmStop
            | RecordKind::VmFault
            | RecordKind::VmRestart
            | RecordKind::VcpuOn
            | RecordKind::PacketTaken => self.instant(on_vcpu, record)?,
            RecordKind::Interrupt
            | RecordKind::LineDeferred
            | RecordKind::LinePreempted
            | RecordKind::Lost => {
                self.instant(on_core, record)?;
            }
            RecordKind::TaskRelease | RecordKind::SectionBegin => {
                self.mark(record, "B")?;
            }
            RecordKind::TaskComplete | RecordKind::SectionEnd => self.mark(record, "E")?,
            RecordKind::PacketSent => {
                self.instant(on_vcpu, record)?;
                self.arrow(on_vcpu, record, "s")?;
            }
            RecordKind::PacketChunk => {
                self.receivers.insert(core(record), on_vcpu);
                self.instant(on_vcpu, record)?;
            }
            RecordKind::PacketArrived => {
                self.instant(on_vcpu, record)?;
                if let Some(&receiver) = self.receivers.get(&core(record)) {
                    self.arrow(receiver, record, "f")?;
                }
            }
        }
        Ok(())
    }

    /// Ends all open slices and the list.
    pub fn finish(mut self) -> io::Result<W> {
        for (track, (since, exit)) in std::mem::take(&mut self.exits) {
            self.moment(track, &exit, since)?;
        }
        let tracks: Vec<Track> = self.open.keys().copied().collect();
        for track in tracks {
            self.end(track)?;
        }
        self.out.write_all(b"\n]}\n")?;
        Ok(self.out)
    }

    fn event(&mut self, event: &TraceEvent<'_>) -> io::Result<()> {
        let comma: &[u8] = if std::mem::take(&mut self.first) { b"\n" } else { b",\n" };
        self.out.write_all(comma)?;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    fn name(&mut self, (pid, tid): Track, what: &str, name: &str) -> io::Result<()> {
        let args = Some(Arguments::Track { name });
        self.event(&TraceEvent { ph: "M", name: what, pid, tid, args, ..TraceEvent::default() })
    }

    /// The slice of a track is this one from now on.
    fn becomes(&mut self, track: Track, name: &str) -> io::Result<()> {
        if self.open.get(&track).is_some_and(|open| open.name == name) {
            return Ok(());
        }
        self.end(track)?;
        self.open.insert(track, Open { name: name.into(), since: self.now });
        Ok(())
    }

    fn end(&mut self, track: Track) -> io::Result<()> {
        match self.open.remove(&track) {
            Some(Open { name, since }) => self.slice(track, &name, since),
            None => Ok(()),
        }
    }

    /// A slice from `since` until now.
    fn slice(&mut self, (pid, tid): Track, name: &str, since: u64) -> io::Result<()> {
        let (ts, dur) = (Some(micros(since)), Some(micros(self.now - since)));
        self.event(&TraceEvent { ph: "X", name, pid, tid, ts, dur, ..TraceEvent::default() })
    }

    /// Begins or ends a slice of a guest's program.
    fn mark(&mut self, record: &Record, ph: &'static str) -> io::Result<()> {
        let (pid, vcpu) = vcpu_track(record.vm, record.vcpu);
        let tid = MARKS + vcpu;
        if self.marked.insert((pid, tid)) {
            self.name((pid, tid), "thread_name", &format!("marks of vCPU {vcpu}"))?;
        }
        let is_release = record.kind == RecordKind::TaskRelease as u16;
        let args = is_release.then(|| Arguments::Record {
            vcpu: words::vcpu_name(record, self.facts),
            values: words::numbers(record, None, self.facts),
        });
        self.event(&TraceEvent {
            ph,
            name: &MarkName(record.count).to_string(),
            pid,
            tid,
            ts: Some(micros(self.now)),
            args,
            ..TraceEvent::default()
        })
    }

    /// Begins or ends the arrow of a packet that arrives.
    fn arrow(&mut self, (pid, tid): Track, record: &Record, ph: &'static str) -> io::Result<()> {
        let Some(number) = self.number else { return Ok(()) };
        let flow = self.facts.flow(record.flow());
        self.event(&TraceEvent {
            ph,
            id: Some(format!("{flow}:{number}")),
            bp: (ph == "f").then_some("e"),
            cat: Some("packet"),
            name: &flow,
            pid,
            tid,
            ts: Some(micros(self.now)),
            ..TraceEvent::default()
        })
    }

    fn instant(&mut self, track: Track, record: &Record) -> io::Result<()> {
        self.moment(track, record, self.now)
    }

    fn moment(&mut self, (pid, tid): Track, record: &Record, time: u64) -> io::Result<()> {
        let values = words::numbers(record, self.number, self.facts);
        let vcpu = words::vcpu_name(record, self.facts);
        self.event(&TraceEvent {
            ph: "i",
            s: Some("t"),
            name: &words::kind(record),
            pid,
            tid,
            ts: Some(micros(time)),
            args: Some(Arguments::Record { vcpu, values }),
            ..TraceEvent::default()
        })
    }

    fn counter(&mut self, record: &Record) -> io::Result<()> {
        let accesses =
            Accesses::ALL.get(record.detail as usize).map_or("?", |accesses| accesses.name());
        let (pid, tid) = vcpu_track(record.vm, record.vcpu);
        self.event(&TraceEvent {
            ph: "C",
            name: &format!("vCPU {}: {accesses}", record.vcpu),
            pid,
            tid,
            ts: Some(micros(self.now)),
            args: Some(Arguments::Budget { used: record.count, budget: record.other() }),
            ..TraceEvent::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{arrivals::tests::counted, file::tests::facts};
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn events(records: &[Record]) -> Vec<Value> {
        let facts = facts();
        let mut events = PerfettoEvents::new(&facts, Vec::new()).expect("memory");
        for record in records {
            events.take(record, None).expect("memory");
        }
        let text = events.finish().expect("memory");
        let mut value: Value = serde_json::from_slice(&text).expect("JSON");
        serde_json::from_value(value["traceEvents"].take()).expect("a list")
    }

    fn slices(events: &[Value], pid: u64) -> Vec<(String, f64, f64)> {
        let slices = events.iter().filter(|e| e["ph"] == "X" && e["pid"] == pid);
        let number = |e: &Value, name: &str| e[name].as_f64().expect("a number");
        slices
            .map(|e| {
                (e["name"].as_str().expect("a name").into(), number(e, "ts"), number(e, "dur"))
            })
            .collect()
    }

    #[test]
    fn a_vcpu_is_running_or_throttled() {
        let events = events(&[
            counted(RecordKind::VcpuOn, 0, 1000, 0, 0),
            counted(RecordKind::Replenish, 0, 1000, 0, 50),
            counted(RecordKind::Throttle, 0, 1500, 55, 50),
            counted(RecordKind::Replenish, 0, 2000, 56, 50),
            counted(RecordKind::Wake, 0, 2010, 6, 44),
            counted(RecordKind::Draw, 0, 2500, 7, 50),
        ]);
        let expected = [("running", 1.0, 0.5), ("throttled", 1.5, 0.51), ("running", 2.01, 0.49)];
        let expected = expected.map(|(name, since, long)| (name.to_owned(), since, long));
        assert_eq!(slices(&events, 3), expected);
        let counters: Vec<_> = events.iter().filter(|event| event["ph"] == "C").collect();
        assert_eq!(counters.len(), 6, "a replenishment ends at what was used, and begins at 0");
        assert_eq!(counters[2]["args"], json!({ "used": 55, "budget": 50 }));
        assert!(events.iter().any(|event| event["name"] == "wake" && event["ph"] == "i"));
    }

    #[test]
    fn el2_lies_inside_of_the_time_of_its_vcpu() {
        let exit = |time| Record { detail: 5, ..counted(RecordKind::Exit, 0, time, 0, 0) };
        let events = events(&[
            exit(100),
            counted(RecordKind::Enter, 0, 200, 0, 0),
            exit(250),
            exit(300),
            counted(RecordKind::Interrupt, 0, 350, 0, 0),
            counted(RecordKind::Enter, 0, 400, 0, 0),
            counted(RecordKind::VcpuOff, 0, 500, 0, 0),
        ]);
        let expected =
            [("EL2: hypercall", 0.1, 0.1), ("EL2: hypercall", 0.3, 0.1), ("linux/0", 0.1, 0.4)];
        let expected = expected.map(|(name, since, long)| (name.to_owned(), since, long));
        assert_eq!(slices(&events, 1), expected);
        let moments = events.iter().filter(|event| event["ph"] == "i");
        let moments: Vec<_> = moments.map(|event| (&event["name"], &event["ts"])).collect();
        let expected = [("exit", 0.25), ("interrupt", 0.35), ("vcpu-off", 0.5)];
        let expected = expected.map(|(name, time)| (json!(name), json!(time)));
        assert_eq!(
            moments,
            expected.each_ref().map(|(name, time)| (name, time)),
            "no end, no stretch"
        );
        let names: Vec<_> = events.iter().filter(|event| event["ph"] == "M").collect();
        assert_eq!(names.len(), 1 + 3 + 2 + 3, "cores, and VMs with their vCPUs");
    }

    #[test]
    fn marks_are_slices_and_packets_are_arrows() {
        let mark = |kind, time, name| counted(kind, 0, time, MarkName::new(name).0, 0);
        let facts = facts();
        let mut events = PerfettoEvents::new(&facts, Vec::new()).expect("memory");
        let records = [
            (mark(RecordKind::TaskRelease, 1000, "control"), None),
            (mark(RecordKind::SectionBegin, 1100, "filter"), None),
            (mark(RecordKind::SectionEnd, 1200, "filter"), None),
            (mark(RecordKind::TaskComplete, 1500, "control"), None),
            (counted(RecordKind::PacketSent, 0, 2000, 0, 0), Some(3)),
            (Record { vm: 2, ..counted(RecordKind::PacketChunk, 0, 2100, 0, 0) }, None),
            (counted(RecordKind::PacketArrived, 0, 2200, 0, 0), Some(3)),
            // It does not arrive.
            (counted(RecordKind::PacketSent, 0, 2300, 0, 0), None),
        ];
        for (record, number) in &records {
            events.take(record, *number).expect("memory");
        }
        let text = events.finish().expect("memory");
        let value: Value = serde_json::from_slice(&text).expect("JSON");
        let all = value["traceEvents"].as_array().expect("a list");
        let of = |phases: &[&str]| -> Vec<_> {
            let of = all.iter().filter(|event| phases.iter().any(|ph| event["ph"] == *ph));
            of.map(|e| (&e["ph"], &e["name"], &e["pid"], &e["tid"], &e["ts"]))
                .map(|all| json!(all))
                .collect()
        };
        let slices = [
            json!(["B", "control", 3, 256, 1.0]),
            json!(["B", "filter", 3, 256, 1.1]),
            json!(["E", "filter", 3, 256, 1.2]),
            json!(["E", "control", 3, 256, 1.5]),
        ];
        assert_eq!(of(&["B", "E"]), slices);
        let arrows = [json!(["s", "0", 3, 0, 2.0]), json!(["f", "0", 4, 0, 2.2])];
        assert_eq!(of(&["s", "f"]), arrows);
    }

    proptest! {
        /// For any damaged trace the output is JSON, and no slice has a negative length.
        #[test]
        fn any_records_make_events(
            words in prop::collection::vec(
                (any::<u16>(), 0u16..36, any::<[u8; 2]>(), any::<u32>(), any::<u64>()),
                0..60,
            ),
        ) {
            let records: Vec<_> = words
                .into_iter()
                .map(|(time, kind, [vm, vcpu], detail, rest)| Record {
                    time: time.into(),
                    kind,
                    vm: vm % 4,
                    vcpu: vcpu % 3,
                    detail: detail % 600,
                    count: rest,
                    rest,
                })
                .collect();
            for (_, since, long) in (1..8).flat_map(|pid| slices(&events(&records), pid)) {
                prop_assert!(since >= 0.0 && long >= 0.0);
            }
        }
    }
}
