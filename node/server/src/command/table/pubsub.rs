//! Rows of publishing and subscribing.

use super::*;
use crate::command::parse::pubsub;

const PUBSUB_GROUP: &str = "pubsub";
const LISTENING: Flags = PUBSUB | NOSCRIPT | LOADING | STALE;

/// A row whose arguments are shard channels: routed like keys.
const fn sharded(name: &'static str, arity: i32, flags: Flags, keys: Keys, parse: Parse) -> Row {
    row(name, arity, flags, keys, KeyUse::Channel, parse)
}

pub(super) const ROWS: &[Row] = &[
    plain("publish", 3, PUBSUB | LOADING | STALE | FAST, pubsub::publish).doc(
        PUBSUB_GROUP,
        "2.0.0",
        "O(N+M), N being the subscribers of the channel and M all patterns, on each node",
        "Sends a message to the subscribers of a channel on all nodes, at most once; answers how many are on this node.",
        "channel message",
    ),
    plain("subscribe", -2, LISTENING | DENYOOM, pubsub::subscribe).doc(
        PUBSUB_GROUP,
        "2.0.0",
        "O(N), N being the channels",
        "Listens to channels.",
        "channel [channel ...]",
    ),
    plain("unsubscribe", -1, LISTENING, pubsub::unsubscribe).doc(
        PUBSUB_GROUP,
        "2.0.0",
        "O(N), N being the channels",
        "Listens to channels no longer, to none without arguments.",
        "[channel [channel ...]]",
    ),
    plain("psubscribe", -2, LISTENING | DENYOOM, pubsub::psubscribe).doc(
        PUBSUB_GROUP,
        "2.0.0",
        "O(N), N being the patterns",
        "Listens to the channels that fit patterns.",
        "pattern [pattern ...]",
    ),
    plain("punsubscribe", -1, LISTENING, pubsub::punsubscribe).doc(
        PUBSUB_GROUP,
        "2.0.0",
        "O(N), N being the patterns",
        "Listens to patterns no longer, to none without arguments.",
        "[pattern [pattern ...]]",
    ),
    sharded("spublish", 3, PUBSUB | LOADING | STALE | FAST, ONE, pubsub::spublish).doc(
        PUBSUB_GROUP,
        "7.0.0",
        "O(N), N being the subscribers of the channel",
        "Sends a message to the subscribers of a shard channel, at most once; answers how many are on this node.",
        "shardchannel message",
    ),
    sharded("ssubscribe", -2, LISTENING | DENYOOM, ALL, pubsub::ssubscribe).doc(
        PUBSUB_GROUP,
        "7.0.0",
        "O(N), N being the channels",
        "Listens to shard channels.",
        "shardchannel [shardchannel ...]",
    ),
    sharded("sunsubscribe", -1, LISTENING, ALL, pubsub::sunsubscribe).doc(
        PUBSUB_GROUP,
        "7.0.0",
        "O(N), N being the channels",
        "Listens to shard channels no longer, to none without arguments.",
        "[shardchannel [shardchannel ...]]",
    ),
    container("pubsub", SUBS).doc(
        PUBSUB_GROUP,
        "2.8.0",
        "depends on the subcommand",
        "Tells who listens to what on this node.",
        "",
    ),
];

const TOLD: Flags = PUBSUB | LOADING | STALE;

const SUBS: &[Row] = &[
    plain("pubsub|channels", -2, TOLD, pubsub::channels).doc(
        PUBSUB_GROUP,
        "2.8.0",
        "O(N), N being the channels",
        "Lists the channels that somebody listens to on this node.",
        "[pattern]",
    ),
    plain("pubsub|numpat", 2, TOLD, pubsub::numpat).doc(
        PUBSUB_GROUP,
        "2.8.0",
        "O(1)",
        "Answers how many patterns somebody listens to on this node.",
        "",
    ),
    plain("pubsub|numsub", -2, TOLD, pubsub::numsub).doc(
        PUBSUB_GROUP,
        "2.8.0",
        "O(N), N being the channels asked for",
        "Answers how many listen to each channel on this node.",
        "[channel [channel ...]]",
    ),
    plain("pubsub|shardchannels", -2, TOLD, pubsub::shardchannels).doc(
        PUBSUB_GROUP,
        "7.0.0",
        "O(N), N being the channels",
        "Lists the shard channels that somebody listens to on this node.",
        "[pattern]",
    ),
    plain("pubsub|shardnumsub", -2, TOLD, pubsub::shardnumsub).doc(
        PUBSUB_GROUP,
        "7.0.0",
        "O(N), N being the channels asked for",
        "Answers how many listen to each shard channel on this node.",
        "[shardchannel [shardchannel ...]]",
    ),
    plain("pubsub|help", 2, LOADING | STALE, pubsub::help).doc(
        PUBSUB_GROUP,
        "6.2.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
