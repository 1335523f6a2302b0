//! Trace records: events of a core of the hypervisor, their times and their VMs.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The VM number in records that concern no VM.
pub const NO_VM: u8 = 0xff;
/// Bits of [`Record::other`]; the rest of its word is the record's sequence number.
pub const OTHER_BITS: u32 = 48;

/// The greatest [`Record::other`]. A budget with this value can be greater.
pub const MOST_OTHER: u64 = (1 << OTHER_BITS) - 1;

/// Declares a structure of bytes, with the size and the meaning of its fields for the reference.
#[macro_export]
macro_rules! layout {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[doc = $doc:literal])+ $field_vis:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[doc = $doc])+ $field_vis $field: $type,)* }

        impl $name {
            /// Size in bytes, name and meaning of each field.
            $vis const LAYOUT: &[(usize, &str, &str)] =
                &[$((size_of::<$type>(), stringify!($field), concat!($($doc),+)),)*];
        }
    };
}

layout! {
    /// One record, 32 bytes, little endian.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct Record {
        /// The time, in ticks of CNTPCT_EL0.
        pub time: u64,
        /// The kind: a [`RecordKind`]. The numbers are fixed.
        pub kind: u16,
        /// The VM's place in the system file, or 255 ([`NO_VM`]).
        pub vm: u8,
        /// The vCPU within the VM.
        pub vcpu: u8,
        /// The first number, by kind.
        pub detail: u32,
        /// The second number, by kind.
        pub count: u64,
        /// Bits 47:0: `other`, the third number, by kind. Bits 63:48: the sequence number in a
        /// ring, the core in `trace.bin`.
        pub rest: u64,
    }
}

impl Record {
    /// The third number, by kind.
    #[must_use]
    pub const fn other(&self) -> u64 {
        self.rest & MOST_OTHER
    }

    /// Returns the number of earlier records of the same core, modulo 2^16; in a file, the core.
    #[must_use]
    pub const fn sequence(&self) -> u16 {
        (self.rest >> OTHER_BITS) as u16
    }

    /// Whether the record is about a chunk that the DMA engine moved.
    #[must_use]
    pub const fn is_by_engine(&self) -> bool {
        self.kind == RecordKind::PacketChunk as u16 && self.detail & BY_ENGINE != 0
    }

    /// Returns the flow of a packet that was sent or has arrived.
    #[must_use]
    pub const fn flow(&self) -> u32 {
        self.detail >> 16 & 0xff
    }

    /// Whether the record is about an arrived packet that had to wait for receive buffers.
    #[must_use]
    pub const fn has_waited(&self) -> bool {
        self.kind == RecordKind::PacketArrived as u16 && self.detail & WAITED != 0
    }

    /// Returns the same record with another number in bits 63:48 of [`Self::rest`].
    #[must_use]
    pub const fn with_sequence(self, sequence: u16) -> Self {
        Self { rest: join(self.other(), sequence as u64), ..self }
    }
}

/// Returns the last word of a record: the low 48 bits of `other` and the low 16 of `sequence`.
pub(crate) const fn join(other: u64, sequence: u64) -> u64 {
    other & MOST_OTHER | sequence << OTHER_BITS
}

/// The VM and the vCPU of a record, prepared once for each vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u64);

impl Origin {
    /// The origin of records that belong to no VM.
    pub const NO_VM: Self = Self::new(NO_VM, 0);

    /// Returns the origin of records about a vCPU of the VM at this place in the system file.
    #[must_use]
    pub const fn new(vm: u8, vcpu: u8) -> Self {
        Self((vm as u64) << 16 | (vcpu as u64) << 24)
    }

    /// Returns the tag of a record of this kind with this origin.
    #[must_use]
    pub const fn tag(self, kind: RecordKind, detail: u32) -> Tag {
        Tag(self.0 | kind as u64 | (detail as u64) << 32)
    }
}

/// The second word of a record: kind, VM, vCPU and detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub(crate) u64);

