//! The virtual machines: what cores share of each.

pub mod admission;
mod debug;
pub mod devices;
pub mod focus;
pub mod interrupts;
pub mod life;
pub mod ownership;
pub mod pci;
pub mod pmu;
pub mod share;
pub mod space;
pub mod traps;

use crate::{
    arch::{context::Context, lock::Lock, memory},
    console, cpu, trace,
    virtio::{self, Fair, Socket, net},
};
use core::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};
use interrupts::Version;
use spin::Once;
use weir_budget::Shared;
use weir_model::packed::{INTID_LIMIT, MAX_CORES, MAX_VMS, System, VM_LEN, VmView};
use weir_paging::table::PAGE;
use weir_trace::wire::{
    Counters, DENIALS, Denial, Denials, EXIT_CAUSES, Event, ExitCause, FAULT_KINDS, HYPERVISOR,
    Kind, Lives, VcpuState, VmState, What,
};
use weir_vdev::{
    debug::Debug,
    gic::{Gic, Mailboxes},
    id::IdRegisters,
    pl011::Pl011,
    psci::{Power, State},
    stolen::StolenTime,
};

/// What one vCPU's core counts; only that core writes.
pub struct Counts {
    exits: [AtomicU64; EXIT_CAUSES],
    injected: AtomicU64,
}

impl Counts {
    const fn new() -> Self {
        Self { exits: [const { AtomicU64::new(0) }; EXIT_CAUSES], injected: AtomicU64::new(0) }
    }

    /// Counts an exit.
    #[inline(always)]
    pub fn exit(&self, cause: ExitCause) {
        add(&self.exits[cause as usize]);
    }

    /// Counts that interrupts were put into list registers, but for those that are counted as exits of the kinds in [`Counts::all_injected`].
    #[inline(always)]
    pub fn injected(&self) {
        add(&self.injected);
    }

    /// How often interrupts were put into list registers: each timer's and device's that is an exit has one.
    fn all_injected(&self) -> u64 {
        let exits = |cause| self.exits[cause as usize].load(Ordering::Relaxed);
        let counted = exits(ExitCause::Timer).wrapping_add(exits(ExitCause::DeviceIrq));
        self.injected.load(Ordering::Relaxed).wrapping_add(counted)
    }
}

/// One more; for counters with one writer.
#[inline(always)]
fn add(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// What cores share of one vCPU.
pub struct Vcpu {
    /// Its core; set once, by [`init`].
    core: AtomicU8,
    counts: Counts,
    /// It left the guest, and its core waits.
    parked: AtomicBool,
    /// Where it comes on.
    start: Lock<Start>,
    /// Folds asked for and done: see [`interrupts::fold_others`].
    folds_asked: AtomicU32,
    folds_done: AtomicU32,
}

/// A place that one core alone uses.
struct Place<T>(UnsafeCell<T>);

// SAFETY: who reaches for the content is on that core, see `Vm::context`.
unsafe impl<T> Sync for Place<T> {}

/// Where a vCPU comes on, and in which of the VM's lives that was asked for.
#[derive(Clone, Copy)]
struct Start {
    entry: u64,
    x0: u64,
    life: u32,
    /// Asked for, and not yet carried out, on a core that it shares.
    asked: bool,
}

/// What a VM's life ended by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// SYSTEM_OFF, or the last vCPU went off.
    Off,
    /// SYSTEM_RESET.
    Reset,
    /// A fault.
    Fault,
}

/// A virtual machine. Where memory is divided, its pages lie in the VM's own cells: what EL2 does for a VM leaves its traces there.
#[repr(align(4096))]
pub struct Vm {
    view: Once<VmView<'static>>,
    /// Number of vCPUs; set once, by [`init`].
    count: AtomicU8,
    /// Physical address of its stage 2 tables.
    root: AtomicU64,
    /// The virtual GIC.
    pub gic: Lock<Gic<Version>>,
    /// SGIs on their way between its vCPUs.
    pub mail: Mailboxes<Version>,
    /// The virtual PL011.
    pub uart: Lock<Pl011>,
    /// The socket device, of a VM in a flow.
    pub socket: Fair<Socket>,
    /// The network device, where it has one.
    pub port: Lock<net::Port>,
    /// What became of its frames.
    pub frames: net::Counts,
    /// What its cores share of its memory budget.
    pub bandwidth: Shared,
    /// The budget that it was last set to, reads and writes.
    pub budget: [AtomicU64; 2],
    /// How often that was.
    pub budget_changes: AtomicU32,
    power: Lock<Option<Power>>,
    vcpus: [Vcpu; MAX_CORES],
    ending: Lock<Option<Ending>>,
    /// When its life began, in ns.
    began: AtomicU64,
    /// Lives that ended and were followed by another.
    restarts: AtomicU32,
    halted: AtomicBool,
    denials: [AtomicU64; DENIALS],
    /// Lives ended by force, by kind.
    faults: [AtomicU32; FAULT_KINDS],
    /// Lives ended by SYSTEM_RESET.
    resets: AtomicU32,
    /// Kinds of denials in this life.
    denied: AtomicU32,
}

