//! The owners of the page classes, as a table and as JSON.

use crate::table::{paragraph, table};
use schemars::JsonSchema;
use serde::Serialize;
use std::{collections::BTreeSet, fmt::Write as _};
use weir_abi::PAGE;
use weir_model::{Audited, Placement, Share, System, TlbColors, shares};
use weir_units::Bytes;

/// Returns the page classes of all owners, and the costs of the division, as text.
#[must_use]
pub fn report(system: &System, placement: &Placement) -> String {
    let division = &system.division;
    let classes = &division.classes;
    let platform = &system.platform().name;
    let tlb = tlb(system);
    if classes.count() == 1 {
        return format!(
            "{tlb}{platform} describes no cache colors and no banks: VMs share all of them"
        );
    }
    let mut text = tlb;
    let groups = match classes.banks_in_group() {
        1 => "banks".to_owned(),
        each => format!("groups of {each} banks"),
    };
    let map = division.dram.as_ref().map_or(String::new(), |map| format!(" (DRAM map {map})"));
    let _ = writeln!(
        text,
        "{platform}{map}: {} page classes, from {} colors and {} {groups}",
        classes.count(),
        classes.colors(),
        classes.bank_groups()
    );
    if !division.divided {
        let effect = "each VM can evict lines and close DRAM rows of every other VM";
        text += paragraph("memory is not divided: ", effect).trim_end();
        return text;
    }
    let mut rows = table([
        "owner",
        "colors",
        "banks",
        "classes",
        "cache",
        "RAM of the classes",
        "pages",
        "shares colors with",
        "shares banks with",
    ]);
    let shares = shares(system, placement);
    let list = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
    for share in &shares {
        rows.add_row([
            share.name.clone(),
            share.colors_text(),
            share.banks_text(),
            share.classes.len().to_string(),
            share.cache.map_or("-".to_owned(), |cache| cache.to_string()),
            share.reach.to_string(),
            share.pages.to_string(),
            list(&share.shares_colors),
            list(&share.shares_banks),
        ]);
    }
    let _ = writeln!(text, "{rows}");
    text + &costs(system, &shares).join("\n")
}

/// The TLB sets of the VMs that have some.
fn tlb(system: &System) -> String {
    let mut text = String::new();
    for (vm, tlb) in system.vms.iter().zip(&system.division.tlb) {
        if let Some(tlb) = tlb {
            let _ = writeln!(
                text,
                "{}: TLB sets {} of {}, {} pieces of RAM; a VM without `tlb_colors` uses all sets",
                vm.name,
                tlb.text(),
                tlb.sets,
                vm.memory.len()
            );
        }
    }
    text
}

/// What the division costs, a line for each kind of cost.
fn costs(system: &System, shares: &[Share]) -> Vec<String> {
    let division = &system.division;
    let mut costs = Vec::new();
    let kept: Vec<String> = shares
        .iter()
        .filter(|share| share.kept_pages > 0)
        .map(|share| format!("{} {}", share.name, Bytes(share.kept_pages * PAGE)))
        .collect();
    costs.push(format!(
        "cost: all memory is mapped page by page; reserved in addition to RAM, for tables, state \
         and the pristine image that a restart copies: {}",
        kept.join(", ")
    ));
    if let Some(cache) = system.platform().places.cache {
        let smaller: Vec<String> = shares
            .iter()
            .filter_map(|share| Some((share, share.cache?)))
            .filter(|(_, part)| *part < cache.size)
            .map(|(share, part)| format!("{} {part}", share.name))
            .collect();
        if !smaller.is_empty() {
            costs.push(format!(
                "cost: of {} of last-level cache, lines can occupy at most: {}",
                cache.size,
                smaller.join(", ")
            ));
        }
    }
    let classes = &division.classes;
    let used = division.vms.iter().fold(division.hypervisor, |all, set| all.union(set));
    let has_owner = |class| {
        used.iter().any(|other| classes.share_color(other, class))
            && used.iter().any(|other| classes.share_bank(other, class))
    };
    let idle = classes.iter().filter(|&class| !used.contains(class));
    let (split, unowned): (Vec<_>, Vec<_>) = idle.partition(|&class| has_owner(class));
    for (idle, why) in [
        (split, "because their color and their bank have different owners"),
        (unowned, "because no owner has their color, or none their bank"),
    ] {
        if !idle.is_empty() {
            let (idle, all) = (idle.len(), classes.count());
            costs.push(format!("cost: {idle} of {all} page classes have no owner, {why}"));
        }
    }
    costs
}

