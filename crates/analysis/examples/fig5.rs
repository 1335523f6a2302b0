//! Draws Figure 5: `cargo run --release -p weir-analysis --example fig5 -- SETS STEPS OUT.svg`.
use std::time::Instant;

use weir_analysis::{experiments, flows::Effort};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, default| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let start = Instant::now();
    let figure = experiments::fig5(number(1, 100), number(2, 20), 1, Effort(1 << 26), |_| {});
    println!("{:?}", start.elapsed());
    for c in &figure.curves {
        let ratios: Vec<String> = c
            .points
            .iter()
            .map(|p| format!("{:.2}", f64::from(p.schedulable) / f64::from(p.sets)))
            .collect();
        let undecided: u32 = c.points.iter().map(|p| p.undecided).sum();
        println!(
            "{:4} {:2} {:2} cliff {:.3} undecided {undecided} {}",
            c.bandwidth_mb,
            c.flows,
            c.size_kib,
            c.cliff,
            ratios.join(" ")
        );
    }
    if let Some(path) = args.get(3) {
        figure.svg(path.as_ref()).expect("the figure is written");
    }
    print!("{}", experiments::render_table3(&experiments::table3()));
}
