//! A system file that is read once, for the analysis, for planning and for programs that change it.

use crate::check::check_to_analyze;
use crate::diagnostics::Code;
use crate::fault::{self, Fault, Faults, File};
use crate::resolve::Catalog;
use crate::system::System;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, InlineTable, Item, TableLike, Value};

/// A system file that was read and checked.
///
/// The file may be incomplete: without a platform, or without the cores, memory or image of a VM,
/// it cannot be built, but its flows, budgets, schedules and tasks can be analyzed.
///
/// ```
/// use std::path::Path;
/// use weir_model::{Catalog, SystemFile};
///
/// let text = r#"
/// [[vm]]
/// name = "control"
///
/// [[vm.task]]
/// name = "loop"
/// period = "1ms"
/// "#;
/// let file = SystemFile::parse(Path::new("system.toml"), text, &Catalog::default());
/// assert!(file.is_err(), "a task needs `wcet`");
/// ```
#[derive(Clone, Debug)]
pub struct SystemFile {
    path: PathBuf,
    text: String,
    catalog: Catalog,
    system: System,
}

impl SystemFile {
    /// Reads and checks a system file. `catalog` has the names of images that stand for no file;
    /// another name is a path relative to the directory of `path`. Whether that file exists is not
    /// checked here: for the analysis `Catalog::default()` is enough.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the file.
    pub fn load(path: &Path, catalog: &Catalog) -> Result<Self, Faults> {
        Self::of(path, &fault::read(path)?, catalog)
    }

    /// Checks the text of a system file as [`Self::load`] does. `path` is its name in messages.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the text.
    pub fn parse(path: &Path, text: &str, catalog: &Catalog) -> Result<Self, Faults> {
        Self::of(path, &fault::file(path, text), catalog)
    }

    fn of(path: &Path, file: &File, catalog: &Catalog) -> Result<Self, Faults> {
        let system = check_to_analyze(path, file, catalog)?;
        let (path, catalog) = (path.to_owned(), catalog.clone());
        Ok(Self { path, text: file.inner().clone(), catalog, system })
    }

    /// Returns the same file with another text, checked again.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the text.
    pub fn with_text(&self, text: &str) -> Result<Self, Faults> {
        Self::parse(&self.path, text, &self.catalog)
    }

