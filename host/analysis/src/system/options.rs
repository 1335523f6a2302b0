//! The options of an analysis.

use crate::{
    BytesPerSec,
    flows::{Effort, Reading},
};

/// The options of an analysis. The default is what `weir analyze FILE` does.
///
/// ```
/// use weir_analysis::{BytesPerSec, Options};
///
/// let options = Options { bandwidth: Some(BytesPerSec(485_000_000)), ..Options::default() };
/// assert!(options.build.is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// How Eq. 20 and 22 of rt-virtio are read.
    pub reading: Reading,
    /// The bandwidth of the flows instead of the one in the file.
    pub bandwidth: Option<BytesPerSec>,
    /// How much may be spent on one answer.
    pub effort: Effort,
    /// The build of the hypervisor that measured overheads are compared with.
    pub build: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { reading: Reading::Printed, bandwidth: None, effort: Effort::default(), build: None }
    }
}
