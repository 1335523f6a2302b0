//! The wire: every VM's console and the hypervisor's own records on the board's one UART.
//!
//! A VM's bytes wait in a ring of that VM's, the records in one of the hypervisor's own. One core,
//! the console core, empties them into the UART, a bounded number at a time; the others put bytes
//! in and ring a bell. So the time that the UART takes is never a guest's on another core, and
//! no core waits for a lock of another VM.

use crate::{
    arch::{lock::Lock, relax, timer},
    mail, notice, trace,
    uart::Uart,
};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use weir_abi::{MAX_CORES, MAX_VMS};
use weir_trace::{
    quota::Quota,
    ring::ByteRing,
    sender::TraceSender,
    wire::{self, ConsoleMark, FrameKind, Framing, HYPERVISOR, TRACE_RECORDS, WireEvent},
};
use weir_units::CoreId;
use weir_vdev::pl011::{FIFO_DEPTH, Sink};
use zerocopy::{Immutable, IntoBytes};

/// Bytes of a VM's output that wait for the UART; more is lost, and counted.
const OUTPUT: usize = 4096;
/// Bytes of a person's input that wait for a VM.
const INPUT: usize = 256;
/// Bytes of records that wait for the UART.
const RECORDS: usize = 32768;
/// How many of them can be of one VM's events. What all VMs together leave holds a round of
/// counters.
const EVENTS: usize = 1536;
/// Bytes that the console core passes on in one section with interrupts masked: half of the UART's
/// FIFO.
const SECTION: usize = 16;
/// After how many such sections it is another source's turn, if one waits. Each change of the
/// source costs the wire a mark.
const TURN: usize = 16;

/// What the console keeps of one VM.
pub struct VmConsole {
    output: ByteRing<OUTPUT>,
    input: ByteRing<INPUT>,
    dropped: AtomicU32,
    /// The guest was shown a full FIFO and waits for room.
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
            waits: AtomicBool::new(false),
            core: AtomicU8::new(0),
        }
    }

    /// Says which core the VM's first vCPU is on; on the boot core.
    pub fn connect(&self, core: u8) {
        self.core.store(core, Ordering::Relaxed);
    }

    fn send(&self, message: u32) {
        mail::send(CoreId(self.core.load(Ordering::Relaxed)), message);
    }

    /// The next byte that a person typed.
    pub fn typed(&self) -> Option<u8> {
        self.input.pop()
    }
}

static CHANNELS: [VmConsole; MAX_VMS] = [const { VmConsole::new() }; MAX_VMS];
static RECORDS_RING: ByteRing<RECORDS> = ByteRing::new();
/// The right to write records, held for the time of a copy, and what each VM has in the ring.
static RECORDS_WRITER: Lock<[Quota; MAX_VMS]> = Lock::new([Quota::new(); MAX_VMS]);
static RECORDS_LOST: AtomicU32 = AtomicU32::new(0);
static BELL: AtomicBool = AtomicBool::new(false);
static FOCUS: AtomicU8 = AtomicU8::new(0);
static CONSOLE_CORE: AtomicU8 = AtomicU8::new(0);

/// The console of VM `vm`.
#[must_use]
pub fn channel(vm: usize) -> &'static VmConsole {
    // Masked, so that no number can reach beyond; a VM's index is below MAX_VMS anyway (`packed`).
    &CHANNELS[vm % MAX_VMS]
}

/// A frame in memory: DLE, kind, length, payload, sum, with a DLE in the payload as it is.
struct Frame {
    bytes: [u8; 260],
    len: usize,
}

