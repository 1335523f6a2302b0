//! The VMs of a flow, the memory that the broker sees, and the checks of its tables.

use super::{
    ENGINE_CHUNK, ENGINE_LEVELS, ENGINE_LIMIT, EXCHANGE, EXCHANGE_IPA, EXCHANGE_LEN, FIRST_GROUP,
    FLOW_TIME_LIMIT, MAX_FLOWS, NO_BROKER, NO_ENGINE, PackedFlow, WINDOW, WINDOWS,
};
use crate::{
    ADDRESS_LIMIT, Damage, Features, MAX_VMS, PackedHeader, PackedSystem, PageSpan, RAM, Region,
    VmView, overlap, page_range,
};
use weir_paging::classes::Pages;
use weir_paging::table::{Attributes, Builder, MapError, stage2};
use weir_units::Cid;

/// Alignment of the address space into which pieces of RAM are placed.
const BLOCK: u64 = 0x20_0000;

impl PackedFlow {
    /// Returns the bytes that may be sent at once under [`Self::rate`]. Packets that keep their
    /// period and meet their deadline never wait for the rate: in any time t at most 1 + (t +
    /// deadline) / period of them begin.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        let late = if self.period == 0 { 0 } else { self.deadline.div_ceil(self.period) };
        (self.size as u64).saturating_mul(late.saturating_add(1))
    }

    /// Returns the context identifier by which the sender addresses the receivers.
    #[must_use]
    pub const fn destination(&self) -> Cid {
        if self.members > 1 { Cid(FIRST_GROUP.0 + self.first as u64) } else { Cid::of_vm(self.to) }
    }

    /// Returns whether both ends are in the system and no value overflows. `place` is the flow's
    /// index.
    fn is_sound(&self, place: usize, system: &PackedSystem<'_>) -> bool {
        let first = self.first as usize;
        let group = first..first.saturating_add(self.members as usize);
        let Some(members) = system.flows.get(group.clone()).filter(|_| group.contains(&place))
        else {
            return false;
        };
        let alike = members.iter().all(|one| Self { to: self.to, ..*one } == *self);
        let ends = |to: u32| members.iter().filter(|one| one.to == to).count();
        if !alike || members.len() > MAX_VMS || ends(self.to) != 1 {
            return false;
        }
        let end = |index: u32| {
            let vm = system.vm(index as usize);
            vm.is_some_and(|vm| vm.vm.vsock != 0) && index != system.header.broker
        };
        let timed = (self.period == 0) == (self.deadline == 0);
        let bounded =
            self.size > 0 && self.period < FLOW_TIME_LIMIT && self.deadline < FLOW_TIME_LIMIT;
        end(self.from) && end(self.to) && self.from != self.to && timed && bounded
    }
}

impl VmView<'_> {
    /// Returns the vsock context identifier.
    #[must_use]
    pub const fn cid(&self) -> Cid {
        Cid::of_vm(self.index as u32)
    }

    /// Returns the address at which the broker sees the `len` bytes at `ipa`, if they are in one
    /// piece of the VM's RAM, or in contiguous pieces.
    #[must_use]
    pub fn broker_address(&self, ipa: u64, len: u64) -> Option<u64> {
        // The address of the first byte, and the number of contiguous bytes from there on.
        let mut found: Option<(u64, u64)> = None;
        for (start, region) in self.broker_window() {
            let offset = ipa.wrapping_sub(region.ipa);
            found = match found {
                Some((address, reach)) if ipa.checked_add(reach) == Some(region.ipa) => {
                    Some((address, reach.saturating_add(region.len)))
                }
                Some(_) => return None,
                None => (offset < region.len).then(|| (start + offset, region.len - offset)),
            };
            if let Some((address, reach)) = found
                && len <= reach
            {
                return Some(address);
            }
        }
        None
    }

    /// Returns the VM's pieces of RAM, each with its address in the broker's address space.
    pub fn broker_window(&self) -> impl Iterator<Item = (u64, &Region)> {
        let ram = self.regions.iter().filter(|region| region.kind == RAM);
        window(self.index, ram.map(|region| (region, region.ipa, region.len)))
    }
}

/// Returns the addresses at which the broker sees pieces of RAM of VM number `index`. Each piece is
/// given with its address and its length in the VM; pieces that are adjacent there are adjacent
/// here, too.
pub fn window<T>(
    index: usize,
    ram: impl Iterator<Item = (T, u64, u64)>,
) -> impl Iterator<Item = (u64, T)> {
    let (mut end, mut ipa_end) = (WINDOW * (index as u64 + 1), None);
    ram.map(move |(piece, ipa, len)| {
        // Congruent to the address in the VM modulo a block, so that stage 2 can use blocks here as
        // well.
        let start = match ipa_end {
            Some(ipa_end) if ipa_end == ipa => end,
            _ => (end.saturating_add(BLOCK - 1) / BLOCK * BLOCK).saturating_add(ipa % BLOCK),
        };
        end = start.saturating_add(len);
        ipa_end = ipa.checked_add(len);
        (start, piece)
    })
}

