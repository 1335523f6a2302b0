//! `trace.bin`: the records of all cores of a run, in the order of time.
//!
//! A header, an entry of 48 bytes for each VM, then records of 32 bytes up to the end of the file,
//! by time and of one time by core; all little endian. A record is as it was in its core's ring
//! ([`weir_trace::record`]) but for its sequence number, which its core replaces.

use crate::run::read_report;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Write},
    path::Path,
};
use weir_image::{Failure, Result, failure::Context};
use weir_model::open_regular;
use weir_trace::record::{Record, RecordKind};
use weir_units::Nanos;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The file's name in the run's directory.
pub const NAME: &str = "trace.bin";
const MAGIC: [u8; 8] = *b"weirtrac";
const VERSION: u32 = 1;
/// Most VMs that a trace can distinguish: a record's VM is one byte, and one number stands for
/// none.
const VMS_LIMIT: u32 = 255;
/// More accesses or instructions in a nanosecond than any core makes: 16 in each of 4 cycles.
const MOST_PER_NS: u64 = 64;
/// The most by which the time of a record that begins a period is behind the moment from which the
/// period counts.
const LATE_NS: u64 = 1000;

weir_trace::layout! {
    /// The header of the file.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct Header {
        /// `weirtrac`.
        magic: [u8; 8],
        /// The version of the format, 1.
        version: u32,
        /// Cores of the system.
        cores: u32,
        /// Frequency of the counter in Hz.
        frequency: u64,
        /// The counter when the hypervisor started.
        zero: u64,
        /// Records in the file, at most 2^26.
        records: u64,
        /// Records that were lost.
        lost: u64,
        /// Entries of VMs behind the header.
        vms: u32,
        /// Zeros.
        reserved: u32,
        /// The counter at the last record, or 0 if the header does not contain it.
        last: u64,
    }
}

weir_trace::layout! {
    /// The entry of a VM.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct VmEntry {
        /// The name, filled up with zeros.
        name: [u8; 32],
        /// The number of vCPUs.
        vcpus: u32,
        /// Zeros.
        reserved: u32,
        /// The core of each vCPU.
        cores: [u8; 8],
    }
}

/// A VM of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedVm {
    /// The name.
    pub name: String,
    /// The core of each vCPU, at most 8.
    pub cores: Vec<u8>,
}

/// A trace's facts of its run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFacts {
    /// Cores of the system.
    pub cores: u32,
    /// The frequency of the counter in Hz, not 0.
    pub frequency: u64,
    /// The counter when the hypervisor started, in ticks.
    pub zero: u64,
    /// Records in the trace.
    pub records: u64,
    /// Records that were lost.
    pub lost: u64,
    /// The counter at the last record, in ticks; 0 if the trace does not contain it.
    pub last: u64,
    /// Its VMs, in the order of the system file.
    pub vms: Vec<TracedVm>,
    /// The names of its flows by their numbers in records, from the report of the run; empty if
    /// there is none.
    pub flows: Vec<String>,
}

/// No run takes so many ns, which are two years. Sums of a few such times have 64 bits.
const LONGEST_RUN: u64 = 1 << 56;

impl TraceFacts {
    /// Converts a counter value to whole nanoseconds since the hypervisor's start, as EL2 does for
    /// the wire.
    #[must_use]
    pub fn nanos(&self, ticks: u64) -> u64 {
        let ticks = u128::from(ticks.wrapping_sub(self.zero));
        let nanos = ticks * 1_000_000_000 / u128::from(self.frequency.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Returns the time of a record in ns since the hypervisor's start; none if it is damaged, so
    /// that the record is before the start or no run lasts until then.
    #[must_use]
    pub fn time(&self, record: &Record) -> Option<u64> {
        let now = self.nanos(record.time);
        (record.time >= self.zero && now <= LONGEST_RUN).then_some(now)
    }

    /// Returns the name of a VM by its number; none for [`NO_VM`](weir_trace::record::NO_VM) and
    /// for the number of a damaged record.
    #[must_use]
    pub fn name(&self, vm: u8) -> Option<&str> {
        self.vms.get(usize::from(vm)).map(|vm| vm.name.as_str())
    }

    /// Returns the name of a flow by its number in records, or that number.
    #[must_use]
    pub fn flow(&self, number: u32) -> String {
        self.flows.get(number as usize).cloned().unwrap_or_else(|| number.to_string())
    }

    /// Writes the header and the entries of the VMs.
    ///
    /// # Errors
    ///
    /// `out` cannot be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            cores: self.cores,
            frequency: self.frequency,
            zero: self.zero,
            records: self.records,
            lost: self.lost,
            vms: u32::try_from(self.vms.len()).unwrap_or(VMS_LIMIT),
            reserved: 0,
            last: self.last,
        };
        out.write_all(header.as_bytes())?;
        for vm in &self.vms {
            let mut entry = VmEntry::new_zeroed();
            fill(&mut entry.name, vm.name.as_bytes());
            fill(&mut entry.cores, &vm.cores);
            entry.vcpus = vm.cores.len() as u32;
            out.write_all(entry.as_bytes())?;
        }
        Ok(())
    }

