//! The RAM of VMs that the broker serves.

use weir_abi::VmView;
use weir_exchange::ram::{PIECES, Piece};
use weir_vsock::Ram;

const _: () = assert!(PIECES == weir_abi::MAX_PORT_PIECES);

/// The RAM of a VM that the broker can reach.
pub struct Regions<'a>(pub &'a VmView<'static>);

impl Ram for Regions<'_> {
    fn contains(&self, address: u64, len: u64) -> bool {
        self.0.broker_address(address, len).is_some()
    }
}

/// Returns the pieces of a VM's RAM, with the addresses at which the broker sees them.
pub fn pieces(vm: &VmView<'static>) -> impl Iterator<Item = Piece> {
    vm.broker_window().map(|(address, region)| Piece { ipa: region.ipa, address, len: region.len })
}
