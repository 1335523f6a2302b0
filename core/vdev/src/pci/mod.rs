//! The configuration space of a PCI function that is assigned to a VM, as the VM sees it (PCI Local
//! Bus Specification 3.0, chapter 6; PCI Express Base Specification 5.0, chapter 7).
//!
//! The guest reads the real function through a filter. It may change three bits of the command
//! register and the interrupt line register. Base addresses are fixed, because stage 2 maps them at
//! their place: they can be sized, and a write of another address is ignored. The guest sees no
//! capabilities except vendor-specific ones, which are read-only: MSI and MSI-X would be writes to
//! arbitrary addresses, and the hypervisor controls power states and resets. Bridges are never
//! passed through.

mod bar;
mod capability;
mod virtio;

use bar::Bar;
pub use bar::NoRoom;
use capability::Capabilities;
use virtio::Virtio;

/// The configuration space of a function of the board.
pub trait Config {
    /// Reads the 32-bit word at `offset`, a multiple of 4 below 256.
    fn read(&mut self, offset: u16) -> u32;
    /// Writes the word at `offset`, a multiple of 4 below 256.
    fn write(&mut self, offset: u16, value: u32);
}

/// Reason why a function cannot be passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No function responds at this address.
    Absent,
    /// The function is a bridge, or has another header than an endpoint.
    Bridge,
    /// The function interrupts by another pin than INTA.
    Pin,
    /// The function has a base address of a kind that cannot be placed.
    BaseAddress,
    /// The function is a virtio device that does not offer VIRTIO_F_ACCESS_PLATFORM: its accesses
    /// bypass the SMMU (virtio 1.2, 6.1).
    PastSmmu,
}

/// The kind of reset of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// A function-level reset: the function needs [`Reset::FLR_NS`] before it responds again (PCIe
    /// 5.0, 6.6.2).
    FunctionLevel,
    /// A virtio status of 0; complete when [`PassedFunction::is_reset`] returns true.
    Virtio,
    /// No reset: only the function's accesses to memory and its interrupt are off.
    None,
}

impl Reset {
    /// Longest time of a function-level reset, in ns.
    pub const FLR_NS: u64 = 100_000_000;
}

/// The functions of a VM while they are being reset between two boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Time at which the reset began, in ns.
    since: u64,
    /// Whether one of them is reset by a function-level reset.
    function_level: bool,
}

impl Release {
    /// Time between two polls of a virtio device that does not complete its reset at once, in ns.
    pub const POLL_NS: u64 = 1_000_000;

    /// Returns the state of functions whose reset began at `now`.
    #[must_use]
    pub const fn new(now: u64, function_level: bool) -> Self {
        Self { since: now, function_level }
    }

    /// Returns the time at which to call again, or `None` once the functions may be used.
    /// `is_reset` returns whether the virtio devices have completed their reset.
    #[must_use]
    pub fn due(&self, now: u64, is_reset: impl FnOnce() -> bool) -> Option<u64> {
        let end = self.since.saturating_add(Reset::FLR_NS);
        if now >= end {
            None
        } else if self.function_level {
            Some(end)
        } else {
            (!is_reset()).then(|| now.saturating_add(Self::POLL_NS).min(end))
        }
    }
}

const COMMAND: u16 = 0x04;
const REVISION: u16 = 0x08;
const HEADER: u16 = 0x0c;
const BARS: u16 = 0x10;
const SUBSYSTEM: u16 = 0x2c;
const CAPABILITIES: u16 = 0x34;
const INTERRUPT: u16 = 0x3c;

/// Command register: the function responds at its base addresses.
const MEMORY: u32 = 1 << 1;
/// Command register: the function may access memory.
const BUS_MASTER: u32 = 1 << 2;
/// Command register: the function must not assert INTx.
const INTX_OFF: u32 = 1 << 10;
/// The bits of the command register that the guest controls.
const COMMAND_BITS: u32 = MEMORY | BUS_MASTER | INTX_OFF;
/// Status register, in the word of the command register: there are capabilities.
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Base class of bridges.
const BRIDGE: u32 = 0x06;

/// A function that was passed through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedFunction {
    bars: [Bar; 6],
    capabilities: Capabilities,
    virtio: Option<Virtio>,
    /// The interrupt line register, which no hardware reads.
    line: u8,
    /// Whether the VM has other functions of the same device.
    siblings: bool,
}

