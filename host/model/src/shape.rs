//! The keys of a TOML file: tables that one walk compares a file with, so that every unknown key,
//! wrong type and wrong unit is found at once. The JSON schema is made from the same tables.

use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File};
use crate::object::Object;
use crate::text::{hex, nearest};
use serde_json::json;
use std::{mem, ops::Range};
use toml::{
    Spanned,
    de::{DeInteger, DeTable, DeValue},
};
use weir_units::{BadQuantity, Bytes, BytesPerSec, Nanos};

/// The keys of a table.
pub(crate) struct Shape {
    /// What a person calls it: `[[vm]]`.
    pub name: &'static str,
    /// Its description, a doc comment.
    pub doc: &'static str,
    /// Its keys. In one of several shapes ([`Kind::Variant`]) the first key determines which it is.
    pub keys: &'static [Key],
}

/// A key of a table.
pub(crate) struct Key {
    pub name: &'static str,
    /// Its description, a doc comment.
    pub doc: &'static str,
    pub required: bool,
    /// The default as a file writes it, if it does not depend on other values.
    pub default: Option<&'static str>,
    pub kind: Kind,
}

impl Key {
    /// Its description with the default.
    pub fn text(&self) -> String {
        let default = self.default.filter(|text| !matches!(*text, "[]" | "{}" | "false"));
        let default = default.map_or(String::new(), |text| format!(" Default: `{text}`."));
        format!("{}{default}", self.doc.trim_start())
    }
}