/// The name of a task or section in a record: the first eight bytes of its UTF-8 form, the first in
/// bits 7:0, and zeros after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkName(pub u64);

impl MarkName {
    /// The bytes of a name that are kept.
    pub const BYTES: usize = 8;

    /// Returns the name in records of a task or section with this name.
    #[must_use]
    pub const fn new(name: &str) -> Self {
        let (name, mut word, mut at) = (name.as_bytes(), 0, 0);
        while at < name.len() && at < Self::BYTES {
            word |= (name[at] as u64) << (8 * at);
            at += 1;
        }
        Self(word)
    }
}

impl core::fmt::Display for MarkName {
    /// Writes the bytes up to the first zero. A guest chooses them freely, so that what is not
    /// graphic ASCII becomes a question mark.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use core::fmt::Write as _;
        let bytes = self.0.to_le_bytes().into_iter().take_while(|byte| *byte != 0);
        bytes
            .map(|byte| if byte.is_ascii_graphic() { byte as char } else { '?' })
            .try_for_each(|letter| f.write_char(letter))
    }
}

/// Declares the kinds: number, name in reports, and the names of detail, count and other, empty
/// where a kind has none.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $variant:ident = $number:literal, $name:literal, [$detail:literal, $count:literal, $other:literal];)*) => {
        /// What a [`Record`] is about, and what its numbers are. The numbers are fixed. 28 to 31
        /// are kept for schedules of shared cores, 36 to 63 for more phases of a packet (rt-virtio,
        /// Table II).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum RecordKind { $($(#[doc = $doc])* $variant = $number,)* }

        impl RecordKind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The kind with this number, unless it is from a newer hypervisor.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// The name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What [`Record::detail`], [`Record::count`] and [`Record::other`] are; empty for one
            /// that is not used.
            #[must_use]
            pub const fn fields(self) -> [&'static str; 3] {
                match self { $(Self::$variant => [$detail, $count, $other],)* }
            }

            /// The meaning, for the reference.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),*),)* }
            }
        }
    };
}

