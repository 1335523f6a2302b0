//! The page classes of a board: its cache, TLBs and DRAM, the groups of colors and banks that its file
//! names, and how a file writes numbers of these.

pub(crate) mod groups;
pub(crate) mod numbers;
pub(crate) mod part;
pub(crate) mod places;
