//! SMMUv3 (IHI 0070): a two-level stream table, a command queue that is empty whenever the lock is
//! free, and an event queue.
//!
//! The SMMU takes no part in maintenance that cores broadcast; commands invalidate its caches. The
//! memory that it reads and writes lies in separate pages, which need not be adjacent. The SMMU
//! must be coherent with the cores' caches.

use super::{Domain, Silent};
use crate::{
    arch::{
        dsb_sy,
        lock::Lock,
        machine::store,
        memory,
        mmio::{Device, Register},
        relax, timer,
    },
    board,
};
use core::ptr;
use weir_abi::STREAM_LIMIT;
use weir_paging::smmu::{
    self, ABORT, FORGET_CONFIGURATION, FORGET_TRANSLATIONS, Index, SYNC, SmmuCommand, SmmuEntry,
    SmmuFault, SmmuFormat,
};
use weir_units::Pa;

/// The SMMU.
// SAFETY: `Stage1::begin` maps both pages of registers, and the registers below lie in them.
// Reading changes nothing. The SMMU reads and writes only `Memory` and the tables of the domains.
const SMMU: Device = unsafe { Device::new("smmu", memory::device(Pa(board::SMMU))) };

/// Registers (chapter 6.3).
const IDR0: Register<u32> = Register::at(0x00);
const IDR1: Register<u32> = Register::at(0x04);
const IDR5: Register<u32> = Register::at(0x14);
const CR0: Register<u32> = Register::at(0x20);
const CR0ACK: Register<u32> = Register::at(0x24);
const CR1: Register<u32> = Register::at(0x28);
const CR2: Register<u32> = Register::at(0x2c);
const GBPA: Register<u32> = Register::at(0x44);
const IRQ_CTRL: Register<u32> = Register::at(0x50);
const IRQ_CTRLACK: Register<u32> = Register::at(0x54);
const STRTAB_BASE: Register<u32> = Register::at(0x80);
const STRTAB_BASE_CFG: Register<u32> = Register::at(0x88);
const CMDQ_BASE: Register<u32> = Register::at(0x90);
const CMDQ_PROD: Register<u32> = Register::at(0x98);
const CMDQ_CONS: Register<u32> = Register::at(0x9c);
const EVENTQ_BASE: Register<u32> = Register::at(0xa0);
/// Registers on the second page.
const EVENTQ_PROD: Register<u32> = Register::at(0x1_00a8);
const EVENTQ_CONS: Register<u32> = Register::at(0x1_00ac);

/// CR0: translation, event queue, command queue.
const SMMUEN: u32 = 1;
const EVENTQEN: u32 = 1 << 2;
const CMDQEN: u32 = 1 << 3;
/// CR1: tables and queues write-back and inner shareable.
const CACHED: u32 = 3 << 10 | 1 << 8 | 1 << 6 | 3 << 4 | 1 << 2 | 1;
/// CR2: takes no part in broadcast TLB maintenance (PTM).
const PRIVATE: u32 = 1 << 2;
/// GBPA: aborts accesses that arrive while translation is off; takes over the new value.
const GBPA_ABORT: u32 = 1 << 20;
const GBPA_UPDATE: u32 = 1 << 31;
/// IRQ_CTRL: the event queue's interrupt.
const EVENTQ_IRQEN: u32 = 1 << 2;
/// Base registers: allocate in the caches (RA, WA).
const ALLOCATE: u64 = 1 << 62;
/// Flag in the producer index of the event queue: records were lost.
const OVERFLOW: u32 = 1 << 31;

/// log2 of the number of entries of each queue; each queue fits in a page.
const COMMANDS: u32 = 8;
const EVENTS: u32 = 7;
/// Number of records that are taken at once, in one section with interrupts masked.
const AT_ONCE: usize = 4;
/// log2 of the number of streams, and of the streams in a page of the table's second level.
const STREAM_BITS: u32 = STREAM_LIMIT.ilog2();
const SPLIT: u32 = 6;
const LEVEL2: usize = 1 << (STREAM_BITS - SPLIT);

/// The longest time that the SMMU may take for a command. It waits for accesses that are under way,
/// which in turn wait for memory.
const PATIENCE_NS: u64 = 1_000_000_000;

#[repr(C, align(4096))]
struct Page<T>(T);

