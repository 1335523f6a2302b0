//! From the values of a file to a system that can be built: every rule, each with a message that
//! names both places and a suggestion.

mod broker;
mod cores;
mod devices;
mod image;
mod net;
mod pci;
mod socket;
mod vm;

use crate::coloring::assign;
use crate::coloring::division::Division;
use crate::coloring::requests::Requests;
use crate::coloring::work::Demand;
use crate::diagnostics::Code;
use crate::document;
use crate::fault::{self, Fault, Faults, File};
use crate::keys::system as raw;
use crate::keys::system::ABSENT;
use crate::object::Object;
use crate::platform::{self, Platform};
use crate::regulation;
use crate::resolve::Catalog;
use crate::system::read;
use crate::system::{Hypervisor, System};
use crate::table::At;
use crate::vm::{BROKER, Vm};
use std::{collections::HashMap, mem, ops::Range, path::Path};
use weir_abi::{ADDRESS_LIMIT, MAX_CORES, MAX_VMS};
use weir_units::{Bytes, CoreId};

/// Longest name in bytes.
const NAME_LIMIT: usize = 31;
/// A file with more VMs gets no other diagnostic: most of its faults would be about pairs of VMs.
const LISTED_VMS: usize = 4 * MAX_VMS;
/// Names that the tool gives to the hypervisor's own lines and log.
const RESERVED: [&str; 2] = ["weir", "hypervisor"];

/// Reads and checks a system file.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn check_file(path: &Path, catalog: &Catalog) -> Result<System, Faults> {
    check(path, &fault::read(path)?, catalog, Purpose::Build)
}

/// Checks the text of a system file. `path` is its name in messages, and images are searched next
/// to it.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn check_text(path: &Path, text: &str, catalog: &Catalog) -> Result<System, Faults> {
    check(path, &fault::file(path, text), catalog, Purpose::Build)
}

/// Checks the text of a system file for a measurement of its platform's memory: the values of
/// saturation in it and in the platform are ignored.
///
/// # Errors
///
/// Everything else that is wrong with it.
pub fn check_to_measure(path: &Path, text: &str, catalog: &Catalog) -> Result<System, Faults> {
    check(path, &fault::file(path, text), catalog, Purpose::Measure)
}

/// Checks a system file that is analyzed. The file may leave out its platform, or the cores, memory
/// or image of a VM. Budgets are not judged here, as the analysis does it.
///
/// # Errors
///
/// Everything that is wrong with the file, as [`check_file`] finds it.
pub(crate) fn check_to_analyze(
    path: &Path,
    file: &File,
    catalog: &Catalog,
) -> Result<System, Faults> {
    check_for(path, file, catalog, Purpose::Analyze)
}

/// What a file is checked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Build,
    /// The values of the memory are ignored.
    Measure,
    /// The file may be incomplete, and budgets are judged elsewhere.
    Analyze,
}

fn check(path: &Path, file: &File, catalog: &Catalog, purpose: Purpose) -> Result<System, Faults> {
    let system = check_for(path, file, catalog, purpose)?;
    // Only a check for the analysis takes another one.
    if system.is_complete { Ok(system) } else { Err(Faults::default()) }
}

fn check_for(
    path: &Path,
    file: &File,
    catalog: &Catalog,
    purpose: Purpose,
) -> Result<System, Faults> {
    let Parsed { raw, mut system, mut faults, mut absent } = parse(file)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let is_complete = raw.is_complete();
    if purpose != Purpose::Analyze || is_complete {
        faults.0.append(&mut absent.0);
    }
    let is_analyzed = purpose == Purpose::Analyze;
    let mut checker = Checker { file, faults, directory, catalog, platform: None, is_analyzed };
    if is_analyzed && !is_complete {
        let system = checker.incomplete(&raw, system, true);
        return checker.faults.into_result(system);
    }
    checker.count(raw.vms());
    if raw.vms().len() > LISTED_VMS {
        return Err(checker.faults);
    }
    checker.platform(raw.platform.as_ref());
    let division = checker.division(&raw, &system);
    let mut vms = checker.vms(&raw, division.as_ref(), &system);
    checker.lines(&system, &vms);
    checker.stolen_time(&raw, &system, &mut vms);
    let mut division = division;
    checker.sockets(&raw, &system);
    checker.broker(&raw, &system, &mut vms);
    checker.nets(&raw, &mut vms);
    if let Some(division) = &mut division {
        // What is no VM after all, for a fault that was found, needs none.
        let all = division.classes.all();
        division.vms.resize(vms.len(), all);
        division.tlb.resize_with(vms.len(), || None);
    }
    let hypervisor = checker.hypervisor(&raw.hypervisor, &vms);
    checker.measured(&mut system);
    let Checker { mut faults, platform, .. } = checker;
    match platform.zip(division) {
        Some((mut platform, division)) => {
            if purpose == Purpose::Measure {
                system.saturation = None;
                platform.saturation = None;
            }
            system.stand_on(Some(platform));
            faults.0.extend(system.engine_faults().into_iter().chain(system.qos_fault()));
            let mut system = System { path: path.to_owned(), hypervisor, vms, division, ..system };
            if purpose == Purpose::Analyze {
                // An image that is not there yet has no part in the analysis.
                faults.0.retain(|fault| fault.code != Code::ImageMissing);
            } else {
                system.regulations = regulation::regulate(&system, &mut faults);
            }
            system.is_complete = system.open_cores().is_empty();
            faults.into_result(system)
        }
        // Without a platform at least that is a fault.
        None => Err(Faults(faults.sorted())),
    }
}

