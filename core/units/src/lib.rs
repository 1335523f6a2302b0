//! Quantities and identifiers that have a type for each kind. Each is defined once for the
//! hypervisor, the tools and the simulator.
//!
//! A quantity is a 64-bit integer in its base unit. It is written with the largest unit that
//! divides it, and [`Bytes::parse`] and its siblings read that text back:
//!
//! ```
//! use weir_units::{Bytes, Nanos};
//!
//! assert_eq!(Bytes::parse("16MiB"), Ok(Bytes(16 << 20)));
//! assert_eq!(Nanos(30_000).to_string(), "30us");
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(feature = "text")]
mod text;

#[cfg(feature = "text")]
pub use text::BadQuantity;

macro_rules! quantity {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the bare number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    )*};
}

quantity! {
    /// A number of bytes.
    Bytes;
    /// An intermediate physical address, which a VM uses like a physical one.
    Ipa;
    /// A physical address of the board.
    Pa;
    /// A point in time since the machine started, or a duration, in nanoseconds.
    Nanos;
    /// A rate in bytes per second.
    BytesPerSec;
    /// A number of memory accesses, or of other events that a regulator counts.
    Events;
}

impl Events {
    /// Returns the sum, at most `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the number multiplied by `times`, at most `u64::MAX`.
    #[inline]
    #[must_use]
    pub const fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

/// A core's place among the board's cores, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u8);

impl CoreId {
    /// Returns the core's place in an array of cores.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A vCPU's place among its VM's vCPUs, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuId(pub u8);

/// A context identifier: the address of one end of a virtio socket (virtio 1.2, section 5.10.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid(pub u64);

impl Cid {
    /// The first VM's context identifier; lower ones are reserved (virtio 1.2, section 5.10.4).
    const FIRST_VM: u64 = 3;

    /// Returns the context identifier of the system's VM `vm`.
    #[inline]
    #[must_use]
    pub const fn of_vm(vm: u32) -> Self {
        Self(Self::FIRST_VM + vm as u64)
    }

    /// Returns the place that a VM with this context identifier has in the system. There may be no
    /// such VM.
    #[inline]
    #[must_use]
    pub const fn vm(self) -> Option<u64> {
        self.0.checked_sub(Self::FIRST_VM)
    }
}

/// An interrupt's number at the interrupt controller (GIC INTID): 0 to 15 are SGIs, 16 to 31 PPIs,
/// those from 32 on SPIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntId(pub u32);

impl IntId {
    /// Whether the interrupt is an SGI, which software sends.
    #[inline]
    #[must_use]
    pub const fn is_sgi(self) -> bool {
        self.0 < 16
    }

    /// Whether each core has its own interrupt with this number: an SGI or a PPI.
    #[inline]
    #[must_use]
    pub const fn is_private(self) -> bool {
        self.0 < 32
    }
}

/// A VM's place among the system's VMs, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(pub u8);

impl VmId {
    /// Returns the VM's place in an array of VMs.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
