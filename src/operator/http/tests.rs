//! The readers' API over HTTP, from a cache that the tests fill.

use reqwest::Client;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

use super::*;
use crate::{
    api::{
        pipeline::InstantText,
        schema::{ConditionStatus, StatusCondition},
    },
    operator::claims::tests::{change, kept, orders, today},
};

struct Server {
    claims: Claims,
    url: String,
    address: std::net::SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), io::Error>>,
}

impl Server {
    async fn start() -> Self {
        let claims = Claims::default();
        claims.set(orders());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let readers = Readers::new(
            claims.clone(),
            (Counts::default(), Clock::system()),
            stop.clone(),
        );
        Self {
            claims,
            url: format!("http://{address}"),
            address,
            stop,
            serving: tokio::spawn(serve(listener, readers)),
        }
    }

    async fn get(&self, path: &str) -> (u16, Value, Option<String>) {
        self.known(path, "\"never\"").await
    }

    /// Asks for an answer other than the one that is known.
    async fn known(&self, path: &str, tag: &str) -> (u16, Value, Option<String>) {
        answer(
            Client::new()
                .get(format!("{}{path}", self.url))
                .header("if-none-match", tag),
        )
        .await
    }

    /// Asks without knowing any answer.
    fn wait(&self, path: &str) -> JoinHandle<(u16, Value, Option<String>)> {
        let request = Client::new().get(format!("{}{path}", self.url));
        tokio::spawn(answer(request))
    }

    fn change(&self, by: impl FnOnce(&mut crate::api::status::IngestionPipelineStatus)) {
        let mut known = (*self.claims.get(&orders().key).unwrap()).clone();
        change(&mut known, by);
        self.claims.set(known);
    }

    async fn end(self) {
        self.stop.cancel();
        self.serving.await.unwrap().unwrap();
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value, Option<String>) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let tag = response
        .headers()
        .get("etag")
        .map(|tag| tag.to_str().unwrap().to_owned());
    let text = response.text().await.unwrap();
    let body = if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text).unwrap()
    };
    (status, body, tag)
}

fn risen(status: &mut crate::api::status::IngestionPipelineStatus) {
    status.finalized_before = Some(InstantText(today("13:00")));
}

const READY: &str = "/v1/claims/shop/orders/ready";

#[tokio::test]
async fn verdicts_have_their_codes() {
    let server = Server::start().await;
    for (query, code, verdict) in [
        ("before=2026-11-30T12:00:00Z", 200, "ready"),
        ("before=2026-11-30T13:00:00Z", 202, "not-yet"),
        (
            "before=2026-11-30T12:00:00Z&accept=caught-up",
            202,
            "other-evidence",
        ),
        ("before=2026-11-30T11:00:00Z&accept=caught-up", 200, "ready"),
        (
            "before=2026-11-30T12:00:00Z&from=2026-11-30T07:00:00Z",
            409,
            "incomplete",
        ),
    ] {
        let (status, body, _) = server.get(&format!("{READY}?{query}")).await;
        assert_eq!(
            (status, &body["verdict"]),
            (code, &json!(verdict)),
            "{query}"
        );
    }
    let (status, body, _) = server
        .get("/v1/claims/shop/none/ready?before=2026-11-30T12:00:00Z")
        .await;
    assert_eq!(status, 404);
    assert_eq!(body["error"], "there is no pipeline \"shop/none\"");
    let (status, body, _) = server.get(&format!("{READY}?before=noon")).await;
    assert_eq!(
        (status, &body["parameter"], &body["value"]),
        (400, &json!("before"), &json!("noon"))
    );
    server.change(|status| {
        status.finalized_before = None;
        status.conditions = vec![StatusCondition {
            kind: "Ready".into(),
            status: ConditionStatus::False,
            reason: "TableReplaced".into(),
            message: "m".into(),
            last_transition_time: today("12:00"),
            observed_generation: None,
        }];
    });
    let (status, body, _) = server
        .get(&format!("{READY}?before=2026-11-30T12:00:00Z"))
        .await;
    assert_eq!(
        (status, &body["verdict"], &body["why"]),
        (409, &json!("held"), &json!("TableReplaced: m"))
    );
    server.end().await;
}

#[tokio::test]
async fn claim_is_told_and_named() {
    let server = Server::start().await;
    let (status, body, tag) = server.get("/v1/claims/shop/orders").await;
    let expected = json!({
        "namespace": "shop", "name": "orders", "table": "shop.orders", "standing": "claimed",
        "finalizedBefore": "2026-11-30T12:00:00Z", "lastFinalCell": "2026-11-30T11", "completeFrom": "2026-11-30T08:00:00Z",
        "gaps": [], "withheld": [], "evidence": ["minimum", "caught-up"], "epoch": 1,
        "commitId": null, "cell": "1h", "conditions": [],
        "sentence": "shop.orders holds every row with an event time from 2026-11-30T08:00:00Z to before 2026-11-30T12:00:00Z.",
    });
    let mut expected = expected;
    expected.as_object_mut().unwrap().remove("commitId");
    assert_eq!((status, body), (200, expected));
    let tag = tag.unwrap();
    assert_eq!(
        server.known("/v1/claims/shop/orders", &tag).await,
        (304, Value::Null, Some(tag.clone()))
    );
    server.change(risen);
    assert_eq!(server.known("/v1/claims/shop/orders", &tag).await.0, 200);
    server.end().await;
}