    /// Reads what [`TraceFacts::write`] wrote; the error names the fault.
    fn read(from: &mut impl Read) -> std::result::Result<Self, String> {
        let cut = |_| "it is cut short".to_owned();
        let mut header = Header::new_zeroed();
        from.read_exact(header.as_mut_bytes()).map_err(cut)?;
        if header.magic != MAGIC {
            return Err("it is no trace".into());
        }
        if header.version != VERSION {
            return Err(format!(
                "it is of version {}, this weir reads {VERSION}: take the weir that ran the system",
                header.version
            ));
        }
        if header.vms > VMS_LIMIT || header.frequency == 0 {
            return Err("its header is damaged".into());
        }
        let mut facts = Self {
            cores: header.cores,
            frequency: header.frequency,
            zero: header.zero,
            records: header.records,
            lost: header.lost,
            last: header.last,
            vms: Vec::new(),
            flows: Vec::new(),
        };
        for _ in 0..header.vms {
            let mut entry = VmEntry::new_zeroed();
            from.read_exact(entry.as_mut_bytes()).map_err(cut)?;
            let end = entry.name.iter().position(|&byte| byte == 0).unwrap_or(entry.name.len());
            facts.vms.push(TracedVm {
                name: String::from_utf8_lossy(&entry.name[..end]).into_owned(),
                cores: entry.cores.iter().take(entry.vcpus as usize).copied().collect(),
            });
        }
        Ok(facts)
    }
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    for (place, byte) in field.iter_mut().zip(bytes) {
        *place = *byte;
    }
}

/// Returns the core of a record of a trace.
#[must_use]
pub fn core(record: &Record) -> u16 {
    record.sequence()
}

/// Returns the record that replaces `records` lost records on `core` before `time`, in ticks.
#[must_use]
pub fn lost(core: u8, time: u64, records: u64) -> Record {
    let record = Record {
        time,
        kind: RecordKind::Lost as u16,
        vm: weir_trace::record::NO_VM,
        count: records,
        ..Record::default()
    };
    record.with_sequence(core.into())
}

/// A reader of a trace, from its first record to its last.
#[derive(Debug)]
pub struct Trace<R> {
    /// The facts of its run.
    pub facts: TraceFacts,
    from: R,
    read: u64,
    /// The latest time of a record that a run may have made.
    last: u64,
    /// Records that no run makes.
    strange: u64,
    /// When a budget's period under way was last seen to begin, by VM, vCPU and accesses.
    begun: BTreeMap<(u8, u8, u32), u64>,
    /// Lost records, from the records in their place.
    lost: u64,
    /// Bytes at the end that are no whole record.
    rest: u64,
}

/// A trace in a file.
pub type RecordedTrace = Trace<BufReader<io::Take<File>>>;

impl RecordedTrace {
    /// Opens the trace of a run: its directory, or the file itself.
    ///
    /// # Errors
    ///
    /// The call is wrong if the file cannot be read or is not a trace.
    pub fn open(path: &Path) -> Result<Self> {
        let path = if path.is_dir() { path.join(NAME) } else { path.to_owned() };
        let file = open_regular(&path).map_err(|error| {
            let why = if path.exists() {
                format!(": {error}")
            } else if path.with_file_name("run.json").exists() {
                "; run.json next to it contains the cause; `weir run` leaves one for each run"
                    .to_owned()
            } else {
                "; the run was killed before it could leave one, or still goes on".to_owned()
            };
            Failure::call(format!("there is no trace {}{why}", path.display()))
        })?;
        let mut trace = Self::read(BufReader::with_capacity(1 << 16, file)).map_err(|why| {
            Failure::system(format!(
                "cannot read the trace {}: {why}\n  give the directory of a run, such as \
                 runs/2026-01-31T12-00-00Z",
                path.display()
            ))
        })?;
        trace.facts.flows = flow_names(&path);
        Ok(trace)
    }
}

impl<R: Read> Trace<R> {
    /// Reads the head of a trace; the error names the fault.
    ///
    /// # Errors
    ///
    /// Why this is not a trace.
    pub fn read(mut from: R) -> std::result::Result<Self, String> {
        let facts = TraceFacts::read(&mut from)?;
        let last = facts.zero;
        let begun = BTreeMap::new();
        Ok(Self { facts, from, read: 0, last, strange: 0, begun, lost: 0, rest: 0 })
    }

