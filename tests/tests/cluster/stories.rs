//! What people write about and try by hand, line by line: the life of a pending entry, ghosts, rings, two groups on
//! one stream. One node is enough; the same lines hold on any Redis 7.4.

use std::time::{Duration, Instant};
use weir_resp::Value;
use weir_tests::connection::{Connection, show, words};
use weir_tests::slots::slot_of;
use weir_tests::testing::{ask, ask_until, connect, script, start};

#[tokio::test]
async fn a_pending_entry_is_claimed_and_acknowledged() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    script(
        &mut c,
        "
        XADD demo:pending 0-1 warm up                          => 0-1
        DEL demo:pending                                       => 1
        XADD demo:pending 1000-0 orderId A1 status created     => 1000-0
        XGROUP CREATE demo:pending g 0                         => OK
        XREADGROUP GROUP g w1 COUNT 1 STREAMS demo:pending >   => [[demo:pending, [[1000-0, [orderId, A1, status, created]]]]]
        XPENDING demo:pending g - + 10                         => [[1000-0, w1, ?, 1]]
        XCLAIM demo:pending g w2 0 1000-0                      => [[1000-0, [orderId, A1, status, created]]]
        XPENDING demo:pending g - + 10                         => [[1000-0, w2, ?, 2]]
        XACK demo:pending g 1000-0                             => 1
        ",
    )
    .await;
}

#[tokio::test]
async fn the_whole_life_of_pending_entries_and_ghosts() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    script(
        &mut c,
        "
        DEL demo:pending                                       => 0
        XADD demo:pending 1000-0 orderId A1 status created     => 1000-0
        XGROUP CREATE demo:pending g 0                         => OK
        XREADGROUP GROUP g w1 COUNT 1 STREAMS demo:pending >   => [[demo:pending, [[1000-0, [orderId, A1, status, created]]]]]
        XPENDING demo:pending g - + 10                         => [[1000-0, w1, ?, 1]]
        XCLAIM demo:pending g w2 0 1000-0                      => [[1000-0, [orderId, A1, status, created]]]
        XPENDING demo:pending g - + 10                         => [[1000-0, w2, ?, 2]]
        XACK demo:pending g 1000-0                             => 1
        XPENDING demo:pending g                                => [0, nil, nil, nil]
        XLEN demo:pending                                      => 1
        XADD demo:pending 1001-0 orderId A2 status paid        => 1001-0
        XREADGROUP GROUP g w1 COUNT 1 STREAMS demo:pending >   => [[demo:pending, [[1001-0, [orderId, A2, status, paid]]]]]
        XDEL demo:pending 1001-0                               => 1
        XPENDING demo:pending g                                => [1, 1001-0, 1001-0, [[w1, 1]]]
        XAUTOCLAIM demo:pending g w2 0 0-0 COUNT 10            => [0-0, [], [1001-0]]
        XPENDING demo:pending g                                => [0, nil, nil, nil]
        XRANGE demo:pending - +                                => [[1000-0, [orderId, A1, status, created]]]
        XADD demo:pending 1002-0 orderId A3 status done        => 1002-0
        XREADGROUP GROUP g w1 COUNT 1 STREAMS demo:pending >   => [[demo:pending, [[1002-0, [orderId, A3, status, done]]]]]
        XACK demo:pending g 1002-0                             => 1
        XDEL demo:pending 1002-0                               => 1
        XPENDING demo:pending g                                => [0, nil, nil, nil]
        XRANGE demo:pending - +                                => [[1000-0, [orderId, A1, status, created]]]
        XINFO GROUPS demo:pending                              => [[name, g, consumers, 2, pending, 0, last-delivered-id, 1002-0, entries-read, 3, lag, 0]]
        DEL demo:pending                                       => 1
        ",
    )
    .await;
}

