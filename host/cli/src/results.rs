//! `weir results`: writes the measured tables of the documentation from the JSON in
//! `docs/results`.
//!
//! A page has a table between the lines `<!-- results: NAME -->` and `<!-- end -->`. The figures
//! are what `weir bench .. --json`, `weir reproduce .. --json` and `./weir test qemu --losses` gave.

use crate::{
    bench::{
        clock::{self, ClockSpeed},
        copies,
        engine::{self, EngineReport, PhaseRow},
        flows::{FlowsBench, MeasuredFlow, SystemRun},
        mapping,
        memory::{self, MemoryCost},
        table3::Table3Run,
    },
    build_id,
    environment::Environment,
    failure::{Context, Failure, Result},
    screen,
    simulate::Variant,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};
use weir_analysis::{system::OtherVms, verdict::Verdict};
use weir_experiments::{
    EXPERIMENTS, ExperimentReport, Table3Flow,
    hypervisor::{self, Figures, PathFigures, WholeFigure},
    rjmm::{
        cyclictest::CyclictestFigures,
        isolbench::IsolBenchFigures,
        linux::LinuxFigures,
        mapping::{MappingCost, MappingFigures},
    },
    throttling::paths::{BAO, PATHS},
};
use weir_report::{TextTable, units};
use weir_runner::elf::SectionSizes;

mod reproduced;

/// Writes the measured tables of README.md and docs from the files in docs/results.
#[derive(Debug, clap::Args)]
#[command(
    hide = true,
    after_help = "Examples:\n  weir bench mapping --json > docs/results/mapping.json\n  weir \
                  results\n  weir results --check"
)]
pub struct Arguments {
    /// Write nothing; fail if a table is not what would be written.
    #[arg(long)]
    check: bool,
}

const BEGIN: &str = "<!-- results: ";
const END: &str = "<!-- end -->";

/// Carries the verb out.
pub fn run(arguments: &Arguments, environment: &Environment) -> Result {
    let root = environment.sources()?;
    let results = Results { folder: root.join("docs/results") };
    let mut pages = vec![root.join("README.md")];
    markdown(&root.join("docs"), &mut pages)?;
    pages.sort();
    let mut tables = 0;
    for path in pages {
        let page = fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
        let new = filled(&page, &results)
            .map_err(|failure| Failure::system(format!("{}: {}", path.display(), failure.text)))?;
        tables += page.matches(BEGIN).count();
        if new == page {
            continue;
        }
        if arguments.check {
            return Err(Failure::system(format!(
                "{} has tables that are not those of docs/results/*.json: run `weir results`",
                path.display()
            )));
        }
        fs::write(&path, new).context(|| format!("write {}", path.display()))?;
        writeln!(screen::stdout(), "{}", path.display())?;
    }
    writeln!(screen::stdout(), "{tables} tables")?;
    if let Some(build) = build_id::of_checkout() {
        for (name, other) in results.of_other_builds(build)? {
            writeln!(
                screen::stdout(),
                "docs/results/{name}.json is of {other}, and this is {build}: measure it again"
            )?;
        }
    }
    Ok(())
}

