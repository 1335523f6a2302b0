//! Tables of a file: each is declared once, with the type, range, default and description of each
//! key. The check of a file, its reading, the JSON schema and the reference pages come from the
//! declaration.
//!
//! ```text
//! table! {
//!     /// A task of a VM.
//!     struct Task = "[[vm.task]]" {
//!         /// Its name.
//!         name: String,                   a key that a table must have
//!         /// The least time between two activations.
//!         period: Nanos > 0,              0 is refused
//!         /// Its core.
//!         core: Option<u64> [0, 7],       a key with a range that may be left out
//!         /// The release jitter.
//!         jitter: Nanos = "0s",           a key with a default
//!         /// The VMs.
//!         vms: Vec<String> as NAMES,      a key with a kind that does not follow from its type
//!         /// Its RAM.
//!         @required memory: Option<u64>,  one that may be missing in a file that is analyzed
//!     }
//! }
//! ```
//!
//! A value that is wrong, and reported as such, is `None` or the default here, so that the checker
//! goes on with the rest; if it is one that a table must have, the whole table is left out.

use crate::shape::{Kind, Shape, integer};
use std::{
    fmt,
    ops::{Deref, Range},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use weir_abi::{MAX_CORES, OnFault, OnOutside};
use weir_units::{Bytes, BytesPerSec, CoreId, Events, IntId, Ipa, Nanos, Pa};

/// A value and its bytes in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its bytes.
    pub span: Range<usize>,
}

impl<T: fmt::Display> fmt::Display for At<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.value, f)
    }
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A value of a key. Its type, unit and range were checked: see [`Kind`].
pub(crate) trait Value: Sized {
    /// What a file may have.
    const KIND: Kind;
    /// Whether a table must have such a key.
    const REQUIRED: bool = true;

    fn read(value: &Spanned<DeValue<'_>>) -> Option<Self>;

    /// The value of a key that is not there.
    fn absent() -> Option<Self> {
        None
    }

    /// The value of a key of `table`, or else its default, which is written as in a file.
    fn of(table: &DeTable<'_>, key: &str, default: Option<&str>) -> Option<Self> {
        let default = || match default {
            Some(text) => Self::read(&DeValue::parse(text).ok()?),
            None => Self::absent(),
        };
        table.get(key).and_then(Self::read).or_else(default)
    }
}

/// A table of a file.
pub(crate) trait Table: Value {
    const SHAPE: Shape;

