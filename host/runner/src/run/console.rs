//! The console to which a run prints.

use crate::{
    demux::{ConsoleSource, WireStep},
    report,
};
use std::{
    io,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};
use weir_image::Result;

/// Shows the output of VMs and events during a run.
///
/// An error ends the run. With [`io::ErrorKind::BrokenPipe`] the run ends as if interrupted.
pub trait Console {
    /// Shows a line of the VM with this number, or of the hypervisor.
    ///
    /// # Errors
    ///
    /// The line cannot be shown.
    fn line(&mut self, vm: Option<usize>, text: &str) -> io::Result<()>;

    /// Shows an event of a VM: a start, a fault, a refusal.
    ///
    /// # Errors
    ///
    /// The event cannot be shown.
    fn event(&mut self, text: &str) -> io::Result<()>;

    /// Shows a difference between the run and the system file, before the run starts.
    fn note(&mut self, text: &str);

    /// Flushes the output.
    ///
    /// # Errors
    ///
    /// The lines cannot be shown.
    fn flush(&mut self) -> io::Result<()>;

    /// Reports that the socket in `directory` accepts connections to the consoles of the run
    /// ([`control::connect`](crate::control::connect)). The run ends when `left` becomes true.
    ///
    /// # Errors
    ///
    /// The console cannot be attached.
    fn listening(&mut self, directory: &Path, left: &Arc<AtomicBool>) -> Result {
        let _ = (directory, left);
        Ok(())
    }
}

/// A console that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentConsole;

impl Console for SilentConsole {
    fn line(&mut self, _: Option<usize>, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &str) {}

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows the steps that the console prints.
pub(super) fn show(console: &mut dyn Console, step: &WireStep, names: &[String]) -> io::Result<()> {
    let name = |vm: usize| names.get(vm).map_or("?", String::as_str);
    match step {
        WireStep::Line { source: ConsoleSource::Vm(vm), text, .. } => console.line(Some(*vm), text),
        WireStep::Line { text, .. } => console.line(None, text),
        WireStep::Dropped { source: ConsoleSource::Vm(vm), bytes, .. } => {
            let name = name(*vm);
            let text = format!("{name}: {bytes} console bytes lost: it wrote faster than the wire");
            console.line(None, &text)
        }
        WireStep::Event(event) => {
            let name = |vm: u8| names.get(usize::from(vm)).cloned().unwrap_or_default();
            let text = report::in_words(event, name);
            console.event(text.strip_prefix("weir: ").unwrap_or(&text))
        }
        WireStep::Reset => console.line(None, "the board was reset"),
        _ => Ok(()),
    }
}

/// Ignores a closed console, which [`show`] reports.
pub(super) fn ignore_closed(result: io::Result<()>) -> Result {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
