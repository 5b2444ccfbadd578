//! What a client does, again and again.

use weir_resp::encode_command;

use super::speech::{ENTRY_BYTES, Speech};

/// Entries of a prepared stream.
const PREPARED: usize = 2000;

/// One kind of work. Each connection has a stream of its own, and a group on it where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Adds an entry.
    Append,
    /// Reads that many new entries for a consumer.
    ReadGroup(usize),
    /// Reads that many new entries for a consumer, then acknowledges all of them.
    ReadGroupAck(usize),
    /// Acknowledges one entry.
    Ack,
    /// Reads that many entries by XRANGE.
    Range(usize),
    /// Reads that many entries by XREAD.
    Read(usize),
}

impl Work {
    pub(crate) fn name(self) -> String {
        match self {
            Work::Append => "XADD 100 B".into(),
            Work::ReadGroup(count) => format!("XREADGROUP COUNT {count}"),
            Work::ReadGroupAck(count) => format!("XREADGROUP {count} + XACK"),
            Work::Ack => "XACK".into(),
            Work::Range(count) => format!("XRANGE COUNT {count}"),
            Work::Read(count) => format!("XREAD COUNT {count}"),
        }
    }

    /// Whether it needs entries before it begins.
    fn prepared(self) -> bool {
        self != Work::Append
    }

    fn grouped(self) -> bool {
        matches!(self, Work::ReadGroup(_) | Work::ReadGroupAck(_) | Work::Ack)
    }
}

/// A client at work on its stream.
pub(crate) struct Job {
    work: Work,
    speech: Speech,
    key: String,
    /// The append, made once.
    append: (Vec<u8>, usize),
    /// Entries read or acknowledged so far; entry n has the id n-1, from 1.
    at: usize,
    /// For places that differ between clients and runs and yet repeat.
    draw: u64,
}

impl Job {
    pub(crate) fn new(work: Work, speech: Speech, key: String, number: usize) -> Job {
        let append = speech.append(&key);
        Job { work, speech, key, append, at: 0, draw: number as u64 + 1 }
    }

    /// Lays out the stream: requests, and the number of answers to them.
    pub(crate) fn preparation(&mut self) -> (Vec<u8>, usize) {
        let mut requests = Vec::new();
        if !self.work.prepared() {
            return (Vec::new(), 0);
        }
        assert!(self.speech == Speech::Resp, "only appends are measured of other protocols");
        let value = vec![b'x'; ENTRY_BYTES - 1];
        for n in 1..=PREPARED {
            let id = format!("{n}-1");
            requests.push(command(&[b"XADD", self.key.as_bytes(), id.as_bytes(), b"f", &value]));
        }
        if self.work.grouped() {
            requests.push(command(&[b"XGROUP", b"CREATE", self.key.as_bytes(), b"g", b"0"]));
        }
        if self.work == Work::Ack {
            requests.push(self.read_group(PREPARED));
        }
        (requests.concat(), requests.len())
    }

    /// What to send next, each with its number of answers; the next is sent when the answers to the one before are
    /// there. Together they are `pipeline` operations.
    pub(crate) fn next(&mut self, pipeline: usize) -> Vec<(Vec<u8>, usize)> {
        let mut steps: Vec<(Vec<u8>, usize)> = Vec::new();
        for _ in 0..pipeline {
            for (step, (bytes, answers)) in self.operation().into_iter().enumerate() {
                match steps.get_mut(step) {
                    Some((all, sum)) => {
                        all.extend_from_slice(&bytes);
                        *sum += answers;
                    }
                    None => steps.push((bytes, answers)),
                }
            }
        }
        steps
    }

