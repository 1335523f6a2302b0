//! Reads `report.json` key by key. What was read is taken out, so that what is left was not shown.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use weir_analysis::verdict::Verdict;
use weir_image::{Failure, Result};

/// Keys that a report leaves out if there is nothing to state.
const OPTIONAL: [&str; 13] = [
    "board_resets",
    "budgets",
    "dma",
    "dropped",
    "engine",
    "flows",
    "frames",
    "guest_meaning",
    "interrupts",
    "memory",
    "reason",
    "started_without_broker",
    "tasks",
];

/// An object of a report.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    path: String,
    map: &'a mut Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// Reads an object. `path` is its place in the report.
    pub fn new(value: &'a mut Value, path: String) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self { path, map }),
            _ => Err(damaged(&path, "is no object")),
        }
    }

    /// Takes a value; `null` if the report leaves it out.
    pub fn take(&mut self, key: &str) -> Result<Value> {
        match self.map.shift_remove(key) {
            Some(value) => Ok(value),
            None if OPTIONAL.contains(&key) => Ok(Value::Null),
            None => Err(damaged(&self.path, &format!("has no `{key}`"))),
        }
    }

    /// Takes a value of one form.
    fn read<T>(
        &mut self,
        key: &str,
        form: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T> {
        let value = self.take(key)?;
        read(&value).ok_or_else(|| damaged(&self.path, &format!("has a `{key}` that is no {form}")))
    }

    /// Takes a text.
    pub fn text(&mut self, key: &str) -> Result<String> {
        self.read(key, "text", |value| value.as_str().map(str::to_owned))
    }

    /// Takes a truth value; false if the report leaves it out.
    pub fn is(&mut self, key: &str) -> Result<bool> {
        self.read(key, "truth value", |value| value.as_bool().or(value.is_null().then_some(false)))
    }

    /// Takes a number; none if it is `null`.
    pub fn number(&mut self, key: &str) -> Result<Option<u64>> {
        self.read(key, "number", |value| match value {
            Value::Null => Some(None),
            value => value.as_u64().map(Some),
        })
    }

    /// Returns a number without taking it.
    pub fn peek(&self, key: &str) -> Option<u64> {
        self.map.get(key).and_then(Value::as_u64)
    }

    /// Returns the name of a VM, which several sections need, without taking it.
    pub fn name(&self) -> Result<String> {
        let name = self.map.get("name").and_then(Value::as_str);
        name.map(str::to_owned).ok_or_else(|| damaged(&self.path, "has no `name`"))
    }

    /// Takes a count.
    pub fn count(&mut self, key: &str) -> Result<u64> {
        self.number(key).map(Option::unwrap_or_default)
    }

    /// Takes a list of texts.
    pub fn texts(&mut self, key: &str) -> Result<Vec<String>> {
        self.read(key, "list of texts", |value| {
            value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        })
    }

    /// Takes counts by name, as text: the greatest first, without zeros.
    pub fn counts(&mut self, key: &str) -> Result<Option<(u64, String)>> {
        self.read(key, "object with counts", |value| {
            let Value::Object(map) = value else { return value.is_null().then_some(None) };
            let counts = map.iter().map(|(name, count)| Some((count.as_u64()?, name)));
            let mut counts: Vec<_> = counts.collect::<Option<_>>()?;
            let sum = counts.iter().fold(0, |sum: u64, (count, _)| sum.saturating_add(*count));
            counts.retain(|(count, _)| *count > 0);
            counts.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
            let counts: Vec<_> =
                counts.iter().map(|(count, name)| format!("{count} {name}")).collect();
            Some(Some((sum, counts.join(", "))))
        })
    }

    /// Takes a verdict and its reason; none without a verdict.
    pub fn finding(&mut self) -> Result<Option<(Verdict, String)>> {
        if !self.map.contains_key("verdict") {
            return Ok(None);
        }
        let verdict = self.verdict()?;
        let reason = self.text("reason")?;
        Ok(verdict.map(|verdict| (verdict, reason)))
    }

    /// Takes a verdict; none if it is `null`.
    pub fn verdict(&mut self) -> Result<Option<Verdict>> {
        let all = [Verdict::Holds, Verdict::NotJudged, Verdict::DoesNotHold];
        self.read("verdict", "verdict", |value| match value.as_str() {
            None => value.is_null().then_some(None),
            Some(text) => all.into_iter().find(|verdict| verdict.key() == text).map(Some),
        })
    }

    /// Returns an object in this one; none if it is `null` or left out.
    pub fn object(&mut self, key: &str) -> Result<Option<Fields<'_>>> {
        if matches!(self.map.get(key), None | Some(Value::Null)) {
            return self.take(key).map(|_| None);
        }
        let path = format!("{}.{key}", self.path);
        self.map.get_mut(key).map(|value| Fields::new(value, path)).transpose()
    }

    /// Returns the objects of a list.
    pub fn objects(&mut self, key: &str) -> Result<Vec<Fields<'_>>> {
        if !self.map.contains_key(key) {
            return self.take(key).map(|_| Vec::new());
        }
        let path = format!("{}.{key}", self.path);
        let Some(Value::Array(list)) = self.map.get_mut(key) else {
            return Err(damaged(&path, "is no list"));
        };
        let object = |(place, value)| Fields::new(value, format!("{path}[{place}]"));
        list.iter_mut().enumerate().map(object).collect()
    }

    /// Takes all that is left.
    pub fn rest(&mut self) -> Map<String, Value> {
        std::mem::take(self.map)
    }
}

/// Counts the values that were not taken, by their path without places in lists.
pub(super) fn left(value: &Value, path: &str, counts: &mut BTreeMap<String, usize>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                left(value, &format!("{path}.{key}"), counts);
            }
        }
        Value::Array(list) => {
            for value in list {
                left(value, &format!("{path}[]"), counts);
            }
        }
        _ => *counts.entry(path.to_owned()).or_default() += 1,
    }
}

/// Returns a value as text.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => super::page::NONE.to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(value) => if *value { "yes" } else { "no" }.to_owned(),
        other => other.to_string(),
    }
}

/// Returns the failure of a call with a damaged report.
pub(super) fn damaged(path: &str, what: &str) -> Failure {
    Failure::call(format!("the report is damaged: {path} {what}; run the system again"))
}
