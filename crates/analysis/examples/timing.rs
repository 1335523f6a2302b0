//! Prints how long the analysis takes: `cargo run --release -p weir-analysis --example timing -- SETS EFFORT`.
use weir_analysis::{bench, flows::Effort};

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let sets = args.next().unwrap_or(1000);
    let effort = args.next().map_or(Effort::default(), |e| Effort(e as u64));
    println!("{:?}", bench::analysis(sets, 1, effort, |_| {}));
}
