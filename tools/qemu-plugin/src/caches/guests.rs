//! Which VM a core's guest is.

use super::setup::Setup;

/// Who runs on each core at EL1 and EL0.
///
/// On a core with one VM it is that one, whatever it touches: the flows' broker copies between
/// other VMs' pages. VMs that share a core share no memory, so there the page that is touched
/// tells: it is the one of the core's VMs that owns the page. What is nobody's of these, as all is
/// when no pages were told, leaves it at who was there last, or at first at the first one.
#[derive(Debug)]
pub(super) struct Guests(Box<[Seat]>);

#[derive(Clone, Copy, Debug)]
struct Seat {
    /// The core's VMs, a bit each.
    vms: u64,
    current: Option<usize>,
}

impl Guests {
    /// Before anything ran. VMs are below 64.
    pub(super) fn new(setup: &Setup) -> Self {
        let seat = |vms: &Vec<usize>| Seat {
            vms: vms.iter().fold(0, |bits, vm| bits | 1 << vm),
            current: vms.first().copied(),
        };
        Self(setup.cores.iter().map(seat).collect())
    }

    /// Whose an access on `core` is that touches a page of `owner`'s; none on a core without VMs.
    pub(super) fn access(&mut self, core: usize, owner: Option<usize>) -> Option<usize> {
        let seat = self.0.get_mut(core)?;
        if let Some(vm) = owner.filter(|vm| seat.vms >> vm & 1 == 1) {
            seat.current = Some(vm);
        }
        seat.current
    }

    /// Whose the last one was.
    pub(super) fn current(&self, core: usize) -> Option<usize> {
        self.0.get(core)?.current
    }
}