/// What a value may be.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Any string.
    Text,
    /// An integer from the first to the second number.
    Number(u64, u64),
    /// An integer that is an address.
    Address,
    /// A string like `"16MiB"`.
    Size,
    /// A string like `"30us"`.
    Duration,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// A string that is a rate: `"485MB/s"`.
    Rate,
    /// `true` or `false`.
    Boolean,
    /// A list of such values.
    List(&'static Kind),
    /// A table.
    Table(&'static Shape),
    /// One of several tables, distinguished by their first key.
    Variant(&'static [&'static Shape]),
    /// A quantity that is more than 0.
    Positive(&'static Kind),
    /// The source of a measured value: one of [`SOURCES`], a colon and a text.
    Source,
    /// One of several kinds, distinguished by their TOML type.
    OneOf(&'static [Kind]),
}

impl Kind {
    /// What to write, for a person.
    fn expected(&self) -> String {
        match self {
            Self::Text => "a string in double quotes".to_owned(),
            Self::Number(low, high) => format!("an integer from {low} to {high}"),
            Self::Address => "an address, an integer like 0x4000_0000".to_owned(),
            Self::Size => "a size with its unit in double quotes, like \"16MiB\"".to_owned(),
            Self::Duration => "a duration with its unit in double quotes, like \"1ms\"".to_owned(),
            Self::Rate => "a rate with its unit in double quotes, like \"485MB/s\"".to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::Positive(kind) => kind.expected(),
            Self::Source => "a source like \"assumed: one line each 100 ns\"".to_owned(),
            Self::Choice(choices) => one_of(choices),
            Self::List(kind) => format!("a list of {}", kind.expected_in_list()),
            Self::Table(shape) => format!("a table with the keys of {}", shape.name),
            Self::Variant(shapes) => {
                let examples: Vec<_> = shapes.iter().map(|shape| shape.name).collect();
                examples.join(" or ")
            }
            Self::OneOf(kinds) => {
                kinds.iter().map(Self::expected).collect::<Vec<_>>().join(", or ")
            }
        }
    }

    fn expected_in_list(&self) -> String {
        match self {
            Self::Text => "strings".to_owned(),
            Self::Number(low, high) => format!("integers from {low} to {high}"),
            Self::Table(shape) => shape.name.to_owned(),
            other => other.expected(),
        }
    }

    fn has_type_of(&self, value: &DeValue<'_>) -> bool {
        match self {
            Self::Text
            | Self::Size
            | Self::Duration
            | Self::Rate
            | Self::Choice(_)
            | Self::Source => value.is_str(),
            Self::Positive(kind) => kind.has_type_of(value),
            Self::Boolean => value.is_bool(),
            Self::Number(..) | Self::Address => value.is_integer(),
            Self::List(_) => value.is_array(),
            Self::Table(_) | Self::Variant(_) => value.is_table(),
            Self::OneOf(kinds) => kinds.iter().any(|kind| kind.has_type_of(value)),
        }
    }
}

fn one_of(choices: &[&str]) -> String {
    let quoted: Vec<_> = choices.iter().map(|choice| format!("\"{choice}\"")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The words that a value's source may begin with.
const SOURCES: [&str; 7] = ["manual", "paper", "measured", "fitted", "derived", "model", "assumed"];

/// What to write instead of the unknown `word`.
pub(crate) fn suggestion<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    if let Some(name) = nearest(word, known.clone()) {
        return format!("write `{name}`");
    }
    let known: Vec<_> = known.into_iter().map(|name| format!("`{name}`")).collect();
    if known.is_empty() {
        "there is none to choose".to_owned()
    } else {
        format!("known: {}", known.join(", "))
    }
}

/// An integer as written, if it fits.
pub(crate) fn integer(value: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(value.as_str().trim_start_matches('+'), value.radix()).ok()
}

impl Shape {
    /// Returns the object that a table is, as messages name it: the header if it has no name. None
    /// if the table is a part of the object `outer`.
    pub fn object(&self, table: &DeTable<'_>, outer: &str) -> Option<String> {
        let text = |key: &str| match table.get(key)?.get_ref() {
            DeValue::String(text) => Some(text.as_ref()),
            DeValue::Integer(number) => Some(number.as_str()),
            _ => None,
        };
        let is_root = |header: &str| !header.starts_with('[');
        let Some(list) = self.name.strip_prefix("[[").and_then(|name| name.strip_suffix("]]"))
        else {
            let name = text("name").filter(|_| self.name == "the platform");
            let named = name.map(|name| Object::platform(name).to_string());
            let own = is_root(self.name) && outer.is_empty()
                || !is_root(self.name) && is_root(outer) && !self.name.contains('.');
            return named.or_else(|| own.then(|| self.name.to_owned()));
        };
        let kind = list.rsplit('.').next().unwrap_or(list);
        let Some(name) = ["name", "id", "line", "compatible"].into_iter().find_map(text) else {
            return Some(self.name.to_owned());
        };
        Some(match text("vm").filter(|_| kind == "irq") {
            Some(vm) => Object::interrupt(name, vm).to_string(),
            None if list == kind => Object::new(kind, name).to_string(),
            None => format!("{} of {outer}", Object::new(kind, name)),
        })
    }
}

/// Compares a file with a shape.
pub(crate) struct Walk<'a> {
    pub file: &'a File,
    pub faults: &'a mut Faults,
    /// Whether to report keys that are not there; not worth it when the file has syntax errors.
    pub missing: bool,
    /// Names of shapes with required keys that a file may leave out if it is only analyzed.
    pub partial: &'a [&'static str],
    /// The faults of the keys that are missing in these shapes.
    pub absent: &'a mut Faults,
    /// The object with the compared values, as messages name it.
    pub object: String,
    /// The keys that lead from the object to the compared values, each with a dot behind it.
    pub path: String,
}

impl Walk<'_> {
    /// Adds a fault of the object: its rule, place, what is wrong, what the place is, and what to
    /// write instead.
    fn fault(
        &mut self,
        code: Code,
        span: Range<usize>,
        wrong: &str,
        label: impl Into<String>,
        help: impl Into<String>,
    ) {
        let message = format!("{}: {wrong}", self.object);
        let fault = Fault::new(code, self.file, span, message).label(label).help(help);
        self.faults.push(fault);
    }

    /// Compares a table, which begins at `span` and is the value of `key`, with `shape`.
    pub fn table(&mut self, table: &DeTable<'_>, span: &Range<usize>, shape: &Shape, key: &str) {
        let (object, path) = match shape.object(table, &self.object) {
            Some(object) => (object, String::new()),
            None => (self.object.clone(), format!("{}{key}.", self.path)),
        };
        let outer = (mem::replace(&mut self.object, object), mem::replace(&mut self.path, path));
        self.keys(table, span, shape);
        (self.object, self.path) = outer;
    }

    /// Compares the keys of a table of the object.
    fn keys(&mut self, table: &DeTable<'_>, span: &Range<usize>, shape: &Shape) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if let Some(known) = shape.keys.iter().find(|known| known.name == name) {
                self.value(value, &known.kind, name, known);
            } else if !self.faults.is_full() {
                let help = suggestion(name, shape.keys.iter().map(|key| key.name));
                let wrong = format!("unknown key `{}{name}`", self.path);
                self.fault(Code::UnknownKey, key.span(), &wrong, "not a key here", help);
            }
        }
        if !self.missing {
            return;
        }
        for key in shape.keys.iter().filter(|key| key.required) {
            if !table.contains_key(key.name) {
                let message =
                    format!("{}: the key `{}{}` is missing", self.object, self.path, key.name);
                let what = match &key.kind {
                    Kind::List(Kind::Table(inner)) | Kind::Table(inner) => inner.name.to_owned(),
                    kind => format!("`{} = ...`, {}", key.name, kind.expected()),
                };
                let help = format!("add {what}. {}", key.text());
                let fault = Fault::new(Code::MissingKey, self.file, span.clone(), message);
                let fault = fault.label("in this").help(help);
                if self.partial.contains(&shape.name) {
                    self.absent.push(fault);
                } else {
                    self.faults.push(fault);
                }
            }
        }
    }

    fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, kind: &Kind, name: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a floating-point number",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.fault(
            Code::WrongType,
            value.span(),
            &format!("`{}{name}` cannot be {found}", self.path),
            "this",
            match (value.get_ref(), kind) {
                (DeValue::Table(_), Kind::List(Kind::Table(inner))) => {
                    format!("write {}, with double brackets, for each of them", inner.name)
                }
                _ => format!("write {}", kind.expected()),
            },
        );
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, kind: &Kind, name: &str, key: &Key) {
        if let Kind::OneOf(kinds) = kind {
            let fitting = kinds.iter().find(|kind| kind.has_type_of(value.get_ref()));
            return match fitting {
                Some(kind) => self.value(value, kind, name, key),
                None => self.wrong_type(value, kind, name),
            };
        }
        match (value.get_ref(), kind) {
            (DeValue::String(_), Kind::Text) | (DeValue::Boolean(_), Kind::Boolean) => {}
            (DeValue::String(text), Kind::Size) => {
                let units = ("16MiB", "B, KiB, MiB or GiB");
                self.quantity(value.span(), Bytes::parse(text).err(), text, name, units);
            }
            (DeValue::String(text), Kind::Duration) => {
                let units = ("1ms", "ns, us, ms or s");
                self.quantity(value.span(), Nanos::parse(text).err(), text, name, units);
            }
            (DeValue::String(text), Kind::Rate) => {
                let units = ("485MB/s", "B/s, KB/s, MB/s, GB/s, KiB/s, MiB/s or GiB/s");
                self.quantity(value.span(), BytesPerSec::parse(text).err(), text, name, units);
            }
            (found, Kind::Positive(kind)) => {
                self.value(value, kind, name, key);
                let (zero, example) = match (found, kind) {
                    (DeValue::Integer(number), _) => (integer(number), "1"),
                    (DeValue::String(text), Kind::Size) => {
                        (Bytes::parse(text).ok().map(|size| size.0), "\"4KiB\"")
                    }
                    (DeValue::String(text), Kind::Duration) => {
                        (Nanos::parse(text).ok().map(|time| time.0), "\"1ms\"")
                    }
                    (DeValue::String(text), _) => {
                        (BytesPerSec::parse(text).ok().map(|rate| rate.0), "\"485MB/s\"")
                    }
                    _ => (None, ""),
                };
                if zero == Some(0) {
                    let help = format!("write more than 0, like {example}");
                    let wrong = format!("`{}{name}` is 0", self.path);
                    self.fault(Code::Zero, value.span(), &wrong, "this", help);
                }
            }
            (DeValue::String(text), Kind::Source) => {
                let kind = text.split_once(": ").map_or("", |(kind, _)| kind);
                if !SOURCES.contains(&kind) {
                    let wrong = format!(
                        "`{}{name}` is {text:?}, which begins with none of: {}",
                        self.path,
                        SOURCES.join(", ")
                    );
                    let help = "write a source like \"assumed: one line each 100 ns\"";
                    self.fault(Code::ValueSource, value.span(), &wrong, "this", help);
                }
            }
            (DeValue::String(text), Kind::Choice(choices)) => {
                if !choices.contains(&text.as_ref()) {
                    // Half of a short word is no slip.
                    let is_slip = |choice: &&str| {
                        let distance = strsim::damerau_levenshtein(text, choice);
                        2 * distance < choice.len().max(text.len())
                    };
                    let help = match nearest(text, choices.iter().copied()).filter(is_slip) {
                        Some(choice) => format!("write \"{choice}\""),
                        None => format!("write {}. {}", one_of(choices), key.text()),
                    };
                    let wrong = format!("`{}{name}` cannot be \"{text}\"", self.path);
                    self.fault(Code::WrongChoice, value.span(), &wrong, "no such choice", help);
                }
            }
            (DeValue::Integer(number), Kind::Number(low, high)) => {
                self.number(value.span(), number, (*low, *high), name);
            }
            (DeValue::Integer(number), Kind::Address) => {
                self.number(value.span(), number, (0, u64::MAX), name);
            }
            (DeValue::Array(items), Kind::List(kind)) => {
                for item in items {
                    self.value(item, kind, name, key);
                }
            }
            (DeValue::Table(table), Kind::Table(shape)) => {
                self.table(table, &value.span(), shape, name);
            }
            (DeValue::Table(table), Kind::Variant(shapes)) => {
                self.variant(table, &value.span(), shapes, name);
            }
            _ => self.wrong_type(value, kind, name),
        }
    }

    fn variant(&mut self, table: &DeTable<'_>, span: &Range<usize>, shapes: &[&Shape], name: &str) {
        let present: Vec<_> = shapes
            .iter()
            .filter_map(|shape| {
                let key = shape.keys.first()?;
                table.get_key_value(key.name).map(|(key, _)| (shape, key))
            })
            .collect();
        match present.as_slice() {
            [] if !self.missing => {}
            [] => {
                let firsts =
                    shapes.iter().filter_map(|shape| shape.keys.first().map(|key| key.name));
                let written = table.keys().map(|key| (key.get_ref().as_ref(), key.span()));
                let meant = written
                    .into_iter()
                    .find_map(|(key, span)| Some((nearest(key, firsts.clone())?, key, span)));
                let examples: Vec<_> = shapes.iter().map(|shape| shape.name).collect();
                let (span, help) = match meant {
                    Some((meant, key, span)) => (span, format!("write `{meant}` for `{key}`")),
                    None => (span.clone(), format!("write {}", examples.join(" or "))),
                };
                let firsts: Vec<_> = firsts.map(|key| format!("`{key}`")).collect();
                let wrong = format!("`{}{name}` has none of {}", self.path, firsts.join(", "));
                self.fault(Code::MissingKey, span, &wrong, "which kind is this?", help);
            }
            [(shape, _)] => self.table(table, span, shape, name),
            [(first, first_key), (second, second_key), ..] => {
                let (a, b) = (first_key.get_ref(), second_key.get_ref());
                let message =
                    format!("{}: `{}{name}` has both `{a}` and `{b}`", self.object, self.path);
                let help = format!("keep one: {} or {}", first.name, second.name);
                let fault = Fault::new(Code::KeyConflict, self.file, second_key.span(), message)
                    .label("and this")
                    .and(first_key.span(), "this")
                    .help(help);
                self.faults.push(fault);
            }
        }
    }

    fn quantity(
        &mut self,
        span: Range<usize>,
        bad: Option<BadQuantity>,
        text: &str,
        name: &str,
        (example, units): (&str, &str),
    ) {
        let Some(bad) = bad else { return };
        let (code, wrong, label) = match bad {
            BadQuantity::Number => (
                Code::WrongNumber,
                "is not a whole number with a unit",
                "not a quantity".to_owned(),
            ),
            BadQuantity::NoUnit => (Code::WrongUnit, "has no unit", "of what?".to_owned()),
            BadQuantity::Unit(unit) => {
                (Code::WrongUnit, "has another unit", format!("`{unit}` is no unit here"))
            }
            BadQuantity::TooLarge => {
                (Code::OutOfRange, "does not fit into 64 bits", "more than 2^64 - 1".to_owned())
            }
        };
        let wrong = format!("`{}{name}` {wrong} ({text:?})", self.path);
        let help =
            format!("write a whole number with one of the units {units}, like \"{example}\"");
        self.fault(code, span, &wrong, label, help);
    }

    fn number(
        &mut self,
        span: Range<usize>,
        number: &DeInteger<'_>,
        range: (u64, u64),
        name: &str,
    ) {
        let (low, high) = range;
        let negative = number.as_str().starts_with('-');
        let (code, wrong, label) = match integer(number) {
            Some(value) if (low..=high).contains(&value) => return,
            Some(_) => (Code::OutOfRange, "is out of range", format!("not from {low} to {high}")),
            None if negative => (Code::OutOfRange, "is negative", "less than 0".to_owned()),
            None => {
                (Code::OutOfRange, "does not fit into 64 bits", "more than 2^64 - 1".to_owned())
            }
        };
        let wrong = format!("`{}{name}` {wrong} ({})", self.path, number.as_str());
        let help = if high == u64::MAX {
            format!("write an integer from 0 to {}", hex(weir_abi::ADDRESS_LIMIT - 1))
        } else {
            format!("write an integer from {low} to {high}: weir supports no other")
        };
        self.fault(code, span, &wrong, label, help);
    }
}

