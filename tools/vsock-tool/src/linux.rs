//! Linux' system calls, those that are needed (arm64: number in x8, arguments from x0 on, the
//! result in x0).

use core::{
    arch::{asm, global_asm},
    ffi::CStr,
    fmt::{self, Write},
};

/// An error's number, as in Linux' errno.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u16);

impl Errno {
    /// Interrupted by a signal.
    pub const INTERRUPTED: Self = Self(4);
    /// The call would have to wait.
    pub const AGAIN: Self = Self(11);
    /// The other end has shut down or reset the connection.
    pub const PIPE: Self = Self(32);
    /// Reset by the other end.
    pub const RESET: Self = Self(104);
    /// Reset while no call waited for it.
    pub const NOT_CONNECTED: Self = Self(107);
    /// Not answered in time.
    pub const TIMED_OUT: Self = Self(110);
}

/// A file descriptor.
pub type Fd = u32;

/// No file: -1.
pub const NONE: Fd = Fd::MAX;

const CLOSE: usize = 57;
const WRITE: usize = 64;
const PPOLL: usize = 73;
const EXIT_GROUP: usize = 94;
const NANOSLEEP: usize = 101;
const CLOCK_GETTIME: usize = 113;
const SYSINFO: usize = 179;
const SOCKET: usize = 198;
const SOCKETPAIR: usize = 199;
const BIND: usize = 200;
const LISTEN: usize = 201;
const ACCEPT: usize = 202;
const CONNECT: usize = 203;
const SEND_TO: usize = 206;
const RECEIVE_FROM: usize = 207;
const SETSOCKOPT: usize = 208;
const SHUTDOWN: usize = 210;
const RECVMSG: usize = 212;
const MMAP: usize = 222;
const MADVISE: usize = 233;
const MLOCK2: usize = 284;

const AF_VSOCK: u16 = 40;
const ANY: u32 = u32::MAX;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_EOR: usize = 0x80;
const MSG_DONTWAIT: usize = 0x40;
const MSG_ERRQUEUE: usize = 0x2000;
const MSG_ZEROCOPY: usize = 0x400_0000;
const SOL_SOCKET: usize = 1;
const SO_ZEROCOPY: usize = 60;
const CLOCK_MONOTONIC: usize = 1;

/// Kinds of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// Bytes.
    Stream = 1,
    /// Messages.
    SeqPacket = 5,
}

/// `struct sockaddr_vm` (Linux, include/uapi/linux/vm_sockets.h).
#[repr(C)]
struct Address {
    family: u16,
    reserved: u16,
    port: u32,
    cid: u32,
    rest: u32,
}

impl Address {
    const fn new(cid: u32, port: u32) -> Self {
        Self { family: AF_VSOCK, reserved: 0, port, cid, rest: 0 }
    }

