//! Line coverage of `core/` by its unit tests, if `cargo llvm-cov` is installed.

use crate::{Context, process, stages::output_file};
use serde_json::Value;
use std::{fs, io, path::Path};

/// Measures and returns one line about it.
pub fn line(context: &Context) -> io::Result<String> {
    let version = context.cargo.host(&["llvm-cov", "--version"]).output()?;
    if !version.status.success() {
        return Ok("coverage of core/: not measured, cargo llvm-cov is not installed".to_owned());
    }
    let json = context.logs.join("coverage.json");
    let mut command =
        context.cargo.host(&["llvm-cov", "--json", "--summary-only", "--output-path"]);
    command.arg(&json);
    for entry in fs::read_dir(context.root.join("core"))? {
        let name = entry?.file_name();
        command.args(["-p", &format!("weir-{}", name.to_string_lossy())]);
    }
    let log = context.logs.join("coverage.log");
    let (end, _) = process::run(&mut command, &output_file(&log)?, process::UNLIMITED)?;
    let text = if end.success() { fs::read_to_string(json)? } else { String::new() };
    Ok(match percentage(&text, &context.root.join("core")) {
        Some(percent) => format!("coverage of core/: {percent:.1} % of lines"),
        None => format!("coverage of core/: cargo llvm-cov failed (log: {})", log.display()),
    })
}

/// Returns the covered share of the lines in `folder`.
fn percentage(json: &str, folder: &Path) -> Option<f64> {
    let json: Value = serde_json::from_str(json).ok()?;
    let files = json["data"][0]["files"].as_array()?.iter();
    let own = files.filter(|file| {
        file["filename"].as_str().is_some_and(|name| Path::new(name).starts_with(folder))
    });
    let (mut covered, mut count) = (0.0, 0.0);
    for file in own {
        let lines = &file["summary"]["lines"];
        covered += lines["covered"].as_f64()?;
        count += lines["count"].as_f64()?;
    }
    (count > 0.0).then(|| 100.0 * covered / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_folder_count() {
        let json = r#"{"data":[{"files":[
            {"filename":"/w/core/a/src/lib.rs","summary":{"lines":{"count":8,"covered":7}}},
            {"filename":"/w/core/b/src/lib.rs","summary":{"lines":{"count":2,"covered":2}}},
            {"filename":"/w/host/x/src/lib.rs","summary":{"lines":{"count":90,"covered":0}}}]}]}"#;
        assert_eq!(percentage(json, Path::new("/w/core")), Some(90.0));
        assert_eq!(percentage("", Path::new("/w/core")), None);
    }
}