/// The memory that the SMMU reads and writes.
struct Memory {
    level1: Page<[u64; 512]>,
    streams: [Page<[SmmuEntry; 64]>; LEVEL2],
    /// The context of each stream; used if the SMMU has no stage 2.
    contexts: [Page<[SmmuEntry; 64]>; LEVEL2],
    commands: Page<[SmmuCommand; 1 << COMMANDS]>,
    events: Page<[[u64; 4]; 1 << EVENTS]>,
}

struct Smmu {
    memory: Memory,
    format: SmmuFormat,
    commands: Index<COMMANDS>,
    events: Index<EVENTS>,
}

static DRIVER: Lock<Smmu> = Lock::new(Smmu::new());

/// Writes a base register, which has two words.
fn write_base(register: Register<u32>, value: u64) {
    SMMU.write(register, value as u32);
    SMMU.write(register.nth(1), (value >> 32) as u32);
}

/// Polls `done` until it is true, for a bounded time.
fn wait_until(mut done: impl FnMut() -> bool) -> Result<(), Silent> {
    let start = timer::now_ns();
    while !done() {
        if timer::now_ns().saturating_sub(start) > PATIENCE_NS {
            return Err(Silent);
        }
        relax();
    }
    Ok(())
}

/// Writes a control register and waits until the SMMU has taken it over.
fn write_acknowledged(
    register: Register<u32>,
    acknowledge: Register<u32>,
    value: u32,
) -> Result<(), Silent> {
    SMMU.write(register, value);
    wait_until(|| SMMU.read(acknowledge) == value)
}

/// Returns the physical address of a page of [`Memory`].
fn physical<T>(page: &Page<T>) -> u64 {
    memory::physical(ptr::from_ref(page) as u64).0
}

/// Initializes the SMMU with every stream aborted; called on the boot core, once. Returns the table
/// format that the SMMU uses.
///
/// # Errors
///
/// Returns the capability that the SMMU lacks.
pub fn init() -> Result<SmmuFormat, &'static str> {
    let (idr0, idr1, idr5) = (SMMU.read(IDR0), SMMU.read(IDR1), SMMU.read(IDR5));
    let format = match idr0 & 3 {
        0 => return Err("it translates nothing"),
        stages if stages & 1 != 0 => SmmuFormat::Stage2,
        _ => SmmuFormat::Stage1,
    };
    let lacks = [
        (idr0 >> 2 & 2 == 0, "it has no tables of AArch64's format"),
        (idr0 >> 4 & 1 == 0, "it does not see the cores' caches"),
        (idr0 >> 27 & 3 != 1, "it has no stream table of two levels"),
        (idr1 >> 29 & 3 != 0, "its tables or queues are preset"),
        (idr1 & 0x3f < STREAM_BITS, "it has fewer than 256 streams"),
        (idr1 >> 21 & 0x1f < COMMANDS, "its command queue is too short"),
        (idr1 >> 16 & 0x1f < EVENTS, "its event queue is too short"),
        (idr5 & 7 < 2, "it has fewer than 40 bits of address"),
        (idr5 >> 4 & 1 == 0, "it has no 4 KiB granule"),
    ];
    if let Some((_, what)) = lacks.into_iter().find(|(lacks, _)| *lacks) {
        return Err(what);
    }
    DRIVER.lock().start(format).map_err(|Silent| "it does not answer")?;
    Ok(format)
}

/// Lets the accesses of `streams` reach the memory of `domain`.
///
/// # Errors
///
/// Returns [`Silent`]; then it is unknown which memory they can reach.
pub fn attach(streams: impl Iterator<Item = u32> + Clone, domain: &Domain) -> Result<(), Silent> {
    DRIVER.lock().attach(streams, domain)
}

/// Aborts the accesses of `streams` from now on: on return none is under way, and no translation of
/// `domain` is cached.
///
/// # Errors
///
/// Returns [`Silent`]; then the domain's memory must not be reused.
pub fn detach(streams: impl Iterator<Item = u32> + Clone, domain: &Domain) -> Result<(), Silent> {
    DRIVER.lock().detach(streams, domain)
}

