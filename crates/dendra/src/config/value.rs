//! The value of an option as `config print` shows it and as a file of options holds it.

use super::options::{FileOrOff, Listed, Size};
use super::units;
use clap::{ArgMatches, Id};
use dendra_server::settings::{HostRule, Member, OriginRule};
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A value as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PrintedValue {
    Count(u64),
    Size(u64),
    /// Text as the option reads it.
    Text(String),
}

impl PrintedValue {
    /// Value of an option that has one.
    pub(super) fn of(matches: &ArgMatches, id: &Id) -> PrintedValue {
        fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &Id) -> Option<T> {
            matches.try_get_one::<T>(id.as_str()).ok()?.cloned()
        }
        fn text<T: Display + Clone + Send + Sync + 'static>(
            matches: &ArgMatches,
            id: &Id,
        ) -> Option<String> {
            one::<T>(matches, id).map(|value| value.to_string())
        }
        if let Some(number) = one::<u64>(matches, id) {
            return PrintedValue::Count(number);
        }
        if let Some(Size(bytes)) = one(matches, id) {
            return PrintedValue::Size(bytes);
        }
        let path = one::<PathBuf>(matches, id).map(|path| path.display().to_string());
        let texts = [
            text::<String>,
            text::<&'static str>,
            text::<FileOrOff>,
            text::<Listed<SocketAddr>>,
            text::<Listed<Member>>,
            text::<Listed<HostRule>>,
            text::<Listed<OriginRule>>,
        ];
        let shown = path.or_else(|| texts.iter().find_map(|text| text(matches, id)));
        PrintedValue::Text(shown.expect("a value of an option has one of these types"))
    }

    /// Text of the value in a TOML file.
    pub(super) fn to_toml(&self) -> String {
        match self {
            PrintedValue::Count(number) => number.to_string(),
            other => toml::Value::String(other.to_string()).to_string(),
        }
    }
}

impl Display for PrintedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrintedValue::Count(number) => number.fmt(f),
            PrintedValue::Size(bytes) => f.write_str(&units::show_bytes(*bytes)),
            PrintedValue::Text(text) => f.write_str(text),
        }
    }
}