    /// Returns the next record; none at the end of the file, also if the last record is cut short.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        let mut record = Record::default();
        let bytes = record.as_mut_bytes();
        let wanted = bytes.len() as u64;
        let mut taken = 0;
        while let Some(rest) = bytes.get_mut(taken..).filter(|rest| !rest.is_empty()) {
            match self.from.read(rest) {
                Ok(0) => break,
                Ok(more) => taken += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context(|| "read the trace"),
            }
        }
        if (taken as u64) < wanted {
            self.rest = taken as u64;
            return Ok(None);
        }
        self.read += 1;
        let is_possible = self.is_possible(&record);
        self.strange += u64::from(!is_possible);
        match RecordKind::from_number(record.kind) {
            Some(RecordKind::Replenish) if is_possible => {
                let name = (record.vm, record.vcpu, record.detail);
                self.begun.insert(name, record.time);
            }
            Some(RecordKind::Lost) => self.lost = self.lost.saturating_add(record.count),
            _ => {}
        }
        if !self.is_past(&record) {
            self.last = self.last.max(record.time);
        }
        Ok(Some(record))
    }

    /// Whether a record is of a time behind that of the last one.
    fn is_past(&self, record: &Record) -> bool {
        self.facts.last != 0 && record.time > self.facts.last
    }

    /// Whether a run may have made this record: by one of its cores, for one of its vCPUs or for
    /// none, neither before the one ahead of it nor behind the end, and of no more accesses than
    /// there was time for.
    fn is_possible(&self, record: &Record) -> bool {
        let vm = self.facts.vms.get(usize::from(record.vm));
        // Eight cores have a place in the head.
        let is_vcpu = |vm: &TracedVm| usize::from(record.vcpu) < vm.cores.len().max(1);
        let unowned = record.vm == weir_trace::record::NO_VM;
        u32::from(core(record)) < self.facts.cores
            && vm.map_or(unowned, is_vcpu)
            && record.time >= self.last
            && !self.is_past(record)
            && self.is_countable(record)
    }

    /// Whether a core can have made what a record counts since the period began, as far as that is
    /// known.
    fn is_countable(&self, record: &Record) -> bool {
        let kind = RecordKind::from_number(record.kind);
        let counts = [
            RecordKind::Replenish,
            RecordKind::Overflow,
            RecordKind::Throttle,
            RecordKind::Wake,
            RecordKind::Draw,
        ]
        .map(Some);
        if !counts.contains(&kind) {
            return true;
        }
        let name = (record.vm, record.vcpu, record.detail);
        // A lost record of a later beginning leaves the earlier one, which allows more.
        let begun = self.begun.get(&name).copied().unwrap_or(self.facts.zero);
        let nanos = |time| self.facts.nanos(time);
        let time = nanos(record.time).saturating_sub(nanos(begun)).saturating_add(LATE_NS);
        record.count <= time.saturating_mul(MOST_PER_NS)
    }

    /// Returns the time of the last record, in ns after the hypervisor's start, as far as the trace
    /// has been read.
    pub fn end(&self) -> u64 {
        self.facts.nanos(self.last)
    }

    /// Returns a description of the damage of a trace that has been read to its end, if no run
    /// writes such a trace.
    pub fn damage(&self) -> Option<String> {
        let TraceFacts { records, .. } = self.facts;
        let Self { read, strange, rest, .. } = self;
        let mut damages = Vec::new();
        if *read < records {
            damages.push(format!("it is cut short: {read} of {records} records"));
        } else if *read > records || *rest > 0 {
            damages.push(format!(
                "it goes on behind its {records} records, by {} bytes",
                (read - records).saturating_mul(size_of::<Record>() as u64).saturating_add(*rest)
            ));
        }
        if *strange > 0 {
            damages.push(format!(
                "{strange} records are none that a run makes: of a core or vCPU that it has not, \
                 before the record ahead of them, behind the end, or with more accesses than a \
                 core can make in the time"
            ));
        }
        let TraceFacts { last, .. } = self.facts;
        if damages.is_empty() && self.last < last {
            damages.push(format!(
                "its last record is of {}, and its header states {}",
                Nanos(self.end()),
                Nanos(self.facts.nanos(last))
            ));
        }
        if damages.is_empty() && self.lost < self.facts.lost {
            damages.push(format!(
                "its header states {} lost records, and its records {}",
                self.facts.lost, self.lost
            ));
        }
        (!damages.is_empty()).then(|| format!("the trace is damaged: {}", damages.join("; ")))
    }

    /// Returns a warning if a part of the trace, which has been read to its end, is missing.
    pub fn warning(&self) -> Option<String> {
        let lost = self.facts.lost;
        (lost > 0).then(|| {
            format!(
                "{lost} records were overwritten before they were read; the records `lost` mark \
                 the places"
            )
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;

/// Returns the names of the flows of a run, whose trace is at `path`, in the order of their numbers
/// in the trace; empty if the run left no report.
fn flow_names(path: &Path) -> Vec<String> {
    let report = read_report(path.parent().unwrap_or(Path::new(".")));
    report
        .map_or_else(|_| Vec::new(), |report| report.flows.into_iter().map(|it| it.name).collect())
}
