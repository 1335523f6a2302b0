//! Times on the command line.

use humantime::DurationError;
use std::time::Duration;

/// Reads a time such as `10s`, for clap.
pub fn parse(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| match error {
        DurationError::UnknownUnit { value, ref unit, .. } if !unit.is_empty() => {
            format!("`{unit}` is no unit of time: write {value}s, {value}ms or {value}us")
        }
        DurationError::NumberOverflow => error.to_string(),
        _ => "write a number with its unit, such as 10s or 5ms".to_owned(),
    })
}