/// Returns the accesses that were refused since the last call, and whether more records wait. Only
/// the first refused access of each stream since it was attached is reported, because the SMMU is
/// told to record no more of a stream that had one. So a device can cause this work in EL2 only
/// once.
///
/// # Errors
///
/// Returns [`Silent`] if the SMMU does not complete its commands.
pub fn take_faults() -> Result<([Option<SmmuFault>; AT_ONCE], bool), Silent> {
    DRIVER.lock().take_faults()
}

impl Smmu {
    const fn new() -> Self {
        Self {
            memory: Memory {
                level1: Page([0; 512]),
                streams: [const { Page([ABORT; 64]) }; LEVEL2],
                contexts: [const { Page([[0; 8]; 64]) }; LEVEL2],
                commands: Page([[0; 2]; 1 << COMMANDS]),
                events: Page([[0; 4]; 1 << EVENTS]),
            },
            format: SmmuFormat::Stage1,
            commands: Index(0),
            events: Index(0),
        }
    }

    fn attach(
        &mut self,
        streams: impl Iterator<Item = u32> + Clone,
        domain: &Domain,
    ) -> Result<(), Silent> {
        let format = self.format;
        for stream in streams.clone() {
            self.translate(stream, domain, true);
        }
        // No translation of the domain is cached, because `detach` saw to that, and its tables were
        // made before the SMMU was on.
        self.run(streams.map(smmu::forget_stream).chain([smmu::forget_domain(format, domain.id())]))
    }

    fn detach(
        &mut self,
        streams: impl Iterator<Item = u32> + Clone,
        domain: &Domain,
    ) -> Result<(), Silent> {
        let format = self.format;
        for stream in streams.clone() {
            self.abort(stream);
        }
        self.run(streams.map(smmu::forget_stream).chain([smmu::forget_domain(format, domain.id())]))
    }

    fn take_faults(&mut self) -> Result<([Option<SmmuFault>; AT_ONCE], bool), Silent> {
        let producer = SMMU.read(EVENTQ_PROD);
        // The producer index is read before the records that it announces.
        dsb_sy();
        let mut faults = [None; AT_ONCE];
        let mut found = 0;
        for _ in 0..AT_ONCE {
            if self.events.is(producer) {
                break;
            }
            let slot = self.events.slot();
            self.events = self.events.next();
            let Some(record) = self.memory.events.0.get(slot) else { continue };
            // SAFETY: a reference is a valid place; volatile because the SMMU wrote it.
            let fault = SmmuFault::from_record(unsafe { ptr::read_volatile(record) });
            if self.silence(&fault)
                && let Some(place) = faults.get_mut(found)
            {
                *place = Some(fault);
                found += 1;
            }
        }
        // The records are read before their places are given back.
        dsb_sy();
        SMMU.write(EVENTQ_CONS, self.events.0 | producer & OVERFLOW);
        let streams = faults.iter().flatten().map(|fault| smmu::forget_stream(fault.stream));
        self.run(streams).map(|()| (faults, !self.events.is(producer)))
    }

    fn start(&mut self, format: SmmuFormat) -> Result<(), Silent> {
        self.format = format;
        SMMU.write(GBPA, GBPA_UPDATE | GBPA_ABORT);
        wait_until(|| SMMU.read(GBPA) & GBPA_UPDATE == 0)?;
        write_acknowledged(IRQ_CTRL, IRQ_CTRLACK, 0)?;
        write_acknowledged(CR0, CR0ACK, 0)?;
        SMMU.write(CR1, CACHED);
        SMMU.write(CR2, PRIVATE);
        for (entry, page) in self.memory.level1.0.iter_mut().zip(&self.memory.streams) {
            store(entry, smmu::level1(physical(page)));
        }
        write_base(STRTAB_BASE, physical(&self.memory.level1) | ALLOCATE);
        // A stream table of two levels.
        SMMU.write(STRTAB_BASE_CFG, 1 << 16 | SPLIT << 6 | STREAM_BITS);
        let commands = physical(&self.memory.commands);
        write_base(CMDQ_BASE, commands | ALLOCATE | u64::from(COMMANDS));
        SMMU.write(CMDQ_PROD, 0);
        SMMU.write(CMDQ_CONS, 0);
        let events = physical(&self.memory.events);
        write_base(EVENTQ_BASE, events | ALLOCATE | u64::from(EVENTS));
        SMMU.write(EVENTQ_PROD, 0);
        SMMU.write(EVENTQ_CONS, 0);
        // The stores to the tables complete before the SMMU is enabled and reads them.
        dsb_sy();
        write_acknowledged(CR0, CR0ACK, CMDQEN)?;
        self.run([FORGET_CONFIGURATION, FORGET_TRANSLATIONS].into_iter())?;
        write_acknowledged(CR0, CR0ACK, CMDQEN | EVENTQEN)?;
        write_acknowledged(IRQ_CTRL, IRQ_CTRLACK, EVENTQ_IRQEN)?;
        write_acknowledged(CR0, CR0ACK, CMDQEN | EVENTQEN | SMMUEN)
    }