    fn at(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

/// `struct pollfd`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Poll {
    /// The file; [`NONE`] is skipped.
    pub fd: Fd,
    /// The awaited events: 1 for something to read.
    pub wanted: i16,
    /// The events that came, more than awaited if it ended.
    pub came: i16,
}

/// `struct timespec`.
#[repr(C)]
struct Time {
    seconds: u64,
    nanoseconds: u64,
}

global_asm!(
    ".global _start",
    "_start:",
    "mov x29, xzr",
    "mov x30, xzr",
    "mov x0, sp",
    "bl {main}",
    "brk #1",
    main = sym started,
);

/// Linux puts the number of arguments and then their addresses on the stack.
extern "C" fn started(stack: *const usize) -> ! {
    // SAFETY: `_start` was entered by Linux, which left the arguments there: see above; they are
    // never changed.
    let status = unsafe {
        let arguments = core::slice::from_raw_parts(stack.add(1).cast(), *stack);
        crate::main(Arguments(arguments))
    };
    exit(status)
}

/// The program's arguments: a verb, and words `KEY=VALUE`.
#[derive(Clone, Copy, Debug)]
pub struct Arguments(&'static [*const core::ffi::c_char]);

impl Arguments {
    /// Argument `place`, if there is one and it is text.
    #[must_use]
    pub fn word(self, place: usize) -> Option<&'static str> {
        let argument = *self.0.get(place)?;
        // SAFETY: see `started`: Linux ends each argument with a zero.
        unsafe { CStr::from_ptr(argument) }.to_str().ok()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(self, key: &str) -> Option<&'static str> {
        let words = (1..self.0.len()).filter_map(|place| self.word(place));
        let mut pairs = words.filter_map(|word| word.split_once('='));
        pairs.find(|pair| pair.0 == key).map(|pair| pair.1)
    }

    /// The number of a key, or `default`.
    #[must_use]
    pub fn number(self, key: &str, default: u64) -> u64 {
        self.get(key).and_then(|value| value.parse().ok()).unwrap_or(default)
    }
}

/// # Safety
///
/// The call's memory accesses must be allowed.
unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [x0, x1, x2, x3, x4, x5] = arguments;
    let result: isize;
    // SAFETY: the caller's, and Linux changes no register but x0.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") x0 => result,
            in("x1") x1, in("x2") x2, in("x3") x3, in("x4") x4, in("x5") x5,
            options(nostack),
        );
    }
    // Errors are the last 4095 numbers.
    if (-4095..0).contains(&result) {
        return Err(Errno(result.unsigned_abs() as u16));
    }
    Ok(result.unsigned_abs())
}

/// Ends the program.
pub fn exit(status: u8) -> ! {
    loop {
        // SAFETY: touches no memory.
        let _ = unsafe { call(EXIT_GROUP, [status.into(), 0, 0, 0, 0, 0]) };
    }
}

/// Opens a socket between VMs.
pub fn socket(kind: SocketKind) -> Result<Fd, Errno> {
    // SAFETY: touches no memory.
    unsafe { call(SOCKET, [AF_VSOCK.into(), kind as usize, 0, 0, 0, 0]) }.map(|fd| fd as Fd)
}

/// Connects a socket to a port of a VM.
pub fn connect(fd: Fd, cid: u32, port: u32) -> Result<(), Errno> {
    let address = Address::new(cid, port);
    // SAFETY: Linux reads the address.
    unsafe { call(CONNECT, [fd as usize, address.at(), size_of::<Address>(), 0, 0, 0]) }.map(drop)
}

/// Makes a socket that listens on a port.
pub fn listen(kind: SocketKind, port: u32) -> Result<Fd, Errno> {
    let fd = socket(kind)?;
    let address = Address::new(ANY, port);
    // SAFETY: Linux reads the address.
    unsafe {
        call(BIND, [fd as usize, address.at(), size_of::<Address>(), 0, 0, 0])?;
        call(LISTEN, [fd as usize, 64, 0, 0, 0, 0])?;
    }
    Ok(fd)
}

/// Takes a connection.
pub fn accept(fd: Fd) -> Result<Fd, Errno> {
    // SAFETY: the address of the other end is not asked for.
    unsafe { call(ACCEPT, [fd as usize, 0, 0, 0, 0, 0]) }.map(|fd| fd as Fd)
}

/// Sends bytes, of which Linux may take less; of a socket of messages it takes one.
pub fn send(fd: Fd, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = MSG_NOSIGNAL | MSG_EOR;
    // SAFETY: Linux reads the bytes.
    unsafe { call(SEND_TO, [fd as usize, bytes.as_ptr().addr(), bytes.len(), flags, 0, 0]) }
}

/// Allows [`send_in_place`] for a socket.
pub fn allow_send_in_place(fd: Fd) -> Result<(), Errno> {
    let (on, len) = (1u32, size_of::<u32>());
    let place = core::ptr::from_ref(&on).addr();
    // SAFETY: Linux reads the number.
    unsafe { call(SETSOCKOPT, [fd as usize, SOL_SOCKET, SO_ZEROCOPY, place, len, 0]) }.map(drop)
}

