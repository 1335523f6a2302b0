//! Runs of small systems under instruction counting, with the plug-in's ledger of what their guests
//! did in each period.

use crate::{
    elf::LinkedHypervisor,
    plugin::{Watch, ledger_argument, plugin_arguments},
    run::{RunOptions, SilentConsole, run},
    show,
    signals::watch_signals,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use weir_abi::Features;
use weir_image::{
    Environment, Failure, Result,
    cargo::Programs,
    failure::{Context, GOOD, INTERRUPTED},
};
use weir_model::{System, platform::Platform};
use weir_qemu_plugin::ledger::{CoreLedger, Ledger, Period};
use weir_report::trace::file::Trace;
use weir_trace::record::RecordKind;

/// The guests of the experiments.
const GUESTS: [&str; 4] = ["memory-stressor", "latency", "spender", "storm"];

/// A monitored memory stressor's memory: twice the cache, so that each access is a refill.
pub const STRESSOR: u64 = 2 << 20;
/// Lines in a period of a busy core, not starting or ending.
const BUSY: u64 = 1000;

/// What the plug-in counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Instructions, of guests and at EL2. There are no slicing ticks, so one VM alone should be
    /// busy.
    Instructions,
    /// Lines between the cache's model and memory.
    Traffic,
    /// Instructions, while a second copy of the plug-in writes the counter page.
    Polls,
}

/// Where systems are run.
pub struct Lab<'a> {
    platform: String,
    environment: &'a Environment,
    directory: &'a Path,
    plugin: PathBuf,
    hypervisor: LinkedHypervisor,
}

/// The counts of a run.
#[derive(Debug)]
pub struct Seen {
    /// By core.
    pub ledger: Ledger,
    /// When each period of a core began, in ns, by the hypervisor's trace. Of a core with lost
    /// records there is none.
    pub boundaries: BTreeMap<usize, Vec<u64>>,
    /// The run's directory.
    pub directory: PathBuf,
}

/// Returns QEMU's board with a GICv3, on which experiments run.
///
/// # Errors
///
/// The environment is at fault if this weir does not have the board.
pub fn qemu_virt() -> Result<Platform> {
    let missing = || Failure::environment("there is no platform qemu-virt");
    Platform::named("qemu-virt").ok_or_else(missing)
}

impl<'a> Lab<'a> {
    /// On QEMU's board with a GICv3; see [`Lab::on`].
    ///
    /// # Errors
    ///
    /// As [`Self::on`].
    pub fn new(environment: &'a Environment, directory: &'a Path) -> Result<Self> {
        Self::on(&qemu_virt()?, environment, directory)
    }

    /// Builds what all systems on a platform need. Their files go to `directory`.
    ///
    /// # Errors
    ///
    /// The environment is at fault if a program cannot be built.
    pub fn on(
        platform: &Platform,
        environment: &'a Environment,
        directory: &'a Path,
    ) -> Result<Self> {
        let programs = Programs::new(environment, false);
        let hypervisor = programs.hypervisor(environment, platform, Features::ALL)?;
        programs.guests(environment, &GUESTS.map(str::to_owned))?;
        programs.icount_shim(environment)?;
        Ok(Self {
            platform: platform.name.clone(),
            environment,
            directory,
            plugin: programs.plugin(environment)?,
            hypervisor: LinkedHypervisor::read(&hypervisor)?,
        })
    }

    /// The compiler that made the hypervisor, on which counts of EL2's instructions depend.
    #[must_use]
    pub fn compiler(&self) -> &str {
        &self.hypervisor.compiler
    }

    /// A system of these VMs, with `more` before them.
    #[must_use]
    pub fn system(&self, more: &str, vms: &[String]) -> String {
        format!(
            "platform = \"{}\"\n\n[hypervisor]\nconsole_core = 0\n{more}{}",
            self.platform,
            vms.concat()
        )
    }

