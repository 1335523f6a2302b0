//! Tests of caches, DRAM and DMA.
#![allow(missing_docs, reason = "tests")]

mod caches;
mod dma;
mod dram;
mod support;
mod system;
