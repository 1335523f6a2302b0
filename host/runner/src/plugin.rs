//! The plug-in in one run of QEMU: its input files, and the arguments with which it is loaded.

use crate::{
    elf::LinkedHypervisor,
    ram::Ram,
    statics::{StaticMemory, Statics},
};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};
use weir_image::{Environment, Failure, Result, cargo::Programs, failure::Context};
use weir_model::{Packed, System, Vm, page_owners};
use weir_qemu_plugin::caches::{CacheShape, PAGE, PageRun, RecordingLimit, Setup};
use weir_report::run::CoreCounts;
use weir_trace::counter_page::{self, CounterKind, CounterPage};
use weir_units::Pa;

/// L1 data cache of a Cortex-A53 in its usual configuration, the one that QEMU's `cortex-a53`
/// reports (Cortex-A53 TRM, DDI 0500, 2.1.4 and 6.1).
const L1D: CacheShape = CacheShape { size: 32 << 10, ways: 4, line: 64 };
/// Its L1 instruction cache.
const L1I: CacheShape = CacheShape { size: 32 << 10, ways: 2, line: 64 };
/// Bytes of a row of a DRAM bank: 1024 columns of 64 bits, as on DIMMs of DDR4 x8 devices
/// (JESD79-4, 2.7).
const ROW: u64 = 8 << 10;

/// The plug-in's input files before the run, and at its end.
const CACHES: &str = "caches.json";
const UNTIL: &str = "until";

/// The symbol of the page that the plug-in counts in, a `weir_trace::counter_page::CounterPage`.
const PAGE_SYMBOL: &str = "weir_counter_page";

/// The caches job, for a run.
#[derive(Clone, Debug)]
pub struct Watch {
    library: PathBuf,
    programs: Programs,
    setup: Setup,
    /// Where it leaves its report, if requested.
    out: Option<PathBuf>,
    /// Where it leaves the ledger of memory budgets, if requested.
    ledger: Option<PathBuf>,
}

impl Watch {
    /// For `system` after the build of its programs. With `packed` the hypervisor's accesses are
    /// distinguished by the pages that they touch.
    ///
    /// # Errors
    ///
    /// The system is at fault if its platform has no cache; the environment if the plug-in cannot
    /// be built.
    pub fn new(
        system: &System,
        packed: Option<&Packed>,
        out: Option<PathBuf>,
        no_build: bool,
        environment: &Environment,
    ) -> Result<Self> {
        let mut setup = setup(system, packed).map_err(Failure::system)?;
        if out.is_none() {
            // Without a report, the counts at a byte of the console are not needed.
            setup.uart = None;
        }
        let programs = Programs::new(environment, no_build);
        Ok(Self { library: environment.plugin()?, programs, setup, out, ledger: None })
    }

    /// Has it leave the ledger of memory budgets in `file`.
    #[must_use]
    pub fn with_ledger(self, file: PathBuf) -> Self {
        Self { ledger: Some(file), ..self }
    }

    /// Has it record what VMs do, if anything is given.
    #[must_use]
    pub fn with_record(mut self, record: Option<RecordingLimit>) -> Self {
        self.setup.record = record;
        self
    }

    /// Writes the plug-in's input into `scratch`, which must stay while QEMU runs. The machine
    /// boots `image` in `ram`. If `needed`, the run requires the counter page.
    ///
    /// # Errors
    ///
    /// The environment is at fault if a file cannot be written or read, or if the image has no
    /// counter page and one is needed.
    pub fn prepare(
        &self,
        scratch: &Path,
        image: &[u8],
        gic_v2: bool,
        ram: &Ram,
        needed: bool,
    ) -> Result<Loaded> {
        let writing = || "write the plug-in's input";
        let setup = serde_json::to_vec(&self.setup).context(writing)?;
        fs::write(scratch.join(CACHES), setup).context(writing)?;
        let elf = self.programs.hypervisor_in(image)?;
        let hypervisor = LinkedHypervisor::read(&elf)?;
        let out = self.out.clone().unwrap_or_else(|| scratch.join("seen.json"));
        let mut arguments = plugin_arguments(&self.library, &hypervisor, &out, Some(scratch));
        let elf = fs::read(&elf).context(|| format!("read {}", elf.display()))?;
        let statics = Statics::new(&elf, image, gic_v2);
        let low = Pa(self.setup.ram.saturating_add(self.setup.ram_len));
        if statics.as_ref().is_ok_and(|statics| statics.memory_end() > low) {
            return Err(Failure::call(format!(
                "the plug-in counts accesses to RAM below {low} only, and the system has RAM \
                 above: use less memory"
            )));
        }
        let page = match statics.and_then(|statics| page(&statics)) {
            Ok(page) => Some(page),
            Err(error) if needed => {
                return Err(Failure::environment(format!(
                    "a budget with source = \"counter-page\" cannot be kept: {error}"
                )));
            }
            Err(_) => None,
        };
        let [_, argument] = &mut arguments;
        if let Some(file) = &self.ledger {
            argument.push_str(&ledger_argument(file));
        }
        if let Some(pa) = page.as_ref().and_then(StaticMemory::address) {
            let _ = write!(argument, ",counter-page={:#x},ram={}", pa.0, ram.path());
        }
        Ok(Loaded { arguments, page, cores: self.setup.cores.len() })
    }

