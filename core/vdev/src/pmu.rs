//! The PMU of a vCPU that was granted some of its core's event counters and the cycle counter.
//!
//! Every access traps (`MDCR_EL2.{TPM, TPMCR}`), because the hypervisor's own counters are in the
//! same registers. The guest's counter n stands for one of the hardware's ([`GrantedCounters`]),
//! which counts at EL1 and EL0 only. Controls of all counters of a core (`PMCR_EL0.E`) exist only
//! in this model: a counter runs if the guest enabled it and all counters.
//!
//! The guest's overflow interrupt is a separate line and not that of the hardware. An overflow
//! interrupt is disabled in the hardware until the guest has cleared the overflow. So the
//! hypervisor's own overflows interrupt, whatever state the guest leaves its counters in.
//!
//! Features of PMUv3 before Armv8.1: 32-bit event counters, event numbers of 10 bits. The cycle
//! counter has 64 bits; `PMCR_EL0.LC` selects whether it overflows after 32 or 64 bits. In the
//! hardware this bit belongs to the guest, because the hypervisor uses no cycle counter. The
//! AArch32 views of the registers (CP15) are not offered.
//!
//! Source: Arm ARM (DDI0487), D11 "The Performance Monitors Extension", D24.5 for each register.

use crate::esr::SysRegAccess;
use weir_units::IntId;

/// The INTID of the guest's overflow interrupt, as on QEMU's `virt` board.
pub const INTID: IntId = IntId(23);
/// Largest number of event counters of a guest.
pub const MOST: usize = 29;
/// The bit of the cycle counter among those of the counters.
pub const CYCLES: u32 = 1 << 31;

/// Returns whether a PMU with these `PMCEID0_EL0` and `PMCEID1_EL0` may count `event`. The
/// registers list the implemented common events up to 0x3f; they do not describe other events
/// (DDI0487, D11.11).
#[must_use]
pub fn may_count(identification: [u64; 2], event: u16) -> bool {
    let [first, second] = identification;
    let common = first & 0xffff_ffff | second << 32;
    event >= 64 || common >> event & 1 != 0
}

/// `ID_AA64DFR0_EL1.PMUVer` of PMUv3.
const PMUVER: u64 = 1 << 8;
/// `PMCR_EL0`: enable, reset of event counters, reset of the cycle counter, disable the cycle
/// counter where events must not be counted (never in a guest), long cycle counter.
const E: u64 = 1;
const P: u64 = 1 << 1;
const C: u64 = 1 << 2;
const DP: u64 = 1 << 5;
const LC: u64 = 1 << 6;
/// `PMEVTYPER<n>_EL0`: not at EL1, not at EL0, and the event. The other bits count elsewhere or do
/// not exist.
const TYPE: u32 = NOT_AT_EL1 | NOT_AT_EL0 | EVENT;
const NOT_AT_EL1: u32 = 1 << 31;
const NOT_AT_EL0: u32 = 1 << 30;
/// The event; 0 is a software increment.
const EVENT: u32 = 0x3ff;
/// `PMCCFILTR_EL0`.
const FILTER: u32 = 0xc000_0000;
/// `PMSELR_EL0.SEL`, and the cycle counter's number there.
const SEL: u64 = 0x1f;
const CYCLE_COUNTER: u8 = 31;
/// `PMUSERENR_EL0`: EN, SW, CR, ER.
const USER: u64 = 0xf;

/// The counters of a core that a guest was granted. Masks have bit n for event counter n and
/// [`CYCLES`].
pub trait GrantedCounters {
    /// Reads event counter `n`, which is granted.
    fn read(&mut self, n: usize) -> u32;
    /// Writes event counter `n`.
    fn write(&mut self, n: usize, value: u32);
    /// Reads the cycle counter.
    fn read_cycles(&mut self) -> u64;
    /// Writes the cycle counter.
    fn write_cycles(&mut self, value: u64);
    /// Sets the event of counter `n`: the low 10 bits, and the two highest bits for "not at EL1"
    /// and "not at EL0".
    fn set_type(&mut self, n: usize, kind: u32);
    /// Sets the exception levels at which the cycle counter counts.
    fn set_filter(&mut self, filter: u32);
    /// Sets whether the cycle counter overflows after 64 bits instead of 32: `PMCR_EL0.LC`.
    fn set_long_cycles(&mut self, long: bool);
    /// Returns whether the cycle counter overflows after 64 bits; always true on a core without
    /// AArch32.
    fn has_long_cycles(&mut self) -> bool;
    /// Enables exactly the granted counters in `mask`.
    fn set_enabled(&mut self, mask: u32);
    /// Enables the overflow interrupts of exactly the granted counters in `mask`.
    fn set_interrupts(&mut self, mask: u32);
    /// Returns the counters that have overflowed since their overflow was last cleared.
    fn overflowed(&mut self) -> u32;
    /// Clears the overflow of the counters in `mask`.
    fn clear_overflowed(&mut self, mask: u32);
    /// Sets the overflow of the counters in `mask`.
    fn set_overflowed(&mut self, mask: u32);
    /// Returns `PMCEID0_EL0` or `PMCEID1_EL0`: which common events exist.
    fn events(&mut self, register: u8) -> u64;
    /// Sets the accesses that EL0 may make without a trap to EL1: `PMUSERENR_EL0`.
    fn set_user(&mut self, user: u32);
}

