//! What each stream command costs on a small and on a large stream, and whether that grows where it does not in Redis.
//!
//! One process of Weir that syncs nothing (`durability os`) and redis-server without persistence, one connection, one call
//! at a time: a disk would hide what the command itself costs.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokio::time::Instant;
use weir_resp::{Value, encode_command};
use weir_tests::connection::{Connection, words};
use weir_tests::process::{Cluster, ClusterOptions};

use crate::Plan;
use crate::report::{Cost, Report, median};
use crate::servers::peers::Programs;
use crate::servers::redis;

/// The servers as the table calls them.
pub(crate) const WEIR: &str = "weir";
pub(crate) const REDIS: &str = "redis";
/// Calls of each command; the middle one counts.
const CALLS: usize = 51;
/// Commands that are sent together while a stream is filled.
const TOGETHER: usize = 1000;
/// Pending entries that are asked for at once.
const DELIVERED: usize = 10_000;
const LIMIT: Duration = Duration::from_secs(60);

/// How much there is in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    entries: usize,
    /// Entries that group `g` delivered to consumer `c`, from the first on.
    pending: usize,
}

const SMALL: Size = Size { entries: 1_000, pending: 1_000 };
const MIDDLE: Size = Size { entries: 100_000, pending: 100_000 };
const LARGE: Size = Size { entries: 10_000_000, pending: 1_000_000 };

/// Measures all commands at all sizes; `large` also at ten million entries and a million pending ones.
pub(crate) async fn measure(
    plan: &Plan,
    programs: &Programs,
    report: &mut Report,
    large: bool,
) -> Result<()> {
    let sizes: &[Size] = if large { &[SMALL, MIDDLE, LARGE] } else { &[SMALL, MIDDLE] };
    for (turn, size) in sizes.iter().enumerate() {
        let dir = plan.dir.join(format!("complexity-{turn}"));
        let cluster = Cluster::start(ClusterOptions {
            weir: plan.weir.clone(),
            dir: dir.join("weir"),
            nodes: 1,
            arguments: words("--durability os")
                .into_iter()
                .chain(plan.node_arguments.iter().cloned())
                .collect(),
            hosts: Vec::new(),
        })
        .await?;
        of_server(WEIR, &cluster.address(0), *size, report).await?;
        drop(cluster);
        let (process, address) = redis::start(&programs.redis, &dir.join("redis"), &redis::MEMORY).await?;
        of_server(REDIS, &address, *size, report).await?;
        drop(process);
    }
    Ok(())
}

/// All commands on one server and a stream of this size.
async fn of_server(server: &'static str, address: &str, size: Size, report: &mut Report) -> Result<()> {
    eprintln!("  {}: {} entries, {} pending", server, size.entries, size.pending);
    let mut connection = Connection::open(address, LIMIT).await?;
    fill(&mut connection, size).await.context(server)?;
    for work in commands(size) {
        let mut taken = Vec::with_capacity(CALLS);
        for n in 0..CALLS {
            let line = work.line(&mut connection, n).await?;
            let began = Instant::now();
            match connection.call(&words(&line), LIMIT).await? {
                Value::Error(error) if server == WEIR => {
                    bail!("{line}: {}", String::from_utf8_lossy(&error))
                }
                // What this server does not know is not compared.
                Value::Error(_) => break,
                _ => taken.push(began.elapsed().as_secs_f64() * 1e6),
            }
        }
        if taken.len() == CALLS {
            let (command, us) = (work.name.to_owned(), median(taken));
            report.costs.push(Cost { command, server, entries: size.entries, us });
        }
    }
    Ok(())
}