    /// Runs a memory stressor on each of these cores, which goes `passes` times over [`STRESSOR`]
    /// bytes with what stands in `memory_budget`, and `more` before them.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn stressors(
        &self,
        name: &str,
        more: &str,
        cores: &[usize],
        passes: u64,
        bandwidth: &str,
    ) -> Result<Seen> {
        let args = format!("mode=read size={STRESSOR} passes={passes}");
        let vm = |core: &usize| {
            let (name, cpus) = (format!("stressor{core}"), format!("[{core}]"));
            LabVm { name: &name, cpus: &cpus, guest: ("memory-stressor", &args), bandwidth }.toml()
        };
        let vms: Vec<String> = cores.iter().map(vm).collect();
        Ok(self.run(name, &self.system(more, &vms), Job::Traffic)?.forget())
    }

    /// Runs the system in `text` until all its VMs are off.
    ///
    /// # Errors
    ///
    /// The system is at fault if the run failed, see [`crate::Run::status`]; the environment if it
    /// left no ledger.
    pub fn run(&self, name: &str, text: &str, job: Job) -> Result<Seen> {
        let file = |ending: &str| self.directory.join(name).with_extension(ending);
        let [system, counted, ledger] = [file("toml"), file("count.json"), file("ledger.json")];
        fs::write(&system, text).context(|| format!("write {}", system.display()))?;
        for old in [&counted, &ledger] {
            let _ = fs::remove_file(old);
        }
        let checked = weir_image::check(&system, None, self.environment)?;
        let mut options = RunOptions {
            no_build: true,
            deterministic: true,
            keep_running: true,
            interrupt: watch_signals()?,
            ..RunOptions::new(self.environment.clone())
        };
        match job {
            Job::Instructions => {
                let [load, mut argument] =
                    plugin_arguments(&self.plugin, &self.hypervisor, &counted, None);
                argument.push_str(&ledger_argument(&ledger));
                options.unsliced = true;
                options.qemu_args = vec![load.into(), argument.into()];
            }
            Job::Traffic => {
                options.watch = Some(self.watch(&checked)?.with_ledger(ledger.clone()));
            }
            Job::Polls => {
                // A library that is loaded twice has one set of books, so the second is another
                // file.
                let copy = file("so");
                fs::copy(&self.plugin, &copy).context(|| format!("write {}", copy.display()))?;
                let [load, mut argument] =
                    plugin_arguments(&copy, &self.hypervisor, &counted, None);
                argument.push_str(&ledger_argument(&ledger));
                options.unsliced = true;
                options.qemu_args = vec![load.into(), argument.into()];
                options.watch = Some(self.watch(&checked)?);
            }
        }
        let outcome = run(&checked, &options, &mut SilentConsole)?;
        interrupted(outcome.status)?;
        if outcome.status != GOOD {
            let why = outcome.trouble.unwrap_or_else(|| show::summary(&outcome.report));
            let logs = outcome.directory.display();
            return Err(Failure {
                status: outcome.status,
                text: format!("{}: {why}\nlogs: {logs}", system.display()),
            });
        }
        let reading = || format!("read the plug-in's books on {}", system.display());
        let seen = Seen {
            ledger: Ledger::read(&ledger).context(reading)?,
            boundaries: boundaries(&outcome.directory)?,
            directory: outcome.directory,
        };
        Ok(seen)
    }
}

/// Ends a series of runs if the user ended a run: the report of that run is incomplete.
fn interrupted(status: u8) -> Result {
    if status == INTERRUPTED {
        return Err(Failure { status, text: "interrupted".to_owned() });
    }
    Ok(())
}

impl Lab<'_> {
    /// Returns the plug-in that writes the counter page in a run of this system.
    fn watch(&self, system: &System) -> Result<Watch> {
        Watch::new(system, None, None, true, self.environment)
    }
}

