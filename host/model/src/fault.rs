//! Diagnostics of a file: each with its place, a second place, and a suggestion.

use crate::diagnostics::Code;
use crate::files;
use crate::text::{is_hidden, masked, printable};
use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    borrow::Cow,
    error, fmt,
    fmt::Write as _,
    ops::{Deref, Range},
    path::Path,
    sync::{Arc, OnceLock},
};

/// The text of a file and its name, shared by the faults found in it.
pub(crate) type File = Arc<SourceText>;

/// A text with its name, and what each fault in it asks for: a file can have 1,000 faults and 4 MiB.
#[derive(Debug)]
pub(crate) struct SourceText {
    source: NamedSource<String>,
    /// The offset at which each line begins.
    lines: OnceLock<Vec<usize>>,
    is_plain: OnceLock<bool>,
}

impl SourceText {
    fn new(name: impl AsRef<str>, text: String) -> Self {
        let source = NamedSource::new(name, text);
        Self { source, lines: OnceLock::new(), is_plain: OnceLock::new() }
    }

    /// Returns the number of the line with the byte at `offset`, from 1, and its first byte.
    fn line(&self, offset: usize) -> (usize, usize) {
        let lines = self.lines.get_or_init(|| {
            let behind = self.inner().match_indices('\n').map(|(newline, _)| newline + 1);
            std::iter::once(0).chain(behind).collect()
        });
        let number = lines.partition_point(|start| *start <= offset);
        (number, lines[number - 1])
    }

    /// Returns whether the text has no hidden character ([`is_hidden`]).
    fn is_plain(&self) -> bool {
        *self.is_plain.get_or_init(|| is_plain(self.inner()))
    }
}

impl Deref for SourceText {
    type Target = NamedSource<String>;

    fn deref(&self) -> &Self::Target {
        &self.source
    }
}

/// Returns whether a text has no hidden character.
fn is_plain(text: &str) -> bool {
    !text.chars().any(is_hidden)
}

pub(crate) fn file(path: &Path, text: impl Into<String>) -> File {
    Arc::new(SourceText::new(path.display().to_string(), text.into()))
}

/// A place in the file, for faults that are found later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePlace(pub(crate) Range<usize>);

/// One thing that is wrong, at its place in a file. Displayed as its message alone; the suggestion
/// is `help`, the place [`Self::location`].
#[derive(Clone, Debug)]
pub struct Fault {
    /// The rule that is broken.
    pub code: Code,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The suggestion.
    pub help: Option<String>,
    /// Places in the file, in bytes, with what they are; the first is where the fault is.
    labels: Vec<(Range<usize>, String)>,
    file: File,
}

/// A fault in a JSON result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FaultRecord {
    /// The code of the diagnostic, such as `W0105`.
    pub code: String,
    /// The name of the diagnostic.
    pub name: &'static str,
    /// The rule that is broken, with the values.
    pub message: String,
    /// The name of the file as it was given.
    pub file: String,
    /// The line of the fault, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The places that the fault is about; the first is that of the fault.
    pub labels: Vec<LabelRecord>,
    /// The suggested change.
    pub help: Option<String>,
}

/// A place in a file that a fault is about.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LabelRecord {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The offset in bytes.
    pub offset: usize,
    /// The length in bytes.
    pub length: usize,
    /// The meaning of the place.
    pub text: String,
}

