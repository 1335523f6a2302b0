//! The switch, which passes frames from one VM's network device to another's.
//!
//! A device of class *dynamic* (mobivmm, IV) is shared by all VMs: its driver is a VM, the switch's
//! *uplink*. The service VM takes one frame at a time from a driver's ring, copies it once into its
//! own memory, checks it, and copies it from there into a receive buffer of each target VM. Frames
//! are not queued in between: a receiver that has no buffer, or is between two boots, loses the
//! frame.
//!
//! Drivers are served in round robin, one frame each. One step takes one frame or delivers it to
//! one VM, or handles the part of it that is in [`STRIDE`](weir_vsock::queue::STRIDE) buffers. So a
//! driver that floods the switch delays the others by one frame per frame of theirs.

use crate::{
    broker::Step,
    ram::{Access, Memory, Window},
    transfer::Bucket,
};
use weir_exchange::{
    device::DeviceWords,
    devices::{DeviceKind, DeviceSet},
    flows::PORTS,
    switch::{PortSettings, SwitchCounts, SwitchExchange},
};
use weir_vsock::{
    GuestMemory,
    net::{self, Delivery, EthernetFrame, MOST_FRAME, Station},
    queue::{Broken, Chain, Queue},
};

/// The queue by which a driver receives.
const RX: usize = weir_vsock::device::RX;
/// The queue by which a driver sends.
const TX: usize = weir_vsock::device::TX;

/// The switch's state of a port.
#[derive(Debug)]
struct Port {
    is_there: bool,
    epoch: u32,
    queues: [Option<Queue>; 2],
    /// Whether a ring was invalid in this epoch.
    is_broken: bool,
    /// Number of notifications seen.
    notified: u32,
    /// Whether there may be frames in the port's ring.
    more: bool,
    /// Limits on the frames and the bytes that may be sent. A restart of the VM does not restore
    /// what the previous boot has used up.
    limits: [Bucket; 2],
    counts: SwitchCounts,
}

impl Port {
    fn new(settings: &PortSettings) -> Self {
        let bytes = settings.burst.saturating_mul(MOST_FRAME as u64);
        let limits =
            [Bucket::new(settings.rate, settings.burst), Bucket::new(settings.bandwidth, bytes)];
        Self {
            is_there: settings.mac != 0,
            epoch: 0,
            queues: [None; 2],
            is_broken: false,
            notified: 0,
            more: false,
            limits,
            counts: SwitchCounts::default(),
        }
    }

    /// Returns whether a frame of `len` bytes may be sent at `now`; if so, the frame is counted.
    fn admits(&mut self, now: u64, len: u64) -> bool {
        let [frames, bytes] = &mut self.limits;
        let admitted = frames.ready_at(1) <= now && bytes.ready_at(len) <= now;
        if admitted {
            frames.take(now, 1);
            bytes.take(now, len);
        }
        admitted
    }

    /// Takes in whether the device was reset, and which queues have been put into use since then.
    fn refresh(&mut self, device: &DeviceWords) {
        let epoch = device.epoch();
        if epoch != self.epoch {
            (self.epoch, self.queues, self.is_broken) = (epoch, [None; 2], false);
        }
        for index in [RX, TX] {
            if self.queues[index].is_none() && !self.is_broken {
                self.queues[index] = device.queue(index, epoch);
            }
        }
    }

    /// Stops serving the port because a ring was invalid: no queue is served until the driver
    /// resets the device.
    fn break_down(&mut self, device: &DeviceWords, broken: Broken) {
        (self.queues, self.is_broken) = ([None; 2], true);
        device.break_down(self.epoch, broken);
    }
}

/// The switch.
#[derive(Debug)]
pub struct Switch<'a> {
    exchange: &'a SwitchExchange,
    ports: [Port; PORTS],
    /// One more than the largest number of a port; 0 without a switch.
    end: usize,
    /// The port that is served next.
    turn: usize,
    /// The frame that is being passed on, and the ports that have not received it yet, one bit
    /// each.
    frame: EthernetFrame,
    targets: u32,
    /// The state of a frame that was only partly taken: its port, the epoch of the port's device,
    /// and the rest of the chain.
    taking: Option<(usize, u32, Chain)>,
    /// The state of a frame that was only partly delivered to the first of the targets.
    giving: Option<(u32, Delivery)>,
}

