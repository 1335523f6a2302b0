//! The hypervisor as it lies in memory.

use object::{
    Endianness,
    elf::{FileHeader64, PT_LOAD},
    read::elf::{ElfFile, ProgramHeader},
};
use weir_abi::PAGE;
use weir_model::HypervisorSize;

/// A hypervisor as the image file has it.
#[derive(Debug)]
pub(crate) struct Flat {
    /// The contents of its segments, up to a multiple of the page.
    pub bytes: Vec<u8>,
    /// Bytes that it takes in memory, up to a multiple of the page.
    memory: u64,
}

impl Flat {
    pub(crate) fn size(&self) -> HypervisorSize {
        HypervisorSize { file: self.bytes.len() as u64, memory: self.memory }
    }
}

/// Puts the PT_LOAD segments of the hypervisor at their physical addresses, from the lowest on,
/// with zeros between their contents. What follows the last contents is memory only.
pub(crate) fn flatten(elf: &[u8]) -> Result<Flat, String> {
    const LARGEST: u64 = 64 << 20;
    let file =
        ElfFile::<FileHeader64<Endianness>>::parse(elf).map_err(|error| error.to_string())?;
    let endian = file.endian();
    let segments = || {
        let loaded = file.elf_program_headers().iter();
        loaded.filter(|header| header.p_type(endian) == PT_LOAD && header.p_memsz(endian) > 0)
    };
    let start =
        segments().map(|header| header.p_paddr(endian)).min().ok_or("it has no segments")?;
    let mut flat = Flat { bytes: Vec::new(), memory: 0 };
    for header in segments() {
        let data = header.data(endian, elf).map_err(|()| "a segment is cut short")?;
        let offset = header.p_paddr(endian) - start;
        let length = header.p_memsz(endian).max(data.len() as u64);
        let end = offset.checked_add(length).filter(|end| *end <= LARGEST);
        let end = end.ok_or("its segments are too far apart")?;
        flat.memory = flat.memory.max(end.next_multiple_of(PAGE));
        if data.is_empty() {
            continue;
        }
        let offset = offset as usize;
        let end = offset + data.len();
        if flat.bytes.len() < end {
            flat.bytes.resize(end.next_multiple_of(PAGE as usize), 0);
        }
        flat.bytes[offset..end].copy_from_slice(data);
    }
    Ok(flat)
}

/// Returns whether an image begins with the hypervisor in this ELF file. The header for the boot
/// loader is left out, as [`build`](crate::build) changes it.
pub(crate) fn begins_with(image: &[u8], elf: &[u8]) -> bool {
    const HEADER: usize = 64;
    flatten(elf).is_ok_and(|Flat { bytes, .. }| {
        let there = image.get(HEADER..bytes.len());
        there.is_some() && there == bytes.get(HEADER..)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with these segments: (physical address, size in memory, contents).
    fn elf(segments: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56 * segments.len()];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[16..20].copy_from_slice(&[2, 0, 183, 0]);
        file[20] = 1;
        file[32] = 64;
        file[52] = 64;
        file[54] = 56;
        file[56] = segments.len() as u8;
        for (n, (address, size, contents)) in segments.iter().enumerate() {
            let offset = file.len() as u64;
            file.extend_from_slice(contents);
            let header = &mut file[64 + 56 * n..][..56];
            header[0] = 1;
            let fields = [offset, 0xffff_0000_0000_0000, *address, contents.len() as u64, *size];
            for (field, value) in fields.iter().enumerate() {
                header[8 + 8 * field..][..8].copy_from_slice(&value.to_le_bytes());
            }
        }
        file
    }

    #[test]
    fn segments_lie_at_their_physical_addresses() {
        let file = elf(&[(0x3000, 0x1800, b"data"), (0x1000, 4, b"code"), (0, 0, b"")]);
        let flat = flatten(&file).expect("an ELF file");
        let size = HypervisorSize { file: 0x3000, memory: 0x4000 };
        assert_eq!(flat.size(), size, "the file ends before .bss, up to a page");
        let flat = flat.bytes;
        assert_eq!((&flat[..5], &flat[0x2000..0x2005]), (&b"code\0"[..], &b"data\0"[..]));
        let mut image = [flat.as_slice(), b"the packed system"].concat();
        image[16] = 1;
        assert!(begins_with(&image, &file), "the size in the header may differ");
        image[0x2000] = b'D';
        assert!(!begins_with(&image, &file) && !begins_with(&flat[..64], &file));
    }

    #[test]
    fn strange_files_are_refused() {
        assert!(flatten(b"no ELF file").is_err());
        assert!(flatten(&elf(&[])).is_err());
        assert!(flatten(&elf(&[(0, 1, b""), (1 << 40, 1, b"")])).is_err());
        assert!(flatten(&elf(&[(0, u64::MAX, b"")])).is_err());
        assert!(flatten(&elf(&[(0, 1, b"more than its size")])).is_ok());
        let file = elf(&[(0, 16, b"0123456789")]);
        assert!(flatten(&file[..file.len() - 1]).is_err(), "cut short");
    }
}
