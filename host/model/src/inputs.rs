//! Which files a system is made of.

use crate::{
    files,
    raw::{At, Values},
};
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A file that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its path as the process sees it.
    pub path: PathBuf,
    /// Whether it is what a workload replays, which `weir observe --record` makes.
    pub is_trace: bool,
}

/// The system file or platform file `file`, and the files that it names: its platform's with the board's device tree, images, initial RAM
/// disks, traces, measured overheads. What else is wrong with it doesn't matter. A name that weir knows is taken for a file's, too: whether
/// there is such a file is not looked at.
#[must_use]
pub fn inputs(file: &Path) -> Vec<Input> {
    let mut found = vec![input(file.to_owned())];
    let text = text(file);
    let (document, _) = DeTable::parse_recoverable(&text);
    let table = document.get_ref();
    let beside = |path: At<String>| beside(file, &path.value);
    let broker = table.inner("broker").and_then(|(broker, _)| broker.text("overheads"));
    found.extend(table.text("device_tree").into_iter().chain(broker).map(beside).map(input));
    for (vm, _) in table.tables("vm") {
        let image = vm.inner("image").map(|(image, _)| image);
        let files = ["elf", "bin", "linux", "initrd"].map(|key| image?.text(key));
        found.extend(files.into_iter().flatten().map(beside).map(input));
        let trace = vm.inner("workload").and_then(|(workload, _)| workload.text("file"));
        found.extend(trace.map(|path| Input { path: beside(path), is_trace: true }));
    }
    if let Some(platform) = table.text("platform").map(beside) {
        let text = self::text(&platform);
        let (document, _) = DeTable::parse_recoverable(&text);
        let tree = document.get_ref().text("device_tree");
        let tree = tree.map(|tree| input(self::beside(&platform, &tree.value)));
        found.extend([input(platform)].into_iter().chain(tree));
    }
    found
}

const fn input(path: PathBuf) -> Input {
    Input { path, is_trace: false }
}

/// Where a path lies that `file` names.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// The text of a file; none of what is no text, or longer than such files are.
fn text(file: &Path) -> String {
    const LONGEST: u64 = 1 << 20;
    files::read_text(file, LONGEST).unwrap_or_default()
}
