use super::*;
use crate::arch::machine::{on_write, recorded, set, value, watch};
use weir_units::VmId;

/// Sets up an SMMU that has executed each command by the time the driver polls.
fn answering() {
    on_write("smmu+0x20", |value| set("smmu+0x24", value));
    on_write("smmu+0x50", |value| set("smmu+0x54", value));
    on_write("smmu+0x44", |value| set("smmu+0x44", value & !u64::from(GBPA_UPDATE)));
    on_write("smmu+0x98", |value| set("smmu+0x9c", value));
}

/// Returns a driver that has started; its stores to tables and commands are recorded from then on.
fn started(format: SmmuFormat) -> Box<Smmu> {
    answering();
    let mut smmu = Box::new(Smmu::new());
    smmu.start(format).expect("it answers");
    recorded();
    watch("streams", &smmu.memory.streams);
    watch("contexts", &smmu.memory.contexts);
    watch("commands", &smmu.memory.commands);
    smmu
}

/// Returns the recorded lines of `commands`, from entry `first` of the queue on, and of their
/// execution.
fn run(first: usize, commands: &[SmmuCommand]) -> Vec<String> {
    let all = commands.iter().chain([&SYNC]).enumerate();
    let mut lines: Vec<String> = all
        .flat_map(|(n, [low, high])| {
            let at = 16 * (first + n);
            [format!("commands+{at:#x} = {low:#x}"), format!("commands+{:#x} = {high:#x}", at + 8)]
        })
        .collect();
    lines.push("dsb sy".to_owned());
    lines.push(format!("smmu+0x98 = {:#x}", first + commands.len() + 1));
    lines
}

/// Returns the recorded lines that write an entry at `at`: the first word is written after the
/// others.
fn entry(name: &str, at: usize, entry: SmmuEntry) -> Vec<String> {
    let word = |n: usize| format!("{name}+{:#x} = {:#x}", at + 8 * n, entry[n]);
    let mut lines: Vec<String> = (1..8).map(word).collect();
    lines.push("dsb sy".to_owned());
    lines.push(word(0));
    lines
}

const DOMAIN: Domain = Domain { vm: VmId(1), root: Pa(0x4800_0000) };
/// Number of commands at the start.
const STARTED: usize = 3;

#[test]
fn it_aborts_while_it_starts_and_translates_last() {
    answering();
    let mut smmu = Box::new(Smmu::new());
    smmu.start(SmmuFormat::Stage2).expect("it answers");
    let base = |at: u64, page: u64, more: u64| {
        let value = page | ALLOCATE | more;
        [
            format!("smmu+{at:#x} = {:#x}", value as u32),
            format!("smmu+{:#x} = {:#x}", at + 4, value >> 32),
        ]
    };
    let mut lines: Vec<String> = [
        "smmu+0x44 = 0x80100000",
        "smmu+0x50 = 0x0",
        "smmu+0x20 = 0x0",
        "smmu+0x28 = 0xd75",
        "smmu+0x2c = 0x4",
    ]
    .map(str::to_owned)
    .into();
    lines.extend(base(0x80, physical(&smmu.memory.level1), 0));
    lines.push(format!("smmu+0x88 = {:#x}", 1 << 16 | 6 << 6 | STREAM_BITS));
    lines.extend(base(0x90, physical(&smmu.memory.commands), 8));
    lines.extend(["smmu+0x98 = 0x0", "smmu+0x9c = 0x0"].map(str::to_owned));
    lines.extend(base(0xa0, physical(&smmu.memory.events), 7));
    lines.extend(
        [
            "smmu+0x100a8 = 0x0",
            "smmu+0x100ac = 0x0",
            "dsb sy",
            // First only the command queue is enabled and cached state of the firmware is
            // invalidated; then the rest is enabled.
            "smmu+0x20 = 0x8",
            "dsb sy",
            "smmu+0x98 = 0x3",
            "smmu+0x20 = 0xc",
            "smmu+0x50 = 0x4",
            "smmu+0x20 = 0xd",
        ]
        .map(str::to_owned),
    );
    assert_eq!(recorded(), lines);
    let streams = smmu.memory.streams.iter().flat_map(|page| page.0);
    assert!(streams.eq([ABORT; 64 * LEVEL2]), "each stream is aborted");
}

#[test]
fn a_stream_is_attached_by_its_last_word() {
    let mut smmu = started(SmmuFormat::Stage2);
    smmu.attach([3, 65].into_iter(), &DOMAIN).expect("it answers");
    let translated = smmu::stage2(DOMAIN.root.0, DOMAIN.id(), true);
    let mut lines = entry("streams", 3 * 64, translated);
    lines.extend(entry("streams", 4096 + 64, translated));
    lines.extend(run(
        STARTED,
        &[
            smmu::forget_stream(3),
            smmu::forget_stream(65),
            smmu::forget_domain(SmmuFormat::Stage2, DOMAIN.id()),
        ],
    ));
    assert_eq!(recorded(), lines);
}

