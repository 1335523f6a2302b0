//! What a VM's cores do to memory in `weir simulate`. The hypervisor does not look at it.

use super::read::Reader;
use crate::{
    raw::Values,
    shape::{Key, Kind as Value, Shape},
    units::{Bytes, Nanos},
};
use std::ops::Range;
use toml::de::DeTable;

/// Key `workload` of a VM.
pub(crate) const WORKLOAD_KEY: Key = Key {
    name: "workload",
    doc: "What `weir simulate` takes its vCPUs to do to memory; nothing without it.",
    required: false,
    kind: Value::Table(&WORKLOAD),
};

const fn key(name: &'static str, kind: Value, doc: &'static str) -> Key {
    Key { name, doc, required: false, kind }
}

static WORKLOAD: Shape = Shape {
    name: "[vm.workload]",
    doc: "What each vCPU of a simulated VM does to memory.",
    keys: &[
        Key {
            name: "kind",
            doc: "A walk through a chain of lines, a stream of reads, of writes, or of both by turns, accesses that each open another row of a bank, or a recorded trace.",
            required: true,
            kind: Value::Choice(&["latency", "read", "write", "read-write", "row-miss", "trace"]),
        },
        key("size", Value::Size, "The bytes that each vCPU goes through; without it \"64KiB\"."),
        key("gap", Value::Duration, "Least time between two accesses of a vCPU; without it none."),
        key(
            "outstanding",
            Value::Number(1, 64),
            "Lines that a vCPU waits for at once, if it does not depend on each; without it as many as the core can.",
        ),
        key(
            "file",
            Value::Text,
            "trace: lines R 0xOFFSET and W 0xOFFSET, from the start of the VM's RAM; a path relative to this file.",
        ),
    ],
};

/// The pattern of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads of lines in a random order, each one after the last has come (a pointer chase).
    Latency,
    /// Reads of one line after the other.
    Read,
    /// Writes of one line after the other.
    Write,
    /// A read of a line, then a write of it (the hog of bao-throttling 4.1).
    ReadWrite,
    /// Writes, each to another row of one bank.
    RowMiss,
    /// A file says it.
    Trace,
}

/// A VM's workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The pattern.
    pub kind: Kind,
    /// Bytes that each vCPU goes through, at least a page.
    pub size: Bytes,
    /// Least time between two accesses of a vCPU.
    pub gap: Nanos,
    /// Lines that a vCPU waits for at once.
    pub outstanding: Option<usize>,
    /// The trace, as the file names it.
    pub file: Option<String>,
}

impl Reader<'_> {
    pub(super) fn workload(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
        vm: &str,
    ) -> Option<Workload> {
        let kind = match table.text("kind")?.value.as_str() {
            "latency" => Kind::Latency,
            "read" => Kind::Read,
            "write" => Kind::Write,
            "read-write" => Kind::ReadWrite,
            "row-miss" => Kind::RowMiss,
            _ => Kind::Trace,
        };
        let file = table.text("file");
        if (kind == Kind::Trace) != file.is_some() {
            let place = file.as_ref().map_or(span, |file| &file.span).clone();
            let message = format!("{vm}'s workload has a kind and a file that don't agree");
            let help = "write `file` with the kind \"trace\", and with no other";
            self.fault("workload", &place, message, help);
        }
        let size = table.size("size");
        if let Some(size) = size.as_ref().filter(|size| size.value.0 < crate::packed::PAGE) {
            let message = format!("{vm}'s workload is smaller than a page");
            self.fault("workload", &size.span, message, "write 4KiB or more");
        }
        Some(Workload {
            kind,
            size: size.map_or(Bytes(64 << 10), |size| size.value),
            gap: table.duration("gap").map_or(Nanos(0), |gap| gap.value),
            outstanding: table.number("outstanding").map(|number| number.value as usize),
            file: file.map(|file| file.value),
        })
    }
}
