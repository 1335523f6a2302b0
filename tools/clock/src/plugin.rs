//! The interface to QEMU's plug-ins, by which each core counts its instructions.
//!
//! Declared after QEMU's documentation of TCG plug-ins (`docs/devel/tcg-plugins.rst`) and
//! `include/qemu/qemu-plugin.h`, versions 1 to 5. Every function is resolved by name. Version 1 has
//! counters of the whole process only, so that all cores share one, which holds the clock of the
//! running core. Later versions have counters of each core.

use crate::{
    c, charge,
    input::{self, Input, Looks},
    memory::Memory,
    options::Options,
    process,
    reader::Reader,
};
use libc::{c_char, c_int, c_uint, c_void};
use std::{
    ffi::CStr,
    fs::File,
    io::Read as _,
    mem::transmute,
    os::fd::FromRawFd as _,
    ptr::{null, null_mut},
    sync::OnceLock,
};

type Block = *mut c_void;
type Instruction = *mut c_void;
type OnTranslation = extern "C" fn(u64, Block);
type OnExecution = extern "C" fn(c_uint, *mut c_void);
type OnAccess = extern "C" fn(c_uint, u32, u64, *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_INLINE_ADD_U64`.
const ADD: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`: loads and stores.
const READ_WRITE: c_int = 3;
/// Bytes of an instruction.
const WORD: usize = 4;

/// `qemu_plugin_u64`: a counter of each core.
#[repr(C)]
#[derive(Clone, Copy)]
struct Counters {
    board: *mut c_void,
    offset: usize,
}

/// The way to count that this QEMU has.
enum Counting {
    /// One counter for all cores.
    Shared { add: unsafe extern "C" fn(Instruction, c_int, *mut u64, u64) },
    /// A counter for each core.
    Each {
        add: unsafe extern "C" fn(Instruction, c_int, Counters, u64),
        find: unsafe extern "C" fn(*mut c_void, c_uint) -> *mut u64,
        counters: Counters,
    },
}

/// The way to an instruction's bytes, which changed between versions 2 and 3.
enum Bytes {
    /// A pointer to them.
    Pointer(unsafe extern "C" fn(Instruction) -> *const c_void),
    /// A copy.
    Copy(unsafe extern "C" fn(Instruction, *mut c_void, usize) -> usize),
}

/// `qemu_info_t`: QEMU's description of itself and its machine.
#[repr(C)]
pub struct Info {
    target: *const c_char,
    oldest_version: c_int,
    version: c_int,
    emulates_system: bool,
    cores: c_int,
    most_cores: c_int,
}

/// The functions that report the accesses of cores.
struct Accesses {
    register: unsafe extern "C" fn(Instruction, OnAccess, c_int, c_int, *mut c_void),
    place: unsafe extern "C" fn(u32, u64) -> *const c_void,
    is_device: unsafe extern "C" fn(*const c_void) -> bool,
    address: unsafe extern "C" fn(*const c_void) -> u64,
    size_shift: unsafe extern "C" fn(u32) -> c_uint,
    is_store: unsafe extern "C" fn(u32) -> bool,
}

/// QEMU's functions.
struct Api {
    count: unsafe extern "C" fn(Block) -> usize,
    instruction: unsafe extern "C" fn(Block, usize) -> Instruction,
    on_execution: unsafe extern "C" fn(Block, OnExecution, c_int, *mut c_void),
    counting: Counting,
    bytes: Bytes,
    /// Needed if the memory's time is charged.
    accesses: Option<Accesses>,
}

// SAFETY: the pointer to QEMU's counters is only passed to QEMU.
unsafe impl Send for Api {}
// SAFETY: as above; the struct is never changed.
unsafe impl Sync for Api {}

static API: OnceLock<Api> = OnceLock::new();

/// The version of the interface, which QEMU reads after it has loaded the library.
#[unsafe(no_mangle)]
pub static mut qemu_plugin_version: c_int = 1;

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends in a zero.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// Finds a function of QEMU's. `$type` must be its type in QEMU's header.
macro_rules! function {
    ($name:literal, $type:ty) => {
        find($name).map(|symbol| {
            // SAFETY: the symbol was found, and QEMU's header declares it with this type.
            unsafe { transmute::<*mut c_void, $type>(symbol) }
        })
    };
}

/// Returns whether the program that has loaded this library is a QEMU with plug-ins.
pub fn is_qemu() -> bool {
    find(c"qemu_plugin_tb_n_insns").is_some()
}

/// Returns where the object that has `address` is loaded.
fn object_of(address: *const c_void) -> Option<*mut c_void> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call accepts any address, and the struct is ours.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: the call has filled it; zeros are valid, too.
    (found != 0).then(|| unsafe { info.assume_init() }.dli_fbase)
}

