//! The framework's own problem kinds: one constant a row of the contract's answer table.
//!
//! A service adds its own kinds beside these. Invariant: `ALL` holds every constant of this file (the macro sees to it),
//! so that every code that can be answered has its page.

use crate::problem::{ProblemKind, SameKey};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $kind:expr;)*) => {
        $($(#[$doc])* pub const $name: &ProblemKind = &$kind;)*
        /// Every kind of this file.
        pub const ALL: &[&ProblemKind] = &[$($name),*];
    };
}

/// A refusal before any work: nothing was done, no key was taken.
const fn refusal(
    code: &'static str,
    status: u16,
    title: &'static str,
    retryable: bool,
    same_key: SameKey,
    page: &'static str,
) -> ProblemKind {
    ProblemKind { code, status, title, retryable, same_key, new_key_safe: false, retry_after_ms: 0, page }
}

/// A temporary no: the same request with the same key, later.
const fn later(
    code: &'static str,
    status: u16,
    title: &'static str,
    wait_ms: u64,
    page: &'static str,
) -> ProblemKind {
    ProblemKind {
        code,
        status,
        title,
        retryable: true,
        same_key: SameKey::Yes,
        new_key_safe: false,
        retry_after_ms: wait_ms,
        page,
    }
}

kinds! {
    /// The header is absent.
    KEY_MISSING = refusal("idempotency-key-missing", 400, "The Idempotency-Key header is missing", true, SameKey::Corrected,
        "Every POST needs an Idempotency-Key header: one unique value (a UUID, say) per intent, kept over all retries of it. \
         Nothing was done and no key was taken. Add the header and send the request again.");
    /// The header is not exactly one valid key.
    KEY_INVALID = refusal("idempotency-key-invalid", 400, "The Idempotency-Key header is not valid", true, SameKey::Corrected,
        "A key is 1 to 255 printable ASCII characters, in one header line, bare (without space, comma, semicolon or quote) or as \
         a quoted string. Nothing was done and no key was taken. Correct the header and send the request again.");
    /// The body cannot be read as what the route takes.
    INVALID_REQUEST = refusal("invalid-request", 400, "The request is not valid", false, SameKey::Corrected,
        "The body is not JSON, or not what this route takes; the detail names the field. Nothing was done and no key was taken: \
         correct the request and send it with the same key.");
    /// The caller is not known.
    UNAUTHENTICATED = refusal("unauthenticated", 401, "Credentials are missing or not valid", false, SameKey::Yes,
        "Send a valid API key as `Authorization: Bearer …`. Nothing was done and no key was taken.");
    /// The body did not arrive in time.
    REQUEST_TIMEOUT = refusal("request-timeout", 408, "The request body did not arrive in time", true, SameKey::Yes,
        "The connection stalled while the body was being sent. Nothing was done and no key was taken: send the request again.");
    /// The body is larger than the limit.
    BODY_TOO_LARGE = refusal("body-too-large", 413, "The request body is too large", false, SameKey::Corrected,
        "The body is larger than this service reads. Nothing was done and no key was taken.");
    /// Not JSON, or encoded.
    UNSUPPORTED_MEDIA_TYPE = refusal("unsupported-media-type", 415, "The media type is not supported", false, SameKey::Corrected,
        "Bodies are application/json, sent without Content-Encoding. Nothing was done and no key was taken.");
    /// There is nothing here.
    NOT_FOUND = refusal("not-found", 404, "There is nothing here", false, SameKey::Corrected,
        "No such path, or nothing with this id that belongs to the caller. Nothing was done. When the request was refused before \
         its handler ran, its key is still free: correct the path and send it again.");
    /// Nothing is known of this key.
    KEY_NOT_SEEN = refusal("key-not-seen", 404, "Nothing is finished under this key", true, SameKey::Yes,
        "No work under this key of yours is finished. It may never have been sent, it may be running right now, or its retention may \
         be over. Do not make a new key because of this answer: send the request with the same key.");
    /// The path takes other methods.
    METHOD_NOT_ALLOWED = refusal("method-not-allowed", 405, "The method is not allowed here", false, SameKey::Corrected,
        "The Allow header lists what this path takes. Nothing was done and no key was taken.");
    /// The first one is still running.
    REQUEST_IN_PROGRESS = later("request-in-progress", 409, "The first request with this key is still running", 1000,
        "Another request with this key is being worked on. Wait as long as Retry-After says and send the same request again: it \
         will get the first one's answer, or run if the first one failed. Do not make a new key: the first may still succeed.");
    /// Another operation of the caller is running.
    CALLER_BUSY = later("caller-busy", 409, "Another operation of this caller is running", 1000,
        "Of this operation only one runs at a time for each caller, and another one is running now, under another key. Nothing was \
         done. Wait as long as Retry-After says and send the same request with the same key again.");
    /// Another request used this key.
    KEY_REUSED = refusal("idempotency-key-reused", 422, "This key was used for another request", false, SameKey::FirstPayload,
        "A key belongs to the method, path and body that it was first sent with, and this request differs. Send the first payload \
         to get its answer; use a new key only for what really is a new intent.");
    /// Done, the answer is not kept.
    ALREADY_COMPLETED = refusal("already-completed", 409, "This was done already", false, SameKey::No,
        "The work under this key was done, and its answer is no longer kept. Location says where the result is. Do not repeat it \
         with a new key: that would do it twice.");
    /// Nobody knows what became of a foreign call.
    OUTCOME_UNKNOWN = later("outcome-unknown", 409, "The outcome is not known", 30_000,
        "The work calls another service, and nobody knows whether that did what it was asked: it did not answer, and does not say. \
         It is asked again for a while, then an operator decides; Location is the operation to look at. The same request with the same \
         key gets the answer once there is one. Do not make a new key: it may have been done.");
    /// A workflow was given up.
    ABANDONED = refusal("abandoned", 500, "The work was given up", false, SameKey::No,
        "The work was begun, could not be finished for too long, and was given up; what it held was given back. This is the answer of \
         its key for good. Look at the thing that it was about before you ask for it again with a new key.");
    /// The code does not fit the journal.
    WORKFLOW_CHANGED = refusal("workflow-changed", 500, "The work was begun by another version", true, SameKey::Yes,
        "The work was begun by another version of this service, and this one cannot go on with it. Nothing was done now, and an \
         operator sees it. Send the same request with the same key again, later. Do not make a new key: part of it was done.");
    /// A store or a limit stands in the way, for now.
    TEMPORARILY_UNAVAILABLE = later("temporarily-unavailable", 503, "The service cannot decide this now", 1000,
        "The database could not be asked, was too busy, or did not say in time whether the work was committed. Send the same request \
         with the same key again: if it was done, you get its answer; if not, it is done then. Do not make a new key.");
    /// Too many wait.
    OVERLOADED = later("overloaded", 503, "Too many requests are waiting", 1000,
        "The first request with this key is still running, and this process has no room for another one that waits for it. Send the \
         same request with the same key again, later. Do not make a new key: the first may still succeed.");
    /// The handler failed; nothing was stored.
    INTERNAL = refusal("internal", 500, "The request failed unexpectedly", true, SameKey::Yes,
        "What failed was rolled back, and no answer is stored. The same request with the same key may be sent again; work of several \
         steps goes on behind the last one that is done.");
}
