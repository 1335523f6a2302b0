//! The loop of a run: reads the wire until the run ends.

use super::{
    console::{Console, ignore_closed, show},
    options::{ConsoleInput, RunOptions},
    setup::{awaits_counts, has_heartbeat},
};
use crate::{
    board::ExpectedImage,
    control::Hub,
    demux::{ConsoleSource, WireStep},
    link::{Heard, Link},
    qemu::QemuProcess,
    record::RunRecord,
    report::{End, engine_of},
    session::{ImageNamed, Session, SessionPlan},
    start,
    wire_trace::WireTrace,
};
use std::{
    io,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use weir_image::{Result, name};
use weir_model::System;

/// The polling interval of the clock and of signals while the wire is quiet.
pub(super) const POLL: Duration = Duration::from_millis(20);
/// Limit on the wait for the last counters.
const LAST_COUNTERS: Duration = Duration::from_secs(1);
/// The time of a quiet wire after which a line without an end counts as a prompt.
const PROMPT: Duration = Duration::from_millis(100);
/// The time after which a board is asked again for the new records of its trace.
const TRACE_AGAIN: Duration = Duration::from_millis(100);
/// Limit on the wait for the records that a board has at the end of a run. At 115200 Bd the rings
/// of four cores take 27 s.
const LAST_TRACE: Duration = Duration::from_secs(30);
/// The time after which a board is asked again for the image that it runs.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The time after an image was loaded in which a board may still run the one of before.
const LOADED: Duration = Duration::from_secs(10);
/// Limit on the silence of a board until the loaded image has named itself: a hypervisor that
/// refuses its image says why, and then nothing. A limit of the user's counts instead.
const UNNAMED: Duration = Duration::from_secs(30);
/// Limit on the time of QEMU to end after the system has stopped.
const ENDING: Duration = Duration::from_secs(5);
/// Limit on the silence of an emulated machine. Its limit in virtual time works only if it sends
/// records.
const SILENCE: Duration = Duration::from_secs(120);
/// The message of `tools/clock` in QEMU's log, after which nothing can happen.
const STANDSTILL: &str = "the machine stands still: all its cores sleep, and no timer is set";
/// The same limit if a plug-in watches each access.
pub(super) const LONG_SILENCE: Duration = Duration::from_secs(1200);

/// What runs the system.
#[derive(Debug)]
pub(super) enum Peer {
    /// An emulated machine.
    Qemu(QemuProcess),
    /// A board, the image that it must run, and the name of its serial line.
    Board(Link, ExpectedImage, String),
}

impl Peer {
    /// Returns the connection to the hypervisor.
    pub(super) const fn link(&self) -> &Link {
        match self {
            Self::Qemu(machine) => machine.link(),
            Self::Board(link, ..) => link,
        }
    }

    /// Waits for bytes for at most `time`.
    fn hear(&mut self, time: Duration) -> Heard {
        match self {
            Self::Qemu(machine) => machine.hear(time),
            Self::Board(link, ..) => link.hear(time),
        }
    }

    /// Ends an emulated machine and returns its status. Of a board, closes the line, for which the
    /// hub must be closed; the board continues.
    pub(super) fn end(self) -> Option<ExitStatus> {
        match self {
            Self::Qemu(machine) => machine.end(),
            Self::Board(link, ..) => {
                link.end();
                None
            }
        }
    }

    /// Compares the image that a board runs. QEMU runs the image that it was given.
    fn compare(&self, named: ImageNamed) -> Result {
        match (self, named) {
            (Self::Board(_, image, line), ImageNamed::Known(id)) => image.compare(id, line),
            _ => Ok(()),
        }
    }
}

/// The state of a run.
pub(super) struct Running<'a> {
    options: &'a RunOptions,
    names: Vec<String>,
    pub(super) session: Session,
    pub(super) peer: Peer,
    pub(super) record: RunRecord,
    console: &'a mut dyn Console,
    pub(super) hub: Arc<Hub>,
    /// Whether the user of an attached console left.
    left: Arc<AtomicBool>,
    vcpus: usize,
    /// Whether the machine reports now and then, whatever its VMs do.
    has_heartbeat: bool,
    /// Whether the machine goes on when the system has ended.
    stays_on: bool,
    /// Limit on the silence of the machine.
    pub(super) silence: Duration,
    /// The trace of a board, if it is wanted.
    pub(super) trace: Option<WireTrace>,
    /// Bytes of the wire that belong to the run.
    pub(super) wire_bytes: usize,
    /// The bytes after the end of the run in the same read.
    behind: Vec<u8>,
    steps: Vec<WireStep>,
}

