//! The flags of `dendra cluster`.
//!
//! Invariants
//! 1. A flag that names a member and a value is read here, once: `URL=VALUE`, split at the last
//!    `=`.
//!
//! Not here: the work of the orders (`mod.rs`).
//! See: docs/cli.md, "Changing members".

use crate::config::units::parse_bytes;
use clap::{Args, Subcommand};

/// `dendra cluster`
#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    /// The admin port of any member [default: the first of DENDRA_ADMIN_URLS, or
    /// http://127.0.0.1:9080]
    #[arg(long, global = true, env = "DENDRA_ADMIN_URL")]
    url: Option<String>,
    /// Print the member's JSON instead of a table
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The command
    #[command(subcommand)]
    pub(crate) verb: ClusterVerb,
}

impl ClusterFlags {
    /// The admin port that is asked.
    pub(crate) fn url(&self) -> String {
        self.urls(&[]).remove(0)
    }

    /// The admin ports to ask: those that are named, else --url, else all; at least one.
    pub(crate) fn urls(&self, named: &[String]) -> Vec<String> {
        admin_urls(named, self.url.as_ref())
    }
}

/// The admin ports that are named, else this one, else all of DENDRA_ADMIN_URLS; at least one.
pub(crate) fn admin_urls(named: &[String], url: Option<&String>) -> Vec<String> {
    if !named.is_empty() {
        return named.to_vec();
    }
    if let Some(url) = url {
        return vec![url.clone()];
    }
    let all = std::env::var("DENDRA_ADMIN_URLS").unwrap_or_default();
    let urls = all.split(',').map(|one| one.trim().to_owned());
    let urls: Vec<String> = urls.filter(|one| !one.is_empty()).collect();
    if urls.is_empty() {
        vec!["http://127.0.0.1:9080".to_owned()]
    } else {
        urls
    }
}

/// Commands about the members of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Show members, epoch, and the plan under way
    Status {
        /// Go on until no plan is under way, with a line whenever something changed
        #[arg(long, short)]
        follow: bool,
    },
    /// Show the moves of a change and how long they take, without beginning them
    Plan(PlanFlags),
    /// Carry out a plan that was shown
    Apply {
        /// The id that `plan` printed
        plan: String,
        /// Go on until the plan has ended
        #[arg(long, short)]
        follow: bool,
    },
    /// Stop the plan under way; positions that move stay with their old owners
    Cancel,
    /// Show the newest epochs: their changes, and when this member learnt them
    History {
        /// How many
        #[arg(long, default_value_t = 20)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        entries: u32,
    },
    /// Give a member another address
    Readdress {
        /// Address until now
        from: String,
        /// Next address
        to: String,
    },
    /// Show the loss when damage is repaired without a lost member; with --confirm, accept it
    AcceptLoss {
        /// The member with the damage; --url is its admin port
        member: String,
        /// The id that the same order printed without this option
        #[arg(long, value_name = "ID")]
        confirm: Option<String>,
    },
    /// Look for copies that differ, without a repair: of each member that is named, with all others
    Compare {
        /// Admin ports of members [default: --url, or all of DENDRA_ADMIN_URLS]
        #[arg(value_name = "ADMIN_URL")]
        members: Vec<String>,
        /// Read about so much a second at each member, for example 50MiB [default: the member's
        /// --compare-bytes-per-second]
        #[arg(long, value_name = "SIZE", value_parser = look_rate)]
        rate: Option<u64>,
    },
    /// Use all that the new release can; afterwards no older release can start on these folders
    Finalize,
    /// Bound the bytes that each member loads a second, until the next such order
    Throttle {
        /// A size, for example 50MiB
        #[arg(value_parser = rate)]
        bytes: u64,
    },
}

/// `dendra cluster plan`
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct PlanFlags {
    /// A member that leaves; several times for several
    #[arg(long, value_name = "URL")]
    pub(crate) remove: Vec<String>,
    /// A member's share beside the others'; 0 = it shall hold no copies
    #[arg(long, value_name = "URL=N", value_parser = weight)]
    pub(crate) weight: Vec<(String, u16)>,
    /// A member's zone; URL= without a name is a zone of its own
    #[arg(long, value_name = "URL=ZONE", value_parser = zone)]
    pub(crate) zone: Vec<(String, String)>,
    /// Copies of each record
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) replication_factor: Option<u8>,
}

fn pair(text: &str) -> Result<(String, &str), String> {
    let (url, value) = text
        .rsplit_once('=')
        .ok_or("write it as URL=VALUE, for example http://h1:8080=2")?;
    Ok((url.to_owned(), value))
}

fn weight(text: &str) -> Result<(String, u16), String> {
    let (url, weight) = pair(text)?;
    let weight = weight
        .parse()
        .map_err(|_| format!("{weight:?} is no weight from 0 to 65535"))?;
    Ok((url, weight))
}

fn zone(text: &str) -> Result<(String, String), String> {
    let (url, zone) = pair(text)?;
    Ok((url, zone.to_owned()))
}

fn look_rate(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("nothing would be compared; give a size a second, for example 50MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

fn rate(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("nothing would move; to stop a plan, use dendra cluster cancel".to_owned()),
        bytes => Ok(bytes),
    }
}
