//! KEEPREF, DELREF and ACKED; XDELEX and XACKDEL.

use super::*;
use weir_stream::{Command, Refs};

/// The word at hand, if it is one of the three.
pub(super) fn refs_option(arg: &[u8]) -> Option<Refs> {
    let words = [("KEEPREF", Refs::Keep), ("DELREF", Refs::Delete), ("ACKED", Refs::Acked)];
    words.into_iter().find(|(word, _)| is(arg, word)).map(|(_, refs)| refs)
}

/// An XADD or XTRIM, with its references if they are not simply kept.
pub(super) fn with_refs(refs: Option<Refs>, command: Command) -> Command {
    match refs {
        None | Some(Refs::Keep) => command,
        Some(refs) => Command::WithRefs { refs, command: Box::new(command) },
    }
}

pub(crate) fn xdelex(args: &[Bytes]) -> Parsed {
    let (refs, ids) = options(&args[2..])?;
    let ids = ids.iter().map(|arg| id(arg)).collect::<Parsed<_>>()?;
    Ok(Request::write(Command::Xdelex { key: args[1].clone(), refs, ids }))
}

pub(crate) fn xackdel(args: &[Bytes]) -> Parsed {
    let (refs, ids) = options(&args[3..])?;
    let (key, group, ids) = (args[1].clone(), args[2].clone(), ids.to_vec());
    Ok(Request::write(Command::Xackdel { key, group, refs, ids }))
}

/// `[KEEPREF|DELREF|ACKED] IDS numids id ...` in either order.
fn options(args: &[Bytes]) -> Parsed<(Refs, &[Bytes])> {
    let (mut refs, mut ids) = (None, None);
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        if let Some(word) = refs_option(arg)
            && refs.is_none()
        {
            refs = Some(word);
            at += 1;
        } else if is(arg, "IDS") && at + 1 < args.len() {
            let count = int(&args[at + 1]).ok().and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count > 0);
            let count = count.ok_or_else(|| Refused::from("ERR Number of IDs must be a positive integer"))?;
            let all = &args[at + 2..];
            ids = Some(all.get(..count).ok_or_else(|| {
                Refused::from("ERR The `numids` parameter must match the number of arguments")
            })?);
            at += 2 + count;
        } else {
            return Err(Refused::from(SYNTAX));
        }
    }
    let ids = ids.ok_or_else(|| Refused::from("ERR IDS option is required"))?;
    Ok((refs.unwrap_or(Refs::Keep), ids))
}