impl Frame {
    fn new(kind: FrameKind, payload: &(impl IntoBytes + Immutable)) -> Self {
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
    /// Room that a byte, doubled if it must be, and the mark after a line need.
    const UNIT: usize = 2 + 4 + size_of::<ConsoleMark>();

    /// The output of VM `vm`.
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
        // Set before the room is read again: the console core makes room first and reads `waits`
        // then, so one of the two sees the other.
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

/// Sends a record to the host.
pub fn record(kind: FrameKind, payload: &(impl IntoBytes + Immutable)) {
    send(&Frame::new(kind, payload), HYPERVISOR.into());
}

/// Puts a record of VM `vm`'s, or of the hypervisor's own, into the ring, or counts it as lost.
fn send(frame: &Frame, vm: usize) {
    let mut quotas = RECORDS_WRITER.lock();
    let lost = RECORDS_LOST.load(Ordering::Relaxed);
    let is_reported = lost == 0 || RECORDS_RING.push_all(mark(HYPERVISOR.into(), lost).as_slice());
    let lost = if is_reported { 0 } else { lost };
    let mut quota = quotas.get_mut(vm);
    let fits = quota
        .as_deref_mut()
        .is_none_or(|quota| quota.fits(frame.len, EVENTS, RECORDS_RING.positions()))
        && RECORDS_RING.push_all(frame.as_slice());
    if let Some(quota) = quota {
        if fits {
            quota.put(frame.len, RECORDS_RING.positions().0);
        } else {
            quota.lose();
        }
    }
    // Written under the lock only.
    RECORDS_LOST.store(lost + u32::from(!fits), Ordering::Relaxed);
    drop(quotas);
    ring_bell();
}

/// Sends an event to the host; the time is filled in here.
pub fn event(event: WireEvent) {
    let vm = event.vm.into();
    send(&Frame::new(FrameKind::Event, &WireEvent { time_ns: timer::now_ns(), ..event }), vm);
}

/// Returns how many records of VM `vm`'s events were lost.
#[must_use]
pub fn lost(vm: usize) -> u32 {
    RECORDS_WRITER.lock().get(vm).map_or(0, Quota::lost)
}

/// Notifies the console core that bytes wait, unless it has been notified.
fn ring_bell() {
    // AcqRel: the bytes were put in before the bell is seen, and the console core takes the bell
    // down before it reads the rings.
    if !BELL.swap(true, Ordering::AcqRel) {
        mail::send(core(), mail::CONSOLE);
    }
}

/// The board's UART, and where in the rings its reader is. It belongs to the console core.
pub struct Wire {
    uart: Uart,
    /// The source of the bytes that are being passed on: a VM, which is the one that the host takes
    /// console bytes for, or `MAX_VMS` for the records. It changes only between two frames.
    source: usize,
    /// Where in a frame of the source's the console is.
    framing: Framing,
    /// The sections that are left of the source's turn.
    turn: usize,
    /// A frame of the console's own on its way out, a mark or records of the trace, and how much of
    /// it went.
    frame: Frame,
    sent: usize,
    trace: TraceSender<MAX_CORES>,
    wanted: WantedTrace,
    input: Input,
}

/// What the host wants of the trace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WantedTrace {
    /// Nothing: it never asked.
    Nothing,
    /// What will be there at the end: it was sent what there was.
    Later,
    /// Full frames, while there are any.
    Full,
    /// All that is left, now that nothing follows.
    Rest,
}

/// What the host asked for by [`Wire::receive`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// A report of the counters.
    pub report: bool,
    /// That the active devices follow the console's input.
    pub hand_over: bool,
}

/// Where in a command from the host the console is.
#[derive(Clone, Copy)]
enum Input {
    Text,
    Escape,
    Focus,
}

impl Wire {
    /// Takes the UART over, which the firmware or the emulator has set up.
    ///
    /// # Safety
    ///
    /// Called once, on the console core, after stage 1 has the device.
    #[must_use]
    pub unsafe fn take() -> Self {
        // SAFETY: by the contract; `notice::refuse` and `notice::last_words`, which use it too,
        // stop their core.
        let mut uart = unsafe { Uart::take() };
        uart.enable();
        Self {
            uart,
            source: MAX_VMS,
            framing: Framing::Between,
            turn: TURN,
            frame: Frame { bytes: [0; 260], len: 0 },
            sent: 0,
            trace: TraceSender::new(),
            wanted: WantedTrace::Nothing,
            input: Input::Text,
        }
    }

    /// Passes on what waits, at most [`SECTION`] bytes, the last of which can be inside a frame.
    /// What is left comes by a bell of its own, or by the UART's interrupt when that is full.
    pub fn drain(&mut self) {
        if notice::is_refusing() {
            return;
        }
        // Before the rings are read: bytes that are put in after this ring again.
        BELL.swap(false, Ordering::AcqRel);
        self.turn = self.turn.saturating_sub(1);
        if self.pass() {
            ring_bell();
        }
        self.offer_room();
    }

