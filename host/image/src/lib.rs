//! Builds the image of a system: from its TOML file to the bytes that boot.
//!
//! [`check`] reads a system file against the guests and boards of a checkout ([`Environment`]).
//! [`build`] builds the hypervisor and the guests through cargo, fetches Debian's kernel and
//! initial RAM disks, and packs everything. [`Estimate`] computes where an image will lie before
//! its parts exist.
//!
//! The modules [`failure`], [`screen`], [`progress`] and [`output`] are what all commands of weir
//! share: exit statuses, the standard streams, progress on a terminal, checks of output paths.

pub mod build_id;
pub mod cargo;
pub mod debian;
pub mod environment;
mod estimate;
pub mod failure;
mod features;
mod flat;
mod format;
mod image;
mod installation;
pub mod output;
pub mod progress;
pub mod screen;
mod seed;
mod system;

pub use environment::Environment;
pub use estimate::{Estimate, Guess, source};
pub use failure::{Failure, Result};
pub use features::features_of;
pub use format::Format;
pub use image::{BuiltImage, ImageOptions, build};
pub use installation::Installation;
pub use system::{
    catalog, check, check_on, check_platform, exit_status, first_rendered, load, load_to_measure,
    name, needs_plugin, refused, rendered, to_build,
};
