//! `weir results`: writes the measured tables of the documentation from the JSON in
//! `docs/results`.
//!
//! A page has a table between the lines `<!-- results: NAME -->` and `<!-- end -->`. The figures
//! are what `weir bench .. --json`, `weir reproduce .. --json` and `./weir test qemu --losses` gave.

use crate::{
    bench::{self, engine, mapping::HEADER},
    build_id,
    environment::Environment,
    failure::{Context, Failure, Result},
    screen,
};
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};
use weir_experiments::{EXPERIMENTS, hypervisor};
use weir_report::TextTable;

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
    let root = environment.root()?;
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

/// Returns the tables of what `weir bench hypervisor` measured, with a heading each, for the
/// terminal.
pub fn of_hypervisor(json: &Value) -> String {
    let tables = [
        ("EL2 instructions per path, median", paths(json)),
        ("The same with GICv2", paths_gicv2(&json["gicv2"])),
        ("Other paths", other_paths(json)),
        ("Boot and size", whole(json)),
        ("Sections", sections(json)),
        ("Largest symbols", symbols(json)),
        ("Interrupts masked while VMs run", masked(json)),
    ];
    let each = tables.map(|(heading, rows)| format!("{heading}:\n{}\n", rows.0));
    each.join("\n")
}

impl Results {
    fn file(&self, name: &str) -> Result<Value> {
        let path = self.folder.join(name).with_extension("json");
        let text = fs::read(&path).context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).context(|| format!("read {}", path.display()))
    }

    /// Returns the files with figures of another build than `build`, and which one.
    fn of_other_builds(&self, build: &str) -> Result<Vec<(String, String)>> {
        let mut others = Vec::new();
        for name in of_a_build() {
            let file = self.file(&name)?;
            match file["build"].as_str() {
                Some(own) if own == build => {}
                Some(other) => others.push((name, format!("the hypervisor's build {other}"))),
                None => others.push((name, "an unknown build of the hypervisor".to_owned())),
            }
        }
        Ok(others)
    }

    fn experiment(&self, name: &str) -> Result<Value> {
        self.file(&format!("reproduce/{name}"))
    }

    /// All experiments.
    fn reproduced(&self) -> Result<Vec<Value>> {
        EXPERIMENTS.iter().map(|experiment| self.experiment(experiment.name)).collect()
    }

    fn table(&self, name: &str) -> Result<String> {
        Ok(match name {
            "paths" => paths(&self.file("hypervisor")?),
            "paths-gicv2" => paths_gicv2(&self.file("hypervisor")?["gicv2"]),
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
            "mapping" => mapping(&self.file("mapping")?),
            "clock" => clock(&self.file("clock")?),
            "memory" => memory(&self.file("memory")?),
            "simulate-isolation" => slowdowns(&self.file("simulate-isolation")?),
            "coverage" => reproduced::coverage(&self.reproduced()?),
            "deviations" => reproduced::deviations(&self.reproduced()?),
            "experiments" => reproduced::experiments(&self.reproduced()?),
            "fitted" => reproduced::fitted(&self.reproduced()?),
            "isolation" => reproduced::isolation(&self.experiment("isolation")?),
            "cache-share" => reproduced::cache_share(&self.experiment("isolation")?),
            "overshoot" => reproduced::overshoot(&self.experiment("throttling")?),
            "regulators" => reproduced::regulators(&self.experiment("throttling")?),
            "sleeps" => reproduced::sleeps(&self.experiment("mobivmm")?),
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

/// A number with a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count of the JSON; a dash if there is none.
fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), grouped)
}

fn ratio(weir: u64, bao: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let ratio = weir as f64 / bao as f64;
    format!("{ratio:.2}")
}

/// The values of a list in an object; none if it has no such list.
fn list<'a>(json: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + Clone {
    json[key].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Names of figures above the peer's are bold.
