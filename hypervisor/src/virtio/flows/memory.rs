//! A VM's memory as its virtio devices reach it: by copies, through a peephole.

use crate::{
    arch::{dmb_ish, memory::peephole::Peephole},
    system,
};
use weir_abi::{PageSpan, RAM, VmView};
use weir_paging::table::PAGE;
use weir_units::Pa;
use weir_vsock::{GuestMemory, Outside, Ram};

/// RAM of one VM.
pub struct Memory<'a> {
    view: &'a VmView<'static>,
    peephole: &'a mut Peephole,
}

impl<'a> Memory<'a> {
    /// Of the VM that `view` describes.
    pub fn new(view: &'a VmView<'static>, peephole: &'a mut Peephole) -> Self {
        Self { view, peephole }
    }

    /// The physical address behind `ipa`, which is good up to the end of its page.
    fn physical(&self, ipa: u64) -> Option<u64> {
        let mut regions = self.view.regions.iter().filter(|region| region.kind == RAM);
        let region = regions.find(|region| ipa.wrapping_sub(region.ipa) < region.len)?;
        let (offset, system) = (ipa - region.ipa, system::get());
        if system.is_divided() {
            let pages = system.pages(self.view, PageSpan { pa: region.pa, len: region.len });
            return Some(pages.nth_page(offset / PAGE)? + offset % PAGE);
        }
        Some(region.pa + offset)
    }

    /// Calls `body` with the physical address of each part of `len` bytes that lies in one page,
    /// and where in these bytes it is.
    fn pages(
        &mut self,
        ipa: u64,
        len: usize,
        mut body: impl FnMut(&mut Peephole, u64, usize, usize),
    ) -> Result<(), Outside> {
        let mut done = 0;
        while done < len {
            let at = ipa.checked_add(done as u64).ok_or(Outside)?;
            let end = len.min(done + (PAGE - at % PAGE) as usize);
            let pa = self.physical(at).ok_or(Outside)?;
            body(self.peephole, pa, done, end);
            done = end;
        }
        Ok(())
    }
}

impl Ram for Memory<'_> {
    fn contains(&self, address: u64, len: u64) -> bool {
        // In one piece: what the broker moves, it moves from or to one.
        self.view.broker_address(address, len).is_some()
    }
}

impl GuestMemory for Memory<'_> {
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Outside> {
        self.pages(address, to.len(), |peephole, pa, start, end| {
            // SAFETY: `physical` found the page in the VM's RAM, and the part ends with it at most.
            unsafe { peephole.read(Pa(pa), &mut to[start..end]) }
        })
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Outside> {
        self.pages(address, from.len(), |peephole, pa, start, end| {
            // SAFETY: as in `read`; the VM's driver made the place available to its device.
            unsafe { peephole.write(Pa(pa), &from[start..end]) }
        })
    }

    fn fence(&mut self) {
        dmb_ish();
    }
}
