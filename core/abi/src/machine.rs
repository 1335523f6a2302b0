//! The facts that EL2 reads from the machine's device tree (Devicetree Specification 0.4, chapter
//! 5), which the firmware passes: the size of the RAM, and whether there is an SMMU.
//!
//! A general parser is not used, because its errors and their texts were a tenth of the smallest
//! hypervisor.

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;

/// Bytes of the header, which contains the length of the whole tree.
pub const HEADER_LEN: usize = 40;

/// The facts in the device tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// Bytes of RAM from the given base on, in all pieces.
    pub ram: u64,
    /// Whether there is an SMMUv3; only valid if it was searched for.
    pub has_smmu: bool,
}

/// Returns the length of the device tree that begins with `header`, if it is one.
#[must_use]
pub fn tree_len(header: &[u8]) -> Option<u32> {
    if word(header, 0)? == MAGIC { word(header, 4) } else { None }
}

/// Reads the device tree `tree`. Returns `None` if it is damaged or describes no RAM from
/// `ram_base` on. Stops as soon as the facts are known, because a search for an SMMU can walk over
/// all nodes.
#[must_use]
pub fn read(tree: &[u8], ram_base: u64, asks_smmu: bool) -> Option<MachineFacts> {
    tree_len(tree)?;
    let block = |start: usize, len: usize| {
        let start = word(tree, start)? as usize;
        tree.get(start..start.checked_add(word(tree, len)? as usize)?)
    };
    let (structure, strings) = (block(8, 36)?, block(12, 32)?);
    let (mut at, mut depth) = (0usize, 0u32);
    // Words per address and per size, by default.
    let mut cells = [2, 1];
    let (mut in_memory, mut ram, mut has_smmu) = (false, None, false);
    while ram.is_none() || (asks_smmu && !has_smmu) {
        let token = word(structure, at)?;
        let rest = structure.get(at.checked_add(4)?..)?;
        let used = match token {
            BEGIN_NODE => {
                depth = depth.checked_add(1)?;
                let len = rest.iter().position(|byte| *byte == 0)?;
                let name = rest.get(..len)?;
                in_memory = depth == 2 && (name == b"memory" || name.starts_with(b"memory@"));
                len.checked_add(1)?
            }
            END_NODE => {
                depth = depth.checked_sub(1)?;
                in_memory = false;
                0
            }
            PROPERTY => {
                let len = word(rest, 0)? as usize;
                let value = rest.get(8..)?.get(..len)?;
                if depth <= 2 {
                    let name = strings.get(word(rest, 4)? as usize..)?;
                    let is = |wanted: &[u8]| name.starts_with(wanted);
                    if depth == 1 && is(b"#address-cells\0") {
                        cells[0] = word(value, 0)? as usize;
                    } else if depth == 1 && is(b"#size-cells\0") {
                        cells[1] = word(value, 0)? as usize;
                    } else if in_memory && ram.is_none() && is(b"reg\0") {
                        ram = ram_from(value, cells, ram_base);
                    } else if depth == 2 && is(b"compatible\0") {
                        has_smmu |= value.starts_with(b"arm,smmu-v3\0");
                    }
                }
                len.checked_add(8)?
            }
            NOP => 0,
            END => break,
            _ => return None,
        };
        at = at.checked_add(4)?.checked_add(used)?.checked_next_multiple_of(4)?;
    }
    Some(MachineFacts { ram: ram?, has_smmu })
}

/// Returns the number of bytes at `base` and above in the ranges of `reg`, or `None` if there are
/// none.
fn ram_from(reg: &[u8], cells: [usize; 2], base: u64) -> Option<u64> {
    let [of_address, of_size] = cells;
    if !(1..=2).contains(&of_address) || !(1..=2).contains(&of_size) {
        return None;
    }
    let pieces = reg.chunks_exact((of_address + of_size) * 4).filter_map(|range| {
        let (start, len) = (number(range, 0, of_address)?, number(range, of_address, of_size)?);
        Some(start.saturating_add(len).saturating_sub(start.max(base)))
    });
    Some(pieces.fold(0, u64::saturating_add)).filter(|&bytes| bytes > 0)
}

/// Returns the number of `count` words from word `first` on.
fn number(range: &[u8], first: usize, count: usize) -> Option<u64> {
    (first..first + count)
        .try_fold(0, |number: u64, index| Some(number << 32 | u64::from(word(range, index * 4)?)))
}

/// Returns the big-endian word at `at`.
#[inline(never)]
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}
