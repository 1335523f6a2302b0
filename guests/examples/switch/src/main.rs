//! The service VM of a network device that several VMs share: it drives the board's device, a
//! virtio function on PCI, and passes frames between that and its port of weir's switch, the
//! uplink.
//!
//! Arguments: `crash=` in the VM's first boot, after so many frames of the others'.
//!
//! ```text
//! switch: 52:54:00:12:34:56 is outside, 52:54:00:00:00:01 is the uplink
//! ```

#![no_std]
#![no_main]

use weir_guest::{Board, cpu, entry, gic, hypercall, mmio, println};
use weir_vsock_driver::ethernet::{self, Ethernet, Shown};

entry!(main);

fn main(board: &'static Board) -> ! {
    let crash = board.args.get("crash").filter(|_| hypercall::restarts() == 0);
    let crash = crash.map(|_| board.args.number("crash", 0));
    let (physical, port) = board.pci.zip(board.network).expect("a device outside and a port");
    gic::init(|interrupt| ethernet::acknowledge(interrupt.intid));
    let mut outside = Ethernet::open(physical);
    let mut inside = Ethernet::open(port);
    for device in [physical, port] {
        gic::enable(device.intid);
    }
    println!("switch: {} is outside, {} is the uplink", Shown(outside.mac()), Shown(inside.mac()));
    let mut passed = 0;
    loop {
        let mut idle = true;
        // One of each in turn: neither side waits for the other's burst.
        if outside.can_send() {
            let came = inside.receive(|frame| {
                outside.send(frame);
            });
            idle &= !came;
            passed += u64::from(came);
        }
        // The port takes a frame while it is notified, so there is always room.
        idle &= !outside.receive(|frame| {
            inside.send(frame);
        });
        if crash.is_some_and(|crash| passed >= crash) {
            mmio::crash();
        }
        if idle {
            cpu::sleep();
        }
    }
}
