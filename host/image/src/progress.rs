//! Progress on a terminal, and none in a pipe.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::time::Duration;

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
