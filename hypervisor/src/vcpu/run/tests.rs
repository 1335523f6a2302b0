//! Tests of the run loop on cores of a machine that records. Each test has its own cores and VMs.

use super::*;
use crate::{
    arch::{
        machine::{Asleep, Entered, crc32, on_write, recorded, set, set_next, value, wake_by},
        pmu::pmu_intid,
    },
    mail,
    vcpu::{cpu, cpu::Heartbeat, devices, fault::fault, irq::handle_irq},
    vm::{self, Ending, Vm},
};
use core::sync::atomic::Ordering;
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Once,
};
use weir_abi::{
    Features, NO_BROKER, NO_ENGINE, OnFault, PackedHeader, PackedSchedule, PackedSystem,
    PackedTables, PackedVm, RAM, Region, Regulation, Slot, regulation, schedule::ROUND_ROBIN,
};
use weir_units::CoreId;
use weir_vdev::gic::GicAccess;
use zerocopy::{FromZeros, IntoBytes};

const ENTRY: u64 = 0x4000_0000;
const NO_INTERRUPT: u64 = 1023;

/// The names of the interrupt controller's registers in recordings.
struct Names {
    acknowledge: &'static str,
    end: &'static str,
    mask: &'static str,
    send: &'static str,
    list_registers: &'static str,
    control: &'static str,
    empty: &'static str,
    first: &'static str,
}

const GIC: Names = if cfg!(feature = "gicv2") {
    Names {
        acknowledge: "gicc+0xc",
        end: "gicc+0x10",
        mask: "gicc+0x4",
        send: "gicd+0xf00",
        list_registers: "gich+0x4",
        control: "gich+0x8",
        empty: "gich+0x30",
        first: "gich+0x100",
    }
} else {
    Names {
        acknowledge: "iar1",
        end: "eoir1",
        mask: "pmr",
        send: "sgi1r",
        list_registers: "ich_vtr",
        control: "ich_vmcr",
        empty: "ich_elrsr",
        first: "ich_lr0",
    }
};

/// The interrupt by which EL2 notifies a core of messages.
const MESSAGE: u64 = 0;
const TIMER: u64 = 27;
/// EL2's own timer.
const OWN_TIMER: u64 = 26;
const SLICE_NS: u64 = 100_000;
const VM_BYTES: u64 = 0x1_0000;

/// The VMs: the name, the cores, and the reaction to a fault.
const VMS: [(&str, &[u8], OnFault); 7] = [
    ("restarts", &[0], OnFault::Restart),
    ("left", &[1], OnFault::Halt),
    ("right", &[1], OnFault::Halt),
    ("waits", &[2, 3], OnFault::Halt),
    ("runs", &[4, 5], OnFault::Halt),
    ("bounded", &[6], OnFault::Halt),
    // This VM keeps running, so that the end of another VM never ends the system.
    ("idle", &[7], OnFault::Halt),
];

/// The memory budget of the VM `bounded`, in reads per period.
const READS: u64 = 1000;
const PERIOD_NS: u64 = 1_000_000;

fn packed_vm(index: usize) -> PackedVm {
    let (name, cores, on_fault) = VMS[index];
    let mut vm = PackedVm {
        entry: ENTRY,
        device_tree: ENTRY + 0x8000,
        distributor: 0x0800_0000,
        gic_cpu: 0x080a_0000,
        uart: 0x0900_0000,
        uart_intid: 33,
        first_region: index as u32,
        regions: 1,
        on_fault: on_fault as u8,
        vcpus: cores.len() as u8,
        classes: [1, 0, 0, 0],
        ..PackedVm::new_zeroed()
    };
    if name == "bounded" {
        vm.regulation = Regulation {
            period_ns: PERIOD_NS,
            reads: READS,
            writes: u64::MAX,
            poll_ns: 1000,
            access_ns: 1,
            events: [0x17, 0],
            weights: [1; 8],
            critical: regulation::NO_VM,
            setter: regulation::NO_VM,
            ..Regulation::default()
        };
    }
    vm.name[..name.len()].copy_from_slice(name.as_bytes());
    vm.cores[..cores.len()].copy_from_slice(cores);
    vm
}

