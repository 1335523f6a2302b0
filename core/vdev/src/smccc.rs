//! Calls of a VM by HVC or SMC: the SMC calling convention, version 1.2.
//!
//! Both instructions have the same meaning with immediate 0. [`CALLS`] lists all calls except those
//! of PSCI ([`crate::psci`]).
//!
//! The other identifiers in 0x8600_xxxx and 0xC600_xxxx are reserved. weir's UID is the UUID
//! `9f99e9c0-c429-44e8-a53d-10f558e3e6b4`.
//!
//! All other identifiers return `NOT_SUPPORTED`. They are counted as denied, except for queries by
//! which an OS discovers services (their version, UID or revision).
//!
//! Source: SMCCC (DEN0028): section 2.5 and table 6-2 for identifiers, section 6.2 for general
//! queries, section 7 for the Arm architecture calls; DEN0070 is the background of the workarounds.

use crate::{
    calls::{self, calls},
    psci,
};

calls! {
    /// The calls but those of PSCI.
    CALLS {
        /// Does nothing; measures entry and exit.
        NULL = 0xc600_0000, [""] -> "x0 = 0";
        /// Returns how many times this VM was restarted, by reset or by fault.
        RESTARTS = 0xc600_0001, [""] -> "x0: the number";
        /// Sets the memory budget of a VM from the next period on; it outlives a restart. The key
        /// `adjust` of the budget must name the calling VM and permit the values.
        SET_BUDGET = 0xc600_0002,
            ["x1: place of the VM in the system file; x2: accesses, or reads; x3: writes"]
            -> "x0 = 0, or -3";
        /// The broker only: there are completions. EL2 takes them in parts.
        COMPLETE = 0xc600_0003, ["x1: a set of devices"]
            -> "x0 = 0, x1: ticks of the last part; or x0 = -3";
        /// Hands the console and the active devices to a VM: the console at once, the devices when
        /// none of their interrupts is being handled. The calling VM needs `focus = true`, and the
        /// other VM must run.
        HAND_OVER = 0xc600_0004, ["x1: place of the VM in the system file"] -> "x0 = 0, or -3";
        /// Returns whether the active devices belong to this VM.
        HAS_DEVICES = 0xc600_0005, [""] -> "x0 = 1 or 0";
        /// The broker only: the DMA engine starts to move bytes.
        START_ENGINE = 0xc600_0006, ["x1: from; x2: to; x3: bytes"] -> "x0 = 0, or -3";
        /// The broker only: returns whether the DMA engine has moved the bytes.
        FINISH_ENGINE = 0xc600_0007, ["x1 = 1: stop the engine if it has not"]
            -> "x0 = 0: it has, 1: not yet, 2: it failed; or -3";
        /// Marks a point of the caller's program in the trace; x1 bits 7:0 have the point: 1 and 2
        /// release and complete an activation of a task, 3 and 4 begin and end a section.
        MARK = 0xc600_0008,
            ["x1: the point, and at a release in bits 63:32 the releases without an activation \
              since the one before; x2: the first 8 bytes of the name of the task or section; x3: \
              at a release its time by CNTVCT_EL0"]
            -> "x0 = 0, or -1 if there is no such point";
        /// Returns whether there is stolen time (DEN0057): if the VM shares a core.
        PV_TIME_FEATURES = 0xc500_0020, ["x1: PV_TIME_FEATURES or PV_TIME_ST"] -> "x0 = 0, or -1";
        /// Returns the address of the stolen time of the calling vCPU (DEN0057).
        PV_TIME_ST = 0xc500_0021, [""] -> "x0: the IPA, or -1";
        /// Returns the UID of the hypervisor, `9f99e9c0-c429-44e8-a53d-10f558e3e6b4`.
        HYPERVISOR_UID = 0x8600_ff01, [""] -> "w0 to w3";
        /// Returns the revision of the calls of weir.
        HYPERVISOR_REVISION = 0x8600_ff03, [""] -> "w0, w1 = 1, 0";
        /// Returns the version of the calling convention, 1.2 (DEN0028, 7.2).
        SMCCC_VERSION = calls::SMCCC_VERSION, [""] -> "x0 = 0x1_0002";
        /// Returns whether a call exists, and which workarounds the firmware has (DEN0028, 7.3).
        ARCH_FEATURES = 0x8000_0001, ["w1: identifier"]
            -> "x0: 0 or 1, -1: not supported, -2: not required";
        /// Workaround 1, against Spectre variant 2; passed to the firmware.
        ARCH_WORKAROUND_1 = 0x8000_8000, ["x1: for the firmware"]
            -> "x0 = 0, or -1 if the firmware does not have it";
        /// Workaround 2, against Spectre variant 4. EL2 applies it to all cores, so guests cannot
        /// call it; ARCH_FEATURES describes it.
        ARCH_WORKAROUND_2 = 0x8000_7fff, [""] -> "x0 = -1";
        /// Workaround 3, against Spectre branch history injection; passed to the firmware.
        ARCH_WORKAROUND_3 = 0x8000_3fff, ["x1: for the firmware"]
            -> "x0 = 0, or -1 if the firmware does not have it";
    }
}

