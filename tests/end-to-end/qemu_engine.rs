//! The DMA engine of the ZCU102, which moves packets for the broker.

use crate::support::{
    programs,
    qemu::{Options, Outcome, build_programs, run_system},
    schema::valid,
};
use serde_json::Value;
use std::process::Command;

/// A sender and a receiver of `count` messages of `size` bytes, with these keys for each.
fn pair(keys: [&str; 2], count: u32, size: u32, period_us: u32) -> String {
    let [sender, receiver] = keys;
    let bytes = count * size;
    format!(
        r#"platform = "zcu102"

[[vm]]
name = "sender"
cpus = [0]
memory = "2MiB"
image = {{ elf = "sender", args = "to=4 messages={count} size={size} period_us={period_us}" }}
expect = ["sender: {count} messages of {size} bytes sent"]
{sender}
[[vm]]
name = "receiver"
cpus = [1]
memory = "2MiB"
image = {{ elf = "receiver", args = "port=5000 bytes={bytes} streams=1" }}
expect = ["receiver: port 5000: {bytes} bytes in order"]
{receiver}
"#
    )
}

fn flow(size: u32, period_ns: u64, deadline_ns: u64) -> String {
    format!(
        r#"
[[flow]]
name = "messages"
from = "sender"
to = "receiver"
port = 5000
size = "{size}B"
period = "{period_ns}ns"
deadline = "{deadline_ns}ns"
"#
    )
}

fn run(text: &str) -> Outcome {
    run_system(text, &Options::default())
}

/// What the phases of a run's packets took.
fn overheads(outcome: &Outcome) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["report", "--overheads", "--json"]).arg(&outcome.run).output();
    valid("report --overheads", &String::from_utf8_lossy(&output.expect("a report").stdout))
}

/// How many chunks a core copied, and how many the engine moved. One of the core's is the end of
/// the stream, which has no bytes.
fn chunks(outcome: &Outcome) -> [u64; 2] {
    let overheads = overheads(outcome);
    let phases = overheads["phases"].as_array().expect("phases");
    ["copy", "ip"].map(|name| {
        let phase = phases.iter().find(|phase| phase["name"] == name);
        phase.map_or(0, |phase| phase["count"].as_u64().expect("a count"))
    })
}

/// Through both kinds of socket devices. The chunks are the engine's; the last ones are short.
#[test]
fn the_engine_moves_the_packets_of_a_flow() {
    for keys in [["", ""], ["vsock = \"pci\"\n", ""]] {
        let text = pair(keys, 100, 5000, 1000)
            + &flow(5000, 1_000_000, 500_000)
            + "\n[dma]\npath = \"dma\"\nengine_from = \"0B\"\n";
        let outcome = run(&text).good();
        outcome.keeps_its_bound(100);
        assert_eq!(chunks(&outcome), [1, 200], "4096 bytes, and 904");
    }
}

/// Pieces of a page class lie in separate pages, so that a side of a transfer has several parts.
#[test]
fn the_engine_moves_scattered_pages() {
    let colors = ["colors = \"0-3\"", "colors = \"4-7\""];
    let text = pair(colors, 100, 4096, 1000)
        + &flow(4096, 1_000_000, 500_000)
        + "\n[broker]\ncpus = [2]\ncolors = \"8,9\"\n"
        + "\n[dma]\npath = \"dma\"\nengine_from = \"0B\"\n";
    let outcome = run(&text).good();
    outcome.keeps_its_bound(100);
    assert_eq!(chunks(&outcome), [1, 100]);
}

#[test]
fn the_core_copies_what_is_short() {
    let text = pair(["", ""], 100, 5000, 1000)
        + &flow(5000, 1_000_000, 500_000)
        + "\n[dma]\npath = \"dma\"\nengine_from = \"2KiB\"\n";
    let outcome = run(&text).good();
    outcome.keeps_its_bound(100);
    assert_eq!(chunks(&outcome), [101, 100], "904 bytes, and 4096");
}

