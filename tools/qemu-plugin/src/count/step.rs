//! An instruction as the accounting needs it, in one word.

use crate::PluginOptions;
use crate::opcode::InstructionClass;

/// One instruction of a program. Translation reduces it to the properties that
/// [`Accounting::step`](super::Accounting::step) needs at each execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionStep(pub(super) u64);

impl InstructionStep {
    /// Address bits 2 to 47: enough to tell neighbors apart.
    const ADDRESS: u64 = (1 << 46) - 1;
    /// The instruction is in the hypervisor's range.
    const INSIDE: u64 = 1 << 46;
    /// A stretch begins here if the vCPU is in a guest.
    const ENTRY: u64 = 1 << 47;
    const CLASS_SHIFT: u32 = 48;
    /// A known vector for a lower exception level: a stretch always begins here.
    const VECTOR: u64 = 1 << 52;
    const MARKER_SHIFT: u32 = 56;

    pub(super) const PLAIN: u64 = 0;
    pub(super) const ERET: u64 = 1;
    pub(super) const BARRIER: u64 = 2;
    pub(super) const MAINTENANCE: u64 = 3;
    pub(super) const GIC_SYSREG: u64 = 4;
    pub(super) const WAIT: u64 = 5;
    pub(super) const LOAD_STORE: u64 = 6;
    pub(super) const MARKER: u64 = 7;
    pub(super) const ACKNOWLEDGE: u64 = 8;

    /// Builds the step of the instruction `opcode` at virtual address `pc`.
    #[must_use]
    pub fn new(pc: u64, opcode: u32, options: &PluginOptions) -> Self {
        let (class, marker) = match InstructionClass::of(opcode) {
            InstructionClass::Plain => (Self::PLAIN, 0),
            InstructionClass::Eret => (Self::ERET, 0),
            InstructionClass::Barrier => (Self::BARRIER, 0),
            InstructionClass::Maintenance => (Self::MAINTENANCE, 0),
            InstructionClass::GicSysreg => (Self::GIC_SYSREG, 0),
            InstructionClass::Acknowledge => (Self::ACKNOWLEDGE, 0),
            InstructionClass::Wait => (Self::WAIT, 0),
            InstructionClass::LoadStore => (Self::LOAD_STORE, 0),
            InstructionClass::Marker(number) => (Self::MARKER, u64::from(number)),
        };
        let mut bits =
            pc >> 2 & Self::ADDRESS | class << Self::CLASS_SHIFT | marker << Self::MARKER_SHIFT;
        if options.hyp.contains(&pc) {
            bits |= match options.vectors {
                None => Self::INSIDE | Self::ENTRY,
                Some(_) if options.is_lower_el_vector(pc) => {
                    Self::INSIDE | Self::ENTRY | Self::VECTOR
                }
                Some(_) => Self::INSIDE,
            };
        }
        Self(bits)
    }

    /// Returns the step as one word, which QEMU passes back to the plug-in.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::to_bits`].
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns whether the accesses of this instruction must be reported: it is a load or store of
    /// the hypervisor.
    #[must_use]
    pub fn wants_accesses(self) -> bool {
        self.is_inside() && self.class() == Self::LOAD_STORE
    }

    /// Returns whether the instruction is in the hypervisor's range.
    pub(super) fn is_inside(self) -> bool {
        self.0 & Self::INSIDE != 0
    }

    /// Returns whether a stretch begins here if the vCPU is in a guest.
    pub(super) fn is_entry(self) -> bool {
        self.0 & Self::ENTRY != 0
    }

    /// Returns whether a stretch always begins here.
    pub(super) fn is_vector(self) -> bool {
        self.0 & Self::VECTOR != 0
    }

    /// Returns the class of the instruction, one of the constants of this type.
    pub(super) fn class(self) -> u64 {
        self.0 >> Self::CLASS_SHIFT & 0xF
    }

    /// Returns the number of a marker.
    pub(super) fn marker(self) -> Option<u8> {
        (self.class() == Self::MARKER).then_some((self.0 >> Self::MARKER_SHIFT) as u8)
    }
}
