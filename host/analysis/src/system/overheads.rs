//! Where overheads come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_model::timing::OverheadTable;

/// The origin of one table of overheads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverheadSource {
    /// The file, or `platform NAME`.
    pub file: String,
    /// The command that measured the table, or a publication; none if the file does not set it.
    pub command: Option<String>,
    /// The build of the hypervisor that was measured.
    pub build: Option<String>,
    /// The date of the measurement.
    pub date: Option<String>,
    /// Whether it is the build that it is compared with; none if one of them is not known.
    pub same_build: Option<bool>,
}

/// Returns the origin of each table, compared with the hypervisor's build `now`.
#[must_use]
pub fn overhead_sources(tables: &[OverheadTable], now: Option<&str>) -> Vec<OverheadSource> {
    let source = |table: &OverheadTable| {
        let origin = table.origin.as_ref();
        let build = origin.and_then(|origin| origin.build.clone());
        OverheadSource {
            file: table.file.clone(),
            command: origin.map(|origin| origin.command.clone()),
            same_build: build.as_deref().zip(now).map(|(measured, now)| measured == now),
            build,
            date: origin.and_then(|origin| origin.date.clone()),
        }
    };
    tables.iter().map(source).collect()
}
