//! Progress on a terminal, and none in a pipe.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

/// A spinner on standard error during a long step; removed when dropped.
#[derive(Debug)]
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Begins with `text`.
    #[must_use]
    pub fn new(text: String) -> Self {
        // Draws on standard error, and only if that is a terminal.
        let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_message(text);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Shows the current step.
    pub fn say(&self, text: String) {
        self.0.set_message(text);
    }
}

/// The steps of a build: a spinner on a terminal, and elsewhere a line after each tenth, so that a
/// build of minutes shows a sign of progress in a log, too. A build of few steps prints no line.
#[derive(Debug)]
pub struct BuildProgress {
    what: String,
    spinner: Spinner,
    /// The tenth that was shown last.
    tenth: u64,
}

impl BuildProgress {
    /// Fewest steps of a build that prints lines.
    const MANY: u64 = 20;

    /// Begins to build `what`.
    #[must_use]
    pub fn new(what: &str) -> Self {
        let spinner = Spinner::new(format!("building {what}"));
        Self { what: what.to_owned(), spinner, tenth: 0 }
    }

    /// Shows that `done` of `total` steps are done.
    pub fn show(&mut self, done: u64, total: u64) {
        let text = format!("building {}: step {done} of {total}", self.what);
        let tenth = done * 10 / total.max(1);
        if total >= Self::MANY && tenth > self.tenth && !io::stderr().is_terminal() {
            // A closed standard error stops no build.
            let _ = writeln!(io::stderr(), "weir: {text}");
        }
        self.tenth = tenth;
        self.spinner.say(text);
    }
}

/// A bar on standard error while much is counted; gone when dropped, and never there in a pipe.
#[derive(Debug)]
pub struct CountBar(ProgressBar);

impl CountBar {
    /// Begins at 0 of `total`.
    #[must_use]
    pub fn new(text: &'static str, total: u64) -> Self {
        let bar = ProgressBar::new(total).with_finish(ProgressFinish::AndClear);
        let template = "{msg} {wide_bar} {human_pos} of {human_len}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(text);
        Self(bar)
    }

    /// So many more are done.
    pub fn add(&self, count: u64) {
        self.0.inc(count);
    }
}
