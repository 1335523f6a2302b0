//! What the sections of a page collect while they are written.

use super::page::{Cell, NONE, Page, or_dash};
use crate::Bars;
use weir_analysis::verdict::Verdict;
use weir_image::Result;

/// The most bars in a picture.
const BARS: usize = 40;

/// A page under construction: the sections, and what stands ahead of them.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The sections.
    pub body: Page,
    /// What went wrong in the run, or is missing.
    pub warnings: Vec<String>,
    /// What the verdict rests on.
    pub assumptions: Vec<String>,
    /// The objects with a verdict: name, verdict and reason.
    pub findings: Vec<(String, Verdict, String)>,
    /// The rows of the table of limits.
    limits: Vec<Vec<Cell>>,
    /// Observed maxima as a part of their limits.
    ratios: Vec<(String, f64)>,
}

impl Draft {
    /// Adds the finding on an object.
    pub fn finding(&mut self, name: &str, finding: Option<(Verdict, String)>) -> Option<Verdict> {
        let (verdict, reason) = finding?;
        self.findings.push((name.to_owned(), verdict, reason));
        Some(verdict)
    }

    /// Adds a limit of an object with the observed maximum, both in `unit`.
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    pub fn limit(
        &mut self,
        name: &str,
        [kind, unit]: [&'static str; 2],
        (observed, limit): (Option<u64>, Option<u64>),
        verdict: Option<Verdict>,
    ) {
        let pair = observed.zip(limit).filter(|(_, limit)| *limit > 0);
        let ratio = pair.map(|(observed, limit)| observed as f64 / limit as f64);
        self.limits.push(vec![
            name.into(),
            kind.into(),
            or_dash(limit).into(),
            or_dash(observed).into(),
            unit.into(),
            ratio.map_or_else(|| NONE.to_owned(), |ratio| format!("{ratio:.3}")).into(),
            verdict.map_or_else(|| NONE.into(), Cell::Verdict),
        ]);
        self.ratios.extend(ratio.map(|ratio| (format!("{name}: {kind}"), ratio)));
    }

    /// Returns the section on limits: a table, and a picture of the greatest ratios.
    pub fn limits(&mut self) -> Result<Page> {
        let mut page = Page::default();
        if self.limits.is_empty() {
            return Ok(page);
        }
        page.element("h2", "", "Limits and observed maxima");
        let header =
            ["object", "limit", "value", "observed", "unit", "observed / limit", "verdict"];
        page.table(&header, &self.limits);
        self.ratios.sort_by(|a, b| b.1.total_cmp(&a.1));
        let all = self.ratios.len();
        self.ratios.truncate(BARS);
        let caption = match (all, all > BARS) {
            (0, _) => return Ok(page),
            (_, false) => "Observed maximum / limit. Bars above 2 are cut.".to_owned(),
            _ => format!(
                "Observed maximum / limit: the {BARS} greatest of {all}, which the table has. Bars \
                 above 2 are cut."
            ),
        };
        page.figure(&Bars(std::mem::take(&mut self.ratios)).svg()?, &caption);
        Ok(page)
    }
}
