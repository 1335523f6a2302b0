//! The memory that drivers share with their devices.

use core::{
    cell::UnsafeCell,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

/// Pages for a socket device's three queues, or two network devices' four, two areas each.
const PAGES: usize = 8;

#[repr(C, align(4096))]
struct Pages(UnsafeCell<[[u8; PAGE_SIZE]; PAGES]>);

// SAFETY: each page is given out once, by `Memory::dma_alloc`.
unsafe impl Sync for Pages {}

static POOL: Pages = Pages(UnsafeCell::new([[0; PAGE_SIZE]; PAGES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Memory as the device sees it: where the guest sees it.
pub(crate) struct Memory;

impl Memory {
    /// The number of pages that the drivers have.
    pub(crate) fn pages_used() -> usize {
        USED.load(Ordering::Relaxed)
    }
}

// SAFETY: `dma_alloc` gives zeroed pages of the pool, each once.
unsafe impl Hal for Memory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let first = USED.fetch_add(pages, Ordering::Relaxed);
        assert!(first + pages <= PAGES, "the pool is for so many drivers");
        let place = POOL.0.get().cast::<u8>().wrapping_add(first * PAGE_SIZE);
        (place as u64, NonNull::new(place).expect("a static has an address"))
    }

    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(address as *mut u8).expect("no device is at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().as_ptr() as u64
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
