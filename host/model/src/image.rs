//! What a VM's image puts where in its RAM.

use crate::diagnostics::Code;
use crate::fault::{Fault, File};
use crate::ranges::{overlap, span};
use crate::text::hex;
use crate::vm::{Image, RamPiece, Vm};
use object::{
    LittleEndian as LE, elf,
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use std::ops::Range;
use weir_units::{Bytes, Ipa};

/// Block that Linux wants to be aligned to (Documentation/arch/arm64/booting.rst), and distance of
/// an image from the start of RAM, where the device tree is.
pub(crate) const BLOCK: u64 = 2 << 20;

/// Most PT_LOAD segments of an ELF file; linkers make about four.
const MOST_SEGMENTS: usize = 256;

/// Why an image cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub code: Code,
    pub message: String,
    pub help: String,
    pub subject: Subject,
}

/// Which value of the file the problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Image,
    Initrd,
    DeviceTree,
}

fn problem(code: Code, message: impl Into<String>, help: impl Into<String>) -> Problem {
    Problem { code, message: message.into(), help: help.into(), subject: Subject::Image }
}

/// Something in a VM's RAM when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    /// What it is, for a person.
    pub what: String,
    pub start: u64,
    pub data: &'a [u8],
    /// Bytes that it takes, those that start as zero included.
    pub len: u64,
}

impl Part<'_> {
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.len)
    }
}

/// An image that fits into its VM's RAM.
#[derive(Clone, Debug)]
pub(crate) struct Program<'a> {
    pub entry: u64,
    pub parts: Vec<Part<'a>>,
    /// Where Linux finds its initial RAM disk.
    pub initrd: Option<Range<u64>>,
}

/// Lays out `image`, with its bytes in `bytes` and `initrd`, in RAM.
pub(crate) fn lay_out<'a>(
    image: &Image,
    bytes: &'a [u8],
    initrd: Option<&'a [u8]>,
    memory: &[RamPiece],
) -> Result<Program<'a>, Vec<Problem>> {
    let program = match image {
        Image::Elf { .. } => elf(bytes)?,
        Image::Bin { load, entry, .. } => bin(bytes, load.0, entry.0)?,
        Image::Linux { .. } => linux(bytes, initrd, memory)?,
    };
    let mut problems = Vec::new();
    for part in &program.parts {
        if !in_ram(&part.range(), memory) {
            let subject = if part.what == INITRD { Subject::Initrd } else { Subject::Image };
            // `ld` puts the file's headers in front of the first section and loads them with it,
            // 64 KiB or less below the address that the program was linked at.
            let is_headers =
                matches!(image, Image::Elf { .. }) && part.data.starts_with(b"\x7fELF");
            let message = format!(
                "{}{} needs {} to {}, which is not in the VM's RAM",
                part.what,
                if is_headers { ", which begins with the file's headers," } else { "" },
                hex(part.start),
                hex(part.range().end),
            );
            let elsewhere = match image {
                Image::Elf { .. } => "link the image elsewhere",
                Image::Bin { .. } => "change `load`",
                Image::Linux { .. } => "use a smaller image",
            };
            let help = if is_headers {
                let ram = ram(memory);
                format!("link it with `ld -n` (`gcc -Wl,-n`), which leaves them out; RAM is {ram}")
            } else {
                format!("its RAM is {}; enlarge or move it, or {elsewhere}", ram(memory))
            };
            problems.push(Problem { subject, ..problem(Code::OutsideRam, message, help) });
        }
    }
    for (index, part) in program.parts.iter().enumerate() {
        for other in &program.parts[..index] {
            if overlap(&part.range(), &other.range()) {
                let message = format!(
                    "{} ({}) and {} ({}) overlap",
                    other.what,
                    span(&other.range()),
                    part.what,
                    span(&part.range()),
                );
                problems.push(problem(
                    Code::Overlap,
                    message,
                    "link the image with physical addresses that are apart",
                ));
            }
        }
    }
    if problems.is_empty() { Ok(program) } else { Err(problems) }
}

pub(crate) fn in_ram(range: &Range<u64>, memory: &[RamPiece]) -> bool {
    memory.iter().any(|piece| piece.base.0 <= range.start && range.end <= piece.end())
}

/// Where RAM is; of many pieces the first.
pub(crate) fn ram(memory: &[RamPiece]) -> String {
    const SHOWN: usize = 8;
    let pieces: Vec<_> =
        memory.iter().take(SHOWN).map(|piece| span(&(piece.base.0..piece.end()))).collect();
    match memory.len().saturating_sub(SHOWN) {
        0 => pieces.join(" and "),
        more => format!("{} and {more} more", pieces.join(", ")),
    }
}

const INITRD: &str = "the initial RAM disk";

