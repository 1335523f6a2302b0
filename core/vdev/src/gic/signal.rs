//! Decision which pending interrupts a virtual CPU interface signals to its vCPU.
//!
//! Sources: IHI0069H 4.8.2 to 4.8.6 and 12.4.7 (`ICH_VMCR_EL2`), IHI0048B 3.3 and 5.3.7
//! (`GICH_VMCR`); the two registers have these fields in the same places.

/// The state of a virtual CPU interface that determines which pending interrupts it signals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Signaling {
    /// `ICH_VMCR_EL2` or `GICH_VMCR`.
    vmcr: u32,
    /// The active priorities of both groups, one bit per eight priorities.
    active: u32,
}

impl Signaling {
    /// Signals all interrupts that are pending and forwarded. Used for a vCPU that is powered down:
    /// the distributor then requests the core's power for each of them (IHI0069H 11.1).
    pub const ALL: Self = Self { vmcr: 0xff << 24 | 0b11, active: 0 };

    /// Returns an interface with this `ICH_VMCR_EL2` or `GICH_VMCR` and these active priorities,
    /// one bit per eight priorities: `ICH_AP0R0_EL2` and `ICH_AP1R0_EL2` combined, or `GICH_APR`.
    #[must_use]
    pub const fn new(vmcr: u32, active: u32) -> Self {
        Self { vmcr, active }
    }

    /// Returns whether the interface signals a pending interrupt of this priority and group: the
    /// group is enabled, the mask lets the priority pass, and no active interrupt has this group
    /// priority or a higher one.
    #[must_use]
    pub const fn passes(self, priority: u8, group1: bool) -> bool {
        if self.vmcr >> group1 as u32 & 1 == 0 || priority as u32 >= self.vmcr >> 24 {
            return false;
        }
        if self.active == 0 {
            return true;
        }
        let is_common = self.vmcr >> 4 & 1 != 0;
        // The binary point of group 1 splits one bit higher, unless CBPR makes both groups use that
        // of group 0.
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
