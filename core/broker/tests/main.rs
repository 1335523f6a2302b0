//! Tests of the broker, with drivers and an engine of their own.
#![allow(missing_docs, reason = "tests")]

mod broker;
mod buffers;
mod chains;
mod culprits;
mod engine;
mod hostile;
mod several;
mod sizes;
mod switch;
mod transfer;
mod world;
