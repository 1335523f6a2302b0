//! Statements: the published values, the computed or measured ones, and whether the two agree.
//!
//! A statement is data: own values and a [`Relation`] that they must satisfy. Published values are
//! typed in from the papers. Where an own value is known to differ, a [`Deviation`] gives the
//! reason and the values that it explains; with any other value the statement fails, and so does a
//! listed deviation that no longer occurs.

use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
};

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimSource {
    /// Name of the paper, or `weir` for a claim of weir's own documentation.
    pub paper: &'static str,
    /// Section, figure or table.
    pub place: &'static str,
}

/// A paper of which several places are sources.
#[derive(Clone, Copy, Debug)]
pub struct Paper(pub &'static str);

impl Paper {
    /// One of its places.
    #[must_use]
    pub const fn at(self, place: &'static str) -> ClaimSource {
        ClaimSource { paper: self.0, place }
    }
}

impl ClaimSource {
    /// A statement of this source. Values that were not measured are left out of `own`: without any
    /// the statement fails.
    pub fn says(
        self,
        id: impl Into<String>,
        text: impl Into<String>,
        relation: Relation,
        own: impl Into<Vec<f64>>,
    ) -> Statement {
        Statement {
            id: id.into(),
            source: self,
            text: text.into(),
            relation,
            own: own.into(),
            unit: "",
            fitted: false,
        }
    }
}

/// A table of statements, one a row: the source, the name, the claim, the relation, the own values,
/// and the unit if there is one. Names and claims are formats.
macro_rules! statements {
    ($($source:expr, $id:literal, $text:literal => $relation:expr, $own:expr $(, $unit:literal)?;)*) => {
        vec![$($source.says(format!($id), format!($text), $relation, $own)$(.unit($unit))?,)*]
    };
}
pub(crate) use statements;

/// The relation that own values must satisfy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Relation {
    /// Each is within a share of the published value.
    Within(f64, f64),
    /// Each is within a distance of the published value.
    Near(f64, f64),
    /// Each is this much at most.
    AtMost(f64),
    /// Each is this much at least.
    AtLeast(f64),
    /// Each is less.
    Below(f64),
    /// Each is more.
    Above(f64),
    /// Each is more than the one before, by at least so much.
    RisingBy(f64),
    /// None is less than the one before by more than so much.
    NotFalling(f64),
}

impl Relation {
    /// Exactly the published value.
    #[must_use]
    pub const fn exactly(published: f64) -> Self {
        Self::Near(published, 0.0)
    }

    /// Whether `own` satisfies it. Without a value, or with one that is no number, it does not.
    #[must_use]
    pub fn holds(self, own: &[f64]) -> bool {
        let each = |test: &dyn Fn(f64) -> bool| !own.is_empty() && own.iter().all(|&own| test(own));
        let pairs = |test: &dyn Fn(f64) -> bool| {
            own.len() > 1 && own.windows(2).all(|pair| test(pair[1] - pair[0]))
        };
        match self {
            Self::Within(published, share) => {
                each(&|own| (own - published).abs() <= share * published.abs())
            }
            Self::Near(published, by) => each(&|own| (own - published).abs() <= by),
            Self::AtMost(most) => each(&|own| own <= most),
            Self::AtLeast(least) => each(&|own| own >= least),
            Self::Below(limit) => each(&|own| own < limit),
            Self::Above(limit) => each(&|own| own > limit),
            Self::RisingBy(least) => pairs(&|more| more >= least),
            Self::NotFalling(most) => pairs(&|more| more >= -most),
        }
    }

    /// The published value, where there is one.
    const fn published(self) -> Option<f64> {
        match self {
            Self::Within(published, _) | Self::Near(published, _) => Some(published),
            _ => None,
        }
    }
}