/// All that is kept for a VM, in whole pages.
#[repr(C, align(4096))]
struct Kept {
    vm: Vm,
    /// Each vCPU's place on its core; set once.
    seats: [Once<cpu::Seat>; MAX_CORES],
    /// What each vCPU is while another has the core that they share.
    contexts: [Place<Context>; MAX_CORES],
    /// Each vCPU's debug registers.
    debug: [Place<Debug>; MAX_CORES],
    /// The last page, which the guest sees.
    stolen_time: StolenTime,
}

impl Kept {
    const fn new() -> Self {
        Self {
            vm: Vm::new(),
            seats: [const { Once::new() }; MAX_CORES],
            contexts: [const { Place(UnsafeCell::new(Context::reset(0, 0))) }; MAX_CORES],
            debug: [const { Place(UnsafeCell::new(Debug::RESET)) }; MAX_CORES],
            stolen_time: StolenTime::new(),
        }
    }
}

impl Vm {
    const fn new() -> Self {
        Self {
            view: Once::new(),
            count: AtomicU8::new(1),
            root: AtomicU64::new(0),
            gic: Lock::new(Gic::new(1, 4)),
            mail: Mailboxes::new(),
            uart: Lock::new(Pl011::new()),
            socket: Fair::new(Socket::new()),
            port: Lock::new(net::Port::new()),
            frames: net::Counts::new(),
            bandwidth: Shared::new(),
            budget: [const { AtomicU64::new(0) }; 2],
            budget_changes: AtomicU32::new(0),
            power: Lock::new(None),
            vcpus: [const {
                Vcpu {
                    core: AtomicU8::new(0),
                    counts: Counts::new(),
                    parked: AtomicBool::new(true),
                    start: Lock::new(Start { entry: 0, x0: 0, life: 0, asked: false }),
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

    /// Its part of the packed system.
    ///
    /// # Panics
    ///
    /// Never: [`init`] sets it before any core has a seat.
    #[must_use]
    pub fn view(&self) -> &VmView<'static> {
        self.view.get().expect("set by init")
    }

    /// Its place in the system.
    #[must_use]
    pub fn index(&self) -> usize {
        self.view().index
    }

    /// The core of each vCPU.
    #[must_use]
    pub fn cores(&self) -> &'static [u8] {
        self.view().cores()
    }

    /// The core of vCPU `vcpu`, a number below that of its vCPUs.
    #[inline(always)]
    #[must_use]
    pub fn core_of(&self, vcpu: usize) -> usize {
        self.vcpu(vcpu).core.load(Ordering::Relaxed).into()
    }

    /// How many vCPUs it has.
    #[inline(always)]
    #[must_use]
    pub fn vcpu_count(&self) -> usize {
        self.count.load(Ordering::Relaxed).into()
    }

    /// What is shared of vCPU `vcpu`.
    fn vcpu(&self, vcpu: usize) -> &Vcpu {
        &self.vcpus[vcpu % MAX_CORES]
    }

    /// The context of vCPU `vcpu`, while it is off the core that it shares.
    ///
    /// # Safety
    ///
    /// Called on that core, which has no other reference to it.
    #[expect(
        clippy::mut_from_ref,
        reason = "what is shared of a VM is in one static; the contract says who may"
    )]
    unsafe fn context(&self, vcpu: usize) -> &mut Context {
        // SAFETY: the contract.
        unsafe { &mut *VMS[self.index() % MAX_VMS].contexts[vcpu % MAX_CORES].0.get() }
    }

    /// What its vCPUs are told of the time that others took from them.
    fn stolen_time(&self) -> &'static StolenTime {
        &VMS[self.index() % MAX_VMS].stolen_time
    }

