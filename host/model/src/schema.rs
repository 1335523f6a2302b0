//! What editors and `weir new` need: the JSON schema of the system file, and a file to start from.

use crate::keys::system::System;
use crate::shape;
use crate::table::Table;

/// A commented system of two VMs that checks and runs as it is.
pub const TEMPLATE: &str = include_str!("template.toml");

/// The JSON schema (draft 2020-12) of a system file.
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = shape::schema(&System::SHAPE);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "weir system".into();
    schema
}
