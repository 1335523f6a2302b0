//! The registry of diagnostics: the code, the name and the page of every fault that weir reports.
//!
//! A page is a Markdown file in `host/model/diagnostics`: a title, the cause, the section
//! `Example` with a file that is refused with this code, and the section `Fix`.

use crate::text::nearest;
use schemars::JsonSchema;
use serde::Serialize;
use std::{fmt, fmt::Write as _, sync::LazyLock};

/// Defines [`Code`] and [`TOPICS`] from one list. A number that is used twice does not compile, and
/// neither does a name without a page. Numbers and names are public: a code that is no longer
/// reported leaves a gap.
macro_rules! registry {
    ($($topic:literal $title:literal { $($code:ident = $number:literal, $name:literal;)+ })+) => {
        /// The stable code of a diagnostic, displayed as `W0105`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Code {
            $($(
                #[doc = concat!("`", $name, "`")]
                $code = $number,
            )+)+
        }

        impl Code {
            /// Returns its name, such as `core-taken`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$code => $name,)+)+
                }
            }
        }

        /// The topics by their hundred, and the page of each code.
        const TOPICS: &[Topic] = &[
            $(Topic {
                hundred: $topic,
                title: $title,
                pages: &[
                    $((
                        Code::$code,
                        include_str!(concat!("../diagnostics/", $name, ".md")),
                    ),)+
                ],
            },)+
        ];
    };
}

/// Codes of one topic.
struct Topic {
    /// The codes' numbers divided by 100.
    hundred: u16,
    title: &'static str,
    pages: &'static [(Code, &'static str)],
}

