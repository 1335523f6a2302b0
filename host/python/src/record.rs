//! Results as Python objects, and values of keys from them.

use pyo3::{exceptions::PyTypeError, prelude::*, sync::PyOnceLock, types::PyDict, types::PyList};
use pyo3::{types::PyMapping, types::PyType};
use pythonize::{
    PythonizeMappingType, PythonizeTypes, PythonizeUnnamedMappingAdapter, depythonize,
    pythonize_custom,
};
use serde::Serialize;
use serde_json::Value;

/// Converts a result: its fields become the attributes and items of a `weir.Record`.
pub fn of<'py>(py: Python<'py>, result: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    Ok(pythonize_custom::<Records, _>(py, result)?)
}

/// Makes a `weir.Record` of each object.
struct Records;

impl PythonizeTypes for Records {
    type Map = Record;
    type NamedMap = PythonizeUnnamedMappingAdapter<Record>;
    type List = PyList;
}

/// The class `weir.Record`, a `dict` with its items as attributes.
struct Record;

#[expect(clippy::elidable_lifetime_names, reason = "those of the trait are named")]
impl PythonizeMappingType for Record {
    type Builder<'py> = Bound<'py, PyDict>;

    fn builder<'py>(py: Python<'py>, _: Option<usize>) -> PyResult<Self::Builder<'py>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = CLASS.import(py, "weir._record", "Record")?;
        Ok(class.call0()?.cast_into()?)
    }

    fn push_item<'py>(
        builder: &mut Self::Builder<'py>,
        key: Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        builder.set_item(key, value)
    }

    fn finish<'py>(builder: Self::Builder<'py>) -> PyResult<Bound<'py, PyMapping>> {
        Ok(builder.into_mapping())
    }
}

/// Converts values of keys to the text of TOML.
///
/// # Errors
///
/// A value is neither a number, a text, a list nor a `dict`.
pub fn toml_values(values: &[(String, Bound<'_, PyAny>)]) -> PyResult<Vec<(String, String)>> {
    let each = values.iter().map(|(key, value)| {
        let refused = || {
            let what = "a value is a bool, a number, a text, or a list or dict of them";
            PyTypeError::new_err(format!("{key}: {what}"))
        };
        let value: Value = depythonize(value).map_err(|_| refused())?;
        Ok((key.clone(), toml(&value).ok_or_else(refused)?))
    });
    each.collect()
}

/// Returns a value as TOML has it; TOML has no null. What JSON escapes in a text, TOML escapes in
/// the same way.
fn toml(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(values) => {
            let values: Option<Vec<_>> = values.iter().map(toml).collect();
            format!("[{}]", values?.join(", "))
        }
        Value::Object(fields) => {
            let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            let field = |(key, value): (&String, &Value)| {
                let quoted = || Value::String(key.clone()).to_string();
                let bare = !key.is_empty() && key.chars().all(is_bare);
                let key = if bare { key.clone() } else { quoted() };
                Some(format!("{key} = {}", toml(value)?))
            };
            let fields: Option<Vec<_>> = fields.iter().map(field).collect();
            format!("{{ {} }}", fields?.join(", "))
        }
    })
}