impl<'a> Switch<'a> {
    /// Returns a switch as configured in `exchange`.
    // Not inlined, so that a profile separates the code that runs once from the code that passes
    // frames.
    #[inline(never)]
    #[must_use]
    pub fn new(exchange: &'a SwitchExchange) -> Self {
        let ports: [Port; PORTS] =
            core::array::from_fn(|index| Port::new(&exchange.port(index).settings()));
        let end = ports.iter().rposition(|port| port.is_there).map_or(0, |last| last + 1);
        let frame = EthernetFrame::EMPTY;
        Self { exchange, ports, end, turn: 0, frame, targets: 0, taking: None, giving: None }
    }

    /// Takes one frame from a ring, or delivers the frame that was taken to one VM. `now` is in ns
    /// of the counter. Returns none if there was nothing to do.
    // Not inlined, for the same reason as `new`.
    #[inline(never)]
    pub fn step(&mut self, now: u64, access: &mut impl Access) -> Option<Step> {
        if self.targets != 0 {
            let to = self.targets.trailing_zeros() as usize;
            let step = self.deliver(to % PORTS, access);
            if self.giving.is_none() {
                self.targets &= self.targets - 1;
            }
            return Some(step);
        }
        if let Some((index, ..)) = self.taking
            && let Some(step) = self.serve(index, now, access)
        {
            return Some(step);
        }
        // Bounded: each port is tried once.
        for _ in 0..self.end {
            let index = self.turn % PORTS;
            self.turn = (index + 1) % self.end.max(1);
            if let Some(step) = self.serve(index, now, access) {
                return Some(step);
            }
        }
        None
    }

    /// Takes a frame of port `index`, if there may be one.
    fn serve(&mut self, index: usize, now: u64, access: &mut impl Access) -> Option<Step> {
        let port = &mut self.ports[index];
        if !port.is_there {
            return None;
        }
        let device = &self.exchange.port(index).device;
        let notified = device.notified(TX);
        let taking = self.taking.take();
        port.more |= notified != port.notified || taking.is_some();
        if !port.more {
            return None;
        }
        port.notified = notified;
        port.more = false;
        port.refresh(device);
        let mut queue = port.queues[TX]?;
        if !device.begin(port.epoch) {
            // The device was reset in the meantime.
            port.more = true;
            return Some(Step::Again);
        }
        let mut memory = Memory::new(window(self.exchange, index), access);
        let mut rest = taking.filter(|(_, epoch, _)| *epoch == port.epoch).map(|(.., rest)| rest);
        let taken = take(port, &mut queue, (&mut self.frame, &mut rest), (now, &mut memory));
        self.taking = rest.map(|rest| (index, port.epoch, rest));
        let wanted = queue.wants_interrupt(&mut memory) == Ok(true);
        device.end();
        port.queues[TX] = Some(queue);
        match taken {
            Ok(None) => {}
            Ok(Some(admitted)) => {
                port.more = true;
                if admitted {
                    self.pass(index);
                }
            }
            Err(broken) => port.break_down(device, broken),
        }
        let port = &self.ports[index];
        self.exchange.port(index).set_counts(port.counts);
        if wanted {
            device.signal(port.epoch);
        }
        Some(if wanted || taken.is_err() { report(index) } else { Step::Again })
    }

    /// Determines the target ports of the frame.
    fn pass(&mut self, from: usize) {
        let stations = (0..PORTS).map(|index| {
            let PortSettings { mac, uplink, .. } = self.exchange.port(index).settings();
            Station { mac, uplink }
        });
        let counts = &mut self.ports[from].counts;
        match net::targets(stations, from, self.frame.addresses()) {
            Ok(targets) => {
                counts.sent += 1;
                self.targets = targets & PORTS_MASK;
            }
            Err(net::Foreign) => counts.refused += 1,
        }
    }

