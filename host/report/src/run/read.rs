//! Reads the results of a run from its directory.

use super::{RunFacts, RunReport};
use crate::{JSON_VERSION, REPORT};
use serde::{Deserialize, de::DeserializeOwned};
use std::path::Path;
use weir_image::{Failure, Result};
use weir_model::read_text;

/// The longest `report.json` or `run.json`, in bytes: longer files are refused.
const LONGEST: u64 = 64 << 20;
/// The name of what depends on the host in the directory of a run.
const FACTS: &str = "run.json";

/// The version of a JSON result.
#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

/// Returns the report of a run, which is named by its directory.
///
/// # Errors
///
/// The call is wrong if there is no `report.json`, or if it is damaged or of another version.
pub fn read_report(directory: &Path) -> Result<RunReport> {
    let text = read_run_file(directory, REPORT)?;
    let path = directory.join(REPORT);
    let damaged = |error| {
        Failure::call(format!("{} is damaged: {error}; run the system again", path.display()))
    };
    let Version { version } = serde_json::from_str(&text).map_err(damaged)?;
    if version != JSON_VERSION {
        return Err(Failure::call(format!(
            "{} is of version {version}, and this weir reads {JSON_VERSION}; run the system again",
            path.display()
        )));
    }
    serde_json::from_str(&text).map_err(damaged)
}

impl RunFacts {
    /// Returns the facts of a run; none if `run.json` is missing or damaged.
    #[must_use]
    pub fn read(directory: &Path) -> Option<Self> {
        read_json(directory, FACTS)
    }
}

/// Returns a JSON file of a run; none if it is missing or damaged.
pub(crate) fn read_json<T: DeserializeOwned>(directory: &Path, name: &str) -> Option<T> {
    serde_json::from_str(&read_run_file(directory, name).ok()?).ok()
}

/// Reads a text that a run writes into its directory when it ends.
///
/// # Errors
///
/// The call is wrong if the file is missing, longer than 64 MiB or not UTF-8.
pub fn read_run_file(directory: &Path, name: &str) -> Result<String> {
    let path = directory.join(name);
    read_text(&path, LONGEST).map_err(|error| {
        Failure::call(format!(
            "cannot read {}: {error}; a run writes this file when it ends: the run still goes on, \
             was killed, or is of an older weir",
            path.display()
        ))
    })
}
