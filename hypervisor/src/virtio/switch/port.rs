//! What a VM's network device is made of.

use core::sync::atomic::AtomicU64;
use weir_broker::transfer::Bucket;
use weir_vsock::mmio::{Kind, Registers};

/// A VM's network device.
pub struct Port {
    pub(super) registers: Registers,
    /// How many frames may be sent, and how many bytes.
    pub(super) limits: Option<[Bucket; 2]>,
}

impl Port {
    /// Of no VM.
    pub const fn new() -> Self {
        Self { registers: Registers::new(Kind::Network(0)), limits: None }
    }

    /// Whether a frame of `len` bytes may go at `now`; if so it counts.
    pub(super) fn admits(&mut self, now: u64, len: u64) -> bool {
        let Some([frames, bytes]) = &mut self.limits else { return true };
        let admitted = frames.ready_at(1) <= now && bytes.ready_at(len) <= now;
        if admitted {
            frames.take(now, 1);
            bytes.take(now, len);
        }
        admitted
    }
}

/// What became of a VM's frames since the system started.
pub struct Counts {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) over_rate: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) missed: AtomicU64,
}

impl Counts {
    pub const fn new() -> Self {
        Self {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            over_rate: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }
}