kinds! {
    /// A trap took the core from a vCPU's guest to EL2: the cause
    /// ([`ExitCause`](crate::wire::ExitCause)) and ESR_EL2.
    Exit = 1, "exit", ["cause", "syndrome", ""];
    /// The vCPU continues in its guest. A hypervisor may leave it out; exits have no length then.
    Enter = 2, "enter", ["", "", ""];
    /// A physical interrupt took the core from a vCPU's guest to EL2, or came while the vCPU had
    /// the core. Not recorded: the ticks of EL2, and the messages by which the console core
    /// continues its console work. A record has 32 bytes, and each message passes on 16: a trace
    /// that leaves by the console would not end.
    Interrupt = 3, "interrupt", ["intid", "", ""];
    /// A period began: [`Accesses`], those counted in the one that ended, those available from now
    /// on, which are the budget or what was drawn from a pool.
    Replenish = 4, "replenish", ["accesses", "used", "budget"];
    /// The counter reached the budget: [`Accesses`], those of this period so far, the budget.
    Overflow = 5, "overflow", ["accesses", "used", "budget"];
    /// The vCPU was suspended until its next budget: [`Accesses`], those of this period so far, the
    /// budget.
    Throttle = 6, "throttle", ["accesses", "used", "budget"];
    /// A suspended vCPU continues: [`Accesses`], 0, the budget less the debt. The `replenish` or
    /// `draw` before it has the use.
    Wake = 7, "wake", ["accesses", "used", "budget"];
    /// Another budget from the next period on: [`Accesses`], the new one, the old one.
    BudgetChanged = 8, "budget-changed", ["accesses", "budget", "was"];
    /// Within a period the budget changed, or a suspended vCPU got more: [`Accesses`], those of
    /// this period so far, the budget, of which a part was drawn from others'.
    Draw = 9, "draw", ["accesses", "used", "budget"];
    /// A VM begins a boot; boots are counted from 0.
    VmStart = 10, "vm-start", ["boot", "", ""];
    /// A VM's boot ended by its own call, or by the last CPU_OFF.
    VmStop = 11, "vm-stop", ["boot", "", ""];
    /// A VM's boot ended by a fault: a [`FaultKind`](crate::wire::FaultKind), ESR_EL2, the IPA.
    VmFault = 12, "vm-fault", ["fault", "syndrome", "address"];
    /// A VM is to begin another boot; boots are counted from 0.
    VmRestart = 13, "vm-restart", ["boot", "", ""];
    /// A vCPU was turned on.
    VcpuOn = 14, "vcpu-on", ["", "", ""];
    /// A vCPU was turned off.
    VcpuOff = 15, "vcpu-off", ["", "", ""];
    /// A vCPU gets the core: the vCPU that had it (256 * VM + vCPU), and the counter in ticks when
    /// EL2 began the work that took the core from it; 0 if the core was free in between, and for
    /// the first time of a vCPU.
    VcpuSwitch = 16, "vcpu-switch", ["outgoing", "began", ""];
    /// A period ended in which EL2 polled the counter page for the vCPU: the polls, and the time
    /// from when the latest of them was due until it came, in ns.
    Polls = 17, "polls", ["", "polls", "late"];
    /// A guest marks an activation of a task: the releases that passed without an activation of
    /// their own since the one before, the task's name ([`MarkName`]), and for how long the
    /// activation had been released, in ticks.
    TaskRelease = 18, "task-release", ["skipped", "task", "age"];
    /// A guest marks the completion of a task's activation: the task's name.
    TaskComplete = 19, "task-complete", ["", "task", ""];
    /// A guest marks the beginning of a section of its program: the section's name.
    SectionBegin = 20, "section-begin", ["", "section", ""];
    /// A guest marks the end of a section: the section's name.
    SectionEnd = 21, "section-end", ["", "section", ""];
    /// An interrupt waits for the slot of its VM or for a token: its INTID, the interrupts deferred
    /// so far, and until when in ns if it is masked until then.
    LineDeferred = 24, "line-deferred", ["intid", "deferred", "until"];
    /// An interrupt took the core for its VM: its INTID.
    LinePreempted = 25, "line-preempted", ["intid", "", ""];
    /// No guest has a core that vCPUs share: the core is idle, or EL2 starts, loads or stops a VM.
    CoreFree = 26, "core-free", ["", "", ""];
    /// A vCPU gets back the core that was free, and that no other vCPU had in between.
    VcpuResume = 27, "vcpu-resume", ["", "", ""];
    /// The broker took a packet out of its sender's ring: 65536 * flow + head of the chain, phases,
    /// when its driver had notified of it, in ns.
    PacketSent = 32, "packet-sent", ["packet", "phases", "seen"];
    /// The broker moved a chunk into a receiver's buffer: the buffer's head, with bit 31
    /// ([`BY_ENGINE`]) if the DMA engine moved the chunk; phases; bytes.
    PacketChunk = 33, "packet-chunk", ["buffer", "phases", "bytes"];
    /// A packet has arrived: 65536 * flow + head of the chain, with bit 31 ([`WAITED`]) if its
    /// receiver had no buffer for it at first; phases; latency in ns from when it could go to the
    /// interrupt of its receiver. HC and FT are those of the hypercall before.
    PacketArrived = 34, "packet-arrived", ["packet", "phases", "latency"];
    /// The receiver's driver acknowledged the interrupt for what had arrived: phases.
    PacketTaken = 35, "packet-taken", ["", "phases", ""];
    /// In `trace.bin` only: records were overwritten before they were read.
    Lost = 0xffff, "lost", ["", "records", ""];
}

/// Returns [`Record::detail`] of [`RecordKind::VcpuSwitch`]: the VM and the vCPU that had the core;
/// VM [`NO_VM`] if the core was free.
#[must_use]
pub const fn outgoing(vm: u8, vcpu: u8) -> u32 {
    (vm as u32) << 8 | vcpu as u32
}

