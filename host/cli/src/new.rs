//! `weir new`: a system to begin with, and the schema of system files.

use crate::{
    failure::{Context, Failure, Result},
    screen,
};
use std::{
    fs,
    io::{self, Write, stdout},
    path::PathBuf,
};
use weir_model::{TEMPLATE, schema};

/// Writes DIR/system.toml, a commented system of two VMs that checks and runs as it is, and next
/// to it the JSON schema that its first line names, for editors.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir new my-system && weir run my-system/system.toml\n  \
        weir new --schema > system.schema.json")]
pub struct NewArguments {
    /// The directory; created if missing.
    #[arg(required_unless_present = "schema")]
    dir: Option<PathBuf>,
    /// Print the JSON schema of system files instead, for editors.
    #[arg(long, conflicts_with = "dir")]
    schema: bool,
}

/// The file that the template's first line names.
const SCHEMA: &str = "system.schema.json";

/// Carries the verb out.
pub fn run(arguments: &NewArguments) -> Result {
    let Some(directory) = &arguments.dir else {
        writeln!(stdout(), "{:#}", schema())?;
        return Ok(());
    };
    fs::create_dir_all(directory).context(|| format!("create {}", directory.display()))?;
    let path = directory.join("system.toml");
    let created = fs::File::options().write(true).create_new(true).open(&path);
    let mut file = match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = format!("{} is there already and stays as it is", path.display());
            return Err(Failure::call(text));
        }
        other => other.context(|| format!("write {}", path.display()))?,
    };
    file.write_all(TEMPLATE.as_bytes()).context(|| format!("write {}", path.display()))?;
    let schema_file = directory.join(SCHEMA);
    fs::write(&schema_file, format!("{:#}\n", schema()))
        .context(|| format!("write {}", schema_file.display()))?;
    let shown = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let word = if shown.chars().all(plain) {
        shown.clone()
    } else {
        format!("'{}'", shown.replace('\'', r"'\''"))
    };
    writeln!(screen::stdout(), "{shown}\nnext: {} run {word}", command())?;
    Ok(())
}

/// Returns the command as it was called: the script of the checkout sets `WEIR_COMMAND`.
fn command() -> String {
    std::env::var("WEIR_COMMAND").unwrap_or_else(|_| "weir".to_owned())
}