    /// Returns the file with one value changed, checked again.
    ///
    /// `key` and `value` are as in [`edited`].
    ///
    /// ```
    /// use std::path::Path;
    /// use weir_model::{Catalog, SystemFile};
    ///
    /// let text = r#"
    /// [[flow]]
    /// name = "setpoints"
    /// from = "linux"
    /// to = "control"
    /// size = "4KiB"
    /// period = "10ms" # the camera's
    /// "#;
    /// let file = SystemFile::parse(Path::new("system.toml"), text, &Catalog::default())?;
    /// let faster = file.with("flow.setpoints.period", "5ms")?;
    /// assert!(faster.text().contains("period = \"5ms\" # the camera's"));
    /// assert_eq!(faster.system().flows[0].period.map(|period| period.0), Some(5_000_000));
    ///
    /// let faults = file.with("flow.setpoint.period", "5ms").unwrap_err();
    /// assert_eq!(faults.0[0].code.name(), "no-such-key");
    /// # Ok::<(), weir_model::Faults>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A path that leads nowhere, and everything that is wrong with the file after the change.
    pub fn with(&self, key: &str, value: &str) -> Result<Self, Faults> {
        self.with_text(&edited(&self.path, &self.text, &[(key, value)])?)
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text of the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the system, which may be incomplete.
    #[must_use]
    pub const fn system(&self) -> &System {
        &self.system
    }

    /// Prefers the overheads of another file, and the bandwidth of its copy, to those that this
    /// file and its platform have.
    pub fn prefer_overheads(&mut self, measured: &Self) {
        self.system.prefer(&measured.system);
    }

    /// Returns the rules of a complete file that the analysis relies on and this version of weir
    /// does not enforce. An incomplete file has none, as it cannot run.
    #[must_use]
    pub fn unenforced(&self) -> Vec<Fault> {
        if self.system.is_complete { self.system.unenforced_rules() } else { Vec::new() }
    }

    /// Returns what else the file asks for that this version of weir does not enforce.
    #[must_use]
    pub fn assumed(&self) -> Vec<Fault> {
        if !self.system.is_complete {
            return self.system.unenforced_rules();
        }
        let rules = self.unenforced();
        let mut assumed = self.system.not_enforced();
        assumed.retain(|fault| rules.iter().all(|rule| rule.message != fault.message));
        assumed
    }
}

/// Returns the text of a system file with values changed. Comments and the order of the file stay.
/// The result is not checked. `path` is the name of the file in messages.
///
/// A key is a path of names with dots between them. A name selects a key of a table or, in a list
/// of tables, the table with that `name` (of `[[core]]`, with that `id`): `flow.setpoints.period`,
/// `vm.control.task.loop.deadline`, `dma.bandwidth`. A value is a TOML value; text that is no TOML
/// value is a string, so that `5ms` and `"5ms"` are the same. A key or a table that is not there
/// yet is added, except in a list of tables: give that whole, as in `vm.control.task` with
/// `[{ name = "loop", .. }]`.
///
/// # Errors
///
/// A path that leads nowhere, and a text that is no TOML.
pub fn edited<K: AsRef<str>, V: AsRef<str>>(
    path: &Path,
    text: &str,
    values: &[(K, V)],
) -> Result<String, Faults> {
    let wrong = |message: String, help: &str| {
        let file = fault::file(path, text);
        let message = format!("file `{}`: {message}", path.display());
        Faults(vec![Fault::new(Code::NoSuchKey, &file, 0..0, message).help(help)])
    };
    let help = "write the names of tables and of a key with dots between them, such as \
                `flow.NAME.period`";
    let mut document: DocumentMut =
        text.parse().map_err(|error| wrong(format!("cannot be edited: {error}"), help))?;
    for (key, value) in values {
        let (key, value) = (key.as_ref(), value.as_ref());
        let no_table = || wrong(format!("has no table for `{key}`"), help);
        let (tables, last) = key.rsplit_once('.').unwrap_or(("", key));
        let names = tables.split('.').filter(|name| !name.is_empty());
        let table = descend(document.as_table_mut(), names).ok_or_else(no_table)?;
        let mut value: Value = value.trim().parse().unwrap_or_else(|_| Value::from(value));
        match table.get_mut(last) {
            Some(Item::Value(old)) => {
                *value.decor_mut() = old.decor().clone();
                *old = value;
            }
            Some(_) => return Err(no_table()),
            None => _ = table.insert(last, Item::Value(value)),
        }
    }
    Ok(document.to_string())
}

/// Follows names from a table to a table in it, and adds the tables that are missing.
fn descend<'a, 'b>(
    mut table: &'a mut dyn TableLike,
    mut names: impl Iterator<Item = &'b str>,
) -> Option<&'a mut dyn TableLike> {
    while let Some(name) = names.next() {
        if !table.contains_key(name) && !matches!(name, "vm" | "flow" | "core" | "irq") {
            table.insert(name, Item::Value(InlineTable::new().into()));
        }
        table = match table.get_mut(name)? {
            Item::ArrayOfTables(tables) => {
                let wanted = names.next()?;
                tables.iter_mut().find(|table| is_named(*table, wanted))?
            }
            Item::Value(Value::Array(list)) => {
                let wanted = names.next()?;
                let mut tables = list.iter_mut().filter_map(Value::as_inline_table_mut);
                tables.find(|table| is_named(*table, wanted))?
            }
            item => item.as_table_like_mut()?,
        };
    }
    Some(table)
}

