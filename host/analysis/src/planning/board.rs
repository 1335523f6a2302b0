//! Colors and banks of a board that can be divided among VMs.

use toml_edit::{DocumentMut, Item, TableLike};
use weir_model::{System, Vm};
use weir_paging::classes::PageClasses;

/// Colors and banks of a board, for VMs that need a part of the cache of their own.
#[derive(Clone, Debug)]
pub struct BoardClasses {
    pub colors: u32,
    pub color_bytes: u64,
    /// Banks, if they can be chosen independently of colors.
    pub banks: Option<u32>,
    /// RAM in bytes of one color, and of one bank.
    behind: (u64, u64),
}

impl BoardClasses {
    /// Returns none if no VM has a `working_set`, if the file assigns colors, or if the cache is
    /// not known.
    pub fn of(system: &System, text: &str) -> Option<Self> {
        let document: DocumentMut = text.parse().ok()?;
        let says = |table: &dyn TableLike| {
            let given = |key: &str| table.get(key).is_some_and(|key| key.as_str() != Some("auto"));
            given("colors") || given("banks")
        };
        let vms = document.get("vm").and_then(Item::as_array_of_tables)?;
        let hypervisor = document.get("hypervisor").and_then(Item::as_table_like);
        if vms.iter().any(|vm| says(vm)) || hypervisor.is_some_and(says) {
            return None;
        }
        if system.guests().iter().all(|vm| vm.working_set.is_none()) {
            return None;
        }
        let platform = system.platform.as_ref()?;
        let cache = platform.places.cache?;
        let name = document.get("dram").and_then(Item::as_str);
        let map =
            name.and_then(|name| platform.places.dram.iter().position(|map| map.name == name));
        let classes = PageClasses::new(&platform.places.geometry(map.unwrap_or(0))).ok()?;
        let (colors, banks) = (u32::from(classes.colors()), u32::from(classes.bank_groups()));
        let independent =
            banks > 1 && classes.count() as u64 == u64::from(colors) * u64::from(banks);
        // Without best effort, a part must be left for the hypervisor.
        let reserve = u32::from(system.guests().iter().all(|vm| !is_best_effort(vm)));
        let ram: u64 = platform.pools().iter().map(|pool| pool.end - pool.start).sum();
        Some(Self {
            colors: colors.checked_sub(reserve).filter(|colors| *colors > 0)?,
            color_bytes: cache.size.0 / u64::from(colors),
            banks: independent.then_some(banks - reserve),
            behind: (ram / u64::from(colors), ram / u64::from(banks)),
        })
    }

    /// Returns the same board with nothing but colors to choose.
    pub fn colors_only(&self) -> Option<Self> {
        self.banks.is_some().then(|| Self { banks: None, ..self.clone() })
    }

    /// Returns the RAM of one color or, if banks are chosen, of one bank.
    pub fn piece(&self) -> u64 {
        let (color, bank) = self.behind;
        (if self.banks.is_some() { bank } else { color }).max(1)
    }

    /// Returns the colors that a VM's working set needs.
    fn needed(&self, vm: &Vm) -> u64 {
        vm.working_set.map_or(0, |set| set.0.div_ceil(self.color_bytes.max(1))).max(1)
    }

    /// Returns the colors that are left for best effort.
    pub fn left(&self, vms: &[Vm]) -> u64 {
        let own = vms.iter().filter(|vm| !is_best_effort(vm)).map(|vm| self.needed(vm));
        u64::from(self.colors).saturating_sub(own.fold(0, u64::saturating_add))
    }

    /// Returns a VM's memory in bytes of whole banks: a VM has only that part of a bank that lies
    /// in its colors. `left` colors belong to best effort.
    pub fn memory(&self, vm: &Vm, left: u64) -> u64 {
        let memory = vm.memory.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.size.0));
        if self.banks.is_none() {
            return memory;
        }
        let own = if is_best_effort(vm) { left.max(1) } else { self.needed(vm) };
        let scaled = u128::from(memory) * u128::from(self.colors) / u128::from(own);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

/// Returns whether a VM is best effort: it is not critical, requires no bandwidth and has no tasks.
pub fn is_best_effort(vm: &Vm) -> bool {
    let required = vm.memory_budget.as_ref().and_then(|bandwidth| bandwidth.required);
    vm.criticality == 0 && required.is_none() && vm.tasks.is_empty()
}
