//! The parser and the checker of system files: no text makes them panic, and each fault has its
//! place.
//!
//! In `fuzz/`: `cargo +nightly fuzz run system_file corpus/system_file ../systems --
//! -dict=system_file.dict`
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use weir_model::{Catalog, Faults, Style, check_text, place};

fuzz_target!(|text: &str| {
    // Next to no file at all, so that nothing of the machine is read.
    match check_text(Path::new("/nowhere/system.toml"), text, &Catalog::default()) {
        Ok(system) => drop(place(&system, 1 << 20)),
        Err(faults) => {
            assert!(!faults.0.is_empty());
            let lines = text.matches('\n').count() + 1;
            assert!(faults.0.iter().all(|fault| fault.location().line <= lines));
            // Excerpts of all would take most of the time.
            if let Some(last) = faults.0.last() {
                assert!(!Faults(vec![last.clone()]).render(Style::Plain, 80).is_empty());
            }
        }
    }
});
