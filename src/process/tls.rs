//! What every client of ours that speaks TLS by itself has in common.
//!
//! Comes in: whom it trusts. Goes out: its settings, with one provider of cryptography for all. Nothing is read here.

use std::sync::Arc;

use rustls::{CertificateError, ClientConfig, RootCertStore};

/// The settings of a client that trusts these and has no certificate of its own.
///
/// # Errors
/// The provider knows no version of the protocol that is safe.
pub(crate) fn client(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// Whether a certificate is in order but for the host, which is another one.
pub(crate) fn is_other_host(problem: &CertificateError) -> bool {
    matches!(
        problem,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
    )
}