fn markdown(folder: &Path, pages: &mut Vec<PathBuf>) -> Result {
    for entry in fs::read_dir(folder).context(|| format!("read {}", folder.display()))? {
        let path = entry.context(|| format!("read {}", folder.display()))?.path();
        if path.is_dir() {
            markdown(&path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

/// Returns the page with its tables written anew.
fn filled(page: &str, results: &Results) -> Result<String> {
    let mut new = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(new, "{line}");
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        if !lines.any(|line| line == END) {
            return Err(Failure::system(format!("no line {END} behind the table {name}")));
        }
        let _ = writeln!(new, "\n{}\n{END}", results.table(name)?);
    }
    Ok(new)
}

/// The files of figures.
struct Results {
    folder: PathBuf,
}

/// Returns the files with figures of a build of the hypervisor, which they name.
fn of_a_build() -> impl Iterator<Item = String> {
    let experiments = EXPERIMENTS.iter().filter(|experiment| experiment.runs_systems());
    let experiments = experiments.map(|experiment| format!("reproduce/{}", experiment.name));
    ["attacks", "engine", "flows", "hypervisor"].map(str::to_owned).into_iter().chain(experiments)
}

/// A table of results: in Markdown for a page, or for the terminal.
struct Rows(TextTable);

impl Rows {
    /// The first columns are text, as many as `text`; the others are numbers.
    fn new(header: &[&str], text: usize) -> Self {
        Self(TextTable::new(header).with_numbers(text..header.len()))
    }

    fn row(&mut self, cells: &[String]) {
        self.0.add_row(cells);
    }
}

/// The losses of the victims that the tests of attacks measured.
#[derive(Deserialize)]
struct Losses {
    tests: Vec<TestLosses>,
}

#[derive(Deserialize)]
struct TestLosses {
    test: String,
    losses: Vec<Loss>,
}

#[derive(Deserialize)]
struct Loss {
    attacker: String,
    core: String,
    what: String,
    measured: u64,
    limit: u64,
}

/// Returns the tables of what `weir bench hypervisor` measured, with a heading each, for the
/// terminal.
pub fn of_hypervisor(figures: &Figures) -> String {
    let tables = [
        ("EL2 instructions per path, median", paths(figures)),
        ("The same with GICv2", paths_gicv2(figures)),
        ("Other paths", other_paths(figures)),
        ("Boot and size", whole(figures)),
        ("Sections", sections(figures)),
        ("Largest symbols", symbols(figures)),
        ("Interrupts masked while VMs run", masked(figures)),
    ];
    let each = tables.map(|(heading, rows)| format!("{heading}:\n{}\n", rows.0));
    each.join("\n")
}

impl Results {
    fn file<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let path = self.folder.join(name).with_extension("json");
        let text = fs::read(&path).context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).context(|| format!("read {}", path.display()))
    }

    /// Returns the files with figures of another build than `build`, and which one.
    fn of_other_builds(&self, build: &str) -> Result<Vec<(String, String)>> {
        let mut others = Vec::new();
        for name in of_a_build() {
            let file: Value = self.file(&name)?;
            match file["build"].as_str() {
                Some(own) if own == build => {}
                Some(other) => others.push((name, format!("the hypervisor's build {other}"))),
                None => others.push((name, "an unknown build of the hypervisor".to_owned())),
            }
        }
        Ok(others)
    }

    fn experiment<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        self.file(&format!("reproduce/{name}"))
    }

    /// All experiments.
    fn reproduced(&self) -> Result<Vec<ExperimentReport>> {
        EXPERIMENTS.iter().map(|experiment| self.experiment(experiment.name)).collect()
    }

    fn table(&self, name: &str) -> Result<String> {
        Ok(match name {
            "paths" => paths(&self.file("hypervisor")?),
            "paths-gicv2" => paths_gicv2(&self.file("hypervisor")?),
            "other-paths" => other_paths(&self.file("hypervisor")?),
            "budgets" => budgets(&self.file("hypervisor")?),
            "whole" => whole(&self.file("hypervisor")?),
            "masked" => masked(&self.file("hypervisor")?),
            "sections" => sections(&self.file("hypervisor")?),
            "symbols" => symbols(&self.file("hypervisor")?),
            "phases" => phases(&self.file("flows")?),
            "round-trips" => round_trips(&self.file("flows")?),
            "flows" => flows(&self.file("flows")?),
            "others" => others(&self.file("flows")?),
            "table2" => table2(&self.file("engine")?),
            "table3" => table3(&self.file("engine")?),
            "table3-runs" => table3_runs(&self.file("engine")?),
            "copies" => copies(&self.file("engine")?),
            "mapping" => mapping(&self.file::<Vec<_>>("mapping")?),
            "clock" => clock(&self.file::<Vec<_>>("clock")?),
            "memory" => memory(&self.file::<Vec<_>>("memory")?),
            "simulate-isolation" => slowdowns(&self.file::<Vec<_>>("simulate-isolation")?),
            "coverage" => reproduced::coverage(&self.reproduced()?),
            "deviations" => reproduced::deviations(&self.reproduced()?),
            "experiments" => reproduced::experiments(&self.reproduced()?),
            "fitted" => reproduced::fitted(&self.reproduced()?),
            "isolation" => reproduced::isolation(&self.experiment("isolation")?),
            "cache-share" => reproduced::cache_share(&self.experiment("isolation")?),
            "overshoot" => reproduced::overshoot(&self.experiment("throttling")?),
            "regulators" => reproduced::regulators(&self.experiment("throttling")?),
            "isolbench" => {
                let figures: IsolBenchFigures = self.experiment("rjmm-isolbench")?;
                reproduced::cells(0, &figures.cells())
            }
            "wakes" => {
                let figures: CyclictestFigures = self.experiment("rjmm-cyclictest")?;
                reproduced::cells(2, &figures.cells())
            }
            "linux-wakes" => {
                let figures: LinuxFigures = self.experiment("rjmm-linux")?;
                reproduced::cells(1, &figures.cells())
            }
            "mapping-increase" => {
                let figures: MappingFigures = self.experiment("rjmm-mapping")?;
                reproduced::cells(0, &figures.cells())
            }
            "sleeps" => reproduced::sleeps(&self.experiment("mobivmm")?),
            "xen-bandwidth" => {
                reproduced::xen_bandwidth(&self.experiment("xen-throttling-bandwidth")?)
            }
            "xen-critical" => {
                reproduced::xen_critical(&self.experiment("xen-throttling-critical")?)
            }
            "xen-compensation" => {
                reproduced::xen_compensation(&self.experiment("xen-throttling-compensation")?)
            }
            "readme" => readme(&self.file("hypervisor")?),
            _ => match name.strip_prefix("attacks ") {
                Some(part) => losses(&self.file("attacks")?, part),
                None => {
                    return Err(Failure::system(format!("no table of results is named {name}")));
                }
            },
        }
        .0
        .markdown())
    }
}

