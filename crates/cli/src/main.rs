//! Parses the arguments of `tenure` and runs the command.

mod address;
mod audit;
mod auth;
mod backup;
mod bench;
mod client_name;
mod cluster;
mod command_line;
mod connect;
mod connection_args;
mod data_dir;
mod demo;
mod dev;
mod doctor;
mod drain;
mod duration;
mod elect;
mod exit;
mod failure;
mod fence;
mod floor;
mod force;
mod guard;
mod hand_on;
mod inspect;
mod key;
mod lease;
mod lease_keep;
mod listing;
mod lock;
mod loss;
mod manual;
mod member_process;
mod output;
mod plan;
mod print_args;
mod progress;
mod reason;
mod resize;
mod restore;
mod run;
mod serve;
mod signals;
mod state;
mod state_locks;
mod store;
mod suggest;
mod terminal;
mod top;
mod unlock;
mod usage_error;
mod version;
mod waiting;
mod wall_time;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use exit::Exit;
use failure::CliError;
use output::OutputFormat;

/// Chosen for session messages: many small buffers that other threads free than those that allocated them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Distributed locks that stop one holder before the next starts.
///
///   tenure dev                          one durable member on this machine
///   tenure run deploy -- sleep 30       second terminal: your first lock
///   tenure run deploy -- sleep 30       third terminal: says whom it waits for
///   tenure explain deploy               who has it, who waits, when it can be free
#[derive(Parser)]
#[command(name = "tenure", version, long_version = version::LONG_VERSION, verbatim_doc_comment)]
#[command(arg_required_else_help = true)]
#[command(disable_help_subcommand = true, infer_subcommands = false)]
#[command(
    after_help = "Each command's --help begins with examples; `tenure help HELD` explains a reason, \
    `tenure help exit` the exit codes. Flags of the cluster, as --addr, may also stand before the command."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Run a command while holding a lock
    ///
    ///   tenure run deploy -- ./migrate.sh           wait your turn
    ///   tenure run nightly --wait 0 -- ./report     skip if another client has it
    ///   tenure run workers --slots 8 -- ./worker    be one of eight
    ///   tenure run cache --shared -- ./read         together with other readers
    ///   tenure run a b -- ./move                    several locks, all or none
    ///   tenure run --any gpu/0 gpu/1 -- ./train     whichever is free first
    ///   tenure run --pool gpu/ -- ./train           any slot of a pool
    ///
    /// The command and everything it starts has ended before another client can have the lock: also if `tenure`
    /// is stopped or killed, no member can be reached, or the command ignores SIGTERM. It finds TENURE_LOCK,
    /// TENURE_TOKEN, TENURE_LEASE and TENURE_ADDR in its environment: give the token to what the lock protects.
    /// TENURE_LOCKS has the tokens of several locks, as JSON.
    ///
    /// Ends with the command's code; 75 if not acquired, 76 if lost. All codes: `tenure help exit`.
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only errors and the loss of the lock")))]
    Run(run::RunArgs),
    /// Wait for a lock and hold it until Ctrl-C
    ///
    ///   tenure lock deploy                      wait your turn
    ///   tenure lock deploy --wait 30s           at most so long
    ///   tenure lock cache --shared              together with other readers
    ///   tenure lock workers --slots 8           be one of eight
    ///
    /// In a script, under a lease of yours: it returns as soon as the lock is held, and the lease holds it on.
    ///
    ///   LEASE=$(tenure lease grant --ttl 5m)
    ///   TOKEN=$(tenure lock deploy --lease $LEASE)
    ///
    /// While it waits it renews that lease; from then on renew it yourself: `tenure lease renew $LEASE`.
    /// The fencing token is all that is printed to stdout: hand it to whatever the lock protects.
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only errors and the loss of the lock, no token")))]
    Lock(lock::LockArgs),
    /// Hold a lock until Ctrl-C if it is free, else say who has it
    ///
    ///   tenure try deploy                              holds it until Ctrl-C, or ends at once with 75
    ///
    /// In a script, under a lease of yours: it returns at once either way, and the lease holds the lock on.
    ///
    ///   LEASE=$(tenure lease grant --ttl 5m)
    ///   TOKEN=$(tenure try deploy --lease $LEASE) || exit 0
    ///   …
    ///   tenure lease revoke $LEASE --stopped           gives it back
    ///
    /// Or around a command, which is stopped if the lock is lost: `tenure run deploy --wait 0 -- ./report`.
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only errors and the loss of the lock, no token")))]
    Try(lock::TryArgs),
    /// Give back a lock that a lease holds
    ///
    ///   tenure unlock deploy --lease 68629145 --token 1042
    ///
    /// Ends with 1 if the lease has ended or does not hold the lock under that token: stop the work then.
    #[command(verbatim_doc_comment)]
    Unlock(unlock::UnlockArgs),
    /// Report how far the work under a lock has come
    ///
    ///   tenure progress 3     # in a command that tenure run copy --progress-within 5m has started
    ///
    /// A lock that was taken with --progress-within is lost unless a larger number follows in time. A command under
    /// tenure run finds the lock, the lease and the token in its environment. Ends with 1 if the lock is not held under
    /// that token any more: stop the work then.
    #[command(verbatim_doc_comment)]
    Progress(progress::ProgressArgs),
    /// Give a lock that a lease holds to a lease that waits for it, ahead of all others
    ///
    ///   tenure queue web                                                  # who waits, and under which lease
    ///   tenure hand-on web --lease 68629145 --token 1042 --to 77301250    # after the work has stopped
    ///
    /// The lock is never free in between, and the new holder has a larger token. Stop the work before: by this command
    /// the giver says that it has. Ends with 1 if the lock is not held under that token, or if the other lease does not
    /// wait for this lock alone; then it is held as before.
    #[command(verbatim_doc_comment)]
    HandOn(hand_on::HandOnArgs),
    /// List the locks that are held or awaited
    ///
    ///   tenure locks
    ///   tenure locks jobs/
    ///   tenure locks --quiet | xargs -d '\n' -n 1 tenure explain
    #[command(verbatim_doc_comment)]
    Locks(inspect::LocksArgs),
    /// Show who waits for a lock, in order
    ///
    ///   tenure queue deploy
    ///   tenure queue deploy --quiet                     only the waiters' leases
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only the waiters' leases, one per line")))]
    Queue(inspect::QueueArgs),
    /// Say who has a lock, who waits, and when it can be free
    ///
    ///   tenure explain deploy
    #[command(verbatim_doc_comment)]
    Explain(inspect::ExplainArgs),
    /// Show what happened to a lock, and who held it when
    ///
    ///   tenure history deploy
    ///   tenure history deploy --at 03:14                 who held it then, and how that ended
    ///   tenure history deploy --since 2h --client ci-7
    ///   tenure history --lost --since 1d                 every lock that its holder did not give back
    ///   tenure history deploy --from 8841 --output json
    ///   tenure history --verify /var/lib/tenure/archive  check the promises against what was recorded
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("client", |arg| arg.help("Only what concerns clients whose names begin so")))]
    History(inspect::HistoryArgs),
    /// Take a lock away from its holder
    ///
    ///   tenure force deploy                                                    shows the holder, does nothing
    ///   tenure force deploy --token 1042 --reason "runner 7 was deleted"       it may stop first
    ///   tenure force deploy --token 1042 --reason "…" --now                    it may not: only a fence protects
    #[command(verbatim_doc_comment)]
    Force(force::ForceArgs),
    /// Close locks to new holders, for maintenance
    ///
    ///   tenure drain db/ --reason "new disks"               no new grants below db/; holders finish
    ///   tenure drain db/ --reason "new disks" --wait 10m    and wait until no holder is left
    ///   tenure drain --list                                 what is drained, since when, by whom, holders left
    ///
    /// Who asks for a lock below the prefix queues; who does not wait is told who drained it, and why. Holders renew
    /// and finish. `tenure undrain db/` opens it: the queues go on in order. Needs `operate` for the prefix.
    ///
    /// With --wait, ends with 75 if holders are left after that time; the prefix stays drained.
    #[command(verbatim_doc_comment)]
    Drain(drain::DrainArgs),
    /// Open locks that were drained
    ///
    ///   tenure undrain db/
    #[command(verbatim_doc_comment)]
    Undrain(drain::UndrainArgs),
    /// Set how many slots a semaphore has
    ///
    ///   tenure resize runners 12          from now on, whatever --slots says
    ///   tenure resize runners --unset     --slots decides again, once no client uses it
    ///
    /// More slots are granted at once, in the order of the queue. With fewer, holders keep theirs, and none is granted
    /// until enough were given back; who waits for more slots than there are is told. Needs `operate` for the name.
    #[command(verbatim_doc_comment)]
    Resize(resize::ResizeArgs),
    /// Grant, renew, end and show leases
    ///
    ///   LEASE=$(tenure lease grant --ttl 5m)     yours to renew, in a script
    ///   tenure lease renew $LEASE
    ///   tenure lease list                        of all clients, with what they hold
    #[command(subcommand, verbatim_doc_comment)]
    Lease(lease::LeaseCommand),
    /// Campaign for leadership; optionally run a command while leading
    ///
    ///   tenure elect billing --value 10.0.0.5:9000                            campaign, lead, campaign again
    ///   tenure elect billing --value 10.0.0.5:9000 -- ./billing --primary     run a command while leading
    ///   tenure elect billing --value 10.0.0.5:9000 --once                     ends with 76 if leadership is lost
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only errors and the loss of leadership")))]
    Elect(elect::ElectArgs),
    /// Print who leads, and every change of it
    ///
    ///   tenure observe billing
    #[command(verbatim_doc_comment)]
    Observe(watch::ObserveArgs),
    /// Print every change as it happens
    ///
    ///   tenure watch                          everything, from now on
    ///   tenure watch jobs/ --from 8841        what begins so, from a revision on; nothing is missed or told twice
    ///
    /// Ends with 1 if the cluster has not come to that revision, or the history does not reach back to it any more;
    /// the message has the nearest that can be asked for.
    #[command(verbatim_doc_comment)]
    Watch(watch::WatchArgs),
    /// Read and write keys in the built-in key–value store
    ///
    ///   tenure key put config v1
    ///   tenure key get config
    ///   tenure key put ledger paid --lock deploy --token 1042    refused if the lock is not held under it
    #[command(subcommand, verbatim_doc_comment)]
    Key(key::KeyCommand),
    /// Start one durable member on this machine, for development
    ///
    ///   tenure dev                  durable: locks survive Ctrl-C and kill -9
    ///   tenure dev --size 3         three in one process, for play
    ///   tenure dev --fresh          keeps nothing
    ///
    /// Talk to it with the other commands, or over gRPC, WebSocket or HTTP:
    /// `curl http://127.0.0.1:7450/v1/cluster`.
    #[command(verbatim_doc_comment)]
    Dev(dev::DevArgs),
    /// Start one member of a cluster
    ///
    ///   tenure serve --name a --data /var/lib/tenure --bootstrap a=10.0.0.11:7451,b=…,c=…
    ///   tenure serve --name d --data /var/lib/tenure --join 10.0.0.11:7451 --invitation-file d.invitation
    ///   tenure serve --config /etc/tenure.toml
    ///
    /// The first start needs --bootstrap with all initial members, or --join with any member of a cluster
    /// that exists and an invitation from `tenure cluster invite`. A restart needs none of these.
    #[command(verbatim_doc_comment)]
    Serve(serve::ServeArgs),
    /// Look at the configuration
    ///
    ///   tenure config check --config /etc/tenure.toml
    #[command(subcommand, verbatim_doc_comment)]
    Config(serve::ConfigCommand),
    /// Look at a cluster and change its members
    ///
    ///   tenure cluster status           how everything is, and what to do first
    ///   tenure cluster add d            what to type on another machine
    ///   tenure cluster transfer b       let another member lead
    #[command(subcommand, verbatim_doc_comment)]
    Cluster(cluster::ClusterCommand),
    /// Say who may do what: roles, principals, API keys, certificates, tokens, quotas
    ///
    ///   tenure auth init --data-dir /var/lib/tenure                         the first administrator
    ///   tenure auth role put team-a --allow read,acquire,keys:team-a/
    ///   tenure auth principal put ci-a --role team-a
    ///   tenure auth key create ci-a --expires 90d --key-file ci-a.key
    ///   tenure auth can ci-a acquire team-a/deploy                          yes or no, and why
    ///   tenure auth enable                                                  from now on every caller needs credentials
    #[command(subcommand, verbatim_doc_comment)]
    Auth(auth::AuthCommand),
    /// Show what administrators did, and which calls were denied
    ///
    ///   tenure audit                                  the newest 100 records of one member, oldest first
    ///   tenure audit --addr 10.0.0.12:7450            of this member
    ///   tenure audit --last 1000 --output json        one JSON object per line, exactly as recorded
    ///
    /// Acts of administrators are the same on every member, because each member takes them from the replicated
    /// history. Denied calls are recorded by the member that refused them, and starts, backups and changes of the
    /// log level where they happened: --addr chooses the member. Of several addresses, the first that can be
    /// reached answers. No leader is needed.
    ///
    /// Once identity is enabled, it requires `administer` for the cluster. A member keeps its newest 1,000 records
    /// for this; `tenure serve --audit-file FILE` keeps all of them in a file.
    #[command(verbatim_doc_comment)]
    Audit(audit::AuditArgs),
    /// Write the whole state of a running cluster to a file
    ///
    ///   tenure backup /backups/monday
    ///
    /// Everything that was acknowledged before is in it. The file is read back before it gets its
    /// name, and holds all keys: keep it as secret as the cluster.
    #[command(verbatim_doc_comment)]
    Backup(backup::BackupArgs),
    /// Bring a cluster back from a backup, or from the disk of its last member
    ///
    ///   tenure restore /backups/monday --data /var/lib/tenure --name a
    ///
    /// Makes a cluster of one member in an empty directory. It keeps the cluster's id and keys. All
    /// leases and locks are gone, every new token is above every old one, and nothing is granted
    /// before the longest old lease would have run out.
    #[command(verbatim_doc_comment)]
    Restore(restore::RestoreArgs),
    /// Start a store that refuses stale tokens
    ///
    ///   tenure store                                                    on http://127.0.0.1:8000
    ///   tenure run wiki -- sh -c 'curl -X PUT --data hi -H "Fencing-Token: $TENURE_TOKEN" \
    ///       "http://127.0.0.1:8000/v1/data/page?lock=wiki"'
    ///   curl http://127.0.0.1:8000/v1/data/page
    ///   tenure store --listen 10.0.0.5:8000 --cert store.pem --key store.key \
    ///       --keys https://a.example:7450 --tls-ca ca.pem               for other machines
    ///   tenure store --addr a:7450,b:7450,c:7450                        also for states of Terraform
    ///
    /// For data that only the holder of a lock may change. Every write names a lock and the token of its grant. The
    /// store keeps the highest token seen of each lock: a lower one, of a client that was paused and comes back late,
    /// is rejected with 412 STALE_TOKEN, and nothing is written. A write is on the disk before it is answered. The
    /// store is one process on one disk, not a cluster.
    ///
    /// On loopback it believes every number. For other machines it demands TLS, and tickets that the cluster signed.
    ///
    /// Terraform and OpenTofu keep their states below /v1/states, with the newest 100 versions of each:
    /// `tenure store state --help`. With --addr, each locked state is a lock of that cluster.
    ///
    /// A request that is rejected gets a reason and its effect, as JSON: `tenure help STALE_TOKEN` explains one. The
    /// store runs until Ctrl-C or SIGTERM and then ends with 0; with 78 if a file, a directory or the address cannot be
    /// used, as when another store uses the directory; with 1 if its data cannot be read or written, or tickets cannot
    /// be verified.
    #[command(verbatim_doc_comment)]
    Store(store::StoreArgs),
    /// Put a fence before something that knows nothing of tokens
    ///
    ///   tenure fence proxy --upstream http://127.0.0.1:3000 --resource ledger
    ///   tenure fence floor list ledger          the highest token it has seen, while it is stopped
    #[command(subcommand, verbatim_doc_comment)]
    Fence(fence::FenceCommand),
    /// Say what is wrong with this machine and the cluster, and what to do
    ///
    ///   tenure doctor                             clocks, ports, TLS, quorum, disks
    ///   tenure doctor --data /var/lib/tenure      measures how long a sync takes there
    ///
    /// Ends with 0 if nothing is bad, with 1 if something is, with 69 if no member answers.
    #[command(verbatim_doc_comment)]
    Doctor(doctor::DoctorArgs),
    /// Watch locks, holders, queues, rates and members on a live screen
    ///
    ///   tenure top
    ///   tenure top jobs/
    ///   tenure top --once            one look, for a log
    ///   tenure top --output json --limit 60 | jq .grants_per_s
    ///
    /// Without a terminal, or with --output json, it prints one look and ends; --limit says how many.
    #[command(verbatim_doc_comment)]
    Top(top::TopArgs),
    /// Say what follows from a ttl: failover time, margins, rate of spurious losses
    ///
    ///   tenure plan --ttl 15s --rtt 5ms --drift 200
    ///   tenure plan --ttl 3s --rtt 80ms --loss 5 --grace 500ms
    #[command(verbatim_doc_comment)]
    Plan(plan::PlanArgs),
    /// Measure how fast a cluster is, seen from here
    ///
    ///   tenure bench                                         acquire and release, 1, 16 and 64 clients
    ///   tenure bench handover --clients 64 --plot out.svg    one lock passed on, drawn into a file
    ///   tenure bench keys --clients 256 --duration 30s
    ///
    /// It makes load on the cluster it is pointed at, under names of its own that begin with bench/.
    #[command(verbatim_doc_comment)]
    Bench(bench::BenchArgs),
    /// Take a guided tour in one terminal: contention, expiry, a leader's crash, a zombie refused
    ///
    ///   tenure demo                 the tour: three real members, thrown away at the end
    ///   tenure demo --by-hand       the rules alone, with a clock that you move
    ///
    /// With --output json: one object for everything that happens, and no pauses.
    #[command(verbatim_doc_comment)]
    Demo(demo::DemoArgs),
    /// Print completions for a shell
    ///
    ///   tenure completions bash > ~/.local/share/bash-completion/completions/tenure
    ///   tenure completions zsh > ~/.zfunc/_tenure
    ///   tenure completions fish > ~/.config/fish/completions/tenure.fish
    ///
    /// With --output json: one object with the shell and the text.
    #[command(verbatim_doc_comment)]
    Completions(manual::CompletionsArgs),
    /// Print the manual page, or write one for every command
    ///
    ///   tenure man | man -l -
    ///   tenure man --dir /usr/local/share/man/man1
    ///
    /// With --output json: one object for each page, with its text, or with the file it was written to.
    #[command(verbatim_doc_comment)]
    Man(manual::ManArgs),
    /// Explain a command, a reason, or the exit codes
    ///
    ///   tenure help lock
    ///   tenure help HELD
    ///   tenure help reasons
    ///   tenure help exit
    ///
    /// With --output json: an object with the text of a command's help, the row of a reason, or one for each code.
    #[command(verbatim_doc_comment)]
    Help(manual::HelpArgs),
}

