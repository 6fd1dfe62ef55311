//! How many connections to PostgreSQL a service has, and how many of them work, while something else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::stack::connect;

/// Between two looks: seldom enough to cost nothing that is felt.
const EVERY: Duration = Duration::from_millis(50);
const SQL: &str = "
SELECT count(*), count(*) FILTER (WHERE state <> 'idle')
  FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()";

/// At most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connections {
    pub open: i64,
    /// Executing, or within a transaction.
    pub busy: i64,
}

/// Looks until it is told to end.
pub struct Watch {
    ends: Arc<AtomicBool>,
    looking: JoinHandle<anyhow::Result<Connections>>,
}

impl Watch {
    /// Watches the sessions of this application in the database.
    pub async fn start(database_url: &str, application: &'static str) -> anyhow::Result<Self> {
        let client = connect(database_url).await?;
        let look = client.prepare(SQL).await?;
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let looking = tokio::spawn(async move {
            let mut most = Connections::default();
            while !end.load(Ordering::Relaxed) {
                let row = client.query_one(&look, &[&application]).await?;
                most = Connections { open: most.open.max(row.get(0)), busy: most.busy.max(row.get(1)) };
                tokio::time::sleep(EVERY).await;
            }
            Ok(most)
        });
        Ok(Self { ends, looking })
    }

    pub async fn end(self) -> anyhow::Result<Connections> {
        self.ends.store(true, Ordering::Relaxed);
        self.looking.await?
    }
}
