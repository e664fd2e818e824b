//! Maps a verified client certificate to a principal by the certificate rules.
//!
//! A pattern is `KIND:TEXT`. KIND is the name in the certificate that is compared:
//!
//! | kind | compared with | parts are separated by | case |
//! |---|---|---|---|
//! | `cn` | the common name of the subject, if the subject has exactly one | nothing | counts |
//! | `dns` | each DNS name among the alternative names that has no wildcard | `.` | ignored |
//! | `uri` | each URI among the alternative names | `/` | counts |
//!
//! TEXT must have as many parts as the name, and each part must match. A `*` in a part stands for one or more
//! characters of that part. So `uri:spiffe://prod/ns/*/sa/worker` matches every namespace, and never a longer path.

use rustls::pki_types::CertificateDer;
use tenure_core::access::CertificateRule;
use tenure_types::Name;

use super::principal_name;
use crate::tls::der::{SEQUENCE, element, take};

const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
/// The id of a common name, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The principal of a verified end-entity certificate: that of the first rule, in the order of their names, whose
/// pattern matches.
pub(crate) fn principal<'a>(
    mut rules: impl Iterator<Item = (&'a Name, &'a CertificateRule)>,
    certificate: &CertificateDer<'_>,
) -> Option<Name> {
    let names = CertificateNames::read(certificate)?;
    let matches = |pattern: &str| Pattern::parse(pattern).is_ok_and(|it| it.matches(&names));
    let (_, rule) = rules.find(|(_, rule)| matches(&rule.pattern))?;
    principal_name("", &rule.principal)
}

/// Checks that a pattern has the form described above. Returns what is wrong with it.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), &'static str> {
    Pattern::parse(pattern).map(drop)
}

/// The names in a certificate that rules can be about.
#[derive(PartialEq, Eq, Debug)]
struct CertificateNames {
    common_name: Option<String>,
    dns: Vec<String>,
    uris: Vec<String>,
}

impl CertificateNames {
    fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
        // A wildcard stands for hosts that a server may be, which says nothing about a client.
        let dns = parsed.valid_dns_names().filter(|name| !name.contains('*'));
        Some(Self {
            common_name: common_name(parsed.subject()).map(str::to_owned),
            dns: dns.map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect(),
            uris: parsed.valid_uri_names().map(str::to_owned).collect(),
        })
    }
}