/// Without meaningless digits.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        a if a >= 1000.0 => 1,
        a if a >= 10.0 => 2,
        a if a >= 0.01 || a == 0.0 => 4,
        _ => 8,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Within(published, share) => {
                write!(f, "{} within {} %", number(published), number(100.0 * share))
            }
            Self::Near(published, 0.0) => write!(f, "{}", number(published)),
            Self::Near(published, by) => write!(f, "{} within {}", number(published), number(by)),
            Self::AtMost(most) => write!(f, "at most {}", number(most)),
            Self::AtLeast(least) => write!(f, "at least {}", number(least)),
            Self::Below(limit) => write!(f, "below {}", number(limit)),
            Self::Above(limit) => write!(f, "above {}", number(limit)),
            Self::RisingBy(least) => write!(f, "each higher by {} or more", number(least)),
            Self::NotFalling(most) => write!(f, "none lower by more than {}", number(most)),
        }
    }
}

/// A claim and the own values.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Its name, unique in the experiment.
    pub id: String,
    /// Where it stands.
    pub source: ClaimSource,
    /// The claim.
    pub text: String,
    /// The relation that the own values must satisfy.
    pub relation: Relation,
    /// The computed or measured values.
    pub own: Vec<f64>,
    /// Unit of all values.
    pub unit: &'static str,
    /// Whether a parameter of the model was fitted to the published value.
    pub fitted: bool,
}

impl Statement {
    /// With this unit.
    #[must_use]
    pub fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }
}

/// Statements that are known not to hold, and why.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// Its name.
    pub id: &'static str,
    /// Why own values differ.
    pub reason: &'static str,
    /// The statements, each with the own values that the reason explains.
    pub of: &'static [(&'static str, Relation)],
}

/// The verdict on a statement.
#[derive(Clone, Copy, Debug)]
pub enum StatementVerdict {
    /// It holds.
    Holds,
    /// It does not, and no deviation explains its values.
    Fails,
    /// It does not hold, and a listed deviation explains it.
    Known(&'static Deviation),
    /// It holds, but a deviation is listed for it.
    Obsolete(&'static Deviation),
}

impl StatementVerdict {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "does not hold",
            Self::Known(_) => "known deviation",
            Self::Obsolete(_) => "deviation is gone",
        }
    }

    /// Whether the experiment fails by it.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Fails | Self::Obsolete(_))
    }

    const fn deviation(self) -> Option<&'static Deviation> {
        match self {
            Self::Known(deviation) | Self::Obsolete(deviation) => Some(deviation),
            Self::Holds | Self::Fails => None,
        }
    }
}

/// All statements of an experiment with their verdicts.
#[derive(Clone, Debug)]
pub struct Judged {
    statements: Vec<(Statement, StatementVerdict)>,
    /// The reasons for which the experiment fails.
    pub failures: Vec<String>,
}

impl Judged {
    /// Judges statements. `whole`: all of them are there, so that a deviation of another one is a
    /// mistake.
    #[must_use]
    pub fn new(statements: Vec<Statement>, deviations: &'static [Deviation], whole: bool) -> Self {
        let listed = || deviations.iter().flat_map(|each| each.of.iter().map(move |of| (each, of)));
        let mut failures = Vec::new();
        let mut ids = BTreeSet::new();
        let mut judged = Vec::new();
        for statement in statements {
            if !ids.insert(statement.id.clone()) {
                failures.push(format!("{}: two statements have this name", statement.id));
            }
            let deviation = listed().find(|(_, (id, _))| *id == statement.id);
            let verdict = match (statement.relation.holds(&statement.own), deviation) {
                (true, None) => StatementVerdict::Holds,
                (true, Some((deviation, _))) => StatementVerdict::Obsolete(deviation),
                (false, Some((deviation, (_, known)))) if known.holds(&statement.own) => {
                    StatementVerdict::Known(deviation)
                }
                (false, _) => StatementVerdict::Fails,
            };
            match verdict {
                StatementVerdict::Fails => failures.push(format!(
                    "{}: {} ({}{})",
                    statement.id,
                    own(&statement),
                    statement.relation,
                    deviation.map_or(String::new(), |(deviation, (_, known))| format!(
                        "; deviation {} explains only {known}",
                        deviation.id
                    ))
                )),
                StatementVerdict::Obsolete(deviation) => failures.push(format!(
                    "{}: holds, so remove it from deviation {}",
                    statement.id, deviation.id
                )),
                StatementVerdict::Holds | StatementVerdict::Known(_) => {}
            }
            judged.push((statement, verdict));
        }
        if judged.is_empty() {
            failures.push("the experiment judged nothing".to_owned());
        }
        let missing = listed().filter(|(_, (id, _))| whole && !ids.contains(*id));
        failures.extend(missing.map(|(deviation, (id, _))| {
            format!("deviation {} names {id}, which is no statement", deviation.id)
        }));
        Self { statements: judged, failures }
    }

