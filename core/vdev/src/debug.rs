//! The self-hosted debug registers of a vCPU: breakpoints, watchpoints, single step.
//!
//! Every access of a guest traps (`MDCR_EL2.TDA`). The model keeps the values, and the hypervisor
//! copies them to the hardware after each write and when it gives a core to the vCPU. It skips both
//! copies while neither the vCPU nor the core's hardware has debug exceptions enabled
//! ([`Debug::is_armed`]), so a VM without a debugger adds only two register reads to a switch.
//!
//! With `MDCR_EL2.TDE` clear, debug exceptions are routed to EL1, and exception levels above EL1
//! take none (DDI0487, D2.4). So a guest's breakpoint can match no instruction of EL2, for any
//! address and mode bits.
//!
//! Source: Arm ARM (DDI0487), D2 "AArch64 self-hosted debug", D24.3 for the registers.

use crate::esr::SysRegAccess;

/// Largest number of breakpoints of a VM.
pub const MAX_BREAKPOINTS: usize = 6;
/// Largest number of watchpoints of a VM.
pub const MAX_WATCHPOINTS: usize = 4;

/// `MDSCR_EL1`: single step, kernel debug, monitor debug.
const SS_KDE_MDE: u64 = 1 | 1 << 13 | 1 << 15;
/// The bits of `MDSCR_EL1` that a guest can write: the three above and TDCC. The other bits save
/// the state of an external debugger.
const MDSCR: u64 = SS_KDE_MDE | 1 << 12;
/// `DBGBCR<n>_EL1`: BT, LBN, SSC, HMC, BAS, PMC, E.
const BREAKPOINT_CONTROL: u64 = 0x00ff_e1e7;
/// `DBGWCR<n>_EL1`: MASK, WT, LBN, SSC, HMC, BAS, LSC, PAC, E.
const WATCHPOINT_CONTROL: u64 = 0x1f1f_ffff;
/// Address mask: a sign-extended address of 49 bits that is word-aligned.
const ADDRESS: u64 = !3;

/// One breakpoint or watchpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparator {
    /// `DBGBVR<n>_EL1` or `DBGWVR<n>_EL1`.
    pub value: u64,
    /// `DBGBCR<n>_EL1` or `DBGWCR<n>_EL1`.
    pub control: u64,
}

impl Comparator {
    const RESET: Self = Self { value: 0, control: 0 };
}

/// The debug registers of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debug {
    mdscr: u64,
    breakpoints: [Comparator; MAX_BREAKPOINTS],
    watchpoints: [Comparator; MAX_WATCHPOINTS],
}

/// Result of a guest's access to one of these registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugAccess {
    /// The value of a read.
    Read(u64),
    /// The write changed the registers, which must be copied to the hardware.
    Written,
}

impl Debug {
    /// The registers after a reset: nothing is armed.
    pub const RESET: Self = Self {
        mdscr: 0,
        breakpoints: [Comparator::RESET; MAX_BREAKPOINTS],
        watchpoints: [Comparator::RESET; MAX_WATCHPOINTS],
    };

    /// Carries out an access of a guest whose ID registers offer `counts` breakpoints and
    /// watchpoints. Returns none if the access is to another register, or to a comparator that the
    /// VM does not have. `value` is the value that a write stores.
    pub fn access(
        &mut self,
        access: SysRegAccess,
        value: u64,
        counts: (u8, u8),
    ) -> Option<DebugAccess> {
        if (access.op0(), access.op1(), access.crn()) != (2, 0, 0) {
            return None;
        }
        let number = usize::from(access.crm());
        let (place, mask) = match access.op2() {
            2 if number == 2 => (&mut self.mdscr, MDSCR),
            op2 @ 4..=5 if access.crm() < counts.0 => {
                let comparator = self.breakpoints.get_mut(number)?;
                if op2 == 4 {
                    (&mut comparator.value, ADDRESS)
                } else {
                    (&mut comparator.control, BREAKPOINT_CONTROL)
                }
            }
            op2 @ 6..=7 if access.crm() < counts.1 => {
                let comparator = self.watchpoints.get_mut(number)?;
                if op2 == 6 {
                    (&mut comparator.value, ADDRESS)
                } else {
                    (&mut comparator.control, WATCHPOINT_CONTROL)
                }
            }
            _ => return None,
        };
        if !access.is_write() {
            return Some(DebugAccess::Read(*place));
        }
        *place = value & mask;
        Some(DebugAccess::Written)
    }

