//! The end of a core after a failure at EL2.

use crate::notice::{self, Text};

/// Handles an exception of EL2 itself. No action of a guest causes one; only a defect of the
/// hypervisor or of the machine does. This core stops and keeps the locks that it holds, so another
/// core continues until it needs one of them.
pub extern "C" fn own_exception(esr: u64, elr: u64, far: u64) -> ! {
    let texts = [esr, elr, far].map(|value| Text::number(value, 16));
    notice::last_words(&[
        b"exception at EL2: ESR 0x",
        texts[0].as_bytes(),
        b", ELR 0x",
        texts[1].as_bytes(),
        b", FAR 0x",
        texts[2].as_bytes(),
    ])
}

/// Stops the core in place of returning a value that the boot core has not set. No path leads here.
#[cold]
#[inline(never)]
pub fn unset() -> ! {
    notice::last_words(&[b"EL2 read a value that the boot core had not set"])
}

/// Stops the core because an event arrived in a vCPU state in which it cannot occur. `why` names
/// what should have prevented it. No path leads here.
#[cold]
#[inline(never)]
pub fn impossible(why: &str) -> ! {
    notice::last_words(&[b"EL2 lost track of a vCPU: ", why.as_bytes()])
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let (file, line) = info.location().map_or(("?", 0), |place| (place.file(), place.line()));
    notice::last_words(&[
        b"panic at ",
        file.as_bytes(),
        b":",
        Text::number(line.into(), 10).as_bytes(),
    ])
}