/// The division of the last-level cache and of DRAM in a JSON result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DivisionRecord {
    /// Whether memory is divided.
    pub divided: bool,
    /// The address map of the DRAM controller.
    pub dram_map: Option<String>,
    /// The number of page classes of the board.
    pub page_classes: usize,
    /// The number of cache colors of the board.
    pub colors: u16,
    /// The number of banks or groups of banks that a page can be in.
    pub bank_groups: u16,
    /// The number of banks in a group.
    pub banks_in_group: u16,
    /// The TLB sets of the VMs with `tlb_colors`.
    pub tlb_sets: Vec<TlbSets>,
    /// The owners of page classes, the hypervisor first.
    pub owners: Vec<Share>,
}

/// The TLB sets of a VM.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TlbSets {
    /// The VM.
    pub name: String,
    /// The sets that its RAM uses.
    pub sets: BTreeSet<u16>,
    /// The number of sets of the TLB.
    pub of: u16,
}

/// Returns the page classes of all owners as a JSON result has them.
#[must_use]
pub fn record(system: &System, placement: &Placement) -> DivisionRecord {
    let division = &system.division;
    let tlb_sets = system.vms.iter().zip(&division.tlb).filter_map(|(vm, tlb)| {
        let TlbColors { numbers, sets, .. } = tlb.as_ref()?;
        Some(TlbSets { name: vm.name.clone(), sets: numbers.clone(), of: *sets })
    });
    DivisionRecord {
        divided: division.divided,
        dram_map: division.dram.clone(),
        page_classes: division.classes.count(),
        colors: division.classes.colors(),
        bank_groups: division.classes.bank_groups(),
        banks_in_group: division.classes.banks_in_group(),
        tlb_sets: tlb_sets.collect(),
        owners: shares(system, placement),
    }
}

/// Returns the result of an audit as a table.
#[must_use]
pub fn audit_report(found: &[Audited]) -> String {
    let mut rows = table([
        "audited",
        "pages",
        "in colors",
        "in banks",
        "leaves",
        "DMA leaves",
        "tables",
        "meets colors of",
        "meets banks of",
        "not its own",
    ]);
    let list = |names: &[String]| if names.is_empty() { "-".to_owned() } else { names.join(", ") };
    for owner in found {
        rows.add_row([
            owner.name.clone(),
            owner.pages.to_string(),
            owner.colors.to_string(),
            owner.banks.to_string(),
            owner.leaves.to_string(),
            owner.dma_leaves.to_string(),
            owner.tables.to_string(),
            list(&owner.meets_colors),
            list(&owner.meets_banks),
            owner.foreign_pages.to_string(),
        ]);
    }
    let walked = walked(found).join("; ");
    let pages: u64 = found.iter().map(|owner| owner.pages).sum();
    let foreign: u64 = found.iter().map(|owner| owner.foreign_pages).sum();
    format!(
        "{rows}\n{pages} pages have one owner each; pages that a table maps and that are not its \
         VM's: {foreign}\nwalked: {walked}\nmade at boot, and so not here: {AT_BOOT}"
    )
}

/// Tables that no audit sees before the boot.
const AT_BOOT: &str = "weir's own stage 1. The boot reads it back, with all others as they were \
                       made there, and refuses the system if one maps RAM that is not its owner's";

/// The tables that were made and walked, with their owners and purposes.
fn walked(found: &[Audited]) -> Vec<String> {
    let names = |with: &dyn Fn(&Audited) -> bool| {
        found.iter().filter(|owner| with(owner)).map(|owner| owner.name.clone()).collect::<Vec<_>>()
    };
    let dma = names(&|owner| owner.dma_leaves > 0);
    let smmu = if dma.is_empty() {
        "no table of an SMMU: no VM has PCI functions".to_owned()
    } else {
        format!(
            "the SMMU's tables for {}, in its formats of stage 1 and of stage 2",
            dma.join(", ")
        )
    };
    vec![format!("stage 2 of {}", names(&|owner| owner.leaves > 0).join(", ")), smmu]
}

/// The translation tables of an audit in a JSON result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AuditedTables {
    /// The tables that were made and walked, with their owners.
    pub walked: Vec<String>,
    /// The tables that exist only after the boot, which checks them itself.
    pub made_at_boot: Vec<&'static str>,
}

