//! What a controller is given and what it gives back.

use crate::{
    matrix::Matrix,
    units::{Owner, Pa},
};

/// One burst to be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Given back when it is done.
    pub id: u64,
    /// Where.
    pub pa: Pa,
    /// The owner.
    pub owner: Owner,
    /// A write.
    pub write: bool,
}

/// The row access that a request needed in its bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowUse {
    /// Its row was open when it was served.
    Hit,
    /// Its row was opened for it; none was open.
    Empty,
    /// Another row was closed for it.
    Conflict,
    /// A write to the same place was still waiting, and gave it its data.
    Forwarded,
}

/// A request's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The request's number.
    pub id: u64,
    /// The owner.
    pub owner: Owner,
    /// Whether it wrote.
    pub write: bool,
    /// The cycle after its last data on the bus.
    pub at: u64,
    /// The cycle in which it came.
    pub arrived: u64,
    /// The row access that it needed.
    pub row: RowUse,
}

/// A queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestQueueFull;

/// Counts of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelStats {
    /// Reads answered.
    pub reads: u64,
    /// Writes done.
    pub writes: u64,
    /// Requests to an open row.
    pub row_hits: u64,
    /// Requests for which another row was closed.
    pub row_conflicts: u64,
    /// Reads answered by a waiting write.
    pub forwarded: u64,
    /// Refreshes of a rank.
    pub refreshes: u64,
    /// Closed rows per pair of owners; a row belongs to the owner that used it last.
    pub closed: Matrix,
}
