//! The log: the bytes of one direction that the peer has not acknowledged, and the bytes that are not sent yet.

use std::collections::VecDeque;

use crate::position::Position;

/// Copied bytes stay allocated up to this size when the log is empty; [`Log::shrink`] frees them, too.
const KEPT_BYTES: usize = 16 * 1024;
/// More than this is given back while three quarters of it are not used, as a larger window has left them behind.
const SPARE_BYTES: usize = 1024 * 1024;

/// One stretch of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Span<H> {
    /// `bytes` bytes of [`Log::copied`], from number `first` on, counted over all bytes that were ever copied.
    Copied { first: u64, bytes: usize },
    /// Bytes that lie elsewhere.
    Held(H),
}

/// Bytes from the first one that is not acknowledged to the last one that the user has given, in order. Small pieces
/// are copied; large ones are held where they lie, as `H`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Log<H> {
    spans: VecDeque<Span<H>>,
    /// Number of the first span, counted from the beginning of the session.
    first_span: u64,
    /// The position at which the first span begins: `start` or before it.
    front: Position,
    start: Position,
    end: Position,
    copied: VecDeque<u8>,
    /// Number of the first byte of `copied`, counted over all bytes that were ever copied.
    first_copied: u64,
}

/// A place in a log that is found without a search.
///
/// # Invariants
/// `position` lies between the log's start and end. It is byte `offset` of span number `span`, or the end of that span
/// if no other follows. A span that has been released stands for the log's front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cursor {
    position: Position,
    span: u64,
    offset: usize,
}

impl Cursor {
    /// Its position.
    pub fn position(&self) -> Position {
        self.position
    }
}

impl<H> Default for Log<H> {
    fn default() -> Self {
        Log {
            spans: VecDeque::new(),
            first_span: 0,
            front: Position::default(),
            start: Position::default(),
            end: Position::default(),
            copied: VecDeque::new(),
            first_copied: 0,
        }
    }
}

impl<H: AsRef<[u8]>> Log<H> {
    /// The first byte that is not acknowledged.
    pub fn start(&self) -> Position {
        self.start
    }

    /// The position after the last byte.
    pub fn end(&self) -> Position {
        self.end
    }

    /// Whether all has been acknowledged.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes that are allocated for copies.
    pub fn allocated_bytes(&self) -> usize {
        self.copied.capacity()
    }

