//! The driver of one channel of the Zynq UltraScale+'s DMA engines: GDMA in the full-power domain
//! (FPD), ADMA in the low-power domain (LPD). Both are the module ZDMA of UG1087; UG1085 describes
//! them in the chapter "DMA Controller".
//!
//! The crate decides which registers are read and written in which order. The caller has
//! translated and checked all addresses, maintains the caches, and provides the accesses
//! ([`EngineRegisters`]). Every wait is bounded by a number of reads ([`POLLS`]).
//!
//! A transfer is described in place, where the engine can read it: the caller adds the extents of
//! each side to [`Descriptors`]. If both sides have one extent, [`start`] copies their descriptors
//! to registers (UG1085, "Simple DMA Mode"). Otherwise the engine reads a list for each side from
//! memory (UG1085, "Scatter Gather DMA Mode"). Each list is linked from lower to higher places of
//! the table only, so that it ends.
//!
//! # What the caller must do for the caches
//!
//! The FPD's engine is not coherent with the cores' caches: UG1085 excludes it in "I/O Coherency",
//! and the coherency bits of its descriptors have no effect ("Buffer Descriptor Format").
//!
//! 1. Before [`start`]: clean the source, and clean and invalidate the destination, by address to
//!    the point of coherency; then DSB. A dirty line of the destination would be evicted over the
//!    engine's data.
//! 2. In `publish`: clean the descriptors by address to the point of coherency; then DSB.
//! 3. After [`ChannelProgress::Done`]: invalidate the destination before a core reads it. A core
//!    can have loaded old lines speculatively during the transfer.
//!
//! The first and the last line of a destination that is not aligned to lines (64 bytes) hold bytes
//! of others. If a core writes them during the transfer, one of the two writers loses: copy what
//! is outside of whole lines by the core, and leave only whole lines to the engine.
//!
//! The LPD's engine is coherent if [`ChannelSettings::is_coherent`] is set, and if the firmware has
//! enabled snooping: the CCI's Snoop_Control_Register_S3, and the broadcast of inner shareable
//! transactions by the cores (UG1085, "APU Coherent Interfaces"; `lpd_apu` of UG1087, module
//! LPD_SLCR). Then a DSB before [`start`] and in `publish`, and a DMB after
//! [`ChannelProgress::Done`], are enough. Without it the caller does the same as for the FPD's
//! engine.
//!
//! # What QEMU shows, and what only silicon shows
//!
//! QEMU 7.2 to 10.0 completes a transfer inside the register write that enables the channel, with
//! all its descriptors. So [`finish`] never finds the channel busy there, and [`stop`] never waits.
//! A list of descriptors that loops, or a destination of length 0, would keep QEMU in this write
//! for ever: none can be built here. QEMU has no caches, ignores burst lengths and attributes, and
//! reports no error of an access, only those of descriptors that are not aligned.
//!
//! Only silicon shows whether the cache maintenance is sufficient, how the channel behaves while it
//! is busy, errors of the interconnect, and how long [`stop`] takes.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod descriptors;
mod extents;
mod firmware;
mod progress;
mod transfer;

#[cfg(test)]
mod tests;

pub use descriptors::{Descriptors, Side};
pub use extents::{Extent, MAX_EXTENTS, TooManyExtents};
pub use firmware::{Answer, FUNCTION, regulate};
pub use progress::{ChannelProgress, TransferFailure, finish};
pub use transfer::{Outcome, Transfer};

use core::fmt;
use weir_units::Pa;

/// The channel's registers, 32 bits each, by byte offset from the channel's base.
pub trait EngineRegisters {
    /// Reads the register at `offset`.
    fn read(&mut self, offset: u64) -> u32;

    /// Writes the register at `offset`.
    fn write(&mut self, offset: u64, value: u32);
}

/// Most bytes of a transfer.
pub const LONGEST: u32 = 0x1_0000;

/// Most reads of ZDMA_CH_STATUS until [`stop`] gives up.
///
/// 64 KiB take 21 us at the engine's bandwidth for this size (`chunks` in
/// `boards/zcu102/board.toml`). At an assumed 100 ns for each read, the wait takes 26 us. A
/// transfer that the interconnect slows down takes longer.
pub const POLLS: u32 = 256;

// Offsets of registers (UG1087, module ZDMA).