/// The value that [`FINISH_ENGINE`] returns in x0 while the engine is at work.
pub const ENGINE_IS_BUSY: u64 = 1;
/// The value that [`FINISH_ENGINE`] returns in x0 if not all bytes were moved; the engine has
/// stopped.
pub const ENGINE_HAS_FAILED: u64 = 2;

/// The value that a call returns in x0 if the VM has no right to it, or if an argument is outside
/// of its limits.
pub const DENIED: u64 = (-3i64).cast_unsigned();
/// The value that an unknown call returns in x0.
pub const NOT_SUPPORTED: u64 = u64::MAX;

/// weir's UID as the query returns it: byte 0 of the UUID is the low byte of w0 (DEN0028, 6.2).
pub const UID: [u32; 4] = [0xc0e9_999f, 0xe844_29c4, 0xf510_3da5, 0xb4e6_e358];
/// Major and minor revision of weir's calls.
pub const REVISION: [u32; 2] = [1, 0];

const SMCCC_1_2: u64 = 1 << 16 | 2;
const NOT_REQUIRED: i32 = -2;

/// The firmware's answers about the workarounds: the results of SMCCC_ARCH_FEATURES for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mitigations {
    branch_target: i8,
    store_bypass: i8,
    branch_history: i8,
}

impl Mitigations {
    /// The answers of a firmware that does not know the workarounds.
    pub const NONE: Self = Self { branch_target: -1, store_bypass: -1, branch_history: -1 };

    /// Queries the firmware. `features` returns its answer to SMCCC_ARCH_FEATURES, or -1 if it has
    /// none. If [`Mitigations::needs_workaround_2`] then returns true, the caller turns that
    /// mitigation on permanently, on every core.
    #[must_use]
    pub fn from_firmware(mut features: impl FnMut(u32) -> i32) -> Self {
        let mut ask = |id| i8::try_from(features(id)).unwrap_or(-1);
        Self {
            branch_target: ask(ARCH_WORKAROUND_1),
            store_bypass: ask(ARCH_WORKAROUND_2),
            branch_history: ask(ARCH_WORKAROUND_3),
        }
    }

    /// Returns whether software must turn on SMCCC_ARCH_WORKAROUND_2 on this processor. VMs are
    /// then told that they need not do so: a mitigation that a guest could turn off would not
    /// protect other VMs.
    #[must_use]
    pub const fn needs_workaround_2(self) -> bool {
        self.store_bypass == 0
    }

    /// Returns the firmware call that prevents a VM's branch targets from affecting the next VM on
    /// its core, if this processor needs one. SMCCC_ARCH_WORKAROUND_3 includes the effect of
    /// SMCCC_ARCH_WORKAROUND_1.
    #[must_use]
    pub const fn at_switch(self) -> Option<u32> {
        match (self.branch_history, self.branch_target) {
            (0, _) => Some(ARCH_WORKAROUND_3),
            (_, 0) => Some(ARCH_WORKAROUND_1),
            _ => None,
        }
    }

