//! Writes measured tables into a board file.

use std::{fs, path::Path};
use toml_edit::{DocumentMut, Item, Table, TomlError};
use weir_image::{Failure, Result, failure::Context};

/// A file that measured tables are written into: a board file or a system file.
#[derive(Clone, Debug)]
pub struct TableFile<'a> {
    path: &'a Path,
    text: String,
}

impl<'a> TableFile<'a> {
    /// Reads the file, before a measurement that takes long. A file that is not there is empty.
    ///
    /// # Errors
    ///
    /// The call is wrong if the file is no TOML, the environment if it cannot be read.
    pub fn read(path: &'a Path) -> Result<Self> {
        let text = if path.exists() {
            fs::read_to_string(path).context(|| format!("read {}", path.display()))?
        } else {
            String::new()
        };
        let file = Self { path, text };
        file.with("", |_| true)?;
        Ok(file)
    }

    /// Whether the file has this text.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// Returns the file's text with these tables. Of a table that is replaced, those old keys stay
    /// for which `keep` is true.
    ///
    /// # Errors
    ///
    /// The call is wrong if one of both is no TOML.
    pub fn with(&self, tables: &str, keep: impl Fn(&str) -> bool + Copy) -> Result<String> {
        with_tables(&self.text, tables, keep)
            .map_err(|error| Failure::call(format!("{} is no TOML: {error}", self.path.display())))
    }
}

/// Returns `file` with the tables of `measured` in it. Everything else stays: other tables, their
/// order, and comments, except the one above a table if the new table has its own.
fn with_tables(
    file: &str,
    measured: &str,
    keep: impl Fn(&str) -> bool + Copy,
) -> std::result::Result<String, TomlError> {
    let mut document: DocumentMut = file.parse()?;
    let measured: DocumentMut = measured.parse()?;
    replace(document.as_table_mut(), measured.as_table(), keep);
    Ok(document.to_string())
}

fn replace(file: &mut Table, measured: &Table, keep: impl Fn(&str) -> bool + Copy) {
    for (name, item) in measured {
        match (file.get_mut(name), item) {
            // [emulated] is there for the sake of [emulated.overheads].
            (Some(Item::Table(old)), Item::Table(new)) if new.is_implicit() => {
                replace(old, new, keep);
            }
            (Some(Item::Table(old)), Item::Table(new)) => {
                old.retain(|key, _| new.contains_key(key) || keep(key));
                for (key, value) in new {
                    old.insert(key, value.clone());
                }
                if let Some(comment) = new.decor().prefix().filter(|text| has_comment(text)) {
                    old.decor_mut().set_prefix(spaced(comment));
                }
            }
            (_, Item::Table(new)) => {
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

    const BOARD: &str = "\
# A board.
name = \"x\" # its name

# Old.
[emulated.overheads]
hc = { min = 1, max = 2 }
ip = { min = 1, max = 2 }
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
        let keep = |key: &str| matches!(key, "larger" | "interrupt");
        let new = with_tables(BOARD, measured, keep).expect("TOML");
        let expected = BOARD
            .replace("# Old.", "# New.")
            .replace(
                "hc = { min = 1, max = 2 }\nip = { min = 1, max = 2 }",
                "hc = { min = 3, max = 4 }",
            )
            .replace("15us", "5us");
        assert_eq!(new, expected);
        assert_eq!(with_tables(&new, measured, keep).expect("TOML"), new, "once is enough");
    }

    #[test]
    fn a_table_that_the_file_lacks_goes_to_its_end() {
        let measured = "# New.\n[overheads]\nhc = { min = 3, max = 4 }\n";
        let new = with_tables(BOARD, measured, |_| false).expect("TOML");
        assert_eq!(new, format!("{BOARD}\n{measured}"));
        let inner = "[emulated.interference]\ndelay = \"0ns\"\n";
        let new = with_tables("name = \"x\"\n", inner, |_| false).expect("TOML");
        assert_eq!(new, format!("name = \"x\"\n\n{inner}"));
        assert_eq!(with_tables("", measured, |_| false).expect("TOML").trim_start(), measured);
    }

    #[test]
    fn what_is_no_toml_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("board.toml");
        assert_eq!(TableFile::read(&path).expect("nothing yet").text, "");
        fs::write(&path, "name =").expect("a file");
        let failure = TableFile::read(&path).expect_err("no TOML");
        assert!(failure.text.contains("board.toml is no TOML: "), "{}", failure.text);
        fs::write(&path, BOARD).expect("a file");
        let file = TableFile::read(&path).expect("a board");
        assert!(file.contains("sharing]"));
        assert_eq!(file.with("", |_| false).expect("TOML"), BOARD);
    }
}
