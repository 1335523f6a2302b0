//! The machine's memory as a file without a name: QEMU maps it, and what the hypervisor and the
//! guests leave in theirs can be read from outside while they run.
//!
//! The file exists as long as a process has it open, so nothing is left behind, independently of
//! which process is killed first.

use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    ops::Range,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::FileExt,
    },
};
use weir_image::{Failure, Result, failure::Context};
use weir_model::platform::RamRange;
use weir_units::Bytes;
use weir_units::Pa;

/// The machine's RAM.
#[derive(Debug)]
pub struct Ram {
    file: File,
    /// The physical addresses of the file's consecutive pieces.
    pieces: Vec<Range<u64>>,
    size: Bytes,
}

impl Ram {
    /// Returns zeroed memory of `size` bytes at these places in the machine. Each place but the
    /// last is filled before the next. No page exists before its first access.
    pub fn new(places: impl IntoIterator<Item = RamRange>, size: Bytes) -> Result<Self> {
        let making = || format!("make {} MiB of memory for the machine", size.0 >> 20);
        let file = memfd_create("weir-ram", MemfdFlags::CLOEXEC).map_err(io::Error::from);
        let file = File::from(file.context(making)?);
        file.set_len(size.0).context(making)?;
        let mut pieces: Vec<Range<u64>> = Vec::new();
        let mut rest = size.0;
        let mut places = places.into_iter().peekable();
        while let Some(RamRange { base, size }) = places.next() {
            let len = if places.peek().is_some() { rest.min(size.0) } else { rest };
            pieces.push(base.0..base.0.saturating_add(len));
            rest -= len;
        }
        Ok(Self { file, pieces, size })
    }

    /// Returns the offset in the file of the `len` bytes at `pa`, or `None` if they are not all in
    /// one piece.
    pub fn offset(&self, pa: Pa, len: u64) -> Option<u64> {
        let mut before = 0;
        for piece in &self.pieces {
            if piece.contains(&pa.0) {
                return (len <= piece.end - pa.0).then_some(before + (pa.0 - piece.start));
            }
            before += piece.end - piece.start;
        }
        None
    }

    /// Fills `into` with what the machine has at `pa` and behind. A core may write at the same
    /// time, so that only bytes that no core writes then are consistent.
    ///
    /// # Errors
    /// `InvalidInput` when it is not all in RAM.
    pub fn read(&self, pa: Pa, into: &mut [u8]) -> io::Result<()> {
        match self.offset(pa, into.len() as u64) {
            Some(offset) => self.file.read_exact_at(into, offset),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} bytes at {:#x} are not in the machine's RAM", into.len(), pa.0),
            )),
        }
    }

    /// What the machine would store at `pa`.
    #[cfg(test)]
    pub fn write_for_tests(&self, pa: Pa, bytes: &[u8]) {
        let offset = self.offset(pa, bytes.len() as u64).expect("a place in RAM");
        self.file.write_all_at(bytes, offset).expect("a write");
    }

    /// The file, for a child that inherits it under the same number.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where such a child finds it; offset 0 is the first byte of the first piece.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// QEMU's arguments that make it the machine's memory. They stand before the user's own.
    pub fn arguments(&self) -> [String; 4] {
        let backend = format!(
            "memory-backend-file,id=ram,size={},share=on,prealloc=off,mem-path={}",
            self.size.0,
            self.path()
        );
        ["-object".into(), backend, "-machine".into(), "memory-backend=ram".into()]
    }
}

/// The size of the machine's memory: what the user's own arguments for QEMU make it, else
/// `platforms`.
///
/// # Errors
/// The failure of a call: arguments that put other memory in this one's place, or a size that is
/// none.
pub fn size(platforms: Bytes, extra: &[OsString]) -> Result<Bytes> {
    let mut size = platforms;
    let mut words = extra.iter();
    while let Some(word) = words.next() {
        let name = word.to_str().and_then(|word| word.strip_prefix('-'));
        let name = name.map(|name| name.strip_prefix('-').unwrap_or(name));
        if !matches!(name, Some("m" | "M" | "machine" | "mem-path")) {
            continue;
        }
        let value = words.next().map(OsString::as_os_str).unwrap_or_default();
        let text = value.to_string_lossy();
        let foreign = text.split(',').any(|part| part.starts_with("memory-backend="));
        if name == Some("m") {
            size = memory(value).ok_or_else(|| {
                Failure::call(format!(
                    "--qemu-arg {text}: not a size that weir can read: give -m as MiB, or with K, \
                     M, G or T, such as 512M"
                ))
            })?;
        } else if foreign || name == Some("mem-path") {
            let option = word.to_string_lossy();
            return Err(Failure::call(format!(
                "--qemu-arg {option}, --qemu-arg {text}: the machine's memory is weir's own file, \
                 which it reads the trace from: leave memory-backend and mem-path out; -m alone \
                 changes its size"
            )));
        }
    }
    Ok(size)
}

