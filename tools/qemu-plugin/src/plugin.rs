//! The interface to QEMU: what it calls here, and what is called there.
//!
//! Declared after QEMU's documentation of TCG plug-ins (`docs/devel/tcg-plugins.rst`) and
//! `include/qemu/qemu-plugin.h`, versions 1 to 5. A plug-in states the version of its interface in
//! the exported variable `qemu_plugin_version`, which QEMU reads after it has loaded the library.
//! No single value suits every QEMU, so a constructor derives the fitting one from the executable's
//! exports; and every function is resolved by name, so that the library has no undefined symbols
//! and also links into programs other than QEMU.
//!
//! Between 2 and 3 the interface changed in one function that matters here:
//! `qemu_plugin_insn_data` returned a pointer and now copies.

mod cores;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use weir_trace::counter_page::CounterPage;

use crate::caches::{Block, Books, Data, PAGE, Setup, Start};
use crate::count::{Accounting, InstructionStep};
use crate::opcode::InstructionClass;
use crate::options::{Page, PluginOptions};
use cores::RunningCore;

const _: () = assert!(size_of::<usize>() == 8, "a Step and a Block travel in a pointer");

/// `qemu_info_t`: QEMU's description of itself and its machine.
#[repr(C)]
pub struct Info {
    target_name: *const c_char,
    version_min: c_int,
    version_cur: c_int,
    system_emulation: bool,
    smp_vcpus: c_int,
    max_vcpus: c_int,
}

