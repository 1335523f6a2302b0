//! Puts `guest.ld` where the linker of a guest finds it.

use std::{env, fs, path::PathBuf};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::copy("guest.ld", out.join("guest.ld")).expect("guest.ld can be copied to OUT_DIR");
    println!("cargo::rustc-link-search={}", out.display());
    println!("cargo::rerun-if-changed=guest.ld");
}
