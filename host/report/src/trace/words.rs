//! Records as text, CSV and JSON.

use super::file::{TraceFacts, core};
use serde_json::{Map, Value};
use weir_trace::{
    phases::{LONGEST, Phase, unpack},
    record::{Accesses, BY_ENGINE, MOST_OTHER, MarkName, NO_VM, OTHER_BITS, Record, RecordKind},
    wire::{ExitCause, FaultKind},
};

/// Returns the name of a record's kind, or its number if it is from a newer hypervisor.
#[must_use]
pub fn kind(record: &Record) -> String {
    RecordKind::from_number(record.kind)
        .map_or_else(|| format!("kind-{}", record.kind), |kind| kind.name().into())
}

/// Returns the vCPU that a record concerns, as `linux/1`.
#[must_use]
pub fn vcpu_name(record: &Record, facts: &TraceFacts) -> String {
    match facts.name(record.vm) {
        Some(name) => format!("{name}/{}", record.vcpu),
        None if record.vm == NO_VM => "-".into(),
        None => format!("VM {}/{}", record.vm, record.vcpu),
    }
}

/// Returns the detail of a record in words, if its number is a code. `packet` is the number of the
/// record's packet, if it arrived.
#[must_use]
pub fn detail(record: &Record, packet: Option<u64>, facts: &TraceFacts) -> Option<String> {
    let number = record.detail as usize;
    match RecordKind::from_number(record.kind)? {
        RecordKind::Exit => ExitCause::ALL.get(number).map(|cause| cause.name().into()),
        RecordKind::VmFault => FaultKind::ALL.get(number).map(|fault| fault.name().into()),
        RecordKind::Replenish
        | RecordKind::Overflow
        | RecordKind::Throttle
        | RecordKind::Wake
        | RecordKind::BudgetChanged
        | RecordKind::Draw => Accesses::ALL.get(number).map(|accesses| accesses.name().into()),
        RecordKind::PacketSent | RecordKind::PacketArrived => {
            let waited = if record.has_waited() { ", waited for buffers" } else { "" };
            let flow = facts.flow(record.flow());
            let number = packet.map_or_else(
                || format!("of flow {flow} that did not arrive"),
                |number| format!("{number} of flow {flow}"),
            );
            Some(format!("{number}{waited}, head {}", record.detail & 0xffff))
        }
        RecordKind::VcpuSwitch => {
            let [vcpu, vm, ..] = record.detail.to_le_bytes();
            Some(vcpu_name(&Record { vm, vcpu, ..*record }, facts))
        }
        RecordKind::PacketChunk if record.is_by_engine() => {
            Some(format!("{} by the DMA engine", record.detail & !BY_ENGINE))
        }
        _ => None,
    }
}

/// Returns the values of a record, without its kind and its vCPU: `used 512, budget 500`. `packet`
/// is the number of the record's packet, if it arrived.
#[must_use]
pub fn numbers(record: &Record, packet: Option<u64>, facts: &TraceFacts) -> String {
    let named = RecordKind::from_number(record.kind).map(RecordKind::fields);
    let fields = named.unwrap_or(["detail", "count", "other"]);
    let values = [u64::from(record.detail), record.count, record.other()];
    let mut words = Vec::new();
    for (place, (field, value)) in fields.into_iter().zip(values).enumerate() {
        let text = detail(record, packet, facts).filter(|_| place == 0);
        match (field, text) {
            ("", _) => {}
            ("accesses", Some(accesses)) if accesses == Accesses::All.name() => {}
            ("cause" | "fault", Some(text)) => words.push(text),
            (field, Some(text)) => words.push(format!("{field} {text}")),
            ("syndrome" | "skipped", None) if value == 0 => {}
            ("syndrome" | "address", None) => words.push(format!("{field} {value:#x}")),
            ("phases", None) => {
                let phases = phases(record, facts);
                let most = longest_phase(facts);
                words.extend(phases.map(|(phase, ns)| {
                    let open = if ns >= most { " or more" } else { "" };
                    format!("{} {ns} ns{open}", phase.name())
                }));
            }
            ("began", None) => {
                words.extend(switch(record, facts).map(|ns| format!("took {ns} ns")));
            }
            ("latency", None) => words.push(format!("{field} {value} ns")),
            ("age", None) => words.push(format!("{field} {} ns", in_ns(value, facts))),
            ("task" | "section", None) => words.push(MarkName(value).to_string()),
            ("budget" | "was", None) if place == 2 && value == MOST_OTHER => {
                words.push(format!("{field} {value} or more"));
            }
            (field, None) => words.push(format!("{field} {value}")),
        }
    }
    words.join(", ")
}

