//! Writes HTML. Markup is `'static`, so it cannot come from a run; all other text is escaped.

use weir_analysis::verdict::Verdict;
use weir_model::printable;

/// HTML under construction.
#[derive(Debug, Default)]
pub(super) struct Page(String);

/// A cell of a table.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Text(String),
    Verdict(Verdict),
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.to_string())
    }
}

/// What stands for a value that does not exist.
pub(super) const NONE: &str = "\u{2013}";

/// Returns a number, or a dash.
pub(super) fn or_dash(number: Option<u64>) -> String {
    number.map_or_else(|| NONE.to_owned(), |number| number.to_string())
}

/// Returns the class in the style sheet of a verdict.
pub(super) const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => " class=\"holds\"",
        Verdict::NotJudged => " class=\"not-judged\"",
        Verdict::DoesNotHold => " class=\"does-not-hold\"",
    }
}

impl Page {
    /// Adds markup.
    pub fn markup(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    /// Adds text: characters with a meaning in HTML are escaped, and control characters and
    /// bidirectional formatting are shown as `\u{1b}`.
    pub fn text(&mut self, text: &str) {
        for character in printable(text).chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
    }

    /// Adds an element with text in it.
    pub fn element(&mut self, name: &'static str, attributes: &'static str, text: &str) {
        self.0.extend(["<", name, attributes, ">"]);
        self.text(text);
        self.0.extend(["</", name, ">\n"]);
    }

    /// Adds a list of texts.
    pub fn list(&mut self, items: impl IntoIterator<Item: AsRef<str>>) {
        self.markup("<ul>\n");
        for item in items {
            self.element("li", "", item.as_ref());
        }
        self.markup("</ul>\n");
    }

    /// Adds lines as they were printed.
    pub fn lines(&mut self, lines: &[String]) {
        if lines.iter().all(String::is_empty) {
            self.element("p", "", "No lines.");
        } else {
            self.element("pre", "", &lines.join("\n"));
        }
    }

    /// Adds a table. Numbers are aligned to the right.
    pub fn table(&mut self, header: &[&'static str], rows: &[Vec<Cell>]) {
        self.markup("<div><table>\n<thead><tr>");
        for title in header {
            self.element("th", "", title);
        }
        self.markup("</tr></thead>\n<tbody>\n");
        for row in rows {
            self.markup("<tr>");
            for cell in row {
                match cell {
                    Cell::Verdict(verdict) => {
                        self.element("td", class(*verdict), &verdict.to_string());
                    }
                    Cell::Text(text) => {
                        let is_digit = |each: char| each.is_ascii_digit() || each == '.';
                        let number = !text.is_empty() && text.chars().all(is_digit);
                        let attributes = if number { " class=\"number\"" } else { "" };
                        self.element("td", attributes, text);
                    }
                }
            }
            self.markup("</tr>\n");
        }
        self.markup("</tbody>\n</table></div>\n");
    }

    /// Adds a picture that [`Bars`](crate::Bars) drew, with a caption.
    pub fn figure(&mut self, svg: &str, caption: &str) {
        self.markup("<figure>\n");
        self.0.push_str(svg);
        self.element("figcaption", "", caption);
        self.markup("</figure>\n");
    }

    /// Adds the HTML of another page.
    pub fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// Returns the HTML.
    pub fn into_text(self) -> String {
        self.0
    }
}
