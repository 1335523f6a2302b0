//! What a person sees: standard output and standard error without the control characters of others,
//! and tables that fit the terminal.

use anstream::AutoStream;
use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, TableComponent, Width, presets,
};
use rustix::termios::tcgetwinsize;
use std::{
    env, fmt,
    io::{self, IsTerminal as _, Write},
};
use weir_model::{is_hidden, printable};

/// A stream that lets text, colors and line ends through and shows every other control character,
/// and bidirectional formatting, as an escape such as `\u{1b}` ([`is_hidden`]). Names and values in
/// messages come from files, guests, traces and the command line.
#[derive(Debug)]
pub struct Fit<W> {
    to: W,
    /// The beginning of a character or of a color's sequence whose end has not been written yet.
    pending: Vec<u8>,
}

/// Standard output.
pub fn stdout() -> Fit<AutoStream<io::StdoutLock<'static>>> {
    Fit::new(AutoStream::auto(io::stdout().lock()))
}

/// Standard output for a while in which others write to it, too.
pub fn shared_stdout() -> Fit<AutoStream<io::Stdout>> {
    Fit::new(anstream::stdout())
}

/// Standard error.
pub fn stderr() -> Fit<AutoStream<io::Stderr>> {
    Fit::new(anstream::stderr())
}

impl<W: Write> Fit<W> {
    /// Writes to `to`.
    pub const fn new(to: W) -> Self {
        Self { to, pending: Vec::new() }
    }
}

/// What the beginning of some bytes is.
enum Piece {
    /// Bytes to let through.
    Good(usize),
    /// So many bytes that are a hidden character, or no character at all.
    Bad(usize, char),
    /// Perhaps the beginning of something.
    Open,
}

fn piece(bytes: &[u8]) -> Piece {
    let plain = |byte: &&u8| (b' '..0x7f).contains(*byte) || matches!(**byte, b'\n' | b'\t');
    let good = bytes.iter().take_while(plain).count();
    if good > 0 {
        return Piece::Good(good);
    }
    match bytes {
        [b'\r' | 0x1b] => Piece::Open,
        [b'\r', b'\n', ..] => Piece::Good(2),
        [0x1b, b'[', rest @ ..] => {
            let within = |byte: &&u8| byte.is_ascii_digit() || **byte == b';';
            // Longer than any color.
            let numbers = rest.iter().take(32).take_while(within).count();
            match rest.get(numbers) {
                Some(b'm') => Piece::Good(2 + numbers + 1),
                None if numbers < 32 => Piece::Open,
                _ => Piece::Bad(1, '\x1b'),
            }
        }
        [byte, ..] if byte.is_ascii() => Piece::Bad(1, char::from(*byte)),
        _ => {
            let most = &bytes[..bytes.len().min(4)];
            let valid = match std::str::from_utf8(most) {
                Ok(text) => text,
                Err(error) if error.valid_up_to() > 0 => {
                    std::str::from_utf8(&most[..error.valid_up_to()]).unwrap_or_default()
                }
                Err(error) => match error.error_len() {
                    None => return Piece::Open,
                    Some(length) => return Piece::Bad(length, char::REPLACEMENT_CHARACTER),
                },
            };
            match valid.chars().next() {
                Some(character) if is_hidden(character) => {
                    Piece::Bad(character.len_utf8(), character)
                }
                Some(character) => Piece::Good(character.len_utf8()),
                None => Piece::Open,
            }
        }
    }
}

impl<W: Write> Write for Fit<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let joined;
        let mut rest = if self.pending.is_empty() {
            buffer
        } else {
            self.pending.extend_from_slice(buffer);
            joined = std::mem::take(&mut self.pending);
            &joined[..]
        };
        let mut shown = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let taken = match piece(rest) {
                Piece::Good(length) => {
                    shown.extend_from_slice(&rest[..length]);
                    length
                }
                Piece::Bad(length, char::REPLACEMENT_CHARACTER) => {
                    shown.extend_from_slice("\u{fffd}".as_bytes());
                    length
                }
                Piece::Bad(length, character) => {
                    shown.extend(character.escape_unicode().map(|c| c as u8));
                    length
                }
                Piece::Open => {
                    self.pending = rest.to_vec();
                    break;
                }
            };
            rest = &rest[taken..];
        }
        self.to.write_all(&shown)?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Says something on standard error. A failure to write is ignored.
pub fn say(text: impl fmt::Display) {
    let _ = writeln!(stderr(), "{text}");
}

