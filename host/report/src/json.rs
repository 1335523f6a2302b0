//! The version of JSON results.

use serde_json::{Map, Value};

/// The version of all JSON results. It rises when a field changes its meaning or goes.
pub const JSON_VERSION: u32 = 1;

/// Returns a result with its field `version` first; a list with that field in each of its objects.
///
/// ```
/// use serde_json::json;
/// assert_eq!(weir_report::versioned(json!({ "a": 1 })), json!({ "version": 1, "a": 1 }));
/// assert_eq!(weir_report::versioned(json!([{}, {}])), json!([{ "version": 1 }, { "version": 1 }]));
/// ```
#[must_use]
pub fn versioned(result: Value) -> Value {
    match result {
        Value::Object(fields) => {
            let mut all = Map::from_iter([("version".to_owned(), JSON_VERSION.into())]);
            all.extend(fields);
            Value::Object(all)
        }
        Value::Array(results) => results.into_iter().map(versioned).collect(),
        other => other,
    }
}
