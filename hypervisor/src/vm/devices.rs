//! The virtual devices of a VM whose registers trap: the GIC, the PL011, the virtio devices, the
//! configuration space of PCI functions. Each is a [`Device`] of one table ([`access`], [`covers`]).

use super::{
    VcpuRef, Vm,
    interrupts::{Lines, fold_others, kick, settle},
    pci,
};
use crate::{
    arch::gic::VERSION,
    console,
    virtio::{flows, switch},
};
use weir_trace::wire::ExitCause;
use weir_units::{CoreId, IntId, Ipa};
use weir_vdev::{
    esr::MmioAccess,
    gic::{self, VcpuMask},
    id::GicVersion,
    pl011::Sink,
};

/// An access of a guest to a device.
#[derive(Clone, Copy)]
pub struct Trapped<'a> {
    /// The vCPU.
    pub vcpu_ref: &'static VcpuRef,
    /// The core that it runs on, the caller's.
    pub core: CoreId,
    /// The instruction's.
    pub access: &'a MmioAccess,
    /// What a store writes.
    pub value: u64,
}

/// A device of each VM, or of some.
trait Device {
    /// Where in the device an address is.
    type Place;
    /// What an access counts as.
    const CAUSE: ExitCause;

    /// Returns where in the device of `vm` `ipa` is, if it is there.
    fn place(vm: &Vm, ipa: Ipa) -> Option<Self::Place>;

    /// Carries out an access; returns what a load reads.
    fn access(trapped: Trapped<'_>, place: Self::Place) -> u64;
}

/// Makes the table of devices: an address is looked for in their order.
macro_rules! devices {
    ($($device:ty)*) => {
        /// Carries out a guest's access; returns what a load reads. `None` if there is no device at
        /// the address.
        pub fn access(trapped: Trapped<'_>) -> Option<u64> {
            let (vcpu_ref, ipa) = (trapped.vcpu_ref, Ipa(trapped.access.ipa));
            $(
                if let Some(place) = <$device>::place(vcpu_ref.vm, ipa) {
                    vcpu_ref.exit(<$device>::CAUSE);
                    return Some(<$device>::access(trapped, place));
                }
            )*
            None
        }

        /// Whether a virtual device is at `ipa`.
        #[must_use]
        pub fn covers(vm: &Vm, ipa: Ipa) -> bool {
            $(<$device>::place(vm, ipa).is_some())||*
        }
    };
}

devices! { Distributor Uart Redistributors Socket Network PciFunctions }

/// The offset of `ipa` in `len` bytes from `base`.
fn offset_in(ipa: Ipa, base: u64, len: u64) -> Option<u64> {
    let offset = ipa.0.wrapping_sub(base);
    (offset < len).then_some(offset)
}

/// The distributor of the virtual GIC.
struct Distributor;

impl Device for Distributor {
    type Place = u64;
    const CAUSE: ExitCause = ExitCause::Gic;

    #[inline(always)]
    fn place(vm: &Vm, ipa: Ipa) -> Option<u64> {
        const LEN: u64 = 0x1_0000;
        offset_in(ipa, vm.view().vm.distributor, LEN)
    }

    #[inline(always)]
    fn access(trapped: Trapped<'_>, place: u64) -> u64 {
        gic(trapped, None, place)
    }
}

/// The redistributors of a virtual GICv3, one behind the other.
struct Redistributors;

impl Device for Redistributors {
    type Place = u64;
    const CAUSE: ExitCause = ExitCause::Gic;

    #[inline(always)]
    fn place(vm: &Vm, ipa: Ipa) -> Option<u64> {
        matches!(VERSION, GicVersion::V3).then_some(())?;
        offset_in(ipa, vm.view().vm.gic_cpu, REDISTRIBUTOR * vm.vcpu_count() as u64)
    }

    #[inline(always)]
    fn access(trapped: Trapped<'_>, place: u64) -> u64 {
        gic(trapped, Some((place / REDISTRIBUTOR) as usize), place % REDISTRIBUTOR)
    }
}

/// Bytes of one vCPU's redistributor.
const REDISTRIBUTOR: u64 = 0x2_0000;

/// The PL011.
struct Uart;

impl Device for Uart {
    type Place = u64;
    const CAUSE: ExitCause = ExitCause::Uart;

