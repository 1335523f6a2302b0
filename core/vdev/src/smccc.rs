//! Calls of a VM by HVC or SMC: the SMC calling convention, version 1.2.
//!
//! Both instructions mean the same with immediate 0. [`CALLS`] has the calls but those of PSCI
//! ([`crate::psci`]).
//!
//! The rest of 0x8600_xxxx and 0xC600_xxxx is reserved. weir's UID is the UUID
//! `9f99e9c0-c429-44e8-a53d-10f558e3e6b4`.
//!
//! All other identifiers return `NOT_SUPPORTED`. They are counted as wild, except questions that an
//! OS asks of services it may or may not find (their version, their UID or their revision).
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

/// What [`FINISH_ENGINE`] returns in x0 while the engine is at work.
pub const ENGINE_IS_BUSY: u64 = 1;
/// What [`FINISH_ENGINE`] returns in x0 if not all was moved; the engine does nothing any more.
pub const ENGINE_HAS_FAILED: u64 = 2;

/// What a call that this VM has no right to returns in x0, or one with numbers that are not within
/// the limits.
pub const DENIED: u64 = (-3i64).cast_unsigned();
/// What an unknown call returns in x0.
pub const NOT_SUPPORTED: u64 = u64::MAX;

/// weir's UID as the query returns it: byte 0 of the UUID is the low byte of w0 (DEN0028, 6.2).
pub const UID: [u32; 4] = [0xc0e9_999f, 0xe844_29c4, 0xf510_3da5, 0xb4e6_e358];
/// Major and minor revision of weir's calls.
pub const REVISION: [u32; 2] = [1, 0];

const SMCCC_1_2: u64 = 1 << 16 | 2;
const NOT_REQUIRED: i32 = -2;

/// What the firmware says about the workarounds: the results of SMCCC_ARCH_FEATURES for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mitigations {
    branch_target: i8,
    store_bypass: i8,
    branch_history: i8,
}

impl Mitigations {
    /// No firmware that knows of them.
    pub const NONE: Self = Self { branch_target: -1, store_bypass: -1, branch_history: -1 };

    /// Asks the firmware. `features` gives its answer to SMCCC_ARCH_FEATURES, or -1 where it has
    /// none. If [`Mitigations::needs_workaround_2`] then holds, the caller switches that mitigation
    /// on, for good and on every core.
    #[must_use]
    pub fn from_firmware(mut features: impl FnMut(u32) -> i32) -> Self {
        let mut ask = |id| i8::try_from(features(id)).unwrap_or(-1);
        Self {
            branch_target: ask(ARCH_WORKAROUND_1),
            store_bypass: ask(ARCH_WORKAROUND_2),
            branch_history: ask(ARCH_WORKAROUND_3),
        }
    }

    /// Whether this processor needs SMCCC_ARCH_WORKAROUND_2 switched on by software. VMs are then
    /// told that they need not: a mitigation that a guest could switch off would not protect its
    /// neighbors.
    #[must_use]
    pub const fn needs_workaround_2(self) -> bool {
        self.store_bypass == 0
    }

    /// The call that keeps a VM's branch targets from the next VM on its core, if this processor
    /// needs one. SMCCC_ARCH_WORKAROUND_3 does what the first one does, too.
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

/// What the hypervisor has to do about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// x0 is this.
    Return(u64),
    /// x0 to x3 are these.
    Registers([u32; 4]),
    /// x0 is the number of restarts of this VM.
    Restarts,
    /// Set the budget of this VM, by its place in the system file, to so many reads (or of the
    /// event that its one budget counts) and writes in each period, from the next one on. x0 is 0
    /// or [`DENIED`].
    SetBudget {
        /// The VM.
        vm: u64,
        /// Its reads.
        reads: u64,
        /// Its writes; of no meaning with one budget.
        writes: u64,
    },
    /// Hand the console and the active devices to this VM, by its place in the system file. x0 is 0
    /// or [`DENIED`].
    HandOver(u64),
    /// x0 is 1 if the active devices are this VM's, else 0.
    HasDevices,
    /// A [`BrokerCall`]. x0 is [`DENIED`] if this VM is not the broker.
    OfBroker,
    /// x0 is 0 if this VM is told its stolen time, else [`NOT_SUPPORTED`].
    HasStolenTime,
    /// x0 is the address of the calling vCPU's [stolen time](crate::stolen), or [`NOT_SUPPORTED`].
    StolenTime,
    /// Ask [`psci::Power::call`].
    Psci(psci::PsciRequest),
    /// Call the firmware with this identifier; it returns nothing, and x0 is 0.
    Mitigate(u32),
    /// x0 is [`NOT_SUPPORTED`]; count it.
    Unknown,
}

/// A call of the broker's: these come with each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerCall {
    /// Check the broker's completions. x0 is 0.
    Complete {
        /// The set of devices that have any, by the broker's claim.
        devices: u64,
    },
    /// The DMA engine is to move bytes. x0 is 0 or [`DENIED`].
    StartEngine {
        /// Where they are, in the broker's address space.
        from: u64,
        /// Where they go.
        to: u64,
        /// How many.
        len: u64,
    },
    /// Check whether the DMA engine has moved them. x0 is 0, [`ENGINE_IS_BUSY`],
    /// [`ENGINE_HAS_FAILED`] or [`DENIED`].
    FinishEngine {
        /// It is stopped if it has not.
        gives_up: bool,
    },
}

impl BrokerCall {
    /// Returns the call with these x0 to x3; none if it is another one.
    #[inline]
    #[must_use]
    pub const fn decode([x0, x1, x2, x3]: [u64; 4]) -> Option<Self> {
        // As in `constant`.
        match x0 as u32 {
            COMPLETE => Some(Self::Complete { devices: x1 }),
            START_ENGINE => Some(Self::StartEngine { from: x1, to: x2, len: x3 }),
            FINISH_ENGINE => Some(Self::FinishEngine { gives_up: x1 == 1 }),
            _ => None,
        }
    }
}

/// Returns the result of a null hypercall or of PSCI_VERSION, which is the same for each VM at each
/// time; none for other calls.
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

/// The meaning of a call with these x0 to x3.
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
        // 0: call the firmware; 1: calling is allowed and does nothing on this processor.
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

/// Whether an OS asks this just to find out what there is.
fn is_question(id: u32) -> bool {
    /// TRNG_VERSION and TRNG_FEATURES (DEN0098), FFA_VERSION (DEN0077), SDEI_VERSION (DEN0054),
    /// PV_TIME_FEATURES (DEN0057), SMCCC_ARCH_SOC_ID.
    const ASKED: [u32; 6] =
        [0x8400_0050, 0x8400_0051, 0x8400_0063, 0xc400_0020, 0xc500_0020, 0x8000_0002];
    // General queries, of any owner: call count, UID, revision (DEN0028, 6.2). The call count is
    // gone in version 1.2.
    ASKED.contains(&id) || id & 0xc0ff_fffc == 0x8000_ff00
}
