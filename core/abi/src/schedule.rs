//! The schedule of a shared core, packed.

use crate::{Damage, MAX_CORES, MAX_VMS, PackedSystem};
use weir_sched::partition::MAX_ENTITIES;
use weir_sched::partition::MAX_SLOTS;
use weir_sched::partition::PartitionSchedule;
use weir_sched::partition::RoundRobin;
use weir_sched::partition::Servers;
use weir_sched::partition::Slot;
use weir_sched::partition::TimeTable;
use weir_units::Nanos;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The shortest time slice, slot or budget, in ns. A shorter one would leave the guests nothing.
pub const LEAST_TURN_NS: u64 = 10_000;
/// The longest, and the longest frame or period, in ns: half an hour.
pub const MOST_TURN_NS: u64 = 1 << 41;
/// The most entries of a schedule: the slots of a time table.
pub const MAX_TURNS: usize = MAX_SLOTS;

/// The most interrupts with a rule on a shared core.
pub const MAX_RULES: usize = 16;

const _: () = assert!(MAX_VMS <= MAX_ENTITIES, "every VM can be on one core");

/// The schedule of a core. A core without one runs at most one vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PackedSchedule {
    /// The core.
    pub core: u32,
    /// One of [`ROUND_ROBIN`], [`TIME_TABLE`], [`FIXED_PRIORITY`].
    pub kind: u32,
    /// After so many ns a time table repeats; else 0.
    pub frame_ns: u64,
    /// First entry in the table of entries.
    pub first_turn: u32,
    /// Number of entries.
    pub turns: u32,
}

/// An entry of a schedule: a time slice, a slot, or a server; servers by falling priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Turn {
    /// The VM, by its place in the system.
    pub vm: u32,
    /// Zero.
    pub reserved: u32,
    /// Its length: the quantum, the slot, or the budget, in ns.
    pub length_ns: u64,
    /// The slot's start in the frame, or the budget's period, in ns; in a round 0.
    pub at_ns: u64,
}

/// [`PackedSchedule::kind`]: round robin.
pub const ROUND_ROBIN: u32 = 0;
/// [`PackedSchedule::kind`]: a time table.
pub const TIME_TABLE: u32 = 1;
/// [`PackedSchedule::kind`]: budgets by falling priority.
pub const FIXED_PRIORITY: u32 = 2;

/// [`crate::PackedVm::ticks`]: a timer that fell due while its vCPU was off the core stays due
/// since then.
pub const KEEP_TICKS: u8 = 0;
/// [`crate::PackedVm::ticks`]: it is due from the moment on at which the vCPU gets the core.
pub const LOSE_TICKS: u8 = 1;

/// A core's schedule, ready to run.
#[derive(Clone, Debug)]
pub struct ReadySchedule {
    /// The schedule.
    pub partition: PartitionSchedule,
    /// The VM of each of its entities.
    vms: [u8; MAX_VMS],
    count: usize,
}

impl ReadySchedule {
    /// The VM of each schedulable entity, by its index in the system.
    #[must_use]
    pub fn vms(&self) -> &[u8] {
        self.vms.get(..self.count).unwrap_or(&[])
    }

    /// The entity of VM `vm`.
    #[must_use]
    pub fn entity(&self, vm: usize) -> Option<u8> {
        self.vms().iter().position(|its| usize::from(*its) == vm).map(|entity| entity as u8)
    }
}

