//! Statements: the published values, the computed or measured ones, and whether the two agree.
//!
//! A statement is data: own values and a [`Relation`] that they must satisfy. Published values are
//! typed in from the papers. Where an own value is known to differ, a [`Deviation`] gives the
//! reason and the values that it explains; with any other value the statement fails, and so does a
//! listed deviation that no longer occurs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    ops::AddAssign,
};

/// The origin of the value or the claim that a statement compares with. The kinds are counted and
/// shown apart, because only the first one is evidence for a paper.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum StatementKind {
    /// A number or a sentence of a paper, to which nothing was fitted.
    Published,
    /// Separate code: a second implementation of the equations, or another hypervisor that is
    /// measured by the same rule.
    CrossCheck,
    /// weir's documentation or model, or a number that a parameter was fitted to.
    Own,
}

impl StatementKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Published, Self::CrossCheck, Self::Own];

    /// The name, as JSON has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::CrossCheck => "cross-check",
            Self::Own => "own",
        }
    }

    /// What the statements of this kind compare with.
    const fn compared_with(self) -> &'static str {
        match self {
            Self::Published => "with a number or a sentence of a paper",
            Self::CrossCheck => "with separate code",
            Self::Own => "with weir's documentation or model, or with a number that was fitted",
        }
    }
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimSource {
    /// The kind of its statements.
    pub kind: StatementKind,
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
        ClaimSource { kind: StatementKind::Published, paper: self.0, place }
    }
}

impl ClaimSource {
    /// Returns a place in weir's documentation.
    #[must_use]
    pub const fn own(place: &'static str) -> Self {
        Self { kind: StatementKind::Own, paper: "weir", place }
    }

    /// Returns the same place for statements whose expected values separate code gives.
    #[must_use]
    pub const fn by_separate_code(self) -> Self {
        Self { kind: StatementKind::CrossCheck, ..self }
    }

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
            fitted: None,
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

    /// The value that own values must be near, where there is one.
    const fn center(self) -> Option<f64> {
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
    /// The parameter that was fitted to the published value, if there is one.
    pub fitted: Option<&'static str>,
}

impl Statement {
    /// With this unit.
    #[must_use]
    pub fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Names the parameter that was fitted to the published value, which makes the statement one of
    /// weir's own: a parameter is not judged by the number that it was fitted to.
    #[must_use]
    pub fn fitted(self, parameter: &'static str) -> Self {
        Self { fitted: Some(parameter), ..self }
    }

    /// Returns the kind: that of the source, except for a number that a parameter was fitted to.
    #[must_use]
    pub const fn kind(&self) -> StatementKind {
        if self.fitted.is_some() { StatementKind::Own } else { self.source.kind }
    }

    /// Returns the number that the paper prints, also if a parameter was fitted to it.
    fn published(&self) -> Option<f64> {
        let is_in_paper = self.source.kind == StatementKind::Published;
        self.relation.center().filter(|_| is_in_paper)
    }
}

/// How many statements of one kind hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatementCounts {
    /// All statements of the kind.
    pub statements: usize,
    /// Those that hold.
    pub hold: usize,
    /// Those that a listed deviation explains.
    pub known_deviations: usize,
    /// Those by which the experiment fails.
    pub fail: usize,
}

impl AddAssign for StatementCounts {
    fn add_assign(&mut self, other: Self) {
        self.statements += other.statements;
        self.hold += other.hold;
        self.known_deviations += other.known_deviations;
        self.fail += other.fail;
    }
}

impl FromIterator<StatementVerdict> for StatementCounts {
    fn from_iter<T: IntoIterator<Item = StatementVerdict>>(verdicts: T) -> Self {
        let mut counts = Self::default();
        for verdict in verdicts {
            counts.statements += 1;
            match verdict {
                StatementVerdict::Holds => counts.hold += 1,
                StatementVerdict::Known => counts.known_deviations += 1,
                StatementVerdict::Fails | StatementVerdict::Obsolete => counts.fail += 1,
            }
        }
        counts
    }
}

impl fmt::Display for StatementCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { statements, hold, known_deviations, fail } = self;
        let plural = if *statements == 1 { "" } else { "s" };
        write!(
            f,
            "{statements} statement{plural}: {hold} hold, {known_deviations} known deviations, \
             {fail} fail"
        )
    }
}

