//! Prints its arguments, `echo: ARGUMENTS`, and powers off.
//!
//! A test gives it a random word, so that no output of a run can have been prepared.

#![no_std]
#![no_main]

use weir_guest::{Board, entry, println, psci};

entry!(main);

fn main(board: &'static Board) -> ! {
    println!("echo: {}", board.args.raw());
    psci::system_off()
}