/// Columns that a table on standard output may take: `COLUMNS`, or those of the terminal. In a pipe
/// as many as it needs, so that programs find each row on a line.
pub fn columns() -> Option<u16> {
    let wished = env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let there = || {
        let stdout = io::stdout();
        stdout.is_terminal().then(|| tcgetwinsize(stdout).ok().map(|size| size.ws_col)).flatten()
    };
    wished.or_else(there).filter(|columns| *columns > 0)
}

/// A table in weir's style: a header with a rule below it, then rows. Cells may have several lines.
///
/// Where it is wider than the terminal, cells are broken between words. Where that is not enough,
/// the table continues below itself with the columns that are left, and with the first column once
/// more.
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    numbers: Vec<usize>,
    width: Option<u16>,
}

/// Blanks behind each column but the last of a table that is made to fit.
const PADDING: u16 = 1;
/// What is between two columns: these blanks and the separator.
const GAP: usize = PADDING as usize + 1;

impl Table {
    /// With these headings.
    pub fn new(header: impl IntoIterator<Item: AsRef<str>>) -> Self {
        Self { header: cells(header), rows: Vec::new(), numbers: Vec::new(), width: columns() }
    }

    /// Aligns these columns to the right.
    pub fn with_numbers(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.numbers.extend(columns);
        self
    }

    /// As wide as it needs, whatever the terminal's width.
    pub fn for_file(self) -> Self {
        Self { width: None, ..self }
    }

    /// Whether it has no rows.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row.
    pub fn add_row(&mut self, row: impl IntoIterator<Item: AsRef<str>>) {
        self.rows.push(cells(row));
    }

    /// The greatest of what `measure` says of the cells of a column.
    fn greatest(&self, column: usize, measure: impl Fn(&str) -> usize) -> usize {
        let rows = [&self.header].into_iter().chain(&self.rows);
        rows.filter_map(|row| Some(measure(row.get(column)?))).max().unwrap_or(0)
    }

    /// Lays the columns out in `width`: the columns of each part, with their widths.
    fn fit(&self, width: usize) -> Vec<Vec<(usize, usize)>> {
        let longest = |text: &str, by: fn(char) -> bool| {
            text.split(by).map(|part| part.chars().count()).max().unwrap_or(0)
        };
        let needed = |column, most: usize| {
            self.greatest(column, |text| longest(text, char::is_whitespace)).clamp(1, most.max(1))
        };
        let first = needed(0, width / 2);
        let rest = width.saturating_sub(first + GAP);
        let columns = 1..self.header.len();
        let least = [first].into_iter().chain(columns.map(|column| needed(column, rest)));
        let mut parts: Vec<Vec<(usize, usize)>> = Vec::new();
        for (column, least) in least.enumerate() {
            let used =
                |part: &[(usize, usize)]| part.iter().map(|(_, each)| each + GAP).sum::<usize>();
            match parts.last_mut() {
                Some(part) if part.len() < 2 || used(part) + least <= width => {
                    part.push((column, least));
                }
                Some(_) => {
                    let first = parts[0][0];
                    parts.push(vec![first, (column, least)]);
                }
                None => parts.push(vec![(column, least)]),
            }
        }
        for part in &mut parts {
            let used: usize = part.iter().map(|(_, each)| each + GAP).sum();
            let mut left = (width + GAP).saturating_sub(used);
            for (column, each) in part {
                let wished = self.greatest(*column, |text| longest(text, |c| c == '\n'));
                let more = wished.saturating_sub(*each).min(left);
                *each += more;
                left -= more;
            }
        }
        parts
    }

