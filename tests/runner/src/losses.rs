//! What the victims of attack tests lost, from the log of the stage qemu. The tests report it by
//! `tests/end-to-end/support/loss.rs`.

use crate::boards::MARK;
use serde_json::{Value, json};

/// Begins the line of a log before the output of a test.
pub const HEADER: &str = "==== ";

/// Returns the losses by test, in the order of their names, as JSON; none if no test reported one.
pub fn from_log(log: &str) -> Option<Value> {
    let mut tests: Vec<(&str, Vec<Value>)> = Vec::new();
    for line in log.lines() {
        let begun = line.strip_prefix(HEADER).and_then(|rest| rest.split_once(' '));
        if let Some((_, name)) = begun {
            tests.push((name, Vec::new()));
        }
        let loss = line.split_once(MARK).and_then(|(_, mark)| mark.strip_prefix("loss: "));
        let loss = loss.and_then(|loss| serde_json::from_str(loss).ok());
        if let (Some((_, losses)), Some(loss)) = (tests.last_mut(), loss) {
            losses.push(loss);
        }
    }
    tests.retain(|(_, losses)| !losses.is_empty());
    tests.sort_by_key(|(name, _)| *name);
    let each = tests.iter().map(|(test, losses)| json!({ "test": test, "losses": losses }));
    (!tests.is_empty()).then(|| json!({ "version": 1, "tests": each.collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_their_tests() {
        let log = "==== cli b\nweir test: ran on qemu-virt\nx weir test: loss: {\"measured\":2}\n\
                   ==== passed, 1.0 s\n\n==== cli c\nweir test: loss: {broken\n==== passed, 2.0 s\n\
                   ==== cli a\nweir test: loss: {\"measured\":1}\n==== passed, 1.0 s\n";
        let expected = json!({ "version": 1, "tests": [
            { "test": "a", "losses": [{ "measured": 1 }] },
            { "test": "b", "losses": [{ "measured": 2 }] },
        ]});
        assert_eq!(from_log(log), Some(expected));
        assert_eq!(from_log("==== cli a\n==== passed, 1.0 s\n"), None);
    }
}
