//! Clients that write, read back and count, and know the acknowledged writes.
//!
//! ```text
//! client n   writes its own keys in turn, each through the next member, and reads one back through another
//!            counts its own counter up, each time under the condition that it is what it was
//! told       for each key: the last acknowledged value, and values whose outcome is unknown
//! ```
//!
//! Invariants
//! 1. A key has one writer. A read finds the last acknowledged value, or one of unknown outcome.
//! 2. A request that was not sent is asked of the next member; one without an answer is unknown.
//! 3. The client shares no code with the product.
//!
//! Not here: members (`members.rs`).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
const KEYS: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(20);
/// No member can be reached: they are asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// A request.
pub(super) struct Asked {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Asked {
    pub(super) fn get(path: &str) -> Asked {
        Asked {
            method: "GET",
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(super) fn order(path: &str) -> Asked {
        Asked {
            method: "POST",
            headers: vec![("content-type", "application/json".to_owned())],
            body: b"{}".to_vec(),
            ..Asked::get(path)
        }
    }

    fn put(key: &str, value: &str, matches: Option<&str>) -> Asked {
        let condition = match matches {
            Some("") => Some(("if-none-match", "*".to_owned())),
            Some(etag) => Some(("if-match", etag.to_owned())),
            None => None,
        };
        Asked {
            method: "PUT",
            path: format!("/v0/entity?id={key}"),
            headers: condition.into_iter().collect(),
            body: value.as_bytes().to_vec(),
        }
    }
}

/// An answer.
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    etag: String,
}

/// Why there is no answer.
enum Silence {
    /// The request was not sent.
    NotSent(String),
    /// It may have been carried out.
    Unknown(String),
}

/// One request on a connection of its own.
pub(super) fn ask(host: &str, asked: &Asked) -> Result<Answered, String> {
    exchange(host, asked).map_err(|silence| match silence {
        Silence::NotSent(why) | Silence::Unknown(why) => format!("{host}: {why}"),
    })
}

fn exchange(host: &str, asked: &Asked) -> Result<Answered, Silence> {
    let not_sent = |e: std::io::Error| Silence::NotSent(e.to_string());
    let unknown = |e: std::io::Error| Silence::Unknown(e.to_string());
    let mut socket = TcpStream::connect(host).map_err(not_sent)?;
    socket.set_nodelay(true).map_err(not_sent)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(not_sent)?;
    let mut request = format!(
        "{} {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n",
        asked.method,
        asked.path,
        asked.body.len()
    );
    for (name, value) in &asked.headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let whole = [request.as_bytes(), &asked.body].concat();
    socket.write_all(&whole).map_err(unknown)?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).map_err(unknown)?;
    parse(&answer).ok_or_else(|| Silence::Unknown("the connection ended".to_owned()))
}

fn parse(answer: &[u8]) -> Option<Answered> {
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    let body = answer[end + 4..].to_vec();
    let length = field("content-length").and_then(|length| length.parse().ok());
    if length.is_some_and(|length: usize| length != body.len()) {
        return None;
    }
    Some(Answered {
        status,
        body,
        etag: field("etag").unwrap_or_default(),
    })
}

/// The state of one key.
#[derive(Clone, Debug, Default)]
struct Known {
    acknowledged: Option<String>,
    unknown: Vec<String>,
}

impl Known {
    fn allows(&self, found: Option<&str>) -> bool {
        match found {
            None => self.acknowledged.is_none(),
            Some(found) => {
                self.acknowledged.as_deref() == Some(found)
                    || self.unknown.iter().any(|it| it == found)
            }
        }
    }
}

/// The knowledge of one client at its end.
#[derive(Default)]
struct Client {
    number: usize,
    hosts: Vec<String>,
    turn: usize,
    keys: BTreeMap<String, Known>,
    /// Of its counter: acknowledged steps, and steps of unknown outcome.
    counted: u64,
    perhaps: u64,
    /// Answers that were neither done nor an outcome.
    refused: u64,
    sentence: Option<String>,
}

impl Client {
    /// Asks the members in turn until one can be reached. `None` = the outcome is unknown.
    fn ask(&mut self, asked: &Asked) -> Option<Answered> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.turn += 1;
            let host = &self.hosts[self.turn % self.hosts.len()];
            match exchange(host, asked) {
                Ok(answer) => {
                    if answer.status >= 500 {
                        self.refused += 1;
                        return None;
                    }
                    return Some(answer);
                }
                Err(Silence::Unknown(why)) => {
                    self.sentence = Some(why);
                    return None;
                }
                Err(Silence::NotSent(why)) if Instant::now() > until => {
                    self.sentence = Some(why);
                    return None;
                }
                Err(Silence::NotSent(_)) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn write(&mut self, n: u64) -> Result<bool, String> {
        let key = format!("up-{}-{}", self.number, n % KEYS);
        let value = format!("{}.{n}.{}", self.number, "x".repeat((n % 900) as usize));
        let answer = self.ask(&Asked::put(&key, &value, None));
        let known = self.keys.entry(key.clone()).or_default();
        let is_done = match answer {
            Some(answer) if (200..300).contains(&answer.status) => {
                known.acknowledged = Some(value);
                true
            }
            Some(answer) => return Err(format!("PUT {key}: {}", answer.status)),
            None => {
                known.unknown.push(value);
                false
            }
        };
        let Some(answer) = self.ask(&Asked::get(&format!("/v0/entity?id={key}"))) else {
            return Ok(is_done);
        };
        let found = match answer.status {
            200 => Some(String::from_utf8_lossy(&answer.body).into_owned()),
            404 => None,
            status => return Err(format!("GET {key}: {status}")),
        };
        if self.keys[&key].allows(found.as_deref()) {
            Ok(is_done)
        } else {
            Err(format!("{key} is {found:?}, and not {:?}", self.keys[&key]))
        }
    }

    fn count(&mut self) -> Result<(), String> {
        let key = format!("count-{}", self.number);
        let Some(answer) = self.ask(&Asked::get(&format!("/v0/entity?id={key}"))) else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let (found, etag) = match answer.status {
            404 => (0, String::new()),
            _ => (text.parse::<u64>().map_err(|e| e.to_string())?, answer.etag),
        };
        self.check_count(found)?;
        let next = (found + 1).to_string();
        match self.ask(&Asked::put(&key, &next, Some(&etag))) {
            Some(answer) if (200..300).contains(&answer.status) => self.counted += 1,
            // A step of unknown outcome took effect in between.
            Some(answer) if answer.status == 412 && self.perhaps > 0 => {}
            Some(answer) => return Err(format!("PUT {key}: {}", answer.status)),
            None => self.perhaps += 1,
        }
        Ok(())
    }

    fn check_count(&self, found: u64) -> Result<(), String> {
        let (least, most) = (self.counted, self.counted + self.perhaps);
        if (least..=most).contains(&found) {
            Ok(())
        } else {
            Err(format!(
                "the counter of client {} is {found}, and {least} to {most} steps were counted",
                self.number
            ))
        }
    }
}

/// Clients under way.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Result<Client, String>>>,
}

impl Load {
    /// Begins.
    pub(super) fn start(hosts: &[String]) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let spawn = |number: usize| {
            let mut client = Client {
                number,
                hosts: hosts.to_vec(),
                turn: number,
                ..Client::default()
            };
            let (is_over, acknowledged) = (Arc::clone(&is_over), Arc::clone(&acknowledged));
            std::thread::spawn(move || {
                for n in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    if client.write(n)? {
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    if n % 4 == 0 {
                        client.count()?;
                    }
                }
                Ok(client)
            })
        };
        let clients = (0..CLIENTS).map(spawn).collect();
        Load {
            is_over,
            acknowledged,
            clients,
        }
    }