/// A parsed pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pattern<'a> {
    CommonName(&'a str),
    Dns(&'a str),
    Uri(&'a str),
}

impl<'a> Pattern<'a> {
    fn parse(pattern: &'a str) -> Result<Self, &'static str> {
        let (kind, text) =
            pattern.split_once(':').ok_or("a pattern is `cn:NAME`, `dns:NAME` or `uri:URI`")?;
        if text.is_empty() {
            return Err("there is no name after the colon");
        }
        if text.contains("**") {
            return Err("one `*` stands for any number of characters of its part");
        }
        match kind {
            "cn" => Ok(Self::CommonName(text)),
            "dns" => Ok(Self::Dns(text)),
            "uri" if text.contains("://") => Ok(Self::Uri(text)),
            "uri" => Err("a URI has a scheme, such as `spiffe://`"),
            _ => Err("a pattern begins with `cn:`, `dns:` or `uri:`"),
        }
    }

    fn matches(self, names: &CertificateNames) -> bool {
        match self {
            Self::CommonName(text) => {
                names.common_name.as_deref().is_some_and(|name| part_matches(text, name))
            }
            Self::Dns(text) => {
                let text = text.to_ascii_lowercase();
                names.dns.iter().any(|name| parts_match(&text, name, '.'))
            }
            Self::Uri(text) => names.uris.iter().any(|name| parts_match(text, name, '/')),
        }
    }
}

fn parts_match(pattern: &str, name: &str, separator: char) -> bool {
    let (mut patterns, mut parts) = (pattern.split(separator), name.split(separator));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if part_matches(pattern, part) => {}
            _ => return false,
        }
    }
}

/// Whether a part matches, where each `*` stands for one or more characters.
fn part_matches(pattern: &str, part: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('*') else { return pattern == part };
    let Some(part) = part.strip_prefix(before) else { return false };
    let mut chars = part.chars();
    if chars.next().is_none() {
        return false;
    }
    // The leftmost place for each text between two stars leaves the most for the rest, so no other place need be tried.
    let mut left = chars.as_str();
    let mut texts = rest.split('*').peekable();
    while let Some(text) = texts.next() {
        if texts.peek().is_none() {
            return left.ends_with(text);
        }
        let Some(at) = left.find(text) else { return false };
        let mut after = left[at + text.len()..].chars();
        if after.next().is_none() {
            return false;
        }
        left = after.as_str();
    }
    true
}

/// The common name of a subject. None if there is none, if there are several, or if it is not plain text.
fn common_name(mut subject: &[u8]) -> Option<&str> {
    let mut found = None;
    while !subject.is_empty() {
        let mut attributes = take(&mut subject, SET)?;
        while !attributes.is_empty() {
            let mut attribute = take(&mut attributes, SEQUENCE)?;
            if take(&mut attribute, OBJECT_ID)? != COMMON_NAME {
                continue;
            }
            let (tag, text) = element(&mut attribute)?;
            if found.is_some() || ![UTF8_STRING, PRINTABLE_STRING, IA5_STRING].contains(&tag) {
                return None;
            }
            found = Some(str::from_utf8(text).ok()?);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common_name: &str, names: Vec<SanType>) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "example");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = names;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn uri(name: &str) -> SanType {
        SanType::URI(name.try_into().unwrap())
    }

    #[test]
    fn names_of_all_kinds_are_read() {
        let names = vec![dns("W1.jobs.example"), dns("*.other.example"), uri("spiffe://prod/x")];
        let read = CertificateNames::read(&certificate("älice", names)).unwrap();
        assert_eq!(read.common_name.as_deref(), Some("älice"));
        assert_eq!(read.dns, ["w1.jobs.example"], "a wildcard is no name of a client");
        assert_eq!(read.uris, ["spiffe://prod/x"]);
    }

    #[test]
    fn a_pattern_matches_whole_names_part_by_part() {
        let worker = "spiffe://prod/ns/a/sa/worker";
        let names = vec![dns("w1.jobs.example"), uri(worker)];
        let names = CertificateNames::read(&certificate("alice", names)).unwrap();
        let matches = |pattern: &str| Pattern::parse(pattern).unwrap().matches(&names);
        for pattern in [
            "cn:alice",
            "cn:al*e",
            "cn:*",
            "dns:*.jobs.example",
            "dns:W*.Jobs.example",
            "uri:spiffe://prod/ns/*/sa/worker",
            "uri:spiffe://*/ns/*/sa/w*k*r",
        ] {
            assert!(matches(pattern), "{pattern}");
        }
        for pattern in [
            "cn:Alice",
            "cn:alic",
            "cn:alice*",
            "dns:*.example",
            "dns:w1.jobs.example.",
            "dns:alice",
            "uri:spiffe://prod/ns/*/worker",
            "uri:spiffe://prod/ns/*",
            "uri:spiffe://prod/ns/a*/sa/worker",
            "uri:spiffe://PROD/ns/a/sa/worker",
            "uri:spiffe://prod/ns/*/sa/worker/",
        ] {
            assert!(!matches(pattern), "{pattern}");
        }
    }

    #[test]
    fn stars_stand_for_one_or_more_characters() {
        for (pattern, part, expected) in [
            ("a*", "a", false),
            ("a*b", "ab", false),
            ("a*b", "axb", true),
            ("a*b*", "axbx", true),
            ("a*b*", "axb", false),
            ("*a*", "xaax", true),
            ("*ab", "abab", true),
            ("*é*", "xéx", true),
            ("*", "", false),
        ] {
            assert_eq!(part_matches(pattern, part), expected, "{pattern} {part}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_names_the_principal() {
        let rule = |name: &str, pattern: &str, principal: &str| {
            let rule = CertificateRule { pattern: pattern.into(), principal: principal.into() };
            (Name::new(name).unwrap(), rule)
        };
        let certificate = certificate("alice", vec![dns("w1.jobs.example")]);
        let named = |rules: &[(Name, CertificateRule)]| {
            let rules = rules.iter().map(|(name, rule)| (name, rule));
            principal(rules, &certificate).map(|name| name.as_str().to_owned())
        };
        let other = rule("a", "cn:bob", "bob");
        let unreadable = rule("b", "alice", "nobody");
        let first = rule("c", "dns:*.jobs.example", "worker");
        let second = rule("d", "cn:alice", "alice");
        let member = rule("a", "cn:alice", "tenure/member");
        assert_eq!(named(&[other.clone(), unreadable, first, second]).as_deref(), Some("worker"));
        assert_eq!(named(&[other]), None);
        assert_eq!(named(&[member]), None, "no certificate makes a client a member");
    }

    #[test]
    fn patterns_of_another_form_are_refused() {
        for bad in ["alice", "", "cn:", "CN:alice", "ip:127.0.0.1", "uri:prod", "dns:**.example"] {
            assert!(check_pattern(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_bytes_make_the_reader_fail() {
        let whole = certificate("alice", vec![uri("spiffe://prod/x")]);
        for at in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[at] ^= 0xff;
            let _ = CertificateNames::read(&CertificateDer::from(changed));
            let cut = CertificateDer::from(&whole[..at]);
            assert_eq!(CertificateNames::read(&cut), None);
        }
    }
}
