//! Why there is no session: the client library says only that no server gave one. So each server is asked once more, apart from
//! the session, as far as its first answer.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::{ClientConfig, ClientConnection, Stream, pki_types::ServerName};

use crate::resolver::Resolve;

/// What connecting, and waiting for an answer, may take.
const STEP_AT_MOST: Duration = Duration::from_secs(2);
/// A word that servers answer unless they are told not to, and then they say so.
const WORD: &[u8] = b"srvr";
/// The kind of a TLS record that ends a handshake: an alert.
const ALERT: u8 = 21;

/// Asks servers for what is wrong.
#[derive(Clone)]
pub(crate) struct Probe {
    /// `host:port`, each.
    pub(crate) hosts: Vec<String>,
    /// Finds addresses.
    pub(crate) resolve: Resolve,
    /// TLS, where the session is to have it.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Probe {
    /// What is wrong, server by server. Blocks.
    pub(crate) fn reasons(&self) -> String {
        let reasons: Vec<String> = self.hosts.iter().map(|host| self.reason(host)).collect();
        reasons.join("; ")
    }

    fn reason(&self, host: &str) -> String {
        let addresses = match (self.resolve)(host) {
            Ok(addresses) if !addresses.is_empty() => addresses,
            Ok(_) => return format!("{host}: the name has no address"),
            Err(error) => return format!("{host}: the name cannot be resolved: {error}"),
        };
        let mut reasons = Vec::new();
        for address in addresses {
            let reason = format!("{host}: {}", self.ask(host, address));
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons.join("; ")
    }

    fn ask(&self, host: &str, address: SocketAddr) -> String {
        let mut stream = match connect(address) {
            Ok(stream) => stream,
            Err(error) => return error.to_string(),
        };
        let Some(tls) = &self.tls else {
            return match answer(&mut stream) {
                Ok(answer) if answer.first() == Some(&ALERT) => {
                    "the server speaks TLS, and zookeeper.ssl.client.enable is not true".to_owned()
                }
                Ok(answer) => answered(&answer),
                Err(error) if is_end(&error) => {
                    "the server closes the connection; if it speaks TLS, zookeeper.ssl.client.enable must be true"
                        .to_owned()
                }
                Err(error) => unanswered(&error),
            };
        };
        match answer_under_tls(tls, host, &mut stream) {
            Ok(answer) => answered(&answer),
            Err(error) => {
                let plain = connect(address).and_then(|mut stream| answer(&mut stream));
                match plain {
                    Ok(answer) if answer.first().is_some_and(u8::is_ascii_alphabetic) => {
                        "the server speaks no TLS on this port".to_owned()
                    }
                    _ => format!("no TLS: {}", unanswered(&error)),
                }
            }
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, STEP_AT_MOST)?;
    stream.set_read_timeout(Some(STEP_AT_MOST))?;
    stream.set_write_timeout(Some(STEP_AT_MOST))?;
    Ok(stream)
}

fn answer_under_tls(
    tls: &Arc<ClientConfig>,
    host: &str,
    stream: &mut TcpStream,
) -> io::Result<Vec<u8>> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
    answer(&mut Stream::new(&mut connection, stream))
}

/// The beginning of the answer to a word.
fn answer(stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    stream.write_all(WORD)?;
    stream.flush()?;
    let mut bytes = vec![0; 512];
    match stream.read(&mut bytes)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        length => {
            bytes.truncate(length);
            Ok(bytes)
        }
    }
}

fn answered(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let line = text.lines().next().unwrap_or_default().trim();
    match line.starts_with("Zookeeper version") || line.contains("not in the whitelist") {
        true => "the server answers, and gives no session: see its log".to_owned(),
        false => format!("the server says: {}", line.escape_debug()),
    }
}

fn unanswered(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "the server does not answer".to_owned(),
        ErrorKind::UnexpectedEof => "the server closes the connection".to_owned(),
        _ => error.to_string(),
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use rustls::ServerConnection;

    use super::*;
    use crate::{resolver, tls_fixture};

    fn probe(host: String, tls: Option<Arc<ClientConfig>>) -> String {
        Probe { hosts: vec![host], resolve: resolver::system(), tls }.reasons()
    }

    /// A server of any number of connections.
    fn serve(each: impl Fn(TcpStream) + Send + 'static) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || listener.incoming().for_each(|stream| each(stream.unwrap())));
        port
    }

    fn plain_server() -> u16 {
        serve(|mut stream| {
            let mut word = [0; 4];
            if stream.read_exact(&mut word).is_ok() && word == WORD {
                stream.write_all(b"Zookeeper version: 3.8.4\n").unwrap();
            }
        })
    }

    /// A server for `localhost`, and a client's side that trusts it or another one.
    fn tls_server(is_trusted: bool) -> (u16, Arc<ClientConfig>) {
        let (config, client) = tls_fixture::sides("localhost", is_trusted, true);
        let port = serve(move |mut stream| {
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = Stream::new(&mut connection, &mut stream);
            let mut word = [0; 4];
            if stream.read_exact(&mut word).is_ok() {
                stream
                    .write_all(b"This ZooKeeper instance is not currently serving requests\n")
                    .unwrap();
            }
        });
        (port, client)
    }

    #[test]
    fn what_is_wrong_with_a_plain_server_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = listener.local_addr().unwrap().to_string();
        drop(listener);
        let reason = probe(refused.clone(), None);
        assert!(reason.starts_with(&format!("{refused}: Connection refused")), "{reason}");
        let reason = probe("no.such.host.invalid:2181".to_owned(), None);
        let expected = "no.such.host.invalid:2181: the name cannot be resolved: ";
        assert!(reason.starts_with(expected), "{reason}");
        let reason = probe(format!("localhost:{}", tls_server(true).0), None);
        assert!(reason.contains("the server speaks TLS"), "{reason}");
        let reason = probe(format!("127.0.0.1:{}", serve(drop)), None);
        assert!(reason.contains("closes the connection; if it speaks TLS"), "{reason}");
        let reason = probe(format!("127.0.0.1:{}", plain_server()), None);
        assert!(reason.contains("gives no session"), "{reason}");
    }

    #[test]
    fn what_is_wrong_with_tls_is_said() {
        let (port, client) = tls_server(true);
        let reason = probe(format!("localhost:{port}"), Some(client.clone()));
        assert!(reason.contains("says: This ZooKeeper instance is not"), "{reason}");
        let reason = probe(format!("127.0.0.1:{port}"), Some(client.clone()));
        assert!(reason.contains("not valid for name"), "{reason}");
        let reason = probe(format!("localhost:{}", plain_server()), Some(client));
        assert!(reason.contains("speaks no TLS on this port"), "{reason}");
        let (port, client) = tls_server(false);
        let reason = probe(format!("localhost:{port}"), Some(client));
        assert!(reason.contains("no TLS: invalid peer certificate"), "{reason}");
    }
}
