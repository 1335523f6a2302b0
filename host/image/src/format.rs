//! Wraps an image for its loader: the formats of U-Boot, and ELF for simulators and debuggers.

use crate::failure::{Failure, Result};
use dtoolkit::{
    ToPropertyValue,
    model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty},
};
use object::{
    LittleEndian, U16, U32, U64,
    elf::{self, FileHeader64, Ident, ProgramHeader64},
    pod::bytes_of,
};
use sha2::{Digest, Sha256};
use weir_model::System;

/// A file format of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The arm64 Image itself, for `booti` and for QEMU.
    #[default]
    Image,
    /// U-Boot's legacy image, for `bootm`.
    Uimage,
    /// U-Boot's flattened image tree, for `bootm`.
    Fit,
    /// An ELF file with one segment, for gem5 and for debuggers that load.
    Elf,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Image, Self::Uimage, Self::Fit, Self::Elf];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Uimage => "uimage",
            Self::Fit => "fit",
            Self::Elf => "elf",
        }
    }

    /// Returns the extension of its files.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Image => "img",
            Self::Uimage => "uimg",
            Self::Fit => "itb",
            Self::Elf => "elf",
        }
    }

    /// Wraps the image of a system.
    ///
    /// # Errors
    ///
    /// The system is at fault if the format has no room for the image's address or length.
    pub fn wrap(self, image: Vec<u8>, system: &System) -> Result<Vec<u8>> {
        let load = system.platform().load_address.0;
        match self {
            Self::Image => Ok(image),
            Self::Uimage => {
                let name = format!("weir {}", crate::name(system));
                uimage(&image, load, &name).ok_or_else(|| {
                    Failure::system(format!(
                        "a legacy image has 32 bits for the address and the length, and this image \
                         of {} bytes starts at {load:#x}: use --format fit",
                        image.len()
                    ))
                })
            }
            Self::Fit => {
                let title = format!("weir {} for {}", crate::name(system), system.platform().name);
                Ok(fit(image, load, &title))
            }
            Self::Elf => Ok(elf(&image, load)),
        }
    }
}

/// Returns U-Boot's legacy image: a header of 64 bytes in big-endian order, then the image (U-Boot,
/// include/image.h, `struct legacy_img_hdr`). The time in the header is 0, so that equal systems
/// have equal files.
fn uimage(image: &[u8], load: u64, name: &str) -> Option<Vec<u8>> {
    const MAGIC: u32 = 0x2705_1956;
    /// IH_OS_LINUX, IH_ARCH_ARM64, IH_TYPE_KERNEL, IH_COMP_NONE.
    const KIND: [u8; 4] = [5, 22, 2, 0];
    const NAME: usize = 32;
    let load = u32::try_from(load).ok()?;
    let length = u32::try_from(image.len()).ok()?;
    let header = |sum: u32| {
        let words = [MAGIC, sum, 0, length, load, load, weir_abi::checksum(image)];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend(KIND);
        bytes.extend(name.bytes().chain(std::iter::repeat(0)).take(NAME - 1));
        bytes.push(0);
        bytes
    };
    // The sum of the header is taken with a sum of 0 in it.
    let mut file = header(weir_abi::checksum(&header(0)));
    file.extend_from_slice(image);
    Some(file)
}

/// Returns U-Boot's flattened image tree with one kernel and one configuration (U-Boot,
/// doc/usage/fit/source_file_format.rst).
fn fit(image: Vec<u8>, load: u64, title: &str) -> Vec<u8> {
    // Older boot loaders read addresses of one cell only.
    let address = |node: &mut DeviceTreeNode, name| match u32::try_from(load) {
        Ok(load) => add(node, name, load),
        Err(_) => add(node, name, load),
    };
    let hash = |name: &str, algorithm: &str, value: Vec<u8>| {
        let mut hash = DeviceTreeNode::new_unchecked(name);
        add(&mut hash, "algo", algorithm);
        add(&mut hash, "value", value);
        hash
    };
    let crc = weir_abi::checksum(&image).to_be_bytes().to_vec();
    let sha = Sha256::digest(&image).to_vec();
    let mut kernel = DeviceTreeNode::new_unchecked("kernel");
    add(&mut kernel, "description", title);
    add(&mut kernel, "type", "kernel");
    add(&mut kernel, "arch", "arm64");
    // The boot protocol: x0 has the address of the device tree.
    add(&mut kernel, "os", "linux");
    add(&mut kernel, "compression", "none");
    address(&mut kernel, "load");
    address(&mut kernel, "entry");
    add(&mut kernel, "data", image);
    kernel.add_child(hash("hash-1", "crc32", crc));
    kernel.add_child(hash("hash-2", "sha256", sha));
    let mut images = DeviceTreeNode::new_unchecked("images");
    images.add_child(kernel);
    let mut configuration = DeviceTreeNode::new_unchecked("weir");
    add(&mut configuration, "description", title);
    add(&mut configuration, "kernel", "kernel");
    let mut configurations = DeviceTreeNode::new_unchecked("configurations");
    add(&mut configurations, "default", "weir");
    configurations.add_child(configuration);
    let mut tree = DeviceTree::new();
    add(&mut tree.root, "description", title);
    add(&mut tree.root, "timestamp", 0_u32);
    add(&mut tree.root, "#address-cells", 1_u32 + u32::from(u32::try_from(load).is_err()));
    tree.root.add_child(images);
    tree.root.add_child(configurations);
    tree.to_dtb()
}

