//! The session with Cassandra: the crate `scylla` finds its servers, and keeps connections to them.
//!
//! ```text
//! ask ─► the session in force, or a new one ─► prepared statement ─► a server that has the key
//!          │ no connection:               the next server
//!          │ a read without an answer:    the next server; it is asked soon, too (`hedge.rs`)
//!          └ a write without an answer:   its fate is told as `known`
//! ```
//!
//! Invariants
//! 1. A statement that changes something is sent once.
//! 2. A request begins on connections that were opened with the certificates and the login in
//!    force: when these change there is a new session.
//! 3. Of a session with a home, no server of another data centre is asked: its replicas would be
//!    other ones.
//! 4. One session is opened at a time, and a question ends at its `until`.
//!
//! Not here: which server is asked (`routes.rs`), errors (`failures.rs`), the statements
//! (`statements.rs`).

use super::failures::{failure_of, failure_to_prepare};
use super::routes::{BegunAt, FirstServer, OneForAll, OtherServers, RetryReads};
use super::statements::{CqlOrder, in_keyspace};
use crate::dial::StoreAccess;
use crate::hedge::{HEDGE_AFTER, Hedges};
use crate::place::StorePlace;
use crate::store::OuterFailure;
use dendra_base::Known;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::host_filter::DcHostFilter;
use scylla::policies::load_balancing::{DefaultPolicy, LoadBalancingPolicy};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency as CqlLevel, SerialConsistency, Statement};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// A server that takes longer to accept, to seal and to know the user is passed over. It hashes the
/// password on purpose slowly.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest wait for one answer about servers and keyspaces.
const FACTS_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that a session takes to open; no request waits longer than it has time.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// A connection is asked for a sign of life so often, and closed when none comes for so long. That
/// is longer than Java collects garbage, and shorter than the usual deadline.
const ALIVE_EVERY: Duration = Duration::from_millis(1_500);
const ALIVE_TIMEOUT: Duration = Duration::from_millis(2_500);

/// In the first variant of Paxos two linearizable reads of a key outbid each other. There a second
/// one is sent only when the first server seems to stand still.
const HEDGE_OUTBIDDING_AFTER: Duration = Duration::from_secs(1);

/// Where the servers are, and how they are reached.
struct CqlPlace {
    servers: Vec<String>,
    keyspace: String,
    /// The data centre whose servers are asked; `None` = all.
    home: Option<String>,
    access: StoreAccess,
}

/// One session, with the papers in force when it was opened.
struct CqlSession {
    renewals: u64,
    session: Session,
    usual: Arc<dyn LoadBalancingPolicy>,
    /// In the order of `CqlOrder::ALL`. Prepared by the first request: there are no tables before.
    prepared: OnceCell<Vec<PreparedStatement>>,
}

/// The servers that are asked.
pub(super) struct CqlServers {
    place: Arc<CqlPlace>,
    current: Arc<Mutex<Option<Arc<CqlSession>>>>,
    opening: Arc<tokio::sync::Mutex<()>>,
    hedges: Hedges,
    /// Do linearizable reads of one key outbid each other? Until it is known, they may.
    pub(super) do_reads_outbid: AtomicBool,
}

impl CqlServers {
    pub(super) fn new(place: &StorePlace, access: &StoreAccess) -> CqlServers {
        CqlServers {
            place: Arc::new(CqlPlace {
                servers: place.servers.clone(),
                keyspace: place.part.clone(),
                home: place.home.clone(),
                access: access.clone(),
            }),
            current: Arc::default(),
            opening: Arc::default(),
            hedges: Hedges::new(),
            do_reads_outbid: AtomicBool::new(true),
        }
    }

    /// Level among the replicas of the home, if there is one.
    pub(super) fn among(&self, level: CqlLevel) -> CqlLevel {
        match (&self.place.home, level) {
            (Some(_), CqlLevel::One) => CqlLevel::LocalOne,
            (Some(_), CqlLevel::Quorum) => CqlLevel::LocalQuorum,
            (Some(_), CqlLevel::Serial) => CqlLevel::LocalSerial,
            (_, level) => level,
        }
    }

