//! Writes choices into the text of a file, and changes nothing else.

use super::{
    Choice, CoreChoice, ScheduleChoice, ServerChoice, SlotChoice, board::is_best_effort,
    problem::sharers,
};
use crate::Nanos;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};
use weir_model::System;

/// Returns the text after a change of its tables. What was not changed keeps its form.
fn edited(
    text: &str,
    change: impl FnOnce(&mut DocumentMut) -> Result<(), String>,
) -> Result<String, String> {
    let mark = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK } else { "" };
    let body = &text[mark.len()..];
    let mut document: DocumentMut = body.parse().map_err(|error| format!("{error}"))?;
    change(&mut document)?;
    Ok(format!("{mark}{}", with_ends_of(body, &document.to_string())))
}

/// Returns the text with schedules of cores.
pub fn schedules(text: &str, cores: &[CoreChoice]) -> Result<String, String> {
    edited(text, |document| {
        let all = document.entry("core").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        for core in cores {
            let schedule = text_of(&core.schedule);
            let schedule: Value = schedule.parse().map_err(|error| format!("{error}"))?;
            let id = i64::try_from(core.id).map_err(|error| error.to_string())?;
            let mut table = Table::new();
            table.insert("id", value(id));
            table.insert("schedule", Item::Value(schedule));
            match &mut *all {
                Item::ArrayOfTables(tables) => tables.push(table),
                Item::Value(Value::Array(list)) => list.push(table.into_inline_table()),
                _ => return Err("`core` is no list of tables".to_owned()),
            }
        }
        Ok(())
    })
}

/// Returns a schedule as a system file writes it.
fn text_of(schedule: &ScheduleChoice) -> String {
    let lines = |lines: Vec<String>| {
        let lines = lines.iter().map(|line| format!("\n    {{ {line} }},"));
        lines.collect::<String>()
    };
    match schedule {
        ScheduleChoice::FixedPriority { servers } => {
            let servers = servers.iter().map(|ServerChoice { vm, budget_ns, period_ns }| {
                let (budget, period) = (Nanos(*budget_ns), Nanos(*period_ns));
                format!("vm = {vm:?}, budget = \"{budget}\", period = \"{period}\"")
            });
            let servers = lines(servers.collect());
            format!("{{ kind = \"fixed-priority\", servers = [{servers}\n] }}")
        }
        ScheduleChoice::Table { major_frame_ns, slots } => {
            let frame = Nanos(*major_frame_ns);
            let slots = slots.iter().map(|SlotChoice { vm, start_ns, length_ns }| {
                let (start, length) = (Nanos(*start_ns), Nanos(*length_ns));
                format!("vm = {vm:?}, start = \"{start}\", length = \"{length}\"")
            });
            let slots = lines(slots.collect());
            format!("{{ kind = \"table\", major_frame = \"{frame}\", slots = [{slots}\n] }}")
        }
    }
}

/// Returns the text with the choices.
pub fn write(text: &str, system: &System, choice: &Choice) -> Result<String, String> {
    edited(text, |document| values(document, system, choice))
}