/// Result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmuOutcome {
    /// The destination register gets this value.
    Read(u64),
    /// The register was written. The interrupt line may have changed: see [`VirtualPmu::line`].
    Written,
    /// The register does not exist, or cannot be accessed in this way: inject UNDEFINED.
    Undefined,
}

/// A vCPU's PMU.
#[derive(Clone, Debug)]
pub struct VirtualPmu {
    count: u8,
    control: u64,
    enabled: u32,
    interrupts: u32,
    selected: u8,
    user: u32,
    types: [u32; MOST],
    filter: u32,
}

impl VirtualPmu {
    /// Returns a PMU of `count` event counters, at most [`MOST`], in the state after a reset.
    #[must_use]
    pub const fn new(count: u8) -> Self {
        Self {
            count: if count as usize > MOST { MOST as u8 } else { count },
            control: 0,
            enabled: 0,
            interrupts: 0,
            selected: 0,
            user: 0,
            types: [0; MOST],
            filter: 0,
        }
    }

    /// Resets the PMU because the vCPU starts or goes off. Every counter is stopped and zero.
    pub fn reset(&mut self, hw: &mut impl GrantedCounters) {
        *self = Self::new(self.count);
        hw.set_enabled(0);
        hw.set_interrupts(0);
        hw.set_user(0);
        for n in 0..usize::from(self.count) {
            hw.set_type(n, 0);
            hw.write(n, 0);
        }
        hw.set_filter(0);
        hw.set_long_cycles(true);
        hw.write_cycles(0);
        hw.clear_overflowed(self.all());
    }

    /// Returns the mask of all counters.
    const fn all(&self) -> u32 {
        ((1 << self.count) - 1) | CYCLES
    }

    /// Returns the value that a feature ID register shows in a VM with a PMU, instead of `value`.
    #[must_use]
    pub const fn shown(access: SysRegAccess, value: u64) -> u64 {
        let id_aa64dfr0 = access.op1() == 0 && access.crn() == 0 && access.crm() == 5;
        if access.op0() == 3 && id_aa64dfr0 && access.op2() == 0 { value | PMUVER } else { value }
    }

    /// Returns the level of the overflow interrupt's line. An overflow that the guest has not
    /// cleared does not interrupt the hypervisor again.
    pub fn line(&mut self, hw: &mut impl GrantedCounters) -> bool {
        let overflowed = hw.overflowed() & self.all();
        let wanted = if self.control & E == 0 { 0 } else { self.interrupts };
        hw.set_interrupts(wanted & !overflowed);
        wanted & overflowed != 0
    }

    /// Carries out a trapped access to a PMU register, from EL0 (`user`) or EL1. `value` is the
    /// value that a write stores. Returns `None` if the access is to another register.
    pub fn access(
        &mut self,
        access: SysRegAccess,
        value: u64,
        user: bool,
        hw: &mut impl GrantedCounters,
    ) -> Option<PmuOutcome> {
        let (crm, op2, write) = (access.crm(), access.op2(), access.is_write());
        match (access.op0(), access.op1(), access.crn(), crm) {
            (3, 3, 9, 12..=14) | (3, 0, 9, 14) => {
                let level1 = access.op1() == 0;
                let write = write.then_some(value);
                Some(self.control_register(level1, (crm, op2), write, user, hw))
            }
            // PMEVCNTR<n>_EL0 and PMEVTYPER<n>_EL0; at the encoding of a 32nd type is the filter of
            // the cycle counter.
            (3, 3, 14, 8..=11) => Some(self.counter((crm & 3) << 3 | op2, write, value, hw)),
            (3, 3, 14, 12..=15) => Some(self.kind((crm & 3) << 3 | op2, write, value, hw)),
            _ => None,
        }
    }

