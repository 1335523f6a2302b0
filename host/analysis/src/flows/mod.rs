//! Communication flows: rt-virtio sections II, IV and V.
//!
//! A flow set becomes a set of limited-preemption sporadic tasks ([`transform`], Eq. 3, 4 and 19 to
//! 27); the tasks are tested by the demand of Theorem 1 ([`Analyzer::verdict`]) and the smallest
//! DMA bandwidth at which they pass is found ([`Analyzer::min_bandwidth`], Algorithm 1). How each
//! equation was read is in `docs/theory/analysis.md`.

mod demand;
mod local;
mod locks;
mod overheads;
mod response;
mod task;

pub use demand::{
    Analyzer, Effort, FailingInstant, MinBandwidth, Schedulability, UnschedulableCause,
};
pub use local::{Mover, Path, on_shared_core, transform};
pub use locks::{EndCores, LockWaits, Spent, waits};
pub use overheads::{Overheads, Range, Reading};
pub use response::{Bandwidths, Responses, responses};
pub use task::{InputError, InputRule, MAX_BANDWIDTH, TransferPiece, TransformedTask};
pub use weir_model::timing::Flow;

pub(crate) use task::{MAX_NANOS, times};
