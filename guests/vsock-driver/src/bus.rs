//! Finding a device: on the MMIO transport at a known address, on PCI by enumeration.

use crate::memory::Memory;
use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};
use virtio_drivers::transport::{
    DeviceType, SomeTransport,
    mmio::MmioTransport,
    pci::{
        PciTransport, VIRTIO_PCI_CAP_ISR_CFG,
        bus::{
            Cam, Command, ConfigurationAccess, DeviceFunction, MmioCam, PCI_CAP_ID_VNDR, PciRoot,
        },
        virtio_device_type,
    },
};
use weir_guest::mmio;

/// What the registers on the MMIO transport begin with (virtio 1.2, section 4.2.2).
const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// Where in a virtio capability the number of the base address is, and the offset behind it
/// (section 4.1.4).
const BAR: u8 = 4;
const OFFSET: u8 = 8;

/// Where a device says why it interrupts.
pub struct Reason {
    /// Its registers on the MMIO transport.
    registers: AtomicU64,
    /// The register on PCI.
    isr: AtomicU64,
}

impl Reason {
    /// Of no device.
    pub const fn new() -> Self {
        Self { registers: AtomicU64::new(0), isr: AtomicU64::new(0) }
    }

    /// Lowers the interrupt of the device that [`find`] has found.
    pub fn acknowledge(&self) {
        match (self.registers.load(Ordering::Relaxed), self.isr.load(Ordering::Relaxed)) {
            (0, 0) => {}
            (0, isr) => {
                // SAFETY: the register that `enumerate` found: reading it acknowledges (virtio 1.2,
                // section 4.1.4.5).
                let _ = unsafe { mmio::read8(isr) };
            }
            // SAFETY: the two registers of the device by which an interrupt is acknowledged
            // (section 4.2.2).
            (base, _) => unsafe { mmio::write32(base + 0x64, mmio::read32(base + 0x60)) },
        }
    }
}

/// The transport of the device of `kind` with its registers, or the configuration space of its bus,
/// at `base`.
///
/// # Panics
///
/// When there is no such device.
pub fn find(base: u64, kind: DeviceType, reason: &Reason) -> SomeTransport<'static> {
    // SAFETY: the device tree says that a virtio device or a host bridge is there; both are mapped,
    // and have a word at their start.
    if unsafe { mmio::read32(base) } != MAGIC {
        return enumerate(base, kind, reason).into();
    }
    reason.registers.store(base, Ordering::Relaxed);
    let header = NonNull::new(base as *mut _).expect("no device is at 0");
    // SAFETY: as above; nothing else uses the device.
    let transport = unsafe { MmioTransport::new(header, 0x1000) };
    transport.expect("a virtio device").into()
}

/// The device of `kind` on the bus with its configuration space at `ecam`.
fn enumerate(ecam: u64, kind: DeviceType, reason: &Reason) -> PciTransport {
    // SAFETY: the device tree says that the configuration space is there, which is mapped as device
    // memory, and nothing else uses it.
    let mut root = PciRoot::new(unsafe { MmioCam::new(ecam as *mut u8, Cam::Ecam) });
    let is_wanted = |info: &_| virtio_device_type(info) == Some(kind);
    let found = root.enumerate_bus(0).find(|(_, info)| is_wanted(info));
    let (place, _) = found.expect("the device on bus 0");
    root.set_command(place, Command::MEMORY_SPACE | Command::BUS_MASTER);
    // SAFETY: as above; `root` is not used while this is.
    let space = unsafe { MmioCam::new(ecam as *mut u8, Cam::Ecam) };
    reason.isr.store(isr(&mut root, &space, place), Ordering::Relaxed);
    PciTransport::new::<Memory, _>(&mut root, place).expect("a virtio device")
}

/// Where the function at `place` says why it interrupts.
fn isr<C: ConfigurationAccess>(root: &mut PciRoot<C>, space: &C, place: DeviceFunction) -> u64 {
    let is_isr = |private: u16| private >> 8 == u16::from(VIRTIO_PCI_CAP_ISR_CFG);
    let capability = root
        .capabilities(place)
        .find(|one| one.id == PCI_CAP_ID_VNDR && is_isr(one.private_header))
        .expect("a place for the interrupt's reason")
        .offset;
    let bar = space.read_word(place, capability + BAR) as u8;
    let bar = root.bar_info(place, bar).expect("a base address").expect("one that is there");
    let (address, _) = bar.memory_address_size().expect("one in memory");
    address + u64::from(space.read_word(place, capability + OFFSET))
}
