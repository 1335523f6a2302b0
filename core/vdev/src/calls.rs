//! The declaration of calls: constants for EL2, and a description of each for the reference.

/// A call as the reference describes it. EL2 uses no description, so the linker leaves them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDescription {
    /// The function identifier; for PSCI, the function number.
    pub id: u32,
    /// The name of the constant.
    pub name: &'static str,
    /// Registers of the arguments; empty without arguments.
    pub arguments: &'static str,
    /// Registers of the results, and errors.
    pub result: &'static str,
    /// The effect.
    pub doc: &'static str,
}

/// SMCCC_VERSION (DEN0028, 7.2). PSCI_FEATURES also accepts it.
pub const SMCCC_VERSION: u32 = 0x8000_0000;

/// Declares a constant for each call and the table of all of them.
macro_rules! calls {
    ($(#[$table_doc:meta])* $table:ident {
        $($(#[doc = $doc:literal])+
        $name:ident = $id:expr, [$arguments:literal] -> $result:literal;)*
    }) => {
        $($(#[doc = $doc])+ pub const $name: u32 = $id;)*

        $(#[$table_doc])*
        pub const $table: &[$crate::calls::CallDescription] = &[$(
            $crate::calls::CallDescription {
                id: $id,
                name: stringify!($name),
                arguments: $arguments,
                result: $result,
                doc: concat!($($doc),+),
            },
        )*];
    };
}
pub(crate) use calls;