/// A number, or a dash.
fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), units::count)
}

fn ratio(weir: u64, bao: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let ratio = weir as f64 / bao as f64;
    format!("{ratio:.2}")
}

/// Names of figures above the peer's are bold.
fn compared(what: &str, weir: u64, bao: Option<u64>) -> [String; 4] {
    let cells = [
        what.to_owned(),
        units::count(weir),
        bao.map_or_else(|| "-".to_owned(), units::count),
        bao.map_or_else(|| "-".to_owned(), |bao| ratio(weir, bao)),
    ];
    if bao.is_some_and(|bao| weir >= bao) { cells.map(|cell| format!("**{cell}**")) } else { cells }
}

fn median(paths: &PathFigures, path: &str) -> u64 {
    paths.el2_instructions.get(path).map_or(0, |path| path.median)
}

fn paths(figures: &Figures) -> Rows {
    compared_paths(&figures.paths, &hypervisor::PATHS, &["barriers", "device", "GIC"])
}

/// A GICv2 has no system registers.
fn paths_gicv2(figures: &Figures) -> Rows {
    compared_paths(&figures.gicv2, &hypervisor::PATHS_GICV2, &["barriers", "device"])
}

/// The medians of barriers, device accesses and GIC system registers of a path.
fn counts(of: &PathFigures, path: &str) -> [String; 3] {
    [&of.barriers, &of.device_accesses, &of.gic_sysregs]
        .map(|counts| number(counts.get(path).copied()))
}

