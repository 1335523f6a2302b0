//! Messages of stock kernels, as Debian made them: packets in many pieces, and the error that a
//! Linux sees when the driver at the other end breaks a ring.

use crate::support::qemu::{Options, Outcome, build_programs, root, run_system};
use std::fs;
use weir_image::{debian::NewerKernel, environment::cache_dir};

/// Connections of each scenario, and messages of 64 KiB on each. The receiver has room for all of a
/// connection (256 KiB): with less credit Linux would split a message, and it needs one block for a
/// piece below 32 KiB.
const CONNECTIONS: usize = 16;
const MESSAGES: usize = 4;
/// Buffers of a message of 64 KiB in single pages, with one for the packet's header.
const PAGES: u64 = 17;

/// The line of a VM's image for a kernel and its RAM disk.
fn image([kernel, initrd]: [&str; 2], arguments: &str) -> String {
    format!(
        "image = {{ linux = \"{kernel}\", initrd = \"{initrd}\", cmdline = \"console=ttyAMA0 \
         kpti=off cryptomgr.notests quiet {arguments}\" }}\n"
    )
}

fn flow(name: &str, from: &str, to: &str, port: u32) -> String {
    format!(
        "\n[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\nport = {port}\n\
         size = \"64KiB\"\nperiod = \"1ms\"\ndeadline = \"1ms\"\n"
    )
}

/// The kernel that guests have by name, and its RAM disk.
const LINUX_6_1: [&str; 2] = ["debian-rt", "debian-vsock"];

/// The files of another kernel and of its RAM disk.
fn newer(version: &str) -> [String; 2] {
    build_programs();
    let tool = fs::read(root().join("build/programs/weir-vsock-tool")).expect("a program");
    let kernel = NewerKernel::ALL.into_iter().find(|kernel| kernel.release.starts_with(version));
    let made = kernel.expect("a kernel").make(&cache_dir(&root()), tool);
    let made = made.unwrap_or_else(|failure| panic!("{}", failure.text));
    made.map(|path| path.to_str().expect("UTF-8").to_owned())
}

/// What came of messages from Linux to Linux, all of which have arrived.
struct Sent {
    outcome: Outcome,
    /// Numbers of packets by their numbers of buffers, for each scenario.
    chains: Vec<Vec<(u64, u64)>>,
}

/// Linux sends all messages of the scenario `send`, with these arguments, and then with
/// `MSG_ZEROCOPY`.
fn send(kernel: [&str; 2], [copied, in_place]: [&str; 2], expected: &str, streams: usize) -> Sent {
    let send = format!("to=4,size=65536,messages={MESSAGES},connections={CONNECTIONS}");
    let sender = format!(
        "weir.run=chains,send,chains,send-in-place,chains,poweroff weir.send={send}{copied} \
         weir.send-in-place={send},in_place=1{in_place}"
    );
    let receiver =
        format!("weir.run=receive,poweroff weir.receive=streams={streams},each=1,half_close=1");
    let vm = |name: &str, core: u32, arguments: &str, expected: &str| {
        format!(
            "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"192MiB\"\n{}\
             expect = [\"{expected}\"]\n",
            image(kernel, arguments)
        )
    };
    let text = [
        "platform = \"qemu-virt\"\n".to_owned(),
        vm("sender", 0, &sender, expected),
        vm("receiver", 1, &receiver, "linux: done"),
        flow("messages", "sender", "receiver", 5000),
    ];
    let options = Options { arguments: &["--for", "30s"], ..Options::default() };
    let outcome = run_system(&text.concat(), &options).good();
    let counts = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = |word: &str| word.parse().expect("a count");
        // Control packets have one buffer.
        let all = words.chunks(3).map(|words| (count(words[0]), count(words[2])));
        all.filter(|(_, buffers)| *buffers > 1).collect()
    };
    let lines = outcome.lines("sender").into_iter();
    let chains = lines.filter_map(|line| Some(counts(line.strip_prefix("linux: chains ")?)));
    let chains = chains.collect();
    assert_eq!(outcome.report["totals"]["denials"], 0);
    assert_eq!(outcome.report["flows"][0]["lost"], 0);
    Sent { outcome, chains }
}

impl Sent {
    /// The lines of a VM with this text.
    fn count(&self, vm: &str, text: &str) -> usize {
        self.outcome.lines(vm).iter().filter(|line| line.contains(text)).count()
    }

    /// Fails unless so many connections have brought all of their messages.
    fn has_arrived(&self, connections: usize) {
        let whole = format!("linux: port 5000: {} bytes in order, sum ", MESSAGES << 16);
        assert_eq!(self.count("receiver", &whole), connections);
    }
}

