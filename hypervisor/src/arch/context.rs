//! The context of a vCPU as a value: all state that a guest can see or change of its core.
//!
//! While a vCPU runs, its context is in the registers of the core. [`GuestContext::save`] copies it
//! out of them, and [`GuestContext::load`] writes it back. The list registers are not part of the
//! context: the virtual GIC saves their content and the physical state of the interrupts in them
//! (`weir_vdev::gic`, `save` and `restore`).

use super::{
    Frame, gic, isb,
    machine::{Vectors, copy_frame, enter, frame_below, load_vectors, resume, save_vectors},
    memory::{self, Stage1Control},
    sysreg,
};
use weir_units::{CoreId, IntId};

/// Moves registers two at a time, so that one instruction accesses memory for both.
macro_rules! in_pairs {
    (save $self:ident:) => {};
    (save $self:ident: $a:ident $b:ident $($rest:ident)*) => {
        let ($a, $b) = (sysreg::$a::read(), sysreg::$b::read());
        ($self.$a, $self.$b) = ($a, $b);
        in_pairs!(save $self: $($rest)*);
    };
    (load $self:ident:) => {};
    (load $self:ident: $a:ident $b:ident $($rest:ident)*) => {
        let ($a, $b) = ($self.$a, $self.$b);
        sysreg::$a::write($a);
        sysreg::$b::write($b);
        in_pairs!(load $self: $($rest)*);
    };
}

