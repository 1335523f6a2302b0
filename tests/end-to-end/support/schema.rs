//! JSON outputs against the generated schema.

use super::checkout::root;
use serde_json::{Value, json};
use std::{fs, sync::OnceLock};

/// The schema of the outputs by command, in which objects have no further fields unless
/// their type has them.
fn validator() -> &'static jsonschema::Validator {
    static VALIDATOR: OnceLock<jsonschema::Validator> = OnceLock::new();
    VALIDATOR.get_or_init(|| {
        let file = root().join("docs/reference/generated/json.schema.json");
        let text = fs::read_to_string(file).expect("the schema");
        let mut schema: Value = serde_json::from_str(&text).expect("JSON");
        for (_, of) in schema["$defs"].as_object_mut().expect("types") {
            if let Some(fields) = of.get_mut("properties").and_then(Value::as_object_mut) {
                fields.entry("version").or_insert(json!({ "const": 1 }));
                // A type that states them itself has figures of each experiment.
                if of.get("additionalProperties").is_none() {
                    of["additionalProperties"] = false.into();
                }
            }
        }
        jsonschema::validator_for(&schema).expect("a schema")
    })
}

/// Returns the output of a command. Fails the test if it is not as the schema describes it.
pub fn valid(command: &str, output: &str) -> Value {
    let output: Value =
        serde_json::from_str(output).unwrap_or_else(|error| panic!("{command}: {error}: {output}"));
    let all = json!({ command: output });
    let faults: Vec<_> = validator().iter_errors(&all).map(|fault| fault.to_string()).collect();
    assert!(faults.is_empty(), "{command}: {faults:?}: {output}");
    output
}
