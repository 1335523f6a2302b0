//! The C library's own definitions of the functions that this library replaces.

use libc::{
    c_int, c_uint, c_void, clockid_t, iovec, nfds_t, pollfd, pthread_attr_t, pthread_cond_t,
    pthread_mutex_t, pthread_t, sigset_t, size_t, ssize_t, timespec,
};
use std::{ffi::CStr, sync::OnceLock};

/// glibc's condition variables before this version are others under the same names. Other machines
/// than x86-64 never had them.
const CONDITIONS: &CStr = c"GLIBC_2.3.2";

/// Returns the next definition of `name` behind this library's.
fn next(name: &CStr, version: Option<&CStr>) -> *mut c_void {
    if let Some(version) = version {
        // SAFETY: both strings end in zeros.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            return found;
        }
    }
    // SAFETY: the string ends in zeros.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // Nothing can be done without it, and QEMU's frames are not ours to unwind.
        std::process::abort();
    }
    found
}

/// Declares the struct of functions and its constructor.
macro_rules! functions {
    ($(
        $field:ident = $symbol:literal $(@ $version:ident)?:
            fn($($argument:ty),*) $(-> $result:ty)?;
    )*) => {
        /// The functions, each with its symbol's type in the headers of the C library.
        pub struct Library {
            $(#[doc = concat!("`", stringify!($symbol), "`.")]
            pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn find() -> Self {
                let version = |versions: &[&'static CStr]| versions.first().copied();
                Self {
                    $($field: {
                        let symbol = next($symbol, version(&[$($version)?]));
                        // SAFETY: the symbol was found, and the headers of the C library declare
                        // it with this type.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(symbol)
                        }
                    },)*
                }
            }
        }
    };
}

/// The function with which a thread starts.
type Start = extern "C" fn(*mut c_void) -> *mut c_void;

functions! {
    create = c"pthread_create":
        fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
    join = c"pthread_join": fn(pthread_t, *mut *mut c_void) -> c_int;
    detach = c"pthread_detach": fn(pthread_t) -> c_int;
    kill = c"pthread_kill": fn(pthread_t, c_int) -> c_int;
    lock = c"pthread_mutex_lock": fn(*mut pthread_mutex_t) -> c_int;
    try_lock = c"pthread_mutex_trylock": fn(*mut pthread_mutex_t) -> c_int;
    unlock = c"pthread_mutex_unlock": fn(*mut pthread_mutex_t) -> c_int;
    wait = c"pthread_cond_wait" @ CONDITIONS:
        fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
    timed_wait = c"pthread_cond_timedwait" @ CONDITIONS:
        fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
    signal = c"pthread_cond_signal" @ CONDITIONS: fn(*mut pthread_cond_t) -> c_int;
    broadcast = c"pthread_cond_broadcast" @ CONDITIONS: fn(*mut pthread_cond_t) -> c_int;
    poll = c"ppoll": fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    clock = c"clock_gettime": fn(clockid_t, *mut timespec) -> c_int;
    sleep = c"clock_nanosleep":
        fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
    write = c"write": fn(c_int, *const c_void, size_t) -> ssize_t;
    write_vector = c"writev": fn(c_int, *const iovec, c_int) -> ssize_t;
    read_vector = c"readv": fn(c_int, *const iovec, c_int) -> ssize_t;
    event = c"eventfd": fn(c_uint, c_int) -> c_int;
    system_call = c"syscall":
        fn(i64, i64, i64, i64, i64, i64, i64) -> i64;
}

/// Returns the functions.
pub fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(Library::find)
}

/// Returns the value of a variable of the environment.
pub fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends in zeros; QEMU does not change its environment while it starts.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a value of the environment ends in zeros and stays.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Returns the host's monotonic clock in ns.
pub fn host_ns() -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the time is ours.
    unsafe { (library().clock)(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Writes a message of this library to standard error.
pub fn report(message: &str) {
    let text = format!("weir-clock: {message}\n");
    // SAFETY: the text is ours.
    unsafe { (library().write)(2, text.as_ptr().cast(), text.len()) };
}

/// Returns the error number of the calling thread's last failed call.
pub fn error() -> c_int {
    // SAFETY: the C library's, for this thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the error number of the calling thread.
pub fn set_error(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number };
}