/// Writes the choices but schedules.
fn values(document: &mut DocumentMut, system: &System, choice: &Choice) -> Result<(), String> {
    let period = system.saturation.as_ref().map(|saturation| saturation.period.to_string());
    let listed = document.get("vm").is_some();
    for (position, (vm, share)) in system.guests().iter().zip(&choice.setting.shares).enumerate() {
        if let (Some(board), false) = (&choice.board, is_best_effort(vm)) {
            let table = table_of(document, position, listed, &vm.name)?;
            table.insert("colors", value(numbers(share.colors)));
            if board.banks.is_some() {
                table.insert("banks", value(numbers(share.banks)));
            }
        }
        let Some(period) = &period else {
            continue;
        };
        if vm.memory_budget.as_ref().is_some_and(|bandwidth| bandwidth.budget.is_some()) {
            continue;
        }
        let budget = share.budget / sharers(vm);
        let budget = i64::try_from(budget).map_err(|error| error.to_string())?;
        let table = table_of(document, position, listed, &vm.name)?;
        if !table.contains_key("memory_budget") {
            table.insert("memory_budget", value(InlineTable::new()));
        }
        let bandwidth = table.get_mut("memory_budget").and_then(Item::as_table_like_mut);
        let bandwidth = bandwidth.ok_or("`memory_budget` is no table")?;
        bandwidth.insert("accesses", value(budget));
        bandwidth.insert("period", value(period));
        tidy(table.get_mut("memory_budget"));
    }
    if !system.flows.is_empty() {
        if document.get("dma").is_none() {
            document.insert("dma", Item::Table(Table::new()));
        }
        let dma = document.get_mut("dma").and_then(Item::as_table_like_mut);
        let dma = dma.ok_or("`dma` is no table")?;
        if system.dma.bandwidth.is_none() {
            dma.insert("bandwidth", value(choice.setting.dma.to_string()));
        }
        if let (None, Some(chunk)) = (system.dma.chunk, choice.setting.chunk) {
            dma.insert("chunk", value(chunk.to_string()));
        }
    }
    Ok(())
}

/// The mark that some editors put at the beginning of a file.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Returns the lines of `edited` with their line ends of `original`. New lines end like its first.
fn with_ends_of(original: &str, edited: &str) -> String {
    let parts = |line: &str| -> (String, &'static str) {
        match (line.strip_suffix("\r\n"), line.strip_suffix('\n')) {
            (Some(body), _) => (body.to_owned(), "\r\n"),
            (None, Some(body)) => (body.to_owned(), "\n"),
            (None, None) => (line.to_owned(), ""),
        }
    };
    let old: Vec<_> = original.split_inclusive('\n').map(parts).collect();
    let usual = old.first().map_or("\n", |first| if first.1.is_empty() { "\n" } else { first.1 });
    let new: Vec<_> = edited.split_inclusive('\n').map(parts).collect();
    let mut text = String::with_capacity(edited.len() + new.len());
    let mut next = 0;
    for (position, (body, end)) in new.iter().enumerate() {
        // Lines are only added, so that the old ones are in their order.
        let here = old[next..].iter().position(|line| line.0 == *body).map(|skip| next + skip);
        text.push_str(body);
        match here {
            Some(here) => {
                next = here + 1;
                // A last line without an end gets one if lines follow.
                let follows = position + 1 < new.len();
                text.push_str(if old[here].1.is_empty() && follows { usual } else { old[here].1 });
            }
            None if end.is_empty() => {}
            None => text.push_str(usual),
        }
    }
    text
}

/// Returns a range as a system file writes it.
pub fn numbers((first, count): (u32, u32)) -> String {
    match count {
        0 | 1 => first.to_string(),
        _ => format!("{first}-{}", first + count - 1),
    }
}

/// Returns the table of a VM. It is created if only flows name the VM.
fn table_of<'a>(
    document: &'a mut DocumentMut,
    position: usize,
    listed: bool,
    name: &str,
) -> Result<&'a mut dyn TableLike, String> {
    if !listed {
        let vms = document.entry("vm").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        if let Some(vms) = vms.as_array_of_tables_mut() {
            let mut table = Table::new();
            table.insert("name", value(name));
            vms.push(table);
        }
    }
    let vms = document.get_mut("vm").ok_or("there are no VMs")?;
    let table = match vms {
        Item::ArrayOfTables(tables) => {
            tables.get_mut(position).map(|table| table as &mut dyn TableLike)
        }
        Item::Value(list) => list
            .as_array_mut()
            .and_then(|list| list.get_mut(position))
            .and_then(Value::as_inline_table_mut)
            .map(|table| table as &mut dyn TableLike),
        _ => None,
    };
    table.ok_or_else(|| format!("the VM {name} is not where it was"))
}

/// Formats an inline table that got new keys.
fn tidy(item: Option<&mut Item>) {
    if let Some(table) = item.and_then(Item::as_inline_table_mut) {
        table.fmt();
    }
}
