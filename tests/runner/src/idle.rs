//! Idle cores of the host: many tests wait most of their time.

use std::{fs, thread, time::Duration};

/// How long a core must be idle.
const INTERVAL: Duration = Duration::from_secs(1);

/// Clock ticks of all cores since the start of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
    cores: u64,
}

impl Ticks {
    /// Reads `/proc/stat`, as proc_stat(5) describes it.
    fn parse(stat: &str) -> Option<Self> {
        let mut lines = stat.lines().take_while(|line| line.starts_with("cpu"));
        let sum = lines.next()?.split_whitespace().skip(1);
        // What follows is part of the first two.
        let ticks: Vec<u64> = sum.take(8).map_while(|number| number.parse().ok()).collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { all: ticks.iter().sum(), idle, cores: u64::try_from(lines.count()).ok()? })
    }

    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Returns whether the idle time since `earlier` is three quarters of one core's time, or more.
    fn has_idle_core_since(self, earlier: Self) -> bool {
        let all = self.all.saturating_sub(earlier.all);
        let idle = self.idle.saturating_sub(earlier.idle);
        all > 0 && 4 * idle * self.cores >= 3 * all
    }
}

/// Waits until a core was idle for a second. Returns whether one was before `is_over`.
pub fn wait_for_core(is_over: impl Fn() -> bool) -> bool {
    while !is_over() {
        let Some(earlier) = Ticks::now() else { return false };
        thread::sleep(INTERVAL);
        if Ticks::now().is_some_and(|now| now.has_idle_core_since(earlier)) {
            return !is_over();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_of_two_is_idle() {
        let earlier = Ticks { all: 1000, idle: 200, cores: 2 };
        let stat = "cpu  800 10 90 290 10 0 0 0 7 0\ncpu0 1 2\ncpu1 1 2\nintr 5 6\n";
        let now = Ticks::parse(stat).expect("the ticks");
        assert_eq!(now, Ticks { all: 1200, idle: 300, cores: 2 });
        assert!(now.has_idle_core_since(earlier), "100 of 200 ticks");
        let busy = Ticks { idle: 274, ..now };
        assert!(!busy.has_idle_core_since(earlier), "74 of 200 ticks");
        assert!(Ticks::parse("intr 5\n").is_none());
    }

    #[test]
    fn waiting_ends_with_the_tests() {
        assert!(!wait_for_core(|| true));
    }
}
