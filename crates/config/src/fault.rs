//! What is wrong with a file: every fault with its place, both parties, and what to write instead.

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode,
};
use std::{error, fmt, fmt::Write as _, fs, io, ops::Range, path::Path, sync::Arc};

/// The text of a file and its name, shared by the faults found in it.
pub(crate) type File = Arc<NamedSource<String>>;

pub(crate) fn file(path: &Path, text: impl Into<String>) -> File {
    Arc::new(NamedSource::new(path.display().to_string(), text.into()))
}

/// One thing that is wrong, at its place in a file.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Names the rule that is broken, for tools and for searching: `core-taken`.
    pub code: &'static str,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Places in the file, in bytes, with what they are; the first is where the fault is.
    labels: Vec<(Range<usize>, String)>,
    file: File,
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
        code: &'static str,
        file: &File,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code,
            message: message.into(),
            help: None,
            labels: vec![(span, String::new())],
            file: Arc::clone(file),
        }
    }

    /// Says what the marked place is.
    pub(crate) fn label(mut self, text: impl Into<String>) -> Self {
        if let Some((_, label)) = self.labels.first_mut() {
            *label = text.into();
        }
        self
    }

    /// Marks a second place, the other party's.
    pub(crate) fn and(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        self.labels.push((span, text.into()));
        self
    }

    /// Says what to write instead.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    pub(crate) fn span(&self) -> Range<usize> {
        self.labels.first().map_or(0..0, |(span, _)| span.clone())
    }

    fn locate(&self, offset: usize) -> Location {
        let text = self.file.inner();
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Location {
            file: self.file.name().to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// Where the fault is.
    #[must_use]
    pub fn location(&self) -> Location {
        self.locate(self.span().start)
    }

    fn to_json(&self) -> serde_json::Value {
        let labels: Vec<_> = self
            .labels
            .iter()
            .map(|(span, text)| {
                let place = self.locate(span.start);
                serde_json::json!({
                    "line": place.line,
                    "column": place.column,
                    "offset": span.start,
                    "length": span.len(),
                    "text": text,
                })
            })
            .collect();
        let place = self.location();
        serde_json::json!({
            "code": self.code,
            "message": self.message,
            "file": place.file,
            "line": place.line,
            "column": place.column,
            "labels": labels,
            "help": self.help,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Fault {}

impl Diagnostic for Fault {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&*self.file)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().enumerate().map(|(index, (span, text))| {
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

/// Everything that is wrong, in the order of the file. Never empty where it is an error.
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
    pub(crate) fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    /// `value` when nothing is wrong; sorts the faults by their place.
    pub(crate) fn into_result<T>(mut self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|fault| fault.span().start);
        Err(self)
    }

    /// Faults that are shown with an excerpt; who has more will mend these first.
    const EXCERPTS: usize = 100;

    /// Faults that are shown at all.
    const LINES: usize = 1000;

    /// The faults with excerpts of the file, `width` columns wide; from the hundred-and-first on a line each, and of those beyond a
    /// thousand their number.
    #[must_use]
    pub fn render(&self, style: Style, width: usize) -> String {
        let theme = match style {
            Style::Fancy => GraphicalTheme::unicode(),
            Style::Plain => GraphicalTheme::none(),
        };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(width).with_links(false);
        let mut text = String::new();
        for (index, fault) in self.0.iter().take(Self::LINES).enumerate() {
            // The handler reads the file from its start for each excerpt, and can't format a column beyond 16 bits.
            let location = fault.location();
            if index >= Self::EXCERPTS || location.column > usize::from(u16::MAX) / 2 {
                let _ = writeln!(text, "{location}: {}", fault.message);
            } else if handler.render_report(&mut text, fault).is_err() {
                text.push_str(&fault.message);
            }
        }
        match self.0.len().saturating_sub(Self::LINES) {
            0 => {}
            more => {
                let _ = writeln!(text, "and {more} more");
            }
        }
        text
    }

    /// A list of objects with `code`, `message`, `file`, `line`, `column`, `labels`, `help`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        self.0.iter().map(Fault::to_json).collect()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Style::Plain, 100))
    }
}

impl error::Error for Faults {}

/// Reads a text file.
///
/// # Errors
///
/// The fault that makes it no text file, with the place of the first byte that is not UTF-8.
pub(crate) fn read(path: &Path) -> Result<File, Faults> {
    let whole = |code, message: String, help: &str| {
        Faults(vec![Fault::new(code, &file(path, ""), 0..0, message).help(help)])
    };
    if path.is_dir() {
        let message = format!("{} is a directory", path.display());
        return Err(whole(
            "directory",
            message,
            "give the path of a file in it, like DIR/system.toml",
        ));
    }
    let bytes = read_bytes(path).map_err(|error| {
        let message = format!("cannot read {}: {error}", path.display());
        whole(
            "unreadable",
            message,
            "give the path of a file; `weir new DIR` writes DIR/system.toml",
        )
    })?;
    match String::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => {
            let message = format!("{} is empty", path.display());
            Err(whole("empty-file", message, "`weir new DIR` writes one to start from"))
        }
        Ok(text) => Ok(file(path, text)),
        Err(error) => {
            let place = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(place).copied().unwrap_or_default();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            // What is valid keeps its place; the first bad byte has become U+FFFD, three bytes long.
            let fault = Fault::new(
                "not-utf8",
                &file(path, text),
                place..place + 3,
                "the file is not UTF-8",
            )
            .label(format!("byte {byte:#04x}"))
            .help("save the file as UTF-8");
            Err(Faults(vec![fault]))
        }
    }
}

/// More than any file of a system: what is longer is a mistake.
const FILE_LIMIT: u64 = 4 << 30;

/// Reads a regular file, or says why not. Devices and pipes might never end.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = fs::metadata(path).map_err(|error| reason(&error))?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if metadata.len() > FILE_LIMIT {
        return Err("it is longer than 4GiB".to_owned());
    }
    fs::read(path).map_err(|error| reason(&error))
}

/// What the operating system says, without its number for it.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
