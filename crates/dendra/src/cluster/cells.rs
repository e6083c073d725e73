//! Tables for people, and their cells: numbers, sizes, times, words of a member.
//!
//! Invariants
//! 1. Text of a member is shown without control characters: it cannot steer the terminal.
//!
//! Not here: which table a page is shown as (`words.rs`, `compare.rs`).

use std::fmt::Write;

/// Columns as wide as their widest cell; the numbers of a column stand on its right.
pub(super) fn table(text: &mut String, rows: &[impl AsRef<[String]>]) {
    let rows: Vec<&[String]> = rows.iter().map(AsRef::as_ref).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let is_number = |cell: &String| cell == "-" || cell.bytes().all(|b| b.is_ascii_digit());
    let is_right: Vec<bool> = (0..rows[0].len())
        .map(|column| rows[1..].iter().all(|row| is_number(&row[column])))
        .collect();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            let wrote = if is_right[column] {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
            wrote.expect("a string takes any text");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// The first row of a table whose heads are single words.
pub(super) fn heads<const N: usize>(heads: &str) -> [String; N] {
    let mut heads = heads.split(' ').map(str::to_owned);
    std::array::from_fn(|_| heads.next().expect("a head for each column"))
}

/// A number that may be unknown.
pub(super) fn number(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

pub(super) fn word(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => plain(text),
    }
}

pub(super) fn words(texts: &[String]) -> String {
    let words: Vec<String> = texts.iter().map(|text| word(text)).collect();
    words.join(", ")
}

/// Milliseconds since 1970 as a date, in UTC.
pub(super) fn date(ms: u64) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// A size with one decimal, in the largest binary unit that leaves a number above 1.
pub(super) fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    match unit {
        None => format!("{bytes} B"),
        Some((shift, name)) => format!("{:.1} {name}", bytes as f64 / f64::from(2).powi(shift)),
    }
}

pub(super) fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3_600)),
    }
}
