//! The sections on the run, its VMs, its trace and its consoles.

use super::{
    draft::Draft,
    fields::{Fields, shown},
    files::{RECORD, RunFiles, console_log},
    page::{Cell, NONE, or_dash},
};
use crate::{REPORT, trace::file::NAME as TRACE};
use serde_json::{Map, Value};
use weir_image::Result;

/// Faults of a VM, or refused accesses of its devices, that a page has.
const LISTED: usize = 20;

/// Writes what was run, by which weir, where and when.
pub(super) fn identity(files: &RunFiles, facts: &[(&'static str, String)], draft: &mut Draft) {
    const TITLES: [(&str, &str); 12] = [
        ("system", "system file"),
        ("started", "date"),
        ("command", "command"),
        ("weir", "weir"),
        ("hypervisor_build", "hypervisor build"),
        ("image_crc32", "CRC-32C of the image"),
        ("image_id", "image"),
        ("qemu", "QEMU"),
        ("serial", "serial line"),
        ("qemu_command", "QEMU's command"),
        ("qemu_status", "QEMU's end"),
        ("seconds", "host seconds"),
    ];
    let mut rows: Vec<Vec<Cell>> =
        facts.iter().map(|(title, value)| vec![(*title).into(), value.into()]).collect();
    let mut record: Map<String, Value> = files.record.as_object().cloned().unwrap_or_default();
    if record.is_empty() {
        draft.warnings.push(format!(
            "{RECORD} is missing or damaged: the build, QEMU, the date and the command are not \
             known"
        ));
    }
    record.shift_remove("version");
    // It is in the section about the trace.
    let trace = record.shift_remove("trace").unwrap_or_default();
    assumptions(&mut record, draft);
    for (key, title) in TITLES {
        if let Some(value) = record.shift_remove(key) {
            rows.push(vec![title.into(), words(&value).into()]);
        }
    }
    rows.extend(record.iter().map(|(key, value)| vec![key.into(), words(value).into()]));
    draft.body.element("h2", "", "Identity");
    draft.body.table(&["what", "value"], &rows);
    self::trace(files, &trace, draft);
}

/// Returns a value as text: a command as one line, an object of a list as a line of its own.
fn words(value: &Value) -> String {
    let Value::Array(list) = value else { return shown(value) };
    let separator = if list.iter().all(Value::is_string) { " " } else { "; " };
    list.iter().map(shown).collect::<Vec<_>>().join(separator)
}

/// Adds the assumptions that the run has recorded.
fn assumptions(record: &mut Map<String, Value>, draft: &mut Draft) {
    match record.shift_remove("assumed") {
        Some(Value::Array(assumed)) => draft.assumptions.extend(assumed.iter().map(shown)),
        _ => draft.assumptions.push(format!("{RECORD} does not have those of the system file.")),
    }
    let tables = record.shift_remove("overheads").unwrap_or_default();
    for table in tables.as_array().into_iter().flatten() {
        let text = |key: &str| shown(&table[key]);
        let of = match table["same_build"].as_bool() {
            Some(true) => "this build",
            Some(false) => "another build",
            None => "an unknown build",
        };
        let text = format!(
            "Bounds of flows rest on the overheads of {}: {}, {}, of {of} of the hypervisor ({}).",
            text("file"),
            text("command"),
            text("date"),
            text("build")
        );
        draft.assumptions.push(text);
    }
}

/// Writes the records of the trace.
fn trace(files: &RunFiles, recorded: &Value, draft: &mut Draft) {
    let Some(trace) = &files.trace else {
        let why = recorded["absent"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        return draft.warnings.push(format!("the run has no {TRACE}{why}"));
    };
    if let Some(damage) = &trace.damage {
        draft.warnings.push(format!("{TRACE}: {damage}"));
    }
    let records: u64 = trace.kinds.values().sum();
    let stated = recorded["records"].as_u64();
    if stated.is_some_and(|stated| stated != records) {
        let stated = or_dash(stated);
        draft.warnings.push(format!("{TRACE} has {records} records; {RECORD} states {stated}"));
    }
    if trace.lost > 0 {
        draft.warnings.push(format!("{TRACE}: {} records were overwritten", trace.lost));
    }
    draft.body.element("h2", "", "Trace");
    let text = format!("{records} records in {TRACE}, {} lost.", trace.lost);
    draft.body.element("p", "", &text);
    let rows = trace.kinds.iter().map(|(kind, count)| vec![kind.into(), count.into()]);
    draft.body.table(&["kind", "records"], &rows.collect::<Vec<Vec<Cell>>>());
}

/// Writes the states and counts of VMs, their vCPUs, frames, faults and refused accesses.
pub(super) fn vms(report: &mut Fields<'_>, draft: &mut Draft) -> Result {
    let mut rows = [Vec::new(), Vec::new()];
    let (mut vcpus, mut frames) = (Vec::new(), Vec::new());
    let mut events = Vec::new();
    for mut vm in report.objects("vms")? {
        let name = vm.name()?;
        for (rows, row) in rows.iter_mut().zip(counts(&name, &mut vm, draft)?) {
            rows.push(row);
        }
        for mut vcpu in vm.objects("vcpus")? {
            let number = shown(&vcpu.take("vcpu")?);
            let mut row = vec![Cell::from(format!("{name}/{number}"))];
            for key in ["core", "state", "counted_ns", "injected"] {
                row.push(shown(&vcpu.take(key)?).into());
            }
            let (sum, causes) = vcpu
                .counts("exits")?
                .map_or((None, NONE.into()), |(sum, causes)| (Some(sum), causes));
            row.extend([or_dash(sum), causes].map(Cell::from));
            vcpus.push(row);
        }
        if let Some(mut port) = vm.object("frames")? {
            let keys = ["sent", "received", "over_rate", "refused", "missed"];
            let values = keys.map(|key| -> Result<Cell> { Ok(shown(&port.take(key)?).into()) });
            let values = values.into_iter().collect::<Result<Vec<_>>>()?;
            frames.push([vec![name.clone().into()], values].concat());
        }
        faults(&name, &mut vm, &mut events)?;
        refused(&name, &mut vm, &mut events)?;
    }
    let body = &mut draft.body;
    body.element("h2", "", "Virtual machines");
    let header =
        ["VM", "state", "boots", "restarts", "resets", "exits", "interrupts", "refused operations"];
    body.table(&header, &rows[0]);
    let header = ["VM", "console bytes", "console lines", "bytes lost", "records of events lost"];
    body.table(&header, &rows[1]);
    body.element("h2", "", "Exits to EL2");
    let header = ["vCPU", "core", "state", "counted until ns", "interrupts", "exits", "by cause"];
    body.table(&header, &vcpus);
    if !frames.is_empty() {
        body.element("h2", "", "Frames of network devices");
        let header = ["VM", "sent", "received", "over rate", "refused", "missed"];
        body.table(&header, &frames);
    }
    if !events.is_empty() {
        body.element("h2", "", "Faults and refused accesses of devices");
        body.list(&events);
    }
    Ok(())
}

/// Returns a VM's rows of counts, of itself and of its console, and warns of bad values.
fn counts(name: &str, vm: &mut Fields<'_>, draft: &mut Draft) -> Result<[Vec<Cell>; 2]> {
    let mut warn = |text: String| draft.warnings.push(format!("{name}: {text}"));
    let state = vm.text("state")?;
    if ["halted", "not-started"].contains(&state.as_str()) {
        warn(format!("{} at the end", state.replace('-', " ")));
    }
    if let Some((_, kinds)) = vm.counts("fault_counts")?.filter(|(sum, _)| *sum > 0) {
        warn(format!("faults: {kinds}"));
    }
    if vm.is("started_without_broker")? {
        warn("started before the broker of its flows was ready; no bound contains the wait".into());
    }
    let mut row: Vec<Cell> = vec![name.into(), state.replace('-', " ").into()];
    for key in ["boots", "restarts", "resets"] {
        row.push(shown(&vm.take(key)?).into());
    }
    let sum = vm.counts("exits")?.map(|(sum, _)| sum);
    let injected = vm.number("injected")?;
    if sum.is_none() || injected.is_none() {
        warn("the counters of a vCPU did not arrive".into());
    }
    let refused = vm.counts("denials")?.map(|(_, kinds)| kinds).filter(|kinds| !kinds.is_empty());
    let refused = refused.unwrap_or_else(|| "0".into());
    row.extend([or_dash(sum), or_dash(injected), refused].map(Cell::from));

    let mut console_row: Vec<Cell> = vec![name.into()];
    if let Some(mut console) = vm.object("console")? {
        if let Some(bytes) = console.peek("dropped").filter(|bytes| *bytes > 0) {
            warn(format!("{bytes} console bytes lost"));
        }
        for key in ["bytes", "lines", "dropped"] {
            console_row.push(shown(&console.take(key)?).into());
        }
    }
    let lost = vm.count("records_lost")?;
    if lost > 0 {
        warn(format!(
            "{lost} records of its events lost: single events are missing, counts are not"
        ));
    }
    console_row.push(lost.into());
    Ok([row, console_row])
}

/// Adds the faults of a VM, in words.
fn faults(name: &str, vm: &mut Fields<'_>, events: &mut Vec<String>) -> Result {
    let not_listed = vm.count("faults_left_out")?;
    let place = format!("{REPORT}, `faults`");
    for (count, mut fault) in vm.objects("faults")?.into_iter().enumerate() {
        let mut text = |key: &str| fault.take(key).map(|value| shown(&value));
        let line = format!(
            "{name}/{} at {} ns, boot {}: {}: address {}, pc {}: {} (ESR_EL2 {}); the guest's last \
             exception: {} (ESR_EL1 {}), at {}",
            text("vcpu")?,
            text("time_ns")?,
            text("boot")?,
            text("kind")?,
            text("address")?,
            text("pc")?,
            text("meaning")?,
            text("syndrome")?,
            text("guest_meaning")?,
            text("guest_syndrome")?,
            text("guest_elr")?
        );
        match count {
            0..LISTED => events.push(line),
            LISTED => events.push(format!("{name}: further faults are in {place}")),
            _ => {}
        }
    }
    if not_listed > 0 {
        events.push(format!("{name}: {not_listed} more faults, which only hypervisor.log has"));
    }
    Ok(())
}

/// Adds the refused accesses of a VM's devices, in words.
fn refused(name: &str, vm: &mut Fields<'_>, events: &mut Vec<String>) -> Result {
    for (count, mut access) in vm.objects("dma")?.into_iter().enumerate() {
        let mut text = |key: &str| access.take(key).map(|value| shown(&value));
        let line = format!(
            "{name}, stream {} at {} ns, boot {}: {} at {}: {}",
            text("stream")?,
            text("time_ns")?,
            text("boot")?,
            text("access")?,
            text("address")?,
            text("kind")?
        );
        match count {
            0..LISTED => events.push(line),
            LISTED => events.push(format!("{name}: further accesses are in {REPORT}, `dma`")),
            _ => {}
        }
    }
    Ok(())
}

/// Writes the sums, the DMA engine, the hypervisor's lines and the ends of the consoles.
pub(super) fn rest(files: &RunFiles, report: &mut Fields<'_>, draft: &mut Draft) -> Result {
    let mut names = Vec::new();
    for mut vm in report.objects("vms")? {
        names.push(vm.text("name")?);
    }
    let pairs = |fields: Map<String, Value>| -> Vec<Vec<Cell>> {
        let row = |(key, value): (String, Value)| {
            vec![key.replace('_', " ").into(), shown(&value).into()]
        };
        fields.into_iter().map(row).collect()
    };
    for (key, title) in [("engine", "DMA engine"), ("totals", "Sums of all VMs")] {
        if let Some(mut object) = report.object(key)? {
            if let Some(count) = object.peek("damaged_frames").filter(|count| *count > 0) {
                draft.warnings.push(format!("{count} frames of the wire were damaged"));
            }
            if let Some(count) = object.peek("records_lost").filter(|count| *count > 0) {
                let text = format!("{count} of the hypervisor's records were lost");
                draft.warnings.push(text);
            }
            draft.body.element("h2", "", title);
            draft.body.table(&["what", "value"], &pairs(object.rest()));
        }
    }
    let body = &mut draft.body;
    body.element("h2", "", "Lines of the hypervisor");
    let lines = report.texts("hypervisor")?;
    body.element("p", "", "At most the first 100; hypervisor.log has all, and the events.");
    body.lines(&lines);
    body.element("h2", "", "Ends of the consoles");
    for name in names {
        let log = console_log(&name);
        let Some(console) = files.consoles.iter().find(|console| console.log == log) else {
            draft.warnings.push(format!("{log} is missing: this page has nothing of this console"));
            continue;
        };
        draft.body.element("h3", "", &log);
        if console.before > 0 {
            let text = format!("{} bytes before these lines are in {log}.", console.before);
            draft.body.element("p", "", &text);
        }
        draft.body.lines(&console.lines);
    }
    Ok(())
}