/// The content of a file.
struct Parsed {
    raw: raw::System,
    system: System,
    faults: Faults,
    /// The faults of keys that a file may leave out if it is only analyzed.
    absent: Faults,
}

fn parse(file: &File) -> Result<Parsed, Faults> {
    let (mut faults, mut found) = (Faults::default(), Faults::default());
    match document::parse_part::<raw::System>(file, ABSENT, &mut faults) {
        Some((Some(raw), absent)) => {
            let system = read::system(&raw, file, &mut found);
            // A table with a value that could not be read is not judged as a whole.
            let is_unread = |wrong: &&Fault| !matches!(wrong.code, Code::Zero | Code::UnknownKey);
            let unread: Vec<_> =
                faults.0.iter().filter(is_unread).map(|wrong| wrong.span().start).collect();
            found.0.retain(|fault| {
                let Range { start, end } = fault.span();
                // A table with a header goes on to the next header.
                let rest = file.inner().get(start..).unwrap_or_default();
                let next = || rest.find("\n[").map_or(file.inner().len(), |line| start + line);
                let end = if rest.starts_with('[') { end.max(next()) } else { end };
                !unread.iter().any(|unread| (start + 1..end).contains(unread))
            });
            faults.0.append(&mut found.0);
            Ok(Parsed { raw, system, faults, absent })
        }
        _ => Err(Faults(faults.sorted())),
    }
}

struct Checker<'a> {
    file: &'a File,
    faults: Faults,
    directory: &'a Path,
    catalog: &'a Catalog,
    platform: Option<Platform>,
    /// True if the file may leave out what a build needs, such as the schedule of a shared core.
    is_analyzed: bool,
}

