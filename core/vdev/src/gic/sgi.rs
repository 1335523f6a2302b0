//! Software-generated interrupts that are being sent from one vCPU to another, without the VM's
//! lock.
//!
//! The trap of the sender decodes the register ([`decode_sgi_register`], [`decode_sgir`]), posts
//! the SGI to the receivers' words ([`SgiBoard::post`]) and kicks the cores of the vCPUs that this
//! returns. A receiver moves its SGIs into list registers with [`super::Gic::drain`].

use super::lr::GicArchitecture;
use super::sgi_words::SgiWords;
use super::{MAX_VCPUS, VcpuMask};
use weir_units::IntId;

/// An SGI as its sender requested it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sgi {
    /// INTID, 0 to 15.
    pub intid: IntId,
    /// Whether the receiver takes the SGI as group 1, otherwise as group 0. The SGI is dropped if
    /// the receiver has this INTID in the other group. GICv2 ignores this.
    pub group1: bool,
    /// The target vCPUs, which may include the sender.
    pub targets: VcpuMask,
}

/// The system registers that send SGIs (GICv3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SgiRegister {
    /// `ICC_SGI1R_EL1`.
    Sgi1,
    /// `ICC_SGI0R_EL1`.
    Sgi0,
    /// `ICC_ASGI1R_EL1`: group 1 of the other Security state. A guest has one Security state, in
    /// which this is group 0.
    Asgi1,
}

/// Decodes a write to one of the three registers (IHI0069H 12.2.18: TargetList in bits 15:0, Aff1
/// in 23:16, INTID in 27:24, Aff2 in 39:32, IRM in 40, RS in 47:44, Aff3 in 55:48).
///
/// vCPU `i` has the affinity 0.0.0.`i`; `all` are the vCPUs of the VM.
#[inline]
#[must_use]
pub fn decode_sgi_register(register: SgiRegister, value: u64, sender: usize, all: VcpuMask) -> Sgi {
    const AFFINITY_AND_RANGE: u64 = 0x00ff_f0ff_00ff_0000;
    let targets = if value >> 40 & 1 != 0 {
        all.without(sender)
    } else if value & AFFINITY_AND_RANGE == 0 {
        VcpuMask::from_bits(value as u8 & all.bits())
    } else {
        VcpuMask::NONE
    };
    let intid = IntId((value >> 24) as u32 & 15);
    Sgi { intid, group1: matches!(register, SgiRegister::Sgi1), targets }
}

/// Returns the value of `ICC_SGI1R_EL1` for an SGI to the core of affinity `mpidr`, without the
/// INTID (IHI0069H 12.2.18).
#[must_use]
pub const fn sgi_target(mpidr: u64) -> u64 {
    let (aff0, aff1, aff2) = (mpidr & 0xff, mpidr >> 8 & 0xff, mpidr >> 16 & 0xff);
    let aff3 = mpidr >> 32 & 0xff;
    aff3 << 48 | (aff0 >> 4) << 44 | aff2 << 32 | aff1 << 16 | 1 << (aff0 & 0xf)
}

/// Decodes a write to `GICD_SGIR` (IHI0048B 4.3.15: SGIINTID in bits 3:0, CPUTargetList in 23:16,
/// TargetListFilter in 25:24; NSATT exists only with the Security Extensions). `all` are the vCPUs
/// of the VM.
#[inline]
#[must_use]
pub fn decode_sgir(value: u32, sender: usize, all: VcpuMask) -> Sgi {
    let targets = match value >> 24 & 3 {
        0 => VcpuMask::from_bits((value >> 16) as u8 & all.bits()),
        1 => all.without(sender),
        2 => VcpuMask::only(sender),
        _ => VcpuMask::NONE,
    };
    Sgi { intid: IntId(value & 15), group1: false, targets }
}

/// The SGIs that are posted to the vCPUs of one VM and not yet drained. The VM's lock does not
/// protect the board.
#[derive(Debug)]
pub struct SgiBoard<V: GicArchitecture> {
    words: [V::SgiWords; MAX_VCPUS],
}

impl<V: GicArchitecture> Default for SgiBoard<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: GicArchitecture> SgiBoard<V> {
    /// Returns a board without SGIs.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [const { V::SgiWords::EMPTY }; MAX_VCPUS] }
    }

    /// Posts an SGI to its targets and returns those that must be notified: the caller kicks the
    /// others, and calls [`super::Gic::drain`] for the sender itself if it is among them.
    ///
    /// A target that already had an SGI waiting is not in the result: the vCPU that posted that SGI
    /// has kicked the target or is about to, and the resulting drain also takes this SGI. So every
    /// kick must be followed by a drain.
    #[inline]
    pub fn post(&self, sender: usize, sgi: Sgi) -> VcpuMask {
        let mut notify = VcpuMask::NONE;
        let mut left = sgi.targets.bits();
        while left != 0 {
            let target = left.trailing_zeros() as usize;
            left &= left - 1;
            if self.words[target & (MAX_VCPUS - 1)].post(sender, sgi.intid, sgi.group1) {
                notify = notify | VcpuMask::only(target);
            }
        }
        notify
    }

    /// Takes the SGIs that are posted to a vCPU.
    #[inline]
    pub(super) fn take(&self, vcpu: usize) -> <V::SgiWords as SgiWords>::Bits {
        self.words[vcpu & (MAX_VCPUS - 1)].take()
    }

    /// Returns whether no SGI is posted to a vCPU. The next vCPU that posts one kicks its core.
    #[must_use]
    pub fn is_empty(&self, vcpu: usize) -> bool {
        self.words[vcpu & (MAX_VCPUS - 1)].is_empty()
    }

    /// Removes all posted SGIs, for a restart of the VM when all of its vCPUs are stopped.
    pub fn clear(&self) {
        for word in &self.words {
            word.take();
        }
    }
}
