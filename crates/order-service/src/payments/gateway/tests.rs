//! The client against the real sandbox, over real sockets: what each kind of failure is taken for.

use devstack::TempDir;
use sandbox_gateway::{Sandbox, Settings};
use testkit::wait::BOUND;
use testkit::{Request, until};

use super::*;
use crate::config::GatewaySettings;

/// Far above what an answer takes.
const TIMEOUT: Duration = Duration::from_secs(10);
/// For calls that shall time out; above what it takes to arrive.
const SHORT: Duration = Duration::from_secs(1);

struct Shop {
    sandbox: Sandbox,
    gateway: Gateway,
    /// The same, with little patience.
    hasty: Gateway,
    _store: TempDir,
}

fn secret(text: &str) -> Secret {
    Secret::from(text)
}

fn gateway(url: &str, timeout: Duration) -> Gateway {
    Gateway::new(url, &secret(Settings::API_KEY), timeout).expect("a gateway")
}

impl Shop {
    fn open() -> Self {
        let store = TempDir::new("gateway-client-").expect("a folder");
        let sandbox = sandbox_gateway::start(&Settings::new(store.path())).expect("a sandbox");
        let url = format!("http://{}/", sandbox.address());
        Self { gateway: gateway(&url, TIMEOUT), hasty: gateway(&url, SHORT), sandbox, _store: store }
    }

    async fn charge(&self, operation: &str, source: &str) -> Result<Charged, CallError> {
        self.gateway.charge(operation, 500, "EUR", source, &[("order", "o-1")]).await
    }

    async fn charged(&self, operation: &str) -> String {
        match self.charge(operation, "tok_visa").await {
            Ok(Charged::Succeeded { id }) => id,
            other => panic!("{other:?}"),
        }
    }

    /// The next call to `on` meets this fault.
    async fn fault(&self, on: &str, then: &str) {
        let plan = serde_json::json!({"next": [{"on": on, "then": then}]});
        let request = Request::post("/sandbox/faults").json(&plan);
        assert_eq!(testkit::send(self.sandbox.address(), &request).await.expect("an answer").status, 200);
    }

    async fn count(&self, what: &str) -> usize {
        let ledger = testkit::send(self.sandbox.address(), &Request::get("/sandbox/ledger")).await;
        ledger.expect("an answer").json()[what].as_array().map_or(0, Vec::len)
    }
}

fn is_unknown<T>(result: &Result<T, CallError>) -> bool {
    matches!(result, Err(CallError::Unknown(_)))
}

#[tokio::test]
async fn a_charge_is_made_once_and_found() {
    let shop = Shop::open();
    assert_eq!(shop.gateway.find_charge("op-1").await, Ok(Found::Absent));
    let id = shop.charged("op-1").await;
    assert_eq!(shop.charged("op-1").await, id);
    assert_eq!(shop.count("charges").await, 1);
    assert_eq!(shop.gateway.find_charge("op-1").await, Ok(Found::Done(Charged::Succeeded { id })));
    // A key may hold what the search language quotes.
    let id = shop.charged(r"it's \ 'quoted'").await;
    let found = shop.gateway.find_charge(r"it's \ 'quoted'").await;
    assert_eq!(found, Ok(Found::Done(Charged::Succeeded { id })));
}

#[tokio::test]
async fn a_decline_is_an_answer_and_found_as_one() {
    let shop = Shop::open();
    let declined = shop.charge("op-1", "tok_chargeDeclinedInsufficientFunds").await.expect("an answer");
    let Charged::Declined { code, message } = &declined else { panic!("{declined:?}") };
    assert_eq!(code, "insufficient_funds");
    assert!(message.contains("insufficient"), "{message}");
    assert_eq!(shop.gateway.find_charge("op-1").await, Ok(Found::Done(declined)));
}

