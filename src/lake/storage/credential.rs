//! What requests to a store are signed with, and how it is kept fresh.
//!
//! Three sources: the keys of a specification, read again every half minute, so that rotated ones are taken up without a restart;
//! what a REST catalog vends for a table, renewed before it ends; and the identity of this process (environment, web identity
//! token, container, instance metadata), one for the whole process, so that a hundred pipelines ask for it once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use reqsign_aws_v4::{
    AssumeRoleWithWebIdentityCredentialProvider as WebIdentity, Credential,
    DefaultCredentialProvider, ECSCredentialProvider as Container,
    EnvCredentialProvider as Variables,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{
    Context, Error, ProvideCredential, ProvideCredentialDyn as _, Result, SigningCredential as _,
};
use tokio::sync::Mutex;

use super::StorageSettings;
use super::access::Credentials;
use crate::api::worker::SecretRef;
use crate::process::clock::Clock;
use crate::process::secret::Secrets;

/// A signer takes credentials for stale two minutes before their end (`reqsign-aws-core` 3).
const STALE: Duration = Duration::from_mins(2);

/// How long keys are taken for good without looking at their source again.
const LOOK: Duration = Duration::from_secs(30);

/// How long vended credentials are used that do not say when they end: below the least that Amazon's last.
const UNTOLD: Duration = Duration::from_mins(10);

fn from_now(length: Duration) -> Option<Timestamp> {
    let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    let at_ms = Clock::system().now_us() / 1_000 + length_ms;
    Timestamp::from_millisecond(at_ms).ok()
}

/// The keys of a specification.
pub(super) fn given(
    settings: &StorageSettings,
    access_key_id: &SecretRef,
    secret_access_key: &SecretRef,
) -> Credentials {
    Arc::new(Given {
        access_key_id: access_key_id.clone(),
        secret_access_key: secret_access_key.clone(),
        session_token: settings.storage.session_token_ref.clone(),
        secrets: settings.secrets.clone(),
    })
}

#[derive(Debug)]
struct Given {
    access_key_id: SecretRef,
    secret_access_key: SecretRef,
    session_token: Option<SecretRef>,
    secrets: Secrets,
}

impl ProvideCredential for Given {
    type Credential = Credential;

    async fn provide_credential(&self, _: &Context) -> Result<Option<Credential>> {
        let read = |reference: &SecretRef| {
            let secret = self.secrets.read(reference);
            secret
                .map(|secret| secret.expose().to_owned())
                .map_err(|error| Error::credential_invalid(error.to_string()))
        };
        let session_token = self.session_token.as_ref().map(read).transpose()?;
        Ok(Some(Credential {
            access_key_id: read(&self.access_key_id)?,
            secret_access_key: read(&self.secret_access_key)?,
            session_token,
            expires_in: from_now(STALE + LOOK),
        }))
    }
}

/// The identity of this process.
pub(super) fn identity() -> Credentials {
    static IDENTITY: LazyLock<Arc<Identity>> = LazyLock::new(|| {
        Arc::new(Identity {
            named: [
                Arc::new(Variables::new()),
                Arc::new(WebIdentity::new()),
                Arc::new(Container::new()),
            ],
            others: DefaultCredentialProvider::builder()
                .no_env()
                .no_web_identity()
                .no_ecs()
                .build(),
            held: Mutex::new(None),
        })
    });
    Arc::clone(&IDENTITY) as Credentials
}

#[derive(Debug)]
struct Identity {
    /// What the environment of a pod names. Where that fails nobody else is asked: a node's role is not the pod's.
    named: [Credentials; 3],
    /// Profiles, and the metadata of the instance.
    others: DefaultCredentialProvider,
    held: Mutex<Option<Credential>>,
}

impl Identity {
    async fn find(&self, context: &Context) -> Result<Credential> {
        for source in &self.named {
            if let Some(found) = source.provide_credential_dyn(context).await? {
                return Ok(found);
            }
        }
        let found = self.others.provide_credential(context).await?;
        found.ok_or_else(|| {
            Error::credential_invalid(
                "neither does the specification name keys nor has this process an identity (AWS_ACCESS_KEY_ID, a web identity token, a role of its container or instance); set sink.catalog.storage.accessKeyIdRef and secretAccessKeyRef",
            )
        })
    }
}

impl ProvideCredential for Identity {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let mut held = self.held.lock().await;
        if let Some(credential) = held.as_ref().filter(|held| held.is_valid()) {
            return Ok(Some(credential.clone()));
        }
        let mut credential = self.find(context).await?;
        if credential.expires_in.is_none() {
            credential.expires_in = from_now(STALE + LOOK);
        }
        *held = Some(credential.clone());
        Ok(Some(credential))
    }
}