    #[inline(always)]
    fn place(vm: &Vm, ipa: Ipa) -> Option<u64> {
        const LEN: u64 = 0x1000;
        offset_in(ipa, vm.view().vm.uart, LEN)
    }

    fn access(trapped: Trapped<'_>, place: u64) -> u64 {
        let Trapped { vcpu_ref, access, value, .. } = trapped;
        let vm = vcpu_ref.vm;
        let mut output = console::Output::new(vm.index());
        let mut uart = vm.uart.lock();
        let (read, high) = if access.write {
            (0, uart.write(place, value as u32, &mut output))
        } else {
            let (read, high) = uart.read(place, &output);
            (u64::from(read), high)
        };
        // A read may have made room for what a person typed meanwhile.
        let high = if access.write { high } else { type_in(vm, &mut uart).unwrap_or(high) };
        let mask = line(vm, high);
        drop(uart);
        settle(vm, vcpu_ref.vcpu, mask);
        read
    }
}

/// The socket device of a VM in flows.
struct Socket;

impl Device for Socket {
    type Place = flows::Place;
    const CAUSE: ExitCause = ExitCause::Virtio;

    fn place(vm: &Vm, ipa: Ipa) -> Option<flows::Place> {
        flows::place(vm, ipa.0)
    }

    fn access(trapped: Trapped<'_>, place: flows::Place) -> u64 {
        let Trapped { vcpu_ref, core, access, value } = trapped;
        flows::access(vcpu_ref, core, access, place, value)
    }
}

/// The network device of a VM at the switch.
struct Network;

impl Device for Network {
    type Place = u64;
    const CAUSE: ExitCause = ExitCause::Virtio;

    fn place(vm: &Vm, ipa: Ipa) -> Option<u64> {
        switch::offset(vm, ipa.0)
    }

    fn access(trapped: Trapped<'_>, place: u64) -> u64 {
        let Trapped { vcpu_ref, access, value, .. } = trapped;
        switch::access(vcpu_ref, access, place, value)
    }
}

/// The configuration space of PCI functions.
struct PciFunctions;

impl Device for PciFunctions {
    type Place = u64;
    const CAUSE: ExitCause = ExitCause::Pci;

    fn place(vm: &Vm, ipa: Ipa) -> Option<u64> {
        pci::offset(vm, ipa.0)
    }

    fn access(trapped: Trapped<'_>, place: u64) -> u64 {
        pci::access(trapped.vcpu_ref.vm, trapped.access, place, trapped.value)
    }
}

/// Carries out an access to the GIC: at an offset of a vCPU's redistributor, or of the distributor.
fn gic(trapped: Trapped<'_>, redistributor: Option<usize>, offset: u64) -> u64 {
    let Trapped { vcpu_ref, core, access: &MmioAccess { size, write, .. }, value } = trapped;
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    let access = gic::Access { vcpu, redistributor, offset, size: size.into() };
    let mut gic = vm.gic.lock();
    let asked = gic.remote(&access, write);
    if !asked.is_empty() {
        drop(gic);
        fold_others(vm, vcpu, core, asked);
        gic = vm.gic.lock();
    }
    let mut lines = Lines::new(vm);
    if write {
        let mask = gic.write(&access, value, &mut lines);
        drop(gic);
        kick(vm, mask);
        0
    } else {
        gic.read(&access, &mut lines)
    }
}

/// Moves what a person typed into the PL011's FIFO, as far as it fits; the new interrupt line if
/// anything moved.
fn type_in(vm: &Vm, uart: &mut weir_vdev::pl011::Pl011) -> Option<bool> {
    let channel = console::channel(vm.index());
    let mut high = None;
    // Bounded by the FIFO, which `can_receive` says is full after at most 32 bytes.
    while uart.can_receive()
        && let Some(byte) = channel.typed()
    {
        high = Some(uart.receive(byte));
    }
    high
}

fn line(vm: &Vm, high: bool) -> VcpuMask {
    vm.gic.lock().set_level(IntId(vm.view().vm.uart_intid), high)
}

/// The console has input for the VM, or room for its output.
pub fn uart_attention(vcpu_ref: &'static VcpuRef) {
    let vm = vcpu_ref.vm;
    let mut uart = vm.uart.lock();
    let _ = type_in(vm, &mut uart);
    let high = uart.drained(console::Output::new(vm.index()).room());
    let mask = line(vm, high);
    drop(uart);
    settle(vm, vcpu_ref.vcpu, mask);
}
