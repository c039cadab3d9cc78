//! A proxy in front of the catalog that a test can make lose requests and answers.
//!
//! One request a connection, forwarded as it is; what becomes of it is decided by the test, request by request.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::wait::pause;

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// It never reaches the catalog; the connection closes.
    LostRequest,
    /// It takes effect; the connection closes instead of an answer.
    LostAnswer,
    /// It takes effect, and the answer comes so much later.
    LateAnswer(Duration),
    /// It never reaches the catalog, which seems to say this status.
    Refused(u16),
}

/// One request as it came.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    /// The lines of its head after the first, without those about the connection.
    headers: Vec<String>,
}

impl Request {
    /// What a header says, its name in any case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.headers.iter().filter_map(|line| line.split_once(':'));
        let found = pairs.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    /// Whether this is a commit on a table.
    pub(crate) fn is_commit(&self) -> bool {
        let parts: Vec<_> = self
            .path
            .split('?')
            .next()
            .unwrap_or_default()
            .split('/')
            .collect();
        self.method == "POST" && parts.len() >= 4 && parts[parts.len() - 2] == "tables"
    }
}

/// A running proxy; its thread ends with the test process.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

type Decide = dyn Fn(&Request) -> Fate + Send + Sync;

struct State {
    upstream: SocketAddr,
    decide: Box<Decide>,
    down: AtomicBool,
    commits_in_flight: AtomicUsize,
    fates: Mutex<BTreeMap<String, usize>>,
}

impl Proxy {
    /// Starts a proxy to `upstream`. `decide` is asked about each request, on the request's own thread, before anything is sent on; it may
    /// do something of its own to the catalog first.
    pub(crate) fn start(
        upstream: SocketAddr,
        decide: impl Fn(&Request) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the port");
        let state = Arc::new(State {
            upstream,
            decide: Box::new(decide),
            down: AtomicBool::new(false),
            commits_in_flight: AtomicUsize::new(0),
            fates: Mutex::default(),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                // A client that goes away in the middle is no failure of the proxy's.
                std::thread::spawn(move || drop(state.serve(&client)));
            }
        });
        Self { address, state }
    }

    /// What a client is given as `uri`.
    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes the catalog seem away, or there again: connections close at once.
    pub(crate) fn set_down(&self, down: bool) {
        self.state.down.store(down, Ordering::Relaxed);
    }

    /// How many commits have been sent to the catalog and are not answered yet.
    pub(crate) fn commits_in_flight(&self) -> usize {
        self.state.commits_in_flight.load(Ordering::Relaxed)
    }

    /// How often each fate fell on a commit, by its name.
    pub(crate) fn fates(&self) -> BTreeMap<String, usize> {
        self.state
            .fates
            .lock()
            .expect("no panic under this lock")
            .clone()
    }
}

