use super::{Decision, MAX_ENTITIES, MAX_SLOTS, Ready};
use core::num::NonZero;
use weir_units::Nanos;

/// A slot of a time table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The slot's entity.
    pub entity: u8,
    /// Start within the frame.
    pub start: Nanos,
    /// Length of the slot.
    pub length: Nanos,
}

/// A time table that repeats (the major frame of ARINC 653): in each slot only the slot's entity
/// runs. Frames begin at multiples of their length, so that tables with the same frame are
/// synchronized on all cores.
#[derive(Clone, Debug)]
pub struct TimeTable {
    frame: NonZero<u64>,
    slots: [Slot; MAX_SLOTS],
    count: usize,
    /// The entity that took the rest of a slot, the end of that slot, and the priority of the
    /// interrupt.
    taken: Option<(u8, u64, u8)>,
    /// The entity that takes the rest of the current slot next, and the priority of the interrupt.
    preempt: Option<(u8, u8)>,
}

impl TimeTable {
    /// Returns a table of these slots, which must be in order, disjoint and within the frame. Slots
    /// that violate this, and slots beyond [`MAX_SLOTS`], are left out.
    #[must_use]
    pub fn new(frame: Nanos, slots: &[Slot]) -> Self {
        let frame = NonZero::new(frame.0).unwrap_or(NonZero::<u64>::MIN);
        let mut table = Self {
            frame,
            slots: [Slot::default(); MAX_SLOTS],
            count: 0,
            taken: None,
            preempt: None,
        };
        let mut from = 0;
        for slot in slots {
            let end = slot.start.0.checked_add(slot.length.0).filter(|end| *end <= frame.get());
            let (Some(end), Some(place)) = (end, table.slots.get_mut(table.count)) else {
                continue;
            };
            if slot.start.0 >= from && slot.length.0 > 0 && usize::from(slot.entity) < MAX_ENTITIES
            {
                *place = *slot;
                table.count += 1;
                from = end;
            }
        }
        table
    }

    fn slots(&self) -> &[Slot] {
        self.slots.get(..self.count).unwrap_or(&[])
    }

    pub(super) fn step(&mut self, now: Nanos, ready: Ready) -> Decision {
        let at = now.0 % self.frame;
        let begun = self.slots().partition_point(|slot| slot.start.0 <= at);
        let until = |at_end: u64| Nanos((now.0 - at).saturating_add(at_end));
        let current = begun.checked_sub(1).and_then(|place| self.slots().get(place));
        let current = current.filter(|slot| at < slot.start.0 + slot.length.0).copied();
        let preempt = self.preempt.take();
        let Some(slot) = current else {
            // The time is between two slots.
            let next = self.slots().get(begun).map_or(self.frame.get(), |slot| slot.start.0);
            return Decision { run: None, until: until(next) };
        };
        let end = until(slot.start.0 + slot.length.0);
        self.taken = self.taken.filter(|&(_, taken, _)| taken == end.0);
        if let Some((entity, priority)) = preempt {
            self.taken = Some((entity, end.0, priority));
        }
        let taker = self.taken.filter(|&(entity, ..)| ready.has(entity));
        let entity = taker.map_or(slot.entity, |(entity, ..)| entity);
        Decision { run: ready.has(entity).then_some(entity), until: end }
    }

    pub(super) const fn may_take(&self, priority: u8) -> bool {
        let taken = match (self.preempt, self.taken) {
            (Some((_, taken)), _) | (None, Some((.., taken))) => taken,
            (None, None) => u8::MAX,
        };
        taken >= priority
    }

    pub(super) fn preempt(&mut self, entity: u8, priority: u8) {
        self.preempt = Some((entity, priority));
    }
}
