//! A queue ordered by deadline.

/// Error: the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    time: u64,
    turn: u64,
    item: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.time, self.turn)
    }
}

/// A queue of at most `N` items, earliest time first; items with equal times keep their order of
/// arrival. It is a binary heap: [`Self::push`] and [`Self::pop`] make at most log2(`N`) + 1
/// comparisons along a path, [`Self::peek`] none.
#[derive(Clone, Debug)]
pub struct Edf<T, const N: usize> {
    entries: [Option<Entry<T>>; N],
    len: usize,
    turn: u64,
}

impl<T: Copy, const N: usize> Default for Edf<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy, const N: usize> Edf<T, N> {
    /// Returns an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: [const { None }; N], len: 0, turn: 0 }
    }

    /// Returns the number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the earliest item with its time.
    #[must_use]
    pub fn peek(&self) -> Option<(u64, T)> {
        let first = self.entries.first()?.as_ref()?;
        Some((first.time, first.item))
    }

    /// Inserts `item` with its time.
    ///
    /// # Errors
    ///
    /// Returns [`Full`] if there are `N` items already.
    pub fn push(&mut self, time: u64, item: T) -> Result<(), Full> {
        let place = self.entries.get_mut(self.len).ok_or(Full)?;
        *place = Some(Entry { time, turn: self.turn, item });
        self.turn += 1;
        self.len += 1;
        let mut at = self.len - 1;
        while at > 0 && self.is_before(at, (at - 1) / 2) {
            self.entries.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        Ok(())
    }

    /// Removes and returns the earliest item with its time.
    #[inline(never)]
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        if last == 0 {
            // The most frequent case is a queue with one item.
            return self.entries.first_mut()?.take().map(|taken| (taken.time, taken.item));
        }
        self.entries.swap(0, last);
        let taken = self.entries.get_mut(last)?.take()?;
        let mut at = 0;
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.len && self.is_before(child, first) {
                    first = child;
                }
            }
            if first == at {
                return Some((taken.time, taken.item));
            }
            self.entries.swap(at, first);
            at = first;
        }
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        let key = |at: usize| self.entries.get(at).and_then(Option::as_ref).map(Entry::key);
        key(a) < key(b)
    }
}
