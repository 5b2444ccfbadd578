//! Exactly-once appends against a stream that remembers ids and a network that loses things.

use crate::testing::{Act, World, say, slots};
use crate::{Client, EntryId, Error, Options, Producer};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_env::time::Instant;

/// What goes wrong with one append or transaction.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Done and answered.
    None,
    /// The connection closes before it is done.
    LostBefore,
    /// It is done, and the connection closes.
    LostAfter,
    /// Done, with the third answer.
    UnknownDone,
    /// Not done, with the third answer.
    UnknownNotDone,
    /// Not done, and the server says so.
    Refused,
}

/// A stream that remembers ids.
struct Memory {
    entries: Vec<String>,
    known: BTreeMap<(String, String), u64>,
    queued: Option<Vec<Vec<String>>>,
    largest: usize,
    fault: Box<dyn FnMut() -> Fault + Send>,
}

impl Memory {
    fn add(&mut self, words: &[String]) -> String {
        assert_eq!((words[0].as_str(), words[2].as_str(), words[5].as_str()), ("XADD", "IDMP", "*"));
        let known = (words[3].clone(), words[4].clone());
        let next = self.entries.len() as u64 + 1;
        let id = *self.known.entry(known).or_insert(next);
        if id == next {
            self.entries.push(words[7].clone());
        }
        let text = format!("{id}-0");
        format!("${}|{text}|", text.len())
    }

    fn act(&mut self, words: &[String]) -> Act {
        match words[0].as_str() {
            "MULTI" => {
                self.queued = Some(Vec::new());
                return say("+OK|");
            }
            "XADD" if self.queued.is_some() => {
                self.queued.as_mut().unwrap().push(words.to_vec());
                return say("+QUEUED|");
            }
            _ => {}
        }
        let (adds, head) = match words[0].as_str() {
            "XADD" => (vec![words.to_vec()], String::new()),
            "EXEC" => {
                let queued = self.queued.take().unwrap();
                let head = format!("*{}|", queued.len());
                (queued, head)
            }
            other => panic!("{other}"),
        };
        self.largest = self.largest.max(adds.len());
        let fault = (self.fault)();
        if matches!(fault, Fault::None | Fault::LostAfter | Fault::UnknownDone) {
            let answers: String = adds.iter().map(|words| self.add(words)).collect();
            return match fault {
                Fault::None => say(head + &answers),
                Fault::LostAfter => Act::Close,
                _ => say("-UNKNOWN the command may or may not have been applied|"),
            };
        }
        match fault {
            Fault::LostBefore => Act::Close,
            Fault::UnknownNotDone => say("-UNKNOWN the command may or may not have been applied|"),
            _ => say("-CLUSTERDOWN no leader|"),
        }
    }
}

fn stream(world: &World, maxsize: u64, fault: impl FnMut() -> Fault + Send + 'static) -> Arc<Mutex<Memory>> {
    let memory = Arc::new(Mutex::new(Memory {
        entries: Vec::new(),
        known: BTreeMap::new(),
        queued: None,
        largest: 0,
        fault: Box::new(fault),
    }));
    let shared = memory.clone();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), move |words| match words[0].as_str() {
        "XINFO" => say(format!(
            "%5|+length|:0|+last-generated-id|$3|0-0|+groups|:0|+idmp-duration|:100|+idmp-maxsize|:{maxsize}|"
        )),
        _ => shared.lock().act(words),
    });
    memory
}

async fn client(options: Options) -> Client {
    Client::connect_with(["a:1"], options).await.unwrap()
}