/// Sends bytes as [`send`] does, but without a copy of them: they must not change until
/// [`sent_in_place`] reports that the call is complete.
pub fn send_in_place(fd: Fd, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = MSG_NOSIGNAL | MSG_EOR | MSG_ZEROCOPY;
    // SAFETY: Linux reads the bytes.
    unsafe { call(SEND_TO, [fd as usize, bytes.as_ptr().addr(), bytes.len(), flags, 0, 0]) }
}

/// `struct msghdr`.
#[repr(C)]
struct MessageHeader {
    name: usize,
    name_len: usize,
    parts: usize,
    parts_len: usize,
    control: usize,
    control_len: usize,
    flags: usize,
}

/// A control message with `struct sock_extended_err` (Linux, include/uapi/linux/errqueue.h).
#[derive(Default)]
#[repr(C)]
struct Completion {
    len: usize,
    level: u32,
    kind: u32,
    errno: u32,
    origin: u8,
    error_kind: u8,
    code: u8,
    reserved: u8,
    first: u32,
    last: u32,
    rest: [u32; 4],
}

/// Takes the report that the only pending call of [`send_in_place`] is complete. Returns whether
/// Linux has copied the bytes nevertheless, or [`Errno::AGAIN`] before that.
pub fn sent_in_place(fd: Fd) -> Result<bool, Errno> {
    let mut report = Completion::default();
    let mut header = MessageHeader {
        name: 0,
        name_len: 0,
        parts: 0,
        parts_len: 0,
        control: core::ptr::from_mut(&mut report).addr(),
        control_len: size_of::<Completion>(),
        flags: 0,
    };
    let place = core::ptr::from_mut(&mut header).addr();
    // SAFETY: Linux reads and writes the header, and writes the report.
    unsafe { call(RECVMSG, [fd as usize, place, MSG_ERRQUEUE | MSG_DONTWAIT, 0, 0, 0]) }?;
    Ok(report.code == 1)
}

/// Opens two connected stream sockets within the VM.
pub fn socket_pair() -> Result<[Fd; 2], Errno> {
    const AF_UNIX: usize = 1;
    let mut pair = [NONE; 2];
    let place = pair.as_mut_ptr().addr();
    // SAFETY: Linux writes the pair.
    unsafe { call(SOCKETPAIR, [AF_UNIX, SocketKind::Stream as usize, 0, place, 0, 0]) }?;
    Ok(pair)
}

/// Sends as many bytes as the socket has room for, without waiting.
pub fn try_send(fd: Fd, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: Linux reads the bytes.
    unsafe { call(SEND_TO, [fd as usize, bytes.as_ptr().addr(), bytes.len(), MSG_DONTWAIT, 0, 0]) }
}

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// `struct sysinfo`.
#[derive(Default)]
#[repr(C)]
struct SystemInformation {
    uptime: usize,
    loads: [usize; 3],
    total: usize,
    free: usize,
    rest: [usize; 8],
}

/// Returns how many bytes of memory there are, and how many of them are free.
pub fn memory() -> [usize; 2] {
    let mut found = SystemInformation::default();
    let place = core::ptr::from_mut(&mut found).addr();
    // SAFETY: Linux writes the structure, which is larger than its own.
    let _ = unsafe { call(SYSINFO, [place, 0, 0, 0, 0, 0]) };
    [found.total, found.free]
}

/// Memory in single pages, which Linux does not move.
#[derive(Debug)]
pub struct LockedPages {
    at: usize,
    pages: usize,
}

impl LockedPages {
    /// Reserves addresses for `pages` pages. [`Self::touch`] takes the memory.
    pub fn new(pages: usize) -> Result<Self, Errno> {
        const READ_WRITE: usize = 3;
        const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x4022;
        const NO_HUGE_PAGES: usize = 15;
        const ON_FAULT: usize = 1;
        let len = pages * PAGE;
        // SAFETY: new memory, that nothing else uses.
        unsafe {
            let flags = PRIVATE_ANONYMOUS_NORESERVE;
            let at = call(MMAP, [0, len, READ_WRITE, flags, usize::MAX, 0])?;
            // An error of kernels that have no huge pages.
            let _ = call(MADVISE, [at, len, NO_HUGE_PAGES, 0, 0, 0]);
            call(MLOCK2, [at, len, ON_FAULT, 0, 0, 0])?;
            Ok(Self { at, pages })
        }
    }

