//! Request heads: bytes to a `Head` that borrows from them, or the reason to refuse.
//!
//! ```text
//! | GET /v0/entity?id=k HTTP/1.1 CR LF | Host: h CR LF | … | CR LF | body or next request …
//! |<------------------------- consumed ------------------------->|
//! Incomplete   no end of head yet, and not too long: ask again with more bytes
//! Head         consumed bytes belong to it; its body follows, then the next request
//! Bad          answer, then close: where the next request starts is not known
//! ```
//!
//! Invariants
//! 1. The answer for a prefix is `Incomplete` or the answer for the whole: how bytes were cut into
//!    packets does not decide.
//! 2. A request that is not `Bad` allocates no memory, unless a condition stands on several lines,
//!    or there is metadata.
//! 3. A message has one length. Both kinds of length, a repeated one, or one that is not plain
//!    digits is refused, even where the standard would let us repair it. Another program in front
//!    of this one may have repaired it differently, and the difference is a smuggled request.
//! 4. Lines end in CR LF. httparse also takes a bare LF; this file refuses it.
//!
//! Not here: the meaning of the path (`route/`); the body's bytes (`chunk/` or the server).
//! See: RFC 9112; docs/api.md, section "HTTP".

use super::accept::{Accepted, Framing};
use crate::limits::{HEAD_BYTES_MAX, HEADERS_LEN_MAX, TARGET_BYTES_MAX};
use crate::refusal::Refusal;
use std::mem::MaybeUninit;

/// How much a head may be. The number of header lines is `HEADERS_LEN_MAX`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the whole head, line ends included.
    pub head_bytes_max: usize,
    /// Bytes of the request target.
    pub target_bytes_max: usize,
}

impl Limits {
    /// The limits of the server.
    pub const USUAL: Limits = Limits {
        head_bytes_max: HEAD_BYTES_MAX,
        target_bytes_max: TARGET_BYTES_MAX,
    };
}

/// The item at the front of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "a request allocates no memory for its head, and there is one at a time"
)]
pub enum Parsed<'a> {
    /// Not yet a whole head: read more, at most `head_bytes_max` in all.
    Incomplete,
    /// A whole head.
    Head(Head<'a>),
    /// Not a request: answer with this and close.
    Bad(Refusal),
}

/// Methods that some path knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// POST
    Post,
    /// Any other token: 405 wherever it goes.
    Other,
}

/// How the body behind a head is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// No body, or one of zero bytes.
    None,
    /// This many bytes, at least one.
    Length(u64),
    /// Chunks: see [`super::ChunkDecoder`].
    Chunked,
}

/// The connection's fate, and the answer's word on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionFate {
    /// Stays open, no header to send (HTTP/1.1).
    Persist,
    /// Stays open, and an HTTP/1.0 client waits to be told so.
    KeepAlive,
    /// Closes after the answer.
    Close,
}

/// Is the client waiting for a permission to send its body?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No.
    Nothing,
    /// `Expect: 100-continue`: send `100 Continue` before reading the body, unless it is refused.
    Continue,
    /// Another expectation: 417.
    Unknown,
}

/// A header field that may be there once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// Not there.
    Absent,
    /// There once, without the whitespace around it.
    Once(&'a [u8]),
    /// There more than once: the code that needs it refuses.
    Repeated,
}

impl<'a> Field<'a> {
    fn note(&mut self, value: &'a [u8]) {
        *self = match self {
            Field::Absent => Field::Once(value),
            Field::Once(_) | Field::Repeated => Field::Repeated,
        };
    }
}

/// The lines of a field that is a list, which are one list together. Their number is bounded by
/// that of the head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FieldLines<'a> {
    /// None.
    #[default]
    Absent,
    /// One.
    Once(&'a [u8]),
    /// Several, in their order.
    Several(Vec<&'a [u8]>),
}

impl<'a> FieldLines<'a> {
    fn note(&mut self, value: &'a [u8]) {
        *self = match std::mem::take(self) {
            FieldLines::Absent => FieldLines::Once(value),
            FieldLines::Once(first) => FieldLines::Several(vec![first, value]),
            FieldLines::Several(mut lines) => {
                lines.push(value);
                FieldLines::Several(lines)
            }
        };
    }

    /// The lines, without the whitespace around them.
    pub fn lines(&self) -> &[&'a [u8]] {
        match self {
            FieldLines::Absent => &[],
            FieldLines::Once(value) => std::slice::from_ref(value),
            FieldLines::Several(lines) => lines,
        }
    }
}

/// What a request says about its body, unchecked: see `meta/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMeta<'a> {
    /// `Content-Type`
    pub content_type: Field<'a>,
    /// The lines of `Dendra-Meta-<name>`: names and contents.
    pub named: Vec<(&'a [u8], &'a [u8])>,
}

