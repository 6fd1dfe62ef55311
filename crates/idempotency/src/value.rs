//! The value of a key in Redis: a header at fixed offsets, then the stored reply as bytes.
//!
//! Knows the layout and nothing of connections. `gate/*.lua` reads the same offsets with string functions. Invariant: a
//! value that this module did not write is never read as one that it did (version, account, and a sum over the whole value and its key).
//!
//! ```text
//! 0      format version            2
//! 1      state                     R running, D done, N done and not kept (only where the result is),
//!                                  B done but too big for here: ask PostgreSQL
//! 2..10  database generation       big-endian
//! 10     fingerprint version
//! 11..43 fingerprint digest
//! 43..51 account                   big-endian, checked again before a replay
//! 51..59 expiry, ms since 1970     big-endian, zero while running
//! 59..75 running: owner token; done: id of the request that did it
//! 75..   the reply; running in the background: the id of its operation, 16 bytes
//! last 8 of a done value: XXH3 of everything before, with the key as its seed
//! ```

use crate::fingerprint::Fingerprint;
use crate::generation::Generation;
use crate::key::{AccountId, IdempotencyKey};
use crate::reply::{Finished, StoredReply};
use uuid::Uuid;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Version of this layout. A value of another version is left alone and counts as a miss.
pub const FORMAT: u8 = 2;
/// What an answer is recognised by: everything up to its expiry.
pub(crate) const WANTED_LEN: usize = 51;
const HEADER_LEN: usize = 59;
/// Room for what an acquire puts behind: a token and a lease.
const BEHIND_WANTED: usize = 24;
const REPLY_AT: usize = 75;
const SUM_LEN: usize = 8;

/// What is the same in every state.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// The database that the value speaks of.
    pub generation: Generation,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// Who asked.
    pub account: AccountId,
}

/// The owner of a lease: random, 16 bytes, known to one attempt only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// A token that nobody else has.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().into_bytes())
    }
}

fn header(state: u8, identity: &Identity, expires_ms: i64, capacity: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(HEADER_LEN + capacity);
    value.extend_from_slice(&[FORMAT, state]);
    value.extend_from_slice(&identity.generation.0.to_be_bytes());
    value.push(identity.fingerprint.version);
    value.extend_from_slice(&identity.fingerprint.digest);
    value.extend_from_slice(&identity.account.0.to_be_bytes());
    value.extend_from_slice(&expires_ms.to_be_bytes());
    value
}

/// What the answer to this request begins with, once it is there. What the acquire script writes in a place that it takes is made of
/// this: with state R, no expiry, and the owner's token behind.
pub fn wanted(identity: &Identity) -> Vec<u8> {
    let mut value = header(b'D', identity, 0, BEHIND_WANTED);
    value.truncate(WANTED_LEN);
    value
}

/// The operation in what the acquire script says of a place that runs in the background: `O` and its id.
pub fn operation(said: &[u8]) -> Option<Uuid> {
    Uuid::from_slice(said.strip_prefix(b"O")?).ok()
}

/// A finished answer. A reply whose body is not kept says where the result is; one that is larger than `body_max` bytes
/// leaves only the marker that it is done.
pub fn done(identity: &Identity, key: &IdempotencyKey, finished: &Finished, body_max: usize) -> Vec<u8> {
    if finished.reply.body.len() <= body_max {
        let state = if finished.kept { b'D' } else { b'N' };
        let mut value = header(state, identity, finished.expires_ms, finished.reply.body.len() + 96);
        value.extend_from_slice(finished.request_id.as_bytes());
        if finished.reply.encode(&mut value).is_some() {
            return sealed(value, key);
        }
    }
    sealed(header(b'B', identity, finished.expires_ms, SUM_LEN), key)
}

fn sealed(mut value: Vec<u8>, key: &IdempotencyKey) -> Vec<u8> {
    let sum = sum(&value, key);
    value.extend_from_slice(&sum);
    value
}

