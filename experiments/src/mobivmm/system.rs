//! The systems of the experiment, and the bounds that the analysis computes for them.

use std::{ffi::OsString, fmt::Write as _, path::Path};
use weir_analysis::{Nanos, system::supply};
use weir_model::{Catalog, SystemFile, timing::Entity};

/// Milliseconds of a tick of both guests, and of the sleep.
const TICK_MS: u64 = 10;
/// Microseconds between two interrupts of the second source.
const SECOND_US: u32 = 5_000;
/// The rate of interrupts per second that an admission rule lets preempt, and their burst.
const ADMITTED: (u64, u64) = (5, 1);
/// The interval, in microseconds, that means a storm: a core raises a line as fast as it can.
pub(super) const STORM_US: u32 = 1;

/// Upper bound on the time, in microseconds, that the sleeper needs in addition to its ticks. It
/// contains waits for a lock when the sleeper gets the core.
const NOTICE_US: u64 = 500;

/// The network devices of the loaded VM and of the generator: the slot on PCI, and QEMU's name of
/// the port of the hub.
const PORTS: [(u32, &str); 2] = [(2, "loaded"), (3, "generator")];
/// The line of the loaded VM's network device: INTA of slot 2 on QEMU's bus.
const NETWORK_LINE: u32 = 37;
/// The line of the storm, which is of QEMU's clock, and the line of the second source, of its GPIO.
const STORM_LINE: u32 = 34;
const SECOND_LINE: u32 = 39;

/// How VMs share the core, and whether interrupts preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Round robin, and every interrupt preempts for the rest of the time slice (mobivmm).
    Preempt,
    /// Round robin, and a few interrupts per second preempt.
    Admit,
    /// Round robin, and interrupts wait for the time slice of their VM.
    Defer,
    /// Fixed priority: a server with half of the time for the sleeper, and below it one with the
    /// rest less a millisecond for the loaded VM.
    FixedPriority,
    /// A table of two slots of a quantum each.
    Table,
}

impl Policy {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Preempt => "preempt",
            Self::Admit => "admit",
            Self::Defer => "defer",
            Self::FixedPriority => "fixed-priority",
            Self::Table => "table",
        }
    }
}

/// One run of the experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// How the two VMs share the core.
    pub(super) policy: Policy,
    /// The quantum, in ms.
    pub(super) quantum_ms: u64,
    /// Whether a second device interrupts.
    pub(super) audio: bool,
    /// The time between two interrupts, in us; none without interrupts.
    pub(super) interval_us: Option<u32>,
    /// The number of sleeps that are measured.
    pub(super) sleeps: u32,
}

/// The first source of interrupts of the loaded VM.
pub(super) enum First {
    None,
    /// Frames, with the interval in microseconds.
    Frames(u32),
    /// A line that a core raises as fast as it can.
    Storm,
}

/// Returns the part of a system file with the VM that sleeps.
pub(super) fn sleeper(sleeps: u32) -> String {
    format!(
        "\n[[vm]]\nname = \"rtos\"\ncpus = [0]\nmemory = \"4MiB\"\nticks = \"lose\"\n\
         image = {{ elf = \"responder\", args = \"role=sleeper sleeps={sleeps}\" }}\n\
         expect = [\"sleeper: {sleeps} sleeps\"]\n"
    )
}

/// Returns the address of the network device in a slot.
fn mac(slot: u32) -> String {
    format!("52:54:00:00:00:{slot:02x}")
}

/// Returns the arguments of QEMU for two network devices on one hub.
pub(super) fn hub() -> Vec<OsString> {
    let port = |(slot, name)| {
        let device = format!(
            "virtio-net-pci,netdev={name},addr={slot},mac={},disable-legacy=on,iommu_platform=on,\
             romfile=",
            mac(slot)
        );
        ["-netdev".to_owned(), format!("hubport,id={name},hubid=0"), "-device".to_owned(), device]
    };
    PORTS.into_iter().flat_map(port).map(OsString::from).collect()
}

impl Point {
    /// Returns the first source of interrupts of the loaded VM.
    pub(super) fn first(&self) -> First {
        match self.interval_us {
            None => First::None,
            Some(STORM_US) => First::Storm,
            Some(us) => First::Frames(us),
        }
    }

