//! Each rule of the decoder, and that packets do not decide.

use super::*;
use proptest::prelude::*;

/// Feeds `bytes` in pieces of `piece_len` as a connection would; the data and the unread rest.
fn decode(
    bytes: &[u8],
    piece_len: usize,
    body_bytes_max: u64,
) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
    let mut decoder = ChunkDecoder::new(body_bytes_max);
    let mut buf = Vec::new();
    let mut data = Vec::new();
    let mut pieces = bytes.chunks(piece_len.max(1));
    let mut fed = 0;
    loop {
        match decoder.decode(&buf)? {
            ChunkItem::Data { start, end } => {
                assert!(start < end, "data is never empty");
                data.extend_from_slice(&buf[start..end]);
                buf.drain(..end);
            }
            ChunkItem::End { consumed } => {
                assert!(decoder.trailer_len() <= consumed);
                return Ok(Some((data, fed - buf.len() + consumed)));
            }
            ChunkItem::More { consumed } => {
                buf.drain(..consumed);
                assert!(
                    buf.len() <= TRAILER_BYTES_MAX,
                    "a decoder waits for bounded bytes"
                );
                let Some(piece) = pieces.next() else {
                    return Ok(None);
                };
                buf.extend_from_slice(piece);
                fed += piece.len();
            }
        }
    }
}

fn whole(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
    decode(bytes, bytes.len(), 1000)
}

#[test]
fn data_of_all_chunks_is_the_body() {
    let table: [(&[u8], &[u8]); 7] = [
        (b"0\r\n\r\n", b""),
        (b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
        (b"1\r\na\r\nA\r\n0123456789\r\n0000\r\n\r\n", b"a0123456789"),
        (b"0000000000000003\r\nabc\r\n0\r\n\r\n", b"abc"),
        (b"3;a=b;c=\"d\"\r\nabc\r\n0;last\r\n\r\n", b"abc"),
        (b"3\r\na\r\n\r\n0\r\n\r\n", b"a\r\n"),
        (b"1\r\na\r\n0\r\nX: y\r\nZ:\r\n\r\n", b"a"),
    ];
    for (bytes, body) in table {
        let mut stream = bytes.to_vec();
        stream.extend_from_slice(b"GET /next");
        assert_eq!(whole(&stream), Ok(Some((body.to_vec(), bytes.len()))));
    }
}

#[test]
fn broken_framing_is_refused_and_closes() {
    for bytes in [
        &b"\r\n"[..],
        b";a\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b" 1\r\n",
        b"1 \r\na",
        b"1 ;a\r\na",
        b"1\na\r\n",
        b"1\r\r\n",
        b"1;a\nb\r\n",
        b"1;a\0\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\n0\r\n\r\n",
        b"1\r\na\rX",
        b"00000000000000001\r\n",
        b"0\r\n\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\nX: y\0\r\n\r\n",
        b"0\r\nGET / HTTP/1.1\r\n\r\n",
    ] {
        let shown = bytes.escape_ascii().to_string();
        let refusal = whole(bytes).expect_err(&shown);
        assert_eq!((refusal.status, refusal.close), (400, true), "{shown}");
    }
}

#[test]
fn a_body_above_its_limit_is_413_before_its_data() {
    let refusal = decode(b"a\r\n", 3, 9).expect_err("10 bytes are more than 9");
    assert_eq!((refusal.status, refusal.close), (413, true));
    let refusal = decode(b"5\r\n01234\r\n5\r\n", 64, 9).expect_err("5 + 5 bytes are more than 9");
    assert_eq!(refusal.status, 413);
    let refusal = decode(b"ffffffffffffffff\r\n", 64, 9).expect_err("this is more than 9");
    assert_eq!(refusal.status, 413);
    let fits = decode(b"5\r\n01234\r\n4\r\n0123\r\n0\r\n\r\n", 64, 9);
    assert_eq!(fits.map(|end| end.map(|(data, _)| data.len())), Ok(Some(9)));
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let one = format!("1;{}\r\na\r\n", "x".repeat(200));
    assert_eq!(whole(one.as_bytes()), Ok(None));
    let many = one.repeat(CHUNK_EXTENSION_BYTES_MAX / 200 + 1);
    assert!(whole(many.as_bytes()).is_err());
    let long = format!("1;{}", "x".repeat(CHUNK_LINE_BYTES_MAX));
    assert!(
        whole(long.as_bytes()).is_err(),
        "not even waited for its end"
    );
    for (len, is_fine) in [
        (CHUNK_LINE_BYTES_MAX - 17, true),
        (CHUNK_LINE_BYTES_MAX - 16, false),
    ] {
        let one = format!("1;{}\r\na\r\n", "x".repeat(len));
        assert_eq!(whole(one.as_bytes()).is_ok(), is_fine, "{len}");
    }
    let trailers = |len: usize| format!("0\r\n{}\r\n", "X: y\r\n".repeat(len));
    assert!(matches!(
        whole(trailers(TRAILER_LINES_MAX).as_bytes()),
        Ok(Some(_))
    ));
    assert!(whole(trailers(TRAILER_LINES_MAX + 1).as_bytes()).is_err());
    let long = format!("0\r\nX: {}", "y".repeat(TRAILER_BYTES_MAX));
    assert!(
        whole(long.as_bytes()).is_err(),
        "not even waited for its end"
    );
}

fn body_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "0\r\n\r\n",
        "0\r\n",
        "3\r\nabc\r\n",
        "1\r\n\n\r\n",
        "A\r\n",
        "0123456789",
        "\r\n",
        "\n",
        "\r",
        ";ext",
        ";",
        "X: y\r\n",
        "5",
        "f",
        "g",
        " ",
        "ffffffffffffffff",
        "00000000",
    ]);
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn packets_decide_nothing(bytes in body_like(), body_bytes_max in 0u64..40) {
        let expected = decode(&bytes, bytes.len(), body_bytes_max);
        for piece_len in 1..bytes.len() {
            prop_assert_eq!(&decode(&bytes, piece_len, body_bytes_max), &expected);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), piece_len in 1usize..9) {
        if let Ok(Some((data, consumed))) = decode(&bytes, piece_len, 64) {
            prop_assert!(data.len() <= 64 && consumed <= bytes.len());
        }
    }

    #[test]
    fn any_legal_chunks_are_read_as_they_were_sent(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
        piece_len in 1usize..50,
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        let expected = Ok(Some((chunks.concat(), bytes.len())));
        prop_assert_eq!(decode(&bytes, piece_len, u64::MAX), expected);
    }
}
