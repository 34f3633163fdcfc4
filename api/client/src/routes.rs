//! Every route, typed.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use ethers_signers::LocalWallet;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use selion_api::commit::PoolId;
use selion_api::lease::LeaseState;
use selion_api::rest::{
    AccountView, ApiKeyPage, BillPage, Dataset, DatasetPage, EntryPage, HeadView, Health, ImageView, Lease, LeasePage,
    LeaseRef, LicencePage, NewDataset, NewLease, NewRelay, NodePage, NodeView, OfferPage, PlacementView, PoolView,
    Quote, RegistryView, RelayView, SharesView, VoucherPage, Whoami,
};
use selion_api::{LeaseId, NodeId};

use crate::call::{As, TIMEOUT, read};
use crate::promise::Headers;
use crate::sign::sign_lease;
use crate::{Client, ClientError, LeaseQuery, OfferQuery, PageQuery};

/// Media type of one bare block.
const RAW_BLOCK: &str = "application/vnd.ipld.raw";
const NOTHING: [(&str, &str); 0] = [];

/// Each method is the route of its name; all fail with [`ClientError`].
#[expect(clippy::missing_errors_doc, reason = "said once, above")]
impl Client {
    /// `GET /healthz`.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.get(As::Anyone, &["healthz"], &NOTHING).await
    }

    /// `GET /readyz`.
    pub async fn ready(&self) -> Result<Health, ClientError> {
        self.get(As::Anyone, &["readyz"], &NOTHING).await
    }

    /// `GET /v1/pool`.
    pub async fn pool(&self) -> Result<PoolView, ClientError> {
        self.get(As::Anyone, &["v1", "pool"], &NOTHING).await
    }

    /// `GET /v1/registry`.
    pub async fn registry(&self) -> Result<RegistryView, ClientError> {
        self.get(As::Anyone, &["v1", "registry"], &NOTHING).await
    }

    /// `POST /v1/relay`: a call that its account signed, at the operator's cost.
    pub async fn relay(&self, request: &NewRelay) -> Result<RelayView, ClientError> {
        self.post(As::Anyone, &["v1", "relay"], request).await
    }

    /// `GET /v1/relay/{id}`.
    pub async fn relayed(&self, id: u64) -> Result<RelayView, ClientError> {
        self.get(As::Anyone, &["v1", "relay", &id.to_string()], &NOTHING).await
    }

    /// `GET /v1/log/head`.
    pub async fn log_head(&self) -> Result<HeadView, ClientError> {
        self.get(As::Anyone, &["v1", "log", "head"], &NOTHING).await
    }

    /// `GET /v1/log/entries`: up to `limit` (at most 1000) from number `from` on.
    pub async fn log_entries(&self, from: u64, limit: u32) -> Result<EntryPage, ClientError> {
        let query = [("from", from), ("limit", limit.into())];
        self.get(As::Anyone, &["v1", "log", "entries"], &query).await
    }

    /// `GET /v1/whoami`.
    pub async fn whoami(&self) -> Result<Whoami, ClientError> {
        self.get(As::Me, &["v1", "whoami"], &NOTHING).await
    }

    /// `GET /v1/api-keys`.
    pub async fn api_keys(&self, page: &PageQuery) -> Result<ApiKeyPage, ClientError> {
        self.get(As::Me, &["v1", "api-keys"], page).await
    }

    /// `DELETE /v1/api-keys/{id}`.
    pub async fn revoke_api_key(&self, id: u64) -> Result<(), ClientError> {
        let id = id.to_string();
        let make = || self.request(Method::DELETE, &["v1", "api-keys", &id]).timeout(TIMEOUT);
        self.ask(As::Me, make).await.map(drop)
    }

    /// `GET /v1/account`.
    pub async fn account(&self) -> Result<AccountView, ClientError> {
        self.get(As::Me, &["v1", "account"], &NOTHING).await
    }

    /// `GET /v1/bills`.
    pub async fn bills(&self, page: &PageQuery) -> Result<BillPage, ClientError> {
        self.get(As::Me, &["v1", "bills"], page).await
    }

    /// `GET /v1/vouchers`.
    pub async fn vouchers(&self) -> Result<VoucherPage, ClientError> {
        self.get(As::Me, &["v1", "vouchers"], &NOTHING).await
    }

    /// `GET /v1/offers`.
    pub async fn offers(&self, query: &OfferQuery) -> Result<OfferPage, ClientError> {
        self.get(As::Me, &["v1", "offers"], query).await
    }

    /// `GET /v1/shares`.
    pub async fn shares(&self) -> Result<SharesView, ClientError> {
        self.get(As::Me, &["v1", "shares"], &NOTHING).await
    }

    /// `GET /v1/licences`.
    pub async fn licences(&self, page: &PageQuery) -> Result<LicencePage, ClientError> {
        self.get(As::Me, &["v1", "licences"], page).await
    }

    /// `GET /v1/nodes`.
    pub async fn nodes(&self, page: &PageQuery) -> Result<NodePage, ClientError> {
        self.get(As::Me, &["v1", "nodes"], page).await
    }

    /// `GET /v1/nodes/{id}`.
    pub async fn node(&self, id: NodeId) -> Result<NodeView, ClientError> {
        self.get(As::Me, &["v1", "nodes", &id.to_string()], &NOTHING).await
    }

    /// `POST /v1/leases`. Repeating the call with the same `key` and body is safe and gives the same answer.
    pub async fn create_lease(&self, key: &str, lease: &NewLease) -> Result<Lease, ClientError> {
        let key = HeaderValue::from_str(key).map_err(|_| ClientError::Protocol {
            url: self.base_url().to_owned(),
            what: "the Idempotency-Key has characters that no header may carry".to_owned(),
        })?;
        let make = || {
            self.request(Method::POST, &["v1", "leases"])
                .header("Idempotency-Key", key.clone())
                .json(lease)
                .timeout(TIMEOUT)
        };
        let response = self.ask(As::Me, make).await?;
        let headers = Headers::of(&response);
        let lease: Lease = read(response).await?;
        self.keep_promise(&headers, Some(lease.id.seq))?;
        Ok(lease)
    }

    /// `POST /v1/leases?dry_run=true`: what `lease` would get now. Nothing comes of it, and no signature is needed.
    pub async fn quote(&self, lease: &NewLease) -> Result<Quote, ClientError> {
        let make = || {
            let call = self.request(Method::POST, &["v1", "leases"]).query(&[("dry_run", true)]);
            call.json(lease).timeout(TIMEOUT)
        };
        read(self.ask(As::Me, make).await?).await
    }

    /// Signs `lease` with the wallet for `pool` and asks for it. Repeat with the lease as it was signed: the salt is
    /// in it now.
    pub async fn create_signed_lease(
        &self,
        wallet: &LocalWallet,
        pool: &PoolId,
        key: &str,
        lease: &mut NewLease,
    ) -> Result<Lease, ClientError> {
        let mut tags = Vec::with_capacity(lease.datasets.len());
        for mount in &lease.datasets {
            tags.push(self.dataset(&mount.cid).await?.tag);
        }
        if let Some(image) = &lease.image {
            let view = self.image(image).await?;
            tags.push(view.tag);
            lease.image = Some(view.image);
        }
        sign_lease(lease, wallet, pool, key, tags).await?;
        self.create_lease(key, lease).await
    }

    /// `GET /v1/leases`.
    pub async fn leases(&self, page: &PageQuery) -> Result<LeasePage, ClientError> {
        self.get(As::Me, &["v1", "leases"], page).await
    }

    /// `GET /v1/leases/{id}`.
    pub async fn lease(&self, id: LeaseId) -> Result<Lease, ClientError> {
        self.get(As::Me, &["v1", "leases", &id.to_string()], &NOTHING).await
    }

    /// `GET /v1/leases`, of a name or with a label.
    pub async fn find_leases(&self, query: &LeaseQuery) -> Result<LeasePage, ClientError> {
        self.get(As::Me, &["v1", "leases"], query).await
    }

    /// `GET /v1/leases/{id}` of a lease by its id or name.
    pub async fn lease_called(&self, lease: &LeaseRef) -> Result<Lease, ClientError> {
        self.get(As::Me, &["v1", "leases", &lease.to_string()], &NOTHING).await
    }

    /// The id of a lease that is meant by its id or name: the controller is asked for a name only.
    pub async fn lease_id(&self, lease: &LeaseRef) -> Result<LeaseId, ClientError> {
        match lease {
            LeaseRef::Id(id) => Ok(*id),
            LeaseRef::Name(_) => self.lease_called(lease).await.map(|lease| lease.id),
        }
    }

    /// `GET /v1/leases/{id}/wait`: up to five minutes. Problem `wait_timeout` if the state was not reached,
    /// `state_unreachable` if it cannot be reached any more.
    pub async fn wait(&self, id: LeaseId, state: LeaseState, timeout: Duration) -> Result<Lease, ClientError> {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let query = [("state", state.code().to_owned()), ("timeout_ms", ms.to_string())];
        let id = id.to_string();
        let make = || {
            self.request(Method::GET, &["v1", "leases", &id, "wait"])
                .query(&query)
                .timeout(timeout.saturating_add(TIMEOUT))
        };
        read(self.ask(As::Me, make).await?).await
    }

    /// `GET /v1/leases/{id}/placement`.
    pub async fn placement(&self, id: LeaseId) -> Result<PlacementView, ClientError> {
        self.get(As::Me, &["v1", "leases", &id.to_string(), "placement"], &NOTHING).await
    }

    /// `POST /v1/datasets`: names a DAG whose blocks were put to the gateway before.
    pub async fn add_dataset(&self, dataset: &NewDataset) -> Result<Dataset, ClientError> {
        // Every block is read and verified, so this may take long.
        let make = || self.request(Method::POST, &["v1", "datasets"]).json(dataset);
        read(self.ask(As::Me, make).await?).await
    }

    /// `POST /v1/datasets` with the bytes of one file.
    pub async fn upload_dataset(&self, path: &Path, name: &str) -> Result<Dataset, ClientError> {
        let failed = |source| ClientError::File { path: path.display().to_string(), source };
        // A token that is fresh now: a body that is being sent cannot be sent again.
        let bearer = self.bearer().await?;
        let file = tokio::fs::File::open(path).await.map_err(failed)?;
        let length = file.metadata().await.map_err(failed)?.len();
        let chunks = futures::stream::try_unfold(file, |mut file| async move {
            let mut chunk = Vec::with_capacity(1 << 18);
            let read = tokio::io::AsyncReadExt::read_buf(&mut file, &mut chunk).await?;
            Ok::<_, std::io::Error>((read > 0).then_some((Bytes::from(chunk), file)))
        });
        let request = self
            .request(Method::POST, &["v1", "datasets"])
            .query(&[("name", name)])
            .bearer_auth(bearer)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(reqwest::header::CONTENT_LENGTH, length)
            .body(reqwest::Body::wrap_stream(chunks));
        read(crate::call::send(request).await?).await
    }

    /// `GET /v1/images`: what the name of an image stands for now.
    pub async fn image(&self, name: &str) -> Result<ImageView, ClientError> {
        self.get(As::Me, &["v1", "images"], &[("name", name)]).await
    }

    /// `GET /v1/datasets`.
    pub async fn datasets(&self, page: &PageQuery) -> Result<DatasetPage, ClientError> {
        self.get(As::Me, &["v1", "datasets"], page).await
    }

    /// `GET /v1/datasets/{cid}`.
    pub async fn dataset(&self, cid: &str) -> Result<Dataset, ClientError> {
        self.get(As::Me, &["v1", "datasets", cid], &NOTHING).await
    }

    /// `DELETE /v1/datasets/{cid}`.
    pub async fn remove_dataset(&self, cid: &str) -> Result<(), ClientError> {
        let make = || self.request(Method::DELETE, &["v1", "datasets", cid]).timeout(TIMEOUT);
        self.ask(As::Me, make).await.map(drop)
    }

    /// `GET /ipfs/{cid}`: the bytes of one block, **not verified** here; see `selion-dataplane` for a verified fetch.
    pub async fn block(&self, cid: &str) -> Result<Bytes, ClientError> {
        let make = || self.request(Method::GET, &["ipfs", cid]).query(&[("format", "raw")]).timeout(TIMEOUT);
        let response = self.ask(As::Me, make).await?;
        let url = response.url().to_string();
        response.bytes().await.map_err(|error| ClientError::unreachable(&url, &error))
    }

    /// `PUT /ipfs/{cid}`. True if the block was new there.
    pub async fn put_block(&self, cid: &str, bytes: Bytes) -> Result<bool, ClientError> {
        let make = || {
            self.request(Method::PUT, &["ipfs", cid])
                .header(CONTENT_TYPE, RAW_BLOCK)
                .body(bytes.clone())
                .timeout(TIMEOUT)
        };
        Ok(self.ask(As::Me, make).await?.status() == reqwest::StatusCode::CREATED)
    }
}
