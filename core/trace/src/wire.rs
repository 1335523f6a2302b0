//! The frames on the board's UART.
//!
//! One UART carries every VM's console and the hypervisor's own records. Console bytes go out as
//! they are; [`DLE`] starts a frame: `DLE kind length payload[length] sum`, where `sum` is the
//! wrapping sum of kind, length and payload. A console byte equal to `DLE` goes out twice. After a
//! [`ConsoleMark`] frame the console bytes belong to the VM that it names.
//!
//! In the other direction a console byte goes to the VM that has the focus, `DLE DLE` is a console
//! byte equal to `DLE`, `DLE a VM` moves the focus, `DLE r` asks for [`What::SystemRuns`] and a
//! round of [`VcpuCounters`] and [`Denials`], and `DLE t` for [`TraceRecords`]. [`PADDING`] has no
//! meaning; a console byte of its value is sent as `DLE` and that byte.

use crate::record::Record;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Data link escape: the byte that starts a frame.
pub const DLE: u8 = 0x10;
/// Command from the host: the next byte names the VM that gets the console input from now on.
pub const FOCUS: u8 = b'a';
/// Command from the host: send the counters now.
pub const REPORT: u8 = b'r';
/// Command from the host: send the trace's new records. Until the system's end the last few records
/// of a core wait for further ones; then all are sent.
pub const TRACE: u8 = b't';
/// A byte without meaning. After a stray [`DLE`] from noise it costs one superfluous key; a command
/// in its place would become keys for the wrong VM.
pub const PADDING: u8 = 0x1e;
/// The VM number that stands for the hypervisor itself.
pub const HYPERVISOR: u8 = 0xff;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A [`ConsoleMark`].
    Mark = 1,
    /// An [`WireEvent`].
    Event = 2,
    /// [`VcpuCounters`].
    Counters = 3,
    /// [`Denials`].
    Denials = 4,
    /// A [`FlowCounts`].
    Flow = 5,
    /// A [`PortCounts`].
    Port = 6,
    /// [`Boots`].
    Boots = 7,
    /// [`TraceRecords`].
    Trace = 8,
}

/// Announces that the console bytes from here on belong to VM `vm`. It is sent when the VM changes
/// and after each line feed, so that the mark after a line has the time at which the line was
/// complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConsoleMark {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The VM's place in the system file.
    pub vm: u32,
    /// Console bytes of this VM lost since the last mark that named it.
    pub dropped: u32,
}

/// An event of a VM or of the whole system.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WireEvent {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// A [`What`].
    pub what: u16,
    /// The VM, or [`HYPERVISOR`].
    pub vm: u8,
    /// The vCPU within the VM.
    pub vcpu: u8,
    /// By `what`: a [`FaultKind`], a [`Denial`], a [`Regulator`] or the number of this boot.
    pub detail: u32,
    /// ESR_EL2 of a fault, the function number of a refused call, the encoding of a register, a
    /// [`dma_syndrome`], or the number that [`What::Regulator`] describes. In an event of the whole
    /// system, the identity of the running image.
    pub syndrome: u64,
    /// The IPA of a fault, or the address that a device accessed.
    pub address: u64,
    /// The guest's program counter.
    pub pc: u64,
    /// ESR_EL1 at the time of a fault: the exception that the guest itself was handling.
    pub guest_syndrome: u64,
    /// ELR_EL1 at the time of a fault.
    pub guest_elr: u64,
}

impl WireEvent {
    /// Returns the identity of the running image, which is in events of the whole system.
    #[must_use]
    pub fn image_id(&self) -> Option<u64> {
        let of_system = matches!(
            What::from_number(self.what),
            Some(What::SystemStart | What::SystemRuns | What::SystemStop)
        );
        of_system.then_some(self.syndrome)
    }
}

/// Returns [`WireEvent::syndrome`] of [`Denial::Dma`]: the SMMU's event number in bits 7:0, bit 8
/// for a write, the stream in bits 63:32.
#[must_use]
pub const fn dma_syndrome(stream: u32, write: bool, number: u8) -> u64 {
    (stream as u64) << 32 | (write as u64) << 8 | number as u64
}

