//! Tests of tables that cross an interface.
#![allow(missing_docs, reason = "tests")]

mod damage;
mod machine;