/// Interrupt status: a bit stays 1 until 1 is written to it.
const ISR: u64 = 0x100;
/// Interrupt enable: 1 unmasks an interrupt.
const IEN: u64 = 0x108;
/// Interrupt disable: 1 masks an interrupt.
const IDS: u64 = 0x10c;
/// Control: modes.
const CTRL0: u64 = 0x110;
/// Control: outstanding transactions.
const CTRL1: u64 = 0x114;
/// Flow control by a peripheral.
const FCI: u64 = 0x118;
/// State of the channel.
const STATUS: u64 = 0x11c;
/// AXI parameters of accesses to data.
const DATA_ATTR: u64 = 0x120;
/// AXI parameters of accesses to descriptors.
const DSCR_ATTR: u64 = 0x124;
/// The source's descriptor in simple mode: 4 words.
const SRC_DSCR_WORD0: u64 = 0x128;
/// The destination's descriptor in simple mode: 4 words.
const DST_DSCR_WORD0: u64 = 0x138;
/// Address of the source's first descriptor: 2 words.
const SRC_START_LSB: u64 = 0x158;
/// Address of the destination's first descriptor: 2 words.
const DST_START_LSB: u64 = 0x160;
/// Count of bytes: a bit stays 1 until 1 is written to it.
const TOTAL_BYTE: u64 = 0x188;
/// Counts of the source's and the destination's interrupts for descriptors: a read clears them.
const IRQ_SRC_ACCT: u64 = 0x190;
const IRQ_DST_ACCT: u64 = 0x194;
/// Control: enables the channel.
const CTRL2: u64 = 0x200;

/// ISR, IEN, IDS: all interrupts.
const ALL: u32 = 0xfff;
/// ISR, IEN, IDS: the channel is done, with or without an error.
const DMA_DONE: u32 = 1 << 10;

/// CTRL0.OVR_FETCH: the engine may read more of the source than the transfer needs. A transaction
/// does not cross a boundary of 4 KiB (UG1085, "Implementation Notes"), so that the engine stays in
/// the pages of the source. UG1085, "DMA Controller Functional Description": to forbid it costs
/// much bandwidth, and only some devices need it.
const CTRL0_OVER_FETCH: u32 = 1 << 7;
/// CTRL0.POINT_TYPE: descriptors are in memory.
const CTRL0_SCATTER_GATHER: u32 = 1 << 6;
/// CTRL0.CONT: the channel leaves the pause.
const CTRL0_CONTINUE: u32 = 1 << 1;

/// CTRL1: the bits above SRC_ISSUE at their reset value.
const CTRL1_REST: u32 = 0x3e0;

/// STATUS.STATE. The values are those of the vendor's driver (xzdma_hw.h). QEMU has 1 for a channel
/// that is enabled and 2 for one that is paused. Every value but 0 and 3 counts as busy here.
const STATE: u32 = 3;
const STATE_DONE: u32 = 0;
const STATE_PAUSED: u32 = 1;
const STATE_ERROR: u32 = 3;

/// DATA_ATTR.ARBURST and AWBURST: addresses increase.
const DATA_INCREASE: u32 = 1 << 26 | 1 << 12;
/// DATA_ATTR.ARCACHE and AWCACHE: not cached and not buffered, their reset value.
const DATA_UNCACHED: u32 = 2 << 22 | 2 << 8;
/// DATA_ATTR.ARCACHE and AWCACHE: write-back, allocate on reads and writes. Bits 3:2 other than 0
/// make a transaction snoop (UG1085, "APU Coherent Interfaces").
const DATA_CACHED: u32 = 0xf << 22 | 0xf << 8;
/// Positions of DATA_ATTR.ARLEN and AWLEN.
const READ_LENGTH: u32 = 14;
const WRITE_LENGTH: u32 = 0;

/// DSCR_ATTR.AXCOHRNT: descriptors are read coherently.
const DSCR_COHERENT: u32 = 1 << 8;
/// DSCR_ATTR.AXCACHE: as [`DATA_CACHED`].
const DSCR_CACHED: u32 = 0xf << 4;

/// Bits of an address that the engine has (UG1085, "Buffer Descriptor Format": 12 above the lower
/// 32).
const ADDRESS_BITS: u32 = 44;

