//! Flows in real runs: every byte arrives, in order, and who breaks the rules harms himself alone.

mod support;

use serde_json::Value;
use std::{fs, path::Path, process::Command, time::Duration};
use support::{qemu::root, say_within};

/// What a run left: `report.json` and the consoles by name.
struct Ran {
    report: Value,
    consoles: Vec<(String, String)>,
}

impl Ran {
    /// Flow `index`: packets, lost.
    fn flow(&self, index: usize) -> [u64; 2] {
        let flow = &self.report["flows"][index];
        ["packets", "lost"].map(|key| flow[key].as_u64().expect("a count"))
    }

    /// What follows `text` in the first line of a VM's console with it.
    fn behind(&self, vm: &str, text: &str) -> &str {
        let (_, console) = self.consoles.iter().find(|(name, _)| name == vm).expect("a console");
        let line = console.lines().find_map(|line| line.split_once(text));
        line.unwrap_or_else(|| panic!("{vm} does not say {text:?}: {console}")).1
    }

    fn vm(&self, name: &str) -> &Value {
        let vms = self.report["vms"].as_array().expect("VMs");
        vms.iter().find(|vm| vm["name"] == name).expect("a VM")
    }
}

/// Runs a system under instruction counting until it ends itself, or until the time is over.
fn run(file: &Path, time: &str, arguments: &[&str]) -> Ran {
    let directory = tempfile::tempdir().expect("a directory");
    let runs = directory.path().join("runs");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("run").arg(file).args(["--deterministic", "--stay", "-q", "--for", time]);
    command.args(arguments).env("WEIR_ROOT", root()).env("WEIR_RUNS", &runs);
    let said = say_within(&mut command, Duration::from_secs(1200));
    let ran = fs::read_dir(&runs).into_iter().flatten().flatten().next();
    let ran = ran.unwrap_or_else(|| panic!("{}\n{}", said.out, said.err)).path();
    let report = fs::read(ran.join("report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let console = |vm: &Value| {
        let name = vm["name"].as_str().expect("a name").to_owned();
        let log = fs::read(ran.join(format!("{name}.log"))).unwrap_or_default();
        (name, String::from_utf8_lossy(&log).into_owned())
    };
    let consoles = report["vms"].as_array().expect("VMs").iter().map(console).collect();
    Ran { report, consoles }
}

fn run_text(text: &str, time: &str, arguments: &[&str]) -> Ran {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("system.toml");
    fs::write(&file, text).expect("a system file");
    run(&file, time, arguments)
}

/// A VM on core `core` with 2 MiB.
fn vm(name: &str, core: usize, guest: &str, arguments: &str, keys: &str) -> String {
    format!(
        "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"2MiB\"\n\
         image = {{ elf = \"guests/{guest}\", args = \"{arguments}\" }}\n{keys}\n"
    )
}

fn flow(name: &str, from: &str, to: &str, port: u32, keys: &str) -> String {
    format!(
        "\n[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\nport = {port}\nsize = \"4KiB\"\n{keys}\n"
    )
}

const PERIOD: &str = "period = \"200us\"\ndeadline = \"200us\"";

#[test]
fn ten_thousand_packets_arrive_in_order_on_both_gics() {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}",
        vm("sender", 0, "sender", "to=4 messages=10000 size=700 period_us=200", ""),
        vm("receiver", 1, "receiver", "bytes=7000000 streams=1", ""),
        flow("messages", "sender", "receiver", 5000, PERIOD),
    );
    for platform in ["qemu-virt", "qemu-virt-gicv2"] {
        let ran = run_text(&text, "60s", &["--platform", platform]);
        assert_eq!(ran.flow(0), [10_000, 0], "{platform}");
        let sum = ran.behind("sender", "10000 messages of 700 bytes sent, sum ");
        assert_eq!(ran.behind("receiver", "7000000 bytes in order, sum "), sum, "{platform}");
        assert_eq!(ran.report["totals"]["denials"], 0, "{platform}");
    }
}

