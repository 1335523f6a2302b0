//! Writes measured tables into a board file.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};
use toml_edit::{DocumentMut, Item, Table, TomlError};
use weir_image::{Failure, Result, failure::Context};

/// A file that measured tables are written into: a board file or a system file.
#[derive(Clone, Debug)]
pub struct TableFile<'a> {
    path: &'a Path,
    document: DocumentMut,
}

/// A file with measured tables in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithTables {
    /// Its text.
    pub text: String,
    /// Keys that were taken out.
    pub removed: Vec<String>,
}

impl<'a> TableFile<'a> {
    /// Reads the file, before a measurement that takes long. A file that is not there is empty.
    ///
    /// # Errors
    ///
    /// The call is wrong if the file is no TOML or its folder is not there, the environment if it
    /// cannot be read or written.
    pub fn read(path: &'a Path) -> Result<Self> {
        let text = if path.exists() {
            let text = fs::read_to_string(path).context(|| format!("read {}", path.display()))?;
            OpenOptions::new()
                .append(true)
                .open(path)
                .context(|| format!("write {}", path.display()))?;
            text
        } else {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if folder.is_some_and(|folder| !folder.is_dir()) {
                return Err(Failure::call(format!(
                    "there is no folder for {}: make it first",
                    path.display()
                )));
            }
            String::new()
        };
        let document = text.parse().map_err(|error| no_toml(path, &error))?;
        Ok(Self { path, document })
    }