/// The flows of 4 KiB in rt-virtio's Table III: bandwidth in MB/s and the published period in ns,
/// which is the deadline, too. Here it is a fifth longer: weir's broker parses packets itself, and
/// an instruction takes 1 ns. The sender leaves more time between two packets, as it makes up their
/// bytes. The bound is that of the emulated board, with an engine that takes no time. Those of 12
/// KiB are in chunks: an emulated broker that waits for the next one's turn lets the receiver's
/// core run until that has read the last.
#[test]
fn the_flows_of_table_3_keep_their_bounds() {
    let size = 4096;
    for (bandwidth, period) in [(148, 36_933), (485, 17_703)] {
        let text = pair(["", ""], 100, size, 1000)
            + &flow(size, period * 6 / 5, period * 6 / 5)
            + &format!(
                "\n[dma]\npath = \"dma\"\nbandwidth = \"{bandwidth}MB/s\"\nengine_from = \"0B\"\n"
            );
        let outcome = run(&text).good();
        // With the control packets that another VM may send, there is none at this period.
        outcome.keeps_its_quiet_bound(100);
        assert_eq!(chunks(&outcome), [1, 100]);
    }
}

/// QEMU's firmware does not know the call, so that the broker alone limits the engine.
#[test]
fn a_run_says_what_limits_the_engine() {
    let regulated = "bandwidth = \"485MB/s\"\nqos_level = 40\n";
    let absent =
        "DMA engine GDMA: the firmware has no QoS call (boards/zcu102/firmware-call.md); chunks";
    let none = "DMA engine GDMA: chunks";
    for (keys, limit, firmware) in [
        (regulated, format!("{absent} are paced by software at 485MB/s\n"), Some("absent")),
        ("", format!("{none} are not paced: [dma] has no `bandwidth`\n"), None),
    ] {
        let text = pair(["", ""], 10, 4096, 1000)
            + &flow(4096, 1_000_000, 500_000)
            + &format!("\n[dma]\npath = \"dma\"\nengine_from = \"0B\"\n{keys}");
        let outcome = run(&text).good();
        outcome.keeps_its_bound(10);
        let printed = &outcome.printed.out;
        assert!(printed.contains(&limit), "{printed}");
        let engine = &outcome.report["engine"];
        assert_eq!(engine["firmware"].as_str(), firmware, "{engine}");
        assert_eq!(engine["qos_level"].as_u64(), firmware.map(|_| 40), "{engine}");
    }
}

/// A board that is not in the tree: its file alone gives the broker a channel of ADMA, which has
/// another address, another interrupt, and a bus of 64 bits. Both kinds of descriptors are used.
#[test]
fn a_board_file_gives_the_broker_adma() {
    build_programs();
    let board = programs::adma_file();
    let board = board.to_str().expect("a path");
    let arguments = ["--platform", board];
    let options = Options { arguments: &arguments, ..Options::default() };
    let scattered = "\n[broker]\ncpus = [2]\ncolors = \"8,9\"\n";
    for (colors, broker) in [(["", ""], ""), (["colors = \"0-3\"", "colors = \"4-7\""], scattered)]
    {
        let text = pair(colors, 100, 5000, 1000)
            + &flow(5000, 1_000_000, 500_000)
            + broker
            + "\n[dma]\npath = \"dma\"\nengine_from = \"0B\"\n";
        let outcome = run_system(&text, &options).good();
        // The receiver can read the first chunk while the second one is on its way.
        outcome.keeps_its_bound(100);
        assert_eq!(chunks(&outcome), [1, 200], "4096 bytes, and 904");
        let printed = &outcome.printed.out;
        assert!(printed.contains("DMA engine ADMA: chunks are not paced"), "{printed}");
    }
}

/// The chunks of [`next_to_a_flood`], in bytes, and its `[dma] bandwidth` in bytes/s.
const CHUNK: u64 = 4096;
const BANDWIDTH: u64 = 20_000_000;

