//! The registers of the board's DMA engine, and the addresses that the engine may be given.

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

// SAFETY: `virtio::engine` uses this only if `HAS_ENGINE`; then `Stage1::begin` maps this page of
// registers. Reading changes nothing. The engine reads and writes only its descriptors and the
// addresses that `virtio::engine` has translated.
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

/// Makes the stores to the engine's descriptors visible to it before the next write to one of its
/// registers.
pub fn publish(descriptors: &Descriptors) {
    for list in descriptors.used() {
        clean(list.as_ptr() as u64, size_of_val(list) as u64, memory::cache_line());
    }
    // Orders the descriptors' stores and the maintenance before the store that starts the channel.
    dsb_sy();
}

/// The RAM of the current guest of this core.
pub struct GuestRam(());

impl GuestRam {
    /// Returns the physical address of `address`, a virtual address of the guest. Returns none
    /// unless EL1 may access it (for a write if `is_write`) and it is Normal memory in the RAM of
    /// the board: on a GICv2 a VM also has GIC registers mapped, which the engine must not write.
    #[inline(always)]
    pub fn translate(&self, address: u64, is_write: bool) -> Option<Pa> {
        let Self(()) = self;
        let place = normal_memory(translate_guest(address, is_write), address)?;
        board::RAM.iter().any(|(start, end)| (*start..*end).contains(&place)).then_some(Pa(place))
    }
}

/// Calls `body` with the RAM of the current guest of this core. A translation overwrites PAR_EL1, a
/// register of the guest, so the value is restored afterwards.
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

    /// Each page is translated for its kind of access, and the guest's PAR_EL1 is unchanged.
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

    /// The descriptors are in memory before the channel is enabled, because the engine reads them
    /// there.
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