registry! {
    0 "Files and syntax" {
        FileUnreadable = 1, "file-unreadable";
        FileIsDirectory = 2, "file-is-directory";
        FileEmpty = 3, "file-empty";
        FileNotUtf8 = 4, "file-not-utf8";
        Syntax = 5, "syntax";
        SingleBrackets = 6, "single-brackets";
        TooManyValues = 7, "too-many-values";
        TooManyFaults = 8, "too-many-faults";
        UnknownKey = 10, "unknown-key";
        MissingKey = 11, "missing-key";
        TwoKinds = 12, "two-kinds";
        WrongType = 13, "wrong-type";
        WrongChoice = 14, "wrong-choice";
        OutOfRange = 15, "out-of-range";
        Negative = 16, "negative";
        TooLarge = 17, "too-large";
        Zero = 18, "zero";
        WrongNumber = 19, "wrong-number";
        NoUnit = 20, "no-unit";
        WrongUnit = 21, "wrong-unit";
        RangeReversed = 22, "range-reversed";
        NoSuchKey = 23, "no-such-key";
        NameEmpty = 30, "name-empty";
        NameTooLong = 31, "name-too-long";
        NameCharacters = 32, "name-characters";
        NameReserved = 33, "name-reserved";
        NameTwice = 34, "name-twice";
    }
    1 "Virtual machines" {
        NoVm = 100, "no-vm";
        TooManyVms = 101, "too-many-vms";
        UnknownVm = 102, "unknown-vm";
        NoCpus = 103, "no-cpus";
        CoreUnknown = 104, "core-unknown";
        CoreTaken = 105, "core-taken";
        PmuCounters = 106, "pmu-counters";
        GicVersion = 107, "gic-version";
        Heartbeat = 108, "heartbeat";
        ExpectEmpty = 109, "expect-empty";
        TaskTwice = 110, "task-twice";
        Workload = 111, "workload";
    }
    2 "Images" {
        ImageMissing = 200, "image-missing";
        ImageEmpty = 201, "image-empty";
        OutsideRam = 202, "outside-ram";
        SegmentsOverlap = 203, "segments-overlap";
        DeviceTreeOverlap = 204, "device-tree-overlap";
        EntryOutside = 205, "entry-outside";
        NotElf = 210, "not-elf";
        Elf32Bit = 211, "elf-32-bit";
        ElfBigEndian = 212, "elf-big-endian";
        ElfMachine = 213, "elf-machine";
        ElfDynamic = 214, "elf-dynamic";
        ElfDamaged = 215, "elf-damaged";
        ElfNoSegments = 216, "elf-no-segments";
        ElfTooManySegments = 217, "elf-too-many-segments";
        NotLinux = 220, "not-linux";
        LinuxBigEndian = 221, "linux-big-endian";
        LinuxDamaged = 222, "linux-damaged";
        ArgsNul = 230, "args-nul";
        ArgsTooLong = 231, "args-too-long";
        UnknownArgument = 232, "unknown-argument";
    }
    3 "Memory and placement" {
        NoMemory = 300, "no-memory";
        MemoryZero = 301, "memory-zero";
        MemoryUnaligned = 302, "memory-unaligned";
        RamTwice = 303, "ram-twice";
        Unaligned = 304, "unaligned";
        AddressTooHigh = 305, "address-too-high";
        Overlap = 306, "overlap";
        TooMuchMemory = 307, "too-much-memory";
        NoRoom = 308, "no-room";
        TooManyPieces = 309, "too-many-pieces";
    }
    4 "Page classes" {
        NoPageClasses = 400, "no-page-classes";
        BadNumbers = 401, "bad-numbers";
        PageClassUnknown = 402, "page-class-unknown";
        PageClassTaken = 403, "page-class-taken";
        PageClassCriticality = 404, "page-class-criticality";
        PageClassNoneLeft = 405, "page-class-none-left";
        PageClassImpossible = 406, "page-class-impossible";
        PageClassTooFew = 407, "page-class-too-few";
        PageClassTooSmall = 408, "page-class-too-small";
        DramMapUnknown = 409, "dram-map-unknown";
        GroupName = 410, "group-name";
        GroupEmpty = 411, "group-empty";
        TooManyGroups = 412, "too-many-groups";
        TlbColors = 420, "tlb-colors";
    }
    5 "Devices, PCI and network" {
        DeviceUnknown = 500, "device-unknown";
        DeviceRefused = 501, "device-refused";
        DeviceTaken = 502, "device-taken";
        RestTwice = 503, "rest-twice";
        InterruptTwice = 504, "interrupt-twice";
        PciAddress = 510, "pci-address";
        PciAbsent = 511, "pci-absent";
        PciNoSmmu = 512, "pci-no-smmu";
        PciBus = 513, "pci-bus";
        PciFunction0 = 514, "pci-function-0";
        PciSiblings = 515, "pci-siblings";
        PciStream = 516, "pci-stream";
        PciLine = 517, "pci-line";
        PciTooMany = 518, "pci-too-many";
        PciWindowFull = 519, "pci-window-full";
        MacAddress = 530, "mac-address";
        MacTwice = 531, "mac-twice";
        NetAlone = 532, "net-alone";
        NetBurst = 533, "net-burst";
        UplinkTwice = 534, "uplink-twice";
        SwitchSharedCore = 535, "switch-shared-core";
    }
    6 "Flows" {
        NoReceiver = 600, "no-receiver";
        ReceiverTwice = 601, "receiver-twice";
        SelfLoop = 602, "self-loop";
        FlowTwice = 603, "flow-twice";
        PortTwice = 604, "port-twice";
        TooManyFlows = 605, "too-many-flows";
        PacketTooLong = 606, "packet-too-long";
        FlowTimeTooLong = 607, "flow-time-too-long";
        BestEffortDeadline = 608, "best-effort-deadline";
        FlowBandwidth = 609, "flow-bandwidth";
        BrokerWithoutFlows = 620, "broker-without-flows";
        BrokerCores = 621, "broker-cores";
        BrokerNoCore = 622, "broker-no-core";
        BrokerOverheads = 623, "broker-overheads";
        VsockUnused = 630, "vsock-unused";
        VsockSlot = 631, "vsock-slot";
        VsockWindow = 632, "vsock-window";
        FlowLimit = 640, "flow-limit";
        NoOverheads = 641, "no-overheads";
        NoSupply = 642, "no-supply";
        FlowDeadlineMissed = 643, "flow-deadline-missed";
    }
    7 "Schedules, cores and interrupts" {
        ScheduleTwice = 700, "schedule-twice";
        ScheduleKind = 701, "schedule-kind";
        SlotOrder = 702, "slot-order";
        ServerBudget = 703, "server-budget";
        ScheduleEmpty = 704, "schedule-empty";
        NotInSchedule = 705, "not-in-schedule";
        NotOnCore = 706, "not-on-core";
        SlotTwice = 707, "slot-twice";
        SlotLength = 708, "slot-length";
        TooManySlots = 709, "too-many-slots";
        IrqTwice = 720, "irq-twice";
        IrqUnknown = 721, "irq-unknown";
        TooManyIrqs = 722, "too-many-irqs";
        IrqBurst = 723, "irq-burst";
        IrqPriority = 724, "irq-priority";
        IrqNoWcet = 725, "irq-no-wcet";
        ScheduleLimit = 740, "schedule-limit";
        ServerLate = 741, "server-late";
        NoSchedule = 742, "no-schedule";
        TaskCore = 743, "task-core";
        TaskNotScheduled = 744, "task-not-scheduled";
        TaskDeadlineMissed = 745, "task-deadline-missed";
    }
    8 "Memory budgets" {
        BudgetIncomplete = 800, "budget-incomplete";
        BudgetKeys = 801, "budget-keys";
        BudgetEmpty = 802, "budget-empty";
        BudgetEvent = 803, "budget-event";
        BudgetPoll = 804, "budget-poll";
        BudgetPeriodShort = 805, "budget-period-short";
        BudgetPeriodLong = 806, "budget-period-long";
        BudgetTooSmall = 807, "budget-too-small";
        BudgetsOverSaturation = 808, "budgets-over-saturation";
        BudgetSplit = 809, "budget-split";
        BudgetStaggered = 810, "budget-staggered";
        BudgetAdjust = 811, "budget-adjust";
        BudgetSpare = 812, "budget-spare";
        CompensationWindow = 820, "compensation-window";
        CompensationCritical = 821, "compensation-critical";
        CompensationEvent = 822, "compensation-event";
        MemguardEvent = 823, "memguard-event";
        MemguardPeriod = 824, "memguard-period";
        MemguardSpare = 825, "memguard-spare";
        SaturationPoints = 830, "saturation-points";
        MemoryBandwidth = 840, "memory-bandwidth";
        PlanBudget = 841, "plan-budget";
        PlanEdit = 843, "plan-edit";
    }
    9 "Platforms" {
        PlatformUnknown = 900, "platform-unknown";
        PlatformBroken = 901, "platform-broken";
        PlatformPlanned = 902, "platform-planned";
        NotEnforced = 903, "not-enforced";
        ValueSource = 904, "value-source";
        PlatformLoadAddress = 910, "platform-load-address";
        PlatformCores = 911, "platform-cores";
        DeviceTreeMissing = 912, "device-tree-missing";
        DeviceTreeDamaged = 913, "device-tree-damaged";
        PlatformPci = 914, "platform-pci";
        PlatformStart = 915, "platform-start";
        PlatformEngine = 916, "platform-engine";
        PlatformCache = 920, "platform-cache";
        PageSize = 921, "page-size";
        PlatformGeometry = 922, "platform-geometry";
        PlatformTlb = 923, "platform-tlb";
    }
}