fn compared(what: &str, weir: u64, bao: Option<u64>) -> [String; 4] {
    let cells = [
        what.to_owned(),
        grouped(weir),
        bao.map_or_else(|| "-".to_owned(), grouped),
        bao.map_or_else(|| "-".to_owned(), |bao| ratio(weir, bao)),
    ];
    if bao.is_some_and(|bao| weir >= bao) { cells.map(|cell| format!("**{cell}**")) } else { cells }
}

fn median(json: &Value, path: &str) -> u64 {
    json["el2_instructions"][path]["median"].as_u64().unwrap_or_default()
}

fn paths(json: &Value) -> Rows {
    let counts = [("barriers", "barriers"), ("device", "device_accesses"), ("GIC", "gic_sysregs")];
    compared_paths(json, &hypervisor::PATHS, &counts)
}

/// A GICv2 has no system registers.
fn paths_gicv2(json: &Value) -> Rows {
    let counts = [("barriers", "barriers"), ("device", "device_accesses")];
    compared_paths(json, &hypervisor::PATHS_GICV2, &counts)
}

fn compared_paths(json: &Value, paths: &[hypervisor::Path], counts: &[(&str, &str)]) -> Rows {
    let mut header = vec!["path", "weir", "Bao", "weir/Bao"];
    header.extend(counts.iter().map(|(title, _)| title));
    let mut rows = Rows::new(&header, 1);
    for hypervisor::Path { key, what, bao, .. } in paths {
        let mut row = compared(what, median(json, key), *bao).to_vec();
        row.extend(counts.iter().map(|(_, of)| count(&json[of][key])));
        rows.row(&row);
    }
    rows
}

fn other_paths(json: &Value) -> Rows {
    let header = ["path", "median", "minimum", "maximum", "barriers", "device", "GIC"];
    let mut rows = Rows::new(&header, 1);
    for (key, what) in [
        ("vcpu_switch", "`vcpu_switch`: switch between two vCPUs on a shared core"),
        ("notify_flow", "notification of a flow, on the sender's core"),
        ("notify", "notification of a port of the switch, on the sender's core"),
        ("eoi", "end of interrupt"),
        ("timer_program", "setting the virtual timer"),
    ] {
        let path = &json["el2_instructions"][key];
        let mut row = vec![what.to_owned()];
        row.extend(["median", "min", "max"].map(|of| count(&path[of])));
        let counts = ["barriers", "device_accesses", "gic_sysregs"];
        row.extend(counts.map(|of| count(&json[of][key])));
        rows.row(&row);
    }
    rows
}

const REGULATORS: [&str; 4] = ["static", "pool", "memguard", "compensation"];

fn budgets(json: &Value) -> Rows {
    let mut header = vec!["path"];
    header.extend(REGULATORS);
    header.push("Bao, static");
    let mut rows = Rows::new(&header, 1);
    for (path, what) in weir_experiments::throttling::paths::PATHS {
        let mut row = vec![format!("`{path}`: {what}")];
        for regulator in REGULATORS {
            let budgets = &json["budgets"];
            let paths = if regulator == "static" { budgets } else { &budgets[regulator] };
            let [min, median, max] = ["min", "median", "max"].map(|of| count(&paths[path][of]));
            let same = min == max;
            row.push(if same { median } else { format!("{min}, {median}, {max}") });
        }
        let bao = weir_experiments::throttling::paths::BAO.iter().find(|(bao, _)| *bao == path);
        row.push(bao.map_or_else(|| "-".to_owned(), |(_, bao)| grouped(*bao)));
        rows.row(&row);
    }
    rows
}

fn whole(json: &Value) -> Rows {
    let mut rows = Rows::new(&["", "weir", "Bao", "weir/Bao"], 1);
    for (pointer, what, bao) in hypervisor::WHOLE {
        // Results of an older build can lack it.
        if let Some(weir) = json.pointer(pointer).and_then(Value::as_u64) {
            rows.row(&compared(what, weir, bao));
        }
    }
    rows
}

