//! Reads elements of DER, the encoding of certificates.

pub(crate) const SEQUENCE: u8 = 0x30;

/// Takes the next element: its tag and its content.
pub(crate) fn element<'a>(from: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let [tag, first, rest @ ..] = *from else { return None };
    let (length, rest) = match usize::from(*first) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(long - 0x80).filter(|it| it.0.len() <= 4)?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *from = rest;
    Some((*tag, content))
}

/// Takes the next element, which must have this tag.
pub(crate) fn take<'a>(from: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    element(from).filter(|it| it.0 == tag).map(|it| it.1)
}
