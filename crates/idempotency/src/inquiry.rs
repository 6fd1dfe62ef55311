//! What is known of a key when somebody only asks. Pure.

use crate::record::Record;

/// What is known of a key.
#[derive(Debug)]
pub enum Inquired {
    /// A record, within its key retention.
    Record(Record),
    /// Redis says that somebody is at work.
    Running,
}
