//! One way to a store: its address, and the buckets behind it with their connections and signers.
//!
//! What the specification says wins over what the server of a REST catalog says of a table.

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use iceberg::{ErrorKind, Result as IcebergResult};
use opendal::Operator;
use opendal::layers::{HttpClientLayer, RetryLayer, TimeoutLayer};
use opendal::raw::HttpClient;
use opendal::services::S3;
use reqsign_aws_v4::Credential;
use reqsign_core::{ProvideCredentialChain, ProvideCredentialDyn};

use super::connections::{Connections, has_roots};
use super::fault::from_store;
use crate::api::worker;

/// Time a request without a body may take, and time until something of a body must have moved. The client's own ten seconds for
/// the latter are short for a part of some MiB on a slow line.
const REQUEST: Duration = Duration::from_mins(1);
const MOVEMENT: Duration = Duration::from_secs(30);

/// The region that stores other than Amazon's are signed for, when nothing else is said: their own default.
const ANY_REGION: &str = "us-east-1";

/// The address of a store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// `http://host:port` or `https://…`; Amazon's own where there is none.
    endpoint: Option<String>,
    region: String,
    path_style: bool,
}

impl Place {
    /// What the specification says, else the catalog's server, else the environment.
    pub(super) fn of(storage: &worker::Storage, properties: &HashMap<String, String>) -> Self {
        let said = |names: &[&str]| names.iter().find_map(|name| properties.get(*name)).cloned();
        let own = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
        let endpoint = own(&storage.endpoint).or_else(|| said(&["s3.endpoint"]));
        let from_environment = || {
            let variables = ["AWS_REGION", "AWS_DEFAULT_REGION"];
            variables.iter().find_map(|name| env::var(name).ok())
        };
        let region = own(&storage.region)
            .or_else(|| said(&["client.region", "s3.region"]))
            .or_else(from_environment)
            .or_else(|| endpoint.is_some().then(|| ANY_REGION.to_owned()));
        // Local tables need none, so its absence is told by the bucket that does.
        let region = region.unwrap_or_default();
        let served = said(&["s3.path-style-access"]).is_some_and(|text| text == "true");
        Self {
            endpoint,
            region,
            path_style: storage.path_style_access || served,
        }
    }
}

/// Where credentials come from.
pub(super) type Credentials = Arc<dyn ProvideCredentialDyn<Credential = Credential>>;

/// A store and what opens it.
pub(in crate::lake) struct Access {
    place: Place,
    connections: Arc<Connections>,
    credentials: Credentials,
    buckets: Mutex<HashMap<String, Operator>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Access {
    pub(super) fn new(
        place: Place,
        connections: Arc<Connections>,
        credentials: Credentials,
    ) -> Self {
        Self {
            place,
            connections,
            credentials,
            buckets: Mutex::default(),
        }
    }

    /// One bucket, with its connections and its signer.
    pub(super) fn bucket(&self, name: &str) -> IcebergResult<Operator> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get(name) {
            return Ok(bucket.clone());
        }
        let bucket = self.open(name)?;
        buckets.insert(name.to_owned(), bucket.clone());
        Ok(bucket)
    }

    fn open(&self, name: &str) -> IcebergResult<Operator> {
        let Place {
            endpoint,
            region,
            path_style,
        } = &self.place;
        if region.is_empty() {
            return Err(iceberg::Error::new(
                ErrorKind::DataInvalid,
                "sink.catalog.storage.region is missing, and the catalog and AWS_REGION do not say it either; set it to the bucket's region",
            ));
        }
        has_roots()
            .map_err(|problem| iceberg::Error::new(ErrorKind::FeatureUnsupported, problem))?;
        let chain = ProvideCredentialChain::new().push(Arc::clone(&self.credentials));
        let mut store = S3::default()
            .bucket(name)
            .region(region)
            .credential_provider_chain(chain);
        if let Some(endpoint) = endpoint {
            store = store.endpoint(endpoint);
        }
        if !path_style {
            store = store.enable_virtual_host_style();
        }
        let bucket = Operator::new(store).map_err(from_store)?;
        let client = HttpClient::with(Arc::clone(&self.connections));
        Ok(bucket
            .layer(HttpClientLayer::new(client))
            .layer(
                TimeoutLayer::new()
                    .with_timeout(REQUEST)
                    .with_io_timeout(MOVEMENT),
            )
            .layer(RetryLayer::new().with_jitter())
            .finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(storage: &worker::Storage, properties: &[(&str, &str)]) -> Place {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Place::of(storage, &properties.iter().map(owned).collect())
    }

    /// A server that knows its store by a name of its own network must not lead a worker elsewhere.
    #[test]
    fn what_the_specification_says_wins_over_the_server() {
        let served = [
            ("s3.endpoint", "http://inside:9000"),
            ("client.region", "eu-west-1"),
            ("s3.path-style-access", "true"),
        ];
        let nothing = worker::Storage::default();
        assert_eq!(
            place(&nothing, &served),
            Place {
                endpoint: Some("http://inside:9000".into()),
                region: "eu-west-1".into(),
                path_style: true
            }
        );
        let own = worker::Storage {
            endpoint: Some("https://outside".into()),
            region: Some("eu-central-1".into()),
            ..worker::Storage::default()
        };
        let found = place(&own, &served);
        assert_eq!(found.endpoint.as_deref(), Some("https://outside"));
        assert_eq!(found.region, "eu-central-1");
    }

    /// Stores of one's own have no regions, and yet a request is signed for one.
    #[test]
    fn a_store_of_ones_own_needs_no_region() {
        let own = worker::Storage {
            endpoint: Some("http://store:9000".into()),
            ..worker::Storage::default()
        };
        // The environment of a test may say one.
        let said = env::var("AWS_REGION").or_else(|_| env::var("AWS_DEFAULT_REGION"));
        let expected = said.unwrap_or_else(|_| ANY_REGION.to_owned());
        assert_eq!(place(&own, &[]).region, expected);
    }
}
