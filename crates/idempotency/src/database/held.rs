//! A connection with a statement under way.
//!
//! Knows that a dropped future does not stop its statement: whoever got the connection next would queue behind it. Invariant:
//! a connection goes back to the pool only through [`Held::give_back`].

use std::ops::Deref;
use std::time::Duration;

use tokio_postgres::NoTls;

use super::Object;

/// How long cancelling a statement may take.
const CANCEL_MAX: Duration = Duration::from_secs(1);

/// Discards the connection when it is dropped: a time-out, a client that left, a panic.
pub(crate) struct Held(Option<Object>);

impl Held {
    pub(crate) fn new(connection: Object) -> Self {
        Self(Some(connection))
    }

    /// The statement is over, and nothing of it is left on the connection.
    pub(crate) fn give_back(mut self) {
        self.0.take();
    }
}

impl Deref for Held {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.0.as_ref().expect("it leaves only with self")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            discard(connection);
        }
    }
}

/// Ends a connection in an unknown state: its statement is cancelled, so that locks go before the time-out, and the
/// session ends with the socket.
pub(crate) fn discard(connection: Object) {
    let cancel = connection.cancel_token();
    drop(Object::take(connection));
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            let _ = tokio::time::timeout(CANCEL_MAX, cancel.cancel_query(NoTls)).await;
        });
    }
}
