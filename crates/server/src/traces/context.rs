//! Reads the W3C trace context of a request: `traceparent` and `tracestate`.

use http::HeaderMap;

/// The header, and the key of gRPC metadata, that names the caller's span.
const TRACEPARENT: &str = "traceparent";
/// The header with what tracing systems add for themselves; passed on as it is.
const TRACESTATE: &str = "tracestate";
/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// The most bytes of a `tracestate` that are passed on: what the specification asks for.
const STATE_BYTES_MAX: usize = 512;

/// The span of the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TraceContext {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    pub(super) is_sampled: bool,
    pub(super) state: String,
}

impl TraceContext {
    /// The context in the headers of a request; none if there is none, or if it is malformed.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(TRACEPARENT).into_iter();
        let (parent, None) = (parents.next()?, parents.next()) else { return None };
        let context = Self::parse(parent.to_str().ok()?)?;
        let states: Vec<&str> =
            headers.get_all(TRACESTATE).into_iter().filter_map(|it| it.to_str().ok()).collect();
        let state = states.join(",");
        Some(if state.len() <= STATE_BYTES_MAX { Self { state, ..context } } else { context })
    }

    /// Parses a `traceparent`: version, trace, span and flags, in hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = known.split('-');
        let [version] = bytes(parts.next()?)?;
        let (trace_id, span_id) = (bytes(parts.next()?)?, bytes(parts.next()?)?);
        let [flags] = bytes(parts.next()?)?;
        // A later version may append fields, and 255 is no version.
        let is_whole = rest.is_empty() || version > 0 && rest.starts_with('-');
        let is_valid = version != 0xff && trace_id != [0; 16] && span_id != [0; 8] && is_whole;
        let is_sampled = flags & 1 == 1;
        is_valid.then_some(Self { trace_id, span_id, is_sampled, state: String::new() })
    }
}

/// Reads exactly `N` bytes in lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let mut bytes = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_as_the_specification_writes_it() {
        let context = TraceContext::parse(PARENT).unwrap();
        assert_eq!(context.trace_id[..3], [0x0a, 0xf7, 0x65]);
        assert_eq!(context.span_id[6..], [0x33, 0x31]);
        assert!(context.is_sampled);
        let unsampled = PARENT.replace("-01", "-00");
        assert!(!TraceContext::parse(&unsampled).unwrap().is_sampled);
        let later = PARENT.replacen("00", "01", 1) + "-more";
        assert!(TraceContext::parse(&later).is_some());
    }

    #[test]
    fn a_malformed_parent_is_none() {
        let zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let no_span = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        let version = PARENT.replacen("00", "ff", 1);
        let upper = PARENT.to_uppercase();
        let longer = format!("{PARENT}-more");
        let shifted = "00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01";
        for bad in ["", "00", zeros, no_span, &version, &upper, &longer, &PARENT[1..], shifted] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
        assert_eq!(TraceContext::parse(&PARENT.replace("af", "ü")), None);
    }

    #[test]
    fn two_parents_are_none_and_a_long_state_is_left_out() {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, PARENT.parse().unwrap());
        headers.insert(TRACESTATE, "a=1".parse().unwrap());
        headers.append(TRACESTATE, "b=2".parse().unwrap());
        assert_eq!(TraceContext::of_headers(&headers).unwrap().state, "a=1,b=2");
        headers.append(TRACESTATE, "x".repeat(STATE_BYTES_MAX).parse().unwrap());
        assert_eq!(TraceContext::of_headers(&headers).unwrap().state, "");
        headers.append(TRACEPARENT, PARENT.parse().unwrap());
        assert_eq!(TraceContext::of_headers(&headers), None);
    }
}
