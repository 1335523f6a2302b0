//! What happens in the system, and the tables of what it happens to.

/// Something that happens at a time; numbers are places in the system's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A second-level cache may process its next request.
    Stage(usize),
    /// A transaction reaches the interconnect.
    Enqueue(usize),
    /// A port of the interconnect may pass a line to its channel.
    Grant(usize),
    /// A line's transaction reaches its channel.
    Arrive(usize),
    /// A channel issues commands.
    Dram(usize),
    /// A line's transaction is answered.
    Data(usize),
    /// A core gets a line: core, line.
    Answer(usize, u64),
    /// A DMA engine may make transactions.
    Dma(usize),
}

/// Values under numbers that are used again.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub fn new() -> Self {
        Self { values: vec![], free: vec![] }
    }

    pub fn add(&mut self, value: T) -> usize {
        if let Some(at) = self.free.pop() {
            self.values[at] = Some(value);
            return at;
        }
        self.values.push(Some(value));
        self.values.len() - 1
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        self.values.get(at)?.as_ref()
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.values.get_mut(at)?.as_mut()
    }

    pub fn take(&mut self, at: usize) -> Option<T> {
        let value = self.values.get_mut(at)?.take();
        if value.is_some() {
            self.free.push(at);
        }
        value
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.values.iter().enumerate().filter_map(|(at, value)| Some((at, value.as_ref()?)))
    }

    pub fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_uses_its_numbers_again() {
        let mut slab = Slab::new();
        let (a, b) = (slab.add('a'), slab.add('b'));
        assert_eq!(slab.take(a), Some('a'));
        assert_eq!(slab.take(a), None);
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.add('c'), a);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(a, &'c'), (b, &'b')]);
    }
}
