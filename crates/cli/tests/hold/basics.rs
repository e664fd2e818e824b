//! What does `tenure run` do when nothing goes wrong, and how does it say that something did?

#[test]
fn the_command_is_told_what_it_holds() {
    crate::job::act();
}
