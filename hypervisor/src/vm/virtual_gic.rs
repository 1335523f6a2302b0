//! The hardware side of the VMs' virtual GICs: connects their model (`weir_vdev::gic`), which
//! decides, to the board's GIC.

use crate::{
    arch::{
        gic::{self, PhysicalLine, Version},
        relax,
    },
    mail,
    vm::{self, Vm, masked::is_masked, moving},
};
use core::sync::atomic::Ordering;
use weir_abi::MAX_CORES;
use weir_units::{CoreId, IntId};
use weir_vdev::gic::{Hardware, ListRegisters, Maintenance, VcpuMask};

/// The hardware behind a VM's virtual GIC: the list registers of this core, and the physical
/// interrupts that are assigned to the VM.
pub struct GicHardware {
    vm: &'static Vm,
}

#[cfg(feature = "gicv3")]
mod lists {
    use super::{GicHardware, ListRegisters, Maintenance, Version};
    use crate::arch::{gic::LISTS, sysreg::icc};
    use weir_vdev::gic::free_of;

    impl ListRegisters<Version> for GicHardware {
        #[inline(always)]
        fn read(&self, index: usize) -> u64 {
            icc::read_lr(index)
        }

        #[inline(always)]
        fn write(&mut self, index: usize, value: u64) {
            icc::write_lr(index, value);
        }

        #[inline(always)]
        fn clear(&mut self, count: usize) {
            // Written out, so that the register need not be selected for each write.
            if count == 4 {
                icc::write_lr(0, 0);
                icc::write_lr(1, 0);
                icc::write_lr(2, 0);
                icc::write_lr(3, 0);
            } else {
                (0..count).for_each(|n| icc::write_lr(n, 0));
            }
        }

        #[inline(always)]
        fn empty_mask(&self) -> u32 {
            free_of(icc::ich_elrsr::read() as u32, LISTS)
        }

        fn set_maintenance(&mut self, maintenance: Maintenance) {
            let hcr = icc::ich_hcr::read() & !u64::from(Maintenance::MASK);
            icc::ich_hcr::write(hcr | u64::from(maintenance.bits()));
        }

        fn take_eoi_count(&mut self) -> u32 {
            let hcr = icc::ich_hcr::read();
            icc::ich_hcr::write(hcr & !(0x1f << 27));
            (hcr >> 27 & 0x1f) as u32
        }
    }
}

#[cfg(feature = "gicv2")]
impl ListRegisters<Version> for GicHardware {
    #[inline(always)]
    fn read(&self, index: usize) -> u32 {
        gic::read_lr(index)
    }

    #[inline(always)]
    fn write(&mut self, index: usize, value: u32) {
        gic::write_lr(index, value);
    }

    #[inline(always)]
    fn empty_mask(&self) -> u32 {
        gic::empty_list_registers()
    }

    fn set_maintenance(&mut self, maintenance: Maintenance) {
        let hcr = gic::virtual_control() & !Maintenance::MASK;
        gic::set_virtual_control(hcr | maintenance.bits());
    }

    fn take_eoi_count(&mut self) -> u32 {
        let hcr = gic::virtual_control();
        gic::set_virtual_control(hcr & !(0x1f << 27));
        hcr >> 27 & 0x1f
    }
}

impl GicHardware {
    /// Returns the hardware behind the virtual GIC of VM `vm`.
    #[must_use]
    pub fn new(vm: &'static Vm) -> Self {
        Self { vm }
    }

    #[inline(always)]
    fn line(&self, vcpu: usize, intid: IntId) -> PhysicalLine {
        if intid.is_private() {
            PhysicalLine::new(intid, self.vm.core_of(vcpu))
        } else {
            PhysicalLine::spi(intid)
        }
    }
}

impl Hardware<Version> for GicHardware {
    fn set_enabled(&mut self, vcpu: usize, intid: IntId, on: bool) {
        // Only SPIs can be masked because they have no credit. They are enabled when there is
        // credit again.
        let on = on && (intid.is_private() || !is_masked(intid));
        self.line(vcpu, intid).set_enabled(on);
    }

