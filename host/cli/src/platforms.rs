//! `weir platforms`: the boards that weir knows, and how far it was verified there.

use crate::{failure::Result, screen};
use serde_json::{Value, json};
use std::io::Write;
use weir_model::platform::{Feature, Platform, PlatformGic};
use weir_paging::classes::PageClasses;
use weir_report::{paragraph, table};

/// Lists the platforms that a system file may name, their hardware, and how far weir was verified
/// there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weir platforms\n  weir platforms --json")]
pub struct PlatformsArguments {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(arguments: &PlatformsArguments) -> Result {
    let mut out = screen::stdout();
    if arguments.json {
        let list: Value = Platform::all().iter().map(describe).collect();
        writeln!(out, "{:#}", weir_report::versioned(list))?;
        return Ok(());
    }
    let mut rows =
        table(["platform", "cores", "memory", "GIC", "page classes", "devices", "runs", ""]);
    for platform in Platform::all() {
        let memory: Vec<_> =
            platform.ram().map(|memory| format!("{} at {}", memory.size, memory.base)).collect();
        let classes: Vec<_> = classes(&platform)
            .map(|(map, classes)| format!("{map}: {}", classes.count()))
            .collect();
        rows.add_row([
            platform.name.clone(),
            platform.cores.len().to_string(),
            memory.join("\n"),
            format!("v{}", if platform.is_gic_v2() { 2 } else { 3 }),
            classes.join("\n"),
            platform
                .devices
                .iter()
                .map(|device| device.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            match (&platform.places.planned, &platform.qemu) {
                (Some(_), _) => "not yet",
                (None, Some(_)) => "in QEMU",
                (None, None) => "by weir build",
            }
            .to_owned(),
            platform.description.clone(),
        ]);
    }
    writeln!(out, "{rows}")?;
    for platform in Platform::all() {
        write!(out, "{}", paragraph(&format!("{}: ", platform.name), &verified(&platform)))?;
    }
    for platform in Platform::all() {
        if let Some(reason) = &platform.places.planned {
            let label = format!("{} can be checked and planned for, not run: ", platform.name);
            write!(out, "{}", paragraph(&label, reason))?;
        }
    }
    Ok(())
}

/// How far weir was verified on it, in words.
fn verified(platform: &Platform) -> String {
    let verified = &platform.verified;
    let features = features(platform, true).join(", ");
    let silicon = if verified.silicon { "yes" } else { "no" };
    match &verified.emulator {
        Some(emulator) => format!("verified in {emulator}: {features}; silicon: {silicon}"),
        None => format!("verified in no emulator; silicon: {silicon}"),
    }
}

/// The features that were verified, or else those that were not.
fn features(platform: &Platform, verified: bool) -> Vec<&'static str> {
    let of = &platform.verified.features;
    let all = Feature::ALL.iter().filter(|feature| of.contains(feature) == verified);
    all.map(|feature| feature.name()).collect()
}

/// Its page classes, by DRAM map.
fn classes(platform: &Platform) -> impl Iterator<Item = (&str, PageClasses)> + use<'_> {
    let maps = platform.places.dram.iter().enumerate();
    maps.filter_map(|(place, map)| {
        Some((map.name.as_str(), PageClasses::new(&platform.places.geometry(place)).ok()?))
    })
}

/// For each bit of a bank's number the address bits that it is the XOR of.
fn functions(platform: &Platform, map: &str) -> Vec<Vec<u32>> {
    let bits = |mask: &u64| (0..u64::BITS).filter(|bit| mask >> bit & 1 != 0).collect();
    let map = platform.places.dram.iter().find(|known| known.name == map);
    map.map_or_else(Vec::new, |map| map.banks.iter().map(bits).collect())
}

fn describe(platform: &Platform) -> Value {
    let hex = |value: u64| format!("{value:#x}");
    let gic = match platform.gic {
        PlatformGic::V2 { distributor, cpu_interface, hyp, virtual_cpu } => json!({
            "version": 2,
            "distributor": hex(distributor.0),
            "cpu_interface": hex(cpu_interface.0),
            "hyp": hex(hyp.0),
            "virtual_cpu": hex(virtual_cpu.0),
        }),
        PlatformGic::V3 { distributor, redistributors } => json!({
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
        "more_memory": platform.places.more_memory.iter().map(|memory| json!({
            "base": hex(memory.base.0),
            "bytes": memory.size.0,
        })).collect::<Vec<_>>(),
        "cache": platform.places.cache.map(|cache| json!({
            "bytes": cache.size.0,
            "ways": cache.ways,
            "line_bytes": cache.line.0,
        })),
        "dram": classes(platform).map(|(map, classes)| json!({
            "map": map,
            "bank_functions": functions(platform, map),
            "page_classes": classes.count(),
            "colors": classes.colors(),
            "bank_groups": classes.bank_groups(),
            "banks_in_group": classes.banks_in_group(),
        })).collect::<Vec<_>>(),
        "tlbs": platform.places.tlbs.iter().map(|tlb| json!({
            "name": tlb.name,
            "sets": tlb.sets,
        })).collect::<Vec<_>>(),
        "groups": platform.places.groups.iter().map(|group| json!({
            "name": group.name,
            "colors": group.colors,
            "banks": group.banks,
        })).collect::<Vec<_>>(),
        "runs": platform.places.planned.is_none(),
        "planned": platform.places.planned,
        "verified": {
            "emulator": platform.verified.emulator,
            "silicon": platform.verified.silicon,
            "features": features(platform, true),
            "not_verified": features(platform, false),
        },
        "load_address": hex(platform.load_address.0),
        "gic": gic,
        "uart": { "kind": platform.uart.kind.name(), "base": hex(platform.uart.base.0), "intid": platform.uart.intid.0 },
        "psci": platform.psci_conduit,
        "qemu": platform.qemu.as_ref().map(|qemu| json!({
            "machine": qemu.machine,
            "cpu": qemu.cpu,
            "cores": qemu.cores,
            "version": qemu.version,
        })),
        "devices": platform.devices.iter().map(|device| json!({
            "name": device.name,
            "path": device.path,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(name: &str) -> Value {
        describe(&Platform::named(name).expect("a platform"))
    }

    fn of_name<'a>(list: &'a Value, name: &str) -> &'a Value {
        let mut list = list.as_array().expect("a list").iter();
        list.find(|one| one["name"] == name).expect("one of that name")
    }

    #[test]
    fn a_platform_is_described_in_json() {
        let virt = described("qemu-virt");
        assert_eq!(
            (&virt["gic"]["version"], &virt["memory"]["bytes"]),
            (&3.into(), &(2u64 << 30).into())
        );
        assert_eq!(virt["dram"][0]["bank_functions"], json!([[16, 19], [17, 20], [18, 21]]));
        assert_eq!(of_name(&virt["tlbs"], "core")["sets"], 128);
        assert_eq!(of_name(&virt["groups"], "rt")["banks"], json!([4, 5, 6, 7]));
        let verified = &described("zcu102")["verified"];
        let has = |list: &str, feature: &str| {
            verified[list].as_array().expect(list).iter().any(|known| known == feature)
        };
        assert_eq!(verified["silicon"], false);
        assert!(verified["emulator"].as_str().is_some_and(|it| it.starts_with("QEMU ")));
        assert!(has("features", "flows") && has("not_verified", "pci"), "{verified}");
    }
}
