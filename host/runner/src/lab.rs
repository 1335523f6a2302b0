//! Runs of small systems by the emulated clock, with the plug-in's ledger of what their guests
//! did in each period.

use crate::{
    elf::LinkedHypervisor,
    plugin::{Watch, ledger_argument, plugin_arguments},
    report::End,
    run::{RunOptions, SilentConsole, run},
    serial::BoardLine,
    show,
    signals::watch_signals,
};
use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};
use weir_abi::Features;
use weir_image::{
    Environment, Failure, Result,
    cargo::Programs,
    failure::{Context, INTERRUPTED},
};
use weir_model::{System, platform::Platform};
use weir_qemu_plugin::ledger::{CoreLedger, GuestCounts, Ledger, Period};
use weir_report::trace::file::Trace;
use weir_trace::record::RecordKind;

/// The guests of the experiments.
const GUESTS: [&str; 4] = ["memory-stressor", "latency", "spender", "storm"];

/// A monitored memory stressor's memory: twice the cache, so that each access is a refill.
pub const STRESSOR: u64 = 2 << 20;
/// What the plug-in counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Instructions, of guests and at EL2.
    Instructions,
    /// Lines between the cache's model and memory.
    Traffic,
    /// Instructions, while a second copy of the plug-in writes the counter page.
    Polls,
}

/// Where systems are run.
pub struct Lab<'a> {
    platform: Platform,
    environment: &'a Environment,
    directory: &'a Path,
    plugin: PathBuf,
    hypervisor: LinkedHypervisor,
    line: Option<BoardLine>,
}