/// Tells what was cut, appended to, changed or copied from another key; it keeps nobody from writing a value of his own.
fn sum(value: &[u8], key: &IdempotencyKey) -> [u8; SUM_LEN] {
    xxh3_64_with_seed(value, xxh3_64(key.as_str().as_bytes())).to_be_bytes()
}

/// A done value without its sum, if that is right.
fn intact<'a>(value: &'a [u8], key: &IdempotencyKey) -> Option<&'a [u8]> {
    let (whole, seal) = value.split_last_chunk::<SUM_LEN>()?;
    (*seal == sum(whole, key)).then_some(whole)
}

/// Whether it says that the key was done, truly under this key, and no more than that.
pub fn is_marker(value: &[u8], key: &IdempotencyKey) -> bool {
    intact(value, key).is_some_and(|whole| whole.len() == HEADER_LEN && whole[..2] == [FORMAT, b'B'])
}

/// What the value of a running or done key was asked for.
pub fn fingerprint(value: &[u8]) -> Option<Fingerprint> {
    let digest = value.get(11..43)?.try_into().ok()?;
    Some(Fingerprint { version: *value.get(10)?, digest })
}

/// The answer in a done value, if it is one, whole, and of this account and key.
pub fn finished(value: &[u8], account: AccountId, key: &IdempotencyKey) -> Option<Finished> {
    let (header, rest) = intact(value, key)?.split_at_checked(HEADER_LEN)?;
    let (id, reply) = rest.split_at_checked(REPLY_AT - HEADER_LEN)?;
    let intact =
        header[0] == FORMAT && matches!(header[1], b'D' | b'N') && header[43..51] == account.0.to_be_bytes();
    if !intact {
        return None;
    }
    Some(Finished {
        kept: header[1] == b'D',
        expires_ms: i64::from_be_bytes(header[51..59].try_into().ok()?),
        request_id: Uuid::from_slice(id).ok()?,
        reply: StoredReply::decode(reply)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_done_value_is_read_back_by_its_account_only() {
        let identity = Identity {
            generation: Generation(7),
            fingerprint: crate::fingerprint::Asked::compute("POST", "/", "c", b"{}").current,
            account: AccountId(42),
        };
        let reply = StoredReply { status: 201, headers: vec![], body: b"\x00\xff{}".to_vec() };
        let whole = Finished { reply, kept: true, request_id: Uuid::now_v7(), expires_ms: 1_800_000_000_000 };
        let key = IdempotencyKey::from_text("k").unwrap();
        let value = done(&identity, &key, &whole, 16);
        assert_eq!(finished(&value, AccountId(42), &key), Some(whole.clone()));
        assert_eq!(finished(&value, AccountId(43), &key), None);
        assert_eq!(finished(&value, AccountId(42), &IdempotencyKey::from_text("l").unwrap()), None);
        assert_eq!(value[..51], wanted(&identity));
        let running = [&[value[0], b'R'], &value[2..51], &[0; 8], &Token::random().0[..]].concat();
        assert_eq!(finished(&running, AccountId(42), &key), None);
        let marker = done(&identity, &key, &whole, 3);
        assert_eq!(finished(&marker, AccountId(42), &key), None, "too big: only the marker");
        assert!(is_marker(&marker, &key) && !is_marker(&value, &key) && !is_marker(&marker[1..], &key));
        let reference = Finished { kept: false, ..whole };
        let referring = done(&identity, &key, &reference, 16);
        assert_eq!(finished(&referring, AccountId(42), &key), Some(reference));
        for cut in 0..value.len() {
            assert_eq!(finished(&value[..cut], AccountId(42), &key), None);
            let mut changed = value.clone();
            changed[cut] ^= 1;
            assert_eq!(finished(&changed, AccountId(42), &key), None, "changed at {cut}");
        }
        assert_eq!(finished(&[&value[..], b"x"].concat(), AccountId(42), &key), None);
        let mut newer = value;
        newer[0] += 1;
        assert_eq!(finished(&newer, AccountId(42), &key), None);
    }
}
