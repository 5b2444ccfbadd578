//! Where calls go, what is tried again, and what strange servers lead to.

use crate::testing::{Act, World, say, slots};
use crate::{Client, EntryId, Error, Fate, Options};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weir_env::time::Instant;

/// Both halves of the slots at a:1 and b:2. `foo` (12182) is at b, `bar` (5061) at a.
fn halves() -> &'static str {
    slots(&[(0, 8191, "a", 1), (8192, 16383, "b", 2)])
}

fn nothing(words: &[String]) -> Act {
    panic!("nothing was to come here: {words:?}")
}

async fn client(world: &World) -> Client {
    world.connect(&["a:1"]).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_command_goes_to_the_leader_of_its_key() {
    let world = World::default();
    world.cluster_node("a:1", halves(), nothing);
    world.cluster_node("b:2", halves(), |_| say("$3|5-1|"));
    let id = client(&world).await.xadd("foo").maxlen_approx(10).field("k", "v").await;
    assert_eq!(id, Ok(EntryId::new(5, 1)));
    assert_eq!(world.log(), ["b:2 XADD foo MAXLEN ~ 10 * k v"]);
}

#[tokio::test(start_paused = true)]
async fn a_moved_slot_is_followed_at_once_and_remembered() {
    let world = World::default();
    let maps = AtomicUsize::new(0);
    world.node("a:1", move |words| match words[0].as_str() {
        "HELLO" => say("%0|"),
        "CLUSTER" if maps.fetch_add(1, Ordering::Relaxed) == 0 => say(slots(&[(0, 16383, "a", 1)])),
        "CLUSTER" => Act::Ignore,
        _ => say("-MOVED 12182 b:2|"),
    });
    world.cluster_node("b:2", halves(), |_| say(":7|"));
    let client = client(&world).await;
    let began = Instant::now();
    assert_eq!(client.xlen("foo").await, Ok(7));
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(client.leader_of("foo").as_deref(), Some("b:2"));
    assert_eq!(world.log(), ["a:1 XLEN foo", "b:2 XLEN foo"]);
}

#[tokio::test(start_paused = true)]
async fn asking_goes_before_the_command_and_is_not_remembered() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |_| say("-ASK 12182 b:2|"));
    world.cluster_node("b:2", halves(), |words| say(if words[0] == "ASKING" { "+OK|" } else { ":7|" }));
    let client = client(&world).await;
    assert_eq!(client.xlen("foo").await, Ok(7));
    assert_eq!(client.leader_of("foo").as_deref(), Some("a:1"));
    assert_eq!(world.log(), ["a:1 XLEN foo", "b:2 ASKING", "b:2 XLEN foo"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_done_is_tried_again_after_growing_pauses() {
    for refusal in ["-TRYAGAIN x|", "-CLUSTERDOWN x|", "-LOADING x|", "-BUSY x|"] {
        let world = World::default();
        let count = Arc::new(AtomicUsize::new(0));
        world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), move |_| {
            if count.fetch_add(1, Ordering::Relaxed) < 5 { say(refusal) } else { say("$3|1-1|") }
        });
        let client = client(&world).await;
        let began = Instant::now();
        assert_eq!(client.xadd("foo").field("k", "v").await, Ok(EntryId::new(1, 1)), "{refusal}");
        // 10 + 20 + 40 + 80 + 160 ms, each at most halved.
        let took = began.elapsed();
        assert!((155..=310).contains(&took.as_millis()), "{took:?}");
        assert_eq!(world.log().len(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_end_ends_at_the_deadline_and_says_that_nothing_was_done() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |_| say("-CLUSTERDOWN no leader|"));
    let client = client(&world).await;
    let began = Instant::now();
    let error = client.xadd("foo").field("k", "v").timeout(Duration::from_secs(3)).await.unwrap_err();
    assert!(began.elapsed() <= Duration::from_secs(3));
    assert!(matches!(&error, Error::Unavailable { last, .. } if last.contains("no leader")), "{error}");
    assert_eq!(error.fate(), Fate::NotDone);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_that_send_to_each_other_do_not_keep_a_call_forever() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |_| say("-MOVED 12182 b:2|"));
    world.cluster_node("b:2", slots(&[(0, 16383, "a", 1)]), |_| say("-MOVED 12182 a:1|"));
    let client = client(&world).await;
    let began = Instant::now();
    let error = client.xlen("foo").await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(began.elapsed() <= Duration::from_secs(10));
    assert!(world.log().len() < 60, "{} attempts", world.log().len());
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_unknown_and_sent_once() {
    for act in
        [|| Act::Close, || Act::Ignore, || say("-UNKNOWN the command may or may not have been applied|")]
    {
        let world = World::default();
        world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), move |_| act());
        let client = client(&world).await;
        let error = client.xadd("foo").field("k", "v").await.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error}");
        assert_eq!(error.fate(), Fate::Unknown);
        assert_eq!(world.log().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_without_an_answer_is_sent_again() {
    for act in [|| Act::Close, || Act::Ignore, || say("-UNKNOWN x|")] {
        let world = World::default();
        let count = Arc::new(AtomicUsize::new(0));
        world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), move |_| {
            if count.fetch_add(1, Ordering::Relaxed) == 0 { act() } else { say(":3|") }
        });
        assert_eq!(client(&world).await.xlen("foo").await, Ok(3));
        assert_eq!(world.log().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_by_whom_the_others_name() {
    let world = World::default();
    // a says that b leads; nobody is at b; then a names c.
    world.cluster_node("a:1", slots(&[(0, 16383, "b", 2), (0, 0, "a", 1)]), |_| say("-MOVED 12182 c:3|"));
    world.cluster_node("c:3", halves(), |_| say("$3|1-1|"));
    let client = client(&world).await;
    assert_eq!(client.xadd("foo").field("k", "v").await, Ok(EntryId::new(1, 1)));
}

#[tokio::test(start_paused = true)]
async fn one_living_seed_is_enough() {
    let world = World::default();
    world.silent("silent:1");
    world.cluster_node("a:1", halves(), |_| say("+PONG|"));
    world.cluster_node("b:2", halves(), |_| say("+PONG|"));
    let began = Instant::now();
    let client = world.connect(&["dead:1", "silent:1", "a:1"]).await.unwrap();
    assert!(began.elapsed() <= Duration::from_millis(600), "{:?}", began.elapsed());
    assert_eq!(client.nodes(), ["a:1", "b:2"]);
}

#[tokio::test(start_paused = true)]
async fn connecting_to_nobody_ends_at_the_deadline_and_tells_what_was_tried() {
    let world = World::default();
    world.silent("silent:1");
    let began = Instant::now();
    let error = world.connect(&["dead:1", "silent:1"]).await.unwrap_err();
    assert!(began.elapsed() <= Duration::from_secs(10));
    let Error::Unreachable { tried } = &error else { panic!("{error}") };
    assert_eq!(tried.len(), 2, "{error}");
    let none: [&str; 0] = [];
    assert_eq!(Client::connect(none).await.unwrap_err(), Error::Unreachable { tried: vec![] });
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_told_at_once() {
    let world = World::default();
    world.node("a:1", |words| match words[0].as_str() {
        "HELLO" => say("-WRONGPASS invalid username-password pair or user is disabled.|"),
        _ => panic!("{words:?}"),
    });
    let began = Instant::now();
    let options = world.options().user("app", "wrong");
    let error = Client::connect_with(["a:1"], options).await.unwrap_err();
    assert!(matches!(&error, Error::Auth(e) if e.code() == "WRONGPASS"), "{error}");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_password_travels_in_the_greeting() {
    let world = World::default();
    let greetings = Arc::new(Mutex::new(Vec::new()));
    let seen = greetings.clone();
    world.node("a:1", move |words| match words[0].as_str() {
        "HELLO" => {
            seen.lock().push(words.join(" "));
            say("%1|+proto|:3|")
        }
        _ => say(slots(&[(0, 16383, "a", 1)])),
    });
    let options = world.options().user("app", "secret").name("billing");
    let client = Client::connect_with(["a:1"], options).await.unwrap();
    assert_eq!(*greetings.lock(), ["HELLO 3 AUTH app secret SETNAME billing"]);
    assert!(!format!("{client:?} {:?}", client.options()).contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn an_old_server_without_cluster_serves_everything() {
    let world = World::default();
    world.node("a:1", |words| match words[0].as_str() {
        "HELLO" => say("-ERR unknown command `HELLO`|"),
        "AUTH" => say("+OK|"),
        "CLUSTER" => say("-ERR This instance has cluster support disabled|"),
        _ => say(":4|"),
    });
    let client = Client::connect_with(["a:1"], world.options().password("secret")).await.unwrap();
    assert_eq!(client.xlen("foo").await, Ok(4));
    assert_eq!(world.log(), ["a:1 AUTH secret", "a:1 XLEN foo"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_kind_is_a_protocol_error() {
    for greeting in ["HTTP/1.1 400 Bad Request||", ":1|", "$-7|"] {
        let world = World::default();
        world.node("a:1", move |_| say(greeting));
        let error = world.connect(&["a:1"]).await.unwrap_err();
        assert!(matches!(&error, Error::Protocol { addr, .. } if addr == "a:1"), "{greeting}: {error}");
    }
    let world = World::default();
    world.cluster_node("a:1", ":1|", nothing);
    let error = world.connect(&["a:1"]).await.unwrap_err();
    assert!(matches!(&error, Error::UnexpectedReply { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn replies_of_an_unexpected_shape_are_errors_of_their_own() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |words| match words[0].as_str() {
        "XADD" => say(":1|"),
        "XLEN" => say("$1|x|"),
        "XRANGE" => say("*1|*1|:1|"),
        _ => say("*0|"),
    });
    let client = client(&world).await;
    let shape = |error: Error| {
        assert!(matches!(error, Error::UnexpectedReply { .. }), "{error}");
        assert_eq!(error.fate(), Fate::Done);
    };
    shape(client.xadd("foo").field("k", "v").await.unwrap_err());
    shape(client.xlen("foo").await.unwrap_err());
    shape(client.xrange("foo", EntryId::MIN, EntryId::MAX).await.unwrap_err());
    shape(client.xpending("foo", "g").await.unwrap_err());
    shape(client.xautoclaim("foo", "g", "c", Duration::ZERO, EntryId::MIN).await.unwrap_err());
    shape(client.transaction().with(client.xlen("foo")).run().await.unwrap_err());
}

#[tokio::test(start_paused = true)]
async fn garbage_in_the_middle_of_a_connection_ends_it_and_is_unknown_for_a_write() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |words| match words[0].as_str() {
        "XADD" => say("?what|"),
        "XLEN" => say("?what|"),
        _ => say("+PONG|"),
    });
    let client = client(&world).await;
    assert!(matches!(client.xadd("foo").field("k", "v").await, Err(Error::Unknown { .. })));
    assert!(matches!(client.xlen("foo").await, Err(Error::Protocol { .. })));
    assert_eq!(client.ping().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn keys_in_two_slots_are_refused_before_anything_is_sent() {
    let world = World::default();
    world.cluster_node("a:1", halves(), nothing);
    let client = client(&world).await;
    let crossing = Err(Error::CrossSlot { command: "DEL".into() });
    assert_eq!(client.del(["foo", "bar"]).await, crossing);
    assert!(client.transaction().with(client.del(["foo", "bar"])).run().await.is_err());
    assert!(client.transaction().with(client.xlen("foo")).with(client.xlen("bar")).run().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn calls_share_a_connection_and_answers_find_their_callers() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |words| say(format!(":{}|", words[1])));
    let client = client(&world).await;
    let calls = (0..500u64).map(|n| {
        let client = client.clone();
        tokio::spawn(async move { assert_eq!(client.xlen(n.to_string()).await, Ok(n)) })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocking_read_does_not_hold_up_other_calls() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |words| match words[0].as_str() {
        "XREAD" => Act::Ignore,
        _ => say(":1|"),
    });
    let client = client(&world).await;
    let read = client.xread().new_of("foo").block(Duration::from_secs(5)).timeout(Duration::from_secs(3));
    let reading = tokio::spawn(async move { (Instant::now(), read.await, Instant::now()) });
    tokio::task::yield_now().await;
    assert_eq!(client.xlen("foo").await, Ok(1));
    let (began, read, ended) = reading.await.unwrap();
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    assert!(ended - began <= Duration::from_secs(8));
}

#[tokio::test(start_paused = true)]
async fn an_aborted_transaction_goes_where_its_command_was_sent() {
    let world = World::default();
    world.cluster_node("a:1", slots(&[(0, 16383, "a", 1)]), |words| match words[0].as_str() {
        "MULTI" => say("+OK|"),
        "EXEC" => say("-EXECABORT Transaction discarded because of previous errors.|"),
        _ => say("-MOVED 12182 b:2|"),
    });
    world.cluster_node("b:2", halves(), |words| match words[0].as_str() {
        "MULTI" => say("+OK|"),
        "EXEC" => say("*2|:1|-WRONGTYPE x|"),
        _ => say("+QUEUED|"),
    });
    let client = client(&world).await;
    let replies = client.transaction().with(client.xlen("foo")).with(client.get("foo")).run().await.unwrap();
    assert_eq!(replies[0], Ok(crate::Value::Int(1)));
    assert_eq!(replies[1].as_ref().unwrap_err().code(), "WRONGTYPE");
    assert_eq!(world.log().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn the_map_is_asked_for_again_after_a_redirect_and_from_time_to_time() {
    let world = World::default();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    world.node("a:1", move |words| match words[0].as_str() {
        "HELLO" => say("%0|"),
        "CLUSTER" => {
            count.fetch_add(1, Ordering::Relaxed);
            say(slots(&[(0, 16383, "a", 1)]))
        }
        _ => say("-TRYAGAIN|"),
    });
    let client = Client::connect_with(["a:1"], world.options()).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let _ = client.xlen("foo").timeout(Duration::from_millis(100)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after_refusal = asked.load(Ordering::Relaxed);
    assert!((2..6).contains(&after_refusal), "{after_refusal}");
    tokio::time::sleep(Duration::from_secs(61)).await;
    let after_a_minute = asked.load(Ordering::Relaxed);
    assert!(after_a_minute > after_refusal, "{after_a_minute}");
    drop(client);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(asked.load(Ordering::Relaxed), after_a_minute, "nobody is left to ask for");
}

#[test]
fn options_do_not_show_the_password() {
    let shown = format!("{:?}", Options::default().user("app", "secret"));
    assert!(shown.contains("app") && !shown.contains("secret"), "{shown}");
}