    /// Compares the file's board with the one that is measured. A file without a name fits each.
    ///
    /// # Errors
    ///
    /// The call is wrong if the file is another board's.
    pub fn is_of(&self, board: &str) -> Result {
        match self.document.get("name").and_then(Item::as_str) {
            Some(name) if name != board => Err(Failure::call(format!(
                "{} describes {name}, and {board} is measured: give --platform {name}, or another \
                 file",
                self.path.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Whether the file has this table or key, such as `emulated.sharing`.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        let mut keys = path.split('.');
        keys.try_fold(self.document.as_item(), |item, key| item.get(key)).is_some()
    }

    /// Returns the file with these tables. Keys that they do not have stay, and the `source` of a
    /// table then names them; but a table with `origin` keeps only `larger`, as all its values are
    /// of one measurement.
    ///
    /// # Errors
    ///
    /// The call is wrong if `tables` are no TOML.
    pub fn with(&self, tables: &str) -> Result<WithTables> {
        let measured = tables.parse().map_err(|error| no_toml(self.path, &error))?;
        Ok(with_tables(self.document.clone(), &measured))
    }
}

fn no_toml(path: &Path, error: &TomlError) -> Failure {
    Failure::call(format!("{} is no TOML: {error}", path.display()))
}

/// Returns `file` with the tables of `measured` in it. Other tables stay, and comments, except the
/// one above a table if the new table has its own. For keys see [`TableFile::with`].
fn with_tables(mut file: DocumentMut, measured: &DocumentMut) -> WithTables {
    let mut removed = Vec::new();
    replace(file.as_table_mut(), measured.as_table(), &mut removed);
    WithTables { text: file.to_string(), removed }
}

/// What introduces the source of keys that were not measured.
const AS_BEFORE: &str = " as before: ";

/// The `source` of a table in which `new` takes the place of keys of `old`, with the keys that were
/// measured before; none if no such source is known.
fn source(old: &Table, new: &Table) -> Option<String> {
    let was = old.get("source").and_then(Item::as_str);
    let (named, before) = match was.and_then(|was| was.rsplit_once(AS_BEFORE)) {
        Some((named, before)) => (named.rsplit_once("; "), before),
        None => (None, was.unwrap_or("source unknown")),
    };
    let (measured, kept) = match (new.get("source"), named) {
        (Some(source), _) => {
            let has_own = old.contains_key("chunks_source");
            let keys = old.iter().map(|(key, _)| key);
            (source.as_str()?, keys.filter(|key| !(has_own && key.starts_with("chunks"))).collect())
        }
        (None, Some((measured, kept))) => {
            (measured, kept.split(", ").map(|key| key.trim_matches('`')).collect())
        }
        (None, None) => return None,
    };
    let kept: Vec<&str> = kept;
    let kept = kept.iter().filter(|key| !new.contains_key(key)).map(|key| format!("`{key}`"));
    let kept = kept.collect::<Vec<_>>().join(", ");
    let named = format!("{measured}; {kept}{AS_BEFORE}{before}");
    Some(if kept.is_empty() { measured.to_owned() } else { named })
}

fn replace(file: &mut Table, measured: &Table, removed: &mut Vec<String>) {
    for (name, item) in measured {
        if let (Some(old), Item::Table(_)) = (file.get_mut(name), item)
            && old.is_inline_table()
        {
            let inline = std::mem::take(old);
            *old = inline.into_table().map_or_else(|item| item, Item::Table);
        }
        match (file.get_mut(name), item) {
            (Some(Item::Table(old)), Item::Table(new)) => {
                let source = source(old, new);
                if new.contains_key("origin") {
                    old.retain(|key, _| {
                        let stays = new.contains_key(key) || key == "larger";
                        removed.extend((!stays).then(|| format!("{name}.{key}")));
                        stays
                    });
                }
                replace(old, new, removed);
                if let Some(source) = source {
                    old.insert("source", toml_edit::value(source));
                }
                if let Some(comment) = new.decor().prefix().filter(|text| has_comment(text)) {
                    old.decor_mut().set_prefix(spaced(comment));
                }
            }
            (Some(Item::Value(old)), Item::Value(new)) => {
                let decor = old.decor().clone();
                *old = new.clone();
                *old.decor_mut() = decor;
            }
            (None, Item::Table(new)) => {
                let mut new = new.clone();
                append(&mut new);
                file.insert(name, Item::Table(new));
            }
            _ => {
                file.insert(name, item.clone());
            }
        }
    }
}

/// Puts a table, and those in it, behind all others.
fn append(table: &mut Table) {
    table.set_position(None);
    let comment = table.decor().prefix().filter(|text| has_comment(text)).map(spaced);
    table.decor_mut().set_prefix(comment.unwrap_or_else(|| "\n".to_owned()));
    for (_, item) in table.iter_mut() {
        if let Item::Table(inner) = item {
            append(inner);
        }
    }
}

fn has_comment(text: &toml_edit::RawString) -> bool {
    text.as_str().is_some_and(|text| text.contains('#'))
}

/// A comment with one empty line before it.
fn spaced(comment: &toml_edit::RawString) -> String {
    format!("\n{}", comment.as_str().unwrap_or_default().trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of `file` with tables, and the keys that were taken out.
    fn with_tables(file: &str, measured: &str) -> std::result::Result<WithTables, TomlError> {
        Ok(super::with_tables(file.parse()?, &measured.parse()?))
    }

    const BOARD: &str = "\
# A board.
name = \"x\" # its name

# Old.
[emulated.overheads]
hc = { min = 1, max = 2 } # of a board
# By hand.
ip = { min = 1, max = 2 } # or less
larger = { flows = 12, vms = 4 }

# Rounded.
[emulated.sharing]
switch = { min = \"1us\", max = \"15us\" }
interrupt = \"10us\"

# A paper's.
[saturation]
line = \"64B\"
";

    #[test]
    fn measured_tables_take_the_place_of_the_old_ones() {
        let measured = "# New.\n[emulated.overheads]\nhc = { min = 3, max = 4 }\n\n\
                        [emulated.sharing]\nswitch = { min = \"1us\", max = \"5us\" }\n";
        let new = with_tables(BOARD, measured).expect("TOML").text;
        let expected = BOARD
            .replace("# Old.", "# New.")
            .replace("hc = { min = 1, max = 2 }", "hc = { min = 3, max = 4 }")
            .replace("15us", "5us");
        assert_eq!(new, expected);
        assert_eq!(with_tables(&new, measured).expect("TOML").text, new, "once is enough");
    }

    #[test]
    fn values_of_another_origin_do_not_stay() {
        let measured =
            "[emulated.overheads]\norigin = { command = \"weir\" }\nhc = { min = 3, max = 4 }\n";
        let WithTables { text, removed } = with_tables(BOARD, measured).expect("TOML");
        assert_eq!(removed, ["overheads.ip"]);
        assert!(!text.contains("ip =") && text.contains("larger ="), "{text}");
    }

    #[test]
    fn a_source_names_what_was_not_measured() {
        let old =
            "[saturation]\nsource = \"paper: x\"\nline = \"64B\"\ndelay = \"67ns\"\nchunks = []\n";
        let by = |command: &str| {
            format!("[saturation]\nsource = \"measured: {command}\"\nline = \"64B\"\n")
        };
        let source = |text: &str| {
            let document: DocumentMut = text.parse().expect("TOML");
            document["saturation"]["source"].as_str().expect("a source").to_owned()
        };
        let once = with_tables(old, &by("a")).expect("TOML").text;
        assert_eq!(source(&once), "measured: a; `delay`, `chunks` as before: paper: x");
        let twice = with_tables(&once, &by("b")).expect("TOML").text;
        assert_eq!(source(&twice), "measured: b; `delay`, `chunks` as before: paper: x");
        let own = format!("{old}chunks_source = \"measured: c\"\n");
        let own = with_tables(&own, &by("d")).expect("TOML").text;
        assert_eq!(source(&own), "measured: d; `delay` as before: paper: x");
        let chunks = "[saturation]\nchunks = []\nchunks_source = \"measured: f\"\n";
        let apart = with_tables(&twice, chunks).expect("TOML").text;
        assert_eq!(source(&apart), "measured: b; `delay` as before: paper: x");
        assert_eq!(source(&with_tables("", &by("e")).expect("TOML").text), "measured: e");
    }

    #[test]
    fn a_table_within_a_line_keeps_what_is_not_measured() {
        let inline = "emulated = { overheads = { hc = 1 }, interference = { delay = \"1ns\" } }\n";
        let new = with_tables(inline, "[emulated.overheads]\nhc = 2\n").expect("TOML").text;
        let document: DocumentMut = new.parse().expect("TOML");
        let emulated = document["emulated"].as_table().expect("a table");
        assert_eq!(emulated["overheads"]["hc"].as_integer(), Some(2));
        assert_eq!(emulated["interference"]["delay"].as_str(), Some("1ns"));
    }

    #[test]
    fn only_a_file_of_the_board_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("board.toml");
        fs::write(&path, BOARD).expect("a file");
        let file = TableFile::read(&path).expect("a board");
        assert!(file.is_of("x").is_ok());
        let failure = file.is_of("y").expect_err("another board");
        assert!(failure.text.contains("describes x, and y is measured"), "{}", failure.text);
        let path = directory.path().join("none/board.toml");
        let failure = TableFile::read(&path).expect_err("no folder");
        assert!(failure.text.starts_with("there is no folder for "), "{}", failure.text);
    }

    #[test]
    fn a_table_that_the_file_lacks_goes_to_its_end() {
        let measured = "# New.\n[overheads]\nhc = { min = 3, max = 4 }\n";
        let new = with_tables(BOARD, measured).expect("TOML").text;
        assert_eq!(new, format!("{BOARD}\n{measured}"));
        let inner = "[emulated.interference]\ndelay = \"0ns\"\n";
        let new = with_tables("name = \"x\"\n", inner).expect("TOML").text;
        assert_eq!(new, format!("name = \"x\"\n\n{inner}"));
        assert_eq!(with_tables("", measured).expect("TOML").text.trim_start(), measured);
    }

    #[test]
    fn what_is_no_toml_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("board.toml");
        let nothing = TableFile::read(&path).expect("nothing yet");
        assert_eq!(nothing.with("").expect("TOML").text, "");
        fs::write(&path, "name =").expect("a file");
        let failure = TableFile::read(&path).expect_err("no TOML");
        assert!(failure.text.contains("board.toml is no TOML: "), "{}", failure.text);
        fs::write(&path, BOARD).expect("a file");
        let file = TableFile::read(&path).expect("a board");
        assert!(file.has("emulated.sharing") && file.has("saturation") && !file.has("sharing"));
        assert_eq!(file.with("").expect("TOML").text, BOARD);
    }
}
