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

/// Declares the constants with their ranges in Table II of rt-virtio: Jailhouse and FreeRTOS on a
/// ZCU102, in ns.
macro_rules! overheads {
    ($($(#[$doc:meta])* $name:ident: $min:literal to $max:literal,)*) => {
        /// Overheads by the names of Table II of rt-virtio.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Overheads {
            $($(#[$doc])* pub $name: Range,)*
        }

        impl Overheads {
            /// Table II of rt-virtio: Jailhouse and FreeRTOS on a ZCU102.
            pub const RT_VIRTIO: Self = Self { $($name: Range::new($min, $max),)* };

            /// Returns the constants with their names in a system file.
            #[must_use]
            pub fn named(&self) -> [(&'static str, Range); 12] {
                [$((stringify!($name), self.$name),)*]
            }

            /// Sets the constant of that name. Returns false if there is none.
            pub fn set(&mut self, name: &str, range: Range) -> bool {
                match name {
                    $(stringify!($name) => self.$name = range,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

overheads! {
    /// Hypervisor entry and exit.
    hc: 939 to 949,
    /// PCI (or MMIO) transport layer.
    pt: 111 to 757,
    /// Parsing of one packet header.
    pp: 181 to 1161,
    /// Queue locking.
    ql: 71 to 142,
    /// Queue insertion.
    qi: 50 to 101,
    /// Finding the place for the insertion, for each packet in the queue.
    qa: 24 to 30,
    /// Removal from a queue, by the broker.
    qr: 20 to 40,
    /// Finding the earliest deadline, for each queue.
    ps: 20 to 71,
    /// Processing a packet and programming the DMA engine.
    pd: 373 to 949,
    /// Finishing a transfer, with the IPIs.
    ft: 2222 to 2646,
    /// Processing the DMA interrupt in the broker.
    ip: 797 to 828,
    /// IPI and interrupt processing at the receiver.
    br: 1370 to 1460,
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

/// Eq. 19, 20 and 22 in half nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// O_s^min, half ns (Eq. 19).
    pub send_min: i64,
    /// O_s^max, half ns (Eq. 20).
    pub send_max: i64,
    /// O_r, half ns (Eq. 22).
    pub receive: i64,
}

impl Overheads {
    /// Every value must be at most `limit`, so that the sums fit.
    pub(crate) fn terms(&self, reading: Reading) -> Terms {
        let signed = |n: Nanos| i64::try_from(n.0).unwrap_or(i64::MAX / 8);
        let mut send_max = signed(self.hc.max) + 2 * signed(self.pt.max);
        let receive = match reading {
            Reading::Printed => 2 * signed(self.br.max) - signed(self.hc.max),
            Reading::Table3 => {
                send_max += send_max & 1;
                2 * (signed(self.br.max) - signed(self.hc.max))
            }
        };
        Terms { send_min: signed(self.hc.min) + 2 * signed(self.pt.min), send_max, receive }
    }
}
