//! The registers of the board's DMA engine, and the addresses that it may be given.

use super::{
    dsb_sy,
    machine::{clean, translate_guest},
    memory,
    mmio::{Device, Register},
    sysreg::par_el1,
};
use crate::board;
use weir_paging::walk::normal_memory;
use weir_units::Pa;
use weir_zdma::{Descriptors, EngineRegisters};

// SAFETY: `virtio::engine` comes here only if `HAS_ENGINE`, and then `Stage1::begin` maps this page
// of registers. Reading changes
// nothing. What the engine is made to read and write is what `virtio::engine` has translated, and
// its descriptors.
const ENGINE: Device = unsafe { Device::new("engine", memory::device(Pa(board::ENGINE))) };

/// The channel that works for the broker.
pub struct Channel;

impl EngineRegisters for Channel {
    #[inline(always)]
    fn read(&mut self, offset: u64) -> u32 {
        ENGINE.read(Register::at(offset))
    }

    #[inline(always)]
    fn write(&mut self, offset: u64, value: u32) {
        ENGINE.write(Register::at(offset), value);
    }
}

/// Lets the engine see what was written to its descriptors before its next register is written.
pub fn publish(descriptors: &Descriptors) {
    for list in descriptors.used() {
        clean(list.as_ptr() as u64, size_of_val(list) as u64, memory::cache_line());
    }
    // Orders the descriptors' stores and the maintenance before the store that starts the channel.
    dsb_sy();
}

/// The RAM of the guest that is on this core.
pub struct GuestRam(());

impl GuestRam {
    /// Returns the physical address of one of the guest's, for a write if asked so, if EL1 can
    /// access it and it is RAM of the board, as Normal memory (the GIC's registers, which a VM has
    /// on a GICv2, are not the engine's to write).
    #[inline(always)]
    pub fn translate(&self, address: u64, is_write: bool) -> Option<Pa> {
        let Self(()) = self;
        let place = normal_memory(translate_guest(address, is_write), address)?;
        board::RAM.iter().any(|(start, end)| (*start..*end).contains(&place)).then_some(Pa(place))
    }
}

/// Calls `body` with the RAM of the guest that is on this core. The translation leaves its result
/// in a register of the guest's, which keeps its value.
#[inline(always)]
pub fn guest_ram<T>(body: impl FnOnce(&GuestRam) -> T) -> T {
    let par = par_el1::read();
    let done = body(&GuestRam(()));
    par_el1::write(par);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::machine::{recorded, set};
    use weir_zdma::{ChannelSettings, Extent, Side, init, start};

    /// Each page is translated for its kind of access, and the guest finds its register as it was.
    #[test]
    fn a_guest_keeps_its_result_of_translations() {
        set("par_el1", 0x1234);
        let found =
            guest_ram(|ram| [ram.translate(0x4008_1010, false), ram.translate(0x4009_2020, true)]);
        assert_eq!(found, [Some(Pa(0x4008_1010)), Some(Pa(0x4009_2020))]);
        let lines = recorded();
        assert_eq!(guest_ram(|ram| ram.translate(0x1000, true)), None, "no RAM of the board");
        assert_eq!(lines, ["at s12e1r 0x40081010", "at s12e1w 0x40092020", "par_el1 = 0x1234"]);
    }

    /// The engine reads descriptors from memory, so they are there before the channel is enabled.
    #[test]
    fn descriptors_are_cleaned_before_the_channel_starts() {
        set("ctr_el0", 4 << 16);
        set("engine+0x114", 0x3ff);
        assert_eq!(init(&mut Channel, ChannelSettings::DEFAULT), Ok(()));
        let mut table = Descriptors::new(Pa(0x8000), false);
        for (side, addresses) in
            [(Side::Source, [0x1000, 0x3000]), (Side::Destination, [0x5000, 0x6000])]
        {
            for address in addresses.map(Pa) {
                table.push(side, Extent { address, len: 64 }).expect("few extents");
            }
        }
        recorded();
        let started = start(&mut Channel, &mut table, publish);
        assert_eq!(started, Ok(()));
        let lines = recorded();
        let place = |text: &str| lines.iter().position(|line| line.starts_with(text));
        let [cleaned, ordered, first, enabled] =
            ["dc civac", "dsb sy", "engine+0x158 = 0x8000", "engine+0x200 = 0x1"].map(place);
        assert!(cleaned.is_some() && cleaned < ordered, "{lines:?}");
        assert!(ordered < first && first < enabled, "{lines:?}");
    }
}