/// The subject of a [`WireEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum What {
    /// The hypervisor runs on all cores.
    SystemStart = 1,
    /// A VM begins a boot; `detail` counts from 0.
    VmStart = 2,
    /// The VM called PSCI SYSTEM_OFF, or its last vCPU was turned off.
    VmOff = 3,
    /// The VM called PSCI SYSTEM_RESET.
    VmReset = 4,
    /// A fault ended a boot of the VM; `detail` is a [`FaultKind`].
    VmFault = 5,
    /// The VM was stopped for good, as its `on_fault` demands.
    VmHalted = 6,
    /// The first [`Denial`] of its kind in this boot; `detail` says which.
    Denied = 7,
    /// The system ends: every VM is off, or one with `on_fault = "stop-system"` had a fault.
    SystemStop = 8,
    /// The VM starts although the broker of its flows is not ready: EL2 has waited for the broker
    /// as long as it may.
    BrokerLate = 9,
    /// The system runs: the answer to a request for the counters.
    SystemRuns = 10,
    /// The firmware was asked to limit the DMA engine: `detail` is a [`Regulator`], `syndrome` the
    /// level that is set, the version of the firmware's call, or the firmware's error.
    Regulator = 11,
}

impl What {
    /// Returns the event with this number, or `None` for a number from a newer hypervisor.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        use What::{
            BrokerLate, Denied, Regulator, SystemRuns, SystemStart, SystemStop, VmFault, VmHalted,
            VmOff, VmReset, VmStart,
        };
        let system = [SystemStart, SystemRuns, SystemStop, Regulator];
        let vm = [VmStart, VmOff, VmReset, VmFault, VmHalted, Denied, BrokerLate];
        system.into_iter().chain(vm).find(|what| *what as u16 == number)
    }
}

/// Declares an enum with numbers that index an array of counts, and a name for each in reports.
macro_rules! counted {
    ($(#[$doc:meta])* $name:ident {
        $($(#[doc = $variant_doc:literal])* $variant:ident = $text:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[doc = $variant_doc])* $variant,)* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The meaning, for the reference.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => concat!($($variant_doc),*),)* }
            }
        }
    };
}

counted! {
    /// Why a boot ended.
    FaultKind {
        /// A load from an IPA that is not the VM's.
        Read = "read outside its memory",
        /// A store to an IPA that is not the VM's.
        Write = "write outside its memory",
        /// An instruction fetch from an IPA that is not the VM's, or not executable.
        Fetch = "jump outside its memory",
        /// An access to an emulated device that its syndrome does not describe (pairs, exclusives,
        /// atomics).
        Undescribed = "unsupported access to a device",
        /// A load or store that the board answered with an external abort.
        External = "external abort",
        /// A page-table walk of the guest outside of its memory.
        TableWalk = "page tables outside its memory",
        /// An SError while the guest ran.
        SError = "SError",
        /// An exception that the hypervisor has no use for.
        Unexpected = "unexpected exception",
        /// Its budget uses the counter page, but nothing counts there.
        Uncounted = "a budget with a counter page that has no writer",
        /// The broker of the flows did not end a copy after a reset of its sender or receiver.
        Stuck = "a copy that does not end",
    }
}

counted! {
    /// What a guest tried and was refused, and lived on.
    Denial {
        /// An HVC or SMC with a function number that weir does not offer.
        Call = "unknown or denied hypercall or SMC",
        /// A register of the performance monitors.
        Pmu = "PMU register",
        /// A debug register.
        Debug = "debug register",
        /// A trace register.
        Trace = "trace register",
        /// A register that the implementation defined.
        ImplementationDefined = "implementation-defined register",
        /// Cache maintenance by set and way.
        SetWay = "set/way cache maintenance",
        /// Another register that traps.
        Register = "other system register",
        /// A PSCI call with arguments that are not the VM's to use.
        Psci = "PSCI call outside the VM",
        /// An access of a device that it was given, by that device; the event has the SMMU's words
        /// for it.
        Dma = "DMA outside its memory",
        /// A packet that no flow allows or that is malformed, or a ring that makes no sense.
        Virtio = "malformed or disallowed packet",
        /// A transfer that the DMA engine did not complete for the broker; the event has the
        /// engine's error bits, zeros if it took too long.
        Engine = "transfer that the DMA engine did not complete",
        /// An access outside its memory that was answered with an external abort, by `on_outside`.
        Outside = "access outside its memory",
    }
}

counted! {
    /// What the firmware made of the request to limit the DMA engine by its QoS regulator.
    Regulator {
        /// It limits the engine.
        Set = "set",
        /// It does not have the call.
        Absent = "absent",
        /// It has the call in a version that weir does not know.
        Version = "version",
        /// It refused, with an error.
        Refused = "refused",
    }
}

counted! {
    /// Why a vCPU left the guest for EL2.
    ExitCause {
        /// The virtual or physical timer of the guest.
        Timer = "timer interrupt",
        /// An interrupt of a device that the VM was given.
        DeviceIrq = "device interrupt",
        /// A message from another core: an SGI for the guest, or the hypervisor's own.
        Message = "message from another core",
        /// GIC maintenance.
        Maintenance = "GIC maintenance",
        /// An interrupt of the hypervisor's own (console, heartbeat).
        OwnIrq = "hypervisor's own interrupt",
        /// An HVC or SMC, PSCI or other.
        Call = "hypercall",
        /// A software-generated interrupt sent by the guest.
        Sgi = "SGI sent",
        /// The virtual GIC's registers in memory.
        Gic = "GIC register",
        /// The virtual PL011.
        Uart = "UART register",
        /// An ID register read.
        IdRegister = "ID register",
        /// Any other trapped system register.
        SystemRegister = "system register",
        /// What ended a boot.
        Fault = "fault",
        /// The configuration space of its PCI functions.
        Pci = "PCI configuration",
        /// The virtio socket device.
        Virtio = "virtio register",
        /// Anything else.
        Other = "other",
    }
}

/// Number of [`ExitCause`]s.
pub const EXIT_CAUSES: usize = ExitCause::ALL.len();
/// Number of [`Denial`]s.
pub const DENIALS: usize = Denial::ALL.len();

/// Counters of one vCPU since the system started, including the VM's earlier boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VcpuCounters {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The VM.
    pub vm: u8,
    /// The vCPU within the VM.
    pub vcpu: u8,
    /// A [`VcpuState`].
    pub state: u8,
    /// Zero.
    pub reserved: u8,
    /// Number of the VM's boots that ended (by reset or by fault) and were followed by another.
    pub restarts: u32,
    /// Exits by [`ExitCause`].
    pub exits: [u64; EXIT_CAUSES],
    /// How often virtual interrupts were put into list registers, for one physical interrupt or for
    /// messages of other vCPUs.
    pub injected: u64,
}