    /// Reads, at the level `One`, `Quorum` or `Serial`; or writes that have the same effect when
    /// they are made twice.
    pub(super) async fn ask(
        &self,
        order: CqlOrder,
        level: CqlLevel,
        values: impl SerializeRow + Sync,
        until: Instant,
    ) -> Result<QueryResult, OuterFailure> {
        let session = self.session(until).await?;
        let statement = session.statement(&self.place, order, until).await?;
        let route = |policy: Arc<dyn LoadBalancingPolicy>| {
            let mut statement = statement.clone();
            statement.set_consistency(self.among(level));
            statement.set_is_idempotent(true);
            statement.set_load_balancing_policy(Some(policy));
            statement
        };
        let begun_at = BegunAt::default();
        let first = route(Arc::new(FirstServer {
            usual: Arc::clone(&session.usual),
            begun_at: Arc::clone(&begun_at),
        }));
        let asked = session.execute(&first, &values, Known::NotApplied, until);
        let second = async {
            if !session.has_others() {
                let sentence = "there is no second server".to_owned();
                return Err(OuterFailure::Unreachable(sentence));
            }
            let second = route(Arc::new(OtherServers {
                usual: Arc::clone(&session.usual),
                begun_at,
            }));
            session
                .execute(&second, &values, Known::NotApplied, until)
                .await
        };
        let do_outbid = level == CqlLevel::Serial && self.do_reads_outbid.load(Ordering::Relaxed);
        let after = if do_outbid {
            HEDGE_OUTBIDDING_AFTER
        } else {
            HEDGE_AFTER
        };
        self.hedges.race(after, asked, second).await
    }

    /// Sends a light-weight transaction, once.
    pub(super) async fn change(
        &self,
        order: CqlOrder,
        values: impl SerializeRow + Sync,
        until: Instant,
    ) -> Result<QueryResult, OuterFailure> {
        let session = self.session(until).await?;
        let statement = session.statement(&self.place, order, until).await?;
        let asked = session.execute(statement, &values, Known::Unknown, until);
        asked.await
    }

    /// Sends a text to the server that every front door would ask; `KS` stands for the keyspace. A
    /// transaction is settled among the replicas of all data centres.
    pub(super) async fn ask_one_for_all(
        &self,
        text: &str,
        level: CqlLevel,
        values: impl SerializeRow + Sync,
        until: Instant,
    ) -> Result<QueryResult, OuterFailure> {
        let session = self.session(until).await?;
        let mut statement = Statement::new(in_keyspace(text, &self.place.keyspace));
        statement.set_consistency(level);
        statement.set_serial_consistency(Some(SerialConsistency::Serial));
        statement.set_is_idempotent(true);
        statement.set_load_balancing_policy(Some(Arc::new(OneForAll)));
        let asked = session.session.query_unpaged(statement, &values);
        match tokio::time::timeout_at(until.into(), asked).await {
            Ok(answer) => answer.map_err(|error| failure_of(&error, Known::NotApplied)),
            Err(_) => Err(late(Known::NotApplied)),
        }
    }

    /// The session in force.
    async fn session(&self, until: Instant) -> Result<Arc<CqlSession>, OuterFailure> {
        if let Some(session) = self.in_force() {
            return Ok(session);
        }
        let opened = tokio::time::timeout_at(until.into(), self.open()).await;
        opened.unwrap_or_else(|_| {
            let sentence = "no session was opened in time".to_owned();
            Err(OuterFailure::Unreachable(sentence))
        })
    }

    fn in_force(&self) -> Option<Arc<CqlSession>> {
        let renewals = self.place.access.face.renewals();
        let current = self.current.lock().expect("no holder panics");
        let session = current.as_ref().filter(|own| own.renewals == renewals);
        session.map(Arc::clone)
    }

    /// Opens a session after all callers that began to before. It is opened to its end even if its
    /// caller has no more time: the next one finds it.
    async fn open(&self) -> Result<Arc<CqlSession>, OuterFailure> {
        let turn = Arc::clone(&self.opening).lock_owned().await;
        if let Some(session) = self.in_force() {
            return Ok(session);
        }
        let (place, current) = (Arc::clone(&self.place), Arc::clone(&self.current));
        let opened = tokio::spawn(async move {
            let _turn = turn;
            let opened = tokio::time::timeout(OPEN_TIMEOUT, CqlSession::open(&place)).await;
            let opened = opened.unwrap_or_else(|_| Err("it does not answer in time".to_owned()))?;
            let session = Arc::new(opened);
            let mut current = current.lock().expect("no holder panics");
            // The one before is dropped after its last request.
            *current = Some(Arc::clone(&session));
            Ok(session)
        });
        let opened = opened.await.map_err(|error| error.to_string());
        opened.flatten().map_err(OuterFailure::Unreachable)
    }
}

