//! What people write about and try by hand, line by line: the life of a pending entry, ghosts, rings, two groups on
//! one stream. One node is enough; the same lines hold on any Redis 7.4.

use weir_tests::testing::{connect, script, start};

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
