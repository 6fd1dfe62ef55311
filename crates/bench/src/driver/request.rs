//! Requests as bytes: built once, with a place for the key.
//!
//! Deliberately unknown: which system answers. All of them get the same bytes, which is what makes them comparable.
//! Invariant: two requests of one template differ in nothing but their key.

use uuid::Uuid;

/// Characters of a key: a UUID with its hyphens, as clients send.
const KEY_LEN: usize = uuid::fmt::Hyphenated::LENGTH;

/// One request without its key.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: Vec<u8>,
    key_at: usize,
}

impl Template {
    /// A POST of a JSON body.
    pub fn post(path: &str, api_key: &str, body: &str) -> Self {
        Self::build(path, api_key, "", body)
    }

    /// The same of a client that would rather wait than be told 409, for so many seconds.
    pub fn post_and_wait(path: &str, api_key: &str, seconds: u32, body: &str) -> Self {
        Self::build(path, api_key, &format!("prefer: wait={seconds}\r\n"), body)
    }

    fn build(path: &str, api_key: &str, further: &str, body: &str) -> Self {
        let mut bytes = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nidempotency-key: ").into_bytes();
        let key_at = bytes.len();
        bytes.extend_from_slice(&[b'0'; KEY_LEN]);
        let rest = format!(
            "\r\nauthorization: Bearer {api_key}\r\n{further}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        bytes.extend_from_slice(rest.as_bytes());
        Self { bytes, key_at }
    }

    /// The request under this key, to be sent as it is.
    pub fn with_key(&mut self, key: Uuid) -> &[u8] {
        key.hyphenated().encode_lower(&mut self.bytes[self.key_at..self.key_at + KEY_LEN]);
        &self.bytes
    }
}

/// Keys as clients make them: random, and cheap here (splitmix64 from a random start, no call to the kernel for each).
///
/// The last 12 digits are the same for a whole run, so that what it left in a store can be found again.
#[derive(Debug, Clone)]
pub struct Keys {
    state: u64,
    mark: u64,
}

/// The bits of a key that hold the run's mark: the last group of a UUID.
const MARK_BITS: u32 = 48;

impl Keys {
    /// Keys that end in this mark.
    pub fn marked(mark: u64) -> Self {
        Self { state: Uuid::new_v4().as_u64_pair().0, mark: mark & ((1 << MARK_BITS) - 1) }
    }

    /// Another sequence with the same mark.
    pub fn reseeded(&self) -> Self {
        Self::marked(self.mark)
    }

    pub fn next(&mut self) -> Uuid {
        let low = self.number() >> MARK_BITS << MARK_BITS | self.mark;
        let both = u128::from(self.number()) << u64::BITS | u128::from(low);
        uuid::Builder::from_random_bytes(both.to_be_bytes()).into_uuid()
    }

    /// A number below `bound`, for drawing what to order.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_differs() {
        let mut template = Template::post("/v1/orders", "osk_x", "{}");
        let first = template.with_key(Uuid::nil()).to_vec();
        let second = template.with_key(Uuid::max()).to_vec();
        assert_eq!(first.len(), second.len());
        let text = String::from_utf8(second).unwrap();
        assert!(text.contains("\r\nidempotency-key: ffffffff-ffff-ffff-ffff-ffffffffffff\r\n"), "{text}");
        assert!(text.starts_with("POST /v1/orders HTTP/1.1\r\n") && text.ends_with("\r\n\r\n{}"), "{text}");
        assert!(text.contains("\r\ncontent-length: 2\r\n"), "{text}");
    }

    #[test]
    fn keys_do_not_repeat_and_carry_the_mark() {
        let mut keys = Keys::marked(0xffff_1234_5678_9abc);
        let drawn: std::collections::HashSet<Uuid> = (0..10_000).map(|_| keys.next()).collect();
        assert_eq!(drawn.len(), 10_000);
        assert!(
            drawn.iter().all(|key| key.get_version_num() == 4 && key.to_string().ends_with("-123456789abc"))
        );
    }
}