fn elf(bytes: &[u8]) -> Result<Program<'_>, Vec<Problem>> {
    let fail = |code, message: &str, help: &str| Err(vec![problem(code, message, help)]);
    if !bytes.starts_with(b"\x7fELF") {
        let help = if bytes.get(56..60) == Some(b"ARM\x64") {
            "this is an arm64 Image: write `linux = ...`, or `bin = ...` if it is no Linux"
        } else {
            "for a flat binary write `bin = ...`"
        };
        return fail(Code::ElfUnusable, "the image is not an ELF file", help);
    }
    let target = "build it for aarch64-unknown-none or with aarch64-linux-gnu-gcc";
    if bytes.get(4) != Some(&elf::ELFCLASS64) {
        return fail(Code::ElfUnusable, "the image is a 32-bit ELF file", target);
    }
    if bytes.get(5) != Some(&elf::ELFDATA2LSB) {
        return fail(Code::ElfUnusable, "the image is a big-endian ELF file", target);
    }
    let damaged = |error: object::Error| {
        vec![problem(
            Code::ElfUnusable,
            format!("the ELF file is damaged: {error}"),
            "build it again",
        )]
    };
    let file = elf::FileHeader64::<LE>::parse(bytes).map_err(damaged)?;
    if file.e_machine(LE) != elf::EM_AARCH64 {
        let machine = match file.e_machine(LE) {
            elf::EM_X86_64 => "x86-64",
            elf::EM_RISCV => "RISC-V",
            _ => "another processor",
        };
        return fail(
            Code::ElfUnusable,
            &format!("the ELF file is for {machine}, not AArch64"),
            target,
        );
    }
    let headers = file.program_headers(LE, bytes).map_err(damaged)?;
    if headers.iter().any(|header| header.p_type(LE) == elf::PT_INTERP) {
        return fail(
            Code::ElfUnusable,
            "the ELF file needs a dynamic linker",
            "link it statically",
        );
    }
    let loaded =
        headers.iter().filter(|header| header.p_type(LE) == elf::PT_LOAD && header.p_memsz(LE) > 0);
    // Each two of them are compared, and each takes a place in the packed system.
    if loaded.clone().count() > MOST_SEGMENTS {
        let message = format!("the ELF file has more than {MOST_SEGMENTS} segments to load");
        return fail(Code::ElfUnusable, &message, "link it with fewer PT_LOAD segments");
    }
    let mut parts = Vec::new();
    for (index, header) in loaded.clone().enumerate() {
        let Ok(data) = header.data(LE, bytes) else {
            let message = format!("the ELF file is damaged: segment {index} is cut short");
            return fail(Code::ElfUnusable, &message, "build it again");
        };
        if header.p_filesz(LE) > header.p_memsz(LE) {
            return fail(
                Code::ElfUnusable,
                "the ELF file is damaged: a segment is larger in the file than in memory",
                "build it again",
            );
        }
        let what = format!("segment {index} of the ELF file");
        parts.push(Part { what, start: header.p_paddr(LE), data, len: header.p_memsz(LE) });
    }
    if parts.is_empty() {
        return fail(
            Code::ElfUnusable,
            "the ELF file has nothing to load",
            "link it with a PT_LOAD segment",
        );
    }
    // The entry is a virtual address, and the VM starts with its MMU off.
    let entry = loaded.into_iter().find_map(|header| {
        let offset = file.e_entry(LE).checked_sub(header.p_vaddr(LE))?;
        (offset < header.p_memsz(LE)).then(|| header.p_paddr(LE).checked_add(offset))?
    });
    match entry {
        Some(entry) if entry.is_multiple_of(4) => Ok(Program { entry, parts, initrd: None }),
        _ => {
            let message = format!(
                "the ELF file's entry {} is in none of its segments",
                hex(file.e_entry(LE))
            );
            fail(
                Code::OutsideRam,
                &message,
                "give the linker an entry symbol that is loaded, 4-byte aligned",
            )
        }
    }
}

fn bin(bytes: &[u8], load: u64, entry: u64) -> Result<Program<'_>, Vec<Problem>> {
    if bytes.is_empty() {
        return Err(vec![problem(Code::ImageEmpty, "the image is empty", "build it again")]);
    }
    let part =
        Part { what: "the image".to_owned(), start: load, data: bytes, len: bytes.len() as u64 };
    if !part.range().contains(&entry) || !entry.is_multiple_of(4) {
        let message = format!(
            "the entry {} is no instruction of the image ({})",
            hex(entry),
            span(&part.range())
        );
        return Err(vec![problem(
            Code::OutsideRam,
            message,
            "move `entry` into the image, 4-byte aligned, or leave it out",
        )]);
    }
    Ok(Program { entry, parts: vec![part], initrd: None })
}

