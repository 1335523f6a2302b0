//! The exchange of the switch: its ports, and the addresses at which the service VM sees the RAM of
//! their VMs.

use crate::{
    device::DeviceWords,
    ram::{Map, Piece},
    sizes::PORTS,
    sync::{AtomicU64, fence},
};
use core::sync::atomic::Ordering::{Relaxed, Release};

/// Address of the switch's exchange in the service VM: behind the exchange of the flows.
pub const ADDRESS: u64 = crate::flows::ADDRESS + OFFSET;
/// Offset of the switch's exchange from the start of the memory.
pub const OFFSET: u64 = 0x1_c000;

/// The settings of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSettings {
    /// The station's MAC address, with the first byte in the lowest eight bits; 0 if there is no
    /// port.
    pub mac: u64,
    /// Frames per second that the VM may send; 0 for no limit.
    pub rate: u64,
    /// Number of frames that may be sent at once.
    pub burst: u64,
    /// Bytes per second that the VM may send; 0 for no limit.
    pub bandwidth: u64,
    /// Whether stations without a port are reached through this port.
    pub uplink: bool,
}

/// Counts of a port's frames since the system started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounts {
    /// Frames of its VM that were passed on.
    pub sent: u64,
    /// Frames that its VM received.
    pub received: u64,
    /// Frames of its VM that were dropped because they exceeded its rate.
    pub over_rate: u64,
    /// Frames of its VM that were malformed or had a foreign source address.
    pub refused: u64,
    /// Frames to its VM that were lost because the VM had no buffer.
    pub missed: u64,
}

/// A port of the switch.
#[derive(Debug)]
#[repr(C)]
pub struct Port {
    /// Written by EL2 before the service VM starts: MAC address, rate, burst, bandwidth, uplink.
    settings: [AtomicU64; 5],
    /// The device.
    pub device: DeviceWords,
    /// Written by the service VM.
    counts: [AtomicU64; 5],
}

impl Port {
    fn new() -> Self {
        Self { settings: longs(), device: DeviceWords::new(), counts: longs() }
    }

    /// Returns the settings of the port.
    #[must_use]
    pub fn settings(&self) -> PortSettings {
        let [mac, rate, burst, bandwidth, uplink] =
            self.settings.each_ref().map(|word| word.load(Relaxed));
        PortSettings { mac, rate, burst, bandwidth, uplink: uplink != 0 }
    }

    /// Returns the counts of the port's frames. The service VM counts them, so these are its
    /// claims.
    #[must_use]
    pub fn counts(&self) -> SwitchCounts {
        let [sent, received, over_rate, refused, missed] =
            self.counts.each_ref().map(|word| word.load(Relaxed));
        SwitchCounts { sent, received, over_rate, refused, missed }
    }

    /// Writes the counts of the port's frames.
    pub fn set_counts(&self, counts: SwitchCounts) {
        let SwitchCounts { sent, received, over_rate, refused, missed } = counts;
        let words = [sent, received, over_rate, refused, missed];
        self.counts.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
    }
}

/// The exchange of the switch: all zeros until EL2 configures the ports.
#[derive(Debug)]
#[repr(C)]
pub struct SwitchExchange {
    ports: [Port; PORTS],
    /// The place of the RAM of the VMs at the ports.
    pub ram: Map,
}

impl Default for SwitchExchange {
    fn default() -> Self {
        Self::new()
    }
}

impl SwitchExchange {
    /// Returns an exchange without ports: all words are zero.
    #[must_use]
    pub fn new() -> Self {
        Self { ports: core::array::from_fn(|_| Port::new()), ram: Map::new() }
    }

    /// Returns port `index`, a number below [`PORTS`].
    #[must_use]
    pub fn port(&self, index: usize) -> &Port {
        &self.ports[index % PORTS]
    }

    /// Writes the settings of port `index` and the place of its VM's RAM. Called by EL2 before the
    /// service VM starts; see [`Map::set`].
    pub fn configure(
        &self,
        index: usize,
        settings: &PortSettings,
        ram: impl IntoIterator<Item = Piece>,
    ) -> bool {
        let PortSettings { mac, rate, burst, bandwidth, uplink } = *settings;
        let words = [mac, rate, burst, bandwidth, uplink.into()];
        let place = &self.port(index).settings;
        place.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
        fence(Release);
        self.ram.set(index, ram)
    }
}

fn longs<const N: usize>() -> [AtomicU64; N] {
    core::array::from_fn(|_| AtomicU64::new(0))
}