counted! {
    /// What a vCPU is doing.
    VcpuState {
        /// Powered off, to be turned on by CPU_ON.
        Off = "off",
        /// Running the guest (or waiting in the guest's WFI).
        On = "on",
        /// Its VM was stopped for good.
        Halted = "halted",
    }
}

counted! {
    /// What a VM is doing.
    VmState {
        /// Not started yet.
        NotStarted = "not started",
        /// Running, or about to start again.
        Running = "running",
        /// It powered itself off.
        Off = "off",
        /// It was stopped for good after a fault.
        Halted = "halted",
    }
}

/// Number of [`FaultKind`]s.
pub const FAULT_KINDS: usize = FaultKind::ALL.len();

/// The boots of one VM since the system started, as EL2 counted them. Records of events can be
/// lost, but these counts are sent again with each round of counters and at the system's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Boots {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The VM.
    pub vm: u8,
    /// A [`VmState`].
    pub state: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Boots that ended and were followed by another.
    pub restarts: u32,
    /// Boots ended by PSCI SYSTEM_RESET.
    pub resets: u32,
    /// Records of this VM's events that were lost.
    pub lost: u32,
    /// Boots ended by force, by [`FaultKind`].
    pub faults: [u64; FAULT_KINDS],
}

/// Denied actions of one VM since the system started, by [`Denial`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Denials {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The VM.
    pub vm: u32,
    /// Zero.
    pub reserved: u32,
    /// Number of denials, by [`Denial`].
    pub counts: [u64; DENIALS],
}

