//! DRAM timing as data: the parameters of a memory, and the rules between two commands that they
//! fill in.
//!
//! All times are in cycles of the command clock (half the data rate). The rules are JEDEC's
//! (JESD79-2 for DDR2, JESD79-4 for DDR4, JESD209-4 for LPDDR4), written once for the three: a
//! memory without bank groups has one group, and then its `_s` and `_l` values are the same.

/// Timing parameters, in command clock cycles unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DramTiming {
    /// Length of a command clock cycle, in picoseconds.
    pub clock_ps: u64,
    /// CL (RL): read command to its first data.
    pub cl: u64,
    /// CWL (WL): write command to its first data.
    pub cwl: u64,
    /// Cycles that a burst holds the data bus: half the burst length.
    pub burst: u64,
    /// tRCD: activate to column command.
    pub rcd: u64,
    /// tRP: precharge to activate (of one bank).
    pub rp: u64,
    /// tRAS: activate to precharge.
    pub ras: u64,
    /// tRC: activate to activate of the same bank.
    pub rc: u64,
    /// tRRD_S: activate to activate of another bank group.
    pub rrd_s: u64,
    /// tRRD_L: activate to activate in the same bank group.
    pub rrd_l: u64,
    /// tCCD_S: column command to column command of another bank group.
    pub ccd_s: u64,
    /// tCCD_L: column command to column command in the same bank group.
    pub ccd_l: u64,
    /// tFAW: at most four activates of a rank in any window of this length.
    pub faw: u64,
    /// tWTR_S: last write data to read command of another bank group.
    pub wtr_s: u64,
    /// tWTR_L: last write data to read command in the same bank group.
    pub wtr_l: u64,
    /// tWR: last write data to precharge.
    pub wr: u64,
    /// tRTP: read command to precharge.
    pub rtp: u64,
    /// tRFC: refresh of a rank to its next command.
    pub rfc: u64,
    /// tREFI: mean time between refreshes.
    pub refi: u64,
    /// tPPD: precharge to precharge of a rank; 0 where only the command bus limits it.
    pub ppd: u64,
    /// Cycles that the data bus is left idle between read data and write data.
    pub turnaround: u64,
    /// Cycles that the data bus needs to change from one rank to another (tRTRS).
    pub rank_switch: u64,
    /// Cycles that commands hold the command bus: a column command.
    pub column_slots: u64,
    /// The same of an activate.
    pub activate_slots: u64,
    /// The same of a precharge or refresh.
    pub precharge_slots: u64,
}

impl DramTiming {
    /// The longest time that a rule asks for between two commands, or between activates.
    pub(crate) fn longest_gap(&self) -> u64 {
        RULES.iter().map(|rule| (rule.gap)(self)).fold(self.faw, u64::max)
    }
}

/// The commands of a controller to a memory. Pages are left open, so there is no column command
/// that precharges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// Open a row.
    Activate,
    /// Close a bank's row.
    Precharge,
    /// Read a burst from the open row.
    Read,
    /// Write a burst to the open row.
    Write,
    /// Refresh all banks of a rank; all must be closed.
    Refresh,
}

impl Command {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Activate, Self::Precharge, Self::Read, Self::Write, Self::Refresh];

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Cycles that it holds the command bus.
    #[must_use]
    pub fn slots(self, timing: &DramTiming) -> u64 {
        match self {
            Self::Activate => timing.activate_slots,
            Self::Read | Self::Write => timing.column_slots,
            Self::Precharge | Self::Refresh => timing.precharge_slots,
        }
    }
}

/// Between which targets of the two commands a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleScope {
    /// The same bank.
    Bank,
    /// The same bank group, the same bank included.
    Group,
    /// The same rank, the same group included.
    Rank,
    /// Two ranks that share a channel.
    OtherRank,
}

/// `then` must not be issued earlier than `gap` cycles after `first`.
#[derive(Clone, Copy)]
pub struct TimingRule {
    /// Where it holds.
    pub scope: RuleScope,
    /// The earlier command.
    pub first: Command,
    /// The later command.
    pub then: Command,
    /// Cycles between them.
    pub gap: fn(&DramTiming) -> u64,
}

const fn rule(
    scope: RuleScope,
    first: Command,
    then: Command,
    gap: fn(&DramTiming) -> u64,
) -> TimingRule {
    TimingRule { scope, first, then, gap }
}

use Command::{Activate, Precharge, Read, Refresh, Write};
use RuleScope::{Bank, Group, OtherRank, Rank};

/// Every rule between two commands. In addition there is the window of four activates
/// ([`DramTiming::faw`]).
pub const RULES: &[TimingRule] = &[
    rule(Bank, Activate, Read, |t| t.rcd),
    rule(Bank, Activate, Write, |t| t.rcd),
    rule(Bank, Activate, Precharge, |t| t.ras),
    rule(Bank, Activate, Activate, |t| t.rc),
    rule(Bank, Precharge, Activate, |t| t.rp),
    rule(Bank, Read, Precharge, |t| t.rtp),
    rule(Bank, Write, Precharge, |t| t.cwl + t.burst + t.wr),
    rule(Group, Activate, Activate, |t| t.rrd_l),
    rule(Group, Read, Read, |t| t.ccd_l),
    rule(Group, Write, Write, |t| t.ccd_l),
    rule(Group, Write, Read, |t| t.cwl + t.burst + t.wtr_l),
    rule(Rank, Activate, Activate, |t| t.rrd_s),
    rule(Rank, Read, Read, |t| t.ccd_s),
    rule(Rank, Write, Write, |t| t.ccd_s),
    rule(Rank, Read, Write, |t| (t.cl + t.burst + t.turnaround).saturating_sub(t.cwl)),
    rule(Rank, Write, Read, |t| t.cwl + t.burst + t.wtr_s),
    rule(Rank, Precharge, Precharge, |t| t.ppd),
    rule(Rank, Precharge, Refresh, |t| t.rp),
    rule(Rank, Activate, Refresh, |t| t.rc),
    rule(Rank, Refresh, Activate, |t| t.rfc),
    rule(Rank, Refresh, Refresh, |t| t.rfc),
    rule(OtherRank, Read, Read, |t| t.burst + t.rank_switch),
    rule(OtherRank, Write, Write, |t| t.burst + t.rank_switch),
    rule(OtherRank, Read, Write, |t| (t.cl + t.burst + t.rank_switch).saturating_sub(t.cwl)),
    rule(OtherRank, Write, Read, |t| (t.cwl + t.burst + t.rank_switch).saturating_sub(t.cl)),
];

/// DDR4-2400, 8 Gb x8, 17-17-17. The values are those that public DRAM simulators ship for this
/// part (and that the closed forms of `tests/dram.rs` are stated for): tRFC is 350 ns and more as
/// they round it, tREFI 7.8 us.
pub const DDR4_2400: DramTiming = DramTiming {
    clock_ps: 833,
    cl: 17,
    cwl: 12,
    burst: 4,
    rcd: 17,
    rp: 17,
    ras: 39,
    rc: 56,
    rrd_s: 4,
    rrd_l: 6,
    ccd_s: 4,
    ccd_l: 6,
    faw: 26,
    wtr_s: 3,
    wtr_l: 9,
    wr: 18,
    rtp: 9,
    rfc: 433,
    refi: 9364,
    ppd: 0,
    // JESD79-4, read to write: RL + BL/2 + 2 - WL.
    turnaround: 2,
    rank_switch: 2,
    column_slots: 1,
    activate_slots: 1,
    precharge_slots: 1,
};
