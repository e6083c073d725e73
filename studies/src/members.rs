//! `make study-members`: the cost of a change of the members, and of a cluster that rests.
//!
//! ```text
//! idle      three members with data, no client          CPU of each member in a minute
//! replace   one of them is lost, a new one takes over   p99 at half of the knee, beside calm
//! night     the same without clients                    bytes a second, beside the budget
//! join      a fourth one comes                          bytes loaded, beside the plan's
//! compare   two members with equal copies               bytes read and sent, beside the copies'
//! scale     3, 5, 10, 20 members                        links, threads, memory, CPU at rest
//! ```
//!
//! Invariants
//! 1. Data, rates and bytes are read from the members or counted by the generator. A bound is
//!    judged on one run, because a replacement of gigabytes takes minutes.
//! 2. The load of calm, and of the time with a member lost, is the load of the replacement.
//!
//! Not here: whether anything is lost meanwhile (tests of the binary), tables of up to 100 members
//! (crate `node`, `examples/scale_figures.rs`).
//! See: docs/operating.md, docs/scale.md.

use super::goals::{Bound, Goals};
use super::place::{Held, Place};
use super::report::{Report, percent, time};
use super::run::{Bench, Figures};
use super::store::{Members, Server, Store, free_port, metric};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The options that this task has beside those of all.
pub(super) const OPTIONS: [&str; 4] = ["--keys", "--compare-keys", "--parts", "--members"];

/// Bytes of a value of the members' data.
const VALUE_BYTES: u32 = 1_000;
/// Bytes of a value of the copies that are compared.
const COMPARED_BYTES: u32 = 100;
/// The bytes that a comparison counts of a record beside key and value. They are the byte of the
/// space, and the fixed part of its cell (docs/format/cell.md).
const FIXED_BYTES: f64 = 27.0;
/// The objective at the knee.
const OBJECTIVE: &str = "p99<50ms,errors<0.1%";
/// How long a plan may take.
const PLAN_MAX: Duration = Duration::from_secs(1_200);
const LOOK: Duration = Duration::from_millis(250);
const MIB: f64 = 1_048_576.0;

/// The most that a member loads in a second, by default (docs/operating.md).
const BUDGET_MIB: f64 = 64.0;

/// Measures all parts.
pub(super) fn run(place: &Place) -> Held {
    let parts = place.options.own.get("--parts").map(String::as_str);
    let wants = |part: &str| parts.is_none_or(|parts| parts.split(',').any(|one| one == part));
    let count = |word, without, most| place.options.count(word, without, 1_000..=most);
    let keys = count("--keys", 2_000_000, 100_000_000)?;
    let compared = count("--compare-keys", 2_000_000, 100_000_000)?;
    let question =
        "What does a change of the members cost the clients, and what does a cluster cost at rest?";
    let facts = [
        (
            "data",
            format!(
                "{keys} records of {VALUE_BYTES} bytes, three copies; compared: {compared} of {COMPARED_BYTES}, two copies"
            ),
        ),
        (
            "load",
            "GET and PUT, one to one, uniform keys, open loop, 64 connections, half of the knee"
                .to_owned(),
        ),
        (
            "members",
            "`--durability os`; all of them on the servers' cores, data and generator beside them"
                .to_owned(),
        ),
    ];
    let mut report = Report::new(place, "Members come and go", question, &facts)?;
    let mut goals = Goals::default();
    if ["replace", "idle", "night", "join"]
        .iter()
        .any(|part| wants(part))
    {
        let mut town = Town::load(place, &mut report, keys)?;
        if wants("idle") {
            town.idle(&mut report, &mut goals)?;
        }
        if wants("replace") {
            town.replace(&mut report, &mut goals)?;
        }
        if wants("night") {
            town.night(&mut report, &mut goals)?;
        }
        if wants("join") {
            town.join(&mut report, &mut goals)?;
        }
    }
    if wants("compare") {
        compare(place, &mut report, &mut goals, compared)?;
    }
    if wants("scale") {
        scale(place, &mut report)?;
    }
    let all_held = goals.show(&mut report);
    report.write(place, "members")?;
    Ok(all_held)
}

/// Three members with data.
struct Town<'a> {
    place: &'a Place,
    members: Vec<Server>,
    keys: u32,
    /// Bytes of a key and its value.
    record_bytes: f64,
}