#[test]
fn messages_of_1_byte_and_of_1_mib_go_side_by_side() {
    let ran = run(&root().join("systems/flows-many.toml"), "60s", &[]);
    assert_eq!(ran.flow(0), [2000, 0]);
    assert_eq!(ran.flow(1), [20 * 16, 0]);
    assert_eq!(ran.flow(2), [400, 0]);
    for (sender, receiver, text) in [
        ("left", "north", "2000000 bytes in order, sum "),
        ("right", "south", "20971520 bytes in order, sum "),
    ] {
        let sum = ran.behind(sender, "bytes sent, sum ");
        assert_eq!(ran.behind(receiver, text), sum);
    }
}

/// Under instruction counting the times are those of the instructions: two runs are alike.
#[test]
fn two_runs_have_the_same_latencies() {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}",
        vm("sender", 0, "sender", "to=4 messages=100 size=4096 period_us=1000", ""),
        vm("receiver", 1, "receiver", "bytes=409600 streams=1", ""),
        flow("messages", "sender", "receiver", 5000, "period = \"1ms\""),
    );
    let [one, two] = [0, 1].map(|_| run_text(&text, "10s", &[]).report["flows"].clone());
    assert_eq!(one, two);
    assert_eq!(one[0]["packets"], 100);
}

/// Two who break the rules beside a flow that keeps them: one sends to a port that is not its flow's, one breaks its rings.
#[test]
fn who_breaks_the_rules_harms_himself_alone() {
    let text = format!(
        "platform = \"qemu-virt\"\n{}{}{}{}{}{}{}",
        vm("sender", 0, "sender", "to=6 messages=500 size=700 period_us=200", ""),
        vm("stray", 1, "sender", "to=6 port=5002 messages=1", ""),
        vm("crook", 2, "crook", "rounds=2000", "expect = [\"crook: 2000 rounds\"]"),
        vm("receiver", 3, "receiver", "bytes=350000 streams=1", ""),
        flow("messages", "sender", "receiver", 5000, PERIOD),
        flow("astray", "stray", "receiver", 5001, PERIOD),
        flow("crooked", "crook", "receiver", 5001, PERIOD),
    );
    let ran = run_text(&text, "2s", &[]);
    assert_eq!(ran.flow(0), [500, 0]);
    assert_eq!(ran.flow(1), [0, 0]);
    let sum = ran.behind("sender", "500 messages of 700 bytes sent, sum ");
    assert_eq!(ran.behind("receiver", "350000 bytes in order, sum "), sum);
    ran.behind("crook", "2000 rounds");
    for name in ["stray", "crook"] {
        let refused = &ran.vm(name)["denials"]["malformed or disallowed packet"];
        assert!(refused.as_u64() > Some(10), "{name}: {refused}");
    }
    assert!(ran.vm("sender")["denials"].as_object().is_some_and(serde_json::Map::is_empty));
    assert_eq!(ran.report["totals"]["faults"], 0);
}

/// A sender and a receiver that die in the midst of a flow: the other end is reset, and the next life begins anew.
#[test]
fn an_end_that_restarts_resets_the_other() {
    for (sender, receiver) in [("crash=50", ""), ("", "crash=20000")] {
        let restart = "on_fault = \"restart\"";
        let text = format!(
            "platform = \"qemu-virt\"\n{}{}{}",
            vm(
                "sender",
                0,
                "sender",
                &format!("to=4 messages=200 size=700 period_us=200 {sender}"),
                restart
            ),
            vm("receiver", 1, "receiver", &format!("bytes=140000 {receiver}"), restart),
            flow("messages", "sender", "receiver", 5000, PERIOD),
        );
        let ran = run_text(&text, "1s", &[]);
        let sum = ran.behind("sender", "200 messages of 700 bytes sent, sum ");
        assert_eq!(ran.behind("receiver", "140000 bytes in order, sum "), sum);
        assert_eq!(ran.report["totals"]["restarts"], 1);
        assert_eq!(ran.vm("broker")["state"], "running");
        if !receiver.is_empty() {
            ran.behind("sender", "the connection was reset");
        }
    }
}
