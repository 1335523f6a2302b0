//! `weir package`: an installation of weir, as a Debian package.

use crate::{
    build_id,
    cargo::Programs,
    environment::Environment,
    failure::{Context, Failure, Result},
    progress::CountBar,
    screen,
};
use clap_complete::Shell;
use std::{
    env, fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};
use weir_abi::Features;
use weir_image::Installation;
use weir_model::platform::Platform;

/// Builds a Debian package with the command, prebuilt hypervisors of all boards, guests, examples,
/// man pages and completions, which needs neither a compiler nor a checkout.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir package && sudo apt install ./build/weir_*.deb\n  \
        weir package --tree ~/.local --board qemu-virt\n\n\
        The package depends on Debian's QEMU. On another distribution, use --tree.")]
pub struct PackageArguments {
    /// The package. Default: build/weir_VERSION_ARCHITECTURE.deb.
    #[arg(short, long, value_name = "FILE", conflicts_with = "tree")]
    output: Option<PathBuf>,
    /// Write the files below this prefix instead, such as ~/.local, which has bin/weir then.
    #[arg(long, value_name = "PREFIX")]
    tree: Option<PathBuf>,
    /// Only hypervisors of this board. Default: of each board that weir runs on.
    #[arg(long, value_name = "NAME")]
    board: Vec<String>,
    /// Only this guest of weir's. Default: all of them.
    #[arg(long, value_name = "NAME")]
    guest: Vec<String>,
    /// Take the programs as they were built last.
    #[arg(long)]
    no_build: bool,
}

/// The guest that moves packets, which no file names.
const BROKER: &str = "broker";

/// Carries the verb out.
pub fn run(
    arguments: &PackageArguments,
    environment: &Environment,
    command: clap::Command,
) -> Result {
    environment.sources()?;
    let mut out = screen::stdout();
    if let Some(prefix) = &arguments.tree {
        lay_out(prefix, arguments, environment, command)?;
        writeln!(out, "{}", prefix.join("bin/weir").display())?;
        return Ok(());
    }
    let root = tempfile::tempdir().context(|| "create a directory")?;
    // The archive keeps the mode of its root.
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))
        .context(|| "set the mode of the package's root")?;
    lay_out(&root.path().join("usr"), arguments, environment, command)?;
    let architecture = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let version = env!("CARGO_PKG_VERSION");
    let libc = oldest_libc(root.path(), environment)?;
    let control = root.path().join("DEBIAN");
    create(&control)?;
    write(
        &control.join("control"),
        &format!(
            "Package: weir\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: the \
             authors of weir\nDepends: qemu-system-arm, ca-certificates, libc6 (>= \
             {libc})\nSection: misc\nPriority: optional\nDescription: real-time partitioning hypervisor for Armv8-A, \
             with tools\n The tools compute, before deployment, upper bounds on the delay that a \
             critical VM\n suffers from memory contention, shared cores and messages.\n"
        ),
    )?;
    let name = format!("weir_{version}_{architecture}.deb");
    let package = arguments.output.clone().unwrap_or_else(|| environment.build().join(name));
    let mut archive = Command::new("dpkg-deb");
    archive.args(["--root-owner-group", "--build"]).arg(root.path()).arg(&package);
    let done = archive.output().context(|| "start dpkg-deb; without it, use --tree")?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        return Err(Failure::environment(format!("dpkg-deb: {}", text.trim_end())));
    }
    writeln!(out, "{}", package.display())?;
    Ok(())
}

/// Returns the oldest version of the GNU C library that has all symbols of the programs for the
/// host in the package below `root`.
fn oldest_libc(root: &Path, environment: &Environment) -> Result<String> {
    let mut files = vec![root.join("usr/bin/weir")];
    let libraries = Installation::below(&root.join("usr")).libraries();
    for library in [environment.clock()?, environment.plugin()?] {
        files.push(libraries.join(library.file_name().unwrap_or_default()));
    }
    let mut newest = (2, 0);
    for file in files {
        let bytes = fs::read(&file).context(|| format!("read {}", file.display()))?;
        newest = newest.max(newest_symbol(&bytes).unwrap_or(newest));
    }
    Ok(format!("{}.{}", newest.0, newest.1))
}