#[tokio::test]
async fn two_groups_have_owners_and_positions_of_their_own() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    script(
        &mut c,
        "
        XADD s 1-0 n 1                                        => 1-0
        XADD s 2-0 n 2                                        => 2-0
        XADD s 3-0 n 3                                        => 3-0
        XADD s 4-0 n 4                                        => 4-0
        XADD s 5-0 n 5                                        => 5-0
        XGROUP CREATE s g1 0                                  => OK
        XGROUP CREATE s g2 0                                  => OK
        XREADGROUP GROUP g1 c1 COUNT 2 STREAMS s >            => [[s, [[1-0, [n, 1]], [2-0, [n, 2]]]]]
        XREADGROUP GROUP g1 c2 COUNT 1 STREAMS s >            => [[s, [[3-0, [n, 3]]]]]
        XREADGROUP GROUP g2 c1 COUNT 1 STREAMS s >            => [[s, [[1-0, [n, 1]]]]]
        XACK s g1 1-0                                         => 1
        XPENDING s g1                                         => [2, 2-0, 3-0, [[c1, 1], [c2, 1]]]
        XPENDING s g2                                         => [1, 1-0, 1-0, [[c1, 1]]]
        XINFO GROUPS s                                        => [[name, g1, consumers, 2, pending, 2, last-delivered-id, 3-0, entries-read, 3, lag, 2], [name, g2, consumers, 1, pending, 1, last-delivered-id, 1-0, entries-read, 1, lag, 4]]
        # Own entries first after a restart of the consumer, then new ones.
        XREADGROUP GROUP g1 c1 STREAMS s 0                    => [[s, [[2-0, [n, 2]]]]]
        XREADGROUP GROUP g1 c1 STREAMS s >                    => [[s, [[4-0, [n, 4]], [5-0, [n, 5]]]]]
        # A dead consumer's entries are taken over; names know upper and lower case.
        XAUTOCLAIM s g1 C1 0 - COUNT 10                       => [0-0, [[2-0, [n, 2]], [3-0, [n, 3]], [4-0, [n, 4]], [5-0, [n, 5]]], []]
        XPENDING s g1 - + 10 c1                               => []
        XPENDING s g1 2-0 2-0 1                               => [[2-0, C1, ?, 3]]
        XGROUP DELCONSUMER s g1 C1                            => 4
        XPENDING s g1                                         => [0, nil, nil, nil]
        ",
    )
    .await;
}

#[tokio::test]
async fn a_ring_keeps_the_newest_and_ghosts_stay_pending() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    for n in 1..=10 {
        script(&mut c, &format!("xadd zbpstream maxlen = 3 {n}-0 name zbp age {n} => {n}-0")).await;
    }
    script(
        &mut c,
        "
        XRANGE zbpstream - +                                  => [[8-0, [name, zbp, age, 8]], [9-0, [name, zbp, age, 9]], [10-0, [name, zbp, age, 10]]]
        XGROUP CREATE zbpstream zbpgroup 0                    => OK
        XREADGROUP GROUP zbpgroup a COUNT 2 STREAMS zbpstream > => [[zbpstream, [[8-0, [name, zbp, age, 8]], [9-0, [name, zbp, age, 9]]]]]
        XTRIM zbpstream MINID 10-0                            => 2
        XPENDING zbpstream zbpgroup                           => [2, 8-0, 9-0, [[a, 2]]]
        XRANGE zbpstream 8-0 8-0                              => []
        XREADGROUP GROUP zbpgroup a STREAMS zbpstream 0       => [[zbpstream, [[8-0, nil], [9-0, nil]]]]
        XACK zbpstream zbpgroup 8-0                           => 1
        XAUTOCLAIM zbpstream zbpgroup b 0 0                   => [0-0, [], [9-0]]
        XADD nomkstream_test NOMKSTREAM * field1 value1       => nil
        EXISTS nomkstream_test                                => 0
        XDEL zbpstream 10-0                                   => 1
        XLEN zbpstream                                        => 0
        TYPE zbpstream                                        => stream
        XADD zbpstream 10-0 a 1                               => -ERR The ID specified in XADD is equal or smaller than the target stream top item
        XADD zbpstream 10-* a 1                               => 10-1
        ",
    )
    .await;
}

