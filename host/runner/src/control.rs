//! The control socket of a run: where `weir attach` connects.
//!
//! A client sends one line, `attach NAME`, and gets one back: `ok NAME` or `error: why`. From then
//! on its bytes are that VM's console input, and that VM's console output is what it gets, starting
//! with the most recent output before it connected. Any number of clients can connect; all clients
//! of one VM get the same output, and all can type.

use super::link::Input;
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use weir_image::{Result, failure::Context};

/// The socket's name in the run's directory.
pub const SOCKET: &str = "control.sock";
/// What a newcomer is shown of the past, in bytes.
const BACKLOG: usize = 4096;
/// Pieces of output that may wait for a client.
const WAITING: usize = 1024;
/// The time limit for a client's first line.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to read the rest when the run has ended.
const FAREWELL: Duration = Duration::from_secs(1);
/// Longest request, in bytes.
const REQUEST: u64 = 256;

/// A path to `name` in `directory` that is short enough for a socket address (108 bytes), however
/// deep the directory lies. It is good while the file returned is open.
///
/// # Errors
///
/// The directory cannot be opened.
pub fn socket_path(directory: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let open = File::open(directory)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
    Ok((open, path))
}

/// Connects to the run in `directory`.
///
/// # Errors
///
/// No run listens there.
pub fn connect(directory: &Path) -> io::Result<UnixStream> {
    let (_open, path) = socket_path(directory, SOCKET)?;
    UnixStream::connect(path)
}

struct Client {
    vm: usize,
    output: SyncSender<Vec<u8>>,
    lost: usize,
}

#[derive(Default)]
struct State {
    backlog: Vec<VecDeque<u8>>,
    clients: Vec<Client>,
    writers: Vec<(JoinHandle<()>, UnixStream)>,
    /// None once the run has ended.
    input: Option<SyncSender<Input>>,
}

/// The clients of a run.
pub struct Hub {
    names: Vec<String>,
    state: Mutex<State>,
}

impl Hub {
    /// For the VMs of these names; input goes to `input`.
    #[must_use]
    pub fn new(names: Vec<String>, input: SyncSender<Input>) -> Arc<Self> {
        let backlog = vec![VecDeque::new(); names.len()];
        let state = Mutex::new(State { backlog, input: Some(input), ..State::default() });
        Arc::new(Self { names, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens in `directory` from now on.
    ///
    /// # Errors
    ///
    /// The environment is at fault if the socket cannot be made.
    pub fn listen(self: &Arc<Self>, directory: &Path) -> Result {
        let (_open, path) =
            socket_path(directory, SOCKET).context(|| format!("open {}", directory.display()))?;
        let listener = UnixListener::bind(path)
            .context(|| format!("listen on {}", directory.join(SOCKET).display()))?;
        let hub = Arc::clone(self);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hub = Arc::clone(&hub);
                thread::spawn(move || hub.serve(&stream));
            }
        });
        Ok(())
    }

    /// One client, from its request to its end. Errors are the client's: it has gone.
    fn serve(&self, stream: &UnixStream) {
        let _ = self.try_serve(stream);
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn try_serve(&self, mut stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream);
        let mut request = String::new();
        reader.by_ref().take(REQUEST).read_line(&mut request)?;
        let name = request.trim().strip_prefix("attach ").map(str::trim);
        let vm = name.and_then(|name| self.names.iter().position(|known| known == name));
        let (Some(name), Some(vm)) = (name, vm) else {
            let names = self.names.join(", ");
            let asked = name.unwrap_or("nothing");
            return writeln!(stream, "error: no VM is named {asked}; there are: {names}");
        };
        let for_input = u8::try_from(vm).map_err(io::Error::other)?;
        if !self.enter(vm, name, stream.try_clone()?) {
            return writeln!(stream, "error: the run has ended");
        }
        stream.set_read_timeout(None)?;
        let mut keys = [0; 1024];
        loop {
            let count = reader.read(&mut keys)?;
            if count == 0 {
                return wait_for_end(stream);
            }
            let keys = keys.get(..count).unwrap_or(&[]).to_vec();
            // Not kept while the client types nothing: the line ends with the last sender.
            let Some(input) = self.state().input.clone() else { return Ok(()) };
            input.send(Input::Keys(for_input, keys)).map_err(io::Error::other)?;
        }
    }

    /// Adds a client; false when the run has ended.
    fn enter(&self, vm: usize, name: &str, stream: UnixStream) -> bool {
        let (output, from) = sync_channel(WAITING);
        let Ok(held) = stream.try_clone() else {
            return false;
        };
        let mut state = self.state();
        if state.input.is_none() {
            return false;
        }
        let mut first = format!("ok {name}\n").into_bytes();
        first.extend(state.backlog.get(vm).into_iter().flatten());
        if output.try_send(first).is_err() {
            return false;
        }
        state.clients.push(Client { vm, output, lost: 0 });
        state.writers.retain(|(writer, _)| !writer.is_finished());
        state.writers.push((thread::spawn(move || write(&stream, &from)), held));
        true
    }

