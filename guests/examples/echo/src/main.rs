//! Prints its argument `word=` and powers off.
//!
//! ```text
//! echo: word=heron
//! ```
//!
//! A test gives it a random word, so that no output of a run can have been prepared.

#![no_std]
#![no_main]

use weir_guest::{Board, entry, println, psci};

entry!(main);

fn main(board: &'static Board) -> ! {
    println!("echo: word={}", board.args.get("word").unwrap_or_default());
    psci::system_off()
}
