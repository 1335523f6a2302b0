//! The reference pages of hypercalls, trace records and JSON outputs, made from the declarations of
//! calls, of records, and of the types that are serialized.

use crate::{
    analyze::{AnalyzedFile, RefusedAnalysis},
    bench::{clock::ClockSpeed, engine::EngineReport, flows::FlowsBench, memory::MemoryCost},
    build::BuiltImage,
    explain::Explained,
    plan::{Planned, Unplanned},
    reproduce::{AllReproduced, ExperimentRecord, PaperResultRecord},
    simulate::{DramRun, Variant},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fmt::Write as _};
use weir_experiments::{ExperimentReport, hypervisor::Figures, rjmm::mapping::MappingCost};
use weir_model::platform::PlatformRecord;
use weir_report::{
    check::{CheckedFile, RefusedFile},
    overheads::OverheadsRecord,
    trace::{
        curve::CurvesRecord,
        file::{Header, VmEntry},
    },
    why::WhyReport,
};
use weir_runner::{calibrate::Calibrated, observe::ObservationRecord, report::RunReport};
use weir_sched::vcpu::{VcpuAction, VcpuEvent, VcpuState};
use weir_simulator::SimulationRecord;
use weir_trace::{
    phases::Phase,
    record::{Accesses, Record, RecordKind},
    wire::{ExitCause, FaultKind},
};
use weir_vdev::{
    calls::CallDescription,
    psci::{PSCI_SMC32, SMC64, function::FUNCTIONS, is_implemented},
    smccc::CALLS,
};

/// Returns a table with this head.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String; N]| format!("| {} |\n", cells.join(" | "));
    let mut table = line(&head.map(str::to_owned)) + &line(&head.map(|_| "---".to_owned()));
    table.extend(rows.into_iter().map(|row| line(&row)));
    table
}

/// Returns documentation as a cell: on one line, with the names of links only.
fn cell(doc: &str) -> String {
    let mut text = doc.trim().replace('\n', " ").replace('|', "\\|");
    while let Some(start) = text.find("[`") {
        let Some(end) = text[start..].find("`]").map(|end| start + end) else { break };
        let behind = &text[end + 2..];
        let target =
            if behind.starts_with('(') { behind.find(')').map_or(0, |at| at + 1) } else { 0 };
        text = format!("{}{}{}", &text[..start], &text[start + 1..=end], &behind[target..]);
    }
    text.replace("`Self::", "`")
}

/// Returns a page with tables in the places of their names.
fn filled(template: &str, tables: &[(&str, String)]) -> String {
    let fill = |page: String, (name, table): &(&str, String)| page.replace(name, table);
    tables.iter().fold(template.to_owned(), fill)
}

/// Returns the page of hypercalls.
pub fn hypercalls() -> String {
    let hex = |id: u32| format!("0x{:04X}_{:04X}", id >> 16, id & 0xffff);
    let row = |call: &CallDescription, id: String| {
        let [name, arguments, result] = [call.name, call.arguments, call.result].map(str::to_owned);
        [id, name, arguments, result, cell(call.doc)]
    };
    let of_psci = |call: &CallDescription| {
        let ids = [PSCI_SMC32 | call.id, PSCI_SMC32 | SMC64 | call.id];
        let ids = ids.into_iter().filter(|id| is_implemented(*id)).map(hex);
        row(call, ids.collect::<Vec<_>>().join(", "))
    };
    let head = ["identifier", "call", "arguments", "result", "meaning"];
    filled(
        include_str!("reference/hypercalls.md"),
        &[
            ("{calls}", table(head, CALLS.iter().map(|call| row(call, hex(call.id))))),
            ("{psci}", table(head, FUNCTIONS.iter().map(of_psci))),
        ],
    )
}

/// Returns the page of the states of a vCPU.
pub fn vcpu_states() -> String {
    // Without the times that states and events have.
    let name = |one: &dyn std::fmt::Debug| {
        let text = format!("{one:?}");
        format!("`{}`", text.split(' ').next().unwrap_or_default())
    };
    let event_name = |event: &VcpuEvent| match event {
        VcpuEvent::TurnedOff { leads: true } => "`TurnedOff` (first vCPU)".to_owned(),
        event => name(event),
    };
    let mut events = VcpuEvent::ALL.to_vec();
    events.push(VcpuEvent::TurnedOff { leads: true });
    let pairs = || {
        let of = |state| events.iter().map(move |event| (state, event));
        VcpuState::ALL.into_iter().flat_map(of)
    };
    let transitions = pairs().filter_map(|(state, event)| {
        let (after, action) = state.after(*event).ok()?;
        let action = match action {
            VcpuAction::Nothing => String::new(),
            action => name(&action),
        };
        Some([name(&state), event_name(event), name(&after), action])
    });
    let mut kept: BTreeMap<&str, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (state, event) in pairs() {
        if let Err(why) = state.after(*event) {
            kept.entry(why.reason())
                .or_default()
                .entry(name(event))
                .or_default()
                .push(name(&state));
        }
    }
    let impossible = kept.into_iter().flat_map(|(reason, events)| {
        let row = move |(event, mut states): (String, Vec<String>)| {
            states.dedup();
            [event, states.join(", "), reason.to_owned()]
        };
        events.into_iter().map(row)
    });
    filled(
        include_str!("reference/vcpu-states.md"),
        &[
            ("{transitions}", table(["state", "event", "next", "does"], transitions)),
            ("{impossible}", table(["event", "not in", "reason"], impossible)),
        ],
    )
}