/// A flow of a packet per ms, through the engine. With `flood`, the keys of a second flow, another
/// VM sends to the same receiver as fast as its driver can.
fn next_to_a_flood(flood: Option<&str>) -> Outcome {
    let vm = |name: &str, core: usize, args: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"2MiB\"\n\
             image = {{ elf = \"sender\", args = \"to=4 size={CHUNK} {args}\" }}\n"
        )
    };
    let flow = |name: &str, port: u32, keys: &str| {
        format!(
            "[[flow]]\nname = \"{name}\"\nfrom = \"{name}\"\nto = \"receiver\"\nport = {port}\n\
             size = \"{CHUNK}B\"\n{keys}\n"
        )
    };
    let bytes = 100 * CHUNK;
    let mut text = format!(
        "platform = \"zcu102\"\n{}\
         [[vm]]\nname = \"receiver\"\ncpus = [1]\nmemory = \"2MiB\"\n\
         image = {{ elf = \"receiver\", args = \"port=5000 bytes={bytes} streams=1 ports=2\" }}\n\
         expect = [\"receiver: port 5000: {bytes} bytes in order\"]\n",
        vm("good", 0, "messages=100 period_us=1000 start_us=20000"),
    );
    if let Some(keys) = flood {
        text += &vm("flood", 2, "port=5001 messages=1000000 period_us=0");
        text += &flow("flood", 5001, keys);
    }
    text += &flow("good", 5000, "period = \"1ms\"\ndeadline = \"500us\"");
    // Nothing is printed during the run: that takes time on a machine that serializes its cores.
    let rest = format!(
        "[broker]\ncpus = [3]\n[hypervisor]\nconsole_core = 3\nheartbeat = \"0s\"\n\
         [dma]\npath = \"dma\"\nengine_from = \"0B\"\nbandwidth = \"{BANDWIDTH}B/s\"\n"
    );
    run(&(text + &rest))
}

/// Of the flow `name`: how many packets arrived, how long the longest took in ns, and the verdict.
fn figures<'a>(outcome: &'a Outcome, name: &str) -> (u64, u64, &'a Value) {
    let flows = outcome.report["flows"].as_array().expect("flows");
    let flow = flows.iter().find(|flow| flow["name"] == name).expect("a flow");
    let max = flow["latency_ns"]["max"].as_u64().expect("a time");
    (flow["packets"].as_u64().expect("a count"), max, &flow["verdict"])
}

/// bao-throttling, section 5.4.3: a QoS regulator limits all channels of an engine together. The
/// channel in Table 5.1 falls from 10.2 to 0.18 MB/s, although it is others that flood. Here the
/// broker regulates each flow before the engine. The flow that keeps its period has all packets
/// moved, each at most one packet of the flood later than without the flood: its chunk's time at
/// `bandwidth`, and what the broker does for it, which is what it does for a packet alone.
#[test]
fn a_flood_takes_no_bandwidth_from_another_flow() {
    let alone = next_to_a_flood(None).good();
    let (packets, longest, verdict) = figures(&alone, "good");
    assert_eq!((packets, verdict.as_str()), (100, Some("holds")));
    let chunk_ns = CHUNK * 1_000_000_000 / BANDWIDTH;
    // A flow with a period is held to that. One without has what the other leaves of `bandwidth`.
    for (keys, interval_ns, others) in [
        ("period = \"1ms\"\ndeadline = \"1ms\"", 1_000_000, 0),
        ("best_effort = true", chunk_ns, 100),
    ] {
        let outcome = next_to_a_flood(Some(keys));
        assert_eq!(outcome.report["ended_by"], "all-met", "{keys}");
        let (packets, max, verdict) = figures(&outcome, "good");
        assert_eq!((packets, verdict.as_str()), (100, Some("holds")), "{keys}");
        assert!(max <= longest + chunk_ns + longest, "{keys}: {max} ns, alone {longest} ns");
        // The receiver turns itself off then.
        let ended = outcome.vm("receiver")["expect"][0]["time_ns"].as_u64().expect("a time");
        let (flooded, ..) = figures(&outcome, "flood");
        let most = ended / interval_ns - others;
        println!("{keys:?}: {flooded} of {most} packets; {max} ns, alone {longest} ns");
        assert!((most * 9 / 10..=most).contains(&flooded), "{keys}: {flooded} of {most}");
    }
}