    /// Informs the plug-in that `bytes` bytes of the wire belong to the run in `scratch`; QEMU must
    /// not have ended.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the file cannot be written.
    pub fn until(scratch: &Path, bytes: usize) -> Result {
        fs::write(scratch.join(UNTIL), bytes.to_string()).context(|| "write where the run ends")
    }
}

/// The plug-in as QEMU loads it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// QEMU's arguments.
    pub arguments: [String; 2],
    /// The page that it counts in, if the hypervisor has one.
    page: Option<StaticMemory>,
    cores: usize,
}

impl Loaded {
    /// The counts of each core in the page in `ram`.
    pub fn counts(&self, ram: &Ram) -> Option<Vec<CoreCounts>> {
        let page = self.page.as_ref()?;
        let mut bytes = [0; counter_page::SIZE];
        let read = page.read(ram, &mut bytes).ok().and_then(|()| CounterPage::from_bytes(&bytes));
        let counter_page = read.filter(CounterPage::is_counting)?;
        let core = |core| {
            let (refills, write_backs) = counter_page.counts(core);
            let count = |kind| counter_page.count(core, kind);
            CoreCounts {
                core,
                refills,
                write_backs,
                hypervisor_refills: count(CounterKind::HypervisorRefills),
                hypervisor_write_backs: count(CounterKind::HypervisorWriteBacks),
            }
        };
        Some((0..self.cores.min(counter_page::CORES)).map(core).collect())
    }
}

/// The page to count in, in an image with guests that do nothing that is not counted.
fn page(statics: &Statics) -> std::result::Result<StaticMemory, String> {
    if !statics.is_observed() {
        return Err("the image lets guests zero lines by DC ZVA, which QEMU does not report to \
                    plug-ins: let `weir run` build it"
            .into());
    }
    let page = statics.find(PAGE_SYMBOL).filter(|page| page.len() == counter_page::SIZE);
    page.ok_or_else(|| format!("the hypervisor has no page `{PAGE_SYMBOL}`"))
}

/// A path among QEMU's options, which are split at commas; a doubled one stands for itself.
pub(crate) fn quote(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// What makes the plug-in write the ledger of memory budgets to `file`: behind
/// [`plugin_arguments`].
#[must_use]
pub fn ledger_argument(file: &Path) -> String {
    format!(",ledger={}", quote(file))
}

/// QEMU's arguments that load the plug-in; for the caches job with the directory of its
/// input files.
#[must_use]
pub fn plugin_arguments(
    plugin: &Path,
    hypervisor: &LinkedHypervisor,
    out: &Path,
    caches: Option<&Path>,
) -> [String; 2] {
    let (start, end) = (hypervisor.addresses.start, hypervisor.addresses.end);
    let mut arguments = format!(
        "{},out={},hyp={start:#x}-{end:#x},vectors={:#x}",
        quote(plugin),
        quote(out),
        hypervisor.vectors
    );
    if let Some(caches) = caches {
        let file = |name: &str| quote(&caches.join(name));
        let _ = write!(arguments, ",caches={},until={}", file(CACHES), file(UNTIL));
    }
    ["-plugin".to_owned(), arguments]
}

/// Returns the plug-in's description of a system.
fn setup(system: &System, packed: Option<&Packed>) -> std::result::Result<Setup, String> {
    let platform = system.platform();
    let cache = platform.places.cache.ok_or_else(|| {
        format!(
            "{} describes no cache: give its file a [cache] with size, ways and line",
            platform.name
        )
    })?;
    let run_on = |core: usize| {
        let here = |vm: &Vm| vm.cpus.iter().any(|cpu| usize::from(cpu.0) == core);
        system.vms.iter().enumerate().filter(|(_, vm)| here(vm)).map(|(vm, _)| vm).collect()
    };
    let mut pages: Vec<PageRun> = Vec::new();
    let owners = packed.map(|packed| page_owners(system, packed)).transpose()?;
    for (first, vm) in owners.unwrap_or_default() {
        match pages.last_mut() {
            Some(run) if run.vm == vm && run.first + run.count * PAGE == first => run.count += 1,
            _ => pages.push(PageRun { first, count: 1, vm }),
        }
    }
    // The plug-in maps the first piece.
    let ram = platform.ram_in_qemu().first().copied().unwrap_or(platform.memory);
    Ok(Setup {
        vms: system.vms.iter().map(|vm| vm.name.clone()).collect(),
        cores: (0..system.machine_cores()).map(run_on).collect(),
        l1d: CacheShape { line: cache.line.0, ..L1D },
        l1i: CacheShape { line: cache.line.0, ..L1I },
        l2: CacheShape { size: cache.size.0, ways: cache.ways as u32, line: cache.line.0 },
        banks: system.division.geometry.banks.into_iter().take_while(|&mask| mask != 0).collect(),
        row: ROW,
        uart: Some(platform.uart.data().0),
        ram: ram.base.0,
        ram_len: ram.size.0,
        pages,
        record: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_commas_reach_the_plugin() {
        let hypervisor = LinkedHypervisor {
            addresses: 0x1000..0x3000,
            vectors: 0x1800,
            ..LinkedHypervisor::default()
        };
        let arguments =
            plugin_arguments(Path::new("a,b.so"), &hypervisor, Path::new("o"), Some("c".as_ref()));
        let expected =
            "a,,b.so,out=o,hyp=0x1000-0x3000,vectors=0x1800,caches=c/caches.json,until=c/until";
        assert_eq!(arguments, ["-plugin", expected]);
    }
}
