//! PUBLISH, SUBSCRIBE and their like.

use super::*;
use crate::command::Control;
use crate::command::pubsub::{PubSubCall, Question};
use crate::pubsub::hub::SubscriptionKind;
use crate::pubsub::{Message, Scope};

fn call(call: PubSubCall) -> Parsed {
    Ok(Request::Control(Control::PubSub(call)))
}

fn message(scope: Scope, args: &[Bytes]) -> Parsed {
    call(PubSubCall::Publish(Message { scope, channel: args[1].clone(), payload: args[2].clone() }))
}

pub(crate) fn publish(args: &[Bytes]) -> Parsed {
    message(Scope::Cluster, args)
}

pub(crate) fn spublish(args: &[Bytes]) -> Parsed {
    message(Scope::Shard, args)
}

pub(crate) fn subscribe(args: &[Bytes]) -> Parsed {
    call(PubSubCall::Subscribe(SubscriptionKind::Channel, args[1..].to_vec()))
}

pub(crate) fn psubscribe(args: &[Bytes]) -> Parsed {
    call(PubSubCall::Subscribe(SubscriptionKind::Pattern, args[1..].to_vec()))
}

pub(crate) fn ssubscribe(args: &[Bytes]) -> Parsed {
    call(PubSubCall::Subscribe(SubscriptionKind::ShardChannel, args[1..].to_vec()))
}

pub(crate) fn unsubscribe(args: &[Bytes]) -> Parsed {
    call(PubSubCall::Unsubscribe(SubscriptionKind::Channel, args[1..].to_vec()))
}

pub(crate) fn punsubscribe(args: &[Bytes]) -> Parsed {
    call(PubSubCall::Unsubscribe(SubscriptionKind::Pattern, args[1..].to_vec()))
}

pub(crate) fn sunsubscribe(args: &[Bytes]) -> Parsed {
    call(PubSubCall::Unsubscribe(SubscriptionKind::ShardChannel, args[1..].to_vec()))
}

fn names(kind: SubscriptionKind, args: &[Bytes]) -> Parsed {
    match &args[2..] {
        [] => call(PubSubCall::Tell(Question::Names(kind, None))),
        [pattern] => call(PubSubCall::Tell(Question::Names(kind, Some(pattern.clone())))),
        _ => Err(sub_syntax(args)),
    }
}

pub(crate) fn channels(args: &[Bytes]) -> Parsed {
    names(SubscriptionKind::Channel, args)
}

pub(crate) fn shardchannels(args: &[Bytes]) -> Parsed {
    names(SubscriptionKind::ShardChannel, args)
}

pub(crate) fn numsub(args: &[Bytes]) -> Parsed {
    call(PubSubCall::Tell(Question::Listeners(SubscriptionKind::Channel, args[2..].to_vec())))
}

pub(crate) fn shardnumsub(args: &[Bytes]) -> Parsed {
    call(PubSubCall::Tell(Question::Listeners(SubscriptionKind::ShardChannel, args[2..].to_vec())))
}

pub(crate) fn numpat(_: &[Bytes]) -> Parsed {
    call(PubSubCall::Tell(Question::Patterns))
}

pub(crate) fn help(_: &[Bytes]) -> Parsed {
    super::help(
        "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "CHANNELS [<pattern>]",
            "    Return the currently active channels matching a <pattern> (default: '*').",
            "NUMPAT",
            "    Return number of subscriptions to patterns.",
            "NUMSUB [<channel> ...]",
            "    Return the number of subscribers for the specified channels, excluding",
            "    pattern subscriptions(default: no channels).",
            "SHARDCHANNELS [<pattern>]",
            "    Return the currently active shard level channels matching a <pattern> (default: '*').",
            "SHARDNUMSUB [<shardchannel> ...]",
            "    Return the number of subscribers for the specified shard level channel(s)",
            "HELP",
            "    Print this help.",
        ],
    )
}
