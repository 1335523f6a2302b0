//! The plug-in's arguments.

use std::ops::Range;
use std::path::PathBuf;

/// The arguments in `-plugin libweir_qemu_plugin.so,KEY=VALUE,..`.
///
/// | key | value |
/// | --- | --- |
/// | `out` | the file to write when QEMU ends |
/// | `hyp` | `START-END`, the hypervisor's virtual addresses at EL2, end excluded |
/// | `vectors` | optional: the address in `VBAR_EL2` |
/// | `caches` | optional: a [`Setup`](crate::caches::Setup); caches are observed instead of instructions counted |
/// | `counter-page` | optional, with `caches` and `ram`: the physical address of a [`CounterPage`](weir_trace::counter_page::CounterPage), in which each core's traffic is counted while the machine runs |
/// | `ram` | with `counter-page`: the file that is the machine's RAM |
/// | `ledger` | optional: the file to write the [`Ledger`](crate::ledger::Ledger) of memory budgets to when QEMU ends |
/// | `until` | optional, with `caches`: a file; if it is there when QEMU ends, it says how many bytes of the console are part of the run, and what came behind is left out |
///
/// Numbers are decimal, or hexadecimal after `0x`. Without `vectors` a stretch begins with any
/// instruction inside `hyp`; with it only at one of the eight vectors for a lower exception level,
/// so guest code that uses the same virtual addresses at EL0 or EL1 is not taken for the
/// hypervisor, and an interrupt that is pending at the ERET begins its own stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginOptions {
    /// The report's file.
    pub out: PathBuf,
    /// Virtual addresses of the hypervisor.
    pub hyp: Range<u64>,
    /// Address of the exception vectors at EL2.
    pub vectors: Option<u64>,
    /// The input of the caches job; it needs `vectors`.
    pub caches: Option<PathBuf>,
    /// The file that states, at the end, how many bytes of the console count.
    pub until: Option<PathBuf>,
    /// The page of counters to keep.
    pub counter_page: Option<Page>,
    /// The ledger's file.
    pub ledger: Option<PathBuf>,
}

/// A page of the machine's RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The file that is the machine's RAM, from its first byte on.
    pub ram: PathBuf,
    /// The page's physical address.
    pub pa: u64,
}

impl PluginOptions {
    /// Reads the arguments as QEMU hands them over.
    ///
    /// # Errors
    /// A sentence that names the argument at fault.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut out, mut hyp, mut vectors) = (None, None, None);
        let (mut caches, mut until, mut counter_page, mut ram) = (None, None, None, None);
        let mut ledger = None;
        for argument in arguments {
            let (key, value) = argument
                .split_once('=')
                .ok_or_else(|| format!("`{argument}` is not of the form key=value"))?;
            match key {
                "out" if !value.is_empty() => out = Some(PathBuf::from(value)),
                "hyp" => hyp = Some(range(value)?),
                "vectors" => vectors = Some(number(value)?),
                "caches" if !value.is_empty() => caches = Some(PathBuf::from(value)),
                "until" if !value.is_empty() => until = Some(PathBuf::from(value)),
                "counter-page" => counter_page = Some(number(value)?),
                "ledger" if !value.is_empty() => ledger = Some(PathBuf::from(value)),
                "ram" if !value.is_empty() => ram = Some(PathBuf::from(value)),
                _ => {
                    return Err(format!(
                        "`{argument}`: the arguments are out=FILE, hyp=START-END, vectors=ADDRESS, \
                         caches=FILE, until=FILE, ledger=FILE, counter-page=ADDRESS, ram=FILE"
                    ));
                }
            }
        }
        let counter_page = match (counter_page, ram) {
            (None, _) => None,
            (Some(_), None) => return Err("counter-page=ADDRESS needs ram=FILE".to_owned()),
            (Some(pa), Some(ram)) => Some(Page { ram, pa }),
        };
        let out = out.ok_or("out=FILE is missing")?;
        let hyp = hyp.ok_or("hyp=START-END is missing")?;
        if let Some(vectors) = vectors
            && !(vectors % 0x800 == 0 && hyp.contains(&vectors))
        {
            return Err(format!("vectors={vectors:#x} is not a multiple of 0x800 inside of hyp"));
        }
        if caches.is_some() && vectors.is_none() {
            return Err("caches=FILE needs vectors=ADDRESS".to_owned());
        }
        if counter_page.is_some() && caches.is_none() {
            return Err("counter-page=ADDRESS needs caches=FILE".to_owned());
        }
        Ok(Self { out, hyp, vectors, caches, until, counter_page, ledger })
    }

    /// Whether `pc` is one of the vectors for a lower exception level. Vectors are 0x80 apart, and
    /// those fill the second half of the table (Arm ARM D1.3.1.5). Without known vectors nothing
    /// is.
    #[must_use]
    pub fn is_lower_el_vector(&self, pc: u64) -> bool {
        const LOWER: Range<u64> = 0x400..0x800;
        self.vectors.is_some_and(|vectors| {
            let offset = pc.wrapping_sub(vectors);
            LOWER.contains(&offset) && offset.is_multiple_of(0x80)
        })
    }
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (start, end) =
        text.split_once('-').ok_or_else(|| format!("`hyp={text}` is not of the form START-END"))?;
    let range = number(start)?..number(end)?;
    if range.is_empty() {
        return Err(format!("hyp={text} is empty"));
    }
    Ok(range)
}

