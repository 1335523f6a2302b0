//! The registers of a core that control what its guests can do, and that guests cannot change.

use crate::{
    arch::{context::stop_timers, memory, pmu, sysreg},
    start,
};
use weir_units::{Pa, VmId};
use weir_vdev::{id::Controls, smccc::Mitigations};

/// HCR_EL2: stage 2 on; interrupts and SErrors to EL2; set/way operations, SMC, ID registers,
/// ACTLR, implementation-defined registers, LORegions and error records trap; EL1 is 64-bit; the
/// guest's maintenance is broadcast to its other cores (FB, BSU); a page-table walk to device
/// memory faults (PTW).
const HCR: u64 = 1 // VM
    | 1 << 1 // SWIO
    | 1 << 2 // PTW
    | 1 << 3 // FMO
    | 1 << 4 // IMO
    | 1 << 5 // AMO
    | 1 << 9 // FB
    | 1 << 10 // BSU: inner shareable
    | 1 << 18 // TID3
    | 1 << 19 // TSC
    | 1 << 20 // TIDCP
    | 1 << 21 // TACR
    | 1 << 22 // TSW
    | 1 << 31 // RW
    | 1 << 35 // TLOR
    | 1 << 36; // TERR

/// CPTR_EL2: trace, activity monitors and SVE trap; FP and SIMD do not. The other set bits are
/// RES1.
const CPTR: u64 = 0x33ff & !(1 << 10) | 1 << 20 | 1 << 30;
/// MDCR_EL2: PMU, debug registers and the statistical profiler trap.
const MDCR: u64 = 1 << 5 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 14;
/// MDCR_EL2.TTRF: accesses to TRFCR_EL1 trap, on a core that has it.
const MDCR_TTRF: u64 = 1 << 19;
/// CNTHCTL_EL2: EL1 may read the physical counter and use its physical timer.
const CNTHCTL: u64 = 3;

/// HCR_EL2.TWI: WFI traps, on a core that other vCPUs can use in the meantime.
const HCR_TWI: u64 = 1 << 13;
/// HCR_EL2.TDZ: DC ZVA is prohibited, and DCZID_EL0 reports that.
const HCR_TDZ: u64 = 1 << 28;

/// The facts that determine the registers of a core.
#[derive(Clone, Copy)]
pub struct Purpose {
    /// Whether vCPUs share the core.
    pub shared: bool,
    /// Whether QEMU's plug-in counts the accesses to memory.
    pub observed: bool,
    /// The stage 2 tables of the VM of the core's first vCPU, if it has one.
    pub stage2: Option<(Pa, VmId)>,
}

/// Sets the registers that a guest cannot change. Called once on each core.
pub fn prepare_core(Purpose { shared, observed, stage2 }: Purpose) {
    // Stage 2 is set before it is turned on, so that no speculative walk for EL1 uses tables that
    // the firmware has left.
    if let Some((root, vm)) = stage2 {
        memory::switch_stage2(root, vm);
    }
    let observed = if observed { HCR_TDZ } else { 0 };
    let shared = if shared { HCR_TWI } else { 0 };
    sysreg::hcr_el2::write(HCR | observed | shared);
    sysreg::cptr_el2::write(CPTR);
    let [pfr, mmfr] = [4, 7].map(|crm| [0, 1].map(|op2| sysreg::id_register(crm, op2)));
    let controls = Controls::of(mmfr, pfr, sysreg::id_register(5, 0));
    // MDCR_EL2.HPMN must not exceed the number of counters.
    let counters = pmu::counters();
    let trace = if controls.trace_filter { MDCR_TTRF } else { 0 };
    sysreg::mdcr_el2::write(MDCR | trace | counters);
    if counters > 0 {
        sysreg::pmuserenr_el0::write(0);
    }
    sysreg::hstr_el2::write(0);
    sysreg::cnthctl_el2::write(CNTHCTL);
    // The offset is 0: QEMU 7.2 adds it to a guest's deadline without an overflow check, so a guest
    // that sets the latest possible deadline would hang the machine.
    sysreg::cntvoff_el2::write(0);
    sysreg::mdscr_el1::write(0);
    sysreg::clear_controls(controls);
    sysreg::vpidr_el2::write(sysreg::midr_el1::read());
    stop_timers();
}

/// Prevents branch targets of the previous vCPU of a shared core from controlling the speculation
/// of the next vCPU.
#[inline(always)]
pub fn keep_branches_apart(mitigations: Mitigations) {
    if let Some(workaround) = mitigations.at_switch() {
        start::forward(workaround, 0);
    }
}

#[cfg(test)]
mod tests;