/// Returns an ELF file of one segment, with the entry at its first byte.
fn elf(image: &[u8], load: u64) -> Vec<u8> {
    const OFFSET: usize = 0x1000;
    let half = |value: u16| U16::new(LittleEndian, value);
    let word = |value: u32| U32::new(LittleEndian, value);
    let long = |value: u64| U64::new(LittleEndian, value);
    let sizes =
        [size_of::<FileHeader64<LittleEndian>>(), size_of::<ProgramHeader64<LittleEndian>>()];
    let header = FileHeader64 {
        e_ident: Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: half(elf::ET_EXEC),
        e_machine: half(elf::EM_AARCH64),
        e_version: word(elf::EV_CURRENT.into()),
        e_entry: long(load),
        e_phoff: long(sizes[0] as u64),
        e_shoff: long(0),
        e_flags: word(0),
        e_ehsize: half(sizes[0] as u16),
        e_phentsize: half(sizes[1] as u16),
        e_phnum: half(1),
        e_shentsize: half(0),
        e_shnum: half(0),
        e_shstrndx: half(0),
    };
    let length = long(image.len() as u64);
    let segment = ProgramHeader64 {
        p_type: word(elf::PT_LOAD),
        p_flags: word(elf::PF_R | elf::PF_W | elf::PF_X),
        p_offset: long(OFFSET as u64),
        p_vaddr: long(load),
        p_paddr: long(load),
        p_filesz: length,
        p_memsz: length,
        p_align: long(OFFSET as u64),
    };
    let mut file = [bytes_of(&header), bytes_of(&segment)].concat();
    file.resize(OFFSET, 0);
    file.extend_from_slice(image);
    file
}

fn add(node: &mut DeviceTreeNode, name: &str, value: impl ToPropertyValue) {
    node.add_property(DeviceTreeProperty::new_unchecked(name, value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use dtoolkit::{Node, Property, fdt::Fdt};

    #[test]
    fn a_legacy_header_is_as_u_boot_reads_it() {
        let file = uimage(b"payload", 0x20_0000, "weir demo").expect("an image");
        let word = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().expect("a word"));
        assert_eq!((word(0), word(8), word(12)), (0x2705_1956, 0, 7));
        assert_eq!((word(16), word(20)), (0x20_0000, 0x20_0000));
        assert_eq!(&file[28..32], [5, 22, 2, 0]);
        assert_eq!(&file[32..42], b"weir demo\0");
        assert_eq!((file.len(), &file[64..]), (71, &b"payload"[..]));
        // U-Boot checks the header with the sum's own bytes as zeros.
        let mut header = file[..64].to_vec();
        header[4..8].fill(0);
        assert_eq!(word(4), weir_abi::checksum(&header));
        assert_eq!(word(24), weir_abi::checksum(b"payload"));
    }

    #[test]
    fn a_long_name_ends_with_a_zero() {
        let file = uimage(b"", 0, &"x".repeat(40)).expect("an image");
        assert_eq!((&file[32..63], file[63]), (&[b'x'; 31][..], 0));
        assert!(uimage(b"", 1 << 32, "far").is_none());
    }

    #[test]
    fn an_elf_file_has_the_image_in_one_segment() {
        use object::{Object as _, ObjectSegment as _};
        let file = elf(b"payload", 0x8020_0000);
        let file = object::File::parse(&*file).expect("an ELF file");
        assert_eq!(
            (file.architecture(), file.entry()),
            (object::Architecture::Aarch64, 0x8020_0000)
        );
        let segments: Vec<_> = file.segments().collect();
        assert_eq!((segments.len(), segments[0].address()), (1, 0x8020_0000));
        assert_eq!(segments[0].data().expect("its bytes"), b"payload");
    }

    #[test]
    fn an_image_tree_names_its_kernel() {
        for (load, cells) in [(0x20_0000, 1), (0x8_0000_0000, 2)] {
            let file = fit(b"payload".to_vec(), load, "weir demo for zcu102");
            let tree = Fdt::new(&file).expect("a tree");
            let kernel = tree.find_node("/images/kernel").expect("a kernel");
            let value = |name| kernel.property(name).expect("a property").value().to_vec();
            assert_eq!(value("data"), b"payload");
            assert_eq!(value("os"), b"linux\0");
            assert_eq!(value("load"), load.to_be_bytes()[8 - 4 * cells..]);
            assert_eq!(value("entry"), value("load"));
            let hash = tree.find_node("/images/kernel/hash-1").expect("a hash");
            let sum = hash.property("value").expect("a sum").value().to_vec();
            assert_eq!(sum, weir_abi::checksum(b"payload").to_be_bytes());
            let configurations = tree.find_node("/configurations").expect("configurations");
            let default = configurations.property("default").expect("a default");
            assert_eq!(default.value(), b"weir\0");
        }
    }
}
