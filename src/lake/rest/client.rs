//! The requests of the Iceberg REST specification: where they go, who asks, and whom to trust.
//!
//! A server is asked once how it wants to be asked; what a status means is left to whoever asks.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use iceberg::{ErrorKind, NamespaceIdent, Result as IcebergResult, TableIdent};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::answer::{Answer, unreachable};
use super::bearer::Bearer;
use crate::lake::Error;
use crate::lake::catalog::{CatalogSettings, without_password};
use crate::lake::storage::Files;
use crate::process::tls;

/// The header that asks a server for credentials of a table's files, and what it says.
const DELEGATION: (&str, &str) = ("header.X-Iceberg-Access-Delegation", "vended-credentials");

/// How we are called.
const AGENT: &str = concat!("tidemark/", env!("CARGO_PKG_VERSION"));

/// What a server says of itself.
#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(default)]
    defaults: HashMap<String, String>,
    #[serde(default)]
    overrides: HashMap<String, String>,
}

/// A server as it wants to be asked.
pub(super) struct Server {
    /// `…/v1`, and its prefix where it has one.
    root: Url,
    /// What it says, and what the specification says, together.
    pub(super) properties: HashMap<String, String>,
    headers: HeaderMap,
}

/// A request that brought no answer.
pub(in crate::lake) struct Failed {
    pub(in crate::lake) error: iceberg::Error,
    /// Whether it may have reached the server.
    pub(in crate::lake) sent: bool,
}

impl From<Failed> for iceberg::Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl From<iceberg::Error> for Failed {
    /// Of what comes before a request.
    fn from(error: iceberg::Error) -> Self {
        Self { error, sent: false }
    }
}

/// The client of a REST catalog.
pub(in crate::lake) struct Rest {
    client: Client,
    uri: String,
    warehouse: Option<String>,
    /// They win over what the server says of a table.
    pub(super) properties: HashMap<String, String>,
    bearer: Bearer,
    pub(super) files: Files,
    /// Asked for once.
    server: OnceCell<Server>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Rest");
        shown.field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl Rest {
    /// A client of the server at `uri`, which is not asked yet.
    ///
    /// # Errors
    /// The address is none.
    pub(in crate::lake) fn new(
        settings: &CatalogSettings,
        uri: &str,
        files: Files,
    ) -> Result<Self, Error> {
        let client = client(settings, uri)?;
        let uri = uri.trim_end_matches('/');
        let properties: HashMap<String, String> = settings.properties.clone().into_iter().collect();
        Ok(Self {
            client,
            bearer: Bearer::new(settings.credential.as_ref(), uri, &properties),
            uri: uri.to_owned(),
            warehouse: settings.warehouse.clone(),
            properties,
            files,
            server: OnceCell::new(),
        })
    }

    /// The same, which asks for credentials of the tables' files with each table.
    pub(in crate::lake) fn delegated(mut self) -> Self {
        let (header, value) = DELEGATION;
        let asked = |name: &String| name.eq_ignore_ascii_case(header);
        if !self.properties.keys().any(asked) {
            self.properties.insert(header.to_owned(), value.to_owned());
        }
        self
    }

    pub(super) async fn server(&self) -> Result<&Server, Failed> {
        self.server.get_or_try_init(|| self.ask_server()).await
    }

    async fn ask_server(&self) -> Result<Server, Failed> {
        let mut url = root(&self.uri, None, &["config"])?;
        if let Some(warehouse) = &self.warehouse {
            url.query_pairs_mut().append_pair("warehouse", warehouse);
        }
        let headers = headers(&self.properties)?;
        let answer = self.send(&Method::GET, &url, &headers, None).await;
        // Nothing was done to any table.
        let answer = answer.map_err(|failed| failed.error)?;
        let config: Config = answer.expect(&[])?;
        let uri = config.overrides.get("uri").unwrap_or(&self.uri).clone();
        let mut properties = config.defaults;
        properties.extend(self.properties.clone());
        properties.extend(config.overrides);
        let prefix = properties.get("prefix").map(String::as_str);
        Ok(Server {
            root: root(uri.trim_end_matches('/'), prefix, &[])?,
            headers: self::headers(&properties)?,
            properties,
        })
    }

    /// One question, and once more with a new token where the one in hand is refused.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<Answer, Failed> {
        let server = self.server().await?;
        let mut url = server.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let body = body.map(Bytes::from);
        self.send(&method, &url, &server.headers, body).await
    }

