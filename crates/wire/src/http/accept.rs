//! Content negotiation: which framing of a scan, or of a watch, does `Accept` want?
//!
//! ```text
//! none, */*, text/plain, text/*        Plain
//! application/x-ndjson, application/*  Ndjson
//! application/vnd.dendra.records       Records
//! application/vnd.dendra.wrapped       Wrapped: only by this name
//! nothing of the above                 no framing: 406
//! a watch: Ndjson, and text/event-stream, text/* EventStream
//! ```
//!
//! Invariants
//! 1. The highest `q` wins, then the more specific range, then the order of the table.
//! 2. Repeated fields mean the same as one field with all their elements (RFC 9110, 5.3).
//!
//! Not here: the framings themselves (`records/`).
//! See: RFC 9110, section 12.5.1.

/// How the records of a scan are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One HTTP chunk per record: key, line feed, value.
    Plain,
    /// One JSON object per line.
    Ndjson,
    /// Lengths in front of the bytes, with an end mark.
    Records,
    /// The bytes of `Records`, with values as they are stored: with their metadata.
    Wrapped,
}

/// All framings, best first where the client does not care.
const FRAMINGS: [Framing; 4] = [
    Framing::Plain,
    Framing::Ndjson,
    Framing::Records,
    Framing::Wrapped,
];

/// How the events of a watch are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFraming {
    /// One JSON object per line.
    Ndjson,
    /// Server-sent events, for `EventSource` of browsers.
    EventStream,
}

impl EventFraming {
    /// The media type that names it.
    pub const fn media_type(self) -> &'static str {
        match self {
            EventFraming::Ndjson => Framing::Ndjson.media_type(),
            EventFraming::EventStream => "text/event-stream",
        }
    }
}

/// How closely a media range names `own`: 3 by name, 2 by its first half, 1 by `*/*`.
fn specificity(own: &str, range: &[u8]) -> u8 {
    let own = own.as_bytes();
    if range.eq_ignore_ascii_case(own) {
        return 3;
    }
    if range == b"*/*" {
        return 1;
    }
    match range.strip_suffix(b"*") {
        Some(half) if half.ends_with(b"/") => {
            let own_half = own.get(..half.len()).unwrap_or_default();
            if own_half.eq_ignore_ascii_case(half) {
                2
            } else {
                0
            }
        }
        _ => 0,
    }
}

impl Framing {
    /// The media type that names it.
    pub const fn media_type(self) -> &'static str {
        match self {
            Framing::Plain => "text/plain",
            Framing::Ndjson => "application/x-ndjson",
            Framing::Records => "application/vnd.dendra.records",
            Framing::Wrapped => "application/vnd.dendra.wrapped",
        }
    }
}

/// The qualities that a request's `Accept` fields give to each framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    is_given: bool,
    /// By framing: how closely it was named, and its `q` in thousandths.
    wishes: [(u8, u16); FRAMINGS.len()],
    event_stream: (u8, u16),
}

impl Accepted {
    /// Takes one field's value into account.
    pub(crate) fn note(&mut self, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        self.is_given = true;
        for element in value.split(|&b| b == b',') {
            let mut parts = element.split(|&b| b == b';').map(<[u8]>::trim_ascii);
            let range = parts.next().unwrap_or_default();
            let quality = parts
                .find_map(|part| part.strip_prefix(b"q=").or(part.strip_prefix(b"Q=")))
                .map_or(1000, parse_quality);
            let types = FRAMINGS.map(Framing::media_type).into_iter();
            let types = types.chain([EventFraming::EventStream.media_type()]);
            let wishes = self.wishes.iter_mut().chain([&mut self.event_stream]);
            for (own, wish) in types.zip(wishes) {
                let closeness = specificity(own, range);
                if closeness > wish.0 {
                    *wish = (closeness, quality);
                }
            }
        }
    }

    /// The framing to answer with; `None` when the client takes none of ours.
    pub fn choose(&self) -> Option<Framing> {
        if !self.is_given {
            return Some(Framing::Plain);
        }
        let mut best: Option<(u16, u8, Framing)> = None;
        for (&framing, &(specificity, quality)) in FRAMINGS.iter().zip(&self.wishes) {
            let is_better = best.is_none_or(|(q, s, _)| (quality, specificity) > (q, s));
            if quality > 0 && specificity > 0 && is_better {
                best = Some((quality, specificity, framing));
            }
        }
        best.map(|(_, _, framing)| framing)
    }

