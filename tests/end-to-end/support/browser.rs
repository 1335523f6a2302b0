//! Pages in headless Chromium.

use super::qemu::root;
use serde_json::Value;
use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Measures the page in each frame and writes the results into the document.
const MEASURE: &str = include_str!("measure.js");

/// The appearance that a reader prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Light,
    Dark,
}

/// Calls Chromium with these arguments and a document.
fn chromium(arguments: &[&str], scheme: Scheme, document: &Path) -> Output {
    let program = env::var_os("WEIR_CHROMIUM").unwrap_or_else(|| "chromium".into());
    let home = tempfile::tempdir().expect("a directory");
    let output = Command::new(&program)
        // The documents are weir's own, and as root there is no sandbox.
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--enable-logging=stderr", "--no-first-run", "--disable-dev-shm-usage"])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(scheme == Scheme::Light)))
        .args(arguments)
        .arg(format!("file://{}", document.display()))
        .output();
    match output {
        Err(error) if error.kind() == io::ErrorKind::NotFound => panic!(
            "{} is missing: run `apt-get install --no-install-recommends chromium` as root, or set \
             WEIR_CHROMIUM to a Chromium",
            program.display()
        ),
        other => other.expect("Chromium"),
    }
}

/// Returns the messages on the console of a page.
fn messages(stderr: &[u8]) -> Vec<String> {
    let lines = String::from_utf8_lossy(stderr);
    lines.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect()
}

/// Returns what [`MEASURE`] found on a page, in windows of these widths.
pub fn measured(page: &str, widths: &[u32], scheme: Scheme) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a directory");
    let harness = directory.path().join("harness.html");
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = |width| {
        format!(
            "<iframe srcdoc=\"{page}\" style=\"width: {width}px; height: 900px; border: 0\"></iframe>"
        )
    };
    let frames: String = widths.iter().map(frame).collect();
    let document = format!("<!DOCTYPE html>{frames}<script>{MEASURE}</script>");
    fs::write(&harness, document).expect("written");
    let output = chromium(&["--window-size=1700,1000", "--dump-dom"], scheme, &harness);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), &output.stderr);
    assert_eq!(messages(error), Vec::<String>::new(), "messages on the console");
    let result = out.split_once("@@measured ").and_then(|(_, rest)| rest.split_once(" measured@@"));
    let result = result.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(error))).0;
    let result = result.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&result).unwrap_or_else(|error| panic!("{error}: {result}"))
}

/// Takes a picture of a page, which is kept in build/test/pages. Returns its width and its height.
pub fn screenshot(page: &Path, name: &str, width: u32, scheme: Scheme) -> (u32, u32) {
    let folder = root().join("build/test/pages");
    fs::create_dir_all(&folder).expect("a directory");
    let picture: PathBuf = folder.join(format!("{name}-{width}-{scheme:?}.png").to_lowercase());
    let _ = fs::remove_file(&picture);
    let arguments =
        [&format!("--window-size={width},3000"), &format!("--screenshot={}", picture.display())];
    let output = chromium(&arguments.map(String::as_str), scheme, page);
    let png = fs::read(&picture)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20))
}
