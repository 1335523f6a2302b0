//! Links the guest for the virtual board.

fn main() {
    println!("cargo::rustc-link-arg-bins=-Tguest.ld");
    println!("cargo::rustc-link-arg-bins=-eprobe_entry");
}