/// Where a fault is. Displayed as `file:line:column`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file's name as it was given.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Fault {
    pub(crate) fn new(
        code: Code,
        file: &File,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code,
            message: short(message.into()),
            help: None,
            labels: vec![(span, String::new())],
            file: Arc::clone(file),
        }
    }

    /// Labels the marked place.
    pub(crate) fn label(mut self, text: impl Into<String>) -> Self {
        if let Some((_, label)) = self.labels.first_mut() {
            *label = short(text.into());
        }
        self
    }

    /// Marks a second place.
    pub(crate) fn and(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.labels.push((span, short(text.into())));
        self
    }

    /// Adds the suggestion.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(short(text.into()));
        self
    }

    /// How many places are marked.
    pub(crate) fn labels(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn span(&self) -> Range<usize> {
        self.labels.first().map_or(0..0, |(span, _)| span.clone())
    }

    fn locate(&self, offset: usize) -> Location {
        locate(&self.file, offset)
    }

    /// Where the fault is.
    #[must_use]
    pub fn location(&self) -> Location {
        self.locate(self.span().start)
    }

    /// Whether a line that is marked is longer than an excerpt can be.
    fn is_wide(&self) -> bool {
        let text = self.file.inner();
        let lines = self.labels.iter().map(|(span, _)| {
            let from = text.get(..span.start).and_then(|text| text.rfind('\n')).unwrap_or(0);
            let to = text.get(span.end..).and_then(|text| text.find('\n'));
            to.map_or(text.len(), |to| span.end + to) - from
        });
        lines.max().is_some_and(|longest| longest > Self::WIDEST)
    }

    /// Bytes of the longest place that is shown with an excerpt; the handler can't format a column
    /// beyond 16 bits.
    const WIDEST: usize = 4096;

    /// The same fault for a terminal: with hidden characters escaped, in the excerpt masked.
    fn shown(&self) -> Cow<'_, Self> {
        let texts = [self.file.name(), &self.message];
        let more = self.help.iter().chain(self.labels.iter().map(|(_, text)| text));
        let mut texts = texts.into_iter().chain(more.map(String::as_str));
        if self.file.is_plain() && texts.all(is_plain) {
            return Cow::Borrowed(self);
        }
        let labels = self.labels.iter();
        Cow::Owned(Self {
            code: self.code,
            message: printable(&self.message).into_owned(),
            help: self.help.as_ref().map(|help| printable(help).into_owned()),
            labels: labels
                .map(|(span, label)| (span.clone(), printable(label).into_owned()))
                .collect(),
            file: Arc::new(SourceText::new(printable(self.file.name()), masked(self.file.inner()))),
        })
    }

    /// The first line: code and message, wrapped at `width`.
    fn headline(&self, style: Style, width: usize) -> String {
        let label = format!("error[{}]:", self.code);
        let mut columns = label.chars().count();
        let mut text = match style {
            Style::Fancy => format!("\u{1b}[1;31m{label}\u{1b}[0m"),
            Style::Plain => label,
        };
        for word in self.message.split_whitespace() {
            let needed = word.chars().count() + 1;
            if columns + needed > width {
                text.push_str("\n ");
                columns = 1;
            }
            text.push(' ');
            text.push_str(word);
            columns += needed;
        }
        text + "\n"
    }

    /// Returns the message and the suggestion in one line.
    #[must_use]
    pub fn note(&self) -> String {
        match &self.help {
            Some(help) => format!("{}; {help}", self.message),
            None => self.message.clone(),
        }
    }

    /// Returns the fault as in JSON results.
    #[must_use]
    pub fn record(&self) -> FaultRecord {
        let label = |(span, text): &(Range<usize>, String)| {
            let Location { line, column, .. } = self.locate(span.start);
            LabelRecord { line, column, offset: span.start, length: span.len(), text: text.clone() }
        };
        let Location { file, line, column } = self.location();
        FaultRecord {
            code: self.code.to_string(),
            name: self.code.name(),
            message: self.message.clone(),
            file,
            line,
            column,
            labels: self.labels.iter().map(label).collect(),
            help: self.help.clone(),
        }
    }
}

/// Returns the place of the byte at `offset`.
pub(crate) fn locate(file: &File, offset: usize) -> Location {
    let text = file.inner();
    let before = text.get(..offset).unwrap_or(text);
    let (line, start) = file.line(before.len());
    let column = before[start..].chars().count() + 1;
    Location { file: file.name().to_owned(), line, column }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Fault {}

/// What is shown below the first line of a fault.
#[derive(Debug)]
struct Excerpt<'a>(&'a Fault);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl error::Error for Excerpt<'_> {}

impl Diagnostic for Excerpt<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.0.file.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.0.labels.iter().enumerate().map(|(index, (span, text))| {
            let text = (!text.is_empty()).then(|| text.clone());
            let place = (span.start, span.len());
            if index == 0 {
                LabeledSpan::new_primary_with_span(text, place)
            } else {
                LabeledSpan::new_with_span(text, place)
            }
        })))
    }
}

/// Everything that is wrong, in the order of the file. Never empty where it is an error. Displayed
/// with excerpts of the file, as [`Self::render`] does.
#[derive(Clone, Debug, Default)]
pub struct Faults(pub Vec<Fault>);

/// How faults are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For a terminal: colors and line drawing.
    Fancy,
    /// For a pipe or a log: ASCII without colors.
    Plain,
}

