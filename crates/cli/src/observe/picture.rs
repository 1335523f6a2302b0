//! Both matrices as a picture.

use super::{Outcome, tell::active};
use std::fmt::Write as _;
use weir_observer::caches::{Counts, Observed};

/// Width and height of a field.
const FIELD: (usize, usize) = (96, 30);
/// Room for the names beside and above the fields.
const MARGIN: (usize, usize) = (170, 70);

/// Who evicted whose lines and who closed whose rows, a field for each pair, darker for more. What one does to itself is gray; what
/// it does to another red.
pub fn svg(outcome: &Outcome) -> String {
    let seen = &outcome.seen;
    let shown = active(seen);
    let width = (MARGIN.0 + shown.len() * FIELD.0 + 20).max(520);
    let each = MARGIN.1 + shown.len() * FIELD.1 + 40;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{}\" fill=\"#ffffff\"/>\n",
        2 * each + 30,
        2 * each + 30
    );
    let name = crate::image::name(&outcome.system);
    for (place, (title, counts)) in [
        ("lines of the shared cache: who (row) evicted whose (column)", &seen.l2_evictions),
        ("DRAM rows: who (row) closed whose (column)", &seen.rows_closed),
    ]
    .into_iter()
    .enumerate()
    {
        let title = format!("{name}: {title}; between VMs {}", seen.between_vms(counts));
        matrix(&mut svg, place * each + 10, &title, (seen, counts, &shown));
    }
    svg + "</svg>\n"
}

fn matrix(
    svg: &mut String,
    top: usize,
    title: &str,
    (seen, counts, shown): (&Observed, &Counts, &[usize]),
) {
    text(svg, (20, top + 20), "font-size=\"15\"", title);
    let most = shown.iter().flat_map(|&by| shown.iter().map(move |&of| counts[by][of])).max();
    for (row, &by) in shown.iter().enumerate() {
        let y = top + MARGIN.1 + row * FIELD.1;
        let anchor = "text-anchor=\"end\"";
        text(svg, (MARGIN.0 - 8, y + 20), anchor, &seen.owners[by].name);
        for (column, &of) in shown.iter().enumerate() {
            let x = MARGIN.0 + column * FIELD.0;
            if row == 0 {
                let middle = (x + FIELD.0 / 2, y - 8);
                text(svg, middle, "text-anchor=\"middle\"", &seen.owners[of].name);
            }
            let count = counts[by][of];
            let party = |owner: usize| seen.owners[owner].who.vm();
            let own = by == of || party(by).is_some() && party(by) == party(of);
            let fill = if own { "#5f6b7a" } else { "#c0392b" };
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" stroke=\"#999999\" fill=\"{fill}\" fill-opacity=\"{:.2}\"/>",
                FIELD.0,
                FIELD.1,
                opacity(count, most.unwrap_or(0))
            );
            let middle = (x + FIELD.0 / 2, y + 20);
            text(svg, middle, "text-anchor=\"middle\"", &count.to_string());
        }
    }
}

/// By the logarithm, so that one event in a million shows; up to a half, so that text stays readable.
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
}
