//! Do words that others use too mean the same here?

use tenure_gate::reason::TABLE;

#[test]
fn reasons_of_the_cluster_have_its_status_and_effect() {
    let mut shared = 0;
    for ours in TABLE {
        let Some(theirs) = tenure_wire::reason::row(ours.reason) else { continue };
        shared += 1;
        assert_eq!(ours.status.as_u16(), theirs.http, "{}", ours.reason);
        assert_eq!(
            ours.effect.word(),
            tenure_wire::reason::effect_word(theirs.effect),
            "{}",
            ours.reason
        );
    }
    assert!(shared >= 12, "{shared} of {} are shared", TABLE.len());
}

#[test]
fn the_guides_tell_every_reason() {
    let store = include_str!("../../../../docs/guides/store.md");
    let fencing = include_str!("../../../../docs/guides/proxy.md");
    for row in TABLE {
        let line =
            format!("| `{}` | {} | {} |", row.reason, row.status.as_u16(), row.effect.word());
        assert!(store.contains(&line) || fencing.contains(&line), "{line}");
    }
}
