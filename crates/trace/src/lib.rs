//! What a running hypervisor tells the outside: the frames on its wire and the rings that bytes
//! wait in until the wire takes them. Both ends use this crate: the hypervisor encodes, the `weir`
//! command decodes.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(any(feature = "decode", test))]
pub mod decode;
pub mod ring;
pub mod wire;
