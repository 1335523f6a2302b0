//! JSON results: their version, and their form for a terminal.

use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;
use weir_model::is_hidden;

/// The version of all JSON results. It rises when a field changes its meaning or goes.
pub const JSON_VERSION: u32 = 1;

/// A result that is displayed as JSON, with `{:#}` on several lines. Control characters and
/// bidirectional formatting in its strings are escaped as `\\u202e`.
#[derive(Clone, Debug, PartialEq)]
pub struct Json(pub Value);

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if f.alternate() { format!("{:#}", self.0) } else { self.0.to_string() };
        for character in text.chars() {
            if character == '\n' || !is_hidden(character) {
                fmt::Write::write_char(f, character)?;
                continue;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(f, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

/// Returns a result with its field `version` first; a list with that field in each of its objects.
///
/// ```
/// use serde_json::json;
/// use weir_report::versioned;
///
/// assert_eq!(versioned(json!({ "a": 1 })).to_string(), r#"{"version":1,"a":1}"#);
/// assert_eq!(versioned(json!([{}, {}])).to_string(), r#"[{"version":1},{"version":1}]"#);
/// assert_eq!(versioned(json!(["\u{202e}"])).to_string(), r#"["\u202e"]"#);
/// ```
#[must_use]
pub fn versioned(result: impl Serialize) -> Json {
    fn with_version(result: Value) -> Value {
        match result {
            Value::Object(fields) => {
                let mut all = Map::from_iter([("version".to_owned(), JSON_VERSION.into())]);
                all.extend(fields);
                Value::Object(all)
            }
            Value::Array(results) => results.into_iter().map(with_version).collect(),
            other => other,
        }
    }
    // A result that cannot be JSON would be a map with keys that are no text.
    Json(with_version(serde_json::to_value(result).unwrap_or_default()))
}
