//! Random commands over a few keys, groups and ids, so that they meet.

use bytes::Bytes;
use proptest::prelude::*;
use weir_stream::*;

/// A stream with a group that has its only entry pending, without a checksum.
const RESTORED: &[u8] = b"\x13\x01\x10\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x07\x1d\x1d\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\xff\
\x01\x07\x07\x07\x07\0\0\x01\x01\x01g\x07\x07\x01\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x07\x09\0\0\0\0\0\0\0\x01\x01\x01a\x09\0\0\0\0\0\0\0\x01\
\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x07\x0a\0\0\0\0\0\0\0\0\0";

pub(crate) fn any_key() -> impl Strategy<Value = Key> {
    prop::sample::select(vec!["s", "t", "{s}2"]).prop_map(|name| Bytes::from_static(name.as_bytes()))
}

fn any_group() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["g", "h"]).prop_map(|name| Bytes::from_static(name.as_bytes()))
}

fn any_consumer() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(|name| Bytes::from_static(name.as_bytes()))
}

pub(crate) fn any_id() -> impl Strategy<Value = EntryId> {
    prop_oneof![
        30 => (0..120u64, 0..2u64).prop_map(|(ms, seq)| EntryId::new(ms, seq)),
        1 => Just(EntryId::MAX),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(ms, seq)| EntryId::new(ms, seq)),
    ]
}

fn any_trim() -> impl Strategy<Value = Trim> {
    let to = prop_oneof![(0..60u64).prop_map(TrimTo::MaxLen), any_id().prop_map(TrimTo::MinId)];
    (to, any::<bool>(), prop::option::of(0..30u64)).prop_map(|(to, approximate, limit)| Trim {
        to,
        approximate,
        limit: limit.filter(|_| approximate),
    })
}

fn any_fields() -> impl Strategy<Value = Vec<Bytes>> {
    let field = prop::sample::select(vec!["f", "g", "a-longer-name"]);
    prop::collection::vec((field, 0..40usize), 1..4).prop_map(|pairs| {
        let string = |(name, len): (&'static str, usize)| {
            [Bytes::from_static(name.as_bytes()), Bytes::from(vec![b'v'; len])]
        };
        pairs.into_iter().flat_map(string).collect()
    })
}

fn any_idempotent() -> impl Strategy<Value = Idempotent> {
    (0..3u8, 0..20u8)
        .prop_map(|(producer, iid)| Idempotent { producer: vec![producer].into(), iid: vec![iid; 9].into() })
}

fn any_edit() -> impl Strategy<Value = StringEdit> {
    prop_oneof![
        Just(StringEdit::Append(Bytes::from_static(b"1"))),
        (0..9u64).prop_map(|offset| StringEdit::SetRange { offset, value: Bytes::from_static(b"2") }),
        (-9..9i64).prop_map(StringEdit::Increment),
        Just(StringEdit::GetDelete),
        Just(StringEdit::GetExpire(KeepUntil::Forever)),
        (-5..50i64).prop_map(|ms| StringEdit::GetExpire(KeepUntil::Deadline(ExpireWhen::In(ms)))),
    ]
}

fn any_xadd() -> impl Strategy<Value = Command> {
    let id = prop_oneof![
        4 => Just(AddId::Auto),
        2 => (0..150u64).prop_map(AddId::AutoSeq),
        3 => any_id().prop_filter("keeps streams usable", |id| id.ms < 1000).prop_map(AddId::Given),
        2 => any_idempotent().prop_map(|add| AddId::Once(Box::new(add))),
    ];
    (any_key(), any::<bool>(), prop::option::weighted(0.15, any_trim()), id, any_fields()).prop_map(
        |(key, no_mkstream, trim, id, fields)| Command::Xadd(Xadd { key, no_mkstream, trim, id, fields }),
    )
}

fn any_change() -> impl Strategy<Value = GroupChange> {
    let at = || {
        prop_oneof![
            Just(GroupStart::Last),
            any_id().prop_map(GroupStart::Id),
            Just(GroupStart::Id(EntryId::MIN))
        ]
    };
    let read = || prop::option::of(-1..200i64);
    prop_oneof![
        4 => (at(), any::<bool>(), read()).prop_map(|(at, mkstream, entries_read)| GroupChange::Create { at, mkstream, entries_read }),
        2 => (at(), read()).prop_map(|(at, entries_read)| GroupChange::SetId { at, entries_read }),
        1 => Just(GroupChange::Destroy),
        1 => any_consumer().prop_map(|consumer| GroupChange::CreateConsumer { consumer }),
        1 => any_consumer().prop_map(|consumer| GroupChange::DelConsumer { consumer }),
    ]
}

