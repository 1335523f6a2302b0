//! `weir bench hypervisor`: instructions at EL2 per path, boot and sizes, next to
//! those of Bao.
//!
//! Instructions are counted from outside by the plug-in of `weir-qemu-plugin`, in QEMU under
//! `-icount`, from the exception vector's first instruction to the ERET, both included. So entry
//! and exit are part of every figure, and two runs give the same ones. Instructions are not cycles:
//! barriers, cache and TLB maintenance and device accesses, which cost far more on hardware than
//! another instruction, are also counted.
//!
//! Five systems are run: one whose guest walks all paths and marks them, two that only boot, one
//! whose VMs share a core, and one whose VMs send frames.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use weir_qemu_plugin::{
    Report,
    report::{PathReport, Summary},
};

use crate::failure::{Context, Failure, Result};
use weir_report::Table;
use weir_runner::{
    elf::{LinkedHypervisor, Sizes, Symbol},
    plugin::plugin_arguments,
};

/// A path that the benchmark guest must have taken, and what it costs in the peer.
struct Peer {
    path: &'static str,
    what: &'static str,
    /// EL2 instructions of Bao, main branch of July 2026, on QEMU virt with GICv3; median.
    bao: u64,
    /// Whether weir is compared with half of that: on the paths that a real-time guest feels.
    half: bool,
}

const fn peer(path: &'static str, what: &'static str, bao: u64, half: bool) -> Peer {
    Peer { path, what, bao, half }
}

const PEERS: [Peer; 14] = [
    peer("timer_irq", "virtual timer interrupt to the guest", 199, true),
    peer("spi", "device interrupt to the guest", 204, true),
    peer("sgi_send", "SGI to another vCPU, sender", 385, true),
    peer("sgi_receive", "SGI to another vCPU, receiver", 414, true),
    peer("hypercall", "null hypercall", 149, false),
    peer("psci_version", "PSCI_VERSION", 202, false),
    peer("cpu_on", "PSCI CPU_ON, caller", 395, false),
    peer("gicd_typer_read", "read of GICD_TYPER", 225, false),
    peer("gicd_isenabler_read", "read of GICD_ISENABLER", 1_290, false),
    peer("gicd_isenabler_write", "write of GICD_ISENABLER", 3_563, false),
    peer("gicd_ipriorityr_write", "write of GICD_IPRIORITYR", 422, false),
    peer("gicd_irouter_write", "write of GICD_IROUTER", 407, false),
    peer("gicd_ispendr_write", "write of GICD_ISPENDR", 3_724, false),
    peer("gicr_isenabler0_write", "write of GICR_ISENABLER0", 3_589, false),
];

/// The path from one vCPU's guest to that of another.
const SWITCH: &str = "vcpu_switch";
/// The path of a notification of a port of the switch, on the sender's core.
const NOTIFY: &str = "notify";

/// Bao's boot to the first guest instruction on 4 cores: with one 1-vCPU VM, with one 4-vCPU VM.
const BAO_BOOT: [u64; 2] = [462_628, 612_193];
/// Bao's `.text`.
const BAO_TEXT: u64 = 65_304;
/// Symbols that are shown.
const SYMBOLS: usize = 20;

/// The systems of the benchmark, by their TOML files.
#[derive(Clone, Debug)]
pub struct Systems {
    /// Its guest marks and takes every path (at least 2 vCPUs, for the SGIs), then powers off.
    pub paths: PathBuf,
    /// One VM with one vCPU, on a board with 4 cores.
    pub one_vcpu: PathBuf,
    /// One VM with four vCPUs, on the same board.
    pub four_vcpus: PathBuf,
    /// Two VMs on one core, which want it all the time.
    pub shared: PathBuf,
    /// Two VMs, of which one sends frames of the largest size to the other.
    pub frames: PathBuf,
}

/// What the benchmark needs from the rest of the command.
pub struct Needs<'a, R>
where
    R: FnMut(&Path, &[String]) -> Result,
{
    /// The hypervisor for GICv3, as it is in the images that `run` boots.
    pub hypervisor: &'a LinkedHypervisor,
    /// `libweir_qemu_plugin.so`.
    pub plugin: &'a Path,
    /// A directory for the plug-in's reports; created if missing.
    pub scratch: &'a Path,
    /// The systems to run.
    pub systems: &'a Systems,
    /// Builds the system in the first argument and runs it in QEMU under `-icount
    /// shift=0,sleep=off`, with the second appended to QEMU's arguments, until it powers off or
    /// its `expect` lines were met. QEMU must end by itself or by SIGTERM, not by SIGKILL: the
    /// plug-in writes its report at the end.
    pub run: R,
}