impl Default for SentMeta<'_> {
    fn default() -> Self {
        SentMeta {
            content_type: Field::Absent,
            named: Vec::new(),
        }
    }
}

/// A request head, borrowed from the read buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Bytes of the head in the buffer.
    pub consumed: usize,
    /// The method.
    pub method: Method,
    /// The path as sent, still percent-encoded; never empty.
    pub path: &'a [u8],
    /// The part behind the first `?`, still percent-encoded.
    pub query: Option<&'a [u8]>,
    /// Host and port that the request is for: of an absolute target, else of `Host`. `None` in
    /// HTTP/1.0 only.
    pub authority: Option<&'a [u8]>,
    /// `Origin`
    pub origin: Field<'a>,
    /// `Sec-Fetch-Site`
    pub fetch_site: Field<'a>,
    /// A browser asks which requests a page of another site may send: OPTIONS with
    /// `Access-Control-Request-Method`.
    pub is_preflight: bool,
    /// Framing of the body.
    pub body: Body,
    /// Is it HTTP/1.0, which knows no chunks?
    pub is_http_1_0: bool,
    /// The fate of the connection without a fault.
    pub connection: ConnectionFate,
    /// Does the client wait for `100 Continue`?
    pub expect: Expect,
    /// `If-Match`
    pub if_match: FieldLines<'a>,
    /// `If-None-Match`
    pub if_none_match: FieldLines<'a>,
    /// `Prefer: return=representation` is there.
    pub prefers_representation: bool,
    /// `Dendra-Timeout-Ms`
    pub timeout_ms: Field<'a>,
    /// `Accept`, all fields together.
    pub accepted: Accepted,
    /// A `Content-Encoding` other than `identity` is there.
    pub has_content_coding: bool,
    /// `Content-Range` is there.
    pub has_content_range: bool,
    /// `Upgrade: dendra-peer/1` together with `Connection: upgrade`. Other upgrades are ignored.
    pub wants_peer_upgrade: bool,
    /// `Dendra-Peer`: the hello of a member.
    pub peer_hello: Field<'a>,
    /// `Dendra-Peer-Proof`: the token of a peer that asks over plain HTTP.
    pub peer_proof: Field<'a>,
    /// `Authorization`
    pub authorization: Field<'a>,
    /// The lines that describe the body.
    pub meta: SentMeta<'a>,
    /// `Last-Event-ID`: where a browser goes on.
    pub last_event_id: Field<'a>,
}

impl Head<'_> {
    /// Does the connection stay open after the answer, without a fault?
    pub fn keep_alive(&self) -> bool {
        self.connection != ConnectionFate::Close
    }

    /// Does the client wait for `100 Continue`?
    pub fn expects_continue(&self) -> bool {
        self.expect == Expect::Continue
    }
}

/// Reads the head at the front of `buf`.
///
/// ```
/// use dendra_wire::http::{Limits, Method, Parsed, parse_head};
///
/// let buf = b"GET /v0/entity?id=k HTTP/1.1\r\nHost: h\r\n\r\nGET /next";
/// let Parsed::Head(head) = parse_head(buf, &Limits::USUAL) else {
///     panic!("this is a whole head");
/// };
/// assert_eq!(head.method, Method::Get);
/// assert_eq!((head.path, head.query), (&b"/v0/entity"[..], Some(&b"id=k"[..])));
/// assert_eq!(&buf[head.consumed..], b"GET /next");
/// ```
pub fn parse_head<'a>(buf: &'a [u8], limits: &Limits) -> Parsed<'a> {
    // No byte behind the bound is looked at, so that the answer does not depend on how much of a
    // long head has arrived.
    let window = buf.get(..limits.head_bytes_max).unwrap_or(buf);
    let mut lines = [const { MaybeUninit::uninit() }; HEADERS_LEN_MAX];
    let mut request = httparse::Request::new(&mut []);
    let status = request.parse_with_uninit_headers(window, &mut lines);
    if is_target_too_long(window, &request, limits) {
        return Parsed::Bad(target_too_long(limits));
    }
    let outcome = match status {
        Ok(httparse::Status::Complete(consumed)) => read_head(&window[..consumed], &request),
        Ok(httparse::Status::Partial) if window.len() < limits.head_bytes_max => {
            return Parsed::Incomplete;
        }
        Ok(httparse::Status::Partial) => Err(head_too_long(limits)),
        Err(error) => Err(syntax_error(error)),
    };
    match outcome {
        Ok(head) => Parsed::Head(head),
        Err(refusal) => Parsed::Bad(refusal),
    }
}