fn masked(json: &Value) -> Rows {
    let mut rows = Rows::new(&["system", "path", "instructions"], 2);
    for masked in json["masked"].as_object().into_iter().flat_map(|masked| masked.values()) {
        let system = format!("`{}`", text(&masked["system"]));
        rows.row(&[system, format!("`{}`", text(&masked["path"])), count(&masked["instructions"])]);
    }
    rows
}

fn sections(json: &Value) -> Rows {
    let mut rows = Rows::new(&["section", "full system, bytes", "minimal system, bytes"], 1);
    for (key, what) in hypervisor::SECTIONS {
        rows.row(&[what.to_owned(), count(&json[key]), count(&json["minimal"][key])]);
    }
    rows
}

/// The ten largest functions and statics of the full system.
fn symbols(json: &Value) -> Rows {
    let mut rows = Rows::new(&["symbol", "bytes"], 1);
    for symbol in list(json, "largest_symbols").take(10) {
        rows.row(&[format!("`{}`", text(&symbol["name"])), count(&symbol["bytes"])]);
    }
    rows
}

fn phases(json: &Value) -> Rows {
    let mut rows = Rows::new(&["", "phase", "times", "min", "avg", "median", "max"], 2);
    for phase in list(&json["phases"], "phases") {
        let mut row = vec![text(&phase["name"]), text(&phase["action"]), count(&phase["count"])];
        let none = phase["count"] == 0;
        row.extend(
            ["min", "avg", "median", "max"]
                .map(|of| if none { "-".to_owned() } else { count(&phase["ns"][of]) }),
        );
        if phase["max_or_more"] == true {
            row[6].push_str(" or more");
        }
        rows.row(&row);
    }
    rows
}

fn round_trips(json: &Value) -> Rows {
    let mut rows = Rows::new(&["system", "min, ns", "avg, ns", "max, ns"], 1);
    for trip in list(json, "round_trips") {
        let mut row = vec![format!("`{}`", text(&trip["system"]))];
        row.extend(["min_ns", "avg_ns", "max_ns"].map(|of| count(&trip[of])));
        rows.row(&row);
    }
    rows
}

/// A system, and the board if it is another than its own.
fn of_system(system: &Value) -> String {
    let name = text(&system["system"]);
    match system["platform"].as_str() {
        Some(platform) => format!("`{name}` on `{platform}`"),
        None => format!("`{name}`"),
    }
}

/// The verdict of what was judged; a dash if nothing was.
fn verdict(judged: &Value) -> String {
    judged["verdict"].as_str().map_or_else(|| "-".to_owned(), |verdict| verdict.replace('-', " "))
}

/// Tasks, interrupts and memory budgets.
fn others(json: &Value) -> Rows {
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
    for system in list(json, "systems") {
        for row in list(system, "others") {
            let what = format!("{} {}", text(&row["kind"]), text(&row["name"]));
            let vm = format!("`{}`", text(&row["vm"]));
            let mut cells = vec![of_system(system), vm, what, verdict(row)];
            cells.extend(["count", "limit", "bound", "observed_max"].map(|key| count(&row[key])));
            cells.push(of_most(&row["bound"], row["observed_max"].as_u64().unwrap_or_default()));
            rows.row(&cells);
        }
    }
    rows
}

fn flows(json: &Value) -> Rows {
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
    for system in list(json, "systems") {
        let flows: Vec<_> = list(system, "flows").collect();
        let bounds = ["bound_ns", "quiet_bound_ns"];
        let same = ["packets", "lost", "late", "deadline_ns", bounds[0], bounds[1]];
        // All but the last cell and the ratios, which depend on the maximum.
        let row_of = |name: String, flow: &Value| {
            let mut row = vec![of_system(system), name, verdict(flow)];
            row.extend(same.map(|key| count(&flow[key])));
            row
        };
        // Flows that are alike are one line, with the range of their maxima.
        let alike = |key: &str| flows.iter().all(|flow| flow[key] == flows[0][key]);
        if flows.len() > 3 && alike("verdict") && same.into_iter().all(alike) {
            let maxima = || flows.iter().filter_map(|flow| flow["observed_max_ns"].as_u64());
            let [least, most] = [maxima().min(), maxima().max()].map(Option::unwrap_or_default);
            let mut row = row_of(format!("{}, each", flows.len()), flows[0]);
            row.push(format!("{} to {}", grouped(least), grouped(most)));
            row.extend(bounds.map(|bound| of_most(&flows[0][bound], most)));
            rows.row(&row);
            continue;
        }
        for flow in flows {
            let mut row = row_of(format!("`{}`", text(&flow["name"])), flow);
            row.push(count(&flow["observed_max_ns"]));
            let most = flow["observed_max_ns"].as_u64().unwrap_or_default();
            row.extend(bounds.map(|bound| of_most(&flow[bound], most)));
            rows.row(&row);
        }
    }
    rows
}