fn any_xreadgroup() -> impl Strategy<Value = Command> {
    let from = || prop_oneof![3 => Just(GroupReadId::New), 1 => any_id().prop_map(GroupReadId::After), 1 => Just(GroupReadId::After(EntryId::MIN))];
    let keys = prop::collection::vec((any_key(), from()), 1..3);
    (
        any_group(),
        any_consumer(),
        prop::option::of(0..8u64),
        prop::bool::weighted(0.1),
        keys,
        prop::bool::weighted(0.1),
    )
        .prop_map(|(group, consumer, count, noack, keys, woken)| {
            Command::Xreadgroup(Xreadgroup { group, consumer, count, noack, keys, woken })
        })
}

fn any_refs() -> impl Strategy<Value = Refs> {
    prop::sample::select(vec![Refs::Keep, Refs::Delete, Refs::Acked])
}

fn any_xreadgroup_within() -> impl Strategy<Value = Command> {
    let limits = (prop::option::weighted(0.3, 1..9u64), prop::option::weighted(0.3, 1..300u64));
    (any_xreadgroup(), prop::option::weighted(0.8, 0..30u64), limits).prop_map(
        |(read, claim_min_idle_ms, (max_count, max_size))| match read {
            Command::Xreadgroup(read) => {
                let limits = ReadLimits { max_count, max_size };
                Command::XreadgroupWithin { read, claim_min_idle_ms, limits }
            }
            other => other,
        },
    )
}

fn any_xnack() -> impl Strategy<Value = Command> {
    let mode = prop::sample::select(vec![NackMode::Silent, NackMode::Fail, NackMode::Fatal]);
    let ids = prop::collection::vec(any_id(), 1..6);
    (any_key(), any_group(), mode, ids, prop::option::weighted(0.2, 0..9u64), any::<bool>()).prop_map(
        |(key, group, mode, ids, retry_count, force)| {
            Command::Xnack(Xnack { key, group, mode, ids, retry_count, force })
        },
    )
}

fn any_xclaim() -> impl Strategy<Value = Command> {
    let time = prop_oneof![
        Just(ClaimTime::Now),
        any::<i64>().prop_map(ClaimTime::At),
        (-5..100i64).prop_map(ClaimTime::Idle)
    ];
    let ids = prop::collection::vec(any_id(), 0..6);
    let flags = (
        any::<bool>(),
        any::<bool>(),
        prop::option::weighted(0.1, any_id()),
        prop::option::weighted(0.2, any::<u64>()),
    );
    (any_key(), any_group(), any_consumer(), 0..50u64, ids, time, flags).prop_map(
        |(key, group, consumer, min_idle_ms, ids, delivery_time, (force, justid, last_id, retry_count))| {
            Command::Xclaim(Xclaim {
                key,
                group,
                consumer,
                min_idle_ms,
                ids,
                delivery_time,
                retry_count,
                force,
                justid,
                last_id,
            })
        },
    )
}

/// Commands on entries and groups alone.
pub(crate) fn any_stream_command() -> impl Strategy<Value = Command> {
    let ids = || prop::collection::vec(any_id(), 1..6);
    prop_oneof![
        30 => any_xadd(),
        3 => (any_key(), ids()).prop_map(|(key, ids)| Command::Xdel { key, ids }),
        3 => (any_key(), any_trim()).prop_map(|(key, trim)| Command::Xtrim { key, trim }),
        6 => (any_key(), any_group(), any_change()).prop_map(|(key, group, change)| Command::Xgroup { key, group, change }),
        12 => any_xreadgroup(),
        8 => any_xreadgroup_within(),
        5 => any_xnack(),
        3 => (any_refs(), any_key(), any_trim()).prop_map(|(refs, key, trim)| {
            Command::WithRefs { refs, command: Box::new(Command::Xtrim { key, trim }) }
        }),
        3 => (any_refs(), any_xadd()).prop_map(|(refs, add)| Command::WithRefs { refs, command: Box::new(add) }),
        3 => (any_key(), any_refs(), ids()).prop_map(|(key, refs, ids)| Command::Xdelex { key, refs, ids }),
        3 => (any_key(), any_group(), any_refs(), ids()).prop_map(|(key, group, refs, ids)| {
            Command::Xackdel { key, group, refs, ids: ids.iter().map(|id| Bytes::from(id.to_string())).collect() }
        }),
        5 => (any_key(), any_group(), ids()).prop_map(|(key, group, ids)| {
            Command::Xack { key, group, ids: ids.iter().map(|id| Bytes::from(id.to_string())).collect() }
        }),
        5 => any_xclaim(),
        4 => (any_key(), any_group(), any_consumer(), 0..50u64, any_id(), 1..9u64, any::<bool>()).prop_map(
            |(key, group, consumer, min_idle_ms, start, count, justid)| {
                Command::Xautoclaim { key, group, consumer, min_idle_ms, start, count, justid }
            }
        ),
    ]
}