    fn set_edge(&mut self, vcpu: usize, intid: IntId, edge: bool) {
        let line = self.line(vcpu, intid);
        // Most switches of vCPUs change nothing here, so they wait for no interrupt and take no
        // lock.
        if line.is_edge() == edge {
            return;
        }
        // The model has disabled the interrupt; `withhold` waits until that has taken effect. If
        // the distributor does not confirm it, the trigger stays as it is, because changing the
        // trigger of a forwarded interrupt is unpredictable (IHI0069H 12.9.9).
        if !line.withhold() {
            return;
        }
        // The configuration of private interrupts is a word of this core. Only the VM's vCPU on
        // this core changes it, under the lock of its virtual GIC.
        let _words = (!intid.is_private()).then(|| gic::DISTRIBUTOR.lock());
        line.set_edge(edge);
    }

    fn route(&mut self, intid: IntId, vcpu: usize) {
        self.line(vcpu, intid).route(self.vm.core_of(vcpu));
    }

    fn pending(&mut self, vcpu: usize, intid: IntId) -> bool {
        self.line(vcpu, intid).is_pending()
    }

    fn set_pending(&mut self, vcpu: usize, intid: IntId, on: bool) {
        self.line(vcpu, intid).set_pending(on);
    }

    fn set_active(&mut self, vcpu: usize, intid: IntId, on: bool) {
        self.line(vcpu, intid).set_active(on);
        if !on {
            moving::ended(self.vm, intid);
        }
    }
}

/// Makes the cores of the vCPUs in `mask` refresh their list registers.
#[inline(always)]
pub fn kick(vm: &Vm, mask: VcpuMask) {
    if !mask.is_empty() {
        kick_each(vm, mask);
    }
}

#[inline(never)]
fn kick_each(vm: &Vm, mask: VcpuMask) {
    kick_some(vm, mask);
}

/// Does what [`kick`] does for at least one vCPU, inlined into the caller.
#[inline(always)]
pub fn kick_some(vm: &Vm, mask: VcpuMask) {
    gic::send(mask.iter().map(|vcpu| vm.core_of(vcpu)), gic::SGI_GUEST);
}

/// Kicks the other vCPUs in `mask`, and refreshes the list registers of vCPU `vcpu`, the caller's,
/// if it is in `mask`.
pub fn settle(vm: &'static Vm, vcpu: usize, mask: VcpuMask) {
    let others = if mask.contains(vcpu) {
        let more = vm.gic.lock().refresh(vcpu, &mut GicHardware::new(vm));
        mask.without(vcpu) | more.without(vcpu)
    } else {
        mask
    };
    kick(vm, others);
}

/// Has the vCPUs in `mask` record the contents of their list registers, and waits for them: at most
/// as long as a core stays in EL2 with interrupts masked. `core` is the calling core, which runs
/// vCPU `vcpu`.
#[inline(never)]
pub fn fold_others(vm: &'static Vm, vcpu: usize, core: CoreId, mask: VcpuMask) {
    let mut tickets = [0; MAX_CORES];
    let others = mask.without(vcpu);
    for (other, ticket) in tickets.iter_mut().enumerate() {
        if others.contains(other) {
            *ticket = vm.vcpu(other).folds_asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            mail::send(vm.core_of(other), mail::FOLD);
        }
    }
    for (other, ticket) in tickets.into_iter().enumerate() {
        if !others.contains(other) {
            continue;
        }
        // Acquire: makes the state that the other core recorded visible after this load. While it
        // waits, this core answers the same request; otherwise two cores that request it from each
        // other would wait forever. Other messages stay in its mailbox, with their SGI pending.
        while (vm.vcpu(other).folds_done.load(Ordering::Acquire).wrapping_sub(ticket)).cast_signed()
            < 0
        {
            if mail::take(core, mail::FOLD) != 0 {
                fold_all(core);
            }
            relax();
        }
    }
}

/// Records the list registers for every vCPU of core `core`, the calling core. A vCPU that is off
/// the core has nothing in them.
pub fn fold_all(core: CoreId) {
    for vcpu_ref in vm::vcpus_of_core(core) {
        fold_own(vcpu_ref.vm, vcpu_ref.vcpu);
    }
}

/// Records the contents of this core's list registers, for the cores that requested it.
pub fn fold_own(vm: &'static Vm, vcpu: usize) {
    let state = vm.vcpu(vcpu);
    let asked = state.folds_asked.load(Ordering::Relaxed);
    if !state.parked.load(Ordering::Relaxed) {
        vm.gic.lock().fold(vcpu, &GicHardware::new(vm));
    }
    // Release: see `fold_others`.
    state.folds_done.store(asked, Ordering::Release);
}
