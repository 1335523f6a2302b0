//! The tables and figures of rt-virtio that the analysis alone computes again.

mod fig5;
pub mod oracle;
mod table3;

pub use fig5::{Curve, Fig5, Point, fig5};
pub use table3::{Row, render as render_table3, table3};
