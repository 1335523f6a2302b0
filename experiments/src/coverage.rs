//! The tables and figures with results in the five papers, and the experiments that compute them.

use crate::{EXPERIMENTS, Experiment};

/// A table or figure with results.
#[derive(Clone, Copy, Debug)]
pub struct PaperResult {
    /// The table or figure.
    pub place: &'static str,
    /// What the paper shows there.
    pub shows: &'static str,
    /// The experiments that compute it or a part of it.
    experiments: &'static [&'static str],
    /// The part that no experiment judges. Empty if nothing is missing, or without an experiment.
    pub missing: &'static str,
}

impl PaperResult {
    /// Returns the experiments that compute it or a part of it.
    pub fn experiments(&self) -> impl Iterator<Item = &'static Experiment> + use<> {
        let names = self.experiments;
        EXPERIMENTS.iter().filter(|experiment| names.contains(&experiment.name))
    }

    /// Returns the names of the experiments and how they compute it, or "none yet".
    #[must_use]
    pub fn computed_by(&self) -> [String; 2] {
        if self.experiments.is_empty() {
            return ["none yet".to_owned(), "-".to_owned()];
        }
        let names = self.experiments().map(|experiment| experiment.name);
        let mut methods: Vec<_> = self.experiments().map(|each| each.method.name()).collect();
        methods.dedup();
        [names.collect::<Vec<_>>().join(", "), methods.join(", ")]
    }
}

const fn part(
    place: &'static str,
    shows: &'static str,
    experiments: &'static [&'static str],
    missing: &'static str,
) -> PaperResult {
    PaperResult { place, shows, experiments, missing }
}

const fn none(place: &'static str, shows: &'static str) -> PaperResult {
    part(place, shows, &[], "")
}

const BAO: &[&str] = &["bao-throttling-budgets"];
const BAO_DMA: &[&str] = &["bao-throttling-dma"];
const BAO_TLB: &[&str] = &["bao-throttling-tlb"];
const MOBIVMM: &[&str] = &["mobivmm"];

/// Chapters 4 and 5 of the thesis. Figures of other numbers show no results.
const BAO_THROTTLING: [PaperResult; 21] = [
    part(
        "Figure 4.7",
        "programs next to a memory stressor, with colors and without",
        BAO,
        "8 of 12 programs, small against large inputs of all but bitcount",
    ),
    part("Figure 4.8", "budgets at periods of 0.1, 1 and 10 ms", BAO, "10 of 12 programs"),
    part(
        "Figure 4.9",
        "budgets and colors, alone and together",
        BAO,
        "10 of 12 programs, a budget of the program's own VM",
    ),
    part(
        "Figure 4.10",
        "budgets and colors together, at periods of 0.1, 1 and 10 ms",
        BAO,
        "11 of 12 programs, the budget alone next to it at 0.1 and 10 ms",
    ),
    none("Figure 4.11", "interference inside the L2, budgets count BUS_ACCESS"),
    none("Figure 4.12", "interference inside the L2, budgets count L2D_CACHE_REFILL"),
    part("Figure 4.13", "gain by budgets, with colors and without", BAO, "10 of 12 programs"),
    part("Figure 5.1", "programs next to 1 to 8 DMA channels of the LPD", BAO_DMA, ""),
    part("Figure 5.2", "programs next to 1 to 8 DMA channels of the FPD", BAO_DMA, ""),
    part("Figure 5.3", "programs next to DMA channels of LPD and FPD together", BAO_DMA, ""),
    part("Figure 5.4", "SMMU TLB misses of the network device next to LPD channels", BAO_TLB, ""),
    part("Figure 5.5", "Figure 5.1 with the LPD regulated at 0x20", BAO_DMA, ""),
    part("Figure 5.6", "Figure 5.4 with the LPD regulated at 0x20", BAO_TLB, ""),
    part("Figure 5.7", "Figure 5.1 with the LPD regulated at 0x10", BAO_DMA, ""),
    part("Figure 5.8", "Figure 5.4 with the LPD regulated at 0x10", BAO_TLB, ""),
    part("Figure 5.9", "Figure 5.4 with linked descriptors", BAO_TLB, ""),
    part("Figure 5.10", "Figure 5.5 with linked descriptors", BAO_DMA, ""),
    part("Figure 5.11", "Figure 5.6 with linked descriptors", BAO_TLB, ""),
    part("Figure 5.12", "Figure 5.7 with linked descriptors", BAO_DMA, ""),
    part("Figure 5.13", "Figure 5.8 with linked descriptors", BAO_TLB, ""),
    part("Table 5.1", "bandwidth of a channel that shares the TLB and the regulator", BAO_TLB, ""),
];