fn compared_paths(of: &PathFigures, paths: &[hypervisor::Path], columns: &[&str]) -> Rows {
    let header = [&["path", "weir", "Bao", "weir/Bao"], columns].concat();
    let mut rows = Rows::new(&header, 1);
    for hypervisor::Path { key, what, bao, .. } in paths {
        let mut row = compared(what, median(of, key), *bao).to_vec();
        row.extend(counts(of, key).into_iter().take(columns.len()));
        rows.row(&row);
    }
    rows
}

fn other_paths(figures: &Figures) -> Rows {
    let header = ["path", "median", "minimum", "maximum", "barriers", "device", "GIC"];
    let mut rows = Rows::new(&header, 1);
    for (key, what) in [
        ("vcpu_switch", "`vcpu_switch`: switch between two vCPUs on a shared core"),
        ("notify_flow", "notification of a flow, on the sender's core"),
        ("notify", "notification of a port of the switch, on the sender's core"),
        ("eoi", "end of interrupt"),
        ("timer_program", "setting the virtual timer"),
    ] {
        let path = figures.paths.el2_instructions.get(key);
        let mut row = vec![what.to_owned()];
        row.extend(
            [path.map(|it| it.median), path.map(|it| it.min), path.map(|it| it.max)].map(number),
        );
        row.extend(counts(&figures.paths, key));
        rows.row(&row);
    }
    rows
}

const REGULATORS: [&str; 4] = ["static", "pool", "memguard", "compensation"];

fn budgets(figures: &Figures) -> Rows {
    let header = [&["path"], &REGULATORS[..], &["Bao, static"]].concat();
    let mut rows = Rows::new(&header, 1);
    for (path, what) in PATHS {
        let mut row = vec![format!("`{path}`: {what}")];
        for regulator in REGULATORS {
            let its = figures.budgets.get(regulator).and_then(|paths| paths.get(path));
            row.push(its.map_or_else(
                || "-".to_owned(),
                |its| {
                    let [min, median, max] = [its.min, its.median, its.max].map(units::count);
                    if min == max { median } else { format!("{min}, {median}, {max}") }
                },
            ));
        }
        let bao = BAO.iter().find(|(bao, _)| *bao == path);
        row.push(number(bao.map(|(_, bao)| *bao)));
        rows.row(&row);
    }
    rows
}

fn whole(figures: &Figures) -> Rows {
    let mut rows = Rows::new(&["", "weir", "Bao", "weir/Bao"], 1);
    for WholeFigure { what, weir, bao, .. } in figures.whole() {
        rows.row(&compared(what, weir, bao));
    }
    rows
}

fn masked(figures: &Figures) -> Rows {
    let mut rows = Rows::new(&["system", "path", "instructions"], 2);
    for masked in figures.masked.values() {
        let system = format!("`{}`", masked.system);
        rows.row(&[system, format!("`{}`", masked.path), units::count(masked.instructions)]);
    }
    rows
}

fn sections(figures: &Figures) -> Rows {
    let mut rows = Rows::new(&["section", "full system, bytes", "minimal system, bytes"], 1);
    let bytes = |sizes: SectionSizes| [sizes.text, sizes.rodata, sizes.data, sizes.bss];
    let both = bytes(figures.sizes).into_iter().zip(bytes(figures.minimal));
    let sections = ["executable", "read-only data", "initialized data", "zeroed data and stacks"];
    for (what, (full, minimal)) in sections.into_iter().zip(both) {
        rows.row(&[what.to_owned(), units::count(full), units::count(minimal)]);
    }
    rows
}

/// The ten largest functions and statics of the full system.
fn symbols(figures: &Figures) -> Rows {
    let mut rows = Rows::new(&["symbol", "bytes"], 1);
    for symbol in figures.largest_symbols.iter().take(10) {
        rows.row(&[format!("`{}`", symbol.name), units::count(symbol.bytes)]);
    }
    rows
}

