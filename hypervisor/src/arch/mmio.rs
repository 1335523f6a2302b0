//! Types for device registers: registers that are read and written as a whole, and registers of
//! which only the ones that are written have an effect. The latter must not be read, changed and
//! written back, because each bit that reads as one would then act.

pub use super::machine::Device;
use super::machine::Width;
use core::marker::PhantomData;

/// A register that is read and written as a whole.
#[derive(Clone, Copy)]
pub struct Register<T> {
    offset: u64,
    width: PhantomData<T>,
}

impl<T: Width> Register<T> {
    /// Returns the register at `offset` of its device.
    pub const fn at(offset: u64) -> Self {
        Self { offset, width: PhantomData }
    }

    /// Returns element `n` of the array of registers that begins here.
    #[inline(always)]
    pub const fn nth(self, n: u64) -> Self {
        Self::at(self.offset + n * T::BYTES)
    }
}

/// A register of 32 bits of which only the ones that are written have an effect.
#[derive(Clone, Copy)]
pub struct SetClear {
    offset: u64,
}

impl SetClear {
    /// Returns the register at `offset` of its device.
    pub const fn at(offset: u64) -> Self {
        Self { offset }
    }

    /// Returns element `n` of the array of registers that begins here.
    #[inline(always)]
    pub const fn nth(self, n: u64) -> Self {
        Self::at(self.offset + n * 4)
    }
}

impl Device {
    /// Reads a register.
    #[inline(always)]
    pub fn read<T: Width>(self, register: Register<T>) -> T {
        self.load(register.offset)
    }

    /// Writes a register.
    #[inline(always)]
    pub fn write<T: Width>(self, register: Register<T>, value: T) {
        self.put(register.offset, value);
    }

    /// Reads a register and writes the value that `change` returns for it.
    #[inline(always)]
    pub fn modify<T: Width>(self, register: Register<T>, change: impl FnOnce(T) -> T) {
        self.write(register, change(self.read(register)));
    }

    /// Writes `bits` to a register, of which only the ones that are written have an effect.
    #[inline(always)]
    pub fn act(self, register: SetClear, bits: u32) {
        self.act_at(register.offset, bits);
    }

    /// Reads the state that a register acts on.
    #[inline(always)]
    pub fn state(self, register: SetClear) -> u32 {
        self.load(register.offset)
    }
}
