//! Other values for keys of the system file and of the memory file.

use toml_edit::{DocumentMut, InlineTable, Item, TableLike, Value};

/// Keys and their values, by what they belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Of the memory file: `caches.l2_misses`.
    pub memory: Vec<(String, String)>,
    /// Of the system file: `vm.NAME.bandwidth.budget`, `hypervisor.colors`, `dram`.
    pub system: Vec<(String, String)>,
    /// `seed`.
    pub seed: Option<u64>,
}

impl Values {
    /// Sorts them; those without `vm.` or `hypervisor.` in front, but for `seed` and the map's name `dram`, are the memory's.
    pub fn new(values: &[(String, String)]) -> Result<Self, String> {
        let mut sorted = Self::default();
        for (key, value) in values {
            let pair = (key.clone(), value.clone());
            if key == "seed" {
                let seed = value.parse().map_err(|_| format!("seed={value}: write a number"))?;
                sorted.seed = Some(seed);
            } else if key.starts_with("vm.") || key.starts_with("hypervisor.") || key == "dram" {
                sorted.system.push(pair);
            } else {
                sorted.memory.push(pair);
            }
        }
        Ok(sorted)
    }

    /// Writes the system file's into its text.
    pub fn edit(&self, text: &str) -> Result<String, String> {
        let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
        for (key, text) in &self.system {
            let value = text.parse().unwrap_or_else(|_| Value::from(text.as_str()));
            set(&mut document, key, value)?;
        }
        Ok(document.to_string())
    }
}

fn set(document: &mut DocumentMut, key: &str, value: Value) -> Result<(), String> {
    let path: Vec<_> = key.split('.').collect();
    let (path, mut table): (_, &mut dyn TableLike) = match path.as_slice() {
        ["vm", name, rest @ ..] if !rest.is_empty() => {
            (rest, find_vm(document, name).ok_or_else(|| format!("{key}: no VM is called {name}"))?)
        }
        path => (path, document.as_table_mut()),
    };
    let Some((last, path)) = path.split_last() else { return Ok(()) };
    for name in path {
        if !table.contains_key(name) {
            table.insert(name, Item::Value(InlineTable::new().into()));
        }
        let inner = table.get_mut(name).and_then(Item::as_table_like_mut);
        table = inner.ok_or_else(|| format!("{key}: `{name}` is no table"))?;
    }
    table.insert(last, Item::Value(value));
    Ok(())
}

fn find_vm<'a>(document: &'a mut DocumentMut, name: &str) -> Option<&'a mut dyn TableLike> {
    let vms = document.get_mut("vm")?.as_array_of_tables_mut()?;
    let mut vms = vms.iter_mut();
    let vm = vms.find(|vm| vm.get("name").and_then(Item::as_str) == Some(name))?;
    Some(vm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        let owned = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Values::new(&owned.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn keys_go_where_they_belong() {
        let sorted = values(&[
            ("seed", "7"),
            ("caches.l2_misses", "2"),
            ("vm.a.colors", "0-3"),
            ("vm.a.bandwidth.budget", "9"),
            ("dram", "banks-on-top"),
        ]);
        assert_eq!((sorted.seed, sorted.memory.len(), sorted.system.len()), (Some(7), 1, 3));
        let text = "platform = \"zcu102\" # board\n[[vm]]\nname = \"b\"\n[[vm]]\nname = \"a\"\n";
        let edited = sorted.edit(text).unwrap();
        assert!(
            edited.contains("# board") && edited.contains("dram = \"banks-on-top\""),
            "{edited}"
        );
        let a = edited.split("name = \"a\"").nth(1).unwrap();
        assert!(
            a.contains("colors = \"0-3\"") && a.contains("bandwidth = { budget = 9 }"),
            "{edited}"
        );
    }

    #[test]
    fn keys_that_lead_nowhere_are_refused() {
        let text = "[[vm]]\nname = \"a\"\ncpus = [0]\n";
        let said = |key| values(&[(key, "1")]).edit(text).unwrap_err();
        assert!(said("vm.c.colors").contains("no VM is called c"));
        assert!(said("vm.a.cpus.x").contains("`cpus` is no table"));
        let seed = [("seed".to_owned(), "x".to_owned())];
        assert!(Values::new(&seed).unwrap_err().contains("write a number"));
    }
}
