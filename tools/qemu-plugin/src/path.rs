//! The paths through the hypervisor that guests can mark.
//!
//! A guest executes `HINT #(64 + N)` right before it provokes path N. Hints 64 to 127 are
//! unallocated and execute as NOP (Arm ARM DDI0487, C6.2 HINT), so a marked guest runs unchanged on
//! hardware and costs one instruction per mark. EL2 marks what becomes of memory budgets in the
//! same way. `weir-guest` emits the markers; the numbers here and there are one table.

/// The marker that ends the boot: the first instruction of the first guest.
pub const BOOT: u8 = 0;

/// The marker at the beginning and at the end of something that is to be counted apart.
pub const PHASE: u8 = 19;

/// EL2's marker where a memory budget's period begins; the path of the stretch in which it does.
pub const REPLENISH: u8 = 32;

/// EL2's marker where a budget is spent; the path from the overflow to the wait for the next
/// budget.
pub const OVERFLOW: u8 = 33;

/// EL2's marker where the budget was asked and the vCPU goes on; the path of such a stretch.
pub const POLL: u8 = 34;

/// The path from the wait of a suspended vCPU through the period's beginning to its next
/// instruction. No marker has this number.
pub const RELEASE: u8 = 35;

/// The path from the wait of a vCPU that is suspended or off to another wait, or out of it without
/// a new period. No marker has this number.
pub const HELD: u8 = 36;

/// EL2's marker where another vCPU gets a core that several share; the path of a stretch that
/// begins in the one's guest and ends in the other's, without a wait between.
pub const SWITCH: u8 = 37;

/// EL2's marker where a notification was passed on to the broker; the path of that notification.
pub const NOTIFY: u8 = 38;

/// EL2's markers where a step of the load of a VM's image begins: one that clears RAM, and one that
/// does not. What a core executes from the former to the latter is its clearing of RAM.
pub const CLEAR: u8 = 40;
/// See [`CLEAR`].
pub const COPY: u8 = 41;

/// The path of every stretch that no marker claims.
pub const OTHER: u8 = 63;

/// The paths from the overflow to the next instruction of the vCPU together: stop, wait, release.
/// No marker has this number.
pub const OVERFLOW_PERIOD: u8 = 39;

/// A guest's marker before a write that notifies a virtio device.
pub const VIRTIO_NOTIFY: u8 = 48;

/// Whether path `number` has to do with memory budgets.
#[must_use]
pub const fn is_budgets(number: u8) -> bool {
    matches!(number, REPLENISH..=HELD | OVERFLOW_PERIOD)
}

/// Whether the path is an event: all stretches from the marker to the guest's next marker, not the
/// first one alone. Such are an access that traps and the interrupt that it causes.
#[must_use]
pub const fn is_event(number: u8) -> bool {
    matches!(number, SGI_SELF | ISPENDR_DELIVERY)
}

const SGI_SELF: u8 = 30;
const ISPENDR_DELIVERY: u8 = 31;

/// Whether marker `number` is EL2's own, which a guest can't use.
#[must_use]
pub const fn is_hypervisors(number: u8) -> bool {
    matches!(number, 32..48)
}

const NAMES: [&str; 32] = [
    "boot",
    "timer_irq",
    "spi",
    "sgi_send",
    "sgi_receive",
    "hypercall",
    "psci_version",
    "cpu_on",
    "gicd_typer_read",
    "gicd_isenabler_read",
    "gicd_isenabler_write",
    "gicd_ipriorityr_write",
    "gicd_irouter_write",
    "gicd_ispendr_write",
    "gicr_isenabler0_write",
    "uart_write",
    "eoi",
    "wfi",
    "timer_program",
    "phase",
    "psci_version_smc",
    "cpu_on_smc",
    "gicr_typer_read",
    "gicd_isenabler_same",
    "gicd_isenabler_line",
    "gicd_ipriorityr_change",
    "gicr_ipriorityr_change",
    "gicr_isenabler0_read",
    "gicr_isenabler0_same",
    "gicr_isenabler0_timer",
    "sgi_self",
    "gicd_ispendr_delivery",
];

/// The name of path `number` in reports; a number without its own name becomes `path_N`.
///
/// ```
/// use weir_qemu_plugin::path;
/// assert_eq!(path::name(5), "hypercall");
/// assert_eq!(path::name(63), "other");
/// assert_eq!(path::name(32), "replenish");
/// assert_eq!(path::name(50), "path_50");
/// ```
#[must_use]
pub fn name(number: u8) -> String {
    match NAMES.get(usize::from(number)) {
        Some(name) => (*name).to_owned(),
        None => match number {
            REPLENISH => "replenish".to_owned(),
            OVERFLOW => "overflow".to_owned(),
            POLL => "poll".to_owned(),
            RELEASE => "release".to_owned(),
            HELD => "held".to_owned(),
            SWITCH => "vcpu_switch".to_owned(),
            OVERFLOW_PERIOD => "overflow_period".to_owned(),
            NOTIFY => "notify".to_owned(),
            VIRTIO_NOTIFY => "virtio_notify".to_owned(),
            OTHER => "other".to_owned(),
            _ => format!("path_{number}"),
        },
    }
}