/// Returns the newest version of the GNU C library that names of symbol versions in an ELF file
/// have, such as `GLIBC_2.34`.
fn newest_symbol(elf: &[u8]) -> Option<(u32, u32)> {
    const PREFIX: &[u8] = b"GLIBC_";
    let names = elf.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let version = |place: usize| {
        let name = elf[place + PREFIX.len()..].split(|byte| *byte == 0).next()?;
        let mut numbers = str::from_utf8(name).ok()?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    names.filter_map(|(place, _)| version(place)).max()
}

/// Writes all files of an installation below `prefix`.
fn lay_out(
    prefix: &Path,
    arguments: &PackageArguments,
    environment: &Environment,
    command: clap::Command,
) -> Result {
    let root = environment.sources()?;
    let mut installation = Installation::below(prefix);
    build_id::of_checkout().unwrap_or_default().clone_into(&mut installation.build);
    let [programs, share, bin] =
        [installation.programs(), installation.share(), prefix.join("bin")];
    for folder in [&programs, &share, &bin] {
        create(folder)?;
    }
    let program = env::current_exe().context(|| "find this program")?;
    copy(&program, &bin.join("weir"), 0o755)?;
    for library in [environment.clock()?, environment.plugin()?] {
        let name = library.file_name().unwrap_or_default();
        copy(&library, &installation.libraries().join(name), 0o644)?;
    }
    let platforms = boards(&arguments.board)?;
    let bar = CountBar::new("building hypervisors", 2 * platforms.len() as u64);
    let built = Programs::new(environment, arguments.no_build);
    let mut missing = Vec::new();
    for platform in &platforms {
        for parts in [Features::ALL, Features::NONE] {
            let mut hypervisor = built.hypervisor(environment, platform, parts)?;
            if arguments.no_build {
                // Without a build, the one with all parts stands for each other one.
                match built.built(platform, parts) {
                    Some(exact) => hypervisor = exact,
                    None => missing.push(platform.name.clone()),
                }
            }
            let name = hypervisor.file_name().unwrap_or_default();
            copy(&hypervisor, &programs.join(name), 0o644)?;
            bar.add(1);
        }
    }
    drop(bar);
    if !missing.is_empty() {
        writeln!(
            screen::stderr(),
            "note: no hypervisor without optional parts was built for {}: systems there get all \
             parts; leave --no-build out to have both",
            missing.join(", ")
        )?;
    }
    let mut guests = arguments.guest.clone();
    if guests.is_empty() {
        guests = environment.guests();
    }
    if guests.iter().all(|guest| guest != BROKER) {
        guests.push(BROKER.to_owned());
    }
    for (name, file) in built.guests(environment, &guests)? {
        copy(&file, &programs.join(&name), 0o644)?;
        installation.guests.insert(name.clone(), environment.arguments(&name));
    }
    let tool = built.vsock_tool(environment)?;
    copy(&tool, &programs.join(tool.file_name().unwrap_or_default()), 0o755)?;
    for folder in ["boards", "examples"] {
        copy_all(&root.join(folder), &share.join(folder))?;
    }
    installation.record()?;
    documents(prefix, root, command)
}

/// Returns the boards of these names, or all that weir runs on.
fn boards(names: &[String]) -> Result<Vec<Platform>> {
    let runs = |platform: &Platform| platform.places.planned.is_none();
    if names.is_empty() {
        return Ok(Platform::all().into_iter().filter(runs).collect());
    }
    let board = |name: &String| {
        Platform::named(name).filter(runs).ok_or_else(|| {
            Failure::call(format!("`{name}` is no board that weir runs on: see `weir platforms`"))
        })
    };
    names.iter().map(board).collect()
}

/// Writes man pages, completions, licenses and the changelog.
fn documents(prefix: &Path, root: &Path, mut command: clap::Command) -> Result {
    let share = prefix.join("share");
    let manual = share.join("man/man1");
    create(&manual)?;
    clap_mangen::generate_to(command.clone(), &manual).context(|| "write the man pages")?;
    for (shell, file) in [
        (Shell::Bash, "bash-completion/completions/weir"),
        (Shell::Zsh, "zsh/vendor-completions/_weir"),
        (Shell::Fish, "fish/vendor_completions.d/weir.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "weir", &mut text);
        let path = share.join(file);
        create(path.parent().unwrap_or(&share))?;
        fs::write(&path, text).context(|| format!("write {}", path.display()))?;
    }
    let documents = share.join("doc/weir");
    create(&documents)?;
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md", "README.md"] {
        copy(&root.join(file), &documents.join(file), 0o644)?;
    }
    Ok(())
}

fn create(folder: &Path) -> Result {
    fs::create_dir_all(folder).context(|| format!("create {}", folder.display()))
}

fn write(path: &Path, text: &str) -> Result {
    fs::write(path, text).context(|| format!("write {}", path.display()))
}

/// Copies a file, through links, and gives it the mode.
fn copy(from: &Path, to: &Path, mode: u32) -> Result {
    // A program that runs cannot be overwritten, but it can be replaced.
    let _ = fs::remove_file(to);
    fs::copy(from, to).context(|| format!("copy {} to {}", from.display(), to.display()))?;
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(to, mode).context(|| format!("set the mode of {}", to.display()))
}

/// Copies a folder with its files and folders.
fn copy_all(from: &Path, to: &Path) -> Result {
    create(to)?;
    let reading = || format!("read {}", from.display());
    for entry in fs::read_dir(from).context(reading)? {
        let path = entry.context(reading)?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() { copy_all(&path, &target)? } else { copy(&path, &target, 0o644)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_symbols_is_found() {
        let elf = b"\x7fELF\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_2.34\0GLIBC_2.4\0";
        assert_eq!(newest_symbol(elf), Some((2, 34)));
        assert_eq!(newest_symbol(b"GLIBC_"), None);
    }
}
