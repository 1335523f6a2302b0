//! `[cores]`, `[caches]`, `[interconnect]` and `[hypervisor]` of a memory file: what is between the
//! cores and DRAM.

use serde::Deserialize;
use weir_memory::{
    Bytes, CacheConfig, HierarchyConfig, L2Config, L2Sharing, Picos, Replacement,
    system::{CacheTiming, InterconnectTiming},
};

/// Times beyond a millisecond are typing errors.
const MOST_PS: u64 = 1_000_000_000;

/// `[cores]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreSettings {
    /// A core's clock cycle: the least time between two of its accesses.
    pub clock_ps: u64,
    l1: Cache,
    l2: Cache,
    /// Lines that a core can wait for at once.
    pub outstanding: usize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cache {
    size: u64,
    ways: u32,
    replacement: Policy,
    #[serde(default)]
    inclusive: bool,
    /// Of an L2: each core has its own.
    #[serde(default)]
    private: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Policy {
    Lru,
    Plru,
    Random,
}

/// `[caches]`: see [`CacheTiming`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    l1_hit_ps: u64,
    l2_cycle_ps: u64,
    l2_hit_ps: u64,
    peer_hit_ps: u64,
    l2_miss_ps: u64,
    fill_ps: u64,
    l2_misses: usize,
    l2_write_buffers: usize,
}

/// `[interconnect]`: see [`InterconnectTiming`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the keys of the file, with their unit")]
pub struct Interconnect {
    pub(super) clock_ps: u64,
    line_ps: u64,
    to_memory_ps: u64,
    from_memory_ps: u64,
    cpu_line_ps: u64,
}

/// `[hypervisor]`: what its interrupts cost.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HypervisorCosts {
    /// From a counter's limit, or a period's end, to the regulator's decision.
    pub interrupt_ns: u64,
    /// The time that each decision takes from its core.
    pub cost_ns: u64,
}

impl Policy {
    pub(super) const fn with(self, seed: u64) -> Replacement {
        match self {
            Self::Lru => Replacement::Lru,
            Self::Plru => Replacement::TreePlru,
            Self::Random => Replacement::Random { seed },
        }
    }
}

impl Cache {
    const fn config(self, seed: u64) -> CacheConfig {
        let replacement = self.replacement.with(seed);
        CacheConfig { size: Bytes(self.size), ways: self.ways, line: Bytes(64), replacement }
    }
}

impl CoreSettings {
    /// The caches of so many cores; random replacement draws by `seed`.
    pub(crate) const fn hierarchy(self, cores: usize, owners: usize, seed: u64) -> HierarchyConfig {
        HierarchyConfig {
            cores,
            owners,
            l1d: self.l1.config(seed),
            l1i: None,
            l2: Some(L2Config {
                cache: self.l2.config(seed ^ 1),
                sharing: if self.l2.private { L2Sharing::Private } else { L2Sharing::Shared },
                inclusive: self.l2.inclusive,
            }),
            dram: None,
        }
    }

    pub(super) fn check(self) -> Result<(), String> {
        // A cache of 1 TiB would be more than this machine's memory.
        if self.l1.size.max(self.l2.size) > 1 << 28 {
            return Err("[cores]: a cache of more than 256 MiB".to_owned());
        }
        if self.outstanding == 0 || self.outstanding > 64 {
            return Err("[cores]: outstanding: write 1 to 64".to_owned());
        }
        check("[cores] clock_ps", self.clock_ps)
    }
}

/// A time that must not be 0.
pub(super) fn check(what: &str, ps: u64) -> Result<(), String> {
    if ps == 0 || ps > MOST_PS {
        return Err(format!("{what} is {ps}: write 1 to {MOST_PS} ps"));
    }
    Ok(())
}

impl Caches {
    pub(crate) const fn timing(self, outstanding: usize) -> CacheTiming {
        CacheTiming {
            l1_hit: Picos(self.l1_hit_ps),
            l2_cycle: Picos(self.l2_cycle_ps),
            l2_hit: Picos(self.l2_hit_ps),
            peer_hit: Picos(self.peer_hit_ps),
            l2_miss: Picos(self.l2_miss_ps),
            fill: Picos(self.fill_ps),
            core_misses: outstanding,
            l2_misses: self.l2_misses,
            l2_write_buffers: self.l2_write_buffers,
        }
    }

    pub(super) fn check(self) -> Result<(), String> {
        if self.l2_misses > 1024 || self.l2_write_buffers > 1024 {
            return Err("[caches]: more than 1024 registers or buffers".to_owned());
        }
        [
            ("l1_hit_ps", self.l1_hit_ps),
            ("l2_cycle_ps", self.l2_cycle_ps),
            ("l2_hit_ps", self.l2_hit_ps),
            ("peer_hit_ps", self.peer_hit_ps),
            ("l2_miss_ps", self.l2_miss_ps),
            ("fill_ps", self.fill_ps),
        ]
        .into_iter()
        .try_for_each(|(key, ps)| check(&format!("[caches] {key}"), ps))
    }
}

impl Interconnect {
    pub(crate) const fn timing(self) -> InterconnectTiming {
        InterconnectTiming {
            clock: Picos(self.clock_ps),
            line: Picos(self.line_ps),
            to_memory: Picos(self.to_memory_ps),
            from_memory: Picos(self.from_memory_ps),
            cpu_line: Picos(self.cpu_line_ps),
        }
    }

    pub(super) fn check(self) -> Result<(), String> {
        [
            ("clock_ps", self.clock_ps),
            ("line_ps", self.line_ps),
            ("to_memory_ps", self.to_memory_ps),
            ("from_memory_ps", self.from_memory_ps),
            ("cpu_line_ps", self.cpu_line_ps),
        ]
        .into_iter()
        .try_for_each(|(key, ps)| check(&format!("[interconnect] {key}"), ps))
    }
}

impl HypervisorCosts {
    pub(super) fn check(self) -> Result<(), String> {
        [("interrupt_ns", self.interrupt_ns), ("cost_ns", self.cost_ns)].into_iter().try_for_each(
            |(key, ns)| check(&format!("[hypervisor] {key}"), ns.saturating_mul(1000)),
        )
    }
}
