//! Concurrent test processes, in slots.

use crate::{
    Context, boards,
    cargo::TestBinary,
    libtest::{self, Counts},
    losses::HEADER,
    process::{self, End},
    progress,
    report::{Case, Outcome},
    stages::output_file,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    process::Command,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// The end of the name of a test that depends on the host's time, and so runs alone.
const HOST_TIME: &str = "_in_host_time";

/// A test to run in its own process.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    pub binary: &'a TestBinary,
    pub name: String,
    /// The board that its systems run on instead of `qemu-virt`.
    pub board: Option<&'a str>,
}

impl Job<'_> {
    fn is_alone(&self) -> bool {
        self.name.ends_with(HOST_TIME)
    }
}

/// The jobs that are left.
struct Queue<'a> {
    jobs: Mutex<VecDeque<Job<'a>>>,
    /// Tests that ran no system on a board. They run none on the others either.
    idle: Mutex<BTreeSet<String>>,
}

enum Event {
    Started { slot: usize, name: String },
    Ended { slot: usize, case: Case, output: Vec<u8> },
}

/// Runs the tests, writes their output to `log` and returns their results. Those in the host's time
/// come last, one after the other.
pub fn run(
    context: &Context,
    jobs: Vec<Job>,
    variables: &[(&str, &Path)],
    log: &File,
) -> io::Result<Vec<Case>> {
    let total = jobs.len();
    let (alone, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(Job::is_alone);
    let mut progress = Progress { total, ..Progress::default() };
    let mut cases = Vec::with_capacity(total);
    for (jobs, slots) in [(together, context.jobs), (alone, 1)] {
        let queue = Queue { jobs: VecDeque::from(jobs).into(), idle: Mutex::default() };
        let (sender, events) = mpsc::channel();
        thread::scope(|scope| {
            for slot in 0..slots {
                let (queue, sender) = (&queue, sender.clone());
                scope.spawn(move || work(context, slot, queue, variables, &sender));
            }
            drop(sender);
            loop {
                match events.recv_timeout(Duration::from_millis(500)) {
                    Ok(Ok(Event::Started { slot, name })) => progress.start(slot, name),
                    Ok(Ok(Event::Ended { slot, case, output })) => {
                        write_log(log, &case, &output)?;
                        progress.end(slot, &case);
                        cases.push(case);
                    }
                    Ok(Err(error)) => return Err(error),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                }
                progress.draw();
            }
        })?;
    }
    cases.sort_by(|a, b| (&a.binary, &a.name).cmp(&(&b.binary, &b.name)));
    Ok(cases)
}

/// Runs tests until none is left.
fn work(
    context: &Context,
    slot: usize,
    queue: &Queue,
    variables: &[(&str, &Path)],
    events: &mpsc::Sender<io::Result<Event>>,
) {
    loop {
        let job = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(job) = job.filter(|_| !process::interrupted()) else { return };
        // The receiver is gone after an error, which ends the run.
        let _ = events.send(Ok(Event::Started { slot, name: job.name.clone() }));
        let idle = || queue.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let known = job.board.filter(|_| idle().contains(&job.name));
        let ended = if let Some(board) = known {
            Ok(Some((boards::idle_case(&job.binary.name, &job.name, board), Vec::new())))
        } else {
            let file = context.logs.join(format!("slot-{slot}.out"));
            let ended = one(&job, &file, variables, context.time_limit);
            let _ = fs::remove_file(file);
            if let Ok(Some((case, _))) = &ended
                && boards::is_idle(case)
            {
                idle().insert(job.name.clone());
            }
            ended
        };
        let event = match ended {
            Ok(Some((case, output))) => Ok(Event::Ended { slot, case, output }),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

/// Runs one test with its output in `file`. An interrupted test has no result.
fn one(
    job: &Job,
    file: &Path,
    variables: &[(&str, &Path)],
    limit: Duration,
) -> io::Result<Option<(Case, Vec<u8>)>> {
    let mut command = job.binary.command();
    command.args(["--exact", &job.name, "--nocapture"]).envs(variables.iter().copied());
    command.envs(job.board.map(|board| (boards::BOARD, board)));
    let (end, took) = process::run(&mut command, &output_file(file)?, limit)?;
    let output = fs::read(file)?;
    let text = String::from_utf8_lossy(&output);
    let counts = libtest::counts(&text);
    let Counts { passed, ignored, .. } = counts.unwrap_or_default();
    let failed = |why: String| Outcome::Failed(libtest::own_output(&text) + &why);
    let outcome = match end {
        End::Exited(status) if status.success() && passed == 1 => Outcome::Passed,
        End::Exited(status) if status.success() && ignored == 1 => Outcome::Ignored,
        End::Exited(status) if counts.is_none() => {
            failed(format!("\nthe test process ended early: {status}"))
        }
        End::Exited(_) => failed(String::new()),
        End::TimedOut => failed(process::timed_out(limit)),
        End::Interrupted => return Ok(None),
    };
    let (binary, name) = (job.binary.name.clone(), job.name.clone());
    let (binary, outcome) = match job.board {
        Some(board) => {
            (boards::binary_on(&binary, board), boards::outcome_on_board(&text, outcome))
        }
        None => (binary, boards::outcome(&text, outcome)),
    };
    Ok(Some((Case { binary, name, outcome, took }, output)))
}

impl TestBinary {
    /// The test binary as cargo would start it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

fn write_log(mut log: &File, case: &Case, output: &[u8]) -> io::Result<()> {
    let end = match &case.outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::Ignored => "ignored".to_owned(),
        Outcome::NotApplicable(reason) => format!("not applicable: {reason}"),
        Outcome::Failed(why) => format!("FAILED: {}", why.lines().last().unwrap_or_default()),
    };
    writeln!(log, "{HEADER}{} {}", case.binary, case.name)?;
    log.write_all(output)?;
    writeln!(log, "{HEADER}{end}, {:.1} s\n", case.took.as_secs_f64())
}

/// How far the tests are.
#[derive(Default)]
struct Progress {
    total: usize,
    done: usize,
    failed: usize,
    running: BTreeMap<usize, (String, Instant)>,
}

impl Progress {
    fn start(&mut self, slot: usize, name: String) {
        self.running.insert(slot, (name, Instant::now()));
    }

    fn end(&mut self, slot: usize, case: &Case) {
        self.running.remove(&slot);
        self.done += 1;
        if matches!(case.outcome, Outcome::Failed(_)) {
            self.failed += 1;
            if progress::is_visible() {
                progress::clear();
                eprintln!("FAILED {} {}", case.binary, case.name);
            }
        }
    }

    fn draw(&self) {
        // What has just begun may be over at once.
        let running = self.running.values().filter(|(_, since)| since.elapsed().as_secs() > 0);
        let running =
            running.map(|(name, since)| format!("{name} {} s", since.elapsed().as_secs()));
        let failed =
            if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        let running = running.collect::<Vec<_>>().join(", ");
        progress::show("qemu", &format!("{}/{}{failed}  {running}", self.done, self.total));
    }
}
