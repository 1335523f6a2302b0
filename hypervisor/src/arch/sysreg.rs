//! System registers. Each is declared once, with its name as the assembler knows it.

use weir_vdev::id::Controls;

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $asm:literal: $($access:ident)+;)*) => {
        $($(#[$doc])* pub mod $name { $(registers!(@ $access $asm);)+ })*
    };
    (@ read $asm:literal) => {
        /// Reads the register.
        #[allow(dead_code, reason = "a build without an optional part uses fewer registers")]
        #[inline(always)]
        #[must_use]
        pub fn read() -> u64 {
            let value: u64;
            // SAFETY: reading this register changes nothing, or only what its module says.
            unsafe { core::arch::asm!(concat!("mrs {}, ", $asm), out(reg) value, options(nostack, preserves_flags)) }
            value
        }
    };
    (@ write $asm:literal) => {
        /// Writes the register.
        #[allow(dead_code, reason = "a build without an optional part uses fewer registers")]
        #[inline(always)]
        pub fn write(value: u64) {
            // SAFETY: the registers declared here configure what EL1 sees and the interrupt
            // interface; those that decide over EL2's own memory (SCTLR_EL2, TTBR0_EL2, TCR_EL2,
            // MAIR_EL2, VBAR_EL2) are not among them.
            unsafe { core::arch::asm!(concat!("msr ", $asm, ", {}"), in(reg) value, options(nostack, preserves_flags)) }
        }
    };
}

registers! {
    /// Syndrome of an exception taken to EL2.
    esr_el2 = "esr_el2": read;
    /// Interrupts and SErrors that are pending, masked or not.
    isr_el1 = "isr_el1": read;
    /// Faulting virtual address.
    far_el2 = "far_el2": read;
    /// Faulting IPA.
    hpfar_el2 = "hpfar_el2": read;
    /// Where the guest goes on.
    elr_el2 = "elr_el2": read write;
    /// The guest's processor state.
    spsr_el2 = "spsr_el2": read write;
    /// What EL2 traps.
    hcr_el2 = "hcr_el2": write;
    /// Debug and PMU traps.
    mdcr_el2 = "mdcr_el2": write;
    /// Floating point and trace traps.
    cptr_el2 = "cptr_el2": write;
    /// Traps of AArch32 system registers.
    hstr_el2 = "hstr_el2": write;
    /// Stage 2 tables and VMID.
    vttbr_el2 = "vttbr_el2": read write;
    /// Stage 2 format.
    vtcr_el2 = "vtcr_el2": write;
    /// MPIDR_EL1 as the guest reads it.
    vmpidr_el2 = "vmpidr_el2": write;
    /// MIDR_EL1 as the guest reads it.
    vpidr_el2 = "vpidr_el2": write;
    /// This core's identification.
    midr_el1 = "midr_el1": read;
    /// Which levels of cache there are.
    clidr_el1 = "clidr_el1": read;
    /// Which of them CCSIDR_EL1 tells of.
    csselr_el1 = "csselr_el1": write;
    /// The geometry of that one.
    ccsidr_el1 = "ccsidr_el1": read;
    /// EL1 access to the timers.
    cnthctl_el2 = "cnthctl_el2": write;
    /// Virtual counter's distance from the physical one.
    cntvoff_el2 = "cntvoff_el2": write;
    /// Physical counter.
    cntpct_el0 = "cntpct_el0": read;
    /// Ticks a second.
    cntfrq_el0 = "cntfrq_el0": read;
    /// Control of EL2's own timer.
    cnthp_ctl_el2 = "cnthp_ctl_el2": write;
    /// Deadline of EL2's own timer.
    cnthp_cval_el2 = "cnthp_cval_el2": write;
    /// PMU control: how many counters, and whether they count.
    pmcr_el0 = "pmcr_el0": read write;
    /// Event counter 0.
    pmevcntr0_el0 = "pmevcntr0_el0": read write;
    /// Event counter 1.
    pmevcntr1_el0 = "pmevcntr1_el0": read write;
    /// What event counter 0 counts.
    pmevtyper0_el0 = "pmevtyper0_el0": write;
    /// What event counter 1 counts.
    pmevtyper1_el0 = "pmevtyper1_el0": write;
    /// Counters to enable.
    pmcntenset_el0 = "pmcntenset_el0": write;
    /// Overflow interrupts to enable.
    pmintenset_el1 = "pmintenset_el1": write;
    /// Counters to disable.
    pmcntenclr_el0 = "pmcntenclr_el0": write;
    /// Overflow interrupts to disable.
    pmintenclr_el1 = "pmintenclr_el1": write;
    /// Overflows to forget.
    pmovsclr_el0 = "pmovsclr_el0": write;
    /// Overflows so far, or to make up.
    pmovsset_el0 = "pmovsset_el0": read write;
    /// Which counter the next two are.
    pmselr_el0 = "pmselr_el0": write;
    /// The selected event counter.
    pmxevcntr_el0 = "pmxevcntr_el0": read write;
    /// What it counts.
    pmxevtyper_el0 = "pmxevtyper_el0": write;
    /// The cycle counter.
    pmccntr_el0 = "pmccntr_el0": read write;
    /// Where it counts.
    pmccfiltr_el0 = "pmccfiltr_el0": write;
    /// Which common events there are.
    pmceid0_el0 = "pmceid0_el0": read;
    /// The same, from 0x20 on.
    pmceid1_el0 = "pmceid1_el0": read;
    /// EL0's access to the PMU.
    pmuserenr_el0 = "pmuserenr_el0": write;
    /// Syndrome of the guest's own last exception.
    esr_el1 = "esr_el1": read write;
    /// Where the guest's own last exception came from.
    elr_el1 = "elr_el1": read write;
    /// The state it came from.
    spsr_el1 = "spsr_el1": write;
    /// Address of the guest's own last exception.
    far_el1 = "far_el1": write;
    /// The guest's exception vectors.
    vbar_el1 = "vbar_el1": read;
    /// The guest's system control.
    sctlr_el1 = "sctlr_el1": read;
    /// Debug control of the vCPU that has the core; guests' accesses trap.
    mdscr_el1 = "mdscr_el1": read write;
    /// EL2's per-core pointer.
    tpidr_el2 = "tpidr_el2": write;
}

/// The GICv3 CPU interface and virtual interface control (IHI0069, chapter 12).
#[cfg(feature = "gicv3")]
pub mod icc {
    registers! {
        /// Acknowledges the interrupt of highest priority; the read makes it active.
        iar1 = "S3_0_C12_C12_0": read;
        /// Priority drop.
        eoir1 = "S3_0_C12_C12_1": write;
        /// Deactivation.
        dir = "S3_0_C12_C11_1": write;
        /// Priority mask.
        pmr = "S3_0_C4_C6_0": write;
        /// Control: EOI mode.
        ctlr = "S3_0_C12_C12_4": read write;
        /// Group 1 enable.
        igrpen1 = "S3_0_C12_C12_7": write;
        /// System register enable at EL2.
        sre_el2 = "S3_4_C12_C9_5": write;
        /// System register enable at EL1.
        sre_el1 = "S3_0_C12_C12_5": write;
        /// Sends an SGI of group 1.
        sgi1r = "S3_0_C12_C11_5": write;
        /// Virtual interface: enable and maintenance conditions.
        ich_hcr = "S3_4_C12_C11_0": read write;
        /// Virtual interface: how many list registers.
        ich_vtr = "S3_4_C12_C11_1": read;
        /// Empty list registers.
        ich_elrsr = "S3_4_C12_C11_5": read;
        /// The guest's view: priority mask, groups, EOI mode.
        ich_vmcr = "S3_4_C12_C11_7": read write;
        /// Active priorities of group 0.
        ich_ap0r0 = "S3_4_C12_C8_0": read write;
        /// Active priorities of group 1.
        ich_ap1r0 = "S3_4_C12_C9_0": read write;
    }

    macro_rules! list_registers {
        ($($n:literal = $asm:literal,)*) => {
            /// Reads list register `n`, of the first four; 0 for another.
            #[inline(always)]
            pub fn read_lr(n: usize) -> u64 {
                let value: u64;
                match n {
                    // SAFETY: reading a list register changes nothing.
                    $($n => unsafe { core::arch::asm!(concat!("mrs {}, ", $asm), out(reg) value, options(nostack, preserves_flags)) },)*
                    _ => value = 0,
                }
                value
            }

            /// Writes list register `n`.
            #[inline(always)]
            pub fn write_lr(n: usize, value: u64) {
                match n {
                    // SAFETY: a list register holds an interrupt of the guest's.
                    $($n => unsafe { core::arch::asm!(concat!("msr ", $asm, ", {}"), in(reg) value, options(nostack, preserves_flags)) },)*
                    _ => {}
                }
            }
        };
    }

    list_registers! {
        0 = "S3_4_C12_C12_0",
        1 = "S3_4_C12_C12_1",
        2 = "S3_4_C12_C12_2",
        3 = "S3_4_C12_C12_3",
    }
}

/// Controls of EL2 that not every processor has; see `weir_vdev::id::Controls`.
mod controls {
    registers! {
        /// Further controls of EL1's features.
        hcrx = "S3_4_C1_C2_2": write;
        /// Reads of EL1's registers that trap.
        hfgrtr = "S3_4_C1_C1_4": write;
        /// Writes.
        hfgwtr = "S3_4_C1_C1_5": write;
        /// Instructions.
        hfgitr = "S3_4_C1_C1_6": write;
        /// Reads of debug registers.
        hdfgrtr = "S3_4_C3_C1_4": write;
        /// Writes.
        hdfgwtr = "S3_4_C3_C1_5": write;
        /// Reads of activity monitors.
        hafgrtr = "S3_4_C3_C1_6": write;
        /// As `hfgrtr`, for more registers.
        hfgrtr2 = "S3_4_C3_C1_2": write;
        /// As `hfgwtr`.
        hfgwtr2 = "S3_4_C3_C1_3": write;
        /// As `hfgitr`.
        hfgitr2 = "S3_4_C3_C1_7": write;
        /// As `hdfgrtr`.
        hdfgrtr2 = "S3_4_C3_C1_0": write;
        /// As `hdfgwtr`.
        hdfgwtr2 = "S3_4_C3_C1_1": write;
    }
}

/// Writes zero to the controls of EL2 that this core has and that firmware can have left at any
/// value.
pub fn clear_controls(has: Controls) {
    if has.hcrx {
        controls::hcrx::write(0);
    }
    if has.fine_traps {
        controls::hfgrtr::write(0);
        controls::hfgwtr::write(0);
        controls::hfgitr::write(0);
        controls::hdfgrtr::write(0);
        controls::hdfgwtr::write(0);
    }
    if has.monitor_traps {
        controls::hafgrtr::write(0);
    }
    if has.more_fine_traps {
        controls::hfgrtr2::write(0);
        controls::hfgwtr2::write(0);
        controls::hfgitr2::write(0);
        controls::hdfgrtr2::write(0);
        controls::hdfgwtr2::write(0);
    }
}

/// Accesses a register by its number.
macro_rules! comparators {
    ($($n:literal)+) => {
        /// Writes breakpoint `n`: value, then control. Does nothing for a number above those of a
        /// VM.
        pub fn write_breakpoint(n: usize, value: u64, control: u64) {
            match n {
                // SAFETY: with MDCR_EL2.TDE clear a breakpoint causes exceptions at EL1 and EL0
                // only. Callers write only those that the processor has (ID_AA64DFR0_EL1).
                $($n => unsafe { core::arch::asm!(concat!("msr dbgbvr", $n, "_el1, {}"), concat!("msr dbgbcr", $n, "_el1, {}"), in(reg) value, in(reg) control, options(nostack, preserves_flags)) },)+
                _ => {}
            }
        }

        /// Writes watchpoint `n`: value, then control. Does nothing for a number above those of a
        /// VM.
        pub fn write_watchpoint(n: usize, value: u64, control: u64) {
            match n {
                // SAFETY: as above.
                $($n => unsafe { core::arch::asm!(concat!("msr dbgwvr", $n, "_el1, {}"), concat!("msr dbgwcr", $n, "_el1, {}"), in(reg) value, in(reg) control, options(nostack, preserves_flags)) },)+
                _ => {}
            }
        }
    };
}

comparators!(0 1 2 3 4 5);

/// Reads the ID register of encoding op0 = 3, op1 = 0, CRn = 0.
macro_rules! id_registers {
    ($($crm:literal: $($op2:literal)+;)*) => {
        /// The ID register S3_0_C0_C`crm`_`op2`; 0 where the architecture has none.
        #[must_use]
        pub fn id_register(crm: u8, op2: u8) -> u64 {
            let value: u64;
            match (crm, op2) {
                // SAFETY: reading an ID register changes nothing.
                $($(($crm, $op2) => unsafe { core::arch::asm!(concat!("mrs {}, S3_0_C0_C", $crm, "_", $op2), out(reg) value, options(nostack, preserves_flags)) },)+)*
                _ => value = 0,
            }
            value
        }
    };
}

id_registers! {
    1: 0 1 2 3 4 5 6 7;
    2: 0 1 2 3 4 5 6 7;
    3: 0 1 2 3 4 5 6 7;
    4: 0 1 2 3 4 5 6 7;
    5: 0 1 2 3 4 5 6 7;
    6: 0 1 2 3 4 5 6 7;
    7: 0 1 2 3 4 5 6 7;
}