    /// How many lives ended and were followed by another.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed).into()
    }

    /// Where vCPU `vcpu`'s exits are counted.
    #[must_use]
    pub fn counts(&'static self, vcpu: usize) -> &'static Counts {
        &self.vcpu(vcpu).counts
    }

    /// An event of this VM's.
    fn event(&self, what: What, vcpu: usize) -> Event {
        Event { what: what as u16, vm: self.index() as u8, vcpu: vcpu as u8, ..Event::default() }
    }

    /// Whether it moves the packets of the others' flows.
    pub fn is_broker(&self) -> bool {
        crate::boot::system().header.broker as usize == self.index()
    }

    /// Whether none of its vCPUs runs.
    pub fn is_parked(&self) -> bool {
        // Acquire: see `life::park`.
        (0..self.vcpu_count()).all(|vcpu| self.vcpu(vcpu).parked.load(Ordering::Acquire))
    }

    /// Counts something that the guest was refused.
    pub fn count_denial(&self, denial: Denial) {
        self.denials[denial as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts something that the guest was refused, and tells of the first of its kind in each life.
    pub fn deny(&self, vcpu: usize, denial: Denial, syndrome: u64) {
        self.count_denial(denial);
        let bit = 1 << denial as u32;
        if self.denied.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            console::event(Event {
                detail: denial as u32,
                syndrome,
                pc: crate::arch::sysreg::elr_el2::read(),
                ..self.event(What::Denied, vcpu)
            });
        }
    }

    /// Counts the end of a life; `detail` is the kind of a fault.
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

    /// What it is doing.
    fn state(&self) -> VmState {
        match *self.ending.lock() {
            Some(Ending::Off) => VmState::Off,
            Some(Ending::Fault) if self.halted.load(Ordering::Relaxed) => VmState::Halted,
            _ if self.began.load(Ordering::Relaxed) == 0 => VmState::NotStarted,
            _ => VmState::Running,
        }
    }

    fn report(&self) {
        // Before what it is the time of: an event that is not in the counts is later.
        let time_ns = crate::arch::timer::now_ns();
        let vm = self.index();
        let mut faults = [0; FAULT_KINDS];
        for (to, from) in faults.iter_mut().zip(&self.faults) {
            *to = from.load(Ordering::Relaxed).into();
        }
        console::record(
            Kind::Lives,
            &Lives {
                time_ns,
                vm: vm as u8,
                state: self.state() as u8,
                reserved: [0; 2],
                restarts: self.restarts.load(Ordering::Relaxed),
                resets: self.resets.load(Ordering::Relaxed),
                lost: console::lost(vm),
                faults,
            },
        );
        for vcpu in 0..self.cores().len() {
            let shared = self.vcpu(vcpu);
            let on = self
                .power
                .lock()
                .as_ref()
                .is_some_and(|power| power.state(vcpu as u8) != State::Off);
            let state = match (self.halted.load(Ordering::Relaxed), on) {
                (true, _) => VcpuState::Halted,
                (false, true) => VcpuState::On,
                (false, false) => VcpuState::Off,
            };
            let mut exits = [0; EXIT_CAUSES];
            for (to, from) in exits.iter_mut().zip(&shared.counts.exits) {
                *to = from.load(Ordering::Relaxed);
            }
            console::record(
                Kind::Counters,
                &Counters {
                    time_ns,
                    vm: vm as u8,
                    vcpu: vcpu as u8,
                    state: state as u8,
                    reserved: 0,
                    restarts: self.restarts.load(Ordering::Relaxed),
                    exits,
                    injected: shared.counts.all_injected(),
                },
            );
        }
        let mut counts = [0; DENIALS];
        for (to, from) in counts.iter_mut().zip(&self.denials) {
            *to = from.load(Ordering::Relaxed);
        }
        console::record(Kind::Denials, &Denials { time_ns, vm: vm as u32, reserved: 0, counts });
    }
}

/// Bytes of [`Kept`], the last ones of what is kept for a VM in its cells.
pub const KEPT: u64 = size_of::<Kept>() as u64;
const _: () = assert!(KEPT <= VM_LEN, "weir build reserves VM_LEN");

/// The physical page to which the image's page at `va` moves if it is part of what is kept for a VM.
#[must_use]
pub fn kept_page(system: &System<'static>, va: u64) -> Option<u64> {
    let at = va.checked_sub((&raw const VMS) as u64)?;
    let view = system.vm((at / KEPT) as usize)?;
    let pages = system.pages(&view, view.vm.own);
    pages.nth_page((view.vm.own.len.checked_sub(KEPT)? + at % KEPT) / PAGE)
}

/// The physical page with what the VM at place `index` is told of its stolen time; on the boot core, before it starts another.
#[must_use]
pub fn stolen_time_page(index: usize) -> u64 {
    memory::physical(&raw const VMS[index % MAX_VMS].stolen_time as u64)
}

static VMS: [Kept; MAX_VMS] = [const { Kept::new() }; MAX_VMS];
/// VMs of the system.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// VMs that have not ended for good; the broker, which serves them, is not counted.
static ALIVE: AtomicU32 = AtomicU32::new(0);
static IDS: Once<IdRegisters> = Once::new();

/// The VMs of the system.
pub fn all() -> impl Iterator<Item = &'static Vm> {
    VMS.iter().map(|kept| &kept.vm).take(COUNT.load(Ordering::Relaxed) as usize)
}

