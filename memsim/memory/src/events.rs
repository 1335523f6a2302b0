//! The list of what happens when. Time does not run backwards, in any build.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::units::Picos;

/// Events in the order of their time; those of one time in the order in which they were added.
#[derive(Clone, Debug)]
pub struct Events<E> {
    /// The next event, if it was the first of all when it was added: what is taken soon after does
    /// not go through the heap.
    first: Option<(Picos, u64, E)>,
    heap: BinaryHeap<Reverse<(Picos, u64, E)>>,
    added: u64,
    now: Picos,
}

impl<E: Ord> Default for Events<E> {
    fn default() -> Self {
        Self { first: None, heap: BinaryHeap::new(), added: 0, now: Picos(0) }
    }
}

impl<E: Ord> Events<E> {
    /// Adds an event; one that would lie in the past happens now.
    pub fn add(&mut self, at: Picos, event: E) {
        let event = (at.max(self.now), self.added, event);
        self.added += 1;
        let is_first = match &self.first {
            Some(first) => event < *first,
            None => self.heap.peek().is_none_or(|Reverse(top)| event < *top),
        };
        let later = if is_first { self.first.replace(event) } else { Some(event) };
        self.heap.extend(later.map(Reverse));
    }

    /// When the next event happens.
    #[must_use]
    pub fn next(&self) -> Option<Picos> {
        let next = self.first.as_ref().or_else(|| self.heap.peek().map(|Reverse(top)| top));
        next.map(|(at, ..)| (*at).max(self.now))
    }

    /// Takes the next event if it comes by `until`, and goes on to its time.
    pub fn take(&mut self, until: Picos) -> Option<(Picos, E)> {
        if self.next()? > until {
            return None;
        }
        let (at, _, event) = match self.first.take() {
            Some(first) => first,
            None => self.heap.pop()?.0,
        };
        self.set_now(at);
        Some((self.now, event))
    }

    /// The time that was reached.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Goes on to a time; nothing happens for one in the past.
    pub fn set_now(&mut self, now: Picos) {
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_are_ordered_by_time_then_insertion() {
        let mut events = Events::default();
        events.add(Picos(20), 'a');
        events.add(Picos(10), 'b');
        events.add(Picos(10), 'c');
        assert_eq!(events.take(Picos(9)), None);
        assert_eq!(events.take(Picos(10)), Some((Picos(10), 'b')));
        events.add(Picos(3), 'd');
        assert_eq!(events.take(Picos(30)), Some((Picos(10), 'c')));
        assert_eq!(events.take(Picos(30)), Some((Picos(10), 'd')));
        assert_eq!(events.take(Picos(30)), Some((Picos(20), 'a')));
        assert_eq!(events.take(Picos(30)), None);
    }

    proptest! {
        #[test]
        fn they_come_as_from_a_sorted_list(
            steps in prop::collection::vec((any::<bool>(), 0_u64..20), 1..200),
        ) {
            let mut events = Events::default();
            let mut list: Vec<(Picos, usize)> = Vec::new();
            for (number, (add, at)) in steps.into_iter().enumerate() {
                let at = Picos(at).max(events.now());
                if add {
                    events.add(at, number);
                    list.push((at, number));
                } else {
                    list.sort_unstable();
                    prop_assert_eq!(events.next(), list.first().map(|(at, _)| *at));
                    let due = list.first().is_some_and(|(first, _)| *first <= at);
                    prop_assert_eq!(events.take(at), due.then(|| list.remove(0)));
                }
            }
        }

        #[test]
        fn time_never_runs_backwards(
            steps in prop::collection::vec((0_u8..3, 0_u64..100), 1..200),
        ) {
            let mut events = Events::default();
            let (mut last, mut waiting) = (Picos(0), 0);
            for (number, (what, at)) in steps.into_iter().enumerate() {
                match what {
                    0 => {
                        events.add(Picos(at), number);
                        waiting += 1;
                    }
                    1 => events.set_now(Picos(at)),
                    _ => {
                        if let Some((now, _)) = events.take(Picos(at)) {
                            prop_assert!(now >= last && now <= Picos(at));
                            prop_assert_eq!(now, events.now());
                            waiting -= 1;
                        }
                    }
                }
                prop_assert!(events.now() >= last);
                prop_assert!(events.next().is_none_or(|next| next >= events.now()));
                last = events.now();
            }
            while events.take(Picos(u64::MAX)).is_some() {
                prop_assert!(events.now() >= last);
                last = events.now();
                waiting -= 1;
            }
            prop_assert_eq!(waiting, 0);
        }
    }
}