#[tokio::test]
async fn lost_answers_are_unknown_and_the_charge_is_found() {
    let shop = Shop::open();
    for (number, source) in ["tok_cut_after_charge", "tok_500_after_charge"].into_iter().enumerate() {
        let result = shop.charge(source, source).await;
        assert!(is_unknown(&result), "{source}: {result:?}");
        let found = shop.gateway.find_charge(source).await.expect("an answer");
        assert!(matches!(found, Found::Done(Charged::Succeeded { .. })), "{source}: {found:?}");
        assert_eq!(shop.charge(source, source).await.map(Found::Done), Ok(found));
        assert_eq!(shop.count("charges").await, number + 1);
    }
    // Cut before: the same to us, and nothing is found.
    let result = shop.charge("op", "tok_cut_before_charge").await;
    assert!(is_unknown(&result), "{result:?}");
    assert_eq!(shop.gateway.find_charge("op").await, Ok(Found::Absent));
}

/// The call times out, its charge is not there yet, and comes: why `Absent` never allows another operation.
#[tokio::test]
async fn a_call_that_timed_out_may_still_charge() {
    let shop = Shop::open();
    let result = shop.hasty.charge("op-1", 500, "EUR", "tok_slow_4000", &[("order", "o-1")]).await;
    assert!(is_unknown(&result), "{result:?}");
    assert_eq!(shop.gateway.find_charge("op-1").await, Ok(Found::Absent));
    let meanwhile = shop.charge("op-1", "tok_slow_4000").await;
    assert!(matches!(meanwhile, Err(CallError::InProgress(_))), "{meanwhile:?}");
    let found = async || shop.gateway.find_charge("op-1").await != Ok(Found::Absent);
    until("the late charge", BOUND, found).await;
    assert!(matches!(shop.charge("op-1", "tok_slow_4000").await, Ok(Charged::Succeeded { .. })));
    assert_eq!(shop.count("charges").await, 1);
}

#[tokio::test]
async fn what_was_not_taken_can_be_repeated() {
    let shop = Shop::open();
    let limited = shop.charge("op-1", "tok_429_once").await;
    assert!(
        matches!(limited, Err(CallError::NotDone { retry_after: Some(_), .. })),
        "429 says when to come again: {limited:?}"
    );
    assert_eq!(shop.count("charges").await, 0);
    assert!(shop.charge("op-1", "tok_429_once").await.is_ok());

    let nobody = gateway("http://127.0.0.1:1", TIMEOUT).charge("op-1", 500, "EUR", "tok_visa", &[]).await;
    let Err(CallError::NotDone { why, retry_after: None }) = nobody else { panic!("{nobody:?}") };
    assert!(why.contains("refused") && !why.contains("127.0.0.1:1/"), "{why}");
}

#[tokio::test]
async fn a_source_that_nobody_knows_is_a_decline() {
    let shop = Shop::open();
    let charged = shop.charge("op-1", "tok_unheard_of").await;
    let Ok(Charged::Declined { code, message }) = charged else { panic!("{charged:?}") };
    assert!(code == "resource_missing" && message.contains("payment_method"), "{code}: {message}");
    assert_eq!(shop.count("charges").await, 0);
}

#[tokio::test]
async fn refusals_are_our_fault() {
    let shop = Shop::open();
    let refused = |result: Result<Charged, CallError>, word: &str| match result {
        Err(CallError::Refused(why)) => assert!(why.contains(word), "{why}"),
        other => panic!("{other:?}"),
    };
    let other =
        Gateway::new(&format!("http://{}", shop.sandbox.address()), &secret("sk_test_sesame"), TIMEOUT);
    let other = other.expect("a gateway");
    assert!(!format!("{other:?}").contains("sesame"), "{other:?}");
    refused(other.charge("op-1", 500, "EUR", "tok_visa", &[]).await, "401");
    refused(shop.gateway.charge("op-1", 500, "EURO", "tok_visa", &[]).await, "currency");
    refused(shop.gateway.charge("line\nbreak", 500, "EUR", "tok_visa", &[]).await, "header");
    shop.charged("op-1").await;
    refused(shop.gateway.charge("op-1", 501, "EUR", "tok_visa", &[]).await, "idempotency_error");
    assert_eq!(shop.count("charges").await, 1);
}