    /// Returns the system file of the run.
    pub(super) fn toml(&self) -> String {
        let (line, device, raised, generator) = match self.first() {
            First::None => (None, None, String::new(), String::new()),
            First::Storm => {
                let raised = format!(" line={STORM_LINE} interval_us={STORM_US}");
                (Some(STORM_LINE), Some("/pl031@9010000".to_owned()), raised, String::new())
            }
            First::Frames(us) => {
                let [(to, _), (from, _)] = PORTS;
                let generator = format!(
                    "\n[[vm]]\nname = \"generator\"\ncpus = [2]\nmemory = \"2MiB\"\n\
                     image = {{ elf = \"station\", \
                     args = \"to={} frames={} interval_us={us} at_once=1\" }}\n\
                     devices = [\"pci:00:{from:02}.0\"]\n",
                    mac(to),
                    u32::MAX,
                );
                (Some(NETWORK_LINE), Some(format!("pci:00:{to:02}.0")), String::new(), generator)
            }
        };
        let second = if self.audio {
            format!(" second={SECOND_LINE} second_us={SECOND_US}")
        } else {
            String::new()
        };
        let devices: Vec<_> = device.into_iter().chain(["/pl061@9030000".to_owned()]).collect();
        let schedule = match self.policy {
            Policy::FixedPriority => {
                let (budget, period) = (self.quantum_ms, 2 * self.quantum_ms);
                // The time of EL2 for the sleeper is part of the sleeper's server.
                let rest = budget - 1;
                format!(
                    "kind = \"fixed-priority\", servers = [\
                     {{ vm = \"rtos\", budget = \"{budget}ms\", period = \"{period}ms\" }}, \
                     {{ vm = \"gpos\", budget = \"{rest}ms\", period = \"{period}ms\" }}]"
                )
            }
            Policy::Table => {
                let (quantum, frame) = (self.quantum_ms, 2 * self.quantum_ms);
                format!(
                    "kind = \"table\", major_frame = \"{frame}ms\", slots = [\
                     {{ vm = \"rtos\", start = \"0ms\", length = \"{quantum}ms\" }}, \
                     {{ vm = \"gpos\", start = \"{quantum}ms\", length = \"{quantum}ms\" }}]"
                )
            }
            _ => format!("kind = \"round-robin\", quantum = \"{}ms\"", self.quantum_ms),
        };
        let rule = match self.policy {
            Policy::Preempt => "preempt = true\n".to_owned(),
            Policy::Admit => {
                format!("preempt = true\nrate = {}\nburst = {}\n", ADMITTED.0, ADMITTED.1)
            }
            Policy::Defer | Policy::FixedPriority | Policy::Table => String::new(),
        };
        let mut lines = String::new();
        for line in line.into_iter().chain(self.audio.then_some(SECOND_LINE)) {
            let _ = write!(lines, "\n[[irq]]\nline = {line}\nvm = \"gpos\"\n{rule}");
        }
        format!(
            "platform = \"qemu-virt\"\n{}\n[[vm]]\nname = \"gpos\"\ncpus = [0, 1]\n\
             memory = \"4MiB\"\nticks = \"lose\"\n\
             image = {{ elf = \"responder\", args = \"role=loaded report=4{raised}{second}\" }}\n\
             devices = {devices:?}\n{generator}\
             \n[[core]]\nid = 0\nschedule = {{ {schedule} }}\n{lines}",
            sleeper(self.sleeps)
        )
    }

    /// Returns the response-time bound of a sleep, in ms: to the sleeper's second tick, under the
    /// supply that the analysis computes. None if interrupts can preempt without a limit.
    pub(super) fn bound_ms(&self) -> Option<f64> {
        let file =
            SystemFile::parse(Path::new("mobivmm"), &self.toml(), &Catalog::default()).ok()?;
        let system = file.system();
        let rtos = system.vms.iter().position(|vm| vm.name == "rtos")?;
        let supply = supply(system, Entity::Vm(rtos)).ok()??.2;
        if supply.unprotected() {
            return None;
        }
        let (tick, notice) = (Nanos(TICK_MS * 1_000_000), Nanos(NOTICE_US * 1000));
        let own = Nanos(2 * tick.0 + notice.0);
        let window = supply.nth_tick(2, tick, notice).or_else(|| supply.window_for(own))?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let ms = window.0 as f64 / 1e6;
        Some(ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_limited_has_a_bound() {
        let point = Point {
            policy: Policy::Preempt,
            quantum_ms: 20,
            audio: false,
            interval_us: Some(1),
            sleeps: 1,
        };
        assert!(point.bound_ms().is_none());
        let admit = Point { policy: Policy::Admit, ..point }.bound_ms();
        let defer = Point { policy: Policy::Defer, ..point }.bound_ms();
        let fixed = Point { policy: Policy::FixedPriority, ..point }.bound_ms();
        assert!(admit > defer && defer > Some(40.0), "{admit:?} {defer:?}");
        assert!(fixed > Some(40.0), "{fixed:?}");
        // Slightly more than two ticks, in slots of two ticks.
        let table = Point { policy: Policy::Table, ..point }.bound_ms();
        assert!(table > Some(60.0) && table < Some(61.0), "{table:?}");
        assert!(admit < Some(81.0) && defer < Some(41.0), "{admit:?} {defer:?}");
    }

    #[test]
    fn every_system_that_is_printed_passes_the_check() {
        for policy in
            [Policy::Preempt, Policy::Admit, Policy::Defer, Policy::FixedPriority, Policy::Table]
        {
            for interval_us in [STORM_US, 1_000] {
                let point = Point {
                    policy,
                    quantum_ms: 20,
                    audio: true,
                    interval_us: Some(interval_us),
                    sleeps: 1,
                };
                let (path, catalog) = (Path::new("mobivmm"), Catalog::default());
                let file = SystemFile::parse(path, &point.toml(), &catalog).unwrap();
                let checked = weir_analysis::check(file.system());
                assert!(checked.is_ok(), "{policy:?}: {checked:?}");
            }
        }
    }
}