impl<'a> PackedSystem<'a> {
    /// The schedules.
    #[must_use]
    pub const fn schedules(&self) -> &'a [PackedSchedule] {
        self.schedules
    }

    /// The entries of a schedule.
    #[must_use]
    pub fn turns(&self, schedule: &PackedSchedule) -> &'a [Turn] {
        crate::part(self.turns, schedule.first_turn, schedule.turns).unwrap_or(&[])
    }

    /// Whether VMs share core `core`.
    #[must_use]
    pub fn is_shared(&self, core: usize) -> bool {
        self.schedules.iter().any(|schedule| schedule.core as usize == core)
    }

    /// The schedule of core `core`; none if at most one vCPU runs there.
    #[must_use]
    pub fn shared(&self, core: usize) -> Option<ReadySchedule> {
        let schedule = self.schedules.iter().find(|schedule| schedule.core as usize == core)?;
        let turns = self.turns(schedule);
        let (mut vms, mut count) = ([0; MAX_VMS], 0);
        let mut slots = [Slot::default(); MAX_SLOTS];
        let mut lengths = [Nanos(0); MAX_VMS];
        let mut servers = [(Nanos(0), Nanos(0)); MAX_VMS];
        for (turn, slot) in turns.iter().zip(&mut slots) {
            let known = vms.iter().take(count).position(|its| u32::from(*its) == turn.vm);
            let entity = known.unwrap_or(count);
            *vms.get_mut(entity)? = turn.vm as u8;
            count = count.max(entity + 1);
            let (length, at) = (Nanos(turn.length_ns), Nanos(turn.at_ns));
            *slot = Slot { entity: entity as u8, start: at, length };
            *lengths.get_mut(entity)? = length;
            *servers.get_mut(entity)? = (length, at);
        }
        let partition = match schedule.kind {
            ROUND_ROBIN => PartitionSchedule::RoundRobin(RoundRobin::new(lengths.get(..count)?)),
            TIME_TABLE => PartitionSchedule::Table(TimeTable::new(
                Nanos(schedule.frame_ns),
                slots.get(..turns.len())?,
            )),
            FIXED_PRIORITY => PartitionSchedule::Servers(Servers::new(servers.get(..count)?)),
            _ => return None,
        };
        Some(ReadySchedule { partition, vms, count })
    }

    /// Upper bound on the time in which VM `vm` is served once on a shared core: a round, a major
    /// frame, or its period. The maximum over all cores that it shares except `core`; 0 if there is
    /// none.
    #[must_use]
    pub fn round(&self, vm: usize, core: usize) -> Nanos {
        let rounds = self.schedules.iter().filter(|schedule| schedule.core as usize != core);
        let rounds = rounds.filter_map(|schedule| {
            let turns = self.turns(schedule);
            let own = turns.iter().find(|turn| turn.vm as usize == vm)?;
            Some(match schedule.kind {
                ROUND_ROBIN => turns.iter().map(|turn| turn.length_ns).sum(),
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
            self.turns(schedule).iter().any(|turn| turn.vm as usize == vm)
        };
        let Some(schedule) = self.schedules.iter().find(its) else { return time };
        let own = self.turns(schedule).iter().filter(|turn| turn.vm as usize == vm);
        let each = own.map(|turn| turn.length_ns / 2).fold(0, u64::saturating_add);
        let rounds = time.0.div_ceil(each.max(1)).saturating_add(1);
        // No core is left out.
        Nanos(rounds.saturating_mul(self.round(vm, usize::MAX).0))
    }

    /// Every schedule can be run, and the VMs that share a core are those of its schedule.
    pub(super) fn check_schedules(&self) -> Result<(), Damage> {
        let mut seen = [false; MAX_CORES];
        for schedule in self.schedules {
            let damage = Damage::Schedule(schedule.core);
            match seen.get_mut(schedule.core as usize) {
                Some(seen) if !*seen && schedule.core < self.header.cores => *seen = true,
                _ => return Err(damage),
            }
            let turns = crate::part(self.turns, schedule.first_turn, schedule.turns);
            let turns =
                turns.filter(|turns| (1..=MAX_TURNS).contains(&turns.len())).ok_or(damage)?;
            let is_table = schedule.kind == TIME_TABLE;
            let mut end = 0;
            for (place, turn) in turns.iter().enumerate() {
                let vm = self.vms.get(turn.vm as usize).ok_or(damage)?;
                let cores = vm.cores.get(..usize::from(vm.vcpus)).ok_or(damage)?;
                let on_core = cores.iter().any(|core| u32::from(*core) == schedule.core);
                let alone = is_table || turns.iter().take(place).all(|other| other.vm != turn.vm);
                let sound = match schedule.kind {
                    ROUND_ROBIN => turn.at_ns == 0 && schedule.frame_ns == 0,
                    TIME_TABLE => {
                        let begins = turn.at_ns >= end;
                        end = turn.at_ns.saturating_add(turn.length_ns);
                        begins && end <= schedule.frame_ns && schedule.frame_ns <= MOST_TURN_NS
                    }
                    FIXED_PRIORITY => {
                        turn.length_ns <= turn.at_ns
                            && turn.at_ns <= MOST_TURN_NS
                            && schedule.frame_ns == 0
                    }
                    _ => false,
                };
                let in_bounds = (LEAST_TURN_NS..=MOST_TURN_NS).contains(&turn.length_ns);
                if !(on_core && alone && sound && in_bounds && turn.reserved == 0) {
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
            let all_named = (0..self.vms.len()).all(|index| {
                let vm = &self.vms[index];
                let cores = vm.cores.get(..usize::from(vm.vcpus)).unwrap_or(&[]);
                !cores.iter().any(|core| u32::from(*core) == schedule.core)
                    || turns.iter().any(|turn| turn.vm as usize == index)
            });
            if !all_named {
                return Err(damage);
            }
        }
        Ok(())
    }
}
