//! Temporary reader of the record framing.
pub(crate) enum Step<'a> {
    Record {
        key: &'a [u8],
        value: &'a [u8],
        len: usize,
    },
    End {
        len: usize,
    },
    NeedMore,
    Broken,
}
pub(crate) fn split(bytes: &[u8]) -> Step<'_> {
    if bytes.len() < 8 {
        return Step::NeedMore;
    }
    let n =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (k, v) = (n(0), n(4));
    if k == u32::MAX && v == u32::MAX {
        return Step::End { len: 8 };
    }
    let (k, v) = (k as usize, v as usize);
    if k > 1024 || v > 8 << 20 {
        return Step::Broken;
    }
    if bytes.len() < 8 + k + v {
        return Step::NeedMore;
    }
    Step::Record {
        key: &bytes[8..8 + k],
        value: &bytes[8 + k..8 + k + v],
        len: 8 + k + v,
    }
}