    fn operation(&mut self) -> Vec<(Vec<u8>, usize)> {
        match self.work {
            Work::Append => vec![self.append.clone()],
            Work::ReadGroup(count) => vec![self.read_group_again(count)],
            Work::ReadGroupAck(count) => {
                let first = self.at % PREPARED;
                let read = self.read_group_again(count);
                vec![read, (self.ack(first, count), 1)]
            }
            Work::Ack => {
                let mut bytes = Vec::new();
                let mut answers = 1;
                if self.at > 0 && self.at.is_multiple_of(PREPARED) {
                    // All are acknowledged: they are delivered once more, to be acknowledged once more.
                    bytes.extend(self.set_id());
                    bytes.extend(self.read_group(PREPARED));
                    answers = 3;
                }
                bytes.extend(self.ack(self.at % PREPARED, 1));
                self.at += 1;
                vec![(bytes, answers)]
            }
            Work::Range(count) => {
                let start = self.place(count);
                vec![(
                    command(&[
                        b"XRANGE",
                        self.key.as_bytes(),
                        start.as_bytes(),
                        b"+",
                        b"COUNT",
                        number(count).as_bytes(),
                    ]),
                    1,
                )]
            }
            Work::Read(count) => {
                let after = self.place(count);
                vec![(
                    command(&[
                        b"XREAD",
                        b"COUNT",
                        number(count).as_bytes(),
                        b"STREAMS",
                        self.key.as_bytes(),
                        after.as_bytes(),
                    ]),
                    1,
                )]
            }
        }
    }

    /// Reads on; from the first entry again after the last.
    fn read_group_again(&mut self, count: usize) -> (Vec<u8>, usize) {
        let mut bytes = Vec::new();
        let mut answers = 1;
        if self.at > 0 && self.at.is_multiple_of(PREPARED) {
            bytes.extend(self.set_id());
            answers = 2;
        }
        bytes.extend(self.read_group(count));
        self.at += count;
        (bytes, answers)
    }

    fn read_group(&self, count: usize) -> Vec<u8> {
        let count = number(count);
        command(&[
            b"XREADGROUP",
            b"GROUP",
            b"g",
            b"c",
            b"COUNT",
            count.as_bytes(),
            b"STREAMS",
            self.key.as_bytes(),
            b">",
        ])
    }

    fn set_id(&self) -> Vec<u8> {
        command(&[b"XGROUP", b"SETID", self.key.as_bytes(), b"g", b"0"])
    }

    fn ack(&self, first: usize, count: usize) -> Vec<u8> {
        let ids: Vec<String> = (first..first + count).map(|n| format!("{}-1", n + 1)).collect();
        let mut words: Vec<&[u8]> = vec![b"XACK", self.key.as_bytes(), b"g"];
        words.extend(ids.iter().map(|id| id.as_bytes()));
        command(&words)
    }

    /// An id with at least `count` entries behind it.
    fn place(&mut self, count: usize) -> String {
        // A linear congruential generator, with the constants of Knuth's MMIX.
        self.draw = self.draw.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        format!("{}-1", (self.draw >> 33) as usize % (PREPARED - count) + 1)
    }
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_command(words.iter().copied(), &mut out);
    out
}

fn number(count: usize) -> String {
    count.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn a_reader_begins_again_after_the_last_entry() {
        let mut job = Job::new(Work::ReadGroupAck(100), Speech::Resp, "k".into(), 0);
        for _ in 0..PREPARED / 100 {
            let steps = job.next(1);
            assert_eq!(steps.iter().map(|(_, answers)| *answers).collect::<Vec<_>>(), [1, 1]);
        }
        let steps = job.next(1);
        assert_eq!(steps.iter().map(|(_, answers)| *answers).collect::<Vec<_>>(), [2, 1]);
        assert!(text(&steps[0].0).contains("SETID"));
        assert!(text(&steps[1].0).contains("\r\n1-1\r\n"), "the first entry is acknowledged again");
    }

    #[test]
    fn a_pipeline_is_so_many_operations() {
        let mut job = Job::new(Work::Append, Speech::RespWait, "k".into(), 0);
        let steps = job.next(16);
        assert_eq!(steps.iter().map(|(_, answers)| *answers).collect::<Vec<_>>(), [32]);
        assert_eq!(text(&steps[0].0).matches("WAIT").count(), 16);
    }
}
