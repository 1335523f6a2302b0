//! System registers. Each is declared once, with its name in the assembler if that differs, and
//! with the permitted accesses: `read`, `write`, `entrust` (a write that is unsafe), or `act` (for
//! a register of which only the ones that are written have an effect). `machine` has the two
//! backends.

use super::machine::{mrs, msr};
use weir_vdev::id::Controls;

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident $(= $asm:literal)?: $($access:ident)+;)*) => {
        $(
            $(#[$doc])*
            pub mod $name { registers!(@ [$($access)+] $name $($asm)?); }
        )*
    };
    (@ [$($access:ident)+] $name:ident) => {
        $(registers!(@@ $access $name stringify!($name));)+
    };
    (@ [$($access:ident)+] $name:ident $asm:literal) => {
        $(registers!(@@ $access $name $asm);)+
    };
    (@@ read $name:ident $asm:expr) => {
        /// Reads the register.
        #[inline(always)]
        #[must_use]
        pub fn read() -> u64 {
            $crate::arch::machine::mrs!(stringify!($name), $asm)
        }
    };
    (@@ write $name:ident $asm:expr) => {
        /// Writes the register.
        #[inline(always)]
        pub fn write(value: u64) {
            $crate::arch::machine::msr!(stringify!($name), $asm, value);
        }
    };
    (@@ entrust $name:ident $asm:expr) => {
        /// Writes the register.
        ///
        /// # Safety
        ///
        /// EL2 relies on the value as the register's description states.
        #[inline(always)]
        pub unsafe fn write(value: u64) {
            $crate::arch::machine::msr!(stringify!($name), $asm, value);
        }
    };
    (@@ act $name:ident $asm:expr) => {
        /// Writes ones, which act; zeros have no effect.
        #[inline(always)]
        pub fn act(bits: u64) {
            $crate::arch::machine::msr_act!(stringify!($name), $asm, bits);
        }
    };
}