/// The counts of a run.
#[derive(Debug)]
pub struct Seen {
    /// By core.
    pub ledger: Ledger,
    /// When each period of a core began, in ns, by the hypervisor's trace. In QEMU there is none of
    /// a core with lost records; on a board the ledger has the same stretch of periods.
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
        Ok(Self {
            platform: platform.clone(),
            environment,
            directory,
            plugin: environment.plugin()?,
            hypervisor: LinkedHypervisor::read(&hypervisor)?,
            line: None,
        })
    }

    /// Runs systems on the board on this line from now on, instead of QEMU. Then the hypervisor
    /// counts, by the PMU, and its trace is the ledger.
    #[must_use]
    pub fn with_line(self, line: Option<BoardLine>) -> Self {
        Self { line, ..self }
    }

    /// What counts a core's accesses, as a budget's key `source` has it: QEMU's plug-in, or the PMU
    /// of a board.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        if self.line.is_some() { "pmu" } else { "counter-page" }
    }

    /// The least period of a budget that the platform enforces, in ns.
    #[must_use]
    pub fn min_period(&self) -> u64 {
        let counters = &self.platform.counters;
        let of_pmu = || counters.pmu.as_ref().map(|pmu| pmu.min_period);
        let of_page = || counters.counter_page.as_ref().map(|page| page.min_period);
        let least = if self.line.is_some() { of_pmu() } else { of_page() };
        least.map_or(0, |least| least.0)
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
            self.platform.name,
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
        // The memory's values in the board file do not bind what measures them.
        let checked = weir_image::load_to_measure(&system, None, self.environment)
            .map_err(|faults| weir_image::refused(&faults))?;
        let checked = weir_image::to_build(checked);
        if let Some(line) = &self.line {
            return self.run_on_board(&checked, line);
        }
        let mut options = RunOptions {
            accept_not_judged: true,
            no_build: true,
            keep_running: true,
            interrupt: watch_signals()?,
            ..RunOptions::new(self.environment.clone())
        };
        match job {
            Job::Traffic => {
                options.watch = Some(self.watch(&checked)?.with_ledger(ledger.clone()));
            }
            Job::Instructions | Job::Polls => {
                let mut plugin = self.plugin.clone();
                if job == Job::Polls {
                    // A library that is loaded twice has one set of books, so the second is
                    // another file.
                    plugin = file("so");
                    fs::copy(&self.plugin, &plugin)
                        .context(|| format!("write {}", plugin.display()))?;
                    options.watch = Some(self.watch(&checked)?);
                }
                let [load, mut argument] =
                    plugin_arguments(&plugin, &self.hypervisor, &counted, None);
                argument.push_str(&ledger_argument(&ledger));
                options.qemu_args = vec![load.into(), argument.into()];
            }
        }
        let outcome = run(&checked, &options, &mut SilentConsole)?;
        interrupted(outcome.status)?;
        let outcome = outcome.good(&system)?;
        let reading = || format!("read the plug-in's books on {}", system.display());
        let seen = Seen {
            ledger: Ledger::read(&ledger).context(reading)?,
            boundaries: boundaries(
                &counted_periods(&mut Trace::open(&outcome.directory)?)?,
                |core| !core.lost,
            ),
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
    /// Runs a system on a board until all its VMs are off.
    fn run_on_board(&self, system: &System, line: &BoardLine) -> Result<Seen> {
        let options = RunOptions {
            accept_not_judged: true,
            no_build: true,
            keep_running: true,
            serial: Some(line.serial.clone()),
            serial_trace: true,
            loader: Some(line.loader.clone()),
            interrupt: watch_signals()?,
            ..RunOptions::new(self.environment.clone())
        };
        let outcome = run(system, &options, &mut SilentConsole)?;
        interrupted(outcome.status)?;
        if outcome.report.ended_by != End::SystemStop {
            let why = outcome.trouble.unwrap_or_else(|| show::summary(&outcome.report));
            let (file, logs) = (system.path.display(), outcome.directory.display());
            return Err(Failure::environment(format!("{file}: {why}\nlogs: {logs}")));
        }
        let counted = counted_periods(&mut Trace::open(&outcome.directory)?)?;
        Ok(Seen {
            // Also of a stretch, which is all that the ledger has here.
            boundaries: boundaries(&counted, |_| true),
            ledger: Ledger { cores: counted.into_iter().map(Counted::into_ledger).collect() },
            directory: outcome.directory,
        })
    }

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

    /// Returns the lines in `period` ns that these cores move together: the sum of each core's mean
    /// over the periods in which its guest ran from begin to end.
    ///
    /// A period counts if it has a fortieth of the lines of the busiest one or more. The first and
    /// the last of these do not count, because the guest started and ended within them.
    ///
    /// # Errors
    ///
    /// The system is at fault if a core was busy for fewer than three periods, the environment if
    /// the trace lost records of a core.
    pub fn together(&self, cores: &[usize], period: u64) -> Result<f64> {
        let rates = cores.iter().map(|core| {
            let periods = &self.core(*core)?.periods;
            let lost = || {
                Failure::environment(format!(
                    "the trace lost records of core {core}: try again on a quieter machine"
                ))
            };
            let begun = self.boundaries.get(core).filter(|begun| begun.len() > periods.len());
            let rate = busy_rate(periods, begun.ok_or_else(lost)?);
            let short =
                || Failure::system(format!("core {core} was busy for fewer than three periods"));
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            Ok(rate.ok_or_else(short)? * period as f64)
        });
        rates.sum()
    }

    /// Removes the run's directory: what is needed of it was read.
    #[must_use]
    pub fn forget(self) -> Self {
        // Its logs are only in the way.
        let _ = fs::remove_dir_all(&self.directory);
        self
    }
}

/// Returns a core's lines per ns in the periods that its guest filled from begin to end, or nothing
/// if there are none. `begun` has the time at which each period began, in ns, and one more.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn busy_rate(periods: &[Period], begun: &[u64]) -> Option<f64> {
    let lines = |period: &Period| period.counts.refills;
    let most = periods.iter().map(lines).max().filter(|most| *most > 0)?;
    let busy = |period: &Period| lines(period) >= most.div_ceil(40);
    let first = periods.iter().position(busy)? + 1;
    let last = periods.iter().rposition(busy)?;
    let time = begun.get(last)?.checked_sub(*begun.get(first)?).filter(|time| *time > 0)?;
    let counted = periods.get(first..last)?;
    Some(counted.iter().map(lines).sum::<u64>() as f64 / time as f64)
}

/// A core's periods in a trace, without a gap.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// When each began, and the last one ended, in ns.
    begun: Vec<u64>,
    periods: Vec<Period>,
    /// Whether the vCPU was suspended in the period that is not over.
    throttled: bool,
    /// Whether records of the core were lost, so that there are more periods.
    lost: bool,
}

impl Counted {
    fn into_ledger(self) -> CoreLedger {
        CoreLedger { periods: self.periods, ..CoreLedger::default() }
    }
}

