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
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::FileExt,
    },
};
use weir_image::{Failure, Result, failure::Context};
use weir_units::Bytes;
use weir_units::Pa;

/// The machine's RAM.
#[derive(Debug)]
pub struct Ram {
    file: File,
    base: Pa,
    size: Bytes,
}

impl Ram {
    /// Zeroed memory of `size` bytes, whose first one the machine has at `base`. No page of it
    /// exists before it is touched.
    pub fn new(base: Pa, size: Bytes) -> Result<Self> {
        let making = || format!("make {} MiB of memory for the machine", size.0 >> 20);
        let file = memfd_create("weir-ram", MemfdFlags::CLOEXEC).map_err(io::Error::from);
        let file = File::from(file.context(making)?);
        file.set_len(size.0).context(making)?;
        Ok(Self { file, base, size })
    }

    /// Fills `into` with what the machine has at `pa` and behind. A core may write at the same
    /// time, so that only bytes that no core writes then are consistent.
    ///
    /// # Errors
    /// `InvalidInput` when it is not all in RAM.
    pub fn read(&self, pa: Pa, into: &mut [u8]) -> io::Result<()> {
        let offset = pa.0.checked_sub(self.base.0);
        let end = offset.and_then(|offset| offset.checked_add(into.len() as u64));
        match offset.zip(end).filter(|&(_, end)| end <= self.size.0) {
            Some((offset, _)) => self.file.read_exact_at(into, offset),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} bytes at {:#x} are not in the machine's RAM", into.len(), pa.0),
            )),
        }
    }

    /// What the machine would store at `pa`.
    #[cfg(test)]
    pub fn write_for_tests(&self, pa: Pa, bytes: &[u8]) {
        self.file.write_all_at(bytes, pa.0 - self.base.0).expect("a write");
    }

    /// The file, for a child that inherits it under the same number.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where such a child finds it; offset 0 is the first byte of RAM.
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
                    "--qemu-arg {text}: not a size that weir can read: give -m as MiB, or with K, M, G or T, such as 512M"
                ))
            })?;
        } else if foreign || name == Some("mem-path") {
            let option = word.to_string_lossy();
            return Err(Failure::call(format!(
                "--qemu-arg {option}, --qemu-arg {text}: the machine's memory is weir's own file, which it reads the trace from: leave \
                 memory-backend and mem-path out; -m alone changes its size"
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

    fn sized(extra: &[&str]) -> Result<Bytes> {
        let extra: Vec<OsString> = extra.iter().map(Into::into).collect();
        size(Bytes(1 << 30), &extra)
    }

    #[test]
    fn it_reads_what_was_written_and_nothing_outside() {
        let ram = Ram::new(Pa(0x4000_0000), Bytes(1 << 20)).expect("memory");
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