    /// The framing of a watch; `None` when the client takes none of ours.
    pub fn choose_events(&self) -> Option<EventFraming> {
        if !self.is_given {
            return Some(EventFraming::Ndjson);
        }
        let of_rank = |(closeness, quality): (u8, u16)| (quality, closeness);
        let lines = of_rank(self.wishes[Framing::Ndjson as usize]);
        let stream = of_rank(self.event_stream);
        match lines.max(stream) {
            (0, _) | (_, 0) => None,
            best if best == lines => Some(EventFraming::Ndjson),
            _ => Some(EventFraming::EventStream),
        }
    }
}

/// `q` in thousandths. Text that is no quality counts as 0: a range we cannot read is no wish.
fn parse_quality(text: &[u8]) -> u16 {
    let (whole, fraction) = match text {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', fraction @ ..] if fraction.len() <= 3 => (*whole, fraction),
        _ => return 0,
    };
    let mut quality = 0;
    for place in 0..3 {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return 0;
        }
        quality = quality * 10 + u16::from(digit - b'0');
    }
    if whole == b'1' { 1000 } else { quality }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(fields: &[&str]) -> Option<Framing> {
        let mut accepted = Accepted::default();
        for field in fields {
            accepted.note(field.as_bytes());
        }
        accepted.choose()
    }

    #[test]
    fn a_watch_comes_as_lines_unless_events_are_wished_for() {
        use EventFraming::{EventStream, Ndjson};
        let table: [(&[&str], Option<EventFraming>); 10] = [
            (&[], Some(Ndjson)),
            (&["*/*"], Some(Ndjson)),
            (&["application/x-ndjson"], Some(Ndjson)),
            (&["text/event-stream"], Some(EventStream)),
            (&["text/*"], Some(EventStream)),
            (&["text/event-stream, */*"], Some(EventStream)),
            (
                &["text/event-stream;q=0.5", "application/x-ndjson"],
                Some(Ndjson),
            ),
            (&["application/x-ndjson;q=0, */*"], Some(EventStream)),
            (&["text/plain"], None),
            (&["*/*;q=0"], None),
        ];
        for (fields, expected) in table {
            let mut accepted = Accepted::default();
            for field in fields {
                accepted.note(field.as_bytes());
            }
            assert_eq!(accepted.choose_events(), expected, "{fields:?}");
        }
    }

    #[test]
    fn the_wish_of_the_client_is_met() {
        use Framing::{Ndjson, Plain, Records, Wrapped};
        let table: [(&[&str], Option<Framing>); 22] = [
            (&[], Some(Plain)),
            (&[""], Some(Plain)),
            (&["*/*"], Some(Plain)),
            (&["text/plain"], Some(Plain)),
            (&["TEXT/Plain; charset=utf-8"], Some(Plain)),
            (&["text/*"], Some(Plain)),
            (&["application/x-ndjson"], Some(Ndjson)),
            (&["application/vnd.dendra.records"], Some(Records)),
            (&["application/*"], Some(Ndjson)),
            (&["application/vnd.dendra.wrapped"], Some(Wrapped)),
            (
                &["application/vnd.dendra.wrapped, application/vnd.dendra.records;q=0.5"],
                Some(Wrapped),
            ),
            (
                &["application/vnd.dendra.wrapped;q=0.1, application/vnd.dendra.records"],
                Some(Records),
            ),
            (&["application/x-ndjson, */*"], Some(Ndjson)),
            (
                &["application/x-ndjson;q=0.5, text/plain;q=0.7"],
                Some(Plain),
            ),
            (&["text/plain;q=0, */*"], Some(Ndjson)),
            (&["application/json", "application/x-ndjson"], Some(Ndjson)),
            (&["text/html,application/xml;q=0.9,*/*;q=0.8"], Some(Plain)),
            (&["application/json"], None),
            (&["*/*;q=0"], None),
            (&["text/plain;q=nonsense"], None),
            (&["text/plain;q=0.0001"], None),
            (&[", ,;"], None),
        ];
        for (fields, expected) in table {
            assert_eq!(choose(fields), expected, "{fields:?}");
        }
    }
}
