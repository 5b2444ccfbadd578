//! The life that every client lives, as `py/failover/life.py` has it: produce, group, acknowledge, blocking read, a leader
//! killed while it produces, reclaim what the dead consumer held.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::sleep;

/// While a leader is replaced a client may see errors for about a second; more than this is a fault.
const OUTAGE: Duration = Duration::from_secs(20);
const ENTRIES: usize = 200;

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
/// Ids and fields, in order.
pub type Rows = Vec<(String, HashMap<String, String>)>;
pub type Fields<'a> = &'a [(&'a str, &'a str)];

/// One step of a life in a client's own words.
pub trait Client: Clone + Send + Sync + 'static {
    fn add(&self, key: &str, fields: Fields<'_>) -> impl Future<Output = Result<String>> + Send;
    fn range(&self, key: &str) -> impl Future<Output = Result<Rows>> + Send;
    fn create_group(&self, key: &str, group: &str) -> impl Future<Output = Result<()>> + Send;
    fn read_group(
        &self,
        key: &str,
        group: &str,
        consumer: &str,
        count: usize,
    ) -> impl Future<Output = Result<Rows>> + Send;
    /// XREAD from `$`.
    fn blocking_read(&self, key: &str, wait: Duration) -> impl Future<Output = Result<Rows>> + Send;
    fn ack(&self, key: &str, group: &str, ids: &[String]) -> impl Future<Output = Result<usize>> + Send;
    fn pending(&self, key: &str, group: &str) -> impl Future<Output = Result<usize>> + Send;
    fn claim(
        &self,
        key: &str,
        group: &str,
        consumer: &str,
        count: usize,
    ) -> impl Future<Output = Result<Rows>> + Send;
}

/// Lives it; panics, which ends the process with an error, where something is not as it has to be.
pub async fn live(c: impl Client) {
    let tag = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    let (key, quiet) = (format!("life:{{{tag:x}}}:jobs"), format!("life:{{{tag:x}}}:quiet"));
    let mut added = Vec::new();
    for n in 0..ENTRIES {
        let fields = [("n", n.to_string()), ("bytes", "\u{e9}\r\n".to_owned())];
        let fields: Vec<(&str, &str)> = fields.iter().map(|(k, v)| (*k, v.as_str())).collect();
        added.push(c.add(&key, &fields).await.expect("added"));
    }
    let rows = c.range(&key).await.expect("read");
    assert_eq!(ids(&rows), added);
    assert_eq!(rows[7].1["n"], "7");
    assert_eq!(rows[7].1["bytes"], "\u{e9}\r\n");
    println!("ok produce");

    c.create_group(&key, "g").await.expect("created");
    let alice = ids(&c.read_group(&key, "g", "alice", ENTRIES / 2).await.expect("read"));
    let bob = ids(&c.read_group(&key, "g", "bob", ENTRIES).await.expect("read"));
    assert_eq!([alice.clone(), bob.clone()].concat(), added);
    assert_eq!(alice.len(), ENTRIES / 2);
    assert_eq!(c.ack(&key, "g", &bob).await.expect("acknowledged"), bob.len());
    assert_eq!(c.pending(&key, "g").await.expect("counted"), alice.len());
    println!("ok group");

    let reading = tokio::spawn({
        let (c, quiet) = (c.clone(), quiet.clone());
        async move { c.blocking_read(&quiet, Duration::from_secs(10)).await }
    });
    while !reading.is_finished() {
        // The reader may not wait yet.
        c.add(&quiet, &[("n", "wake")]).await.expect("added");
        sleep(Duration::from_millis(50)).await;
    }
    let woken = reading.await.expect("no panic").expect("read");
    assert_eq!(woken[0].1["n"], "wake");
    println!("ok blocking read");

    let before = added.len();
    let gap = produce_through_a_failover(&c, &key, &mut added).await;
    let all: HashSet<String> = ids(&insist(|| c.range(&key)).await).into_iter().collect();
    let lost: Vec<&String> = added.iter().filter(|id| !all.contains(*id)).collect();
    assert!(lost.is_empty(), "answered, and lost: {lost:?}");
    println!("gap {:.2}", gap.as_secs_f64());
    println!("ok failover: {} appended meanwhile, none lost", added.len() - before);

    let claimed = ids(&insist(|| c.claim(&key, "g", "carol", ENTRIES)).await);
    assert_eq!(claimed, alice);
    assert_eq!(c.ack(&key, "g", &claimed).await.expect("acknowledged"), claimed.len());
    let rest = ids(&c.read_group(&key, "g", "carol", 100 * ENTRIES).await.expect("read"));
    let mut owed = all;
    owed.retain(|id| !alice.contains(id) && !bob.contains(id));
    assert_eq!(rest.iter().cloned().collect::<HashSet<_>>(), owed);
    assert_eq!(c.ack(&key, "g", &rest).await.expect("acknowledged"), rest.len());
    assert_eq!(c.pending(&key, "g").await.expect("counted"), 0);
    println!("ok reclaim");
}

/// Appends until ENTRIES are answered after the kill; the longest time between two answers.
async fn produce_through_a_failover(c: &impl Client, key: &str, added: &mut Vec<String>) -> Duration {
    println!("failover {key}");
    let killing = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "killed");
    });
    let (mut gap, mut last, mut after) = (Duration::ZERO, Instant::now(), 0);
    while after < ENTRIES {
        added.push(insist(|| c.add(key, &[("n", "during")])).await);
        gap = gap.max(last.elapsed());
        last = Instant::now();
        after += usize::from(killing.is_finished());
        sleep(Duration::from_millis(1)).await;
    }
    killing.await.expect("killed");
    gap
}

/// What an application does: repeats a call that failed. An append that failed may have happened all the same.
async fn insist<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + OUTAGE;
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn ids(rows: &Rows) -> Vec<String> {
    rows.iter().map(|(id, _)| id.clone()).collect()
}