/// Any command at all.
pub(crate) fn any_command() -> impl Strategy<Value = Command> {
    let when = || {
        prop_oneof![
            (-10..200i64).prop_map(ExpireWhen::In),
            any::<i64>().prop_map(ExpireWhen::At),
            any::<i64>().prop_map(ExpireWhen::In)
        ]
    };
    let condition = prop::sample::select(vec![
        ExpireCondition::Always,
        ExpireCondition::IfNone,
        ExpireCondition::IfSome,
        ExpireCondition::IfLater,
        ExpireCondition::IfSooner,
    ]);
    let set = (any_key(), 0..50usize, prop::option::of(when()), any::<bool>(), any::<bool>());
    let xsetid = (any_key(), any_id(), prop::option::of(0..100u64), prop::option::of(any_id()));
    let plain = prop_oneof![
        60 => any_stream_command(),
        2 => xsetid.prop_map(|(key, last_id, entries_added, max_deleted_id)| Command::Xsetid { key, last_id, entries_added, max_deleted_id }),
        1 => prop::collection::vec(any_key(), 1..3).prop_map(|keys| Command::Del { keys }),
        1 => set.prop_map(|(key, len, expire, keep_ttl, get)| {
            Command::Set(Set { key, value: vec![b'x'; len].into(), expire, keep_ttl, condition: SetCondition::Always, get })
        }),
        2 => (any_key(), any_key(), any::<bool>()).prop_map(|(from, to, only_if_absent)| Command::Rename { from, to, only_if_absent }),
        3 => (any_key(), when(), condition).prop_map(|(key, when, condition)| Command::Expire { key, when, condition }),
        1 => any_key().prop_map(|key| Command::Persist { key }),
        1 => prop::collection::vec(any_key(), 0..3).prop_map(|keys| Command::ExpireDue { keys }),
        1 => (any_key(), any_group(), any_consumer()).prop_map(|(key, group, consumer)| Command::TouchConsumer { key, group, consumer }),
        1 => (any_key(), prop::option::of(1..3u32), prop::option::of(1..9u32)).prop_map(|(key, duration_s, maxsize)| {
            Command::Xcfgset { key, duration_s, maxsize }
        }),
        2 => (any_key(), any_key(), any::<bool>()).prop_map(|(from, to, replace)| Command::Copy { from, to, replace }),
        1 => (any_key(), any::<bool>(), prop::option::of(when())).prop_map(|(key, replace, ends)| {
            let value = load_dump(RESTORED).expect("a payload");
            Command::Restore { key, value, ends, replace }
        }),
        2 => (any_key(), any_edit()).prop_map(|(key, edit)| Command::EditString { key, edit }),
        1 => (any_key(), any::<bool>()).prop_map(|(key, only_if_absent)| {
            Command::SetMany { pairs: vec![(key, Bytes::from_static(b"7"))], only_if_absent }
        }),
        1 => (any_key(), any_idempotent(), any_id()).prop_map(|(key, add, id)| Command::Xidmprecord { key, add, id }),
        1 => (0..6u32, 0..200u32).prop_map(|(stream_node_max_entries, stream_node_max_bytes)| {
            Command::Configure(Settings { stream_node_max_entries, stream_node_max_bytes })
        }),
    ].boxed();
    let ops = prop::collection::vec(plain.clone().prop_map(Op::Command), 0..4);
    let watching = (any_key(), 0..40u64, ops.clone())
        .prop_map(|(key, seen, ops)| Command::ExecWatched { watched: vec![(key, seen)], ops });
    prop_oneof![30 => plain, 1 => watching, 2 => ops.prop_map(Command::Exec), 1 => prop::num::u8::ANY.prop_map(|n| if n < 20 { Command::Flush } else { Command::Persist { key: Bytes::new() } })]
}