/// Returns the bound as a multiple of the observed maximum; a dash without one.
fn of_most(bound: &Value, most: u64) -> String {
    bound.as_u64().map_or_else(|| "-".to_owned(), |bound| ratio(bound, most))
}

/// The slowdown of the first VM in each variant that `weir simulate run --compare` simulates.
fn slowdowns(json: &Value) -> Rows {
    let mut rows = Rows::new(&["variant", "slowdown of the walk"], 1);
    for variant in json.as_array().into_iter().flatten() {
        let slowdown = variant["vms"][0]["slowdown"].as_f64();
        let slowdown = slowdown.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
        rows.row(&[text(&variant["variant"]), slowdown]);
    }
    rows
}

/// Table II of rt-virtio next to what a core and the engine take.
fn table2(json: &Value) -> Rows {
    let header = engine::header();
    let mut rows = Rows::new(&header.iter().map(String::as_str).collect::<Vec<_>>(), 2);
    let phases = list(json, "table2");
    for phase in phases.clone().chain([&engine::sum(phases)]) {
        rows.row(&engine::row(phase, count));
    }
    rows
}

/// A flow of Table III: MB/s and KiB.
fn flow_of(flow: &Value) -> [String; 2] {
    [("bandwidth", 1_000_000), ("size", 1024)]
        .map(|(key, unit)| grouped(flow[key].as_u64().unwrap_or_default() / unit))
}

/// Table III of rt-virtio next to weir's analysis with the paper's constants.
fn table3(json: &Value) -> Rows {
    let header = [
        "MB/s",
        "KiB",
        "rt-virtio: latency, maximum",
        "rt-virtio: period",
        "weir: period, as Table III was computed",
        "weir: period, equations as printed",
    ];
    let mut rows = Rows::new(&header, 0);
    for flow in list(json, "table3") {
        let mut row = flow_of(flow).to_vec();
        let keys = ["measured_ns", "published_ns", "table3_ns", "printed_ns"];
        row.extend(keys.map(|key| count(&flow[key])));
        rows.row(&row);
    }
    rows
}

/// Its flows in weir's runs.
fn table3_runs(json: &Value) -> Rows {
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
        for (others, may) in [("quiet", "do nothing"), ("active", "do what they may")] {
            for flow in list(json, "table3") {
                let is_its = |run: &&Value| run["path"] == path && run["others"] == others;
                for run in list(flow, "runs").filter(is_its) {
                    let mut row = vec![what.to_owned(), may.to_owned(), verdict(run)];
                    row.extend(flow_of(flow));
                    let (period, published) = (&run["period_ns"], &flow["published_ns"]);
                    row.extend([count(period), count(published)]);
                    let both = period.as_u64().zip(published.as_u64());
                    row.push(both.map_or_else(|| "-".to_owned(), |(its, of)| ratio(its, of)));
                    let keys = ["packets", "observed_max_ns", "bound_ns"];
                    row.extend(keys.map(|key| count(&run[key])));
                    rows.row(&row);
                }
            }
        }
    }
    rows
}

/// Chunks by the core and by the engine; in bold, that of the size from which on the engine takes
/// no longer.
fn copies(json: &Value) -> Rows {
    let mut rows = Rows::new(&engine::copies_header(), 0);
    let crossover = bench::copies::crossover(&json["copies"]);
    for copy in list(json, "copies") {
        let is_crossover = copy["size"].as_u64() == crossover;
        let bold = |text: String| if is_crossover { format!("**{text}**") } else { text };
        rows.row(&engine::copies_row(copy, count).map(bold));
    }
    rows
}

