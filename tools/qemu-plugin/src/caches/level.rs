//! Whether a core is at EL2, by the blocks of code that it runs.
//!
//! An exception leads to the start of a block and an ERET ends one, so it is enough to observe the
//! start of each block and the hypervisor's ERETs.

/// The result of a block's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// It lies inside of the hypervisor's virtual addresses.
    pub inside: bool,
    /// It is a vector for exceptions of a lower level.
    pub vector: bool,
}

/// Where a core is. It starts at EL2: in firmware, the trampoline, the boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// At EL2 and never in a guest so far. An ERET may lead from one place of the hypervisor to
    /// another.
    #[default]
    Boot,
    /// Behind an ERET of the boot.
    BootReturning,
    /// At EL2.
    El2,
    /// In a guest, even at addresses that the hypervisor uses too.
    Guest,
}

impl Level {
    /// The core begins a block.
    pub fn block(&mut self, Start { inside, vector }: Start) {
        *self = match *self {
            Self::BootReturning if inside && !vector => Self::Boot,
            Self::BootReturning | Self::Guest if !vector => Self::Guest,
            Self::BootReturning | Self::Guest => Self::El2,
            other => other,
        };
    }

    /// The core executes an ERET of the hypervisor.
    pub fn eret(&mut self) {
        *self = match *self {
            Self::Boot => Self::BootReturning,
            Self::El2 => Self::Guest,
            other => other,
        };
    }

    /// Whether it is at EL2.
    #[must_use]
    pub fn is_el2(self) -> bool {
        self != Self::Guest
    }

    /// Whether it was never in a guest.
    #[must_use]
    pub fn is_boot(self) -> bool {
        matches!(self, Self::Boot | Self::BootReturning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTSIDE: Start = Start { inside: false, vector: false };
    const INSIDE: Start = Start { inside: true, vector: false };
    const VECTOR: Start = Start { inside: true, vector: true };

    #[test]
    fn boot_ends_with_the_eret_that_leaves() {
        let mut level = Level::default();
        level.block(OUTSIDE);
        assert!(level.is_boot(), "the trampoline");
        level.eret();
        level.block(INSIDE);
        assert!(level.is_boot(), "an ERET within EL2");
        level.eret();
        level.block(OUTSIDE);
        assert_eq!(level, Level::Guest);
    }

    #[test]
    fn a_guest_at_the_hypervisors_addresses_is_a_guest() {
        let mut level = Level::Guest;
        level.block(INSIDE);
        assert!(!level.is_el2());
        level.block(VECTOR);
        assert!(level.is_el2());
        level.block(INSIDE);
        level.eret();
        level.block(INSIDE);
        assert!(!level.is_el2());
    }

    #[test]
    fn an_interrupt_at_the_eret_enters_again() {
        let mut level = Level::El2;
        level.eret();
        level.block(VECTOR);
        assert!(level.is_el2() && !level.is_boot());
        level = Level::BootReturning;
        level.block(VECTOR);
        assert!(level.is_el2() && !level.is_boot());
    }
}
