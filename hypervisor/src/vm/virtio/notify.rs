//! The registers by which the drivers of a VM notify the broker.

use core::sync::atomic::{AtomicU64, Ordering};
use weir_abi::{Features, VmView};
use weir_units::Ipa;
use weir_vsock::mmio::NOTIFY;

/// The registers by which the drivers of a VM notify the broker, on the MMIO transport. Drivers
/// store to one of them for each packet, so they are searched before other registers.
pub struct NotifyRegisters {
    socket: AtomicU64,
    network: AtomicU64,
}

/// A device that has a notify register.
#[derive(Clone, Copy)]
pub enum Notified {
    /// The socket device.
    Socket,
    /// The network device.
    Network,
}

impl NotifyRegisters {
    /// Returns the registers of a VM without devices; the values are not valid addresses.
    pub const fn new() -> Self {
        Self { socket: AtomicU64::new(u64::MAX), network: AtomicU64::new(u64::MAX) }
    }

    /// Sets the addresses of a VM's notify registers. Called on the boot core, before it starts
    /// another core.
    pub fn set(&self, view: &VmView<'_>) {
        if !Features::BROKER.is_built() {
            return;
        }
        // Relaxed, here and below: no other core runs yet.
        let socket = Some(view.vm.vsock).filter(|at| *at != 0 && view.vm.vsock_ecam == 0);
        let network = view.net().map(|net| net.registers);
        for (place, registers) in [(&self.socket, socket), (&self.network, network)] {
            let register = registers.map_or(u64::MAX, |registers| registers + NOTIFY);
            place.store(register, Ordering::Relaxed);
        }
    }

    /// Returns the device whose register a store of `size` bytes at `ipa` writes.
    #[inline(always)]
    pub fn find(&self, ipa: Ipa, size: u8) -> Option<Notified> {
        if !Features::BROKER.is_built() {
            return None;
        }
        let is = |place: &AtomicU64| ipa.0 == place.load(Ordering::Relaxed) && size == 4;
        if is(&self.socket) {
            Some(Notified::Socket)
        } else {
            is(&self.network).then_some(Notified::Network)
        }
    }
}
