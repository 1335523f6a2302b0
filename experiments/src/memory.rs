//! Systems on the model of `weir simulate`, for what papers measured of memory in time. The model's
//! parameters are in the memory file, one set for all experiments; each statement marks whether a
//! parameter was fitted to its published value.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::Path;
use weir_image::{Failure, Result, progress::CountBar};
use weir_model::{Catalog, Sizes, check_text, place_all};
use weir_simulator::{MemoryModel, Outcome as Simulated, SimulatedBoard, Span};
use weir_units::Nanos;

/// The board of a system that an experiment wrote, on a memory file with some other values.
pub fn board(text: &str, memory: &str, values: &[(&str, String)]) -> Result<SimulatedBoard> {
    let catalog = Catalog { guests: vec!["memory-stressor".to_owned()], ..Catalog::default() };
    let system = check_text(Path::new("experiment.toml"), text, &catalog)
        .map_err(|faults| Failure::system(faults.to_string()))?;
    let vms = system.vms.len();
    let sizes = Sizes { image: 4 << 20, hypervisor: 1 << 20, pristine: vec![1 << 20; vms] };
    let placement =
        place_all(&system, &sizes).map_err(|faults| Failure::system(faults.to_string()))?;
    let values: Vec<_> =
        values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let memory = MemoryModel::find_with(memory, &values);
    let memory = memory.map_err(|error| Failure::system(error.to_string()))?;
    SimulatedBoard::new(&system, &placement, &memory)
        .map_err(|error| Failure::system(error.to_string()))
}

/// Simulates a board with a seed: a warm-up, then the part that counts, both in us.
pub fn simulate(
    board: &SimulatedBoard,
    seed: u64,
    warm_up_us: u64,
    length_us: u64,
) -> Result<Simulated> {
    let span = Span { warm_up: Nanos(warm_up_us * 1000), length: Nanos(length_us * 1000), seed };
    weir_simulator::run(board, span).map_err(|error| Failure::system(error.to_string()))
}

/// Simulates each point of an experiment, several at a time behind a progress bar, and returns what
/// `run` made of them in their order.
pub fn each<T: Sync, R: Send>(
    points: &[T],
    run: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let bar = CountBar::new("simulating", points.len() as u64);
    let counted = |point: &T| {
        let result = run(point);
        bar.add(1);
        result
    };
    points.par_iter().map(counted).collect()
}

/// Runs each point of an experiment with the seeds from 1 to `seeds`, as [`each`], and returns the
/// points with their results by seed.
pub fn each_by_seed<T: Copy + Sync, R: Clone + Send>(
    points: &[T],
    seeds: u64,
    run: impl Fn(T, u64) -> Result<R> + Sync,
) -> Result<Vec<(T, Vec<R>)>> {
    let with_seed = |point: &T| {
        let point = *point;
        (1..=seeds).map(move |seed| (point, seed))
    };
    let runs: Vec<_> = points.iter().flat_map(with_seed).collect();
    let results = each(&runs, |(point, seed)| run(*point, *seed))?;
    let of_points = results.chunks(usize::try_from(seeds).unwrap_or(1));
    Ok(points.iter().zip(of_points).map(|(point, results)| (*point, results.to_vec())).collect())
}

/// Megabytes a second that a VM moves.
pub fn mb_per_s(outcome: &Simulated, vm: usize) -> f64 {
    outcome.vms[vm].mb_per_s(outcome.span_ns)
}

/// The mean of values, and the least and the greatest of them; no numbers without a value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

impl Spread {
    /// Returns the spread of these values.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "few values")]
    pub fn of(values: &[f64]) -> Self {
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            least: values.iter().copied().fold(f64::NAN, f64::min),
            most: values.iter().copied().fold(f64::NAN, f64::max),
        }
    }

    /// Returns the same in percent.
    #[must_use]
    pub fn percent(self) -> Self {
        let Self { mean, least, most } = self;
        Self { mean: 100.0 * mean, least: 100.0 * least, most: 100.0 * most }
    }

    /// Returns the text with so many digits behind the point.
    #[must_use]
    pub fn text(self, digits: usize) -> String {
        let Self { mean, least, most } = self;
        if mean.is_nan() {
            return "-".to_owned();
        }
        format!("{mean:.digits$} ({least:.digits$}-{most:.digits$})")
    }
}

/// Returns a line of means, and behind it the area from the least to the greatest values.
pub fn with_band(name: &str, points: &[(f64, Spread)]) -> [(String, Vec<(f64, f64)>); 2] {
    let there = points.iter().map(|(x, spread)| (*x, spread.most));
    let back = points.iter().rev().map(|(x, spread)| (*x, spread.least));
    let means = points.iter().map(|(x, spread)| (*x, spread.mean)).collect();
    [(name.to_owned(), means), (format!("spread of {name}"), there.chain(back).collect())]
}