fn target_too_long(limits: &Limits) -> Refusal {
    let bytes_max = limits.target_bytes_max;
    let sentence = format!("the request target has more than {bytes_max} bytes");
    Refusal::new(414, "target-too-long", sentence).closing()
}

fn head_too_long(limits: &Limits) -> Refusal {
    let bytes_max = limits.head_bytes_max;
    let sentence = format!("the request head has more than {bytes_max} bytes");
    Refusal::new(431, "head-too-long", sentence).closing()
}

fn syntax_error(error: httparse::Error) -> Refusal {
    use httparse::Error;
    match error {
        Error::Token => Refusal::syntax("the request line is not `METHOD target HTTP/1.1`"),
        Error::NewLine => Refusal::syntax("a line must end in CR LF"),
        Error::HeaderName => Refusal::syntax(
            "a header line is not `Name: value` (no space before the colon, no folded lines)",
        ),
        Error::HeaderValue => Refusal::syntax("a header value holds a control byte"),
        Error::Status => Refusal::syntax("this is not a request"),
        Error::TooManyHeaders => Refusal::new(
            431,
            "head-too-long",
            format!("the request has more than {HEADERS_LEN_MAX} header lines"),
        )
        .closing(),
        Error::Version => Refusal::new(
            505,
            "http-version",
            "this server speaks HTTP/1.1 and HTTP/1.0",
        )
        .closing(),
    }
}

/// Is the target, as far as it has arrived, longer than allowed? Decided before anything that
/// stands behind the target, so that one packet more or less makes no difference.
fn is_target_too_long(window: &[u8], request: &httparse::Request<'_, '_>, limits: &Limits) -> bool {
    if let Some(target) = request.path {
        return target.len() > limits.target_bytes_max;
    }
    if request.method.is_none() || window.len() <= limits.target_bytes_max {
        return false;
    }
    let Some(space) = window.iter().position(|&b| b == b' ') else {
        return false;
    };
    let target = &window[space + 1..];
    let target_len = target.iter().position(|&b| b <= b' ' || b == 0x7f);
    target_len.unwrap_or(target.len()) > limits.target_bytes_max
}

/// Everything behind httparse: our own rules over a syntactically whole head.
fn read_head<'a>(
    bytes: &'a [u8],
    request: &httparse::Request<'_, 'a>,
) -> Result<Head<'a>, Refusal> {
    if has_bare_line_feed(bytes) {
        return Err(Refusal::syntax("a line must end in CR LF"));
    }
    let target = request.path.unwrap_or_default().as_bytes();
    let is_http_1_0 = request.version == Some(0);
    let mut fields = Fields::default();
    for line in request.headers.iter() {
        fields.note(line.name, line.value);
    }
    let host = fields.host(is_http_1_0)?;
    let RequestTarget {
        authority,
        path,
        query,
    } = split_target(target)?;
    let body = fields.body(is_http_1_0)?;
    Ok(Head {
        consumed: bytes.len(),
        method: match request.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            Some("PUT") => Method::Put,
            Some("DELETE") => Method::Delete,
            Some("POST") => Method::Post,
            _ => Method::Other,
        },
        path,
        query,
        // RFC 9112, 3.2.2: the name in an absolute target counts.
        authority: authority.or(host),
        origin: fields.origin,
        fetch_site: fields.fetch_site,
        is_preflight: fields.asks_method && request.method == Some("OPTIONS"),
        body,
        is_http_1_0,
        connection: fields.connection(is_http_1_0),
        // HTTP/1.0 knows no 100: its expectations are ignored (RFC 9110, 10.1.1).
        expect: if is_http_1_0 {
            Expect::Nothing
        } else {
            fields.expect
        },
        if_match: fields.if_match,
        if_none_match: fields.if_none_match,
        prefers_representation: fields.prefers_representation,
        timeout_ms: fields.timeout_ms,
        accepted: fields.accepted,
        has_content_coding: fields.has_content_coding,
        has_content_range: fields.has_content_range,
        wants_peer_upgrade: fields.names_peer_protocol && fields.says_upgrade && !is_http_1_0,
        peer_hello: fields.peer_hello,
        peer_proof: fields.peer_proof,
        authorization: fields.authorization,
        meta: fields.meta,
        last_event_id: fields.last_event_id,
    })
}

