//! A proxy for Redis: one reply for each command, in order.
//!
//! It deliberately does not know what a script does, nor publish/subscribe and `CLIENT REPLY`, which answer out
//! of step: their replies pass, but rules and the log pair them wrongly.
//!
//! Invariant: a reply belongs to the oldest command of its connection that has none; RESP3 pushes belong to none.
//!
//! ```no_run
//! # async fn example(server: std::net::SocketAddr, sha: &str) -> std::io::Result<()> {
//! use testkit::{Action, CommandMatch, RedisProxy};
//!
//! let redis = RedisProxy::start(server).await?;
//! let settled = redis.once(CommandMatch::script([sha]).nth(2), Action::DropReplyAndCut);
//! // … a request through the service …
//! settled.reached().await;
//! # Ok(()) }
//! ```

mod command;
mod resp;
mod session;

pub use command::Command;
pub use session::Redis;

use crate::proxy::{Matcher, Proxy};

pub type RedisProxy = Proxy<Redis>;

/// Which commands a rule is about.
pub type CommandMatch = Matcher<Command>;

impl Proxy<Redis> {
    /// Every command that clients have sent since the last [`Proxy::clear_log`], in order of arrival.
    pub fn commands(&self) -> Vec<Command> {
        self.log()
    }
}

impl Matcher<Command> {
    pub fn any() -> CommandMatch {
        Matcher::new("any command", |_| true)
    }

    /// The command's name, in any case.
    pub fn name(name: &str) -> CommandMatch {
        let wanted = name.to_ascii_uppercase();
        Matcher::new(format!("command {wanted}"), move |command: &Command| command.name == wanted)
    }

    /// The script's SHA-1, as EVALSHA has it, is one of these. A reply of NOSCRIPT does not count as a match for
    /// the actions on replies: nothing was executed.
    pub fn script<I: IntoIterator<Item: Into<String>>>(shas: I) -> CommandMatch {
        let shas: Vec<String> = shas.into_iter().map(Into::into).collect();
        Matcher::new(format!("script {}", shas.join(" or ")), move |command: &Command| {
            command.script.as_ref().is_some_and(|script| shas.contains(script))
        })
    }

    /// One of the command's keys contains the text.
    pub fn key_contains(part: &str) -> CommandMatch {
        let part = part.to_owned();
        Matcher::new(format!("a key with {part:?}"), move |command: &Command| {
            command.keys.iter().any(|key| key.contains(&part))
        })
    }
}