    /// Passes on [`SECTION`] bytes. Returns false if fewer wait or fit.
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

    /// Passes on everything, waiting for the UART: for the last words of a system.
    pub fn flush(&mut self) {
        if self.wanted != WantedTrace::Nothing {
            self.wanted = WantedTrace::Rest;
        }
        // The last call may have prepared a frame of the trace.
        while self.pass() || self.uart.is_full() || self.sent < self.frame.len {
            relax();
        }
        while self.uart.is_busy() {
            relax();
        }
    }

    /// Returns the next byte to send: of the frame on its way out, else of the source, else of
    /// another one.
    #[inline(always)]
    fn next(&mut self) -> Option<u8> {
        if self.sent < self.frame.len {
            let byte = self.frame.bytes.get(self.sent).copied();
            self.sent += 1;
            return byte;
        }
        // A frame is in its ring as a whole, so that its source has the rest of it.
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
        let byte = match CHANNELS.get(self.source) {
            Some(channel) => channel.output.pop(),
            None => RECORDS_RING.pop(),
        }?;
        self.framing = self.framing.after(byte);
        Some(byte)
    }

    /// Gives the next source that has bytes its turn, this one as the last, and returns the first
    /// byte to send: a VM's bytes follow a mark.
    #[inline(never)]
    fn change_source(&mut self) -> Option<u8> {
        self.offer_room();
        let last = self.source;
        for step in 1..=MAX_VMS + 1 {
            let source = (last + step) % (MAX_VMS + 1);
            let is_empty = match CHANNELS.get(source) {
                Some(channel) => channel.output.is_empty(),
                None => RECORDS_RING.is_empty(),
            };
            if is_empty {
                continue;
            }
            (self.source, self.turn) = (source, TURN);
            // After records, which may have been a mark, the host takes bytes for no VM.
            if source != last && source < MAX_VMS {
                return Some(self.begin(mark(source, 0)));
            }
            return self.pop();
        }
        self.prepare_trace();
        None
    }

    /// Tells the VM after its bytes were passed on that there is room for more, if its guest waits.
    fn offer_room(&self) {
        // The room was made before `waits` is read; see `Output::room`.
        if let Some(channel) = CHANNELS.get(self.source)
            && channel.waits.load(Ordering::SeqCst)
            && channel.output.room() >= OUTPUT / 2
            && channel.waits.swap(false, Ordering::SeqCst)
        {
            channel.send(mail::ROOM);
        }
    }

    /// Prepares a frame of records, which go when nothing else waits: VMs' lines are not late
    /// because the host wants the trace. To copy the records takes most of a section, so that the
    /// frame goes with the next one.
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

    /// Takes what a person typed, at most what the UART's FIFO holds, and the host's commands.
    pub fn receive(&mut self) -> Asked {
        let mut asked = Asked::default();
        for _ in 0..32 {
            let byte = match self.uart.read() {
                Some(Some(byte)) => byte,
                // Only this byte is lost.
                Some(None) => continue,
                None => break,
            };
            self.input = match (self.input, byte) {
                (Input::Text, wire::DLE) => Input::Escape,
                (Input::Escape, wire::FOCUS) => Input::Focus,
                (Input::Escape, wire::REPORT) => {
                    asked.report = true;
                    Input::Text
                }
                (Input::Escape, wire::TRACE) => {
                    self.wanted = WantedTrace::Full;
                    Input::Text
                }
                (Input::Text, wire::PADDING) => Input::Text,
                (Input::Focus, vm) => {
                    give_input_to(vm);
                    asked.hand_over = true;
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
        asked
    }
}

/// The VM that has what a person types.
#[must_use]
pub fn focus() -> usize {
    FOCUS.load(Ordering::Relaxed).into()
}

/// From here on what a person types is this VM's.
pub fn give_input_to(vm: u8) {
    FOCUS.store(vm, Ordering::Relaxed);
}

/// Says which core serves the UART; before any other core runs.
pub fn init(console_core: CoreId) {
    CONSOLE_CORE.store(console_core.0, Ordering::Relaxed);
}

/// The core that serves the UART.
#[must_use]
pub fn core() -> CoreId {
    CoreId(CONSOLE_CORE.load(Ordering::Relaxed))
}
