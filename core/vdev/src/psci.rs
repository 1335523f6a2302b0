//! The power state coordination interface of a VM: version 1.1, with the functions that can have an
//! effect in a VM.
//!
//! Decoding and deciding are separate. [`decode`] answers calls that need no state, and converts
//! the others to a [`PsciRequest`] whose arguments are checked as far as possible without state.
//! [`Power`] holds the power state of the vCPUs and returns the action to take. The caller holds a
//! lock around `Power`, because two vCPUs can turn on a third one at the same time.
//!
//! Source: PSCI (DEN0022) section 5 for each function, 5.2.2 for return codes, 6.6 for the order of
//! errors and ON_PENDING.

use crate::calls::SMCCC_VERSION;
use weir_units::VcpuId;

/// Success.
pub const SUCCESS: i32 = 0;
/// The function is not implemented.
pub const NOT_SUPPORTED: i32 = -1;
/// An argument is invalid.
pub const INVALID_PARAMETERS: i32 = -2;
/// The vCPU is on.
pub const ALREADY_ON: i32 = -4;
/// The vCPU has been turned on and has not started yet.
pub const ON_PENDING: i32 = -5;
/// The entry point is not in the VM's memory.
pub const INVALID_ADDRESS: i32 = -9;

/// Largest number of vCPUs of a VM.
pub const MAX_VCPUS: u8 = 8;

/// Function numbers.
pub mod function {
    crate::calls::calls! {
        /// The functions that exist (DEN0022, 5).
        FUNCTIONS {
            /// Returns the version of PSCI.
            PSCI_VERSION = 0x00, [""] -> "x0 = 0x1_0001";
            /// Suspends the calling vCPU until an interrupt is pending: standby, or power-down, by
            /// `power_state` in the original format with level 0.
            CPU_SUSPEND = 0x01, ["w1: power_state; x2: entry; x3: context"] -> "x0 = 0, -2 or -9";
            /// Turns the calling vCPU off; for the last vCPU the same as SYSTEM_OFF.
            CPU_OFF = 0x02, [""] -> "does not return";
            /// Starts a vCPU at an address in the RAM of the VM.
            CPU_ON = 0x03, ["x1: affinity; x2: entry; x3: context"] -> "x0 = 0, -2, -4, -5 or -9";
            /// Returns the power state of vCPUs, at levels 0 to 3.
            AFFINITY_INFO = 0x04, ["x1: affinity; w2: level"]
                -> "x0 = 0: on, 1: off, 2: on pending; or -2";
            /// Returns that no trusted OS must be migrated.
            MIGRATE_INFO_TYPE = 0x06, [""] -> "x0 = 2";
            /// Stops the VM for good.
            SYSTEM_OFF = 0x08, [""] -> "does not return";
            /// Restarts the VM from its pristine image.
            SYSTEM_RESET = 0x09, [""] -> "does not return";
            /// Returns whether a function exists.
            PSCI_FEATURES = 0x0a, ["w1: identifier"] -> "x0 = 0, or -1";
            /// Restarts the VM from its pristine image; only type 0, the warm reset, exists.
            SYSTEM_RESET2 = 0x12, ["w1: type"] -> "does not return; x0 = -2 for other types";
        }
    }
}

/// The identifier of PSCI_VERSION.
pub const PSCI_VERSION: u32 = PSCI_SMC32 | function::PSCI_VERSION;
/// The result of PSCI_VERSION: 1.1.
pub const VERSION_1_1: u64 = 1 << 16 | 1;
/// MIGRATE_INFO_TYPE: no trusted OS, or one that needs no migration.
const MIGRATION_NOT_REQUIRED: u64 = 2;
/// Function identifiers of PSCI: fast calls of the standard secure service whose number is below
/// 0x20.
pub const PSCI_SMC32: u32 = 0x8400_0000;
/// The bit of an identifier for SMC64.
pub const SMC64: u32 = 1 << 30;

/// Returns a return code as the value of x0: 32-bit callers read only w0, 64-bit callers the whole
/// register.
#[must_use]
pub const fn code(code: i32) -> u64 {
    (code as i64).cast_unsigned()
}

/// A call that needs the VM's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsciRequest {
    /// CPU_SUSPEND (5.4) to standby or to power-down, at power level 0.
    Suspend {
        /// Power-down: the vCPU continues at `entry` in its reset state.
        power_down: bool,
        /// Entry point, an IPA.
        entry: u64,
        /// The value of x0 at the entry point.
        context: u64,
    },
    /// CPU_OFF (5.5).
    Off,
    /// CPU_ON (5.6).
    On {
        /// MPIDR affinity fields.
        target: u64,
        /// Entry point, an IPA.
        entry: u64,
        /// The value of x0 at the entry point.
        context: u64,
    },
    /// AFFINITY_INFO (5.7).
    AffinityInfo {
        /// MPIDR affinity fields.
        target: u64,
        /// Affinity fields below this level are ignored.
        level: u64,
    },
    /// SYSTEM_OFF (5.10).
    SystemOff,
    /// SYSTEM_RESET (5.11), or SYSTEM_RESET2 (5.12) with an architectural warm reset.
    SystemReset,
}