    /// Has the SMMU execute `commands`, which are fewer than its queue holds, and waits for their
    /// completion.
    fn run(&mut self, commands: impl Iterator<Item = SmmuCommand>) -> Result<(), Silent> {
        for command in commands.chain([SYNC]).take(1 << COMMANDS) {
            if let Some(place) = self.memory.commands.0.get_mut(self.commands.slot()) {
                let [low, high] = place;
                store(low, command[0]);
                store(high, command[1]);
            }
            self.commands = self.commands.next();
        }
        // The commands, and the entries that they refer to, are stored before the index that makes
        // the SMMU read them.
        dsb_sy();
        SMMU.write(CMDQ_PROD, self.commands.0);
        let end = self.commands;
        wait_until(|| end.is(SMMU.read(CMDQ_CONS)))
    }

    /// Returns the entry of a stream, if the stream exists.
    fn entry(&mut self, stream: u32) -> Option<&mut SmmuEntry> {
        let stream = stream as usize;
        self.memory.streams.get_mut(stream >> SPLIT)?.0.get_mut(stream % (1 << SPLIT))
    }

    fn context(&mut self, stream: u32) -> Option<&mut SmmuEntry> {
        let stream = stream as usize;
        self.memory.contexts.get_mut(stream >> SPLIT)?.0.get_mut(stream % (1 << SPLIT))
    }

    /// Makes a stream translate by the tables of `domain`.
    fn translate(&mut self, stream: u32, domain: &Domain, record: bool) {
        let entry = match self.format {
            SmmuFormat::Stage2 => smmu::stage2(domain.root.0, domain.id(), record),
            SmmuFormat::Stage1 => {
                let Some(place) = self.context(stream) else { return };
                let context = smmu::context(domain.root.0, domain.id(), memory::MAIR, record);
                place.iter_mut().zip(context).for_each(|(place, word)| store(place, word));
                let at = memory::physical(ptr::from_ref(place) as u64).0;
                smmu::stage1(at)
            }
        };
        let Some(place) = self.entry(stream) else { return };
        for (place, word) in place.iter_mut().zip(entry).skip(1) {
            store(place, word);
        }
        // The rest of the entry is stored before the word that makes the entry valid for
        // translation.
        dsb_sy();
        store(&mut place[0], entry[0]);
    }

    fn abort(&mut self, stream: u32) {
        if let Some(place) = self.entry(stream) {
            store(&mut place[0], ABORT[0]);
        }
    }

    /// Stops the recording of further faults of a stream. Returns false if recording was already
    /// stopped. The entry of a stream that was detached in the meantime keeps everything but its
    /// ability to translate, so the last faults of the stream are still reported.
    fn silence(&mut self, fault: &SmmuFault) -> bool {
        const S2R: u64 = 1 << 58;
        const R: u64 = 1 << 45;
        /// Events from this number on report an access of the device; lower ones report an error in
        /// the entry.
        const TRANSLATION: u8 = 0x10;
        let Some(entry) = self.entry(fault.stream) else { return false };
        if fault.number < TRANSLATION {
            store(&mut entry[0], ABORT[0]);
        }
        let (place, bit) = match self.format {
            SmmuFormat::Stage2 => (self.entry(fault.stream).map(|entry| &mut entry[2]), S2R),
            SmmuFormat::Stage1 => (self.context(fault.stream).map(|context| &mut context[0]), R),
        };
        let Some(place) = place else { return false };
        let was = *place;
        store(place, was & !bit);
        was & bit != 0
    }
}

#[cfg(test)]
mod tests;