/// A member that joins: its flags hold for a replacement, too.
fn joiner(place: &Place, name: &str, host: &str, more: &[&str]) -> Result<Server, String> {
    let port = free_port()?;
    let own = format!("http://{port}");
    let data = place.folder.join(name);
    let mut words = vec!["--durability", "os", "--join", host, "--self", &own];
    words.extend(more);
    Server::node_at(place, &data, &port.to_string(), &words)
}

impl Town<'_> {
    fn load<'a>(place: &'a Place, report: &mut Report, keys: u32) -> Result<Town<'a>, String> {
        let options = ["--durability", "os"];
        let members = Members::start(place, "member", &[1; 3], 3, &options)?.joined(3)?;
        let begun = Instant::now();
        members.load(place, &records(keys, VALUE_BYTES))?;
        let took_s = begun.elapsed().as_secs_f64();
        let record_bytes = record_bytes(&members.nodes[0], VALUE_BYTES)?;
        let bytes = f64::from(keys) * record_bytes;
        report.line(format_args!(
            "\nLoading took {took_s:.0} s: {:.2} GB on each member.",
            bytes / 1e9
        ));
        for node in &members.nodes {
            node.rest(Duration::from_secs(120));
        }
        Ok(Town {
            place,
            members: members.nodes,
            keys,
            record_bytes,
        })
    }

    fn bytes(&self) -> f64 {
        f64::from(self.keys) * self.record_bytes
    }

    /// A minute without a client.
    fn idle(&self, report: &mut Report, goals: &mut Goals) -> Result<(), String> {
        report.line("\n## A cluster that rests\n\nNo client. Comparing, scrubbing, clocks and the exchange of epochs go on at their defaults.");
        report.table(&[
            "member",
            "CPU of a core",
            "event loops",
            "maintenance",
            "other threads",
            "compared",
        ]);
        let window = Duration::from_secs_f64(self.seconds(60.0));
        let before: Vec<_> = self
            .members
            .iter()
            .map(|node| Ok((node.clock(), compared(node)?)))
            .collect::<Result<_, String>>()?;
        std::thread::sleep(window);
        let mut shares = Vec::new();
        for (node, (clock, read)) in self.members.iter().zip(&before) {
            let spent = node.spent(clock);
            let of = |is: &dyn Fn(&str) -> bool| -> f64 {
                let of = spent.iter().filter(|(name, _)| is(name));
                of.map(|(_, s)| s).sum::<f64>() / window.as_secs_f64()
            };
            let is_loop = |name: &str| name.starts_with("loop");
            let is_upkeep = |name: &str| {
                ["flush", "compact", "scrub", "maintenance"]
                    .iter()
                    .any(|it| name.starts_with(it))
            };
            let all = of(&|_| true);
            let rest = of(&|name| !is_loop(name) && !is_upkeep(name));
            let mib_s = (compared(node)? - read) / MIB / window.as_secs_f64();
            report.row(&[
                node.url.clone(),
                percent(all),
                percent(of(&is_loop)),
                percent(of(&is_upkeep)),
                percent(rest),
                format!("{mib_s:.1} MiB/s"),
            ]);
            shares.push(all);
        }
        let most = shares.into_iter().fold(0.0, f64::max);
        let what = "background work of a member at rest, share of a core".to_owned();
        goals.add(what, vec![most], Bound::Below(0.01));
        Ok(())
    }

    fn seconds(&self, without: f64) -> f64 {
        self.place.options.seconds.unwrap_or(without)
    }

    fn bench(&self, rate: f64, seconds: f64) -> Bench<'_> {
        let (first, others) = (&self.members[0], &self.members[1..2]);
        let mut bench = Bench::new(self.place, &first.url, &self.place.folder.join("run"));
        for other in others {
            bench = bench.word(&other.url);
        }
        let flags = format!(
            "--mix get=1,put=1 --keys {} --value-bytes {VALUE_BYTES} --rate {rate:.0} --duration {seconds:.1}s --warmup 2s --connections 64",
            self.keys
        );
        bench.with(&flags).attempts(1)
    }

    /// A member is lost, and another one takes its place at the full budget.
    fn replace(&mut self, report: &mut Report, goals: &mut Goals) -> Result<(), String> {
        report.line("\n## A member is lost and replaced\n\nClients ask the two members that stay, all the time. The new member loads as fast as the default lets it (64 MiB/s).");
        let window_s = self.seconds(30.0);
        let knee = self.knee()?;
        let rate = knee / 2.0;
        report.line(format_args!(
            "\n{knee:.0} requests a second hold {OBJECTIVE}: the load is {rate:.0}."
        ));
        report.table(&[
            "time",
            "p50",
            "p99",
            "p99.9",
            "beside calm",
            "lost or refused",
            "load",
        ]);
        let calm = self.bench(rate, window_s).run()?;
        let row = |page: &mut Report, what: &str, figures: &Figures, load: String| {
            page.row(&[
                what.to_owned(),
                time(figures.p50_us),
                format!("{}{}", time(figures.p99_us), figures.mark()),
                time(figures.p999_us),
                format!("{:.2}", figures.p99_us / calm.p99_us),
                format!("{:.4} %", (figures.lost + figures.refused) * 100.0),
                load,
            ]);
        };
        row(report, "calm, three members", &calm, String::new());
        let lost = self.members.pop().ok_or("there are three")?;
        let lost_url = lost.url.clone();
        drop(lost);
        let two = self.bench(rate, window_s).run()?;
        row(report, "two members", &two, String::new());
        let host = self.members[0].url.clone();
        let begun = Instant::now();
        let new = joiner(self.place, "replacement", &host, &["--replace", &lost_url])?;
        let mut worst: f64 = 0.0;
        for number in 1.. {
            let before = loaded(&new)?;
            let at = Instant::now();
            let figures = self.bench(rate, window_s).run()?;
            let rate_s = (loaded(&new)? - before) / MIB / at.elapsed().as_secs_f64();
            row(
                report,
                &format!("replacing, window {number}"),
                &figures,
                format!("{rate_s:.1} MiB/s"),
            );
            worst = worst.max(figures.p99_us);
            if is_at_rest(&self.members[0])? {
                break;
            }
            if begun.elapsed() > PLAN_MAX {
                return Err("the replacement does not end".to_owned());
            }
        }
        let took = self.learnt(&["planned", "finished"])?;
        let loaded = loaded(&new)?;
        goals.add(
            "p99 while a member is replaced, beside calm, worst window".to_owned(),
            vec![worst / calm.p99_us],
            Bound::AtMost(1.3),
        );
        goals.add(
            "p99 with two of three members, beside calm".to_owned(),
            vec![two.p99_us / calm.p99_us],
            Bound::Shown,
        );
        // In the place of a lost owner a majority of the others is read: two of two.
        goals.add(
            "bytes loaded by the replacement, beside the data of one member".to_owned(),
            vec![loaded / self.bytes()],
            Bound::Shown,
        );
        self.members.push(new);
        let quiet = self.bench(rate, window_s).run()?;
        row(report, "afterwards", &quiet, String::new());
        report.line(format_args!(
            "\nFrom the plan to its end {took:.1} s, ten of them the patience with the lost member; {:.2} GB were loaded.",
            loaded / 1e9
        ));
        Ok(())
    }

    /// The highest rate of an open loop that two members hold. A closed loop does more: it has more
    /// requests in a batch.
    fn knee(&self) -> Result<f64, String> {
        let (first, other) = (&self.members[0], &self.members[1]);
        let run = |more: &str| {
            let flags = format!(
                "--mix get=1,put=1 --keys {} --value-bytes {VALUE_BYTES} --connections 64 {more}",
                self.keys
            );
            let folder = self.place.folder.join("run");
            let bench = Bench::new(self.place, &first.url, &folder).word(&other.url);
            bench.with(&flags).attempts(1).run()
        };
        let closed = run("--closed --warmup 1s --duration 3s")?;
        let start = closed.answered / closed.length_s / 2.0;
        let step_s = self.seconds(30.0) / 2.0;
        let found = run(&format!(
            "--rate {start:.0} --warmup 500ms --duration {step_s:.1}s --find-max --slo {OBJECTIVE}"
        ))?;
        let knee = found.knee.filter(|rate| *rate > 0.0);
        knee.ok_or_else(|| format!("no rate holds {OBJECTIVE}"))
    }

    /// Seconds between the last two epochs of these changes, as the first member learnt them.
    fn learnt(&self, changes: &[&str; 2]) -> Result<f64, String> {
        let page = admin(
            &self.members[0],
            "GET",
            "/v0/cluster/history?entries=1000",
            "",
        )?;
        let epochs = page["epochs"].as_array().ok_or("no history")?;
        let at = |change: &str| {
            let found = epochs.iter().find(|epoch| epoch["change"] == change);
            found.and_then(|epoch| epoch["learnt_ms"].as_f64())
        };
        let [begin, end] = changes.map(at);
        let ms = end.zip(begin).map(|(end, begin)| end - begin);
        ms.map(|ms| ms / 1e3)
            .ok_or_else(|| "no such epoch".to_owned())
    }

    /// Waits until the plan has ended: how many seconds it took.
    fn planned(&self) -> Result<f64, String> {
        let begun = Instant::now();
        while !is_at_rest(&self.members[0])? {
            if begun.elapsed() > PLAN_MAX {
                return Err("the plan does not end".to_owned());
            }
            std::thread::sleep(LOOK);
        }
        self.learnt(&["planned", "finished"])
    }

    /// A member and its disk are lost, and another one takes its place while no client asks.
    fn night(&mut self, report: &mut Report, goals: &mut Goals) -> Result<(), String> {
        report.line("\n## A member is lost and replaced, without load");
        let lost = self.members.pop().ok_or("there are three")?;
        let url = lost.url.clone();
        drop(lost);
        let data = self.place.folder.join("member-2");
        std::fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
        let host = self.members[0].url.clone();
        let new = joiner(self.place, "by-night", &host, &["--replace", &url])?;
        let took_s = self.planned()?;
        let loaded = loaded(&new)?;
        let rate = loaded / MIB / took_s;
        report.line(format_args!(
            "\n{:.2} GB of one member's data in {took_s:.0} s: {:.2} GB were loaded, {rate:.1} MiB/s.",
            self.bytes() / 1e9,
            loaded / 1e9,
        ));
        goals.add(
            "rate of loading without clients, beside the budget".to_owned(),
            vec![rate / BUDGET_MIB],
            Bound::AtLeast(0.9),
        );
        self.members.push(new);
        Ok(())
    }

    /// A fourth member, without load.
    fn join(&mut self, report: &mut Report, goals: &mut Goals) -> Result<(), String> {
        report.line("\n## A fourth member joins, without load");
        let host = self.members[0].url.clone();
        let new = joiner(self.place, "fourth", &host, &[])?;
        let took_s = self.planned()?;
        let status = admin(&new, "GET", "/v0/cluster", "")?;
        let members = status["members"].as_array().ok_or("no members")?;
        let last = members.last().ok_or("no members")?;
        let positions = last["positions"].as_f64().ok_or("no positions")?;
        let partitions = status["partitions"].as_f64().ok_or("no partitions")?;
        let wanted = self.bytes() * positions / partitions;
        let loaded = loaded(&new)?;
        report.line(format_args!(
            "\n{positions:.0} positions of {partitions:.0} partitions in {took_s:.1} s: {:.1} MiB loaded, {:.1} MiB planned, {:.1} MiB/s.",
            loaded / MIB,
            wanted / MIB,
            loaded / MIB / took_s
        ));
        goals.add(
            "bytes loaded by a member that joins, beside those of the plan".to_owned(),
            vec![loaded / wanted],
            Bound::AtMost(1.05),
        );
        Ok(())
    }
}

