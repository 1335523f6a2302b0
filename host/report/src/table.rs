//! Tables that fit the terminal.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, TableComponent, Width, presets,
};
use rustix::termios::tcgetwinsize;
use std::{
    env, fmt,
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

    /// Whether it has no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row.
    pub fn add_row(&mut self, row: impl IntoIterator<Item: AsRef<str>>) {
        self.rows.push(cells(row));
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
        let needs = whole.lines().filter(|line| !line.contains('\u{2500}'));
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
            "    help: platform zcu102:\n      measured, not proven, by\n      a-command-that-is-longer-than-a-line\n"
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
