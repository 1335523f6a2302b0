//! Which VM a core's guest is.

use super::setup::Setup;

/// The VM that runs on each core at EL1 and EL0.
///
/// On a core with one VM it is always that VM, for any page: the flows' broker copies between other
/// VMs' pages. VMs that share a core share no memory, so there the accessed page decides: it is the
/// core's VM that owns the page. For a page that none of them owns, and if no pages were given, it
/// is the VM of the last access, at first the core's first VM.
#[derive(Debug)]
pub(super) struct Guests(Box<[CoreState]>);

#[derive(Clone, Copy, Debug)]
struct CoreState {
    /// The core's VMs, a bit each.
    vms: u64,
    current: Option<usize>,
}

impl Guests {
    /// Before anything ran. VMs are below 64.
    pub(super) fn new(setup: &Setup) -> Self {
        let core_state = |vms: &Vec<usize>| CoreState {
            vms: vms.iter().fold(0, |bits, vm| bits | 1 << vm),
            current: vms.first().copied(),
        };
        Self(setup.cores.iter().map(core_state).collect())
    }

    /// The VM of an access on `core` to a page of `owner`; none on a core without VMs.
    pub(super) fn access(&mut self, core: usize, owner: Option<usize>) -> Option<usize> {
        let core_state = self.0.get_mut(core)?;
        if let Some(vm) = owner.filter(|vm| core_state.vms >> vm & 1 == 1) {
            core_state.current = Some(vm);
        }
        core_state.current
    }

    /// The VM of the last access.
    pub(super) fn current(&self, core: usize) -> Option<usize> {
        self.0.get(core)?.current
    }
}
