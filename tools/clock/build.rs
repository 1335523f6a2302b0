//! The link of the shared object.

fn main() {
    // QEMU loads this library next to others that define `qemu_plugin_version`, too: each must use
    // its own.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rerun-if-changed=build.rs");
}
