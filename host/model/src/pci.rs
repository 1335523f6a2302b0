//! PCI on a board and the SMMU in front of it, as described by a platform file; the functions that
//! a VM is given.

use crate::diagnostics::Code;
use crate::document::{At, Values, number};
use crate::fault::{Fault, Faults, File};
use std::{fmt, ops::Range};
use toml::de::DeTable;
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

/// What the SMMU distinguishes. A stream's number is the requester ID, with the bits that it does
/// not distinguish zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Every function.
    Function,
    /// Devices, but not their functions.
    Device,
    /// Nothing: all functions are one stream.
    Bus,
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
pub struct Function {
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

impl Function {
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

/// The description of both in a platform file.
pub(crate) fn platform(
    table: &DeTable<'_>,
    file: &File,
    faults: &mut Faults,
) -> (Option<Pci>, Option<Smmu>) {
    let mut reader = Reader { file, faults };
    let (pci, smmu) = (reader.pci(table), reader.smmu(table));
    if let (Some(pci), Some(smmu)) = (&pci, &smmu)
        && pci.intx.contains(&smmu.event_intid)
    {
        let span = table.inner("smmu").map_or(0..0, |(_, span)| span);
        let help = "give both their own, as the board's device tree has them";
        reader.fault(span, "the SMMU's interrupt is one of [pci]'s lines", help);
    }
    (pci, smmu)
}

struct Reader<'a> {
    file: &'a File,
    faults: &'a mut Faults,
}

impl Reader<'_> {
    fn fault(&mut self, span: Range<usize>, message: &str, help: &str) {
        self.faults.push(Fault::new(Code::PlatformPci, self.file, span, message).help(help));
    }

    /// Whether `len` bytes of registers can be at `address`.
    fn fits(&mut self, address: &At<u64>, len: u64, limit: u64) -> bool {
        let end = address.value.checked_add(len);
        let good = address.value.is_multiple_of(PAGE) && end.is_some_and(|end| end <= limit);
        if !good {
            let help = format!("use a multiple of 0x1000 that ends below {limit:#x}");
            self.fault(address.span.clone(), "nothing can be at this address", &help);
        }
        good
    }

    fn pci(&mut self, table: &DeTable<'_>) -> Option<Pci> {
        let (pci, span) = table.inner("pci")?;
        let (ecam, window) = (pci.number("ecam")?, pci.number("window")?);
        let (window_len, aperture) = (pci.size("window_size")?.value, pci.size("aperture")?);
        if !self.fits(&ecam, ECAM_LEN, ADDRESS_LIMIT) || !self.fits(&window, window_len.0, 1 << 32)
        {
            return None;
        }
        if !aperture.value.0.is_power_of_two() || aperture.value.0 < PAGE {
            let help = "write a power of two, like \"2MiB\"";
            self.fault(aperture.span, "an aperture of this size has no alignment", help);
            return None;
        }
        let lines: Vec<_> = pci
            .list("intx", number)?
            .value
            .into_iter()
            .map(|line| IntId(line.value as u32))
            .collect();
        let Ok(intx) = <[IntId; 4]>::try_from(lines) else {
            self.fault(span, "`intx` has not four lines", "write intx = [35, 36, 37, 38]");
            return None;
        };
        let streams = match pci.text("streams")?.value.as_str() {
            "function" => Streams::Function,
            "device" => Streams::Device,
            _ => Streams::Bus,
        };
        Some(Pci {
            ecam: Pa(ecam.value),
            window: Pa(window.value),
            window_len,
            aperture: aperture.value,
            intx,
            streams,
        })
    }

    fn smmu(&mut self, table: &DeTable<'_>) -> Option<Smmu> {
        let (smmu, _) = table.inner("smmu")?;
        let base = smmu.number("base")?;
        if !self.fits(&base, SMMU_LEN, ADDRESS_LIMIT) {
            return None;
        }
        Some(Smmu {
            base: Pa(base.value),
            event_intid: IntId(smmu.number("event_intid")?.value as u32),
            machine: smmu.text("machine").map(|machine| machine.value),
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