fn is_named(table: &dyn TableLike, wanted: &str) -> bool {
    let name = table.get("name").and_then(Item::as_str);
    let id = || table.get("id").and_then(Item::as_integer).map(|id| id.to_string());
    name.map_or_else(|| id().is_some_and(|id| id == wanted), |name| name == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{DataPath, PathSource};
    use weir_units::Nanos;

    #[test]
    fn edits_add_tables_but_no_entries_of_lists() {
        let text = "platform = \"zcu102\" # board\n[[vm]]\nname = \"b\"\n[[vm]]\nname = \"a\"\ncpus = [0]\n";
        let edit = |key: &str, value: &str| edited("x.toml".as_ref(), text, &[(key, value)]);
        let a = edit("vm.a.memory_budget.accesses", "9").expect("a budget");
        let (head, a) = a.split_once("name = \"a\"").expect("a VM");
        assert!(a.contains("memory_budget = { accesses = 9 }") && head.contains("# board"), "{a}");
        for key in ["dma.bandwidth", "dram", "vm.b.colors"] {
            let text = edit(key, "0-3").expect("a key");
            assert!(text.contains("\"0-3\""), "{text}");
        }
        for nowhere in ["vm.c.colors", "flow.f.size", "vm.a.cpus.x", "vm.a.name.x"] {
            let faults = edit(nowhere, "1").expect_err(nowhere);
            assert_eq!(faults.0[0].code, Code::NoSuchKey);
        }
    }

    #[test]
    fn an_own_table_goes_before_the_platforms() {
        let flow =
            "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1KiB\"\nperiod = \"1ms\"\n";
        let system = |more: &str| {
            let text = format!("platform = \"qemu-virt\"\n{flow}{more}");
            let file = SystemFile::parse("x.toml".as_ref(), &text, &Catalog::default());
            file.expect("a system").system().clone()
        };
        let board = system("");
        assert_eq!(
            (board.dma.path, board.dma.path_source),
            (DataPath::Broker, PathSource::Platform)
        );
        let origin = board.tables[0].origin.as_ref().expect("an origin");
        assert_eq!(board.tables[0].file, "platform qemu-virt");
        assert_eq!(origin.command, "weir bench board --platform qemu-virt");
        let own = system("[overheads]\nhold = { min = 1, max = 2 }\n");
        let hold = |system: &System| {
            let hold = system.overheads.iter().find(|step| step.name == "hold");
            hold.expect("the board has it").max
        };
        assert_eq!(hold(&own), Nanos(2));
        assert!(hold(&board) > Nanos(2) && own.overheads.len() == board.overheads.len());
        let files: Vec<_> = own.tables.iter().map(|table| table.file.as_str()).collect();
        assert_eq!(files, ["x.toml", "platform qemu-virt"]);
    }

    /// An `ip` without a bandwidth contains the transfer: no other table's bandwidth is added to
    /// it.
    #[test]
    fn the_engines_bandwidth_belongs_to_its_ip() {
        let of = |keys: &str| {
            let text = format!("[overheads]\npd = {{ min = 1, max = 2 }}\n{keys}\n");
            let file = SystemFile::parse("x.toml".as_ref(), &text, &Catalog::default());
            file.expect("overheads")
        };
        let [ip, rate] = ["ip = { min = 3, max = 4 }\n", "engine_bandwidth = \"2GB/s\"\n"];
        let both = [ip, rate].concat();
        for (own, measured, left) in [
            ("", both.as_str(), true),
            (ip, rate, false),
            (ip, &both, true),
            (&both, ip, false),
            (&both, "", true),
        ] {
            let mut file = of(own);
            file.prefer_overheads(&of(measured));
            let rate = file.system().dma.engine_bandwidth.map(|rate| rate.0);
            assert_eq!(rate, left.then_some(2_000_000_000), "{own}; {measured}");
        }
    }
}
