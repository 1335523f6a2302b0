//! Marks in the trace: activations of tasks, and sections of the program.
//!
//! A mark is a hypercall, and its cost is the VM's. Without weir it has no effect.

use crate::hypercall::{self, call};

/// The first eight bytes of a name, as marks have it.
const fn name(text: &str) -> u64 {
    let (text, mut word, mut at) = (text.as_bytes(), 0, 0);
    while at < text.len() && at < 8 {
        word |= (text[at] as u64) << (8 * at);
        at += 1;
    }
    word
}

fn mark(point: u64, [name, time]: [u64; 2]) {
    // Without weir there is no such call, and nothing that would have to know of it.
    let _ = call(hypercall::MARK, [point, name, time]);
}

/// A task of this VM in the system file. A run judges its response times by these marks.
#[derive(Clone, Copy, Debug)]
pub struct Task(u64);

impl Task {
    /// The task with this name, of which the first eight bytes count.
    #[must_use]
    pub const fn new(text: &str) -> Self {
        Self(name(text))
    }

    /// Marks that an activation of the task begins, which was released at `release`, in ticks of
    /// the virtual counter. `skipped` further releases have passed since the last activation and
    /// get none of their own.
    #[inline(always)]
    pub fn release(self, release: u64, skipped: u64) {
        mark(1 | skipped << 32, [self.0, release]);
    }

    /// Marks that the activation is complete.
    #[inline(always)]
    pub fn complete(self) {
        mark(2, [self.0, 0]);
    }
}

/// A section of the program, which the trace shows as a slice.
#[derive(Clone, Copy, Debug)]
pub struct Section(u64);

impl Section {
    /// The section with this name, of which the first eight bytes are shown.
    #[must_use]
    pub const fn new(text: &str) -> Self {
        Self(name(text))
    }

    /// Marks that the section begins.
    #[inline(always)]
    pub fn begin(self) {
        mark(3, [self.0, 0]);
    }

    /// Marks that the section ends.
    #[inline(always)]
    pub fn end(self) {
        mark(4, [self.0, 0]);
    }
}
