//! Reads a file of which only the timing is asked.

use super::facts::Timing;
use super::read::system;
use crate::diagnostics::Code;
use crate::document::parse_part;
use crate::fault::{self, Faults, File};
use crate::keys::system::{ABSENT, SYSTEM};
use crate::platform;
use std::path::Path;

impl Timing {
    /// Reads what a file says about time and bandwidth; other missing keys are no error.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with this part, and keys that are not keys.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        Self::parse(path, &fault::read(path)?, true)
    }

    /// The same of a text; `path` is its name in messages.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub fn from_text(path: &Path, text: &str) -> Result<Self, Faults> {
        Self::parse(path, &fault::file(path, text), true)
    }

    /// With `follow` the overheads of the file that `[broker] overheads` names are taken, too.
    pub(crate) fn parse(path: &Path, file: &File, follow: bool) -> Result<Self, Faults> {
        let (mut faults, mut found) = (Faults::default(), Faults::default());
        let read = parse_part(file, &SYSTEM, ABSENT, &mut faults, |table| {
            system(table, file, true, &mut found)
        });
        faults.0.append(&mut found.0);
        let Some((mut timing, name)) = read else {
            return Err(faults.into_result(()).err().unwrap_or_default());
        };
        let directory = path.parent().unwrap_or(Path::new(""));
        if follow {
            timing.measure(directory, &mut faults);
        }
        if let Some(name) = name {
            let platform = platform::find(file, directory, &name, &mut faults);
            timing.stand_on(platform);
        }
        faults.0.extend(timing.wrong_rules(|vm| timing.known_lines(vm)));
        faults.into_result(timing)
    }

    /// Takes the overheads that `[broker] overheads` names, and the copy's bandwidth with them, where the file has none.
    pub(crate) fn measure(&mut self, directory: &Path, faults: &mut Faults) {
        let Some((name, place)) = &self.measured else { return };
        let path = directory.join(name);
        let read = fault::read(&path).and_then(|file| Self::parse(&path, &file, false));
        let why = match read {
            Ok(measured) if measured.overheads.is_empty() => "has no [overheads]".to_owned(),
            Ok(measured) => {
                self.adopt(&measured);
                return;
            }
            Err(why) => {
                let first = why.0.first().map(|fault| fault.message.clone());
                format!("can't be used: {}", first.unwrap_or_default())
            }
        };
        let message = format!("`{name}`, the broker's overheads, {why}");
        let help = "run a system with flows with --deterministic, and let `weir report --overheads -o FILE` write it; or take the key out";
        faults.push(self.fault(Code::BrokerOverheads, place, message, help));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{DataPath, PathSource};
    use weir_units::Nanos;

    #[test]
    fn an_own_table_goes_before_the_platforms() {
        let flow =
            "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1KiB\"\nperiod = \"1ms\"\n";
        let timing = |more: &str| {
            let text = format!("platform = \"qemu-virt\"\n{flow}{more}");
            Timing::from_text("x.toml".as_ref(), &text).expect("a system")
        };
        let board = timing("");
        assert_eq!(
            (board.dma.path, board.dma.path_source),
            (DataPath::Broker, PathSource::Platform)
        );
        let origin = board.tables[0].origin.as_ref().expect("an origin");
        assert_eq!(board.tables[0].file, "platform qemu-virt");
        assert!(origin.command.contains("weir report --overheads"), "{origin:?}");
        let own = timing("[overheads]\nhold = { min = 1, max = 2 }\n");
        let hold = |timing: &Timing| {
            let hold = timing.overheads.iter().find(|step| step.name == "hold");
            hold.expect("the board has it").max
        };
        assert_eq!(hold(&own), Nanos(2));
        assert!(hold(&board) > Nanos(2) && own.overheads.len() == board.overheads.len());
        let files: Vec<_> = own.tables.iter().map(|table| table.file.as_str()).collect();
        assert_eq!(files, ["x.toml", "platform qemu-virt"]);
    }
}
