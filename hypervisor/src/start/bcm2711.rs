//! Turns a BCM2711 off without firmware: the watchdog resets the chip, and the boot firmware treats
//! a reset to partition 63 as a halt (the sequence of Linux' bcm2835_wdt.c).

use crate::{
    arch::{
        memory::device,
        mmio::{Device, Register},
    },
    board::WATCHDOG,
};
use weir_units::Pa;

/// Reset control register.
const RSTC: Register<u32> = Register::at(0x1c);
/// Reset status register, with the number of the partition to boot from.
const RSTS: Register<u32> = Register::at(0x20);
/// Watchdog counter register.
const WDOG: Register<u32> = Register::at(0x24);
/// The upper byte of each written value: a write without it has no effect.
const PASSWORD: u32 = 0x5a00_0000;
/// The bits of a register that a write sets.
const VALUE: u32 = 0x00ff_ffff;
/// RSTC: the kind of reset.
const KIND: u32 = 0x30;
/// RSTC: a reset of the whole chip.
const FULL_RESET: u32 = 0x20;
/// RSTS: all bits of the partition number set, which is partition 63.
const HALT: u32 = 0x555;
/// Watchdog time: ten ticks of 16 us.
const SOON: u32 = 10;

/// The power management block.
// SAFETY: `start` uses this only if the board's power is `Power::Bcm2711`. Then stage 1 maps the
// page (`START_DEVICES`), no VM has it, and these registers only reset the chip, which is intended.
const REGISTERS: Device = unsafe { Device::new("watchdog", device(Pa(WATCHDOG))) };

/// Turns the board off; returns before the watchdog expires.
pub fn power_off() {
    REGISTERS.modify(RSTS, |status| PASSWORD | status & VALUE | HALT);
    REGISTERS.write(WDOG, PASSWORD | SOON);
    REGISTERS.modify(RSTC, |control| PASSWORD | control & VALUE & !KIND | FULL_RESET);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::machine::{recorded, set};

    #[test]
    fn the_watchdog_halts_the_board() {
        // The registers read with zeros or with other bits in place of the password.
        set("watchdog+0x20", 0x1000);
        set("watchdog+0x1c", 0xff00_0132);
        power_off();
        let lines = [
            "watchdog+0x20 = 0x5a001555",
            "watchdog+0x24 = 0x5a00000a",
            "watchdog+0x1c = 0x5a000122",
        ];
        assert_eq!(recorded(), lines, "the partition, the time, then the reset");
    }
}
