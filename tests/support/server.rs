//! One server process under `tests/servers/run`: start, kill, stop, and a death that follows ours.

use std::{
    fs::OpenOptions,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::wait::within;

/// From `run` to an open port. A start takes one to three seconds; the first one on a machine also makes a class archive, and CI is busy.
const START: Duration = Duration::from_mins(2);
/// An orderly stop takes two seconds, eight on a busy machine.
const STOP: Duration = Duration::from_mins(1);

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    supervisor: Child,
    /// Held open for as long as the server shall live.
    input: Option<ChildStdin>,
    data: PathBuf,
}

/// What to start.
pub(crate) struct Start<'a> {
    /// By the name that `tests/servers/run` knows it by.
    pub(crate) name: &'a str,
    /// Where its state is: an empty folder, or what an earlier run left.
    pub(crate) data: &'a Path,
    pub(crate) port: u16,
    /// More of its own settings, `key=value`.
    pub(crate) settings: &'a [&'a str],
    /// Whether the data goes when the server does.
    pub(crate) remove: bool,
}

impl Server {
    /// Starts a server and waits until its port answers; `None` when it ended by itself (its port may have been taken meanwhile).
    pub(crate) fn start(start: &Start<'_>) -> Option<Self> {
        lay(start.name);
        let log = log_of(start.name, start.port);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log file in the target folder");
        let mut supervisor = Command::new(script("run"))
            .arg(start.name)
            .arg(start.data)
            .arg(start.port.to_string())
            .args(start.settings)
            .env("REMOVE", if start.remove { "1" } else { "" })
            .stdin(Stdio::piped())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("tests/servers/run");
        let input = supervisor.stdin.take();
        let mut server = Self {
            supervisor,
            input,
            data: start.data.to_owned(),
        };
        let what = format!(
            "{} on port {}, see {}",
            start.name,
            start.port,
            log.display()
        );
        let up = within(START, &what, || {
            if server
                .supervisor
                .try_wait()
                .expect("our own child")
                .is_some()
            {
                return Some(false);
            }
            TcpStream::connect(("127.0.0.1", start.port))
                .is_ok()
                .then_some(true)
        });
        up.then_some(server)
    }

    /// Sends a signal to the server itself: `SIGSTOP` and `SIGCONT` make it hang and go on.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = std::fs::read_to_string(self.data.join("pid")).expect("the server's pid file");
        kill(
            Pid::from_raw(pid.trim().parse().expect("a process id")),
            signal,
        )
        .expect("a running server");
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        within(STOP, "an orderly stop of a server", || {
            self.supervisor.try_wait().expect("our own child")
        });
    }

    fn end(&mut self) {
        drop(self.input.take());
        let _ = self.supervisor.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A free port with the next one free as well. Not one of those that the system gives to clients, which may take it from a server
/// while it restarts.
pub(crate) fn free_port() -> u16 {
    within(Duration::from_secs(10), "two free ports", || {
        let port = fastrand::u16(20_000..32_000);
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (free(port) && free(port + 1)).then_some(port)
    })
}

/// Where a server writes what it has to say.
pub(crate) fn log_of(name: &str, port: u16) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{port}.log"))
}

/// Lays a server or tool into the cache, if need be, and gives its folder. The first time takes a minute or two.
pub(crate) fn lay(name: &str) -> PathBuf {
    let answer = Command::new(script("lay"))
        .arg(name)
        .stderr(Stdio::inherit())
        .output()
        .expect("tests/servers/lay");
    assert!(
        answer.status.success(),
        "tests/servers/lay {name}: {}",
        answer.status
    );
    PathBuf::from(String::from_utf8(answer.stdout).expect("a path").trim())
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/servers")
        .join(name)
}

/// A name for something of a test's own: the test's name, and what tells this run from all others on the same server.
pub(crate) fn own_name(test: &str) -> String {
    static RUN: OnceLock<u32> = OnceLock::new();
    format!(
        "{test}_{:04x}{:04x}",
        RUN.get_or_init(|| fastrand::u32(0..=0xffff)),
        fastrand::u16(..)
    )
}

/// Starts a server on a port that is found for it, and gives the port. `start.port` is not looked at.
pub(crate) fn start_somewhere(start: &Start<'_>) -> (u16, Server) {
    let mut tries = (0..3).map(|_| free_port());
    let found = tries
        .find_map(|port| Server::start(&Start { port, ..*start }).map(|server| (port, server)));
    found.unwrap_or_else(|| {
        panic!(
            "{} ended at its start three times, see {}",
            start.name,
            env!("CARGO_TARGET_TMPDIR")
        )
    })
}
