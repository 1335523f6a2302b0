//! Frames of a network device (virtio 1.2, section 5.1) without offloads, and which of a switch's
//! ports they are for.

use crate::{
    memory::GuestMemory,
    queue::{Broken, Chain, Direction, Found, Queue, STRIDE},
};

/// Bytes of what stands before a frame (section 5.1.6): zeros, as there are no offloads, but for
/// the number of buffers.
pub const HEADER_LEN: usize = 12;
/// What stands before a frame that a driver receives.
const RECEIVED: [u8; HEADER_LEN] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// Bytes of the two addresses and the type.
pub const LEAST_FRAME: usize = 14;
/// Most bytes of a frame: a payload of 1500, without a tag.
pub const MOST_FRAME: usize = 1514;

/// A frame with its header, copied out of a driver's buffers: what is checked is what is passed
/// on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetFrame {
    bytes: [u8; HEADER_LEN + MOST_FRAME],
    len: usize,
}

impl EthernetFrame {
    /// Room for one.
    pub const EMPTY: Self = Self { bytes: [0; HEADER_LEN + MOST_FRAME], len: HEADER_LEN };

    /// The frame, without its header.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..self.len).unwrap_or(&[])
    }

    /// The station that it is for, and the one that it says it is from; see [`Station::mac`].
    #[must_use]
    pub fn addresses(&self) -> (u64, u64) {
        let mac = |at: usize| {
            let bytes = self.bytes.get(HEADER_LEN + at..).unwrap_or(&[]);
            bytes.iter().take(6).rev().fold(0, |mac, byte| mac << 8 | u64::from(*byte))
        };
        (mac(0), mac(6))
    }

    /// Forgets the frame: the next one is copied here.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Copies what the driver sends with `chain`, which `queue` has, behind what was copied before.
    /// Returns whether it is a frame; none if the chain is longer than one walk. Then this is to be
    /// called again.
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
                // It is longer than a frame.
                return Ok(Some(false));
            }
            let len = room.len().min(segment.len as usize);
            memory.read(segment.address, &mut room[..len])?;
            chain.pass(len as u32);
            self.len += len;
        }
        // The sender's goes nowhere: the receiver's is of one buffer, and of no offload.
        self.bytes[..HEADER_LEN].copy_from_slice(&RECEIVED);
        Ok(Some(self.len >= HEADER_LEN + LEAST_FRAME))
    }
}

/// Takes the next chain that the driver sends; if there is none, asks for a notification of the
/// next.
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

/// A receive buffer that gets a frame.
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

    /// Gives `frame` to the driver; false if the buffer is too short, which it gets back empty. None
    /// if the chain is longer than one walk: then this is to be called again.
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
    /// Its address, the first byte in the lowest eight bits.
    pub mac: u64,
    /// Whether stations that are at no port are behind its port.
    pub uplink: bool,
}

/// A frame says that it is from a station which is not at the port that it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

/// Which of `ports` a frame from port `from` is for, one bit each: the one of its station; all but
/// its own if it is for a group of stations; the uplink if it is for a station that is at none,
/// which has none then where it came from there. The stations of a port are fixed, so
/// no port can draw another's frames to itself.
///
/// # Errors
///
/// [`Foreign`].
pub fn targets(
    ports: impl Iterator<Item = Station> + Clone,
    from: usize,
    (to, source): (u64, u64),
) -> Result<u32, Foreign> {
    let at = |mac: u64| ports.clone().position(|port| port.mac == mac);
    let sender = ports.clone().nth(from).ok_or(Foreign)?;
    // Behind the uplink are the stations that are at no port.
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

/// Whether an address is of several stations (IEEE 802.3, 3.2.3: the first bit on the wire).
#[must_use]
pub const fn is_group(mac: u64) -> bool {
    mac & 1 != 0
}
