//! Loads a system, changes the period of one flow, and prints the bounds before and after.
//!
//! `cargo run -p weir-analysis --example change_period [SYSTEM.toml] [KEY] [VALUE]`

use std::{env, error::Error, path::Path};
use weir_analysis::{Options, Report, analyze};
use weir_model::{Catalog, SystemFile};

const SYSTEM: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flows-linux/flows-linux.toml");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| SYSTEM.to_owned());
    let key = arguments.next().unwrap_or_else(|| "flow.to-linux.period".to_owned());
    let value = arguments.next().unwrap_or_else(|| "2ms".to_owned());

    let system = SystemFile::load(Path::new(&path), &Catalog::default())?;
    print("as it is", &analyze(&system, &Options::default())?);
    let changed = system.with(&key, &value)?;
    print(&format!("with {key} = {value}"), &analyze(&changed, &Options::default())?);
    Ok(())
}

fn print(title: &str, report: &Report) {
    let verdict = report.verdict.map_or_else(|| "nothing to judge".to_owned(), |v| v.to_string());
    println!("{title}: {verdict}");
    for flow in report.flows() {
        println!("  flow {}: latency bound {:?} ns", flow.name, flow.bound_ns);
    }
    for task in report.tasks() {
        println!("  task {}/{}: response {:?} ns", task.vm, task.name, task.response_ns);
    }
    for cause in report.causes() {
        println!("  {}: {cause}", cause.location());
    }
}