/// Returns the page of trace records.
pub fn trace() -> String {
    let layout = |fields: &[(usize, &str, &str)]| {
        let row = |&(bytes, name, doc): &(usize, &str, &str)| {
            [bytes.to_string(), format!("`{name}`"), cell(doc)]
        };
        table(["bytes", "field", "meaning"], fields.iter().map(row))
    };
    let kind = |kind: &RecordKind| {
        let [detail, count, other] = kind.fields().map(str::to_owned);
        let number = (*kind as u16).to_string();
        [number, format!("`{}`", kind.name()), detail, count, other, cell(kind.doc())]
    };
    let kinds = ["number", "kind", "detail", "count", "other", "meaning"];
    let accesses = Accesses::ALL.map(|of| [(of as u32).to_string(), of.name().to_owned()]);
    let phases = Phase::ALL.map(|phase| [phase.name().to_owned(), phase.action().to_owned()]);
    let of_kind = RecordKind::ALL.iter().filter_map(|kind| {
        let phases = Phase::of(&Record { kind: *kind as u16, ..Record::default() });
        let names: Vec<_> = phases.iter().map(|phase| phase.name()).collect();
        (!names.is_empty()).then(|| [format!("`{}`", kind.name()), names.join(", ")])
    });
    let numbered =
        |number: u8, name: &str, doc: &str| [number.to_string(), name.to_owned(), cell(doc)];
    let causes = ExitCause::ALL.iter().map(|one| numbered(*one as u8, one.name(), one.doc()));
    let faults = FaultKind::ALL.iter().map(|one| numbered(*one as u8, one.name(), one.doc()));
    filled(
        include_str!("reference/trace.md"),
        &[
            ("{record}", layout(Record::LAYOUT)),
            ("{kinds}", table(kinds, RecordKind::ALL.iter().map(kind))),
            ("{accesses}", table(["number", "accesses"], accesses)),
            ("{causes}", table(["number", "cause", "meaning"], causes)),
            ("{faults}", table(["number", "fault", "meaning"], faults)),
            ("{phases}", table(["phase", "meaning"], phases)),
            ("{phases_of_kinds}", table(["kind", "phases"], of_kind)),
            ("{header}", layout(Header::LAYOUT)),
            ("{vm}", layout(VmEntry::LAYOUT)),
        ],
    )
}

/// A function that returns the schema of a type.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

const fn of<T: JsonSchema>() -> SchemaOf {
    SchemaGenerator::subschema_for::<T>
}

/// The commands and files whose JSON has types: whether it is a list, and the types of the object
/// or of each object in the list.
static OUTPUTS: [(&str, bool, &[SchemaOf]); 27] = [
    ("check", true, &[of::<CheckedFile>(), of::<RefusedFile>()]),
    ("plan", false, &[of::<Planned>(), of::<Unplanned>(), of::<RefusedFile>()]),
    ("analyze", false, &[of::<AnalyzedFile>(), of::<RefusedAnalysis>()]),
    ("build", false, &[of::<BuiltImage>(), of::<RefusedFile>()]),
    ("run", false, &[of::<RunReport>(), of::<RefusedFile>()]),
    ("demo", false, &[of::<RunReport>()]),
    ("report", false, &[of::<RunReport>()]),
    ("report --overheads", false, &[of::<OverheadsRecord>()]),
    ("trace --arrival-curve", false, &[of::<CurvesRecord>()]),
    ("why", false, &[of::<WhyReport>()]),
    ("observe", false, &[of::<ObservationRecord>(), of::<RefusedFile>()]),
    ("calibrate", false, &[of::<Calibrated>(), of::<RefusedFile>()]),
    ("simulate run", false, &[of::<SimulationRecord>()]),
    ("simulate run --compare", true, &[of::<Variant>()]),
    ("simulate dram", false, &[of::<DramRun>()]),
    ("bench hypervisor", false, &[of::<Figures>()]),
    ("bench flows", false, &[of::<FlowsBench>()]),
    ("bench engine", false, &[of::<EngineReport>()]),
    ("bench mapping", true, &[of::<MappingCost>()]),
    ("bench clock", true, &[of::<ClockSpeed>()]),
    ("bench memory", true, &[of::<MemoryCost>()]),
    ("reproduce", true, &[of::<ExperimentRecord>()]),
    ("reproduce EXPERIMENT", false, &[of::<ExperimentReport>()]),
    ("reproduce --all", false, &[of::<AllReproduced>()]),
    ("reproduce --list", true, &[of::<PaperResultRecord>()]),
    ("platforms", true, &[of::<PlatformRecord>()]),
    ("explain", false, &[of::<Explained>()]),
];