impl Faults {
    /// Returns whether further faults are dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() > Self::LINES
    }

    /// Adds a fault. One behind [`Self::LINES`] becomes the statement that there are more; nothing
    /// is added behind that.
    pub(crate) fn push(&mut self, fault: Fault) {
        if self.0.len() < Self::LINES {
            return self.0.push(fault);
        }
        if self.0.len() == Self::LINES {
            let end = fault.file.inner().len();
            let message = format!("file `{}`: more than {} faults", fault.file.name(), Self::LINES);
            let more = Fault::new(Code::TooManyFaults, &fault.file, end..end, message);
            self.0.push(
                more.label("the end").help("mend those above first; the others are not listed"),
            );
        }
    }

    /// `value` when nothing is wrong; sorts the faults by their place.
    pub(crate) fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            return Ok(value);
        }
        Err(Self(self.sorted()))
    }

    /// The faults in the order of the file.
    pub(crate) fn sorted(mut self) -> Vec<Fault> {
        self.0.sort_by_key(|fault| fault.span().start);
        self.0
    }

    /// Faults that are shown with an excerpt; further ones are shown once these are fixed.
    const EXCERPTS: usize = 100;

    /// Faults that are shown at all.
    const LINES: usize = 1000;

    /// The faults with excerpts of the file, `width` columns wide; from the hundred-and-first on a
    /// line each, and of those beyond a thousand their number. Control characters of the file are
    /// escaped.
    #[must_use]
    pub fn render(&self, style: Style, width: usize) -> String {
        let theme = match style {
            Style::Fancy => GraphicalTheme::unicode(),
            Style::Plain => GraphicalTheme::none(),
        };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(width).with_links(false);
        let mut text = String::new();
        for (index, fault) in self.0.iter().take(Self::LINES + 1).enumerate() {
            if index > 0 && index < Self::EXCERPTS {
                text.push('\n');
            }
            // The handler reads the file from its start for each excerpt, and can't format a column
            // beyond 16 bits.
            let location = fault.location();
            if index >= Self::EXCERPTS || fault.is_wide() {
                let _ = writeln!(
                    text,
                    "error[{}]: {} ({})",
                    fault.code,
                    printable(&fault.message).replace('\n', " "),
                    printable(&location.to_string())
                );
                continue;
            }
            let shown = fault.shown();
            text += &shown.headline(style, width);
            let mut excerpt = String::new();
            // Writing to a string does not fail. The first line has the message, which is empty.
            let _ = handler.render_report(&mut excerpt, &Excerpt(&shown));
            text += excerpt.split_once('\n').map_or("", |(_, below)| below);
        }
        match self.0.len().saturating_sub(Self::LINES + 1) {
            0 => {}
            more => {
                let _ = writeln!(text, "and {more} more");
            }
        }
        text
    }

    /// Returns the faults as a JSON result has them.
    #[must_use]
    pub fn records(&self) -> Vec<FaultRecord> {
        self.0.iter().map(Fault::record).collect()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Style::Plain, 100))
    }
}

impl error::Error for Faults {}

/// Longest system or platform file, in bytes.
pub const TEXT_LIMIT: u64 = 4 << 20;

/// The beginning of a text that is longer than a person reads, as a value of the file in it may be.
fn short(mut text: String) -> String {
    const MOST: usize = 2000;
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
        text.push_str("..");
    }
    text
}

/// Reads a text file of at most [`TEXT_LIMIT`] bytes.
///
/// # Errors
///
/// The fault that makes it no text file, with the place of the first byte that is not UTF-8.
pub(crate) fn read(path: &Path) -> Result<File, Faults> {
    let whole = |code, message: String, help: &str| {
        Faults(vec![Fault::new(code, &file(path, ""), 0..0, message).help(help)])
    };
    if path.is_dir() {
        let message = format!("file `{}`: is a directory", path.display());
        return Err(whole(
            Code::FileUnreadable,
            message,
            "give the path of a file in it, like DIR/system.toml",
        ));
    }
    let bytes = files::read_short(path, TEXT_LIMIT).map_err(|error| {
        let message = format!("file `{}`: cannot be read: {error}", path.display());
        whole(
            Code::FileUnreadable,
            message,
            "give the path of a file; `weir new DIR` writes DIR/system.toml",
        )
    })?;
    match String::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => {
            let message = format!("file `{}`: is empty", path.display());
            Err(whole(Code::FileUnreadable, message, "`weir new DIR` writes one to start from"))
        }
        Ok(text) => Ok(file(path, text)),
        Err(error) => {
            let place = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(place).copied().unwrap_or_default();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            // What is valid keeps its place; the first bad byte has become U+FFFD, three bytes
            // long.
            let message = format!("file `{}`: is not UTF-8 from byte {place} on", path.display());
            let fault =
                Fault::new(Code::FileUnreadable, &file(path, text), place..place + 3, message)
                    .label(format!("byte {byte:#04x}"))
                    .help("save the file as UTF-8");
            Err(Faults(vec![fault]))
        }
    }
}
