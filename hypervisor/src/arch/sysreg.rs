//! System registers. Each is declared once, with its name as the assembler knows it where that is
//! another, and with how it may be used: `read`, `write`, `entrust`, a write that is unsafe, or
//! `act`, for a register of which only the ones that are written have an effect. `machine` has the
//! two backends.

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
        /// EL2 relies on the value, as the register's description says.
        #[inline(always)]
        pub unsafe fn write(value: u64) {
            $crate::arch::machine::msr!(stringify!($name), $asm, value);
        }
    };
    (@@ act $name:ident $asm:expr) => {
        /// Writes ones that act; zeros do nothing.
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
    /// This core's exception levels and extensions; reliability (RAS) is bits 31:28.
    id_aa64pfr0_el1: read;
    /// Further ones; the matrix extension (SME) is bits 27:24.
    id_aa64pfr1_el1: read;
    /// EL0's second thread pointer, of SME.
    tpidr2_el0 = "S3_3_C13_C0_5": write;
    /// Virtual deferred SErrors, a register of guests (`DISR_EL1`) if HCR_EL2.AMO is set; there with
    /// RAS.
    vdisr_el2 = "S3_4_C12_C1_1": write;
    /// Where the guest goes on.
    elr_el2: read write;
    /// The guest's processor state.
    spsr_el2: read write;
    /// What EL2 traps.
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
    /// Which levels of cache there are.
    clidr_el1: read;
    /// The geometry of that one.
    ccsidr_el1: read;
    /// EL1 access to the timers.
    cnthctl_el2: write;
    /// Virtual counter's distance from the physical one.
    cntvoff_el2: write;
    /// Physical counter.
    cntpct_el0: read;
    /// Ticks a second.
    cntfrq_el0: read;
    /// Control of EL2's own timer.
    cnthp_ctl_el2: write;
    /// Deadline of EL2's own timer.
    cnthp_cval_el2: write;
    /// PMU control: how many counters, and whether they count.
    pmcr_el0: read write;
    /// Event counter 0.
    pmevcntr0_el0: read write;
    /// Event counter 1.
    pmevcntr1_el0: read write;
    /// What event counter 0 counts.
    pmevtyper0_el0: write;
    /// What event counter 1 counts.
    pmevtyper1_el0: write;
    /// Counters to enable.
    pmcntenset_el0: act;
    /// Overflow interrupts to enable.
    pmintenset_el1: act;
    /// Counters to disable.
    pmcntenclr_el0: act;
    /// Overflow interrupts to disable.
    pmintenclr_el1: act;
    /// Overflows to forget.
    pmovsclr_el0: act;
    /// Overflows so far, or to make up.
    pmovsset_el0: read act;
    /// Which counter the next two are.
    pmselr_el0: write;
    /// The selected event counter.
    pmxevcntr_el0: read write;
    /// What it counts.
    pmxevtyper_el0: write;
    /// The cycle counter.
    pmccntr_el0: read write;
    /// Where it counts.
    pmccfiltr_el0: write;
    /// Which common events there are.
    pmceid0_el0: read;
    /// The same, from 0x20 on.
    pmceid1_el0: read;
    /// EL0's access to the PMU.
    pmuserenr_el0: write;
    /// The guest's system control.
    sctlr_el1: read write;
    /// What an implementation adds to it.
    actlr_el1: read write;
    /// The guest's traps of FP and SIMD.
    cpacr_el1: read write;
    /// The guest's tables of the lower addresses.
    ttbr0_el1: read write;
    /// Those of the upper ones.
    ttbr1_el1: read write;
    /// Their format.
    tcr_el1: read write;
    /// Syndrome of the guest's own last exception.
    esr_el1: read write;
    /// What an implementation adds to it.
    afsr0_el1: read write;
    /// Further such.
    afsr1_el1: read write;
    /// Address of the guest's own last exception.
    far_el1: read write;
    /// The guest's memory attributes.
    mair_el1: read write;
    /// What an implementation adds to them.
    amair_el1: read write;
    /// The guest's exception vectors.
    vbar_el1: read write;
    /// The guest's process for tracing.
    contextidr_el1: read write;
    /// Where the guest's own last exception came from.
    elr_el1: read write;
    /// The state it came from.
    spsr_el1: read write;
    /// The guest's stack at EL0.
    sp_el0: read write;
    /// At EL1.
    sp_el1: read write;
    /// Result of an address translation.
    par_el1: read write;
    /// Which cache CCSIDR_EL1 describes.
    csselr_el1: read write;
    /// The guest's thread pointer at EL0.
    tpidr_el0: read write;
    /// At EL1.
    tpidr_el1: read write;
    /// That which EL0 only reads.
    tpidrro_el0: read write;
    /// EL0's access to the timers.
    cntkctl_el1: read write;
    /// Deadline of the virtual timer.
    cntv_cval_el0: read write;
    /// Its control.
    cntv_ctl_el0: read write;
    /// Deadline of EL1's physical timer.
    cntp_cval_el0: read write;
    /// Its control.
    cntp_ctl_el0: read write;
    /// FP control, by its encoding: the assembler knows the name only with FP.
    fpcr = "S3_3_C4_C4_0": read write;
    /// FP status.
    fpsr = "S3_3_C4_C4_1": read write;
    /// Debug control of the vCPU that has the core; guests' accesses trap.
    mdscr_el1: read write;
    /// EL2's per-core pointer, which the exception vectors pass on as a reference to the core's
    /// [`Core`](crate::vcpu::cpu::Core).
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
                match n {
                    $($n => mrs!(concat!("ich_lr", $n), $asm),)*
                    _ => 0,
                }
            }

            /// Writes list register `n`.
            #[inline(always)]
            pub fn write_lr(n: usize, value: u64) {
                match n {
                    $($n => {
                        // The first one most of the time: tested first, if the others are cold.
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
        /// EL2's partition of memory resources, and traps of EL1's registers for its own.
        mpam2 = "S3_4_C10_C5_0": write;
        /// What partitions there are, and whether there is the next one.
        mpamidr = "S3_0_C10_C4_4": read;
        /// EL1's partitions as virtual ones.
        mpamhcr = "S3_4_C10_C4_0": write;
    }
}

/// `MPAM2_EL2`: EL1's accesses to `MPAM0_EL1`, `MPAM1_EL1` and `MPAMIDR_EL1` trap (TRAPMPAM0EL1,
/// TRAPMPAM1EL1, TIDR); all accesses are of partition 0.
const MPAM2: u64 = 1 << 48 | 1 << 49 | 1 << 58;
/// `MPAMIDR_EL1`: there is `MPAMHCR_EL2` (HAS_HCR).
const MPAM_HAS_HCR: u64 = 1 << 17;

/// Writes zero to the controls of EL2 that this core has and that firmware can have left at any
/// value, and traps to `MPAM2_EL2`.
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

/// Accesses registers by their number.
macro_rules! comparators {
    ($($n:literal)+) => {
        /// Writes breakpoint `n`: value, then control. Does nothing for a number above those of a
        /// VM. With MDCR_EL2.TDE clear a breakpoint causes exceptions at EL1 and EL0 only. Callers
        /// write only those that the processor has (ID_AA64DFR0_EL1).
        pub fn write_breakpoint(n: usize, value: u64, control: u64) {
            match n {
                $($n => {
                    msr!(concat!("dbgbvr", $n), concat!("dbgbvr", $n, "_el1"), value);
                    msr!(concat!("dbgbcr", $n), concat!("dbgbcr", $n, "_el1"), control);
                })+
                _ => {}
            }
        }

        /// Writes watchpoint `n`, as [`write_breakpoint`] a breakpoint.
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

/// Reads the ID register of encoding op0 = 3, op1 = 0, CRn = 0.
macro_rules! id_registers {
    ($($crm:literal: $($op2:literal)+;)*) => {
        /// The ID register S3_0_C0_C`crm`_`op2`; 0 where the architecture has none.
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
