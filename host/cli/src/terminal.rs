//! The terminal in raw mode, and back in every way of ending.

use crate::failure::{Context, Result};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use std::{
    io::stdin,
    panic,
    sync::{Mutex, Once, PoisonError},
    thread,
};

/// How the terminal was before; none while it is not raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static WATCH: Once = Once::new();

/// While this exists, each key goes to the program as it is pressed: no echo, no line editing, no
/// signals.
#[derive(Debug)]
pub struct Raw(());

impl Raw {
    /// Makes the terminal on standard input raw; none when there is no terminal.
    ///
    /// With `end_on_signal` a SIGTERM, SIGHUP, SIGINT or SIGQUIT ends the process behind the
    /// terminal's restoration; without it the caller must handle them.
    pub fn enter(end_on_signal: bool) -> Result<Option<Self>> {
        if !isatty(stdin()) {
            return Ok(None);
        }
        let before = tcgetattr(stdin()).context(|| "read the terminal's mode")?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        WATCH.call_once(|| {
            let old = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore();
                old(info);
            }));
        });
        if end_on_signal {
            watch_signals()?;
        }
        let guard = Self(());
        tcsetattr(stdin(), OptionalActions::Drain, &raw).context(|| "make the terminal raw")?;
        Ok(Some(guard))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back its mode, once.
pub fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // The terminal may be gone (SIGHUP).
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

fn watch_signals() -> Result {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])
        .context(|| "watch for signals")?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            restore();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}
