//! Links a program for Linux' user space.

fn main() {
    // No symbols: the program travels in every initial file system.
    println!("cargo::rustc-link-arg-bins=--strip-all");
    println!("cargo::rustc-link-arg-bins=--entry=_start");
}
