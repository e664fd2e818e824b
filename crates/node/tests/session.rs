//! A session submits what it takes, gives each request one answer, and tells its client of what it may hear of.

use tenure_core::event::Cause;
use tenure_core::outcome::{Answer, Grants, LeaseGrant, Notice, Outcome, Queued, Renewal};
use tenure_core::request::{Command, Expect, LeaseRef, Put, Request, RequestId};
use tenure_node::{
    GIVE_UP_GRACE_US, NodeFailure, Permit, Session, SessionBounds, SessionCluster, SessionCommand,
    SessionEnd, SessionMessage, SessionOutput,
};
use tenure_types::{Handle, LeaseId, PlaceNumber, Revision};

type Output = SessionOutput<(), &'static str>;

const LEASE: Handle = Handle { slot: 3, generation: 1 };
const WITHIN_US: u64 = 1_000_000;

fn put() -> Command<'static> {
    let (lease, guard) = (None, None);
    Command::Put(Put { key: "k", value: b"", lease, expect: Expect::Any, guard })
}

struct SessionHarness {
    session: Session<(), &'static str>,
    outputs: Vec<Output>,
}

impl SessionHarness {
    fn new(bounds: SessionBounds) -> Self {
        Self { session: Session::new(bounds), outputs: Vec::new() }
    }

    fn take(&mut self, now_us: u64, id: u64, command: Command<'_>) {
        self.take_within(now_us, id, WITHIN_US, command);
    }

    fn take_within(&mut self, now_us: u64, id: u64, within_us: u64, command: Command<'_>) {
        let request = Request { principal: "", id: RequestId::None, command };
        let command = SessionCommand { id, within_us, request };
        let admit = |_: &Command<'_>, _| Ok::<_, ()>(Permit::default());
        self.session.command(now_us, &command, admit, || ()).unwrap();
    }

    /// Submits what was taken. Returns the batches, with the number of their commands and how long they may wait.
    fn submit(&mut self, now_us: u64) -> Vec<(u64, usize, u64)> {
        self.session.submit(now_us, &mut self.outputs);
        let batch = |it| match it {
            SessionOutput::Submit { batch, commands } => {
                (batch, commands.requests.len(), commands.linger_us)
            }
            _ => panic!("only batches"),
        };
        self.outputs.drain(..).map(batch).collect()
    }

    fn mail(&mut self, mail: SessionMessage) -> Vec<String> {
        self.session.mail(mail, &mut self.outputs);
        self.outputs.drain(..).map(shown).collect()
    }

    fn answer(&mut self, batch: u64, outcomes: Vec<Result<Outcome, NodeFailure>>) -> Vec<String> {
        self.mail(SessionMessage::Answers { batch, outcomes })
    }

    fn turn(&mut self, now_us: u64) -> Vec<String> {
        self.session.turn(now_us, &mut self.outputs);
        self.outputs.drain(..).map(shown).collect()
    }
}

fn shown(output: Output) -> String {
    match output {
        SessionOutput::Submit { batch, .. } => format!("submit {batch}"),
        SessionOutput::Ask { question, .. } => format!("ask {question}"),
        SessionOutput::Answer { id, outcome: Ok(_), .. } => format!("answer {id}"),
        SessionOutput::Answer { id, outcome: Err(failure), .. } => format!("{id} {failure:?}"),
        SessionOutput::Notice { id, .. } => format!("notice {id}"),
        SessionOutput::Attach(leases) => format!("attach {}", leases.len()),
        SessionOutput::Learned(lease) => format!("learned {}", lease.id),
        SessionOutput::TellLeader => "leader".to_owned(),
        SessionOutput::Leave(places) => format!("leave {}", places.len()),
        SessionOutput::End(end) => format!("{end:?}"),
    }
}

fn done(answer: Answer) -> Result<Outcome, NodeFailure> {
    Ok(Outcome { revision: Revision(1), result: Ok(answer) })
}

fn queued(place: u64) -> Result<Outcome, NodeFailure> {
    let id = LeaseId::new(7).unwrap();
    let lease = LeaseGrant { id, created: Revision(1), handle: LEASE, ttl_ms: 2_000 };
    done(Answer::Queued(Queued { lease, place: PlaceNumber(place), ahead: 1 }))
}