/// The ID registers that guests see.
fn ids() -> &'static IdRegisters {
    IDS.call_once(|| {
        IdRegisters::from_hardware(interrupts::GIC_VERSION, |register| {
            crate::arch::sysreg::id_register(register.crm(), register.op2())
        })
    })
}

/// Takes the next VM in; on the boot core, in the order of the system file, before any core has a seat.
pub fn init(view: VmView<'static>, root: u64) {
    let Some(vm) = VMS.get(view.index).map(|kept| &kept.vm) else { return };
    for (vcpu, &core) in vm.vcpus.iter().zip(view.cores()) {
        vcpu.core.store(core, Ordering::Relaxed);
    }
    vm.count.store(view.vm.vcpus, Ordering::Relaxed);
    interrupts::init(vm, &view);
    for irq in view.irqs {
        if let Some(owner) = OWNERS.get(irq.intid as usize) {
            owner.store(view.index as u8, Ordering::Relaxed);
        }
    }
    vm.view.call_once(|| view);
    vm.root.store(root, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    ALIVE.fetch_add(u32::from(!vm.is_broker()), Ordering::Relaxed);
    // Here rather than at a guest's first read: the boot core is nobody's.
    let _ = ids();
}

/// The vCPUs that belong on core `core`: at most one, unless the core has a schedule.
pub fn seats(core: usize) -> impl Iterator<Item = &'static cpu::Seat> {
    all().filter_map(move |vm| seat_of(vm, core))
}

/// VM `vm`'s vCPU that belongs on core `core`.
#[must_use]
pub fn seat_of(vm: &'static Vm, core: usize) -> Option<&'static cpu::Seat> {
    let vcpu = vm.cores().iter().position(|&its| usize::from(its) == core)?;
    Some(VMS[vm.index() % MAX_VMS].seats[vcpu % MAX_CORES].call_once(|| cpu::Seat {
        vm,
        vcpu,
        counts: vm.counts(vcpu),
        ring: trace::ring(core),
        who: trace::Who::new(vm.index() as u8, vcpu as u8),
    }))
}

/// The VM that each shared interrupt belongs to, by its place in the system.
static OWNERS: [AtomicU8; INTID_LIMIT as usize] =
    [const { AtomicU8::new(u8::MAX) }; INTID_LIMIT as usize];

/// The VM that physical interrupt `intid` belongs to.
#[must_use]
pub fn owner(intid: u32) -> Option<&'static Vm> {
    let owner = OWNERS.get(intid as usize)?.load(Ordering::Relaxed);
    all().nth(owner.into())
}

/// Tells the core of VM `vm`'s first vCPU something.
pub fn tell_first_core(vm: usize, message: u32) {
    if let Some(vm) = all().nth(vm) {
        cpu::tell(vm.core_of(0), message);
    }
}

/// Sends the counters of every VM.
pub fn report() {
    for vm in all() {
        vm.report();
    }
    virtio::report();
    net::report();
}

/// An event of the whole system.
pub fn system_event(what: What) {
    console::event(Event { what: what as u16, vm: HYPERVISOR, ..Event::default() });
}