/// What a catalog's server gives with a table, where it gives credentials.
pub(in crate::lake) fn vended(properties: &HashMap<String, String>) -> Option<Credential> {
    let said = |name: &str| {
        properties
            .get(name)
            .filter(|text| !text.is_empty())
            .cloned()
    };
    let session_token = said("s3.session-token");
    let ends = said("s3.session-token-expires-at-ms")
        .and_then(|text| text.parse().ok())
        .and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
    // Keys without a token are for good, as far as the server says.
    let untold = || session_token.is_some().then(|| from_now(STALE + UNTOLD));
    Some(Credential {
        access_key_id: said("s3.access-key-id")?,
        secret_access_key: said("s3.secret-access-key")?,
        expires_in: ends.or_else(|| untold().flatten()),
        session_token,
    })
}

/// Asks a catalog's server again for what it vends for a table.
#[async_trait]
pub(in crate::lake) trait Renew: Send + Sync {
    /// The properties that the server gives with the table now.
    async fn renew(&self) -> iceberg::Result<HashMap<String, String>>;
}

/// What a catalog's server has vended for one table, renewed before it ends.
pub(in crate::lake) struct Vended {
    held: std::sync::Mutex<Credential>,
    renew: Box<dyn Renew>,
}

impl fmt::Debug for Vended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vended")
    }
}

impl Vended {
    pub(in crate::lake) fn new(first: Credential, renew: Box<dyn Renew>) -> Self {
        Self {
            held: std::sync::Mutex::new(first),
            renew,
        }
    }

    /// The server has just given these.
    pub(in crate::lake) fn hold(&self, credential: Credential) {
        *self
            .held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = credential;
    }

    fn held(&self) -> Credential {
        self.held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }
}

impl ProvideCredential for Vended {
    type Credential = Credential;

    async fn provide_credential(&self, _: &Context) -> Result<Option<Credential>> {
        let held = self.held();
        if held.is_valid() {
            return Ok(Some(held));
        }
        let renewed = self.renew.renew().await.map_err(|error| {
            Error::credential_invalid("the catalog does not renew what it has vended for the table")
                .with_source(error)
        })?;
        let Some(credential) = vended(&renewed) else {
            return Err(Error::credential_invalid(
                "the catalog vends no credentials for the table any more",
            ));
        };
        self.hold(credential.clone());
        Ok(Some(credential))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn properties(ends_in: Option<i64>) -> HashMap<String, String> {
        let mut properties: HashMap<String, String> = [
            ("s3.access-key-id", "id"),
            ("s3.secret-access-key", "secret"),
            ("s3.session-token", "token"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        if let Some(seconds) = ends_in {
            let at_ms = Clock::system().now_us() / 1_000 + seconds * 1_000;
            properties.insert("s3.session-token-expires-at-ms".into(), at_ms.to_string());
        }
        properties
    }

    struct Server(Arc<AtomicUsize>);

    #[async_trait]
    impl Renew for Server {
        async fn renew(&self) -> iceberg::Result<HashMap<String, String>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(properties(Some(3_600)))
        }
    }

    /// Credentials that end while files are being written would lose the files.
    #[tokio::test]
    async fn vended_credentials_are_renewed_before_they_end_and_not_more_often() {
        let asked = Arc::new(AtomicUsize::new(0));
        let first = vended(&properties(Some(60))).unwrap();
        let kept = Vended::new(first, Box::new(Server(Arc::clone(&asked))));
        for _ in 0..3 {
            let given = kept.provide_credential(&Context::new()).await.unwrap();
            assert!(given.unwrap().is_valid());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(vended(&properties(None)).unwrap().is_valid());
        assert!(vended(&HashMap::new()).is_none());
    }

    /// Rotation is a change of a file under a running worker.
    #[tokio::test]
    async fn changed_keys_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let reference = |key: &str| SecretRef {
            name: "lake".into(),
            key: key.into(),
        };
        let write = |key: &str, text: &str| {
            std::fs::create_dir_all(folder.path().join("lake")).unwrap();
            std::fs::write(folder.path().join("lake").join(key), text).unwrap();
        };
        let settings = StorageSettings {
            storage: crate::api::worker::Storage::default(),
            secrets: Secrets::in_folder(folder.path()),
            authorities: None,
        };
        let keys = given(&settings, &reference("id"), &reference("secret"));
        let context = Context::new();
        let missing = keys.provide_credential_dyn(&context).await.unwrap_err();
        assert!(missing.to_string().contains("lake/id"), "{missing}");
        for secret in ["hush-1", "hush-2"] {
            write("id", "me\n");
            write("secret", &format!("{secret}\n"));
            let found = keys
                .provide_credential_dyn(&context)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(found.secret_access_key, secret);
            // It is looked at again soon, and until then it is good.
            assert!(found.is_valid() && found.expires_in <= from_now(STALE + LOOK));
            assert!(!format!("{found:?} {keys:?}").contains(secret));
        }
    }
}