/// Two members with equal copies, which compare them once.
fn compare(place: &Place, report: &mut Report, goals: &mut Goals, keys: u32) -> Result<(), String> {
    report.line(
        "\n## Two equal copies are compared\n\nOne full comparison, without a bound on its speed.",
    );
    let ports = [free_port()?, free_port()?];
    // The second one is waited for by the first.
    let start = |budget: &str| {
        let options = ["--durability", "os", "--compare-bytes-per-second", budget];
        Members::at(place, "compared", &ports, &[1; 2], 2, &options)
    };
    let members = start("0")?.joined(2)?;
    members.load(place, &records(keys, COMPARED_BYTES))?;
    let record_bytes = record_bytes(&members.nodes[0], COMPARED_BYTES)?;
    for node in &members.nodes {
        node.rest(Duration::from_secs(120));
    }
    Box::new(members).stop()?;
    let begun = Instant::now();
    let nodes = start("1TiB")?.nodes;
    let clocks: Vec<_> = nodes.iter().map(Server::clock).collect();
    while !nodes.iter().all(has_compared) {
        if begun.elapsed() > PLAN_MAX {
            return Err("no comparison ends".to_owned());
        }
        std::thread::sleep(LOOK);
    }
    let took_s = begun.elapsed().as_secs_f64();
    let cpu_s: f64 = nodes
        .iter()
        .zip(&clocks)
        .map(|(node, clock)| node.cpu_s(clock))
        .sum();
    let copy = f64::from(keys) * record_bytes;
    let read: f64 = nodes.iter().map(compared).sum::<Result<f64, String>>()?;
    let sum = |name: &str| -> Result<f64, String> {
        nodes.iter().map(|node| metric(&node.admin, name)).sum()
    };
    let moved = sum("dendra_compare_moved_bytes_total")?;
    let repaired = sum("dendra_compare_sent_total{")? + sum("dendra_compare_fetched_total{")?;
    report.line(format_args!(
        "\n{keys} keys, {:.1} MiB in each copy, compared in {took_s:.1} s with {cpu_s:.1} s of CPU, both members together. Read: {:.1} MiB. Sent: {:.0} bytes. Repaired: {repaired:.0} records.",
        copy / MIB,
        read / MIB,
        moved
    ));
    goals.add(
        "how often each record of both copies was read".to_owned(),
        vec![read / (2.0 * (copy + f64::from(keys) * FIXED_BYTES))],
        Bound::AtMost(1.001),
    );
    goals.add(
        "bytes sent for a comparison, for a thousand of a copy".to_owned(),
        vec![moved / copy * 1_000.0],
        Bound::Below(1.0),
    );
    Ok(())
}