/// Returns the translation tables that an audit walked, and those that it could not.
#[must_use]
pub fn audited_tables(found: &[Audited]) -> AuditedTables {
    AuditedTables { walked: walked(found), made_at_boot: vec![AT_BOOT] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;
    use weir_model::{Catalog, check_text, place};

    fn made(platform: &str, keys: &str) -> (System, Placement) {
        let text = format!(
            "platform = \"{platform}\"\n[[vm]]\nname = \"a\"\ncpus = [0]\nmemory = \"4MiB\"\n\
             image = {{ elf = \"g\" }}\n{keys}\n[[vm]]\nname = \"b\"\ncpus = [1]\n\
             memory = \"4MiB\"\nimage = {{ elf = \"g\" }}\n"
        );
        let catalog = Catalog { guests: vec!["g".to_owned()], ..Catalog::default() };
        let system = check_text(Path::new("s<1>.toml"), &text, &catalog).expect("a system");
        let placement = place(&system, 1 << 20).expect("room");
        (system, placement)
    }

    #[test]
    fn the_audit_prints_the_counts_that_were_read_back() {
        let owner = |name: &str, pages, foreign_pages| Audited {
            name: name.to_owned(),
            pages,
            colors: 16,
            banks: 8,
            leaves: 4,
            dma_leaves: 0,
            tables: 2,
            meets_colors: Vec::new(),
            meets_banks: Vec::new(),
            foreign_pages,
        };
        let found = [owner("weir", 100, 0), owner("a", 1024, 3)];
        let json = json!(found);
        assert_eq!((&json[0]["foreign_pages"], &json[1]["foreign_pages"]), (&0.into(), &3.into()));
        let report = audit_report(&found);
        let row = report.lines().find(|line| line.contains(" a ")).expect("a row");
        assert!(
            row.trim_end().ends_with('3')
                || row.trim_end_matches([' ', '|', '│', '┆']).ends_with('3'),
            "{row}"
        );
        assert!(report.contains("1124 pages have one owner each"), "{report}");
        assert!(report.contains("not its VM's: 3\n"), "{report}");
    }

    #[test]
    fn the_audit_lists_the_tables_it_saw() {
        let owner = |name: &str, leaves, dma_leaves| Audited {
            name: name.to_owned(),
            pages: 8,
            colors: 1,
            banks: 1,
            leaves,
            dma_leaves,
            tables: 3,
            meets_colors: Vec::new(),
            meets_banks: Vec::new(),
            foreign_pages: 0,
        };
        let without = [owner("weir", 0, 0), owner("a", 8, 0), owner("b", 8, 0)];
        let text = audit_report(&without);
        assert!(text.contains("walked: stage 2 of a, b; no table of an SMMU"), "{text}");
        assert!(text.contains("weir's own stage 1. The boot reads it back"), "{text}");
        let with = [owner("weir", 0, 0), owner("a", 8, 0), owner("b", 8, 4)];
        let text = audit_report(&with);
        assert!(text.contains("the SMMU's tables for b, in its formats of"), "{text}");
        assert_eq!(audited_tables(&with).walked.len(), 2);
        assert_eq!(json!(with)[2]["dma_leaves"], 4);
    }

    #[test]
    fn undivided_the_hypervisor_has_its_image() {
        let (system, placement) = made("qemu-virt", "");
        let owners = json!(record(&system, &placement).owners);
        let of =
            |owner: usize| (owners[owner]["pages"].as_u64(), owners[owner]["kept_pages"].as_u64());
        assert_eq!([of(0), of(1)], [(Some(256), Some(0)), (Some(1024), Some(0))], "{owners}");
    }

    #[test]
    fn the_report_lists_the_costs() {
        let (system, placement) = made("zcu102", "colors = \"0-1\"");
        let text = report(&system, &placement);
        assert!(text.contains("zcu102 (DRAM map interleaved): 32 page classes"), "{text}");
        assert!(
            text.contains(
                "of 1MiB of last-level cache, lines can occupy at most: weir 896KiB, a 128KiB, b \
                 896KiB"
            ),
            "{text}"
        );
        assert!(text.contains("pristine image"), "{text}");
        assert!(!text.contains("have no owner"), "{text}");
        let (system, placement) = made("qemu-virt", "colors = \"0-1\"\nbanks = \"7\"");
        let text = report(&system, &placement);
        // Two colors of seven banks, and one bank of fourteen colors.
        assert!(
            text.contains(
                "28 of 128 page classes have no owner, because their color and their bank have \
                 different owners"
            ),
            "{text}"
        );
        let (mut system, placement) = made("qemu-virt", "colors = \"0-1\"");
        system.division.hypervisor = system.division.vms[0];
        system.division.vms[1] = system.division.vms[0];
        let text = report(&system, &placement);
        assert!(
            text.contains(
                "112 of 128 page classes have no owner, because no owner has their color"
            ),
            "{text}"
        );
        let (system, placement) = made("qemu-virt", "tlb_colors = \"64-127\"");
        assert!(
            report(&system, &placement).contains("a: TLB sets 64-127 of 128, 16 pieces of RAM")
        );
        let (system, placement) = made("qemu-virt", "");
        assert!(report(&system, &placement).contains("memory is not divided"));
    }

    #[test]
    fn data_has_the_page_classes() {
        let (system, placement) = made("qemu-virt", "colors = \"2\"\nbanks = \"0\"");
        let json = json!(record(&system, &placement));
        assert_eq!(json["divided"], true);
        assert_eq!(json["owners"][1]["page_classes"], json!([2]));
        assert_eq!(json["owners"][1]["colors"], json!([2]));
        assert_eq!(json["owners"][2]["banks"], json!([1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(json["owners"][0]["shares_colors_with"], json!(["b"]));
    }
}
