//! The admin port of a member: orders to it, and its answers.
//!
//! Invariants
//! 1. An answer is a page of JSON, or a sentence that says which port or release to use.
//!
//! Not here: the orders (`mod.rs`), words for people (`words.rs`).
//! See: docs/api.md, section "Admin plane".

use crate::access::AccessArgs;
use crate::client::{BaseUrl, Client, Credentials, HttpRequest, WholeAnswer};
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use bytes::Bytes;
use dendra_wire::meta::MetaBuf;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// An order waits for a majority of the voters, at most so long.
const ORDER_MS: u64 = 30_000;
/// Between two looks at a plan or a comparison that is followed.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// The admin port of a member.
pub(super) struct Office {
    pub(super) client: Client,
    pub(super) is_json: bool,
    pub(super) console: Console,
}

impl Office {
    pub(super) fn open(
        url: &str,
        access: &AccessArgs,
        is_json: bool,
        console: Console,
    ) -> Result<Office, Failure> {
        let base = BaseUrl::parse(url).map_err(|bad| bad.of("--url"))?;
        let access = Credentials::read(access, &base)?;
        Ok(Office {
            client: Client::new(base, access, ORDER_MS, console),
            is_json,
            console,
        })
    }

    pub(super) async fn status(&self) -> Result<Value, Failure> {
        let path = "/v0/cluster".to_owned();
        self.ask(Method::GET, path, Bytes::new()).await
    }

    pub(super) async fn order(&self, name: &str, body: &Value) -> Result<Value, Failure> {
        let path = format!("/v0/cluster/{name}");
        self.ask(Method::POST, path, body.to_string().into()).await
    }

    pub(super) async fn ask(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<Value, Failure> {
        let is_order = method == Method::POST;
        let kind = is_order.then(|| ("content-type", "application/json".to_owned()));
        let ask = HttpRequest {
            meta: MetaBuf::default(),
            method,
            path,
            headers: kind.into_iter().collect(),
            body,
        };
        let place = self.client.place();
        let answer = self.client.send(&ask).await;
        let answer = answer.map_err(|trouble| trouble.failure(place))?;
        read(&answer).map_err(|(exit, sentence)| Failure::new(exit, format!("{place}: {sentence}")))
    }

    /// The page as a type.
    pub(super) fn read<Page: DeserializeOwned>(&self, page: &Value) -> Result<Page, Failure> {
        Page::deserialize(page).map_err(|error| {
            self.console.detail(|| error.to_string());
            self.strange()
        })
    }

    pub(super) fn show<Page>(&self, page: &Value, words: fn(&Page) -> String) -> ExitResult
    where
        Page: DeserializeOwned,
    {
        let text = if self.is_json {
            format!("{page:#}\n")
        } else {
            words(&self.read(page)?)
        };
        ops::print(text.as_bytes()).map(|()| Exit::OK)
    }

    pub(super) fn strange(&self) -> Failure {
        let place = self.client.place();
        let sentence = format!(
            "{place} answered in a shape that this release does not know; use the dendra of its \
             release, or --json"
        );
        Failure::new(Exit::FAILURE, sentence)
    }
}

/// The page of a good answer; else how to end, and the member's own sentence.
fn read(answer: &WholeAnswer) -> Result<Value, (Exit, String)> {
    let page: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let said = page.as_ref().and_then(|page| page["message"].as_str());
    match (answer.status, page.is_some()) {
        (StatusCode::OK, true) => Ok(page.unwrap_or_default()),
        // A data port says that it does not know the path.
        (StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST, false) => Err((
            Exit::USAGE,
            "this is not the admin port of a member (its log says `admin plane`); give it with \
             --url"
                .to_owned(),
        )),
        (status, _) => {
            let exit = if answer.is_refusal() {
                Exit::UNAVAILABLE
            } else {
                Exit::FAILURE
            };
            let sentence = said.map_or_else(|| answer.sentence(), str::to_owned);
            let sentence = if status.is_success() {
                format!("{status}: {sentence}")
            } else {
                sentence
            };
            Err((exit, sentence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;
    use serde_json::json;

    fn answer(status: u16, body: &str) -> Result<Value, (Exit, String)> {
        read(&WholeAnswer {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::new(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        })
    }

    #[test]
    fn an_answer_ends_with_its_code_and_the_members_sentence() {
        assert_eq!(answer(200, r#"{"epoch": 4}"#), Ok(json!({ "epoch": 4 })));
        let refusal = r#"{"error": "other-epoch", "message": "plan again"}"#;
        let said = "plan again".to_owned();
        assert_eq!(answer(409, refusal), Err((Exit::FAILURE, said.clone())));
        assert_eq!(answer(503, refusal), Err((Exit::UNAVAILABLE, said)));
        // Of another program, and of the data port.
        for (status, said) in [
            (404, "not found"),
            (400, "unknown-path: /v0/cluster is not here"),
        ] {
            let (exit, sentence) = answer(status, said).expect_err("another port");
            assert_eq!(exit, Exit::USAGE);
            assert!(sentence.contains("--url"), "{sentence}");
        }
    }
}