/// A stream `s` of entries `1-1`, `2-1`, ..., its group `g` with pending ones, and a group `unread` with none.
async fn fill(connection: &mut Connection, size: Size) -> Result<()> {
    let mut at = 0;
    while at < size.entries {
        let many = TOGETHER.min(size.entries - at);
        let mut bytes = Vec::new();
        for n in at + 1..=at + many {
            encode_command(words(&format!("XADD s {n}-1 f v")), &mut bytes);
        }
        connection.send_raw(&bytes).await?;
        for _ in 0..many {
            expect(connection.receive().await?)?;
        }
        at += many;
    }
    for line in ["XGROUP CREATE s g 0", "XGROUP CREATE s unread 0"] {
        expect(connection.call(&words(line), LIMIT).await?)?;
    }
    let mut delivered = 0;
    while delivered < size.pending {
        let count = DELIVERED.min(size.pending - delivered);
        let line = format!("XREADGROUP GROUP g c COUNT {count} STREAMS s >");
        expect(connection.call(&words(&line), LIMIT).await?)?;
        delivered += count;
    }
    Ok(())
}

fn expect(reply: Value) -> Result<Value> {
    match reply {
        Value::Error(error) => Err(anyhow!("{}", String::from_utf8_lossy(&error))),
        reply => Ok(reply),
    }
}

/// A command, called again and again. In its text `{n}` is the number of the call, `{from 200}` the entry so many after the
/// 200th, `{second}` the second entry that there is now, `{length-1}` one less than there are.
struct Work {
    name: &'static str,
    text: String,
}

impl Work {
    async fn line(&self, connection: &mut Connection, n: usize) -> Result<String> {
        let mut line = self.text.replace("{n}", &n.to_string());
        if line.contains("{length-1}") {
            let Value::Int(length) = expect(connection.call(&words("XLEN s"), LIMIT).await?)? else {
                bail!("XLEN is no number");
            };
            line = line.replace("{length-1}", &(length - 1).to_string());
        }
        if line.contains("{second}") {
            let reply = expect(connection.call(&words("XRANGE s - + COUNT 2"), LIMIT).await?)?;
            line = line.replace("{second}", &second_id(&reply).context("fewer than two entries")?);
        }
        if let Some((before, rest)) = line.clone().split_once("{from ") {
            let (from, after) = rest.split_once('}').context("a brace")?;
            line = format!("{before}{}-1{after}", from.parse::<usize>()? + n);
        }
        Ok(line)
    }
}

fn second_id(reply: &Value) -> Option<String> {
    let Value::Array(rows) = reply else { return None };
    let Value::Array(row) = rows.get(1)? else { return None };
    Some(String::from_utf8_lossy(row.first()?.bytes()?).into_owned())
}