/// Documentation/arch/arm64/booting.rst: the header, and the alignment of kernel and initial RAM
/// disk.
fn linux<'a>(
    bytes: &'a [u8],
    initrd: Option<&'a [u8]>,
    memory: &[RamPiece],
) -> Result<Program<'a>, Vec<Problem>> {
    let fail = |code, message: &str, help: &str| Err(vec![problem(code, message, help)]);
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (Some(text_offset), Some(image_size), Some(flags), Some(b"ARM\x64")) =
        (word(8), word(16), word(24), bytes.get(56..60))
    else {
        let help = if bytes.starts_with(&[0x1f, 0x8b]) {
            "it is compressed: unpack it with gunzip"
        } else if bytes.starts_with(b"\x7fELF") {
            "it is an ELF file: give arch/arm64/boot/Image of the kernel's build"
        } else {
            "give arch/arm64/boot/Image of a kernel's build, or \"debian-rt\""
        };
        return fail(Code::LinuxUnusable, "the image is not an arm64 Linux Image", help);
    };
    if flags & 1 != 0 {
        return fail(
            Code::LinuxUnusable,
            "the kernel is big-endian",
            "build it with CONFIG_CPU_LITTLE_ENDIAN",
        );
    }
    let Some(first) = memory.first() else {
        return fail(Code::OutsideRam, "the VM has no RAM", "give it `memory`");
    };
    let size = image_size.max(bytes.len() as u64);
    let place = || {
        let start = first.base.0.checked_next_multiple_of(BLOCK)?.checked_add(BLOCK)?;
        let start = start.checked_add(text_offset)?;
        let end = start.checked_add(size)?;
        Some((start, end, end.checked_next_multiple_of(BLOCK)?))
    };
    let Some((start, _, behind)) = place() else {
        return fail(
            Code::LinuxUnusable,
            "the kernel's header gives a size beyond all memory",
            "build it again",
        );
    };
    let mut parts = vec![Part { what: "the kernel".to_owned(), start, data: bytes, len: size }];
    let mut disk = None;
    if let Some(data) = initrd {
        if data.is_empty() {
            let empty =
                problem(Code::ImageEmpty, "the initial RAM disk is empty", "build it again");
            return Err(vec![Problem { subject: Subject::Initrd, ..empty }]);
        }
        let part = Part { what: INITRD.to_owned(), start: behind, data, len: data.len() as u64 };
        disk = Some(part.range());
        parts.push(part);
    }
    Ok(Program { entry: start, parts, initrd: disk })
}

/// Load address of a flat binary, if the file does not set it.
pub(crate) fn default_load(memory: &[RamPiece]) -> Ipa {
    Ipa(memory.first().map_or(0, |piece| piece.base.0).saturating_add(BLOCK))
}

/// How much of `data` must be stored: trailing pages of zeros need not, as RAM starts as zero.
pub(crate) fn stored(data: &[u8]) -> &[u8] {
    let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let end = end.next_multiple_of(weir_abi::PAGE as usize).min(data.len());
    if data.iter().take(end).all(|byte| *byte == 0) { &[] } else { &data[..end] }
}

/// All of a VM's RAM.
pub(crate) fn total(memory: &[RamPiece]) -> Bytes {
    Bytes(memory.iter().fold(0, |sum, piece| piece.size.0.saturating_add(sum)))
}

impl Vm {
    /// Where an image can be in RAM that `tlb_colors` cuts.
    fn pieces_help(&self) -> String {
        let longest = self.memory.iter().map(|piece| piece.size.0).max().unwrap_or(0);
        format!(
            "`tlb_colors` leaves holes in the RAM of {}: its {} pieces, of at most {}, are {}; \
             link each segment to lie in one of them, give it more adjacent sets, or leave \
             `tlb_colors` out",
            self,
            self.memory.len(),
            Bytes(longest),
            ram(&self.memory),
        )
    }

    /// The fault that `problem` with its image is.
    pub(crate) fn image_fault(&self, file: &File, problem: Problem) -> Fault {
        let place = match problem.subject {
            Subject::Image => &self.spans.image,
            Subject::Initrd => &self.spans.initrd,
            Subject::DeviceTree => &self.spans.device_tree,
        };
        let message = format!("{self}: {}", problem.message);
        let fault = Fault::new(problem.code, file, place.clone(), message).help(problem.help);
        if problem.code == Code::OutsideRam {
            let fault =
                fault.label("this does not fit").and(self.spans.memory.clone(), "into this RAM");
            match &self.spans.tlb_colors {
                Some(span) => fault
                    .and(span.clone(), "which these sets cut into pieces")
                    .help(self.pieces_help()),
                None => fault,
            }
        } else if problem.subject == Subject::DeviceTree {
            fault
                .label("the device tree lies in here")
                .and(self.spans.image.clone(), "and this too")
        } else {
            fault.label("this")
        }
    }
}