    /// Adds a copy of `bytes`.
    pub fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let first = self.first_copied + self.copied.len() as u64;
        self.copied.extend(bytes);
        match self.spans.back_mut() {
            Some(Span::Copied { bytes: before, .. }) => *before += bytes.len(),
            _ => self.spans.push_back(Span::Copied {
                first,
                bytes: bytes.len(),
            }),
        }
        self.end = self.end + bytes.len();
    }

    /// Adds bytes that stay where they are.
    pub fn hold(&mut self, bytes: H) {
        if bytes.as_ref().is_empty() {
            return;
        }
        self.end = self.end + bytes.as_ref().len();
        self.spans.push_back(Span::Held(bytes));
    }

    /// Counts bytes that were sent past the log, which must be empty.
    pub fn pass(&mut self, bytes: usize) {
        debug_assert!(self.is_empty(), "bytes before these are not acknowledged");
        self.end = self.end + bytes;
        self.start = self.end;
        self.front = self.end;
    }

    /// Releases the bytes of the log before `position`.
    pub fn acknowledge(&mut self, position: Position) {
        let position = position.min(self.end);
        if position <= self.start {
            return;
        }
        self.start = position;
        while let Some(span) = self.spans.front() {
            let behind = self.front + span.bytes();
            if behind > position {
                break;
            }
            self.front = behind;
            self.first_span += 1;
            self.spans.pop_front();
        }
        let unused = match self.spans.iter().find_map(Span::first_copied) {
            None => self.copied.len(),
            Some(first) => {
                let within = match self.spans.front() {
                    Some(Span::Copied { .. }) => position - self.front,
                    _ => 0,
                };
                let needed = first + within as u64;
                usize::try_from(needed.saturating_sub(self.first_copied)).unwrap_or(0)
            }
        };
        self.copied.drain(..unused);
        self.first_copied += unused as u64;
        if self.copied.is_empty() && self.copied.capacity() > KEPT_BYTES {
            self.copied = VecDeque::new();
        } else if self.copied.capacity() > SPARE_BYTES && self.copied.len() < self.copied.capacity() / 4 {
            self.copied.shrink_to(self.copied.capacity() / 2);
        }
    }

    /// Frees memory that an idle log does not need.
    pub fn shrink(&mut self) {
        if self.copied.is_empty() {
            self.copied = VecDeque::new();
        }
        if self.spans.is_empty() {
            self.spans = VecDeque::new();
        }
    }

    /// The place at `position`. None: it is not in the log.
    pub fn seek(&self, position: Position) -> Option<Cursor> {
        if position < self.start || position > self.end {
            return None;
        }
        let mut cursor = Cursor {
            position: self.front,
            span: self.first_span,
            offset: 0,
        };
        self.advance(&mut cursor, position - self.front);
        Some(cursor)
    }

    /// Moves a place on by `bytes`, at most to the end.
    pub fn advance(&self, cursor: &mut Cursor, bytes: usize) {
        let mut left = bytes.min(self.end - cursor.position);
        cursor.position = cursor.position + left;
        let mut index = self.index(cursor);
        while let Some(span) = self.spans.get(index) {
            let rest = span.bytes() - cursor.offset;
            if left < rest || index + 1 == self.spans.len() {
                cursor.offset += left.min(rest);
                break;
            }
            left -= rest;
            index += 1;
            cursor.offset = 0;
        }
        cursor.span = self.first_span + index as u64;
    }

    /// Index of the cursor's span; a span that has been released stands for the front.
    fn index(&self, cursor: &mut Cursor) -> usize {
        if cursor.span < self.first_span {
            cursor.span = self.first_span;
            cursor.offset = 0;
        }
        usize::try_from(cursor.span - self.first_span).unwrap_or(usize::MAX)
    }

    /// Gives slices of up to `bytes` bytes from a place on to `take`, until it returns false. Returns their bytes.
    pub fn slices<'a>(&'a self, cursor: &Cursor, bytes: usize, mut take: impl FnMut(&'a [u8]) -> bool) -> usize {
        let mut at = *cursor;
        let mut index = self.index(&mut at);
        let mut offset = at.offset;
        let mut left = bytes.min(self.end - cursor.position);
        let wanted = left;
        while left > 0 {
            let Some(span) = self.spans.get(index) else { break };
            for slice in self.bytes_of(span, offset) {
                let part = &slice[..slice.len().min(left)];
                if part.is_empty() {
                    continue;
                }
                left -= part.len();
                if !take(part) {
                    return wanted - left;
                }
            }
            index += 1;
            offset = 0;
        }
        wanted - left
    }

    fn bytes_of<'a>(&'a self, span: &'a Span<H>, offset: usize) -> [&'a [u8]; 2] {
        match span {
            Span::Held(bytes) => [&bytes.as_ref()[offset..], &[]],
            Span::Copied { first, bytes } => {
                let (left, right) = self.copied.as_slices();
                let from = usize::try_from((first + offset as u64).saturating_sub(self.first_copied)).unwrap_or(0);
                let to = from + (bytes - offset);
                [
                    &left[from.min(left.len())..to.min(left.len())],
                    &right[from.saturating_sub(left.len())..to.saturating_sub(left.len())],
                ]
            }
        }
    }
}

impl<H: AsRef<[u8]>> Span<H> {
    fn bytes(&self) -> usize {
        match self {
            Span::Copied { bytes, .. } => *bytes,
            Span::Held(bytes) => bytes.as_ref().len(),
        }
    }

    fn first_copied(&self) -> Option<u64> {
        match self {
            Span::Copied { first, .. } => Some(*first),
            Span::Held(_) => None,
        }
    }
}
