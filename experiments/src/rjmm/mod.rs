//! rjmm, section IV: a real-time VM next to a VM that accesses 16 MiB all the time, on a
//! Raspberry Pi 4, in shared memory and with separate DRAM banks.
//!
//! The paper credits what its VM gains to the banks. On this board the bits that choose banks also
//! choose cache colors, so that separate banks are separate parts of the L2, too. Two controls tell
//! the two apart: separate colors with shared banks, which the board has, and separate banks with a
//! shared L2, which it has not.

pub mod cyclictest;
pub mod isolbench;
pub mod linux;
pub mod mapping;

use crate::memory::board;
use crate::statement::{ClaimSource, Paper};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_image::Result;
use weir_report::table;
use weir_simulator::SimulatedBoard;

const PAPER: Paper = Paper("rjmm");
const WEIR: ClaimSource = ClaimSource::own("docs/results/reproduce.md, Bank partitioning");
/// The platform and its memory.
const MEMORY: &str = "rpi4";
/// Experiments with random input use so many seeds, or so many in a quick call.
const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 2;

/// The division of memory between the two VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Division {
    /// Contiguous pages: caches and banks are shared.
    Shared,
    /// Separate banks, and with them separate parts of the L2.
    Banks,
    /// Separate parts of the L2 by the one color bit that chooses no bank; all banks are shared.
    Colors,
    /// As `Shared`, with an L2 in which bank bits choose no set.
    SharedWide,
    /// Separate banks and a shared L2, in which bank bits choose no set.
    BanksWide,
}

/// Ways of an L2 of the same size in which address bits 6 to 13 choose the set: banks are chosen by
/// bit 14. The board's 16 ways are chosen by bits 6 to 15.
const WIDE_WAYS: u64 = 64;

impl Division {
    /// The key of the VM that has pages of its own.
    const fn key(self) -> &'static str {
        match self {
            Self::Colors => "colors = \"8-15\"",
            _ => "banks = \"rt\"",
        }
    }

    const fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::SharedWide)
    }

    /// The division in which nothing is separate that is compared with this one.
    const fn without(self) -> Self {
        match self {
            Self::SharedWide | Self::BanksWide => Self::SharedWide,
            _ => Self::Shared,
        }
    }

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Banks => "separate banks",
            Self::Colors => "separate colors, shared banks",
            Self::SharedWide => "shared, wide L2",
            Self::BanksWide => "separate banks, shared wide L2",
        }
    }
}

/// The accesses of the VM that interferes: the paper does not say which kind its own makes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Stressor {
    /// No accesses.
    Idle,
    /// Loads.
    Reads,
    /// Stores.
    Writes,
    /// Loads for about half of the time: a pass each 10 ms.
    Pauses,
}

impl Stressor {
    /// Both that interfere.
    const BOTH: [Self; 2] = [Self::Reads, Self::Writes];

    /// The name in tables and statements.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Pauses => "pauses",
        }
    }

    /// The workload's keys, of 16 MiB as in the paper.
    const fn workload(self) -> &'static str {
        match self {
            Self::Writes => "kind = \"write\", size = \"16MiB\"",
            Self::Idle | Self::Reads => "kind = \"read\", size = \"16MiB\"",
            Self::Pauses => "kind = \"read\", size = \"16MiB\", period = \"10ms\"",
        }
    }
}

/// The text of a system of a real-time VM with these keys and this workload next to a stressor.
fn system(platform: &str, keys: &str, workload: &str, stressor: Stressor) -> String {
    format!(
        "platform = \"{platform}\"\n[[vm]]\nname = \"real-time\"\ncpus = [0]\nmemory = \"8MiB\"\n\
         {keys}\nimage = {{ elf = \"memory-stressor\" }}\nworkload = {{ {workload} }}\n\
         [[vm]]\nname = \"other\"\ncpus = [1]\nmemory = \"24MiB\"\n\
         image = {{ elf = \"memory-stressor\" }}\nworkload = {{ {} }}\n",
        stressor.workload()
    )
}

/// The board of a real-time VM with this workload next to a stressor.
fn board_of(division: Division, stressor: Stressor, workload: &str) -> Result<SimulatedBoard> {
    let text = system(MEMORY, division.key(), workload, stressor);
    let wide = matches!(division, Division::SharedWide | Division::BanksWide);
    let values = [("cores.l2.ways", WIDE_WAYS.to_string())];
    let board = board(&text, MEMORY, if wide { &values } else { &[] })?;
    let board = if division.is_shared() { board.undivided() } else { board };
    Ok(if stressor == Stressor::Idle { board.alone(0) } else { board })
}

/// Returns a table of these rows for a person; the first one is the header.
fn printed(cells: &[Vec<String>]) -> String {
    let Some((header, all)) = cells.split_first() else { return String::new() };
    let mut rows = table(header);
    for row in all {
        rows.add_row(row.clone());
    }
    rows.to_string()
}