    /// Renders some columns, as wide as they need or with the widths of [`Self::fit`].
    fn render(&self, part: &[(usize, usize)], is_fitted: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        table.set_style(TableComponent::HeaderLines, '\u{2500}');
        table.set_style(TableComponent::MiddleHeaderIntersections, '\u{2500}');
        let of = |row: &[String]| -> Vec<String> {
            part.iter().map(|(column, _)| row.get(*column).cloned().unwrap_or_default()).collect()
        };
        table.set_header(of(&self.header));
        for row in &self.rows {
            table.add_row(of(row));
        }
        if is_fitted {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(u16::MAX);
        }
        let last = part.last().map(|(index, _)| *index);
        for (column, (index, width)) in table.column_iter_mut().zip(part) {
            if self.numbers.contains(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if is_fitted {
                let padding = if last == Some(*index) { 0 } else { PADDING };
                let width = u16::try_from(*width).unwrap_or(u16::MAX).saturating_add(padding);
                column.set_padding((0, padding));
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
            }
        }
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }
}

/// Text for cells, without what a terminal would obey.
fn cells(texts: impl IntoIterator<Item: AsRef<str>>) -> Vec<String> {
    texts.into_iter().map(|text| printable(text.as_ref()).into_owned()).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = (0..self.header.len()).map(|column| (column, 0)).collect();
        let whole = self.render(&all, false);
        let needs = whole.lines().filter(|line| !line.contains('\u{2500}'));
        let needs = needs.map(|line| line.chars().count()).max().unwrap_or(0);
        match self.width.map(usize::from) {
            Some(width) if needs > width => {
                let parts = self.fit(width);
                let parts: Vec<_> = parts.iter().map(|part| self.render(part, true)).collect();
                f.write_str(&parts.join("\n\n"))
            }
            _ => f.write_str(&whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(parts: &[&[u8]]) -> String {
        let mut fit = Fit::new(Vec::new());
        for part in parts {
            fit.write_all(part).expect("a vector takes all");
        }
        String::from_utf8(fit.to).expect("UTF-8")
    }

    #[test]
    fn colors_and_text_come_through_and_nothing_else() {
        assert_eq!(
            shown(&[b"\x1b[1m\x1b[31merror:\x1b[0m a\tb\r\n"]),
            "\x1b[1m\x1b[31merror:\x1b[0m a\tb\r\n"
        );
        let title = b"\x1b]0;owned\x07 \x1b[2J \x1bc \x08 \r \x7f \xc2\x9b \xe2\x80\xae \xff";
        let escaped = "\\u{1b}]0;owned\\u{7} \\u{1b}[2J \\u{1b}c \\u{8} \\u{d} \\u{7f} \\u{9b} \\u{202e} \u{fffd}";
        assert_eq!(shown(&[title]), escaped);
    }

    proptest! {
        #[test]
        fn where_it_is_cut_makes_no_difference(bytes in prop::collection::vec(prop::sample::select(
            b"\x1b[3;1mAJ\r\n\xe2\x80\xae\xc3\xa4\xff".as_slice()), 0..60), cut in 0_usize..60)
        {
            let cut = cut.min(bytes.len());
            let whole = shown(&[&bytes, b"."]);
            prop_assert_eq!(&shown(&[&bytes[..cut], &bytes[cut..], b"."]), &whole);
            let left = anstream::adapter::strip_str(&whole).to_string();
            prop_assert!(!left.chars().any(|c| is_hidden(c) && c != '\r'), "{:?}", whole);
        }
    }

    #[test]
    fn a_table_has_no_rules_between_rows_and_no_escapes() {
        let mut table = Table::new(["name", "value"]);
        table.add_row(["a\x1b[2J", "1"]);
        table.add_row(["b", "2\n3"]);
        let text = table.to_string();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert_eq!(
            text.matches("\u{2500}\u{2500}").count(),
            text.lines().nth(1).expect("a rule").chars().count() / 2
        );
        assert!(text.contains("a\\u{1b}[2J"), "{text}");
    }
    /// A table of many columns at each width: no line is wider, no word is broken, and each part
    /// begins with the first column.
    #[test]
    fn a_wide_table_fits_and_keeps_its_words_whole() {
        let header = [
            "flow",
            "packets",
            "lost",
            "late",
            "min ns",
            "p50 ns",
            "p99 ns",
            "max ns",
            "deadline ns",
            "bound ns",
            "max/bound",
            "verdict",
        ];
        let mut table = Table::new(header).with_numbers(1..11);
        table.add_row([
            "south-north",
            "10000",
            "3, dropped 2 times",
            "17",
            "29310",
            "29466",
            "111278",
            "1111278",
            "1000000",
            "111278",
            "0.987",
            "does not hold",
        ]);
        table.add_row(["b"].into_iter().chain(["1"; 11]));
        for width in [40, 80, 100, 200] {
            table.width = Some(width);
            let text = table.to_string();
            for line in text.lines() {
                assert!(line.chars().count() <= width.into(), "{width}: {line}\n{text}");
            }
            let words =
                header.into_iter().chain(["south-north", "1111278", "dropped", "0.987", "hold"]);
            for word in words.flat_map(str::split_whitespace) {
                assert!(text.split_whitespace().any(|part| part == word), "{word}: {text}");
            }
            let parts = text.split("\n\n");
            assert!(parts.clone().all(|part| part.trim_start().starts_with("flow")), "{text}");
            assert_eq!(parts.count() > 1, width < 200, "{width}: {text}");
        }
        table.width = Some(200);
        let wide = table.to_string();
        table.width = None;
        assert_eq!(table.to_string(), wide);
    }
}
