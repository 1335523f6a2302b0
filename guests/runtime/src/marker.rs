//! Marks in the instruction stream for the benchmark plug-in.
//!
//! A marker is `hint #(64 + N)`, an unallocated hint that every core executes as a NOP
//! (Arm ARM DDI 0487, C6.2 "HINT"). A plug-in that sees instructions attributes the next stretch of
//! EL2 instructions on the same core to the path that the marker names.

macro_rules! markers {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $key:literal;)*) => {
        $($(#[$doc])* pub const $name: u32 = $number;)*

        /// Marker numbers and the key of each in the JSON output of `weir bench hypervisor`.
        pub const TABLE: &[(u32, &str)] = &[$(($number, $key)),*];
    };
}

markers! {
    /// First instruction of the guest.
    BOOT = 0, "boot";
    /// Virtual timer interrupt, delivered to a guest that is running.
    TIMER_IRQ = 1, "timer_irq";
    /// Level-triggered SPI of a passed-through device (PL031).
    SPI = 2, "spi";
    /// SGI to another core, on the sender.
    SGI_SEND = 3, "sgi_send";
    /// SGI from another core, on the receiver, which is running.
    SGI_RECEIVE = 4, "sgi_receive";
    /// The null hypercall.
    HYPERCALL = 5, "hypercall";
    /// PSCI_VERSION.
    PSCI_VERSION = 6, "psci_version";
    /// CPU_ON of a core that is off, on the caller.
    CPU_ON = 7, "cpu_on";
    /// Read of GICD_TYPER.
    GICD_TYPER_READ = 8, "gicd_typer_read";
    /// Read of GICD_ISENABLER1.
    GICD_ISENABLER_READ = 9, "gicd_isenabler_read";
    /// Write of GICD_ISENABLER1 that enables one disabled SPI.
    GICD_ISENABLER_WRITE = 10, "gicd_isenabler_write";
    /// Write of one SPI's byte in GICD_IPRIORITYR.
    GICD_IPRIORITYR_WRITE = 11, "gicd_ipriorityr_write";
    /// Write of one SPI's GICD_IROUTER (GICv3).
    GICD_IROUTER_WRITE = 12, "gicd_irouter_write";
    /// Write of GICD_ISPENDR1 that makes one disabled SPI pending.
    GICD_ISPENDR_WRITE = 13, "gicd_ispendr_write";
    /// Write of GICR_ISENABLER0 (GICv2: GICD_ISENABLER0) that enables one disabled PPI.
    GICR_ISENABLER0_WRITE = 14, "gicr_isenabler0_write";
    /// Write of one byte to the PL011's data register.
    UART_WRITE = 15, "uart_write";
    /// End of interrupt.
    EOI = 16, "eoi";
    /// WFI that waits for the virtual timer.
    WFI = 17, "wfi";
    /// Write of CNTV_CVAL_EL0.
    TIMER_PROGRAM = 18, "timer_program";
    /// Begin, and then end, of a section with cache misses that `weir observe` counts apart.
    PHASE = 19, "phase";
    /// PSCI_VERSION by SMC.
    PSCI_VERSION_SMC = 20, "psci_version_smc";
    /// CPU_ON by SMC of a core that is off, on the caller.
    CPU_ON_SMC = 21, "cpu_on_smc";
    /// Read of the low half of GICR_TYPER (GICv3).
    GICR_TYPER_READ = 22, "gicr_typer_read";
    /// Write of GICD_ISENABLER1 for a passed-through device's SPI that is enabled.
    GICD_ISENABLER_SAME = 23, "gicd_isenabler_same";
    /// Write of GICD_ISENABLER1 that enables a passed-through device's SPI.
    GICD_ISENABLER_LINE = 24, "gicd_isenabler_line";
    /// Write of another value to one SPI's byte in GICD_IPRIORITYR.
    GICD_IPRIORITYR_CHANGE = 25, "gicd_ipriorityr_change";
    /// Write of another value to one PPI's byte in GICR_IPRIORITYR.
    GICR_IPRIORITYR_CHANGE = 26, "gicr_ipriorityr_change";
    /// Read of GICR_ISENABLER0.
    GICR_ISENABLER0_READ = 27, "gicr_isenabler0_read";
    /// Write of GICR_ISENABLER0 for the virtual timer's PPI, which is enabled.
    GICR_ISENABLER0_SAME = 28, "gicr_isenabler0_same";
    /// Write of GICR_ISENABLER0 that enables the virtual timer's PPI.
    GICR_ISENABLER0_TIMER = 29, "gicr_isenabler0_timer";
    /// SGI to the sender itself: all that EL2 executes until the guest has taken it.
    SGI_SELF = 30, "sgi_self";
    /// Write of GICD_ISPENDR1 for a passed-through device's SPI that is enabled: all that EL2
    /// executes until the guest has taken it.
    GICD_ISPENDR_DELIVERY = 31, "gicd_ispendr_delivery";
    /// Write that notifies a virtio device of packets or frames.
    VIRTIO_NOTIFY = 48, "virtio_notify";
    /// End of a measured stretch: EL2 instructions from here on belong to no path.
    NONE = 63, "none";
}

/// Executes the marker `N`, one of this module's constants.
#[cfg(target_os = "none")]
#[inline(always)]
pub fn marker<const N: u32>() {
    const { assert!(N < 64, "markers are hints 64 to 127") };
    // SAFETY: an unallocated hint is a NOP. Not `nomem`: accesses stay on their side of it.
    unsafe {
        core::arch::asm!("hint #{hint}", hint = const 64 + N, options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_keys_are_unique_and_in_range() {
        for (i, (number, key)) in TABLE.iter().enumerate() {
            assert!(*number < 64);
            assert!(TABLE[..i].iter().all(|(n, k)| n != number && k != key));
        }
    }
}
