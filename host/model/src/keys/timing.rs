//! The keys of flows, shared cores, interrupts and tasks.

use crate::shape::Kind;
use crate::table::{At, CORE, Value, choice, table};
use toml::{Spanned, de::DeValue};
use weir_abi::ENGINE_LEVELS;
use weir_units::{Bytes, BytesPerSec, IntId, Nanos};

/// A VM, or a list of them.
const VMS: Kind = Kind::OneOf(&[Kind::Text, Kind::List(&Kind::Text)]);

table! {
    /// Packets from one VM to one or several others.
    pub(crate) struct Flow = "[[flow]]" {
        /// Its name.
        @required name: Option<At<String>>,
        /// The VM that sends.
        @required from: Option<At<String>>,
        /// The VM that receives, or a list of them.
        @required to: Option<At<Vec<At<String>>>> as VMS,
        /// The vsock port of the receiver. Default: 5000.
        port: Option<u32>,
        /// The most bytes of a packet's payload.
        @required size: Option<At<Bytes>> > 0,
        /// The least time between two packets.
        period: Option<At<Nanos>> > 0,
        /// In a simulation: the maximum release jitter of a packet.
        jitter: Nanos = "0s",
        /// The time in which each packet must arrive. Default: the period.
        deadline: Option<At<Nanos>> > 0,
        /// The rate to which the broker limits it: at least `size` per `period`. Default: only the
        /// period limits it.
        bandwidth: Option<At<BytesPerSec>> > 0,
        /// Whether it has no deadline and is served only if no other flow is pending.
        best_effort: bool = false,
    }

    /// How the bytes of all flows are moved.
    pub(crate) struct Dma = "[dma]" {
        /// The bandwidth of the DMA engine, or of the copying core.
        bandwidth: Option<BytesPerSec> > 0,
        /// Bytes moved between two scheduling decisions. Default: 4KiB. A DMA engine moves at most
        /// 64KiB.
        chunk: Option<At<Bytes>> > 0,
        /// With the path "dma": the least bytes of a chunk that the engine moves; the core copies
        /// shorter ones. Default: the size from which the engine is no slower by [overheads]; if
        /// they do not say it, 0.
        engine_from: Option<Bytes>,
        /// With the path "dma" and `bandwidth`: the level to which firmware limits the engine's
        /// reads and writes, in 1/4096 transactions per clock of the regulator. Choose the level at
        /// which the engine was measured to reach `bandwidth`. Without the key, or if the firmware
        /// lacks the call, only the broker paces the engine, chunk by chunk.
        qos_level: Option<At<u64>> [1, ENGINE_LEVELS],
        /// Queues that the broker searches. Default: the number of VMs that send.
        queues: Option<u32> [1, 1 << 16],
        /// The mover of the bytes: the broker's DMA engine ("dma"), or its core ("broker"). The
        /// default follows from the platform: "dma" if the platform has the table [dma_engine],
        /// else "broker"; without a platform "dma".
        path: Option<DataPath>,
        /// The bandwidth at which a core copies. Default: the one in [overheads].
        copy_bandwidth: Option<BytesPerSec> > 0,
        /// In a simulation: the [dma.NAME] of the memory file. Default: the first.
        engine: Option<String>,
    }

    /// A core that several VMs share.
    pub(crate) struct Core = "[[core]]" {
        /// The core.
        @required id: Option<At<u64>> as CORE,
        /// Its schedule.
        @required schedule: Option<At<Schedule>>,
    }

    /// The schedule of a core. The kind determines its keys.
    pub(crate) struct Schedule = "schedule" {
        /// Round robin, a time table, or servers of fixed priority.
        kind: ScheduleKind,
        /// round-robin: the time slice of each VM.
        quantum: Option<At<Nanos>> > 0,
        /// An upper bound on the time of a switch from one VM to another. Default: the platform's.
        switch: Option<Nanos>,
        /// round-robin: the VMs. Default: those with this core in `cpus`.
        vms: Option<At<Vec<At<String>>>>,
        /// table: the time after which it repeats.
        major_frame: Option<At<Nanos>> > 0,
        /// table: the slots, in order.
        slots: Option<At<Vec<At<Slot>>>>,
        /// fixed-priority: the servers by falling priority.
        servers: Option<At<Vec<At<Server>>>>,
    }

    /// A slot of a time table.
    pub(crate) struct Slot = "{ vm = ..., start = ..., length = ... }" {
        /// The VM, or "broker".
        vm: At<String>,
        /// Its start in the major frame.
        start: Nanos,
        /// Its length.
        length: Nanos > 0,
    }

    /// A budget of time.
    pub(crate) struct Server = "{ vm = ..., budget = ..., period = ... }" {
        /// The VM, or "broker".
        vm: At<String>,
        /// Its time in each period.
        budget: Nanos > 0,
        /// The period.
        period: Nanos > 0,
    }

    /// An interrupt line that takes time on a shared core.
    pub(crate) struct Irq = "[[irq]]" {
        /// The line: a number or a name.
        line: LineName,
        /// The VM that it belongs to.
        vm: At<String>,
        /// Its device's class (mobivmm).
        class: Class = "dedicated",
        /// Whether it starts its VM at once, for the rest of the VM's time slice.
        preempt: bool = false,
        /// With `preempt`: an interrupt of this or a smaller number may preempt a time slice that
        /// another interrupt started. Default: 128.
        priority: Option<At<u8>>,
        /// The most interrupts per second that are admitted. Default: no limit.
        rate: Option<u64> [1, 1_000_000_000],
        /// The most interrupts that are admitted at once. Default: 1.
        burst: Option<At<u64>> [1, 1 << 32],
        /// Treatment of interrupts beyond the rate: they wait.
        over: Option<Over>,
        /// An upper bound on the time that one interrupt takes from the running VM. Default: the
        /// platform's, for a shared core. With `preempt` the VM's whole time slice is added.
        wcet: Option<Nanos> > 0,
        /// The most time from the interrupt's arrival until its VM has the core. A run in which it
        /// takes longer fails; the analysis does not use it.
        deadline: Option<Nanos> > 0,
    }

    /// A task of a VM.
    pub(crate) struct Task = "[[vm.task]]" {
        /// Its name.
        name: At<String>,
        /// Its worst-case execution time without memory interference.
        wcet: Nanos > 0,
        /// The least time between two activations.
        period: Nanos > 0,
        /// The time in which it must finish. Default: the period.
        deadline: Option<Nanos> > 0,
        /// The release jitter: how late an activation may be.
        jitter: Nanos = "0s",
        /// An upper bound on the blocking by a task of lower priority.
        blocking: Nanos = "0s",
        /// Its core. Default: the VM's first.
        core: Option<u64> as CORE,
        /// Its own memory accesses per activation. Default: unknown.
        accesses: Option<u64>,
    }
}