/// Is there an LF without its CR?
fn has_bare_line_feed(head: &[u8]) -> bool {
    let Some((_, front)) = head.split_last() else {
        return false;
    };
    let is_bare = |before, byte| byte == b'\n' && before != b'\r';
    is_bare(0, head[0]) || any_pair(front, &head[1..], is_bare)
}

/// Is there a byte for which `is` holds?
pub(crate) fn any_byte(bytes: &[u8], is: impl Fn(u8) -> bool + Copy) -> bool {
    any_pair(bytes, bytes, |byte, _| is(byte))
}

/// Are there bytes at the same place of both for which `is` holds? Without a branch and sixteen at
/// a time, so that it compiles to wide compares. The last sixteen are looked at once more, and not
/// the rest one by one. Requires: both have the same length.
fn any_pair(left: &[u8], right: &[u8], is: impl Fn(u8, u8) -> bool + Copy) -> bool {
    let in_part = |part: &[u8], other: &[u8]| {
        let pairs = part.iter().zip(other);
        pairs.fold(false, |found, (&l, &r)| found | is(l, r))
    };
    match (left.last_chunk::<16>(), right.last_chunk::<16>()) {
        (Some(left_end), Some(right_end)) => {
            let (left_parts, right_parts) = (left.as_chunks::<16>().0, right.as_chunks::<16>().0);
            let parts = left_parts.iter().zip(right_parts);
            let found = parts.fold(false, |found, (l, r)| found | in_part(l, r));
            found | in_part(left_end, right_end)
        }
        _ => in_part(left, right),
    }
}

/// A request target in its parts.
struct RequestTarget<'a> {
    authority: Option<&'a [u8]>,
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

/// Origin form, or absolute form as clients of proxies send it.
fn split_target(target: &[u8]) -> Result<RequestTarget<'_>, Refusal> {
    if any_byte(target, |b| b == b'#' || !b.is_ascii()) {
        return Err(Refusal::syntax(
            "the request target holds `#` or a byte above 127: percent-encode it",
        ));
    }
    let (authority, origin) = if target.first() == Some(&b'/') {
        (None, target)
    } else {
        let (authority, origin) = split_authority(target)?;
        (Some(authority), origin)
    };
    let (path, query) = match origin.iter().position(|&b| b == b'?') {
        Some(mark) => (&origin[..mark], Some(&origin[mark + 1..])),
        None => (origin, None),
    };
    Ok(RequestTarget {
        authority,
        path,
        query,
    })
}

/// `http://host:port/path?query` to `host:port` and `/path?query`.
fn split_authority(target: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let refuse = || Refusal::syntax("the request target must start with `/` or be an http:// URL");
    let is_scheme = |scheme: &[u8]| {
        let start = target.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let rest = if is_scheme(b"http://") {
        &target[7..]
    } else if is_scheme(b"https://") {
        &target[8..]
    } else {
        return Err(refuse());
    };
    let end = rest.iter().position(|&b| b == b'/').ok_or_else(refuse)?;
    let (authority, origin) = rest.split_at(end);
    if authority.is_empty() || !is_host(authority) {
        return Err(refuse());
    }
    Ok((authority, origin))
}

/// Bytes of a host's name: unreserved ones and sub-delimiters (RFC 3986, 3.2.2).
const IS_OF_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let marks = b"-._~!$&'()*+,;=";
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    let mut byte = 0;
    while byte < 256 {
        table[byte] |= (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

/// Is this a host, perhaps with a port? Which names the node answers for is a later question
/// (`hosts.rs`). Percent-encoded names are legal and unheard of, and refused.
fn is_host(value: &[u8]) -> bool {
    let port = match value.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = rest.iter().position(|&b| b == b']') else {
                return false;
            };
            let (address, behind) = (&rest[..end], &rest[end + 1..]);
            let is_address = |&b: &u8| b.is_ascii_hexdigit() || b == b':' || b == b'.';
            if address.is_empty() || !address.iter().all(is_address) {
                return false;
            }
            behind
        }
        None => {
            let name_len = value.iter().position(|&b| !IS_OF_NAME[usize::from(b)]);
            &value[name_len.unwrap_or(value.len())..]
        }
    };
    match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

impl SentMeta<'_> {
    /// Does `Content-Type` name the framing of records?
    pub fn sends_records(&self) -> bool {
        matches!(self.content_type, Field::Once(content_type) if is_records(content_type))
    }
}

/// Is it the media type of records, with any parameters?
fn is_records(content_type: &[u8]) -> bool {
    let name = content_type.split(|&b| b == b';').next();
    let records = Framing::Records.media_type().as_bytes();
    name.is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(records))
}

