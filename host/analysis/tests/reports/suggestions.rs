//! Each suggestion, followed, leads to a system that holds.

use crate::{
    budgets::system,
    support::{analyze, causes, check, plan},
};
use weir_analysis::verdict::Verdict::Holds;

const LINE: &str = "accesses = 60, period = \"30us\"";
const SHORT: &str = "accesses = 60, period = \"30us\", required = \"150MB/s\"";
const LENT: &str =
    "accesses = 60, period = \"30us\", required = \"150MB/s\", regulator = \"memguard\"";
const TWO: &str =
    "reads = 60, writes = 5, period = \"30us\", required = \"100MB/s\", regulator = \"memguard\"";
const ADJUSTED: &str = "accesses = 60, period = \"30us\", required = \"50MB/s\", adjust = { by = \
                        \"a\", min = 9, max = 70 }";
const WRITES: &str = "writes = 5, period = \"30us\", required = \"50MB/s\"";
const INSTRUCTIONS: &str =
    "accesses = 5000, period = \"30us\", event = \"cycles\", source = \"pmu\"";
const SPARE: &str = "accesses = 20, period = \"30us\", regulator = \"memguard\", spare = true";

/// Budgets, the suggestion, and what is replaced to follow it.
#[expect(clippy::type_complexity, reason = "a table")]
const WAYS: &[(&[&str], &str, &[(&str, &str)])] = &[
    (&[SHORT], "write accesses = 137", &[("accesses = 60", "accesses = 137")]),
    (
        &[LENT],
        "lower `required`: it takes 274 accesses in 30us",
        &[("150MB/s", "100MB/s"), ("accesses = 60", "accesses = 182")],
    ),
    (&[TWO], "write reads = 182", &[("reads = 60", "reads = 182")]),
    (&[ADJUSTED], "write min = 47 in `adjust`", &[("min = 9", "min = 47")]),
    (&[WRITES], "add reads = 47 to `memory_budget`", &[("writes", "reads = 47, writes")]),
    (
        &[LINE, INSTRUCTIONS],
        "leave `event` and `source` out, so that refills are counted, and write accesses = 150",
        &[(", event = \"cycles\", source = \"pmu\"", ""), ("5000", "150")],
    ),
    (
        &[LINE, LINE, "accesses = 150, period = \"30us\""],
        "lower the budgets until they count for 60 less",
        &[("150", "90")],
    ),
    (
        &[LINE, "accesses = 211, period = \"30us\""],
        "lower the budgets until they count for 61 less",
        &[("211,", "150,")],
    ),
    (&[SPARE], "leave `spare` out of each `memory_budget`", &[(", spare = true", "")]),
    (
        &[SHORT, "accesses = 100, period = \"30us\""],
        "write accesses = 137, and lower the other budgets by 27 in total",
        &[("accesses = 60", "accesses = 137"), ("accesses = 100", "accesses = 73")],
    ),
];

/// Each suggestion, followed exactly, holds.
#[test]
fn a_way_out_leads_to_a_file_that_holds() {
    for (bandwidths, help, changes) in WAYS {
        let text = system(bandwidths);
        let ((verdict, found), checked) = (causes(&text), check(&text).unwrap_err());
        assert_ne!(verdict, Some(Holds), "{text}");
        assert!(found.contains(help), "{text}\n{found}");
        // A sum beyond the memory is refused by rate before it is analyzed.
        assert!(checked.contains(help) || checked.contains("W0808"), "{help}\n{checked}");
        assert_holds(&followed(text, changes));
    }
    // A VM that the file does not describe.
    let nothing = system(&[LINE, LINE]).replacen(&format!("memory_budget = {{ {LINE} }}\n"), "", 1);
    assert_ne!(analyze(&nothing).0, Some(Holds));
    let refused = check(&nothing).unwrap_err();
    let way = "write memory_budget = { accesses = 150, period = \"30us\" } for ";
    assert!(refused.contains(way), "{refused}");
    plan(&nothing).unwrap();
    let budget = "[[vm]]\nmemory_budget = { accesses = 150, period = \"30us\" }";
    assert_holds(&nothing.replacen("[[vm]]", budget, 1));
}

/// The text with these changes.
fn followed(text: String, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{text}");
        text.replace(from, to)
    })
}

fn assert_holds(text: &str) {
    let (checked, (verdict, found)) = (check(text), causes(text));
    assert!(checked.is_ok() && verdict == Some(Holds), "{text}\n{checked:?}\n{found}");
}

/// The same for what `check` alone refuses.
#[expect(clippy::type_complexity, reason = "a table")]
const WAYS_OF_CHECK: &[(&[&str], &str, &[(&str, &str)])] = &[
    (&[LINE, "accesses = 10000, period = \"1ms\""], "write at most 150", &[("10000", "150")]),
    (&[LINE, "accesses = 200, period = \"10us\""], "write at most 50", &[("200", "50")]),
    (
        &["accesses = 60, period = \"30us\", source = \"pmu\""],
        "leave `source` out: the counter page of platform `qemu-virt` counts it",
        &[(", source = \"pmu\"", "")],
    ),
    (
        &["reads = 60, writes = 5, period = \"30us\", source = \"pmu\""],
        "leave `source` out: the counter page of platform `qemu-virt` counts it",
        &[(", source = \"pmu\"", "")],
    ),
    (
        &["accesses = 60, period = \"30us\", poll = \"200us\""],
        "write at least \"500ns\", as a poll takes 450ns, and at most \"1us\"",
        &[("200us", "1us")],
    ),
    (
        &["accesses = 60, period = \"30us\", poll = \"100ns\""],
        "write at least \"500ns\"",
        &[("100ns", "500ns")],
    ),
    (
        &[
            LINE,
            "accesses = 60, period = \"30us\", regulator = \"compensation\", critical = \"c\", \
             window = 2",
        ],
        "write `a`",
        &[("\"c\"", "\"a\"")],
    ),
    (
        &["accesses = 60, period = \"30us\", regulator = \"compensation\", critical = \"a\", \
           window = 2"],
        "leave `regulator`, `critical` and `window` out",
        &[(", regulator = \"compensation\", critical = \"a\", window = 2", "")],
    ),
];

#[test]
fn a_suggestion_of_check_leads_to_a_valid_file() {
    for (bandwidths, help, changes) in WAYS_OF_CHECK {
        let text = system(bandwidths);
        let refused = check(&text).unwrap_err();
        assert!(refused.contains(help), "{help}\n{refused}");
        assert_holds(&followed(text, changes));
    }
}