    /// Returns the value for `MDSCR_EL1`: TDCC is left out, because EL0's accesses to the debug
    /// communications channel trap to EL2.
    #[inline]
    #[must_use]
    pub const fn control(&self) -> u64 {
        self.mdscr & SS_KDE_MDE
    }

    /// Returns whether breakpoints, watchpoints or single step can cause an exception.
    #[inline]
    #[must_use]
    pub const fn is_armed(&self) -> bool {
        self.control() != 0
    }

    /// Returns whether an `MDSCR_EL1` of the hardware has debug exceptions enabled.
    #[inline]
    #[must_use]
    pub const fn enables(mdscr: u64) -> bool {
        mdscr & SS_KDE_MDE != 0
    }

    /// Returns the breakpoints, from number 0.
    #[must_use]
    pub const fn breakpoints(&self) -> &[Comparator; MAX_BREAKPOINTS] {
        &self.breakpoints
    }

    /// Returns the watchpoints, from number 0.
    #[must_use]
    pub const fn watchpoints(&self) -> &[Comparator; MAX_WATCHPOINTS] {
        &self.watchpoints
    }
}

#[cfg(test)]
mod tests {
    use super::{Debug, DebugAccess};
    use crate::esr::SysRegAccess;
    use proptest::prelude::*;

    const COUNTS: (u8, u8) = (6, 4);

    fn write(debug: &mut Debug, [crm, op2]: [u8; 2], value: u64) -> Option<DebugAccess> {
        debug.access(SysRegAccess::new([2, 0, 0, crm, op2], 0, true), value, COUNTS)
    }

    fn read(debug: &mut Debug, [crm, op2]: [u8; 2]) -> Option<DebugAccess> {
        debug.access(SysRegAccess::new([2, 0, 0, crm, op2], 0, false), 0, COUNTS)
    }

    #[test]
    fn a_breakpoint_needs_its_registers_and_monitor_debug() {
        let mut debug = Debug::RESET;
        assert_eq!(write(&mut debug, [5, 4], 0xffff_8000_0012_3456), Some(DebugAccess::Written));
        assert_eq!(write(&mut debug, [5, 5], 0x1e5), Some(DebugAccess::Written));
        assert!(!debug.is_armed(), "MDSCR_EL1.MDE is clear");
        assert_eq!(write(&mut debug, [2, 2], 1 << 15 | 1 << 13), Some(DebugAccess::Written));
        assert!(debug.is_armed());
        assert_eq!(debug.breakpoints()[5].value, 0xffff_8000_0012_3454);
        assert_eq!(debug.breakpoints()[5].control, 0x1e5);
        assert_eq!(read(&mut debug, [5, 5]), Some(DebugAccess::Read(0x1e5)));
    }

    #[test]
    fn only_what_the_id_registers_promise_is_there() {
        let mut debug = Debug::RESET;
        for op2 in [4, 5] {
            assert_eq!(write(&mut debug, [6, op2], 1), None);
        }
        for op2 in [6, 7] {
            assert_eq!(write(&mut debug, [4, op2], 1), None);
            assert_eq!(write(&mut debug, [3, op2], 1), Some(DebugAccess::Written));
        }
        let mut few = Debug::RESET;
        let second = SysRegAccess::new([2, 0, 0, 1, 5], 0, true);
        assert_eq!(few.access(second, 1, (1, 1)), None);
        assert_eq!(few, Debug::RESET);
    }

    #[test]
    fn external_debug_state_never_reaches_the_hardware() {
        let mut debug = Debug::RESET;
        write(&mut debug, [2, 2], u64::MAX);
        assert_eq!(read(&mut debug, [2, 2]), Some(DebugAccess::Read(0xb001)));
        assert_eq!(debug.control(), 0xa001);
        write(&mut debug, [2, 2], 1 << 12);
        assert!(!debug.is_armed(), "Linux sets TDCC when it starts");
    }

    proptest! {
        #[test]
        fn no_access_reaches_another_register(raw: u32, value: u64) {
            let access = SysRegAccess(raw & 0x3f_ffff);
            let mut debug = Debug::RESET;
            let outcome = debug.access(access, value, COUNTS);
            if (access.op0(), access.op1(), access.crn()) != (2, 0, 0) {
                prop_assert_eq!(outcome, None);
            }
            if outcome != Some(DebugAccess::Written) {
                prop_assert_eq!(debug, Debug::RESET);
            }
            prop_assert_eq!(debug.control() & !0xa001, 0);
        }
    }
}
