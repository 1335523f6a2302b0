//! The trace: each core's ring of records, always on. The host reads the rings in an emulated
//! machine's memory while it runs; a board sends them on request (`console`).

use crate::arch::{sysreg::cntpct_el0, timer};
use weir_abi::MAX_CORES;
pub use weir_trace::record::{Origin, RecordKind, Tag};
use weir_trace::recorder;
use weir_units::CoreId;

/// Records that a ring holds: what a core makes in some tenths of a millisecond when it does
/// nothing else.
const CAPACITY: usize = 2048;

/// A core's ring.
pub type Ring = recorder::TraceRing<CAPACITY>;

/// All rings. `weir run` finds them by this name. The boot has no instructions for zeros in half a
/// MiB that is overwritten: they begin with any contents, until [`clear`].
// SAFETY: words of any value are a valid ring.
#[unsafe(export_name = "weir_trace_rings")]
#[cfg_attr(target_os = "none", unsafe(link_section = ".noinit"))]
static RINGS: [Ring; MAX_CORES] = [const { Ring::new() }; MAX_CORES];

/// The ring of core `core`, which alone writes to it.
#[must_use]
pub fn ring(core: CoreId) -> &'static Ring {
    // Masked, so that no number can reach beyond; cores are below MAX_CORES anyway (`packed`).
    &RINGS[core.index() % MAX_CORES]
}

/// All rings, for a reader.
#[must_use]
pub fn rings() -> &'static [Ring; MAX_CORES] {
    &RINGS
}

/// Empties all rings; on the boot core, before the first record.
pub fn clear() {
    RINGS.iter().for_each(Ring::clear);
}

/// Lets readers know of the calling core's ring.
pub fn begin(core: CoreId) {
    let (frequency, zero) = timer::base();
    ring(core).begin(core.index(), frequency, zero);
}

/// Records something that happens now.
#[inline(always)]
pub fn push(ring: &'static Ring, tag: Tag, count: u64, other: u64) {
    ring.push(cntpct_el0::read(), tag, count, other);
}
