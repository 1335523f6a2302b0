//! The configuration space (PCI Local Bus Specification 3.0, section 6.1; virtio 1.2, sections
//! 4.1.2 and 4.1.4).

use super::{
    LEN,
    registers::{COMMON, DEVICE, ISR, MULTIPLIER, NOTIFY, RegisterBlock},
};
use crate::device::DeviceKind;
use weir_units::Cid;

/// Vendor and device number of virtio devices: the latter is 0x1040 plus the type (section
/// 4.1.2.1).
const IDS: u32 = 0x1af4 | (0x1040 + DeviceKind::Socket(Cid(0)).number()) << 16;
/// Class: other communication device. Revision 1: not a transitional device.
const CLASS: u32 = 0x0780_0001;

const COMMAND: u64 = 0x04;
const REVISION: u64 = 0x08;
const BASE: u64 = 0x10;
const SUBSYSTEM: u64 = 0x2c;
const CAPABILITIES: u64 = 0x34;
const INTERRUPT: u64 = 0x3c;

/// Command register: the function answers at its base address.
const MEMORY: u32 = 1 << 1;
/// Command register: the function may access memory.
const BUS_MASTER: u32 = 1 << 2;
/// Command register: the function does not assert INTA.
const INTX_OFF: u32 = 1 << 10;
/// The writable bits of the command register.
const COMMAND_BITS: u32 = MEMORY | BUS_MASTER | INTX_OFF;
/// Status register, in the command's word: the function has a reason to interrupt.
const INTERRUPTS: u32 = 1 << 19;
/// Status register: there are capabilities.
const HAS_CAPABILITIES: u32 = 1 << 20;
/// Interrupt pin register: INTA.
const PIN_A: u32 = 1 << 8;

/// The identifier of a vendor-specific capability.
const VENDOR: u32 = 0x09;
/// Offset of the first capability: those of the register blocks come first, then the window's.
const FIRST: u64 = 0x40;
/// Distance from one capability to the next, with room for the longest.
const STRIDE: u64 = 0x14;
/// The register blocks in the order of their capabilities, with their types (section 4.1.4).
const BLOCKS: [(u32, RegisterBlock); 4] = [(1, COMMON), (2, NOTIFY), (3, ISR), (4, DEVICE)];
/// The capability of the window to the registers, type 5 (section 4.1.4.9).
const WINDOW: u64 = FIRST + STRIDE * BLOCKS.len() as u64;
const WINDOW_TYPE: u32 = 5;
/// The window's data register.
pub(super) const DATA: u64 = WINDOW + 16;

/// The variable part of the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    base: u32,
    /// Whether all ones were written to the base address, so that it now reads as its size.
    sizing: bool,
    command: u32,
    line: u8,
    /// The window's base address register, offset and length in bytes.
    window: [u32; 3],
}

/// The register access that the window is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub offset: u64,
    /// 1, 2 or 4 bytes.
    pub len: u64,
}

impl Space {
    pub(super) const fn new(base: u32) -> Self {
        Self { base, sizing: false, command: 0, line: 0, window: [0; 3] }
    }

    /// Whether the function may access memory.
    pub(super) const fn is_master(&self) -> bool {
        self.command & BUS_MASTER != 0
    }

    /// Whether the function answers at its base address.
    pub(super) const fn answers(&self) -> bool {
        self.command & MEMORY != 0
    }

    /// Whether the function must not assert INTA.
    pub(super) const fn is_silent(&self) -> bool {
        self.command & INTX_OFF != 0
    }

    /// Returns the register access that the window is set to, if the driver's settings are valid.
    pub(super) const fn window(&self) -> Option<Window> {
        let [bar, offset, len] = self.window;
        let sound = bar == 0
            && matches!(len, 1 | 2 | 4)
            && offset.is_multiple_of(len)
            && (offset as u64) < LEN;
        if sound { Some(Window { offset: offset as u64, len: len as u64 }) } else { None }
    }

    /// Returns the word at `offset`, a multiple of 4.
    pub(super) fn read(&self, offset: u64, interrupts: bool) -> u32 {
        match offset {
            0 | SUBSYSTEM => IDS,
            COMMAND => {
                let interrupts = if interrupts { INTERRUPTS } else { 0 };
                self.command | HAS_CAPABILITIES | interrupts
            }
            REVISION => CLASS,
            BASE if self.sizing => !(LEN as u32 - 1),
            BASE => self.base,
            CAPABILITIES => FIRST as u32,
            INTERRUPT => PIN_A | u32::from(self.line),
            FIRST..WINDOW => {
                let index = (offset - FIRST) / STRIDE;
                let place = FIRST + index * STRIDE;
                BLOCKS
                    .get(index as usize)
                    .map_or(0, |block| block_word(block, place, offset - place))
            }
            _ => match offset.wrapping_sub(WINDOW) {
                0 => VENDOR | 20 << 16 | WINDOW_TYPE << 24,
                4 => self.window[0],
                8 => self.window[1],
                12 => self.window[2],
                _ => 0,
            },
        }
    }

    /// Writes those bytes of the word at `offset`, a multiple of 4, that are set in `mask`; the
    /// other bits of `value` are zero.
    pub(super) fn write(&mut self, offset: u64, value: u32, mask: u32) {
        let set = |field: &mut u32, writable: u32| {
            *field = *field & !(mask & writable) | value & writable;
        };
        match offset {
            COMMAND => set(&mut self.command, COMMAND_BITS),
            BASE if mask == u32::MAX => self.sizing = value == u32::MAX,
            INTERRUPT if mask & 0xff != 0 => self.line = value as u8,
            _ => match offset.wrapping_sub(WINDOW) {
                4 => set(&mut self.window[0], 0xff),
                8 => set(&mut self.window[1], u32::MAX),
                12 => set(&mut self.window[2], u32::MAX),
                _ => {}
            },
        }
    }
}

/// Returns word `at` of the capability at `place`, which describes a block of the registers.
fn block_word((kind, block): &(u32, RegisterBlock), place: u64, at: u64) -> u32 {
    let notify = *block == NOTIFY;
    match at {
        0 => {
            let len = if notify { 20 } else { 16 };
            VENDOR | ((place + STRIDE) as u32) << 8 | len << 16 | kind << 24
        }
        8 => block.offset as u32,
        12 => block.len as u32,
        16 if notify => MULTIPLIER as u32,
        _ => 0,
    }
}

const _: () = assert!(DATA + 4 <= 0x100, "capabilities are in the first 256 bytes");