    /// Waits until so many more writes were acknowledged: how many were so far.
    pub(super) fn wait_for(&self, writes: u64) -> Result<u64, String> {
        let wanted = self.acknowledged.load(Ordering::Relaxed) + writes;
        let until = Instant::now() + 3 * PATIENCE;
        loop {
            let found = self.acknowledged.load(Ordering::Relaxed);
            if found >= wanted {
                return Ok(found);
            }
            if self.clients.iter().any(JoinHandle::is_finished) {
                return Err("a client ended with a failure".to_owned());
            }
            if Instant::now() > until {
                return Err(format!("only {found} writes were acknowledged"));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends all clients, and returns the answers that they got.
    pub(super) fn end(self) -> Result<Told, String> {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.clients.into_iter().map(|client| {
            let client = client.join();
            client.unwrap_or_else(|_| Err("a client panicked".to_owned()))
        });
        Ok(Told {
            clients: ended.collect::<Result<_, String>>()?,
            acknowledged: self.acknowledged.load(Ordering::Relaxed),
        })
    }
}

/// The answers of all clients.
pub(super) struct Told {
    clients: Vec<Client>,
    acknowledged: u64,
}

impl Told {
    /// Asks every member for every key.
    pub(super) fn verify(&self, hosts: &[String]) -> Result<(), String> {
        for client in &self.clients {
            for host in hosts {
                for (key, known) in &client.keys {
                    let answer = ask(host, &Asked::get(&format!("/v0/entity?id={key}")))?;
                    let found = String::from_utf8_lossy(&answer.body).into_owned();
                    let found = (answer.status == 200).then_some(found);
                    if !known.allows(found.as_deref()) {
                        return Err(format!("{host} has {found:?} for {key}, not {known:?}"));
                    }
                }
                let path = format!("/v0/entity?id=count-{}", client.number);
                let answer = ask(host, &Asked::get(&path))?;
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                client.check_count(text.parse().unwrap_or(0))?;
            }
        }
        Ok(())
    }

    pub(super) fn summary(&self) -> String {
        let sum = |of: fn(&Client) -> u64| self.clients.iter().map(of).sum::<u64>();
        let unknown = sum(|it| {
            it.keys
                .values()
                .map(|known| known.unknown.len() as u64)
                .sum()
        });
        let why = self.clients.iter().find_map(|it| it.sentence.as_deref());
        format!(
            "{} acknowledged writes and {} counted steps are there at each member; {} refused, {unknown} \
             writes of unknown outcome{}",
            self.acknowledged,
            sum(|it| it.counted),
            sum(|it| it.refused),
            why.map(|why| format!(" ({why})")).unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_write_is_noticed() {
        let known = Known {
            acknowledged: Some("2".to_owned()),
            unknown: vec!["3".to_owned()],
        };
        assert!(known.allows(Some("2")) && known.allows(Some("3")));
        assert!(!known.allows(Some("1")) && !known.allows(None));
        assert!(Known::default().allows(None));
        let client = Client {
            counted: 4,
            perhaps: 1,
            ..Client::default()
        };
        assert!(client.check_count(4).is_ok() && client.check_count(5).is_ok());
        assert!(client.check_count(3).is_err() && client.check_count(6).is_err());
    }

    #[test]
    fn an_answer_that_was_cut_is_none() {
        let whole = b"HTTP/1.1 200 OK\r\nETag: \"7\"\r\nContent-Length: 2\r\n\r\nhi";
        let answer = parse(whole).expect("an answer");
        assert_eq!(
            (answer.status, &*answer.etag, &*answer.body),
            (200, "\"7\"", &b"hi"[..])
        );
        assert!(parse(&whole[..whole.len() - 1]).is_none());
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_none());
    }
}
