//! `weir platforms`: the boards that weir knows, and how far it was verified there.

use crate::{failure::Result, screen};
use std::io::Write;
use weir_model::platform::Platform;
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
        let list: Vec<_> = Platform::all().iter().map(Platform::record).collect();
        writeln!(out, "{:#}", weir_report::versioned(list))?;
        return Ok(());
    }
    let mut rows =
        table(["platform", "cores", "memory", "GIC", "page classes", "devices", "runs", ""]);
    for platform in Platform::all() {
        let memory: Vec<_> =
            platform.ram().map(|memory| format!("{} at {}", memory.size, memory.base)).collect();
        let classes: Vec<_> = platform
            .page_classes()
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
    let features = platform.features(true).join(", ");
    let silicon = if verified.silicon { "yes" } else { "no" };
    match &verified.emulator {
        Some(emulator) => format!("verified in {emulator}: {features}; silicon: {silicon}"),
        None => format!("verified in no emulator; silicon: {silicon}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn described(name: &str) -> Value {
        json!(Platform::named(name).expect("a platform").record())
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
