//! Takes a backup of a running cluster and writes it to a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tenure_server::backup::{BackupError, BackupHead, Verified};
use tenure_server::tls::DialTrust;
use tenure_server::{StartError, request_backup};

use crate::connection_args::ConnectionTarget;
use crate::exit::Exit;
use crate::failure::{self, CliError, chain};
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;

/// From this size on the command shows a progress bar.
const LARGE_BYTES: u64 = 8 * 1024 * 1024;
const STEP_BYTES: usize = 256 * 1024;

/// Flags of `tenure backup`.
#[derive(Args)]
pub(crate) struct BackupArgs {
    /// Write it to this file, which appears once it is whole
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Takes a backup.
pub(crate) fn run(flags: &BackupArgs) -> Result<Exit, CliError> {
    let verified = take(flags)?;
    report(flags, &verified);
    Ok(Exit::Done)
}

fn take(flags: &BackupArgs) -> Result<Verified, CliError> {
    let place = flags.connection.place()?;
    let trust = place.tls.as_ref().map(|tls| {
        let own = tls.own.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        DialTrust::load(&tls.ca, own)
    });
    let trust = trust.transpose().map_err(StartError::from)?;
    let (mut from, addr) = ask(&place, trust.as_ref())?;
    let temporary = Temporary::beside(&flags.file)?;
    receive(&mut from, &temporary.file, flags.connection.quiet).map_err(|error| match error {
        TransferError::From(error) => {
            CliError::refused(format!("no backup from {addr}: {}", chain(&error)))
                .next("the same again; nothing was written")
        }
        TransferError::To(error) => cannot_write(&flags.file, &error),
    })?;
    temporary.keep_as(&flags.file)
}

/// Asks the members one after another: any member has the whole state, or fetches it.
fn ask(
    place: &ConnectionTarget,
    trust: Option<&DialTrust>,
) -> Result<(impl Read + use<>, String), CliError> {
    let credentials = place.credentials()?;
    let mut tried = Vec::new();
    for addr in &place.addresses {
        credentials.may_go_to(addr, trust.is_some()).map_err(CliError::config)?;
        let authorization = credentials.authorization().map_err(CliError::config)?;
        match request_backup(addr, trust, authorization) {
            Ok(from) => return Ok((from, addr.clone())),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(CliError::new(
                    Exit::NotAllowed,
                    "PERMISSION_DENIED",
                    error.to_string(),
                )
                .with("effect", "none: nothing was written")
                .next(failure::advice("PERMISSION_DENIED")));
            }
            Err(error) => tried.push(format!("{addr} {error}")),
        }
    }
    let tried = tried.join(" · ");
    let failure =
        CliError::new(Exit::Unreachable, "UNREACHABLE", format!("no backup from {tried}"));
    Err(failure
        .with("effect", "none: nothing was written")
        .next("--addr with a member that serves"))
}

enum TransferError {
    From(BackupError),
    To(io::Error),
}

/// Copies a backup as it arrives: exactly as many bytes as its head announces.
fn receive(from: &mut impl Read, mut to: &File, quiet: bool) -> Result<(), TransferError> {
    let (head, start) = BackupHead::read(from).map_err(TransferError::From)?;
    let bytes = head.file_bytes();
    let bar = if bytes >= LARGE_BYTES && !quiet { bar(bytes) } else { ProgressBar::hidden() };
    to.write_all(&start).map_err(TransferError::To)?;
    let mut done = start.len() as u64;
    let mut buffer = vec![0; STEP_BYTES];
    while done < bytes {
        let step = usize::try_from(bytes - done).unwrap_or(STEP_BYTES).min(STEP_BYTES);
        let read = match from.read(&mut buffer[..step]) {
            Ok(0) => {
                return Err(TransferError::From(BackupError::Damaged(
                    "the member stopped sending",
                )));
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(TransferError::From(error.into())),
        };
        to.write_all(&buffer[..read]).map_err(TransferError::To)?;
        done += read as u64;
        bar.set_position(done);
    }
    bar.finish_and_clear();
    Ok(())
}

fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let form = "backup {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar
}

/// A temporary file beside the target file. Dropping it removes the file unless it was renamed to the target.
struct Temporary {
    path: PathBuf,
    file: File,
    kept: bool,
}

impl Temporary {
    fn beside(path: &Path) -> Result<Self, CliError> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(name);
        // A backup contains the cluster's whole state: only its owner may read the file.
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let file = opened.map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: temporary, file, kept: false })
    }

    /// Syncs the file, reads it back, and renames it to its final name, in this order.
    fn keep_as(mut self, path: &Path) -> Result<Verified, CliError> {
        self.file.sync_all().map_err(|error| cannot_write(path, &error))?;
        let verified = Verified::read(&self.path, tenure_core::LEVEL_MAX).map_err(|error| {
            let why = chain(&error);
            let text = format!("the backup does not read back: {why}; try again, or another disk");
            CliError::refused(text)
        })?;
        let named = fs::rename(&self.path, path).and_then(|()| {
            self.kept = true;
            let directory = path.parent().filter(|parent| *parent != Path::new(""));
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        });
        named.map_err(|error| cannot_write(path, &error))?;
        Ok(verified)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // A removal that fails is harmless: the file's name marks it as temporary.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::refused(format!("cannot write {path:?}: {error}; try another place"))
}

fn report(flags: &BackupArgs, verified: &Verified) {
    let Verified { head, machine, bytes } = verified;
    let BackupHead { lineage, index, revision, .. } = head;
    let (cluster, epoch, incarnation) =
        (&lineage.cluster, lineage.epoch.get(), lineage.incarnation.to_string());
    let (keys, file) = (machine.stats().keys, flags.file.display());
    match flags.connection.output {
        OutputFormat::Json => {
            let said = serde_json::json!({
                "file": flags.file, "bytes": bytes, "cluster": cluster, "epoch": epoch,
                "incarnation": incarnation, "index": index, "revision": revision.to_string(),
                "keys": keys,
            });
            output::object(&said);
        }
        OutputFormat::Text if flags.connection.quiet => {}
        OutputFormat::Text => output::out(&format!(
            "wrote {file}: {bytes} bytes, {keys} keys, read back and whole\n  \
             cluster {cluster}, epoch {epoch}, index {index}, revision {revision}\n"
        )),
    }
}
