//! The owners of physical memory: page classes, spans, and the check that no memory has two owners.

use crate::{
    ACTIVE, ADDRESS_LIMIT, DEVICE, Damage, Features, PAGE, PackedSystem, VmView, overlap,
    page_range,
};
use core::ops::Range;
use weir_paging::cache;
use weir_paging::classes::{ClassSet, Geometry, MAX_BANK_BITS, PageClasses, Pages};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of [`crate::PackedVm::own`] for a VM's state, rings and stolen time, in addition to its
/// tables. They are whole DRAM rows of 8 KiB, so that a change of the number of pages does not move
/// the following RAM within a row, which `weir simulate` would see.
pub const VM_LEN: u64 = 10 * PAGE;

/// [`Geometry`] in packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Functions {
    /// See [`Geometry::colors`].
    pub colors: u64,
    /// See [`Geometry::banks`].
    pub banks: [u64; MAX_BANK_BITS],
}

impl From<Geometry> for Functions {
    fn from(geometry: Geometry) -> Self {
        Self { colors: geometry.colors, banks: geometry.banks }
    }
}

impl Functions {
    /// Returns the page classes of these functions, if they are valid.
    pub(super) fn classes(&self) -> Option<PageClasses> {
        PageClasses::new(&Geometry { colors: self.colors, banks: self.banks }).ok()
    }
}

/// [`cache::CacheGeometry`] in packed form; all zeros if the platform file has none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PackedCache {
    /// See [`cache::CacheGeometry::size`].
    pub size: u64,
    /// See [`cache::CacheGeometry::ways`].
    pub ways: u64,
    /// See [`cache::CacheGeometry::cache_line`].
    pub cache_line: u64,
}

/// Pages that belong together: pages of their owner's page classes from the page at `pa` on, as
/// many as make up `len` bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PageSpan {
    /// Address of the first page; 0 if there is none.
    pub pa: u64,
    /// Length in bytes, in whole pages.
    pub len: u64,
}

/// Memory with an owner.
struct Claim {
    /// The VM that claims it, or the first VM for the hypervisor's claim.
    index: u32,
    /// The owner's page classes; `None` if page classes do not apply: then all pages of the range
    /// are claimed.
    set: Option<ClassSet>,
    span: PageSpan,
    /// Whether the memory must be RAM of the machine.
    ram: bool,
    /// Whether another VM may have the memory at another time.
    active: bool,
}

impl Claim {
    /// Returns the range from the first byte to the address behind the last byte.
    #[cfg_attr(
        not(feature = "page-classes"),
        allow(clippy::trivially_copy_pass_by_ref, reason = "without the feature they are nothing")
    )]
    fn extent(&self, classes: &PageClasses) -> Option<Range<u64>> {
        match &self.set {
            Some(set) => classes.extent(set, self.span.pa, self.span.len),
            None => page_range(self.span.pa, self.span.len),
        }
    }

    /// Returns whether a page could be in both claims.
    fn may_meet(&self, other: &Self) -> bool {
        match (&self.set, &other.set) {
            (Some(mine), Some(theirs)) => !mine.is_apart_from(theirs),
            _ => !(self.active && other.active),
        }
    }
}

impl<'a> PackedSystem<'a> {
    /// Returns the page classes of the board.
    #[must_use]
    pub const fn classes(&self) -> &PageClasses {
        &self.classes
    }

    /// Returns whether memory is divided by page classes. A reader without page classes has refused
    /// such a system.
    #[must_use]
    pub const fn is_divided(&self) -> bool {
        Features::PAGE_CLASSES.is_built() && self.header.colored != 0
    }

    /// Returns whether QEMU plug-ins observe the system; see
    /// [`PackedHeader::observed`](crate::PackedHeader::observed).
    #[must_use]
    pub const fn is_observed(&self) -> bool {
        self.header.observed != 0
    }

    /// Returns the page classes of the hypervisor.
    #[must_use]
    pub fn hypervisor_classes(&self) -> ClassSet {
        self.classes.set(self.header.classes).unwrap_or(self.classes.all())
    }

