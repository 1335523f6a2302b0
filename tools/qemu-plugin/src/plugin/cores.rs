//! Which core runs, where QEMU's callbacks don't report it.
//!
//! From 10.0 on QEMU translates a vCPU's number into a block as a constant, unless vCPUs run in
//! parallel, which they don't under `-icount` (`accel/tcg/plugin-gen.c`, `gen_cpu_index`); the
//! block then runs on other vCPUs under that number. But a plug-in may read the registers of the
//! vCPU that runs (`qemu_plugin_read_register`, interface version 3 and later), and two of EL2's
//! distinguish them:
//!
//! - `VMPIDR_EL2` holds the core's own MPIDR from reset until a hypervisor gives it another value,
//! - `TPIDR_EL2` is 0 from reset until weir puts the address of the core's own data there, which it
//!   does before it changes the other one, and never again.
//!
//! So a value of the second is known by the first at the time when it is first seen. No guest can
//! change either. A core goes on only with a new block after another one ran, so that to ask at the
//! start of each block is enough.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::functions;

/// `GByteArray` and `GArray` of GLib.
#[repr(C)]
struct Array {
    data: *mut u8,
    len: c_uint,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
struct Descriptor {
    handle: *mut c_void,
    name: *const c_char,
    feature: *const c_char,
}

/// The handles of `TPIDR_EL2` and `VMPIDR_EL2`, which are the same for all vCPUs of a kind.
#[derive(Clone, Copy)]
struct Handles {
    tpidr: usize,
    vmpidr: usize,
}

functions! {
    /// The registers of each core. QEMU has the first two functions since 9.0; what GLib takes as a
    /// `GByteArray *` is an `Array *` here, of the same layout.
    pub struct RunningCore {
        vcpus: usize,
        handles: OnceLock<Option<Handles>>,
        /// Each value of `TPIDR_EL2` that was seen, but for 0, and the core that has it.
        known: Mutex<Vec<(u64, usize)>>,
    }
    get_registers = c"qemu_plugin_get_registers": () -> *mut Array;
    read_register = c"qemu_plugin_read_register": (*mut c_void, *mut Array) -> c_int;
    new_bytes = c"g_byte_array_new": () -> *mut Array;
    resize_bytes = c"g_byte_array_set_size": (*mut Array, c_uint) -> *mut Array;
}

thread_local! {
    /// The core that this thread of QEMU's runs now, and its `TPIDR_EL2`.
    static CURRENT: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
    /// Where this thread reads registers into; null before the first time.
    static BYTES: Cell<*mut Array> = const { Cell::new(null_mut()) };
}

impl RunningCore {
    /// For a machine of `vcpus` vCPUs.
    pub fn of(vcpus: usize) -> Result<Self, String> {
        Self::find(vcpus, OnceLock::new(), Mutex::default()).map_err(|name| {
            format!(
                "this QEMU does not report which core runs: it exports no {name:?}; give one of \
                 7.2 to 9.1 or of 10.0 and later in WEIR_QEMU"
            )
        })
    }

    /// Finds out which core runs; called from a callback at the start of a block that may read
    /// registers. Ends QEMU if it cannot be found out: counts for the wrong core are worse than
    /// none.
    pub fn note(&self) {
        if self.identify().is_none() {
            eprintln!(
                "weir-qemu-plugin: this QEMU does not report which core runs: it shows no usable \
                 TPIDR_EL2 and VMPIDR_EL2; give one of 7.2 to 9.1 in WEIR_QEMU"
            );
            // SAFETY: ends the process without QEMU's own handlers, which expect the callback to
            // return.
            unsafe { libc::_exit(1) }
        }
    }

    /// The core that runs on this thread, as of the last [`Self::note`].
    pub fn current() -> usize {
        CURRENT.get().0
    }

    fn identify(&self) -> Option<()> {
        let handles = (*self.handles.get_or_init(|| self.handles()))?;
        let tpidr = self.read(handles.tpidr)?;
        if tpidr != 0 && CURRENT.get().1 == tpidr {
            return Some(());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let core = known.iter().find(|(value, _)| *value == tpidr).map(|(_, core)| *core);
        let core = if let Some(core) = core {
            core
        } else {
            // Affinity 0 counts the cores of a cluster, of which there is one with at most eight.
            let core = (self.read(handles.vmpidr)? & 0xff) as usize;
            if core >= self.vcpus || known.iter().any(|&(value, other)| value != 0 && other == core)
            {
                return None;
            }
            if tpidr != 0 {
                known.push((tpidr, core));
            }
            core
        };
        CURRENT.set((core, tpidr));
        Some(())
    }

    fn handles(&self) -> Option<Handles> {
        // SAFETY: a callback of a vCPU runs, which is when this may be asked.
        let registers = unsafe { (self.get_registers)() };
        if registers.is_null() {
            return None;
        }
        // SAFETY: QEMU gives a `GArray` of descriptors to the caller, which may keep it.
        let registers = unsafe { &*registers };
        if registers.data.is_null() {
            return None;
        }
        // SAFETY: its data are `len` descriptors, aligned as GLib's allocator does; they live as
        // long as the array, which is never freed.
        let descriptors = unsafe {
            #[expect(clippy::cast_ptr_alignment, reason = "GLib allocated it for descriptors")]
            std::slice::from_raw_parts(registers.data.cast::<Descriptor>(), registers.len as usize)
        };
        let handle = |wanted: &CStr| {
            let of = descriptors.iter().find(|register| {
                // SAFETY: QEMU names each register by a C string that it keeps.
                !register.name.is_null() && unsafe { CStr::from_ptr(register.name) } == wanted
            });
            of.map(|register| register.handle.addr())
        };
        Some(Handles { tpidr: handle(c"TPIDR_EL2")?, vmpidr: handle(c"VMPIDR_EL2")? })
    }

    /// The value of a register of the core that runs.
    fn read(&self, handle: usize) -> Option<u64> {
        let mut bytes = BYTES.get();
        if bytes.is_null() {
            // SAFETY: has no requirement.
            bytes = unsafe { (self.new_bytes)() };
            BYTES.set(bytes);
        }
        // SAFETY: an array of this thread's, from the call above; QEMU appends to it.
        unsafe { (self.resize_bytes)(bytes, 0) };
        // SAFETY: the handle came from QEMU, which made a number of it; a callback of a vCPU runs
        // that may read registers.
        let read = unsafe { (self.read_register)(std::ptr::without_provenance_mut(handle), bytes) };
        // SAFETY: as above; there is no other reference.
        let bytes = unsafe { &*bytes };
        if read != 8 || bytes.len != 8 {
            return None;
        }
        // SAFETY: the array holds eight bytes, by its length; a byte array has no alignment.
        Some(u64::from_le_bytes(unsafe { *bytes.data.cast::<[u8; 8]>() }))
    }
}
