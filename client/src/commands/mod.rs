//! The commands, one method of [`crate::Client`] each.
//!
//! A command without options is a [`crate::Call`]; one with options is a builder of its own that ends in one. Both are run
//! by awaiting them. Keys, fields, values and names are anything that is bytes, borrowed or owned.

mod add;
mod groups;
mod info;
mod keys;
mod pending;
mod reads;
mod server;

pub use add::{Add, AddId, Refs, Removal, Trim, XAdd};
pub use groups::GroupStart;
pub use info::{ConsumerInfo, GroupInfo, StreamInfo};
pub use keys::{ExpireIf, Set};
pub use pending::{AutoClaimed, Nack, PendingEntry, PendingSummary, XAutoClaim, XClaim, XClaimIds, XPending};
pub use reads::{Claimed, XRange, XRead, XReadGroup, XReadGroupClaim};
pub use server::{Raw, Transaction};

/// Lets a builder be awaited as the call that it builds, and given a timeout.
macro_rules! awaits {
    ($builder:ty => $reply:ty) => {
        impl $builder {
            /// The call, as it stands; awaiting the builder does the same.
            pub fn call(self) -> $crate::Call<$reply> {
                let client = self.client.clone();
                client.call(self.into_cmd())
            }

            /// Another limit than [`crate::Options::timeout`] for this call.
            pub fn timeout(self, timeout: std::time::Duration) -> $crate::Call<$reply> {
                self.call().timeout(timeout)
            }
        }

        impl std::future::IntoFuture for $builder {
            type Output = Result<$reply, $crate::Error>;
            type IntoFuture = weir_env::BoxFuture<'static, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                self.call().into_future()
            }
        }
    };
}
pub(crate) use awaits;

/// Whole milliseconds, rounded up, so that a short time does not become none.
pub(crate) fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// Several keys as arguments.
fn keys<K: AsRef<[u8]>>(
    mut cmd: crate::command::Cmd,
    keys: impl IntoIterator<Item = K>,
) -> crate::command::Cmd {
    keys.into_iter().for_each(|key| cmd.add_key(key));
    cmd
}

/// Several ids as arguments.
fn ids(mut cmd: crate::command::Cmd, ids: impl IntoIterator<Item = crate::EntryId>) -> crate::command::Cmd {
    ids.into_iter().for_each(|id| {
        cmd.args.push_id(id);
    });
    cmd
}

/// `IDS`, their number, and the ids.
fn counted_ids(
    cmd: crate::command::Cmd,
    all: impl IntoIterator<Item = crate::EntryId>,
) -> crate::command::Cmd {
    let all: Vec<crate::EntryId> = all.into_iter().collect();
    ids(cmd.arg("IDS").int(all.len()), all)
}
