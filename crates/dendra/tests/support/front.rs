//! A front door of another engine, and the rules in front of each.
//!
//! Not here: the engines (`etcd.rs`, `cassandra.rs`), the cases (`../outgrow/`).
//! See: docs/stores.md.

use super::http::{Answer, Client, PATIENCE};
use super::{Node, dendra, kill_process, run};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Instant;

pub(crate) struct Front {
    node: Node,
    _folder: tempfile::TempDir,
}

impl Front {
    pub(crate) fn start(store: &str) -> Front {
        Front::start_with(store, &[])
    }

    pub(crate) fn start_with(store: &str, flags: &[&str]) -> Front {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = [&["--store", store], flags].concat();
        let node = Node::start(&folder.path().join("none"), &flags);
        Front {
            node,
            _folder: folder,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let address = self.node.url.strip_prefix("http://");
        address.and_then(|it| it.parse().ok()).expect("an address")
    }

    pub(crate) fn client(&self) -> Client {
        Client::open(self.address()).expect("it listens")
    }

    pub(crate) fn url(&self) -> &str {
        &self.node.url
    }

    pub(crate) fn pid(&self) -> u32 {
        self.node.pid()
    }

    /// The answer of its admin port: the status and the text.
    pub(crate) fn admin(&self, target: &str) -> (u16, String) {
        let client = Client::open(self.node.admin_address());
        let mut client = client.expect("it listens");
        let answer = client.request("GET", target, &[], b"").expect("it answers");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        (answer.status, text)
    }
}

pub(crate) fn ask(
    client: &mut Client,
    method: &str,
    id: &str,
    head: &[&str],
    body: &[u8],
) -> Answer {
    client.ask(method, id, head, body).expect("it answers")
}

/// Certificates as `dendra cert` makes them, and files of logins.
pub(crate) struct Papers(tempfile::TempDir);

impl Papers {
    pub(crate) fn make() -> Papers {
        let folder = tempfile::tempdir().expect("a folder");
        let certs = folder.path().join("c");
        let certs = certs.to_str().expect("it is text");
        let words = ["cert", certs, "--member", "127.0.0.1,127.0.45.1"];
        let made = run(dendra(words).args(["--client", "front"]));
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        Papers(folder)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.path().join("c").join(name).display().to_string()
    }

    /// A file that its owner alone may open.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = self.file(name);
        std::fs::write(&path, text).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        path
    }

    /// The flags of a front door that knows the CA and shows a login.
    pub(crate) fn flags(&self, login: &str) -> Vec<String> {
        let login = self.write("login", login);
        let pairs = [
            ("--store-ca", self.file("ca.crt")),
            ("--store-login-file", login),
        ];
        let words = pairs.into_iter();
        words
            .flat_map(|(flag, file)| [flag.to_owned(), file])
            .collect()
    }

    /// The flags of one that shows a certificate, too.
    pub(crate) fn own_flags(&self) -> Vec<String> {
        let pairs = [
            ("--store-cert", self.file("client-front.crt")),
            ("--store-key", self.file("client-front.key")),
        ];
        let words = pairs.into_iter();
        words
            .flat_map(|(flag, file)| [flag.to_owned(), file])
            .collect()
    }
}