impl PackedSystem<'_> {
    /// Returns the flows; their numbers are their indices here.
    #[must_use]
    pub const fn flows(&self) -> &[PackedFlow] {
        if Features::BROKER.is_built() { self.flows } else { &[] }
    }

    /// Returns the broker, if there are flows or a switch.
    #[must_use]
    pub fn broker(&self) -> Option<VmView<'_>> {
        if Features::BROKER.is_built() { self.vm(self.header.broker as usize) } else { None }
    }

    /// Returns the physical address of the exchange; none without a broker.
    #[must_use]
    pub fn exchange(&self) -> Option<u64> {
        let broker = self.broker()?;
        broker.regions.iter().find(|region| region.kind == EXCHANGE).map(|region| region.pa)
    }

    /// Returns the pages of the exchange, for a system with divided memory.
    #[must_use]
    pub fn exchange_pages(&self) -> Option<Pages<'_>> {
        let broker = self.broker()?;
        let pa = self.exchange()?;
        Some(self.pages(&broker, PageSpan { pa, len: EXCHANGE_LEN }))
    }

    /// Maps the memory of the VMs that the broker serves into its stage 2; see
    /// [`Self::window_attributes`].
    ///
    /// # Errors
    ///
    /// Returns a [`MapError`] if the windows do not fit the tables.
    pub fn map_windows(&self, builder: &mut Builder<'_>) -> Result<(), MapError> {
        for vm in (0..self.vms()).filter_map(|index| self.vm(index)) {
            let Some(attributes) = self.window_attributes(&vm) else { continue };
            for (start, region) in vm.broker_window() {
                self.map_ram(builder, &vm, &Region { ipa: start, ..*region }, attributes)?;
            }
        }
        Ok(())
    }

    /// Returns the attributes with which the broker sees a VM's RAM, if at all: it reads and writes
    /// the RAM of VMs in flows and at the switch, because it serves their rings, and sees no other
    /// VM.
    #[must_use]
    pub fn window_attributes(&self, vm: &VmView<'_>) -> Option<Attributes> {
        let is = |index: u32| index as usize == vm.index;
        let is_end = |flow: &PackedFlow| is(flow.to) || is(flow.from);
        let is_served = vm.vm.net.is_there() || self.flows().iter().any(is_end);
        is_served.then_some(stage2::WINDOW)
    }

    /// Checks that a system with flows or a switch has a broker, that only the broker has an
    /// exchange, and that the windows are within bounds.
    pub(crate) fn check_flows(&self) -> Result<(), Damage> {
        if !Features::BROKER.is_built() {
            return Ok(());
        }
        let exchanges = |vm: &VmView<'_>| {
            let mut of = vm.regions.iter().filter(|region| region.kind == EXCHANGE);
            (of.next().map(|region| region.len), of.next().is_some())
        };
        for vm in (0..self.vms()).filter_map(|index| self.vm(index)) {
            let damage = Damage::Flow(vm.index as u32);
            let wanted = if vm.index as u32 == self.header.broker {
                (Some(EXCHANGE_LEN), false)
            } else {
                (None, false)
            };
            let spanned = vm
                .regions
                .iter()
                .filter(|region| region.kind == RAM)
                .fold(0u64, |total, region| {
                    total.saturating_add(region.len).saturating_add(2 * BLOCK)
                });
            let is_served = vm.vm.vsock != 0 || vm.vm.net.is_there();
            if exchanges(&vm) != wanted || (is_served && spanned > WINDOW) {
                return Err(damage);
            }
        }
        let none = self.header.broker == NO_BROKER;
        let has_switch = self.vms.iter().any(|vm| vm.net.is_there());
        let is_needed = has_switch || !self.flows.is_empty();
        if none == is_needed || self.flows.len() > MAX_FLOWS {
            return Err(Damage::Flow(0));
        }
        if none {
            return Ok(());
        }
        let broker = self.broker().ok_or(Damage::Flow(self.header.broker))?;
        // The broker's windows must not overlap its own regions.
        let own = broker.regions.iter().all(|region| {
            let range = page_range(region.ipa, region.len);
            let there = region.kind != EXCHANGE || region.ipa == EXCHANGE_IPA;
            there && range.is_some_and(|range| !overlap(&range, &WINDOWS))
        });
        if broker.vm.vsock != 0 || broker.vm.net.is_there() || !own {
            return Err(Damage::Flow(self.header.broker));
        }
        match self.flows.iter().enumerate().find(|(place, flow)| !flow.is_sound(*place, self)) {
            Some((_, flow)) => Err(Damage::Flow(flow.from)),
            None => Ok(()),
        }
    }
}

impl PackedSystem<'_> {
    /// Checks that a DMA engine is used only for flows with a broker, and for chunks of at most
    /// [`ENGINE_CHUNK`]. Only an engine that is used has a level and a limit.
    pub(crate) fn check_engine(&self) -> Result<(), Damage> {
        if !Features::BROKER.is_built() {
            return Ok(());
        }
        let PackedHeader { engine_from, engine_level, engine_limit, chunk, .. } = *self.header;
        let is_needed = self.broker().is_some() && !self.flows.is_empty();
        let is_sound = if engine_from == NO_ENGINE {
            engine_level == 0 && engine_limit == 0
        } else {
            let is_limited = (1..=ENGINE_LIMIT).contains(&engine_limit);
            is_needed && chunk <= ENGINE_CHUNK && engine_level <= ENGINE_LEVELS && is_limited
        };
        if is_sound { Ok(()) } else { Err(Damage::Flow(0)) }
    }
}

const _: () = assert!(WINDOWS.end <= EXCHANGE_IPA && EXCHANGE_IPA + EXCHANGE_LEN <= ADDRESS_LIMIT);