choice! {
    /// What moves bytes.
    #[derive(Default)]
    pub enum DataPath {
        /// A DMA engine, and the broker's core for short chunks. With overheads that were not
        /// measured on weir, the analysis takes it to be behind the broker of rt-virtio, with
        /// locked lists.
        #[default]
        Dma = "dma",
        /// The broker's core.
        Broker = "broker",
    }
}

choice! {
    /// The owner of a device when several VMs are on its core (mobivmm).
    pub enum Class {
        /// One VM's.
        Dedicated = "dedicated",
        /// Handed from VM to VM by an explicit act.
        Active = "active",
        /// Of the running VM.
        Running = "running",
        /// Shared by all.
        Dynamic = "dynamic",
    }
}

choice! {
    /// The kind of a schedule.
    pub(crate) enum ScheduleKind {
        RoundRobin = "round-robin",
        Table = "table",
        FixedPriority = "fixed-priority",
    }
}

choice! {
    /// What becomes of interrupts beyond the rate.
    pub(crate) enum Over {
        Defer = "defer",
    }
}

/// The number of an interrupt line, or its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineName(pub String);

impl Value for LineName {
    const KIND: Kind = Kind::OneOf(&[String::KIND, IntId::KIND]);

    fn read(value: &Spanned<DeValue<'_>>) -> Option<Self> {
        let number = || Some(IntId::read(value)?.to_string());
        String::read(value).or_else(number).map(Self)
    }
}
