//! A TOML file as a table of values with their places, compared with the declaration of its keys.

use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File, Place};
use crate::shape::{Kind, Shape, Walk, integer};
use std::{fmt::Display, ops::Range};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use weir_units::{Bytes, BytesPerSec, Nanos};

/// A value and its bytes in the file.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

/// Parses `file` and compares it with `shape`; gives its table if it has no syntax error, even with
/// other errors.
pub(crate) fn parse<T>(
    file: &File,
    shape: &Shape,
    faults: &mut Faults,
    read: impl FnOnce(&DeTable<'_>) -> T,
) -> Option<T> {
    let (value, mut absent) = parse_part(file, shape, &[], faults, read)?;
    faults.0.append(&mut absent.0);
    Some(value)
}

/// The same, with the faults of required keys that are missing in the shapes in `partial` apart
/// from the others.
pub(crate) fn parse_part<T>(
    file: &File,
    shape: &Shape,
    partial: &[&'static str],
    faults: &mut Faults,
    read: impl FnOnce(&DeTable<'_>) -> T,
) -> Option<(T, Faults)> {
    let (document, errors) = DeTable::parse_recoverable(file.inner());
    if let Some(fault) = excess(file, document.get_ref()) {
        faults.push(fault);
        return None;
    }
    let single = if errors.is_empty() { None } else { single_brackets(file, shape) };
    let explained = single.as_ref().map_or(0..0, |(_, lines)| lines.clone());
    for error in &errors {
        let end = file.inner().len();
        let span = error.span().unwrap_or(0..0);
        let span = span.start.min(end)..span.end.min(end);
        let mut message = error.message().trim().replace('\n', ", ");
        if message.is_empty() {
            "this is not TOML".clone_into(&mut message);
        }
        // Tables that were meant to be several are one to the parser, and each key is there twice.
        if explained.contains(&span.start) && message.contains("duplicate key") {
            continue;
        }
        let fault = Fault::new(Code::Syntax, file, span, message).label("here");
        faults
            .push(fault.help(
                "write `key = value`; text and quantities stand in double quotes: \"16MiB\"",
            ));
    }
    if let Some((fault, _)) = single {
        faults.push(fault);
    }
    let broken = !errors.is_empty();
    let (mut walked, mut absent) = (Faults::default(), Faults::default());
    let mut walk =
        Walk { file, faults: &mut walked, missing: !broken, partial, absent: &mut absent };
    // A file's own span is its beginning: an excerpt of the whole file would not help.
    let start = file.inner().find(|c: char| !c.is_whitespace()).unwrap_or(0);
    let end = file.inner()[start..].find('\n').map_or(file.inner().len(), |line| start + line);
    walk.table(document.get_ref(), &(start..end), shape);
    // What stands behind an error is perhaps not what the parser took it for.
    let first = faults.0.iter().map(|fault| fault.span().start).min();
    let first = first.map_or(usize::MAX, |place| {
        file.inner().get(..place).and_then(|before| before.rfind('\n')).map_or(0, |line| line + 1)
    });
    for fault in walked.0.into_iter().filter(|fault| fault.span().start < first) {
        faults.push(fault);
    }
    (!broken).then(|| (read(document.get_ref()), absent))
}

/// Most values in a file, and in one of its lists. Files of systems have far fewer; rules between
/// any two of a list's elements take long for more.
const MOST_VALUES: usize = 200_000;

const LONGEST_LIST: usize = 16_384;

/// The fault of a file that has more values than any system needs.
fn excess(file: &File, table: &DeTable<'_>) -> Option<Fault> {
    fn visit<'a>(
        values: impl IntoIterator<Item = &'a Spanned<DeValue<'a>>>,
        count: &mut usize,
    ) -> Option<(Range<usize>, String)> {
        for value in values {
            *count += 1;
            if *count > MOST_VALUES {
                return Some((value.span(), format!("more than {MOST_VALUES} values")));
            }
            let found = match value.get_ref() {
                DeValue::Array(items) if items.len() > LONGEST_LIST => {
                    let what =
                        format!("a list of {} values, more than {LONGEST_LIST}", items.len());
                    let extra = items.get(LONGEST_LIST).map_or(value.span(), Spanned::span);
                    Some((extra, what))
                }
                DeValue::Array(items) => visit(items, count),
                DeValue::Table(table) => visit(table.values(), count),
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }
    let (span, what) = visit(table.values(), &mut 0)?;
    let fault = Fault::new(Code::TooManyValues, file, span, format!("the file has {what}"));
    Some(fault.label("one too many").help("describe the system with fewer values"))
}

/// The fault of headers in single brackets whose tables are elements of a list, such as `[vm]`, and
/// the part of the file where the parser takes them for one table. Only of use where the file has
/// syntax errors: for a single such header the walk reports that it is no list.
fn single_brackets(file: &File, shape: &Shape) -> Option<(Fault, Range<usize>)> {
    let text = file.inner();
    let mut found: Option<(Fault, Range<usize>)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let header = line.split('#').next().unwrap_or("").trim();
        let Some(inner) = header.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            continue;
        };
        if inner.starts_with('[') || !is_list(shape, inner.split('.').map(str::trim)) {
            continue;
        }
        let start = start + line.find('[').unwrap_or(0);
        let span = start..start + header.len();
        match &mut found {
            None => {
                let message = format!("`{header}` is one table, but `{inner}` is a list of tables");
                let fault = Fault::new(Code::SingleBrackets, file, span.clone(), message);
                let help = format!("write `[{header}]`, with double brackets, for each element");
                found = Some((fault.label("one table").help(help), span.start..text.len()));
            }
            Some((fault, _)) if fault.labels() < 3 => {
                let more = fault.clone().and(span, "again");
                *fault = more;
            }
            Some(_) => {}
        }
    }
    found
}

/// Whether the table at `path` is an element of a list.
fn is_list<'a>(shape: &Shape, mut path: impl Iterator<Item = &'a str>) -> bool {
    let mut shape = shape;
    let mut listed = false;
    path.all(|name| {
        let Some(key) = shape.keys.iter().find(|key| key.name == name) else { return false };
        let inner = match &key.kind {
            Kind::List(Kind::Table(inner)) => (true, inner),
            Kind::Table(inner) => (false, inner),
            _ => return false,
        };
        listed = inner.0;
        shape = inner.1;
        true
    }) && listed
}

/// Reading of a table's values; what has the wrong type or value was reported by the walk.
pub(crate) trait Values {
    fn value(&self, key: &str) -> Option<&Spanned<DeValue<'_>>>;

    fn text(&self, key: &str) -> Option<At<String>> {
        text(self.value(key)?)
    }

    fn number(&self, key: &str) -> Option<At<u64>> {
        number(self.value(key)?)
    }

    fn size(&self, key: &str) -> Option<At<Bytes>> {
        let text = self.text(key)?;
        Some(At { value: Bytes::parse(&text.value).ok()?, span: text.span })
    }

    fn duration(&self, key: &str) -> Option<At<Nanos>> {
        let text = self.text(key)?;
        Some(At { value: Nanos::parse(&text.value).ok()?, span: text.span })
    }

    fn rate(&self, key: &str) -> Option<At<BytesPerSec>> {
        let text = self.text(key)?;
        Some(At { value: BytesPerSec::parse(&text.value).ok()?, span: text.span })
    }

    fn boolean(&self, key: &str) -> Option<bool> {
        self.value(key)?.get_ref().as_bool()
    }

    /// A span of time that may be an integer of nanoseconds.
    fn nanos(&self, key: &str) -> Option<At<Nanos>> {
        self.duration(key).or_else(|| {
            let At { value, span } = self.number(key)?;
            Some(At { value: Nanos(value), span })
        })
    }

    fn inner(&self, key: &str) -> Option<(&DeTable<'_>, Range<usize>)> {
        let value = self.value(key)?;
        Some((value.get_ref().as_table()?, value.span()))
    }

    /// The tables of a list, with the place of each.
    fn tables(&self, key: &str) -> Vec<(&DeTable<'_>, Range<usize>)> {
        let items = self.value(key).and_then(|value| value.get_ref().as_array());
        items
            .into_iter()
            .flatten()
            .filter_map(|item| Some((item.get_ref().as_table()?, item.span())))
            .collect()
    }

    /// The values of a list, if none of them was wrong.
    fn list<T>(
        &self,
        key: &str,
        read: impl Fn(&Spanned<DeValue<'_>>) -> Option<At<T>>,
    ) -> Option<At<Vec<At<T>>>> {
        let value = self.value(key)?;
        let items = value.get_ref().as_array()?;
        let items = items.iter().map(read).collect::<Option<Vec<_>>>()?;
        Some(At { value: items, span: value.span() })
    }
}

impl Values for DeTable<'_> {
    fn value(&self, key: &str) -> Option<&Spanned<DeValue<'_>>> {
        self.get(key)
    }
}