    /// Returns the pages of VM `vm`'s page classes that form a RAM region, [`crate::PackedVm::own`]
    /// or [`crate::PackedVm::pristine`].
    #[must_use]
    pub fn pages(&'a self, vm: &VmView<'_>, span: PageSpan) -> Pages<'a> {
        Pages::from_page(&self.classes, self.classes_of(vm), span.pa, span.len)
    }

    /// Returns page number `index`, from 0 on, of the pages of VM `vm`'s page classes from the page
    /// at `start` on.
    #[must_use]
    pub fn nth_page(&self, vm: &VmView<'_>, start: u64, index: u64) -> Option<u64> {
        self.classes.nth_page(&self.classes_of(vm), start, index)
    }

    /// Returns the first page of VM `vm`'s page classes above the page at `address`.
    #[must_use]
    pub fn page_after(&self, vm: &VmView<'_>, address: u64) -> Option<u64> {
        self.classes.page_after(&self.classes_of(vm), address)
    }

    /// Returns the last-level cache of the platform file, if it has one.
    #[must_use]
    pub fn cache(&self) -> Option<cache::CacheGeometry> {
        let PackedCache { size, ways, cache_line } = self.header.cache;
        (size > 0).then_some(cache::CacheGeometry { size, ways, cache_line })
    }

    /// Returns the address bits that restrict the colors of some owner; the colors of each owner
    /// have every value of all other bits. A machine whose cache has these bits among its color
    /// bits separates the owners as the system file requires.
    #[must_use]
    pub fn promised_colors(&self) -> u64 {
        let vms = (0..self.vms()).filter_map(|index| self.vm(index));
        let sets = vms.map(|vm| self.classes_of(&vm)).chain([self.hypervisor_classes()]);
        let bits = sets.fold(0, |bits, set| bits | self.classes.color_bits_of(&set));
        let colors = self.header.functions.colors;
        let places = (0..u64::BITS).filter(|place| colors >> place & 1 != 0).enumerate();
        places.filter(|(bit, _)| bits >> bit & 1 != 0).fold(0, |all, (_, place)| all | 1 << place)
    }

    /// Returns the page classes of a VM.
    #[must_use]
    pub fn classes_of(&self, vm: &VmView<'_>) -> ClassSet {
        self.classes.set(vm.vm.classes).unwrap_or(self.classes.all())
    }

    /// Returns the pages to which the hypervisor moves.
    #[must_use]
    pub fn hypervisor_pages(&'a self) -> Pages<'a> {
        let PageSpan { pa, len } = self.header.memory;
        Pages::from_page(&self.classes, self.hypervisor_classes(), pa, len)
    }

    fn claims(&self) -> impl Iterator<Item = Claim> + use<'_> {
        let all = self.classes.all();
        let hypervisor = Claim {
            index: 0,
            set: Some(self.hypervisor_classes()),
            span: self.header.memory,
            ram: true,
            active: false,
        };
        let vms = (0..self.vms()).filter_map(|index| self.vm(index)).flat_map(move |vm| {
            let set = self.classes_of(&vm);
            let claim = move |span, device: bool| Claim {
                index: vm.index as u32,
                set: (!device && set != all).then_some(set),
                span,
                ram: !device,
                active: false,
            };
            let regions = vm.regions.iter().map(move |region| {
                let device = region.kind == DEVICE || region.kind == ACTIVE;
                let active = region.kind == ACTIVE;
                Claim { active, ..claim(PageSpan { pa: region.pa, len: region.len }, device) }
            });
            let kept = [vm.vm.own, vm.vm.pristine].into_iter().filter(|span| span.len != 0);
            regions.chain(kept.map(move |span| claim(span, false)))
        });
        let moved = Some(hypervisor).filter(|claim| claim.span.len != 0);
        moved.into_iter().chain(vms)
    }

    /// Checks that all page classes exist on the board and that no page has two owners. `image` is
    /// the range to which the image is loaded.
    pub(super) fn check_memory(&self, image: &Range<u64>) -> Result<(), Damage> {
        let header = self.header;
        let all = self.classes.all();
        let divided = self.is_divided();
        let vms = || (0..self.vms()).filter_map(|index| self.vm(index));
        for words in vms().map(|vm| vm.vm.classes).chain([header.classes]) {
            let set = self.classes.set(words).ok_or(Damage::Geometry)?;
            if header.colored > 1 || (!divided && set != all) {
                return Err(Damage::Geometry);
            }
        }
        let kept = |vm: VmView<'_>| [vm.vm.own, vm.vm.pristine];
        let mut spans = vms().flat_map(kept).chain([header.memory]);
        if !divided && spans.any(|span| span != PageSpan::default()) {
            return Err(Damage::Geometry);
        }
        let must_be = vms().map(|vm| vm.vm.own).chain([header.memory]);
        if divided && must_be.into_iter().any(|span| span.len == 0) {
            return Err(Damage::Geometry);
        }
        for (position, claim) in self.claims().enumerate() {
            let extent = claim.extent(&self.classes).ok_or(Damage::Address(claim.index))?;
            if extent.end > if claim.ram { header.memory_end } else { ADDRESS_LIMIT } {
                return Err(Damage::Address(claim.index));
            }
            if overlap(&extent, image) {
                return Err(Damage::Overlap(claim.index));
            }
            for other in self.claims().take(position).filter(|other| claim.may_meet(other)) {
                if other.extent(&self.classes).is_none_or(|other| overlap(&extent, &other)) {
                    return Err(Damage::Overlap(claim.index));
                }
            }
        }
        Ok(())
    }
}