/// Most data beats of an AXI transaction (UG1087, ZDMA_CH_DATA_ATTR: ARLEN and AWLEN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// 1 beat.
    One,
    /// 2 beats.
    Two,
    /// 4 beats.
    Four,
    /// 8 beats.
    Eight,
    /// 16 beats.
    Sixteen,
}

impl Burst {
    /// The longest of at most `beats`.
    #[must_use]
    pub const fn of(beats: u8) -> Self {
        match beats {
            ..2 => Self::One,
            2..4 => Self::Two,
            4..8 => Self::Four,
            8..16 => Self::Eight,
            16.. => Self::Sixteen,
        }
    }
}

/// How a channel accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSettings {
    /// Whether accesses to data and descriptors snoop the cores' caches. Only the LPD's engine can:
    /// see the crate's documentation.
    pub is_coherent: bool,
    /// Most beats of a read or write of data. A beat has 128 bits in the FPD and 64 in the LPD.
    pub burst: Burst,
    /// Most reads of data that wait for an answer: 1 to 31 (UG1087, ZDMA_CH_CTRL1: SRC_ISSUE). A
    /// value outside is taken as the nearest one inside.
    pub outstanding: u8,
}

impl ChannelSettings {
    /// The reset values: the most bandwidth, not coherent.
    pub const DEFAULT: Self = Self { is_coherent: false, burst: Burst::Sixteen, outstanding: 31 };
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Error: the channel still has a transfer in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl fmt::Display for Busy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the DMA channel is still busy after {POLLS} reads of its state; stop it again")
    }
}

impl core::error::Error for Busy {}

/// Reason why [`init`] could not prepare a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// The channel has a transfer in progress and does not stop.
    Busy,
    /// The channel's registers do not keep their values: it is absent, or has no clock or power.
    Silent,
}

impl InitError {
    /// Returns the reason, and what the user can do about it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Busy => "it is at work and does not stop: reset it before weir starts",
            Self::Silent => {
                "its registers do not answer: have the firmware turn its clock and power on"
            }
        }
    }
}

/// Reason why [`start`] did not start a transfer. The channel is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedTransfer {
    /// The source or the destination has no bytes.
    Empty,
    /// The sides have different lengths.
    Lengths {
        /// The source's bytes.
        from: u32,
        /// The destination's bytes.
        to: u32,
    },
    /// The transfer has this many bytes, more than [`LONGEST`].
    TooLong(u32),
    /// The extent ends above the 44 address bits of the engine.
    Beyond(Extent),
    /// The address of the descriptors is not a multiple of 64, or is above the engine's 44 bits.
    Descriptors(Pa),
    /// The channel has a transfer in progress: `finish` or `stop` it first.
    Busy,
}

impl fmt::Display for RefusedTransfer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(out, "DMA transfer: a side has no bytes"),
            Self::Lengths { from, to } => write!(
                out,
                "DMA transfer: the source has {from} bytes, the destination {to}; make them equal"
            ),
            Self::TooLong(len) => {
                write!(out, "DMA transfer: {len} bytes are more than {LONGEST}; split the transfer")
            }
            Self::Beyond(extent) => write!(
                out,
                "DMA transfer: {} bytes at {:#x} end above {ADDRESS_BITS} address bits",
                extent.len, extent.address.0
            ),
            Self::Descriptors(at) => write!(
                out,
                "DMA descriptors: address {:#x} is not a multiple of {} below 2^{ADDRESS_BITS}",
                at.0,
                align_of::<Descriptors>()
            ),
            Self::Busy => write!(out, "DMA channel: it is busy; finish or stop its transfer first"),
        }
    }
}

impl core::error::Error for RefusedTransfer {}

