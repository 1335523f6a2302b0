use super::{Decision, MAX_PARTIES, Ready};
use weir_units::Nanos;

/// Round robin with a quantum per entity. An entity that is not ready yields its time slice; one
/// that becomes ready waits for its next.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    quanta: [u64; MAX_PARTIES],
    /// Spent on behalf of an entity in time slices of others, and not yet taken off its own.
    owed: [u64; MAX_PARTIES],
    parties: u8,
    /// The entity of the current or last time slice.
    turn: u8,
    /// Its end; past if there is none.
    end: u64,
    /// The priority of the interrupt that took it; [`u8::MAX`] if none did.
    pub(super) taken: u8,
}

impl RoundRobin {
    /// Time slices of these lengths, one per entity; a quantum of 0 is taken for 1 ns, and entities
    /// beyond [`MAX_PARTIES`] get none.
    #[must_use]
    pub fn new(quanta: &[Nanos]) -> Self {
        let parties = quanta.len().min(MAX_PARTIES) as u8;
        let mut own = [0; MAX_PARTIES];
        for (own, quantum) in own.iter_mut().zip(quanta) {
            *own = quantum.0.max(1);
        }
        // As if the last time slice had just ended, so that the first begins.
        let turn = parties.saturating_sub(1);
        Self { quanta: own, owed: [0; MAX_PARTIES], parties, turn, end: 0, taken: u8::MAX }
    }

    pub(super) fn step(&mut self, now: Nanos, ready: Ready) -> Decision {
        if now.0 < self.end && ready.has(self.turn) {
            return Decision { run: Some(self.turn), until: Nanos(self.end) };
        }
        self.taken = u8::MAX;
        let parties = self.parties.max(1);
        let next = (1..=parties)
            .map(|step| (self.turn + step) % parties)
            .find(|&party| party < self.parties && ready.has(party));
        let Some(next) = next else {
            self.end = 0;
            return Decision { run: None, until: Nanos(u64::MAX) };
        };
        let place = usize::from(next) % MAX_PARTIES;
        let quantum = self.quanta[place];
        // An entity with interrupts that take more than its time slice still gets some, or it could
        // never handle them.
        let paid = self.owed[place].min(quantum / 2);
        self.owed[place] -= paid;
        self.turn = next;
        self.end = now.0.saturating_add(quantum - paid);
        Decision { run: Some(next), until: Nanos(self.end) }
    }

    pub(super) fn preempt(&mut self, party: u8, priority: u8) {
        if party < self.parties {
            self.turn = party;
            self.taken = priority;
        }
    }

    pub(super) fn charge(&mut self, party: u8, time: Nanos) {
        if party < self.parties && party != self.turn {
            let owed = &mut self.owed[usize::from(party) % MAX_PARTIES];
            *owed = owed.saturating_add(time.0);
            self.end = self.end.saturating_add(time.0);
        }
    }
}