    async fn send(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Answer, Failed> {
        let mut renewed = false;
        loop {
            let token = self.bearer.token(&self.client).await?;
            let mut request = self.client.request(method.clone(), url.clone());
            request = request.headers(headers.clone());
            if let Some(token) = &token {
                request = request.bearer_auth(token.expose());
            }
            if let Some(body) = &body {
                let kind = HeaderValue::from_static("application/json");
                request = request.header(CONTENT_TYPE, kind).body(body.clone());
            }
            let lost = |error: reqwest::Error| Failed {
                sent: !error.is_connect() && !error.is_builder(),
                error: unreachable(error),
            };
            let answer = request.send().await.map_err(lost)?;
            let status = answer.status();
            let answer = Answer::new(status, answer.bytes().await.map_err(lost)?);
            if !answer.is_unauthorized()
                || renewed
                || !self.bearer.is_renewed_after(token.as_ref()).await
            {
                return Ok(answer);
            }
            renewed = true;
        }
    }

    /// A namespace as a part of a path.
    pub(super) async fn namespace(&self, namespace: &NamespaceIdent) -> Result<String, Failed> {
        let server = self.server().await?;
        let separator = server.properties.get("namespace-separator");
        let separator = separator.map_or("\u{1f}", |said| match said.as_str() {
            "%2E" | "%2e" => ".",
            "%1F" | "%1f" => "\u{1f}",
            other => other,
        });
        Ok(namespace
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(separator))
    }

    /// A question about a table.
    pub(in crate::lake) async fn ask_of(
        &self,
        method: Method,
        table: &TableIdent,
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<Answer, Failed> {
        let namespace = self.namespace(table.namespace()).await?;
        let path = ["namespaces", &namespace, "tables", table.name()];
        self.ask(method, &path, query, body).await
    }
}

/// The client of the server; refuses an address that is none.
fn client(settings: &CatalogSettings, uri: &str) -> Result<Client, Error> {
    let invalid = |problem: String| Error::Settings {
        field: "sink.catalog.uri",
        value: without_password(uri),
        problem,
    };
    let url = Url::parse(uri)
        .map_err(|error| invalid(format!("{error}; write it as http://host:port")))?;
    if !matches!(url.scheme(), "http" | "https") {
        let problem = "a REST catalog is reached by http:// or https://";
        return Err(invalid(problem.to_owned()));
    }
    let none = |error: &dyn fmt::Display| invalid(format!("no HTTP client for it: {error}"));
    let client = tls::http(settings.authorities.clone()).map_err(|error| none(&error))?;
    client
        .user_agent(AGENT)
        .timeout(settings.deadline)
        .build()
        .map_err(|error| none(&error))
}

fn root(uri: &str, prefix: Option<&str>, path: &[&str]) -> IcebergResult<Url> {
    let mut url = Url::parse(&format!("{uri}/v1")).map_err(unusable)?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.extend(prefix.into_iter().flat_map(|prefix| prefix.split('/')));
        segments.extend(path);
    }
    Ok(url)
}

/// The headers that properties name.
fn headers(properties: &HashMap<String, String>) -> IcebergResult<HeaderMap> {
    let named = properties
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("header.")?, value)));
    let named = named.map(|(name, value)| {
        let name = HeaderName::from_str(name).map_err(unusable)?;
        Ok((name, HeaderValue::from_str(value).map_err(unusable)?))
    });
    named.collect()
}

pub(super) fn json(request: &impl Serialize) -> IcebergResult<Vec<u8>> {
    serde_json::to_vec(request).map_err(unusable)
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> iceberg::Error {
    let problem = "the catalog cannot be asked";
    iceberg::Error::new(ErrorKind::DataInvalid, problem).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_table_is_the_specification_s() {
        let path = ["namespaces", "shop", "tables", "orders"];
        let address = |prefix| {
            root("http://catalog/api", prefix, &path)
                .unwrap()
                .to_string()
        };
        assert_eq!(
            address(None),
            "http://catalog/api/v1/namespaces/shop/tables/orders"
        );
        assert_eq!(
            address(Some("ws/a b")),
            "http://catalog/api/v1/ws/a%20b/namespaces/shop/tables/orders"
        );
    }
}