fn words(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// Does a front door with these flags start?
pub(crate) fn opens(store: &str, flags: &[String]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = dendra(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
    let command = command.args(["--store", store]).args(flags);
    let command = command.arg("--data").arg(folder.path());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it runs");
    let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    let has_opened = loop {
        line.clear();
        if said.read_line(&mut line).expect("it is text") == 0 {
            break false;
        }
        if line.starts_with("listening on ") {
            break true;
        }
    };
    // It has ended already, or ends now.
    drop(child.kill());
    drop(child.wait());
    has_opened
}

/// `dendra serve` with these flags ends with a code and a reason.
pub(crate) fn check_refused(store: &str, flags: &[&str], code: i32, why: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = dendra(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
    let command = command.args(["--store", store]).args(flags);
    let told = run(command.arg("--data").arg(folder.path()));
    assert_eq!(told.code, Some(code), "{flags:?}: {}", told.stderr);
    assert!(told.stderr.contains(why), "{flags:?}: {}", told.stderr);
}

/// A front door with the right papers serves, and each wrong one is named at the start.
/// `own`: what the servers want beside a user and the CA.
pub(crate) fn check_papers(store: &str, papers: &Papers, login: &str, own: &[String]) {
    let flags = [&papers.flags(login)[..], own].concat();
    let front = Front::start_with(store, &words(&flags));
    let mut client = front.client();
    assert_eq!(ask(&mut client, "PUT", "k", &[], b"v").status, 201);
    assert_eq!(ask(&mut client, "GET", "k", &[], b"").body, b"v");
    // In clear; without a user; with a wrong password; with a CA that signed nothing of this.
    const CLOSED: &str = "the store cannot be opened";
    check_refused(store, &[], 3, CLOSED);
    check_refused(store, &words(&[&flags[..2], own].concat()), 3, CLOSED);
    let wrong = papers.write("wrong", "front:wrong");
    let strange = [&flags[..2], &["--store-login-file".to_owned(), wrong], own].concat();
    check_refused(store, &words(&strange), 3, CLOSED);
    let others = Papers::make();
    let foreign = ["--store-ca".to_owned(), others.file("ca.crt")];
    let strange = [&foreign, &flags[2..]].concat();
    check_refused(store, &words(&strange), 3, CLOSED);
    let open = papers.write("open", login);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&open, mode).expect("it is ours");
    check_refused(store, &["--store-login-file", &open], 2, "chmod 600");
}

/// A front door that could not reach its engine takes writes again, some time or other.
pub(crate) fn check_comes_back(front: &Front) {
    let deadline = Instant::now() + PATIENCE;
    let mut client = front.client();
    loop {
        let put = ask(&mut client, "PUT", "back", &[], b"v");
        if put.status == 201 {
            return;
        }
        assert!(Instant::now() < deadline, "{put:?}");
        crate::support::rest();
    }
}

pub(crate) fn check_conditions(front: &Front) {
    let mut client = front.client();
    let mut put = |head: &[&str], value: &[u8]| ask(&mut client, "PUT", "c", head, value);
    assert_eq!(put(&["If-Match: *"], b"0").status, 412);
    let one = put(&["If-None-Match: *"], b"1");
    assert_eq!(one.status, 201);
    let prefer = "Prefer: return=representation";
    let refused = put(&["If-None-Match: *", prefer], b"2");
    assert_eq!((refused.status, &refused.body[..]), (412, &b"1"[..]));
    assert_eq!(refused.etag, one.etag);
    let if_one = format!("If-Match: {}", one.etag.expect("a version"));
    let two = put(&[&if_one], b"2");
    assert_eq!(two.status, 201);
    assert_eq!(put(&[&if_one], b"3").status, 412);
    let two = two.etag.expect("a version");
    assert_eq!(put(&[&format!("If-None-Match: {two}")], b"3").status, 412);
    assert_eq!(put(&["If-Match: *"], b"3").status, 201);
    let mut delete = |head: &str| ask(&mut client, "DELETE", "c", &[head], b"").status;
    assert_eq!(delete(&if_one), 412);
    assert_eq!(delete("If-Match: *"), 202);
    assert_eq!(delete("If-Match: *"), 412);
}

/// Every case of the contract, but those of what a front door does not offer.
pub(crate) fn check_contract(front: &Front) {
    let without = ["--without", "watch", "--without", "explain"];
    let told = run(dendra(["conform", "--url", front.url()]).args(without));
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.code, Some(0), "{text} {}", told.stderr);
    let last = text.lines().last().unwrap_or_default();
    let numbers = last.split(|c: char| !c.is_ascii_digit());
    let numbers: Vec<usize> = numbers.filter_map(|word| word.parse().ok()).collect();
    let [cases, passed, failed, skipped] = numbers[..] else {
        panic!("no counts: {text}");
    };
    assert_eq!((passed + skipped, failed), (cases, 0), "{text}");
    let left_out = text.matches("(without ").count();
    assert!(passed >= 121 && skipped == left_out, "{text}");
}

/// A front door that is killed while clients write loses no write that it acknowledged.
pub(crate) fn check_lost_front(store: &str) {
    const WRITERS: usize = 4;
    let (lost, other) = (Front::start(store), Front::start(store));
    let acknowledged = Mutex::new(Vec::new());
    let count = || acknowledged.lock().expect("no writer panics").len();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (address, acknowledged) = (lost.address(), &acknowledged);
            scope.spawn(move || {
                let mut client = Client::open(address).expect("it listens");
                for n in 0.. {
                    let id = format!("lost-{writer}-{n}");
                    match client.ask("PUT", &id, &[], id.as_bytes()) {
                        Some(answer) if answer.status == 201 => {
                            acknowledged.lock().expect("no writer panics").push(id);
                        }
                        Some(answer) => panic!("{id}: {answer:?}"),
                        None => return,
                    }
                }
            });
        }
        let deadline = Instant::now() + PATIENCE;
        while count() < 100 {
            assert!(Instant::now() < deadline, "no writes");
            crate::support::rest();
        }
        kill_process(lost.pid());
    });
    lost.node.reap();
    let mut client = other.client();
    let acknowledged = acknowledged.into_inner().expect("no writer panics");
    for id in &acknowledged {
        let got = ask(&mut client, "GET", id, &[], b"");
        assert_eq!((got.status, &got.body[..]), (200, id.as_bytes()), "{id}");
    }
}