const PREFIX_LEN: usize = crate::meta::PREFIX.len();

/// Does this line have metadata? The first letter is enough for most that have none.
fn is_meta(name: &str) -> bool {
    let start = name.as_bytes().get(..PREFIX_LEN).unwrap_or_default();
    matches!(start, [b'D' | b'd', ..]) && start.eq_ignore_ascii_case(crate::meta::PREFIX.as_bytes())
}

/// The content of the header lines, collected in one pass.
struct Fields<'a> {
    host: Field<'a>,
    origin: Field<'a>,
    fetch_site: Field<'a>,
    content_length: Field<'a>,
    transfer_encoding: Field<'a>,
    if_match: FieldLines<'a>,
    if_none_match: FieldLines<'a>,
    timeout_ms: Field<'a>,
    peer_hello: Field<'a>,
    peer_proof: Field<'a>,
    authorization: Field<'a>,
    meta: SentMeta<'a>,
    last_event_id: Field<'a>,
    accepted: Accepted,
    expect: Expect,
    prefers_representation: bool,
    says_close: bool,
    says_keep_alive: bool,
    says_upgrade: bool,
    names_peer_protocol: bool,
    has_content_coding: bool,
    has_content_range: bool,
    asks_method: bool,
}

impl Default for Fields<'_> {
    fn default() -> Self {
        Fields {
            host: Field::Absent,
            origin: Field::Absent,
            fetch_site: Field::Absent,
            content_length: Field::Absent,
            transfer_encoding: Field::Absent,
            if_match: FieldLines::Absent,
            if_none_match: FieldLines::Absent,
            timeout_ms: Field::Absent,
            peer_hello: Field::Absent,
            peer_proof: Field::Absent,
            authorization: Field::Absent,
            meta: SentMeta::default(),
            last_event_id: Field::Absent,
            accepted: Accepted::default(),
            expect: Expect::Nothing,
            prefers_representation: false,
            says_close: false,
            says_keep_alive: false,
            says_upgrade: false,
            names_peer_protocol: false,
            has_content_coding: false,
            has_content_range: false,
            asks_method: false,
        }
    }
}

