//! Tests of the plug-in, in QEMU and without it.
#![allow(missing_docs, reason = "tests")]

mod counter_page;
mod machine;
mod markers;
mod qemu;