    fn read_table(table: &DeTable<'_>) -> Option<Self>;
}

/// Declares tables; see the module.
macro_rules! table {
    ($(
        $(#[doc = $doc:literal])+
        $vis:vis struct $name:ident = $title:literal {
            $(
                $(#[doc = $key_doc:literal])+
                $(@$required:ident)? $key:ident: $type:ty
                $(> $above:literal)? $([$low:expr, $high:expr])? $(as $kind:ident)? $(= $default:tt)?
            ),+ $(,)?
        }
    )+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::struct_field_names, reason = "a field is called as its key")]
        $vis struct $name {
            $( $(#[doc = $key_doc])+ pub $key: $type, )+
        }

        impl crate::table::Table for $name {
            const SHAPE: crate::shape::Shape = crate::shape::Shape {
                name: $title,
                doc: concat!($($doc),+),
                keys: &[$( crate::shape::Key {
                    name: stringify!($key),
                    doc: concat!($($key_doc),+),
                    required: table!(@required [$($required)?] [$($default)?] $type),
                    default: table!(@default $($default)?),
                    kind: table!(@kind $type, $(> $above)? $([$low, $high])? $(as $kind)?),
                } ),+],
            };

            fn read_table(table: &toml::de::DeTable<'_>) -> Option<Self> {
                Some(Self { $(
                    $key: crate::table::Value::of(
                        table,
                        stringify!($key),
                        table!(@default $($default)?),
                    )?,
                )+ })
            }
        }

        impl crate::table::Value for $name {
            const KIND: crate::shape::Kind =
                crate::shape::Kind::Table(&<Self as crate::table::Table>::SHAPE);

            fn read(value: &toml::Spanned<toml::de::DeValue<'_>>) -> Option<Self> {
                crate::table::Table::read_table(value.get_ref().as_table()?)
            }
        }
    )+ };
    (@required [required] [] $type:ty) => { true };
    (@required [] [] $type:ty) => { <$type as crate::table::Value>::REQUIRED };
    (@required [] [$default:tt] $type:ty) => { false };
    (@default) => { None };
    (@default $default:tt) => { Some(stringify!($default)) };
    (@kind $type:ty,) => { <$type as crate::table::Value>::KIND };
    (@kind $type:ty, > $above:literal) => {
        crate::shape::Kind::Positive(&<$type as crate::table::Value>::KIND)
    };
    (@kind $type:ty, [$low:expr, $high:expr]) => { crate::shape::Kind::Number($low, $high) };
    (@kind $type:ty, as $kind:ident) => { $kind };
}

/// Declares the strings of a key with a choice; the type is declared along with it or apart.
macro_rules! choice {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $( $(#[$doc:meta])* $variant:ident = $text:literal ),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name { $( $(#[$doc])* $variant ),+ }

        #[allow(dead_code, reason = "not every type is written")]
        impl $name {
            /// All of them.
            $vis const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in files.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        choice! { $name { $($variant = $text),+ } }
    };
    ($name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        impl crate::table::Value for $name {
            const KIND: crate::shape::Kind = crate::shape::Kind::Choice(&[$($text),+]);

            fn read(value: &toml::Spanned<toml::de::DeValue<'_>>) -> Option<Self> {
                match value.get_ref().as_str()? {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

/// Declares one of several tables, distinguished by their first key.
macro_rules! variant {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variant:ident($table:ty)),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis enum $name { $($variant($table)),+ }

        impl crate::table::Value for $name {
            const KIND: crate::shape::Kind = crate::shape::Kind::Variant(
                &[$(&<$table as crate::table::Table>::SHAPE),+]
            );

            fn read(value: &toml::Spanned<toml::de::DeValue<'_>>) -> Option<Self> {
                let table = value.get_ref().as_table()?;
                $(
                    let first = <$table as crate::table::Table>::SHAPE.keys.first()?;
                    if table.contains_key(first.name) {
                        return Some(Self::$variant(crate::table::Value::read(value)?));
                    }
                )+
                None
            }
        }
    };
}

pub(crate) use {choice, table, variant};

choice! { OnFault { Halt = "halt", Restart = "restart", StopSystem = "stop-system" } }
choice! { OnOutside { Fault = "fault", Abort = "abort" } }

/// Implements [`Value`] of what is read with one expression.
macro_rules! value {
    ($($type:ty: $kind:expr, |$value:ident| $read:expr;)+) => { $(
        impl Value for $type {
            const KIND: Kind = $kind;

            fn read($value: &Spanned<DeValue<'_>>) -> Option<Self> {
                $read
            }
        }
    )+ };
}

/// An integer as it is.
pub(crate) const ANY: Kind = Kind::Number(0, u64::MAX);
/// The number of a core.
pub(crate) const CORE: Kind = Kind::Number(0, MAX_CORES as u64 - 1);
/// A list of cores.
pub(crate) const CORES: Kind = Kind::List(&CORE);
/// A time of which an integer counts nanoseconds.
pub(crate) const NANOS: Kind = Kind::OneOf(&[ANY, Kind::Duration]);

fn number<T: TryFrom<u64>>(value: &Spanned<DeValue<'_>>) -> Option<T> {
    integer(value.get_ref().as_integer()?)?.try_into().ok()
}

fn text<'a>(value: &'a Spanned<DeValue<'_>>) -> Option<&'a str> {
    value.get_ref().as_str()
}

value! {
    String: Kind::Text, |value| text(value).map(str::to_owned);
    bool: Kind::Boolean, |value| value.get_ref().as_bool();
    u8: Kind::Number(0, u8::MAX as u64), |value| number(value);
    u16: Kind::Number(0, u16::MAX as u64), |value| number(value);
    u32: Kind::Number(0, u32::MAX as u64), |value| number(value);
    u64: ANY, |value| number(value);
    usize: ANY, |value| number(value);
    Bytes: Kind::Size, |value| Self::parse(text(value)?).ok();
    BytesPerSec: Kind::Rate, |value| Self::parse(text(value)?).ok();
    Nanos: Kind::Duration, |value| match text(value) {
        Some(text) => Self::parse(text).ok(),
        None => number(value).map(Self),
    };
    Ipa: Kind::Address, |value| number(value).map(Self);
    Pa: Kind::Address, |value| number(value).map(Self);
    Events: ANY, |value| number(value).map(Self);
    IntId: Kind::Number(0, 1019), |value| number(value).map(Self);
    CoreId: CORE, |value| number(value).map(Self);
}

impl<T: Value> Value for At<T> {
    const KIND: Kind = T::KIND;
    const REQUIRED: bool = T::REQUIRED;

    fn read(value: &Spanned<DeValue<'_>>) -> Option<Self> {
        Some(Self { value: T::read(value)?, span: value.span() })
    }

    /// A default has no place in the file.
    fn of(table: &DeTable<'_>, key: &str, default: Option<&str>) -> Option<Self> {
        let default = || Some(Self { value: T::of(&DeTable::new(), key, default)?, span: 0..0 });
        table.get(key).and_then(Self::read).or_else(default)
    }
}

impl<T: Value> Value for Option<T> {
    const KIND: Kind = T::KIND;
    const REQUIRED: bool = false;

    fn read(value: &Spanned<DeValue<'_>>) -> Option<Self> {
        Some(T::read(value))
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// A list; where the walk lets it, a single value is a list of one. Of tables the sound ones; of
/// other values all or none.
impl<T: Value> Value for Vec<T> {
    const KIND: Kind = Kind::List(&T::KIND);

    fn read(value: &Spanned<DeValue<'_>>) -> Option<Self> {
        let Some(items) = value.get_ref().as_array() else { return Some(vec![T::read(value)?]) };
        let items = items.iter().map(T::read);
        if let Kind::Table(_) = T::KIND { Some(items.flatten().collect()) } else { items.collect() }
    }
}
