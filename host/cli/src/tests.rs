//! The declared command, and calls that are refused before their work begins.

use crate::{Command, environment::Environment, failure::CALL};
use clap::{CommandFactory as _, Parser as _};
use std::{fs, path::Path};

/// Returns the exit status of a call and the message, the arguments between spaces; `~` stands for
/// `directory`.
fn refused(call: &str, directory: &Path) -> (u8, String) {
    let call = call.replace('~', directory.to_str().expect("UTF-8"));
    match Command::try_parse_from(["weir"].into_iter().chain(call.split(' '))) {
        Err(error) => (CALL, error.to_string()),
        Ok(command) => {
            let failure = command.verb.run(&Environment::find()).expect_err("a failure");
            (failure.status, failure.text)
        }
    }
}

fn assert_refused(status: u8, calls: &[(&str, &str)]) {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let board = include_str!("../../../boards/qemu-virt/board.toml");
    let system = "platform = \"qemu-virt\"\n[[vm]]\nname = \"one\"\ncpus = [0]\n\
                  memory = \"16MiB\"\nimage = { bin = \"guest.bin\", load = 0x4010_0000 }\n";
    for (name, text) in [
        ("system.toml", system),
        ("guest.bin", "01234567"),
        ("bare.toml", "[dma]\nchunk = \"4KiB\"\n"),
        ("board.toml", &board.replace("qemu-virt.dtb", "board.dtb")),
    ] {
        fs::write(at(name), text).expect("a file");
    }
    let tree = include_bytes!("../../../boards/qemu-virt/qemu-virt.dtb");
    fs::write(at("board.dtb"), tree).expect("a file");
    for (call, why) in calls {
        let (found, text) = refused(call, directory.path());
        assert_eq!(found, status, "{call}: {text}");
        assert!(text.contains(why), "{call}: {text}");
    }
    assert_eq!(fs::read_to_string(at("system.toml")).expect("a file"), system);
    assert_eq!(fs::read_to_string(at("guest.bin")).expect("a file"), "01234567");
}

#[test]
fn wrong_arguments_are_named() {
    let file = "<FILE>";
    let rate = "write a whole number of bytes/s, or one with a unit like 485MB/s";
    assert_refused(
        CALL,
        &[
            ("run", file),
            ("attach", "<[RUN] VM>..."),
            ("check", "<FILES>..."),
            ("analyze", "<FILES>..."),
            ("plan", file),
            ("plan a b", "unexpected argument 'b'"),
            ("new", "<DIR>"),
            ("new x --schema", "'[DIR]' cannot be used with '--schema'"),
            ("platforms --yaml", "unexpected argument '--yaml'"),
            ("simulate", "Usage: weir simulate"),
            ("simulate x.toml", "unrecognized subcommand 'x.toml'"),
            ("simulate dram x", "--memory <MEMORY>"),
            ("run x --for -1s", "write a number with its unit, such as 10s or 5ms"),
            ("observe x --record x --record-most 0", "0 is not in 1.."),
            ("analyze x --bandwidth 0MB/s", "nothing moves at 0 B/s"),
            ("analyze x --bandwidth 0", "nothing moves at 0 B/s"),
            ("analyze x --bandwidth 9000000GB/s", "up to 1125899906842624 B/s (1 PiB/s)"),
            ("analyze x --bandwidth fast", rate),
            ("analyze x --bandwidth -1", rate),
            ("analyze x --max-steps -1", "invalid digit"),
            ("plan x --max-steps some", "invalid digit"),
            ("reproduce nothing", "rt-virtio-fig5"),
            ("reproduce --quick", "<EXPERIMENT|--all>"),
            ("reproduce --shard 1/2", "--all"),
            ("reproduce --all --shard 3/2", "write I/N, like 2/8, with I from 1 to N"),
            ("reproduce --all rt-virtio-fig5", "'--all' cannot be used with '[EXPERIMENT]'"),
            ("reproduce rt-virtio-fig5 --sets 0", "0 is not in 1..=1000000"),
            ("reproduce rt-virtio-fig5 --sets -1", "-1 is not in 1..=1000000"),
            ("simulate run x --for 2s", "write a time up to a second, like 5ms"),
            ("simulate run x --set seed", "write KEY=VALUE, like caches.l2_misses=2"),
            ("simulate run x --compare --output y", "'--compare' cannot be used with '--output"),
            ("run x --image-file y --no-build", "'--image-file <IMAGE>' cannot be used with"),
            ("why flow", "`flow` needs a name: weir why flow NAME"),
            ("why run f", "run: a subject is `flow`, `task` or `budget`, and a name"),
            ("why --packet 3", "--packet needs a flow"),
            ("why flow f --period 3", "--period needs a budget"),
            ("why flow f --packet 0", "0 is not in 1.."),
            ("explain W9999", "there is no diagnostic `W9999`; `weir explain` lists all of them"),
        ],
    );
}

#[test]
fn no_call_overwrites_what_it_reads() {
    let again = "would overwrite ";
    assert_refused(
        CALL,
        &[
            ("check ~/system.toml --output ~/system.toml", again),
            ("build ~/system.toml -o ~/system.toml", again),
            ("build ~/system.toml -o ~/x.map", "x.map: name the image otherwise"),
            ("build ~/system.toml --platform ~/board.toml -o ~/board.toml", again),
            ("run ~/system.toml --platform ~/board.toml --output ~/board.toml", again),
            ("run ~/system.toml --image-file ~/guest.bin --output ~/./system.toml", again),
            ("run ~/system.toml --image-file ~/guest.bin --output ~/guest.bin", again),
            ("observe ~/system.toml --output ~/system.toml", again),
            ("calibrate ~/system.toml -o ~/system.toml", again),
            ("plan ~/system.toml -o ~/system.toml", again),
        ],
    );
}

#[test]
fn no_verb_reads_what_is_no_file() {
    let unreadable = "error[W0001]:";
    assert_refused(
        CALL,
        &[
            ("plan ~/no.toml", unreadable),
            ("plan ~", unreadable),
            ("build ~/no.toml", unreadable),
            ("build ~", unreadable),
            ("run ~/no.toml", unreadable),
            ("run ~", unreadable),
            ("observe ~/no.toml", unreadable),
            ("observe ~", unreadable),
            ("simulate dram ~/no.txt --memory ddr4-2400", "cannot read "),
            ("calibrate ~/no.toml", unreadable),
            ("calibrate ~", unreadable),
            ("analyze ~/system.toml --overheads ~/no.toml", unreadable),
            ("analyze ~/system.toml --overheads ~/bare.toml", "bare.toml has no overheads: add"),
        ],
    );
}

#[test]
fn where_nothing_can_be_written_is_refused() {
    assert_refused(
        crate::failure::ENVIRONMENT,
        &[
            ("run ~/system.toml --output ~/nowhere/x.json", "cannot write "),
            ("build ~/system.toml -o ~/nowhere/x.img", "x.img: No such file or directory"),
            ("run ~/system.toml --output ~", ": is a directory"),
            ("plan ~/bare.toml -o /proc/nowhere/x.toml", "cannot write "),
            ("plan ~/bare.toml -o /", ": is a directory"),
        ],
    );
}

#[test]
fn every_verb_has_an_example() {
    let command = Command::command();
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = verb.get_name();
        let below = verb.get_subcommands().filter_map(clap::Command::get_after_help);
        let help: String = below.chain(verb.get_after_help()).map(ToString::to_string).collect();
        assert!(help.contains("Example") && help.contains(&format!("  weir {name}")), "{name}");
    }
}