impl State {
    fn serve(&self, mut client: &TcpStream) -> std::io::Result<()> {
        let request = read_request(client)?;
        if self.down.load(Ordering::Relaxed) {
            return client.shutdown(Shutdown::Both);
        }
        let fate = (self.decide)(&request);
        let commit = request.is_commit();
        if commit {
            let name = format!("{fate:?}")
                .split('(')
                .next()
                .unwrap_or_default()
                .to_owned();
            *self
                .fates
                .lock()
                .expect("no panic under this lock")
                .entry(name)
                .or_default() += 1;
        }
        let answer = match fate {
            Fate::LostRequest => Vec::new(),
            Fate::Refused(status) => format!(
                "HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            .into_bytes(),
            Fate::Pass | Fate::LostAnswer | Fate::LateAnswer(_) => {
                self.commits_in_flight
                    .fetch_add(usize::from(commit), Ordering::Relaxed);
                let answer = self.forward(&request);
                if let Fate::LateAnswer(late) = fate {
                    pause(late);
                }
                self.commits_in_flight
                    .fetch_sub(usize::from(commit), Ordering::Relaxed);
                answer?
            }
        };
        if fate != Fate::LostAnswer {
            client.write_all(&answer)?;
        }
        client.shutdown(Shutdown::Both)
    }

    fn forward(&self, request: &Request) -> std::io::Result<Vec<u8>> {
        let mut catalog = TcpStream::connect(self.upstream)?;
        let mut head = format!(
            "{} {} HTTP/1.1\r\nConnection: close\r\n",
            request.method, request.path
        );
        for line in &request.headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        catalog.write_all(format!("{head}\r\n").as_bytes())?;
        catalog.write_all(&request.body)?;
        let mut answer = Vec::new();
        catalog.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

pub(super) fn read_request(client: &TcpStream) -> std::io::Result<Request> {
    let mut reader = BufReader::new(client);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut first = line.split(' ');
    let (method, path) = (
        first.next().unwrap_or_default().to_owned(),
        first.next().unwrap_or_default().to_owned(),
    );
    let mut headers = Vec::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "connection" => continue,
            "content-length" => length = value.trim().parse().expect("a length"),
            "transfer-encoding" => panic!("the proxy does not take a body in chunks: {line}"),
            _ => {}
        }
        headers.push(line.to_owned());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Request {
        method,
        path,
        body,
        headers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{
        catalog::{Catalog, request},
        kafka::REQUEST,
        server::own_name,
        wait::within,
    };

    /// What a client of the proxy sees of a new namespace, and whether the catalog has it.
    fn create(proxy: &Proxy) -> (Option<u16>, bool) {
        let catalog = Catalog::shared();
        let name = own_name("proxy");
        let body = serde_json::json!({"namespace": [name]}).to_string();
        let answer = request(proxy.address, "POST", "/v1/namespaces", &body);
        let there = request(
            catalog.address(),
            "GET",
            &format!("/v1/namespaces/{name}"),
            "",
        );
        (
            answer.map(|(status, _)| status),
            there.expect("an answer").0 == 200,
        )
    }

    fn proxy(fate: Fate) -> Proxy {
        Proxy::start(Catalog::shared().address(), move |_| fate)
    }

    #[test]
    fn each_fate_is_what_it_says() {
        assert_eq!(create(&proxy(Fate::Pass)), (Some(200), true));
        assert_eq!(
            create(&proxy(Fate::LateAnswer(Duration::from_millis(1)))),
            (Some(200), true)
        );
        assert_eq!(create(&proxy(Fate::LostAnswer)), (None, true));
        assert_eq!(create(&proxy(Fate::LostRequest)), (None, false));
        assert_eq!(create(&proxy(Fate::Refused(503))), (Some(503), false));
    }

    #[test]
    fn catalog_behind_it_can_seem_away() {
        let proxy = proxy(Fate::Pass);
        proxy.set_down(true);
        assert_eq!(create(&proxy), (None, false));
        proxy.set_down(false);
        assert_eq!(create(&proxy), (Some(200), true));
    }

    #[test]
    fn commits_are_told_from_other_requests_and_counted() {
        let proxy = proxy(Fate::LateAnswer(Duration::from_millis(200)));
        let address = proxy.address;
        assert_eq!(proxy.uri(), format!("http://{address}"));
        // No such table: the catalog says so, and it was a commit all the same.
        let commit = std::thread::spawn(move || {
            request(address, "POST", "/v1/namespaces/none/tables/none", "{}")
        });
        within(REQUEST, "a commit in flight", || {
            (proxy.commits_in_flight() == 1).then_some(())
        });
        assert!(
            commit
                .join()
                .expect("an answer")
                .is_some_and(|(status, _)| status >= 400)
        );
        create(&proxy);
        assert_eq!(
            proxy.fates(),
            BTreeMap::from([("LateAnswer".to_owned(), 1)])
        );
        assert_eq!(proxy.commits_in_flight(), 0);
    }
}
