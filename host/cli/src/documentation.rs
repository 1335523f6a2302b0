//! What is made from declarations: completions for shells, man pages and the reference pages of the
//! documentation.

use crate::{
    failure::{Context, Result},
    reference, screen,
};
use clap::{Arg, Command};
use clap_complete::Shell;
use std::{fmt::Write as _, fs, io::Write as _, path::PathBuf};

/// Prints the completions of a shell for this command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir completions bash > ~/.local/share/bash-completion/completions/weir\n  \
        weir completions fish > ~/.config/fish/completions/weir.fish")]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

/// Writes a man page for each verb.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
        weir man ~/.local/share/man/man1\n\n\
        Pages: weir.1, weir-check.1 and so on; those that are there are replaced.")]
pub struct Directory {
    /// The directory; created if missing.
    dir: PathBuf,
}

/// Writes the generated pages of the documentation.
#[derive(Debug, clap::Args)]
#[command(
    hide = true,
    after_help = "Examples:\n  weir reference docs/reference/generated\n  weir reference --check docs/reference/generated"
)]
pub struct Reference {
    /// The directory; created if missing.
    dir: PathBuf,
    /// Write nothing; fail if a page is not what would be written.
    #[arg(long)]
    check: bool,
}

/// Prints the completions of a shell.
pub fn completions(arguments: &Completions, mut command: Command) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "weir", &mut text);
    screen::stdout().write_all(&text)?;
    Ok(())
}

/// Writes the man pages of the command and its verbs.
pub fn man(Directory { dir }: &Directory, command: Command) -> Result {
    fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
    clap_mangen::generate_to(command, dir)
        .context(|| format!("write man pages to {}", dir.display()))?;
    writeln!(screen::stdout(), "man pages: {}", dir.display())?;
    Ok(())
}

/// Writes the generated pages of the documentation, or compares them with those that are there.
pub fn reference(Reference { dir, check }: &Reference, command: Command) -> Result {
    let pages = [
        ("command-line.md", command_line(command)),
        ("system-file.md", weir_model::system_reference()),
        ("board-file.md", weir_model::board_reference()),
        ("diagnostics.md", weir_model::diagnostics_reference()),
        ("hypercalls.md", reference::hypercalls()),
        ("vcpu-states.md", reference::vcpu_states()),
        ("trace.md", reference::trace()),
        ("json.md", reference::json()),
        ("json.schema.json", reference::json_schema()),
    ];
    if !check {
        fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
    }
    for (name, page) in pages {
        let path = dir.join(name);
        if *check {
            let there = fs::read_to_string(&path).unwrap_or_default();
            if there != page {
                let text = format!(
                    "{} is not what the declarations are now: run `weir reference {}`",
                    path.display(),
                    dir.display()
                );
                return Err(crate::failure::Failure::system(text));
            }
        } else {
            fs::write(&path, page).context(|| format!("write {}", path.display()))?;
        }
    }
    Ok(())
}

/// The page of all verbs.
fn command_line(mut command: Command) -> String {
    command.build();
    let mut page = String::from("# Command line\n");
    verbs(&mut page, "", &command);
    page
}

/// Adds a verb and then its own verbs.
fn verbs(page: &mut String, before: &str, command: &Command) {
    let name = format!("{before}{}", command.get_name());
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    // Writing to a string does not fail.
    let _ = writeln!(page, "\n## `{name}`\n\n{about}");
    let mut call = command.clone().bin_name(&name).styles(clap::builder::Styles::plain());
    let usage = call.render_usage().to_string();
    let _ = writeln!(page, "\n```text\n{}\n```", usage.trim_start_matches("Usage: "));
    let rows: Vec<_> = command.get_arguments().filter(|arg| is_shown(arg)).map(row).collect();
    if !rows.is_empty() {
        page.push_str("\n| argument | meaning |\n| --- | --- |\n");
        page.extend(rows);
    }
    if let Some(after) = command.get_after_help() {
        let _ = writeln!(page, "\n```text\n{after}\n```");
    }
    let name = format!("{name} ");
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        if verb.get_name() != "help" {
            verbs(page, &name, verb);
        }
    }
}

/// Whether an argument is a verb's own.
fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version" | "color")
}

/// An argument's line of the table.
fn row(arg: &Arg) -> String {
    let values: Vec<_> =
        arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let takes = arg.get_num_args().is_some_and(|number| number.takes_values());
    let value = if takes { format!(" {}", values.join(" ")) } else { String::new() };
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}{value}"),
        (Some(long), None) => format!("--{long}{value}"),
        (None, Some(short)) => format!("-{short}{value}"),
        (None, None) => values.join(" "),
    };
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    let choices: Vec<_> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let choices = if takes && !choices.is_empty() {
        format!(" One of {}.", choices.join(", "))
    } else {
        String::new()
    };
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = if takes && !defaults.is_empty() {
        format!(" Default: `{}`.", defaults.join(" "))
    } else {
        String::new()
    };
    format!("| `{name}` | {}{choices}{default} |\n", help.replace('|', "\\|"))
}