/// Clients that do not read their scans cost a front door a page each, and no other client.
pub(crate) fn check_slow_readers(front: &Front) {
    const READERS: usize = 48;
    const RECORDS: usize = 60;
    let mut client = front.client();
    let value = vec![b'v'; 400_000];
    for n in 0..RECORDS {
        let put = ask(&mut client, "PUT", &format!("slow{n:03}"), &[], &value);
        assert_eq!(put.status, 201);
    }
    let before = resident_bytes(front.pid());
    let target = "/v0/entities?prefix=slow";
    let mut slow: Vec<Client> = Vec::new();
    for _ in 0..READERS {
        let mut reader = front.client();
        reader.send("GET", target, &[], b"").expect("it is sent");
        slow.push(reader);
    }
    let deadline = Instant::now() + PATIENCE;
    for reader in &mut slow {
        while !reader.has_answer() {
            assert!(Instant::now() < deadline, "no scan begins");
            crate::support::rest();
        }
    }
    // Others are served meanwhile, and there is no room for all that was asked for.
    for n in 0..100 {
        assert_eq!(
            ask(&mut client, "PUT", "beside", &[], b"v").status,
            201,
            "{n}"
        );
        assert_eq!(
            ask(&mut client, "GET", "beside", &[], b"").status,
            200,
            "{n}"
        );
    }
    let grown = resident_bytes(front.pid()).saturating_sub(before);
    let asked_for = READERS * RECORDS * value.len();
    println!("{READERS} slow scans of {asked_for} bytes: {grown} bytes more are resident");
    assert!(grown < asked_for / 4, "{grown} of {asked_for} bytes");
    let mut first = slow.swap_remove(0);
    drop(slow);
    let answer = first.read().expect("it goes on");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.receipt, "Dendra-Scan: complete");
    assert!(answer.body.len() > RECORDS * value.len());
}

fn resident_bytes(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.expect("a number") * 1024
}

pub(crate) fn check_time_to_live(front: &Front) {
    let mut client = front.client();
    let put = client.request("PUT", "/v0/entity?id=t&ttl=1", &[], b"v");
    assert_eq!(put.expect("it answers").status, 201);
    let deadline = Instant::now() + PATIENCE;
    while ask(&mut client, "GET", "t", &[], b"").status == 200 {
        assert!(Instant::now() < deadline, "it stays");
    }
    // The engine still has it, and keeps it a little longer.
    let created = ask(&mut client, "PUT", "t", &["If-None-Match: *"], b"w");
    assert_eq!(created.status, 201);
    assert_eq!(ask(&mut client, "GET", "t", &[], b"").body, b"w");
}