pub(crate) fn text(value: &Spanned<DeValue<'_>>) -> Option<At<String>> {
    Some(At { value: value.get_ref().as_str()?.to_owned(), span: value.span() })
}

pub(crate) fn number(value: &Spanned<DeValue<'_>>) -> Option<At<u64>> {
    Some(At { value: integer(value.get_ref().as_integer()?)?, span: value.span() })
}

pub(crate) fn place(span: &Range<usize>) -> Place {
    Place(span.clone())
}

pub(crate) fn place_of<T>(value: Option<&At<T>>, otherwise: &Range<usize>) -> Place {
    place(value.map_or(otherwise, |value| &value.span))
}

/// Reads values with their own rules, and reports what breaks them.
pub(crate) struct Reader<'a> {
    pub file: &'a File,
    pub faults: &'a mut Faults,
}

impl Reader<'_> {
    pub fn fault(
        &mut self,
        code: Code,
        span: &Range<usize>,
        message: impl Display,
        help: impl Into<String>,
    ) {
        let fault = Fault::new(code, self.file, span.clone(), message.to_string());
        self.faults.push(fault.label("this").help(help));
    }

    /// A quantity that must not be 0.
    pub fn positive<T: Copy>(
        &mut self,
        value: Option<At<T>>,
        get: impl Fn(T) -> u64,
        what: &str,
        example: &str,
    ) -> Option<At<T>> {
        let value = value?;
        if get(value.value) == 0 {
            let help = format!("write more than 0, like {example}");
            self.fault(Code::Zero, &value.span, format!("{what} is 0"), help);
            return None;
        }
        Some(value)
    }

    pub fn time(&mut self, table: &DeTable<'_>, key: &str, owner: &str) -> Option<At<Nanos>> {
        let what = format!("`{key}` of {owner}");
        self.positive(table.duration(key), |time| time.0, &what, "\"10ms\"")
    }

    pub fn size(&mut self, table: &DeTable<'_>, key: &str, owner: &str) -> Option<At<Bytes>> {
        let what = format!("`{key}` of {owner}");
        self.positive(table.size(key), |size| size.0, &what, "\"4KiB\"")
    }

    pub fn rate(&mut self, table: &DeTable<'_>, key: &str, owner: &str) -> Option<At<BytesPerSec>> {
        let what = format!("`{key}` of {owner}");
        self.positive(table.rate(key), |rate| rate.0, &what, "\"485MB/s\"")
    }
}