    fn count(&self, test: impl Fn(StatementVerdict) -> bool) -> usize {
        self.statements.iter().filter(|(_, verdict)| test(*verdict)).count()
    }

    /// For a person.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (statement, verdict) in &self.statements {
            let ClaimSource { paper, place } = statement.source;
            let fitted = if statement.fitted { ", fitted" } else { "" };
            let _ = write!(
                text,
                "{:17} {}\n{:17}   own {}; expected {}{fitted} ({paper}, {place})\n",
                verdict.text(),
                statement.text,
                "",
                own(statement),
                statement.relation,
            );
            if let Some(Deviation { id, reason, .. }) = verdict.deviation() {
                let _ = writeln!(text, "{:17}   {id}: {reason}", "");
            }
        }
        text + &format!(
            "{} statements: {} hold, {} known deviations, {} fail\n",
            self.statements.len(),
            self.count(|verdict| matches!(verdict, StatementVerdict::Holds)),
            self.count(|verdict| matches!(verdict, StatementVerdict::Known(_))),
            self.count(StatementVerdict::is_failure),
        )
    }

    /// For a program.
    #[must_use]
    pub fn json(&self) -> Value {
        let each = self.statements.iter().map(|(statement, verdict)| {
            json!({
                "id": statement.id,
                "paper": statement.source.paper,
                "place": statement.source.place,
                "text": statement.text,
                "published": statement.relation.published(),
                "expected": statement.relation.to_string(),
                "own": statement.own,
                "unit": statement.unit,
                "fitted": statement.fitted,
                "verdict": verdict.text(),
                "deviation": verdict.deviation().map(|deviation| json!({
                    "id": deviation.id, "reason": deviation.reason,
                })),
            })
        });
        each.collect()
    }
}

