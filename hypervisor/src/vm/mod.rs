//! The virtual machines: the state of each that cores share.

pub mod budget;
pub mod debug;
pub mod divided;
pub mod ending;
pub mod focus;
pub mod load;
pub mod masked;
pub mod moving;
pub mod ownership;
pub mod pci;
pub mod stage2;
pub mod virtio;
pub mod virtual_gic;

use crate::{
    arch::{
        context::GuestContext,
        gic::{self, Version},
        lock::Lock,
        memory,
        set_once::SetOnce,
        sysreg,
    },
    console, halt, system,
    trace::{self, Origin, Ring},
};
use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ptr,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};
use weir_abi::{Features, INTID_LIMIT, MAX_CORES, MAX_VMS, VM_LEN, VmView};
use weir_trace::wire::{DENIALS, Denial, EXIT_CAUSES, ExitCause, FAULT_KINDS, What, WireEvent};
use weir_units::{CoreId, IntId, Pa, VmId};
use weir_vdev::{
    debug::Debug,
    gic::{Gic, SgiBoard, VcpuMask},
    id::IdRegisters,
    pl011::Pl011,
    pmu,
    psci::Power,
    stolen::StolenTime,
};

/// The counters of one vCPU; only the vCPU's core writes to them.
pub struct VcpuCounts {
    pub exits: [AtomicU64; EXIT_CAUSES],
    injected: AtomicU64,
}

impl VcpuCounts {
    const fn new() -> Self {
        Self { exits: [const { AtomicU64::new(0) }; EXIT_CAUSES], injected: AtomicU64::new(0) }
    }

    /// Counts an exit.
    #[inline(always)]
    pub fn exit(&self, cause: ExitCause) {
        add(&self.exits[cause as usize]);
    }

    /// Counts that interrupts were put into list registers, except for interrupts that are counted
    /// as exits of the causes in [`VcpuCounts::all_injected`].
    #[inline(always)]
    pub fn injected(&self) {
        add(&self.injected);
    }

    /// Returns how often interrupts were put into list registers: once for each exit caused by a
    /// timer or a device, plus the other injections.
    pub fn all_injected(&self) -> u64 {
        let exits = |cause| self.exits[cause as usize].load(Ordering::Relaxed);
        let counted = exits(ExitCause::Timer).wrapping_add(exits(ExitCause::DeviceIrq));
        self.injected.load(Ordering::Relaxed).wrapping_add(counted)
    }
}

/// Increments a counter that has only one writer.
#[inline(always)]
fn add(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// The state of one vCPU that cores share.
pub struct Vcpu {
    /// The vCPU's core; set once, by [`init`].
    core: AtomicU8,
    pub counts: VcpuCounts,
    /// Whether the vCPU is off and its core does not run it.
    pub parked: AtomicBool,
    /// The entry point of a vCPU that is to be turned on.
    start: Lock<Start>,
    /// Number of folds requested and done: see [`virtual_gic::fold_others`].
    folds_asked: AtomicU32,
    folds_done: AtomicU32,
}

/// A vCPU as its core refers to it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct VcpuRef {
    /// The VM.
    pub vm: &'static Vm,
    /// The vCPU's number in the VM.
    pub vcpu: usize,
    /// The counters of the vCPU's exits.
    pub counts: &'static VcpuCounts,
    /// The ring in which the vCPU's core records its events.
    pub ring: &'static Ring,
    /// The identity of the vCPU in the ring.
    pub origin: Origin,
    /// The set of all vCPUs of the VM.
    pub all: VcpuMask,
}

impl VcpuRef {
    /// Records an event of the vCPU, on paths that are not critical for the guest's latency.
    #[inline(never)]
    pub fn record(&self, kind: trace::RecordKind, detail: u32, count: u64, other: u64) {
        trace::push(self.ring, self.origin.tag(kind, detail), count, other);
    }

    /// Counts a synchronous exit, and records it.
    #[inline(always)]
    pub fn exit(&self, cause: ExitCause) {
        self.exit_by(cause, sysreg::esr_el2::read());
    }

    /// Counts and records a synchronous exit whose syndrome has been read already.
    #[inline(always)]
    pub fn exit_by(&self, cause: ExitCause, syndrome: u64) {
        self.counts.exit(cause);
        trace::push(self.ring, self.origin.tag(trace::RecordKind::Exit, cause as u32), syndrome, 0);
    }

