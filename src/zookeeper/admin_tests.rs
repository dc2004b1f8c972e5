//! The admin server over a real socket: what it is asked, and the JSON that it answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, CreateMode};
use crate::config::{AdminConfig, Config};
use crate::data::Acl;
use crate::server::Server;

const TIMEOUT: Duration = Duration::from_secs(10);

fn start(folder: &TempDir) -> Server {
    let mut config = Config::for_tests(folder.path());
    config.admin = Some(AdminConfig {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        command_url: "/commands".to_owned(),
    });
    Server::start(config).unwrap()
}

/// Status and body.
fn send(server: &Server, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.admin_address().unwrap()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = format!("{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn get(server: &Server, command: &str) -> Value {
    let (status, body) = send(server, &format!("GET /commands/{command}"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn commands_are_answered_by_any_of_their_names() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let (client, _events) = Client::connect(&server.address().to_string(), TIMEOUT, None).unwrap();
    client.create("/e", None, &Acl::open(), CreateMode::Ephemeral).unwrap();
    client.exists("/watched", true).unwrap();
    let session = client.session().id;

    assert_eq!(get(&server, "ruok"), json!({"command": "ruok", "error": null}));
    let mode = json!({"read_only": false, "command": "is_read_only", "error": null});
    assert_eq!(get(&server, "isro"), mode);
    assert_eq!(get(&server, "is_read_only"), mode);
    let stats = get(&server, "stat");
    assert_eq!(stats["node_count"], 6);
    assert_eq!(stats["server_stats"]["last_processed_zxid"], 2);
    assert_eq!(stats["connections"][0]["packets_received"], 3);
    assert_eq!(stats["secure_connections"], json!([]));
    assert_eq!(get(&server, "cons")["connections"][0]["session_id"], session);
    let dump = get(&server, "dump");
    assert_eq!(dump["session_id_to_ephemeral_paths"], json!({session.to_string(): ["/e"]}));
    let sessions = dump["expiry_time_to_session_ids"].as_object().unwrap();
    assert_eq!(sessions.values().collect::<Vec<_>>(), [&json!([session])]);
    assert_eq!(get(&server, "wchp")["path_to_session_ids"], json!({"/watched": [session]}));
    let watched = json!({session.to_string(): ["/watched"]});
    assert_eq!(get(&server, "watches")["session_id_to_watched_paths"], watched);
    assert_eq!(get(&server, "wchs")["num_total_watches"], 1);
    assert_eq!(get(&server, "conf")["client_port"], server.address().port());
    assert_eq!(get(&server, "lsnp")["zxid"], "0");
    assert_eq!(get(&server, "mntr")["znode_count"], 6);
    assert_eq!(get(&server, "stmk?traceMask=306")["tracemask"], 306);
    assert!(get(&server, "stmk")["error"].as_str().unwrap().contains("traceMask"));
    assert_eq!(get(&server, "srst")["command"], "stat_reset");
    assert_eq!(get(&server, "srvr")["server_stats"]["packets_received"], 0);
    let unknown = json!({"command": "nonsense", "error": "Unknown command: nonsense"});
    assert_eq!(get(&server, "nonsense"), unknown);
}

#[test]
fn every_command_answers_and_is_linked_to() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let (status, links) = send(&server, "GET /commands");
    assert_eq!(status, 200);
    for names in crate::admin_commands::COMMANDS {
        assert!(links.contains(&format!("<a href=\"/commands/{0}\">{0}</a>", names[0])));
        for name in names {
            assert_eq!(get(&server, name)["command"], names[0]);
        }
    }
    assert_eq!(send(&server, "GET /commands/").1, links);
}

#[test]
fn what_is_no_command_is_refused() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    assert_eq!(send(&server, "GET /").0, 404);
    assert_eq!(send(&server, "GET /commandsruok").0, 404);
    assert_eq!(send(&server, "POST /commands/srst").0, 405);
    assert_eq!(send(&server, "HEAD /commands/ruok"), (200, String::new()));
    let long = format!("GET /commands/{}", "x".repeat(100_000));
    let mut stream = TcpStream::connect(server.admin_address().unwrap()).unwrap();
    // The server may close before it has taken everything.
    let _ = stream.write_all(long.as_bytes());
    assert_eq!(get(&server, "ruok")["error"], Value::Null);
}

#[test]
fn a_taken_port_of_the_admin_server_stops_nobody() {
    let folder = TempDir::new().unwrap();
    let first = start(&folder);
    let other = TempDir::new().unwrap();
    let mut config = Config::for_tests(other.path());
    config.admin = Some(AdminConfig {
        address: first.admin_address().unwrap(),
        command_url: "/commands".to_owned(),
    });
    let second = Server::start(config).unwrap();
    assert_eq!(second.admin_address(), None);
    assert!(Client::connect(&second.address().to_string(), TIMEOUT, None).is_ok());
}
