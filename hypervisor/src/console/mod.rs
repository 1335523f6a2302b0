//! The console: every VM's console and the hypervisor's own records on the board's only UART.
//!
//! The bytes of a VM wait in a ring of that VM, and so do the records of its events, so that a VM
//! that floods the console or causes many events loses only its own. The records of a report are
//! made when the UART has room for them. One core, the console core, moves all of them to the UART,
//! a bounded number of bytes at a time; the other cores only put bytes into the rings and notify it.
//! So a guest on another core never spends the time that the UART takes, and no core waits for a
//! lock of another VM.

use crate::{
    arch::{lock::Lock, relax, timer},
    mail, notice, system, trace,
    uart::Uart,
};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use weir_abi::{MAX_CORES, MAX_VMS};
use weir_trace::{
    ring::ByteRing,
    sender::TraceSender,
    wire::{self, ConsoleMark, FrameKind, Framing, HYPERVISOR, TRACE_RECORDS, What, WireEvent},
};
use weir_units::CoreId;
use weir_vdev::pl011::{FIFO_DEPTH, Sink};
use zerocopy::{Immutable, IntoBytes};

/// Bytes of a VM's output that wait for the UART, and those of its events; further bytes and events
/// are lost, and counted.
const OUTPUT: usize = 4096;
/// Bytes of console input that wait for a VM.
const INPUT: usize = 256;
/// Bytes that the console core sends in one section with interrupts masked: half of the UART's
/// FIFO.
const SECTION: usize = 16;
/// Number of such sections after which another source is served, if one has bytes. Each change of
/// the source costs a mark on the UART.
const TURN: usize = 16;

/// The sources of the UART's bytes: the output of VM `n` is source `n`, its events are `EVENTS` plus
/// `n`, then come the events of the whole system, and the report.
const EVENTS: usize = MAX_VMS;
const SYSTEM: usize = 2 * MAX_VMS;
const REPORT: usize = SYSTEM + 1;
const SOURCES: usize = REPORT + 1;

/// The console state of one VM.
pub struct VmConsole {
    output: ByteRing<OUTPUT>,
    input: ByteRing<INPUT>,
    dropped: AtomicU32,
    events: Events,
    /// Whether the guest saw a full FIFO and waits for room.
    waits: AtomicBool,
    /// The core of the VM's first vCPU.
    core: AtomicU8,
}

impl VmConsole {
    const fn new() -> Self {
        Self {
            output: ByteRing::new(),
            input: ByteRing::new(),
            dropped: AtomicU32::new(0),
            events: Events::new(),
            waits: AtomicBool::new(false),
            core: AtomicU8::new(0),
        }
    }

    /// Sets the core of the VM's first vCPU. Called on the boot core.
    pub fn connect(&self, core: u8) {
        self.core.store(core, Ordering::Relaxed);
    }

    fn send(&self, message: u32) {
        mail::send(CoreId(self.core.load(Ordering::Relaxed)), message);
    }

    /// Takes the next byte of console input, if there is one.
    pub fn typed(&self) -> Option<u8> {
        self.input.pop()
    }
}

/// The events of a VM, or of the whole system, that wait for the UART.
struct Events {
    ring: ByteRing<OUTPUT>,
    /// The right to write the ring, held while an event is copied, and how many events were lost.
    lost: Lock<u32>,
}

impl Events {
    const fn new() -> Self {
        Self { ring: ByteRing::new(), lost: Lock::new(0) }
    }

    /// Adds an event, or counts it as lost.
    fn put(&self, frame: &Frame) {
        let mut lost = self.lost.lock();
        if !self.ring.push_all(frame.as_slice()) {
            *lost = lost.saturating_add(1);
        }
    }
}

static CHANNELS: [VmConsole; MAX_VMS] = [const { VmConsole::new() }; MAX_VMS];
/// The events of the whole system. They are fewer than the ring holds, unless the host asks for
/// reports faster than it takes them.
static SYSTEM_EVENTS: Events = Events::new();
static BELL: AtomicBool = AtomicBool::new(false);
/// Whether a report is to begin, unless one is under way.
static REPORT_DUE: AtomicBool = AtomicBool::new(false);
static FOCUS: AtomicU8 = AtomicU8::new(0);
static CONSOLE_CORE: AtomicU8 = AtomicU8::new(0);

/// Returns the console of VM `vm`.
#[must_use]
pub fn channel(vm: usize) -> &'static VmConsole {
    // Taken modulo MAX_VMS, so that no index is out of bounds; a VM's index is below MAX_VMS anyway
    // (`packed`).
    &CHANNELS[vm % MAX_VMS]
}

