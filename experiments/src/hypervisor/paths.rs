//! The figures of the benchmark: the paths that its guest takes, what belongs to no path, and those
//! of Bao.

/// A path that the benchmark guest must have taken, and its cost in the peer.
pub struct Path {
    /// Its key.
    pub key: &'static str,
    /// A description.
    pub what: &'static str,
    /// EL2 instructions of Bao 738e3dc5 (July 2026, main), measured in November 2026 on QEMU virt by
    /// a guest that does the same; median. None where nothing comparable was measured.
    pub bao: Option<u64>,
    /// Whether weir is compared with half of that: on the paths that a real-time guest feels.
    pub(super) half: bool,
}

const fn path(key: &'static str, what: &'static str, bao: u64) -> Path {
    Path { key, what, bao: Some(bao), half: false }
}

const fn interrupt(key: &'static str, what: &'static str, bao: u64) -> Path {
    Path { key, what, bao: Some(bao), half: true }
}

const fn own(key: &'static str, what: &'static str) -> Path {
    Path { key, what, bao: None, half: false }
}

/// The paths of the benchmark guest with GICv3, in the order of tables.
pub const PATHS: [Path; 27] = [
    interrupt("timer_irq", "virtual timer interrupt to the guest", 199),
    interrupt("spi", "device interrupt (SPI) to the guest", 204),
    interrupt("sgi_send", "SGI to another vCPU, sender", 385),
    interrupt("sgi_receive", "SGI to another vCPU, receiver", 414),
    path("sgi_self", "SGI to itself, sent and received", 799),
    path("hypercall", "null hypercall", 149),
    own("psci_version", "PSCI_VERSION by HVC"),
    path("psci_version_smc", "PSCI_VERSION by SMC", 202),
    own("cpu_on", "PSCI CPU_ON by HVC, caller"),
    path("cpu_on_smc", "PSCI CPU_ON by SMC, caller", 395),
    path("gicd_typer_read", "read of GICD_TYPER", 225),
    path("gicr_typer_read", "read of GICR_TYPER", 269),
    path("gicd_isenabler_read", "read of GICD_ISENABLER", 1_290),
    path("gicd_isenabler_same", "GICD_ISENABLER, device's line, no change", 3_563),
    path("gicd_isenabler_line", "GICD_ISENABLER, device's line, off to on", 3_594),
    own("gicd_isenabler_write", "GICD_ISENABLER, emulated line, off to on"),
    path("gicd_ipriorityr_write", "GICD_IPRIORITYR, no change", 376),
    path("gicd_ipriorityr_change", "GICD_IPRIORITYR, another value", 422),
    path("gicr_ipriorityr_change", "GICR_IPRIORITYR, another value", 414),
    path("gicd_irouter_write", "GICD_IROUTER, no change", 407),
    path("gicd_ispendr_write", "GICD_ISPENDR, disabled line", 3_615),
    path("gicd_ispendr_delivery", "GICD_ISPENDR, device's line, enabled, with delivery", 3_724),
    path("gicr_isenabler0_read", "read of GICR_ISENABLER0", 1_314),
    path("gicr_isenabler0_same", "GICR_ISENABLER0, virtual timer, no change", 3_589),
    path("gicr_isenabler0_timer", "GICR_ISENABLER0, virtual timer, off to on", 3_635),
    own("gicr_isenabler0_write", "GICR_ISENABLER0, physical timer, off to on"),
    own("uart_write", "write of a byte to the virtual PL011"),
];

