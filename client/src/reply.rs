//! Typed replies.

use crate::{Entry, EntryId};
use bytes::Bytes;
use weir_resp::Value;

/// What can be read from a reply. Implemented for numbers, texts, bytes, [`EntryId`], [`Entry`], `Option`, `Vec`,
/// pairs, `()` (any reply that is not an error) and [`Value`] itself.
pub trait FromValue: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// The value, if it has another shape.
    fn from_value(value: Value) -> Result<Self, Value>;
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self, Value> {
        Ok(value)
    }
}

impl FromValue for () {
    fn from_value(_: Value) -> Result<Self, Value> {
        Ok(())
    }
}

impl FromValue for i64 {
    fn from_value(value: Value) -> Result<Self, Value> {
        match &value {
            Value::Int(n) => Ok(*n),
            Value::Bulk(text) | Value::Simple(text) => weir_resp::parse_i64(text).ok_or(value),
            _ => Err(value),
        }
    }
}

impl FromValue for u64 {
    fn from_value(value: Value) -> Result<Self, Value> {
        match &value {
            Value::Int(n) => u64::try_from(*n).map_err(|_| value),
            Value::Bulk(text) | Value::Simple(text) => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(value)
            }
            _ => Err(value),
        }
    }
}

impl FromValue for bool {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Int(n) => Ok(n != 0),
            Value::Bool(yes) => Ok(yes),
            other => Err(other),
        }
    }
}

impl FromValue for Bytes {
    fn from_value(value: Value) -> Result<Self, Value> {
        value.bytes().cloned().ok_or(value)
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> Result<Self, Value> {
        let text = value.bytes().and_then(|text| std::str::from_utf8(text).ok()).map(str::to_owned);
        text.ok_or(value)
    }
}

impl FromValue for EntryId {
    fn from_value(value: Value) -> Result<Self, Value> {
        value.bytes().and_then(|text| EntryId::from_bytes(text)).ok_or(value)
    }
}

impl FromValue for Entry {
    fn from_value(value: Value) -> Result<Self, Value> {
        let Value::Array(parts) = &value else { return Err(value) };
        let read = || {
            let [id, fields] = parts.as_slice() else { return None };
            let id = EntryId::from_bytes(id.bytes()?)?;
            let fields = match fields {
                fields if fields.is_nil() => Vec::new(),
                Value::Array(strings) if strings.len().is_multiple_of(2) => strings
                    .chunks_exact(2)
                    .map(|pair| Some((pair[0].bytes()?.clone(), pair[1].bytes()?.clone())))
                    .collect::<Option<Vec<_>>>()?,
                _ => return None,
            };
            Some(Entry { id, fields })
        };
        read().ok_or(value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self, Value> {
        if value.is_nil() { Ok(None) } else { T::from_value(value).map(Some) }
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    /// A nil counts as empty.
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            nil if nil.is_nil() => Ok(Vec::new()),
            Value::Array(items) | Value::Set(items) => items.into_iter().map(T::from_value).collect(),
            other => Err(other),
        }
    }
}

impl<A: FromValue, B: FromValue> FromValue for (A, B) {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            Value::Array(items) if items.len() == 2 => {
                let mut items = items.into_iter();
                let (a, b) = (items.next().unwrap_or(Value::Null), items.next().unwrap_or(Value::Null));
                Ok((A::from_value(a)?, B::from_value(b)?))
            }
            other => Err(other),
        }
    }
}

/// Names and values: a map in version 3 of the protocol, a flat list in version 2.
pub(crate) struct Fields(Vec<(Value, Value)>);

impl Fields {
    pub(crate) fn read(value: Value) -> Result<Fields, Value> {
        match value {
            Value::Map(pairs) => Ok(Fields(pairs)),
            Value::Array(items) if items.len().is_multiple_of(2) => {
                let mut items = items.into_iter();
                let mut pairs = Vec::new();
                while let (Some(name), Some(value)) = (items.next(), items.next()) {
                    pairs.push((name, value));
                }
                Ok(Fields(pairs))
            }
            other => Err(other),
        }
    }

