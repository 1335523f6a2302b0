//! The twelve measured constants (rt-virtio Table II) and the terms made of them (Eq. 19 to 27).

use crate::units::Nanos;

/// The least and the greatest value that was measured for one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Least, ns.
    pub min: Nanos,
    /// Greatest, ns.
    pub max: Nanos,
}

impl Range {
    /// A range in nanoseconds.
    #[must_use]
    pub const fn new(min: u64, max: u64) -> Self {
        Self { min: Nanos(min), max: Nanos(max) }
    }
}

/// Overheads by the names of Table II of rt-virtio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overheads {
    /// Hypervisor entry and exit.
    pub hc: Range,
    /// PCI (or MMIO) transport layer.
    pub pt: Range,
    /// Parsing of one packet header.
    pub pp: Range,
    /// Queue locking.
    pub ql: Range,
    /// Queue insertion.
    pub qi: Range,
    /// Finding the place for the insertion, for each packet in the queue.
    pub qa: Range,
    /// Removal from a queue, by the broker.
    pub qr: Range,
    /// Finding the earliest deadline, for each queue.
    pub ps: Range,
    /// Processing a packet and programming the DMA engine.
    pub pd: Range,
    /// Finishing a transfer, with the IPIs.
    pub ft: Range,
    /// Processing the DMA interrupt in the broker.
    pub ip: Range,
    /// IPI and interrupt processing at the receiver.
    pub br: Range,
}

impl Overheads {
    /// Table II of rt-virtio: Jailhouse and FreeRTOS on a ZCU102.
    pub const RT_VIRTIO: Self = Self {
        hc: Range::new(939, 949),
        pt: Range::new(111, 757),
        pp: Range::new(181, 1161),
        ql: Range::new(71, 142),
        qi: Range::new(50, 101),
        qa: Range::new(24, 30),
        qr: Range::new(20, 40),
        ps: Range::new(20, 71),
        pd: Range::new(373, 949),
        ft: Range::new(2222, 2646),
        ip: Range::new(797, 828),
        br: Range::new(1370, 1460),
    };

    /// The constants with their names in a system file.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Range); 12] {
        [
            ("hc", self.hc),
            ("pt", self.pt),
            ("pp", self.pp),
            ("ql", self.ql),
            ("qi", self.qi),
            ("qa", self.qa),
            ("qr", self.qr),
            ("ps", self.ps),
            ("pd", self.pd),
            ("ft", self.ft),
            ("ip", self.ip),
            ("br", self.br),
        ]
    }

    /// Sets the constant of that name; false if there is none.
    pub fn set(&mut self, name: &str, range: Range) -> bool {
        let field = match name {
            "hc" => &mut self.hc,
            "pt" => &mut self.pt,
            "pp" => &mut self.pp,
            "ql" => &mut self.ql,
            "qi" => &mut self.qi,
            "qa" => &mut self.qa,
            "qr" => &mut self.qr,
            "ps" => &mut self.ps,
            "pd" => &mut self.pd,
            "ft" => &mut self.ft,
            "ip" => &mut self.ip,
            "br" => &mut self.br,
            _ => return false,
        };
        *field = range;
        true
    }
}

/// How Eq. 20 and 22 are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// As printed. The justified reading, and the default.
    #[default]
    Printed,
    /// As the published Table III must have been computed: O_r = BR_max - HC_max and O_s^max
    /// rounded up to whole nanoseconds. Optimistic: it subtracts the hypercall's entry too, which
    /// does not overlap the IPI.
    Table3,
}

/// Eq. 19 to 22 in half nanoseconds, and the parts of Eq. 23 to 27 in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// O_s^min, half ns (Eq. 19).
    pub send_min: i64,
    /// O_s^max, half ns (Eq. 20).
    pub send_max: i64,
    /// O_r, half ns (Eq. 22).
    pub receive: i64,
    /// O_dma, ns (Eq. 21).
    pub dma: u64,
}

impl Overheads {
    /// Every value must be at most `limit`, so that the sums fit.
    pub(crate) fn terms(&self, queues: u64, reading: Reading) -> Terms {
        let signed = |n: Nanos| i64::try_from(n.0).unwrap_or(i64::MAX / 8);
        let mut send_max = signed(self.hc.max) + 2 * signed(self.pt.max);
        let receive = match reading {
            Reading::Printed => 2 * signed(self.br.max) - signed(self.hc.max),
            Reading::Table3 => {
                send_max += send_max & 1;
                2 * (signed(self.br.max) - signed(self.hc.max))
            }
        };
        Terms {
            send_min: signed(self.hc.min) + 2 * signed(self.pt.min),
            send_max,
            receive,
            dma: queues * self.ps.max.0
                + self.pd.max.0
                + self.hc.max.0
                + self.ip.max.0
                + self.ft.max.0,
        }
    }
}