/// The paths with GICv2, which has neither redistributors nor GICD_IROUTER: keys of redistributors
/// stand for the banked registers of the distributor.
///
/// Bao 738e3dc5 (July 2026, main), Debian's aarch64-linux-gnu-gcc 12.2.0-14, its own `-O2`; QEMU
/// 7.2.22, `virt,gic-version=2` and `xlnx-zcu102`, 4 Cortex-A53, one VM of 4 vCPUs: the same
/// figures on both machines. Its null hypercall is the cheapest that it has. No figure where Bao's
/// was of a device's line and weir's is of an emulated one, which takes another path.
pub const PATHS_GICV2: [Path; 25] = [
    interrupt("timer_irq", "virtual timer interrupt to the guest", 204),
    interrupt("spi", "device interrupt (SPI) to the guest", 209),
    interrupt("sgi_send", "SGI to another vCPU, sender", 462),
    interrupt("sgi_receive", "SGI to another vCPU, receiver", 432),
    path("sgi_self", "SGI to itself, sent and received", 894),
    path("hypercall", "null hypercall", 149),
    path("psci_version", "PSCI_VERSION by HVC", 188),
    path("psci_version_smc", "PSCI_VERSION by SMC", 202),
    path("cpu_on", "PSCI CPU_ON by HVC, caller", 357),
    path("cpu_on_smc", "PSCI CPU_ON by SMC, caller", 371),
    path("gicd_typer_read", "read of GICD_TYPER", 225),
    path("gicd_isenabler_read", "read of GICD_ISENABLER", 1_290),
    path("gicd_isenabler_same", "GICD_ISENABLER, device's line, no change", 3_599),
    path("gicd_isenabler_line", "GICD_ISENABLER, device's line, off to on", 3_626),
    own("gicd_isenabler_write", "GICD_ISENABLER, emulated line, off to on"),
    path("gicd_ipriorityr_write", "GICD_IPRIORITYR, no change", 377),
    path("gicd_ipriorityr_change", "GICD_IPRIORITYR, another value", 421),
    path("gicr_ipriorityr_change", "GICD_IPRIORITYR, virtual timer, another value", 411),
    own("gicd_ispendr_write", "GICD_ISPENDR, disabled emulated line"),
    path("gicd_ispendr_delivery", "GICD_ISPENDR, device's line, enabled, with delivery", 3_764),
    path("gicr_isenabler0_read", "read of GICD_ISENABLER0", 1_290),
    path("gicr_isenabler0_same", "GICD_ISENABLER0, virtual timer, no change", 3_279),
    path("gicr_isenabler0_timer", "GICD_ISENABLER0, virtual timer, off to on", 3_306),
    own("gicr_isenabler0_write", "GICD_ISENABLER0, physical timer, off to on"),
    own("uart_write", "write of a byte to the virtual PL011"),
];

/// Bao's boot to the first guest instruction on 4 cores with one VM of 1 vCPU, with 2 MiB and with
/// 64 MiB. Bao does not clear RAM. Therefore weir's clearing, which is done in the time of the VM
/// that owns the RAM, is a figure of its own.
const BAO_BOOT: [u64; 2] = [440_907, 461_026];
/// Bao's executable sections, with its coloring and its SMMUv2 driver.
const BAO_TEXT: u64 = 67_304;
/// A figure that belongs to no path.
pub(super) struct Whole {
    pub what: &'static str,
    pub bao: Option<u64>,
    /// True if the README shows it.
    pub in_readme: bool,
}

const fn whole(what: &'static str, bao: Option<u64>) -> Whole {
    Whole { what, bao, in_readme: bao.is_some() }
}

/// The figures that belong to no path.
pub(super) const WHOLE: [Whole; 10] = [
    whole("boot without clearing RAM, 4 cores, one VM of 1 vCPU, 2 MiB of RAM", Some(BAO_BOOT[0])),
    whole("the same, 64 MiB", Some(BAO_BOOT[1])),
    whole("the same, 256 MiB", None),
    whole("the same, 4 vCPUs, 2 MiB", None),
    whole("clearing RAM, in the time of its VM, 2 MiB", None),
    whole("the same, 64 MiB", None),
    whole("the same, 256 MiB", None),
    whole("executable sections, full system, bytes", Some(BAO_TEXT)),
    whole("executable sections, minimal system, bytes", Some(BAO_TEXT)),
    whole("image of the minimal system with its guest, bytes", None),
];