    /// Counts and records a synchronous exit, on paths that are not critical for the guest's
    /// latency.
    #[cold]
    #[inline(never)]
    pub fn rare_exit(&self, cause: ExitCause) {
        self.exit(cause);
    }

    /// Counts an exit by interrupt `intid`, and records the interrupt.
    #[inline(always)]
    pub fn interrupt(&self, cause: ExitCause, intid: IntId) {
        self.counts.exit(cause);
        trace::push(self.ring, self.origin.tag(trace::RecordKind::Interrupt, intid.0), 0, 0);
    }
}

/// A value that only one core accesses.
pub struct CoreLocal<T>(pub UnsafeCell<T>);

// SAFETY: each access to the content is made on that one core, see `Vm::context` and
// `vcpu::schedule`.
unsafe impl<T> Sync for CoreLocal<T> {}

/// The entry point of a vCPU that is to be turned on, and the boot of the VM in which that was
/// requested.
#[derive(Clone, Copy)]
struct Start {
    entry: u64,
    x0: u64,
    boot: u32,
    /// Whether the start was requested and not yet carried out by the vCPU's core.
    asked: bool,
}

/// Reason for the end of a VM's boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// SYSTEM_OFF, or the last vCPU was turned off.
    Off,
    /// SYSTEM_RESET.
    Reset,
    /// A fault.
    Fault,
}

/// A virtual machine. If memory is divided, the pages of this struct lie in the VM's own page
/// classes, so that EL2's accesses on behalf of a VM affect only cache sets of that VM.
#[repr(C, align(4096))]
pub struct Vm {
    /// The virtual GIC. It is the first field because each interrupt takes its lock.
    pub gic: Lock<Gic<Version>>,
    /// The VM's part of the packed system; [`init`] writes it before there is a reference to the
    /// VM.
    view: MaybeUninit<VmView<'static>>,
    /// Number of vCPUs; set once, by [`init`].
    count: AtomicU8,
    /// Physical address of the VM's stage 2 tables.
    root: AtomicU64,
    /// SGIs that the VM's vCPUs have posted to each other.
    pub sgis: SgiBoard<Version>,
    /// The virtual PL011.
    pub uart: Lock<Pl011>,
    /// The socket device, used by a VM in a flow.
    pub socket: virtio::socket::FlowDevice,
    /// The network device, used by a VM at the switch.
    pub net: virtio::network::SwitchDevice,
    /// The registers by which the VM's drivers notify the broker.
    pub notify: virtio::notify::NotifyRegisters,
    /// The memory budget, as far as the VM's cores share it.
    pub budget: budget::VmBudget,
    /// The PSCI state of the vCPUs, while the VM runs.
    pub power: Lock<Option<Power>>,
    vcpus: [Vcpu; MAX_CORES],
    pub ending: Lock<Option<Ending>>,
    /// Time at which the present boot began, in ns.
    pub began: AtomicU64,
    /// Number of boots that ended and were followed by another.
    pub restarts: AtomicU32,
    /// Whether the VM has stopped for good.
    pub halted: AtomicBool,
    pub denials: [AtomicU64; DENIALS],
    /// Number of boots that a fault ended, by kind.
    pub faults: [AtomicU32; FAULT_KINDS],
    /// Number of boots that SYSTEM_RESET ended.
    pub resets: AtomicU32,
    /// Kinds of denials in this boot, one bit each.
    pub denied: AtomicU32,
}

/// The state that EL2 keeps for a VM, in whole pages.
#[repr(C, align(4096))]
struct Kept {
    vm: Vm,
    /// The vCPUs as their cores refer to them; [`init`] writes them.
    vcpu_refs: [Option<VcpuRef>; MAX_CORES],
    /// The context of each vCPU while another vCPU has the core that they share.
    contexts: [CoreLocal<GuestContext>; MAX_CORES],
    /// The debug registers of each vCPU.
    debug: [CoreLocal<Debug>; MAX_CORES],
    /// The last page, which is mapped into the VM.
    stolen_time: StolenTime,
}

impl Kept {
    const fn new() -> Self {
        Self {
            vm: Vm::new(),
            vcpu_refs: [None; MAX_CORES],
            contexts: [const { CoreLocal(UnsafeCell::new(GuestContext::reset(0, 0))) }; MAX_CORES],
            debug: [const { CoreLocal(UnsafeCell::new(Debug::RESET)) }; MAX_CORES],
            stolen_time: StolenTime::new(),
        }
    }
}

