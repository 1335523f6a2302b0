//! The devices that EL2 visits for one call of the broker.

use super::sizes::PORTS;

/// Number of bits of a [`DeviceSet`] for each kind of device.
const SPAN: usize = 8;
const _: () = assert!(PORTS <= SPAN);

/// A kind of device, in the order in which EL2 visits them: a receiver waits for its packet, but a
/// sender only for the memory of a packet that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The socket device of a VM that received a packet.
    Receiver,
    /// The network device of a VM.
    Network,
    /// The socket device of another VM.
    Sender,
}

/// The devices for which, according to the broker, EL2 has something to apply, in one word: the
/// argument of the broker's hypercall. It is a claim, so EL2 visits a device of the set only if it
/// exists, and applies only what that device's words contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSet(u64);

impl DeviceSet {
    /// No device.
    pub const EMPTY: Self = Self(0);
    /// Set if EL2 has taken the call's records; used for the rest of a call that EL2 carries out in
    /// parts.
    const RECORDED: u64 = 1 << 63;
    /// All bits that can stand for devices.
    const DEVICES: u64 = {
        let kind = (1 << PORTS) - 1;
        kind | kind << SPAN | kind << (2 * SPAN)
    };

    /// Returns the set in a register's value. Bits that stand for no device are removed, and each
    /// device is in the set only once.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        let receivers = word & ((1 << SPAN) - 1);
        Self(word & (Self::DEVICES | Self::RECORDED) & !(receivers << (2 * SPAN)))
    }

    /// Returns the set as a register's value.
    #[inline]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Adds the device of this kind that the VM at `port` has.
    #[inline]
    pub const fn insert(&mut self, kind: DeviceKind, port: usize) {
        self.0 |= 1 << (kind as usize * SPAN + port % PORTS);
    }

    /// Returns whether the socket device of the VM at `port` is in the set.
    #[must_use]
    pub const fn has_socket(self, port: usize) -> bool {
        let sockets = self.0 | self.0 >> (2 * SPAN);
        sockets >> (port % PORTS) & 1 != 0
    }

    /// Returns the device that EL2 visits first.
    #[inline]
    #[must_use]
    pub const fn first(self) -> Option<(DeviceKind, usize)> {
        let place = self.0.trailing_zeros() as usize;
        let kind = match place / SPAN {
            0 => DeviceKind::Receiver,
            1 => DeviceKind::Network,
            2 => DeviceKind::Sender,
            _ => return None,
        };
        Some((kind, place % SPAN))
    }

    /// Removes the device that [`Self::first`] returns.
    #[inline]
    pub const fn remove_first(&mut self) {
        let devices = self.0 & Self::DEVICES;
        self.0 &= !(devices & devices.wrapping_neg());
    }

    /// Returns whether the set contains the socket device of a VM that received a packet.
    #[inline]
    #[must_use]
    pub const fn has_receivers(self) -> bool {
        self.0 & ((1 << SPAN) - 1) != 0
    }

    /// Returns whether EL2 has taken the call's records.
    #[inline]
    #[must_use]
    pub const fn is_recorded(self) -> bool {
        self.0 & Self::RECORDED != 0
    }

    /// Notes that EL2 has taken the call's records.
    #[inline]
    pub const fn set_recorded(&mut self) {
        self.0 |= Self::RECORDED;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeviceKind::{Network, Receiver, Sender};

    fn all(mut set: DeviceSet) -> Vec<(DeviceKind, usize)> {
        let mut found = Vec::new();
        while let Some(first) = set.first() {
            found.push(first);
            set.remove_first();
            assert!(found.len() <= 3 * PORTS, "no end");
        }
        found
    }

    #[test]
    fn receivers_come_first_and_senders_last() {
        let mut set = DeviceSet::EMPTY;
        for (kind, port) in [(Sender, 0), (Network, 1), (Receiver, 7), (Sender, 3), (Receiver, 2)] {
            set.insert(kind, port);
        }
        let order = [(Receiver, 2), (Receiver, 7), (Network, 1), (Sender, 0), (Sender, 3)];
        assert_eq!(all(set), order);
        let sockets = (0..PORTS).filter(|port| set.has_socket(*port));
        assert_eq!(sockets.collect::<Vec<_>>(), [0, 2, 3, 7]);
        assert_eq!(all(DeviceSet::from_word(set.to_word())), order);
    }

    /// A different broker can pass any value.
    #[test]
    fn bits_without_a_device_are_left_out() {
        let set = DeviceSet::from_word(u64::MAX);
        assert!(set.is_recorded() && set.has_receivers());
        let found = all(set);
        assert_eq!(found.len(), 2 * PORTS, "each socket device once: {found:?}");
        assert!(found.iter().all(|(_, port)| *port < PORTS));
        assert_eq!(all(DeviceSet::from_word(!0xff_ffff)), []);
    }

    #[test]
    fn the_rest_of_a_call_keeps_that_it_is_recorded() {
        let mut set = DeviceSet::EMPTY;
        set.insert(Sender, 5);
        assert!(!set.is_recorded() && !set.has_receivers());
        set.set_recorded();
        let mut rest = DeviceSet::from_word(set.to_word());
        assert_eq!(all(rest), [(Sender, 5)]);
        rest.remove_first();
        assert!(rest.is_recorded() && rest.first().is_none());
        rest.remove_first();
        assert!(rest.is_recorded());
    }
}
