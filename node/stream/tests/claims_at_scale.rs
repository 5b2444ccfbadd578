//! A million pending entries, one of them idle: a claim finds it in one call and does not look at the others.
#![expect(clippy::disallowed_methods, reason = "the test tells how long it took")]

use bytes::Bytes;
use std::time::Instant;
use weir_stream::*;

const PENDING: u64 = 1_000_000;
const IDLE_MS: u64 = 60_000;

fn key() -> Key {
    Bytes::from_static(b"s")
}

fn group() -> Bytes {
    Bytes::from_static(b"g")
}

fn read(count: Option<u64>) -> Xreadgroup {
    Xreadgroup {
        group: group(),
        consumer: Bytes::from_static(b"c"),
        count,
        noack: false,
        keys: vec![(key(), GroupReadId::New)],
        woken: false,
    }
}

/// All delivered at `delivered_ms`, but the one in the middle a minute before.
fn pending(delivered_ms: u64) -> Machine {
    let mut machine = Machine::new();
    let at = |now_ms| Stamp { now_ms };
    let all =
        Command::SetOwnedSlots { ranges: vec![SlotRange { first: Slot(0), last: Slot(SLOT_COUNT - 1) }] };
    machine.apply(at(1), &all, false);
    let change = GroupChange::Create { at: GroupStart::Id(EntryId::MIN), mkstream: true, entries_read: None };
    machine.apply(at(1), &Command::Xgroup { key: key(), group: group(), change }, false);
    let fields = vec![Bytes::from_static(b"f"), Bytes::from_static(b"v")];
    for n in 1..=PENDING {
        let id = AddId::Given(EntryId::new(n, 0));
        let add = Xadd { key: key(), no_mkstream: false, trim: None, id, fields: fields.clone() };
        machine.apply(at(1), &Command::Xadd(add), false);
    }
    machine.apply(at(delivered_ms), &Command::Xreadgroup(read(None)), false);
    let older = Xclaim {
        key: key(),
        group: group(),
        consumer: Bytes::from_static(b"c"),
        min_idle_ms: 0,
        ids: vec![EntryId::new(PENDING / 2, 0)],
        delivery_time: ClaimTime::Idle(IDLE_MS as i64),
        retry_count: None,
        force: false,
        justid: true,
        last_id: None,
    };
    machine.apply(at(delivered_ms), &Command::Xclaim(older), false);
    assert_eq!(machine.stats().pending, PENDING);
    machine
}

#[test]
fn a_claim_finds_the_one_idle_entry_among_a_million() {
    let mut machine = pending(1_000_000);
    let claim = Command::XreadgroupWithin {
        read: Xreadgroup { consumer: Bytes::from_static(b"d"), ..read(Some(10)) },
        claim_min_idle_ms: Some(IDLE_MS / 2),
        limits: ReadLimits::default(),
    };
    let began = Instant::now();
    let reply = machine.apply(Stamp { now_ms: 1_000_100 }, &claim, true).reply;
    let took = began.elapsed();
    let Reply::Streams(streams) = reply else { panic!("{reply:?}") };
    let ids: Vec<EntryId> = streams[0].1.iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [EntryId::new(PENDING / 2, 0)]);
    let began = Instant::now();
    let nothing = machine.apply(Stamp { now_ms: 1_000_100 }, &claim, true).reply;
    println!("found one of {PENDING} in {took:?}, that there is none more in {:?}", began.elapsed());
    assert_eq!(nothing, Reply::NilArray);
    // A walk over all of them takes some fifty milliseconds where this takes a fraction of one.
    assert!(took.as_millis() < 10, "{took:?}");
}

#[test]
fn a_summary_by_age_passes_over_what_is_young() {
    let machine = pending(1_000_000);
    let range = PendingRange {
        min_idle_ms: IDLE_MS / 2,
        start: EntryId::MIN,
        end: EntryId::MAX,
        count: 10,
        consumer: None,
    };
    let query = Query::Xpending { key: key(), group: group(), range: Some(range) };
    let began = Instant::now();
    let Answer::Reply(Reply::Array(rows)) = machine.query(1_000_100, &query) else { panic!("rows") };
    println!("XPENDING IDLE found one of {PENDING} in {:?}", began.elapsed());
    assert_eq!(rows.len(), 1);
}