/// The page of JSON outputs without its generated parts.
const JSON_PAGE: &str = include_str!("reference/json.md");

/// Returns the JSON schemas of the outputs by command, and of the types that they use by name.
fn schemas() -> (Map<String, Value>, Map<String, Value>) {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let outputs = OUTPUTS.iter().map(|(output, is_list, types)| {
        let types: Vec<_> = types.iter().map(|of| of(&mut generator)).collect();
        let object = json!({ "anyOf": types, "required": ["version"] });
        let list = json!({ "type": "array", "items": object });
        ((*output).to_owned(), if *is_list { list } else { object })
    });
    (outputs.collect(), generator.take_definitions(true))
}

/// Returns the JSON schema of an object with an output under the name of its command.
pub fn json_schema() -> String {
    let (outputs, types) = schemas();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "JSON outputs of weir by command",
        "type": "object",
        "properties": outputs,
        "additionalProperties": false,
        "$defs": types,
    });
    format!("{schema:#}\n")
}

/// Returns the page of JSON outputs.
pub fn json() -> String {
    let (outputs, types) = schemas();
    let mut page = String::new();
    for (name, schema) in types.into_iter().collect::<BTreeMap<_, _>>() {
        // Writing to a string does not fail.
        let _ = write!(page, "\n## `{name}`\n\n{}\n\n{}", doc(&schema), members(&schema));
    }
    let row = |(output, schema): (&String, &Value)| [format!("`{output}`"), value(schema)];
    let outputs = table(["output", "object"], outputs.iter().map(row));
    filled(JSON_PAGE, &[("{outputs}", outputs), ("{types}", page)])
}

/// Returns the description in a schema.
fn doc(schema: &Value) -> String {
    cell(schema["description"].as_str().unwrap_or_default())
}

/// Returns the fields or the values of a type as a table.
fn members(schema: &Value) -> String {
    if let Some(choices) = schema["oneOf"].as_array() {
        let row = |choice: &Value| [format!("`{}`", choice["const"]), doc(choice)];
        return table(["value", "meaning"], choices.iter().map(row));
    }
    let required = schema["required"].as_array();
    let row = |(name, field): (&String, &Value)| {
        let is_required = required.is_some_and(|required| required.iter().any(|key| key == name));
        let end = if is_required { "" } else { " May be left out." };
        [format!("`{name}`"), value(field), format!("{}{end}", doc(field))]
    };
    let fields = schema["properties"].as_object().into_iter().flatten();
    table(["field", "value", "meaning"], fields.map(row))
}

/// Returns the kind of a value.
fn value(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    let any_of = |kinds: &[Value], of: &dyn Fn(&Value) -> String| {
        kinds.iter().map(of).collect::<Vec<_>>().join(" or ")
    };
    if let Some(kinds) = schema["anyOf"].as_array() {
        return any_of(kinds, &value);
    }
    let of_type = |kind: &Value| match kind.as_str() {
        Some("array") => format!("list: {}", value(&schema["items"])),
        Some("object") => format!("object: {} per key", value(&schema["additionalProperties"])),
        kind => kind.unwrap_or("any").to_owned(),
    };
    match &schema["type"] {
        Value::Array(kinds) => any_of(kinds, &of_type),
        kind => of_type(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_becomes_a_cell() {
        let doc = " The [`Kind`](crate::Kind) of\n[`Self::field`] | none. ";
        assert_eq!(cell(doc), "The `Kind` of `field` \\| none.");
        assert_eq!(cell("A [`Kind"), "A [`Kind");
    }

    #[test]
    fn each_place_of_a_table_is_filled() {
        for page in [hypercalls(), vcpu_states(), trace(), json()] {
            assert!(!page.contains('{') && page.ends_with('\n'), "{page}");
        }
    }

    /// Adds the verbs below this one that print JSON.
    fn printing(command: &clap::Command, before: &str, found: &mut Vec<String>) {
        for verb in command.get_subcommands() {
            let name = format!("{before}{}", verb.get_name());
            if verb.get_arguments().any(|argument| argument.get_id() == "json") {
                found.push(name.clone());
            }
            printing(verb, &format!("{name} "), found);
        }
    }

    #[test]
    fn each_verb_with_json_has_a_row() {
        let mut verbs = Vec::new();
        printing(&<crate::Command as clap::CommandFactory>::command(), "", &mut verbs);
        assert!(verbs.len() > 20, "{verbs:?}");
        let page = json();
        for verb in verbs {
            assert!(page.contains(&format!("\n| `{verb}` | ")), "no row of {verb}");
        }
    }

    #[test]
    fn fields_of_types_have_kinds_and_meanings() {
        let page = json();
        for row in page.lines().filter(|line| line.starts_with("| `")) {
            assert!(!row.contains("| any") && !row.ends_with("|  |"), "{row}");
        }
        let budgets = "| `budgets` | list: [`BudgetFinding`](#budgetfinding) | The use";
        assert!(page.contains(budgets), "{page}");
    }
}