/// Prepares the channel: masks its interrupts, stops it if it runs, clears what it has reported,
/// sets its attributes, and enables the interrupts for the end of a transfer and for errors.
///
/// # Errors
///
/// [`InitError`] if the channel does not stop, or does not answer. Its interrupts are masked then.
pub fn init(
    registers: &mut impl EngineRegisters,
    settings: ChannelSettings,
) -> Result<(), InitError> {
    registers.write(IDS, ALL);
    stop(registers).map_err(|Busy| InitError::Busy)?;
    // The attributes must be stable while the channel is enabled (UG1087, ZDMA_CH_DATA_ATTR), so
    // they are set here, and not at each start.
    let length = settings.burst as u32;
    let (data, descriptors) = if settings.is_coherent {
        (DATA_CACHED, DSCR_COHERENT | DSCR_CACHED)
    } else {
        (DATA_UNCACHED, 0)
    };
    registers.write(CTRL0, CTRL0_OVER_FETCH);
    let outstanding = CTRL1_REST | u32::from(settings.outstanding.clamp(1, 31));
    registers.write(CTRL1, outstanding);
    if registers.read(CTRL1) != outstanding {
        return Err(InitError::Silent);
    }
    registers.write(FCI, 0);
    registers
        .write(DATA_ATTR, DATA_INCREASE | data | length << READ_LENGTH | length << WRITE_LENGTH);
    registers.write(DSCR_ATTR, descriptors);
    // The counts of an earlier user: a read clears them.
    registers.read(IRQ_SRC_ACCT);
    registers.read(IRQ_DST_ACCT);
    registers.write(IEN, DMA_DONE | progress::ERRORS);
    Ok(())
}

/// Starts the transfer that `descriptors` describes. Both sides have the same length, at most
/// [`LONGEST`].
///
/// If both sides have one extent, the transfer is written to registers and `publish` is not called.
/// Otherwise `publish` is called before the channel is enabled: it makes the descriptors visible to
/// the engine. The descriptors and the extents must not change until [`finish`] returns other than
/// [`ChannelProgress::Busy`], or [`stop`] returns `Ok`.
///
/// # Errors
///
/// See [`RefusedTransfer`]: the channel was then accessed only by a read of its state, or not at
/// all.
#[inline]
pub fn start(
    registers: &mut impl EngineRegisters,
    descriptors: &mut Descriptors,
    publish: impl FnOnce(&Descriptors),
) -> Result<(), RefusedTransfer> {
    descriptors.check()?;
    if is_busy(registers.read(STATUS)) {
        return Err(RefusedTransfer::Busy);
    }
    // Reports of a transfer that was stopped would be taken for reports of this one.
    registers.write(ISR, ALL);
    // The count of bytes would overflow after 4 GiB, which is an error.
    registers.write(TOTAL_BYTE, u32::MAX);
    if let Some([from, to]) = descriptors.single() {
        registers.write(CTRL0, CTRL0_OVER_FETCH);
        for (base, [low, high, len, ..]) in [(SRC_DSCR_WORD0, from), (DST_DSCR_WORD0, to)] {
            registers.write(base, *low);
            registers.write(base + 4, *high);
            registers.write(base + 8, *len);
            registers.write(base + 12, descriptors.control());
        }
    } else {
        let [from, to] = descriptors.end();
        publish(descriptors);
        registers.write(CTRL0, CTRL0_OVER_FETCH | CTRL0_SCATTER_GATHER);
        for (base, first) in [(SRC_START_LSB, from), (DST_START_LSB, to)] {
            let [low, high] = descriptors::halves(first.0);
            registers.write(base, low);
            registers.write(base + 4, high);
        }
    }
    registers.write(CTRL2, 1);
    Ok(())
}

/// Returns whether the channel with this STATUS is at work or paused.
fn is_busy(status: u32) -> bool {
    !matches!(status & STATE, STATE_DONE | STATE_ERROR)
}

/// Ends the transfer in progress and clears what the channel has reported, so that no interrupt of
/// the transfer is left. Reads the state at most [`POLLS`] times. A channel without a transfer
/// stays as it is.
///
/// A channel that is disabled completes the transactions that it has begun. UG1085 ("Channel
/// Disabled") does not say when a busy channel notices that it is disabled, but a transfer ends in
/// any case, after at most [`LONGEST`] bytes. Until then the engine can read its descriptors and
/// source, and write its destination.
///
/// # Errors
///
/// [`Busy`] if the channel is still busy after that: the memory of its transfer must not be reused
/// yet.
pub fn stop(registers: &mut impl EngineRegisters) -> Result<(), Busy> {
    registers.write(CTRL2, 0);
    for _ in 0..POLLS {
        let status = registers.read(STATUS);
        if !is_busy(status) {
            registers.write(ISR, ALL);
            return Ok(());
        }
        // This write ends a channel that an earlier user has paused (UG1085, "Channel Disabled").
        if status & STATE == STATE_PAUSED {
            registers.write(CTRL0, CTRL0_OVER_FETCH | CTRL0_CONTINUE);
        }
    }
    Err(Busy)
}
