//! `order-service dev`: everything on a fresh machine, with one command.
//!
//! Private servers and the payment sandbox (unless URLs are given), schema, demo shop, service. Knows nothing of how servers are found or kept
//! (`devstack` does). Invariant: `dev.json` is only there complete, of one run at a time, and a second start has the same
//! data and key.

mod sandbox;

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use devstack::{
    Environment, Postgres, PostgresOptions, PostgresProgram, Redis, RedisOptions, RedisProgram, Servers,
    wait_until,
};
use serde_json::json;

use self::sandbox::Sandbox;
use crate::app::{self, Signals};
use crate::config::{DatabaseUrl, DevArgs, ServeArgs, Stores, contradictions};
use crate::{Extra, accounts, migrations, seed};

/// A run that ends while it starts a program leaves the folder locked for a moment more: between fork and exec the child
/// holds what its parent held.
const CLAIM_WAIT: Duration = Duration::from_secs(1);

/// The servers that this process started; ended with it.
#[derive(Default)]
struct Private {
    postgres: Option<Postgres>,
    redis: Option<Redis>,
}

pub(crate) async fn run(arguments: DevArgs, extra: Extra) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let directory = arguments.data_dir.clone();
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let _claim = claim(&directory)?;
    // A file from an earlier run would name ports that nobody listens on.
    let _ = fs::remove_file(directory.join("dev.json"));
    let faults = contradictions(&arguments.listen, &arguments.gateway, &arguments.limits);
    if !faults.is_empty() {
        bail!(faults.join("\nerror: "));
    }
    // Before anything is fetched or started.
    for (name, address) in [("BIND", arguments.listen.bind), ("ADMIN_BIND", arguments.listen.admin_bind)] {
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address} ({name})"))?;
    }
    // Said aloud: a shell that has them set for something else would have that migrated and seeded.
    for (name, url) in [("PostgreSQL", &arguments.database_url), ("Redis", &arguments.redis_url)] {
        if let Some(url) = url {
            let place = url.rsplit_once('@').map_or(url.as_str(), |(_, place)| place);
            println!(
                "using the {name} of {}_URL: {place}",
                if name == "Redis" { "REDIS" } else { "DATABASE" }
            );
        }
    }

    let starting = tokio::task::spawn_blocking({
        let (directory, database, redis) =
            (directory.clone(), arguments.database_url.is_none(), arguments.redis_url.is_none());
        move || start_servers(&directory, database, redis)
    });
    let private = tokio::select! {
        started = starting => started.context("the servers could not be started")??,
        // The watchdogs end whatever has been started.
        () = signals.next() => return Ok(()),
    };
    let database_url =
        arguments.database_url.clone().or_else(|| private.postgres.as_ref().map(Postgres::url));
    let redis_url = arguments.redis_url.clone().or_else(|| private.redis.as_ref().map(Redis::url));
    let told = &arguments.gateway;
    let sandbox = match told.gateway_url {
        Some(_) => None,
        None => Some(Sandbox::start(&directory, arguments.listen.bind, told).await?),
    };
    let gateway = sandbox.as_ref().map_or_else(|| told.clone(), |sandbox| sandbox.settings(told));
    let serve = ServeArgs {
        stores: Stores {
            database: DatabaseUrl { database_url: database_url.context("no PostgreSQL")? },
            redis_url: redis_url.context("no Redis")?,
        },
        listen: arguments.listen,
        gateway,
        limits: arguments.limits,
    };
    let served = serve_demo(&serve, &directory, signals, extra).await;
    let _ = fs::remove_file(directory.join("dev.json"));
    let sandbox_stopped = match sandbox {
        Some(sandbox) => sandbox.stop().await,
        None => Ok(()),
    };
    tokio::task::spawn_blocking(move || stop_servers(private))
        .await
        .context("the servers could not be stopped")??;
    served.and(sandbox_stopped)
}

/// Takes the folder for as long as the result lives: two runs would take each other's `dev.json` away.
fn claim(directory: &Path) -> anyhow::Result<File> {
    let folder = File::open(directory).with_context(|| format!("cannot open {}", directory.display()))?;
    // On a file system that cannot lock folders, the servers' own locks still tell.
    if !wait_until(CLAIM_WAIT, || !matches!(folder.try_lock(), Err(TryLockError::WouldBlock))) {
        bail!("{} is in use by another `dev`: stop it, or use another folder", directory.display());
    }
    Ok(folder)
}

