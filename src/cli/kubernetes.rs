//! A cluster as the commands that look at one reach it: by a kubeconfig as `kubectl` does, or from within.
//!
//! Only reads. An object that cannot be decoded is told on the standard error and stops nobody.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;

use super::Exit;
use crate::api::{Objects, pipeline::IngestionPipeline, policy::IngestionPolicy};

/// How many objects are asked for at once, as `kubectl` does.
const PAGE: u32 = 500;

/// Where the cluster is.
#[derive(Debug, clap::Args)]
pub(super) struct KubernetesArguments {
    /// The kubeconfig to use; $KUBECONFIG or ~/.kube/config where it is left out, within a pod its service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use; its current one where it is left out
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Why a cluster could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// There is no usable kubeconfig.
    #[error("no cluster to ask; name a kubeconfig with --kubeconfig, or files with --file")]
    Kubeconfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The API server does not answer, or refuses.
    #[error("the API server did not give {what}")]
    Api {
        /// What was asked for.
        what: String,
        /// What came instead.
        source: Box<kube::Error>,
    },
    /// The object is not there.
    #[error("there is no {0}")]
    NotFound(String),
    /// The object is there and cannot be read.
    #[error("{what} cannot be read: {problem}")]
    Undecodable {
        /// Which object.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl Error {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::NotFound(_) => Exit::NoTable,
            Self::Undecodable { .. } => Exit::NotYet,
            Self::Kubeconfig(_) | Self::Api { .. } => Exit::CatalogUnreachable,
        }
    }
}

/// A cluster to ask.
pub(super) struct Cluster {
    client: Client,
}

impl KubernetesArguments {
    pub(super) async fn connect(&self) -> Result<Cluster, Error> {
        let unusable = |error: Box<dyn std::error::Error + Send + Sync>| Error::Kubeconfig(error);
        let config = if self.kubeconfig.is_none() && self.context.is_none() {
            Config::infer()
                .await
                .map_err(|error| unusable(Box::new(error)))?
        } else {
            let file = match &self.kubeconfig {
                Some(path) => Kubeconfig::read_from(path),
                None => Kubeconfig::read(),
            };
            let options = KubeConfigOptions {
                context: self.context.clone(),
                ..KubeConfigOptions::default()
            };
            let file = file.map_err(|error| unusable(Box::new(error)))?;
            let config = Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(|error| unusable(Box::new(error)))?
        };
        // Two providers are linked, by the table's libraries and by this client, so one has to be named; a second call finds the
        // choice of the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(config).map_err(|error| unusable(Box::new(error)))?;
        Ok(Cluster { client })
    }
}

impl Cluster {
    /// The namespace where none is named.
    pub(super) fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// One pipeline with what decides about it: the labels of its namespace, and the policies.
    pub(super) async fn pipeline(&self, namespace: &str, name: &str) -> Result<Objects, Error> {
        let what = format!("pipeline {namespace}/{name}");
        let pipelines = Api::<DynamicObject>::namespaced_with(
            self.client.clone(),
            namespace,
            &ApiResource::erase::<IngestionPipeline>(&()),
        );
        let found = pipelines.get_opt(name).await;
        let found = found.map_err(|error| failed(&what, error))?;
        let found = found.ok_or_else(|| Error::NotFound(what.clone()))?;
        let pipeline = decoded(found).map_err(|problem| Error::Undecodable { what, problem })?;
        let what = format!("namespace {namespace}");
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let labels = namespaces.get_metadata(namespace).await;
        let labels = labels.map_err(|error| failed(&what, error))?;
        Ok(Objects {
            pipelines: vec![pipeline],
            policies: self.policies().await?,
            namespaces: [(namespace.to_owned(), labels.labels().clone())].into(),
        })
    }

    /// Every pipeline, policy and namespace.
    pub(super) async fn all(&self) -> Result<Objects, Error> {
        let api = Api::<Namespace>::all(self.client.clone());
        let mut namespaces = BTreeMap::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let found = api.list_metadata(&page).await;
            let found = found.map_err(|error| failed("the namespaces", error))?;
            let labelled = found
                .items
                .iter()
                .map(|one| (one.name_any(), one.labels().clone()));
            namespaces.extend(labelled);
            match found.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => break,
            }
        }
        Ok(Objects {
            pipelines: self.list::<IngestionPipeline>("the pipelines").await?,
            policies: self.policies().await?,
            namespaces,
        })
    }

    async fn policies(&self) -> Result<Vec<IngestionPolicy>, Error> {
        self.list::<IngestionPolicy>("the policies").await
    }

    async fn list<K>(&self, what: &str) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let mut objects = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let found = api.list(&page).await.map_err(|error| failed(what, error))?;
            for object in found.items {
                let name = match object.namespace() {
                    Some(namespace) => format!("{namespace}/{}", object.name_any()),
                    None => object.name_any(),
                };
                match decoded(object) {
                    Ok(object) => objects.push(object),
                    Err(problem) => tell(&format!(
                        "{} {name} cannot be read and is left out: {problem}",
                        resource.kind
                    )),
                }
            }
            match found.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return Ok(objects),
            }
        }
    }
}

fn failed(what: &str, source: kube::Error) -> Error {
    Error::Api {
        what: what.to_owned(),
        source: Box::new(source),
    }
}

fn decoded<K: DeserializeOwned>(object: DynamicObject) -> Result<K, String> {
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Says something beside the answer.
pub(super) fn tell(text: &str) {
    // Where the standard error is closed, nobody is there to be told.
    let _ = writeln!(io::stderr(), "warning: {text}");
}