/// What the tests `qemu_attacks_PART` measured.
fn losses(json: &Value, part: &str) -> Rows {
    let header = ["attacker", "its core", "test", "the victim loses", "measured", "limit"];
    let mut rows = Rows::new(&header, 4);
    let module = format!("qemu_attacks_{part}::");
    for test in list(json, "tests") {
        let name = text(&test["test"]);
        let Some(name) = name.strip_prefix(&module) else { continue };
        for loss in list(test, "losses") {
            rows.row(&[
                format!("`{}`", text(&loss["attacker"])),
                text(&loss["core"]),
                format!("`{name}`"),
                text(&loss["what"]),
                count(&loss["measured"]),
                count(&loss["limit"]),
            ]);
        }
    }
    rows
}

fn mapping(json: &Value) -> Rows {
    let mut rows = Rows::new(&HEADER, 0);
    for row in json.as_array().into_iter().flatten() {
        let ratio = |key: &str| format!("{:.3}", row[key].as_f64().unwrap_or_default());
        rows.row(&[
            count(&row["mib"]),
            count(&row["native_instructions"]),
            count(&row["colored_instructions"]),
            ratio("ratio"),
            count(&row["native_setup_instructions"]),
            count(&row["colored_setup_instructions"]),
            ratio("ratio_with_setup"),
            count(&row["block_instructions"]),
        ]);
    }
    rows
}

fn clock(json: &Value) -> Rows {
    let mut rows = Rows::new(&bench::clock::HEADER, 0);
    for row in json.as_array().into_iter().flatten() {
        let ratio = row["host_s_per_virtual_s"].as_f64().unwrap_or_default();
        rows.row(&[
            count(&row["quantum_ns"]),
            count(&row["cores"]),
            format!("{ratio:.2}"),
            count(&row["mips"]),
            count(&row["counting_mips"]),
        ]);
    }
    rows
}

fn memory(json: &Value) -> Rows {
    let mut rows = Rows::new(&bench::memory::HEADER, 1);
    for row in json.as_array().into_iter().flatten() {
        let number = |key: &str| row[key].as_f64().unwrap_or_default();
        let load = row["load_ns"].as_u64().unwrap_or_default();
        let simulated = number("simulated_ns");
        rows.row(&[
            text(&row["memory"]),
            count(&row["writers"]),
            count(&row["load_ns"]),
            format!("{simulated:.1}"),
            format!("{:.3}", bench::memory::ratio(load, simulated)),
            format!("{:.1}", number("host_s_per_virtual_s")),
            format!("{:.1}", number("host_s_per_virtual_s_few_misses")),
            format!("{:.1}", number("host_s_per_virtual_s_without")),
        ]);
    }
    rows
}

/// The few figures of the first page.
fn readme(json: &Value) -> Rows {
    let mut rows = Rows::new(&["", "weir", "Bao"], 1);
    let bao = |key: &str| {
        let path = hypervisor::PATHS.iter().find(|path| path.key == key);
        path.and_then(|path| path.bao).map_or_else(|| "-".to_owned(), grouped)
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
        let weir = paths(keys, &|key| grouped(median(json, key)));
        rows.row(&[what.to_owned(), weir, paths(keys, &bao)]);
    }
    for (pointer, what, bao) in hypervisor::WHOLE {
        let short = [
            "/boot_instructions",
            "/boot_instructions_64_mib",
            "/text_bytes",
            "/minimal/text_bytes",
        ];
        let weir = json.pointer(pointer).filter(|_| short.contains(&pointer)).map(count);
        if let Some(weir) = weir {
            rows.row(&[what.to_owned(), weir, bao.map_or_else(|| "-".to_owned(), grouped)]);
        }
    }
    rows
}

#[cfg(test)]
mod tests;
