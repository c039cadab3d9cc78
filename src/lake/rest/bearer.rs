//! Who asks a REST catalog: the bearer token of its requests.
//!
//! Comes in: a credential. Goes out: a token, either the credential itself or what an OAuth server gives for a client's id and
//! secret. Such a token is exchanged once for all requests, and anew before it ends or after the catalog has refused it.

use std::collections::HashMap;
use std::time::Duration;

use iceberg::{ErrorKind, Result as IcebergResult};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::answer::{CatalogFault, refused, unreachable};
use crate::process::clock::Clock;
use crate::process::secret::Secret;

/// What a client asks for where the specification says nothing, as every client of Iceberg does.
const SCOPE: &str = "catalog";

/// Where a bearer token comes from.
enum Source {
    /// Nobody in particular asks.
    Nobody,
    /// It is given.
    Given(Secret),
    /// It is exchanged for a client's id and secret.
    Client { id: String, secret: Secret },
}

/// The bearer token of a catalog's requests.
pub(super) struct Bearer {
    source: Source,
    /// Where tokens are exchanged, and what is sent there beside id and secret.
    endpoint: String,
    form: Vec<(&'static str, String)>,
    /// Lengths alone are taken from it.
    clock: Clock,
    exchanged: Mutex<Option<Exchanged>>,
}

struct Exchanged {
    token: Secret,
    /// On the monotonic clock; `None` where the server does not say.
    renew_at: Option<Duration>,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: Option<u64>,
}

impl Bearer {
    /// Of a catalog at `uri`: `id:secret` is exchanged, anything else is a token itself.
    pub(super) fn new(
        credential: Option<&Secret>,
        uri: &str,
        properties: &HashMap<String, String>,
    ) -> Self {
        let source = match credential {
            None => Source::Nobody,
            Some(credential) => match credential.expose().split_once(':') {
                Some((id, secret)) => Source::Client {
                    id: id.to_owned(),
                    secret: Secret::new(secret),
                },
                None => Source::Given(credential.clone()),
            },
        };
        let said = |name: &str| properties.get(name).cloned();
        let scope = said("scope").unwrap_or_else(|| SCOPE.to_owned());
        let further = ["audience", "resource"];
        let further = further
            .into_iter()
            .filter_map(|name| Some((name, said(name)?)));
        Self {
            source,
            endpoint: said("oauth2-server-uri").unwrap_or_else(|| format!("{uri}/v1/oauth/tokens")),
            form: [("scope", scope)].into_iter().chain(further).collect(),
            clock: Clock::system(),
            exchanged: Mutex::new(None),
        }
    }

    /// The token of the next request.
    ///
    /// # Errors
    /// The OAuth server does not give one.
    pub(super) async fn token(&self, client: &Client) -> IcebergResult<Option<Secret>> {
        let (id, secret) = match &self.source {
            Source::Nobody => return Ok(None),
            Source::Given(token) => return Ok(Some(token.clone())),
            Source::Client { id, secret } => (id, secret),
        };
        let mut exchanged = self.exchanged.lock().await;
        let now = self.clock.monotonic();
        if let Some(held) = &*exchanged
            && held.renew_at.is_none_or(|renew_at| now < renew_at)
        {
            return Ok(Some(held.token.clone()));
        }
        let answer = self.exchange(client, id, secret).await?;
        let token = Secret::new(answer.access_token);
        // A tenth before its end: a request that is under way then arrives in time, and clocks may differ a little.
        let renew_at = answer
            .expires_in
            .map(|seconds| now + Duration::from_secs(seconds) * 9 / 10);
        *exchanged = Some(Exchanged {
            token: token.clone(),
            renew_at,
        });
        Ok(Some(token))
    }

    /// The catalog has refused a request with this token; whether the next one would have another.
    pub(super) async fn is_renewed_after(&self, refused: Option<&Secret>) -> bool {
        if !matches!(self.source, Source::Client { .. }) {
            return false;
        }
        let mut exchanged = self.exchanged.lock().await;
        if exchanged.as_ref().map(|held| &held.token) == refused {
            *exchanged = None;
        }
        true
    }

    async fn exchange(&self, client: &Client, id: &str, secret: &Secret) -> IcebergResult<Answer> {
        let mut form = vec![
            ("grant_type", "client_credentials"),
            ("client_id", id),
            ("client_secret", secret.expose()),
        ];
        form.extend(
            self.form
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        let sent = client.post(&self.endpoint).form(&form).send().await;
        let answer = sent.map_err(unreachable)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(unreachable)?;
        let told = |problem: &str| format!("{}: {problem}", self.endpoint);
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|_| unexpected(&told("the answer holds no access_token")));
        }
        let answer = told(&refusal(status, &body));
        // A wrong client is a bad request to some servers (RFC 6749, 5.2).
        if status.is_client_error() {
            let kind = ErrorKind::Unexpected;
            return Err(refused(kind, CatalogFault::Unauthorized { answer }));
        }
        Err(unexpected(&answer))
    }
}

fn unexpected(problem: &str) -> iceberg::Error {
    let problem = format!("no token for the catalog: {problem}");
    iceberg::Error::new(ErrorKind::Unexpected, problem)
}

/// The status and the words of RFC 6749; the body may repeat what was sent, so that nothing else of it is told.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
        error_description: Option<String>,
    }
    match serde_json::from_slice(body) {
        Ok(Refusal {
            error,
            error_description: Some(words),
        }) => format!("{status}: {error}: {words}"),
        Ok(Refusal { error, .. }) => format!("{status}: {error}"),
        Err(_) => status.to_string(),
    }
}