impl Code {
    /// Returns its number, from 1 to 9999.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("W{:04}", self.number()))
    }
}

/// The page of a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The code.
    pub code: Code,
    /// The topic that it belongs to, such as "Flows".
    pub topic: &'static str,
    /// The rule in one line, without a period.
    pub title: &'static str,
    /// Why the rule exists, in Markdown.
    pub cause: &'static str,
    /// What is refused with this code.
    pub example: Example,
    /// What to change, in Markdown.
    pub fix: &'static str,
    /// The example with the change, for fixes that fit into a few lines.
    pub fixed: Option<Example>,
}

/// The page of a code in a JSON result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExplanationRecord {
    /// The code, such as `W0105`.
    pub code: String,
    /// The name of the diagnostic.
    pub name: &'static str,
    /// The topic that it belongs to, such as "Flows".
    pub topic: &'static str,
    /// The rule in one line, without a period.
    pub title: &'static str,
    /// Why the rule exists, in Markdown.
    pub cause: &'static str,
    /// What is refused with this code.
    pub example: &'static str,
    /// What to change, in Markdown.
    pub fix: &'static str,
    /// The example with the change, for fixes that fit into a few lines.
    pub fixed: Option<&'static str>,
}

impl Explanation {
    /// Returns the page as a JSON result has it.
    #[must_use]
    pub fn record(&self) -> ExplanationRecord {
        let Self { code, topic, title, cause, example, fix, fixed } = self;
        ExplanationRecord {
            code: code.to_string(),
            name: code.name(),
            topic,
            title,
            cause,
            example: example.text,
            fix,
            fixed: fixed.map(|example| example.text),
        }
    }
}

/// A code block of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// What the text is.
    pub kind: ExampleKind,
    /// The text, with a line break at its end.
    pub text: &'static str,
}

/// What the text of an example is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExampleKind {
    /// Part of a system file (`toml`): what every system has is left out.
    System,
    /// A whole system file (`toml,whole`).
    Whole,
    /// Part of a platform file (`toml,platform`): its tables and keys replace those of `qemu-virt`.
    Platform,
    /// No file (`text`), such as a command.
    Text,
}