fn phases(report: &FlowsBench) -> Rows {
    let mut rows = Rows::new(&["", "phase", "times", "min", "avg", "median", "max"], 2);
    for phase in &report.phases.phases {
        let mut row =
            vec![phase.name.clone(), phase.action.clone(), units::count(phase.count as u64)];
        let ns = phase.ns;
        let durations = [ns.min, ns.avg, ns.median, ns.max];
        row.extend(durations.map(|ns| number((phase.count > 0).then_some(ns))));
        if phase.max_or_more {
            row[6].push_str(" or more");
        }
        rows.row(&row);
    }
    rows
}

fn round_trips(report: &FlowsBench) -> Rows {
    let mut rows = Rows::new(&["system", "min, ns", "avg, ns", "max, ns"], 1);
    for trip in &report.round_trips {
        let [min, avg, max] = [trip.min_ns, trip.avg_ns, trip.max_ns].map(units::count);
        rows.row(&[format!("`{}`", trip.system), min, avg, max]);
    }
    rows
}

/// A system, and the board if it is another than its own.
fn of_system(system: &SystemRun) -> String {
    let name = &system.system;
    match &system.platform {
        Some(platform) => format!("`{name}` on `{platform}`"),
        None => format!("`{name}`"),
    }
}

/// The verdict of what was judged; a dash if nothing was.
fn verdict(judged: Option<Verdict>) -> String {
    judged.map_or_else(|| "-".to_owned(), |verdict| verdict.to_string())
}

/// Tasks, interrupts and memory budgets.
fn others(report: &FlowsBench) -> Rows {
    let header = [
        "system",
        "VM",
        "",
        "verdict",
        "count",
        "deadline or budget",
        "bound",
        "maximum",
        "bound/max",
    ];
    let mut rows = Rows::new(&header, 4);
    for system in &report.systems {
        for part in &system.others {
            let what = format!("{} {}", part.kind, part.name);
            let mut cells = vec![
                of_system(system),
                format!("`{}`", part.vm),
                what,
                verdict(Some(part.verdict)),
            ];
            cells.extend([part.count, part.limit, part.bound, part.observed_max].map(number));
            cells.push(of_most(part.bound, part.observed_max.unwrap_or_default()));
            rows.row(&cells);
        }
    }
    rows
}

fn flows(report: &FlowsBench) -> Rows {
    let header = [
        "system",
        "flow",
        "verdict",
        "packets",
        "lost",
        "late",
        "deadline, ns",
        "bound, ns",
        "quiet bound, ns",
        "maximum, ns",
        "bound/max",
        "quiet/max",
    ];
    let mut rows = Rows::new(&header, 3);
    for system in &report.systems {
        // All but the name and what depends on the maximum.
        let same = |flow: &MeasuredFlow| {
            let counts = [Some(flow.packets), Some(flow.lost), Some(flow.late)];
            (flow.verdict, counts, [flow.deadline_ns, flow.bound_ns, flow.quiet_bound_ns])
        };
        let row_of = |name: String, flow: &MeasuredFlow, maximum: String, most: u64| {
            let (judged, counts, times) = same(flow);
            let mut row = vec![of_system(system), name, verdict(judged)];
            row.extend(counts.into_iter().chain(times).map(number));
            row.push(maximum);
            row.extend([flow.bound_ns, flow.quiet_bound_ns].map(|bound| of_most(bound, most)));
            row
        };
        // Flows that are alike are one line, with the range of their maxima.
        let flows = &system.flows;
        if flows.len() > 3 && flows.iter().all(|flow| same(flow) == same(&flows[0])) {
            let maxima = || flows.iter().map(|flow| flow.observed_max_ns);
            let [least, most] = [maxima().min(), maxima().max()].map(Option::unwrap_or_default);
            let range = format!("{} to {}", units::count(least), units::count(most));
            rows.row(&row_of(format!("{}, each", flows.len()), &flows[0], range, most));
            continue;
        }
        for flow in flows {
            let most = flow.observed_max_ns;
            rows.row(&row_of(format!("`{}`", flow.name), flow, units::count(most), most));
        }
    }
    rows
}

