//! The virtual devices of a VM whose registers trap: the GIC ([`gic_place`]), the PL011, the virtio
//! devices, and the configuration space of PCI functions. Each but the GIC is a [`Device`] in one
//! table ([`access`], [`covers`]).

use crate::{
    arch::{
        gic::{VERSION, Version, ends_in_two_steps},
        lock::Guard,
    },
    console,
    virtio::{Answer, flows, switch},
    vm::{
        VcpuRef, Vm, pci,
        virtual_gic::{GicHardware, fold_others, kick, settle},
    },
};
use weir_trace::wire::ExitCause;
use weir_units::{CoreId, IntId, Ipa};
use weir_vdev::{
    esr::MmioAccess,
    gic::{self, Gic, VcpuMask},
    id::GicVersion,
    pl011::Sink,
};

/// An access of a guest to a device.
#[derive(Clone, Copy)]
pub struct Trapped<'a> {
    /// The vCPU.
    pub vcpu_ref: &'static VcpuRef,
    /// The access that the instruction makes.
    pub access: &'a MmioAccess,
    /// The value that a store writes.
    pub value: u64,
}

/// A virtual device that each VM has, or that some VMs have.
trait Device {
    /// The place of an address within the device.
    type Place;
    /// The exit cause that an access counts as.
    const CAUSE: ExitCause;

    /// Returns the place of `ipa` within the device of `vm`, or none if it is not in the device.
    fn place(vm: &Vm, ipa: Ipa) -> Option<Self::Place>;