/// Statements that are known not to hold, and why.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// The name.
    pub id: &'static str,
    /// Why own values differ.
    pub reason: &'static str,
    /// The statements that hold because they remove the suspected cause. Empty if the reason was
    /// not tested.
    pub tested_by: &'static [&'static str],
    /// The statements, each with the own values that the reason explains.
    pub of: &'static [(&'static str, Relation)],
}

/// The verdict on a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StatementVerdict {
    /// It holds.
    #[serde(rename = "holds")]
    Holds,
    /// It does not, and no deviation explains its values.
    #[serde(rename = "does not hold")]
    Fails,
    /// It does not hold, and a listed deviation explains it.
    #[serde(rename = "known deviation")]
    Known,
    /// It holds, but a deviation is listed for it.
    #[serde(rename = "deviation is gone")]
    Obsolete,
}

impl StatementVerdict {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "does not hold",
            Self::Known => "known deviation",
            Self::Obsolete => "deviation is gone",
        }
    }
}

/// A statement, its verdict, and the deviation that is listed for it.
#[derive(Clone, Debug)]
struct JudgedStatement {
    statement: Statement,
    verdict: StatementVerdict,
    deviation: Option<&'static Deviation>,
}

/// A statement in a JSON result.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatementRecord {
    /// The name, unique in the experiment.
    pub id: String,
    /// The origin of what it compares with.
    pub kind: StatementKind,
    /// The name of the paper, or `weir`.
    pub paper: String,
    /// The section, figure or table.
    pub place: String,
    /// The claim.
    pub text: String,
    /// The number that the paper prints.
    pub published: Option<f64>,
    /// The relation that the own values must satisfy.
    pub expected: String,
    /// The computed or measured values.
    pub own: Vec<f64>,
    /// The unit of all values.
    pub unit: String,
    /// The parameter that was fitted to the published number.
    pub fitted: Option<String>,
    /// The verdict.
    pub verdict: StatementVerdict,
    /// The deviation that explains the values.
    pub deviation: Option<DeviationRecord>,
}

/// A known deviation in a JSON result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviationRecord {
    /// The name.
    pub id: String,
    /// Why the own values differ.
    pub reason: String,
    /// The statements that hold because they remove the suspected cause; empty if the reason was
    /// not tested.
    pub tested_by: Vec<String>,
}

/// All statements of an experiment with their verdicts.
#[derive(Clone, Debug)]
pub struct Judged {
    statements: Vec<JudgedStatement>,
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
            let listed = listed().find(|(_, (id, _))| *id == statement.id);
            let verdict = match (statement.relation.holds(&statement.own), listed) {
                (true, None) => StatementVerdict::Holds,
                (true, Some(_)) => StatementVerdict::Obsolete,
                (false, Some((_, (_, known)))) if known.holds(&statement.own) => {
                    StatementVerdict::Known
                }
                (false, _) => StatementVerdict::Fails,
            };
            match (verdict, listed) {
                (StatementVerdict::Fails, _) => failures.push(format!(
                    "{}: {} ({}{})",
                    statement.id,
                    own(&statement),
                    statement.relation,
                    listed.map_or(String::new(), |(deviation, (_, known))| format!(
                        "; deviation {} explains only {known}",
                        deviation.id
                    ))
                )),
                (StatementVerdict::Obsolete, Some((deviation, _))) => failures.push(format!(
                    "{}: holds, so remove it from deviation {}",
                    statement.id, deviation.id
                )),
                _ => {}
            }
            let explains = verdict != StatementVerdict::Fails;
            let deviation = listed.filter(|_| explains).map(|(deviation, _)| deviation);
            judged.push(JudgedStatement { statement, verdict, deviation });
        }
        if judged.is_empty() {
            failures.push("the experiment judged nothing".to_owned());
        }
        let missing = listed().filter(|(_, (id, _))| whole && !ids.contains(*id));
        failures.extend(missing.map(|(deviation, (id, _))| {
            format!("deviation {} names {id}, which is no statement", deviation.id)
        }));
        for deviation in deviations {
            for test in deviation.tested_by {
                let its = judged.iter().find(|judged| judged.statement.id == *test);
                let holds = its.map(|judged| judged.verdict == StatementVerdict::Holds);
                // A part of the statements can be without the test.
                if !holds.unwrap_or(!whole) {
                    let id = deviation.id;
                    failures.push(format!("deviation {id} is tested by {test}, which must hold"));
                }
            }
        }
        Self { statements: judged, failures }
    }

    /// Counts the statements of a kind.
    #[must_use]
    pub fn counts(&self, kind: StatementKind) -> StatementCounts {
        self.of_kind(kind).map(|judged| judged.verdict).collect()
    }

    /// Returns the counts of all kinds.
    #[must_use]
    pub fn all_counts(&self) -> BTreeMap<StatementKind, StatementCounts> {
        StatementKind::ALL.into_iter().map(|kind| (kind, self.counts(kind))).collect()
    }

    fn of_kind(&self, kind: StatementKind) -> impl Iterator<Item = &JudgedStatement> + Clone {
        self.statements.iter().filter(move |judged| judged.statement.kind() == kind)
    }

    /// For a person: the statements by kind, and the counts of each kind.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let kinds = || {
            let all = StatementKind::ALL.into_iter();
            all.filter(|kind| self.of_kind(*kind).next().is_some())
        };
        for kind in kinds() {
            let _ = writeln!(text, "{}, compared {}:", kind.name(), kind.compared_with());
            for judged in self.of_kind(kind) {
                add_statement(&mut text, judged);
            }
            text.push('\n');
        }
        for kind in kinds() {
            let _ = writeln!(text, "{:11}  {}", kind.name(), self.counts(kind));
        }
        text
    }

    /// Returns the statements as a JSON result has them.
    #[must_use]
    pub fn records(&self) -> Vec<StatementRecord> {
        self.statements.iter().map(JudgedStatement::record).collect()
    }
}

