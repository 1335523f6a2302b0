//! What the victims of attack tests lost, from the log of the stage qemu. The tests report it by
//! `tests/end-to-end/support/loss.rs`.

use crate::boards::MARK;
use serde_json::{Value, json};

/// Begins the line of a log before the output of a test.
pub const HEADER: &str = "==== ";

/// Returns the losses by test, in the order of their names, as JSON, with the build of the
/// hypervisor that they name; none if no test reported one.
pub fn from_log(log: &str) -> Option<Value> {
    let mut tests: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut build = Value::Null;
    for line in log.lines() {
        let begun = line.strip_prefix(HEADER).and_then(|rest| rest.split_once(' '));
        if let Some((_, name)) = begun {
            tests.push((name, Vec::new()));
        }
        let loss = line.split_once(MARK).and_then(|(_, mark)| mark.strip_prefix("loss: "));
        let loss = loss.and_then(|loss| serde_json::from_str::<Value>(loss).ok());
        if let (Some((_, losses)), Some(mut loss)) = (tests.last_mut(), loss) {
            // It is the same of all tests.
            build = loss.as_object_mut().and_then(|loss| loss.remove("build")).unwrap_or_default();
            losses.push(loss);
        }
    }
    tests.retain(|(_, losses)| !losses.is_empty());
    tests.sort_by_key(|(name, _)| *name);
    let each = tests.iter().map(|(test, losses)| json!({ "test": test, "losses": losses }));
    let each: Vec<_> = each.collect();
    (!tests.is_empty()).then(|| json!({ "version": 1, "build": build, "tests": each }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_their_tests() {
        let log = "==== cli b\nweir test: ran on qemu-virt\n\
                   x weir test: loss: {\"measured\":2,\"build\":\"a1\"}\n\
                   ==== passed, 1.0 s\n\n==== cli c\nweir test: loss: {broken\n==== passed, 2.0 s\n\
                   ==== cli a\nweir test: loss: {\"measured\":1,\"build\":\"a1\"}\n\
                   ==== passed, 1.0 s\n";
        let expected = json!({ "version": 1, "build": "a1", "tests": [
            { "test": "a", "losses": [{ "measured": 1 }] },
            { "test": "b", "losses": [{ "measured": 2 }] },
        ]});
        assert_eq!(from_log(log), Some(expected));
        assert_eq!(from_log("==== cli a\n==== passed, 1.0 s\n"), None);
    }
}
