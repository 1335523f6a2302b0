//! Concurrent test processes, in slots.

use crate::{
    Context, boards,
    cargo::TestBinary,
    idle,
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
    sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// The end of the name of a test that depends on the host's time, and so runs alone.
const HOST_TIME: &str = "_in_host_time";
/// The test binary of which the tests need the hypervisor and the guests.
const END_TO_END: &str = "weir-cli::end-to-end";

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

    fn needs_programs(&self) -> bool {
        self.binary.name == END_TO_END
    }
}

/// The jobs that are left.
struct Jobs<'a> {
    ready: VecDeque<Job<'a>>,
    /// Those that wait until the programs are built; none afterwards.
    waiting: Option<VecDeque<Job<'a>>>,
}

struct Queue<'a> {
    jobs: Mutex<Jobs<'a>>,
    /// The programs were built, or could not be.
    released: Condvar,
    /// Tests that ran no system on a board. They run none on the others either.
    idle: Mutex<BTreeSet<String>>,
}

impl<'a> Queue<'a> {
    /// A queue of which the tests that need programs wait for [`Self::release`].
    fn new(jobs: Vec<Job<'a>>) -> Self {
        let (waiting, ready) = jobs.into_iter().partition(Job::needs_programs);
        let jobs = Jobs { ready, waiting: Some(waiting) };
        Self { jobs: jobs.into(), released: Condvar::new(), idle: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs<'a>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the tests that wait begin, before the others, or drops them if the programs were not
    /// built.
    fn release(&self, are_built: bool) {
        let mut jobs = self.lock();
        let mut waiting = jobs.waiting.take().unwrap_or_default();
        if are_built {
            waiting.append(&mut jobs.ready);
            jobs.ready = waiting;
        }
        self.released.notify_all();
    }

    /// Returns the next job, after waiting for the programs if only such jobs are left.
    fn next(&self) -> Option<Job<'a>> {
        let is_blocked = |jobs: &mut Jobs| jobs.ready.is_empty() && jobs.waiting.is_some();
        let jobs = self.released.wait_while(self.lock(), is_blocked);
        jobs.unwrap_or_else(PoisonError::into_inner).ready.pop_front()
    }

    fn is_empty(&self) -> bool {
        let jobs = self.lock();
        jobs.ready.is_empty() && jobs.waiting.is_none()
    }
}

enum Event {
    Started { slot: usize, name: String },
    Built { slot: usize, took: Duration, result: Result<(), String> },
    Ended { slot: usize, case: Case, output: Vec<u8> },
}

/// Runs the tests, writes their output to `log` and returns their results. The first slot calls
/// `build` for the programs; meanwhile the others run tests that need none. Tests in the host's
/// time come last, one after the other.
pub fn run(
    context: &Context,
    jobs: Vec<Job>,
    build: impl FnOnce() -> Result<(), String> + Send,
    variables: &[(&str, &Path)],
    log: &File,
) -> io::Result<Vec<Case>> {
    let total = jobs.len();
    let (alone, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(Job::is_alone);
    let mut progress = Progress { total, ..Progress::default() };
    let mut cases = Vec::with_capacity(total);
    let mut build = Some(build);
    let mut are_built = true;
    // The slot of the number `slots` works only while a core is idle.
    for (jobs, slots, more) in
        [(together, context.jobs, usize::from(context.fills_idle_cores)), (alone, 1, 0)]
    {
        let queue = Queue::new(jobs);
        let (sender, events) = mpsc::channel();
        let build = build.take();
        thread::scope(|scope| {
            if build.is_none() {
                queue.release(are_built);
            }
            let mut build = build;
            for slot in 0..slots + more {
                let (queue, sender, build) = (&queue, sender.clone(), build.take());
                scope.spawn(move || {
                    if let Some(build) = build {
                        call(build, slot, queue, &sender);
                    }
                    work(context, slot, slot >= slots, queue, variables, &sender);
                });
            }
            drop(sender);
            loop {
                match events.recv_timeout(Duration::from_millis(500)) {
                    Ok(Ok(Event::Started { slot, name })) => progress.start(slot, name),
                    Ok(Ok(Event::Built { slot, took, result })) => {
                        progress.running.remove(&slot);
                        are_built = result.is_ok();
                        cases.extend(result.err().map(|why| not_built(why, took)));
                    }
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

/// Builds the programs, and lets the tests begin that need them.
fn call(
    build: impl FnOnce() -> Result<(), String>,
    slot: usize,
    queue: &Queue,
    events: &mpsc::Sender<io::Result<Event>>,
) {
    let started = Instant::now();
    let name = "building the hypervisor and the guests".to_owned();
    let _ = events.send(Ok(Event::Started { slot, name }));
    let result = build();
    let are_built = result.is_ok();
    let _ = events.send(Ok(Event::Built { slot, took: started.elapsed(), result }));
    queue.release(are_built);
}

/// The result of a build that failed.
fn not_built(why: String, took: Duration) -> Case {
    Case {
        binary: "weir build".to_owned(),
        name: "of the hypervisor and all guests".to_owned(),
        outcome: Outcome::Failed(why),
        took,
    }
}

/// Runs tests until none is left. A spare slot begins each one when a core of the host is idle.
fn work(
    context: &Context,
    slot: usize,
    is_spare: bool,
    queue: &Queue,
    variables: &[(&str, &Path)],
    events: &mpsc::Sender<io::Result<Event>>,
) {
    loop {
        if is_spare && !idle::wait_for_core(|| queue.is_empty() || process::interrupted()) {
            return;
        }
        let Some(job) = queue.next().filter(|_| !process::interrupted()) else { return };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn binary(name: &str) -> TestBinary {
        TestBinary { name: name.to_owned(), executable: PathBuf::new(), package: PathBuf::new() }
    }

    fn queue(binaries: &[TestBinary; 2]) -> Queue<'_> {
        let job = |(name, binary)| Job { binary, name: String::from(name), board: None };
        Queue::new(["a", "b", "c"].into_iter().zip(binaries.iter().cycle()).map(job).collect())
    }

    fn left(queue: &Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.next().map(|job| job.name)).collect()
    }

    #[test]
    fn tests_that_need_programs_wait_for_them() {
        let binaries = [binary(END_TO_END), binary("weir-vsock::rings")];
        let all = queue(&binaries);
        assert_eq!(all.next().expect("a job without programs").name, "b");
        assert!(!all.is_empty(), "two jobs wait");
        let waited = thread::scope(|scope| {
            let waiting = scope.spawn(|| left(&all));
            thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished(), "no job is ready");
            all.release(true);
            waiting.join().expect("no panic")
        });
        assert_eq!((waited, all.is_empty()), (vec!["a".to_owned(), "c".to_owned()], true));
    }

    #[test]
    fn tests_whose_programs_do_not_build_are_dropped() {
        let binaries = [binary(END_TO_END), binary("weir-vsock::rings")];
        let [good, bad] = [true, false].map(|are_built| {
            let all = queue(&binaries);
            all.release(are_built);
            left(&all)
        });
        assert_eq!((good.concat(), bad.concat()), ("acb".to_owned(), "b".to_owned()));
    }
}
