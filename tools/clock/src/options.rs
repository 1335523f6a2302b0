//! The plug-in's arguments.

#![forbid(unsafe_code)]

use std::str::FromStr;

/// The arguments, each as `name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `quantum`: how far the clocks of two running cores may be apart, in ns. At 0 the core with
    /// the lowest clock runs after every translation block.
    pub quantum: Option<u64>,
    /// `reader`: the reader of the cores' trace rings.
    pub reader: Option<ReaderOptions>,
    /// `record`: the number of the file that records the input. The machine takes input then.
    pub record: Option<i32>,
    /// `replay`: the number of the file with the input's record.
    pub replay: Option<i32>,
    /// `memory`: the name of the board whose memory's time is charged to the cores.
    pub memory: Option<String>,
    /// `banks`: the address bits of each DRAM bank bit as hexadecimal masks, with `:` between; if
    /// not given, those of the memory's file.
    pub banks: Vec<u64>,
}

/// The reader of the trace rings. The argument has these values in this order, with `:` between:
/// `reader=7:5:4136:69672`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderOptions {
    /// The number of the socket by which the machine stops.
    pub socket: i32,
    /// The number of the file that is the machine's memory.
    pub memory: i32,
    /// The offset in the file of each ring's number of records, in bytes; a multiple of 8.
    pub heads: Vec<u64>,
}

impl ReaderOptions {
    fn parse(value: &str) -> Result<Self, String> {
        let mut words = value.split(':');
        let mut word = || number("reader", words.next().unwrap_or_default());
        let (socket, memory) = (word()?, word()?);
        let heads = words.map(|word| match number::<u64>("reader", word)? {
            offset if offset % 8 == 0 => Ok(offset),
            offset => Err(format!("reader: {offset} is not a multiple of 8")),
        });
        Ok(Self { socket, memory, heads: heads.collect::<Result<_, _>>()? })
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}={value}: not a number in range"))
}

fn masks(value: &str) -> Result<Vec<u64>, String> {
    let masks = value.split(':').map(|mask| u64::from_str_radix(mask, 16));
    masks.collect::<Result<_, _>>().map_err(|_| format!("banks={value}: not a list of masks"))
}

impl Options {
    /// Parses the arguments.
    ///
    /// # Errors
    ///
    /// The argument that has an unknown name or a wrong value.
    ///
    /// ```
    /// use weir_clock::options::Options;
    /// let options = Options::parse(["quantum=0", "record=5"].map(String::from).into_iter());
    /// assert_eq!(options.map(|options| options.quantum), Ok(Some(0)));
    /// ```
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            let (name, value) =
                argument.split_once('=').ok_or_else(|| format!("{argument}: no value"))?;
            match name {
                "quantum" => options.quantum = Some(number(name, value)?),
                "record" => options.record = Some(number(name, value)?),
                "replay" => options.replay = Some(number(name, value)?),
                "memory" => options.memory = Some(value.to_owned()),
                "banks" => options.banks = masks(value)?,
                "reader" => options.reader = Some(ReaderOptions::parse(value)?),
                _ => return Err(format!("{argument}: unknown")),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_has_a_name_and_masks_of_banks() {
        let parse = |text: &str| Options::parse(text.split(',').map(String::from));
        let options = parse("memory=zcu102,banks=2000:1c000").expect("options");
        assert_eq!(options.memory.as_deref(), Some("zcu102"));
        assert_eq!(options.banks, [0x2000, 0x1_c000]);
        assert_eq!(parse("banks=2000:x"), Err("banks=2000:x: not a list of masks".into()));
    }

    #[test]
    fn a_reader_has_a_socket_a_file_and_offsets() {
        let parse = |text: &str| Options::parse([text.to_owned()].into_iter());
        let reader = parse("reader=7:5:4136:69672").expect("options").reader;
        let expected = ReaderOptions { socket: 7, memory: 5, heads: vec![4136, 69672] };
        assert_eq!(reader, Some(expected));
        assert_eq!(parse("reader=7"), Err("reader=: not a number in range".into()));
        assert_eq!(parse("reader=7:5:4"), Err("reader: 4 is not a multiple of 8".into()));
    }
}
