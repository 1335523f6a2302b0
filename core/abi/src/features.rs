//! The optional parts of the hypervisor: which a system uses, and which a build has.

use super::{ACTIVE, Damage, NO_BROKER, NO_ENGINE, PARTITION, PackedSystem, Regulation};

/// A set of optional parts of the hypervisor. `weir build` leaves out those that a system does not
/// use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u16);

impl Features {
    /// No optional part.
    pub const NONE: Self = Self(0);
    /// Flows: virtio sockets, and the broker's counterpart at EL2.
    pub const FLOWS: Self = Self(1);
    /// The switch: virtio network devices.
    pub const SWITCH: Self = Self(1 << 1);
    /// PCI functions and the SMMU, and socket devices on PCI.
    pub const PCI: Self = Self(1 << 2);
    /// Schedules of cores that VMs share.
    pub const SHARED_CORES: Self = Self(1 << 3);
    /// Memory budgets.
    pub const BUDGETS: Self = Self(1 << 4);
    /// Event counters for VMs.
    pub const GUEST_PMU: Self = Self(1 << 5);
    /// The broker's DMA engine.
    pub const ENGINE: Self = Self(1 << 6);
    /// Memory that is divided by cache colors and DRAM banks.
    pub const PAGE_CLASSES: Self = Self(1 << 7);
    /// Devices and a console that VMs hand over.
    pub const FOCUS: Self = Self(1 << 8);
    /// All parts.
    pub const ALL: Self = Self((1 << Self::NAMES.len()) - 1);

    /// The names of the parts, those of the hypervisor's cargo features, from bit 0 on.
    pub const NAMES: [&str; 9] = [
        "flows",
        "switch",
        "pci",
        "shared-cores",
        "budgets",
        "guest-pmu",
        "engine",
        "page-classes",
        "focus",
    ];

    /// Returns this set with the parts of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set if `used`, else the empty one.
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
    /// Returns the parts that this system uses. A part that is not in the set has nothing to check
    /// in the tables.
    #[must_use]
    pub fn used(&self) -> Features {
        let header = self.header;
        let partition = self.regions.iter().any(|region| region.kind == PARTITION);
        // A broker serves flows, unless it has a switch to serve.
        let has_switch = self.vms.iter().any(|vm| vm.net.is_there());
        let has_broker = (header.broker != NO_BROKER || partition) && !has_switch;
        let shares = !self.schedules.is_empty() || !self.slots.is_empty();
        let mut used = Features::FLOWS
            .when(!self.flows.is_empty() || has_broker)
            .with(Features::ENGINE.when(header.engine_from != NO_ENGINE))
            .with(Features::PCI.when(!self.pci.is_empty()))
            .with(Features::SHARED_CORES.when(shares))
            .with(Features::PAGE_CLASSES.when(header.colored != 0))
            .with(Features::FOCUS.when(self.regions.iter().any(|region| region.kind == ACTIVE)))
            .with(Features::FOCUS.when(self.irqs.iter().any(|irq| irq.active != 0)));
        for vm in self.vms {
            used = used
                .with(Features::FLOWS.when(vm.vsock != 0))
                .with(Features::PCI.when(vm.vsock_ecam != 0))
                .with(Features::SWITCH.when(vm.net.is_there()))
                .with(Features::BUDGETS.when(vm.regulation != Regulation::default()))
                .with(Features::GUEST_PMU.when(vm.pmu != 0))
                .with(Features::FOCUS.when(vm.focus != 0));
        }
        used
    }

    /// Refuses a system that uses a part that is not in `built`.
    pub(super) fn check_features(&self, built: Features) -> Result<(), Damage> {
        let missing = Features(self.used().0 & !built.0);
        missing.names().next().map_or(Ok(()), |name| Err(Damage::Feature(name)))
    }
}