fn granted(place: u64) -> SessionMessage {
    let (place, revision) = (PlaceNumber(place), Revision(2));
    let grants = Grants::Many(Vec::new());
    SessionMessage::Notice(Notice::Granted { lease: LEASE, place, revision, grants })
}

fn renew() -> Command<'static> {
    Command::Renew(vec![LeaseRef::Handle(LEASE), LeaseRef::Handle(Handle { slot: 9, ..LEASE })])
}

#[test]
fn renewals_are_a_batch_of_their_own_which_may_wait() {
    let mut stage = SessionHarness::new(SessionBounds::default());
    stage.take(0, 1, put());
    stage.take(0, 2, renew());
    stage.take(0, 3, put());
    assert_eq!(stage.submit(0), [(1, 2, 0), (2, 1, tenure_node::renewal_linger_us(1_000))]);
    assert_eq!(stage.answer(1, vec![queued(1), queued(2)]), ["answer 1", "answer 3"]);
    // From now on it knows a lease.
    stage.take(0, 4, renew());
    assert_eq!(stage.submit(0), [(3, 1, tenure_node::renewal_linger_us(2_000))]);
}

#[test]
fn no_command_is_submitted_with_a_deadline_later_than_its_own() {
    let mut stage = SessionHarness::new(SessionBounds::default());
    for (id, within_us) in [(1, 50_000), (2, WITHIN_US), (3, WITHIN_US + 5_000), (4, 50_000)] {
        stage.take_within(0, id, within_us, put());
    }
    stage.session.submit(0, &mut stage.outputs);
    let batch = |it| match it {
        SessionOutput::Submit { commands, .. } => (commands.requests.len(), commands.deadline_us),
        _ => panic!("only batches"),
    };
    let batches: Vec<_> = stage.outputs.drain(..).map(batch).collect();
    assert_eq!(batches, [(1, 50_000), (2, WITHIN_US), (1, 50_000)]);
}

#[test]
fn a_request_is_given_up_as_unknown_and_its_later_outcome_is_not_told() {
    let mut stage = SessionHarness::new(SessionBounds::default());
    stage.take(0, 1, put());
    stage.take(500_000, 2, put());
    stage.submit(500_000);
    assert_eq!(stage.session.wake_us(), WITHIN_US + GIVE_UP_GRACE_US);
    assert!(stage.turn(WITHIN_US + GIVE_UP_GRACE_US - 1).is_empty());
    assert_eq!(stage.turn(WITHIN_US + GIVE_UP_GRACE_US), ["1 Unknown"]);
    assert_eq!(stage.session.in_flight(), 1);
    assert_eq!(stage.answer(1, vec![queued(1)]), ["learned 7"]);
    assert_eq!(stage.answer(2, vec![queued(2)]), ["answer 2"]);
    assert_eq!(stage.session.in_flight(), 0);
}

#[test]
fn a_grant_names_the_request_by_which_the_client_knows_the_place() {
    let mut stage = SessionHarness::new(SessionBounds::default());
    stage.take(0, 1, put());
    stage.submit(0);
    stage.take(900_000, 2, put());
    stage.submit(900_000);
    assert_eq!(stage.turn(WITHIN_US + GIVE_UP_GRACE_US), ["1 Unknown"]);
    // The client has sent its acquire again. The answer to the first attempt comes after that to the second.
    assert_eq!(stage.answer(2, vec![queued(5)]), ["answer 2"]);
    assert_eq!(stage.answer(1, vec![queued(5)]), ["learned 7"]);
    assert_eq!(stage.mail(granted(5)), ["notice 2"]);
    assert_eq!(stage.mail(granted(5)), ["notice 0"], "a place is granted once");
}

#[test]
fn a_grant_names_the_request_that_the_client_sent_last() {
    let mut stage = SessionHarness::new(SessionBounds::default());
    for (now_us, id) in [(0, 1), (500_000, 2)] {
        stage.take(now_us, id, put());
        stage.submit(now_us);
    }
    // The first batch was tried twice, so its answer comes last.
    assert_eq!(stage.answer(2, vec![queued(5)]), ["answer 2"]);
    assert_eq!(stage.answer(1, vec![queued(5)]), ["answer 1"]);
    assert_eq!(stage.mail(granted(5)), ["notice 2"]);
}

