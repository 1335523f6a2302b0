//! A QEMU TCG plug-in that measures the hypervisor and its VMs from outside.
//!
//! Built as `libweir_qemu_plugin.so` and given to QEMU with `-plugin`, it does one of two jobs.
//! With the argument `caches` it sends every access through a model of caches and DRAM banks and
//! counts evicted lines and closed rows per pair of owners: see [`caches`]; at the same time it can
//! update the counter page, which the hypervisor reads. Without, it counts every instruction that
//! each vCPU executes and splits them into *EL2 stretches*: from the first instruction at EL2 to
//! the ERET that returns to the guest, both included. Guests announce with marker instructions the
//! path that they are about to exercise ([`path`]), so each stretch has a name, and the report
//! gives instructions, barriers, cache and TLB maintenance, device accesses and GIC register
//! accesses per path.
//!
//! ```text
//! qemu-system-aarch64 -M virt,virtualization=on,gic-version=3 .. \
//!   -plugin libweir_qemu_plugin.so,out=count.json,hyp=0x4000000000-0x4040000000
//! ```
//!
//! The arguments are those of [`PluginOptions`], the file that it writes is a [`CountReport`].
//!
//! What is counted where:
//! - [`opcode`] knows which instructions matter,
//! - [`count`] keeps the books of instructions, [`caches`] those of accesses, without QEMU and
//!   without `unsafe`,
//! - [`ledger`] has what each core's guest did in each period of a memory budget, whichever the
//!   job,
//! - [`report`] is the file's form,
//! - `plugin` is the interface to QEMU and the only module with `unsafe` code.
//!
//! One library serves QEMU 7.2 (plug-in interface version 1) and 10.0 (versions 2 to 4): it
//! resolves each function of the interface when it is loaded. Where callbacks don't report which
//! core runs (10.0, under `-icount`), it reads registers that do.

pub mod caches;
pub mod count;
pub mod ledger;
pub mod opcode;
pub mod options;
pub mod path;
mod plugin;
pub mod report;

pub use count::Accounting;
pub use options::PluginOptions;
pub use report::CountReport;