async fn serve_demo(
    arguments: &ServeArgs,
    directory: &Path,
    signals: Signals,
    extra: Extra,
) -> anyhow::Result<()> {
    let url = &arguments.stores.database.database_url;
    migrations::apply(url).await?;
    let key = demo_key(directory)?;
    let client = migrations::connect(url).await?;
    seed::catalogue(&client).await?;
    accounts::store(&client, seed::ACCOUNT, &key).await?;
    drop(client);

    let app = app::start(arguments, extra)?;
    let file = write_dev_json(directory, arguments, &app, &key)?;
    println!("{}", greeting(&app, &key, &file));
    app.run_until_stopped(signals).await
}

fn start_servers(directory: &Path, postgres: bool, redis: bool) -> anyhow::Result<Private> {
    let report = |line: &str| println!("{line}");
    if !postgres && !redis {
        return Ok(Private::default());
    }
    let environment = Environment::of_this_process()?;
    // Only what is needed is looked for; both at once, so that one command installs what is missing.
    let (postgres, redis) = match (postgres, redis) {
        (true, true) => {
            let servers = Servers::resolve(&environment, &report)?;
            (Some(servers.postgres), Some(servers.redis))
        }
        (true, false) => (Some(PostgresProgram::resolve(&environment, &report)?), None),
        (false, _) => (None, Some(RedisProgram::resolve(&environment, &report)?)),
    };
    let mut private = Private::default();
    if let Some(program) = postgres {
        report(&format!("starting {} in {}", program.version(), directory.display()));
        let options = PostgresOptions::default();
        private.postgres = Some(Postgres::start(&program, directory.join("postgres"), options, &report)?);
    }
    if let Some(program) = redis {
        report(&format!("starting {} in {}", program.version(), directory.display()));
        let options = RedisOptions::default();
        private.redis = Some(Redis::start(&program, directory.join("redis"), options, &report)?);
    }
    Ok(private)
}

fn stop_servers(private: Private) -> anyhow::Result<()> {
    if let Some(mut redis) = private.redis {
        redis.stop()?;
    }
    if let Some(mut postgres) = private.postgres {
        postgres.stop()?;
    }
    Ok(())
}

/// The demo key is kept beside the data, readable by its owner only: every start has the same.
fn demo_key(directory: &Path) -> anyhow::Result<String> {
    let path = directory.join("demo-api-key");
    match fs::read_to_string(&path) {
        Ok(key) => Ok(key.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = accounts::generate()?;
            replace(&path, &key)?;
            Ok(key)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn write_dev_json(
    directory: &Path,
    arguments: &ServeArgs,
    app: &app::App,
    key: &str,
) -> anyhow::Result<PathBuf> {
    let path = directory.join("dev.json");
    let said = json!({
        "api": format!("http://{}", app.api),
        "admin": format!("http://{}", app.admin),
        "database_url": arguments.stores.database.database_url,
        "redis_url": arguments.stores.redis_url,
        "account": seed::ACCOUNT,
        "api_key": key,
        "pid": std::process::id(),
    });
    replace(&path, &format!("{}\n", serde_json::to_string_pretty(&said)?))?;
    Ok(path)
}

/// Writes a file that only its owner may read, whole or not at all.
fn replace(path: &Path, content: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let _ = fs::remove_file(&fresh);
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    })();
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn greeting(app: &app::App, key: &str, file: &Path) -> String {
    let api = app.api;
    format!(
        "\norder-service answers at http://{api} (health: http://{admin}/readyz, details: {file})\n\
         API key of account {account}: {key}\n\n\
         Paste this, twice: the second answer is the first one, and there is one order.\n\n  \
         curl -i http://{api}/v1/orders -H 'Authorization: Bearer {key}' -H 'Idempotency-Key: my-first-order' \
         -H 'Content-Type: application/json' -d '{{\"items\":[{{\"sku\":\"TEA-001\",\"quantity\":2}}]}}'\n\n\
         Ctrl-C stops the service and the servers that it started; their data stays in {directory}.\n",
        admin = app.admin,
        account = seed::ACCOUNT,
        file = file.display(),
        directory = file.parent().unwrap_or(Path::new(".")).display(),
    )
}