/// Sets up the system and its VMs, once for all tests.
fn boot() {
    static BOOTED: Once = Once::new();
    BOOTED.call_once(|| {
        let pa = |vm: usize| 0x5000_0000 + vm as u64 * 0x10_0000;
        let region = |vm| Region { ipa: ENTRY, pa: pa(vm), len: VM_BYTES, kind: RAM };
        let slot = |vm| Slot { vm, reserved: 0, length_ns: SLICE_NS, at_ns: 0 };
        let tables = PackedTables {
            vms: (0..VMS.len()).map(packed_vm).collect(),
            regions: (0..VMS.len()).map(region).collect(),
            schedules: vec![PackedSchedule {
                core: 1,
                kind: ROUND_ROBIN,
                frame_ns: 0,
                first_slot: 0,
                slots: 2,
            }],
            slots: vec![slot(1), slot(2)],
            ..PackedTables::default()
        };
        let packed = tables.pack(PackedHeader {
            cores: 8,
            console_core: 7,
            broker: NO_BROKER,
            engine_from: NO_ENGINE,
            chunk: 4096,
            load_address: 0x4020_0000,
            image_len: 0x10_0000,
            memory_end: 0x8000_0000,
            classes: [1, 0, 0, 0],
            ..PackedHeader::new_zeroed()
        });
        let words = Vec::leak(vec![0u64; packed.len().div_ceil(8)]);
        words.as_mut_bytes()[..packed.len()].copy_from_slice(&packed);
        let packed = &words.as_bytes()[..packed.len()];
        let system =
            PackedSystem::parse_with(packed, cfg!(feature = "gicv2"), Features::BUILT, crc32);
        let system = system::set(system.unwrap_or_else(|damage| panic!("{}", damage.message())));
        timer::start();
        for view in (0..system.vms()).filter_map(|index| system.vm(index)) {
            // SAFETY: called once for each VM, and no core uses a VM yet.
            unsafe { vm::init(view, 0x4100_0000) };
        }
    });
}

/// The way in which a call of the run loop ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It returned: the guest continues with the registers that the vectors saved.
    Returned,
    /// It entered a guest, or continued with one.
    Entered,
    /// The core sleeps.
    Asleep,
}