impl PassedFunction {
    /// Examines a function of the board and turns off its accesses to memory, its interrupts and
    /// its base addresses. `siblings` states whether its VM has other functions of the same device.
    ///
    /// # Errors
    ///
    /// Returns an [`Obstacle`] if the function cannot be passed through.
    pub fn probe(config: &mut impl Config, siblings: bool) -> Result<Self, Obstacle> {
        let id = config.read(0);
        if id & 0xffff == 0xffff || id & 0xffff == 0 {
            return Err(Obstacle::Absent);
        }
        quiesce(config);
        let header = config.read(HEADER) >> 16 & 0x7f;
        if header != 0 || config.read(REVISION) >> 24 == BRIDGE {
            return Err(Obstacle::Bridge);
        }
        if config.read(INTERRUPT) >> 8 & 0xff > 1 {
            return Err(Obstacle::Pin);
        }
        let bars = bar::size_all(config).ok_or(Obstacle::BaseAddress)?;
        let is_virtio = virtio::is_virtio(id);
        let any = config.read(COMMAND) & HAS_CAPABILITIES != 0;
        let capabilities = Capabilities::probe(config, any, is_virtio);
        let virtio = if is_virtio {
            let virtio = capabilities.virtio.ok_or(Obstacle::PastSmmu)?;
            if !virtio.is_translated(config) {
                return Err(Obstacle::PastSmmu);
            }
            Some(virtio)
        } else {
            None
        };
        Ok(Self { bars, capabilities, virtio, line: 0, siblings })
    }

    /// Chooses base addresses in `len` bytes from `base` on, below 4 GiB. Each gets separate pages.
    ///
    /// # Errors
    ///
    /// Returns [`NoRoom`] if they do not fit.
    pub fn place(&mut self, base: u64, len: u64) -> Result<(), NoRoom> {
        bar::place(&mut self.bars, base, len)
    }

    /// Returns the pages of the base addresses: address and length of each range.
    pub fn regions(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        bar::regions(&self.bars)
    }

    /// Writes the base addresses to the function; a function-level reset clears them.
    pub fn assign(&self, config: &mut impl Config) {
        for (offset, bar) in (BARS..).step_by(4).zip(&self.bars) {
            config.write(offset, bar.address());
        }
    }

    /// Turns off the function's accesses to memory and its interrupt and begins to reset it. Also
    /// resets the interrupt line register.
    pub fn reset(&mut self, config: &mut impl Config) -> Reset {
        quiesce(config);
        self.line = 0;
        self.bars.iter_mut().for_each(Bar::end_sizing);
        if self.capabilities.function_level_reset(config) {
            Reset::FunctionLevel
        } else if let Some(virtio) = self.virtio {
            virtio.begin_reset(config);
            Reset::Virtio
        } else {
            Reset::None
        }
    }

    /// Returns whether a virtio device has completed its reset.
    pub fn is_reset(&self, config: &mut impl Config) -> bool {
        self.virtio.is_none_or(|virtio| virtio.is_reset(config))
    }

    /// Returns the value that the guest reads at `offset` of the configuration space, `size` bytes.
    pub fn read(&self, config: &mut impl Config, offset: u16, size: u8) -> u64 {
        if !is_access(offset, size) {
            return u64::MAX;
        }
        let word = self.word(config, offset & !3);
        let shifted = word >> (offset % 4 * 8);
        u64::from(shifted) & ((1 << (size * 8)) - 1)
    }

    fn word(&self, config: &mut impl Config, offset: u16) -> u32 {
        match offset {
            0 | REVISION | SUBSYSTEM => config.read(offset),
            COMMAND => {
                let real = config.read(COMMAND);
                let list = if self.capabilities.first == 0 { 0 } else { HAS_CAPABILITIES };
                real & COMMAND_BITS | real & 0xffff_0000 & !HAS_CAPABILITIES | list
            }
            HEADER => config.read(HEADER) & 0x007f_ffff | u32::from(self.siblings) << 23,
            BARS..=0x27 => self.bars.get(usize::from((offset - BARS) / 4)).map_or(0, Bar::read),
            CAPABILITIES => self.capabilities.first.into(),
            INTERRUPT => config.read(INTERRUPT) & 0xff00 | u32::from(self.line),
            _ => self.capabilities.read(config, offset),
        }
    }

    /// Carries out the guest's write of `value` at `offset`, `size` bytes.
    pub fn write(&mut self, config: &mut impl Config, offset: u16, size: u8, value: u64) {
        if !is_access(offset, size) {
            return;
        }
        let shift = u32::from(offset % 4) * 8;
        let mask = (((1_u64 << (size * 8)) - 1) as u32) << shift;
        let value = (value as u32) << shift & mask;
        match offset & !3 {
            COMMAND if mask & 0xffff != 0 => {
                // The upper half is the status register, whose bits are cleared by writing ones; so
                // it is written as zero.
                let old = config.read(COMMAND) & 0xffff;
                config.write(COMMAND, (old & !mask | value) & COMMAND_BITS);
            }
            word @ BARS..=0x27 if mask == u32::MAX => {
                if let Some(bar) = self.bars.get_mut(usize::from((word - BARS) / 4)) {
                    bar.write(value);
                }
            }
            INTERRUPT if mask & 0xff != 0 => self.line = value as u8,
            _ => {}
        }
    }
}

/// Turns off a function's accesses to memory, its registers and its interrupt. Also used for
/// functions that no VM has.
pub fn quiesce(config: &mut impl Config) {
    config.write(COMMAND, INTX_OFF);
}

/// Returns whether an access covers one, two or four bytes within a word of the configuration
/// space.
fn is_access(offset: u16, size: u8) -> bool {
    matches!(size, 1 | 2 | 4) && offset.is_multiple_of(size.into()) && offset < 0x1000
}

#[cfg(test)]
mod tests;
