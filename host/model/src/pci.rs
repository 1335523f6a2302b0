//! PCI on a board and the SMMU in front of it, as described by a platform file; the functions that
//! a VM is given.

use crate::diagnostics::Code;
use crate::document::Reader;
use crate::keys::board;
pub use crate::keys::board::Streams;
use crate::table::At;
use std::fmt;
use weir_abi::{ADDRESS_LIMIT, ECAM_LEN, PAGE, STREAM_LIMIT};
use weir_units::{Bytes, IntId, Pa};

/// PCI as a board has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pci {
    /// The configuration space (ECAM), that of bus 0 first.
    pub ecam: Pa,
    /// Where base addresses below 4 GiB can be.
    pub window: Pa,
    /// Its size.
    pub window_len: Bytes,
    /// What each function that is passed through gets of it.
    pub aperture: Bytes,
    /// The INTIDs of the four interrupt lines: INTA of device `n` is line `n` modulo 4.
    pub intx: [IntId; 4],
    /// What the SMMU distinguishes.
    pub streams: Streams,
}

/// An SMMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smmu {
    /// Its registers, 128 KiB.
    pub base: Pa,
    /// The interrupt of its event queue.
    pub event_intid: IntId,
    /// What makes QEMU's machine have one: `iommu=smmuv3`.
    pub machine: Option<String>,
}

/// Where a function is: bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// 0 to 255; only what is on bus 0 can be passed through.
    pub bus: u8,
    /// 0 to 31.
    pub device: u8,
    /// 0 to 7.
    pub function: u8,
}

/// A function that a VM has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedFunction {
    /// Where it is, on the board and for the VM.
    pub address: Address,
    /// Its number at the SMMU.
    pub stream: u32,
    /// Its interrupt.
    pub intid: IntId,
    /// Where its base addresses are, on the board and for the VM.
    pub bars: Pa,
    /// How many bytes they may take.
    pub bars_len: Bytes,
}

/// Length of an SMMUv3's registers: two pages of 64 KiB.
pub(crate) const SMMU_LEN: u64 = 0x2_0000;
/// What a function's name in a list of devices begins with.
pub(crate) const PREFIX: &str = "pci:";

impl Address {
    /// Reads `00:02.0`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (bus, rest) = text.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let number = |text: &str, digits: usize| {
            let hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            hex.then(|| u8::from_str_radix(text, 16).ok())?
        };
        let (bus, device, function) = (number(bus, 2)?, number(device, 2)?, number(function, 1)?);
        (device < 32 && function < 8).then_some(Self { bus, device, function })
    }

    /// The requester ID.
    #[must_use]
    pub fn id(self) -> u16 {
        u16::from(self.bus) << 8 | u16::from(self.device) << 3 | u16::from(self.function)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus, self.device, self.function)
    }
}

impl AssignedFunction {
    /// As a system file names it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.address)
    }
}

impl Pci {
    /// The INTID of a function that interrupts by INTA.
    #[must_use]
    pub fn intid(&self, address: Address) -> IntId {
        self.intx[usize::from(address.device % 4)]
    }

    /// The stream of a function.
    #[must_use]
    pub fn stream(&self, address: Address) -> u32 {
        let id = u32::from(address.id());
        match self.streams {
            Streams::Function => id,
            Streams::Device => id & !7,
            Streams::Bus => id & !0xff,
        }
    }
}

/// Whether `len` bytes of registers can be at `address`.
fn fits(table: &str, address: &At<u64>, (len, limit): (u64, u64), reader: &mut Reader<'_>) -> bool {
    let end = address.value.checked_add(len);
    let good = address.value.is_multiple_of(PAGE) && end.is_some_and(|end| end <= limit);
    if !good {
        let help = format!("use a multiple of 0x1000 that ends below {limit:#x}");
        let message =
            format!("{table}: {len:#x} bytes of registers cannot be at {:#x}", address.value);
        reader.fault(Code::PlatformPci, &address.span, message, help);
    }
    good
}

impl Pci {
    pub(crate) fn of(raw: &At<board::Pci>, reader: &mut Reader<'_>) -> Option<Self> {
        let board::Pci { ecam, window, window_size, aperture, intx, streams } = &raw.value;
        if !fits("[pci]", ecam, (ECAM_LEN, ADDRESS_LIMIT), reader)
            || !fits("[pci]", window, (window_size.0, 1 << 32), reader)
        {
            return None;
        }
        if !aperture.value.0.is_power_of_two() || aperture.value.0 < PAGE {
            let message =
                format!("[pci]: `aperture` is no power of two of pages ({})", aperture.value);
            let help = "write a power of two, like \"2MiB\"";
            reader.fault(Code::PlatformPci, &aperture.span, message, help);
            return None;
        }
        let Ok(intx) = <[IntId; 4]>::try_from(intx.as_slice()) else {
            let help = "write intx = [35, 36, 37, 38]";
            reader.fault(Code::PlatformPci, &raw.span, "[pci]: `intx` has not four lines", help);
            return None;
        };
        Some(Self {
            ecam: Pa(ecam.value),
            window: Pa(window.value),
            window_len: *window_size,
            aperture: aperture.value,
            intx,
            streams: *streams,
        })
    }
}

impl Smmu {
    /// The SMMU in front of `pci`.
    pub(crate) fn of(
        raw: &At<board::Smmu>,
        pci: Option<&Pci>,
        reader: &mut Reader<'_>,
    ) -> Option<Self> {
        if pci.is_some_and(|pci| pci.intx.contains(&raw.event_intid)) {
            let message = "[smmu]: `event_intid` is one of `intx` of [pci]";
            let help = "give both their own, as the board's device tree has them";
            reader.fault(Code::PlatformPci, &raw.span, message, help);
        }
        fits("[smmu]", &raw.base, (SMMU_LEN, ADDRESS_LIMIT), reader).then(|| Self {
            base: Pa(raw.base.value),
            event_intid: raw.event_intid,
            machine: raw.machine.clone(),
        })
    }
}

const _: () = assert!(STREAM_LIMIT == 256, "every function of bus 0 has a stream");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_written_as_lspci_does() {
        let address = Address { bus: 0, device: 0x1f, function: 7 };
        assert_eq!(Address::parse("00:1f.7"), Some(address));
        assert_eq!((address.to_string(), address.id()), ("00:1f.7".to_owned(), 0xff));
        for wrong in
            ["", "00:02", "0:2.0", "00:20.0", "00:02.8", "00:+2.0", "0000:00:02.0", "gg:00.0"]
        {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_and_streams_follow_the_address() {
        let pci = |streams| Pci {
            ecam: Pa(0),
            window: Pa(0),
            window_len: Bytes(0),
            aperture: Bytes(0),
            intx: [35, 36, 37, 38].map(IntId),
            streams,
        };
        let address = Address { bus: 0, device: 6, function: 1 };
        assert_eq!(pci(Streams::Function).intid(address), IntId(37));
        let stream = |streams| pci(streams).stream(address);
        assert_eq!([Streams::Function, Streams::Device, Streams::Bus].map(stream), [0x31, 0x30, 0]);
    }

    proptest! {
        #[test]
        fn written_addresses_read_back(bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let address = Address { bus, device, function };
            prop_assert_eq!(Address::parse(&address.to_string()), Some(address));
        }
    }
}
