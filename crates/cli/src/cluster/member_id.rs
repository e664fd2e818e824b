//! Shows the ids of members as the logs do, and finds a member by its name or id.

use tenure_wire::v1;

use crate::exit::Exit;
use crate::failure::CliError;
use crate::output;

/// The fewest digits that may stand for a member's id: fewer are more likely a typing error.
const DIGITS_MIN: usize = 4;

/// The id as it is in logs, in the data directory and in the names of keys: hexadecimal.
pub(super) fn shown(id: u64) -> String {
    format!("{id:x}")
}

/// Parses an id in the form in which it is shown.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let id = u64::from_str_radix(text, 16).ok().filter(|id| *id > 0);
    id.ok_or_else(|| {
        "a member's id has up to 16 hexadecimal digits, as its log shows it".to_owned()
    })
}

/// The member with this name or id, or with the only id that begins so. Ids are accepted as they are shown, and in
/// decimal, as they are in JSON.
pub(super) fn pick(members: Vec<v1::Member>, given: &str) -> Result<v1::Member, CliError> {
    let names: Vec<String> = members.iter().map(|it| output::clean(&it.name)).collect();
    let lower = given.to_ascii_lowercase();
    let bare = lower.trim_start_matches('0');
    let by_name = |it: &v1::Member| it.name == given;
    let by_id = |it: &v1::Member| shown(it.member_id) == bare || it.member_id.to_string() == given;
    let by_prefix =
        |it: &v1::Member| given.len() >= DIGITS_MIN && shown(it.member_id).starts_with(bare);
    // A member may be called like a part of the id of another one.
    let ways: [&dyn Fn(&v1::Member) -> bool; 3] = [&by_name, &by_id, &by_prefix];
    let way = ways.into_iter().find(|way| members.iter().any(way));
    let mut found = members;
    found.retain(|it| way.is_some_and(|way| way(it)));
    if found.len() > 1 {
        let ids: Vec<String> = found.iter().map(|it| shown(it.member_id)).collect();
        let text =
            format!("{given} is the name or id of {} members; say which by its id", found.len());
        let failure = CliError::arguments(text).with("ids", ids.join(", "));
        return Err(failure.next("tenure cluster members"));
    }
    found.pop().ok_or_else(|| {
        let text = format!("there is no member {given}");
        let failure = CliError::new(Exit::Refused, "MEMBER_NOT_FOUND", text);
        failure.with("members", names.join(", ")).next("tenure cluster members")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, name: &str) -> v1::Member {
        v1::Member { member_id: id, name: name.to_owned(), ..Default::default() }
    }

    #[test]
    fn a_member_is_found_by_its_name_its_id_and_the_beginning_of_its_id() {
        let members = || {
            vec![member(0x1234_5678_9abc_def0, "a"), member(0x1234_ffff, "b"), member(7, "1234f")]
        };
        let found = |given: &str| pick(members(), given).map(|it| it.name).ok();
        assert_eq!(found("b").as_deref(), Some("b"));
        assert_eq!(found("123456789abcdef0").as_deref(), Some("a"), "as in the log");
        assert_eq!(found("1311768467463790320").as_deref(), Some("a"), "as in JSON");
        assert_eq!(found("12345").as_deref(), Some("a"));
        assert_eq!(found("000000001234FFFF").as_deref(), Some("b"));
        assert_eq!(found("1234f").as_deref(), Some("1234f"), "a name counts first");
        assert_eq!(found("123"), None, "too few digits");
        let failure = pick(members(), "1234").unwrap_err();
        assert!(failure.text.contains("of 2 members"), "{}", failure.text);
        assert!(parse("0").is_err() && parse("x").is_err() && parse("4d") == Ok(77));
    }
}