#[tokio::test]
async fn three_views_of_a_pending_list_agree() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    script(
        &mut c,
        "
        XGROUP CREATE s g 0 MKSTREAM                          => OK
        XADD s 1-0 n 1                                        => 1-0
        XADD s 2-0 n 2                                        => 2-0
        XADD s 3-0 n 3                                        => 3-0
        XREADGROUP GROUP g a COUNT 2 STREAMS s >              => [[s, [[1-0, [n, 1]], [2-0, [n, 2]]]]]
        XREADGROUP GROUP g b STREAMS s >                      => [[s, [[3-0, [n, 3]]]]]
        XCLAIM s g b 0 2-0 JUSTID                             => [2-0]
        XPENDING s g                                          => [3, 1-0, 3-0, [[a, 1], [b, 2]]]
        XPENDING s g - + 10                                   => [[1-0, a, ?, 1], [2-0, b, ?, 1], [3-0, b, ?, 1]]
        XINFO CONSUMERS s g                                   => [[name, a, pending, 1, idle, ?, inactive, ?], [name, b, pending, 2, idle, ?, inactive, ?]]
        ",
    )
    .await;
}

#[tokio::test]
async fn block_settings_are_told_and_shape_the_stream() {
    let cluster = start(1, "--stream-node-max-entries 10 --stream-node-max-bytes 0").await;
    let mut c = connect(&cluster, 0).await;
    script(
        &mut c,
        "
        CONFIG GET stream-node-max-entries                    => [stream-node-max-entries, 10]
        CONFIG GET stream-node-max-bytes                      => [stream-node-max-bytes, 0]
        ",
    )
    .await;
    for n in 1..=95 {
        assert_eq!(ask(&mut c, &format!("XADD s {n}-0 n {n}")).await, format!("{n}-0"));
    }
    assert_eq!(blocks(&mut c).await, 10);
    // A block goes when its last entry does.
    for n in 11..=19 {
        assert_eq!(ask(&mut c, &format!("XDEL s {n}-0")).await, "1");
    }
    assert_eq!(blocks(&mut c).await, 10);
    assert_eq!(ask(&mut c, "XDEL s 20-0").await, "1");
    assert_eq!(blocks(&mut c).await, 9);
    script(
        &mut c,
        "
        XLEN s                                                => 85
        XADD s 11-0 n 11                                      => -ERR The ID specified in XADD is equal or smaller than the target stream top item
        # Whole blocks only, and no more entries than LIMIT says: 19 are one block.
        XADD s MAXLEN ~ 0 LIMIT 19 96-0 n 96                  => 96-0
        XLEN s                                                => 76
        XADD s MAXLEN ~ 42 97-0 n 97                          => 97-0
        XLEN s                                                => 47
        XTRIM s MAXLEN = 42                                   => 5
        XADD s MINID ~ 65 98-0 n 98                           => 98-0
        XRANGE s - + COUNT 1                                  => [[61-0, [n, 61]]]
        XADD s MINID 65 99-0 n 99                             => 99-0
        XRANGE s - + COUNT 1                                  => [[65-0, [n, 65]]]
        ",
    )
    .await;
}

async fn blocks(c: &mut Connection) -> i64 {
    let Value::Array(info) = c.call(&words("XINFO STREAM s"), Duration::from_secs(10)).await.expect("info")
    else {
        panic!("not a list")
    };
    let at = info.iter().position(|field| show(field) == "radix-tree-keys").expect("the field");
    show(&info[at + 1]).parse().expect("a number")
}

