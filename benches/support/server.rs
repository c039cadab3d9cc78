//! A server of `tests/servers/run` in a process of its own.

use std::{
    fs::{self, File},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{cpu::Process, wait};

/// From the start of a server to its open port; the first start on a machine also makes a class archive.
const START: Duration = Duration::from_mins(2);

/// A server of `tests/servers/run`; it ends when this is dropped.
pub(crate) struct Server {
    supervisor: Child,
    data: PathBuf,
    /// `127.0.0.1:port`.
    pub(crate) address: String,
}

impl Server {
    /// Starts the server of this name with its data in `data`, and settings of its own as `name=value`.
    pub(crate) fn start(name: &str, data: &Path, settings: &[&str]) -> Self {
        let port = free_port();
        let log = File::create(data.with_extension("log")).expect("a log file");
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/run");
        let supervisor = Command::new(run)
            .arg(name)
            .arg(data)
            .arg(port.to_string())
            .args(settings)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("tests/servers/run");
        let mut server = Self {
            supervisor,
            data: data.to_owned(),
            address: format!("127.0.0.1:{port}"),
        };
        wait::within(START, &format!("a running {name}"), || {
            let ended = server.supervisor.try_wait().expect("our own child");
            assert!(
                ended.is_none(),
                "{name} ended at its start, see its log in {}",
                data.display()
            );
            TcpStream::connect(&server.address).ok()
        });
        server
    }

    /// What the server itself uses.
    pub(crate) fn process(&self) -> Process {
        let pid = fs::read_to_string(self.data.join("pid")).expect("the server's pid file");
        Process::of(pid.trim().parse().expect("a process id"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// A port with the next one free as well, outside of those that the system gives to clients.
fn free_port() -> u16 {
    wait::within(START, "two free ports", || {
        let port = fastrand::u16(20_000..32_000);
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (free(port) && free(port + 1)).then_some(port)
    })
}
