//! Both matrices as a picture.

use super::{Observation, render::active};
use std::fmt::Write as _;
use weir_qemu_plugin::caches::{CountMatrix, ObservedAccesses};

/// Least width, and height, of a field.
const FIELD: (usize, usize) = (96, 30);
/// Least room for the names next to the fields, and room for those above them.
const MARGIN: (usize, usize) = (170, 70);
/// Room for a letter of the fields and of the titles. Fonts differ: this is what a wide one takes.
const LETTER: usize = 8;
const TITLE_LETTER: usize = 9;

/// The evicted lines and the closed rows, a field for each pair of owners, darker for more. Effects
/// of an owner on itself are gray, on another red.
#[must_use]
pub fn svg(outcome: &Observation) -> String {
    draw(&weir_image::name(&outcome.system), &outcome.seen)
}

fn draw(name: &str, seen: &ObservedAccesses) -> String {
    let table = Table::new(seen);
    let matrices = [
        ("lines of the shared cache: evicted by (row), of (column)", &seen.l2_evictions),
        ("DRAM rows: closed by (row), of (column)", &seen.rows_closed),
    ]
    .map(|(what, counts)| {
        (format!("{name}: {what}; between VMs {}", seen.between_vms(counts)), counts)
    });
    let titles = matrices.iter().map(|(title, _)| 40 + title.chars().count() * TITLE_LETTER);
    let width = titles.fold(table.right() + 20, usize::max);
    let each = MARGIN.1 + table.columns.len() * FIELD.1 + 40;
    let height = 2 * each + 30;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (place, (title, counts)) in matrices.iter().enumerate() {
        matrix(&mut svg, place * each + 10, title, (seen, counts, &table));
    }
    svg + "</svg>\n"
}

/// A column of a matrix.
struct Column {
    /// The owner by its place in [`ObservedAccesses::owners`].
    owner: usize,
    left: usize,
    width: usize,
}

/// Where the fields are: each column is as wide as its name.
struct Table {
    columns: Vec<Column>,
}

impl Table {
    fn new(seen: &ObservedAccesses) -> Self {
        let shown = active(seen);
        let wide = |owner: usize| seen.owners[owner].name.chars().count() * LETTER + 16;
        let mut left = shown.iter().map(|&owner| wide(owner)).fold(MARGIN.0, usize::max);
        let column = |owner: usize| {
            let column = Column { owner, left, width: wide(owner).max(FIELD.0) };
            left += column.width;
            column
        };
        Self { columns: shown.into_iter().map(column).collect() }
    }

    fn left(&self) -> usize {
        self.columns.first().map_or(MARGIN.0, |column| column.left)
    }

    fn right(&self) -> usize {
        self.columns.last().map_or(MARGIN.0, |column| column.left + column.width)
    }
}

fn matrix(
    svg: &mut String,
    top: usize,
    title: &str,
    (seen, counts, table): (&ObservedAccesses, &CountMatrix, &Table),
) {
    text(svg, (20, top + 20), "font-size=\"15\"", title);
    let shown = || table.columns.iter().map(|column| column.owner);
    let most = shown().flat_map(|by| shown().map(move |of| counts[by][of])).max();
    for (row, by) in shown().enumerate() {
        let y = top + MARGIN.1 + row * FIELD.1;
        let anchor = "text-anchor=\"end\"";
        text(svg, (table.left() - 8, y + 20), anchor, &seen.owners[by].name);
        for &Column { owner: of, left, width } in &table.columns {
            if row == 0 {
                let middle = (left + width / 2, y - 8);
                text(svg, middle, "text-anchor=\"middle\"", &seen.owners[of].name);
            }
            let count = counts[by][of];
            let vm_of = |owner: usize| seen.owners[owner].kind.vm();
            let own = by == of || vm_of(by).is_some() && vm_of(by) == vm_of(of);
            let fill = if own { "#5f6b7a" } else { "#c0392b" };
            let _ = writeln!(
                svg,
                "<rect x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{}\" stroke=\"#999999\" \
                 fill=\"{fill}\" fill-opacity=\"{:.2}\"/>",
                FIELD.1,
                opacity(count, most.unwrap_or(0))
            );
            let middle = (left + width / 2, y + 20);
            text(svg, middle, "text-anchor=\"middle\"", &count.to_string());
        }
    }
}

/// By the logarithm, so that one event in a million shows; up to a half, so that text stays
/// readable.
fn opacity(count: u64, most: u64) -> f64 {
    if count == 0 {
        return 0.0;
    }
    let digits = |count: u64| f64::from(count.ilog2() + 1);
    0.05 + 0.45 * digits(count) / digits(most.max(count))
}

fn text(svg: &mut String, (x, y): (usize, usize), attributes: &str, text: &str) {
    let space = if attributes.is_empty() { "" } else { " " };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\"{space}{attributes}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_million_is_visible_and_nothing_is_white() {
        assert!(opacity(0, 1 << 20).abs() < f64::EPSILON);
        assert!(opacity(1, 1 << 20) > 0.05);
        assert!((opacity(9, 9) - 0.5).abs() < f64::EPSILON);
    }

    /// Names may have 31 characters; each text is within the picture, and heads are apart.
    #[test]
    fn long_names_have_room() {
        let mut seen = super::super::render::synthetic(0);
        for (owner, letter) in seen.owners.iter_mut().zip(["a", "b", "c"]) {
            owner.name = format!("weir for {}", letter.repeat(31));
        }
        let svg = draw("a-system-with-a-long-name-of-its-own", &seen);
        let number = |line: &str, before: &str| -> Option<usize> {
            line.split_once(before)?.1.split(['"', ' ']).next()?.parse().ok()
        };
        let width = number(&svg, "viewBox=\"0 0 ").expect("a width");
        let mut ends = std::collections::BTreeMap::new();
        for line in svg.lines().filter(|line| line.starts_with("<text")) {
            let x = number(line, " x=\"").expect("a place");
            let words = line.split(['<', '>']).nth(2).expect("words");
            // An average letter is little more than half as wide as high.
            let size = number(line, "font-size=\"").unwrap_or(12);
            let long = words.chars().count() * size * 11 / 20;
            let left = match line {
                _ if line.contains("\"middle\"") => x.checked_sub(long / 2),
                _ if line.contains("\"end\"") => x.checked_sub(long),
                _ => Some(x),
            };
            let left = left.unwrap_or_else(|| panic!("cut off at the left: {line}"));
            assert!(left + long <= width, "cut off at the right: {line}");
            let y = number(line, " y=\"").expect("a place");
            let end = ends.insert(y, left + long);
            assert!(end.is_none_or(|end| end <= left), "over its neighbor: {line}");
        }
        assert_eq!(ends.len(), 2 * (1 + 1 + 3), "titles, heads and rows");
    }
}