/// Members as processes on one machine, at rest and under a light load.
fn scale(place: &Place, report: &mut Report) -> Result<(), String> {
    report.line("\n## 3 to 20 members on one machine\n\nTwo event loops each, 32 MiB of engine memory, no data. Links are those that a member opens: one of each loop to each other member. At rest: no client, ten seconds behind the last link. Light load: 200 requests a second, GET and PUT, to all members.");
    report.table(&[
        "members",
        "links",
        "links of a member",
        "threads",
        "resident",
        "links up after",
        "CPU at rest",
        "questions at rest",
        "CPU under light load",
        "p99 under light load",
    ]);
    let most = place.options.count("--members", 20, 3..=50)? as usize;
    let sizes = [3, 5, 10, 20].into_iter().filter(|size| *size < most);
    for size in sizes.chain([most]) {
        let options = [
            "--durability",
            "os",
            "--loops",
            "2",
            "--memory",
            "32MiB",
            "--value-bytes-max",
            "256KiB",
        ];
        let begun = Instant::now();
        let name = format!("of-{size}");
        let members = Members::start(place, &name, &vec![1; size], 3, &options)?;
        let nodes = &members.nodes;
        let wanted = (size * (size - 1) * 2) as f64;
        let sum = |metric_name: &str| -> Result<f64, String> {
            nodes
                .iter()
                .map(|node| metric(&node.admin, metric_name))
                .sum()
        };
        while sum("dendra_peer_links{")? < wanted {
            if begun.elapsed() > PLAN_MAX {
                return Err(format!("{size} members do not find each other"));
            }
            std::thread::sleep(LOOK);
        }
        let linked_s = begun.elapsed().as_secs_f64();
        std::thread::sleep(Duration::from_secs(10));
        let window = Duration::from_secs_f64(place.options.seconds.unwrap_or(20.0));
        let spent = |work: &mut dyn FnMut() -> Result<(), String>| -> Result<f64, String> {
            let clocks: Vec<_> = nodes.iter().map(Server::clock).collect();
            let work_begun = Instant::now();
            work()?;
            let s: f64 = nodes
                .iter()
                .zip(&clocks)
                .map(|(node, clock)| node.cpu_s(clock))
                .sum();
            Ok(s / work_begun.elapsed().as_secs_f64() / size as f64)
        };
        let asks = sum("dendra_peer_asks_total{")?;
        let idle = spent(&mut || {
            std::thread::sleep(window);
            Ok(())
        })?;
        let asks = (sum("dendra_peer_asks_total{")? - asks) / window.as_secs_f64();
        let mut p99_us = 0.0;
        let busy = spent(&mut || {
            let bench = members.bench(place, &place.folder.join("run"));
            let flags = format!(
                "--mix get=1,put=1 --keys 1000 --rate 200 --warmup 0s --duration {:.1}s --connections {size}",
                window.as_secs_f64()
            );
            p99_us = bench.with(&flags).attempts(1).run()?.p99_us;
            Ok(())
        })?;
        let threads: usize = nodes.iter().map(|node| threads(node.id())).sum();
        let resident = nodes.iter().map(|node| node.resident().map(|it| it.now));
        let resident: u64 = resident.sum::<Result<u64, String>>()?;
        report.row(&[
            size.to_string(),
            format!("{wanted:.0}"),
            format!("{:.0}", wanted / size as f64),
            format!("{:.1} a member", threads as f64 / size as f64),
            format!("{:.1} MiB a member", resident as f64 / MIB / size as f64),
            format!("{linked_s:.1} s"),
            format!("{} of a core a member", percent(idle)),
            format!("{asks:.0}/s, {:.1}/s a member", asks / size as f64),
            format!("{} of a core a member", percent(busy)),
            time(p99_us),
        ]);
    }
    Ok(())
}