/// All stream commands, reads before those that change the stream. Writes take entries of their own, from the 200th on.
fn commands(size: Size) -> Vec<Work> {
    let middle = size.entries * 3 / 4;
    let pending = size.pending * 3 / 4;
    let entries = size.entries;
    let list: &[(&'static str, String)] = &[
        ("XLEN", "XLEN s".into()),
        ("XRANGE from the first, COUNT 10", "XRANGE s - + COUNT 10".into()),
        ("XRANGE from the middle, COUNT 10", format!("XRANGE s {middle}-0 + COUNT 10")),
        ("XREVRANGE from the last, COUNT 10", "XREVRANGE s + - COUNT 10".into()),
        ("XREVRANGE from the middle, COUNT 10", format!("XREVRANGE s {middle}-9 - COUNT 10")),
        ("XREAD from the middle, COUNT 10", format!("XREAD COUNT 10 STREAMS s {middle}-0")),
        ("XREAD with nothing new", "XREAD COUNT 10 STREAMS s $".into()),
        ("XINFO STREAM", "XINFO STREAM s".into()),
        ("XINFO STREAM FULL COUNT 10", "XINFO STREAM s FULL COUNT 10".into()),
        ("XINFO GROUPS", "XINFO GROUPS s".into()),
        ("XINFO CONSUMERS", "XINFO CONSUMERS s g".into()),
        ("XPENDING", "XPENDING s g".into()),
        ("XPENDING from the first, 10", "XPENDING s g - + 10".into()),
        ("XPENDING from the middle, 10", format!("XPENDING s g {pending}-0 + 10")),
        ("XPENDING of a consumer, 10", "XPENDING s g - + 10 c".into()),
        ("XREADGROUP >, COUNT 1", "XREADGROUP GROUP unread r COUNT 1 STREAMS s >".into()),
        ("XREADGROUP of the past, COUNT 10", format!("XREADGROUP GROUP g c COUNT 10 STREAMS s {pending}-0")),
        ("XREADGROUP CLAIM, none idle", "XREADGROUP GROUP unread r COUNT 1 CLAIM 9999999 STREAMS s >".into()),
        ("XAUTOCLAIM, none idle", "XAUTOCLAIM s g d 9999999 0 COUNT 10".into()),
        ("XAUTOCLAIM from the first, COUNT 1", "XAUTOCLAIM s g c 0 0 COUNT 1 JUSTID".into()),
        ("XCLAIM", "XCLAIM s g d 0 {from 200} JUSTID".into()),
        ("XACK", "XACK s g {from 260}".into()),
        ("XNACK", "XNACK s g FAIL IDS 1 {from 320}".into()),
        ("XDEL", "XDEL s {from 380}".into()),
        ("XDELEX DELREF", "XDELEX s DELREF IDS 1 {from 440}".into()),
        ("XACKDEL DELREF", "XACKDEL s g DELREF IDS 1 {from 500}".into()),
        ("XADD", "XADD s * f v".into()),
        ("XADD MAXLEN =, trims one", "XADD s MAXLEN = {length-1} * f v".into()),
        ("XADD MAXLEN ~", format!("XADD s MAXLEN ~ {entries} * f v")),
        ("XADD IDMPAUTO", "XADD s IDMPAUTO p{n} * f v".into()),
        ("XTRIM MAXLEN, trims one", "XTRIM s MAXLEN = {length-1}".into()),
        ("XTRIM MINID, trims one", "XTRIM s MINID = {second}".into()),
        ("XTRIM MAXLEN, trims nothing", format!("XTRIM s MAXLEN = {}", 2 * entries)),
        ("XGROUP CREATE at 0", "XGROUP CREATE s new{n} 0".into()),
        ("XGROUP SETID to 0", "XGROUP SETID s new{n} 0".into()),
        ("XGROUP CREATECONSUMER", "XGROUP CREATECONSUMER s g new{n}".into()),
        ("XGROUP DELCONSUMER of an idle one", "XGROUP DELCONSUMER s g new{n}".into()),
        ("XGROUP DESTROY of an empty one", "XGROUP DESTROY s new{n}".into()),
        ("XSETID", "XSETID s 9999999999999-1".into()),
    ];
    list.iter().map(|(name, text)| Work { name, text: text.clone() }).collect()
}

/// Whether a cost grows: to more than twice, and by more than what a busy machine adds to a call. Three nanoseconds for each
/// of 100,000 entries are as much.
pub(crate) fn grows(small: f64, large: f64) -> bool {
    large > 2.0 * small && large > small + 300.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_small_stream_take_entries_of_their_own() {
        let starts: Vec<usize> = commands(SMALL)
            .iter()
            .filter_map(|work| work.text.split_once("{from ")?.1.split_once('}')?.0.parse().ok())
            .collect();
        assert!(starts.windows(2).all(|pair| pair[0] + CALLS <= pair[1]), "{starts:?}");
        let last = starts.last().expect("some") + CALLS;
        assert!(last < SMALL.entries * 3 / 4, "reads look at the middle");
        // Two commands that trim one entry a call may not come to those that are looked for by id.
        assert!(3 * CALLS < starts[0]);
    }

    #[test]
    fn noise_is_no_growth() {
        assert!(!grows(50.0, 190.0));
        assert!(!grows(1000.0, 1900.0));
        assert!(grows(50.0, 400.0));
    }
}