/// Returns the bound as a multiple of the observed maximum; a dash without one.
fn of_most(bound: Option<u64>, most: u64) -> String {
    bound.map_or_else(|| "-".to_owned(), |bound| ratio(bound, most))
}

/// The slowdown of the first VM in each variant that `weir simulate run --compare` simulates.
fn slowdowns(variants: &[Variant]) -> Rows {
    let mut rows = Rows::new(&["variant", "slowdown of the walk"], 1);
    for variant in variants {
        let slowdown = variant.vms.first().and_then(|vm| vm.slowdown);
        let slowdown = slowdown.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
        rows.row(&[variant.variant.clone(), slowdown]);
    }
    rows
}

/// Table II of rt-virtio next to what a core and the engine take.
fn table2(report: &EngineReport) -> Rows {
    let header = engine::header();
    let mut rows = Rows::new(&header.iter().map(String::as_str).collect::<Vec<_>>(), 2);
    for phase in report.table2.iter().chain([&PhaseRow::sum(&report.table2)]) {
        rows.row(&phase.row(number));
    }
    rows
}

/// A flow of Table III: MB/s and KiB.
fn flow_of(flow: Table3Flow) -> [String; 2] {
    let (megabytes, kib) = flow.in_table();
    [megabytes, kib].map(units::count)
}

/// Table III of rt-virtio next to weir's analysis with the paper's constants.
fn table3(report: &EngineReport) -> Rows {
    let header = [
        "MB/s",
        "KiB",
        "rt-virtio: latency, maximum",
        "rt-virtio: period",
        "weir: period, as Table III was computed",
        "weir: period, equations as printed",
    ];
    let mut rows = Rows::new(&header, 0);
    for flow in report.table3.iter().map(|row| row.flow) {
        let mut row = flow_of(flow).to_vec();
        let times = [flow.measured_ns, flow.published_ns, flow.table3_ns, flow.printed_ns];
        row.extend(times.map(units::count));
        rows.row(&row);
    }
    rows
}

/// Its flows in weir's runs.
fn table3_runs(report: &EngineReport) -> Rows {
    let header = [
        "moved by",
        "other VMs",
        "verdict",
        "MB/s",
        "KiB",
        "period",
        "rt-virtio",
        "weir/rt-virtio",
        "packets",
        "latency, maximum",
        "bound",
    ];
    let mut rows = Rows::new(&header, 3);
    for (path, what) in [("dma", "the engine"), ("broker", "the core")] {
        let others = [(OtherVms::Quiet, "do nothing"), (OtherVms::Active, "do what they may")];
        for (others, may) in others {
            for row in &report.table3 {
                let is_its = |run: &&Table3Run| run.path == path && run.others == others;
                for run in row.runs.iter().filter(is_its) {
                    let mut cells = vec![what.to_owned(), may.to_owned(), verdict(run.verdict)];
                    cells.extend(flow_of(row.flow));
                    let (period, published) = (run.period_ns, row.flow.published_ns);
                    cells.extend([
                        units::count(period),
                        units::count(published),
                        ratio(period, published),
                    ]);
                    cells.extend([units::count(run.packets), units::count(run.observed_max_ns)]);
                    cells.push(number(run.bound_ns));
                    rows.row(&cells);
                }
            }
        }
    }
    rows
}

/// Chunks by the core and by the engine; in bold, that of the size from which on the engine takes
/// no longer.
fn copies(report: &EngineReport) -> Rows {
    let mut rows = Rows::new(&copies::HEADER, 0);
    let crossover = copies::crossover(&report.copies);
    for copy in &report.copies {
        let is_crossover = Some(copy.size) == crossover;
        let bold = |text: String| if is_crossover { format!("**{text}**") } else { text };
        rows.row(&copy.row(number).map(bold));
    }
    rows
}

