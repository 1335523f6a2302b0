//! A TOML file, compared with the declaration of its keys and read.

use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File};
use crate::object::Object;
use crate::shape::{Kind, Shape, Walk};
use crate::table::Table;
use std::{fmt::Display, ops::Range};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Parses `file` and compares it with the keys of its table; gives the table if the file has no
/// syntax error, even with other errors, and all that the table must have.
pub(crate) fn parse<T: Table>(file: &File, faults: &mut Faults) -> Option<T> {
    let (value, mut absent) = parse_part::<T>(file, &[], faults)?;
    faults.0.append(&mut absent.0);
    value
}

/// The same, with the faults of required keys that are missing in the shapes in `partial` apart
/// from the others.
pub(crate) fn parse_part<T: Table>(
    file: &File,
    partial: &[&'static str],
    faults: &mut Faults,
) -> Option<(Option<T>, Faults)> {
    let shape = &T::SHAPE;
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
        let mut span = span.start.min(end)..span.end.min(end);
        let mut message = error.message().trim().replace('\n', ", ");
        if message.is_empty() {
            "not TOML".clone_into(&mut message);
        }
        // Tables that were meant to be several are one to the parser, and each key is there twice.
        if explained.contains(&span.start) && message.contains("duplicate key") {
            continue;
        }
        let written = file.inner().get(span.clone()).unwrap_or_default();
        let help = if message.contains("missing comma between array elements") {
            // The parser sees it at the next word, which is perhaps lines behind the list.
            let before = file.inner().get(..span.start).unwrap_or_default().trim_end().len();
            span = before..before;
            "write `]` behind the last value of the list, or `,` between two values".to_owned()
        } else if message.contains("duplicate key") {
            "remove one of the two: a file has each key of a table once".to_owned()
        } else if message.contains("must be quoted") && !written.trim().is_empty() {
            format!("write it in double quotes: {:?}", written.trim())
        } else if let Some((_, expected)) = message.rsplit_once("expected ") {
            format!("write {expected} here, or remove what needs it")
        } else {
            "write `key = value`; text and quantities stand in double quotes: \"16MiB\"".to_owned()
        };
        if message == "duplicate key" {
            message = format!("duplicate key `{}`", written.trim());
        }
        // Each search reads much of the file.
        let is_searched = faults.0.len() < SEARCHED;
        let object = is_searched.then(|| enclosing(file, span.start, shape));
        let object = object.unwrap_or_else(|| shape.name.to_owned());
        let message = format!("{object}: syntax error: {message}");
        let fault = Fault::new(Code::Syntax, file, span, message).label("here");
        faults.push(fault.help(help + "; the rest of the file is checked after that"));
        // A bracket that is missing makes each line behind it an error, too.
        break;
    }
    if let Some((fault, _)) = single {
        faults.push(fault);
    }
    let broken = !errors.is_empty();
    let (mut walked, mut absent) = (Faults::default(), Faults::default());
    let mut walk = Walk {
        file,
        faults: &mut walked,
        missing: !broken,
        partial,
        absent: &mut absent,
        object: String::new(),
        path: String::new(),
    };
    // A file's own span is its beginning: an excerpt of the whole file would not help.
    let start = file.inner().find(|c: char| !c.is_whitespace()).unwrap_or(0);
    let end = file.inner()[start..].find('\n').map_or(file.inner().len(), |line| start + line);
    walk.table(document.get_ref(), &(start..end), shape, "");
    // What stands behind an error is perhaps not what the parser took it for.
    let first = faults.0.iter().map(|fault| fault.span().start).min();
    let first = first.map_or(usize::MAX, |place| {
        file.inner().get(..place).and_then(|before| before.rfind('\n')).map_or(0, |line| line + 1)
    });
    for fault in walked.0.into_iter().filter(|fault| fault.span().start < first) {
        faults.push(fault);
    }
    (!broken).then(|| (T::read_table(document.get_ref()), absent))
}

/// Syntax errors for which the object around them is searched.
const SEARCHED: usize = 100;

/// Returns the object that the byte at `place` of a broken file is in, as messages name it: that of
/// the last header before it.
fn enclosing(file: &File, place: usize, shape: &Shape) -> String {
    let before = file.inner().get(..place).unwrap_or_default();
    let first = before.starts_with('[').then_some(0);
    let Some(start) = before.rfind("\n[").map(|line| line + 1).or(first) else {
        return shape.name.to_owned();
    };
    let mut lines = file.inner().get(start..).unwrap_or_default().lines();
    let header = lines.next().and_then(|line| line.split('#').next()).unwrap_or_default().trim();
    let name = lines.take_while(|line| !line.starts_with('[')).find_map(|line| {
        let (key, value) = line.split_once('=')?;
        matches!(key.trim(), "name" | "id").then(|| value.trim().trim_matches('"'))
    });
    let kind = header.strip_prefix("[[").and_then(|header| header.strip_suffix("]]"));
    match (kind, name) {
        (Some(kind), Some(name)) if !kind.contains('.') => Object::new(kind, name).to_string(),
        _ => header.to_owned(),
    }
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
    let message = format!("file `{}`: {what} (limit of weir's reader)", file.name());
    let fault = Fault::new(Code::TooManyValues, file, span, message);
    Some(fault.label("one too many").help("describe the system with fewer values"))
}

/// The fault of headers in single brackets of tables that are elements of a list, such as `[vm]`,
/// and the part of the file where the parser takes them for one table. Only of use where the file
/// has syntax errors: for a single such header the walk reports that it is no list.
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
                let message = format!("{header}: one table, but `{inner}` is a list of tables");
                let fault = Fault::new(Code::Syntax, file, span.clone(), message);
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

/// Checks values by their own rules, and reports what breaks them.
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

    /// Reports that a name stands for two things.
    pub fn twice(
        &mut self,
        code: Code,
        span: &Range<usize>,
        first: &Range<usize>,
        message: String,
        help: &str,
    ) {
        let fault = Fault::new(code, self.file, span.clone(), message);
        self.faults.push(fault.label("second").and(first.clone(), "first").help(help));
    }
}