    const fn features(self, id: u32) -> i32 {
        let code = match id {
            ARCH_WORKAROUND_1 => self.branch_target,
            ARCH_WORKAROUND_2 if self.store_bypass == 0 => return NOT_REQUIRED,
            ARCH_WORKAROUND_2 => self.store_bypass,
            ARCH_WORKAROUND_3 => self.branch_history,
            SMCCC_VERSION | ARCH_FEATURES => 0,
            _ => return psci::NOT_SUPPORTED,
        };
        code as i32
    }
}

/// The action that the hypervisor must take for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Return this value in x0.
    Return(u64),
    /// Return these values in x0 to x3.
    Registers([u32; 4]),
    /// Return the number of restarts of this VM in x0.
    Restarts,
    /// Set the memory budget of a VM, given by its index in the system file, from the next period
    /// on. x0 is 0 or [`DENIED`].
    SetBudget {
        /// Index of the VM.
        vm: u64,
        /// Reads per period, or the number of events if the VM has a single budget.
        reads: u64,
        /// Writes per period; ignored if the VM has a single budget.
        writes: u64,
    },
    /// Hand over the console and the active devices to this VM, given by its index in the system
    /// file. x0 is 0 or [`DENIED`].
    HandOver(u64),
    /// Return 1 in x0 if the VM has the active devices, otherwise 0.
    HasDevices,
    /// Record that the program is at this point. x0 is 0.
    Mark(Mark),
    /// A [`BrokerCall`] by a VM that is not the broker: x0 is [`DENIED`].
    OfBroker,
    /// Return 0 in x0 if the VM has a page with its stolen time, otherwise [`NOT_SUPPORTED`].
    HasStolenTime,
    /// Return the address of the calling vCPU's [stolen time](crate::stolen) in x0, or
    /// [`NOT_SUPPORTED`].
    StolenTime,
    /// A request for [`psci::Power::call`].
    Psci(psci::PsciRequest),
    /// Call the firmware with this identifier; it returns nothing, and x0 is 0.
    Mitigate(u32),
    /// Return [`NOT_SUPPORTED`] in x0, and count the call.
    Unknown,
}

/// A point of a guest's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The kind of the point.
    pub point: Point,
    /// The name of the task or section: its first eight bytes, the first in bits 7:0.
    pub name: u64,
}

/// The kinds of points that a guest can mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// An activation of a task was released.
    Release {
        /// The releases that passed without an activation of their own since the one before.
        skipped: u32,
        /// The release, in ticks of CNTVCT_EL0.
        time: u64,
    },
    /// The activation is complete.
    Complete,
    /// A section begins.
    Begin,
    /// A section ends.
    End,
}

impl Mark {
    /// Returns the mark with these x1 to x3; none for an unknown point.
    #[must_use]
    pub const fn decode([x1, x2, x3]: [u64; 3]) -> Option<Self> {
        let point = match x1 & 0xff {
            1 => Point::Release { skipped: (x1 >> 32) as u32, time: x3 },
            2 => Point::Complete,
            3 => Point::Begin,
            4 => Point::End,
            _ => return None,
        };
        Some(Self { point, name: x2 })
    }
}

/// A call of the broker. These calls are frequent: they come with each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerCall {
    /// Check the broker's completions. x0 is 0.
    Complete {
        /// The set of devices that have completions, according to the broker.
        devices: u64,
    },
    /// Let the DMA engine move bytes. x0 is 0 or [`DENIED`].
    StartEngine {
        /// Source address, in the broker's address space.
        from: u64,
        /// Destination address, in the broker's address space.
        to: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Check whether the DMA engine has moved the bytes. x0 is 0, [`ENGINE_IS_BUSY`],
    /// [`ENGINE_HAS_FAILED`] or [`DENIED`].
    FinishEngine {
        /// Whether the engine is stopped if it has not.
        gives_up: bool,
    },
}