fn main() -> ExitCode {
    if let Some(code) = run::inside() {
        return code;
    }
    let words = command_line::ordered(std::env::args_os().collect(), &Arguments::command());
    suggest::remember(&words);
    if let Some(failure) = command_line::stray_unit(&words, &Arguments::command()) {
        let output = if usage_error::wants_objects(&words) {
            OutputFormat::Json
        } else {
            OutputFormat::Text
        };
        return failure.report_as(output);
    }
    let matches = match Arguments::command().try_get_matches_from(&words) {
        Ok(matches) => matches,
        Err(error) => return usage_error::not_understood(error, &words),
    };
    if let Err(failure) = print_args::check(&matches) {
        return failure.report_as(OutputFormat::Json);
    }
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => return usage_error::not_understood(error, &words),
    };
    let (output, done) = run(&arguments.command);
    let code = match done {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report_as(output),
    };
    tenure_server::log::flush();
    code
}

fn run(command: &CliCommand) -> (OutputFormat, Result<Exit, CliError>) {
    match command {
        CliCommand::Run(flags) => (flags.connection.output, run::run(flags)),
        CliCommand::Lock(flags) => (flags.connection.output, lock::lock(flags)),
        CliCommand::Try(flags) => (flags.connection.output, lock::try_lock(flags)),
        CliCommand::Unlock(flags) => (flags.connection.output, unlock::unlock(flags)),
        CliCommand::Progress(flags) => (flags.connection.output, progress::progress(flags)),
        CliCommand::HandOn(flags) => (flags.connection.output, hand_on::hand_on(flags)),
        CliCommand::Locks(flags) => (flags.connection.output, inspect::locks(flags)),
        CliCommand::Queue(flags) => (flags.connection.output, inspect::queue(flags)),
        CliCommand::Explain(flags) => (flags.connection.output, inspect::explain(flags)),
        CliCommand::History(flags) => (flags.connection.output, inspect::history(flags)),
        CliCommand::Force(flags) => (flags.connection.output, force::force(flags)),
        CliCommand::Drain(flags) => (flags.connection.output, drain::drain(flags)),
        CliCommand::Undrain(flags) => (flags.connection.output, drain::undrain(flags)),
        CliCommand::Resize(flags) => (flags.connection.output, resize::resize(flags)),
        CliCommand::Lease(command) => (command.output(), lease::run(command)),
        CliCommand::Elect(flags) => (flags.connection.output, elect::elect(flags)),
        CliCommand::Observe(flags) => (flags.connection.output, watch::observe(flags)),
        CliCommand::Watch(flags) => (flags.connection.output, watch::watch(flags)),
        CliCommand::Key(command) => (command.output(), key::run(command)),
        CliCommand::Dev(flags) => (flags.output, dev::run(flags)),
        CliCommand::Serve(flags) => (flags.form(), serve::run(flags)),
        CliCommand::Config(serve::ConfigCommand::Check(flags)) => {
            (flags.output, serve::check(flags))
        }
        CliCommand::Cluster(command) => (command.output(), cluster::run(command)),
        CliCommand::Auth(command) => (command.output(), auth::run(command)),
        CliCommand::Audit(flags) => (flags.connection.output, audit::audit(flags)),
        CliCommand::Backup(flags) => (flags.connection.output, backup::run(flags)),
        CliCommand::Restore(flags) => (flags.output, restore::run(flags)),
        CliCommand::Store(flags) => (flags.output(), store::run(flags)),
        CliCommand::Fence(command) => (command.output(), fence::run(command)),
        CliCommand::Doctor(flags) => (flags.connection.output, doctor::doctor(flags)),
        CliCommand::Top(flags) => (flags.connection.output, top::top(flags)),
        CliCommand::Plan(flags) => (flags.output, plan::plan(flags)),
        CliCommand::Bench(flags) => (flags.connection.output, bench::bench(flags)),
        CliCommand::Demo(flags) => (flags.output, demo::run(flags)),
        CliCommand::Completions(flags) => (flags.output, manual::completions(flags)),
        CliCommand::Man(flags) => (flags.output, manual::man(flags)),
        CliCommand::Help(flags) => (flags.output, manual::help(flags)),
    }
}