/// The figures, serialized as `weir bench hypervisor --json` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Instructions per path. A path with `n` 0 was taken without entering EL2.
    pub el2_instructions: BTreeMap<String, Instructions>,
    /// Instructions of all cores before the first one of the guest with one vCPU.
    pub boot_instructions: u64,
    /// The same with four vCPUs.
    pub boot_instructions_four_vcpus: u64,
    /// The compiler that made the hypervisor: counts and sizes depend on it.
    pub compiler: String,
    /// Sizes of the hypervisor's sections.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// The largest functions and statics.
    pub largest_symbols: Vec<Symbol>,
    /// Median of DSB, DMB, ISB and SB per path.
    pub barriers: BTreeMap<String, u64>,
    /// Median of TLBI, DC and IC per path.
    pub maintenance: BTreeMap<String, u64>,
    /// Median of the instructions that touched a device, per path.
    pub device_accesses: BTreeMap<String, u64>,
    /// Median of the accesses to GIC CPU interface registers per path.
    pub gic_sysregs: BTreeMap<String, u64>,
    /// The longest non-preemptible section of EL2, without the boot.
    pub longest_masked: Option<Masked>,
}

/// EL2 instructions of one path.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Instructions {
    /// How often it was taken.
    pub n: u64,
    /// Least, median, most and mean.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A stretch with interrupts masked.
#[derive(Clone, Debug, Serialize)]
pub struct Masked {
    /// Its length.
    pub instructions: u64,
    /// The path that it belongs to, `other` for one that no marker names.
    pub path: String,
}

/// A figure that is not below Bao's, or not at half of it. This is a comparison, not a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbovePeer {
    /// The measured quantity.
    pub what: &'static str,
    /// What weir needs.
    pub weir: u64,
    /// What Bao needs.
    pub bao: u64,
    /// Whether it is compared with half of that.
    pub half: bool,
}

impl fmt::Display for AbovePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, weir, bao, half } = self;
        let than = if *half { "more than half of" } else { "not less than" };
        write!(f, "{what}: {weir}, {than} Bao's {bao}")
    }
}