impl Checker<'_> {
    fn fault(&self, code: Code, span: &Range<usize>, message: impl Into<String>) -> Fault {
        Fault::new(code, self.file, span.clone(), message)
    }

    fn platform(&mut self, raw: Option<&At<String>>) {
        if let Some(name) = raw {
            let found = platform::find(self.file, self.directory, name, &mut self.faults);
            self.platform = found.map(|platform| platform.on(self.catalog.machine));
        }
    }

    /// The values of a file without the keys that a build needs. With `follow` the overheads of the
    /// file that `[broker] overheads` names are taken, too.
    fn incomplete(&mut self, raw: &raw::System, mut system: System, follow: bool) -> System {
        self.names(raw.vms());
        if follow {
            self.measured(&mut system);
        }
        self.platform(raw.platform.as_ref());
        system.stand_on(self.platform.clone());
        let engine = system.platform.as_ref().and_then(|platform| platform.dma_engine.as_ref());
        self.faults.0.extend(system.wrong_rules(engine, |vm| system.known_lines(vm)));
        system
    }

    /// Takes the overheads that `[broker] overheads` names, and the copy's bandwidth with them,
    /// where the file has none.
    fn measured(&mut self, system: &mut System) {
        let Some((name, place)) = system.measured.clone() else { return };
        let path = self.directory.join(&name);
        let read = fault::read(&path).and_then(|file| {
            let Parsed { raw, system, faults, .. } = parse(&file)?;
            let directory = path.parent().unwrap_or(Path::new(""));
            let catalog = self.catalog;
            let is_analyzed = self.is_analyzed;
            let mut checker =
                Checker { file: &file, faults, directory, catalog, platform: None, is_analyzed };
            let system = checker.incomplete(&raw, system, false);
            checker.faults.into_result(system)
        });
        let why = match read {
            Ok(measured) if measured.overheads.is_empty() => "has no [overheads]".to_owned(),
            Ok(measured) => return system.adopt(&measured),
            Err(why) => {
                let first = why.0.first().map(|fault| fault.message.clone());
                format!("cannot be used: {}", first.unwrap_or_default())
            }
        };
        let message = format!("the broker: `overheads` names `{name}`, which {why}");
        let help = "run a system with flows, and let `weir report --overheads \
                    -o FILE` write it; or take the key out";
        self.faults.push(system.fault(Code::BrokerOverheads, &place, message, help));
    }

    fn hypervisor(&mut self, raw: &raw::Hypervisor, vms: &[Vm]) -> Hypervisor {
        if let (Some(core), Some(platform)) = (&raw.console_core, &self.platform)
            && is_unknown(core.value, platform)
        {
            let fault = self.unknown_core("the hypervisor: `console_core`", core, platform);
            self.faults.push(fault);
        }
        let At { value, span } = &raw.heartbeat;
        if !value.0.is_multiple_of(1_000_000) || value.0 / 1_000_000 > u64::from(u32::MAX) {
            let message = format!(
                "the hypervisor: `heartbeat` is not a number of milliseconds below 2^32 ({value})"
            );
            let fault = self.fault(Code::OutOfRange, span, message).label("this");
            self.faults
                .push(fault.help("write whole milliseconds, like \"1s\", or \"0s\" for none"));
        }
        let console_core = raw.console_core.as_ref().map(|core| CoreId(core.value as u8));
        Hypervisor {
            console_core: console_core.unwrap_or_else(|| self.idle_core(vms)),
            heartbeat: (value.0 != 0).then_some(*value),
            observed: false,
        }
    }

    /// A core of the machine without a VM, or else the last core of the last VM: the VM that is
    /// named last is seldom the most critical.
    fn idle_core(&self, vms: &[Vm]) -> CoreId {
        let platform = self.platform.as_ref();
        let cores = platform.and_then(|platform| {
            // QEMU's machine can have cores that are not the board's.
            let qemu = platform.qemu.as_ref()?;
            Some(qemu.cores.min(platform.cores.len()) as u8)
        });
        let idle = (0..cores.unwrap_or(0))
            .map(CoreId)
            .find(|core| vms.iter().all(|vm| !vm.cpus.contains(core)));
        let last = vms.iter().rfind(|vm| vm.name != BROKER).and_then(|vm| vm.cpus.last()).copied();
        idle.or(last).unwrap_or(CoreId(0))
    }

    /// That a key, named with its object, has a core that the platform does not have.
    fn unknown_core(&self, key: &str, core: &At<u64>, platform: &Platform) -> Fault {
        let message =
            format!("{key} names core {}, but {platform} has {}", core.value, platform.cores.len());
        let last = platform.cores.len().saturating_sub(1);
        self.fault(Code::CoreUnknown, &core.span, message)
            .label("no such core")
            .help(format!("use cores 0 to {last}"))
    }

    fn division(&mut self, raw: &raw::System, system: &System) -> Option<Division> {
        let demand = |vm: &At<raw::Vm>| {
            let memory = vm.memory.as_ref();
            let size = memory.and_then(|memory| memory.total()).map_or(0, |size| size.0);
            // Another check reports what exceeds the limit.
            let memory_span = vm.memory_span(&vm.span);
            let memory = Bytes(size.min(ADDRESS_LIMIT));
            // An image that does not fit is for others to refuse.
            let pristine = vm.image.as_ref().map_or(0, |image| self.likely_len(&image.value));
            let pristine = Bytes(pristine.min(memory.0));
            Demand { name: vm.to_string(), memory, pristine, span: memory_span }
        };
        let mut demands: Vec<_> = raw.vms().iter().map(demand).collect();
        let platform = self.platform.as_ref()?;
        let mut requests = Requests::of(raw);
        if !raw.vms().is_empty() && broker::is_needed(raw, system, platform) {
            let demand = broker::demand(raw, system);
            let mut request = mem::take(&mut requests.broker);
            if request.span.is_empty() {
                request.span = demand.span.clone();
            }
            demands.push(demand);
            requests.vms.push(request);
        }
        let timed = system.guests();
        Some(assign::assign(&requests, platform, &demands, timed, self.file, &mut self.faults))
    }

    fn vms(&mut self, raw: &raw::System, division: Option<&Division>, system: &System) -> Vec<Vm> {
        if let Some(empty) = raw.vm.as_ref().filter(|vms| vms.is_empty()) {
            let message = "the system: `vm` is empty";
            let fault = self.fault(Code::Empty, &empty.span, message).label("empty");
            self.faults.push(fault.help("add [[vm]] with `name`, `cpus`, `memory` and `image`"));
        }
        self.names(raw.vms());
        self.cores(raw.vms(), system);
        self.schedules(system);
        let devices = self.assign(raw.vms(), system);
        let functions = self.functions(raw.vms(), &devices);
        let mut total = 0u64;
        let mut vms = Vec::new();
        let given = devices.into_iter().zip(functions).zip(system.vms.iter().cloned());
        for (index, (raw, (given, read))) in raw.vms().iter().zip(given).enumerate() {
            let tlb = division.and_then(|division| division.tlb.get(index)?.as_ref());
            let vm = self.vm(raw, read, given, tlb);
            self.add_up(&mut total, &vm);
            vms.push(vm);
        }
        vms
    }

    fn count(&mut self, vms: &[At<raw::Vm>]) {
        if let Some(extra) = vms.get(MAX_VMS) {
            let message = format!("the system: {} VMs (weir supports {MAX_VMS})", vms.len());
            let fault = self.fault(Code::TooMany, &extra.span, message).label("one too many");
            // However many others there are: they follow from it.
            self.faults.0.insert(0, fault.help("remove VMs"));
        }
    }

    fn names(&mut self, vms: &[At<raw::Vm>]) {
        let mut seen: HashMap<&str, &Range<usize>> = HashMap::new();
        for At { value: name, span } in vms.iter().filter_map(|vm| vm.name.as_ref()) {
            let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            let mut help = "use 1 to 31 characters of a-z, A-Z, 0-9, `-` and `_`";
            let wrong = if name.is_empty() {
                Some((Code::NameInvalid, "`name` is empty".to_owned()))
            } else if name.len() > NAME_LIMIT {
                let wrong = format!("`name` has {} bytes (EL2 supports {NAME_LIMIT})", name.len());
                Some((Code::NameInvalid, wrong))
            } else if RESERVED.contains(&name.as_str()) {
                help = "write another `name`";
                Some((Code::NameInvalid, "`name` is one of the hypervisor's own".to_owned()))
            } else {
                let bad = name.chars().find(|c| !good(*c));
                bad.map(|bad| (Code::NameInvalid, format!("`name` has {bad:?} in it")))
            };
            if let Some((code, wrong)) = wrong {
                let message = format!("{}: {wrong}", Object::vm(name));
                let fault = self.fault(code, span, message).label("this name").help(help);
                self.faults.push(fault);
            }
            if let Some(first) = seen.get(name.as_str()) {
                let message = format!("{}: two VMs have this name", Object::vm(name));
                let fault = self.fault(Code::Twice, span, message).label("second");
                self.faults.push(
                    fault.and((*first).clone(), "first").help("write another `name` for one"),
                );
            } else {
                seen.insert(name, span);
            }
        }
    }

    fn add_up(&mut self, total: &mut u64, vm: &Vm) {
        let Some(platform) = &self.platform else {
            return;
        };
        let board: u64 = platform.pools().iter().map(|pool| pool.end - pool.start).sum();
        let before = *total;
        *total = total.saturating_add(crate::image::total(&vm.memory).0);
        if before <= board && *total > board {
            let message = format!(
                "{vm}: it and the VMs before it need {}, but {platform} has {}",
                Bytes(*total),
                Bytes(board)
            );
            let fault = self.fault(Code::NoRoom, &vm.spans.memory, message).label("from here on");
            let left = Bytes(board - before);
            let help = format!(
                "write a smaller `memory`: {left} are left for this VM, the hypervisor and the \
                 images"
            );
            self.faults.push(fault.help(help));
        }
    }
}

/// Whether the platform has no core with a possible number; the walk has reported the others.
fn is_unknown(core: u64, platform: &Platform) -> bool {
    core < MAX_CORES as u64 && core >= platform.cores.len() as u64
}
