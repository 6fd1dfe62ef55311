//! Microbenchmarks of what every request passes through before and after the stores: canonical JSON, fingerprint, key, value.
//!
//! Pure functions of the framework's public surface, without server or runtime. `cargo bench -p bench`; a filter may follow
//! `--`. They tell where nanoseconds went between two commits; they are no measure of the service.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use idempotency::value::{self, Identity};
use idempotency::{AccountId, Asked, Finished, Generation, IdempotencyKey, StoredReply};
use uuid::Uuid;

/// Sizes of bodies, in bytes: those of the throughput suite.
const BODIES: [usize; 3] = [307, 4096, 65_536];
/// Largest reply that is kept, in bytes; the service's default.
const CACHE_BODY_MAX: usize = 16 * 1024;
/// Bytes of an ordinary reply.
const REPLY: usize = 400;
const ACCOUNT: AccountId = AccountId(42);

fn main() {
    divan::main();
}

/// An order of about so many bytes: items, as many as fit.
fn order(bytes: usize) -> Vec<u8> {
    let item = r#"{ "sku": "TEA-001", "quantity": 2 }"#;
    let items = vec![item; bytes / (item.len() + 2)].join(", ");
    format!(r#"{{ "note": "caf\u00e9", "items": [{items}] }}"#).into_bytes()
}

#[divan::bench(args = BODIES)]
fn canonicalize(bencher: Bencher<'_, '_>, bytes: usize) {
    let body = order(bytes);
    bencher.counter(BytesCount::of_slice(&body)).bench(|| idempotency::canonicalize(black_box(&body)));
}

#[divan::bench(args = BODIES)]
fn fingerprint(bencher: Bencher<'_, '_>, bytes: usize) {
    let canonical = idempotency::canonicalize(&order(bytes)).expect("JSON");
    bencher
        .counter(BytesCount::of_str(&canonical))
        .bench(|| Asked::compute("POST", "/v1/orders", "orders.create", black_box(canonical.as_bytes())));
}

#[divan::bench(args = ["8e03978e-40d5-43dd-bc93-6894a57f9324", "\"8e03978e-40d5-43dd-bc93-6894a57f9324\""])]
fn key(header: &str) -> bool {
    IdempotencyKey::parse(std::iter::once(black_box(header.as_bytes()))).is_ok()
}

fn identity() -> Identity {
    let fingerprint = Asked::compute("POST", "/v1/orders", "orders.create", b"{}").current;
    Identity { generation: Generation(7), fingerprint, account: ACCOUNT }
}

fn name() -> IdempotencyKey {
    IdempotencyKey::from_text("8e03978e-40d5-43dd-bc93-6894a57f9324").expect("a key")
}

fn answer() -> Finished {
    let headers = [("content-type", "application/json"), ("location", "/v1/orders/8e03978e")];
    let headers = headers.map(|(name, value)| (name.into(), value.into())).to_vec();
    let reply = StoredReply { status: 201, headers, body: vec![b'x'; REPLY] };
    Finished { reply, kept: true, request_id: Uuid::nil(), expires_ms: 1_800_000_000_000 }
}

#[divan::bench]
fn value_wanted(bencher: Bencher<'_, '_>) {
    let identity = identity();
    bencher.bench(|| value::wanted(black_box(&identity)));
}

#[divan::bench]
fn value_done(bencher: Bencher<'_, '_>) {
    let (identity, key, answer) = (identity(), name(), answer());
    bencher.bench(|| value::done(black_box(&identity), &key, black_box(&answer), CACHE_BODY_MAX));
}

#[divan::bench]
fn value_read_back(bencher: Bencher<'_, '_>) {
    let key = name();
    let value = value::done(&identity(), &key, &answer(), CACHE_BODY_MAX);
    bencher.bench(|| value::finished(black_box(&value), ACCOUNT, &key));
}
