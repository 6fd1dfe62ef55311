//! What operators see: health, metrics and a page on a listener of its own; commands that ask (`doctor`, `verify`, `keys`).
//!
//! Invariant: a probe takes a bounded time, and neither /livez nor /readyz tells a stranger anything but the state.

mod asking;
pub(crate) mod doctor;
pub(crate) mod keys;
mod ops;
mod report;
pub(crate) mod verify;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use idempotency::gate::Gate;
use idempotency::http::{fallback_not_found, problem_response};
use idempotency::telemetry::{self, DURATION};
use idempotency::{Database, PoolUsage, PoolWatch, Shutdown, explain, problems};
use metrics::gauge;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::{auth, migrations};

/// How long one probe may take.
const PROBE_MAX: Duration = Duration::from_secs(2);
/// How often the recorder tidies up, so that its memory does not grow when nobody scrapes.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Upper bounds of the classes in which durations are counted, in seconds.
const DURATION_CLASSES: [f64; 14] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

const READY_SQL: &str = "
SELECT current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery(),
       COALESCE((SELECT max(version) FROM refinery_schema_history), 0)";

/// Installs the recorder of this process.
pub(crate) fn metrics_recorder() -> Option<PrometheusHandle> {
    let in_classes = Matcher::Full(DURATION.to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(in_classes, &DURATION_CLASSES).ok()?;
    let handle = builder.install_recorder().ok()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            telemetry::publish();
            upkeep.run_upkeep();
        }
    });
    Some(handle)
}

/// Every pool of the process; workers add theirs.
#[derive(Clone, Default)]
pub(crate) struct Pools(Arc<Mutex<Vec<PoolWatch>>>);

impl Pools {
    pub(crate) fn add(&self, database: &Database) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(database.watch());
    }

    fn usage(&self) -> PoolUsage {
        let mut all = PoolUsage::default();
        for pool in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            all += pool.usage();
        }
        all
    }
}

/// What the admin listener needs.
#[derive(Clone)]
pub(crate) struct Operator {
    database: Database,
    gate: Arc<Gate>,
    pools: Pools,
    metrics: Option<PrometheusHandle>,
    shutdown: Shutdown,
    token: Option<String>,
}

impl Operator {
    pub(crate) fn new(
        database: Database,
        gate: Arc<Gate>,
        pools: Pools,
        metrics: Option<PrometheusHandle>,
        shutdown: Shutdown,
        token: Option<String>,
    ) -> Self {
        Self { database, gate, pools, metrics, shutdown, token }
    }

    /// What is read when somebody asks, and not counted on the way.
    async fn look_around(&self) {
        telemetry::publish();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let PoolUsage { max, busy, idle, waiting } = self.pools.usage();
        gauge!("database_pool_connections_max").set(count(max));
        gauge!("database_pool_connections", "state" => "busy").set(count(busy));
        gauge!("database_pool_connections", "state" => "idle").set(count(idle));
        gauge!("database_pool_waiting").set(count(waiting));
        // Of a Redis that is away the last count stands.
        if let Ok(Some(evicted)) = tokio::time::timeout(PROBE_MAX, self.gate.evicted_keys()).await {
            gauge!("redis_evicted_keys").set(evicted as f64);
        }
    }

    /// The refusal for whoever has not the token, if one is set.
    fn refuses(&self, request: &HttpRequest) -> Option<HttpResponse> {
        let token = self.token.as_ref()?;
        let given = auth::bearer(request).unwrap_or_default();
        if bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
            return None;
        }
        Some(problem_response(&problems::UNAUTHENTICATED.because("send the ADMIN_TOKEN"), Uuid::now_v7()))
    }

    pub(crate) fn routes(&self, config: &mut ServiceConfig) {
        config
            .app_data(web::Data::new(self.clone()))
            .route("/livez", web::get().to(livez))
            .route("/readyz", web::get().to(readyz))
            .route("/metrics", web::get().to(metrics))
            .route("/ops", web::get().to(ops::page))
            .default_service(web::route().to(fallback_not_found));
    }

    /// Why the database cannot serve, if it cannot.
    pub(crate) async fn database_state(&self) -> Result<(), &'static str> {
        let rows = match tokio::time::timeout(PROBE_MAX, self.database.read(READY_SQL, &[])).await {
            Err(_) => return Err("database does not answer"),
            Ok(Err(error)) if error.is_temporary() => {
                tracing::debug!(error = explain(&error), "the database is away");
                return Err("database is away");
            }
            // The history is only there once migrated.
            Ok(Err(_)) => return Err("database is not migrated"),
            Ok(Ok(rows)) => rows,
        };
        match rows.first() {
            Some(row) if row.get(0) => Err("database is read-only"),
            Some(row) if row.get::<_, i32>(1) < migrations::newest() => Err("database is not migrated"),
            Some(_) => Ok(()),
            None => Err("database does not answer"),
        }
    }
}

async fn livez() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "status": "alive" }))
}

/// 503 when PostgreSQL is away, read-only or not migrated, or this replica is stopping; Redis away is `degraded`.
async fn readyz(operator: web::Data<Operator>) -> HttpResponse {
    let (database, redis) = tokio::join!(operator.database_state(), operator.gate.is_writable());
    let not_ready = if operator.shutdown.has_begun() { Some("stopping") } else { database.err() };
    match (not_ready, redis) {
        (Some(why), _) => {
            HttpResponse::ServiceUnavailable().json(json!({ "status": "unavailable", "reason": why }))
        }
        (None, false) => HttpResponse::Ok().json(json!({ "status": "degraded", "reason": "redis" })),
        (None, true) => HttpResponse::Ok().json(json!({ "status": "ready" })),
    }
}

async fn metrics(request: HttpRequest, operator: web::Data<Operator>) -> HttpResponse {
    if let Some(refused) = operator.refuses(&request) {
        return refused;
    }
    operator.look_around().await;
    let text = operator.metrics.as_ref().map(PrometheusHandle::render).unwrap_or_default();
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4")).body(text)
}
