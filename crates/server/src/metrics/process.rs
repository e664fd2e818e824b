//! Reads what the process uses from the operating system, and when its certificates expire.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// What the process uses. A value is `None` where the system does not tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessUse {
    /// The memory that is in RAM.
    pub(crate) resident_bytes: Option<u64>,
    /// Open files, sockets among them.
    pub(crate) open_files: Option<u64>,
    /// The most files that may be open.
    pub(crate) open_files_max: Option<u64>,
}

impl ProcessUse {
    pub(crate) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let open = fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as u64);
        Self {
            resident_bytes: kib.map(|kib| kib * 1024),
            open_files: open,
            open_files_max: getrlimit(Resource::Nofile).current,
        }
    }
}

/// When the first certificate in a file expires, in seconds since 1970; none if the file has no readable one.
pub(crate) fn certificate_expiry(path: &Path) -> Option<u64> {
    let first = CertificateDer::pem_file_iter(path).ok()?.next()?.ok()?;
    not_after(&first)
}

/// The end of a certificate's validity, from its DER encoding.
fn not_after(certificate: &[u8]) -> Option<u64> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    // Version (tagged, optional), serial number, signature algorithm, issuer.
    let skip = if rest.first() == Some(&0xa0) { 4 } else { 3 };
    for _ in 0..skip {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, after_begin) = element(validity)?;
    let (tag, end, _) = element(after_begin)?;
    let text = std::str::from_utf8(end).ok()?.strip_suffix('Z')?;
    let number =
        |from: usize, digits: usize| -> Option<u64> { text.get(from..from + digits)?.parse().ok() };
    let (year, rest) = match tag {
        // UTCTime has two digits of the year: 1950 to 2049.
        0x17 => (number(0, 2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        0x18 => (number(0, 4)?, 4),
        _ => return None,
    };
    let parts: Vec<u64> = (0..5).map(|at| number(rest + 2 * at, 2)).collect::<Option<_>>()?;
    let [month, day, hour, minute, second] = parts[..] else { return None };
    let days = days_since_1970(year, month, day)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Splits the first DER element off: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            if digits.len() > 4 {
                return None;
            }
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Count years from March, so that leap days come last.
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let from_march = (month + 9) % 12;
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * from_march + 2) / 5 + day - 1;
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_knows_its_memory_and_its_files() {
        let used = ProcessUse::read();
        assert!(used.resident_bytes.is_some_and(|bytes| bytes > 100_000), "{used:?}");
        assert!(used.open_files.is_some_and(|files| files >= 3), "{used:?}");
    }

    #[test]
    fn the_expiry_of_a_certificate_is_read_from_its_bytes() {
        let key = rcgen::KeyPair::generate().unwrap();
        // The first is encoded as UTCTime, the second as GeneralizedTime.
        let dates = [(2031, 2, 28, 1930003200), (2075, 3, 1, 3318624000)];
        for (year, month, day, expected) in dates {
            let mut params = rcgen::CertificateParams::new(vec!["m0".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let certificate = params.self_signed(&key).unwrap();
            assert_eq!(not_after(certificate.der()), Some(expected), "{year}");
        }
        assert_eq!(days_since_1970(2000, 3, 1), Some(11_017));
        assert_eq!(days_since_1970(1970, 1, 1), Some(0));
        assert_eq!(not_after(b"\x30\x03\x30\x01\x00"), None);
        assert_eq!(not_after(b""), None);
    }
}