#[tokio::test]
async fn who_waits_hears_it_when_it_is_so() {
    let server = Server::start().await;
    let path = format!("{READY}?before=2026-11-30T13:00:00Z&wait=60s");
    let waiting = server.wait(&path);
    let gone = {
        let mut items = orders();
        items.key.name = "items".into();
        server.claims.set(items);
        server.wait("/v1/claims/shop/items/ready?before=2026-11-30T13:00:00Z&wait=60s")
    };
    // A commit that raises nothing ends no wait.
    server.change(|status| status.lag = Some("<1k".into()));
    server.change(risen);
    let (status, body, tag) = waiting.await.unwrap();
    assert_eq!((status, &body["verdict"]), (200, &json!("ready")));
    server.claims.remove(&Key::new("shop", "items"));
    assert_eq!(gone.await.unwrap().0, 404);
    // Whoever knows the answer waits for another one.
    let path = format!("{READY}?before=2026-11-30T13:00:00Z&wait=100ms");
    let tag = tag.unwrap();
    assert_eq!(server.known(&path, &tag).await.0, 304);
    server.change(|status| status.epoch = Some(2));
    assert_eq!(server.known(&path, &tag).await.0, 200);
    server.end().await;
}

/// A replica that goes must not keep its readers, nor be kept by them.
#[tokio::test]
async fn stop_answers_who_waits() {
    let server = Server::start().await;
    let waiting = server.wait(&format!("{READY}?before=2026-11-30T13:00:00Z&wait=60s"));
    while server.claims.get(&orders().key).is_some() && server.claims.waiting(&orders().key) == 0 {
        tokio::task::yield_now().await;
    }
    server.end().await;
    assert_eq!(waiting.await.unwrap().0, 202);
}

#[tokio::test]
async fn list_is_filtered_and_paged() {
    let server = Server::start().await;
    for (namespace, name, team) in [("shop", "items", "b"), ("toys", "bears", "a")] {
        let mut known = orders();
        known.key = Key::new(namespace, name);
        known.kept = Arc::new(kept("u", team, "shop.orders"));
        server.claims.set(known);
    }
    let names = async |query: &str| {
        let (status, body, _) = server.get(&format!("/v1/claims?{query}")).await;
        assert_eq!(status, 200, "{body}");
        let items = body["items"].as_array().unwrap().clone();
        let names: Vec<String> = items
            .iter()
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect();
        (
            names.join(" "),
            body["continue"].as_str().map(str::to_owned),
        )
    };
    assert_eq!(names("").await, ("items orders bears".into(), None));
    assert_eq!(
        names("limit=2").await,
        ("items orders".into(), Some("shop/orders".into()))
    );
    assert_eq!(
        names("limit=2&continue=shop/orders").await,
        ("bears".into(), None)
    );
    assert_eq!(
        names("namespace=shop&labelSelector=team%3Da").await,
        ("orders".into(), None)
    );
    assert_eq!(
        names("table=shop.orders&labelSelector=team%20in%20(b)").await,
        ("items".into(), None)
    );
    assert_eq!(names("condition=Ready:False").await, (String::new(), None));
    server.change(risen);
    assert_eq!(
        names("before=2026-11-30T13:00:00Z&verdict=not-yet").await,
        ("items bears".into(), None)
    );
    assert_eq!(
        names("before=2026-11-30T13:00:00Z&verdict=ready").await,
        ("orders".into(), None)
    );
    server.end().await;
}

/// Each reader of a fleet waits at the end of the hour; all of them are answered when it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_for_one_claim() {
    const MANY: usize = 400;
    let server = Server::start().await;
    let request = format!(
        "GET {READY}?before=2026-11-30T13:00:00Z&wait=120s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    );
    let mut streams = Vec::new();
    for _ in 0..MANY {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    while server.claims.waiting(&orders().key) < MANY {
        tokio::task::yield_now().await;
    }
    server.change(risen);
    for stream in &mut streams {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }
    server.end().await;
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let server = Server::start().await;
    assert_eq!(server.get("/v1/claim").await.0, 404);
    let posted = Client::new()
        .post(format!("{}/v1/claims", server.url))
        .send()
        .await
        .unwrap();
    assert_eq!(posted.status().as_u16(), 405);
    let (status, document, _) = server.get("/openapi.json").await;
    assert_eq!((status, &document), (200, &super::document()));
    server.end().await;
}
