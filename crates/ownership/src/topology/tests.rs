//! Which lists of members are valid, and the messages of two nodes with different lists.

use super::*;
use proptest::prelude::*;

fn members(list: &[&str]) -> Vec<Member> {
    let parsed: Result<Vec<Member>, BadMember> = list.iter().map(|text| text.parse()).collect();
    parsed.expect("the test names members")
}

fn three() -> Topology {
    let list = members(&["http://h2:1", "http://h1:1;weight=2;zone=a", "http://h3:1"]);
    Topology::new("dendra", list, 3).expect("three members")
}

#[test]
fn one_member_has_one_spelling() {
    for (text, url) in [
        ("http://h1:8080", "http://h1:8080"),
        (" HTTP://H1:08080/ ", "http://h1:8080"),
        ("h1:8080", "http://h1:8080"),
        ("10.0.0.1:1", "http://10.0.0.1:1"),
        ("HTTP://[FE80::1]:80", "http://[fe80::1]:80"),
        ("a-b.example_1.com:65535", "http://a-b.example_1.com:65535"),
    ] {
        let member = Member::new(text).expect("it is an address");
        assert_eq!(member.url, url);
    }
}

#[test]
fn a_member_that_was_put_together_by_hand_gets_the_one_spelling() {
    let by_hand = Member {
        url: "HTTP://H1:01/".to_owned(),
        weight: 1,
        zone: String::new(),
    };
    let member = by_hand.checked().expect("it is an address");
    assert_eq!(member.url, "http://h1:1");
}

#[test]
fn what_is_no_member_says_why() {
    for (text, part) in [
        ("", "names no host"),
        ("http://", "names no host"),
        ("http://h1", "names no port"),
        ("http://[::1]", "names no port"),
        ("http://h1:", "no number"),
        ("http://h1:+80", "no number"),
        ("http://h1:0", "outside 1 to 65535"),
        ("http://h1:70000", "outside 1 to 65535"),
        ("https://h1:80", "when all of them have --tls-peer-ca"),
        ("ftp://h1:80", "more than a host"),
        ("http://h1:80/path", "more than a host"),
        ("http://h1:80?x", "more than a host"),
        ("http://u@h1:80", "user"),
        ("http://:80", "names no host"),
        ("http://a..b:80", "names no host"),
        ("http://::1:80", "without brackets"),
        ("http://[::g]:80", "no IPv6 address"),
        ("http://[::1:80", "no IPv6 address"),
        ("http://10.0.0.256:80", "none"),
        ("http://127.1:80", "none"),
        ("http://127.0.0.01:80", "none"),
        ("http://127.0.0.1.:80", "names no host"),
        ("http://h 1:80", "names no host"),
        ("http://h1:80;weight=0", "from 1 to 65535"),
        ("http://h1:80;weight=x", "from 1 to 65535"),
        ("http://h1:80;weight=70000", "from 1 to 65535"),
        ("http://h1:80;zone=", "the zone"),
        ("http://h1:80;zone=a=b", "the zone"),
        ("http://h1:80;rack=a", "only ;weight=N and ;zone=NAME"),
        ("http://h1:80;weight=1;weight=2", "each once"),
    ] {
        let sentence = match text.parse::<Member>() {
            Ok(member) => panic!("{text:?} was taken for {member}"),
            Err(bad) => bad.to_string(),
        };
        assert!(sentence.contains(part), "{text:?}: {sentence}");
    }
}

#[test]
fn a_member_reads_back_as_it_is_shown() {
    for text in [
        "http://h1:1",
        "http://h1:1;weight=9",
        "http://h1:1;zone=a",
        "http://[::1]:1;weight=2;zone=b",
    ] {
        let member: Member = text.parse().expect("it is a member");
        assert_eq!(member.to_string(), text);
    }
}

#[test]
fn the_order_of_the_list_does_not_matter() {
    let other = members(&["h3:1", "http://H1:1/;zone=a;weight=2", "http://h2:1"]);
    let other = Topology::new("dendra", other, 3).expect("three members");
    assert_eq!(three(), other);
    assert_eq!(three().digest(), other.digest());
    assert_eq!(three().difference(&other.describe()), None);
}

#[test]
fn members_are_counted_in_the_order_of_their_urls() {
    let topology = three();
    assert_eq!(topology.index_of("h1:1"), Some(MemberIndex(0)));
    assert_eq!(topology.index_of("http://h3:1/"), Some(MemberIndex(2)));
    assert_eq!(topology.index_of("http://h4:1"), None);
    assert_eq!(topology.index_of("nonsense"), None);
    assert_eq!(topology.member(MemberIndex(0)).weight, 2);
}