macro_rules! el1_registers {
    ($($(#[$doc:meta])* $name:ident = $reset:expr;)*) => {
        /// System registers of EL1 and EL0.
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        struct El1 { $($(#[$doc])* $name: u64,)* }

        impl El1 {
            const RESET: Self = Self { $($name: $reset,)* };

            #[inline(always)]
            fn save(&mut self) {
                in_pairs!(save self: $($name)*);
            }

            #[inline(always)]
            fn load(&self) {
                in_pairs!(load self: $($name)*);
            }
        }
    };
}

el1_registers! {
    actlr_el1 = 0;
    cpacr_el1 = 0;
    ttbr0_el1 = 0;
    ttbr1_el1 = 0;
    esr_el1 = 0;
    afsr0_el1 = 0;
    afsr1_el1 = 0;
    far_el1 = 0;
    mair_el1 = 0;
    amair_el1 = 0;
    vbar_el1 = 0;
    contextidr_el1 = 0;
    elr_el1 = 0;
    spsr_el1 = 0;
    sp_el0 = 0;
    sp_el1 = 0;
    par_el1 = 0;
    csselr_el1 = 0;
    tpidr_el0 = 0;
    tpidr_el1 = 0;
    tpidrro_el0 = 0;
    cntkctl_el1 = 0;
    cntv_cval_el0 = 0;
    /// Disabled.
    cntv_ctl_el0 = 0;
    cntp_cval_el0 = 0;
    /// Disabled.
    cntp_ctl_el0 = 0;
}

/// The reset value of SCTLR_EL1: MMU and caches off, little endian, the bits set that are RES1 in
/// Armv8.0.
const SCTLR_RESET: u64 = 0x30d0_0800;

/// FP and SIMD registers: q0 to q31, control, status.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Simd {
    q: Vectors,
    fpcr: u64,
    fpsr: u64,
}

impl Simd {
    const RESET: Self = Self { q: [0; 32], fpcr: 0, fpsr: 0 };

    fn save(&mut self) {
        save_vectors(&mut self.q);
        self.fpcr = sysreg::fpcr::read();
        self.fpsr = sysreg::fpsr::read();
    }

    fn load(&self) {
        load_vectors(&self.q);
        sysreg::fpcr::write(self.fpcr);
        sysreg::fpsr::write(self.fpsr);
    }
}

/// The state that a guest can see or change of its core.
#[derive(Clone, Copy, Debug)]
pub struct GuestContext {
    /// x0 to x30.
    pub frame: Frame,
    /// Address of the guest's next instruction.
    pub pc: u64,
    /// Processor state of the guest (SPSR_EL2).
    pub pstate: u64,
    /// SCTLR_EL1 and TCR_EL1, kept apart from the others because EL2 uses them to disable the
    /// guest's stage 1 while registers of another guest are on the core.
    stage1: Stage1Control,
    el1: El1,
    simd: Simd,
    gic: gic::Interface,
}

/// CNTV_CTL_EL0.ENABLE and CNTP_CTL_EL0.ENABLE; bit 1 masks the interrupt.
const ENABLE: u64 = 1;

/// ID_AA64PFR0_EL1.RAS.
const RAS: u64 = 0xf << 28;
/// ID_AA64PFR1_EL1.SME.
const SME: u64 = 0xf << 24;
/// ID_AA64MMFR0_EL1.FGT.
const FGT: u64 = 0xf << 56;

/// EL1h, all interrupts masked: the state of a core that comes on (DEN0022, 6.4).
const PSTATE_RESET: u64 = 0x3c5;

impl GuestContext {
    /// A vCPU that comes on at `entry` with `x0`.
    #[must_use]
    pub const fn reset(entry: u64, x0: u64) -> Self {
        Self {
            frame: Frame::new(x0),
            pc: entry,
            pstate: PSTATE_RESET,
            stage1: Stage1Control { sctlr: SCTLR_RESET, tcr: 0 },
            el1: El1::RESET,
            simd: Simd::RESET,
            gic: gic::Interface::RESET,
        }
    }

    /// Returns this context with the timers of `other`.
    #[must_use]
    pub fn with_timers_of(mut self, other: &Self) -> Self {
        self.el1.cntv_cval_el0 = other.el1.cntv_cval_el0;
        self.el1.cntv_ctl_el0 = other.el1.cntv_ctl_el0;
        self.el1.cntp_cval_el0 = other.el1.cntp_cval_el0;
        self.el1.cntp_ctl_el0 = other.el1.cntp_ctl_el0;
        self
    }

    /// Returns the counter value at which the first of the guest's timers is due, or none. Only
    /// enabled, unmasked timers are considered, and only those whose PPI can interrupt according to
    /// `counts`.
    #[must_use]
    pub fn deadline(&self, counts: impl Fn(IntId) -> bool) -> Option<u64> {
        let El1 { cntv_cval_el0, cntv_ctl_el0, cntp_cval_el0, cntp_ctl_el0, .. } = self.el1;
        let timers = [
            (cntv_ctl_el0, cntv_cval_el0, gic::PPI_VIRTUAL_TIMER),
            (cntp_ctl_el0, cntp_cval_el0, gic::PPI_PHYSICAL_TIMER),
        ];
        let due = timers.into_iter().filter(|(control, ..)| control & 3 == ENABLE);
        due.filter(|&(.., intid)| counts(intid)).map(|(_, compare, _)| compare).min()
    }

    /// Moves the compare value of each enabled timer that fell due before `now` (a counter value)
    /// to `now`, so that the guest does not see the ticks that it missed.
    pub fn lose_ticks(&mut self, now: u64) {
        for (control, compare) in [
            (self.el1.cntv_ctl_el0, &mut self.el1.cntv_cval_el0),
            (self.el1.cntp_ctl_el0, &mut self.el1.cntp_cval_el0),
        ] {
            if control & ENABLE != 0 && *compare < now {
                *compare = now;
            }
        }
    }

    /// Saves the context of this core's guest, whose general registers are in `frame`.
    pub fn save(&mut self, frame: &Frame) {
        copy_frame(frame, &mut self.frame);
        self.pc = sysreg::elr_el2::read();
        self.pstate = sysreg::spsr_el2::read();
        self.stage1 = Stage1Control::of_core();
        self.el1.save();
        self.simd.save();
        self.gic = gic::Interface::save();
    }

    /// Loads all but the general registers onto this core, after [`memory::switch_stage2`] closed
    /// stage 1. The general registers are loaded on the way back into the guest.
    pub fn load(&self) {
        sysreg::elr_el2::write(self.pc);
        sysreg::spsr_el2::write(self.pstate);
        self.el1.load();
        self.simd.load();
        self.gic.load();
        forget();
        self.stage1.open();
    }
}

/// Clears what the previous vCPU wrote to registers that guests can write although the ID registers
/// hide their extension, and that do not trap.
#[inline(always)]
fn forget() {
    if sysreg::id_aa64pfr0_el1::read() & RAS != 0 {
        // DISR_EL1. No SError is deferred for a guest.
        sysreg::vdisr_el2::write(0);
    }
    // TPIDR2_EL0. By the architecture, a core with SME also has fine-grained traps, by which
    // accesses to this register trap. QEMU before 8.1 has SME without fine-grained traps. (On a
    // core with fine-grained traps, EL3 may trap an access by EL2.)
    if sysreg::id_aa64pfr1_el1::read() & SME != 0 && sysreg::id_register(7, 0) & FGT == 0 {
        sysreg::tpidr2_el0::write(0);
    }
}

/// Returns the place of the guest's general registers, at the top of the stack of core `core`.
fn frame_of(core: CoreId) -> *mut Frame {
    frame_below(memory::stack_top(core))
}

/// Returns the general registers of the guest of core `core`, which is the calling core.
///
/// # Safety
///
/// Called while a vCPU's state is on the core, in an exception from its guest.
#[must_use]
pub unsafe fn guest_frame(core: CoreId) -> &'static Frame {
    // SAFETY: the vectors put the registers there; by the contract they are still there.
    unsafe { &*frame_of(core) }
}

/// Enters the guest on core `core`, which is the calling core, with the general registers of
/// `frame` and the current system registers. Gives up this stack.
///
/// # Safety
///
/// `core` is the calling core, `frame` is not on its stack, and no reference to a value on this
/// stack is used afterwards. The system registers, including those of stage 2, are those of the
/// vCPU that `frame` belongs to ([`GuestContext::load`]).
pub unsafe fn enter_guest(core: CoreId, frame: &Frame) -> ! {
    // SAFETY: the contract; the vectors expect the guest's registers at the top of the stack.
    unsafe { enter(frame, memory::stack_top(core)) }
}

/// Returns to the guest on core `core`, which is the calling core, and whose guest state has stayed
/// on the core. Gives up this stack.
///
/// # Safety
///
/// As for [`guest_frame`].
pub unsafe fn resume_guest(core: CoreId) -> ! {
    // SAFETY: by the contract the guest's registers are there.
    unsafe { resume(frame_of(core)) }
}

/// Stops this core's guest timers, so that no timer of a vCPU that is off interrupts the core.
pub fn stop_timers() {
    sysreg::cntv_ctl_el0::write(0);
    sysreg::cntp_ctl_el0::write(0);
    isb();
}

#[cfg(test)]
mod tests;