    /// Carries out an access.
    fn access(trapped: Trapped<'_>, place: Self::Place) -> Answer;
}

/// Defines the table of devices: an address is searched for in their order.
macro_rules! devices {
    ($($device:ty)*) => {
        /// Carries out a guest's access to a device other than the GIC. Returns `None` if there is
        /// no device at the address.
        pub fn access(trapped: Trapped<'_>) -> Option<Answer> {
            let (vcpu_ref, ipa) = (trapped.vcpu_ref, Ipa(trapped.access.ipa));
            $(
                if let Some(place) = <$device>::place(vcpu_ref.vm, ipa) {
                    vcpu_ref.exit(<$device>::CAUSE);
                    return Some(<$device>::access(trapped, place));
                }
            )*
            None
        }

        /// Returns whether a virtual device is at `ipa`.
        #[must_use]
        pub fn covers(vm: &Vm, ipa: Ipa) -> bool {
            gic_place(vm, ipa).is_some() || $(<$device>::place(vm, ipa).is_some())||*
        }
    };
}

devices! { Uart Socket Network PciFunctions CpuInterface }

/// Returns the offset of `ipa` in the `len` bytes from `base`, or none if it lies outside.
fn offset_in(ipa: Ipa, base: u64, len: u64) -> Option<u64> {
    let offset = ipa.0.wrapping_sub(base);
    (offset < len).then_some(offset)
}

/// Returns the place of `ipa` in the virtual GIC of `vm`, or none if it lies outside. The place is
/// the vCPU whose redistributor it is in (none for the distributor), and the offset.
#[inline(always)]
#[must_use]
pub fn gic_place(vm: &Vm, ipa: Ipa) -> Option<(Option<usize>, u64)> {
    const DISTRIBUTOR: u64 = 0x1_0000;
    let its = vm.view().vm;
    if let Some(offset) = offset_in(ipa, its.distributor, DISTRIBUTOR) {
        return Some((None, offset));
    }
    matches!(VERSION, GicVersion::V3).then_some(())?;
    // The redistributors of the vCPUs are adjacent.
    let offset = offset_in(ipa, its.gic_cpu, REDISTRIBUTOR * vm.vcpu_count() as u64)?;
    Some((Some((offset / REDISTRIBUTOR) as usize), offset % REDISTRIBUTOR))
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

    fn access(trapped: Trapped<'_>, place: u64) -> Answer {
        let Trapped { vcpu_ref, access, value } = trapped;
        let vm = vcpu_ref.vm;
        let mut output = console::Output::new(vm.index());
        let mut uart = vm.uart.lock();
        let (read, high) = if access.write {
            (0, uart.write(place, value as u32, &mut output))
        } else {
            let (read, high) = uart.read(place, &output);
            (u64::from(read), high)
        };
        // A read may have made room for console input that came in the meantime.
        let high = if access.write { high } else { type_in(vm, &mut uart).unwrap_or(high) };
        let mask = line(vm, high);
        drop(uart);
        settle(vm, vcpu_ref.vcpu, mask);
        Answer::Done(read)
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

    fn access(trapped: Trapped<'_>, place: flows::Place) -> Answer {
        let Trapped { vcpu_ref, access, value } = trapped;
        flows::access(vcpu_ref, access, place, value)
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

    fn access(trapped: Trapped<'_>, place: u64) -> Answer {
        let Trapped { vcpu_ref, access, value } = trapped;
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

    fn access(trapped: Trapped<'_>, place: u64) -> Answer {
        Answer::Done(pci::access(trapped.vcpu_ref.vm, trapped.access, place, trapped.value))
    }
}

/// The second page of a GICv2's CPU interface, whose only register is GICV_DIR.
struct CpuInterface;

impl Device for CpuInterface {
    type Place = u64;
    const CAUSE: ExitCause = ExitCause::Gic;

    fn place(vm: &Vm, ipa: Ipa) -> Option<u64> {
        const PAGE: u64 = 0x1000;
        matches!(VERSION, GicVersion::V2).then_some(())?;
        offset_in(ipa, vm.view().vm.gic_cpu.wrapping_add(PAGE), PAGE)
    }

    fn access(trapped: Trapped<'_>, place: u64) -> Answer {
        let Trapped { vcpu_ref, access, value } = trapped;
        if access.write && access.size == 4 && place == 0 {
            deactivate(vcpu_ref, value as u32);
        }
        Answer::Done(0)
    }
}

/// Carries out a store of `value` to ICC_DIR_EL1 or GICV_DIR by the current vCPU. The store has no
/// effect if the guest ends interrupts in one step, because then there is nothing to deactivate.
#[cold]
#[inline(never)]
pub fn deactivate(vcpu_ref: &'static VcpuRef, value: u32) {
    let VcpuRef { vm, vcpu, .. } = *vcpu_ref;
    if ends_in_two_steps()
        && let Some((access, bit)) = gic::GicAccess::deactivation::<Version>(vcpu, value)
    {
        write_gic(vcpu_ref, vm.core_of(vcpu), &access, bit);
    }
}

/// Carries out a load from the GIC, on core `core`; returns what it reads.
#[inline(always)]
#[must_use]
pub fn read_gic(vcpu_ref: &'static VcpuRef, core: CoreId, access: &gic::GicAccess) -> u64 {
    match access.constant::<Version>(vcpu_ref.vm.vcpu_count()) {
        Some(value) => value,
        None => read_changing(vcpu_ref, core, access),
    }
}

#[inline(never)]
fn read_changing(vcpu_ref: &'static VcpuRef, core: CoreId, access: &gic::GicAccess) -> u64 {
    let vm = vcpu_ref.vm;
    lock_gic(vcpu_ref, core, access, false).read(access, &mut GicHardware::new(vm))
}

/// Carries out a store to the GIC, on core `core`.
#[inline(never)]
pub fn write_gic(vcpu_ref: &'static VcpuRef, core: CoreId, access: &gic::GicAccess, value: u64) {
    let vm = vcpu_ref.vm;
    let mask =
        lock_gic(vcpu_ref, core, access, true).write(access, value, &mut GicHardware::new(vm));
    kick(vm, mask);
}

/// Locks the GIC for an access; on return the state of the list registers on other cores is known.
#[inline(always)]
fn lock_gic(
    vcpu_ref: &'static VcpuRef,
    core: CoreId,
    access: &gic::GicAccess,
    write: bool,
) -> Guard<'static, Gic<Version>> {
    let gic = vcpu_ref.vm.gic.lock();
    let asked = gic.remote(access, write);
    if asked.is_empty() { gic } else { fold_and_lock(vcpu_ref, core, gic, asked) }
}

#[cold]
#[inline(never)]
fn fold_and_lock(
    vcpu_ref: &'static VcpuRef,
    core: CoreId,
    gic: Guard<'static, Gic<Version>>,
    asked: VcpuMask,
) -> Guard<'static, Gic<Version>> {
    drop(gic);
    fold_others(vcpu_ref.vm, vcpu_ref.vcpu, core, asked);
    vcpu_ref.vm.gic.lock()
}

/// Moves console input into the PL011's FIFO, as far as it fits. Returns the new level of the
/// interrupt line if anything moved.
fn type_in(vm: &Vm, uart: &mut weir_vdev::pl011::Pl011) -> Option<bool> {
    let channel = console::channel(vm.index());
    let mut high = None;
    // The FIFO bounds this loop: `can_receive` returns false after at most 32 bytes.
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

/// Handles a message of the console: there is input for the VM, or room for its output.
pub fn uart_attention(vcpu_ref: &'static VcpuRef) {
    let vm = vcpu_ref.vm;
    let mut uart = vm.uart.lock();
    let _ = type_in(vm, &mut uart);
    let high = uart.drained(console::Output::new(vm.index()).room());
    let mask = line(vm, high);
    drop(uart);
    settle(vm, vcpu_ref.vcpu, mask);
}