    /// Takes the output `bytes` of a VM's console.
    pub fn output(&self, vm: usize, bytes: &[u8]) {
        let mut state = self.state();
        if let Some(backlog) = state.backlog.get_mut(vm) {
            backlog.extend(bytes);
            let over = backlog.len().saturating_sub(BACKLOG);
            backlog.drain(..over);
        }
        state.clients.retain_mut(|client| client.vm != vm || client.give(bytes));
    }

    /// The run has ended: clients get what still waits for them and are let go, and no input goes
    /// to the VMs.
    pub fn close(&self) {
        let (clients, writers) = {
            let mut state = self.state();
            state.input = None;
            (std::mem::take(&mut state.clients), std::mem::take(&mut state.writers))
        };
        drop(clients);
        let until = Instant::now() + FAREWELL;
        for (writer, stream) in writers {
            while !writer.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
            // Fails when the client or the writer was first.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The client has no more input but still wants the output: its writer ends with the run, or when
/// the client goes, and this side must not close before.
fn wait_for_end(stream: &UnixStream) -> io::Result<()> {
    let mut poll = [rustix::event::PollFd::new(stream, rustix::event::PollFlags::HUP)];
    rustix::event::poll(&mut poll, None)?;
    Ok(())
}

impl Client {
    /// False when the client has gone.
    fn give(&mut self, bytes: &[u8]) -> bool {
        let mut piece = Vec::new();
        if self.lost > 0 {
            piece = format!("\r\n[weir: {} bytes lost here: too slow]\r\n", self.lost).into_bytes();
        }
        piece.extend_from_slice(bytes);
        match self.output.try_send(piece) {
            Ok(()) => self.lost = 0,
            Err(TrySendError::Full(_)) => self.lost += bytes.len(),
            Err(TrySendError::Disconnected(_)) => return false,
        }
        true
    }
}

fn write(mut stream: &UnixStream, from: &Receiver<Vec<u8>>) {
    for bytes in from {
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
    // The client may be gone already.
    let _ = stream.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub() -> (Arc<Hub>, Receiver<Input>, tempfile::TempDir) {
        let (input, keys) = sync_channel(16);
        let hub = Hub::new(vec!["one".into(), "two".into()], input);
        let mut directory = tempfile::Builder::new();
        // Deeper than a socket address is long.
        let directory = directory.prefix(&"d".repeat(150)).tempdir().expect("a directory");
        hub.listen(directory.path()).expect("a socket");
        (hub, keys, directory)
    }

    fn client(directory: &Path, request: &str) -> (UnixStream, String) {
        let mut stream = connect(directory).expect("a connection");
        writeln!(stream, "{request}").expect("a request");
        let mut answer = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte).expect("an answer") == 1 && byte != *b"\n" {
            answer.extend(byte);
        }
        (stream, String::from_utf8(answer).expect("text"))
    }

    #[test]
    fn a_client_gets_its_vms_output_and_the_vm_its_keys() {
        let (hub, keys, directory) = hub();
        hub.output(1, b"before ");
        let (mut stream, answer) = client(directory.path(), "attach two");
        assert_eq!(answer, "ok two");
        hub.output(0, b"not for you ");
        hub.output(1, b"after");
        stream.write_all(b"ls\r").expect("keys are taken");
        let Ok(Input::Keys(1, typed)) = keys.recv_timeout(PATIENCE) else { panic!("no keys") };
        assert_eq!(typed, b"ls\r");
        hub.close();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("output");
        assert_eq!(rest, "before after");
    }

    #[test]
    fn output_goes_on_when_the_client_has_no_more_input() {
        let (hub, _keys, directory) = hub();
        let (mut stream, _) = client(directory.path(), "attach one");
        stream.shutdown(Shutdown::Write).expect("a half-closed socket");
        thread::sleep(Duration::from_millis(50));
        hub.output(0, b"still here");
        hub.close();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("output");
        assert_eq!(rest, "still here");
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let (_hub, _keys, directory) = hub();
        let (_, answer) = client(directory.path(), "attach three");
        assert_eq!(answer, "error: no VM is named three; there are: one, two");
        let (_, answer) = client(directory.path(), "GET / HTTP/1.0");
        assert!(answer.starts_with("error: "), "{answer}");
    }

    #[test]
    fn a_client_that_does_not_read_learns_what_it_lost() {
        let (output, from) = sync_channel(1);
        let mut client = Client { vm: 0, output, lost: 0 };
        assert!(client.give(b"first") && client.give(b"second"));
        assert_eq!(from.recv().as_deref(), Ok(&b"first"[..]));
        assert!(client.give(b"third"));
        let third = from.recv().expect("the third");
        assert_eq!(third, b"\r\n[weir: 6 bytes lost here: too slow]\r\nthird");
        drop(from);
        assert!(!client.give(b"gone"));
    }
}