fn number(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .map_err(|error| format!("`{text}` is not an address: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_all_arguments() {
        let options =
            PluginOptions::parse(["out=a.json", "hyp=0x4000-24576", "vectors=0x4800"]).unwrap();
        assert_eq!(
            options,
            PluginOptions {
                out: "a.json".into(),
                hyp: 0x4000..0x6000,
                vectors: Some(0x4800),
                caches: None,
                until: None,
                counter_page: None,
                ledger: None,
            }
        );
        let options = PluginOptions::parse(["hyp=0x0-0x1000", "out=b", "ledger=l"]).unwrap();
        assert_eq!(options.ledger.as_deref(), Some("l".as_ref()));
        assert_eq!(PluginOptions::parse(["hyp=0x0-0x1", "out=b"]).unwrap().vectors, None);
        let options =
            PluginOptions::parse(["hyp=0x0-0x1000", "out=b", "caches=c", "vectors=0x800"]).unwrap();
        assert_eq!((options.caches.as_deref(), &options.until), (Some("c".as_ref()), &None));
        let with_page = [
            "out=b",
            "hyp=0x0-0x1000",
            "vectors=0x800",
            "caches=c",
            "counter-page=0x5000",
            "ram=r",
        ];
        let page = Page { ram: "r".into(), pa: 0x5000 };
        assert_eq!(PluginOptions::parse(with_page).unwrap().counter_page, Some(page));
        let vectors = (0..0x2000).filter(|&pc| options.is_lower_el_vector(pc));
        assert!(vectors.eq((0xc00..0x1000).step_by(0x80)));
    }

    #[test]
    fn names_the_wrong_argument() {
        for (arguments, message) in [
            (&["out=a", "hyp=0x0-0x10", "ledger="][..], "`ledger=`"),
            (&["hyp=0x0-0x10"], "out=FILE is missing"),
            (&["out=a"], "hyp=START-END is missing"),
            (&["out=", "hyp=0x0-0x10"], "`out=`"),
            (&["out=a", "hyp=0x10"], "START-END"),
            (&["out=a", "hyp=0x10-0x10"], "empty"),
            (&["out=a", "hyp=0x0-0xg"], "`0xg` is not an address"),
            (&["out=a", "hyp=0x0-0x10000000000000000"], "not an address"),
            (&["out=a", "hyp=0x0-0x1000", "vectors=0x1000"], "vectors=0x1000"),
            (&["out=a", "hyp=0x0-0x1000", "vectors=0x80"], "vectors=0x80"),
            (&["out=a", "hyp=0x0-0x10", "speed=1"], "`speed=1`"),
            (&["out=a", "hyp=0x0-0x1000", "caches=c"], "needs vectors"),
            (&["out=a", "hyp=0x0-0x1000", "caches="], "`caches=`"),
            (&["out=a", "hyp=0x0-0x1000", "counter-page=0x1000"], "needs ram"),
            (&["out=a", "hyp=0x0-0x1000", "counter-page=0x1000", "ram=r"], "needs caches"),
            (
                &["out=a", "hyp=0x0-0x1000", "counter-page=here", "ram=r"],
                "`here` is not an address",
            ),
            (&["out=a", "hyp=0x0-0x1000", "ram="], "`ram=`"),
            (&["verbose"], "`verbose` is not of the form"),
        ] {
            let error = PluginOptions::parse(arguments.iter().copied()).unwrap_err();
            assert!(error.contains(message), "{arguments:?}: {error}");
        }
    }
}
