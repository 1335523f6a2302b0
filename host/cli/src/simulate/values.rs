//! Other values for keys of the system file and of the memory file.

use toml_edit::{DocumentMut, InlineTable, Item, TableLike, Value};

/// Keys and their values, by what they belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Of the memory file: `caches.l2_misses`.
    pub memory: Vec<(String, String)>,
    /// Of the system file: `vm.NAME.memory_budget.accesses`, `flow.NAME.size`, `dma.bandwidth`,
    /// `hypervisor.colors`, `dram`.
    pub system: Vec<(String, String)>,
    /// `seed`.
    pub seed: Option<u64>,
}

impl Values {
    /// Sorts them; those without `vm.`, `flow.` or `hypervisor.` in front, but for `seed`, the
    /// map's name `dram` and `[dma]`'s own keys, are the memory's.
    pub fn new(values: &[(String, String)]) -> Result<Self, String> {
        let mut sorted = Self::default();
        for (key, value) in values {
            let pair = (key.clone(), value.clone());
            if key == "seed" {
                let seed = value.parse().map_err(|_| format!("seed={value}: write a number"))?;
                sorted.seed = Some(seed);
            } else if is_systems(key) {
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

fn is_systems(key: &str) -> bool {
    // A memory file has keys of [dma.NAME].
    let of_dma = key.strip_prefix("dma.").is_some_and(|key| !key.contains('.'));
    let tables = ["vm.", "flow.", "hypervisor."];
    of_dma || key == "dram" || tables.iter().any(|table| key.starts_with(table))
}

fn set(document: &mut DocumentMut, key: &str, value: Value) -> Result<(), String> {
    let path: Vec<_> = key.split('.').collect();
    let (path, mut table): (_, &mut dyn TableLike) = match path.as_slice() {
        [list @ ("vm" | "flow"), name, rest @ ..] if !rest.is_empty() => {
            let what = if *list == "vm" { "VM" } else { "flow" };
            let found = find(document, list, name);
            (rest, found.ok_or_else(|| format!("{key}: no {what} is called {name}"))?)
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

fn find<'a>(
    document: &'a mut DocumentMut,
    list: &str,
    name: &str,
) -> Option<&'a mut dyn TableLike> {
    let mut tables = document.get_mut(list)?.as_array_of_tables_mut()?.iter_mut();
    let found = tables.find(|table| table.get("name").and_then(Item::as_str) == Some(name))?;
    Some(found)
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
            ("vm.a.memory_budget.accesses", "9"),
            ("dram", "banks-on-top"),
            ("dma.bandwidth", "9MB/s"),
            ("dma.lpd.qos", "60"),
            ("flow.f.size", "9KiB"),
        ]);
        assert_eq!((sorted.seed, sorted.memory.len(), sorted.system.len()), (Some(7), 2, 5));
        let text = "platform = \"zcu102\" # board\n[[vm]]\nname = \"b\"\n[[vm]]\nname = \"a\"\n[[flow]]\nname = \"f\"\n";
        for written in ["bandwidth = \"9MB/s\"", "name = \"f\"\nsize = \"9KiB\""] {
            let edited = sorted.edit(text).unwrap();
            assert!(edited.contains(written), "{edited}");
        }
        let edited = sorted.edit(text).unwrap();
        assert!(
            edited.contains("# board") && edited.contains("dram = \"banks-on-top\""),
            "{edited}"
        );
        let a = edited.split("name = \"a\"").nth(1).unwrap();
        assert!(
            a.contains("colors = \"0-3\"") && a.contains("memory_budget = { accesses = 9 }"),
            "{edited}"
        );
    }

    #[test]
    fn keys_that_lead_nowhere_are_refused() {
        let text = "[[vm]]\nname = \"a\"\ncpus = [0]\n";
        let failure = |key| values(&[(key, "1")]).edit(text).unwrap_err();
        assert!(failure("vm.c.colors").contains("no VM is called c"));
        assert!(failure("flow.c.size").contains("no flow is called c"));
        assert!(failure("vm.a.cpus.x").contains("`cpus` is no table"));
        let seed = [("seed".to_owned(), "x".to_owned())];
        assert!(Values::new(&seed).unwrap_err().contains("write a number"));
    }
}