/// Reads what the hypervisor counted on each core: the longest stretch of periods without a lost
/// record.
fn counted_periods<R: Read>(trace: &mut Trace<R>) -> Result<Vec<Counted>> {
    let mut all = vec![[Counted::default(), Counted::default()]; trace.facts.cores as usize];
    while let Some(record) = trace.next_record()? {
        let core = usize::from(weir_report::trace::file::core(&record));
        let Some([longest, now]) = all.get_mut(core) else { continue };
        match RecordKind::from_number(record.kind) {
            // Of two budgets the one of reads.
            Some(RecordKind::Replenish) if record.detail < 2 => {
                if !now.begun.is_empty() {
                    let counts = GuestCounts { refills: record.count, ..GuestCounts::default() };
                    now.periods.push(Period { counts, polls: 0, throttled: now.throttled });
                }
                now.begun.push(trace.facts.nanos(record.time));
                now.throttled = false;
            }
            Some(RecordKind::Throttle) => now.throttled = true,
            Some(RecordKind::Lost) => {
                let next = Counted { lost: true, ..Counted::default() };
                let ended = Counted { lost: true, ..std::mem::replace(now, next) };
                if ended.periods.len() > longest.periods.len() {
                    *longest = ended;
                }
            }
            _ => {}
        }
    }
    let longer = |[one, other]: [Counted; 2]| {
        if other.periods.len() >= one.periods.len() { other } else { one }
    };
    Ok(all.into_iter().map(longer).collect())
}

/// When the periods of each core for which `is_used` is true began, in ns.
fn boundaries(
    counted: &[Counted],
    is_used: impl Fn(&Counted) -> bool,
) -> BTreeMap<usize, Vec<u64>> {
    let used = counted.iter().enumerate().filter(|(_, core)| is_used(core));
    used.map(|(core, counted)| (core, counted.begun.clone())).collect()
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
    use std::io::Cursor;
    use weir_report::trace::file::{TraceFacts, lost};
    use weir_trace::record::Record;
    use zerocopy::IntoBytes as _;

    #[test]
    fn a_boards_periods_are_read_from_its_trace() {
        let record = |core, kind: RecordKind, time, count| {
            let record = Record { time, kind: kind as u16, count, ..Record::default() };
            record.with_sequence(core)
        };
        let replenish = |core, time, used| record(core, RecordKind::Replenish, time, used);
        let records = [
            replenish(1, 0, 0),
            // What lies before a gap is shorter.
            replenish(0, 5, 0),
            lost(0, 6, 3),
            record(0, RecordKind::Throttle, 8, 70),
            replenish(0, 10, 70),
            replenish(1, 10, 9),
            record(0, RecordKind::Throttle, 12, 40),
            replenish(0, 20, 40),
            replenish(0, 30, 4),
        ];
        let facts = TraceFacts {
            cores: 2,
            frequency: 1_000_000_000,
            records: records.len() as u64,
            ..TraceFacts::default()
        };
        let mut bytes = Vec::new();
        facts.write(&mut bytes).expect("memory");
        bytes.extend_from_slice(records.as_bytes());
        let mut trace = Trace::read(Cursor::new(bytes)).expect("a trace");
        let cores = counted_periods(&mut trace).expect("whole records");
        let periods = |core: usize| {
            let periods = cores[core].periods.iter();
            periods.map(|period| (period.counts.refills, period.throttled)).collect::<Vec<_>>()
        };
        assert_eq!([cores[0].lost, cores[1].lost], [true, false]);
        assert_eq!(
            (cores[0].begun.as_slice(), periods(0)),
            (&[10, 20, 30][..], vec![(40, true), (4, false)])
        );
        assert_eq!((cores[1].begun.as_slice(), periods(1)), (&[0, 10][..], vec![(9, false)]));
    }

    #[test]
    fn a_rate_is_of_the_periods_that_a_guest_filled() {
        let periods = [0, 3, 40, 42, 41, 39, 0].map(|refills| Period {
            counts: GuestCounts { refills, ..GuestCounts::default() },
            polls: 0,
            throttled: false,
        });
        let begun = [0, 10, 20, 30, 40, 50, 60, 70];
        // 3 and 39 lines are of periods in which the guest started and ended.
        assert_eq!(busy_rate(&periods, &begun), Some(4.1));
        assert_eq!(busy_rate(&periods[..4], &begun), Some(4.0));
        assert_eq!(busy_rate(&periods[..3], &begun), None);
        assert_eq!(busy_rate(&periods[..1], &begun), None);
    }

    #[test]
    fn a_run_ended_by_a_person_has_no_table() {
        let ended = interrupted(INTERRUPTED).expect_err("an end");
        assert_eq!((ended.status, ended.text.as_str()), (INTERRUPTED, "interrupted"));
        assert!(interrupted(weir_image::failure::GOOD).is_ok());
    }
}