impl JudgedStatement {
    fn record(&self) -> StatementRecord {
        let Self { statement, verdict, deviation } = self;
        StatementRecord {
            id: statement.id.clone(),
            kind: statement.kind(),
            paper: statement.source.paper.to_owned(),
            place: statement.source.place.to_owned(),
            text: statement.text.clone(),
            published: statement.published(),
            expected: statement.relation.to_string(),
            own: statement.own.clone(),
            unit: statement.unit.to_owned(),
            fitted: statement.fitted.map(str::to_owned),
            verdict: *verdict,
            deviation: deviation.map(|deviation| DeviationRecord {
                id: deviation.id.to_owned(),
                reason: deviation.reason.to_owned(),
                tested_by: deviation.tested_by.iter().map(|test| (*test).to_owned()).collect(),
            }),
        }
    }
}

/// Adds the lines of a statement for a person.
fn add_statement(
    text: &mut String,
    JudgedStatement { statement, verdict, deviation }: &JudgedStatement,
) {
    let ClaimSource { paper, place, .. } = statement.source;
    let _ = writeln!(
        text,
        "{:17} {}\n{:17}   value {}; expected {} ({paper}, {place})",
        verdict.text(),
        statement.text,
        "",
        own(statement),
        statement.relation,
    );
    if let Some(parameter) = statement.fitted {
        let _ = writeln!(text, "{:17}   fitted to the expected value: {parameter}", "");
    }
    if let Some(Deviation { id, reason, tested_by, .. }) = deviation {
        let tested = match tested_by {
            [] => "not tested".to_owned(),
            tests => format!("tested by {}", tests.join(", ")),
        };
        let _ = writeln!(text, "{:17}   {id}: {reason} ({tested})", "");
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
            judged.statements.iter().map(|judged| judged.statement.id.clone()).collect();
        for place in 0..values(&mut good.clone()).len() {
            for (factor, more) in CHANGES {
                let mut broken = good.clone();
                values(&mut broken)[place].change(factor, more);
                let judged = Judged::new(statements(&broken), deviations, true);
                for JudgedStatement { statement, verdict, .. } in judged.statements {
                    if matches!(verdict, StatementVerdict::Fails | StatementVerdict::Obsolete) {
                        left.remove(&statement.id);
                    }
                }
            }
        }
        assert!(left.is_empty(), "no changed measurement makes these fail: {left:?}");
    }

    const PAPER: ClaimSource = Paper("paper").at("Table I");

    static DEVIATIONS: [Deviation; 1] = [Deviation {
        id: "slow",
        reason: "it is slow",
        tested_by: &[],
        of: &[("a", Relation::Near(8.0, 1.0))],
    }];

    fn verdict(relation: Relation, own: f64) -> (&'static str, Vec<String>) {
        let judged = Judged::new(vec![PAPER.says("a", "a", relation, [own])], &DEVIATIONS, true);
        (judged.statements[0].verdict.text(), judged.failures)
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
    fn a_test_of_a_deviation_must_hold() {
        static TESTED: [Deviation; 1] = [Deviation { tested_by: &["b"], ..DEVIATIONS[0] }];
        let known = || PAPER.says("a", "a", Relation::Within(10.0, 0.01), [8.5]);
        let failures = |test: Option<f64>, whole| {
            let test = test.map(|own| PAPER.says("b", "b", Relation::Within(10.0, 0.01), [own]));
            let statements = std::iter::once(known()).chain(test).collect();
            let judged = Judged::new(statements, &TESTED, whole);
            let deviation = judged.records()[0].deviation.clone();
            assert_eq!(deviation.map(|it| it.tested_by), Some(vec!["b".to_owned()]));
            judged.failures
        };
        assert_eq!(failures(Some(10.0), true), [""; 0]);
        let failed = "deviation slow is tested by b, which must hold".to_owned();
        assert!(failures(Some(8.5), true).contains(&failed));
        assert_eq!(failures(None, true), [failed]);
        assert_eq!(failures(None, false), [""; 0]);
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
        let json = serde_json::to_value(judged.records()).unwrap();
        assert_eq!(json[0]["verdict"], "known deviation");
        assert_eq!((&json[0]["published"], &json[0]["own"][0]), (&10.0.into(), &8.0.into()));
        assert_eq!(json[0]["deviation"]["reason"], "it is slow");
        assert_eq!(json[1]["verdict"], "does not hold");
        assert!(json[1]["deviation"].is_null());
        assert!(judged.text().contains("2 statements: 0 hold, 1 known deviations, 1 fail"));
    }

    #[test]
    fn the_kinds_are_counted_and_shown_apart() {
        let holds = Relation::Near(1.0, 0.5);
        let statements = vec![
            PAPER.says("b", "the paper", holds, [1.0]),
            PAPER.by_separate_code().says("c", "the code", holds, [2.0]),
            ClaimSource::own("docs").says("d", "the docs", holds, [1.0]),
            PAPER.says("e", "the fit", holds, [1.0]).fitted("a key of a file"),
        ];
        let judged = Judged::new(statements, &[], true);
        let records = judged.records();
        let kinds: Vec<_> = records.iter().map(|record| record.kind.name()).collect();
        assert_eq!(kinds, ["published", "cross-check", "own", "own"]);
        // The paper prints the number, also if a parameter was fitted to it.
        let published: Vec<_> = records.iter().map(|record| record.published).collect();
        assert_eq!(published, [Some(1.0), None, None, Some(1.0)]);
        let fitted: Vec<_> = records.iter().map(|record| record.fitted.as_deref()).collect();
        assert_eq!(fitted[2..], [None, Some("a key of a file")]);
        let of = |statements, hold, fail| StatementCounts {
            statements,
            hold,
            known_deviations: 0,
            fail,
        };
        let counts = [of(1, 1, 0), of(1, 0, 1), of(2, 2, 0)];
        assert_eq!(StatementKind::ALL.map(|kind| judged.counts(kind)), counts);
        assert_eq!(judged.all_counts()[&StatementKind::Own], counts[2]);
        let text = judged.text();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let headings = ["published, compared", "cross-check, compared", "own, compared"].map(at);
        let claims = ["the paper", "the code", "the docs"].map(|claim| at(&format!("  {claim}\n")));
        assert!(headings[0] < claims[0] && claims[0] < headings[1], "{text}");
        assert!(headings[1] < claims[1] && claims[1] < headings[2], "{text}");
        assert!(headings[2] < claims[2] && text.contains("value: a key of a file\n"), "{text}");
        assert!(text.ends_with("own          2 statements: 2 hold, 0 known deviations, 0 fail\n"));
    }
}
