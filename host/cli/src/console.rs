//! Prints the consoles of a run, line by line: `name | text`.

use crate::{
    attach,
    failure::{Context, Failure, Result},
    report_failure, screen,
};
use anstyle::{AnsiColor, Style};
use std::{
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use weir_model::System;
use weir_runner::{Console, control};

/// Colors of the VMs' names, in cyclic order. Red is for faults.
const COLORS: [AnsiColor; 6] = [
    AnsiColor::Cyan,
    AnsiColor::Green,
    AnsiColor::Yellow,
    AnsiColor::Magenta,
    AnsiColor::Blue,
    AnsiColor::BrightCyan,
];
/// The name of the hypervisor's own lines.
const OWN: &str = "weir";

/// Prints the output of VMs.
pub struct Screen {
    out: Box<dyn Write>,
    names: Vec<String>,
    width: usize,
    lines: bool,
    events: bool,
    /// The VM of the console that the terminal shows.
    attached: Option<String>,
}

impl Screen {
    /// Returns a screen for the VMs of `system` that prints their lines on `out`.
    pub fn new(out: Box<dyn Write>, system: &System) -> Self {
        let names: Vec<String> = system.vms.iter().map(|vm| vm.name.clone()).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0).max(OWN.len());
        Self { out, names, width, lines: true, events: false, attached: None }
    }

    /// Prints what happens to the VMs, too, if `events`.
    pub fn with_events(self, events: bool) -> Self {
        Self { events, ..self }
    }

    /// Prints nothing unless `lines`.
    pub fn with_lines(self, lines: bool) -> Self {
        Self { lines, ..self }
    }

    /// Connects the terminal to the console of the VM `attached`.
    ///
    /// # Errors
    ///
    /// The call is wrong if no VM has this name.
    pub fn with_attached(self, attached: Option<&str>) -> Result<Self> {
        if let Some(vm) = attached.filter(|vm| self.names.iter().all(|known| known != vm)) {
            let names = self.names.join(", ");
            return Err(Failure::call(format!("no VM is named {vm}; there are: {names}")));
        }
        Ok(Self { attached: attached.map(str::to_owned), ..self })
    }

    fn print(&mut self, style: Style, name: &str, text: &str) -> io::Result<()> {
        let width = self.width;
        writeln!(self.out, "{style}{name:width$}{style:#} | {text}")
    }
}

impl Console for Screen {
    fn line(&mut self, vm: Option<usize>, text: &str) -> io::Result<()> {
        if !self.lines {
            return Ok(());
        }
        let Some(vm) = vm else { return self.print(Style::new().bold(), OWN, text) };
        let color = COLORS.get(vm % COLORS.len()).copied().unwrap_or(AnsiColor::White);
        let name = self.names.get(vm).cloned().unwrap_or_else(|| "?".to_owned());
        self.print(color.on_default(), &name, text)
    }

    fn event(&mut self, text: &str) -> io::Result<()> {
        if self.events { self.line(None, text) } else { Ok(()) }
    }

    fn note(&mut self, text: &str) {
        screen::say(format_args!("weir: {text}"));
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.lines { self.out.flush() } else { Ok(()) }
    }

    fn listening(&mut self, directory: &Path, left: &Arc<AtomicBool>) -> Result {
        let Some(vm) = self.attached.clone() else { return Ok(()) };
        let stream = control::connect(directory).context(|| "attach")?;
        let leaving = Arc::clone(left);
        thread::spawn(move || {
            // The end of the conversation ends the run, whichever side ended it; only the reason is
            // reported here.
            let stay = attach::Stay::default();
            if let Err(failure) = attach::converse(stream, &vm, stay, &leaving, false) {
                report_failure(&failure);
            }
            leaving.store(true, Ordering::SeqCst);
        });
        Ok(())
    }
}
