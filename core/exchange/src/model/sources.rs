// The sources that all builds of the exchange include; each build has its own `sync`.

#[path = "../device.rs"]
pub mod device;
#[path = "../flows.rs"]
pub mod flows;
#[path = "../ram.rs"]
pub mod ram;

/// Two VMs, and room for two flows.
mod sizes {
    pub const PORTS: usize = 2;
    pub const FLOWS: usize = 2;
    pub const PIECES: usize = 1;
    pub const RECORDS: usize = 2;
}
