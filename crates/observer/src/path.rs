//! The paths through the hypervisor that guests can mark.
//!
//! A guest executes `HINT #(64 + N)` right before it provokes path N. Hints 64 to 127 are
//! unallocated and execute as NOP (Arm ARM DDI0487, C6.2 HINT), so a marked guest runs unchanged
//! on hardware and costs one instruction per mark. `weir-guest` emits the markers; the numbers
//! here and there are one table.

/// The marker that ends the boot: the first instruction of the first guest.
pub const BOOT: u8 = 0;

/// The path of every stretch that no marker claims.
pub const OTHER: u8 = 63;

const NAMES: [&str; 20] = [
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
];

/// The name of path `number` in reports; a number without a name of its own becomes `path_N`.
///
/// ```
/// use weir_observer::path;
/// assert_eq!(path::name(5), "hypercall");
/// assert_eq!(path::name(63), "other");
/// assert_eq!(path::name(40), "path_40");
/// ```
#[must_use]
pub fn name(number: u8) -> String {
    match NAMES.get(usize::from(number)) {
        Some(name) => (*name).to_owned(),
        None if number == OTHER => "other".to_owned(),
        None => format!("path_{number}"),
    }
}