registers! {
    /// Syndrome of an exception taken to EL2.
    esr_el2: read;
    /// Interrupts and SErrors that are pending, masked or not.
    isr_el1: read;
    /// Faulting virtual address.
    far_el2: read;
    /// Faulting IPA.
    hpfar_el2: read;
    /// This core's exception levels and extensions, part 0; reliability (RAS) is bits 31:28.
    id_aa64pfr0_el1: read;
    /// This core's extensions, part 1; the matrix extension (SME) is bits 27:24.
    id_aa64pfr1_el1: read;
    /// Second thread pointer of EL0, part of SME.
    tpidr2_el0 = "S3_3_C13_C0_5": write;
    /// Virtual deferred SErrors; guests access it as `DISR_EL1` if HCR_EL2.AMO is set. Exists with
    /// RAS.
    vdisr_el2 = "S3_4_C12_C1_1": write;
    /// Address at which the guest continues.
    elr_el2: read write;
    /// The guest's processor state.
    spsr_el2: read write;
    /// Hypervisor configuration: what EL2 traps.
    hcr_el2: write;
    /// Debug and PMU traps.
    mdcr_el2: write;
    /// Floating point and trace traps.
    cptr_el2: write;
    /// Traps of AArch32 system registers.
    hstr_el2: write;
    /// Stage 2 tables and VMID.
    vttbr_el2: read write;
    /// Stage 2 format.
    vtcr_el2: write;
    /// MPIDR_EL1 as the guest reads it.
    vmpidr_el2: write;
    /// MIDR_EL1 as the guest reads it.
    vpidr_el2: write;
    /// This core's identification.
    midr_el1: read;
    /// Cache levels that exist.
    clidr_el1: read;
    /// Geometry of the cache that CSSELR_EL1 selects.
    ccsidr_el1: read;
    /// EL1 access to the timers.
    cnthctl_el2: write;
    /// Difference between the physical and the virtual counter.
    cntvoff_el2: write;
    /// Physical counter.
    cntpct_el0: read;
    /// Counter frequency in ticks per second.
    cntfrq_el0: read;
    /// Control of EL2's own timer.
    cnthp_ctl_el2: write;
    /// Deadline of EL2's own timer.
    cnthp_cval_el2: write;
    /// PMU control: the number of counters, and whether they count.
    pmcr_el0: read write;
    /// Event counter 0.
    pmevcntr0_el0: read write;
    /// Event counter 1.
    pmevcntr1_el0: read write;
    /// Event type of event counter 0.
    pmevtyper0_el0: write;
    /// Event type of event counter 1.
    pmevtyper1_el0: write;
    /// Counters to enable.
    pmcntenset_el0: act;
    /// Overflow interrupts to enable.
    pmintenset_el1: act;
    /// Counters to disable.
    pmcntenclr_el0: act;
    /// Overflow interrupts to disable.
    pmintenclr_el1: act;
    /// Overflow flags to clear.
    pmovsclr_el0: act;
    /// Overflow flags: reads them, or sets them.
    pmovsset_el0: read act;
    /// Selects the counter that PMXEVCNTR_EL0 and PMXEVTYPER_EL0 access.
    pmselr_el0: write;
    /// The selected event counter.
    pmxevcntr_el0: read write;
    /// Event type of the selected event counter.
    pmxevtyper_el0: write;
    /// The cycle counter.
    pmccntr_el0: read write;
    /// Exception levels at which the cycle counter counts.
    pmccfiltr_el0: write;
    /// Common events that the PMU counts, from 0x00 on.
    pmceid0_el0: read;
    /// Common events that the PMU counts, from 0x20 on.
    pmceid1_el0: read;
    /// EL0's access to the PMU.
    pmuserenr_el0: write;
    /// The guest's system control.
    sctlr_el1: read write;
    /// Auxiliary control of the guest (implementation defined).
    actlr_el1: read write;
    /// The guest's traps of FP and SIMD.
    cpacr_el1: read write;
    /// Translation table base of the guest's lower addresses.
    ttbr0_el1: read write;
    /// Translation table base of the guest's upper addresses.
    ttbr1_el1: read write;
    /// Translation control: the format of the guest's tables.
    tcr_el1: read write;
    /// Syndrome of the guest's own last exception.
    esr_el1: read write;
    /// Auxiliary fault status of the guest (implementation defined), part 0.
    afsr0_el1: read write;
    /// Auxiliary fault status of the guest (implementation defined), part 1.
    afsr1_el1: read write;
    /// Address of the guest's own last exception.
    far_el1: read write;
    /// The guest's memory attributes.
    mair_el1: read write;
    /// Auxiliary memory attributes of the guest (implementation defined).
    amair_el1: read write;
    /// The guest's exception vectors.
    vbar_el1: read write;
    /// Context identifier of the guest, for tracing.
    contextidr_el1: read write;
    /// Return address of the guest's own last exception.
    elr_el1: read write;
    /// Saved processor state of the guest's own last exception.
    spsr_el1: read write;
    /// The guest's stack pointer at EL0.
    sp_el0: read write;
    /// The guest's stack pointer at EL1.
    sp_el1: read write;
    /// Result of an address translation.
    par_el1: read write;
    /// Selects the cache that CCSIDR_EL1 describes.
    csselr_el1: read write;
    /// The guest's thread pointer at EL0.
    tpidr_el0: read write;
    /// The guest's thread pointer at EL1.
    tpidr_el1: read write;
    /// The guest's thread pointer that EL0 can only read.
    tpidrro_el0: read write;
    /// EL0's access to the timers.
    cntkctl_el1: read write;
    /// Deadline of the virtual timer.
    cntv_cval_el0: read write;
    /// Control of the virtual timer.
    cntv_ctl_el0: read write;
    /// Deadline of EL1's physical timer.
    cntp_cval_el0: read write;
    /// Control of EL1's physical timer.
    cntp_ctl_el0: read write;
    /// FP control, by its encoding: the assembler knows the name only if FP is enabled.
    fpcr = "S3_3_C4_C4_0": read write;
    /// FP status.
    fpsr = "S3_3_C4_C4_1": read write;
    /// Debug control of the vCPU that has the core; guests' accesses trap.
    mdscr_el1: read write;
    /// EL2's per-core pointer, which the exception vectors pass to Rust as a reference to the
    /// core's [`Core`](crate::vcpu::cpu::Core).
    tpidr_el2: entrust;
    /// The sizes of cache lines.
    ctr_el0: read;
    /// The size of a block that DC ZVA zeroes.
    dczid_el0: read;
}

/// The GICv3 CPU interface and virtual interface control (IHI0069, chapter 12).
#[cfg(feature = "gicv3")]
pub mod icc {
    use crate::arch::machine::{mrs, msr};

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
        /// Virtual interface: number of list registers.
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
            /// Reads list register `n`, one of the first four; returns 0 for any other number.
            #[inline(always)]
            pub fn read_lr(n: usize) -> u64 {
                match n {
                    $($n => mrs!(concat!("ich_lr", $n), $asm),)*
                    _ => 0,
                }
            }

            /// Writes list register `n`, one of the first four.
            #[inline(always)]
            pub fn write_lr(n: usize, value: u64) {
                match n {
                    $($n => {
                        // Most writes are to the first register: the compiler tests it first if the
                        // others are cold.
                        if $n != 0 {
                            cold();
                        }
                        msr!(concat!("ich_lr", $n), $asm, value);
                    })*
                    _ => cold(),
                }
            }

            #[cold]
            fn cold() {}
        };
    }

    list_registers! {
        0 = "S3_4_C12_C12_0",
        1 = "S3_4_C12_C12_1",
        2 = "S3_4_C12_C12_2",
        3 = "S3_4_C12_C12_3",
    }
}