/// The value of QEMU's `-m`.
fn memory(value: &OsStr) -> Option<Bytes> {
    let parts = || value.to_str().into_iter().flat_map(|value| value.split(','));
    let named = parts().find_map(|part| part.strip_prefix("size="));
    let text = named.or_else(|| parts().next())?;
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)? {
        "b" | "B" => 0,
        "k" | "K" => 10,
        "" | "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    // QEMU rounds up to whole pages of 8 KiB; a size that no page divides would be another one
    // there.
    (bytes > 0 && bytes.is_multiple_of(1 << 13)).then_some(Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base: u64, size: u64) -> RamRange {
        RamRange { base: Pa(base), size: Bytes(size) }
    }

    fn sized(extra: &[&str]) -> Result<Bytes> {
        let extra: Vec<OsString> = extra.iter().map(Into::into).collect();
        size(Bytes(1 << 30), &extra)
    }

    #[test]
    fn it_reads_what_was_written_and_nothing_outside() {
        let ram = Ram::new([at(0x4000_0000, 1 << 30)], Bytes(1 << 20)).expect("memory");
        ram.write_for_tests(Pa(0x4000_1000), b"weir");
        let mut four = [1; 4];
        ram.read(Pa(0x4000_1000), &mut four).expect("in RAM");
        assert_eq!(&four, b"weir");
        ram.read(Pa(0x400f_fffc), &mut four).expect("the last bytes");
        assert_eq!(four, [0; 4]);
        for pa in [0x3fff_ffff, 0x400f_fffd, 0, u64::MAX] {
            let error = ram.read(Pa(pa), &mut four).expect_err("outside");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("{pa:#x}")), "{error}");
        }
    }

    #[test]
    fn its_pieces_are_consecutive_in_the_file() {
        let places = [at(0, 1 << 20), at(0x8_0000_0000, 1 << 20)];
        let ram = Ram::new(places, Bytes(3 << 19)).expect("memory");
        ram.write_for_tests(Pa(0xf_fffc), b"weir");
        ram.write_for_tests(Pa(0x8_0000_0000), b"more");
        let mut eight = [0; 8];
        ram.file.read_exact_at(&mut eight, 0xf_fffc).expect("in the file");
        assert_eq!(&eight, b"weirmore");
        let mut four = [1; 4];
        ram.read(Pa(0x8_0007_fffc), &mut four).expect("the last bytes");
        assert_eq!(four, [0; 4]);
        // No access extends from one piece into the next.
        for pa in [0xf_fffd, 0x10_0000, 0x7_ffff_ffff, 0x8_0007_fffd] {
            assert!(ram.read(Pa(pa), &mut four).is_err(), "{pa:#x}");
        }
        // The machine has less memory than the first piece.
        let small = Ram::new([at(0, 1 << 20), at(0x8_0000_0000, 1 << 20)], Bytes(1 << 19));
        let small = small.expect("memory");
        assert!(small.read(Pa(0x7_fffc), &mut four).is_ok());
        assert!(small.read(Pa(0x8_0000_0000), &mut four).is_err());
    }

    #[test]
    fn its_size_is_the_last_one_given_to_qemu() {
        for (extra, bytes) in [
            (&[][..], 1 << 30),
            (&["-smp", "1"], 1 << 30),
            (&["-m", "64M"], 64 << 20),
            (&["-m", "64"], 64 << 20),
            (&["--m", "2G", "-m", "size=512m,slots=2"], 512 << 20),
            (&["-machine", "virt,virtualization=off", "-m", "8192k"], 8 << 20),
        ] {
            assert_eq!(sized(extra).expect("a size"), Bytes(bytes), "{extra:?}");
        }
    }

    #[test]
    fn other_memory_is_refused_with_the_reason() {
        for (extra, expected) in [
            (&["-m", "lots"][..], "lots: not a size"),
            (&["-m", "0"], "not a size"),
            (&["-m", "1b"], "not a size"),
            (&["-m", "99999999999T"], "not a size"),
            (&["-m"], "not a size"),
            (&["-machine", "virt,memory-backend=mine"], "memory-backend and mem-path"),
            (&["-M", "memory-backend=mine"], "weir's own"),
            (&["-mem-path", "/dev/shm"], "weir's own"),
        ] {
            let failure = sized(extra).expect_err("refused");
            assert!(failure.text.contains(expected), "{extra:?}: {}", failure.text);
        }
    }
}
