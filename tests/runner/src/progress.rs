//! A line on the terminal that shows what runs. Without a terminal there is none.

use std::io::{self, IsTerminal as _};

/// Returns whether there is a terminal to show the line on.
pub fn is_visible() -> bool {
    io::stderr().is_terminal()
}

/// Shows the line of the stage `stage`.
pub fn show(stage: &str, text: &str) {
    if is_visible() {
        // Without automatic wrapping, a narrow terminal cuts the line off.
        eprint!("\r\x1b[K\x1b[?7l{stage:<7} {text}\x1b[?7h");
    }
}

/// Removes the line.
pub fn clear() {
    if is_visible() {
        eprint!("\r\x1b[K");
    }
}
