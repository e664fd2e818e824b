//! Charges the bodies of requests and responses to the memory budget of their connection.
//!
//! A part of a gRPC message counts until the message is complete, and any other request body until it is dropped. A
//! part of a response counts until it is written to the connection. Messages of very many fields are refused before
//! they are decoded: a field of two bytes can become a record of hundreds.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use tenure_wire::Failure;

use super::ending::StreamDeadline;
use super::grpc;
use crate::dispatch::{Caller, Charge};

/// The most fields of a gRPC message, not counting those inside fields: a session sends 1,024 requests in one.
const FIELDS_MAX: usize = 8_192;

/// The bytes from which a part of an answer costs more than the request that asked for it.
const LARGE: usize = 4 * 1024;

/// A request body.
struct MeteredRequest<B> {
    body: B,
    charge: Charge,
    /// The messages in the body, if it is one of gRPC.
    messages: Option<GrpcMessages>,
}

/// Meters the body of a request.
pub(super) fn request<B>(body: B, is_grpc: bool, caller: &Caller) -> Body
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Body::empty();
    }
    let charge = caller.memory().charge(0);
    Body::new(MeteredRequest { body, charge, messages: is_grpc.then(GrpcMessages::default) })
}

impl<B> HttpBody for MeteredRequest<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(Into::into)?;
        if let Some(bytes) = frame.data_ref() {
            let Self { charge, messages, .. } = &mut *self;
            match messages {
                None => charge.add(bytes.len()),
                Some(messages) => match messages.read(bytes) {
                    Ok(partial) => charge.set(partial),
                    Err(failure) => return Poll::Ready(Some(Err(grpc::body_error(failure)))),
                },
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body. Whatever produces it runs as work for the caller.
struct MeteredResponse<B> {
    body: B,
    caller: Caller,
    /// What a body of a known size counts for until it is read: it is in memory whether or not the client reads it.
    unread: Option<Charge>,
    /// Ends a stream in time after its credentials.
    _deadline: Option<StreamDeadline>,
}

/// A part of a response that is not written yet.
struct Unwritten {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Meters the body of a response.
pub(super) fn response<B>(body: B, caller: Caller, deadline: Option<StreamDeadline>) -> Body
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Send + Unpin + 'static,
{
    let size = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let unread = size.filter(|size| *size >= LARGE).map(|size| caller.memory().charge(size));
    Body::new(MeteredResponse { body, caller, unread, _deadline: deadline })
}

impl<B> HttpBody for MeteredResponse<B>
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin,
{
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, caller, unread, .. } = &mut *self;
        let frame = std::task::ready!(caller.enter(|| Pin::new(body).poll_frame(context)));
        let held = |bytes: Bytes| {
            if bytes.len() >= LARGE {
                caller.owe(bytes.len());
            }
            let mut charge = unread.take().unwrap_or_else(|| caller.memory().charge(0));
            charge.set(bytes.len());
            Bytes::from_owner(Unwritten { bytes, _charge: charge })
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(held))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Follows the messages of a gRPC body as their bytes arrive in parts.
#[derive(Default)]
struct GrpcMessages {
    /// The prefix of the next message: a flag and its length.
    prefix: Vec<u8>,
    /// The bytes of the current message that are still to come, and those that have come.
    left: usize,
    come: usize,
    fields: usize,
    at: FieldPart,
}

/// The position inside the current message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FieldPart {
    /// In the tag of a field, of which these bits were read.
    Tag { value: u64, bits: u32 },
    /// In the length of a field.
    Length { value: u64, bits: u32 },
    /// In a number of variable length.
    Number,
    /// In the content of a field.
    Content { left: u64 },
}

impl Default for FieldPart {
    fn default() -> Self {
        Self::Tag { value: 0, bits: 0 }
    }
}

impl GrpcMessages {
    /// Reads the next bytes. Returns how many bytes of an incomplete message have come.
    fn read(&mut self, mut bytes: &[u8]) -> Result<usize, Failure> {
        while !bytes.is_empty() {
            if self.left == 0 {
                self.prefix.push(bytes.get_u8());
                let &[_, a, b, c, d] = self.prefix.as_slice() else { continue };
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.prefix.clear();
                (self.come, self.fields, self.at) = (0, 0, FieldPart::default());
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            self.fields(now);
            if self.fields > FIELDS_MAX {
                return Err(Failure::TooLarge { bound: FIELDS_MAX as u64 });
            }
            self.left -= now.len();
            self.come += now.len();
            bytes = later;
        }
        Ok(if self.left == 0 { self.prefix.len() } else { self.come })
    }

    /// Counts the fields that begin in these bytes of a message.
    fn fields(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.fields <= FIELDS_MAX {
            if let FieldPart::Content { left } = self.at {
                let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                bytes.advance(skipped);
                self.at = after(left - skipped as u64);
                continue;
            }
            let byte = bytes.get_u8();
            let (ends, low) = (byte & 0x80 == 0, u64::from(byte & 0x7f));
            let add = |value: u64, bits: u32| value | low.checked_shl(bits).unwrap_or(0);
            self.at = match self.at {
                FieldPart::Tag { value, bits } if ends => {
                    self.fields += 1;
                    match add(value, bits) & 7 {
                        0 => FieldPart::Number,
                        1 => FieldPart::Content { left: 8 },
                        2 => FieldPart::Length { value: 0, bits: 0 },
                        5 => FieldPart::Content { left: 4 },
                        // Groups, whose fields count like others, and what the decoder refuses.
                        _ => FieldPart::default(),
                    }
                }
                FieldPart::Tag { value, bits } => {
                    FieldPart::Tag { value: add(value, bits), bits: bits + 7 }
                }
                FieldPart::Length { value, bits } if ends => after(add(value, bits)),
                FieldPart::Length { value, bits } => {
                    FieldPart::Length { value: add(value, bits), bits: bits + 7 }
                }
                FieldPart::Number if ends => FieldPart::default(),
                other => other,
            };
        }
    }
}

/// The position with so many bytes of a field's content to come.
fn after(left: u64) -> FieldPart {
    if left == 0 { FieldPart::default() } else { FieldPart::Content { left } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use tenure_wire::v1;

    /// A message of gRPC with this content.
    fn framed(content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&[0], &length[..], content].concat()
    }

    fn session(requests: usize) -> Vec<u8> {
        let request = v1::Request { id: 300, deadline_ms: 7, ..Default::default() };
        v1::SessionRequest { hello: None, requests: vec![request; requests] }.encode_to_vec()
    }

    #[test]
    fn a_part_of_a_message_counts_until_the_message_is_complete() {
        let bytes = framed(&session(100));
        for part in [1, 3, 7, bytes.len()] {
            let mut messages = GrpcMessages::default();
            let mut read = 0;
            for piece in bytes.chunks(part) {
                read += piece.len();
                let partial = messages.read(piece).unwrap();
                let expected = match read {
                    _ if read == bytes.len() => 0,
                    read if read < 5 => read,
                    read => read - 5,
                };
                assert_eq!(partial, expected, "after {read} bytes in parts of {part}");
            }
            assert_eq!(messages.fields, 100);
        }
    }

    #[test]
    fn several_messages_and_empty_ones_are_told_apart() {
        let mut messages = GrpcMessages::default();
        let bytes = [framed(b""), framed(&session(3)), framed(b""), framed(&session(2))].concat();
        assert_eq!(messages.read(&bytes).unwrap(), 0);
        assert_eq!(messages.fields, 2);
        assert_eq!(messages.read(&[0, 0]).unwrap(), 2);
    }

    #[test]
    fn all_kinds_of_fields_are_skipped() {
        // A number of two bytes, eight bytes, four bytes, an empty field, a group.
        let content =
            [0x08, 0xff, 0x01, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1d, 1, 2, 3, 4, 0x22, 0, 0x2b, 0x2c];
        for part in 1..content.len() {
            let mut messages = GrpcMessages::default();
            for piece in framed(&content).chunks(part) {
                messages.read(piece).unwrap();
            }
            assert_eq!((messages.fields, messages.at), (6, FieldPart::default()));
        }
    }

    #[test]
    fn a_message_of_very_many_fields_is_refused_before_it_is_decoded() {
        let mut messages = GrpcMessages::default();
        assert!(messages.read(&framed(&session(1_024))).is_ok());
        let empty = [0x12, 0].repeat(FIELDS_MAX + 1);
        assert!(messages.read(&framed(&empty)).is_err());
    }
}