#[test]
fn a_list_that_is_no_topology_says_why() {
    let none = || Topology::new("dendra", Vec::new(), 3).map_err(|bad| bad.to_string());
    assert!(none().expect_err("no member").contains("name at least one"));
    let twice = Topology::new("dendra", members(&["h1:1", "h2:1", "http://H1:1/"]), 3);
    let twice = twice.expect_err("h1 twice").to_string();
    assert_eq!(
        twice,
        "http://h1:1 is in the list twice; name each member once"
    );
    let one = || members(&["h1:1"]);
    assert_eq!(Topology::new("dendra", one(), 0), Err(BadTopology::NoCopy));
    let many: Vec<Member> = (0..=MEMBERS_MAX)
        .map(|i| Member::new(&format!("h{i}:1")).expect("an address"))
        .collect();
    let most = Topology::new("dendra", many[1..].to_vec(), 3).expect("as many as there may be");
    assert_eq!(usize::from(most.len()), MEMBERS_MAX);
    let too_many = Topology::new("dendra", many, 3).expect_err("one too many");
    assert!(
        too_many.to_string().starts_with("101 members"),
        "{too_many}"
    );
    let copies = Topology::new("dendra", one(), 101).expect_err("too many copies");
    assert!(copies.to_string().contains("at most 100"), "{copies}");
    for name in ["", "a b", "a=b", "é", &"x".repeat(65)] {
        let bad = Topology::new(name, one(), 3).expect_err("no name");
        assert!(bad.to_string().contains("cluster's name"), "{bad}");
    }
    let unchecked = Member {
        url: "h1:1".to_owned(),
        weight: 0,
        zone: String::new(),
    };
    let bad = Topology::new("dendra", vec![unchecked], 3).expect_err("no weight");
    assert!(bad.to_string().contains("the weight"), "{bad}");
}

#[test]
fn copies_are_capped_by_the_members() {
    let one = Topology::new("dendra", members(&["h1:1"]), 3).expect("one member");
    assert_eq!((one.replication_factor(), one.copies()), (3, 1));
    assert_eq!(three().copies(), 3);
}

/// Stored in folders and compared between releases: the numbers may never change.
#[test]
fn names_give_the_same_numbers_for_ever() {
    let topology = three();
    assert_eq!(
        topology.describe(),
        "cluster=dendra epoch=1 copies=3 partitions=256 layout=1 \
         members=http://h1:1;weight=2;zone=a,http://h2:1,http://h3:1"
    );
    let wide = u128::from_le_bytes(topology.hash_key());
    assert_eq!(
        (topology.id(), wide, topology.digest()),
        (
            14354410316984715941,
            130366917539627563397458656532772233017,
            3437728410951242750
        )
    );
}

#[test]
fn a_difference_names_both_sides() {
    let other = |name: &str, list: &[&str], copies| {
        let other = Topology::new(name, members(list), copies).expect("a topology");
        three().difference(&other.describe()).expect("they differ")
    };
    let same = ["http://h1:1;weight=2;zone=a", "h2:1", "h3:1"];
    assert_eq!(
        other("prod", &same, 3),
        "the cluster's name is dendra here, prod there"
    );
    assert_eq!(
        other("dendra", &same, 2),
        "the replication factor is 3 here, 2 there"
    );
    assert_eq!(
        other("dendra", &["h1:1", "h2:1", "h4:1"], 3),
        "only here a member: http://h3:1; only there a member: http://h4:1; \
         http://h1:1 has weight=2 zone=a here, weight=1 and no zone there"
    );
    let newer = three().describe().replace("layout=1", "layout=2");
    assert_eq!(
        three().difference(&newer).as_deref(),
        Some("the layout rule of the release is 1 here, 2 there")
    );
    let garbage = three().difference("what").expect("they differ");
    assert!(garbage.contains("dendra here, ? there"), "{garbage}");
    let longer = format!("{} secret=1", three().describe());
    let unknown = three().difference(&longer).expect("they differ");
    assert!(unknown.contains("secret=1"), "{unknown}");
}

proptest! {
    #[test]
    fn equal_digests_mean_equal_topologies(
        a in proptest::collection::btree_map(0u8..6, (1u16..3, 0usize..2), 1..5),
        b in proptest::collection::btree_map(0u8..6, (1u16..3, 0usize..2), 1..5),
        copies in 1u8..3,
    ) {
        let topology = |list: &BTreeMap<u8, (u16, usize)>| {
            let members = list.iter().map(|(host, (weight, zone))| Member {
                url: format!("http://h{host}:1"),
                weight: *weight,
                zone: ["", "a"][*zone].to_owned(),
            });
            Topology::new("dendra", members.collect(), copies).expect("a topology")
        };
        let (a, b) = (topology(&a), topology(&b));
        prop_assert_eq!(a == b, a.digest() == b.digest());
        prop_assert_eq!(a == b, a.difference(&b.describe()).is_none());
        prop_assert!(a.describe().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }

    #[test]
    fn any_legal_member_is_read_as_it_is_shown(
        // A name whose last label is a number is an IPv4 address, or none: labels end in a letter.
        host in "([a-z0-9]{1,59}\\.){0,3}[a-z][a-z0-9]{0,58}|\\[::1\\]|10\\.0\\.0\\.1",
        port in 1..=u16::MAX,
        weight in prop_oneof![Just(1), 1..=u16::MAX], zone in "[A-Za-z0-9._-]{0,64}",
    ) {
        let url = format!("http://{host}:{port}");
        let member = Member { weight, zone, ..Member::new(&url).expect("an address") };
        prop_assert_eq!(&member.url, &url);
        prop_assert_eq!(member.to_string().parse::<Member>(), Ok(member));
    }

    #[test]
    fn no_text_makes_a_member_that_reads_back_differently(text in "\\PC{0,40}") {
        if let Ok(member) = text.parse::<Member>() {
            prop_assert_eq!(member.to_string().parse::<Member>(), Ok(member));
        }
    }
}