/// Counts of a flow's packets since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FlowCounts {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The flow's place in the system file, where a flow to several receivers counts once for each.
    pub flow: u32,
    /// How often the flow's receiver was dropped because it kept a flow's other receivers waiting.
    pub dropped: u32,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that were given up because the sender or the receiver was reset.
    pub lost: u64,
    /// The longest time from the later of a packet's notification and its eligibility to its
    /// receiver's interrupt, in ns.
    pub observed_max_ns: u64,
    /// The shortest such time, in ns; `u64::MAX` without a packet.
    pub least_ns: u64,
    /// Packets with a latency above the flow's deadline; 0 without a deadline.
    pub late: u64,
    /// The number of the first packet with a latency of [`FlowCounts::observed_max_ns`], counted
    /// from 1; 0 without a packet.
    pub observed_max_packet: u64,
    /// When that packet arrived, in nanoseconds since the hypervisor started.
    pub observed_max_arrived_ns: u64,
}

/// Counts of the frames of a VM's network device since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PortCounts {
    /// Nanoseconds since the hypervisor started.
    pub time_ns: u64,
    /// The VM.
    pub vm: u32,
    /// Zero.
    pub reserved: u32,
    /// Frames that the VM sent and that were passed on.
    pub sent: u64,
    /// Frames that the VM received.
    pub received: u64,
    /// Frames that were dropped because the VM sent more than it may.
    pub over_rate: u64,
    /// Frames that the VM sent and that were malformed or had the address of another sender.
    pub refused: u64,
    /// Frames for the VM that were dropped because it had no buffer for them or did not run.
    pub missed: u64,
}

/// Maximum number of records in a [`TraceRecords`].
pub const TRACE_RECORDS: usize = 6;

/// Consecutive records of a core's trace.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TraceRecords {
    /// The core.
    pub core: u8,
    /// Number of records.
    pub count: u8,
    /// Number of records, from the first on, that were overwritten while they were copied.
    pub torn: u8,
    /// Zeros.
    pub reserved: [u8; 5],
    /// Number of the first record, counted from 0 since the core began. Records whose numbers are
    /// missing were overwritten.
    pub first: u64,
    /// The counter's frequency in ticks per second.
    pub frequency: u64,
    /// The counter's value at the hypervisor's start.
    pub zero: u64,
    /// The records.
    pub records: [Record; TRACE_RECORDS],
}

// A frame's length is one byte.
const _: () = assert!(size_of::<TraceRecords>() < 256);
const _: () = assert!(size_of::<VcpuCounters>() < 256 && size_of::<Denials>() < 256);
const _: () = assert!(size_of::<Boots>() < 256);

/// Sends a frame by calling `out` with each of its parts.
pub fn frame(kind: FrameKind, payload: &(impl IntoBytes + Immutable), mut out: impl FnMut(&[u8])) {
    let payload = payload.as_bytes();
    let length = payload.len() as u8;
    let sum = (kind as u8).wrapping_add(length);
    let sum = sum.wrapping_add(sum_of(payload));
    out(&[DLE, kind as u8, length]);
    out(payload);
    out(&[sum]);
}

/// Returns the wrapping sum of at most 255 bytes. It adds eight bytes at a time, because EL2
/// computes the sums of frames with interrupts masked.
fn sum_of(bytes: &[u8]) -> u8 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    let (words, rest) = bytes.as_chunks::<8>();
    // Four sums of 16 bits each.
    let sums = words.iter().fold(0u64, |sums, word| {
        let word = u64::from_le_bytes(*word);
        sums.wrapping_add(word & EVEN).wrapping_add(word >> 8 & EVEN)
    });
    // The uppermost 16 bits of the product are the sum of the four sums.
    let sum = (sums.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u8;
    rest.iter().fold(sum, |sum, &byte| sum.wrapping_add(byte))
}

/// Finds the ends of frames, for code that forwards bytes and may stop only between frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Not in a frame.
    #[default]
    Between,
    /// After DLE.
    Escape,
    /// After the kind.
    Length,
    /// This many bytes of the frame, including the sum, are still to come.
    Payload(u16),
}