/// The meaning of a PSCI function identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The result, which needs no state: the value of x0.
    Return(u64),
    /// A request for [`Power::call`].
    Request(PsciRequest),
    /// Not implemented.
    Unknown,
}

/// Returns whether the function is implemented, in the calling convention that the identifier
/// selects.
#[must_use]
pub const fn is_implemented(id: u32) -> bool {
    // Bit n is function n. CPU_SUSPEND, CPU_ON, AFFINITY_INFO and SYSTEM_RESET2 take addresses or
    // MPIDRs, so they also exist for 64-bit callers.
    const SMC32_FUNCTIONS: u32 = 1 << 0x12 | 0x075f;
    const SMC64_FUNCTIONS: u32 = 1 << 0x12 | 1 << 4 | 1 << 3 | 1 << 1;
    let number = id & 0x1f;
    if id & !0x1f == PSCI_SMC32 {
        SMC32_FUNCTIONS >> number & 1 != 0
    } else {
        id & !0x1f == PSCI_SMC32 | SMC64 && SMC64_FUNCTIONS >> number & 1 != 0
    }
}

/// Decodes a call; `args` are x1 to x3.
#[must_use]
pub fn decode(id: u32, args: [u64; 3]) -> Decoded {
    if !is_implemented(id) {
        return Decoded::Unknown;
    }
    let width = if id & SMC64 != 0 { u64::MAX } else { 0xffff_ffff };
    let [first, second, third] = args;
    let (first, second, third) = (first & width, second & width, third & width);
    match id & 0x1f {
        function::PSCI_VERSION => Decoded::Return(VERSION_1_1),
        function::CPU_SUSPEND => {
            // Original format (5.4.2): StateID in bits 15:0, StateType in 16, PowerLevel in 25:24.
            // Only a single vCPU, level 0, can be suspended. power_state has 32 bits in both
            // conventions.
            let state = first as u32;
            if state & 0xfffe_0000 != 0 {
                return Decoded::Return(code(INVALID_PARAMETERS));
            }
            Decoded::Request(PsciRequest::Suspend {
                power_down: state >> 16 & 1 != 0,
                entry: second,
                context: third,
            })
        }
        function::CPU_OFF => Decoded::Request(PsciRequest::Off),
        function::CPU_ON => {
            Decoded::Request(PsciRequest::On { target: first, entry: second, context: third })
        }
        function::AFFINITY_INFO => Decoded::Request(PsciRequest::AffinityInfo {
            target: first,
            level: second & 0xffff_ffff,
        }),
        function::MIGRATE_INFO_TYPE => Decoded::Return(MIGRATION_NOT_REQUIRED),
        function::SYSTEM_OFF => Decoded::Request(PsciRequest::SystemOff),
        function::SYSTEM_RESET => Decoded::Request(PsciRequest::SystemReset),
        function::PSCI_FEATURES => Decoded::Return(code(features(first as u32))),
        // SYSTEM_RESET2: type 0 is SYSTEM_WARM_RESET, the other architectural and all vendor types
        // do not exist.
        function::SYSTEM_RESET2 if first as u32 == 0 => Decoded::Request(PsciRequest::SystemReset),
        function::SYSTEM_RESET2 => Decoded::Return(code(INVALID_PARAMETERS)),
        _ => Decoded::Unknown,
    }
}

/// Returns the result of PSCI_FEATURES (5.15): CPU_SUSPEND has the original format and no
/// OS-initiated mode, so every feature word is 0.
const fn features(id: u32) -> i32 {
    if is_implemented(id) || id == SMCCC_VERSION { SUCCESS } else { NOT_SUPPORTED }
}

/// The action that the hypervisor must take. The calling vCPU continues unless the action states
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsciAction {
    /// Return this value in x0.
    Return(u64),
    /// Put vCPU `vcpu` into its reset state, with `entry` as PC and `context` in x0, and let it
    /// run; call [`Power::started`] when it does. The caller's x0 is 0.
    Start {
        /// Index of the vCPU, below the number of vCPUs.
        vcpu: VcpuId,
        /// Entry point, an IPA.
        entry: u64,
        /// The value of its x0.
        context: u64,
    },
    /// The calling vCPU is turned off.
    StopSelf,
    /// The calling vCPU waits for an interrupt; its x0 is 0.
    Standby,
    /// The calling vCPU waits for an interrupt, and is then reset to run from `entry`.
    PowerDown {
        /// Entry point, an IPA.
        entry: u64,
        /// The value of its x0.
        context: u64,
    },
    /// The VM stops.
    SystemOff,
    /// The VM restarts from its pristine image.
    SystemReset,
}