#[tokio::test]
async fn a_large_trim_costs_little_and_others_are_served_meanwhile() {
    const ENTRIES: usize = 30_000;
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    let mut other = connect(&cluster, 0).await;
    // The machine may be busy with something else once, not each time.
    let mut shares = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        for _ in 0..ENTRIES / 1_000 {
            add_many(&mut c, "s", 1_000).await;
        }
        let filling = began.elapsed();
        assert_eq!(ask(&mut c, "XLEN s").await, ENTRIES.to_string());
        let began = Instant::now();
        c.send(&words("XTRIM s MAXLEN 0")).await.expect("sent");
        add_many(&mut other, "other", 100).await;
        assert_eq!(show(&c.receive().await.expect("a count")), ENTRIES.to_string());
        shares.push(began.elapsed().as_secs_f64() / filling.as_secs_f64());
        if shares.iter().any(|share| *share < 0.3) {
            return;
        }
    }
    panic!("trims, with some adds beside them, took {shares:?} of the time of adding the entries");
}

async fn add_many(c: &mut Connection, key: &str, count: usize) {
    let lines = format!("XADD {key} * field value\r\n").repeat(count);
    c.send_raw(lines.as_bytes()).await.expect("sent");
    for _ in 0..count {
        let id = show(&c.receive().await.expect("an id"));
        assert!(!id.starts_with('-'), "{id}");
    }
}

#[tokio::test]
async fn a_lone_server_has_no_replicas_to_wait_for() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, "XADD s 1-0 a 1").await, "1-0");
    let began = Instant::now();
    assert_eq!(ask(&mut c, "WAIT 1 300").await, "0");
    assert!(began.elapsed() >= Duration::from_millis(290), "it ended after {:?}", began.elapsed());
    assert_eq!(ask(&mut c, "WAIT 0 0").await, "0");
}

#[tokio::test]
async fn every_plain_reader_gets_every_entry_and_leaves_nothing_behind() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, "XADD s 1-0 n 1").await, "1-0");
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut reader = connect(&cluster, 0).await;
        reader.send(&words("XREAD BLOCK 0 STREAMS s $")).await.expect("sent");
        readers.push(reader);
    }
    ask_until(&mut c, "INFO clients", |info| info.contains("blocked_clients:20")).await;
    // One goes away while it waits.
    readers.pop();
    ask_until(&mut c, "INFO clients", |info| info.contains("blocked_clients:19")).await;
    assert_eq!(ask(&mut c, "XADD s 2-0 n 2").await, "2-0");
    let state = ask(&mut c, "XINFO STREAM s FULL").await;
    for reader in &mut readers {
        assert_eq!(show(&reader.receive().await.expect("an entry")), "[[s, [[2-0, [n, 2]]]]]");
        let all = ask(reader, "XREAD COUNT 10 STREAMS s 0").await;
        assert_eq!(all, "[[s, [[1-0, [n, 1]], [2-0, [n, 2]]]]]");
    }
    assert_eq!(ask(&mut c, "XINFO STREAM s FULL").await, state);
    assert!(ask(&mut c, "INFO clients").await.contains("blocked_clients:0"));
}

#[tokio::test]
async fn a_pending_entry_stays_where_it_is_until_somebody_asks_for_it() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    script(
        &mut c,
        "
        XGROUP CREATE s g 0 MKSTREAM                          => OK
        XADD s 1-0 n 1                                        => 1-0
        XREADGROUP GROUP g a STREAMS s >                      => [[s, [[1-0, [n, 1]]]]]
        ",
    )
    .await;
    ask_until(&mut c, "XPENDING s g IDLE 300 - + 10", |rows| rows != "[]").await;
    script(
        &mut c,
        "
        XREADGROUP GROUP g b STREAMS s >                      => nil
        XREADGROUP GROUP g b BLOCK 100 STREAMS s >            => nil
        XREADGROUP GROUP g b STREAMS s 0                      => [[s, []]]
        XPENDING s g - + 10                                   => [[1-0, a, ?, 1]]
        XPENDING s g                                          => [1, 1-0, 1-0, [[a, 1]]]
        ",
    )
    .await;
}

