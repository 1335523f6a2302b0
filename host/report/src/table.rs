//! Tables that fit the terminal.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, TableComponent, Width, presets,
};
use rustix::termios::tcgetwinsize;
use std::{
    env,
    fmt::{self, Write as _},
    io::{self, IsTerminal as _},
};
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use weir_model::printable;

/// Returns the width limit of a table on standard output: `COLUMNS`, or that of the terminal. None
/// in a pipe, so that programs find each row on one line.
#[must_use]
pub fn columns() -> Option<u16> {
    let wanted = env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let there = || {
        let stdout = io::stdout();
        stdout.is_terminal().then(|| tcgetwinsize(stdout).ok().map(|size| size.ws_col)).flatten()
    };
    wanted.or_else(there).filter(|columns| *columns > 0)
}

/// Returns `text` after `label`, wrapped between words at the terminal's width, with a line end.
/// Further lines are indented by two more blanks than `label`. In a pipe it stays one line.
#[must_use]
pub fn paragraph(label: &str, text: &str) -> String {
    wrapped(label, text, columns().map(usize::from))
}

/// Returns one [`paragraph`] per text.
#[must_use]
pub fn paragraphs(label: &str, texts: &[String]) -> String {
    texts.iter().map(|text| paragraph(label, text)).collect()
}

/// Returns `text` with its tables and its long lines laid out for the terminal, each line with a
/// line end. `text` has tables as [`TextTable::for_file`] renders them: each row begins with a
/// blank, and the first cell of a row is not empty. In a pipe nothing changes.
#[must_use]
pub fn fitted(text: &str) -> String {
    fitted_to(text, columns())
}

