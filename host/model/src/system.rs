//! A checked system: only what can be built is one.

use crate::coloring::division::Division;
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File};
use crate::platform::Platform;
use crate::timing::facts::Timing;
use crate::timing::schedule::Class;
use crate::vm::Vm;
use std::{ops::Range, path::PathBuf};
use weir_abi::{FIRST_GROUP, Regulation};
use weir_units::{Bytes, Cid, CoreId, Nanos};

/// A system in which everything that can be known of it was found to be right.
#[derive(Clone, Debug)]
pub struct System {
    /// The file.
    pub path: PathBuf,
    /// The board.
    pub platform: Platform,
    /// Options of the hypervisor.
    pub hypervisor: Hypervisor,
    /// The virtual machines, in the order of the file.
    pub vms: Vec<Vm>,
    /// The owners of the page classes.
    pub division: Division,
    /// How the memory bandwidth of each VM is regulated.
    pub regulations: Vec<Regulation>,
    /// Its values of time and bandwidth.
    pub timing: Timing,
    pub(crate) file: File,
    /// Where the file names its platform.
    pub(crate) platform_span: Range<usize>,
}

/// Options of the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hypervisor {
    /// The core that serves the board's UART.
    pub console_core: CoreId,
    /// Time between two reports of the counters, whole milliseconds.
    pub heartbeat: Option<Nanos>,
    /// Whether every store must be one that an emulator's plug-in sees; see
    /// [`PackedHeader::observed`](weir_abi::PackedHeader). Not in the file: it belongs to a run, not to
    /// the system.
    pub observed: bool,
}

impl System {
    /// The place of the I/O service VM, which moves the flows' packets and the switch's frames,
    /// behind those of the file.
    #[must_use]
    pub fn broker(&self) -> Option<usize> {
        self.vms.len().checked_sub(1).filter(|_| self.vms.iter().any(Vm::is_served))
    }

    /// Returns whether the system carries flows: it has some, and a broker that moves their
    /// packets.
    #[must_use]
    pub fn has_flows(&self) -> bool {
        self.broker().is_some() && !self.timing.flows.is_empty()
    }

    /// Returns the least bytes of a piece that the broker's DMA engine moves; none if the core
    /// moves all.
    #[must_use]
    pub fn engine_from(&self) -> Option<Bytes> {
        self.timing.engine_from().filter(|_| self.has_flows())
    }

    /// The context identifier by which the sender of flow `index` knows its receiver, or all of
    /// them.
    #[must_use]
    pub fn destination(&self, index: usize) -> Cid {
        let flows = &self.timing.flows;
        let before = || flows.iter().take(index).map(|flow| flow.to.len() as u64).sum::<u64>();
        match flows.get(index).map(|flow| flow.to.as_slice()) {
            Some([to]) => Cid::of_vm(*to as u32),
            _ => Cid(FIRST_GROUP.0 + before()),
        }
    }

    /// Returns what the file asks for and this version of weir does not enforce: what the analysis
    /// relies on if there is any of it, else what only a system with its platform shows. A fault
    /// for each key, in the order of the file.
    #[must_use]
    pub fn not_enforced(&self) -> Vec<Fault> {
        let timing = &self.timing;
        let relied_on = timing.not_enforced();
        if !relied_on.is_empty() {
            return relied_on;
        }
        let mut faults = Faults::default();
        for line in timing.lines.iter().filter(|line| line.class == Class::Active) {
            if self.division.divided {
                let message = format!(
                    "{}: this version of weir hands no device over where memory is divided",
                    timing.interrupt(line)
                );
                let help = "give the device to one VM, or take `colors` and `banks` out";
                faults.push(timing.fault(Code::NotEnforced, &line.place, message, help));
            }
        }
        for line in timing.lines.iter().filter(|line| line.class == Class::Dynamic) {
            let owner = self.vms.get(line.vm);
            if !owner.and_then(|vm| vm.net).is_some_and(|net| net.uplink) {
                let message = format!(
                    "{}: is of class \"dynamic\", and its VM shares no device with others",
                    timing.interrupt(line)
                );
                let help = "give the device to a VM with net = { mac = ..., uplink = true }, which \
                            drives it for all";
                faults.push(timing.fault(Code::NotEnforced, &line.place, message, help));
            }
        }
        for (index, vm) in self.vms.iter().enumerate().filter(|(index, _)| timing.is_shared(*index))
        {
            let Some(place) = timing.vms.get(index).map(|vm| &vm.place) else { continue };
            let mut refuse = |what: &str, help: &str| {
                let message = format!(
                    "{vm}: this version of weir gives no {what} to a VM that shares a core"
                );
                faults.push(timing.fault(Code::NotEnforced, place, message, help));
            };
            if vm.pmu > 0 {
                refuse("event counters", "take its `pmu` out, or give it cores of its own");
            }
        }
        faults.sorted()
    }

    /// Returns what the file asks for and this version of weir does not build or enforce.
    #[must_use]
    pub fn unbuilt(&self) -> Vec<Fault> {
        let mut faults = self.can_run().err().map_or_else(Vec::new, |faults| faults.0);
        faults.extend(self.not_enforced());
        faults
    }

    /// Whether this version of weir runs on the platform, or why not.
    ///
    /// # Errors
    ///
    /// The fault with the reason.
    pub fn can_run(&self) -> Result<(), Faults> {
        let Some(reason) = &self.platform.places.planned else { return Ok(()) };
        let message = format!("{}: is for checking and planning only: {reason}", self.platform);
        let fault =
            Fault::new(Code::PlatformPlanned, &self.file, self.platform_span.clone(), message);
        let help = "name a platform that `weir platforms` lists as runnable";
        Err(Faults(vec![fault.label("this").help(help)]))
    }

    /// How many cores must run: one more than the number of the highest that is used.
    #[must_use]
    pub fn cores_needed(&self) -> usize {
        let used = self.vms.iter().flat_map(|vm| &vm.cpus).chain([&self.hypervisor.console_core]);
        used.map(|core| usize::from(core.0) + 1).max().unwrap_or(1)
    }

    /// How many cores to start an emulated board with.
    #[must_use]
    pub fn machine_cores(&self) -> usize {
        self.platform.qemu.as_ref().map_or(0, |qemu| qemu.cores).max(self.cores_needed())
    }
}