/// Controls of EL2 that not every core has; see `weir_vdev::id::Controls`.
mod controls {
    registers! {
        /// Extended hypervisor configuration.
        hcrx = "S3_4_C1_C2_2": write;
        /// Fine-grained traps of reads of EL1 registers.
        hfgrtr = "S3_4_C1_C1_4": write;
        /// Fine-grained traps of writes to EL1 registers.
        hfgwtr = "S3_4_C1_C1_5": write;
        /// Fine-grained traps of instructions.
        hfgitr = "S3_4_C1_C1_6": write;
        /// Fine-grained traps of reads of debug registers.
        hdfgrtr = "S3_4_C3_C1_4": write;
        /// Fine-grained traps of writes to debug registers.
        hdfgwtr = "S3_4_C3_C1_5": write;
        /// Fine-grained traps of reads of activity monitors.
        hafgrtr = "S3_4_C3_C1_6": write;
        /// Fine-grained traps of reads of further EL1 registers.
        hfgrtr2 = "S3_4_C3_C1_2": write;
        /// Fine-grained traps of writes to further EL1 registers.
        hfgwtr2 = "S3_4_C3_C1_3": write;
        /// Fine-grained traps of further instructions.
        hfgitr2 = "S3_4_C3_C1_7": write;
        /// Fine-grained traps of reads of further debug registers.
        hdfgrtr2 = "S3_4_C3_C1_0": write;
        /// Fine-grained traps of writes to further debug registers.
        hdfgwtr2 = "S3_4_C3_C1_1": write;
        /// EL2's memory partition (MPAM), and traps of EL1's MPAM registers.
        mpam2 = "S3_4_C10_C5_0": write;
        /// MPAM identification: the partitions that exist, and whether `MPAMHCR_EL2` exists.
        mpamidr = "S3_0_C10_C4_4": read;
        /// Virtualization of EL1's memory partitions.
        mpamhcr = "S3_4_C10_C4_0": write;
    }
}

/// `MPAM2_EL2`: traps EL1's accesses to `MPAM0_EL1`, `MPAM1_EL1` and `MPAMIDR_EL1` (TRAPMPAM0EL1,
/// TRAPMPAM1EL1, TIDR); all memory accesses belong to partition 0.
const MPAM2: u64 = 1 << 48 | 1 << 49 | 1 << 58;
/// `MPAMIDR_EL1.HAS_HCR`: `MPAMHCR_EL2` exists.
const MPAM_HAS_HCR: u64 = 1 << 17;

/// Writes zero to the controls of EL2 that this core has, because firmware may have left any value
/// in them. Writes its traps to `MPAM2_EL2`.
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
    if has.partitioning {
        controls::mpam2::write(MPAM2);
        if controls::mpamidr::read() & MPAM_HAS_HCR != 0 {
            controls::mpamhcr::write(0);
        }
    }
}

/// Defines functions that write breakpoint and watchpoint registers by their number.
macro_rules! comparators {
    ($($n:literal)+) => {
        /// Writes breakpoint `n`: value, then control. Does nothing if `n` is above the breakpoints
        /// of a VM. With MDCR_EL2.TDE clear a breakpoint causes exceptions at EL1 and EL0 only.
        /// Callers write only breakpoints that the core has (ID_AA64DFR0_EL1).
        pub fn write_breakpoint(n: usize, value: u64, control: u64) {
            match n {
                $($n => {
                    msr!(concat!("dbgbvr", $n), concat!("dbgbvr", $n, "_el1"), value);
                    msr!(concat!("dbgbcr", $n), concat!("dbgbcr", $n, "_el1"), control);
                })+
                _ => {}
            }
        }

        /// Writes watchpoint `n` like [`write_breakpoint`] writes a breakpoint.
        pub fn write_watchpoint(n: usize, value: u64, control: u64) {
            match n {
                $($n => {
                    msr!(concat!("dbgwvr", $n), concat!("dbgwvr", $n, "_el1"), value);
                    msr!(concat!("dbgwcr", $n), concat!("dbgwcr", $n, "_el1"), control);
                })+
                _ => {}
            }
        }
    };
}

comparators!(0 1 2 3 4 5);

/// Defines a function that reads an ID register (op0 = 3, op1 = 0, CRn = 0).
macro_rules! id_registers {
    ($($crm:literal: $($op2:literal)+;)*) => {
        /// Returns the ID register S3_0_C0_C`crm`_`op2`; 0 if the architecture has none.
        #[must_use]
        #[inline(never)]
        pub fn id_register(crm: u8, op2: u8) -> u64 {
            match (crm, op2) {
                $($(($crm, $op2) => mrs!(
                    concat!("id_", $crm, "_", $op2),
                    concat!("S3_0_C0_C", $crm, "_", $op2)
                ),)+)*
                _ => 0,
            }
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

/// Returns whether the core has the CRC32 instructions (ID_AA64ISAR0_EL1.CRC32).
#[must_use]
pub fn has_crc32() -> bool {
    id_register(6, 0) >> 16 & 0xf != 0
}
