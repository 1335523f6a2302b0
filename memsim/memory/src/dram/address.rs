//! From a physical address to channel, rank, bank group, bank and row. Every bit of each is the XOR
//! of a set of address bits, so the whole map is linear over GF(2) and is computed by one table
//! lookup for each byte of the address.

use core::{fmt, ops::RangeInclusive};

use crate::units::Pa;

/// The address functions of a memory controller. Each mask is one bit, lowest first: the parity of
/// the address under that mask. DRAM that is mapped in several windows needs no special case while
/// the windows' differences are bits: on ZynqMP, with the upper 2 GiB at 0x8_0000_0000, DRAM
/// address bit 31 is the mask `1 << 35`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressFields {
    /// Channel bits.
    pub channel: Vec<u64>,
    /// Rank bits.
    pub rank: Vec<u64>,
    /// Bank group bits; none where the memory has no bank groups.
    pub group: Vec<u64>,
    /// Bank bits within a group.
    pub bank: Vec<u64>,
    /// Row bits.
    pub row: Vec<u64>,
}

impl AddressFields {
    /// Of a memory of which only the bank functions are known: the rows are distinguished by every
    /// address bit from `column_bits` to `address_bits` - 1 that does not follow from the bank and
    /// the lower row bits, so that no two places have the same bank, row and column. A row of 8
    /// KiB, for instance, has 13 column bits.
    #[must_use]
    pub fn from_banks(bank: Vec<u64>, column_bits: u32, address_bits: u32) -> Self {
        let mut basis = [0_u64; 64];
        for &mask in &bank {
            insert(&mut basis, mask >> column_bits.min(63) << column_bits.min(63));
        }
        let bits = (column_bits..address_bits.min(64)).map(|bit| 1_u64 << bit);
        let row = bits.filter(|&bit| insert(&mut basis, bit)).collect();
        Self { bank, row, ..Self::default() }
    }
}

/// Why address functions are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressMapError {
    /// A bit's value follows from those of the bits before it (or it is constant): two different
    /// banks or rows would be one.
    Dependent {
        /// Field of the bit.
        field: &'static str,
        /// Number of the bit in the field, from 0.
        bit: usize,
    },
    /// More bits than the model counts with.
    TooMany {
        /// What has too many.
        field: &'static str,
        /// How many it has.
        bits: usize,
        /// How many it may have.
        most: usize,
    },
}

impl fmt::Display for AddressMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dependent { field, bit } => write!(
                f,
                "DRAM {field} bit {bit} is a combination of the bits before it (order: channel, \
                 rank, group, bank, row): give it an address bit that is in no other mask"
            ),
            Self::TooMany { field, bits, most } => {
                write!(f, "{bits} DRAM {field} bits: give at most {most}")
            }
        }
    }
}

impl core::error::Error for AddressMapError {}

/// The masks of a field that is a range of address bits with nothing XORed in.
#[must_use]
pub fn plain_bits(bits: RangeInclusive<u32>) -> Vec<u64> {
    bits.map(|bit| 1 << bit).collect()
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DramLocation {
    /// The bank among all banks of all channels: channel, rank, group and bank, channel in the
    /// highest bits.
    pub bank: u32,
    /// The row within the bank.
    pub row: u32,
}

/// A compiled address map.
#[derive(Clone, Debug)]
pub struct AddressMap {
    fields: AddressFields,
    bank_bits: u32,
    /// No mask has a bit above the lowest 32.
    low_only: bool,
    /// `bank << 32 | row` of each value of each byte, lowest byte first.
    tables: Box<[[u64; 256]; 8]>,
}

impl AddressMap {
    /// Compiles address functions.
    ///
    /// # Errors
    /// [`AddressMapError`] names the field and the bit.
    pub fn new(fields: AddressFields) -> Result<Self, AddressMapError> {
        let AddressFields { channel, rank, group, bank, row } = &fields;
        let bank_bits = channel.len() + rank.len() + group.len() + bank.len();
        for (field, bits, most) in [("bank", bank_bits, 12), ("row", row.len(), 32)] {
            if bits > most {
                return Err(AddressMapError::TooMany { field, bits, most });
            }
        }
        let named =
            [("channel", channel), ("rank", rank), ("group", group), ("bank", bank), ("row", row)];
        let mut basis = [0_u64; 64];
        for (field, masks) in named {
            for (bit, &mask) in masks.iter().enumerate() {
                if !insert(&mut basis, mask) {
                    return Err(AddressMapError::Dependent { field, bit });
                }
            }
        }
        let low_to_high = bank.iter().chain(group).chain(rank).chain(channel);
        let outputs = row
            .iter()
            .enumerate()
            .map(|(i, &mask)| (1_u64 << i, mask))
            .chain(low_to_high.enumerate().map(|(i, &mask)| (1 << (32 + i), mask)));
        let mut low_only = true;
        let mut tables = Box::new([[0_u64; 256]; 8]);
        for (output, mask) in outputs {
            low_only &= mask >> 32 == 0;
            for (table, byte) in tables.iter_mut().zip(mask.to_le_bytes()) {
                for (value, entry) in table.iter_mut().enumerate() {
                    if (value as u8 & byte).count_ones() % 2 == 1 {
                        *entry ^= output;
                    }
                }
            }
        }
        Ok(Self { bank_bits: bank_bits as u32, fields, low_only, tables })
    }

    /// The functions that it was compiled from.
    #[must_use]
    pub fn fields(&self) -> &AddressFields {
        &self.fields
    }

    /// Banks of all channels together.
    #[must_use]
    pub fn banks(&self) -> u32 {
        1 << self.bank_bits
    }

    /// The place of an address.
    #[must_use]
    #[inline]
    pub fn locate(&self, pa: Pa) -> DramLocation {
        let bytes = pa.0.to_le_bytes();
        let look_up = |packed, byte: usize| packed ^ self.tables[byte][usize::from(bytes[byte])];
        let mut packed = (0..4).fold(0, look_up);
        if !self.low_only {
            packed = (4..8).fold(packed, look_up);
        }
        DramLocation { bank: (packed >> 32) as u32, row: packed as u32 }
    }
}

/// Gauss: adds a vector to a basis; false if it was a combination of the basis already.
fn insert(basis: &mut [u64; 64], mut vector: u64) -> bool {
    while vector != 0 {
        let top = vector.ilog2() as usize;
        if basis[top] == 0 {
            basis[top] = vector;
            return true;
        }
        vector ^= basis[top];
    }
    false
}