fn threads(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/task")).map_or(0, Iterator::count)
}

/// All records, for the bench that writes them.
fn records(keys: u32, bytes: u32) -> String {
    format!("--workload put --keys {keys} --value-bytes {bytes} --connections 128")
}

/// Bytes of a key and its value, by the first record.
fn record_bytes(node: &Server, value_bytes: u32) -> Result<f64, String> {
    let page = ask(
        &node.url,
        "GET",
        "/v0/entities?start=%01&limit=1&keys-only=true",
        "",
    )?;
    let first: Value = page
        .lines()
        .find_map(|line| serde_json::from_str(line).ok())
        .ok_or("the first record cannot be read")?;
    let key = first["key"].as_str().ok_or("the first record has no key")?;
    Ok(key.len() as f64 + f64::from(value_bytes))
}

/// Bytes of keys and values that a member has read to compare copies.
fn compared(node: &Server) -> Result<f64, String> {
    metric(&node.admin, "dendra_compare_read_bytes_total")
}

fn has_compared(node: &Server) -> bool {
    let page = ask(&node.admin, "GET", "/metrics", "").unwrap_or_default();
    page.lines()
        .any(|line| line.starts_with("dendra_compare_age_seconds{"))
}

/// Bytes that a member has loaded as a new owner.
fn loaded(node: &Server) -> Result<f64, String> {
    let status = admin(node, "GET", "/v0/cluster", "")?;
    let members = status["members"].as_array().ok_or("no members")?;
    let asked = members
        .iter()
        .find(|member| member["url"] == status["asked"]);
    let loaded = asked.and_then(|member| member["loaded_bytes"].as_f64());
    Ok(loaded.unwrap_or(0.0))
}

/// Is no plan under way, and every member one that votes?
fn is_at_rest(node: &Server) -> Result<bool, String> {
    let status = admin(node, "GET", "/v0/cluster", "")?;
    let members = status["members"].as_array().ok_or("no members")?;
    Ok(status["plan"].is_null()
        && members
            .iter()
            .all(|member| member["status"] == json!("member")))
}

fn admin(node: &Server, method: &str, path: &str, body: &str) -> Result<Value, String> {
    let text = ask(&node.admin, method, path, body)?;
    serde_json::from_str(&text).map_err(|e| format!("{path} of {}: {e}", node.admin))
}

/// The body of an answer.
fn ask(base: &str, method: &str, path: &str, body: &str) -> Result<String, String> {
    let address = base.trim_start_matches("http://");
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: application/x-ndjson\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    };
    let page = ask().map_err(|e| format!("{path} of {base}: {e}"))?;
    let (_, answer) = page.split_once("\r\n\r\n").unwrap_or_default();
    Ok(answer.to_owned())
}
