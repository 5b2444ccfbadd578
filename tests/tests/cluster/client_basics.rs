//! The Rust client against three processes: it finds the cluster and goes on when a node dies.

use std::time::Duration;
use weir_client::{AddId, Client, EntryId, Error, GroupStart, Nack, Refs, Removal, Trim};
use weir_tests::testing::{key_led_by, start};

#[tokio::test]
async fn every_typed_command_is_answered_in_its_type() {
    let cluster = start(3, "").await;
    // The first address is nobody's.
    let client = Client::connect(["127.0.0.1:1".to_owned(), cluster.address(1)]).await.expect("connected");
    assert_eq!(client.nodes().len(), 3);
    for node in 0..3 {
        let key = &key_led_by(&cluster, node).await;
        let first = client.xadd(key).field("n", "1").field(b"bytes", [0xff, 0x00]).await.expect("added");
        let second = client.xadd(key).maxlen_approx(1000).field("n", "2").await.expect("added");
        assert!(first < second);
        assert_eq!(client.xadd("{none}x").no_mkstream().field("n", "1").await, Ok(None));
        assert_eq!(client.xlen(key).await, Ok(2));
        let entries = client.xrange(key, EntryId::MIN, EntryId::MAX).count(10).await.expect("read");
        assert_eq!(entries[0].get("bytes"), Some(&[0xff, 0x00][..]));
        let newest = client.xrevrange(key, EntryId::MAX, EntryId::MIN).count(1).await.expect("read");
        assert_eq!(newest[0].id, second);
        let read = client.xread().after(key, first).count(5).await.expect("read");
        assert_eq!(read.into_only()[0].get_str("n"), Some("2"));
        let waited = client.xread().new_of(key).block(Duration::from_millis(20)).await.expect("nothing");
        assert!(waited.is_empty());

        client.xgroup_create(key, "g", GroupStart::First).await.expect("a group");
        let again = client.xgroup_create(key, "g", GroupStart::New).await.expect_err("it exists");
        assert_eq!(again.server().map(|e| e.code()), Some("BUSYGROUP"));
        assert_eq!(client.xgroup_createconsumer(key, "g", "c").await, Ok(true));
        let read = client.xreadgroup("g", "c").new_of(key).count(10).await.expect("delivered");
        assert_eq!(read.into_only().len(), 2);
        let own = client.xreadgroup("g", "c").pending_after(key, EntryId::MIN).await.expect("own");
        assert_eq!(own.into_only().len(), 2);
        assert_eq!(client.xack(key, "g", [first]).await, Ok(1));
        let pending = client.xpending(key, "g").await.expect("summary");
        assert_eq!((pending.count, pending.range), (1, Some((second, second))));
        assert_eq!(pending.consumers, [("c".into(), 1)]);
        let rows = client.xpending_entries(key, "g", 10).consumer("c").await.expect("rows");
        assert_eq!((rows[0].id, rows[0].deliveries), (second, 2));
        let ids = client.xclaim(key, "g", "d", Duration::ZERO, [second]).just_id().await;
        assert_eq!(ids, Ok(vec![second]));
        let entries = client.xclaim(key, "g", "c", Duration::ZERO, [second]).await.expect("claimed");
        assert_eq!(entries[0].id, second);
        let taken = client.xautoclaim(key, "g", "d", Duration::ZERO, EntryId::MIN).count(5).await;
        let taken = taken.expect("claimed");
        assert_eq!((taken.next, taken.entries.len(), taken.gone.len()), (EntryId::MIN, 1, 0));

        let info = client.xinfo_stream(key).await.expect("stream");
        assert_eq!((info.length, info.last_id, info.groups), (2, second, 1));
        assert_eq!(client.xinfo_groups(key).await.expect("groups")[0].pending, 1);
        assert_eq!(client.xinfo_consumers(key, "g").await.expect("consumers").len(), 2);
        assert_eq!(client.xgroup_delconsumer(key, "g", "d").await, Ok(1));
        client.xgroup_setid(key, "g", GroupStart::After(first)).await.expect("moved");
        assert_eq!(client.xgroup_destroy(key, "g").await, Ok(true));
        assert_eq!(client.xdel(key, [first]).await, Ok(1));
        assert_eq!(client.xtrim(key, Trim::MaxLen(0)).await, Ok(1));
        client.xsetid(key, EntryId::MAX).await.expect("set");
        assert_eq!(client.key_type(key).await.as_deref(), Ok("stream"));
        assert_eq!(client.set(key, "v").if_missing().await, Ok(false));
        assert_eq!(client.expire(key, Duration::from_secs(100)).await, Ok(true));
        assert!((1..=100_000).contains(&client.pttl(key).await.expect("ttl")));
        assert_eq!(client.persist(key).await, Ok(true));
        assert_eq!(client.del([key]).await, Ok(1));
        assert_eq!(client.set(key, "v").expire(Duration::from_secs(9)).await, Ok(true));
        assert_eq!(client.get(key).await, Ok(Some("v".into())));
        let wrong = client.xlen(key).await.expect_err("a string");
        assert_eq!(wrong.server().map(|e| e.code()), Some("WRONGTYPE"));
        assert_eq!(client.unlink([key]).await, Ok(1));
        let ids = [EntryId::new(1, 0), EntryId::new(2, 0), EntryId::new(3, 0)];
        for id in ids {
            let xadd = client.xadd(key).id(AddId::Given(id)).maxlen(100).refs(Refs::Keep).field("n", "1");
            assert_eq!(xadd.await, Ok(id));
        }
        client.xgroup_create(key, "g", GroupStart::First).await.expect("a group");
        let read =
            client.xreadgroup("g", "c").new_of(key).maxcount(2).maxsize(10_000).await.expect("delivered");
        assert_eq!(read.into_only().len(), 2);
        assert_eq!(client.xdelex(key, Refs::Acked, ids).await, Ok(vec![Removal::Held; 3]));
        assert_eq!(client.xnack(key, "g", Nack::Fail, [ids[0]]).await, Ok(1));
        let read =
            client.xreadgroup("g", "d").new_of(key).claim(Duration::from_secs(60)).await.expect("read");
        let read: Vec<_> = read.into_only().iter().map(|c| (c.entry.id, c.deliveries)).collect();
        assert_eq!(read, [(ids[0], 1), (ids[2], 0)]);
        let removed = client.xackdel(key, "g", Refs::Acked, [ids[0], EntryId::MAX]).await;
        assert_eq!(removed, Ok(vec![Removal::Done, Removal::Missing]));
        client.xcfgset(key, 50, 500).await.expect("set");
        assert_eq!(client.xinfo_stream(key).await.expect("stream").idmp_maxsize, Some(500));
        assert_eq!(client.del([key]).await, Ok(1));
        let replies = client
            .transaction()
            .with(client.xadd(key).field("n", "3").call())
            .with(client.get(key))
            .run()
            .await
            .expect("run");
        assert!(replies[0].is_ok() && replies[1].as_ref().is_err_and(|e| e.code() == "WRONGTYPE"));
        assert_eq!(client.raw("XLEN").key(key).is_read().query::<u64>().await, Ok(1));
    }
}

#[tokio::test]
async fn calls_go_on_when_the_leader_dies() {
    let mut cluster = start(3, "").await;
    let client = Client::connect(cluster.addresses()).await.expect("connected");
    let key = key_led_by(&cluster, 0).await;
    client.xadd(&key).field("n", "before").await.expect("added");
    cluster.kill(0).await.expect("killed");
    // A write either finds out that nobody is there and goes on, or its fate is told to be unknown.
    let mut unknown = 0;
    while let Err(error) = client.xadd(&key).field("n", "after").await {
        assert!(matches!(error, Error::Unknown { .. }), "{error}");
        unknown += 1;
        assert!(unknown < 3, "{error}");
    }
    let entries = client.xrange(&key, EntryId::MIN, EntryId::MAX).await.expect("read");
    assert!((2..=2 + unknown).contains(&entries.len()), "{entries:?}");
    assert_ne!(client.leader_of(&key), Some(cluster.address(0)));
}
