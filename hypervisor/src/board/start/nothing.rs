//! A board that nothing turns off.

/// What EL2 drives for this: no device.
pub const DEVICE: Option<(u64, u64)> = None;

/// Does nothing: the caller's core waits for ever.
pub const fn power_off() {}