const RT_VIRTIO: [PaperResult; 6] = [
    part("Figure 3", "bandwidth of USTRESS over the memory budget", &["rt-virtio-fig3"], ""),
    part("Figure 4", "DMA bandwidth by chunk and QoS level", &["rt-virtio-dma"], ""),
    part(
        "Figure 5",
        "share of schedulable flow sets",
        &["rt-virtio-fig5"],
        "four queues (here one for each VM that sends), the run time of the analysis",
    ),
    part(
        "Table I",
        "the highest QoS level that leaves the cores unaffected, by budget",
        &["rt-virtio-dma", "rt-virtio-fig3"],
        "the search for the levels, and that there is none at 225",
    ),
    none("Table II", "overheads of each step of a message"),
    part(
        "Table III",
        "smallest period and observed latency of one flow",
        &["rt-virtio-table3"],
        "latencies of the real binary",
    ),
];

const RJMM: [PaperResult; 4] = [
    part(
        "Figure 3",
        "distribution of cyclictest's latencies, with bank groups and without",
        &["rjmm-cyclictest"],
        "the distribution of Linux's own latencies (here of a thread that only reads)",
    ),
    part(
        "Figure 4",
        "least, mean and greatest latency of cyclictest",
        &["rjmm-cyclictest", "rjmm-linux"],
        "",
    ),
    part("Figure 5", "run time of IsolBench by the size of its data", &["rjmm-isolbench"], ""),
    part(
        "Table II",
        "time of the address mapping by the size of the region",
        &["rjmm-mapping"],
        "times (here instructions)",
    ),
];

const XEN_BANDWIDTH: &[&str] = &["xen-throttling-bandwidth"];
const XEN_COMPENSATION: &[&str] = &["xen-throttling-compensation"];

const XEN_THROTTLING: [PaperResult; 6] = [
    part("Figure 3", "memory bandwidth of four programs", XEN_BANDWIDTH, ""),
    part(
        "Figure 4",
        "execution time of a critical program next to a throttled VM",
        &["xen-throttling-critical"],
        "",
    ),
    part(
        "Figure 5",
        "bandwidth and arrival curve of 403.gcc, throttled and free",
        &["throttling", "xen-throttling-bandwidth"],
        "",
    ),
    part("Figure 6", "bandwidth of 470.lbm, throttled and free", XEN_BANDWIDTH, ""),
    part(
        "Figure 7",
        "execution time of throttled programs with compensation and without",
        XEN_COMPENSATION,
        "",
    ),
    part(
        "Figure 8",
        "execution time of the critical program with compensation",
        XEN_COMPENSATION,
        "",
    ),
];

const MOBIVMM_RESULTS: [PaperResult; 5] = [
    part("Table I", "sleep time alone and next to another VM", MOBIVMM, ""),
    part(
        "Figure 8",
        "sleep time by the interval of network interrupts",
        MOBIVMM,
        "a guest that masks interrupts while it handles a batch",
    ),
    part(
        "Figure 9",
        "Figure 8 with audio interrupts",
        MOBIVMM,
        "an audio device (here a line that is raised every 5 ms)",
    ),
    part(
        "Figure 10",
        "network and audio interrupts in 10 ms",
        MOBIVMM,
        "network interrupts, and intervals other than 0.5 ms",
    ),
    part("Figure 11", "Figure 9 with a quantum of 10 ms", MOBIVMM, ""),
];

/// The papers, each with its tables and figures with results.
static PAPERS: [(&str, &[PaperResult]); 5] = [
    ("bao-throttling", &BAO_THROTTLING),
    ("mobivmm", &MOBIVMM_RESULTS),
    ("rjmm", &RJMM),
    ("rt-virtio", &RT_VIRTIO),
    ("xen-throttling", &XEN_THROTTLING),
];

/// Returns all tables and figures with results, each with the name of its paper.
pub fn paper_results() -> impl Iterator<Item = (&'static str, &'static PaperResult)> + Clone {
    PAPERS.iter().flat_map(|(paper, its)| its.iter().map(|one| (*paper, one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_names_42_results_once() {
        let places: BTreeSet<_> = paper_results().map(|(paper, one)| (paper, one.place)).collect();
        assert_eq!((paper_results().count(), places.len()), (42, 42));
        let of = |paper: &str| paper_results().filter(|(its, _)| *its == paper).count();
        let papers = ["bao-throttling", "mobivmm", "rjmm", "rt-virtio", "xen-throttling"];
        assert_eq!(papers.map(of), [21, 5, 4, 6, 6]);
    }

    #[test]
    fn the_table_names_only_experiments_that_exist() {
        for (_, one) in paper_results() {
            assert_eq!(one.experiments().count(), one.experiments.len(), "{one:?}");
            assert!(one.missing.is_empty() || !one.experiments.is_empty(), "{one:?}");
            let [names, methods] = one.computed_by();
            assert_eq!(names == "none yet", methods == "-", "{one:?}");
        }
    }
}