#[tokio::test]
async fn refunds_are_made_once_and_bounded_and_found() {
    let shop = Shop::open();
    let charge = shop.charged("op-1").await;
    assert_eq!(shop.gateway.find_refund("re-1", &charge).await, Ok(Found::Absent));
    shop.fault("refunds", "cut_after_refund").await;
    let lost = shop.gateway.refund("re-1", &charge, 300, &[]).await;
    assert!(is_unknown(&lost), "{lost:?}");
    let found = shop.gateway.find_refund("re-1", &charge).await.expect("an answer");
    assert_eq!(shop.gateway.refund("re-1", &charge, 300, &[]).await.map(Found::Done), Ok(found));
    assert_eq!(shop.count("refunds").await, 1);

    let refused = |code: &str, result| match result {
        Ok(Refunded::Refused { code: why, .. }) => assert_eq!(why, code),
        other => panic!("{other:?}"),
    };
    refused("amount_too_large", shop.gateway.refund("re-2", &charge, 201, &[]).await);
    assert!(matches!(shop.gateway.refund("re-3", &charge, 200, &[]).await, Ok(Refunded::Succeeded { .. })));
    refused("charge_already_refunded", shop.gateway.refund("re-4", &charge, 1, &[]).await);
    let none = shop.gateway.refund("re-5", "pi_none", 1, &[]).await;
    assert!(matches!(none, Err(CallError::Refused(_))), "{none:?}");
}

#[tokio::test]
async fn a_refund_is_found_behind_the_first_page() {
    let shop = Shop::open();
    let charge = shop.charged("op-1").await;
    for number in 0..=100 {
        shop.gateway.refund(&format!("re-{number}"), &charge, 1, &[]).await.expect("an answer");
    }
    // The oldest one comes last.
    let found = shop.gateway.find_refund("re-0", &charge).await;
    assert!(matches!(found, Ok(Found::Done(Refunded::Succeeded { .. }))), "{found:?}");
    assert_eq!(shop.gateway.find_refund("re-none", &charge).await, Ok(Found::Absent));
}

#[tokio::test]
async fn a_question_that_fails_is_no_absence() {
    let shop = Shop::open();
    for fault in ["500", "cut", "hang"] {
        shop.fault("reads", fault).await;
        let found = shop.hasty.find_charge("op-1").await;
        assert!(is_unknown(&found), "{fault}: {found:?}");
    }
    shop.fault("reads", "429").await;
    let found = shop.gateway.find_refund("re-1", "pi_1").await;
    assert!(matches!(found, Err(CallError::NotDone { .. })), "{found:?}");
}

#[test]
fn urls_that_cannot_be_a_gateways_are_refused_without_being_shown() {
    for bad in [
        "",
        "sesame",
        "ftp://sesame",
        "http://",
        "https://a:sesame@b",
        "https://a/?sesame",
        "https://a/#sesame",
    ] {
        let fault = parse_url(bad).expect_err(bad);
        assert!(fault.starts_with("GATEWAY_URL") && !fault.contains("sesame"), "{fault}");
    }
    assert!(parse_url("https://api.stripe.com").is_ok());
}

#[test]
fn half_a_gateway_is_a_contradiction_and_no_secret_is_shown() {
    let told = |url: Option<&str>, key: Option<&str>, timeout| GatewaySettings {
        gateway_url: url.map(str::to_owned),
        gateway_key: key.map(Secret::from),
        gateway_timeout: timeout,
        gateway_webhook_secret: None,
    };
    let (url, key) = (Some("http://api.example"), Some("sk_live_sesame"));
    assert!(matches!(told(None, None, TIMEOUT).gateway(), Ok(None)));
    assert!(matches!(told(url, key, TIMEOUT).gateway(), Ok(Some(_))));
    for (settings, name) in [
        (told(None, key, TIMEOUT), "GATEWAY_URL"),
        (told(url, None, TIMEOUT), "GATEWAY_KEY"),
        (told(url, Some(""), TIMEOUT), "GATEWAY_KEY"),
        (told(url, Some("sesame\n"), TIMEOUT), "GATEWAY_KEY"),
        (told(url, key, Duration::ZERO), "GATEWAY_TIMEOUT"),
        (told(Some("ftp://x"), key, TIMEOUT), "GATEWAY_URL"),
    ] {
        let fault = settings.gateway().expect_err("a contradiction");
        assert!(fault.contains(name) && !fault.contains("sesame"), "{fault}");
        assert!(!format!("{settings:?}").contains("sesame"), "{settings:?}");
    }
}
