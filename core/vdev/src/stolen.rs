//! Stolen time: how long a vCPU wanted its core and did not have it. The guest reads it in memory
//! (Arm, DEN0057: Paravirtualized Time for Arm-based systems, section 4).

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the record of one vCPU in the page.
const PART: usize = 64;
/// Bytes of the page.
const PAGE: usize = 4096;

/// The record of one vCPU, in the layout of the table in DEN0057.
#[repr(C, align(64))]
struct VcpuRecord {
    /// Revision and attributes, both 0.
    header: u64,
    /// Stolen time in nanoseconds.
    stolen: AtomicU64,
    reserved: [u64; 6],
}

/// The page that a VM can read and not write: one record after the other, one for each vCPU.
#[repr(C, align(4096))]
pub struct StolenTime([VcpuRecord; PAGE / PART]);

impl StolenTime {
    /// Returns a page in which no time was stolen.
    #[must_use]
    pub const fn new() -> Self {
        Self(
            [const { VcpuRecord { header: 0, stolen: AtomicU64::new(0), reserved: [0; 6] } };
                PAGE / PART],
        )
    }

    /// Adds `ns` nanoseconds to the stolen time of vCPU `vcpu`. Called only on that vCPU's core.
    pub fn add(&self, vcpu: usize, ns: u64) {
        if let Some(record) = self.0.get(vcpu) {
            let so_far = record.stolen.load(Ordering::Relaxed);
            record.stolen.store(so_far.saturating_add(ns), Ordering::Relaxed);
        }
    }

    /// Resets the page at the start of a boot, in which nothing has been stolen yet.
    pub fn reset(&self) {
        for record in &self.0 {
            record.stolen.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the address of vCPU `vcpu`'s record, if the VM sees the page at `base`.
    #[must_use]
    pub const fn address(base: u64, vcpu: usize) -> u64 {
        base + (vcpu % (PAGE / PART) * PART) as u64
    }
}

impl Default for StolenTime {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(size_of::<VcpuRecord>() == PART && size_of::<StolenTime>() == PAGE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vcpu_has_its_own_as_the_table_says() {
        assert_eq!(core::mem::offset_of!(VcpuRecord, stolen), 8);
        assert_eq!(core::mem::offset_of!(StolenTime, 0), 0);
        assert_eq!(StolenTime::address(0x90a_0000, 3), 0x90a_00c0);
        let page = StolenTime::new();
        let record = |vcpu: usize| page.0[vcpu].stolen.load(Ordering::Relaxed);
        page.add(3, 7);
        page.add(3, 8);
        page.add(64, 1);
        assert_eq!([record(2), record(3), record(4)], [0, 15, 0]);
        page.add(3, u64::MAX);
        assert_eq!(record(3), u64::MAX);
        page.reset();
        assert_eq!(record(3), 0);
    }
}