fn fitted_to(text: &str, width: Option<u16>) -> String {
    let is_rule = |line: &&str| !line.is_empty() && line.chars().all(|each| each == RULE);
    let lines: Vec<&str> = text.lines().collect();
    let mut rest = lines.as_slice();
    let mut out = String::new();
    while let [line, below @ ..] = rest {
        rest = below;
        if let Some((_, below)) = below.split_first().filter(|(next, _)| is_rule(next)) {
            let ends =
                |at: usize| !below[at].starts_with(' ') || below.get(at + 1).is_some_and(is_rule);
            let rows = (0..below.len()).find(|at| ends(*at)).unwrap_or(below.len());
            let (rows, below) = below.split_at(rows);
            let _ = writeln!(out, "{}", TextTable::parse(line, rows, width));
            rest = below;
        } else if width.is_some_and(|width| line.chars().count() > width.into()) {
            let indent = line.len() - line.trim_start().len();
            out += &wrapped(&line[..indent], line, width.map(usize::from));
        } else {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

fn wrapped(label: &str, text: &str, width: Option<usize>) -> String {
    let words = label.trim_start();
    let indent = label.len() - words.len();
    wrap(&format!("{words}{text}"), width, [indent, indent + 2])
}

/// Returns the words of `text` in lines of at most `width` columns, with a line end behind each. A
/// longer word has its own line. `indents` are blanks before the first line and the others.
#[must_use]
pub fn wrap(text: &str, width: Option<usize>, indents: [usize; 2]) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let [first, further] = indents.map(|indent| " ".repeat(indent));
    let options = Options::new(width.unwrap_or(usize::MAX))
        .initial_indent(&first)
        .subsequent_indent(&further)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::fill(&text, options) + "\n"
}

/// A table in weir's style: a header with a rule below it, then rows. Cells may have several lines.
///
/// Where it is wider than the terminal, cells are broken between words. Where that is not enough,
/// the table continues below itself with the columns that are left, and with the first column once
/// more.
#[derive(Clone, Debug)]
pub struct TextTable {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    numbers: Vec<usize>,
    width: Option<u16>,
}

/// What the rule below a header consists of.
const RULE: char = '\u{2500}';
/// Blanks behind each column but the last of a table that is made to fit.
const PADDING: u16 = 1;
/// What is between two columns: these blanks and the separator.
const GAP: usize = PADDING as usize + 1;

impl TextTable {
    /// With these headings.
    pub fn new(header: impl IntoIterator<Item: AsRef<str>>) -> Self {
        Self { header: cells(header), rows: Vec::new(), numbers: Vec::new(), width: columns() }
    }

    /// Aligns these columns to the right.
    #[must_use]
    pub fn with_numbers(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.numbers.extend(columns);
        self
    }

    /// As wide as it needs, for any width of the terminal.
    #[must_use]
    pub fn for_file(self) -> Self {
        Self { width: None, ..self }
    }

    /// Reads a table that was rendered for a file. Two blanks in each line separate columns; a line
    /// without a first cell continues the row above.
    fn parse(header: &str, rows: &[&str], width: Option<u16>) -> Self {
        let lines: Vec<Vec<char>> =
            [header].iter().chain(rows).map(|line| line.chars().collect()).collect();
        let longest = lines.iter().map(Vec::len).max().unwrap_or(0);
        let is_blank =
            |at: usize| lines.iter().all(|line| line.get(at).is_none_or(|each| *each == ' '));
        let blanks: Vec<bool> = (0..longest).map(is_blank).collect();
        let starts = |at: &usize| !blanks[*at] && (*at < 2 || blanks[*at - 1] && blanks[*at - 2]);
        let starts: Vec<usize> = (0..longest).filter(starts).collect();
        let row = |line: &Vec<char>| -> Vec<String> {
            let ends = starts.iter().skip(1).copied().chain([longest]);
            let cell = |(start, end): (&usize, usize)| {
                let cell = line.iter().take(end).skip(*start).collect::<String>();
                cell.trim().to_owned()
            };
            starts.iter().zip(ends).map(cell).collect()
        };
        let mut table = Self { width, ..Self::new(row(&lines[0])) };
        for line in &lines[1..] {
            let row = row(line);
            match table.rows.last_mut().filter(|_| row.first().is_none_or(String::is_empty)) {
                Some(above) => {
                    for (cell, more) in
                        above.iter_mut().zip(row).filter(|(_, more)| !more.is_empty())
                    {
                        *cell = format!("{cell}\n{more}");
                    }
                }
                None => table.add_row(row),
            }
        }
        table
    }

    /// Whether it has no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row.
    pub fn add_row(&mut self, row: impl IntoIterator<Item: AsRef<str>>) {
        self.rows.push(cells(row));
    }

    /// Returns the table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let rule = |column| if self.numbers.contains(&column) { "--:" } else { "---" };
        let rules = cells((0..self.header.len()).map(rule));
        let lines = [&self.header, &rules].into_iter().chain(&self.rows);
        lines.flat_map(|cells| ["| ".to_owned(), cells.join(" | "), " |\n".to_owned()]).collect()
    }

    /// The greatest value of `measure` for the cells of a column.
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
                let wanted = self.greatest(*column, |text| longest(text, |c| c == '\n'));
                let more = wanted.saturating_sub(*each).min(left);
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
        table.set_style(TableComponent::HeaderLines, RULE);
        table.set_style(TableComponent::MiddleHeaderIntersections, RULE);
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

/// Returns a table with these headings, as wide as the terminal allows.
pub fn table(header: impl IntoIterator<Item: AsRef<str>>) -> TextTable {
    TextTable::new(header)
}

/// Returns text for cells, without control characters.
fn cells(texts: impl IntoIterator<Item: AsRef<str>>) -> Vec<String> {
    texts.into_iter().map(|text| printable(text.as_ref()).into_owned()).collect()
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = (0..self.header.len()).map(|column| (column, 0)).collect();
        let whole = self.render(&all, false);
        let needs = whole.lines().filter(|line| !line.contains(RULE));
        let needs = needs.map(|line| line.chars().count()).max().unwrap_or(0);
        match self.width.map(usize::from) {
            Some(width) if needs > width => {
                let parts = self.fit(width);
                let parts: Vec<_> = parts.iter().map(|part| self.render(part, true)).collect();
                f.write_str(&parts.join("\n\n"))
            }
            Some(width) => {
                // The rule covers blanks behind the last column, too.
                let cut = |line: &str| line.chars().take(width).collect::<String>();
                f.write_str(&whole.lines().map(cut).collect::<Vec<_>>().join("\n"))
            }
            None => f.write_str(&whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_broken_at_the_terminals_end() {
        let text = "platform zcu102: measured, not proven, by a-command-that-is-longer-than-a-line";
        let broken = wrapped("    help: ", text, Some(30));
        assert_eq!(
            broken,
            "    help: platform zcu102:\n      measured, not proven, by\n      \
             a-command-that-is-longer-than-a-line\n"
        );
        assert_eq!(wrapped("help: ", text, None), format!("help: {text}\n"));
    }

    #[test]
    fn a_table_has_no_rules_between_rows_and_no_escapes() {
        let mut table = TextTable::new(["name", "value"]);
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

    #[test]
    fn the_tables_of_a_stored_text_are_fitted() {
        let header = ["VM", "exits", "max above limit", "refused", "what the reason is"];
        let mut table = TextTable { width: None, ..TextTable::new(header) };
        table.add_row(["linux", "1234", "0", "3 device\n12 memory accesses", "a reason of words"]);
        table.add_row(["control", "-", "10", "-", "-"]);
        let long = "flow a: not judged: the trace has lost records of this flow";
        let text = format!("{table}\n{table}\n{long}\n");
        assert_eq!(fitted_to(&text, None), text);
        for width in [20, 40, 60, 100] {
            table.width = Some(width);
            let expected = format!("{table}\n{table}\n{}", wrapped("", long, Some(width.into())));
            assert_eq!(fitted_to(&text, Some(width)), expected);
        }
    }

    #[test]
    fn the_rule_of_a_table_fits_the_terminal() {
        let mut table = TextTable::new(["name", "value"]);
        table.add_row(["first", "1234"]);
        for width in 8..30 {
            table.width = Some(width);
            let text = table.to_string();
            assert!(text.lines().all(|line| line.chars().count() <= width.into()), "{text}");
        }
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
        let mut table = TextTable::new(header).with_numbers(1..11);
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