impl CqlSession {
    async fn open(place: &CqlPlace) -> Result<CqlSession, String> {
        // Read first: a change from now on is a reason for the next session.
        let renewals = place.access.face.renewals();
        let seal = place.access.dial.seal(&place.servers);
        let seal = seal.map_err(|error| error.to_string())?;
        let mut usual = DefaultPolicy::builder().permit_dc_failover(false);
        let mut builder = SessionBuilder::new()
            .known_nodes(&place.servers)
            .tls_context(seal)
            .connection_timeout(CONNECT_TIMEOUT)
            .hostname_resolution_timeout(Some(CONNECT_TIMEOUT))
            .metadata_request_serverside_timeout(FACTS_TIMEOUT)
            .metadata_request_clientside_timeout(FACTS_TIMEOUT)
            .keepalive_interval(ALIVE_EVERY)
            .keepalive_timeout(ALIVE_TIMEOUT)
            .keyspaces_to_fetch([&place.keyspace])
            .fetch_full_schema_metadata(false)
            // It asks the servers of the home alone, and tables are for all.
            .auto_await_schema_agreement(false)
            .driver_config_reporting(false);
        if let Some(home) = &place.home {
            usual = usual.prefer_datacenter(home.clone());
            builder = builder.host_filter(Arc::new(DcHostFilter::new(home.clone())));
        }
        if let Some(login) = place.access.face.login() {
            builder = builder.user(login.user, login.password);
        }
        let usual = usual.build();
        let profile = ExecutionProfile::builder()
            .load_balancing_policy(Arc::clone(&usual))
            .retry_policy(Arc::new(RetryReads))
            .request_timeout(None)
            .build();
        let builder = builder.default_execution_profile_handle(profile.into_handle());
        let session = builder.build().await.map_err(|error| error.to_string())?;
        let session = CqlSession {
            renewals,
            session,
            usual,
            prepared: OnceCell::new(),
        };
        session.check_home(place)?;
        Ok(session)
    }

    /// Is there a server in the data centre that is asked for?
    fn check_home(&self, place: &CqlPlace) -> Result<(), String> {
        let Some(home) = &place.home else {
            return Ok(());
        };
        let cluster = self.session.get_cluster_state();
        let servers = cluster.get_nodes_info().iter();
        let found: BTreeSet<_> = servers
            .filter_map(|own| own.datacenter.as_deref())
            .collect();
        if found.contains(home.as_str()) {
            Ok(())
        } else {
            let found: Vec<_> = found.into_iter().collect();
            Err(format!(
                "no server is in the data centre {home} of ?dc={home}; there are servers in: {}",
                found.join(", ")
            ))
        }
    }

    /// Is there more than one server to ask?
    fn has_others(&self) -> bool {
        let cluster = self.session.get_cluster_state();
        let servers = cluster.get_nodes_info().iter();
        servers
            .filter(|server| server.is_enabled())
            .nth(1)
            .is_some()
    }

    async fn statement(
        &self,
        place: &CqlPlace,
        order: CqlOrder,
        until: Instant,
    ) -> Result<&PreparedStatement, OuterFailure> {
        let prepared = self.prepared.get_or_try_init(|| self.prepare(place));
        match tokio::time::timeout_at(until.into(), prepared).await {
            Ok(prepared) => Ok(&prepared?[order as usize]),
            Err(_) => {
                let sentence = "no statement was prepared in time".to_owned();
                Err(OuterFailure::Unreachable(sentence))
            }
        }
    }

    async fn prepare(&self, place: &CqlPlace) -> Result<Vec<PreparedStatement>, OuterFailure> {
        let (level, serial) = match place.home {
            Some(_) => (CqlLevel::LocalQuorum, SerialConsistency::LocalSerial),
            None => (CqlLevel::Quorum, SerialConsistency::Serial),
        };
        let mut all = Vec::with_capacity(CqlOrder::ALL.len());
        for order in CqlOrder::ALL {
            let text = in_keyspace(order.text(), &place.keyspace);
            let prepared = self.session.prepare(text).await;
            let mut prepared = prepared.map_err(|error| failure_to_prepare(&error))?;
            prepared.set_consistency(level);
            prepared.set_serial_consistency(Some(serial));
            all.push(prepared);
        }
        Ok(all)
    }

    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: &(impl SerializeRow + Sync),
        known: Known,
        until: Instant,
    ) -> Result<QueryResult, OuterFailure> {
        let asked = self.session.execute_unpaged(statement, values);
        match tokio::time::timeout_at(until.into(), asked).await {
            Ok(answer) => answer.map_err(|error| failure_of(&error, known)),
            Err(_) => Err(late(known)),
        }
    }
}

fn late(known: Known) -> OuterFailure {
    OuterFailure::Unanswered(known, "no server answered in time".to_owned())
}