/// Runs the benchmark.
///
/// # Errors
/// Those of `run`; a system whose guest marked no boot, or a path that the guest never took; files
/// that cannot be read.
pub fn measure<R>(needs: Needs<'_, R>) -> Result<Figures>
where
    R: FnMut(&Path, &[String]) -> Result,
{
    let Needs { hypervisor: image, plugin, scratch, systems, mut run } = needs;
    fs::create_dir_all(scratch).context(|| format!("create {}", scratch.display()))?;
    let mut observe = |system: &Path, name: &str| -> Result<Report> {
        let out = scratch.join(format!("{name}.json"));
        let _ = fs::remove_file(&out);
        run(system, &plugin_arguments(plugin, image, &out, None))?;
        Report::read(&out).context(|| format!("read the plug-in's report on {}", system.display()))
    };
    let paths = observe(&systems.paths, "paths")?;
    let one = observe(&systems.one_vcpu, "one-vcpu")?;
    let four = observe(&systems.four_vcpus, "four-vcpus")?;
    let shared = observe(&systems.shared, "shared")?;
    let frames = observe(&systems.frames, "frames")?;
    let boot = |report: &Report, system: &Path| {
        report.boot_instructions.ok_or_else(|| {
            Failure::system(format!(
                "no guest of {} marked its first instruction",
                system.display()
            ))
        })
    };
    let mut paths = paths;
    for (name, report, system, what) in [
        (SWITCH, &shared, &systems.shared, "no vCPU got another's core"),
        (NOTIFY, &frames, &systems.frames, "no VM sent a frame"),
    ] {
        match report.paths.get(name) {
            // EL2's own marker names it; that of a guest is what the others count by.
            Some(path) if path.n > 0 => {
                paths.paths.insert(name.to_owned(), PathReport { marks: path.n, ..path.clone() });
            }
            _ => return Err(Failure::system(format!("{what} in {}", system.display()))),
        }
    }
    Figures::new(&paths, [boot(&one, &systems.one_vcpu)?, boot(&four, &systems.four_vcpus)?], image)
}

impl Figures {
    fn new(report: &Report, boot: [u64; 2], image: &LinkedHypervisor) -> Result<Self> {
        let missing: Vec<_> = PEERS
            .iter()
            .map(|peer| peer.path)
            .filter(|path| report.paths.get(*path).is_none_or(|path| path.n == 0))
            .collect();
        if !missing.is_empty() {
            return Err(Failure::system(format!(
                "the benchmark guest never entered EL2 on: {}",
                missing.join(", ")
            )));
        }
        let marked = || report.paths.iter().filter(|(_, path)| path.marks > 0);
        let medians = |pick: fn(&PathReport) -> u64| {
            marked().map(|(name, path)| (name.clone(), pick(path))).collect()
        };
        Ok(Self {
            el2_instructions: marked()
                .map(|(name, path)| {
                    (name.clone(), Instructions { n: path.n, summary: path.instructions })
                })
                .collect(),
            boot_instructions: boot[0],
            boot_instructions_four_vcpus: boot[1],
            compiler: image.compiler.clone(),
            sizes: image.sizes,
            largest_symbols: image.symbols.iter().take(SYMBOLS).cloned().collect(),
            barriers: medians(|path| path.barriers),
            maintenance: medians(|path| path.maintenance),
            device_accesses: medians(|path| path.device_accesses),
            gic_sysregs: medians(|path| path.gic_sysregs),
            longest_masked: report.longest_masked.as_ref().map(|longest| Masked {
                instructions: longest.instructions,
                path: longest.path.clone(),
            }),
        })
    }

    fn median(&self, path: &str) -> u64 {
        self.el2_instructions.get(path).map_or(0, |path| path.summary.median)
    }

    /// What is compared: description, weir's figure, Bao's, and whether it is compared with half of
    /// that.
    fn compared(&self) -> impl Iterator<Item = (&'static str, u64, u64, bool)> {
        PEERS.iter().map(|peer| (peer.what, self.median(peer.path), peer.bao, peer.half)).chain([
            ("boot, 4 cores, one 1-vCPU VM", self.boot_instructions, BAO_BOOT[0], false),
            ("boot, 4 cores, one 4-vCPU VM", self.boot_instructions_four_vcpus, BAO_BOOT[1], false),
            ("executable sections, bytes", self.sizes.text, BAO_TEXT, false),
        ])
    }

    /// The figures that are not below Bao's, or above half of it on the interrupt paths.
    #[must_use]
    pub fn above_peer(&self) -> Vec<AbovePeer> {
        self.compared()
            .map(|(what, weir, bao, half)| AbovePeer { what, weir, bao, half })
            .filter(|each| each.weir > if each.half { each.bao / 2 } else { each.bao - 1 })
            .collect()
    }

    /// The figures next to Bao's, as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = table([
            "EL2 instructions, median",
            "weir",
            "min",
            "max",
            "Bao",
            "weir/Bao",
            "barriers",
            "device",
            "GIC regs",
        ]);
        let count = |map: &BTreeMap<String, u64>, path: &str| {
            map.get(path).copied().unwrap_or_default().to_string()
        };
        let mut row = |path: &str, what: &str, bao: Option<u64>| {
            let Some(instructions) = self.el2_instructions.get(path) else {
                return;
            };
            let Summary { min, median, max, .. } = instructions.summary;
            table.add_row([
                what.to_owned(),
                median.to_string(),
                min.to_string(),
                max.to_string(),
                bao.map_or_else(|| "-".to_owned(), |bao| bao.to_string()),
                bao.map_or_else(|| "-".to_owned(), |bao| ratio(median, bao)),
                count(&self.barriers, path),
                count(&self.device_accesses, path),
                count(&self.gic_sysregs, path),
            ]);
        };
        for peer in &PEERS {
            row(peer.path, peer.what, Some(peer.bao));
        }
        let rest = self.el2_instructions.keys();
        for path in rest.filter(|path| PEERS.iter().all(|peer| peer.path != **path)) {
            row(path, path, None);
        }

        let mut whole = super::hypervisor::table(["", "weir", "Bao", "weir/Bao"]);
        for (what, weir, bao, _) in self.compared().skip(PEERS.len()) {
            whole.add_row([what.to_owned(), weir.to_string(), bao.to_string(), ratio(weir, bao)]);
        }
        for (what, bytes) in [
            ("read-only data, bytes", self.sizes.rodata),
            ("initialized data, bytes", self.sizes.data),
            ("zeroed data and stacks, bytes", self.sizes.bss),
        ] {
            whole.add_row([what, &bytes.to_string(), "-", "-"]);
        }
        let mut symbols = super::hypervisor::table(["largest symbols", "bytes"]);
        for Symbol { name, bytes } in &self.largest_symbols {
            symbols.add_row([name.clone(), bytes.to_string()]);
        }
        let longest = self.longest_masked.as_ref().map_or_else(String::new, |longest| {
            format!(
                "\nlongest stretch with interrupts masked: {} instructions ({})",
                longest.instructions, longest.path
            )
        });
        format!("{table}\n\n{whole}\n\n{symbols}\ncompiled by {}\n{longest}", self.compiler)
    }
}