/// All pages in the order of their numbers.
static EXPLANATIONS: LazyLock<Vec<Explanation>> = LazyLock::new(|| {
    let pages = |topic: &'static Topic| {
        topic.pages.iter().map(|(code, page)| parse(*code, topic.title, page))
    };
    TOPICS.iter().flat_map(pages).collect()
});

/// Reads a page. Sections that are not there are empty, which a test refuses.
fn parse(code: Code, topic: &'static str, page: &'static str) -> Explanation {
    let (head, rest) = page.split_once("\n## Example\n").unwrap_or((page, ""));
    let (example, fix) = rest.split_once("\n## Fix\n").unwrap_or((rest, ""));
    let (title, cause) = head.split_once('\n').unwrap_or((head, ""));
    let (_, example) = code_block(example);
    let (fix, fixed) = code_block(fix);
    Explanation {
        code,
        topic,
        title: title.trim_start_matches("# ").trim(),
        cause: cause.trim(),
        example: example.unwrap_or(Example { kind: ExampleKind::Text, text: "" }),
        fix,
        fixed,
    }
}

/// Splits a section into its prose and the code block at its end.
fn code_block(section: &'static str) -> (&'static str, Option<Example>) {
    let Some((prose, block)) = section.split_once("```") else { return (section.trim(), None) };
    let (info, text) = block.split_once('\n').unwrap_or((block, ""));
    let kind = match info {
        "toml" => ExampleKind::System,
        "toml,whole" => ExampleKind::Whole,
        "toml,platform" => ExampleKind::Platform,
        _ => ExampleKind::Text,
    };
    let text = text.split_once("```").map_or(text, |(text, _)| text);
    (prose.trim(), Some(Example { kind, text }))
}

/// Returns the pages of all codes in the order of their numbers.
pub fn explanations() -> impl Iterator<Item = &'static Explanation> {
    EXPLANATIONS.iter()
}

/// Returns the page of a code, `W0105` in upper or lower case, or of its name, `core-taken`.
#[must_use]
pub fn explain(code_or_name: &str) -> Option<&'static Explanation> {
    let wanted = code_or_name.trim();
    explanations().find(|page| {
        page.code.name().eq_ignore_ascii_case(wanted)
            || page.code.to_string().eq_ignore_ascii_case(wanted)
    })
}

/// Returns the code or name that is most like `text`, which is neither.
#[must_use]
pub fn similar_code(text: &str) -> Option<String> {
    let text = text.trim();
    let both = |page: &Explanation| [page.code.name().to_owned(), page.code.to_string()];
    let known: Vec<String> = explanations().flat_map(both).collect();
    let near = |text: &str| nearest(text, known.iter().map(String::as_str)).map(str::to_owned);
    near(text).or_else(|| near(&text.to_uppercase()))
}

/// Returns the reference page of all codes as Markdown.
#[must_use]
pub fn diagnostics_reference() -> String {
    let mut page = REFERENCE_HEAD.to_owned();
    for topic in TOPICS {
        let _ = write!(page, "\n## W{:02}xx: {}\n", topic.hundred, topic.title);
        for explanation in explanations().filter(|page| page.topic == topic.title) {
            page.push_str(&explanation.section());
        }
    }
    page
}

impl Explanation {
    /// The section of the reference page.
    fn section(&self) -> String {
        let Self { code, title, cause, example, fix, fixed, .. } = self;
        let mut section = format!("\n### {code} {}: {title}\n\n{cause}\n", code.name());
        let _ = write!(section, "\nRefused:\n\n{}\nFix: {fix}\n", example.block());
        if let Some(fixed) = fixed {
            let _ = write!(section, "\n{}", fixed.block());
        }
        section
    }
}

impl Example {
    /// The code block of the reference page.
    fn block(&self) -> String {
        let info = if self.kind == ExampleKind::Text { "text" } else { "toml" };
        format!("```{info}\n{}```\n", self.text)
    }
}

/// The head of the reference page.
const REFERENCE_HEAD: &str = "\
# Diagnostics

Every diagnostic of weir has a stable code, such as `W0105`, and a name, such as `core-taken`.
`weir explain W0105` prints the section of this page. With `--json`, a diagnostic has the code in
`code` and the name in `name`. The first two digits are the topic.

Examples leave out what every system has. If `platform` is absent, the example is for `qemu-virt`.
If no VM is shown, the system has the VMs `a` on core 0 and `b` on core 1. A VM that is shown without
`name`, `cpus`, `memory` or `image` is called `a`, `b` and so on, has the core of its position,
16 MiB of RAM and the guest `control`.
";