#[tokio::test]
async fn blocked_members_are_served_in_the_order_they_came() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, "XGROUP CREATE s g 0 MKSTREAM").await, "OK");
    let mut members = Vec::new();
    for n in 1..=3 {
        let mut member = connect(&cluster, 0).await;
        // Names against the order of arrival: it is the queue that counts.
        member
            .send(&words(&format!("XREADGROUP GROUP g m{} BLOCK 0 STREAMS s >", 9 - n)))
            .await
            .expect("sent");
        ask_until(&mut c, "INFO clients", |info| info.contains(&format!("blocked_clients:{n}"))).await;
        members.push(member);
    }
    for (n, member) in (1..).zip(&mut members) {
        assert_eq!(ask(&mut c, &format!("XADD s {n}-0 n {n}")).await, format!("{n}-0"));
        let reply = show(&member.receive().await.expect("an entry"));
        assert_eq!(reply, format!("[[s, [[{n}-0, [n, {n}]]]]]"));
    }
}

#[tokio::test]
async fn a_blocked_member_that_is_woken_in_vain_keeps_its_deadline() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    assert_eq!(ask(&mut c, "XGROUP CREATE s g 0 MKSTREAM").await, "OK");
    let mut member = connect(&cluster, 0).await;
    let began = Instant::now();
    member.send(&words("XREADGROUP GROUP g late BLOCK 2000 STREAMS s >")).await.expect("sent");
    ask_until(&mut c, "INFO clients", |info| info.contains("blocked_clients:1")).await;
    while began.elapsed() < Duration::from_millis(1_800) {
        // Another member takes each entry in the unit that adds it.
        c.send_raw(b"MULTI\r\nXADD s * n 1\r\nXREADGROUP GROUP g fast STREAMS s >\r\nEXEC\r\n")
            .await
            .expect("sent");
        for _ in 0..4 {
            assert!(!show(&c.receive().await.expect("an answer")).starts_with('-'));
        }
    }
    assert_eq!(show(&member.receive().await.expect("an end")), "nil");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_990) && took < Duration::from_millis(3_700), "it took {took:?}");
}

#[tokio::test]
async fn a_transaction_over_two_slots_is_refused_whole() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    script(
        &mut c,
        "
        MULTI                                                 => OK
        XADD {a}s 1-0 n 1                                     => QUEUED
        XADD {b}s 1-0 n 1                                     => QUEUED
        EXEC                                                  => -CROSSSLOT Keys in request don't hash to the same slot
        EXISTS {a}s                                           => 0
        EXISTS {b}s                                           => 0
        XADD {a}s 1-0 n 1                                     => 1-0
        XGROUP CREATE {a}s g 0                                => OK
        XREADGROUP GROUP g c STREAMS {a}s {b}s > >            => -CROSSSLOT Keys in request don't hash to the same slot
        XPENDING {a}s g                                       => [0, nil, nil, nil]
        XINFO CONSUMERS {a}s g                                => []
        ",
    )
    .await;
}

#[tokio::test]
async fn the_first_braces_of_a_key_decide_its_slot() {
    let cluster = start(1, "").await;
    let mut c = connect(&cluster, 0).await;
    // What counts of each key.
    let keys = [
        ("123456789", "123456789"),
        ("{user1000}.following", "user1000"),
        ("foo{}{bar}", "foo{}{bar}"),
        ("foo{{bar}}zap", "{bar"),
        ("foo{bar}{zap}", "bar"),
        ("{", "{"),
        ("}{a", "}{a"),
    ];
    for (key, counts) in keys {
        let slot = ask(&mut c, &format!("CLUSTER KEYSLOT {key}")).await;
        assert_eq!(slot, slot_of(counts.as_bytes()).to_string(), "{key}");
    }
    assert_eq!(ask(&mut c, "CLUSTER KEYSLOT 123456789").await, "12739");
}