fn ratio(weir: u64, bao: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "the figures stay far below 2^53")]
    let ratio = weir as f64 / bao as f64;
    format!("{ratio:.2}")
}

/// A table whose first column is text and whose others are numbers.
fn table<const N: usize>(header: [&str; N]) -> Table {
    Table::new(header).with_numbers(1..N)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_qemu_plugin::report::Longest;

    fn path(n: u64, median: u64) -> PathReport {
        PathReport {
            marks: 20,
            n,
            instructions: Summary { min: median, median, max: median + 1, mean: 0.5 },
            barriers: 1,
            maintenance: 2,
            device_accesses: 3,
            gic_sysregs: 4,
        }
    }

    /// A run on which each path takes half of what Bao needs, and two that need no EL2.
    fn report() -> Report {
        let mut paths: BTreeMap<_, _> =
            PEERS.iter().map(|peer| (peer.path.to_owned(), path(20, peer.bao / 2))).collect();
        paths.insert("eoi".to_owned(), path(0, 0));
        for name in [SWITCH, NOTIFY] {
            paths.insert(name.to_owned(), PathReport { marks: 0, ..path(30, 900) });
        }
        paths.insert("other".to_owned(), PathReport { marks: 0, ..path(9, 9) });
        Report {
            boot_instructions: Some(7),
            longest_masked: Some(Longest { instructions: 88, path: "spi".to_owned(), vcpu: 1 }),
            vcpus: vec![],
            paths,
        }
    }

    const SIZES: Sizes = Sizes { text: 40_000, rodata: 8_000, data: 64, bss: 4_096 };

    fn image() -> LinkedHypervisor {
        let symbol = |bytes| Symbol { name: "run".to_owned(), bytes };
        LinkedHypervisor {
            sizes: SIZES,
            compiler: "rustc 1.2.3".to_owned(),
            symbols: (1..=SYMBOLS as u64 + 1).rev().map(symbol).collect(),
            ..LinkedHypervisor::default()
        }
    }

    fn figures() -> Figures {
        Figures::new(&report(), [400_000, 612_192], &image()).unwrap()
    }

    #[test]
    fn the_json_has_the_published_form() {
        let json = serde_json::to_value(figures()).unwrap();
        assert_eq!(json["el2_instructions"]["timer_irq"]["median"], 99);
        assert_eq!(json["el2_instructions"]["timer_irq"]["min"], 99);
        assert_eq!(json["el2_instructions"]["timer_irq"]["max"], 100);
        assert_eq!(json["el2_instructions"]["eoi"]["n"], 0);
        assert!(json["el2_instructions"].get("other").is_none());
        assert_eq!(json["boot_instructions"], 400_000);
        assert_eq!(json["boot_instructions_four_vcpus"], 612_192);
        assert_eq!(json["compiler"], "rustc 1.2.3");
        assert_eq!(json["text_bytes"], 40_000);
        assert_eq!(json["rodata_bytes"], 8_000);
        assert_eq!(json["data_bytes"], 64);
        assert_eq!(json["bss_bytes"], 4_096);
        assert_eq!(json["largest_symbols"][0]["name"], "run");
        assert_eq!(json["largest_symbols"].as_array().map(Vec::len), Some(SYMBOLS));
        assert_eq!(json["barriers"]["spi"], 1);
        assert_eq!(json["device_accesses"]["spi"], 3);
        assert_eq!(json["longest_masked"]["instructions"], 88);
        assert_eq!(json["longest_masked"]["path"], "spi");
    }

    #[test]
    fn half_of_bao_on_interrupts_is_not_above() {
        assert_eq!(figures().above_peer(), []);
        let mut report = report();
        report.paths.insert("timer_irq".to_owned(), path(1, 100));
        report.paths.insert("hypercall".to_owned(), path(1, 149));
        let figures = Figures::new(&report, [1, 612_193], &image()).unwrap();
        let above: Vec<_> = figures.above_peer().iter().map(ToString::to_string).collect();
        assert_eq!(
            above,
            [
                "virtual timer interrupt to the guest: 100, more than half of Bao's 199",
                "null hypercall: 149, not less than Bao's 149",
                "boot, 4 cores, one 4-vCPU VM: 612193, not less than Bao's 612193",
            ]
        );
    }

    #[test]
    fn a_path_that_was_never_taken_is_named() {
        let mut report = report();
        report.paths.remove("spi");
        report.paths.insert("cpu_on".to_owned(), path(0, 0));
        let failure = Figures::new(&report, [1, 1], &image()).unwrap_err();
        assert_eq!(failure.status, crate::failure::SYSTEM);
        assert!(failure.text.ends_with(": spi, cpu_on"), "{}", failure.text);
    }

    #[test]
    fn the_table_shows_every_line_with_its_ratio() {
        let text = figures().table();
        for what in PEERS.map(|peer| peer.what) {
            let line = text.lines().find(|line| line.contains(what)).unwrap();
            assert!(line.contains(" 0.50 ") || line.contains(" 0.49 "), "{line}");
        }
        let boot = text.lines().find(|line| line.contains("one 1-vCPU VM")).unwrap();
        assert!(boot.contains("400000") && boot.contains("462628") && boot.contains("0.86"));
        assert!(text.lines().any(|line| line.trim_start().starts_with("eoi")));
        assert!(text.contains("compiled by rustc 1.2.3"), "{text}");
        assert!(text.ends_with("longest stretch with interrupts masked: 88 instructions (spi)"));
    }

    #[test]
    fn the_plugin_gets_the_hypervisors_addresses() {
        let image = LinkedHypervisor {
            sizes: SIZES,
            addresses: 0x40_0000_0000..0x40_0005_0000,
            vectors: 0x40_0000_1000,
            ..LinkedHypervisor::default()
        };
        assert_eq!(
            plugin_arguments(Path::new("/a,b/x.so"), &image, Path::new("/c/out.json"), None),
            [
                "-plugin",
                "/a,,b/x.so,out=/c/out.json,hyp=0x4000000000-0x4000050000,vectors=0x4000001000"
            ]
        );
    }
    /// Runs the benchmark with a QEMU that writes `report` and remembers the systems it ran.
    fn measure_with(report: &Report, ran: &mut Vec<PathBuf>) -> Result<Figures> {
        let directory = tempfile::tempdir().unwrap();
        let system = |name: &str| PathBuf::from(format!("{name}.toml"));
        let systems = Systems {
            paths: system("p"),
            one_vcpu: system("one"),
            four_vcpus: system("four"),
            shared: system("shared"),
            frames: system("frames"),
        };
        measure(Needs {
            hypervisor: &image(),
            plugin: Path::new("libweir_qemu_plugin.so"),
            scratch: &directory.path().join("scratch"),
            systems: &systems,
            run: |system, qemu| {
                ran.push(system.to_owned());
                assert_eq!(qemu[0], "-plugin");
                let out = qemu[1].split(',').find_map(|argument| argument.strip_prefix("out="));
                report.write(Path::new(out.unwrap())).context(|| "write")
            },
        })
    }

    #[test]
    fn each_system_is_run_once_and_read() {
        let mut ran = vec![];
        let figures =
            measure_with(&report(), &mut ran).unwrap_or_else(|failure| panic!("{}", failure.text));
        let all = ["p.toml", "one.toml", "four.toml", "shared.toml", "frames.toml"];
        assert_eq!(ran, all.map(PathBuf::from));
        assert_eq!((figures.boot_instructions, figures.boot_instructions_four_vcpus), (7, 7));
        assert_eq!(figures.sizes, SIZES);
    }

    #[test]
    fn a_guest_that_never_started_is_named() {
        let report = Report { boot_instructions: None, ..report() };
        let failure = measure_with(&report, &mut vec![]).unwrap_err();
        assert_eq!(failure.status, crate::failure::SYSTEM);
        assert!(failure.text.contains("no guest of one.toml"), "{}", failure.text);
    }
}