async fn producer(world: &World) -> Producer {
    client(world.options()).await.producer("s").open().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_entry_is_there_once_and_in_order_whatever_is_lost() {
    use Fault::{LostAfter, LostBefore, None, Refused, UnknownDone, UnknownNotDone};
    let faults = [LostAfter, None, UnknownDone, LostBefore, None, UnknownNotDone, Refused, None, LostAfter];
    for first in 0..faults.len() {
        let world = World::default();
        let mut at = first;
        let memory = stream(&world, 100, move || {
            at += 1;
            faults[at % faults.len()]
        });
        let producer = producer(&world).await;
        let mut appended = Vec::new();
        for n in 0..300 {
            appended.push(producer.send([("n", n.to_string())]).await.unwrap());
            if n % 7 == 0 {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
        for (n, appended) in appended.into_iter().enumerate() {
            assert_eq!(appended.await, Ok(EntryId::new(n as u64 + 1, 0)));
        }
        let wanted: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        assert_eq!(memory.lock().entries, wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn fewer_than_half_of_what_the_stream_remembers_is_ever_undecided() {
    for (maxsize, at_once) in [(100, 49), (10_000, 4999), (4, 1), (2, 1), (1, 1)] {
        let world = World::default();
        let memory = stream(&world, maxsize, || Fault::None);
        let producer = producer(&world).await;
        let mut last = None;
        for n in 0..6000 {
            last = Some(producer.send([("n", n.to_string())]).await.unwrap());
        }
        last.unwrap().await.unwrap();
        let largest = memory.lock().largest;
        // Sending takes turns with the producer's task, so a batch need not be full.
        assert!(largest <= at_once && largest >= at_once.min(49), "{largest} at once, maxsize {maxsize}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_is_given_up_as_unknown_before_half_of_the_remembered_time_is_over() {
    let world = World::default();
    stream(&world, 100, || Fault::LostAfter);
    let client = client(world.options()).await;
    let producer = client.producer("s").timeout(Duration::from_secs(1000)).open().await.unwrap();
    let began = Instant::now();
    let error = producer.append([("n", "1")]).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    let took = began.elapsed().as_secs();
    assert!((48..=50).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn an_append_that_was_refused_to_the_end_was_not_done() {
    let world = World::default();
    let memory = stream(&world, 100, || Fault::Refused);
    let error = producer(&world).await.append([("n", "1")]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(memory.lock().entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again_after_the_machine_was_asleep() {
    let world = World::default();
    let wall = world.wall_ahead_ms.clone();
    // The answer is lost, and the machine sleeps: only the wall clock goes on.
    let memory = stream(&world, 100, move || {
        *wall.lock() += 60_000;
        Fault::LostAfter
    });
    let error = producer(&world).await.append([("n", "1")]).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert_eq!(memory.lock().entries.len(), 1);
    assert_eq!(world.log().iter().filter(|line| line.contains("XADD")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_producer_makes_its_callers_wait() {
    for by_bytes in [false, true] {
        let world = World::default();
        stream(&world, 100, || Fault::Refused);
        let client = client(world.options()).await;
        let builder = client.producer("s");
        // An entry takes 15 bytes: `$1 n $1 1` with line ends.
        let builder = if by_bytes { builder.bytes_max(140 + 14) } else { builder.entries_max(11) };
        let producer = builder.open().await.unwrap();
        let mut waiting = Vec::new();
        let all = async {
            loop {
                waiting.push(producer.send([("n", "1")]).await.unwrap());
            }
        };
        let _: Result<(), _> = tokio::time::timeout(Duration::from_secs(5), all).await;
        assert_eq!(waiting.len(), 11, "by bytes: {by_bytes}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_larger_than_all_bounds_still_goes_alone() {
    let world = World::default();
    let memory = stream(&world, 100, || Fault::None);
    let client = client(world.options()).await;
    let producer = client.producer("s").bytes_max(10).batch_bytes_max(10).open().await.unwrap();
    let large = "x".repeat(1000);
    let all = (0..5).map(|_| producer.append([("n", large.as_str())]));
    for outcome in futures_util::future::join_all(all).await {
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    let memory = memory.lock();
    assert_eq!((memory.entries.len(), memory.largest), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_exactly_once_is_refused_before_anything_is_sent() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |_| {
        say("%3|+length|:0|+last-generated-id|$3|0-0|+groups|:0|")
    });
    let client_ = client(world.options()).await;
    assert!(matches!(client_.producer("s").open().await, Err(Error::Unsupported(_))));

    let world = World::default();
    stream(&world, 100, || Fault::None);
    let producer = producer(&world).await;
    assert!(matches!(producer.send(crate::Add::new()).await, Err(Error::Invalid(_))));
    assert!(matches!(producer.send_as("", [("n", "1")]).await, Err(Error::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn a_named_producer_is_recognised_by_the_callers_ids_alone() {
    let world = World::default();
    let memory = stream(&world, 100, || Fault::None);
    let client = client(world.options()).await;
    let mut ids = Vec::new();
    for _life in 0..2 {
        let producer = client.producer("s").id("billing").open().await.unwrap();
        ids.push(producer.send_as("order-1", [("n", "1")]).await.unwrap().await.unwrap());
        ids.push(producer.append([("n", "2")]).await.unwrap());
    }
    assert_eq!(ids[0], ids[2]);
    assert_ne!(ids[1], ids[3]);
    assert_eq!(memory.lock().entries, ["1", "2", "2"]);
}
