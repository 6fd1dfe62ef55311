//! A proxy for PostgreSQL's protocol 3: counts round trips, and breaks them at a named statement.
//!
//! What a client sends before it has seen the answer to what it sent before is one [`Flight`], and a flight is
//! one round trip, however many statements it carries and in however many segments it arrives.
//!
//! Rules judge a statement where it is *executed* (the Bind that names it, or the simple Query), with the SQL text
//! that its connection prepared under that name. Rules on the server's side of a statement withhold every reply of
//! its flight that has not left yet: the client of a pipelined `INSERT`, `COMMIT` gets neither.
//!
//! It deliberately does not know TLS, COPY, SQL's own `PREPARE`, nor how many statements a simple Query holds.
//!
//! Invariant: a flight ends when everything in it is answered and the client had sent nothing else by then.
//!
//! ```no_run
//! # async fn example(server: std::net::SocketAddr) -> std::io::Result<()> {
//! use testkit::{Action, PgProxy, SqlMatch};
//!
//! let postgres = PgProxy::start(server).await?;
//! let lost = postgres.once(SqlMatch::executes("COMMIT"), Action::DropReplyAndCut);
//! // … a request through the service …
//! lost.reached().await;
//! assert_eq!(postgres.round_trips().len(), 3);
//! # Ok(()) }
//! ```

mod flight;
mod message;
mod session;

pub use flight::{Flight, Statement, Step};
pub use session::Postgres;

use crate::proxy::{Matcher, Proxy};

pub type PgProxy = Proxy<Postgres>;

/// Which statements a rule is about.
pub type SqlMatch = Matcher<Statement>;

impl Proxy<Postgres> {
    /// Every flight that began since the last [`Proxy::clear_log`], in order; those of connecting too.
    pub fn flights(&self) -> Vec<Flight> {
        self.log()
    }

    /// The flights that execute something: without those that only connect, prepare or close.
    pub fn round_trips(&self) -> Vec<Flight> {
        self.log().into_iter().filter(|flight| !flight.statements.is_empty()).collect()
    }

    /// The SQL texts executed since the last [`Proxy::clear_log`], flight by flight.
    pub fn queries(&self) -> Vec<String> {
        self.log().into_iter().flat_map(|flight| flight.statements).collect()
    }
}

impl Matcher<Statement> {
    pub fn any() -> SqlMatch {
        Matcher::new("any statement", |statement: &Statement| statement.step == Step::Execute)
    }

    /// A statement is executed whose text contains this. Upper and lower case differ.
    pub fn executes(part: &str) -> SqlMatch {
        Self::at(Step::Execute, "executed", part)
    }

    /// A statement is prepared (Parse) whose text contains this.
    pub fn prepares(part: &str) -> SqlMatch {
        Self::at(Step::Prepare, "prepared", part)
    }

    fn at(step: Step, verb: &str, part: &str) -> SqlMatch {
        let text = format!("a statement {verb} with {part:?}");
        let part = part.to_owned();
        Matcher::new(text, move |statement: &Statement| {
            statement.step == step && statement.sql.contains(&part)
        })
    }
}