impl<'a> Running<'a> {
    /// Starts the session of a machine.
    pub(super) fn new(
        options: &'a RunOptions,
        system: &System,
        peer: Peer,
        record: RunRecord,
        console: &'a mut dyn Console,
    ) -> Result<Self> {
        let vms = start::vms(system, &options.bounds);
        let names: Vec<String> = vms.iter().map(|vm| vm.name.clone()).collect();
        let expect = system.vms.iter().enumerate();
        let expect =
            expect.flat_map(|(vm, facts)| facts.expect.iter().map(move |text| (vm, text.clone())));
        let in_qemu = matches!(peer, Peer::Qemu(_));
        let limit_ns = options.time.filter(|_| in_qemu);
        let vcpus = vms.iter().map(|vm| vm.vcpus.len()).sum();
        let plan = SessionPlan {
            system: name(system),
            platform: system.platform().name.clone(),
            vms,
            flows: start::flows(system, &options.bounds),
            engine: engine_of(system),
            expect: expect.collect(),
            limit_ns: limit_ns.map(super::nanoseconds),
            keep_running: options.keep_running,
            count_flows: awaits_counts(options, system),
            awaited: match &peer {
                Peer::Board(_, image, _) if options.loader.is_some() => Some(image.id()),
                _ => None,
            },
        };
        let hub = Hub::new(names.clone(), peer.link().input());
        let left = Arc::new(AtomicBool::new(false));
        if !in_qemu || options.input == ConsoleInput::Live {
            hub.listen(record.directory())?;
            console.listening(record.directory(), &left)?;
        }
        let session = Session::new(plan);
        let stays_on = system.platform().stays_on || matches!(peer, Peer::Board(..));
        Ok(Self {
            options,
            names,
            session,
            peer,
            record,
            console,
            hub,
            left,
            vcpus,
            has_heartbeat: has_heartbeat(options, system),
            stays_on,
            silence: SILENCE,
            trace: None,
            wire_bytes: 0,
            behind: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// Returns whether a board runs the system.
    fn is_on_board(&self) -> bool {
        matches!(self.peer, Peer::Board(..))
    }

    /// Runs until the end. Returns the reason of the end, and an error message for the user.
    pub(super) fn carry_on(&mut self) -> Result<(End, Option<String>)> {
        let (end, trouble) = self.until_end()?;
        let end = self.session.ended(end);
        let ask = match end {
            End::Interrupted => true,
            // The end of a run in QEMU is a point in virtual time.
            End::AllMet | End::TimeOver => self.is_on_board(),
            _ => false,
        };
        if ask {
            let behind = std::mem::take(&mut self.behind);
            self.drain(&behind)?;
            self.last_counters()?;
            self.last_trace()?;
        }
        let over = !matches!(end, End::MachineGone | End::SystemStop);
        self.session.finish(over, &mut self.steps);
        self.take_steps()?;
        ignore_closed(self.console.flush())?;
        Ok((end, trouble))
    }

    /// Reads the wire until the run ends.
    fn until_end(&mut self) -> Result<(End, Option<String>)> {
        let started = Instant::now();
        let (mut heard, mut stopped, mut asked) = (started, None, started);
        let mut asked_for_trace = started;
        loop {
            match self.peer.hear(POLL) {
                Heard::Bytes(bytes) => {
                    heard = Instant::now();
                    let (taken, end) = self.session.feed(&bytes, &mut self.steps);
                    let (taken, behind) = bytes.split_at_checked(taken).unwrap_or((&bytes, &[]));
                    self.wire_bytes += taken.len();
                    self.record.wire(taken)?;
                    self.behind = behind.to_vec();
                    if !self.take_steps()? {
                        return Ok((End::Interrupted, None));
                    }
                    if let Some(end) = end {
                        return Ok((end, None));
                    }
                    let other = self.session.take_other().map(ImageNamed::Known);
                    if let Some(other) = other.filter(|_| started.elapsed() > LOADED) {
                        self.peer.compare(other)?;
                    }
                }
                Heard::Nothing => {
                    self.record.flush()?;
                    ignore_closed(self.console.flush())?;
                }
                Heard::Gone if self.session.stopped() => return Ok((End::SystemStop, None)),
                Heard::Gone => return Ok((End::MachineGone, None)),
            }
            if self.options.interrupt.load(Ordering::SeqCst) || self.left.load(Ordering::SeqCst) {
                return Ok((End::Interrupted, None));
            }
            // Not before a frame has come: a boot loader would take the request for its own.
            let ask = self.is_on_board()
                && self.session.image() == ImageNamed::Unknown
                && asked.elapsed() > ASK_AGAIN;
            if ask {
                asked = Instant::now();
                self.peer.link().ask_for_report();
            }
            if self.trace.is_some()
                && self.session.image() != ImageNamed::Silent
                && asked_for_trace.elapsed() > TRACE_AGAIN
            {
                asked_for_trace = Instant::now();
                self.peer.link().ask_for_trace();
            }
            let is_quiet = heard.elapsed() > PROMPT;
            if !self.has_heartbeat && self.session.awaits_line() && is_quiet {
                return Ok((End::AllMet, None));
            }
            if self.stays_on && self.session.stopped() && is_quiet {
                return Ok((End::SystemStop, None));
            }
            if self.session.stopped() && stopped.get_or_insert_with(Instant::now).elapsed() > ENDING
            {
                let trouble = "the system has ended, but QEMU had to be killed";
                return Ok((End::SystemStop, Some(trouble.into())));
            }
            let limit = self.options.time.filter(|_| self.is_on_board());
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                return Ok((End::TimeOver, None));
            }
            let awaits_image = self.session.awaits_image() && self.options.time.is_none();
            if awaits_image && heard.elapsed() > UNNAMED {
                let trouble = format!(
                    "the board did not name the image that was loaded, and has been silent for {} \
                     s",
                    UNNAMED.as_secs()
                );
                return Ok((End::Silent, Some(trouble)));
            }
            // A person at a console may wait for any time.
            let is_watched = self.is_on_board() || self.options.input == ConsoleInput::Live;
            if !is_watched && is_quiet && self.stands_still() {
                return Ok((End::Silent, Some(STANDSTILL.to_owned())));
            }
            if !is_watched && heard.elapsed() > self.silence {
                let seconds = self.silence.as_secs();
                let trouble = format!("nothing came from the machine for {seconds} s");
                return Ok((End::Silent, Some(trouble)));
            }
        }
    }

    /// Returns whether the clock has found that nothing can happen in the machine any more.
    fn stands_still(&self) -> bool {
        self.record.tail("qemu.log", 1).iter().any(|line| line.contains(STANDSTILL))
    }

    /// Takes bytes after the end of the run. Returns the number of counters among them.
    fn drain(&mut self, bytes: &[u8]) -> Result<usize> {
        self.session.drain(bytes, &mut self.steps);
        self.record.wire(bytes)?;
        let counters =
            self.steps.iter().filter(|step| matches!(step, WireStep::Counters(_))).count();
        self.take_steps()?;
        Ok(counters)
    }

    /// Requests counters, and reads the wire until all vCPUs have answered and no VM is within a
    /// line.
    fn last_counters(&mut self) -> Result {
        if !self.peer.link().ask_for_report() {
            return Ok(());
        }
        let vcpus = self.vcpus;
        self.drain_while(LAST_COUNTERS, |session, counters, quiet| {
            counters < vcpus || session.is_within_line() && quiet < PROMPT
        })
    }

    /// Requests what a board's trace has, and reads the wire until it is quiet.
    fn last_trace(&mut self) -> Result {
        if self.trace.is_none() {
            return Ok(());
        }
        self.peer.link().ask_for_trace();
        self.drain_while(LAST_TRACE, |_, _, quiet| quiet < PROMPT)
    }

    /// Takes bytes after the end of the run for at most `limit`, while `awaits` says so: it gets
    /// the number of counters that have come, and how long the wire has been quiet.
    fn drain_while(
        &mut self,
        limit: Duration,
        awaits: impl Fn(&Session, usize, Duration) -> bool,
    ) -> Result {
        let mut heard = Instant::now();
        let (until, mut counters) = (heard + limit, 0);
        while Instant::now() < until && awaits(&self.session, counters, heard.elapsed()) {
            match self.peer.hear(POLL) {
                Heard::Bytes(bytes) => {
                    heard = Instant::now();
                    counters += self.drain(&bytes)?;
                }
                Heard::Nothing => {}
                Heard::Gone => return Ok(()),
            }
        }
        Ok(())
    }

    /// Shows and records the steps. Returns false if the console is closed.
    fn take_steps(&mut self) -> Result<bool> {
        let steps = std::mem::take(&mut self.steps);
        let mut watched = true;
        let mut spoken: Option<(usize, Vec<u8>)> = None;
        for step in &steps {
            if let WireStep::Byte(ConsoleSource::Vm(vm), byte) = *step {
                match &mut spoken {
                    Some((speaker, bytes)) if *speaker == vm => bytes.push(byte),
                    _ => {
                        if let Some((vm, bytes)) = spoken.replace((vm, vec![byte])) {
                            self.hub.output(vm, &bytes);
                        }
                    }
                }
            }
            match (step, &mut self.trace) {
                (WireStep::Trace(records), Some(trace)) => trace.take(records),
                (WireStep::Reset, Some(trace)) => trace.reset()?,
                _ => {}
            }
            self.record.step(step, |vm| self.session.name(usize::from(vm)))?;
            match show(self.console, step, &self.names) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => watched = false,
                other => other?,
            }
        }
        if let Some((vm, bytes)) = spoken {
            self.hub.output(vm, &bytes);
        }
        self.steps = steps;
        self.steps.clear();
        self.peer.compare(self.session.image())?;
        Ok(watched)
    }
}