impl Vm {
    const fn new() -> Self {
        Self {
            view: MaybeUninit::uninit(),
            count: AtomicU8::new(1),
            root: AtomicU64::new(0),
            gic: Lock::new(Gic::new(1, 4)),
            sgis: SgiBoard::new(),
            uart: Lock::new(Pl011::new()),
            socket: virtio::socket::new_device(),
            net: virtio::network::new_device(),
            notify: virtio::notify::NotifyRegisters::new(),
            budget: budget::VmBudget::new(),
            power: Lock::new(None),
            vcpus: [const {
                Vcpu {
                    core: AtomicU8::new(0),
                    counts: VcpuCounts::new(),
                    parked: AtomicBool::new(true),
                    start: Lock::new(Start { entry: 0, x0: 0, boot: 0, asked: false }),
                    folds_asked: AtomicU32::new(0),
                    folds_done: AtomicU32::new(0),
                }
            }; MAX_CORES],
            ending: Lock::new(None),
            began: AtomicU64::new(0),
            restarts: AtomicU32::new(0),
            halted: AtomicBool::new(false),
            denials: [const { AtomicU64::new(0) }; DENIALS],
            faults: [const { AtomicU32::new(0) }; FAULT_KINDS],
            resets: AtomicU32::new(0),
            denied: AtomicU32::new(0),
        }
    }

