//! The names of objects in messages.

use std::{borrow::Cow, fmt};

/// An object as messages name it: its kind and, in backticks, its name. A number stands without
/// backticks.
///
/// ```
/// use weir_model::Object;
///
/// assert_eq!(Object::vm("a").to_string(), "vm `a`");
/// assert_eq!(Object::core(1).to_string(), "core 1");
/// assert_eq!(Object::task("loop", "a").to_string(), "task `loop` of vm `a`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    kind: &'a str,
    name: Cow<'a, str>,
    /// The VM that it belongs to.
    vm: Option<&'a str>,
}

impl<'a> Object<'a> {
    /// Returns the object of a kind such as `vm`.
    #[must_use]
    pub const fn new(kind: &'a str, name: &'a str) -> Self {
        Self { kind, name: Cow::Borrowed(name), vm: None }
    }

    /// Returns the VM `name`.
    #[must_use]
    pub const fn vm(name: &'a str) -> Self {
        Self::new("vm", name)
    }

    /// Returns the flow `name`.
    #[must_use]
    pub const fn flow(name: &'a str) -> Self {
        Self::new("flow", name)
    }

    /// Returns the group `name` of colors or banks.
    #[must_use]
    pub const fn group(name: &'a str) -> Self {
        Self::new("group", name)
    }

    /// Returns the platform `name`.
    #[must_use]
    pub const fn platform(name: &'a str) -> Self {
        Self::new("platform", name)
    }

    /// Returns the device of the board at `path`.
    #[must_use]
    pub const fn device(path: &'a str) -> Self {
        Self::new("device", path)
    }

    /// Returns the task `name` of VM `vm`.
    #[must_use]
    pub const fn task(name: &'a str, vm: &'a str) -> Self {
        Self { kind: "task", name: Cow::Borrowed(name), vm: Some(vm) }
    }

    /// Returns the interrupt with this number or name of VM `vm`.
    #[must_use]
    pub const fn interrupt(line: &'a str, vm: &'a str) -> Self {
        Self { kind: "interrupt", name: Cow::Borrowed(line), vm: Some(vm) }
    }

    /// Returns the core with this number.
    #[must_use]
    pub fn core(number: u64) -> Self {
        Self { kind: "core", name: Cow::Owned(number.to_string()), vm: None }
    }
}

/// Displays a type as messages name it: by the kind of its object and the field with its name.
macro_rules! named {
    ($type:ty: $kind:ident($name:ident)) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&crate::object::Object::$kind(&self.$name), f)
            }
        }
    };
}

pub(crate) use named;

impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, vm } = self;
        if matches!(*kind, "core" | "interrupt") && name.parse::<u64>().is_ok() {
            write!(f, "{kind} {name}")?;
        } else {
            write!(f, "{kind} `{name}`")?;
        }
        vm.map_or(Ok(()), |vm| write!(f, " of {}", Object::vm(vm)))
    }
}