/// The own values of a statement.
fn own(statement: &Statement) -> String {
    if statement.own.is_empty() {
        return "not measured".to_owned();
    }
    let own: Vec<_> = statement.own.iter().map(|own| number(*own)).collect();
    let unit = if statement.unit.is_empty() { "" } else { " " };
    format!("{}{unit}{}", own.join(", "), statement.unit)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A measured value that a test can change.
    pub trait Change {
        /// Multiplies and adds.
        fn change(&mut self, factor: f64, more: f64);
    }

    impl Change for f64 {
        fn change(&mut self, factor: f64, more: f64) {
            *self = *self * factor + more;
        }
    }

    impl Change for u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a small test value"
        )]
        fn change(&mut self, factor: f64, more: f64) {
            *self = (*self as f64 * factor + more) as Self;
        }
    }

    /// Factors by which measured values are changed, and what is added.
    const CHANGES: [(f64, f64); 11] = [
        (0.0, 0.0),
        (0.5, 0.0),
        (0.67, 0.0),
        (0.8, 0.0),
        (0.97, 0.0),
        (1.03, 0.0),
        (1.5, 0.0),
        (2.0, 0.0),
        (20.0, 0.0),
        (1.0, 1.0),
        (1.0, 2.0),
    ];

    /// Checks that all statements of `good` hold or are known deviations, and that each of them
    /// fails with at least one of the broken measurements: `values` gives the measured values, of
    /// which one at a time is changed.
    pub fn each_can_fail<M: Clone>(
        good: &M,
        deviations: &'static [Deviation],
        statements: impl Fn(&M) -> Vec<Statement>,
        values: impl Fn(&mut M) -> Vec<&mut dyn Change>,
    ) {
        let judged = Judged::new(statements(good), deviations, true);
        assert_eq!(judged.failures, [""; 0], "{}", judged.text());
        let mut left: BTreeSet<String> =
            judged.statements.iter().map(|(statement, _)| statement.id.clone()).collect();
        for place in 0..values(&mut good.clone()).len() {
            for (factor, more) in CHANGES {
                let mut broken = good.clone();
                values(&mut broken)[place].change(factor, more);
                let judged = Judged::new(statements(&broken), deviations, true);
                for (statement, verdict) in judged.statements {
                    if verdict.is_failure() {
                        left.remove(&statement.id);
                    }
                }
            }
        }
        assert!(left.is_empty(), "no changed measurement makes these fail: {left:?}");
    }

    const PAPER: ClaimSource = ClaimSource { paper: "paper", place: "Table I" };

    static DEVIATIONS: [Deviation; 1] =
        [Deviation { id: "slow", reason: "it is slow", of: &[("a", Relation::Near(8.0, 1.0))] }];

    fn verdict(relation: Relation, own: f64) -> (&'static str, Vec<String>) {
        let judged = Judged::new(vec![PAPER.says("a", "a", relation, [own])], &DEVIATIONS, true);
        (judged.statements[0].1.text(), judged.failures)
    }

    #[test]
    fn a_deviation_explains_only_its_own_values() {
        let wanted = Relation::Within(10.0, 0.01);
        assert_eq!(verdict(wanted, 8.5), ("known deviation", vec![]));
        let (text, failures) = verdict(wanted, 5.0);
        assert_eq!(text, "does not hold");
        assert_eq!(failures, ["a: 5 (10 within 1 %; deviation slow explains only 8 within 1)"]);
        let (text, failures) = verdict(wanted, 10.05);
        assert_eq!(text, "deviation is gone");
        assert_eq!(failures, ["a: holds, so remove it from deviation slow"]);
    }

    #[test]
    fn a_deviation_without_statement_fails() {
        let other = || vec![PAPER.says("b", "b", Relation::Above(1.0), [2.0])];
        assert_eq!(
            Judged::new(other(), &DEVIATIONS, true).failures,
            ["deviation slow names a, which is no statement"]
        );
        assert!(Judged::new(other(), &DEVIATIONS, false).failures.is_empty());
        assert_eq!(Judged::new(vec![], &[], true).failures, ["the experiment judged nothing"]);
        let twice = [other(), other()].concat();
        assert_eq!(Judged::new(twice, &[], true).failures.len(), 1);
    }

    #[test]
    fn relations_fail_without_number_or_beyond_the_limit() {
        for (relation, good, bad) in [
            (Relation::Within(100.0, 0.02), &[98.0, 102.0][..], &[97.9][..]),
            (Relation::Near(-1.0, 0.5), &[-1.5], &[-0.4]),
            (Relation::exactly(3.0), &[3.0], &[3.000_001]),
            (Relation::AtMost(0.0), &[0.0], &[1.0]),
            (Relation::AtLeast(5.0), &[5.0], &[4.9]),
            (Relation::Below(5.0), &[4.9], &[5.0]),
            (Relation::Above(5.0), &[5.1], &[5.0]),
            (Relation::RisingBy(1.0), &[1.0, 2.0, 3.0], &[1.0, 2.0, 2.9]),
            (Relation::NotFalling(0.1), &[1.0, 0.95, 2.0], &[1.0, 0.8]),
        ] {
            assert!(relation.holds(good), "{relation}");
            for bad in [bad, &[f64::NAN], &[f64::NAN, f64::NAN], &[]] {
                assert!(!relation.holds(bad), "{relation}: {bad:?}");
            }
        }
    }

    #[test]
    fn the_json_names_source_values_and_deviation() {
        let statements = vec![
            PAPER.says("a", "it takes long", Relation::Within(10.0, 0.01), [8.0]).unit("ms"),
            PAPER.says("b", "it ends", Relation::AtMost(1.0), []),
        ];
        let judged = Judged::new(statements, &DEVIATIONS, true);
        let json = judged.json();
        assert_eq!(json[0]["verdict"], "known deviation");
        assert_eq!((&json[0]["published"], &json[0]["own"][0]), (&10.0.into(), &8.0.into()));
        assert_eq!(json[0]["deviation"]["reason"], "it is slow");
        assert_eq!(
            (&json[1]["verdict"], &json[1]["deviation"]),
            (&"does not hold".into(), &Value::Null)
        );
        assert!(judged.text().contains("2 statements: 0 hold, 1 known deviations, 1 fail"));
    }
}
