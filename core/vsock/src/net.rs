//! Frames of a network device (virtio 1.2, section 5.1) without offloads, and the choice of the
//! switch ports that a frame goes to.

use crate::{
    memory::GuestMemory,
    queue::{Broken, Chain, Direction, Found, Queue, STRIDE},
};

/// Length in bytes of the header before a frame (section 5.1.6): all zeros except the number of
/// buffers, because there are no offloads.
pub const HEADER_LEN: usize = 12;
/// The header before a frame that a driver receives.
const RECEIVED: [u8; HEADER_LEN] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// Length in bytes of the two addresses and the type, the shortest frame.
pub const LEAST_FRAME: usize = 14;
/// Length in bytes of the longest frame: one with a payload of 1500 bytes, without a tag.
pub const MOST_FRAME: usize = 1514;

/// A frame with its header, copied out of a driver's buffers, so that the checked bytes are those
/// that are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetFrame {
    bytes: [u8; HEADER_LEN + MOST_FRAME],
    len: usize,
}

impl EthernetFrame {
    /// An empty buffer for a frame.
    pub const EMPTY: Self = Self { bytes: [0; HEADER_LEN + MOST_FRAME], len: HEADER_LEN };

    /// Returns the frame without its header.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..self.len).unwrap_or(&[])
    }

    /// Returns the frame's destination and source addresses in the format of [`Station::mac`].
    #[must_use]
    pub fn addresses(&self) -> (u64, u64) {
        let mac = |at: usize| {
            let bytes = self.bytes.get(HEADER_LEN + at..).unwrap_or(&[]);
            bytes.iter().take(6).rev().fold(0, |mac, byte| mac << 8 | u64::from(*byte))
        };
        (mac(0), mac(6))
    }

    /// Forgets the frame, so that the next one can be copied here.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Copies the next part of the frame that the driver sends with `chain`, a chain of `queue`.
    /// Returns whether the data are a valid frame, or `None` if the chain is longer than one walk;
    /// this must then be called again.
    ///
    /// # Errors
    ///
    /// [`Broken`], see [`Queue::walk`].
    pub fn copy(
        &mut self,
        (queue, chain): (&Queue, &mut Chain),
        memory: &mut impl GuestMemory,
    ) -> Result<Option<bool>, Broken> {
        let mut steps = STRIDE;
        loop {
            let segment = match queue.walk(memory, chain, Direction::Read, &mut steps)? {
                Found::Bytes(segment) => segment,
                Found::End => break,
                Found::Later => return Ok(None),
            };
            let room = self.bytes.get_mut(self.len..).unwrap_or(&mut []);
            if room.is_empty() {
                // The data are longer than a frame.
                return Ok(Some(false));
            }
            let len = room.len().min(segment.len as usize);
            memory.read(segment.address, &mut room[..len])?;
            chain.pass(len as u32);
            self.len += len;
        }
        // The sender's header is not passed on: the receiver's says one buffer and no offload.
        self.bytes[..HEADER_LEN].copy_from_slice(&RECEIVED);
        Ok(Some(self.len >= HEADER_LEN + LEAST_FRAME))
    }
}

/// Takes the next chain that the driver sends; if there is none, asks the driver to notify the
/// device of the next one.
///
/// # Errors
///
/// [`Broken`], see [`Queue::pop`].
pub fn take(queue: &mut Queue, memory: &mut impl GuestMemory) -> Result<Option<Chain>, Broken> {
    let taken = queue.pop(memory)?;
    if taken.is_none() && queue.ask_notification(memory)? {
        return queue.pop(memory);
    }
    Ok(taken)
}

/// A receive buffer that is being filled with a frame.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    chain: Chain,
    done: usize,
}

impl Delivery {
    /// Takes the driver's next receive buffer, if there is one.
    ///
    /// # Errors
    ///
    /// [`Broken`], see [`Queue::pop`].
    pub fn begin(queue: &mut Queue, memory: &mut impl GuestMemory) -> Result<Option<Self>, Broken> {
        Ok(queue.pop(memory)?.map(|chain| Self { chain, done: 0 }))
    }

    /// Copies `frame` into the driver's buffer. Returns false if the buffer is too short; it is
    /// then returned empty. Returns `None` if the chain is longer than one walk; this must then be
    /// called again.
    ///
    /// # Errors
    ///
    /// [`Broken`], see [`Queue::walk`].
    pub fn give(
        &mut self,
        queue: &mut Queue,
        frame: &EthernetFrame,
        memory: &mut impl GuestMemory,
    ) -> Result<Option<bool>, Broken> {
        let mut steps = STRIDE;
        while let Some(rest) = frame.bytes.get(self.done..frame.len).filter(|rest| !rest.is_empty())
        {
            let chain = &mut self.chain;
            let segment = match queue.walk(memory, chain, Direction::Write, &mut steps)? {
                Found::Bytes(segment) => segment,
                Found::End => {
                    queue.push(memory, self.chain.head(), 0)?;
                    return Ok(Some(false));
                }
                Found::Later => return Ok(None),
            };
            let len = rest.len().min(segment.len as usize);
            memory.write(segment.address, &rest[..len])?;
            chain.pass(len as u32);
            self.done += len;
        }
        queue.push(memory, self.chain.head(), frame.len as u32)?;
        Ok(Some(true))
    }
}

/// The station at a port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The station's address, the first byte in the lowest eight bits.
    pub mac: u64,
    /// Whether the port also leads to stations that have no port of their own.
    pub uplink: bool,
}

/// Error: the frame's source address is that of a station that is not at the frame's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

/// Returns the `ports` that a frame from port `from` goes to, one bit each: the port of the frame's
/// destination; all ports except `from` if the destination is a group; or the uplink if the
/// destination has no port, and no port if the frame came from the uplink. The stations of a port
/// are fixed, so no port can attract another's frames.
///
/// # Errors
///
/// [`Foreign`] if the source address does not belong to port `from`.
pub fn targets(
    ports: impl Iterator<Item = Station> + Clone,
    from: usize,
    (to, source): (u64, u64),
) -> Result<u32, Foreign> {
    let at = |mac: u64| ports.clone().position(|port| port.mac == mac);
    let sender = ports.clone().nth(from).ok_or(Foreign)?;
    // Stations without a port are behind the uplink.
    if sender.mac != source && (!sender.uplink || at(source).is_some() || is_group(source)) {
        return Err(Foreign);
    }
    let station = at(to);
    let all = ports.enumerate().take(32).filter(|(place, _)| *place != from);
    let wanted = all.filter(|(place, port)| match station {
        _ if is_group(to) => true,
        Some(station) => *place == station,
        None => port.uplink,
    });
    Ok(wanted.fold(0, |mask, (place, _)| mask | 1 << place))
}

/// Whether an address is that of a group (IEEE 802.3, 3.2.3: the first bit on the wire).
#[must_use]
pub const fn is_group(mac: u64) -> bool {
    mac & 1 != 0
}
