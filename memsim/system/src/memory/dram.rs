//! `[dram]` of a memory file.

use serde::Deserialize;
use weir_memory::{
    AddressFields, AddressMap,
    dram::{DramChannel, DramTiming, Policy, plain_bits},
};

/// A DRAM and its controller. The keys are the fields of [`DramTiming`], [`AddressFields`] and
/// [`Policy`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dram {
    clock_ps: u64,
    cl: u64,
    cwl: u64,
    burst: u64,
    rcd: u64,
    rp: u64,
    ras: u64,
    rc: u64,
    rrd_s: u64,
    rrd_l: u64,
    ccd_s: u64,
    ccd_l: u64,
    faw: u64,
    wtr_s: u64,
    wtr_l: u64,
    wr: u64,
    rtp: u64,
    rfc: u64,
    refi: u64,
    #[serde(default)]
    ppd: u64,
    turnaround: u64,
    rank_switch: u64,
    /// Cycles that the controller takes to change a bank's row in addition to tRP.
    #[serde(default)]
    row_change: u64,
    #[serde(default = "one")]
    column_slots: u64,
    #[serde(default = "one")]
    activate_slots: u64,
    #[serde(default = "one")]
    precharge_slots: u64,
    map: Map,
    queue: Queue,
}

const fn one() -> u64 {
    1
}

/// Each bit of a field as the list of the address bits that it is the XOR of, lowest first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    #[serde(default)]
    channel: Vec<Vec<u32>>,
    #[serde(default)]
    rank: Vec<Vec<u32>>,
    #[serde(default)]
    group: Vec<Vec<u32>>,
    bank: Vec<Vec<u32>>,
    row: Rows,
    /// Where a platform's own DRAM map is used: the address bits below those of banks and rows, if
    /// they do not follow from the lowest of these.
    #[serde(default)]
    column_bits: Option<u32>,
}

/// Address bits that are a row's number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    from: u32,
    to: u32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Queue {
    reads: usize,
    writes: usize,
    cap: u32,
    drain_from: usize,
    drain_to: usize,
}

/// Times beyond this many cycles are typing errors; sums of a few stay far from any limit.
const MOST_CYCLES: u64 = 1 << 20;

impl Dram {
    /// When commands may follow each other.
    #[must_use]
    pub const fn timing(&self) -> DramTiming {
        DramTiming {
            clock_ps: self.clock_ps,
            cl: self.cl,
            cwl: self.cwl,
            burst: self.burst,
            rcd: self.rcd,
            rp: self.rp.saturating_add(self.row_change),
            ras: self.ras,
            rc: self.rc,
            rrd_s: self.rrd_s,
            rrd_l: self.rrd_l,
            ccd_s: self.ccd_s,
            ccd_l: self.ccd_l,
            faw: self.faw,
            wtr_s: self.wtr_s,
            wtr_l: self.wtr_l,
            wr: self.wr,
            rtp: self.rtp,
            rfc: self.rfc,
            refi: self.refi,
            ppd: self.ppd,
            turnaround: self.turnaround,
            rank_switch: self.rank_switch,
            column_slots: self.column_slots,
            activate_slots: self.activate_slots,
            precharge_slots: self.precharge_slots,
        }
    }

    /// How the controller decides.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        let Queue { reads, writes, cap, drain_from, drain_to } = self.queue;
        Policy { read_queue: reads, write_queue: writes, cap, drain_from, drain_to }
    }

    /// Bytes of a request: a line, as the caches have them.
    #[must_use]
    pub const fn request_bytes(&self) -> u64 {
        64
    }

    /// The address functions.
    ///
    /// # Errors
    /// The bit that is wrong.
    pub fn map(&self) -> Result<AddressMap, String> {
        let Map { channel, rank, group, bank, row, .. } = &self.map;
        if row.from > row.to || row.to > 51 {
            return Err(format!(
                "map.row from bit {} to bit {}: write bits in ascending order, below 52",
                row.from, row.to
            ));
        }
        let fields = AddressFields {
            channel: masks("channel", channel)?,
            rank: masks("rank", rank)?,
            group: masks("group", group)?,
            bank: masks("bank", bank)?,
            row: plain_bits(row.from..=row.to),
        };
        AddressMap::new(fields).map_err(|error| format!("map: {error}"))
    }

    /// The address functions with other bank functions: those of a platform's DRAM map, of which
    /// the first are the bank groups, as many as the file's own map has. Rows are distinguished by
    /// the other bits of an address below 2^40.
    ///
    /// # Errors
    /// The value that does not fit.
    pub fn map_with_banks(&self, banks: &[u64]) -> Result<AddressMap, String> {
        let Map { group, bank, row, column_bits, .. } = &self.map;
        if banks.len() != group.len() + bank.len() {
            return Err(format!(
                "the DRAM map has {} bank bits, the memory file {}: they are not of one board",
                banks.len(),
                group.len() + bank.len()
            ));
        }
        let own = group.iter().chain(bank).flatten().copied();
        let column_bits = own.chain([row.from]).chain(*column_bits).min().unwrap_or(row.from);
        let mut fields = AddressFields::from_banks(banks.to_vec(), column_bits, 40);
        // The model has at most 32 row bits: those above what any board has are dropped.
        fields.row.truncate(32);
        fields.group = fields.bank.drain(..group.len()).collect();
        AddressMap::new(fields).map_err(|error| format!("map: {error}"))
    }

    /// Whether a memory can be built of it.
    pub(super) fn check(&self) -> Result<(), String> {
        let t = self.timing();
        let cycles = [
            t.cl,
            t.cwl,
            t.burst,
            t.rcd,
            t.rp,
            t.ras,
            t.rc,
            t.rrd_s,
            t.rrd_l,
            t.ccd_s,
            t.ccd_l,
            t.faw,
            t.wtr_s,
            t.wtr_l,
            t.wr,
            t.rtp,
            t.rfc,
            t.refi,
            t.ppd,
            t.turnaround,
            t.rank_switch,
            t.column_slots,
            t.activate_slots,
            t.precharge_slots,
            t.clock_ps,
        ];
        if let Some(long) = cycles.iter().find(|cycles| **cycles > MOST_CYCLES) {
            return Err(format!("a time of {long}: write at most {MOST_CYCLES}"));
        }
        if let Some((name, _)) = [
            ("clock_ps", t.clock_ps),
            ("burst", t.burst),
            ("column_slots", t.column_slots),
            ("activate_slots", t.activate_slots),
            ("precharge_slots", t.precharge_slots),
        ]
        .iter()
        .find(|(_, value)| *value == 0)
        {
            return Err(format!("{name} is 0: write at least 1"));
        }
        let channel = DramChannel::new(self.map()?, t, self.policy(), 1);
        channel.map(|_| ()).map_err(|error| error.to_string())
    }
}

fn masks(field: &str, bits: &[Vec<u32>]) -> Result<Vec<u64>, String> {
    let mask = |(number, bits): (usize, &Vec<u32>)| {
        bits.iter().try_fold(0_u64, |mask, &bit| {
            if bit > 51 || mask >> bit & 1 == 1 {
                return Err(format!(
                    "map.{field}, bit {number}: address bit {bit} is above 51 or there twice"
                ));
            }
            Ok(mask | 1 << bit)
        })
    };
    bits.iter().enumerate().map(mask).collect()
}
