//! ACL and AUTH.

use super::*;
use crate::acl::facts::CATEGORIES;
use crate::acl::user::has_spaces;
use crate::command::acl::AclCall;
use crate::command::{Control, table};

fn call(call: AclCall) -> Parsed {
    Ok(Request::Control(Control::Acl(call)))
}

pub(crate) fn auth(args: &[Bytes]) -> Parsed {
    match args {
        [_, password] => Ok(Request::Control(Control::Auth { user: None, password: password.clone() })),
        [_, user, password] => {
            Ok(Request::Control(Control::Auth { user: Some(user.clone()), password: password.clone() }))
        }
        _ => Err(Refused::from(SYNTAX)),
    }
}

pub(crate) fn whoami(_: &[Bytes]) -> Parsed {
    call(AclCall::WhoAmI)
}

pub(crate) fn list(_: &[Bytes]) -> Parsed {
    call(AclCall::List)
}

pub(crate) fn users(_: &[Bytes]) -> Parsed {
    call(AclCall::Users)
}

pub(crate) fn getuser(args: &[Bytes]) -> Parsed {
    call(AclCall::GetUser(args[2].clone()))
}

pub(crate) fn setuser(args: &[Bytes]) -> Parsed {
    if has_spaces(&args[2]) {
        return Err(Refused::from("ERR Usernames can't contain spaces or null characters"));
    }
    call(AclCall::SetUser { name: args[2].clone(), rules: args[3..].to_vec() })
}

pub(crate) fn deluser(args: &[Bytes]) -> Parsed {
    if args[2..].iter().any(|name| name.as_ref() == crate::acl::user::DEFAULT) {
        return Err(Refused::from("ERR The 'default' user cannot be removed"));
    }
    call(AclCall::DelUser(args[2..].to_vec()))
}

pub(crate) fn cat(args: &[Bytes]) -> Parsed {
    match &args[2..] {
        [] => call(AclCall::Categories),
        [category] => match CATEGORIES.iter().find(|known| is(category, &known[1..])) {
            Some(known) => call(AclCall::Category(known)),
            None => Err(Refused::from(format!("ERR Unknown category '{}'", text(category)))),
        },
        _ => Err(table::wrong_arity("acl|cat")),
    }
}

const GENPASS_BITS_MAX: i64 = 4096;

pub(crate) fn genpass(args: &[Bytes]) -> Parsed {
    let bits = match &args[2..] {
        [] => 256,
        [bits] => int(bits)?,
        _ => return Err(table::wrong_arity("acl|genpass")),
    };
    if !(1..=GENPASS_BITS_MAX).contains(&bits) {
        return Err(Refused::from(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {GENPASS_BITS_MAX}"
        )));
    }
    // A hex digit has four bits.
    call(AclCall::GenPass { digits: (bits as usize).div_ceil(4) })
}

pub(crate) fn log(args: &[Bytes]) -> Parsed {
    match &args[2..] {
        [] => call(AclCall::Log { count: 10 }),
        [word] if is(word, "RESET") => call(AclCall::LogReset),
        [count] => call(AclCall::Log { count: not_negative(int(count)?) as usize }),
        _ => Err(table::wrong_arity("acl|log")),
    }
}

pub(crate) fn dryrun(args: &[Bytes]) -> Parsed {
    call(AclCall::DryRun { name: args[2].clone(), args: args[3..].to_vec() })
}

pub(crate) fn load_save(_: &[Bytes]) -> Parsed {
    Err(Refused::from(
        "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
         SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order \
         to store users in the Redis configuration.",
    ))
}

pub(crate) fn help(_: &[Bytes]) -> Parsed {
    super::help(
        "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        &[
            "CAT [<category>]",
            "    List all commands that belong to <category>, or all command categories",
            "    when no category is specified.",
            "DELUSER <username> [<username> ...]",
            "    Delete a list of users.",
            "DRYRUN <username> <command> [<arg> ...]",
            "    Returns whether the user can execute the given command without executing the command.",
            "GETUSER <username>",
            "    Get the user's details.",
            "GENPASS [<bits>]",
            "    Generate a secure 256-bit user password. The optional `bits` argument can",
            "    be used to specify a different size.",
            "LIST",
            "    Show users details in config file format.",
            "LOAD",
            "    Reload users from the ACL file.",
            "LOG [<count> | RESET]",
            "    Show the ACL log entries.",
            "SAVE",
            "    Save the current config to the ACL file.",
            "SETUSER <username> <attribute> [<attribute> ...]",
            "    Create or modify a user with the specified attributes.",
            "USERS",
            "    List all the registered usernames.",
            "WHOAMI",
            "    Return the current connection username.",
            "HELP",
            "    Print this help.",
        ],
    )
}