/// What the tests `qemu_attacks_PART` measured.
fn losses(attacks: &Losses, part: &str) -> Rows {
    let header = ["attacker", "its core", "test", "the victim loses", "measured", "limit"];
    let mut rows = Rows::new(&header, 4);
    let module = format!("qemu_attacks_{part}::");
    for TestLosses { test, losses } in &attacks.tests {
        let Some(name) = test.strip_prefix(&module) else { continue };
        for Loss { attacker, core, what, measured, limit } in losses {
            rows.row(&[
                format!("`{attacker}`"),
                core.clone(),
                format!("`{name}`"),
                what.clone(),
                units::count(*measured),
                units::count(*limit),
            ]);
        }
    }
    rows
}

fn mapping(costs: &[MappingCost]) -> Rows {
    let mut rows = Rows::new(&mapping::HEADER, 0);
    for cost in costs {
        rows.row(&[
            units::count(cost.mib),
            units::count(cost.native_instructions),
            units::count(cost.colored_instructions),
            format!("{:.3}", cost.ratio),
            units::count(cost.native_setup_instructions),
            units::count(cost.colored_setup_instructions),
            format!("{:.3}", cost.ratio_with_setup),
            units::count(cost.block_instructions),
            format!("{:.3}", cost.ratio_by_calls),
        ]);
    }
    rows
}

fn clock(speeds: &[ClockSpeed]) -> Rows {
    let mut rows = Rows::new(&clock::HEADER, 0);
    for speed in speeds {
        rows.row(&[
            units::count(speed.quantum_ns),
            units::count(speed.cores),
            format!("{:.2}", speed.host_s_per_virtual_s),
            units::count(speed.mips),
            units::count(speed.counting_mips),
        ]);
    }
    rows
}

fn memory(costs: &[MemoryCost]) -> Rows {
    let mut rows = Rows::new(&memory::HEADER, 1);
    for cost in costs {
        rows.row(&[
            cost.memory.clone(),
            units::count(cost.writers),
            units::count(cost.load_ns),
            format!("{:.1}", cost.simulated_ns),
            format!("{:.3}", memory::ratio(cost.load_ns, cost.simulated_ns)),
            format!("{:.1}", cost.host_s_per_virtual_s),
            format!("{:.1}", cost.host_s_per_virtual_s_few_misses),
            format!("{:.1}", cost.host_s_per_virtual_s_without),
        ]);
    }
    rows
}

/// The few figures of the first page.
fn readme(figures: &Figures) -> Rows {
    let mut rows = Rows::new(&["", "weir", "Bao"], 1);
    let bao = |key: &str| {
        let path = hypervisor::PATHS.iter().find(|path| path.key == key);
        number(path.and_then(|path| path.bao))
    };
    let paths = |keys: &[&str], of: &dyn Fn(&str) -> String| {
        keys.iter().map(|key| of(key)).collect::<Vec<_>>().join("; ")
    };
    for (what, keys) in [
        ("timer interrupt; device interrupt", &["timer_irq", "spi"][..]),
        ("SGI: send; receive", &["sgi_send", "sgi_receive"]),
        ("null hypercall; PSCI_VERSION by SMC", &["hypercall", "psci_version_smc"]),
        (
            "GICD_ISENABLER, off to on; GICD_IPRIORITYR, change",
            &["gicd_isenabler_line", "gicd_ipriorityr_change"],
        ),
    ] {
        let weir = paths(keys, &|key| units::count(median(&figures.paths, key)));
        rows.row(&[what.to_owned(), weir, paths(keys, &bao)]);
    }
    for WholeFigure { what, weir, bao, .. } in figures.whole().filter(|it| it.in_readme) {
        rows.row(&[what.to_owned(), units::count(weir), number(bao)]);
    }
    rows
}

#[cfg(test)]
mod tests;
