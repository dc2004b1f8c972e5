//! The shell against a server in this process, held against what Kafka's shell printed.

use std::io::Cursor;
use std::path::Path;

use rustls::pki_types::PrivatePkcs8KeyDer;
use security::key_store::{certificates_to_pem, key_to_pem};
use serde_json::Value;
use tempfile::TempDir;
use zookeeper::config::{Config, SecureConfig};
use zookeeper::key_store::StoreConfig;
use zookeeper::server::Server;
use zookeeper::tls::{ClientAuth, TlsConfig};

use super::*;

/// What was printed.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

struct Printed {
    out: String,
    err: String,
    code: u8,
}

/// Runs the shell as a process would, but for the log lines on its standard error.
fn print(server: &str, words: &[&str], stdin: &str) -> Printed {
    print_as(server, &JavaOptions::default(), words, stdin)
}

fn print_as(server: &str, java: &JavaOptions, words: &[&str], stdin: &str) -> Printed {
    let mut line = vec!["-server".to_owned(), server.to_owned()];
    line.extend(words.iter().map(|word| (*word).to_owned()));
    let options = Options::read(&line).unwrap_or_else(|text| panic!("{text}"));
    let security = security(options.tls_config_file.as_deref(), java);
    let security = security.unwrap_or_else(|text| panic!("{text}"));
    let (out, err) = (Paper::default(), Paper::default());
    let screen = Arc::new(Screen {
        out: Mutex::new(Box::new(out.clone())),
        err: Mutex::new(Box::new(err.clone())),
        print_watches: AtomicBool::new(true),
    });
    let End { code, .. } = shell(&options, security, screen, &mut Cursor::new(stdin.as_bytes()));
    Printed { out: out.text(), err: err.text(), code }
}

/// A server with a secure port and one user, and the files that its clients need.
struct Secured {
    server: Server,
    folder: TempDir,
}

