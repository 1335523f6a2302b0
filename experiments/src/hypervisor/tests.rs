use super::*;
use weir_qemu_plugin::report::Longest;

fn taken(n: u64, median: u64) -> PathReport {
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

/// What Bao takes on a path, or a number.
fn bao(path: &Path) -> u64 {
    path.bao.unwrap_or(1000)
}

/// A run on which each path takes half of what Bao needs, and one that needs no EL2.
fn report() -> CountReport {
    report_of(&PATHS)
}

fn report_of(paths: &[Path]) -> CountReport {
    let mut paths: BTreeMap<_, _> =
        paths.iter().map(|each| (each.key.to_owned(), taken(20, bao(each) / 2))).collect();
    paths.insert("eoi".to_owned(), taken(0, 0));
    for name in [SWITCH, NOTIFY, VIRTIO_NOTIFY] {
        paths.insert(name.to_owned(), PathReport { marks: 0, ..taken(30, 900) });
    }
    paths.insert("other".to_owned(), PathReport { marks: 0, ..taken(9, 9) });
    CountReport {
        boot_instructions: Some(7),
        clearing_instructions: Some(5),
        longest_masked: Some(Longest { instructions: 88, path: "spi".to_owned(), vcpu: 1 }),
        vcpus: vec![],
        paths,
    }
}

const SIZES: SectionSizes = SectionSizes { text: 40_000, rodata: 8_000, data: 64, bss: 4_096 };

fn image() -> LinkedHypervisor {
    let symbol = |bytes| Symbol { name: "run".to_owned(), bytes };
    LinkedHypervisor {
        sizes: SIZES,
        compiler: "rustc 1.2.3".to_owned(),
        symbols: (1..=SYMBOLS as u64 + 1).rev().map(symbol).collect(),
        ..LinkedHypervisor::default()
    }
}

fn used() -> Used {
    Used { hypervisor: image(), image_bytes: 90_000 }
}

fn figures_of(report: &CountReport, boot: [u64; 4]) -> Result<Figures> {
    let boot = boot.map(|rest| Boot { rest, clearing: rest / 4 });
    let masked = |system: &str, instructions| {
        let masked = Masked { instructions, path: "spi".to_owned(), system: system.to_owned() };
        (system.to_owned(), masked)
    };
    let all = BTreeMap::from([masked("p", 88), masked("frames", 9000)]);
    Figures::new([report, &report_of(&PATHS_GICV2)], boot, &image(), &used(), all)
}

fn figures() -> Figures {
    figures_of(&report(), [400_000, 450_000, 500_000, 612_192]).unwrap()
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
    assert_eq!(json["boot_instructions_64_mib"], 450_000);
    assert_eq!(json["boot_instructions_256_mib"], 500_000);
    assert_eq!(json["boot_instructions_four_vcpus"], 612_192);
    assert_eq!(json["clearing_instructions"], 100_000);
    assert_eq!(json["clearing_instructions_64_mib"], 112_500);
    assert_eq!(json["clearing_instructions_256_mib"], 125_000);
    assert_eq!(json["minimal"]["text_bytes"], 40_000);
    assert_eq!(json["image_bytes"], 90_000);
    assert_eq!(json["compiler"], "rustc 1.2.3");
    assert_eq!(json["text_bytes"], 40_000);
    assert_eq!(json["rodata_bytes"], 8_000);
    assert_eq!(json["data_bytes"], 64);
    assert_eq!(json["bss_bytes"], 4_096);
    assert_eq!(json["largest_symbols"][0]["name"], "run");
    assert_eq!(json["largest_symbols"].as_array().map(Vec::len), Some(SYMBOLS));
    assert_eq!(json["gicv2"]["el2_instructions"]["timer_irq"]["median"], 102);
    assert_eq!(json["gicv2"]["device_accesses"]["spi"], 3);
    assert_eq!(json["barriers"]["spi"], 1);
    assert_eq!(json["device_accesses"]["spi"], 3);
    assert_eq!(json["masked"]["p"]["instructions"], 88);
    assert_eq!(json["masked_max"]["instructions"], 9000);
    assert_eq!(json["masked_max"]["system"], "frames");
}

#[test]
fn half_of_bao_on_interrupts_is_not_above() {
    assert_eq!(figures().above_peer(), []);
    let mut report = report();
    report.paths.insert("timer_irq".to_owned(), taken(1, 100));
    report.paths.insert("hypercall".to_owned(), taken(1, 149));
    let figures = figures_of(&report, [1, 461_026, 1, 1]).unwrap();
    let above: Vec<_> = figures.above_peer().iter().map(ToString::to_string).collect();
    assert_eq!(
        above,
        [
            "virtual timer interrupt to the guest: 100, more than half of Bao's 199",
            "null hypercall: 149, not less than Bao's 149",
            "the same, 64 MiB: 461026, not less than Bao's 461026",
        ]
    );
}

#[test]
fn a_path_that_was_never_taken_is_named() {
    let mut report = report();
    report.paths.remove("spi");
    report.paths.insert("cpu_on".to_owned(), taken(0, 0));
    let failure = figures_of(&report, [1; 4]).unwrap_err();
    assert_eq!(failure.status, weir_image::failure::SYSTEM);
    assert!(failure.text.ends_with(": spi, cpu_on"), "{}", failure.text);
}

/// Runs the benchmark with a QEMU that writes `report` and remembers the systems it ran.
fn measure_with(report: &CountReport, ran: &mut Vec<PathBuf>) -> Result<Figures> {
    let directory = tempfile::tempdir().unwrap();
    let system = |name: &str| PathBuf::from(format!("{name}.toml"));
    let systems = Systems {
        paths: system("p"),
        paths_gicv2: system("p-gicv2"),
        one_vcpu: ["two", "sixty-four", "most"].map(system),
        shared: system("shared"),
        frames: system("frames"),
        flow: system("flow"),
        others: vec![system("restart")],
    };
    measure(Needs {
        scratch: &directory.path().join("scratch"),
        systems: &systems,
        run: |system, out| {
            ran.push(system.to_owned());
            report.write(out).context(|| "write")?;
            Ok(used())
        },
    })
}

#[test]
fn each_system_is_run_once_and_read() {
    let mut ran = vec![];
    let figures =
        measure_with(&report(), &mut ran).unwrap_or_else(|failure| panic!("{}", failure.text));
    let all = ["p", "p-gicv2", "two", "sixty-four", "most", "shared", "frames", "flow", "restart"];
    assert_eq!(ran, all.map(|name| PathBuf::from(format!("{name}.toml"))));
    assert_eq!((figures.boot_instructions, figures.boot_instructions_four_vcpus), (7, 7));
    assert_eq!(figures.clearing_instructions_256_mib, 5);
    assert_eq!(figures.sizes, SIZES);
    assert_eq!(figures.paths.el2_instructions["notify_flow"].n, 30);
    assert_eq!(figures.gicv2.el2_instructions["timer_irq"].n, 20);
    assert_eq!(figures.masked.len(), all.len() - 1);
    assert!(!figures.masked.contains_key("p-gicv2"));
    assert_eq!(figures.longest_masked.expect("of p").system, "p");
}

#[test]
fn a_guest_that_never_started_is_named() {
    let report = CountReport { boot_instructions: None, ..report() };
    let failure = measure_with(&report, &mut vec![]).unwrap_err();
    assert_eq!(failure.status, weir_image::failure::SYSTEM);
    assert!(failure.text.contains("no guest of two.toml"), "{}", failure.text);
}
