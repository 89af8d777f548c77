use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

use crate::{Error, error::Fault};

/// TLS: whom to trust, and perhaps a certificate of the client.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<String>,
}

impl Tls {
    /// Any configuration of rustls, which may renew certificates while the client runs.
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self { config, server_name: None }
    }

    /// Trusts the authorities in `ca` (PEM) and no others. `identity` is the certificate of the client and its key,
    /// both PEM.
    pub fn from_pem(ca: &[u8], identity: Option<(&[u8], &[u8])>) -> Result<Self, Error> {
        let wrong = |what: &str| Error::invalid(format!("TLS: {what}"));
        let certificates = |pem: &[u8]| -> Result<Vec<_>, _> { CertificateDer::pem_slice_iter(pem).collect() };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca).map_err(|_| wrong("no certificates of authorities"))? {
            roots.add(certificate).map_err(|e| wrong(&e.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("no certificates of authorities"));
        }
        let builder = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(&e.to_string()))?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates(cert).map_err(|_| wrong("no certificate of the client"))?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| wrong("no key of the client"))?;
                builder.with_client_auth_cert(chain, key).map_err(|e| wrong(&e.to_string()))?
            }
        };
        Ok(Self::new(Arc::new(config)))
    }

    /// The name that the certificates of nodes must have; by default the host of each address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    pub(crate) async fn connect(&self, addr: &str, tcp: TcpStream) -> Result<TlsStream<TcpStream>, Fault> {
        let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host).trim_matches(['[', ']']);
        let name = self.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|_| Error::invalid("TLS: not a name of a server"))?;
        Ok(TlsConnector::from(self.config.clone()).connect(name, tcp).await?)
    }
}