impl<'a> Fields<'a> {
    /// Takes one line into account. Lengths differ for most names, so one comparison of text is
    /// enough for most lines.
    fn note(&mut self, name: &'a str, value: &'a [u8]) {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is("host") => self.host.note(value),
            6 if is("accept") => self.accepted.note(value),
            6 if is("expect") => self.note_expect(value),
            6 if is("prefer") => self.prefers_representation |= list(value).any(is_representation),
            6 if is("origin") => self.origin.note(value),
            7 if is("upgrade") => {
                self.names_peer_protocol |= list(value).any(|token| token == b"dendra-peer/1");
            }
            8 if is("if-match") => self.if_match.note(value),
            10 if is("connection") => self.note_connection(value),
            12 if is("content-type") => self.meta.content_type.note(value),
            11 if is("dendra-peer") => self.peer_hello.note(value),
            13 if is("if-none-match") => self.if_none_match.note(value),
            13 if is("authorization") => self.authorization.note(value),
            13 if is("content-range") => self.has_content_range = true,
            13 if is("last-event-id") => self.last_event_id.note(value),
            14 if is("content-length") => self.content_length.note(value),
            14 if is("sec-fetch-site") => self.fetch_site.note(value),
            16 if is("content-encoding") => {
                self.has_content_coding |=
                    list(value).any(|token| !token.eq_ignore_ascii_case(b"identity"));
            }
            17 if is("transfer-encoding") => self.transfer_encoding.note(value),
            17 if is("dendra-timeout-ms") => self.timeout_ms.note(value),
            17 if is("dendra-peer-proof") => self.peer_proof.note(value),
            29 if is("access-control-request-method") => self.asks_method = true,
            PREFIX_LEN.. if is_meta(name) => {
                self.meta
                    .named
                    .push((&name.as_bytes()[PREFIX_LEN..], value));
            }
            _ => {}
        }
    }

    fn note_expect(&mut self, value: &[u8]) {
        self.expect =
            if value.eq_ignore_ascii_case(b"100-continue") && self.expect != Expect::Unknown {
                Expect::Continue
            } else {
                Expect::Unknown
            };
    }

    fn note_connection(&mut self, value: &[u8]) {
        for token in list(value) {
            self.says_close |= token.eq_ignore_ascii_case(b"close");
            self.says_keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            self.says_upgrade |= token.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn host(&self, is_http_1_0: bool) -> Result<Option<&'a [u8]>, Refusal> {
        match self.host {
            Field::Once(host) if is_host(host) => Ok(Some(host)),
            Field::Absent if is_http_1_0 => Ok(None),
            Field::Once(_) => Err(Refusal::syntax("Host is not a host and port")),
            Field::Absent => Err(Refusal::syntax("HTTP/1.1 requires a Host header")),
            Field::Repeated => Err(Refusal::syntax("there is more than one Host header")),
        }
    }

    fn connection(&self, is_http_1_0: bool) -> ConnectionFate {
        match (is_http_1_0, self.says_close, self.says_keep_alive) {
            (_, true, _) | (true, false, false) => ConnectionFate::Close,
            (true, false, true) => ConnectionFate::KeepAlive,
            (false, false, _) => ConnectionFate::Persist,
        }
    }

    /// The one length of the body.
    fn body(&self, is_http_1_0: bool) -> Result<Body, Refusal> {
        match (self.transfer_encoding, self.content_length) {
            (Field::Absent, Field::Absent) => Ok(Body::None),
            (Field::Absent, Field::Once(digits)) => match parse_length(digits)? {
                0 => Ok(Body::None),
                length => Ok(Body::Length(length)),
            },
            // Equal values could be merged (RFC 9110, 8.6). But one proxy in front may have taken
            // the first and another one the second: no honest client sends two.
            (Field::Absent, Field::Repeated) => {
                Err(Refusal::framing("there is more than one Content-Length"))
            }
            (Field::Once(_) | Field::Repeated, Field::Once(_) | Field::Repeated) => Err(
                Refusal::framing("Content-Length and Transfer-Encoding exclude each other"),
            ),
            (Field::Once(_) | Field::Repeated, _) if is_http_1_0 => {
                Err(Refusal::framing("HTTP/1.0 has no Transfer-Encoding"))
            }
            (Field::Repeated, Field::Absent) => {
                Err(Refusal::framing("there is more than one Transfer-Encoding"))
            }
            (Field::Once(codings), Field::Absent) if codings.eq_ignore_ascii_case(b"chunked") => {
                Ok(Body::Chunked)
            }
            (Field::Once(codings), Field::Absent) => Err(refuse_codings(codings)),
        }
    }
}

/// 501 when only the coding is unknown, 400 when the length of the body is (RFC 9112, 6.3).
fn refuse_codings(codings: &[u8]) -> Refusal {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let chunked_len = list(codings).filter(|coding| is_chunked(coding)).count();
    if chunked_len == 1 && list(codings).last().is_some_and(is_chunked) {
        return Refusal::new(
            501,
            "transfer-coding",
            "Transfer-Encoding must be exactly `chunked`",
        )
        .closing();
    }
    Refusal::framing("Transfer-Encoding must be exactly `chunked`")
}

/// Elements of a comma-separated list, without the whitespace around them, without empty ones.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&b| b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// RFC 7240: names of preferences are compared without regard to case, their values may be quoted,
/// parameters follow.
fn is_representation(preference: &[u8]) -> bool {
    let mut parts = preference.split(|&b| b == b';');
    let first = parts.next().unwrap_or_default();
    let Some(at) = first.iter().position(|&b| b == b'=') else {
        return false;
    };
    let (name, value) = (first[..at].trim_ascii(), first[at + 1..].trim_ascii());
    let value = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""))
        .unwrap_or(value);
    name.eq_ignore_ascii_case(b"return") && value == b"representation"
}

/// A length of a body: plain digits only.
fn parse_length(text: &[u8]) -> Result<u64, Refusal> {
    digits(text).ok_or_else(|| Refusal::framing("Content-Length is not a plain number below 2^64"))
}

/// Plain decimal digits: no sign, no space, no list, not empty, below 2^64.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, &digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests;
