//! Schedules of shared cores: the check that they can be run, and the scheduler made of each.

use super::{
    FIXED_PRIORITY, LEAST_SLOT_NS, MAX_RULES, MAX_SLOTS, MOST_SLOT_NS, PackedSchedule, ROUND_ROBIN,
    Slot, TIME_TABLE,
};
use crate::{Damage, Features, MAX_CORES, MAX_VMS, PackedSystem};
use weir_sched::scheduler::{self, MAX_ENTITIES, RoundRobin, Scheduler, Servers, TimeTable};
use weir_units::Nanos;

const _: () = assert!(MAX_VMS <= MAX_ENTITIES, "every VM can be on one core");
const _: () = assert!(MAX_SLOTS == scheduler::MAX_SLOTS, "each entry can be a slot");

/// The schedule of a shared core, ready to run.
#[derive(Clone, Debug)]
pub struct ReadySchedule {
    /// The scheduler with its settings.
    pub scheduler: Scheduler,
    /// The VM of each schedulable entity.
    vms: [u8; MAX_VMS],
    count: usize,
}

impl ReadySchedule {
    /// The VM of each schedulable entity, by its index in the system.
    #[must_use]
    pub fn vms(&self) -> &[u8] {
        self.vms.get(..self.count).unwrap_or(&[])
    }

    /// Returns the entity of VM `vm`.
    #[must_use]
    pub fn entity(&self, vm: usize) -> Option<u8> {
        self.vms().iter().position(|its| usize::from(*its) == vm).map(|entity| entity as u8)
    }
}