/// Returns whether the program's calls come to this library: it was preloaded, and not only loaded
/// as a plug-in.
pub fn is_preloaded() -> bool {
    let own = object_of(on_block as *const c_void);
    // The search of the program: that of this library begins with its own definitions (-Bsymbolic).
    // SAFETY: the handle is that of the program, which stays, and the name ends in a zero.
    let found = unsafe { libc::dlsym(libc::dlopen(null(), libc::RTLD_LAZY), c"ppoll".as_ptr()) };
    !found.is_null() && own.is_some() && object_of(found) == own
}

/// Returns the version of the interface to use. Each of these functions came with the version; QEMU
/// 9.0 has 2 alone, 10.0 has 2 to 4.
fn version() -> c_int {
    if find(c"qemu_plugin_read_memory_vaddr").is_some() {
        4
    } else if find(c"qemu_plugin_scoreboard_new").is_some() {
        2
    } else {
        1
    }
}

/// States the version of the interface: of a constructor.
pub fn state_version() {
    // SAFETY: QEMU reads it later, and there is one thread.
    unsafe { qemu_plugin_version = version() };
}

impl Accesses {
    fn find() -> Option<Self> {
        Some(Self {
            register: function!(
                c"qemu_plugin_register_vcpu_mem_cb",
                unsafe extern "C" fn(Instruction, OnAccess, c_int, c_int, *mut c_void)
            )?,
            place: function!(
                c"qemu_plugin_get_hwaddr",
                unsafe extern "C" fn(u32, u64) -> *const c_void
            )?,
            is_device: function!(
                c"qemu_plugin_hwaddr_is_io",
                unsafe extern "C" fn(*const c_void) -> bool
            )?,
            address: function!(
                c"qemu_plugin_hwaddr_phys_addr",
                unsafe extern "C" fn(*const c_void) -> u64
            )?,
            size_shift: function!(
                c"qemu_plugin_mem_size_shift",
                unsafe extern "C" fn(u32) -> c_uint
            )?,
            is_store: function!(c"qemu_plugin_mem_is_store", unsafe extern "C" fn(u32) -> bool)?,
        })
    }
}

impl Api {
    fn find() -> Option<Self> {
        let new_board =
            function!(c"qemu_plugin_scoreboard_new", unsafe extern "C" fn(usize) -> *mut c_void);
        let add_each = function!(
            c"qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu",
            unsafe extern "C" fn(Instruction, c_int, Counters, u64)
        );
        let counting = match new_board.zip(add_each) {
            Some((new, add)) => Counting::Each {
                add,
                find: function!(
                    c"qemu_plugin_scoreboard_find",
                    unsafe extern "C" fn(*mut c_void, c_uint) -> *mut u64
                )?,
                // SAFETY: the call takes a number.
                counters: Counters { board: unsafe { new(size_of::<u64>()) }, offset: 0 },
            },
            None => Counting::Shared {
                add: function!(
                    c"qemu_plugin_register_vcpu_insn_exec_inline",
                    unsafe extern "C" fn(Instruction, c_int, *mut u64, u64)
                )?,
            },
        };
        let bytes = if version() < 3 {
            Bytes::Pointer(function!(
                c"qemu_plugin_insn_data",
                unsafe extern "C" fn(Instruction) -> *const c_void
            )?)
        } else {
            Bytes::Copy(function!(
                c"qemu_plugin_insn_data",
                unsafe extern "C" fn(Instruction, *mut c_void, usize) -> usize
            )?)
        };
        Some(Self {
            count: function!(c"qemu_plugin_tb_n_insns", unsafe extern "C" fn(Block) -> usize)?,
            instruction: function!(
                c"qemu_plugin_tb_get_insn",
                unsafe extern "C" fn(Block, usize) -> Instruction
            )?,
            on_execution: function!(
                c"qemu_plugin_register_vcpu_tb_exec_cb",
                unsafe extern "C" fn(Block, OnExecution, c_int, *mut c_void)
            )?,
            counting,
            bytes,
            accesses: None,
        })
    }

