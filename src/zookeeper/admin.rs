//! The admin server: the four-letter words and some more as JSON over HTTP. Source: ZooKeeper's
//! `JettyAdminServer`.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use crate::admin_commands::{self, COMMANDS};
use crate::server::Shared;

/// Requests are short, and few ask at once; others wait to be accepted.
const CONNECTIONS_MAX: usize = 50;
/// A request line and headers; nobody sends a body.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a connection may be idle. Source: `admin.idleTimeout`.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Serves until the server stops, which ends the runtime.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, command_url: String) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let command_url: Arc<str> = command_url.into();
    loop {
        let permit = room.clone().acquire_owned().await.expect("nobody closes the semaphore");
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, command_url) = (shared.clone(), command_url.clone());
                tokio::spawn(async move {
                    serve_connection(&shared, stream, &command_url).await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!(%error, "no connection to the admin server can be accepted for now");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(shared: &Shared, stream: TcpStream, command_url: &str) {
    let answer = |request: Request<Incoming>| {
        let response = respond(shared, command_url, &request);
        std::future::ready(Ok::<_, Infallible>(response))
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = served.await {
        debug!(%error, "connection to the admin server ended");
    }
}

fn respond(shared: &Shared, command_url: &str, request: &Request<Incoming>) -> Response<String> {
    let mut response = Response::new(String::new());
    if request.method() != Method::GET && request.method() != Method::HEAD {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a header's value"));
        return response;
    }
    let path = request.uri().path().strip_prefix(command_url);
    let (kind, body) = match path {
        Some("" | "/") => ("text/html;charset=utf-8", links(command_url)),
        Some(path) if path.starts_with('/') => {
            let query = request.uri().query().unwrap_or_default();
            let answer = admin_commands::run(&path[1..], query, shared);
            ("application/json", answer.to_string())
        }
        _ => {
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        }
    };
    response.headers_mut().insert(CONTENT_TYPE, kind.parse().expect("a header's value"));
    *response.body_mut() = body;
    response
}

/// A link to every command.
fn links(command_url: &str) -> String {
    let mut names: Vec<&str> = COMMANDS.iter().map(|names| names[0]).collect();
    names.sort_unstable();
    let mut html = String::new();
    for name in names {
        writeln!(html, "<a href=\"{command_url}/{name}\">{name}</a>\n<br/>")
            .expect("writing to a string cannot fail");
    }
    html
}
