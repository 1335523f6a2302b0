//! `weir attach`: a person, or a pipe, at the console of one VM of a run.

use crate::{
    environment::Environment,
    failure::{CALL, Context, Failure, Result},
    terminal::Raw,
};
use std::{
    fs,
    io::{self, Read, Write, stderr, stdin, stdout},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use weir_report::trace;
use weir_runner::control;

/// Ctrl-], the key that leaves; telnet's.
const LEAVE: u8 = 0x1d;
/// Interval of the test whether the session must end.
const INTERVAL: Duration = Duration::from_millis(100);

/// Connects to a VM's console: what it prints comes here, what you type goes there.
///
/// The run must take input: of a board, or of QEMU with `weir run --input` or `--attach`.
///
/// On a terminal every key goes to the VM, Ctrl-C included; Ctrl-] leaves and the run goes on. When
/// standard input is a pipe, all of it is typed and then the output is shown until it has been
/// quiet for a while.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        weir attach linux\n  \
        weir attach runs/2026-01-31T12-00-00Z linux\n  \
        echo 'uname -a' | weir attach linux")]
pub struct AttachArguments {
    /// The VM's name, before it the run's directory if it is not the newest run that takes input.
    #[arg(num_args = 1..=2, required = true, value_name = "[RUN] VM")]
    names: Vec<String>,
    /// With piped input: leave when nothing was printed for this long.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::duration::parse)]
    linger: Duration,
    /// Detach after this time, even if the console prints.
    #[arg(long = "for", value_name = "TIME", value_parser = crate::duration::parse, allow_hyphen_values = true)]
    time: Option<Duration>,
}

/// Carries the verb out.
pub fn run(arguments: &AttachArguments, environment: &Environment) -> Result {
    let (stream, vm) = match arguments.names.as_slice() {
        [vm] => (newest(&environment.runs())?, vm),
        [run, vm] => (connect(&trace::find(Path::new(run), &environment.runs())?)?, vm),
        _ => {
            return Err(Failure { status: CALL, text: "attach takes [RUN] VM".into() });
        }
    };
    let left = Arc::new(AtomicBool::new(false));
    let stay = Stay { linger: Some(arguments.linger), time: arguments.time };
    converse(stream, vm, stay, &left, true)
}

fn connect(run: &Path) -> Result<UnixStream> {
    control::connect(run).map_err(|error| {
        Failure::environment(format!(
            "cannot connect to {}: {error}\n  has the run ended, or was it started without --input and \
             --attach?",
            run.join(control::SOCKET).display()
        ))
    })
}

/// The newest run that answers.
fn newest(runs: &Path) -> Result<UnixStream> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| entry.path().join(control::SOCKET))
        .filter_map(|socket| Some((fs::metadata(&socket).ok()?.modified().ok()?, socket)))
        .collect();
    found.sort();
    found.iter().rev().find_map(|(_, socket)| control::connect(socket.parent()?).ok()).ok_or_else(
        || {
            let place = runs.display();
            Failure::environment(format!(
                "no run under way in {place} takes input: start one with `weir run --input`"
            ))
        },
    )
}

/// Time limits at a console; [`Stay::default`] waits for the run's end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stay {
    /// Time without output after the end of piped input.
    linger: Option<Duration>,
    /// Time limit in total.
    time: Option<Duration>,
}

/// Talks to `vm` over `stream` until either side ends it.
///
/// `left` is set when the person left. `end_on_signal` as for [`Raw::enter`].
pub fn converse(
    mut stream: UnixStream,
    vm: &str,
    stay: Stay,
    left: &Arc<AtomicBool>,
    end_on_signal: bool,
) -> Result {
    writeln!(stream, "attach {vm}").context(|| "talk to the run")?;
    let answer = read_answer(&mut stream).context(|| "hear from the run")?;
    if answer.strip_prefix("ok ").is_none() {
        let why = answer.strip_prefix("error: ").unwrap_or("the run answers in an unknown way");
        return Err(Failure::call(why));
    }
    let raw = Raw::enter(end_on_signal)?;
    if raw.is_some() {
        // A message for a person; the console works without it.
        let _ = write!(stderr(), "weir: at the console of {vm}; Ctrl-] leaves\r\n");
    }
    let keys = stream.try_clone().context(|| "use the connection both ways")?;
    let terminal = raw.is_some();
    let (leaving, ended) = (Arc::clone(left), Arc::new(AtomicBool::new(false)));
    let all_typed = Arc::clone(&ended);
    thread::spawn(move || type_in(keys, terminal, &leaving, &all_typed));
    let result = show(&mut stream, stay, &ended);
    drop(raw);
    let why = result?;
    if terminal {
        let why = if left.load(Ordering::SeqCst) { "left the console" } else { why };
        let _ = writeln!(stderr(), "\nweir: {why}");
    }
    Ok(())
}

fn read_answer(stream: &mut UnixStream) -> io::Result<String> {
    const LONGEST: usize = 4096;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    // Byte by byte, since what follows the line is console output.
    while answer.len() < LONGEST && stream.read(&mut byte)? == 1 && byte != *b"\n" {
        answer.extend(byte);
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Prints the console's output for as long as `stay`, and returns why it ended; `ended` is set once
/// all input has been typed.
fn show(stream: &mut UnixStream, stay: Stay, ended: &AtomicBool) -> Result<&'static str> {
    const GONE: &str = "the run has ended";
    stream.set_read_timeout(Some(INTERVAL)).context(|| "wait for the run")?;
    let mut buffer = [0; 4096];
    let began = Instant::now();
    let mut quiet_since = began;
    while stay.time.is_none_or(|time| began.elapsed() < time) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(GONE),
            Ok(count) => {
                let mut out = stdout().lock();
                out.write_all(buffer.get(..count).unwrap_or(&[]))?;
                out.flush()?;
                quiet_since = Instant::now();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !ended.load(Ordering::SeqCst) {
                    quiet_since = Instant::now();
                } else if stay.linger.is_some_and(|linger| quiet_since.elapsed() >= linger) {
                    return Ok("it has been quiet for a while");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(GONE),
            Err(error) => return Err(error).context(|| "hear from the run"),
        }
    }
    Ok("the time is over")
}

/// Carries standard input to the run.
fn type_in(mut stream: UnixStream, terminal: bool, left: &AtomicBool, ended: &AtomicBool) {
    let mut buffer = [0; 1024];
    loop {
        let count = match stdin().lock().read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let mut keys = buffer.get(..count).unwrap_or(&[]);
        let leave = keys.iter().position(|&key| terminal && key == LEAVE);
        if let Some(position) = leave {
            keys = keys.get(..position).unwrap_or(&[]);
        }
        let gone = stream.write_all(keys).is_err();
        if leave.is_some() || (terminal && count == 0) {
            left.store(true, Ordering::SeqCst);
            // Ends the reading side, too; fails only when it has ended.
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        if gone {
            return;
        }
        if count == 0 {
            let _ = stream.shutdown(Shutdown::Write);
            ended.store(true, Ordering::SeqCst);
            return;
        }
    }
}
