//! End-to-end tests: calls of the command `weir`, most of them with a whole system in QEMU.
#![allow(missing_docs, reason = "tests")]

mod cli;
mod cmd;
mod docs;
mod guests_in_c;
mod newcomer;
mod qemu_attacks_budgets;
mod qemu_attacks_interrupts;
mod qemu_attacks_messages;
mod qemu_attacks_system;
mod qemu_attacks_time;
mod qemu_basics;
mod qemu_boards;
mod qemu_counter_page;
mod qemu_engine;
mod qemu_errata;
mod qemu_flows;
mod qemu_focus;
mod qemu_guests;
mod qemu_guests_in_c;
mod qemu_linux;
mod qemu_net;
mod qemu_observe;
mod qemu_pci;
mod qemu_shared;
mod qemu_throttle;
mod qemu_throttling_reproduce;
mod qemu_trace;
mod qemu_uboot;
mod qemu_verdicts;
mod run;
mod serial;
mod serial_values;
mod simulate;
mod support;
mod verdicts;