#[test]
fn without_stage_2_the_context_comes_first() {
    let mut smmu = started(SmmuFormat::Stage1);
    smmu.attach([1].into_iter(), &DOMAIN).expect("it answers");
    let context = smmu::context(DOMAIN.root.0, DOMAIN.id(), memory::MAIR, true);
    let mut lines: Vec<String> =
        (0..8).map(|n| format!("contexts+{:#x} = {:#x}", 64 + 8 * n, context[n])).collect();
    let at = memory::physical(ptr::from_ref(&smmu.memory.contexts[0].0[1]) as u64).0;
    lines.extend(entry("streams", 64, smmu::stage1(at)));
    let forget = [smmu::forget_stream(1), smmu::forget_domain(SmmuFormat::Stage1, DOMAIN.id())];
    lines.extend(run(STARTED, &forget));
    assert_eq!(recorded(), lines);
}

#[test]
fn a_stream_is_detached_then_its_domain_is_forgotten() {
    let mut smmu = started(SmmuFormat::Stage2);
    smmu.attach([3].into_iter(), &DOMAIN).expect("it answers");
    recorded();
    smmu.detach([3].into_iter(), &DOMAIN).expect("it answers");
    let mut lines = vec![format!("streams+0xc0 = {:#x}", ABORT[0])];
    let forget = [smmu::forget_stream(3), smmu::forget_domain(SmmuFormat::Stage2, DOMAIN.id())];
    lines.extend(run(STARTED + 3, &forget));
    assert_eq!(recorded(), lines);
}

#[test]
fn an_smmu_that_takes_no_command_is_given_up() {
    let mut smmu = started(SmmuFormat::Stage2);
    on_write("smmu+0x98", |_| ());
    let _user = timer::tests::CLOCK_USER.lock();
    set("cntfrq_el0", 1_000);
    timer::start();
    let before = value("smmu+0x9c");
    assert!(smmu.detach([3].into_iter(), &DOMAIN).is_err());
    assert_eq!(value("smmu+0x9c"), before);
    // The driver has written the abort of the stream anyway.
    assert!(recorded().contains(&format!("streams+0xc0 = {:#x}", ABORT[0])));
}

#[test]
fn a_stream_that_does_not_exist_gets_no_entry() {
    let mut smmu = started(SmmuFormat::Stage2);
    smmu.attach([u32::MAX].into_iter(), &DOMAIN).expect("it answers");
    assert!(!recorded().iter().any(|line| line.starts_with("streams")));
}

#[test]
fn a_faulting_stream_is_recorded_once() {
    let mut smmu = started(SmmuFormat::Stage2);
    smmu.attach([3].into_iter(), &DOMAIN).expect("it answers");
    recorded();
    // Two records of one stream: a translation fault (0x10) of a write.
    let record = [0x10 | 3 << 32, 0, 0x5000, 0];
    smmu.memory.events.0[0] = record;
    smmu.memory.events.0[1] = record;
    set("smmu+0x100a8", 2);
    let (faults, more) = smmu.take_faults().expect("it answers");
    assert!(!more);
    let found: Vec<SmmuFault> = faults.into_iter().flatten().collect();
    assert_eq!(found, [SmmuFault { number: 0x10, stream: 3, write: true, address: 0x5000 }]);
    let silent = smmu::stage2(DOMAIN.root.0, DOMAIN.id(), false)[2];
    let stored = format!("streams+{:#x} = {silent:#x}", 3 * 64 + 16);
    // The index is read before the records, and the records before their places are given back.
    let mut lines = vec!["dsb sy".to_owned(), stored.clone(), stored];
    lines.extend(["dsb sy", "smmu+0x100ac = 0x2"].map(str::to_owned));
    lines.extend(run(STARTED + 3, &[smmu::forget_stream(3)]));
    assert_eq!(recorded(), lines);
}

#[test]
fn few_records_are_taken_at_once() {
    let mut smmu = started(SmmuFormat::Stage2);
    set("smmu+0x100a8", AT_ONCE as u64 + 1);
    let (_, more) = smmu.take_faults().expect("it answers");
    assert!(more);
    assert_eq!(value("smmu+0x100ac"), AT_ONCE as u64);
    let (_, more) = smmu.take_faults().expect("it answers");
    assert!(!more);
}