    /// Takes page `number`. Returns false if there is no such page.
    pub fn touch(&mut self, number: usize) -> bool {
        let is_page = number < self.pages;
        if is_page {
            // SAFETY: within the memory, which is this structure's own.
            unsafe { ((self.at + number * PAGE) as *mut u8).write_volatile(1) };
        }
        is_page
    }

    /// Returns page `number` to Linux.
    pub fn free(&mut self, number: usize) -> Result<(), Errno> {
        const DO_NOT_NEED_LOCKED: usize = 24;
        let at = self.at + number * PAGE;
        // SAFETY: memory of this structure; no reference to it exists.
        unsafe { call(MADVISE, [at, PAGE, DO_NOT_NEED_LOCKED, 0, 0, 0]) }.map(drop)
    }
}

/// Receives bytes. Returns 0 if the other end will send no more, and also after a reset. After a
/// reset [`send`] returns an error, even for no bytes.
pub fn receive(fd: Fd, bytes: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: Linux writes the bytes, and as many at most.
    unsafe { call(RECEIVE_FROM, [fd as usize, bytes.as_mut_ptr().addr(), bytes.len(), 0, 0, 0]) }
}

/// Announces that no more will be sent.
pub fn shut_down(fd: Fd) -> Result<(), Errno> {
    // SAFETY: touches no memory.
    unsafe { call(SHUTDOWN, [fd as usize, 1, 0, 0, 0, 0]) }.map(drop)
}

/// Closes a file.
pub fn close(fd: Fd) {
    // SAFETY: touches no memory. There is nothing to do about an error.
    let _ = unsafe { call(CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Waits until one of these has something.
pub fn poll(all: &mut [Poll]) -> Result<(), Errno> {
    // SAFETY: Linux reads and writes the entries, and as many.
    unsafe { call(PPOLL, [all.as_mut_ptr().addr(), all.len(), 0, 0, 0, 0]) }.map(drop)
}

/// Sleeps.
pub fn sleep(nanoseconds: u64) {
    let time =
        Time { seconds: nanoseconds / 1_000_000_000, nanoseconds: nanoseconds % 1_000_000_000 };
    // SAFETY: Linux reads the time. An early wake-up continues early.
    let _ = unsafe { call(NANOSLEEP, [core::ptr::from_ref(&time).addr(), 0, 0, 0, 0, 0]) };
}

/// Nanoseconds since some time.
pub fn now() -> u64 {
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    let place = core::ptr::from_mut(&mut time).addr();
    // SAFETY: Linux writes the time.
    let _ = unsafe { call(CLOCK_GETTIME, [CLOCK_MONOTONIC, place, 0, 0, 0, 0]) };
    time.seconds * 1_000_000_000 + time.nanoseconds
}

/// Standard output, a line at a time: [`say`].
pub struct OutputLine {
    bytes: [u8; 256],
    len: usize,
}

impl Write for OutputLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = self.bytes.get_mut(self.len..).ok_or(fmt::Error)?;
        rest.get_mut(..text.len()).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Writes a line by one call; what is longer than 255 bytes is cut.
pub fn say(what: fmt::Arguments<'_>) {
    let mut line = OutputLine { bytes: [0; 256], len: 0 };
    let _ = line.write_fmt(what);
    let end = line.len.min(255);
    line.bytes[end] = b'\n';
    // SAFETY: Linux reads the bytes of the line.
    let _ = unsafe { call(WRITE, [1, line.bytes.as_ptr().addr(), end + 1, 0, 0, 0]) };
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    say(format_args!("linux: the program has panicked"));
    exit(101)
}
