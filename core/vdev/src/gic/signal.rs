//! Which pending interrupts a virtual CPU interface signals to its vCPU.
//!
//! Sources: IHI0069H 4.8.2 to 4.8.6 and 12.4.7 (`ICH_VMCR_EL2`), IHI0048B 3.3 and 5.3.7
//! (`GICH_VMCR`); the two registers have these fields in the same places.

/// A virtual CPU interface, as far as it decides which pending interrupts are signaled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Signaling {
    /// `ICH_VMCR_EL2` or `GICH_VMCR`.
    vmcr: u32,
    /// The active priorities of both groups, one bit for each eight.
    active: u32,
}

impl Signaling {
    /// All that are pending and forwarded: of a vCPU that is powered down, as the distributor then
    /// asks for its core's power (IHI0069H 11.1).
    pub const ALL: Self = Self { vmcr: 0xff << 24 | 0b11, active: 0 };

    /// An interface with this `ICH_VMCR_EL2` or `GICH_VMCR`, and with these active priorities, one
    /// bit for each eight: `ICH_AP0R0_EL2` and `ICH_AP1R0_EL2` together, or `GICH_APR`.
    #[must_use]
    pub const fn new(vmcr: u32, active: u32) -> Self {
        Self { vmcr, active }
    }

    /// Whether it signals a pending interrupt of this priority and group: the group is on, the mask
    /// lets the priority pass, and no active interrupt of this group priority or a higher one runs.
    #[must_use]
    pub const fn passes(self, priority: u8, group1: bool) -> bool {
        if self.vmcr >> group1 as u32 & 1 == 0 || priority as u32 >= self.vmcr >> 24 {
            return false;
        }
        if self.active == 0 {
            return true;
        }
        let is_common = self.vmcr >> 4 & 1 != 0;
        // The binary point of group 1 splits one bit further up, unless CBPR says that both have
        // that of group 0.
        let point = if group1 && !is_common {
            (self.vmcr >> 18 & 7).saturating_sub(1)
        } else {
            self.vmcr >> 21 & 7
        };
        let group = !0 << (point + 1);
        let running = self.active.trailing_zeros() << 3;
        (priority as u32 & group) < (running & group)
    }
}