    fn control_register(
        &mut self,
        level1: bool,
        place: (u8, u8),
        write: Option<u64>,
        user: bool,
        hw: &mut impl GrantedCounters,
    ) -> PmuOutcome {
        let (value, write) = (write.unwrap_or(0), write.is_some());
        let mask = value as u32 & self.all();
        let enabled = u64::from(self.enabled);
        let interrupts = u64::from(self.interrupts);
        match (level1, place, write) {
            // PMINTENSET_EL1, PMINTENCLR_EL1.
            (true, (14, 1), true) => self.interrupts |= mask,
            (true, (14, 2), true) => self.interrupts &= !mask,
            (true, (14, 1 | 2), false) => return PmuOutcome::Read(interrupts),
            // PMCR_EL0.
            (false, (12, 0), true) => self.write_control(value, hw),
            (false, (12, 0), false) => {
                let long = if hw.has_long_cycles() { LC } else { 0 };
                return PmuOutcome::Read(self.control | long | u64::from(self.count) << 11);
            }
            // PMCNTENSET_EL0, PMCNTENCLR_EL0.
            (false, (12, 1), true) => self.enable(self.enabled | mask, hw),
            (false, (12, 2), true) => self.enable(self.enabled & !mask, hw),
            (false, (12, 1 | 2), false) => return PmuOutcome::Read(enabled),
            // PMOVSCLR_EL0, PMOVSSET_EL0.
            (false, (12, 3), true) => hw.clear_overflowed(mask),
            (false, (14, 3), true) => hw.set_overflowed(mask),
            (false, (12 | 14, 3), false) => {
                return PmuOutcome::Read((hw.overflowed() & self.all()).into());
            }
            // PMSWINC_EL0.
            (false, (12, 4), true) => self.increment(mask, user, hw),
            // PMSELR_EL0.
            (false, (12, 5), true) => self.selected = (value & SEL) as u8,
            (false, (12, 5), false) => return PmuOutcome::Read(self.selected.into()),
            // PMCEID0_EL0, PMCEID1_EL0: the events of Armv8.0, in the low half.
            (false, (12, register @ 6..=7), false) => {
                return PmuOutcome::Read(hw.events(register - 6) & 0xffff_ffff);
            }
            // PMCCNTR_EL0.
            (false, (13, 0), true) => hw.write_cycles(value),
            (false, (13, 0), false) => return PmuOutcome::Read(hw.read_cycles()),
            // PMXEVTYPER_EL0, PMXEVCNTR_EL0.
            (false, (13, 1), _) => return self.kind(self.selected, write, value, hw),
            (false, (13, 2), _) => return self.counter(self.selected, write, value, hw),
            // PMUSERENR_EL0.
            (false, (14, 0), true) => {
                self.user = (value & USER) as u32;
                hw.set_user(self.user);
            }
            (false, (14, 0), false) => return PmuOutcome::Read(self.user.into()),
            _ => return PmuOutcome::Undefined,
        }
        PmuOutcome::Written
    }

    fn write_control(&mut self, value: u64, hw: &mut impl GrantedCounters) {
        self.control = value & (E | DP);
        hw.set_long_cycles(value & LC != 0);
        if value & P != 0 {
            for n in 0..usize::from(self.count) {
                hw.write(n, 0);
            }
        }
        if value & C != 0 {
            hw.write_cycles(0);
        }
        self.enable(self.enabled, hw);
    }

    /// Carries out software increments. The hardware would carry them out at EL2, where these
    /// counters do not count.
    fn increment(&mut self, mask: u32, user: bool, hw: &mut impl GrantedCounters) {
        let mask = if self.control & E == 0 { 0 } else { mask & self.enabled };
        let elsewhere = if user { NOT_AT_EL0 } else { NOT_AT_EL1 };
        for (n, kind) in self.types.iter().enumerate().take(self.count.into()) {
            if mask >> n & 1 != 0 && kind & (EVENT | elsewhere) == 0 {
                let value = hw.read(n).wrapping_add(1);
                hw.write(n, value);
                if value == 0 {
                    hw.set_overflowed(1 << n);
                }
            }
        }
    }

    fn enable(&mut self, mask: u32, hw: &mut impl GrantedCounters) {
        self.enabled = mask;
        hw.set_enabled(if self.control & E == 0 { 0 } else { mask });
    }

    /// Accesses `PMEVCNTR<n>_EL0`; a counter that does not exist reads as zero.
    fn counter(&self, n: u8, write: bool, value: u64, hw: &mut impl GrantedCounters) -> PmuOutcome {
        let n = usize::from(n);
        match (n < self.count.into(), write) {
            (true, true) => hw.write(n, value as u32),
            (true, false) => return PmuOutcome::Read(hw.read(n).into()),
            (false, true) => {}
            (false, false) => return PmuOutcome::Read(0),
        }
        PmuOutcome::Written
    }

    /// Accesses `PMEVTYPER<n>_EL0` or `PMCCFILTR_EL0`.
    fn kind(
        &mut self,
        n: u8,
        write: bool,
        value: u64,
        hw: &mut impl GrantedCounters,
    ) -> PmuOutcome {
        let place = match self.types.get_mut(usize::from(n)) {
            Some(kind) if n < self.count => kind,
            _ if n == CYCLE_COUNTER => &mut self.filter,
            _ if write => return PmuOutcome::Written,
            _ => return PmuOutcome::Read(0),
        };
        if !write {
            return PmuOutcome::Read((*place).into());
        }
        if n == CYCLE_COUNTER {
            *place = value as u32 & FILTER;
            hw.set_filter(*place);
        } else {
            *place = value as u32 & TYPE;
            hw.set_type(n.into(), *place);
        }
        PmuOutcome::Written
    }
}

#[cfg(test)]
mod tests;
