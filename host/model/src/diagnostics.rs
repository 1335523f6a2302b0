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
        Syntax = 5, "syntax";
        TooManyValues = 7, "too-many-values";
        TooManyFaults = 8, "too-many-faults";
        UnknownKey = 10, "unknown-key";
        MissingKey = 11, "missing-key";
        WrongType = 13, "wrong-type";
        WrongChoice = 14, "wrong-choice";
        OutOfRange = 15, "out-of-range";
        Zero = 18, "zero";
        WrongNumber = 19, "wrong-number";
        WrongUnit = 21, "wrong-unit";
        NoSuchKey = 23, "no-such-key";
        Empty = 24, "empty";
        KeyConflict = 25, "key-conflict";
        NameInvalid = 30, "name-invalid";
        Twice = 34, "twice";
    }
    1 "Virtual machines" {
        TooMany = 101, "too-many";
        UnknownVm = 102, "unknown-vm";
        CoreUnknown = 104, "core-unknown";
        CoreTaken = 105, "core-taken";
        PmuCounters = 106, "pmu-counters";
        GicVersion = 107, "gic-version";
        Workload = 111, "workload";
    }
    2 "Images" {
        ImageMissing = 200, "image-missing";
        ImageEmpty = 201, "image-empty";
        OutsideRam = 202, "outside-ram";
        ElfUnusable = 210, "elf-unusable";
        LinuxUnusable = 220, "linux-unusable";
        Arguments = 230, "arguments";
    }
    3 "Memory and placement" {
        Unaligned = 304, "unaligned";
        AddressTooHigh = 305, "address-too-high";
        Overlap = 306, "overlap";
        NoRoom = 308, "no-room";
    }
    4 "Page classes" {
        NoPageClasses = 400, "no-page-classes";
        BadNumbers = 401, "bad-numbers";
        PageClassUnknown = 402, "page-class-unknown";
        PageClassTaken = 403, "page-class-taken";
        PageClassNoneLeft = 405, "page-class-none-left";
        PageClassImpossible = 406, "page-class-impossible";
        PageClassTooFew = 407, "page-class-too-few";
        DramMapUnknown = 409, "dram-map-unknown";
        TlbColors = 420, "tlb-colors";
    }
    5 "Devices, PCI and network" {
        DeviceUnknown = 500, "device-unknown";
        DeviceRefused = 501, "device-refused";
        DeviceTaken = 502, "device-taken";
        InterruptTwice = 504, "interrupt-twice";
        PciAddress = 510, "pci-address";
        PciAbsent = 511, "pci-absent";
        PciShared = 515, "pci-shared";
        MacAddress = 530, "mac-address";
        Switch = 532, "switch";
    }
    6 "Flows" {
        SelfLoop = 602, "self-loop";
        FlowBandwidth = 609, "flow-bandwidth";
        BrokerWithoutFlows = 620, "broker-without-flows";
        BrokerCores = 621, "broker-cores";
        BrokerOverheads = 623, "broker-overheads";
        VsockUnused = 630, "vsock-unused";
        VsockPlace = 631, "vsock-place";
        AnalysisLimit = 640, "analysis-limit";
        NoOverheads = 641, "no-overheads";
        NoSupply = 642, "no-supply";
        FlowDeadlineMissed = 643, "flow-deadline-missed";
    }
    7 "Schedules, cores and interrupts" {
        SlotOrder = 702, "slot-order";
        NotInSchedule = 705, "not-in-schedule";
        SlotLength = 708, "slot-length";
        IrqUnknown = 721, "irq-unknown";
        IrqNoWcet = 725, "irq-no-wcet";
        ServerLate = 741, "server-late";
        NoSchedule = 742, "no-schedule";
        TaskCore = 743, "task-core";
        TaskDeadlineMissed = 745, "task-deadline-missed";
    }
    8 "Memory budgets" {
        BudgetEvent = 803, "budget-event";
        BudgetPoll = 804, "budget-poll";
        BudgetPeriod = 805, "budget-period";
        BudgetTooSmall = 807, "budget-too-small";
        BudgetsOverSaturation = 808, "budgets-over-saturation";
        BudgetSplit = 809, "budget-split";
        BudgetStaggered = 810, "budget-staggered";
        BudgetAdjust = 811, "budget-adjust";
        CompensationCritical = 821, "compensation-critical";
        MemguardSpare = 825, "memguard-spare";
        SaturationPoints = 830, "saturation-points";
        MemoryBandwidth = 840, "memory-bandwidth";
        PlanBudget = 841, "plan-budget";
    }
    9 "Platforms" {
        PlatformUnknown = 900, "platform-unknown";
        PlatformBroken = 901, "platform-broken";
        PlatformPlanned = 902, "platform-planned";
        NotEnforced = 903, "not-enforced";
        ValueSource = 904, "value-source";
        PlatformBoard = 910, "platform-board";
        PlatformPci = 914, "platform-pci";
        PlatformStart = 915, "platform-start";
        PlatformEngine = 916, "platform-engine";
        PlatformGeometry = 922, "platform-geometry";
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
