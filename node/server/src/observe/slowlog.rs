//! Calls that took long, newest first. The time is what the client waits for: from the call to its answer, the way
//! through the log included.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use weir_stream::Reply;

/// Arguments that an entry shows.
const ARGS_MAX: usize = 32;
/// Bytes that it shows of each.
const ARG_BYTES_MAX: usize = 128;

/// See the module. Bounded by `slowlog-max-len`.
#[derive(Debug, Default)]
pub struct SlowLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<Entry>,
    next_id: i64,
    /// Since CONFIG RESETSTAT.
    calls: u64,
    us_sum: u64,
    us_max: u64,
}

/// One slow call.
#[derive(Debug, Clone)]
pub struct Slow {
    /// Unix seconds.
    pub at_s: u64,
    /// How long it took.
    pub us: u64,
    /// All its arguments, without secrets.
    pub args: Vec<Bytes>,
    /// Other end of the connection.
    pub addr: String,
    /// CLIENT SETNAME.
    pub name: Bytes,
}

#[derive(Debug)]
struct Entry {
    id: i64,
    slow: Slow,
    args: usize,
}

impl SlowLog {
    /// Notes a call, and forgets the oldest above `max`.
    pub fn note(&self, mut slow: Slow, max: usize) {
        let args = slow.args.len();
        slow.args = shortened(&slow.args);
        let mut log = self.0.lock();
        log.calls += 1;
        log.us_sum += slow.us;
        log.us_max = log.us_max.max(slow.us);
        let id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(Entry { id, slow, args });
        log.entries.truncate(max);
    }

    /// The newest.
    pub fn show(&self, count: usize) -> Reply {
        let text = |text: &str| Reply::Bulk(Bytes::copy_from_slice(text.as_bytes()));
        let entry = |entry: &Entry| {
            let slow = &entry.slow;
            Reply::Array(vec![
                Reply::Int(entry.id),
                Reply::Int(slow.at_s as i64),
                Reply::Int(slow.us as i64),
                Reply::Array(slow.args.iter().cloned().map(Reply::Bulk).collect()),
                text(&slow.addr),
                Reply::Bulk(slow.name.clone()),
                Reply::Int(entry.args as i64),
            ])
        };
        Reply::Array(self.0.lock().entries.iter().take(count).map(entry).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all.
    pub fn reset(&self) {
        self.0.lock().entries.clear();
    }

    /// How many there were, their time and the longest, in microseconds.
    pub fn totals(&self) -> (u64, u64, u64) {
        let log = self.0.lock();
        (log.calls, log.us_sum, log.us_max)
    }

    /// Totals start again.
    pub fn reset_totals(&self) {
        let mut log = self.0.lock();
        (log.calls, log.us_sum, log.us_max) = (0, 0, 0);
    }
}

/// As much of the arguments as an entry keeps, copied: they share memory with what was received.
fn shortened(args: &[Bytes]) -> Vec<Bytes> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut kept: Vec<Bytes> = args[..shown]
        .iter()
        .map(|arg| match arg.len().checked_sub(ARG_BYTES_MAX) {
            None | Some(0) => Bytes::copy_from_slice(arg),
            Some(more) => {
                let mut text = arg[..ARG_BYTES_MAX].to_vec();
                text.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
                Bytes::from(text)
            }
        })
        .collect();
    if args.len() > shown {
        kept.push(Bytes::from(format!("... ({} more arguments)", args.len() - shown)));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_long_arguments_are_cut() {
        let log = SlowLog::default();
        for n in 0..3 {
            let args = vec![Bytes::from(vec![b'x'; 130]); 30 + n];
            let slow = Slow { at_s: 7, us: n as u64, args, addr: "a".into(), name: Bytes::new() };
            log.note(slow, 2);
        }
        let Reply::Array(entries) = log.show(9) else { panic!() };
        assert_eq!(entries.len(), 2);
        let Reply::Array(newest) = &entries[0] else { panic!() };
        assert_eq!((&newest[0], &newest[6]), (&Reply::Int(2), &Reply::Int(32)));
        let cut = [&[b'x'; 128][..], b"... (2 more bytes)"].concat();
        let Reply::Array(args) = &newest[3] else { panic!() };
        assert_eq!(args[0], Reply::Bulk(cut.into()));
        let many = shortened(&vec![Bytes::from_static(b"y"); 40]);
        assert_eq!((many.len(), &many[31][..]), (32, &b"... (9 more arguments)"[..]));
        assert_eq!(log.totals(), (3, 3, 2));
    }
}
