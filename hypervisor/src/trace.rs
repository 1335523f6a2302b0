//! The trace: each core's ring of records, which is always on. The host reads the rings of an
//! emulated machine in its memory while it runs; a board sends them on request (`console`).

use crate::arch::{sysreg::cntpct_el0, timer};
use weir_abi::MAX_CORES;
pub use weir_trace::record::{Origin, RecordKind, Tag};
use weir_trace::recorder;
use weir_units::CoreId;

/// Number of records in a ring: as many as a core produces in some tenths of a millisecond if it
/// does nothing else.
const CAPACITY: usize = 2048;

/// A core's ring.
pub type Ring = recorder::TraceRing<CAPACITY>;

/// All rings. `weir run` finds them by this symbol name. The boot does not zero this half MiB,
/// which is overwritten anyway, so the contents are undefined until [`clear`].
// SAFETY: words of any value form a valid ring.
#[unsafe(export_name = "weir_trace_rings")]
#[cfg_attr(target_os = "none", unsafe(link_section = ".noinit"))]
static RINGS: [Ring; MAX_CORES] = [const { Ring::new() }; MAX_CORES];

/// Returns the ring of core `core`; only that core writes to it.
#[must_use]
pub fn ring(core: CoreId) -> &'static Ring {
    // Taken modulo MAX_CORES, so that no index is out of bounds; core numbers are below MAX_CORES
    // anyway (`packed`).
    &RINGS[core.index() % MAX_CORES]
}

/// Returns all rings, for a reader.
#[must_use]
pub fn rings() -> &'static [Ring; MAX_CORES] {
    &RINGS
}

/// Empties all rings. Called on the boot core, before the first record.
pub fn clear() {
    RINGS.iter().for_each(Ring::clear);
}

/// Announces the calling core's ring to readers.
pub fn begin(core: CoreId) {
    let (frequency, zero) = timer::base();
    ring(core).begin(core.index(), frequency, zero);
}

/// Records an event with the present time.
#[inline(always)]
pub fn push(ring: &'static Ring, tag: Tag, count: u64, other: u64) {
    ring.push(cntpct_el0::read(), tag, count, other);
}