/// A core whose state is in statics of the hypervisor; each test uses other core numbers.
struct FakeCore(&'static mut Core);

impl FakeCore {
    fn new(number: u8) -> Self {
        set("cntfrq_el0", 1_000_000_000);
        // Four list registers.
        set(GIC.list_registers, 3);
        boot();
        set(GIC.acknowledge, NO_INTERRUPT);
        wake_by(&[]);
        // SAFETY: each test uses its own core numbers.
        let core = unsafe { cpu::claim(CoreId(number)) };
        core.connect();
        Self(core)
    }

    fn call(&mut self, body: impl FnOnce(&mut Core)) -> End {
        match catch_unwind(AssertUnwindSafe(|| body(self.0))) {
            Ok(()) => End::Returned,
            Err(payload) if payload.is::<Entered>() => End::Entered,
            Err(payload) if payload.is::<Asleep>() => End::Asleep,
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Runs the loop as at the core's start.
    fn run(&mut self) -> End {
        self.call(|core| run(core))
    }

    /// Carries out `exit` as the vectors do after the handler of an exception.
    fn act(&mut self, exit: Exit) -> End {
        self.call(|core| handle_action(core, exit))
    }

    /// Takes interrupts as the vectors do while a guest runs.
    fn interrupt(&mut self, intids: &[u64]) -> End {
        set_next(GIC.acknowledge, intids);
        self.call(|core| {
            let exit = handle_irq(core);
            if exit != Exit::RESUME {
                handle_interrupt(core, exit);
            }
        })
    }

    /// Returns the state of the member at `place` of the core's schedule.
    fn state(&mut self, place: u8) -> VcpuState {
        let schedule = self.0.schedule.as_deref_mut().expect("it has vCPUs");
        schedule.member(place).expect("it has this one").state()
    }

    fn current(&self) -> Option<&'static str> {
        Some(VMS[self.0.current?.vm.index()].0)
    }
}

fn vm_named(name: &str) -> &'static Vm {
    let place = VMS.iter().position(|(its, ..)| *its == name).expect("it is in the system");
    vm::at(place).expect("it was taken in")
}

/// Enables the virtual timer's interrupt as the guest of the current vCPU of `core` does.
fn enable_timer(core: &FakeCore) {
    let vcpu_ref = core.0.current.expect("a guest runs");
    let own = Some(vcpu_ref.vcpu);
    // GICD_CTLR, and IGROUPR0 and ISENABLER0 of the vCPU's redistributor, if it has one.
    let (own, base) = if cfg!(feature = "gicv2") { (None, 0) } else { (own, 0x1_0000) };
    for (redistributor, offset, value) in
        [(None, 0, 3), (own, base + 0x80, 0xffff_ffff), (own, base + 0x100, 1 << TIMER)]
    {
        let to = GicAccess { vcpu: vcpu_ref.vcpu, redistributor, offset, size: 4 };
        devices::write_gic(vcpu_ref, core.0.id, &to, value);
    }
    // The CPU interface signals all priorities of both groups.
    set(GIC.control, 0xff00_0003);
}

/// Makes the virtual timer's interrupt arrive; it is put into the first list register.
fn timer_comes() {
    set_next(GIC.acknowledge, &[TIMER]);
    set(GIC.empty, 0xf);
    on_write(GIC.first, |_| set(GIC.empty, 0xe));
}

/// Returns the value that EL2 wrote last to `register`.
fn last_write(lines: &[String], register: &str) -> Option<String> {
    let prefix = format!("{register} = ");
    let written = |line: &String| line.strip_prefix(&prefix).map(str::to_owned);
    lines.iter().rev().find_map(written)
}

const FAULT: FaultKind = FaultKind::SError;

#[test]
fn a_vm_starts_waits_fails_and_starts_again() {
    let mut core = FakeCore::new(0);
    let vm = vm_named("restarts");
    assert_eq!(core.state(0), VcpuState::Loading);
    assert_eq!(core.run(), End::Entered);
    assert_eq!((core.state(0), core.current()), (VcpuState::Running, Some("restarts")));
    let lines = recorded();
    assert_eq!(last_write(&lines, "elr_el2"), Some(format!("{ENTRY:#x}")));
    assert!(lines.iter().any(|line| line.starts_with("dc zva")), "its RAM is cleared");

    enable_timer(&core);
    // The vCPU waits with its state on the core. A message that does not concern its guest does not
    // end the wait.
    wake_by(&[|| set_next(GIC.acknowledge, &[MESSAGE])]);
    assert_eq!(core.act(Exit::WAIT), End::Asleep);
    assert_eq!(core.state(0), VcpuState::Waiting { due: NEVER });
    assert_eq!(core.current(), Some("restarts"));
    wake_by(&[timer_comes]);
    assert_eq!(core.run(), End::Entered);
    assert_eq!(core.state(0), VcpuState::Running);

    let vcpu_ref = core.0.current.expect("it runs");
    assert_eq!(core.act(fault(vcpu_ref, FAULT, 0)), End::Entered, "again");
    assert_eq!((vm.restarts(), core.state(0)), (1, VcpuState::Running));
    let lines = recorded();
    assert!(lines.iter().any(|line| line.starts_with("dc zva")), "its RAM is cleared again");
    assert_eq!(last_write(&lines, "elr_el2"), Some(format!("{ENTRY:#x}")));
}

/// Lets time pass.
fn pass(ns: u64) {
    set("cntpct_el0", value("cntpct_el0") + ns);
}

#[test]
fn vcpus_of_one_core_take_turns() {
    let mut core = FakeCore::new(1);
    assert_eq!(core.run(), End::Entered);
    assert_eq!(core.current(), Some("left"));
    assert_eq!((core.state(0), core.state(1)), (VcpuState::Running, VcpuState::Loading));

    // The first vCPU waits for its timer, which is due much later: the second one is loaded and
    // runs.
    enable_timer(&core);
    set("cntv_cval_el0", value("cntpct_el0") + 10 * SLICE_NS);
    set("cntv_ctl_el0", 1);
    assert_eq!(core.act(Exit::WAIT), End::Entered);
    assert_eq!(core.current(), Some("right"));
    let VcpuState::Waiting { due } = core.state(0) else { panic!("{:?}", core.state(0)) };
    assert!(due > Nanos(9 * SLICE_NS) && due < NEVER);
    assert_eq!(value("cntv_ctl_el0"), 0, "the timer of the one is not the other's");

    // The slice of the running vCPU ends, and no other vCPU is ready.
    pass(2 * SLICE_NS);
    assert_eq!(core.interrupt(&[OWN_TIMER]), End::Returned);
    assert_eq!((core.current(), core.state(1)), (Some("right"), VcpuState::Running));

    // The timer of the waiting vCPU is due.
    pass(10 * SLICE_NS);
    assert_eq!(core.interrupt(&[OWN_TIMER]), End::Entered);
    assert_eq!(core.current(), Some("left"));
    assert_eq!((core.state(0), core.state(1)), (VcpuState::Running, VcpuState::Ready));
    assert_eq!(value("cntv_ctl_el0"), 1, "it has its timer back");

    // One of the VMs stops for good, and the other one gets the core.
    let vcpu_ref = core.0.current.expect("it runs");
    assert_eq!(core.act(fault(vcpu_ref, FAULT, 0)), End::Entered);
    assert_eq!(core.current(), Some("right"));
    set("cntv_ctl_el0", 0);
    assert_eq!(core.act(Exit::WAIT), End::Asleep, "the other one ends meanwhile");
    assert_eq!((core.state(0), core.state(1)), (VcpuState::Off, VcpuState::Waiting { due: NEVER }));
    assert!(vm_named("left").halted.load(Ordering::Relaxed));
    assert_eq!(core.current(), None, "the state of a vCPU that waits leaves a shared core");
}

/// Turns on the second vCPU of `vm`, from the first vCPU's core, and lets it run.
fn turn_on_second(vm: &'static Vm, second: &mut FakeCore) {
    assert_eq!((second.run(), second.state(0)), (End::Asleep, VcpuState::Off));
    let (entry, x0) = (ENTRY + 0x100, 77);
    ending::turn_on(vm, 1, entry, x0);
    assert_eq!((second.run(), second.state(0)), (End::Entered, VcpuState::Running));
    assert_eq!(last_write(&recorded(), "elr_el2"), Some(format!("{entry:#x}")));
    // SAFETY: a guest was entered on this thread's machine.
    assert_eq!(unsafe { guest_frame(second.0.id) }.x[0], x0);
}

/// Turns the VM off or resets it, as its first vCPU does.
fn turn_off(vm: &'static Vm, first: &mut FakeCore, ending: Ending) {
    let vcpu_ref = first.0.current.expect("it runs");
    ending::end(vcpu_ref, ending, vm.event(What::VmOff, 0));
    assert_eq!(first.act(Exit::OFF), End::Asleep);
    assert_eq!(first.state(0), VcpuState::Off, "the other one is on");
    assert!(!vm.halted.load(Ordering::Relaxed));
}

/// Lets the core of the first vCPU continue while the second vCPU is off; the VM has then stopped.
fn ends(vm: &'static Vm, first: &mut FakeCore) {
    assert_eq!((first.run(), first.state(0)), (End::Asleep, VcpuState::Off));
    assert!(vm.halted.load(Ordering::Relaxed), "the last one is off, and the leader was told");
}

#[test]
fn a_vm_ends_while_a_vcpu_is_powered_down() {
    let (mut first, vm) = (FakeCore::new(2), vm_named("waits"));
    assert_eq!(first.run(), End::Entered);
    let mut second = FakeCore::new(3);
    turn_on_second(vm, &mut second);

    // The vCPU continues at the address of the call; the rest of its state is lost.
    enable_timer(&second);
    let resumed = ENTRY + 0x200;
    set("elr_el2", resumed);
    set("sctlr_el1", 0x30d0_1805);
    assert_eq!(second.act(Exit::POWER_DOWN), End::Asleep);
    assert_eq!(second.state(0), VcpuState::Waiting { due: NEVER });
    assert_eq!(second.current(), None);
    wake_by(&[timer_comes]);
    assert_eq!(second.run(), End::Asleep, "the timer of a vCPU off its core does not interrupt");
    recorded();
    vm.sgis.clear();
    turn_off(vm, &mut first, Ending::Off);
    assert_eq!((second.run(), second.state(0)), (End::Asleep, VcpuState::Off));
    ends(vm, &mut first);
}

/// The interrupt of a message is taken while the vCPU goes off because of an earlier message: no
/// message is left when the core sleeps. In the next boot the vCPU runs when the VM ends.
#[test]
fn a_vm_ends_while_a_vcpu_waits_or_runs() {
    let (mut first, vm) = (FakeCore::new(4), vm_named("runs"));
    assert_eq!(first.run(), End::Entered);
    let mut second = FakeCore::new(5);
    turn_on_second(vm, &mut second);
    assert_eq!(second.act(Exit::WAIT), End::Asleep);
    assert_eq!(second.current(), Some("runs"), "its state stays on the core");
    turn_off(vm, &mut first, Ending::Reset);
    wake_by(&[|| {
        set_next(GIC.acknowledge, &[MESSAGE, NO_INTERRUPT, MESSAGE]);
        on_write(GIC.end, |_| mail::send(CoreId(5), mail::ROOM));
    }]);
    assert_eq!((second.run(), second.state(0)), (End::Asleep, VcpuState::Off));
    assert!(mail::is_quiet(CoreId(5)), "all messages are served");
    on_write(GIC.end, |_| {});
    wake_by(&[]);
    assert_eq!((first.run(), first.state(0)), (End::Entered, VcpuState::Running));
    assert_eq!(vm.restarts(), 1);

    turn_on_second(vm, &mut second);
    turn_off(vm, &mut first, Ending::Off);
    assert_eq!((second.interrupt(&[MESSAGE]), second.state(0)), (End::Asleep, VcpuState::Off));
    ends(vm, &mut first);
}

#[test]
fn a_report_begins_while_the_guest_waits() {
    let mut core = FakeCore::new(7);
    console::init(CoreId(7));
    assert_eq!(core.run(), End::Entered);
    let next = timer::now_ns() + PERIOD_NS;
    core.0.heartbeat = Heartbeat { period_ns: PERIOD_NS, next };
    recorded();
    wake_by(&[|| {
        pass(PERIOD_NS);
        set_next(GIC.acknowledge, &[OWN_TIMER]);
    }]);
    assert_eq!(core.act(Exit::WAIT), End::Asleep);
    assert!(core.0.heartbeat.next > next);
    assert!(last_write(&recorded(), GIC.send).is_some(), "it sends itself to the console");
}

#[test]
fn a_spent_budget_holds_the_core_until_a_period() {
    // Two event counters, which count refills of the L2 cache.
    set("pmcr_el0", 2 << 11);
    set("id_5_0", 1 << 8);
    set("pmceid0_el0", 1 << 0x17);
    let mut core = FakeCore::new(6);
    core.0.schedule.as_deref_mut().expect("it has a vCPU").start_budgets(CoreId(6));
    pmu::start(core.0);
    assert_eq!((core.run(), core.state(0)), (End::Entered, VcpuState::Running));

    // The whole budget is used, and the PMU signals an overflow.
    let overflow = pmu_intid(CoreId(6)).0.into();
    let spend = || set("pmevcntr0_el0", 0);
    spend();
    assert_eq!((core.interrupt(&[overflow]), core.state(0)), (End::Asleep, VcpuState::Throttled));
    let lines = recorded();
    let mask = format!("{} = 0xb0", GIC.mask);
    let held = lines.iter().position(|line| *line == mask).expect("guests are held back");
    assert!(lines[held..].iter().any(|line| line == "wfi"));

    // Another interrupt does not end the throttling.
    wake_by(&[|| set_next(GIC.acknowledge, &[MESSAGE])]);
    assert_eq!((core.run(), core.state(0)), (End::Asleep, VcpuState::Throttled));

    // The next period ends it: at once if its timer is the first interrupt that comes.
    pass(PERIOD_NS);
    wake_by(&[|| set_next(GIC.acknowledge, &[OWN_TIMER])]);
    assert_eq!((core.run(), core.state(0)), (End::Entered, VcpuState::Running));
    assert_eq!(last_write(&recorded(), GIC.mask), Some("0xff".to_owned()));
    spend();
    wake_by(&[|| {
        pass(PERIOD_NS);
        set_next(GIC.acknowledge, &[OWN_TIMER]);
    }]);
    assert_eq!((core.interrupt(&[overflow]), core.state(0)), (End::Returned, VcpuState::Running));

    // The budget is also spent when a vCPU that waited becomes ready: the guests' interrupts are
    // held back again.
    enable_timer(&core);
    recorded();
    wake_by(&[|| {
        timer_comes();
        set("pmevcntr0_el0", 0);
    }]);
    assert_eq!((core.act(Exit::WAIT), core.state(0)), (End::Asleep, VcpuState::Throttled));
    assert_eq!(last_write(&recorded(), GIC.mask), Some("0xb0".to_owned()));
    pass(PERIOD_NS);
    wake_by(&[|| set_next(GIC.acknowledge, &[OWN_TIMER])]);
    assert_eq!((core.run(), core.state(0)), (End::Entered, VcpuState::Running));

    // Stopping the VM takes the core from a throttled vCPU at once, too.
    spend();
    wake_by(&[|| {
        ending::stop(vm_named("bounded"), FAULT);
        set_next(GIC.acknowledge, &[MESSAGE]);
    }]);
    assert_eq!((core.interrupt(&[overflow]), core.state(0)), (End::Asleep, VcpuState::Off));
}