impl Seen {
    /// The ledger of core `core`.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the plug-in saw no such core.
    pub fn core(&self, core: usize) -> Result<&CoreLedger> {
        self.ledger
            .cores
            .get(core)
            .ok_or_else(|| Failure::environment(format!("the plug-in saw no core {core}")))
    }

    /// Lines in `period` ns that these cores moved together while one of them was busy. Under
    /// instruction counting they are serialized on one clock, so that a core that waits for its
    /// time slice leaves nothing unused.
    ///
    /// # Errors
    ///
    /// The system is at fault if no core was ever busy, the environment if the trace lost too much.
    pub fn together(&self, cores: &[usize], period: u64) -> Result<f64> {
        let nothing = || Failure::system("no core was ever busy");
        let busy = |period: &Period| period.counts.refills > BUSY;
        let (mut from, mut to, mut lines) = (u64::MAX, 0, 0);
        for core in cores {
            let periods = &self.core(*core)?.periods;
            let first = periods.iter().position(busy).ok_or_else(nothing)?;
            let last = periods.iter().rposition(busy).ok_or_else(nothing)?;
            let counted = periods.iter().skip(first).take(last + 1 - first);
            lines += counted.map(|period| period.counts.refills).sum::<u64>();
            // If records of a core were lost, the others give the time.
            let begun = self.boundaries.get(core).filter(|begun| begun.len() > periods.len());
            if let Some(begun) = begun {
                from = from.min(begun[first]);
                to = to.max(begun[last + 1]);
            }
        }
        if from >= to {
            return Err(Failure::environment(
                "the trace's records were lost on each core: try again on a quieter machine",
            ));
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let rate = lines as f64 * period as f64 / to.saturating_sub(from).max(1) as f64;
        Ok(rate)
    }

    /// Removes the run's directory: what is needed of it was read.
    #[must_use]
    pub fn forget(self) -> Self {
        // Its logs are only in the way.
        let _ = fs::remove_dir_all(&self.directory);
        self
    }
}

/// When each core's periods began, in ns.
fn boundaries(run: &Path) -> Result<BTreeMap<usize, Vec<u64>>> {
    let mut trace = Trace::open(run)?;
    let mut all: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    let mut lost = Vec::new();
    while let Some(record) = trace.next_record()? {
        let core = usize::from(weir_report::trace::file::core(&record));
        match RecordKind::from_number(record.kind) {
            // Of two budgets the one of reads.
            Some(RecordKind::Replenish) if record.detail < 2 => {
                all.entry(core).or_default().push(trace.facts.nanos(record.time));
            }
            Some(RecordKind::Lost) => lost.push(core),
            _ => {}
        }
    }
    all.retain(|core, _| !lost.contains(core));
    Ok(all)
}

/// A VM of a system that a lab runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabVm<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its cores, as TOML has them.
    pub cpus: &'a str,
    /// The guest and its arguments.
    pub guest: (&'a str, &'a str),
    /// The keys of `memory_budget` as TOML; empty for a VM without a budget.
    pub bandwidth: &'a str,
}

impl LabVm<'_> {
    /// Returns the VM as a `[[vm]]` table.
    #[must_use]
    pub fn toml(self) -> String {
        let Self { name, cpus, guest: (guest, args), bandwidth } = self;
        let bandwidth = match bandwidth {
            "" => String::new(),
            keys => format!("memory_budget = {{ {keys} }}\n"),
        };
        format!(
            "\n[[vm]]\nname = \"{name}\"\ncpus = {cpus}\nmemory = \"8MiB\"\n\
             image = {{ elf = \"{guest}\", args = \"{args}\" }}\n{bandwidth}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ended_by_a_person_has_no_table() {
        let ended = interrupted(INTERRUPTED).expect_err("an end");
        assert_eq!((ended.status, ended.text.as_str()), (INTERRUPTED, "interrupted"));
        assert!(interrupted(GOOD).is_ok());
    }
}
