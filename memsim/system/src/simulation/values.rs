//! Other values for keys of the system file and of the memory file.

/// Keys and their values, by the file that they belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Keys of the memory file, such as `caches.l2_misses`.
    pub memory: Vec<(String, String)>,
    /// Keys of the system file for [`weir_model::edited`], such as
    /// `vm.NAME.memory_budget.accesses` or `dma.bandwidth`.
    pub system: Vec<(String, String)>,
    /// The value of `seed`.
    pub seed: Option<u64>,
}

impl Values {
    /// Sorts keys. A key of a table of the system file (`vm.`, `flow.`, `hypervisor.`), the map's
    /// name `dram`, and the keys of `[dma]` itself are the system's; `seed` is the seed; every other
    /// key is the memory's.
    ///
    /// # Errors
    ///
    /// The value of `seed` is no number.
    pub fn new(values: &[(String, String)]) -> Result<Self, String> {
        let mut sorted = Self::default();
        for (key, value) in values {
            let pair = (key.clone(), value.clone());
            if key == "seed" {
                let seed = value.parse().map_err(|_| format!("seed={value}: write a number"))?;
                sorted.seed = Some(seed);
            } else if is_systems(key) {
                sorted.system.push(pair);
            } else {
                sorted.memory.push(pair);
            }
        }
        Ok(sorted)
    }
}

/// Returns whether a key belongs to the system file.
fn is_systems(key: &str) -> bool {
    // A memory file has keys of [dma.NAME].
    let of_dma = key.strip_prefix("dma.").is_some_and(|key| !key.contains('.'));
    let tables = ["vm.", "flow.", "hypervisor."];
    of_dma || key == "dram" || tables.iter().any(|table| key.starts_with(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_where_they_belong() {
        let pairs = [
            ("seed", "7"),
            ("caches.l2_misses", "2"),
            ("vm.a.colors", "0-3"),
            ("dram", "banks-on-top"),
            ("dma.bandwidth", "9MB/s"),
            ("dma.lpd.qos", "60"),
            ("flow.f.size", "9KiB"),
        ];
        let owned = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let sorted = Values::new(&owned).expect("values");
        let keys = |pairs: &[(String, String)]| {
            pairs.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(sorted.seed, Some(7));
        assert_eq!(keys(&sorted.memory), ["caches.l2_misses", "dma.lpd.qos"]);
        assert_eq!(keys(&sorted.system), ["vm.a.colors", "dram", "dma.bandwidth", "flow.f.size"]);
        let seed = [("seed".to_owned(), "x".to_owned())];
        assert!(Values::new(&seed).expect_err("no number").contains("write a number"));
    }
}