/// Returns the ring of a source; none for the report.
#[inline(always)]
fn ring(source: usize) -> Option<&'static ByteRing<OUTPUT>> {
    match (CHANNELS.get(source), CHANNELS.get(source.wrapping_sub(EVENTS))) {
        (Some(channel), _) => Some(&channel.output),
        (_, Some(channel)) => Some(&channel.events.ring),
        _ => (source == SYSTEM).then_some(&SYSTEM_EVENTS.ring),
    }
}

/// A frame in memory: DLE, kind, length, payload, checksum. A DLE in the payload is not doubled.
pub struct Frame {
    bytes: [u8; 260],
    len: usize,
}

impl Frame {
    /// Returns the frame of this kind with this payload.
    pub fn new(kind: FrameKind, payload: &(impl IntoBytes + Immutable)) -> Self {
        let mut frame = Self { bytes: [0; 260], len: 0 };
        wire::frame(kind, payload, |part| {
            let place = frame.bytes.get_mut(frame.len..frame.len + part.len());
            if let Some(place) = place {
                place.copy_from_slice(part);
                frame.len += part.len();
            }
        });
        frame
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

#[inline(never)]
fn mark(vm: usize, dropped: u32) -> Frame {
    Frame::new(FrameKind::Mark, &ConsoleMark { time_ns: timer::now_ns(), vm: vm as u32, dropped })
}

/// The output side of a VM's PL011.
pub struct Output {
    vm: usize,
}

impl Output {
    /// Room that a byte (doubled if it is a DLE) and the mark after a line need.
    const UNIT: usize = 2 + 4 + size_of::<ConsoleMark>();

    /// Returns the output of VM `vm`.
    #[must_use]
    pub fn new(vm: usize) -> Self {
        Self { vm }
    }
}

impl Sink for Output {
    #[inline(never)]
    fn room(&self) -> usize {
        let channel = channel(self.vm);
        let room = channel.output.room() / Self::UNIT;
        if room >= FIFO_DEPTH {
            return room;
        }
        // Set before the room is read again. The console core makes room first and reads `waits`
        // afterwards, so at least one of the two sees the other's store.
        channel.waits.store(true, Ordering::SeqCst);
        channel.output.room() / Self::UNIT
    }

    fn put(&mut self, byte: u8) {
        let channel = channel(self.vm);
        let doubled = [byte, byte];
        let fits =
            channel.output.push_all(if byte == wire::DLE { &doubled } else { &doubled[..1] });
        if !fits {
            channel.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if byte == b'\n' {
            let dropped = channel.dropped.swap(0, Ordering::Relaxed);
            if !channel.output.push_all(mark(self.vm, dropped).as_slice()) {
                channel.dropped.fetch_add(dropped, Ordering::Relaxed);
            }
        }
        ring_bell();
    }
}

/// Sends an event to the host. This function fills in the time.
pub fn event(event: WireEvent) {
    let events = match CHANNELS.get(usize::from(event.vm)) {
        Some(channel) => &channel.events,
        None => &SYSTEM_EVENTS,
    };
    let event = WireEvent { time_ns: timer::now_ns(), ..event };
    events.put(&Frame::new(FrameKind::Event, &event));
    ring_bell();
}

/// Sends an event of the whole system, with the identifier of the image.
pub fn system_event(what: What) {
    system_detail(what, 0, system::get().header.image_id);
}

/// Sends an event of the whole system, with `detail` and `syndrome`.
pub fn system_detail(what: What, detail: u32, syndrome: u64) {
    event(WireEvent {
        what: what as u16,
        vm: HYPERVISOR,
        detail,
        syndrome,
        ..WireEvent::default()
    });
}

/// Returns how many events of VM `vm` were lost.
#[must_use]
pub fn lost(vm: usize) -> u32 {
    *channel(vm).events.lost.lock()
}

/// Has the console core begin a report, unless one is under way.
pub fn begin_report() {
    REPORT_DUE.store(true, Ordering::Relaxed);
    mail::send(core(), mail::CONSOLE);
}

/// Notifies the console core that bytes wait, unless it has been notified already.
fn ring_bell() {
    // AcqRel: the bytes are in the ring before the flag is visible, and the console core clears the
    // flag before it reads the rings.
    if !BELL.swap(true, Ordering::AcqRel) {
        mail::send(core(), mail::CONSOLE);
    }
}

/// A position in a report: the next record to send. The console makes one record at a time, when it
/// can send it, so that the interrupts of the console core's guest are not delayed and no record has
/// to wait in memory. The module of the report stands above the console, as its records come from
/// VMs.
pub trait Records: Copy + Default {
    /// Returns this record, if there is one, and the next position.
    fn step(self) -> (Option<Frame>, Option<Self>);
}

/// The board's UART, and the reader's position in the rings. It belongs to the console core. `R` is
/// the report.
pub struct Wire<R> {
    uart: Uart,
    /// The source of the bytes that are being sent. While it is a VM's output, the host takes
    /// console bytes as those of that VM. It changes only between two frames.
    source: usize,
    /// The position of the reader within a frame of the source.
    framing: Framing,
    /// The number of sections that remain before another source is served.
    turn: usize,
    /// A frame that the console itself is sending (a mark, a record of the report, or records of
    /// the trace), and how many of its bytes have been sent.
    frame: Frame,
    sent: usize,
    /// The next record of the report that is under way.
    report: Option<R>,
    trace: TraceSender<MAX_CORES>,
    wanted: WantedTrace,
    input: Input,
}

/// The part of the trace that the host wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WantedTrace {
    /// Nothing: the host has not asked for the trace.
    Nothing,
    /// The records that will exist at the end: the host has received all earlier ones.
    Later,
    /// Full frames, as long as there are any.
    Full,
    /// All remaining records, because no further ones follow.
    Rest,
}

/// The position of the console in a command from the host.
#[derive(Clone, Copy)]
enum Input {
    Text,
    Escape,
    Focus,
}

impl<R: Records> Wire<R> {
    /// Takes over the UART, which the firmware or the emulator has set up.
    ///
    /// # Safety
    ///
    /// Called once, on the console core, after stage 1 has mapped the device.
    #[must_use]
    pub unsafe fn take() -> Self {
        // SAFETY: by the contract; `notice::refuse` and `notice::last_words`, which also use the
        // UART, stop their core.
        let mut uart = unsafe { Uart::take() };
        uart.enable();
        Self {
            uart,
            // The first event of the system is sent before those of VMs.
            source: SYSTEM - 1,
            framing: Framing::Between,
            turn: TURN,
            frame: Frame { bytes: [0; 260], len: 0 },
            sent: 0,
            report: None,
            trace: TraceSender::new(),
            wanted: WantedTrace::Nothing,
            input: Input::Text,
        }
    }

    /// Sends waiting bytes, at most [`SECTION`]; the last of them can be inside a frame. The rest
    /// is sent after another notification, or after the UART's interrupt if the UART is full.
    pub fn drain(&mut self) {
        if notice::is_refusing() {
            return;
        }
        // Cleared before the rings are read, so that bytes added later notify the console core
        // again.
        BELL.swap(false, Ordering::AcqRel);
        if REPORT_DUE.load(Ordering::Relaxed) && REPORT_DUE.swap(false, Ordering::Relaxed) {
            self.report.get_or_insert_default();
        }
        self.turn = self.turn.saturating_sub(1);
        if self.pass() {
            ring_bell();
        }
        self.offer_room();
    }

    /// Sends [`SECTION`] bytes. Returns false if fewer wait or fit.
    #[inline(never)]
    fn pass(&mut self) -> bool {
        for _ in 0..SECTION {
            if self.uart.is_full() && self.uart.wait_for_room() {
                return false;
            }
            let Some(byte) = self.next() else {
                self.uart.wait_for_nothing();
                return false;
            };
            self.uart.write(byte);
        }
        true
    }

    /// Sends everything that waits and a whole report, polling the UART; called when the system
    /// ends.
    pub fn flush(&mut self) {
        // The counts before this one may be those of an earlier moment.
        self.report = Some(R::default());
        self.send_all();
        system_event(What::SystemStop);
        self.send_all();
    }

    fn send_all(&mut self) {
        if self.wanted != WantedTrace::Nothing {
            self.wanted = WantedTrace::Rest;
        }
        // The last call of `pass` may have prepared a frame.
        while self.pass() || self.uart.is_full() || self.sent < self.frame.len {
            relax();
        }
        while self.uart.is_busy() {
            relax();
        }
    }

    /// Returns the next byte to send: from the frame that is being sent, or else from the source,
    /// or else from another source.
    #[inline(always)]
    fn next(&mut self) -> Option<u8> {
        if self.sent < self.frame.len {
            let byte = self.frame.bytes.get(self.sent).copied();
            self.sent += 1;
            return byte;
        }
        // A frame is put into its ring as a whole, so the source has the rest of a frame that has
        // begun.
        if (self.turn > 0 || self.framing != Framing::Between)
            && let Some(byte) = self.pop()
        {
            return Some(byte);
        }
        self.change_source()
    }

    /// Takes the next byte of the source.
    #[inline(always)]
    fn pop(&mut self) -> Option<u8> {
        let byte = ring(self.source)?.pop()?;
        self.framing = self.framing.after(byte);
        Some(byte)
    }

    /// Selects the next source that has bytes, the present one last, and returns the first byte to
    /// send. The output of a VM follows a mark.
    #[inline(never)]
    fn change_source(&mut self) -> Option<u8> {
        self.offer_room();
        let last = self.source;
        for step in 1..=SOURCES {
            let source = (last + step) % SOURCES;
            let is_empty = match ring(source) {
                Some(ring) => ring.is_empty(),
                None => !self.prepare_report(),
            };
            if is_empty {
                continue;
            }
            (self.source, self.turn) = (source, TURN);
            // After other sources the host assigns bytes to no VM until the next mark.
            if source != last && source < MAX_VMS {
                return Some(self.begin(mark(source, 0)));
            }
            // The record of a report that was prepared is sent in the next section.
            return self.pop();
        }
        self.prepare_trace();
        None
    }

    /// Prepares the next record of the report. Making it takes a part of a section, so it is sent
    /// in the next section. Returns false if there is none.
    fn prepare_report(&mut self) -> bool {
        while let Some(report) = self.report.take() {
            let (frame, next) = report.step();
            self.report = next;
            if let Some(frame) = frame {
                (self.frame, self.sent) = (frame, 0);
                ring_bell();
                return true;
            }
        }
        false
    }

    /// Notifies the VM whose bytes were just sent that there is room for more, if its guest waits.
    fn offer_room(&self) {
        // The room is made before `waits` is read; see `Output::room`.
        if let Some(channel) = CHANNELS.get(self.source)
            && channel.waits.load(Ordering::SeqCst)
            && channel.output.room() >= OUTPUT / 2
            && channel.waits.swap(false, Ordering::SeqCst)
        {
            channel.send(mail::ROOM);
        }
    }

    /// Prepares a frame of trace records. They are sent only when nothing else waits, so that the
    /// host's request for the trace does not delay the output of VMs. Copying the records takes
    /// most of a section, so the frame is sent in the next section.
    fn prepare_trace(&mut self) {
        let least = match self.wanted {
            WantedTrace::Nothing | WantedTrace::Later => return,
            WantedTrace::Full => TRACE_RECORDS as u64,
            WantedTrace::Rest => 1,
        };
        let Some(records) = self.trace.take(trace::rings(), least) else {
            self.wanted = WantedTrace::Later;
            return;
        };
        (self.frame, self.sent) = (Frame::new(FrameKind::Trace, &records), 0);
        ring_bell();
    }

    /// Begins a frame, and returns its first byte.
    fn begin(&mut self, frame: Frame) -> u8 {
        self.frame = frame;
        self.sent = 1;
        wire::DLE
    }

    /// Takes console input, at most what the UART's FIFO holds, and the host's commands. Returns
    /// whether the active devices must follow the console's input.
    pub fn receive(&mut self) -> bool {
        let mut hand_over = false;
        for _ in 0..32 {
            let byte = match self.uart.read() {
                Some(Some(byte)) => byte,
                // Only the damaged byte is lost.
                Some(None) => continue,
                None => break,
            };
            self.input = match (self.input, byte) {
                (Input::Text, wire::DLE) => Input::Escape,
                (Input::Escape, wire::FOCUS) => Input::Focus,
                (Input::Escape, wire::REPORT) => {
                    system_event(What::SystemRuns);
                    self.report.get_or_insert_default();
                    Input::Text
                }
                (Input::Escape, wire::TRACE) => {
                    self.wanted = WantedTrace::Full;
                    Input::Text
                }
                (Input::Text, wire::PADDING) => Input::Text,
                (Input::Focus, vm) => {
                    give_input_to(vm);
                    hand_over = true;
                    Input::Text
                }
                (Input::Text, _) | (Input::Escape, wire::DLE | wire::PADDING) => {
                    let focus = usize::from(FOCUS.load(Ordering::Relaxed));
                    if let Some(channel) = CHANNELS.get(focus) {
                        if channel.input.push(byte) {
                            channel.send(mail::INPUT);
                        } else {
                            channel.dropped.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Input::Text
                }
                (Input::Escape, _) => Input::Text,
            };
        }
        hand_over
    }
}

/// Returns the VM that receives console input.
#[must_use]
pub fn focus() -> usize {
    FOCUS.load(Ordering::Relaxed).into()
}

/// Directs console input to VM `vm` from here on.
pub fn give_input_to(vm: u8) {
    FOCUS.store(vm, Ordering::Relaxed);
}

/// Sets the core that serves the UART. Called before any other core runs.
pub fn init(console_core: CoreId) {
    CONSOLE_CORE.store(console_core.0, Ordering::Relaxed);
}

/// Returns the core that serves the UART.
#[must_use]
pub fn core() -> CoreId {
    CoreId(CONSOLE_CORE.load(Ordering::Relaxed))
}