impl Secured {
    /// On 127.0.0.`last`; the certificate is for localhost and 127.0.0.1.
    fn start(last: u8) -> Secured {
        let folder = TempDir::new().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let own = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let own = certificates_to_pem(&[own.der().clone()]);
        let secured = |name: &str| folder.path().join(name);
        let pem = key_to_pem(&PrivatePkcs8KeyDer::from(key.serialize_der()).into());
        std::fs::write(secured("server.pem"), pem + &own).unwrap();
        std::fs::write(secured("trusted.pem"), own).unwrap();
        let mut config = Config::for_tests(folder.path().join("data"));
        config.secure = Some(SecureConfig {
            address: ([127, 0, 0, last], 0).into(),
            tls: TlsConfig {
                key_store: StoreConfig {
                    path: secured("server.pem"),
                    password: String::new(),
                    password_path: None,
                    kind: None,
                },
                trust_store: None,
                client_auth: ClientAuth::None,
                protocols: Vec::new(),
                cipher_suites: Vec::new(),
            },
            super_user: None,
        });
        config.sasl_users = [("kafka".to_owned(), "secret".to_owned())].into();
        Secured { server: Server::start(config).unwrap(), folder }
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

#[test]
fn tls_and_a_login_come_from_the_files_of_kafkas_shell() {
    let secured = Secured::start(1);
    let port = secured.server.secure_address().unwrap().port();
    let trusted = secured.folder.path().join("trusted.pem").display().to_string();
    let tls = format!(
        "zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location={trusted}\n\
         zookeeper.ssl.enabled.protocols=TLSv1.2,TLSv1.3\n"
    );
    let file = secured.write("tls.properties", &tls);
    let jaas = "Client { org.apache.zookeeper.server.auth.DigestLoginModule required \
                username=\"kafka\" password=\"secret\"; };";
    let jaas = secured.write("jaas.conf", jaas);
    let login = JavaOptions::new(format!("-Djava.security.auth.login.config={jaas}"));
    let nobody = JavaOptions::default();
    for host in ["localhost", "127.0.0.1"] {
        let server = format!("{host}:{port}");
        let words =
            ["-zk-tls-config-file", &file, "create", &format!("/{host}"), "x", "sasl:kafka:cdrwa"];
        let printed = print_as(&server, &login, &words, "");
        assert!(printed.err.contains(&format!("Created /{host}")), "{}", printed.err);
        // Kafka's option may stand behind the command.
        let words = ["get", &format!("/{host}"), "-zk-tls-config-file", &file];
        assert!(print_as(&server, &login, &words, "").out.ends_with("\nx\n"));
        let printed = print_as(&server, &nobody, &words, "");
        assert_eq!(printed.err, format!("Insufficient permission : /{host}\n"));
    }

    // A large answer comes in many records.
    let server = format!("localhost:{port}");
    let large = "y".repeat(300_000);
    let words = ["-zk-tls-config-file", &file, "create", "/large", &large];
    print_as(&server, &nobody, &words, "");
    let words = ["-zk-tls-config-file", &file, "get", "/large"];
    assert!(print_as(&server, &nobody, &words, "").out.ends_with(&format!("\n{large}\n")));
}

#[test]
fn a_server_that_is_not_trusted_is_not_talked_to() {
    let [secured, other] = [1, 1].map(Secured::start);
    let elsewhere = Secured::start(2);
    let port = secured.server.secure_address().unwrap().port();
    let lost = "KeeperErrorCode = ConnectionLoss for /\n";
    let list =
        |java: &str, server: &str| print_as(server, &JavaOptions::new(java), &["ls", "/"], "").err;
    let trust = |secured: &Secured| {
        let store = secured.folder.path().join("trusted.pem");
        let on = "-Dzookeeper.client.secure=true";
        format!("{on} -Dzookeeper.ssl.trustStore.location={}", store.display())
    };
    assert_eq!(list(&trust(&secured), &format!("localhost:{port}")), "");
    assert_eq!(list(&trust(&other), &format!("localhost:{port}")), lost);
    // Its certificate has other names than this address.
    let java = trust(&elsewhere);
    let server = elsewhere.server.secure_address().unwrap().to_string();
    assert_eq!(list(&java, &server), lost);
    let java = format!("{java} -Dzookeeper.ssl.hostnameVerification=false");
    assert_eq!(list(&java, &server), "");

    // A wrong password.
    let jaas = secured.write(
        "jaas.conf",
        "Client { DigestLoginModule required username=kafka password=guess; };",
    );
    let java = format!("-Djava.security.auth.login.config={jaas}");
    let java = format!("{} {java}", trust(&secured));
    assert_eq!(list(&java, &format!("localhost:{port}")), lost);
}

fn start(folder: &TempDir) -> Server {
    Server::start(Config::for_tests(folder.path())).unwrap()
}

/// Puts there what the recordings read.
fn prepare(server: &str) {
    let lines = "
        create /admin x
        create /admin/delete_topics x
        create /brokers x
        create /brokers/ids x
        create /brokers/ids/1 x
        create /brokers/ids/2 x
        create /brokers/ids/3 x
        create /config x
        create /config/clients x
        create /config/clients/a x
        create /controller x
        create /controller_epoch 1
        set /controller_epoch 1
        set /controller_epoch 2
        create /cluster x
        create /consumers x
        create /delegation_token x
        create /feature x
        create /isr_change_notification x
        create /kafka-acl x
        create /kafka-acl-changes x
        create /kafka-acl-extended x
        create /kafka-acl-extended-changes x
        create /latest_producer_id_block x
        create /log_dir_event_notification x
        quit
    ";
    let lines: Vec<&str> = lines.lines().map(str::trim).collect();
    assert_eq!(print(server, &[], &lines.join("\n")).code, 0);
}

/// Times and transaction numbers differ from run to run; the address is ours.
fn mask(text: &str) -> String {
    let lines = text.split('\n').map(|line| match line.split_once(" = ") {
        Some((key @ ("cZxid" | "mZxid" | "pZxid"), _)) => format!("{key} = ZXID"),
        Some((key @ ("ctime" | "mtime"), date)) => {
            // Its form is compared: the same letters and digits in the same places.
            let form: String = date
                .chars()
                .map(|character| match character {
                    '0'..='9' => '9',
                    letter if letter.is_ascii_alphabetic() => 'a',
                    other => other,
                })
                .collect();
            format!("{key} = {form}")
        }
        _ if line.starts_with("Connecting to ") => "Connecting to SERVER".to_owned(),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Of what Kafka's shell wrote to standard error: without log lines, and without the traces behind them.
fn without_log(text: &str) -> String {
    let mut kept = Vec::new();
    let mut in_log = false;
    for line in text.lines() {
        let is_log = line.starts_with("[20");
        let is_trace = line.starts_with("\tat ") || line.starts_with("java.");
        in_log = is_log || in_log && is_trace;
        if !in_log {
            kept.push(format!("{line}\n"));
        }
    }
    kept.concat()
}

#[test]
fn every_recorded_case_prints_what_kafkas_shell_printed() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let address = server.address().to_string();
    prepare(&address);
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/transcripts/zookeeper-shell");
    let mut files: Vec<_> =
        std::fs::read_dir(recordings).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 15);
    for file in files {
        let case: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let name = case["case"].as_str().unwrap();
        let words: Vec<&str> =
            case["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        // The port of this case has no listener; port 1 has none anywhere.
        let target = if name == "no-server" { "127.0.0.1:1" } else { &address };
        let printed = print(target, &words[1..], case["stdin"].as_str().unwrap_or_default());
        let mut expected = mask(case["stdout"].as_str().unwrap());
        if name == "ls-brokers" {
            // There, the watcher's thread spoke in the middle of the list.
            let event = "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:None path:null\n";
            expected = expected.replace(event, "").replace("[1, 2", &format!("{event}[1, 2"));
        }
        assert_eq!(mask(&printed.out), expected, "standard output of {name}");
        let expected = without_log(case["stderr"].as_str().unwrap());
        assert_eq!(printed.err, expected, "standard error of {name}");
        assert_eq!(i64::from(printed.code), case["exit"].as_i64().unwrap(), "exit of {name}");
    }
}

#[test]
fn an_interactive_session_goes_on_after_errors() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let lines = "create /a one\ncreate /a two\ncreate -s /a/n- \"two words\"\nls -R /a\nget -w /a\n\
                 set -v 7 /a x\nset /a x\nget /a/\nhistory\nredo 0\nredo 99\nwhoami\nclose\nls /\n";
    let printed = print(&server.address().to_string(), &[], lines);
    let (_, out) = printed.out.split_once("path:null\n").unwrap();
    let watch = "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:NodeDataChanged path:/a\n";
    assert!(out.contains(watch), "{out}");
    let out = out.replace(watch, "");
    let expected = "/a\n/a/n-0000000000\none\n0 - create /a one\n1 - create /a two\n\
                    2 - create -s /a/n- \"two words\"\n3 - ls -R /a\n4 - get -w /a\n5 - set -v 7 /a x\n\
                    6 - set /a x\n7 - get /a/\n8 - history\nAuth scheme: User\nip: 127.0.0.1\n\
                    \nWATCHER::\n\nWatchedEvent state:Closed type:None path:null\nNot connected\n";
    assert_eq!(out, expected);
    let expected = "Created /a\nNode already exists: /a\nCreated /a/n-0000000000\n\
                    version No is not valid : /a\nPath must not end with / character\n\
                    Node already exists: /a\nCommand index out of range\n";
    assert_eq!(printed.err, expected);
    assert_eq!(printed.code, 0);
}

#[test]
fn quotas_are_set_listed_and_deleted() {
    let folder = TempDir::new().unwrap();
    let server = start(&folder);
    let lines = "create /q 12345\nsetquota -n 3 /q\ncreate /q/a 1\nlistquota /q\nsetquota -N 9 /q/a\n\
                 delquota -n /q\nlistquota /q\ndelquota /q\nlistquota /q\nls /zookeeper/quota\nquit\n";
    let printed = print(&server.address().to_string(), &[], lines);
    let (_, out) = printed.out.split_once("path:null\n").unwrap();
    let expected = "Output quota for /q count=3,bytes=-1=;byteHardLimit=-1;countHardLimit=-1\n\
                    Output stat for /q count=2,bytes=6\n\
                    Output quota for /q count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=-1\n\
                    Output stat for /q count=2,bytes=6\n[]\n\
                    \nWATCHER::\n\nWatchedEvent state:Closed type:None path:null\n";
    assert_eq!(out, expected);
    assert!(printed.err.contains("/q/a has a parent /q which has a quota"), "{}", printed.err);
}