#[test]
fn a_session_hears_of_a_lease_once_it_has_renewed_it() {
    let mut stage = SessionHarness::new(SessionBounds::default());
    stage.take(0, 1, renew());
    stage.submit(0);
    let renewal = Some(Renewal { ttl_ms: 1, changed: Revision(0) });
    let renewed = done(Answer::Renewed(vec![renewal, None]));
    assert_eq!(stage.answer(1, vec![renewed.clone()]), ["attach 1", "answer 1"]);
    // The lease that was not renewed may belong to another client.
    stage.take(0, 2, renew());
    stage.submit(0);
    assert_eq!(stage.answer(2, vec![renewed.clone()]), ["answer 2"]);
    let (revision, cause) = (Revision(3), Some(Cause::Expired));
    let ended = Notice::LeaseEnded { lease: LEASE, revision, cause, word: None };
    assert_eq!(stage.mail(SessionMessage::Notice(ended)), ["notice 0"]);
    stage.take(0, 3, renew());
    stage.submit(0);
    assert_eq!(stage.answer(3, vec![renewed]), ["attach 1", "answer 3"]);
}

#[test]
fn a_session_takes_no_more_than_it_has_room_for() {
    let bounds = SessionBounds { in_flight: 3, questions: 1, requests: 2, leases: 1 };
    let mut stage = SessionHarness::new(bounds);
    stage.session.question(0, WITHIN_US, "first", &mut stage.outputs);
    stage.session.question(0, WITHIN_US, "second", &mut stage.outputs);
    assert_eq!(stage.outputs.drain(..).map(shown).collect::<Vec<_>>(), ["ask first"]);
    assert!(stage.session.has_room(0) && !stage.session.has_room(1));
    stage.take(0, 1, put());
    assert!(!stage.session.has_room(0));
    stage.session.question_answered(&mut stage.outputs);
    assert_eq!(stage.outputs.drain(..).map(shown).collect::<Vec<_>>(), ["ask second"]);
    assert!(stage.session.has_room(0));
    let bound = 2;
    assert_eq!(stage.session.check_message(3), Err(SessionEnd::TooManyRequests { bound }));
    assert!(stage.session.is_over());
}

#[test]
fn a_session_ends_once_with_the_first_reason() {
    let mut stage = SessionHarness::new(SessionBounds::default());
    stage.take(0, 1, put());
    stage.take(0, 2, put());
    stage.submit(0);
    let stopping: Result<Outcome, _> = Err(NodeFailure::Stopping);
    assert_eq!(stage.answer(1, vec![stopping.clone(), stopping]), ["Stopping"]);
    assert!(stage.mail(SessionMessage::Closed).is_empty());
    assert!(stage.turn(u64::MAX).is_empty());

    let mut stage = SessionHarness::new(SessionBounds::default());
    stage.take(0, 1, put());
    stage.submit(0);
    assert_eq!(stage.answer(1, vec![queued(1)]), ["answer 1"]);
    stage.session.credentials_ended(&mut stage.outputs);
    let ended: Vec<_> = stage.outputs.drain(..).map(shown).collect();
    assert_eq!(ended, ["leave 1", "Credentials"]);
}

#[test]
fn a_hello_names_the_cluster_that_it_means() {
    let here = SessionCluster { cluster_id: 7, epoch: 2, incarnation: 9 };
    let greet = |meant: SessionCluster, leases| {
        Session::<(), ()>::new(SessionBounds::default()).greet(meant, here, leases)
    };
    assert_eq!(greet(SessionCluster::default(), 0), Ok(()));
    assert_eq!(greet(here, 0), Ok(()));
    assert_eq!(greet(SessionCluster { cluster_id: 8, ..here }, 0), Err(SessionEnd::OtherCluster));
    assert_eq!(greet(SessionCluster { epoch: 1, ..here }, 0), Err(SessionEnd::Restored));
    assert_eq!(greet(SessionCluster { incarnation: 1, ..here }, 0), Err(SessionEnd::Restored));
    assert_eq!(greet(here, usize::MAX), Err(SessionEnd::TooManyLeases));
    let mut session = Session::<(), ()>::new(SessionBounds::default());
    assert_eq!(session.greet(here, here, 0), Ok(()));
    assert_eq!(session.greet(here, here, 0), Err(SessionEnd::GreetedTwice));
}
