//! `weir platforms`: the boards that weir knows.

use crate::{failure::Result, run::show::table};
use serde_json::{Value, json};
use std::io::{Write, stdout};
use weir_config::platform::{Gic, Platform};

/// Lists the platforms that a system file may name, and what they have.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weir platforms\n  weir platforms --json")]
pub struct Arguments {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(arguments: &Arguments) -> Result {
    let mut out = stdout().lock();
    if arguments.json {
        let list: Value = Platform::all().iter().map(describe).collect();
        writeln!(out, "{list:#}")?;
        return Ok(());
    }
    let mut rows = table(["platform", "cores", "memory", "GIC", "devices", ""]);
    for platform in Platform::all() {
        let memory = platform.memory;
        rows.add_row([
            platform.name.clone(),
            platform.cores.len().to_string(),
            format!("{} at {}", memory.size, memory.base),
            format!("v{}", if platform.is_gic_v2() { 2 } else { 3 }),
            platform
                .devices
                .iter()
                .map(|device| device.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            platform.description.clone(),
        ]);
    }
    writeln!(out, "{rows}")?;
    Ok(())
}

fn describe(platform: &Platform) -> Value {
    let hex = |value: u64| format!("{value:#x}");
    let gic = match platform.gic {
        Gic::V2 { distributor, cpu_interface, hyp, virtual_cpu } => json!({
            "version": 2,
            "distributor": hex(distributor.0),
            "cpu_interface": hex(cpu_interface.0),
            "hyp": hex(hyp.0),
            "virtual_cpu": hex(virtual_cpu.0),
        }),
        Gic::V3 { distributor, redistributors } => json!({
            "version": 3,
            "distributor": hex(distributor.0),
            "redistributors": hex(redistributors.0),
        }),
    };
    json!({
        "name": platform.name,
        "description": platform.description,
        "cores": platform.cores.iter().map(|core| hex(core.mpidr)).collect::<Vec<_>>(),
        "memory": { "base": hex(platform.memory.base.0), "bytes": platform.memory.size.0 },
        "load_address": hex(platform.load_address.0),
        "gic": gic,
        "uart": { "base": hex(platform.uart.base.0), "intid": platform.uart.intid },
        "psci": platform.psci_conduit,
        "qemu": platform.qemu.as_ref().map(|qemu| json!({
            "machine": qemu.machine,
            "cpu": qemu.cpu,
            "cores": qemu.cores,
        })),
        "devices": platform.devices.iter().map(|device| json!({
            "name": device.name,
            "path": device.path,
        })).collect::<Vec<_>>(),
    })
}
