//! The RAM of VMs that the broker serves.

use weir_abi::VmView;
use weir_exchange::ram::{PIECES, Piece};
use weir_vsock::Ram;

const _: () = assert!(PIECES == weir_abi::MAX_PORT_PIECES);

/// Where a VM has RAM that the broker reaches.
pub struct Regions<'a>(pub &'a VmView<'static>);

impl Ram for Regions<'_> {
    fn contains(&self, address: u64, len: u64) -> bool {
        self.0.broker_address(address, len).is_some()
    }
}

/// Where the broker sees the RAM of a VM.
pub fn pieces(vm: &VmView<'static>) -> impl Iterator<Item = Piece> {
    vm.broker_window().map(|(address, region)| Piece { ipa: region.ipa, address, len: region.len })
}
