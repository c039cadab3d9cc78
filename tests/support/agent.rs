//! A little HTTP server whose answers are the test's: one that hands out tokens or keys, or stands in front of a real server and
//! says the same in other words.

use std::{
    io::Write,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

use super::proxy::{Request, read_request};

/// A running server; its thread ends with the test process.
pub(crate) struct Agent {
    address: SocketAddr,
}

impl Agent {
    /// Starts one. `answer` is asked about each request, on the request's own thread, and gives status and body.
    pub(crate) fn start(
        answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the port");
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                // A client that goes away in the middle is no failure of the server's.
                std::thread::spawn(move || drop(serve(&client, &*answer)));
            }
        });
        Self { address }
    }

    /// What a client is given.
    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where something in front of it connects to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn serve(
    mut client: &TcpStream,
    answer: &dyn Fn(&Request) -> (u16, String),
) -> std::io::Result<()> {
    let request = read_request(client)?;
    let (status, body) = answer(&request);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Answered\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(format!("{head}{body}").as_bytes())?;
    client.shutdown(Shutdown::Both)
}
