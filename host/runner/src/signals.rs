//! Signals that end a run.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::{Arc, OnceLock, atomic::AtomicBool};
use weir_image::{
    Result,
    failure::{Context, INTERRUPTED},
};

/// Returns the flag that SIGINT, SIGTERM and SIGHUP set, for [`RunOptions::interrupt`]. A signal
/// while it is set ends the process with status [`INTERRUPTED`].
///
/// # Errors
///
/// The environment is at fault if the signals cannot be watched.
///
/// [`RunOptions::interrupt`]: crate::RunOptions::interrupt
pub fn watch_signals() -> Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the one that ends the process reads the flag before the other sets it.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(INTERRUPTED),
            Arc::clone(&flag),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
        .context(|| "watch for signals")?;
    }
    Ok(Arc::clone(FLAG.get_or_init(|| flag)))
}