    /// Delivers the frame to one VM, if it has a buffer for it.
    fn deliver(&mut self, index: usize, access: &mut impl Access) -> Step {
        let port = &mut self.ports[index];
        if !port.is_there {
            return Step::Again;
        }
        let device = &self.exchange.port(index).device;
        port.refresh(device);
        let giving = self.giving.take().filter(|(epoch, _)| *epoch == port.epoch);
        let begun = port.queues[RX].filter(|_| device.begin(port.epoch));
        let Some(mut queue) = begun else {
            port.counts.missed += 1;
            self.exchange.port(index).set_counts(port.counts);
            return Step::Again;
        };
        let mut memory = Memory::new(window(self.exchange, index), access);
        let mut rest = giving.map(|(_, rest)| rest);
        let given = give(&mut queue, &self.frame, &mut rest, &mut memory);
        self.giving = rest.map(|rest| (port.epoch, rest));
        let wanted = queue.wants_interrupt(&mut memory) == Ok(true);
        device.end();
        port.queues[RX] = Some(queue);
        match given {
            Ok(Some(true)) => port.counts.received += 1,
            Ok(Some(false)) => port.counts.missed += 1,
            Ok(None) => {}
            Err(broken) => port.break_down(device, broken),
        }
        self.exchange.port(index).set_counts(port.counts);
        if wanted {
            device.signal(port.epoch);
        }
        if wanted || given.is_err() { report(index) } else { Step::Again }
    }
}

/// Returns the report of the buffers that the driver of port `index` got back, or of its broken
/// ring.
fn report(index: usize) -> Step {
    let mut devices = DeviceSet::EMPTY;
    devices.insert(DeviceKind::Network, index);
    Step::Report(devices)
}

/// Returns the window to the RAM of the VM at port `index`.
fn window(exchange: &SwitchExchange, index: usize) -> Window<'_> {
    Window::new(&exchange.ram, index, exchange.ram.first(index))
}

const PORTS_MASK: u32 = (1 << PORTS) - 1;

/// Takes the next frame out of a ring, or continues with the `rest` of one. Returns whether the
/// frame was copied and not dropped; none if the ring is empty. A frame that is longer than one
/// walk leaves a `rest`.
fn take(
    port: &mut Port,
    queue: &mut Queue,
    (frame, rest): (&mut EthernetFrame, &mut Option<Chain>),
    (now, memory): (u64, &mut impl GuestMemory),
) -> Result<Option<bool>, Broken> {
    let mut chain = if let Some(chain) = rest.take() {
        chain
    } else {
        let Some(chain) = net::take(queue, memory)? else { return Ok(None) };
        frame.clear();
        chain
    };
    let Some(is_frame) = frame.copy((queue, &mut chain), memory)? else {
        *rest = Some(chain);
        return Ok(Some(false));
    };
    let admitted = is_frame && port.admits(now, frame.bytes().len() as u64);
    if !is_frame {
        port.counts.refused += 1;
    } else if !admitted {
        port.counts.over_rate += 1;
    }
    queue.push(memory, chain.head(), 0)?;
    Ok(Some(admitted))
}

/// Delivers `frame` to a driver, or what is left of it to the `rest` of a receive buffer. Returns
/// whether the driver has the frame; none if the buffer is longer than one walk, which leaves a
/// `rest`. Receive buffers are taken when frames arrive, so the driver need not notify of new ones.
fn give(
    queue: &mut Queue,
    frame: &EthernetFrame,
    rest: &mut Option<Delivery>,
    memory: &mut impl GuestMemory,
) -> Result<Option<bool>, Broken> {
    let mut delivery = if let Some(delivery) = rest.take() {
        delivery
    } else {
        queue.refuse_notifications(memory)?;
        let Some(delivery) = Delivery::begin(queue, memory)? else { return Ok(Some(false)) };
        delivery
    };
    let given = delivery.give(queue, frame, memory)?;
    if given.is_none() {
        *rest = Some(delivery);
    }
    Ok(given)
}