/// Returns the phases of a packet that a record contains, in ns.
pub fn phases(record: &Record, facts: &TraceFacts) -> impl Iterator<Item = (Phase, u64)> {
    let phases = Phase::of(record).iter().copied().zip(unpack(record.count));
    phases.filter(|(_, ticks)| *ticks > 0).map(|(phase, ticks)| (phase, in_ns(ticks, facts)))
}

/// Returns the time of a switch between two vCPUs, in ns, from where EL2 has the interrupt that
/// leads to it; none for other records, and for a core that was free.
#[must_use]
pub fn switch(record: &Record, facts: &TraceFacts) -> Option<u64> {
    let is_switch = record.kind == RecordKind::VcpuSwitch as u16 && record.count > 0;
    is_switch.then(|| facts.nanos(record.time).saturating_sub(facts.nanos(record.count)))
}

fn in_ns(ticks: u64, facts: &TraceFacts) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(facts.frequency.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Returns the longest phase that a record can hold, in ns. A phase of this length took at least
/// this long.
#[must_use]
pub fn longest_phase(facts: &TraceFacts) -> u64 {
    in_ns(LONGEST, facts)
}

/// The columns of [`csv`].
pub const CSV: &str = "time_ns,core,vm,vcpu,kind,detail,count,other,packet\n";

/// Returns the second number of a record. A time is in ns since the hypervisor's start, as that of
/// the record is; 0 stays 0.
fn count(record: &Record, facts: &TraceFacts) -> u64 {
    let is_time = record.kind == RecordKind::VcpuSwitch as u16 && record.count > 0;
    if is_time { facts.nanos(record.count) } else { record.count }
}

/// Returns the third number of a record. An age is in ns.
fn other(record: &Record, facts: &TraceFacts) -> u64 {
    let is_age = record.kind == RecordKind::TaskRelease as u16;
    if is_age { in_ns(record.other(), facts) } else { record.other() }
}

/// Returns a record as a line of CSV; names of VMs have no commas. `packet` is the number of the
/// record's packet, if it arrived.
#[must_use]
pub fn csv(record: &Record, packet: Option<u64>, facts: &TraceFacts) -> String {
    let vm = match facts.name(record.vm) {
        Some(name) => name.to_owned(),
        None if record.vm == NO_VM => String::new(),
        None => record.vm.to_string(),
    };
    format!(
        "{},{},{vm},{},{},{},{},{},{}\n",
        facts.nanos(record.time),
        core(record),
        record.vcpu,
        kind(record),
        record.detail,
        count(record, facts),
        other(record, facts),
        packet.map(|number| number.to_string()).unwrap_or_default()
    )
}

/// Returns a record as JSON: its numbers under the names that its kind gives them. `packet` is the
/// number of the record's packet, if it arrived.
#[must_use]
pub fn json(record: &Record, packet: Option<u64>, facts: &TraceFacts) -> Value {
    let mut all = Map::new();
    let mut set = |field: &str, value: Value| _ = all.insert(field.to_owned(), value);
    set("time_ns", facts.nanos(record.time).into());
    set("core", core(record).into());
    set("vm", facts.name(record.vm).into());
    set("vcpu", record.vcpu.into());
    set("kind", kind(record).into());
    let named = RecordKind::from_number(record.kind).map(RecordKind::fields);
    let fields = named.unwrap_or(["detail", "count", "other"]);
    let numbers = [u64::from(record.detail), count(record, facts), other(record, facts)];
    for (place, (field, number)) in fields.into_iter().zip(numbers).enumerate() {
        if field == "phases" {
            let phases = phases(record, facts).map(|(phase, ns)| (phase.name().into(), ns.into()));
            set(field, Value::Object(phases.collect()));
        } else if matches!(field, "task" | "section") {
            set(field, MarkName(number).to_string().into());
        } else if field == "packet" {
            set(field, packet.into());
            set("flow", facts.flow(record.flow()).into());
            set("head", (record.detail & 0xffff).into());
            if record.has_waited() {
                set("waited", true.into());
            }
        } else if !field.is_empty() {
            let text = detail(record, packet, facts).filter(|_| place == 0);
            if place == 0 && record.is_by_engine() {
                set(field, (record.detail & !BY_ENGINE).into());
                set("by_engine", true.into());
            } else {
                set(field, text.map_or_else(|| number.into(), Into::into));
            }
            if place == 2 && matches!(field, "budget" | "was") && number == MOST_OTHER {
                set("or_more", true.into());
            }
        }
    }
    Value::Object(all)
}

// The file keeps a core where a ring has its sequence number: it must fit.
const _: () = assert!(weir_abi::MAX_CORES <= 1 << (64 - OTHER_BITS));

#[cfg(test)]
mod tests {
    use super::super::file::tests::facts;
    use super::*;
    use serde_json::json;
    use weir_trace::record::{Origin, WAITED, outgoing};

    /// A record as the hypervisor makes it.
    fn record(kind: RecordKind, vm: u8, detail: u32, count: u64, other: u64) -> Record {
        let ring = weir_trace::recorder::TraceRing::<4>::new();
        ring.begin(0, 1, 0);
        ring.push(1500, Origin::new(vm, 1).tag(kind, detail), count, other);
        let mut read = None;
        let mut reader = weir_trace::reader::Reader::new(size_of_val(&ring));
        reader.take(&mut &ring, |entry| read = Some(entry));
        match read {
            Some(weir_trace::reader::RingEntry::Record(record)) => record.with_sequence(2),
            other => panic!("{other:?}"),
        }
    }

    /// A chunk with two phases.
    fn chunk(detail: u32) -> Record {
        record(RecordKind::PacketChunk, 1, detail, weir_trace::phases::pack([1, 0, 3, 0]), 4096)
    }

    /// A mark of a guest.
    fn mark(kind: RecordKind, skipped: u32, age: u64) -> Record {
        record(kind, 1, skipped, MarkName::new("control").0, age)
    }

    #[test]
    fn a_mark_has_the_name_of_its_task() {
        let release = json(&mark(RecordKind::TaskRelease, 2, 400), None, &facts());
        assert_eq!(
            [&release["task"], &release["skipped"], &release["age"]],
            [&json!("control"), &json!(2), &json!(400)]
        );
        let end = json(&mark(RecordKind::SectionEnd, 0, 0), None, &facts());
        assert_eq!((&end["section"], &end["age"]), (&json!("control"), &Value::Null));
    }

    #[test]
    fn each_kind_names_its_numbers() {
        let facts = facts();
        for (record, text) in [
            (record(RecordKind::Replenish, 1, 0, 512, 500), "used 512, budget 500"),
            (record(RecordKind::Throttle, 1, 2, 512, 500), "accesses writes, used 512, budget 500"),
            (
                record(RecordKind::Replenish, 1, 0, 512, MOST_OTHER),
                "used 512, budget 281474976710655 or more",
            ),
            (record(RecordKind::Exit, 1, 5, 0x5a00_0000, 0), "hypercall, syndrome 0x5a000000"),
            (record(RecordKind::Exit, 1, 0, 0, 0), "timer interrupt"),
            (record(RecordKind::Exit, 1, 99, 0, 0), "cause 99"),
            (
                record(RecordKind::VmFault, 1, 1, 3, 0x10),
                "write outside its memory, syndrome 0x3, address 0x10",
            ),
            (record(RecordKind::VcpuSwitch, 1, outgoing(0, 0), 0, 0), "outgoing control/0"),
            (record(RecordKind::VcpuSwitch, 1, outgoing(NO_VM, 0), 0, 0), "outgoing -"),
            (
                Record { time: 900, ..record(RecordKind::VcpuSwitch, 1, outgoing(0, 0), 400, 0) },
                "outgoing control/0, took 500 ns",
            ),
            (record(RecordKind::Interrupt, 1, 27, 0, 0), "intid 27"),
            (record(RecordKind::Enter, 1, 0, 0, 0), ""),
            (mark(RecordKind::TaskRelease, 2, 400), "skipped 2, control, age 400 ns"),
            (mark(RecordKind::TaskRelease, 0, 400), "control, age 400 ns"),
            (mark(RecordKind::SectionEnd, 0, 0), "control"),
            (chunk(7), "buffer 7, ps 1 ns, copy 3 ns, bytes 4096"),
            (chunk(7 | BY_ENGINE), "buffer 7 by the DMA engine, ps 1 ns, ip 3 ns, bytes 4096"),
        ] {
            assert_eq!(numbers(&record, None, &facts), text);
        }
        let unknown = Record { kind: 40, vm: 9, ..record(RecordKind::Draw, 1, 1, 2, 3) };
        assert_eq!(numbers(&unknown, None, &facts), "detail 1, count 2, other 3");
        assert_eq!(
            (kind(&unknown), vcpu_name(&unknown, &facts)),
            ("kind-40".into(), "VM 9/1".into())
        );
        assert_eq!(csv(&unknown, None, &facts), "500,2,9,1,kind-40,1,2,3,\n");
    }

    #[test]
    fn a_record_as_data_names_its_numbers() {
        let throttle = record(RecordKind::Throttle, 1, 1, 512, 500);
        assert_eq!(
            json(&throttle, None, &facts()),
            json!({
                "time_ns": 500, "core": 2, "vm": "linux", "vcpu": 1, "kind": "throttle",
                "accesses": "reads", "used": 512, "budget": 500,
            })
        );
        let free = json(&record(RecordKind::Throttle, 1, 1, 512, MOST_OTHER), None, &facts());
        assert_eq!((&free["budget"], &free["or_more"]), (&json!(MOST_OTHER), &json!(true)));
        let [by_core, by_engine] =
            [7, 7 | BY_ENGINE].map(|detail| json(&chunk(detail), None, &facts()));
        assert_eq!((&by_core["buffer"], &by_core["by_engine"]), (&7.into(), &Value::Null));
        assert_eq!((&by_engine["buffer"], &by_engine["by_engine"]), (&7.into(), &true.into()));
        assert!(by_core["phases"]["ip"].is_null() && by_engine["phases"]["copy"].is_null());
        assert_eq!(csv(&throttle, None, &facts()), "500,2,linux,1,throttle,1,512,500,\n");
        assert_eq!(CSV.split(',').count(), csv(&throttle, None, &facts()).split(',').count());
    }

    #[test]
    fn a_packet_has_the_number_of_the_report() {
        let packet = |kind, detail| record(kind, 1, detail, 0, 400);
        let sent = packet(RecordKind::PacketSent, 1 << 16 | 6);
        let arrived = packet(RecordKind::PacketArrived, 1 << 16 | 6 | WAITED);
        let named = TraceFacts { flows: vec!["a".into(), "b".into()], ..facts() };
        for (record, number, text) in [
            (sent, Some(9), "packet 9 of flow b, head 6, seen 400"),
            (sent, None, "packet of flow b that did not arrive, head 6, seen 400"),
            (arrived, Some(9), "packet 9 of flow b, waited for buffers, head 6, latency 400 ns"),
        ] {
            assert_eq!(numbers(&record, number, &named), text);
        }
        assert_eq!(numbers(&sent, Some(9), &facts()), "packet 9 of flow 1, head 6, seen 400");
        assert!(csv(&arrived, Some(9), &named).ends_with(",400,9\n"));
        let value = json(&arrived, Some(9), &named);
        assert_eq!(
            [&value["packet"], &value["flow"], &value["head"], &value["waited"]],
            [&json!(9), &json!("b"), &json!(6), &json!(true)]
        );
        assert_eq!(json(&sent, None, &named)["packet"], Value::Null);
    }

    #[test]
    fn all_times_have_one_base() {
        let switch = Record { time: 1900, ..record(RecordKind::VcpuSwitch, 1, 0, 1400, 0) };
        assert_eq!(csv(&switch, None, &facts()), "900,2,linux,1,vcpu-switch,0,400,0,\n");
        assert_eq!(json(&switch, None, &facts())["began"], 400);
        let first = Record { count: 0, ..switch };
        assert_eq!(json(&first, None, &facts())["began"], 0);
    }
}
