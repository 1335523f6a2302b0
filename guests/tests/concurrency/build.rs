//! Links the guest for the virtual board.

fn main() {
    println!("cargo::rustc-link-arg-bins=-Tguest.ld");
}
