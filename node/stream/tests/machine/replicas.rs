//! Same log, same state, on every node.

use crate::random::{any_command, any_key};
use crate::support::*;
use proptest::prelude::*;
use weir_stream::*;

fn wakes(effects: &[Effect]) -> Vec<String> {
    let wake = |effect: &Effect| match effect {
        Effect::Garbage(_) => None,
        other => Some(format!("{other:?}")),
    };
    effects.iter().filter_map(wake).collect()
}

/// Everything a client could ask about a key.
fn asked(machine: &Machine, now_ms: u64, name: &Key) -> Vec<Reply> {
    let key = || name.clone();
    let mut queries = vec![
        whole("x"),
        Query::Xlen { key: key() },
        Query::XinfoStream { key: key(), full: Some(0) },
        Query::XinfoStream { key: key(), full: None },
        Query::XinfoGroups { key: key() },
        Query::Get { key: key() },
        Query::Ttl { key: key(), seconds: false, absolute: true },
        Query::KeyCount,
        Query::Versions { keys: vec![key()] },
    ];
    for group in ["g", "h"] {
        let group = || Key::from_static(group.as_bytes());
        queries.push(Query::XinfoConsumers { key: key(), group: group() });
        queries.push(Query::Xpending { key: key(), group: group(), range: None });
    }
    queries.iter().map(|query| machine.query_as_logged(now_ms, query)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// One replica answers clients, one does not, one was restored from a snapshot half way, one had a frozen
    /// copy taken of it now and then: all end in the same state, and so do the copies stay as they were.
    #[test]
    fn replicas_agree_whoever_answers_and_however_they_got_their_state(
        steps in prop::collection::vec((any_command(), -1..3i64), 1..300),
        restored_at in 0..300usize,
        piece in 1..400usize,
    ) {
        let mut answering = Machine::new();
        let mut silent = Machine::new();
        answering.apply(Stamp { now_ms: 1 }, &all_slots(), true);
        silent.apply(Stamp { now_ms: 1 }, &all_slots(), false);
        let mut now_ms = 3u64;
        let mut frozen: Vec<(Machine, u64)> = Vec::new();
        for (at, (command, passed)) in steps.iter().enumerate() {
            now_ms = now_ms.saturating_add_signed(*passed);
            let batch = Batch { stamp: Stamp { now_ms }, commands: vec![command.clone()] };
            let batch = Batch::decode(&batch.encode()).expect("what was encoded");
            let loud = answering.apply(batch.stamp, &batch.commands[0], true);
            let quiet = silent.apply(batch.stamp, &batch.commands[0], false);
            prop_assert_eq!(quiet.reply, Reply::None);
            prop_assert_eq!(wakes(&loud.effects), wakes(&quiet.effects));
            prop_assert_eq!(answering.stats(), silent.stats());
            if at == restored_at {
                silent = through_a_snapshot(&silent, piece);
                prop_assert_eq!(answering.stats(), silent.stats());
            }
            if at % 50 == 7 {
                frozen.push((answering.clone(), answering.state_hash()));
            }
        }
        prop_assert_eq!(answering.state_hash(), silent.state_hash());
        for name in ["s", "t", "{s}2"] {
            let name = Key::from_static(name.as_bytes());
            prop_assert_eq!(asked(&answering, now_ms, &name), asked(&silent, now_ms, &name));
        }
        for (copy, hash) in &frozen {
            prop_assert_eq!(copy.state_hash(), *hash);
        }
        drop(frozen);
        answering.apply(Stamp { now_ms }, &Command::Flush, true);
        prop_assert_eq!(answering.stats(), Stats::default());
    }

    #[test]
    fn a_query_changes_nothing(
        steps in prop::collection::vec(any_command(), 1..80),
        name in any_key(),
    ) {
        let mut machine = Machine::new();
        machine.apply(Stamp { now_ms: 1 }, &all_slots(), true);
        for command in &steps {
            machine.apply(Stamp { now_ms: 100 }, command, false);
        }
        let hash = machine.state_hash();
        asked(&machine, 200, &name);
        prop_assert_eq!(machine.state_hash(), hash);
    }
}

#[test]
fn a_machine_can_be_handed_to_other_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Machine>();
    sent::<Snapshot>();
    sent::<Restore>();
    sent::<Garbage>();
    sent::<Outcome>();
}
