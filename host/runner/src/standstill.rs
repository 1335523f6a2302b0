//! A machine in which virtual time stands still.
//!
//! Under QEMU's instruction counting a guest with an exception vector that takes an exception at
//! its first instruction executes nothing: virtual time stands still, no timer is due, and no other
//! core gets a time slice. The hypervisor's timer cannot interrupt it. Input on the wire can: its
//! interrupt makes QEMU leave the core and run the next ones, until the round comes back to the
//! core that stands still. One of them must have informed all cores by then
//! (`console::tell_standstill`).

use super::{ram::Ram, statics::StaticMemory};
use rustix::param::clock_ticks_per_second;
use std::{fs, sync::Arc, time::Duration};

/// The hypervisor's static that each core's ticks change.
pub const SYMBOL: &str = "weir_progress";
/// Bytes of it.
const PROGRESS: usize = 64;
/// Time of the host's processor after which QEMU is taken to stand still. A tick comes each 100 us
/// of virtual time, which takes a millisecond at the most.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sees whether the ticks go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Judge {
    ticks: Vec<u8>,
    /// QEMU's processor time at the last change, or when it was last reported to stand still.
    since: Duration,
}

impl Judge {
    /// Returns whether nothing changed for as long as patience lasts. Before the first tick nothing
    /// is judged.
    fn see(&mut self, ticks: &[u8], time: Duration) -> bool {
        if self.ticks != ticks || ticks.iter().all(|byte| *byte == 0) {
            self.ticks = ticks.to_vec();
            self.since = time;
            return false;
        }
        let is_over = time.saturating_sub(self.since) >= PATIENCE;
        if is_over {
            self.since = time;
        }
        is_over
    }
}

/// Watches one machine.
#[derive(Debug)]
pub struct Standstill {
    judge: Judge,
    progress: StaticMemory,
    ram: Arc<Ram>,
    qemu: u32,
}

impl Standstill {
    /// Of the machine with this memory, which process `qemu` runs.
    pub fn new(progress: StaticMemory, ram: Arc<Ram>, qemu: u32) -> Self {
        Self { judge: Judge::default(), progress, ram, qemu }
    }

    /// Returns whether the machine stands still, at most once in [`PATIENCE`].
    pub fn poll(&mut self) -> bool {
        let mut ticks = [0; PROGRESS];
        let read = self.progress.read(&self.ram, &mut ticks);
        let time = fs::read_to_string(format!("/proc/{}/stat", self.qemu)).ok();
        match (read, time.as_deref().and_then(processor_time)) {
            (Ok(()), Some(time)) => self.judge.see(&ticks, time),
            _ => false,
        }
    }
}

/// The processor time of all threads of a process, from `/proc/PID/stat` (proc(5): utime and stime
/// are fields 14 and 15).
fn processor_time(stat: &str) -> Option<Duration> {
    // The second field, in parentheses, can hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let all = ticks()?.checked_add(ticks()?)?;
    Some(Duration::from_millis(all.saturating_mul(1000) / clock_ticks_per_second().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_ticks_are_a_standstill_of_virtual_time() {
        let mut judge = Judge::default();
        let at = Duration::from_secs;
        assert!(!judge.see(&[0, 0], at(0)));
        assert!(!judge.see(&[0, 0], at(60)), "the hypervisor does not run yet");
        assert!(!judge.see(&[1, 0], at(61)));
        assert!(!judge.see(&[1, 0], at(62)));
        assert!(!judge.see(&[1, 2], at(66)), "another core goes on");
        assert!(!judge.see(&[1, 2], at(66)), "a host that is busy elsewhere");
        assert!(judge.see(&[1, 2], at(71)));
        assert!(!judge.see(&[1, 2], at(72)), "reported once");
        assert!(judge.see(&[1, 2], at(76)), "and again");
        assert!(!judge.see(&[1, 3], at(90)));
    }

    #[test]
    fn the_name_of_a_process_is_skipped() {
        let stat = "77 (a) 9 (b) S 1 77 77 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0";
        let ticks = clock_ticks_per_second();
        assert_eq!(processor_time(stat), Some(Duration::from_millis(200_000 / ticks)));
        assert_eq!(processor_time("77 (a) S 1"), None);
    }
}