/// Returns [`Record::detail`] of a packet: its flow, and the head of its chain in the sender's
/// ring.
#[must_use]
pub const fn packet(flow: u8, head: u16) -> u32 {
    (flow as u32) << 16 | head as u32
}

/// Bit of [`Record::detail`] of [`RecordKind::PacketChunk`]: set if the DMA engine moved the chunk,
/// clear if a core copied it.
pub const BY_ENGINE: u32 = 1 << 31;

/// Bit of [`Record::detail`] of [`RecordKind::PacketArrived`]: set if the packet had to wait until
/// its receiver's driver returned buffers.
pub const WAITED: u32 = 1 << 31;

/// The accesses that a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Accesses {
    /// All accesses that the event counts.
    All = 0,
    /// Reads: refills.
    Reads = 1,
    /// Writes: write-backs.
    Writes = 2,
}

impl Accesses {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::All, Self::Reads, Self::Writes];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["all", "reads", "writes"][self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_second_word_of_a_record() {
        let record = Record {
            kind: RecordKind::Throttle as u16,
            vm: 3,
            vcpu: 1,
            detail: 0xdead_beef,
            ..Record::default()
        };
        let word = u64::from_le_bytes(record.as_bytes()[8..16].try_into().unwrap());
        assert_eq!(Origin::new(3, 1).tag(RecordKind::Throttle, 0xdead_beef).0, word);
        assert_eq!(size_of::<Record>(), 32);
    }

    #[test]
    fn a_chunk_of_the_engine_keeps_its_buffer() {
        let chunk =
            |detail| Record { kind: RecordKind::PacketChunk as u16, detail, ..Record::default() };
        assert!(!chunk(0xffff).is_by_engine() && chunk(0xffff | BY_ENGINE).is_by_engine());
        let arrived = |detail| {
            let kind = RecordKind::PacketArrived as u16;
            let record = Record { kind, detail, ..Record::default() };
            (record.flow(), record.has_waited())
        };
        assert_eq!(arrived(packet(31, 0xffff)), (31, false));
        assert_eq!(arrived(packet(31, 0xffff) | WAITED), (31, true));
        let packet = Record { kind: RecordKind::PacketSent as u16, ..chunk(1 << 31) };
        assert!(!packet.is_by_engine());
    }

    #[test]
    fn numbers_and_names_of_kinds_are_their_own() {
        for (place, kind) in RecordKind::ALL.iter().enumerate() {
            assert_eq!(RecordKind::from_number(*kind as u16), Some(*kind));
            assert!(
                RecordKind::ALL.iter().skip(place + 1).all(|other| other.name() != kind.name())
            );
        }
        assert_eq!(RecordKind::from_number(0), None);
        assert!((28..32).chain(36..64).all(|number| RecordKind::from_number(number).is_none()));
        for (number, accesses) in Accesses::ALL.iter().enumerate() {
            assert_eq!(*accesses as usize, number);
        }
    }

    #[test]
    fn a_name_has_eight_bytes_and_no_control_characters() {
        for (name, text) in
            [("control", "control"), ("setpoint", "setpoint"), ("setpoints", "setpoint"), ("", "")]
        {
            assert_eq!(MarkName::new(name).to_string(), text);
        }
        assert_eq!(MarkName(u64::from_le_bytes(*b"a\x1b[ \xffb\0c")).to_string(), "a?[??b");
        assert_eq!(MarkName::new("ab").0, 0x6261);
    }

    #[test]
    fn the_sequence_number_leaves_48_bits() {
        let record = Record { rest: join(u64::MAX, 0x1_2345), ..Record::default() };
        assert_eq!((record.other(), record.sequence()), ((1 << 48) - 1, 0x2345));
        let record = record.with_sequence(7);
        assert_eq!((record.other(), record.sequence()), ((1 << 48) - 1, 7));
    }
}