impl BrokerCall {
    /// Returns the broker call with these x0 to x3; none for any other call.
    #[inline]
    #[must_use]
    pub const fn decode([x0, x1, x2, x3]: [u64; 4]) -> Option<Self> {
        // The identifier is in w0, as in `constant`.
        match x0 as u32 {
            COMPLETE => Some(Self::Complete { devices: x1 }),
            START_ENGINE => Some(Self::StartEngine { from: x1, to: x2, len: x3 }),
            FINISH_ENGINE => Some(Self::FinishEngine { gives_up: x1 == 1 }),
            _ => None,
        }
    }
}

/// Returns the result of a null hypercall or of PSCI_VERSION, which is the same for all VMs and at
/// any time; none for other calls.
#[inline]
#[must_use]
pub const fn constant(x0: u64) -> Option<u64> {
    // The identifier is in w0 in both conventions (DEN0028, 2.7).
    match x0 as u32 {
        NULL => Some(0),
        psci::PSCI_VERSION => Some(psci::VERSION_1_1),
        _ => None,
    }
}

/// Decodes a call with these x0 to x3.
#[must_use]
pub fn decode(x: &[u64; 4], mitigations: Mitigations) -> Call {
    if let Some(value) = constant(x[0]) {
        return Call::Return(value);
    }
    let id = x[0] as u32;
    match psci::decode(id, [x[1], x[2], x[3]]) {
        psci::Decoded::Return(value) => return Call::Return(value),
        psci::Decoded::Request(request) => return Call::Psci(request),
        psci::Decoded::Unknown => {}
    }
    match id {
        RESTARTS => Call::Restarts,
        SET_BUDGET => Call::SetBudget { vm: x[1], reads: x[2], writes: x[3] },
        MARK => match Mark::decode([x[1], x[2], x[3]]) {
            Some(mark) => Call::Mark(mark),
            None => Call::Return(NOT_SUPPORTED),
        },
        COMPLETE | START_ENGINE | FINISH_ENGINE => Call::OfBroker,
        HAND_OVER => Call::HandOver(x[1]),
        HAS_DEVICES => Call::HasDevices,
        SMCCC_VERSION => Call::Return(SMCCC_1_2),
        ARCH_FEATURES if x[1] as u32 == PV_TIME_FEATURES => Call::HasStolenTime,
        PV_TIME_FEATURES if [PV_TIME_FEATURES, PV_TIME_ST].contains(&(x[1] as u32)) => {
            Call::HasStolenTime
        }
        PV_TIME_ST => Call::StolenTime,
        ARCH_FEATURES => Call::Return(psci::code(mitigations.features(x[1] as u32))),
        // Result 0: call the firmware. Result 1: the call is allowed and does nothing on this
        // processor.
        ARCH_WORKAROUND_1 | ARCH_WORKAROUND_3 => match mitigations.features(id) {
            0 => Call::Mitigate(id),
            1 => Call::Return(0),
            _ => Call::Unknown,
        },
        HYPERVISOR_UID => Call::Registers(UID),
        HYPERVISOR_REVISION => Call::Registers([REVISION[0], REVISION[1], 0, 0]),
        _ if is_question(id) => Call::Return(NOT_SUPPORTED),
        _ => Call::Unknown,
    }
}

/// Returns whether the call is a query by which an OS discovers services.
fn is_question(id: u32) -> bool {
    /// TRNG_VERSION and TRNG_FEATURES (DEN0098), FFA_VERSION (DEN0077), SDEI_VERSION (DEN0054),
    /// PV_TIME_FEATURES (DEN0057), SMCCC_ARCH_SOC_ID.
    const ASKED: [u32; 6] =
        [0x8400_0050, 0x8400_0051, 0x8400_0063, 0xc400_0020, 0xc500_0020, 0x8000_0002];
    // General queries, of any owner: call count, UID, revision (DEN0028, 6.2). Version 1.2 removed
    // the call count.
    ASKED.contains(&id) || id & 0xc0ff_fffc == 0x8000_ff00
}
