//! The state of the check: the file, the platform and the diagnostics.

use crate::diagnostics::Code;
use crate::fault::{Faults, FilePlace};
use crate::measured::Saturation;
use crate::object::Object;
use crate::shape::suggestion;
use crate::system::System;

/// The suggestion if there is no critical VM.
pub(super) const LEAVE_COMPENSATION: &str = "leave `regulator`, `critical` and `window` out";

/// Checks the budgets of a file and collects the diagnostics.
pub(super) struct Checker<'a> {
    pub(super) system: &'a System,
    /// The number of cores that EL2 uses.
    pub(super) cores: usize,
    pub(super) faults: &'a mut Faults,
}

impl Checker<'_> {
    /// Returns what messages call the platform.
    pub(super) fn platform_title(&self) -> String {
        let platform = self.system.platform.as_ref();
        platform.map_or("the platform".to_owned(), ToString::to_string)
    }

    /// Adds a diagnostic.
    pub(super) fn fault(
        &mut self,
        code: Code,
        place: &FilePlace,
        message: String,
        help: impl Into<String>,
    ) {
        self.faults.push(self.system.fault(code, place, message, help));
    }

    /// Returns the saturation table of the file, or else that of the platform.
    pub(super) fn saturation(&self) -> Option<Saturation> {
        let own = self.system.saturation.clone();
        own.or_else(|| self.system.platform.as_ref()?.saturation.clone())
    }

    /// Returns the position of the VM `name`, which `key` has; a message begins with `key`. The
    /// suggestions for an unknown name exclude `never`.
    pub(super) fn find(
        &mut self,
        key: &str,
        name: &str,
        place: &FilePlace,
        never: Option<usize>,
    ) -> Option<usize> {
        let names = self.system.guests().iter().map(|vm| vm.name.as_str());
        let found = names.clone().position(|known| known == name);
        if found.is_none() {
            let others = names.enumerate().filter(|(index, _)| never != Some(*index));
            let help = match never {
                Some(_) if others.clone().next().is_none() => LEAVE_COMPENSATION.to_owned(),
                _ => suggestion(name, others.map(|(_, name)| name)),
            };
            let message = format!("{key} names {}, which is not in the file", Object::vm(name));
            self.fault(Code::UnknownVm, place, message, help);
        }
        found
    }
}