/// Every message arrives whole from memory in which hardly two free pages are next to each other.
fn sends_from_fragmented_memory(version: &str) {
    let files = newer(version);
    let files = files.each_ref().map(String::as_str);
    let sent = send(files, [",fragment=1"; 2], "linux: done", 2 * CONNECTIONS);
    sent.has_arrived(2 * CONNECTIONS);
    assert_eq!(sent.count("receiver", "the connection was reset"), 0);
    let messages = CONNECTIONS * MESSAGES;
    assert_eq!(sent.count("sender", &format!("{messages} calls sent in place, 0 by a copy")), 1);
    let [copied, in_place] = &sent.chains[..] else { panic!("{:?}", sent.chains) };
    println!("{version}: copied {copied:?}, in place {in_place:?}");
    for chains in [copied, in_place] {
        let count = |least: u64| -> u64 {
            chains.iter().filter(|(_, buffers)| *buffers >= least).map(|(count, _)| count).sum()
        };
        assert_eq!(count(5), messages as u64, "{chains:?}");
        assert!(count(PAGES) >= messages as u64 / 2, "{chains:?}");
    }
}

#[test]
fn linux_6_12_sends_from_fragmented_memory() {
    sends_from_fragmented_memory("6.12.");
}

#[test]
fn linux_7_3_sends_from_fragmented_memory() {
    sends_from_fragmented_memory("7.3.");
}

/// Linux 6.1 copies each message into one block, and lacks `MSG_ZEROCOPY` for these sockets. In
/// fragmented memory it sends nothing, and the program gets ENOMEM.
#[test]
fn linux_6_1_sends_each_message_from_one_block() {
    let failed = "linux: failed: send";
    let sent = send(LINUX_6_1, [",fragment=1", ""], failed, 1 + CONNECTIONS);
    sent.has_arrived(CONNECTIONS);
    assert_eq!(sent.count("sender", "linux: error 12"), 1, "ENOMEM");
    assert_eq!(sent.count("sender", "no MSG_ZEROCOPY for virtio sockets, error 95"), 1);
    assert_eq!(sent.chains, [vec![], vec![((CONNECTIONS * MESSAGES) as u64, 2)]]);
}

/// A sender and a receiver break a ring in the middle of a stream, and Linux at the other end gets
/// EPIPE. `recv` is not enough: Linux reports both a reset and a shutdown by the end of the stream,
/// but only after the shutdown of one direction it still sends. (It does not after the shutdown of
/// both; `a_broken_ring_is_an_error_at_both_ends` distinguishes the packets.)
fn sees_errors_of_broken_rings(kernel: [&str; 2]) {
    let linux = "weir.run=receive,send weir.receive=port=5001,half_close=1 \
                 weir.send=to=5,size=65536,messages=64";
    let malicious = |name: &str, core: u32, arguments: &str| {
        format!(
            "\n[[vm]]\nname = \"{name}\"\ncpus = [{core}]\nmemory = \"4MiB\"\n\
             image = {{ elf = \"malicious-driver\", args = \"{arguments}\" }}\n\
             expect = [\"malicious-driver: a device needs a reset\"]\n"
        )
    };
    let reset = "the connection was reset, error ";
    let receives = format!("linux: port 5001: {reset}");
    let sends = format!("linux: {reset}");
    let text = [
        "platform = \"qemu-virt\"\n\n[[vm]]\nname = \"linux\"\ncpus = [0]\n\
         memory = \"192MiB\"\n"
            .to_owned(),
        image(kernel, linux),
        format!("expect = [\"{receives}\", \"{sends}\"]\n"),
        malicious(
            "sender",
            1,
            "controls=1 from=4 to=3 op=data start_us=4000000 rounds=2 every_us=30000 breaks=1",
        ),
        malicious("receiver", 2, "accepts=60000"),
        flow("in", "sender", "linux", 5001),
        flow("out", "linux", "receiver", 5000),
    ];
    let options = Options { arguments: &["--for", "60s"], ..Options::default() };
    let outcome = run_system(&text.concat(), &options).good();
    for start in [receives, sends] {
        let lines = outcome.lines("linux").into_iter();
        let errors: Vec<_> = lines.filter_map(|line| line.strip_prefix(&start)).collect();
        assert_eq!(errors, ["32"], "EPIPE: {start}");
    }
}

#[test]
fn linux_6_1_sees_errors_of_broken_rings() {
    sees_errors_of_broken_rings(LINUX_6_1);
}

#[test]
fn linux_7_3_sees_errors_of_broken_rings() {
    let files = newer("7.3.");
    sees_errors_of_broken_rings(files.each_ref().map(String::as_str));
}
