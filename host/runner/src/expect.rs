//! The `expect` lines of a system file, met one by one by the consoles' output.

use super::demux::ConsoleSource;

/// A line that a VM is expected to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The VM's place in the system file.
    pub vm: usize,
    /// What the line must contain.
    pub text: String,
    /// When it was met, in nanoseconds since the hypervisor started.
    pub met_ns: Option<u64>,
    /// Met by a line that has not ended yet, so that its end does not count again.
    unfinished: bool,
}

/// All of them.
///
/// A line meets every text that it contains, once each: a text that is listed three times needs
/// three lines. The order does not matter.
#[derive(Clone, Debug, Default)]
pub struct Expectations(Vec<Expectation>);

impl Expectations {
    /// From pairs of a VM's place and a text.
    pub fn new(texts: impl IntoIterator<Item = (usize, String)>) -> Self {
        let expectation = |(vm, text)| Expectation { vm, text, met_ns: None, unfinished: false };
        Self(texts.into_iter().map(expectation).collect())
    }

    /// Each, in the order of the file.
    pub fn all(&self) -> &[Expectation] {
        &self.0
    }

    /// Those that nothing has met.
    pub fn unmet(&self) -> impl Iterator<Item = &Expectation> {
        self.0.iter().filter(|expectation| expectation.met_ns.is_none())
    }

    /// Whether there are any and all of them have been met.
    pub fn all_met(&self) -> bool {
        !self.0.is_empty() && self.unmet().next().is_none()
    }

    /// Whether a text was met by a line that has not ended yet.
    pub fn is_within_line(&self) -> bool {
        self.0.iter().any(|expectation| expectation.unfinished)
    }

    /// `source` has finished a line at `time_ns`; gives the places of those that it meets.
    pub fn line(&mut self, source: ConsoleSource, text: &str, time_ns: u64) -> Vec<usize> {
        let met = self.meet(source, text, time_ns, false);
        if let ConsoleSource::Vm(vm) = source {
            for expectation in self.0.iter_mut().filter(|expectation| expectation.vm == vm) {
                expectation.unfinished = false;
            }
        }
        met
    }

    /// The line that `source` is writing reads like this so far: a prompt never ends its line.
    pub fn unfinished(&mut self, source: ConsoleSource, text: &str, time_ns: u64) -> Vec<usize> {
        self.meet(source, text, time_ns, true)
    }

    fn meet(
        &mut self,
        source: ConsoleSource,
        line: &str,
        time_ns: u64,
        unfinished: bool,
    ) -> Vec<usize> {
        let ConsoleSource::Vm(vm) = source else {
            return Vec::new();
        };
        let mut met: Vec<usize> = Vec::new();
        for place in 0..self.0.len() {
            let Some(this) = self.0.get(place) else {
                continue;
            };
            if this.vm != vm || this.met_ns.is_some() || !line.contains(&this.text) {
                continue;
            }
            // The same text may stand in the list more than once: one line meets one of them.
            let by_this_line = |(other, expectation): (usize, &Expectation)| {
                expectation.vm == vm
                    && expectation.text == this.text
                    && (met.contains(&other) || expectation.unfinished)
            };
            if self.0.iter().enumerate().any(by_this_line) {
                continue;
            }
            met.push(place);
            if let Some(this) = self.0.get_mut(place) {
                this.met_ns = Some(time_ns);
                this.unfinished = unfinished;
            }
        }
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConsoleSource::{Hypervisor, Vm};

    fn expectations(texts: &[(usize, &str)]) -> Expectations {
        Expectations::new(texts.iter().map(|(vm, text)| (*vm, (*text).to_owned())))
    }

    #[test]
    fn a_line_meets_what_it_contains() {
        let mut expected = expectations(&[(0, "reach"), (0, "reached user space"), (1, "reach")]);
        assert_eq!(expected.line(Vm(0), "linux reached user space", 5), [0, 1]);
        assert!(!expected.all_met());
        assert_eq!(expected.line(Hypervisor, "reach", 6), [0usize; 0]);
        assert_eq!(expected.line(Vm(1), "reach", 7), [2]);
        assert!(expected.all_met());
        assert_eq!(expected.all()[2].met_ns, Some(7));
    }

    #[test]
    fn a_text_listed_thrice_needs_three_lines() {
        let mut expected = expectations(&[(0, "boot"), (0, "boot"), (0, "boot")]);
        for time in 1..=3 {
            assert!(!expected.all_met());
            assert_eq!(expected.line(Vm(0), "boot boot boot", time).len(), 1);
        }
        assert!(expected.all_met());
    }

    #[test]
    fn a_prompt_counts_once() {
        let mut expected = expectations(&[(0, "=> "), (0, "=> ")]);
        assert_eq!(expected.unfinished(Vm(0), "=> ", 1), [0]);
        assert_eq!(expected.unfinished(Vm(0), "=> he", 2), [0usize; 0]);
        assert_eq!(expected.line(Vm(0), "=> help", 3), [0usize; 0]);
        assert_eq!(expected.unfinished(Vm(0), "=> ", 4), [1]);
        assert!(expected.all_met());
    }

    #[test]
    fn nothing_expected_is_never_met() {
        assert!(!Expectations::default().all_met());
    }
}
