//! The text of a [`WhyReport`]: a table of sums and a line of time.

use super::{SubjectKind, TimePart, WhyReport};
use crate::{paragraph, table};
use std::fmt;

/// Columns of the line of time.
const COLUMNS: u64 = 60;
/// The letters of the line of time; later rows of the table share the last one.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?";

/// The parts with one name, VM, core and term.
#[derive(Debug)]
struct Sum<'a> {
    first: &'a TimePart,
    times: u64,
    ns: u64,
}

impl Sum<'_> {
    fn has(&self, part: &TimePart) -> bool {
        (&self.first.what, &self.first.vm, self.first.core, &self.first.term)
            == (&part.what, &part.vm, part.core, &part.term)
    }
}

impl WhyReport {
    fn sums(&self) -> Vec<Sum<'_>> {
        let mut sums: Vec<Sum<'_>> = Vec::new();
        for part in &self.parts {
            match sums.iter_mut().find(|sum| sum.has(part)) {
                Some(sum) => {
                    (sum.times, sum.ns) = (sum.times + 1, sum.ns.saturating_add(part.ns));
                }
                None => sums.push(Sum { first: part, times: 1, ns: part.ns }),
            }
        }
        sums
    }

    /// Returns what the parts sum to, in one sentence.
    fn title(&self) -> String {
        let Self { name, count, total_ns, .. } = self;
        let number = self.number.unwrap_or(0);
        match self.kind {
            SubjectKind::Flow => {
                format!("flow {name}, packet {number} of {count}: latency {total_ns} ns")
            }
            SubjectKind::Task => {
                format!("task {name}, activation {number} of {count}: response {total_ns} ns")
            }
            SubjectKind::Budget => {
                format!("memory budget {name}, period {number} of {count}: {total_ns} ns")
            }
        }
    }

    /// Returns bound, deadline and verdict; none without any.
    fn limits(&self) -> Option<String> {
        let word = if self.kind == SubjectKind::Task { "response" } else { "latency" };
        let bound = self.bound_ns.map(|ns| {
            let ratio = self
                .total_ns
                .saturating_mul(1000)
                .checked_div(ns)
                .map(|ratio| format!(" ({word}/bound {}.{:03})", ratio / 1000, ratio % 1000));
            format!("bound {ns} ns{}", ratio.unwrap_or_default())
        });
        let late = |ns: u64| match self.total_ns.checked_sub(ns) {
            Some(late @ 1..) => format!(", late by {late} ns"),
            _ => String::new(),
        };
        let deadline = self.deadline_ns.map(|ns| format!("deadline {ns} ns{}", late(ns)));
        let verdict = self.verdict.as_ref().map(|verdict| format!("verdict {verdict}"));
        let all: Vec<_> = [bound, deadline, verdict].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Returns a letter for each column: that of the sum with the most time in it.
    fn line(&self, sums: &[Sum<'_>]) -> String {
        let from = self.parts.first().map_or(0, |part| part.from_ns);
        let total = u128::from(self.total_ns);
        let edge = |column: u64| (total * u128::from(column) / u128::from(COLUMNS)) as u64;
        let column = |column: u64| {
            let [begin, end] = [column, column + 1].map(|column| from.saturating_add(edge(column)));
            let mut most = (0, b' ');
            for (at, sum) in sums.iter().enumerate() {
                let parts = self.parts.iter().filter(|part| sum.has(part));
                let inside = parts.map(|part| {
                    let until = part.from_ns.saturating_add(part.ns).min(end);
                    until.saturating_sub(part.from_ns.max(begin))
                });
                let inside: u64 = inside.sum();
                if inside > most.0 {
                    most = (inside, letter(at));
                }
            }
            char::from(most.1)
        };
        (0..COLUMNS).map(column).collect()
    }
}

fn letter(at: usize) -> u8 {
    LETTERS.get(at).or(LETTERS.last()).copied().unwrap_or(b'?')
}

impl fmt::Display for WhyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&paragraph("", &self.title()))?;
        f.write_str(&paragraph("  ", &format!("run {}", self.run.display())))?;
        if let Some(from) = self.from_ns {
            let (seconds, rest) = (from / 1_000_000_000, from % 1_000_000_000);
            writeln!(f, "  from {seconds}.{rest:09} s after the hypervisor's start")?;
        }
        for line in self.limits().iter().chain(&self.chosen) {
            f.write_str(&paragraph("  ", line))?;
        }
        writeln!(f)?;
        let sums = self.sums();
        let mut rows = table(["", "part", "times", "VM", "core", "ns", "%", "term"])
            .with_numbers([2, 4, 5, 6]);
        for (at, sum) in sums.iter().enumerate() {
            let part = sum.first;
            let total = u128::from(self.total_ns.max(1));
            let permille = (u128::from(sum.ns) * 1000 + total / 2) / total;
            rows.add_row([
                char::from(letter(at)).to_string(),
                part.what.clone(),
                sum.times.to_string(),
                part.vm.clone().unwrap_or_else(|| "-".to_owned()),
                part.core.map_or_else(|| "-".to_owned(), |core| core.to_string()),
                sum.ns.to_string(),
                format!("{}.{}", permille / 10, permille % 10),
                part.term.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        let sum = sums.iter().fold(0u64, |sum, part| sum.saturating_add(part.ns));
        let total = ["", "sum", "", "", "", &sum.to_string(), "", ""].map(str::to_owned);
        rows.add_row(total);
        writeln!(f, "{rows}")?;
        if !sums.is_empty() {
            let column = self.total_ns / COLUMNS;
            writeln!(f, "\n  {}\n  a column is {column} ns", self.line(&sums))?;
        }
        for note in &self.notes {
            f.write_str(&paragraph("note: ", note))?;
        }
        Ok(())
    }
}
