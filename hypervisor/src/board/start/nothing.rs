//! A board that nothing turns off.

/// Does nothing: the caller's core waits for ever.
pub const fn power_off() {}
