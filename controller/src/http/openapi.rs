//! The description of the interface, made from the routes themselves.

use axum::http::Method;
use selion_api::rest::{Problem, Scope};
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Ref;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, ContentBuilder, OpenApi, RefOr, Response, ResponseBuilder};
use utoipa::{Modify, OpenApi as Describe};

use super::problem::PROBLEM_JSON;
use super::rules::{Need, need};

#[derive(Describe)]
#[openapi(
    info(
        title = "Selion controller",
        description = "Lease slices of pooled GPUs. Branch on the `code` of a problem; money is a decimal string of token base units, time is milliseconds UTC.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
        version = "1"
    ),
    tags(
        (name = "agents", description = "The link that agents hold"),
        (name = "audit", description = "The public log and what it says of the chain"),
        (name = "auth", description = "Sessions, API keys, tokens, devices"),
        (name = "datasets", description = "Content that leases mount"),
        (name = "leases", description = "Asking for slices, and what became of it"),
        (name = "licences", description = "Seats of licences"),
        (name = "money", description = "Account, bills, vouchers"),
        (name = "nodes", description = "Machines, and what their owners do with them"),
        (name = "operator", description = "What only the pool's operators may do"),
        (name = "pool", description = "What the pool is and offers"),
        (name = "relay", description = "Calls to the contracts that the operator pays for"),
        (name = "system", description = "Health, metrics, this description")
    ),
    components(schemas(Problem)),
    modifiers(&Schemes)
)]
pub(super) struct Frame;

struct Schemes;

impl Modify for Schemes {
    fn modify(&self, openapi: &mut OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let key = ApiKeyValue::with_description("Authorization", "`ApiKey sk_...`");
        components.add_security_scheme("api_key", SecurityScheme::ApiKey(ApiKey::Header(key)));
    }
}

/// Adds to every operation what the rules ask of its caller, and that anything else is a problem document.
pub(super) fn finish(openapi: &mut OpenApi) {
    for (path, item) in &mut openapi.paths.paths {
        let operations = [
            (Method::GET, &mut item.get),
            (Method::PUT, &mut item.put),
            (Method::POST, &mut item.post),
            (Method::DELETE, &mut item.delete),
            (Method::HEAD, &mut item.head),
            (Method::PATCH, &mut item.patch),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            plain_bytes(operation);
            let secured = need(&method, path).and_then(scopes);
            let faults = faults(secured.is_some(), path, operation);
            if let Some(scopes) = secured {
                operation.security = Some(vec![SecurityRequirement::new("bearer", scopes)]);
            }
            let responses = &mut operation.responses.responses;
            for (status, what) in faults {
                responses.entry(status.to_owned()).or_insert_with(|| RefOr::T(problem(what)));
            }
            responses.insert("default".to_owned(), RefOr::T(problem("Anything else")));
        }
    }
}

/// What the token must allow; `None` where none is asked for.
fn scopes(need: Need) -> Option<Vec<&'static str>> {
    match need {
        Need::Nothing => None,
        Need::Token | Need::Session | Need::Watcher => Some(Vec::new()),
        Need::Scope(scope) | Need::ScopeOrNode(scope) => Some(vec![scope.code()]),
        Need::Operator => Some(vec![Scope::Login.code()]),
    }
}

/// Bytes have no schema (OpenAPI 3.1, "Considerations for File Uploads"): a list of numbers they are not.
fn plain_bytes(operation: &mut Operation) {
    let answers = operation.responses.responses.values_mut().filter_map(|response| match response {
        RefOr::T(response) => Some(&mut response.content),
        RefOr::Ref(_) => None,
    });
    let bare = |(kind, content): (&String, &mut RefOr<Content>)| {
        if let (
            RefOr::T(content),
            "application/octet-stream" | "application/vnd.ipld.raw" | "application/vnd.ipld.car",
        ) = (content, kind.as_str())
        {
            content.schema = None;
        }
    };
    answers.for_each(|answer| answer.iter_mut().for_each(bare));
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.content.iter_mut().for_each(bare);
    }
}

/// The faults that an operation can answer, by its caller, its path, its parameters and its body.
fn faults(secured: bool, path: &str, operation: &Operation) -> Vec<(&'static str, &'static str)> {
    let body = operation.request_body.is_some();
    let parameters = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    let mut faults = vec![
        ("429", "Too many requests, or too many open ones; `Retry-After` says when to come back"),
        ("503", "The controller cannot answer now; `Retry-After` says when to come back"),
    ];
    if secured {
        faults.push(("401", "No login, or one that is over"));
        faults.push(("403", "The login may not do this, or the thing is another account's"));
    }
    if path.contains('{') {
        faults.push(("404", "There is no such thing"));
    }
    if body {
        faults.push(("400", "The body is not JSON, or broke off"));
        faults.push(("413", "The body is too large"));
        faults.push(("415", "Another Content-Type belongs here"));
    }
    if body || parameters {
        faults.push(("422", "Parts of the request are wrong; `errors` names those of the body"));
    }
    faults
}

fn problem(what: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new()
        .description(format!("{what}: a problem document (RFC 9457)"))
        .content(PROBLEM_JSON, content)
        .build()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::http::openapi;

    /// The committed description, which other languages make their clients from.
    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/openapi.json");

    #[test]
    fn the_committed_description_is_the_one_of_the_routes() {
        let made = openapi().to_pretty_json().unwrap() + "\n";
        if std::env::var_os("SELION_BLESS").is_some() {
            std::fs::write(COMMITTED, &made).unwrap();
        }
        let committed = std::fs::read_to_string(Path::new(COMMITTED)).unwrap_or_default();
        let first = made.lines().zip(committed.lines()).position(|(made, committed)| made != committed);
        assert!(
            made == committed,
            "api/openapi.json is out of date from line {}; run this test with SELION_BLESS=1 and commit the file",
            first.unwrap_or_default() + 1
        );
    }

    #[test]
    fn every_answer_is_described_and_the_licence_is_named() {
        let json = serde_json::to_value(openapi()).unwrap();
        assert_eq!(json["info"]["license"]["identifier"], "Apache-2.0");
        let paths = json["paths"].as_object().unwrap();
        assert!(paths.len() >= 28, "{}", paths.len());
        for (path, item) in paths {
            for (method, operation) in item.as_object().unwrap() {
                let said = |value: &serde_json::Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
                assert!(said(&operation["summary"]), "{method} {path} has no summary");
                for (status, response) in operation["responses"].as_object().unwrap() {
                    assert!(said(&response["description"]), "{method} {path} {status}");
                }
            }
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let json = serde_json::to_value(openapi()).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for item in json["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                let name = operation["operationId"].as_str().unwrap().to_owned();
                assert!(names.insert(name.clone()), "{name} is the name of two");
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let json = serde_json::to_value(openapi()).unwrap();
        let mut open = vec![&json];
        while let Some(value) = open.pop() {
            if let Some(name) = value.get("$ref").and_then(|name| name.as_str()) {
                let pointer = name.strip_prefix('#').unwrap();
                assert!(json.pointer(pointer).is_some(), "{name}");
            }
            match value {
                serde_json::Value::Object(map) => open.extend(map.values()),
                serde_json::Value::Array(list) => open.extend(list),
                _ => {}
            }
        }
    }
}