    /// Returns the opcode of an instruction: the bytes of a T32 instruction are no opcode of A64.
    fn opcode(&self, instruction: Instruction) -> u32 {
        let mut bytes = [0; WORD];
        match self.bytes {
            Bytes::Pointer(pointer) => {
                // SAFETY: the instruction is valid during the translation, and QEMU's array of its
                // bytes has four or more.
                bytes = unsafe { pointer(instruction).cast::<[u8; WORD]>().read_unaligned() };
            }
            Bytes::Copy(copy) => {
                // SAFETY: the instruction is valid during the translation, and there is room.
                unsafe { copy(instruction, bytes.as_mut_ptr().cast(), WORD) };
            }
        }
        u32::from_le_bytes(bytes)
    }

    /// Has `instruction` add `count` to its core's clock before it is executed.
    fn add(&self, instruction: Instruction, count: u64) {
        // SAFETY: the instruction is valid during the translation, and the counters stay.
        unsafe {
            match self.counting {
                Counting::Shared { add, .. } => {
                    add(instruction, ADD, process::shared_cell(), count);
                }
                Counting::Each { add, counters, .. } => add(instruction, ADD, counters, count),
            }
        }
    }
}

/// Returns whether an instruction can leave the translated code or read a clock, so that the clock
/// must be right at it: loads and stores (op0 `x1x0`), exceptions, hints and system registers (Arm
/// ARM DDI0487, C4.1).
#[must_use]
pub const fn can_leave(opcode: u32) -> bool {
    let is_load_or_store = opcode & 0x0A00_0000 == 0x0800_0000;
    let is_system = opcode & 0xFE00_0000 == 0xD400_0000;
    is_load_or_store || is_system
}

/// QEMU translates a block: have its instructions counted, and ask for a call at its start.
extern "C" fn on_translation(_id: u64, block: Block) {
    let Some(api) = API.get() else { return };
    // SAFETY: QEMU passes a block that is valid during this call, and the callback has the type
    // that it wants.
    let count = unsafe {
        (api.on_execution)(block, on_block, NO_REGISTERS, null_mut());
        (api.count)(block)
    };
    let mut pending = 0;
    for index in 0..count {
        // SAFETY: as above, and the index is below the number.
        let instruction = unsafe { (api.instruction)(block, index) };
        if let Some(accesses) = &api.accesses {
            // SAFETY: as above, and the callback has the type that QEMU wants.
            unsafe {
                (accesses.register)(instruction, on_access, NO_REGISTERS, READ_WRITE, null_mut());
            }
        }
        pending += 1;
        if index + 1 == count || can_leave(api.opcode(instruction)) {
            api.add(instruction, pending);
            pending = 0;
        }
    }
}

/// A core has loaded or stored.
extern "C" fn on_access(core: c_uint, access: u32, address: u64, _data: *mut c_void) {
    let Some(Api { accesses: Some(api), .. }) = API.get() else { return };
    // SAFETY: QEMU passes the access that the core has just made, and what it returns is valid
    // during this callback.
    let (pa, bytes, is_store) = unsafe {
        let place = (api.place)(access, address);
        if place.is_null() || (api.is_device)(place) {
            return;
        }
        ((api.address)(place), 1 << (api.size_shift)(access), (api.is_store)(access))
    };
    charge::access(core as usize, is_store, pa, bytes);
}

