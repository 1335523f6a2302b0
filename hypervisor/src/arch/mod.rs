//! The registers, instructions and tables of Armv8-A. The pure crates of `core/` make the
//! decisions; this module reads, writes and orders accesses, through `machine`, which has two
//! backends.

pub mod cache;
pub mod context;
pub mod ecam;
pub mod engine;
pub mod gic;
pub mod lock;
pub mod machine;
pub mod memory;
pub mod mmio;
pub mod pmu;
pub mod psci;
pub mod serror;
pub mod set_once;
pub mod smmu;
pub mod sysreg;
pub mod timer;

pub use machine::{crc32, opaque_zero, relax, wait_for_interrupt};

/// The general registers of a guest, as the exception vectors store them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Frame {
    /// x0 to x30.
    pub x: [u64; 31],
    padding: u64,
}

const _: () = assert!(size_of::<Frame>() == 256, "vectors.s reserves 256 bytes");

impl Frame {
    /// Returns a frame that is all zero but x0.
    #[must_use]
    pub const fn new(x0: u64) -> Self {
        let mut x = [0; 31];
        x[0] = x0;
        Self { x, padding: 0 }
    }

    /// Returns register `n` as an operand; 31 is the zero register.
    #[must_use]
    pub fn get(&self, n: u8) -> u64 {
        self.x.get(usize::from(n)).copied().unwrap_or(0)
    }

    /// Writes register `n`; 31 is the zero register.
    pub fn set(&mut self, n: u8, value: u64) {
        if let Some(x) = self.x.get_mut(usize::from(n)) {
            *x = value;
        }
    }
}

/// Executes marker `N` (32 to 47), an unallocated hint and so a NOP (DDI0487, C6.2 HINT). An
/// instruction counter outside of the machine uses it to recognize a place in the code; the numbers
/// are those of `weir-qemu-plugin`'s `path`.
#[inline(always)]
pub fn mark<const N: u32>() {
    const { assert!(N >= 32 && N < 48, "guests have the other markers") };
    machine::mark::<N>();
}

macro_rules! instructions {
    ($($(#[$doc:meta])* $name:ident = $asm:literal;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() {
            machine::execute!($asm);
        }
    )*};
}

instructions! {
    /// Makes earlier writes to system registers effective for the instructions that follow.
    isb = "isb";
    /// Completes all earlier memory accesses and maintenance.
    dsb_sy = "dsb sy";
    /// Completes all earlier memory accesses and maintenance in the inner shareable domain.
    dsb_ish = "dsb ish";
    /// Orders earlier stores, to Normal memory and to devices, before later accesses and system
    /// register writes, for all observers of the inner shareable domain.
    dsb_ishst = "dsb ishst";
    /// Completes all earlier accesses and maintenance, for this core.
    dsb_nsh = "dsb nsh";
    /// Orders earlier stores before later accesses, for this core.
    dsb_nshst = "dsb nshst";
    /// Ends the wait of cores in WFE.
    send_event = "sev";
    /// Invalidates the translations of EL2 in this core's TLB.
    tlbi_el2 = "tlbi alle2";
    /// Invalidates the translations of the VM in VTTBR_EL2, of both stages, in this core's TLB.
    tlbi_vm = "tlbi vmalls12e1";
    /// Invalidates the translations of the VM in VTTBR_EL2, of both stages, in all TLBs of the
    /// inner shareable domain.
    tlbi_vm_everywhere = "tlbi vmalls12e1is";
    /// Invalidates the instruction caches of the inner shareable domain.
    ic_all = "ic ialluis";
}
