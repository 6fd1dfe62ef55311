//! Standard Webhooks: secrets, and what they sign. Pure.
//!
//! Signed is `id.timestamp.body`, with HMAC-SHA256 under the bytes behind `whsec_`. Deliberately unknown here: the time;
//! whoever verifies has the timestamp judged by the database's clock. Invariant: a comparison takes the same time wherever
//! the first difference is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Random bytes of a secret.
const SECRET_LEN: usize = 24;
const PREFIX: &str = "whsec_";
/// Most signatures of one message that are looked at: a sender that rotates sends two.
const SIGNATURES_MAX: usize = 8;

/// The bytes of a secret.
#[derive(Clone)]
pub(crate) struct SigningKey(Vec<u8>);

/// A new secret, as text.
pub(crate) fn new_secret() -> Result<String, getrandom::Error> {
    let mut random = [0_u8; SECRET_LEN];
    getrandom::fill(&mut random)?;
    Ok(format!("{PREFIX}{}", STANDARD.encode(random)))
}

impl SigningKey {
    /// From `whsec_` and base64.
    pub(crate) fn parse(secret: &str) -> Option<Self> {
        let bytes = STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
        (!bytes.is_empty()).then_some(Self(bytes))
    }

    /// One entry of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        format!("v1,{}", STANDARD.encode(self.mac(id, &timestamp.to_string(), body).finalize().into_bytes()))
    }

    /// Whether one of the signatures in a `webhook-signature` header is ours.
    pub(crate) fn verifies(&self, signatures: &str, id: &str, timestamp: &str, body: &[u8]) -> bool {
        signatures.split(' ').take(SIGNATURES_MAX).any(|signature| {
            let given = signature.strip_prefix("v1,").and_then(|text| STANDARD.decode(text).ok());
            given.is_some_and(|given| self.mac(id, timestamp, body).verify_slice(&given).is_ok())
        })
    }

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn signs_and_verifies_as_the_specification_does() {
        let key = SigningKey::parse(SECRET).unwrap();
        assert_eq!(key.sign(ID, 1_614_265_330, BODY), SIGNATURE);
        let verifies = |signatures: &str| key.verifies(signatures, ID, "1614265330", BODY);
        assert!(verifies(SIGNATURE));
        assert!(verifies(&format!("v1,AAAA v1a,xxxx {SIGNATURE}")));
        assert!(!verifies(""));
        assert!(!verifies("v1,"));
        assert!(!verifies(&SIGNATURE.replace("v1,", "v2,")));
        assert!(!verifies(&format!("{}{SIGNATURE}", "v1,AAAA ".repeat(SIGNATURES_MAX))));
        assert!(!key.verifies(SIGNATURE, "msg_other", "1614265330", BODY));
        assert!(!key.verifies(SIGNATURE, ID, "1614265331", BODY));
        assert!(!key.verifies(SIGNATURE, ID, "1614265330", b"{}"));
        let other = SigningKey::parse(&new_secret().unwrap()).unwrap();
        assert!(!other.verifies(SIGNATURE, ID, "1614265330", BODY));
    }

    #[test]
    fn a_secret_is_whsec_and_base64() {
        for bad in ["", "whsec_", "whsec_?", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            assert!(SigningKey::parse(bad).is_none(), "{bad}");
        }
        let (one, two) = (new_secret().unwrap(), new_secret().unwrap());
        assert_ne!(one, two);
        assert_eq!(SigningKey::parse(&one).unwrap().0.len(), SECRET_LEN);
    }
}
