//! The board that systems of `qemu-virt` run on instead, if the test runner names one
//! (`./weir test qemu --platform NAME`).

use super::{Printed, capture_within, programs};
use serde_json::Value;
use std::{env, fs, path::Path, process::Command, time::Duration};
use weir_model::{
    platform::{Machine, Platform, PlatformGic},
    timing::Sharing,
};
use weir_paging::classes::PageClasses;

/// The variable with the board's name.
const BOARD: &str = "WEIR_TEST_PLATFORM";
/// Begins the lines of which the runner learns what a test did.
pub const MARK: &str = "weir test: ";

/// The board that systems of `qemu-virt` run on.
pub fn board() -> Platform {
    let name = env::var(BOARD).unwrap_or_else(|_| "qemu-virt".to_owned());
    Platform::named(&name).expect("a board")
}

/// Ends a test that says nothing about this board, for this reason.
pub fn not_applicable_if(is_other: impl Fn(&Platform) -> bool, why: &str) {
    if is_other(&board()) {
        println!("{MARK}not applicable: {why}");
        std::process::exit(0);
    }
}

/// The board's values for shared cores: the longest switch, and an entry of EL2.
pub fn sharing() -> Sharing {
    board().on(Machine::Qemu).sharing.expect("a board with [sharing]")
}

/// The most that EL2 works at the beginning of a budget's period before it records that, in ns.
pub fn most_before_a_period() -> u64 {
    2 * board().counters.counter_page.expect("a board with [counter_page]").poll_overhead.0
}

/// Whether the board has a GICv2.
pub fn has_gicv2(board: &Platform) -> bool {
    matches!(board.gic, PlatformGic::V2 { .. })
}

/// Whether the color of a page and its bank are chosen by different address bits.
pub fn has_independent_banks(board: &Platform) -> bool {
    let classes = PageClasses::new(&board.places.geometry(0)).expect("a geometry");
    classes.count() == usize::from(classes.colors()) * usize::from(classes.bank_groups())
}

/// Whether QEMU's machine does not wire the interrupts of the board's PMUs.
pub fn lacks_pmu_interrupt(board: &Platform) -> bool {
    board.qemu.as_ref().is_some_and(|qemu| !qemu.pmu_interrupt)
}

/// Runs a command of `weir` that runs the system in `file`, on the runner's board. If only that
/// board's system is refused, the test is not applicable there: it ends with the reason.
fn on_board(command: &mut Command, file: &Path, limit: Duration) -> Printed {
    let Some(board) = board_for(command, file) else { return capture_within(command, limit) };
    println!("{MARK}ran on {board}");
    if board == "qemu-virt" {
        return capture_within(command, limit);
    }
    let mut plain = copy(command);
    let printed = capture_within(command.args(["--platform", &board]), limit);
    if is_refused(&printed) && !is_refused(&capture_within(&mut plain, limit)) {
        println!("{MARK}not applicable: {}", reason(command, &printed));
        std::process::exit(0);
    }
    printed
}

/// The same, for any system.
pub fn capture_on_board(command: &mut Command, file: &Path, limit: Duration) -> Printed {
    let printed = on_board(command, file, limit);
    let needs = printed.err.split_once(" needs QEMU ").filter(|_| printed.status == Some(3));
    if let Some((_, rest)) = needs {
        let version = rest.split(' ').next().unwrap_or_default();
        end_without(&format!("QEMU {version}"));
    }
    printed
}

/// Reports that the machine lacks something which this test needs. Under the test runner the test
/// is not applicable, and ends; elsewhere this returns, and the test fails.
pub fn end_without(needed: &str) {
    if env::var_os(programs::BUILT).is_some() {
        println!("{MARK}not applicable: needs {needed}");
        std::process::exit(0);
    }
}

/// The board for a system of `qemu-virt`, unless the command names a board.
fn board_for(command: &Command, file: &Path) -> Option<String> {
    let board = env::var(BOARD).ok();
    let fixed = command.get_args().any(|it| it == "--platform");
    let text = fs::read_to_string(file).unwrap_or_default();
    let is_usual = || text.lines().any(|line| line == "platform = \"qemu-virt\"");
    board.filter(|_| !fixed && is_usual())
}

fn copy(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    for (name, value) in command.get_envs() {
        let Some(value) = value else { continue };
        copy.env(name, value);
    }
    if let Some(directory) = command.get_current_dir() {
        copy.current_dir(directory);
    }
    copy
}

/// The beginning of the list of a system's faults.
const FAULTS: &str = " in the system:";

/// Whether the system was refused before it ran.
fn is_refused(printed: &Printed) -> bool {
    printed.status == Some(2) || printed.status == Some(1) && printed.err.contains(FAULTS)
}

/// The first fault of a refused system.
fn reason(command: &Command, printed: &Printed) -> String {
    let first = |out: &str| {
        let json: Value = serde_json::from_str(out).ok()?;
        json["faults"][0]["message"].as_str().map(str::to_owned)
    };
    let in_json = || {
        let mut again = copy(command);
        first(&capture_within(again.args(["--json"]), Duration::from_secs(60)).out)
    };
    let line = || printed.err.lines().next().unwrap_or_default().to_owned();
    let is_fault = printed.err.contains(FAULTS);
    first(&printed.out).or_else(|| is_fault.then(in_json).flatten()).unwrap_or_else(line)
}