/// A core begins a block.
extern "C" fn on_block(core: c_uint, _data: *mut c_void) {
    if process::is_over() {
        end_turn(core);
    }
}

/// Ends the turn of a core, which is known as one from now on.
#[inline(never)]
fn end_turn(core: c_uint) {
    let is_known = process::with(|process| {
        let place = process.order.current();
        let is_known = process.order.thread(place).is_core;
        if !is_known {
            process.order.set_core();
            process.big_lock = process.facts[place].first_mutex;
        }
        is_known
    });
    if !is_known
        && let Some(Api { counting: Counting::Each { find, counters, .. }, .. }) = API.get()
    {
        // SAFETY: the core exists, so that it has a counter, and the counters of at most
        // `MOST_CORES` cores, which `install` checked, stay where they are.
        process::set_cell(unsafe { find(counters.board, core) });
    }
    process::schedule();
}

/// QEMU loads the plug-in.
///
/// # Safety
///
/// QEMU's promise: `info` is valid, and `arguments` has `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let arguments = (0..usize::try_from(count).unwrap_or(0)).map(|index| {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy().into_owned()
    });
    // SAFETY: the caller's promise.
    let cores = unsafe { (*info).most_cores.max((*info).cores) };
    match install(id, usize::try_from(cores).unwrap_or(0), arguments) {
        Ok(()) => 0,
        Err(error) => {
            c::report(&error);
            -1
        }
    }
}

/// Returns the input that the options name.
fn input(options: &Options) -> Result<Input, String> {
    let Some(file) = options.replay else {
        return Ok(options.record.map_or(Input::None, |record| Input::Live { record }));
    };
    // SAFETY: the caller of QEMU gives the file to this library, which nothing else uses.
    let mut file = unsafe { File::from_raw_fd(file) };
    let mut record = String::new();
    file.read_to_string(&mut record)
        .map_err(|error| format!("read the input's record: {error}"))?;
    input::parse(&record).map(Input::Replay)
}

/// The most cores for whose counters QEMU 9 and later make room at the start: for more it moves
/// them (`qemu_plugin_scoreboard`).
const MOST_CORES: usize = 16;

fn install(id: u64, cores: usize, arguments: impl Iterator<Item = String>) -> Result<(), String> {
    if !process::is_active() {
        return Err("the library must be in LD_PRELOAD, too".into());
    }
    let options = Options::parse(arguments)?;
    let mut api = Api::find().ok_or("this QEMU has no counters for plug-ins")?;
    if matches!(api.counting, Counting::Each { .. }) && cores > MOST_CORES {
        return Err(format!(
            "the machine has {cores} cores, and the counters of this QEMU stay where they are for \
             {MOST_CORES} at most: give it fewer by `-smp`"
        ));
    }
    let memory = match &options.memory {
        Some(board) => {
            let accesses = Accesses::find().ok_or("this QEMU reports no accesses to plug-ins")?;
            api.accesses = Some(accesses);
            Some(Memory::new(board, cores, &options.banks)?)
        }
        None => None,
    };
    let translate = function!(
        c"qemu_plugin_register_vcpu_tb_trans_cb",
        unsafe extern "C" fn(u64, OnTranslation)
    );
    let translate = translate.ok_or("this QEMU reports no translation to plug-ins")?;
    let input = input(&options)?;
    let reader = options.reader.as_ref().map_or(Ok(Reader::NONE), Reader::new)?;
    process::with(|process| {
        if let Some(quantum) = options.quantum {
            process.order.set_quantum(quantum);
        }
        process.memory = memory;
        process.looks = Looks::new(input, process::START, c::host_ns());
        process.reader = reader;
    });
    API.set(api).map_err(|_| "loaded twice")?;
    // SAFETY: `id` is the one that QEMU gave, and the callback has the type that it wants.
    unsafe { translate(id, on_translation) };
    Ok(())
}