/// Power state of a vCPU (DEN0022, 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// Off.
    Off,
    /// Turned on, not yet running.
    OnPending,
    /// On, or suspended.
    On,
}

/// Power state of a VM's vCPUs. vCPU n is the processor with affinity 0.0.0.n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Power {
    vcpus: u8,
    on: u8,
    pending: u8,
}

impl Power {
    /// Returns the state in which a VM of `vcpus` vCPUs starts: the first vCPU is on. The number is
    /// clamped to 1 to [`MAX_VCPUS`].
    #[must_use]
    pub const fn new(vcpus: u8) -> Self {
        let vcpus = match vcpus {
            0 => 1,
            1..=MAX_VCPUS => vcpus,
            _ => MAX_VCPUS,
        };
        Self { vcpus, on: 1, pending: 0 }
    }

    const fn bit(vcpu: VcpuId) -> u8 {
        if vcpu.0 < MAX_VCPUS { 1 << vcpu.0 } else { 0 }
    }

    /// Returns the state of a vCPU; off if it does not exist.
    #[must_use]
    pub const fn state(&self, vcpu: VcpuId) -> PowerState {
        if self.on & Self::bit(vcpu) != 0 {
            PowerState::On
        } else if self.pending & Self::bit(vcpu) != 0 {
            PowerState::OnPending
        } else {
            PowerState::Off
        }
    }

    /// Records that a vCPU that [`PsciAction::Start`] named begins to run.
    pub const fn started(&mut self, vcpu: VcpuId) {
        let bit = Self::bit(vcpu) & self.pending;
        self.pending &= !bit;
        self.on |= bit;
    }

    /// Decides a request of `vcpu`, which is on. `in_ram` returns whether an IPA lies in the VM's
    /// memory.
    pub fn call(
        &mut self,
        vcpu: VcpuId,
        request: PsciRequest,
        in_ram: impl Fn(u64) -> bool,
    ) -> PsciAction {
        let can_enter = |entry: u64| entry.is_multiple_of(4) && in_ram(entry);
        match request {
            PsciRequest::Suspend { power_down: false, .. } => PsciAction::Standby,
            PsciRequest::Suspend { entry, context, .. } => {
                if can_enter(entry) {
                    PsciAction::PowerDown { entry, context }
                } else {
                    PsciAction::Return(code(INVALID_ADDRESS))
                }
            }
            PsciRequest::Off => {
                self.on &= !Self::bit(vcpu);
                // The VM could never run again, because no vCPU is left that could call CPU_ON.
                if self.on | self.pending == 0 {
                    PsciAction::SystemOff
                } else {
                    PsciAction::StopSelf
                }
            }
            PsciRequest::On { target, entry, context } => {
                self.turn_on(target, entry, context, can_enter)
            }
            PsciRequest::AffinityInfo { target, level } => {
                PsciAction::Return(self.affinity_info(target, level))
            }
            PsciRequest::SystemOff => PsciAction::SystemOff,
            PsciRequest::SystemReset => PsciAction::SystemReset,
        }
    }

    fn turn_on(
        &mut self,
        target: u64,
        entry: u64,
        context: u64,
        can_enter: impl Fn(u64) -> bool,
    ) -> PsciAction {
        if target >= u64::from(self.vcpus) {
            return PsciAction::Return(code(INVALID_PARAMETERS));
        }
        let vcpu = VcpuId(target as u8);
        match self.state(vcpu) {
            PowerState::On => PsciAction::Return(code(ALREADY_ON)),
            PowerState::OnPending => PsciAction::Return(code(ON_PENDING)),
            PowerState::Off if !can_enter(entry) => PsciAction::Return(code(INVALID_ADDRESS)),
            PowerState::Off => {
                self.pending |= Self::bit(vcpu);
                PsciAction::Start { vcpu, entry, context }
            }
        }
    }

    fn affinity_info(&self, target: u64, level: u64) -> u64 {
        const ON: u64 = 0;
        const OFF: u64 = 1;
        const ON_PENDING: u64 = 2;
        // Aff3 begins at bit 32, so bits 31:24 lie between it and Aff2; they are zero in an
        // argument (5.1.4).
        let (within, vcpus) = match level {
            0 => (target < u64::from(self.vcpus), Self::bit(VcpuId(target as u8))),
            1 => (target & !0xff == 0, 0xff),
            2 => (target & !0xffff == 0, 0xff),
            3 => (target & !0x00ff_ffff == 0, 0xff),
            _ => (false, 0),
        };
        if !within {
            code(INVALID_PARAMETERS)
        } else if self.on & vcpus != 0 {
            ON
        } else if self.pending & vcpus != 0 {
            ON_PENDING
        } else {
            OFF
        }
    }
}