    /// Returns the VM's part of the packed system.
    #[must_use]
    pub fn view(&self) -> &VmView<'static> {
        // SAFETY: `init` has written it, and only `init` made references to a `Vm`.
        unsafe { self.view.assume_init_ref() }
    }

    /// Returns the index of the VM in the system.
    #[must_use]
    pub fn index(&self) -> usize {
        self.view().index
    }

    /// Returns the index of the VM as an identifier.
    #[must_use]
    pub fn id(&self) -> VmId {
        VmId(self.index() as u8)
    }

    /// Returns the physical address of the VM's stage 2 tables.
    #[must_use]
    pub fn root(&self) -> Pa {
        Pa(self.root.load(Ordering::Relaxed))
    }

    /// Returns the core of each vCPU.
    #[must_use]
    pub fn cores(&self) -> &'static [u8] {
        self.view().cores()
    }

    /// Returns the core of vCPU `vcpu`, a number below the number of vCPUs.
    #[inline(always)]
    #[must_use]
    pub fn core_of(&self, vcpu: usize) -> CoreId {
        CoreId(self.vcpu(vcpu).core.load(Ordering::Relaxed))
    }

    /// Returns the number of vCPUs.
    #[inline(always)]
    #[must_use]
    pub fn vcpu_count(&self) -> usize {
        self.count.load(Ordering::Relaxed).into()
    }

    /// Returns the state of vCPU `vcpu` that all cores can access.
    pub fn vcpu(&self, vcpu: usize) -> &Vcpu {
        &self.vcpus[vcpu % MAX_CORES]
    }

    /// Returns the context of vCPU `vcpu`, while the vCPU is off the core that it shares.
    ///
    /// # Safety
    ///
    /// Called on that core, which has no other reference to the context.
    #[expect(
        clippy::mut_from_ref,
        reason = "the shared part of a VM is in one static; the contract restricts its users"
    )]
    pub unsafe fn context(&self, vcpu: usize) -> &mut GuestContext {
        // SAFETY: the contract.
        unsafe { &mut *self.kept().contexts[vcpu % MAX_CORES].0.get() }
    }

    /// Returns the page by which the VM's vCPUs learn how much time other vCPUs took from them.
    pub fn stolen_time(&self) -> &'static StolenTime {
        &self.kept().stolen_time
    }

    /// Returns the state that EL2 keeps for the VM.
    fn kept(&self) -> &'static Kept {
        // SAFETY: a `Vm` is part of the value that `init` wrote at this index.
        unsafe { VMS[self.index() % MAX_VMS].written() }
    }

    /// Returns how many boots ended and were followed by another.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed).into()
    }

    /// Returns the counters of vCPU `vcpu`'s exits.
    #[must_use]
    pub fn counts(&'static self, vcpu: usize) -> &'static VcpuCounts {
        &self.vcpu(vcpu).counts
    }

    /// Returns an event of this VM for the host.
    pub fn event(&self, what: What, vcpu: usize) -> WireEvent {
        WireEvent {
            what: what as u16,
            vm: self.index() as u8,
            vcpu: vcpu as u8,
            ..WireEvent::default()
        }
    }

    /// Returns whether the VM is the broker, which moves the packets of all flows.
    pub fn is_broker(&self) -> bool {
        Features::BROKER.is_built() && system::get().header.broker as usize == self.index()
    }

    /// Returns whether all of the VM's vCPUs are off.
    pub fn is_parked(&self) -> bool {
        // Acquire: see `ending::parked`.
        (0..self.vcpu_count()).all(|vcpu| self.vcpu(vcpu).parked.load(Ordering::Acquire))
    }

    /// Counts a request or an access of the guest that was denied.
    pub fn count_denial(&self, denial: Denial) {
        self.denials[denial as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a denied request or access of the guest, and reports the first one of its kind in
    /// each boot.
    pub fn deny(&self, vcpu: usize, denial: Denial, syndrome: u64) {
        self.deny_at(vcpu, denial, syndrome, sysreg::elr_el2::read());
    }

    /// Does what [`Self::deny`] does, for an action of the guest at address `pc`; 0 if that is not
    /// known.
    pub fn deny_at(&self, vcpu: usize, denial: Denial, syndrome: u64, pc: u64) {
        self.count_denial(denial);
        let bit = 1 << denial as u32;
        if self.denied.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            console::event(WireEvent {
                detail: denial as u32,
                syndrome,
                pc,
                ..self.event(What::Denied, vcpu)
            });
        }
    }

    /// Counts the end of a boot; `detail` is the fault kind if the reason is a fault.
    fn count_ending(&self, ending: Ending, detail: u32) {
        let counter = match ending {
            Ending::Fault => self.faults.get(detail as usize),
            Ending::Reset => Some(&self.resets),
            Ending::Off => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Bytes of [`Kept`], which are the last bytes of the memory that is reserved for a VM in its page
/// classes.
pub const KEPT: u64 = size_of::<Kept>() as u64;
const _: () = assert!(KEPT <= VM_LEN, "weir build reserves VM_LEN");

/// Returns the physical address of the page with the stolen time of the VM with index `index`.
/// Called on the boot core, before it starts another core.
#[must_use]
pub fn stolen_time_page(index: usize) -> u64 {
    let kept = VMS[index % MAX_VMS].0.get().cast::<Kept>();
    // SAFETY: the pointer is to a whole `Kept`; nothing is read.
    memory::physical(unsafe { &raw const (*kept).stolen_time } as u64).0
}

/// Memory for the state that EL2 keeps for a VM.
struct Room(UnsafeCell<MaybeUninit<Kept>>);

// SAFETY: a `Kept` can be shared, and `init` writes it before another core has a reference to it.
unsafe impl Sync for Room {}

impl Room {
    /// # Safety
    ///
    /// [`init`] has set up the VM of this index.
    unsafe fn written(&self) -> &Kept {
        // SAFETY: by the contract; the value as a whole is not written a second time.
        unsafe { (*self.0.get()).assume_init_ref() }
    }
}

/// Lies in memory that nothing clears and that is not part of the image file: [`init`] writes the
/// state of each VM that the system has.
// SAFETY: any bytes form a valid `MaybeUninit`.
#[cfg_attr(target_os = "none", unsafe(link_section = ".noinit"))]
static VMS: [Room; MAX_VMS] = [const { Room(UnsafeCell::new(MaybeUninit::uninit())) }; MAX_VMS];
/// The initial state of a VM that has not booted.
static FRESH: Kept = Kept::new();
/// Number of VMs in the system.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Number of VMs that have not stopped for good. The broker is not counted, because it only serves
/// other VMs.
pub static ALIVE: AtomicU32 = AtomicU32::new(0);
static IDS: SetOnce<IdRegisters> = SetOnce::new();

/// Returns the VMs of the system.
pub fn all() -> impl Iterator<Item = &'static Vm> {
    // SAFETY: `init` has set up that many VMs, in the order of their indices.
    let written = |room: &'static Room| unsafe { &room.written().vm };
    VMS.iter().take(COUNT.load(Ordering::Relaxed) as usize).map(written)
}

/// Returns the VM with this index, from 0 on.
pub fn at(place: usize) -> Option<&'static Vm> {
    let room = VMS.get(place).filter(|_| place < COUNT.load(Ordering::Relaxed) as usize)?;
    // SAFETY: `init` has set up that many VMs, in the order of their indices.
    Some(unsafe { &room.written().vm })
}

/// Returns the ID registers that guests see.
pub fn ids() -> &'static IdRegisters {
    IDS.get().unwrap_or_else(|| halt::unset())
}

/// Reads the ID registers that guests see. Called on the boot core, which has no guest yet.
pub fn init_ids() {
    IDS.set(IdRegisters::from_hardware(gic::VERSION, |register| {
        sysreg::id_register(register.crm(), register.op2())
    }));
}

/// Sets up the next VM, in the order of the system file.
///
/// # Safety
///
/// Called on the boot core, before it starts another core, once for each VM.
pub unsafe fn init(view: VmView<'static>, root: u64) {
    let Some(place) = VMS.get(view.index) else { return };
    let kept = place.0.get().cast::<Kept>();
    // SAFETY: by the contract nothing refers to this memory, which has the size of a `Kept`. The
    // value of `FRESH` may be copied, because nothing refers to it. The fields behind `vm` are not
    // written again.
    let (vm, vcpu_refs) = unsafe {
        ptr::copy_nonoverlapping(&raw const FRESH, kept, 1);
        (&raw mut (*kept).vm.view).write(MaybeUninit::new(view));
        (&(*kept).vm, &mut (*kept).vcpu_refs)
    };
    for ((place, vcpu), &core) in vcpu_refs.iter_mut().zip(0..).zip(view.cores()) {
        *place = Some(VcpuRef {
            vm,
            vcpu,
            counts: vm.counts(vcpu),
            ring: trace::ring(CoreId(core)),
            origin: Origin::new(view.index as u8, vcpu as u8),
            all: VcpuMask::first(view.cores().len()),
        });
    }
    for (vcpu, &core) in vm.vcpus.iter().zip(view.cores()) {
        vcpu.core.store(core, Ordering::Relaxed);
    }
    vm.count.store(view.vm.vcpus, Ordering::Relaxed);
    furnish(vm, &view);
    console::channel(view.index).connect(view.vm.cores[0]);
    for irq in view.irqs {
        if let Some(owner) = OWNERS.get(irq.intid as usize) {
            owner.store(view.index as u8, Ordering::Relaxed);
        }
    }
    vm.root.store(root, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    ALIVE.fetch_add(u32::from(!vm.is_broker()), Ordering::Relaxed);
}

/// Sets up the virtual GIC of a VM and the addresses of its notify registers. Called on the boot
/// core. Not inlined into its caller, so that its stack is free again when guests run.
#[inline(never)]
fn furnish(vm: &'static Vm, view: &VmView<'static>) {
    vm.notify.set(view);
    let mut gic = vm.gic.lock();
    gic.resize(view.cores().len(), gic::list_registers());
    gic.limit();
    for timer in [gic::PPI_VIRTUAL_TIMER, gic::PPI_PHYSICAL_TIMER] {
        gic.link(timer, timer);
    }
    for irq in view.irqs {
        let intid = IntId(irq.intid);
        if irq.active == 0 {
            gic.link(intid, intid);
        } else {
            gic.relay(intid, intid);
        }
    }
    // A VM without one of these devices has 0 here, which is the INTID of an SGI.
    let network = view.net().map_or(0, |net| net.intid);
    for intid in [view.vm.uart_intid, view.vm.vsock_intid, network] {
        gic.implement(IntId(intid));
    }
    if view.vm.pmu != 0 {
        gic.implement(pmu::INTID);
    }
}

/// Returns the vCPUs that belong to core `core`: at most one, unless the core has a schedule.
pub fn vcpus_of_core(core: CoreId) -> impl Iterator<Item = &'static VcpuRef> {
    all().filter_map(move |vm| vcpu_on(vm, core))
}

/// Returns the vCPU of VM `vm` that belongs to core `core`.
#[inline(never)]
#[must_use]
pub fn vcpu_on(vm: &'static Vm, core: CoreId) -> Option<&'static VcpuRef> {
    let vcpu = vm.cores().iter().position(|&its| its == core.0)?;
    vm.kept().vcpu_refs.get(vcpu)?.as_ref()
}

/// The VM that owns each shared interrupt, as its index in the system.
static OWNERS: [AtomicU8; INTID_LIMIT as usize] =
    [const { AtomicU8::new(u8::MAX) }; INTID_LIMIT as usize];

/// Returns the VM that owns physical interrupt `intid`.
#[must_use]
pub fn owner(intid: IntId) -> Option<&'static Vm> {
    let owner = OWNERS.get(intid.0 as usize)?.load(Ordering::Relaxed);
    at(owner.into())
}
