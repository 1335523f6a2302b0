//! The keys of measured values, in a system file or a board file: overheads, saturation,
//! interference.

use crate::shape::Kind;
use crate::table::{At, NANOS, table};
use weir_units::{Bytes, BytesPerSec, Events, Nanos};

const SOURCE: Kind = Kind::Source;

table! {
    /// The overhead of each step of a transfer (rt-virtio, Table II), each as { min, max } in ns.
    pub(crate) struct Overheads = "[overheads]" {
        /// Hypervisor entry and exit.
        hc: Option<At<Limits>>,
        /// Transport layer (PCI or MMIO).
        pt: Option<At<Limits>>,
        /// Parsing of one packet header.
        pp: Option<At<Limits>>,
        /// Queue locking.
        ql: Option<At<Limits>>,
        /// Queue insertion.
        qi: Option<At<Limits>>,
        /// Finding the place for the insertion, for each packet in the queue.
        qa: Option<At<Limits>>,
        /// Removal from a queue.
        qr: Option<At<Limits>>,
        /// Finding the earliest deadline, for each queue.
        ps: Option<At<Limits>>,
        /// Processing a packet and programming the DMA engine; of weir's own path, preparing a
        /// chunk.
        pd: Option<At<Limits>>,
        /// Finishing a transfer.
        ft: Option<At<Limits>>,
        /// The DMA interrupt in the broker; of weir's own path, from the hypercall that starts the
        /// engine to the end of the broker's handling of its interrupt, without the transfer if
        /// `engine_bandwidth` is there.
        ip: Option<At<Limits>>,
        /// Interrupt processing at the receiver.
        br: Option<At<Limits>>,
        /// From the SGI to the scheduler of a core that slept; weir's own path.
        wake: Option<At<Limits>>,
        /// Setting up the copy of a chunk by a core; weir's own path.
        copy: Option<At<Limits>>,
        /// The time for which a device's lock is held and another core may wait; weir's own path.
        hold: Option<At<Limits>>,
        /// The part of `ft` after the receiver's interrupt, which delays no packet that has
        /// arrived; weir's own path.
        tail: Option<At<Limits>>,
        /// The bandwidth at which a core copies, measured together with `copy`.
        copy_bandwidth: Option<BytesPerSec> > 0,
        /// The bandwidth at which the DMA engine moves a chunk, measured together with `ip`.
        engine_bandwidth: Option<BytesPerSec> > 0,
        /// The flows of the system that was measured.
        flows: Option<u64> [1, 1 << 16],
        /// The VMs of the system that was measured.
        vms: Option<u64> [1, 1 << 16],
        /// The greatest values in a larger system, for steps that search flows or VMs.
        larger: Option<Larger>,
        /// Where these values come from. `weir analyze` and `weir run` print it.
        origin: Option<Origin>,
    }

    /// The greatest values in a system of more flows and VMs.
    pub(crate) struct Larger = "larger" {
        /// Its flows.
        flows: u64 [1, 1 << 16],
        /// Its VMs.
        vms: u64 [1, 1 << 16],
        /// As `pp`.
        pp: Option<Nanos> as NANOS,
        /// As `ql`.
        ql: Option<Nanos> as NANOS,
        /// As `qi`.
        qi: Option<Nanos> as NANOS,
        /// As `qa`.
        qa: Option<Nanos> as NANOS,
        /// As `qr`.
        qr: Option<Nanos> as NANOS,
        /// As `ps`.
        ps: Option<Nanos> as NANOS,
        /// As `ft`.
        ft: Option<Nanos> as NANOS,
        /// As `hold`.
        hold: Option<Nanos> as NANOS,
    }

    /// Where measured values come from.
    pub struct Origin = "origin" {
        /// The command that measured them, or a publication. A command begins with "weir": then
        /// they are overheads of weir, else of another hypervisor.
        command: String,
        /// The build of the hypervisor that was measured, as `weir report --overheads` prints it;
        /// another build causes a warning.
        build: Option<String>,
        /// The date of the measurement.
        date: Option<String>,
        /// The emulator and its version, or where the board was.
        machine: Option<String>,
    }

    /// The least and the greatest value that was measured.
    pub(crate) struct Limits = "{ min = ..., max = ... }" {
        /// Least: an integer in ns, or a duration.
        min: Nanos as NANOS,
        /// Greatest: an integer in ns, or a duration.
        max: Nanos as NANOS,
    }

    /// Memory traffic below saturation (rt-virtio, Table I).
    pub(crate) struct Saturation = "[saturation]" {
        /// The period of the budgets in `points`.
        period: Nanos > 0,
        /// The bytes of a counted access: a cache line.
        line: Bytes > 0,
        /// Measured pairs of total budget and DMA bandwidth.
        points: At<Vec<Point>>,
        /// The least budget per `period` that is kept without `debt`. `debt` compensates an excess.
        min_accesses: u64 = 0,
        /// The shortest budget period that EL2 can enforce.
        min_period: Nanos = "0s",
        /// Accesses that still pass between a budget's end and the stop.
        overshoot: Option<Events>,
        /// The delay of a core by one access of another VM.
        delay: Option<Nanos>,
        /// The most accesses of each other VM that can delay one access. Default: unknown.
        per_access: Option<u64>,
        /// Bytes that the QoS regulator of the DMA engine lets through at a time.
        qos_block: Option<Bytes>,
        /// The clock of that regulator, in Hz.
        qos_clock: Option<u64> [1, u64::MAX],
        /// Where the values come from; see `source` of [interference].
        source: Option<String> as SOURCE,
        /// Chunk sizes with the bandwidth that the DMA engine reaches.
        chunks: Vec<Reach> = [],
        /// Where `chunks` comes from, if not from `source`.
        chunks_source: Option<String> as SOURCE,
    }

    /// A measured pair.
    pub(crate) struct Point = "{ accesses = ..., dma = ... }" {
        /// Sum of all VMs' accesses per period.
        accesses: u64,
        /// DMA bandwidth at the same time.
        dma: BytesPerSec,
    }

    /// A chunk size.
    pub(crate) struct Reach = "{ size = ..., dma = ... }" {
        /// The chunk.
        size: Bytes > 0,
        /// The bandwidth that the engine reaches with it.
        dma: BytesPerSec > 0,
    }

    /// Interference of memory accesses of other VMs with a core.
    pub struct Interference = "[interference]" {
        /// The delay of a core by one access of another VM; 0 where the memory has no timing.
        delay: Nanos,
        /// The most accesses of each other VM that can delay one access. Default: unknown.
        per_access: Option<u64>,
        /// Accesses that still pass between a budget's end and the stop.
        overshoot: Option<Events>,
        /// Where the values come from: "manual: ...", "paper: ...", "measured: COMMAND",
        /// "fitted: ...", "derived: ...", "model: ..." or "assumed: ...".
        source: String as SOURCE,
    }

    /// The overheads of EL2 on a core that VMs share: `vcpu_switch` of `weir bench hypervisor`, in
    /// time.
    pub(crate) struct Sharing = "[sharing]" {
        /// A switch from one guest to another.
        switch: At<Limits>,
        /// An upper bound on the time of one event at EL2: an interrupt for a VM that is off the
        /// core, or another request to it.
        interrupt: Nanos > 0,
        /// The part of it that delays the interrupted VM; the rest is charged to the VM of the
        /// interrupt.
        entry: Nanos > 0,
        /// Where the values come from, as in [interference].
        source: String as SOURCE,
    }
}
