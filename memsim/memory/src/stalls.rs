//! The stalls of cores that an emulator runs: a [`MemorySystem`] for programs that are executed
//! and not modeled.
//!
//! A core is in-order. A load waits for its data, so a core has one load on its way. A store goes
//! into the store buffer, and the core continues; it waits if as many of its lines are on their way
//! as it can have. A hit in the first level costs nothing in addition to its instruction.
//!
//! The emulator asks [`Stalls::hit`] at any time. It passes on a miss with [`Stalls::request`] in
//! the order of time, after [`Stalls::advance`] to this time.

use crate::{
    hierarchy::Access,
    system::{Answer, Issue, MemorySystem},
    units::{Owner, Pa, Picos},
};
use core::ops::RangeInclusive;

/// Bytes of a line: those of each memory file.
const LINE: u64 = 64;

/// The end of a core's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// The answer to this load.
    Answer(u64),
    /// Any answer, after which a refused access is tried again.
    Any,
}

/// A core may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// The core.
    pub core: usize,
    /// The time, in ns, rounded up.
    pub at: u64,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// The core continues.
    Continue,
    /// The core continues when [`Stalls::advance`] returns it.
    Wait,
    /// As `Wait`, and then the core makes the request again.
    Retry,
}

/// The memory of emulated cores. See the [module](self).
#[derive(Clone, Debug)]
pub struct Stalls {
    system: MemorySystem,
    waits: Box<[Option<Until>]>,
    tokens: u64,
}

impl Stalls {
    /// Cores of an idle memory system, which must have as many owners as cores.
    ///
    /// # Panics
    ///
    /// If its lines do not have 64 bytes.
    #[must_use]
    pub fn new(system: MemorySystem, cores: usize) -> Self {
        assert_eq!(system.line_bytes(), LINE, "bytes of a line");
        Self { system, waits: vec![None; cores].into(), tokens: 0 }
    }

    /// Returns the addresses of an access, one in each line that it touches: at least one, and at
    /// most as many as a page has lines.
    pub fn lines(pa: u64, bytes: u64) -> impl Iterator<Item = Pa> {
        let last = pa.saturating_add(bytes.clamp(1, 4096) - 1);
        let lines: RangeInclusive<u64> = pa / LINE..=last / LINE;
        lines.map(|line| Pa(line * LINE))
    }

    fn owner(core: usize) -> Owner {
        Owner(u8::try_from(core).unwrap_or(u8::MAX))
    }

    fn kind(write: bool) -> Access {
        if write { Access::Write } else { Access::Read }
    }

    /// Uses a line if the first level has it. Returns whether it has it; if not, the core must make
    /// a request.
    ///
    /// # Panics
    ///
    /// If there is no such core.
    #[inline]
    pub fn hit(&mut self, core: usize, write: bool, pa: Pa) -> bool {
        self.system.hit(core, Self::owner(core), Self::kind(write), pa)
    }

    /// Asks for a line at the time `now`, in ns. A time before the last one counts as that: a core
    /// that waited for a lock of the emulator is behind.
    ///
    /// # Panics
    ///
    /// If there is no such core.
    pub fn request(&mut self, core: usize, write: bool, pa: Pa, now: u64) -> Requested {
        let now = Picos::from_nanos(now).max(self.system.now());
        let (owner, access) = (Self::owner(core), Self::kind(write));
        self.tokens += 1;
        match self.system.issue(core, owner, access, pa, self.tokens, now) {
            Issue::Hit(_) => Requested::Continue,
            Issue::Pending if write => Requested::Continue,
            Issue::Pending => {
                self.waits[core] = Some(Until::Answer(self.tokens));
                Requested::Wait
            }
            Issue::Refused => {
                self.waits[core] = Some(Until::Any);
                Requested::Retry
            }
        }
    }

    /// Returns the first time in ns at which a core that waits may continue; none if no core waits.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let waits = self.waits.iter().any(Option::is_some);
        self.system.next_event().filter(|_| waits).map(|at| at.0.div_ceil(1000))
    }

    /// Lets time go on to `until`, in ns, or to the first time at which cores may continue, and adds
    /// these to `woken`. Returns whether there are any.
    pub fn advance(&mut self, until: u64, woken: &mut Vec<Woken>) -> bool {
        let until = Picos(until.saturating_mul(1000));
        let waits = &mut self.waits;
        let before = woken.len();
        while let Some(event) = self.system.next_event().filter(|event| *event <= until) {
            self.system.advance(event, &mut |answer| {
                let Answer::Core { core, token, at, .. } = answer else { return };
                let ends = match waits[core] {
                    Some(Until::Answer(of)) => of == token,
                    Some(Until::Any) => true,
                    None => false,
                };
                if ends {
                    waits[core] = None;
                    woken.push(Woken { core, at: at.0.div_ceil(1000) });
                }
            });
            if woken.len() > before {
                return true;
            }
        }
        false
    }
}
