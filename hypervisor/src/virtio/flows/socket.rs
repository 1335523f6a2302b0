//! The socket device of a VM, as data.

use super::{flow, lock::Fair};
use weir_broker::shared::RING;
use weir_units::Cid;
use weir_vsock::{
    device::DeviceKind, mmio::Registers, queue::Chain, transport::Transport, vsock::Header,
};

/// Control packets that wait for a buffer; more are dropped.
pub(super) const WAITING: usize = 32;

/// A packet that the broker has.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) flow: u8,
    /// Those of several receivers that have not answered for it yet, one bit each; 0 where there is
    /// one.
    pub(super) members: u8,
    /// Data, and not a packet that only must not overtake them.
    pub(super) data: bool,
    pub(super) eligible: u64,
}

/// The socket device of a VM.
pub struct Socket {
    pub(super) transport: Transport,
    /// Receive buffers that neither a packet nor the broker has.
    pub(super) stock: [Chain; RING],
    pub(super) stocked: usize,
    pub(super) waiting: [Header; WAITING],
    pub(super) waits: usize,
    /// Receive buffers that the broker has, one bit a head.
    pub(super) offered: u64,
    pub(super) sent: [Option<Sent>; RING],
    /// When the interrupt was raised for what had arrived, in ticks; 0 once the driver has
    /// acknowledged it.
    pub(super) raised: u64,
}

/// The same behind its lock.
pub type FlowDevice = Fair<Socket>;

/// Returns the device of no VM.
pub const fn new_device() -> FlowDevice {
    Fair::new(Socket {
        transport: Transport::Mmio(Registers::new(DeviceKind::Socket(Cid(0)))),
        stock: [const { Chain::EMPTY }; RING],
        stocked: 0,
        waiting: [Header::ZERO; WAITING],
        waits: 0,
        offered: 0,
        sent: [None; RING],
        raised: 0,
    })
}

impl Socket {
    /// Forgets everything but how its driver sees it.
    pub(super) fn forget(&mut self) {
        for sent in self.sent.iter_mut().filter_map(Option::take).filter(|sent| sent.data) {
            let waits = |member: &usize| sent.members.max(1) >> member & 1 != 0;
            for member in (0..8).filter(waits) {
                if let Some((_, flow)) = flow::get(usize::from(sent.flow) + member) {
                    flow.lose(1);
                }
            }
        }
        (self.stocked, self.waits, self.offered, self.raised) = (0, 0, 0, 0);
    }
}
