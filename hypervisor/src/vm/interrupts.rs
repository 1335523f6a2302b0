//! Interrupts of the VMs: between the model of the virtual GIC (`vboard::gic`), which decides, and the board's GIC.

#[cfg(feature = "gicv2")]
use crate::arch::gic::{gich_read, gich_write};
use crate::{
    arch::{
        gic::{self, Line},
        relax,
    },
    cpu,
    vm::{Vm, admission, focus},
};
use core::sync::atomic::Ordering;
use weir_model::packed::{MAX_CORES, VmView};
use weir_vdev::{
    gic::{Hardware, ListRegisters, Maintenance, VcpuMask},
    id::GicVersion,
};

/// The virtual GIC is of the board's version.
#[cfg(feature = "gicv2")]
pub type Version = weir_vdev::gic::V2;
/// The virtual GIC is of the board's version.
#[cfg(feature = "gicv3")]
pub type Version = weir_vdev::gic::V3;

/// The same as a value.
pub const GIC_VERSION: GicVersion =
    if cfg!(feature = "gicv3") { GicVersion::V3 } else { GicVersion::V2 };

/// The list registers of this core, and the physical lines that a VM was given.
pub struct Lines {
    vm: &'static Vm,
}

#[cfg(feature = "gicv3")]
mod lists {
    use super::{Lines, ListRegisters, Maintenance, Version};
    use crate::arch::{gic::LISTS, sysreg::icc};
    use weir_vdev::gic::free_of;

    impl ListRegisters<Version> for Lines {
        #[inline(always)]
        fn read(&self, index: usize) -> u64 {
            icc::read_lr(index)
        }

        #[inline(always)]
        fn write(&mut self, index: usize, value: u64) {
            icc::write_lr(index, value);
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
impl ListRegisters<Version> for Lines {
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
        let hcr = gich_read(gic::GICH_HCR) & !Maintenance::MASK;
        gich_write(gic::GICH_HCR, hcr | maintenance.bits());
    }

    fn take_eoi_count(&mut self) -> u32 {
        let hcr = gich_read(gic::GICH_HCR);
        gich_write(gic::GICH_HCR, hcr & !(0x1f << 27));
        hcr >> 27 & 0x1f
    }
}

impl Lines {
    /// Of VM `vm`.
    #[must_use]
    pub fn new(vm: &'static Vm) -> Self {
        Self { vm }
    }

    fn line(&self, vcpu: usize, intid: u32) -> Line {
        Line::new(intid, self.vm.core_of(vcpu))
    }
}

impl Hardware<Version> for Lines {
    fn set_enabled(&mut self, vcpu: usize, intid: u32, on: bool) {
        // What is masked for want of credit, which only shared lines can be, is enabled when there is some.
        let on = on && (intid < 32 || !admission::is_masked(intid));
        self.line(vcpu, intid).set_enabled(on);
    }

    fn set_edge(&mut self, vcpu: usize, intid: u32, edge: bool) {
        let line = self.line(vcpu, intid);
        // At most switches of vCPUs nothing changes: no line is waited for then, and no lock is
        // taken.
        if line.is_edge() == edge {
            return;
        }
        // The model has disabled it; this waits until that has taken effect (IHI0069H 12.9.9).
        line.withhold();
        // The configuration of private interrupts is a word of the core, which only the VM's vCPU
        // there changes, under the lock of its virtual GIC.
        let _words = (intid >= 32).then(|| gic::DISTRIBUTOR.lock());
        line.set_edge(edge);
    }

    fn route(&mut self, intid: u32, vcpu: usize) {
        self.line(vcpu, intid).route(self.vm.core_of(vcpu));
    }

    fn pending(&mut self, vcpu: usize, intid: u32) -> bool {
        self.line(vcpu, intid).is_pending()
    }

    fn set_pending(&mut self, vcpu: usize, intid: u32, on: bool) {
        self.line(vcpu, intid).set_pending(on);
    }

    fn set_active(&mut self, vcpu: usize, intid: u32, on: bool) {
        self.line(vcpu, intid).set_active(on);
        if !on {
            focus::ended(self.vm, intid);
        }
    }
}

/// Gives a VM its virtual GIC; on the boot core. Not part of who calls it: its stack is needed no more when guests run.
#[inline(never)]
pub fn init(vm: &'static Vm, view: &VmView<'static>) {
    let mut gic = vm.gic.lock();
    *gic = weir_vdev::gic::Gic::new(view.cores().len(), gic::list_registers());
    for timer in [gic::PPI_VIRTUAL_TIMER, gic::PPI_PHYSICAL_TIMER] {
        gic.link(timer, timer);
    }
    for irq in view.irqs {
        if irq.active == 0 {
            gic.link(irq.intid, irq.intid);
        } else {
            gic.relay(irq.intid, irq.intid);
        }
    }
}

/// Makes the cores of the vCPUs in `mask` look at their list registers.
#[inline(always)]
pub fn kick(vm: &Vm, mask: VcpuMask) {
    if !mask.is_empty() {
        kick_each(vm, mask);
    }
}

fn kick_each(vm: &Vm, mask: VcpuMask) {
    for vcpu in mask.iter() {
        gic::send(vm.core_of(vcpu), gic::SGI_GUEST);
    }
}

/// Kicks the others of `mask`, and refreshes vCPU `vcpu`'s own list registers if it is in it.
pub fn settle(vm: &'static Vm, vcpu: usize, mask: VcpuMask) {
    let others = if mask.contains(vcpu) {
        let more = vm.gic.lock().refresh(vcpu, &mut Lines::new(vm));
        mask.without(vcpu) | more.without(vcpu)
    } else {
        mask
    };
    kick(vm, others);
}

/// Has the vCPUs in `mask` write down what is in their list registers, and waits for them: at most as long as a core stays
/// in EL2 with interrupts masked. `core` is the caller's, running vCPU `vcpu`.
#[inline(never)]
pub fn fold_others(vm: &'static Vm, vcpu: usize, core: usize, mask: VcpuMask) {
    let mut tickets = [0; MAX_CORES];
    let others = mask.without(vcpu);
    for (other, ticket) in tickets.iter_mut().enumerate() {
        if others.contains(other) {
            *ticket = vm.vcpu(other).folds_asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            cpu::tell(vm.core_of(other), cpu::FOLD);
        }
    }
    for (other, ticket) in tickets.into_iter().enumerate() {
        if !others.contains(other) {
            continue;
        }
        // Acquire: what the other folded is seen behind this. While waiting this core answers the same question, or two that ask
        // each other would wait for ever; all else in its mailbox stays there, with its SGI pending.
        while (vm.vcpu(other).folds_done.load(Ordering::Acquire).wrapping_sub(ticket)).cast_signed()
            < 0
        {
            if cpu::take(core, cpu::FOLD) != 0 {
                fold_all(core);
            }
            relax();
        }
    }
}

/// The same for every vCPU on core `core`, the caller's; of those that are off it nothing is in the list registers.
pub fn fold_all(core: usize) {
    for seat in super::seats(core) {
        fold_own(seat.vm, seat.vcpu);
    }
}

/// Writes down what is in this core's list registers, for those who asked.
pub fn fold_own(vm: &'static Vm, vcpu: usize) {
    let shared = vm.vcpu(vcpu);
    let asked = shared.folds_asked.load(Ordering::Relaxed);
    if !shared.parked.load(Ordering::Relaxed) {
        vm.gic.lock().fold(vcpu, &Lines::new(vm));
    }
    // Release: see `fold_others`.
    shared.folds_done.store(asked, Ordering::Release);
}