/// The JSON schema of a table.
pub(crate) fn schema(shape: &Shape) -> serde_json::Value {
    let properties: serde_json::Map<_, _> = shape
        .keys
        .iter()
        .map(|key| {
            let mut schema = kind_schema(&key.kind);
            schema["description"] = json!(key.text());
            (key.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<_> =
        shape.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    json!({
        "type": "object",
        "description": shape.doc.trim_start(),
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn kind_schema(kind: &Kind) -> serde_json::Value {
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Number(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Kind::Address => {
            json!({ "type": "integer", "minimum": 0, "exclusiveMaximum": weir_abi::ADDRESS_LIMIT })
        }
        Kind::Size => {
            json!({ "type": "string", "pattern": r"^\s*[0-9_]*[0-9][0-9_]*\s*([KMG]i)?B\s*$" })
        }
        Kind::Duration => {
            json!({ "type": "string", "pattern": r"^\s*[0-9_]*[0-9][0-9_]*\s*[num]?s\s*$" })
        }
        Kind::Rate => {
            json!({ "type": "string", "pattern": r"^\s*[0-9_]*[0-9][0-9_]*\s*([GMK]i?|k)?B/s\s*$" })
        }
        Kind::Positive(kind) => {
            let mut schema = kind_schema(kind);
            if let Some(pattern) = schema["pattern"].as_str() {
                schema["pattern"] = json!(pattern.replacen("*[0-9]", "*[1-9]", 1));
            }
            schema
        }
        Kind::Source => {
            json!({ "type": "string", "pattern": format!("^({}): ", SOURCES.join("|")) })
        }
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Choice(choices) => json!({ "enum": choices }),
        Kind::List(kind) => json!({ "type": "array", "items": kind_schema(kind) }),
        Kind::Table(shape) => schema(shape),
        Kind::Variant(shapes) => {
            json!({ "oneOf": shapes.iter().map(|shape| schema(shape)).collect::<Vec<_>>() })
        }
        Kind::OneOf(kinds) => json!({ "oneOf": kinds.iter().map(kind_schema).collect::<Vec<_>>() }),
    }
}
