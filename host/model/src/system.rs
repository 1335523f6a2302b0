//! A checked system.

mod engine;
pub(crate) mod read;
mod values;

use crate::coloring::division::Division;
use crate::diagnostics::Code;
use crate::fault::{Fault, Faults, File, FilePlace};
use crate::measured::{Overhead, OverheadTable, Saturation};
use crate::platform::Platform;
use crate::timing::flow::{Dma, Flow};
use crate::timing::schedule::{Class, SharedCore, TimedLine};
use crate::vm::Vm;
use std::{ops::Range, path::PathBuf};
use weir_abi::{FIRST_GROUP, Regulation};
use weir_units::{Bytes, Cid, CoreId, Nanos};

/// A system in which everything that can be known of it was found to be right.
///
/// It is complete if it can be built. Only a [`SystemFile`](crate::SystemFile) can have one that is
/// not, for the analysis: such a system has no division and no regulations, and its VMs may lack
/// cores, RAM, images and devices.
#[derive(Clone, Debug)]
pub struct System {
    /// The file.
    pub path: PathBuf,
    /// The board, which a complete system has.
    pub platform: Option<Platform>,
    /// Options of the hypervisor.
    pub hypervisor: Hypervisor,
    /// The virtual machines, in the order of the file, and the broker. Of a file without any, those
    /// that flows name.
    pub vms: Vec<Vm>,
    /// The owners of the page classes.
    pub division: Division,
    /// How the memory bandwidth of each VM is regulated.
    pub regulations: Vec<Regulation>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// How their bytes are moved.
    pub dma: Dma,
    /// Overheads: the file's own before the platform's.
    pub overheads: Vec<Overhead>,
    /// The tables that `overheads` and the copy's bandwidth come from, the preferred one first.
    pub tables: Vec<OverheadTable>,
    /// The saturation of the memory: the file's own or the platform's.
    pub saturation: Option<Saturation>,
    /// Cores that VMs share.
    pub cores: Vec<SharedCore>,
    /// Interrupts that take time on a shared core.
    pub lines: Vec<TimedLine>,
    /// The broker's core, if there are flows and `[broker]` sets it.
    pub broker_core: Option<u64>,
    /// Whether the broker also serves a switch.
    pub has_switch: bool,
    pub(crate) is_complete: bool,
    /// The number of VMs without the broker.
    pub(crate) guests: usize,
    /// Cores with faults in their schedules; one without a number could be any.
    pub(crate) unread: Vec<Option<u64>>,
    /// The file that `[broker] overheads` names.
    pub(crate) measured: Option<(String, FilePlace)>,
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
    /// Returns whether it can be built.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the board of a complete system.
    ///
    /// # Panics
    ///
    /// If the system is not complete and its file names no platform.
    #[must_use]
    pub fn platform(&self) -> &Platform {
        self.platform.as_ref().expect("a complete system has a platform")
    }

    /// Returns the VMs without the broker.
    #[must_use]
    pub fn guests(&self) -> &[Vm] {
        self.vms.get(..self.guests).unwrap_or(&self.vms)
    }

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
        self.broker().is_some() && !self.flows.is_empty()
    }

    /// Returns the least bytes of a piece that the broker's DMA engine moves; none if the core
    /// moves all.
    #[must_use]
    pub fn moved_by_engine_from(&self) -> Option<Bytes> {
        self.engine_from().filter(|_| self.has_flows())
    }

    /// The context identifier by which the sender of flow `index` knows its receiver, or all of
    /// them.
    #[must_use]
    pub fn destination(&self, index: usize) -> Cid {
        let flows = &self.flows;
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
        let relied_on = self.unenforced_rules();
        if !relied_on.is_empty() {
            return relied_on;
        }
        let mut faults = Faults::default();
        for line in self.lines.iter().filter(|line| line.class == Class::Active) {
            if self.division.divided {
                let message = format!(
                    "{}: this version of weir hands no device over where memory is divided",
                    self.interrupt(line)
                );
                let help = "give the device to one VM, or take `colors` and `banks` out";
                faults.push(self.fault(Code::NotEnforced, &line.place, message, help));
            }
        }
        for line in self.lines.iter().filter(|line| line.class == Class::Dynamic) {
            let owner = self.vms.get(line.vm);
            if !owner.and_then(|vm| vm.net).is_some_and(|net| net.uplink) {
                let message = format!(
                    "{}: is of class \"dynamic\", and its VM shares no device with others",
                    self.interrupt(line)
                );
                let help = "give the device to a VM with net = { mac = ..., uplink = true }, which \
                            drives it for all";
                faults.push(self.fault(Code::NotEnforced, &line.place, message, help));
            }
        }
        for (_, vm) in self.guests().iter().enumerate().filter(|(index, _)| self.is_shared(*index))
        {
            let mut refuse = |what: &str, help: &str| {
                let message = format!(
                    "{vm}: this version of weir gives no {what} to a VM that shares a core"
                );
                faults.push(self.fault(Code::NotEnforced, &vm.place, message, help));
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
        let Some(reason) = &self.platform().places.planned else { return Ok(()) };
        let message = format!("{}: is for checking and planning only: {reason}", self.platform());
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
        self.platform().qemu.as_ref().map_or(0, |qemu| qemu.cores).max(self.cores_needed())
    }
}