impl<'a> PackedSystem<'a> {
    /// The schedules.
    #[must_use]
    pub const fn schedules(&self) -> &'a [PackedSchedule] {
        if Features::SHARED_CORES.is_built() { self.schedules } else { &[] }
    }

    /// The entries of a schedule.
    #[must_use]
    pub fn slots(&self, schedule: &PackedSchedule) -> &'a [Slot] {
        crate::table_entries(self.slots, schedule.first_slot, schedule.slots).unwrap_or(&[])
    }

    /// Whether VMs share core `core`.
    #[must_use]
    pub fn is_shared(&self, core: usize) -> bool {
        self.schedules().iter().any(|schedule| schedule.core as usize == core)
    }

    /// Returns the schedule of core `core`, or `None` if at most one vCPU runs there.
    #[must_use]
    pub fn shared(&self, core: usize) -> Option<ReadySchedule> {
        let schedule = self.schedules().iter().find(|schedule| schedule.core as usize == core)?;
        let slots = self.slots(schedule);
        let (mut vms, mut count) = ([0; MAX_VMS], 0);
        let mut table = [scheduler::Slot::default(); MAX_SLOTS];
        let mut lengths = [Nanos(0); MAX_VMS];
        let mut servers = [(Nanos(0), Nanos(0)); MAX_VMS];
        for (slot, its) in slots.iter().zip(&mut table) {
            let known = vms.iter().take(count).position(|its| u32::from(*its) == slot.vm);
            let entity = known.unwrap_or(count);
            *vms.get_mut(entity)? = slot.vm as u8;
            count = count.max(entity + 1);
            let (length, at) = (Nanos(slot.length_ns), Nanos(slot.at_ns));
            *its = scheduler::Slot { entity: entity as u8, start: at, length };
            *lengths.get_mut(entity)? = length;
            *servers.get_mut(entity)? = (length, at);
        }
        let scheduler = match schedule.kind {
            ROUND_ROBIN => Scheduler::RoundRobin(RoundRobin::new(lengths.get(..count)?)),
            TIME_TABLE => Scheduler::Table(TimeTable::new(
                Nanos(schedule.frame_ns),
                table.get(..slots.len())?,
            )),
            FIXED_PRIORITY => Scheduler::Servers(Servers::new(servers.get(..count)?)),
            _ => return None,
        };
        Some(ReadySchedule { scheduler, vms, count })
    }

    /// Upper bound on the time in which VM `vm` is served once on a shared core: a round, a major
    /// frame, or its period. The maximum over all cores that it shares except `core`; 0 if there is
    /// none.
    #[must_use]
    pub fn round(&self, vm: usize, core: usize) -> Nanos {
        let rounds = self.schedules().iter().filter(|schedule| schedule.core as usize != core);
        let rounds = rounds.filter_map(|schedule| {
            let slots = self.slots(schedule);
            let own = slots.iter().find(|slot| slot.vm as usize == vm)?;
            Some(match schedule.kind {
                ROUND_ROBIN => slots.iter().map(|slot| slot.length_ns).sum(),
                TIME_TABLE => schedule.frame_ns,
                _ => own.at_ns,
            })
        });
        Nanos(rounds.max().unwrap_or(0))
    }

    /// Upper bound on the time in which VM `vm`, with one ready vCPU, gets `time` of its core:
    /// `time` on a dedicated core. Each slot counts half its length, because EL2 can take at most
    /// half of it.
    #[must_use]
    pub fn served(&self, vm: usize, time: Nanos) -> Nanos {
        let its = |schedule: &&PackedSchedule| {
            self.slots(schedule).iter().any(|slot| slot.vm as usize == vm)
        };
        let Some(schedule) = self.schedules().iter().find(its) else { return time };
        let own = self.slots(schedule).iter().filter(|slot| slot.vm as usize == vm);
        let each = own.map(|slot| slot.length_ns / 2).fold(0, u64::saturating_add);
        let rounds = time.0.div_ceil(each.max(1)).saturating_add(1);
        // `usize::MAX` is no core, so all cores count.
        Nanos(rounds.saturating_mul(self.round(vm, usize::MAX).0))
    }

    /// Checks that every schedule can be run, and that it names the VMs that share its core.
    pub(crate) fn check_schedules(&self) -> Result<(), Damage> {
        let mut seen = [false; MAX_CORES];
        for schedule in self.schedules() {
            let damage = Damage::Schedule(schedule.core);
            match seen.get_mut(schedule.core as usize) {
                Some(seen) if !*seen && schedule.core < self.header.cores => *seen = true,
                _ => return Err(damage),
            }
            let slots = crate::table_entries(self.slots, schedule.first_slot, schedule.slots);
            let slots =
                slots.filter(|slots| (1..=MAX_SLOTS).contains(&slots.len())).ok_or(damage)?;
            let is_table = schedule.kind == TIME_TABLE;
            let mut end = 0;
            for (place, slot) in slots.iter().enumerate() {
                let vm = self.vms.get(slot.vm as usize).ok_or(damage)?;
                let cores = vm.cores.get(..usize::from(vm.vcpus)).ok_or(damage)?;
                let on_core = cores.iter().any(|core| u32::from(*core) == schedule.core);
                let alone = is_table || slots.iter().take(place).all(|other| other.vm != slot.vm);
                let sound = match schedule.kind {
                    ROUND_ROBIN => slot.at_ns == 0 && schedule.frame_ns == 0,
                    TIME_TABLE => {
                        let begins = slot.at_ns >= end;
                        end = slot.at_ns.saturating_add(slot.length_ns);
                        begins && end <= schedule.frame_ns && schedule.frame_ns <= MOST_SLOT_NS
                    }
                    FIXED_PRIORITY => {
                        slot.length_ns <= slot.at_ns
                            && slot.at_ns <= MOST_SLOT_NS
                            && schedule.frame_ns == 0
                    }
                    _ => false,
                };
                let in_bounds = (LEAST_SLOT_NS..=MOST_SLOT_NS).contains(&slot.length_ns);
                if !(on_core && alone && sound && in_bounds && slot.reserved == 0) {
                    return Err(damage);
                }
            }
            let here = (0..self.vms.len())
                .filter_map(|index| self.vm(index))
                .filter(|vm| vm.cores().iter().any(|core| u32::from(*core) == schedule.core));
            let rules = here.flat_map(|vm| vm.irqs).filter(|irq| irq.has_rule()).count();
            if rules > MAX_RULES {
                return Err(damage);
            }
            let all_named = self.vms.iter().enumerate().all(|(index, vm)| {
                let cores = vm.cores.get(..usize::from(vm.vcpus)).unwrap_or(&[]);
                !cores.iter().any(|core| u32::from(*core) == schedule.core)
                    || slots.iter().any(|slot| slot.vm as usize == index)
            });
            if !all_named {
                return Err(damage);
            }
        }
        Ok(())
    }
}
