use super::{Decision, MAX_ENTITIES, Ready};
use weir_units::Nanos;

/// Round robin with a quantum per entity. An entity that is not ready yields its time slice; an
/// entity that becomes ready waits for its next one.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    quanta: [u64; MAX_ENTITIES],
    /// Time spent on behalf of an entity in time slices of others, and not yet subtracted from its
    /// own.
    owed: [u64; MAX_ENTITIES],
    entities: u8,
    /// The entity of the current or last time slice.
    current: u8,
    /// The end of this time slice; in the past if there is none.
    end: u64,
    /// The priority of the interrupt that took the time slice; [`u8::MAX`] if none did.
    pub(super) taken: u8,
}

impl RoundRobin {
    /// Returns a schedule with time slices of these lengths, one per entity. A quantum of 0 is
    /// treated as 1 ns, and entities beyond [`MAX_ENTITIES`] get none.
    #[must_use]
    pub fn new(quanta: &[Nanos]) -> Self {
        let entities = quanta.len().min(MAX_ENTITIES) as u8;
        let mut own = [0; MAX_ENTITIES];
        for (own, quantum) in own.iter_mut().zip(quanta) {
            *own = quantum.0.max(1);
        }
        // The state at the end of the last time slice, so that the first one begins.
        let current = entities.saturating_sub(1);
        Self { quanta: own, owed: [0; MAX_ENTITIES], entities, current, end: 0, taken: u8::MAX }
    }

    pub(super) fn step(&mut self, now: Nanos, ready: Ready) -> Decision {
        if now.0 < self.end && ready.has(self.current) {
            return Decision { run: Some(self.current), until: Nanos(self.end) };
        }
        self.taken = u8::MAX;
        let mut following = (self.current + 1..self.entities).chain(0..=self.current);
        let next = following.find(|&entity| entity < self.entities && ready.has(entity));
        let Some(next) = next else {
            self.end = 0;
            return Decision { run: None, until: Nanos(u64::MAX) };
        };
        let place = usize::from(next) % MAX_ENTITIES;
        let quantum = self.quanta[place];
        // An entity whose interrupts use more than its time slice still gets half of the slice;
        // otherwise it could never handle them.
        let paid = self.owed[place].min(quantum / 2);
        self.owed[place] -= paid;
        self.current = next;
        self.end = now.0.saturating_add(quantum - paid);
        Decision { run: Some(next), until: Nanos(self.end) }
    }

    pub(super) fn preempt(&mut self, entity: u8, priority: u8) {
        if entity < self.entities {
            self.current = entity;
            self.taken = priority;
        }
    }

    pub(super) fn charge(&mut self, entity: u8, time: Nanos) {
        if entity < self.entities && entity != self.current {
            let owed = &mut self.owed[usize::from(entity) % MAX_ENTITIES];
            *owed = owed.saturating_add(time.0);
            self.end = self.end.saturating_add(time.0);
        }
    }
}
