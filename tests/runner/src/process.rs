//! Child processes with a time limit, each in a process group of its own.

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    fs::File,
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Set by a signal that asks the runner to end.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// The time limit of builds: none.
pub const UNLIMITED: Duration = Duration::MAX;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Exited(ExitStatus),
    TimedOut,
    Interrupted,
}

impl End {
    pub fn success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }
}

/// Ends processes in an orderly way on Ctrl-C: `interrupted` becomes true.
pub fn watch_signals() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED))?;
    }
    Ok(())
}

/// Returns whether a signal asked the runner to end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Returns the line that reports that a process exceeded `limit`, after its output.
pub fn timed_out(limit: Duration) -> String {
    format!("\nkilled: it exceeded the time limit of {}", humantime::format_duration(limit))
}

/// Runs a command to its end with its output in `output`, and ends its process group when it
/// exceeds `limit` or the runner is interrupted.
pub fn run(command: &mut Command, output: &File, limit: Duration) -> io::Result<(End, Duration)> {
    run_into(command, output, output, limit)
}

/// The same with one file for the output and one for the messages.
pub fn run_into(
    command: &mut Command,
    output: &File,
    messages: &File,
    limit: Duration,
) -> io::Result<(End, Duration)> {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(messages.try_clone()?)
        .process_group(0)
        .spawn()?;
    let end = wait(&mut child, started, limit)?;
    Ok((end, started.elapsed()))
}

/// Waits for a child that leads its process group. No process of the group is left afterwards.
fn wait(child: &mut Child, started: Instant, limit: Duration) -> io::Result<End> {
    let group = Pid::from_child(child);
    let end = loop {
        if let Some(status) = child.try_wait()? {
            // A test may leave processes behind.
            let _ = kill_process_group(group, Signal::KILL);
            return Ok(End::Exited(status));
        }
        if interrupted() {
            break End::Interrupted;
        }
        if started.elapsed() > limit {
            break End::TimedOut;
        }
        // Short processes are many; a poll of a long one costs nothing.
        let pause = if started.elapsed().as_millis() < 200 { 2 } else { 20 };
        thread::sleep(Duration::from_millis(pause));
    };
    let _ = kill_process_group(group, Signal::TERM);
    let patience = Instant::now() + GRACE;
    while Instant::now() < patience {
        let _ = child.try_wait()?;
        if test_kill_process_group(group).is_err() {
            return Ok(end);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait()?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        io::{BufRead as _, BufReader, Read as _},
        path::Path,
    };

    fn shell(script: &str, limit: Duration) -> (End, String) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut command = Command::new("sh");
        let (end, _) = run(command.args(["-c", script]), file.as_file(), limit).expect("it runs");
        let mut text = String::new();
        file.reopen().expect("a file").read_to_string(&mut text).expect("text");
        (end, text)
    }

    /// Waits until the process is gone, or is a zombie that its new parent has not seen yet.
    fn assert_dead(process: &str) {
        assert!(process.parse::<u32>().is_ok(), "{process:?} is no process");
        let stat = Path::new("/proc").join(process).join("stat");
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                return;
            }
            assert!(Instant::now() < patience, "it is alive: {stat}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn output_and_status_are_kept() {
        let (end, text) = shell("echo out; echo err >&2; exit 3", Duration::from_secs(60));
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)), "{end:?}");
        assert_eq!(text, "out\nerr\n");
    }

    #[test]
    fn the_time_limit_ends_the_whole_process_group() {
        // The inner process ignores SIGTERM.
        let script = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done'; :";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("it starts");
        let mut process = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut process).expect("a line");
        let end = wait(&mut child, Instant::now(), Duration::ZERO).expect("it ends");
        assert_eq!(end, End::TimedOut);
        assert_dead(process.trim());
    }

    #[test]
    fn processes_left_behind_are_killed() {
        let (end, text) = shell("sleep 1000 & echo $!", Duration::from_secs(60));
        assert!(end.success());
        assert_dead(text.trim());
    }
}