impl Framing {
    /// Returns the state after `byte`.
    #[inline]
    #[must_use]
    pub fn after(self, byte: u8) -> Self {
        match self {
            Self::Between if byte == DLE => Self::Escape,
            Self::Escape if byte != DLE => Self::Length,
            Self::Length => Self::Payload(u16::from(byte) + 1),
            Self::Payload(left) if left > 1 => Self::Payload(left - 1),
            Self::Between | Self::Escape | Self::Payload(_) => Self::Between,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoder, WirePiece};
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Vec<WirePiece> {
        let mut decoder = Decoder::default();
        let mut pieces = Vec::new();
        for &byte in bytes {
            decoder.push(byte);
            pieces.extend(std::iter::from_fn(|| decoder.next_piece()));
        }
        pieces
    }

    #[test]
    fn frames_and_text_come_back_as_sent() {
        let mark = ConsoleMark { time_ns: 0x1010_1010_1010, vm: 2, dropped: 16 };
        let counters = VcpuCounters {
            time_ns: 5,
            vm: 1,
            vcpu: 0,
            state: VcpuState::On as u8,
            reserved: 0,
            restarts: 3,
            exits: [7; EXIT_CAUSES],
            injected: 9,
        };
        let mut bytes = vec![b'a', DLE, DLE];
        frame(FrameKind::Mark, &mark, |part| bytes.extend_from_slice(part));
        bytes.push(b'b');
        frame(FrameKind::Counters, &counters, |part| bytes.extend_from_slice(part));
        assert_eq!(
            decode(&bytes),
            [
                WirePiece::Byte(b'a'),
                WirePiece::Byte(DLE),
                WirePiece::Mark(mark),
                WirePiece::Byte(b'b'),
                WirePiece::Counters(counters)
            ]
        );
    }

    #[test]
    fn framing_ends_where_a_piece_ends() {
        let mut bytes = vec![b'a', DLE, DLE, b'b'];
        frame(FrameKind::Mark, &ConsoleMark { time_ns: 0, vm: DLE.into(), dropped: 0 }, |part| {
            bytes.extend_from_slice(part);
        });
        bytes.push(b'c');
        let (mut decoder, mut framing) = (Decoder::default(), Framing::default());
        for byte in bytes {
            framing = framing.after(byte);
            decoder.push(byte);
            assert_eq!(decoder.next_piece().is_some(), framing == Framing::Between);
        }
    }

    #[test]
    fn the_sum_is_that_of_the_bytes() {
        let bytes: [u8; 255] = std::array::from_fn(|at| (at * 151) as u8 | 0x80);
        for len in 0..=bytes.len() {
            let sum = bytes[..len].iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte));
            assert_eq!(sum_of(&bytes[..len]), sum);
        }
        assert_eq!(sum_of(&[255; 255]), 1);
    }

    #[test]
    fn a_flipped_bit_is_damage() {
        let mut bytes = Vec::new();
        frame(FrameKind::Mark, &ConsoleMark { time_ns: 1, vm: 2, dropped: 0 }, |part| {
            bytes.extend_from_slice(part);
        });
        bytes[5] ^= 4;
        let pieces = decode(&bytes);
        assert_eq!(pieces[0], WirePiece::Damaged);
        assert!(pieces[1..].iter().all(|piece| matches!(piece, WirePiece::Byte(_))), "{pieces:?}");
    }

    #[test]
    fn the_next_frame_survives_each_lost_or_changed_byte() {
        let first = ConsoleMark { time_ns: 0x1010, vm: 2, dropped: 0 };
        let second = ConsoleMark { time_ns: 9, vm: 3, dropped: 0 };
        let mut bytes = Vec::new();
        frame(FrameKind::Mark, &first, |part| bytes.extend_from_slice(part));
        let end = bytes.len();
        bytes.extend(b"text");
        frame(FrameKind::Mark, &second, |part| bytes.extend_from_slice(part));
        for position in 0..end {
            let mut lost = bytes.clone();
            lost.remove(position);
            let mut changed = bytes.clone();
            changed[position] ^= 0x50;
            for noisy in [lost, changed] {
                let pieces = decode(&noisy);
                assert_eq!(pieces.last(), Some(&WirePiece::Mark(second)), "{position}");
                assert!(pieces.len() > 5, "the text is there: {pieces:?}");
            }
        }
    }

    #[test]
    fn names_follow_the_numbers() {
        for (number, cause) in ExitCause::ALL.iter().enumerate() {
            assert_eq!(*cause as usize, number);
        }
        assert_eq!(What::from_number(What::Denied as u16), Some(What::Denied));
        assert_eq!(What::from_number(99), None);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            decode(&bytes);
        }
    }
}
