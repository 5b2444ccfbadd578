//! The Redis protocol, versions 2 and 3, without sockets.
//!
//! Three parts that know nothing of each other:
//! - [`Decoder`] reads what clients send a server: arrays of bulk strings and inline lines.
//! - [`Value`] and [`decode_value`] read what servers answer (used by clients, tests and the simulator).
//! - [`Encoder`] writes both protocol versions.
//!
//! Every length that arrives from outside has a bound with a name (see [`Limits`]); bytes are kept, never copied,
//! and no input makes these functions panic.

mod decode;
mod encode;
mod inline;
mod number;
mod value;

pub use decode::{Decoder, Limits, ProtocolError};
pub use encode::{Encoder, Proto, encode_command};
pub use number::parse_i64;
pub use value::{DEPTH_MAX, Value, ValueError, decode_value};