type Tb = *mut c_void;
type Insn = *mut c_void;
type TranslatedCb = extern "C" fn(u64, Tb);
type ExecutedCb = extern "C" fn(c_uint, *mut c_void);
type AccessedCb = extern "C" fn(c_uint, u32, u64, *mut c_void);
type ExitCb = extern "C" fn(u64, *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`: the callbacks touch no registers.
const NO_REGS: c_int = 0;
/// `QEMU_PLUGIN_CB_R_REGS`: they read some.
const READ_REGS: c_int = 1;
/// `QEMU_PLUGIN_MEM_RW`: loads and stores.
const READ_WRITE: c_int = 3;

/// Resolves a symbol among those that the program and its libraries export.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string, and dlsym has no other requirement.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// A struct of functions of the running program, each with its symbol and its type, and `find`,
/// which resolves them and takes the values of the other fields. The error is the symbol that the
/// program does not export.
macro_rules! functions {
    (
        $(#[$of_struct:meta])*
        $visibility:vis struct $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* }
        $($function:ident = $symbol:literal: ($($argument:ty),*) $(-> $result:ty)?;)*
    ) => {
        $(#[$of_struct])*
        $visibility struct $name {
            $($(#[$of_field])* $field: $type,)*
            $($function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            fn find($($field: $type),*) -> Result<Self, &'static CStr> {
                $(
                    let symbol = $crate::plugin::find($symbol).ok_or($symbol)?;
                    // SAFETY: the symbol was found, so it is not null, and the headers of QEMU and
                    // of GLib declare it with this type (see the modules' documentation).
                    let $function = unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(symbol)
                    };
                )*
                Ok(Self { $($field,)* $($function,)* })
            }
        }
    };
}
use functions;

functions! {
    /// The functions of QEMU's that are used.
    struct Api {
        /// The version of the interface, which decides which type `qemu_plugin_insn_data` has.
        version: c_int,
    }
    tb_n_insns = c"qemu_plugin_tb_n_insns": (Tb) -> usize;
    tb_get_insn = c"qemu_plugin_tb_get_insn": (Tb, usize) -> Insn;
    insn_vaddr = c"qemu_plugin_insn_vaddr": (Insn) -> u64;
    insn_size = c"qemu_plugin_insn_size": (Insn) -> usize;
    insn_haddr = c"qemu_plugin_insn_haddr": (Insn) -> *const c_void;
    insn_pointer = c"qemu_plugin_insn_data": (Insn) -> *const c_void;
    insn_copy = c"qemu_plugin_insn_data": (Insn, *mut c_void, usize) -> usize;
    register_insn_exec =
        c"qemu_plugin_register_vcpu_insn_exec_cb": (Insn, ExecutedCb, c_int, *mut c_void);
    register_tb_exec =
        c"qemu_plugin_register_vcpu_tb_exec_cb": (Tb, ExecutedCb, c_int, *mut c_void);
    register_mem =
        c"qemu_plugin_register_vcpu_mem_cb": (Insn, AccessedCb, c_int, c_int, *mut c_void);
    register_translated = c"qemu_plugin_register_vcpu_tb_trans_cb": (u64, TranslatedCb);
    register_exit = c"qemu_plugin_register_atexit_cb": (u64, ExitCb, *mut c_void);
    get_hwaddr = c"qemu_plugin_get_hwaddr": (u32, u64) -> *const c_void;
    hwaddr_is_io = c"qemu_plugin_hwaddr_is_io": (*const c_void) -> bool;
    hwaddr_phys_addr = c"qemu_plugin_hwaddr_phys_addr": (*const c_void) -> u64;
    mem_size_shift = c"qemu_plugin_mem_size_shift": (u32) -> c_uint;
    mem_is_store = c"qemu_plugin_mem_is_store": (u32) -> bool;
}

impl Api {
    /// Address and opcode of an instruction; none if it is not four bytes long.
    fn instruction(&self, tb: Tb, index: usize) -> Option<(Insn, u64, u32)> {
        // SAFETY: QEMU passed `tb` to the callback that is running, and `index` is below its
        // number of instructions (`translated`).
        let insn = unsafe { (self.tb_get_insn)(tb, index) };
        // SAFETY: `insn` came from the call above and is valid as long as `tb`.
        if unsafe { (self.insn_size)(insn) } != 4 {
            return None;
        }
        // SAFETY: as above.
        let pc = unsafe { (self.insn_vaddr)(insn) };
        let mut bytes = [0_u8; 4];
        if self.version < 3 {
            // SAFETY: as above; it has this type in versions 0 to 2.
            let pointer = unsafe { (self.insn_pointer)(insn) }.cast::<[u8; 4]>();
            if pointer.is_null() {
                return None;
            }
            // SAFETY: the pointer is to as many bytes as `insn_size` returned: four. They are
            // valid as long as `tb`, and a byte array has no alignment.
            bytes = unsafe { *pointer };
        } else {
            let place = bytes.as_mut_ptr().cast();
            // SAFETY: at most four bytes are written to an array of four; it has this type since
            // version 3.
            let copied = unsafe { (self.insn_copy)(insn, place, bytes.len()) };
            if copied != bytes.len() {
                return None;
            }
        }
        Some((insn, pc, u32::from_le_bytes(bytes)))
    }
}

/// The plug-in after its installation.
struct Plugin {
    api: Api,
    options: PluginOptions,
    /// Where the callbacks don't report which core runs.
    cores: Option<RunningCore>,
    job: Job,
}

impl Plugin {
    /// The core that runs, for which a callback reports `vcpu`.
    fn core(&self, vcpu: c_uint) -> usize {
        if self.cores.is_some() { RunningCore::current() } else { vcpu as usize }
    }
}

/// Its job.
enum Job {
    Count(Accounting),
    Caches(Box<Caches>),
}

/// The caches job.
struct Caches {
    books: Books,
    /// The machine's RAM.
    ram: Range<u64>,
    /// Where QEMU has that RAM, less its physical address; 0 until the first block was translated.
    host: AtomicU64,
}

impl Job {
    fn new(options: &PluginOptions, vcpus: usize) -> Result<Self, String> {
        let Some(file) = &options.caches else {
            return Ok(Self::Count(Accounting::new(vcpus, options)));
        };
        let setup = Setup::read(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let ram = setup.ram..setup.ram.saturating_add(setup.ram_len);
        let counter_page = options.counter_page.as_ref().map(|page| map(page, &ram)).transpose()?;
        Ok(Self::Caches(Box::new(Caches {
            books: Books::new(setup, counter_page)?,
            ram,
            host: AtomicU64::new(0),
        })))
    }
}

/// Maps the page of counters, for as long as QEMU runs. `ram` is where the machine has its RAM.
fn map(page: &Page, ram: &Range<u64>) -> Result<&'static CounterPage, String> {
    let Page { ram: path, pa } = page;
    let failed = |error: &std::io::Error| format!("cannot map {}: {error}", path.display());
    let offset = pa.checked_sub(ram.start).and_then(|offset| i64::try_from(offset).ok());
    let offset = offset.filter(|_| ram.contains(pa) && pa.is_multiple_of(PAGE));
    let offset = offset.ok_or_else(|| format!("counter-page={pa:#x} is not a page of RAM"))?;
    let file = File::options().read(true).write(true).open(path).map_err(|error| failed(&error))?;
    let length = file.metadata().map_err(|error| failed(&error))?.len();
    if length.checked_sub(offset.unsigned_abs()).is_none_or(|rest| rest < PAGE) {
        return Err(format!("counter-page={pa:#x} is behind the end of {}", path.display()));
    }
    let (rights, size) = (libc::PROT_READ | libc::PROT_WRITE, size_of::<CounterPage>());
    // SAFETY: a new mapping at an address of the kernel's choice changes no other memory.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), size, rights, libc::MAP_SHARED, file.as_raw_fd(), offset)
    };
    if at == libc::MAP_FAILED {
        return Err(failed(&std::io::Error::last_os_error()));
    }
    // SAFETY: the mapping has the size of a `CounterPage`, begins at a page as that must, lies
    // inside of the file (checked above; nothing makes the machine's RAM shorter) and is never
    // taken away. What the machine stores there at the same time are bytes of a static
    // `CounterPage` of the hypervisor's; here only its atomics are used, and any bytes are one.
    Ok(unsafe { &*at.cast::<CounterPage>() })
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// The interface version that this library speaks. An atomic has the layout of the plain `int`
/// that QEMU reads.
// SAFETY: no other library defines this name; QEMU's interface reserves it for plug-ins.
#[unsafe(export_name = "qemu_plugin_version")]
pub static VERSION: AtomicI32 = AtomicI32::new(1);

// SAFETY: the section holds pointers to functions without arguments or result that run when the
// library is loaded; this is one.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

/// Runs when the library is loaded, before QEMU reads the version.
extern "C" fn choose_version() {
    // Each of these came with the version. QEMU 9.0 spoke 2 alone, 10.0 speaks 2 to 4.
    let version = if find(c"qemu_plugin_read_memory_vaddr").is_some() {
        4
    } else if find(c"qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu").is_some() {
        2
    } else {
        1
    };
    VERSION.store(version, Relaxed);
}

/// Called by QEMU when it loads the plug-in. Not 0 makes it refuse to start.
///
/// # Safety
/// `info` and the `count` strings at `argv` are valid during the call.
// SAFETY: as for `VERSION`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    count: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: the caller vouches for it.
    let info = unsafe { &*info };
    let arguments = (0..usize::try_from(count).unwrap_or(0)).map(|index| {
        // SAFETY: `index` is below `count`.
        let argument = unsafe { argv.add(index) };
        // SAFETY: the caller vouches for `count` valid pointers.
        let argument = unsafe { *argument };
        // SAFETY: the caller vouches for them to be C strings.
        unsafe { CStr::from_ptr(argument) }
    });
    match install(id, info, arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("weir-qemu-plugin: {error}");
            1
        }
    }
}

fn install<'a>(
    id: u64,
    info: &Info,
    arguments: impl Iterator<Item = &'a CStr>,
) -> Result<(), String> {
    let arguments = arguments
        .map(|argument| argument.to_str().map_err(|_| format!("{argument:?} is not UTF-8")))
        .collect::<Result<Vec<_>, _>>()?;
    let options = PluginOptions::parse(arguments)?;
    if !info.system_emulation {
        return Err("only the emulation of whole machines can be observed".to_owned());
    }
    // SAFETY: QEMU names its target in a static C string.
    let target = unsafe { CStr::from_ptr(info.target_name) };
    if target != c"aarch64" {
        return Err(format!("the target is {target:?}, not aarch64"));
    }
    let vcpus = usize::try_from(info.max_vcpus.max(info.smp_vcpus)).unwrap_or(0);
    // 9.2 has the same version of the interface as 10.0, where that is needed.
    let silent = vcpus > 1 && info.version_cur >= 4;
    let cores = silent.then(|| RunningCore::of(vcpus)).transpose()?;
    let job = Job::new(&options, vcpus)?;
    let api = Api::find(info.version_cur).map_err(|name| format!("QEMU exports no {name:?}"))?;
    let plugin = Plugin { api, options, cores, job };
    let (translate, exit) = (plugin.api.register_translated, plugin.api.register_exit);
    PLUGIN.set(plugin).map_err(|_| "loaded twice".to_owned())?;
    // SAFETY: `id` is the one that QEMU gave, and the callback is of the type it wants.
    unsafe { translate(id, translated) };
    // SAFETY: as above.
    unsafe { exit(id, exited, std::ptr::null_mut()) };
    Ok(())
}

/// QEMU has translated a block: ask to be called for what the job wants to know of it.
extern "C" fn translated(_id: u64, tb: Tb) {
    let Some(Plugin { api, options, cores, job }) = PLUGIN.get() else {
        return;
    };
    // SAFETY: QEMU passes a block that is valid during this call.
    let length = unsafe { (api.tb_n_insns)(tb) };
    if cores.is_some() {
        // SAFETY: `tb` is valid during this call and the callback of the type that QEMU wants. Of
        // the callbacks of a block that are asked for here it is the first that QEMU makes.
        unsafe { (api.register_tb_exec)(tb, entered, READ_REGS, std::ptr::null_mut()) };
    }
    match job {
        Job::Count(_) => count_block(api, options, tb, length),
        Job::Caches(caches) => cache_block(api, options, caches, tb, length),
    }
}

/// Counting: every instruction, and the loads and stores of the hypervisor.
fn count_block(api: &Api, options: &PluginOptions, tb: Tb, length: usize) {
    for index in 0..length {
        // A guest in AArch32 state may have instructions of two bytes; they are not EL2's.
        let Some((insn, pc, opcode)) = api.instruction(tb, index) else {
            continue;
        };
        let step = InstructionStep::new(pc, opcode, options);
        let data = std::ptr::without_provenance_mut(step.to_bits() as usize);
        // SAFETY: `insn` is valid during this call and the callback of the type that QEMU wants.
        unsafe { (api.register_insn_exec)(insn, executed, NO_REGS, data) };
        if step.wants_accesses() {
            // SAFETY: as above.
            unsafe { (api.register_mem)(insn, accessed, NO_REGS, READ_WRITE, data) };
        }
    }
}

/// Caches: the block as a whole, the place where it crosses into another page, ERETs of the
/// hypervisor, and all loads and stores.
fn cache_block(
    api: &Api,
    options: &PluginOptions,
    Caches { ram, host, .. }: &Caches,
    tb: Tb,
    length: usize,
) {
    // The instructions that begin a page of code, each with the bytes of the block in that page.
    let mut pages: Vec<(Insn, u64, u64)> = Vec::new();
    for index in 0..length {
        // SAFETY: `tb` is valid during the callback that is running, and `index` below its
        // instructions.
        let insn = unsafe { (api.tb_get_insn)(tb, index) };
        // SAFETY: `insn` came from the call above and is valid as long as `tb`.
        let (pc, size) = unsafe { ((api.insn_vaddr)(insn), (api.insn_size)(insn) as u64) };
        match pages.last_mut() {
            Some((_, first, bytes)) if *first / PAGE == pc / PAGE => *bytes = pc + size - *first,
            _ => pages.push((insn, pc, size)),
        }
        // What is not four bytes long is a guest's in AArch32 state, and may be a load.
        let class = api.instruction(tb, index).map(|(.., opcode)| InstructionClass::of(opcode));
        if class.is_none_or(|class| class == InstructionClass::LoadStore) {
            let data = std::ptr::without_provenance_mut(pc as usize);
            // SAFETY: `insn` is valid during this call and the callback of the type that QEMU
            // wants.
            unsafe { (api.register_mem)(insn, moved, NO_REGS, READ_WRITE, data) };
        } else if class == Some(InstructionClass::Eret) && options.hyp.contains(&pc) {
            // SAFETY: as above.
            unsafe { (api.register_insn_exec)(insn, returned, NO_REGS, std::ptr::null_mut()) };
        } else if let Some(InstructionClass::Marker(number)) = class {
            let data = std::ptr::without_provenance_mut(number.into());
            // SAFETY: as above.
            unsafe { (api.register_insn_exec)(insn, marked, NO_REGS, data) };
        }
    }
    for (place, (insn, pc, bytes)) in pages.into_iter().enumerate() {
        // SAFETY: as above.
        let address = unsafe { (api.insn_haddr)(insn) }.addr() as u64;
        if address != 0 && host.load(Relaxed) == 0 && ram.contains(&pc) {
            // The machine starts in RAM with its MMU off, so that this address is physical.
            host.store(address.wrapping_sub(pc), Relaxed);
        }
        let pa = address.wrapping_sub(host.load(Relaxed));
        let pa = (address != 0 && ram.contains(&pa)).then_some(pa);
        let block = Block::new(
            pa,
            bytes,
            Start { inside: options.hyp.contains(&pc), vector: options.is_lower_el_vector(pc) },
        );
        let data = std::ptr::without_provenance_mut(block.to_bits() as usize);
        if place == 0 {
            // SAFETY: `tb` is valid during this call and the callback of the type that QEMU wants.
            unsafe { (api.register_tb_exec)(tb, began, NO_REGS, data) };
        } else {
            // SAFETY: as above, of `insn`.
            unsafe { (api.register_insn_exec)(insn, crossed, NO_REGS, data) };
        }
    }
}

/// A vCPU begins to execute a block.
extern "C" fn entered(_vcpu: c_uint, _data: *mut c_void) {
    if let Some(Plugin { cores: Some(cores), .. }) = PLUGIN.get() {
        cores.note();
    }
}

/// A vCPU is about to execute the instruction in `data`. QEMU calls this on the vCPU's thread, one
/// call at a time for each vCPU.
extern "C" fn executed(vcpu: c_uint, data: *mut c_void) {
    if let Some(plugin @ Plugin { job: Job::Count(accounting), .. }) = PLUGIN.get() {
        accounting.step(plugin.core(vcpu), InstructionStep::from_bits(data.addr() as u64));
    }
}

/// A vCPU has made a memory access.
extern "C" fn accessed(vcpu: c_uint, info: u32, vaddr: u64, _data: *mut c_void) {
    let Some(plugin @ Plugin { api, job: Job::Count(accounting), .. }) = PLUGIN.get() else {
        return;
    };
    // SAFETY: `info` and `vaddr` are those of the running callback, which is when this may be
    // asked.
    let address = unsafe { (api.get_hwaddr)(info, vaddr) };
    // SAFETY: the handle is valid until this callback returns.
    let is_io = !address.is_null() && unsafe { (api.hwaddr_is_io)(address) };
    accounting.access(plugin.core(vcpu), is_io);
}

/// The state of the caches job, and the core that runs, for which a callback reports `vcpu`.
fn books(vcpu: c_uint) -> Option<(&'static Api, &'static Books, usize)> {
    match PLUGIN.get()? {
        plugin @ Plugin { api, job: Job::Caches(caches), .. } => {
            Some((api, &caches.books, plugin.core(vcpu)))
        }
        Plugin { job: Job::Count(_), .. } => None,
    }
}

/// A vCPU begins to execute the block in `data`.
extern "C" fn began(vcpu: c_uint, data: *mut c_void) {
    if let Some((_, books, core)) = books(vcpu) {
        books.block(core, Block::from_bits(data.addr() as u64));
    }
}

/// A vCPU goes on with a block in another page.
extern "C" fn crossed(vcpu: c_uint, data: *mut c_void) {
    if let Some((_, books, core)) = books(vcpu) {
        books.next_page(core, Block::from_bits(data.addr() as u64));
    }
}

/// A vCPU is about to execute an ERET of the hypervisor.
extern "C" fn returned(vcpu: c_uint, _data: *mut c_void) {
    if let Some((_, books, core)) = books(vcpu) {
        books.eret(core);
    }
}

/// A vCPU is about to execute the marker in `data`.
extern "C" fn marked(vcpu: c_uint, data: *mut c_void) {
    if let Some((_, books, core)) = books(vcpu) {
        books.mark(core, data.addr() as u8);
    }
}

/// A vCPU has loaded or stored with the instruction at the address in `data`.
extern "C" fn moved(vcpu: c_uint, info: u32, vaddr: u64, data: *mut c_void) {
    let Some((api, books, core)) = books(vcpu) else {
        return;
    };
    // SAFETY: `info` and `vaddr` are those of the running callback, which is when this may be
    // asked.
    let address = unsafe { (api.get_hwaddr)(info, vaddr) };
    if address.is_null() {
        return;
    }
    // SAFETY: the handle is valid until this callback returns.
    let (pa, is_io) = unsafe { ((api.hwaddr_phys_addr)(address), (api.hwaddr_is_io)(address)) };
    // SAFETY: `info` is that of the running callback.
    let (shift, write) = unsafe { ((api.mem_size_shift)(info), (api.mem_is_store)(info)) };
    if is_io {
        return books.device(pa, write);
    }
    let data = Data { pa, bytes: 1 << shift.min(12), write, pc: data.addr() as u64 };
    books.data(core, data);
}

/// QEMU ends.
extern "C" fn exited(_id: u64, _data: *mut c_void) {
    let Some(Plugin { options, job, .. }) = PLUGIN.get() else {
        return;
    };
    if let Some(file) = &options.ledger {
        let ledger = match job {
            Job::Count(accounting) => accounting.ledger(),
            Job::Caches(caches) => caches.books.ledger(),
        };
        if let Err(error) = ledger.write(file) {
            eprintln!("weir-qemu-plugin: cannot write {}: {error}", file.display());
        }
    }
    let out = &options.out;
    let written = match job {
        Job::Count(accounting) => accounting.report().write(out),
        Job::Caches(caches) => {
            let books = &caches.books;
            let until = options.until.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
            let until = until.and_then(|bytes| bytes.trim().parse().ok());
            let seen = until.and_then(|bytes| books.report_at(bytes));
            let seen = seen.unwrap_or_else(|| books.report());
            books.write_recordings(&seen).and_then(|()| seen.write(out))
        }
    };
    if let Err(error) = written {
        eprintln!("weir-qemu-plugin: cannot write {}: {error}", out.display());
    }
}
