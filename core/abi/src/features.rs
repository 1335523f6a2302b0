//! The optional parts of the hypervisor: which parts a system uses, and which a build has.

use super::{ACTIVE, Damage, EXCHANGE, NO_BROKER, NO_ENGINE, PackedSystem, Regulation};

/// A set of optional parts of the hypervisor. `weir build` leaves out the parts that a system does
/// not use. Their code is compiled, but begins with a check of [`Self::is_built`], a constant; so
/// no other code calls the rest of it, and the linker drops it. Without page classes, the single
/// class of all pages replaces them (`weir_paging::classes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u16);

impl Features {
    /// No optional part.
    pub const NONE: Self = Self(0);
    /// Flows and the switch: virtio devices, EL2's side of the broker, its DMA engine.
    pub const BROKER: Self = Self(1);
    /// PCI functions and the SMMU, and socket devices on PCI.
    pub const PCI: Self = Self(1 << 1);
    /// Schedules of cores that VMs share, and devices that are handed over between VMs.
    pub const SHARED_CORES: Self = Self(1 << 2);
    /// Memory budgets, and event counters for VMs.
    pub const BUDGETS: Self = Self(1 << 3);
    /// Memory that is divided by cache colors and DRAM banks.
    pub const PAGE_CLASSES: Self = Self(1 << 4);
    /// All parts.
    pub const ALL: Self = Self((1 << Self::NAMES.len()) - 1);
    /// The parts of this build.
    pub const BUILT: Self = Self::NONE
        .with(Self::BROKER.when(cfg!(feature = "broker")))
        .with(Self::PCI.when(cfg!(feature = "pci")))
        .with(Self::SHARED_CORES.when(cfg!(feature = "shared-cores")))
        .with(Self::BUDGETS.when(cfg!(feature = "budgets")))
        .with(Self::PAGE_CLASSES.when(cfg!(feature = "page-classes")));

    /// The names of the parts, those of the hypervisor's cargo features, from bit 0 on.
    pub const NAMES: [&str; 5] = ["broker", "pci", "shared-cores", "budgets", "page-classes"];

    /// Returns whether this build has these parts.
    #[inline]
    #[must_use]
    pub const fn is_built(self) -> bool {
        Self::BUILT.has(self)
    }

    /// Returns this set with the parts of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set if `used` is true, otherwise the empty set.
    #[must_use]
    pub const fn when(self, used: bool) -> Self {
        if used { self } else { Self::NONE }
    }

    /// Returns whether all parts of `other` are in this set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the names of the parts in this set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMES.into_iter().enumerate();
        named.filter(move |(bit, _)| self.0 >> bit & 1 != 0).map(|(_, name)| name)
    }
}

impl PackedSystem<'_> {
    /// Returns the parts that this system uses. For a part that is not in the set, the tables
    /// contain nothing to check.
    #[must_use]
    pub fn used(&self) -> Features {
        let header = self.header;
        let has_exchange = self.regions.iter().any(|region| region.kind == EXCHANGE);
        let has_broker = header.broker != NO_BROKER || header.engine_from != NO_ENGINE;
        let shares = !self.schedules.is_empty() || !self.slots.is_empty();
        let hands_over = self.regions.iter().any(|region| region.kind == ACTIVE)
            || self.irqs.iter().any(|irq| irq.active != 0);
        let mut used = Features::BROKER
            .when(!self.flows.is_empty() || has_broker || has_exchange)
            .with(Features::PCI.when(!self.pci.is_empty()))
            .with(Features::SHARED_CORES.when(shares || hands_over))
            .with(Features::PAGE_CLASSES.when(header.colored != 0));
        for vm in self.vms {
            let counts = vm.regulation != Regulation::default() || vm.pmu != 0;
            used = used
                .with(Features::BROKER.when(vm.vsock != 0 || vm.net.is_there()))
                .with(Features::PCI.when(vm.vsock_ecam != 0))
                .with(Features::BUDGETS.when(counts))
                .with(Features::SHARED_CORES.when(vm.focus != 0));
        }
        used
    }

    /// Refuses a system that uses a part that is not in `built`.
    pub(super) fn check_features(&self, built: Features) -> Result<(), Damage> {
        let missing = Features(self.used().0 & !built.0);
        missing.names().next().map_or(Ok(()), |name| Err(Damage::Feature(name)))
    }
}