    /// Takes a field out; null if there is none.
    pub(crate) fn take(&mut self, name: &str) -> Value {
        let at = self.0.iter().position(|(key, _)| key.bytes().is_some_and(|key| key == name));
        at.map_or(Value::Null, |at| self.0.swap_remove(at).1)
    }

    pub(crate) fn get<T: FromValue>(&mut self, name: &str) -> Result<T, Value> {
        T::from_value(self.take(name))
    }
}

/// Entries of several streams, as XREAD and XREADGROUP answer them: `(stream, entries)` in the order asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streams<T = Entry>(pub Vec<(Bytes, Vec<T>)>);

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Streams(Vec::new())
    }
}

impl<T> Streams<T> {
    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, entries)| entries.is_empty())
    }

    /// All entries with their streams.
    pub fn into_entries(self) -> impl Iterator<Item = (Bytes, T)> {
        self.0.into_iter().flat_map(|(key, entries)| entries.into_iter().map(move |e| (key.clone(), e)))
    }

    /// The entries, when one stream was asked for.
    pub fn into_only(self) -> Vec<T> {
        self.0.into_iter().next().map(|(_, entries)| entries).unwrap_or_default()
    }
}

impl<T: FromValue> FromValue for Streams<T> {
    fn from_value(value: Value) -> Result<Self, Value> {
        match value {
            nil if nil.is_nil() => Ok(Streams::default()),
            Value::Map(pairs) => {
                let pairs = pairs.into_iter().map(|(k, v)| Ok((Bytes::from_value(k)?, Vec::from_value(v)?)));
                pairs.collect::<Result<_, Value>>().map(Streams)
            }
            array => Vec::from_value(array).map(Streams),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    fn value(text: &str) -> Value {
        weir_resp::decode_value(&mut BytesMut::from(text)).unwrap().unwrap()
    }

    const ENTRY: &str = "*2\r\n$3\r\n1-2\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n";

    #[test]
    fn streams_are_read_from_both_versions() {
        let two = format!("*1\r\n*2\r\n$1\r\nk\r\n*1\r\n{ENTRY}");
        let three = format!("%1\r\n$1\r\nk\r\n*1\r\n{ENTRY}");
        let entry = Entry { id: EntryId::new(1, 2), fields: vec![("f".into(), "v".into())] };
        for text in [two, three] {
            let streams = Streams::from_value(value(&text)).unwrap();
            assert_eq!(streams, Streams(vec![("k".into(), vec![entry.clone()])]));
        }
        for text in ["*-1\r\n", "_\r\n"] {
            assert!(Streams::<Entry>::from_value(value(text)).unwrap().is_empty());
        }
    }

    #[test]
    fn an_entry_that_is_gone_has_no_fields() {
        for nil in ["*-1\r\n", "_\r\n"] {
            let entry = Entry::from_value(value(&format!("*2\r\n$3\r\n1-2\r\n{nil}"))).unwrap();
            assert_eq!(entry, Entry { id: EntryId::new(1, 2), fields: vec![] });
        }
    }

    #[test]
    fn other_shapes_are_handed_back() {
        for text in
            [":1\r\n", "*1\r\n:1\r\n", "*2\r\n$1\r\nx\r\n*0\r\n", "*2\r\n$3\r\n1-1\r\n*1\r\n$1\r\na\r\n"]
        {
            assert!(Entry::from_value(value(text)).is_err(), "{text:?}");
        }
        for text in [":1\r\n", "*1\r\n:1\r\n", "*1\r\n*2\r\n$1\r\nk\r\n:1\r\n", "%1\r\n:1\r\n*0\r\n"] {
            assert!(Streams::<Entry>::from_value(value(text)).is_err(), "{text:?}");
        }
        assert!(u64::from_value(Value::Int(-1)).is_err());
        assert!(EntryId::from_value(value("$3\r\n1-x\r\n")).is_err());
    }
}
