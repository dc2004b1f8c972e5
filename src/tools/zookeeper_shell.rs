//! `zookeeper-shell.sh`: looks at znodes and changes them. Source: ZooKeeper's `ZooKeeperMain`, and Kafka's
//! `ZooKeeperMainWithTlsSupportForKafka` around it.

mod arguments;
mod commands;
mod quota;

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::properties::{self, Properties};
use parking_lot::Mutex;
use security::java_options::JavaOptions;
use server::zookeeper_client::{login, tls_of_tool};
use zookeeper::client::{Client, ClientError, ClientSecurity, SessionKey, WatchedEvent};

use crate::console::{Halt, chain, halt};
use crate::logging;
use arguments::split_line;

/// Kafka's own option, wherever it stands.
const TLS_CONFIG_FILE: &str = "-zk-tls-config-file";

/// Commands and their arguments, in the order in which they are listed.
const USAGE: [(&str, &str); 28] = [
    (
        "addWatch",
        "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE",
    ),
    ("addauth", "scheme auth"),
    ("close", ""),
    ("config", "[-c] [-w] [-s]"),
    ("connect", "host:port"),
    ("create", "[-s] [-e] [-c] [-t ttl] path [data] [acl]"),
    ("delete", "[-v version] path"),
    ("deleteall", "path [-b batch size]"),
    ("delquota", "[-n|-b|-N|-B] path"),
    ("get", "[-s] [-w] path"),
    ("getAcl", "[-s] path"),
    ("getAllChildrenNumber", "path"),
    ("getEphemerals", "path"),
    ("history", ""),
    ("listquota", "path"),
    ("ls", "[-s] [-w] [-R] path"),
    ("printwatches", "on|off"),
    ("quit", ""),
    (
        "reconfig",
        "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | \
         [-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
    ),
    ("redo", "cmdno"),
    ("removewatches", "path [-c|-d|-a] [-l]"),
    ("set", "[-s] [-v version] path data"),
    ("setAcl", "[-s] [-v version] [-R] path acl"),
    ("setquota", "-n|-b|-N|-B val path"),
    ("stat", "[-w] path"),
    ("sync", "path"),
    ("version", ""),
    ("whoami", ""),
];

/// Runs the shell: one command, or those of standard input.
pub(crate) fn run(words: &[String]) -> Result<(), Halt> {
    logging::start();
    let options = match Options::read(words) {
        Ok(options) => options,
        Err(text) => return halt(&text),
    };
    let java = JavaOptions::new(std::env::var("KAFKA_OPTS").unwrap_or_default());
    let security = match security(options.tls_config_file.as_deref(), &java) {
        Ok(security) => security,
        Err(text) => return halt(&text),
    };
    let screen = Arc::new(Screen {
        out: Mutex::new(Box::new(std::io::stdout())),
        err: Mutex::new(Box::new(std::io::stderr())),
        print_watches: AtomicBool::new(true),
    });
    let mut input = std::io::stdin().lock();
    let End { code, is_death } = shell(&options, security, screen, &mut input);
    if code == 0 {
        return Ok(());
    }
    if !is_death {
        // Java says so on its way out.
        logging::error(
            "org.apache.zookeeper.util.ServiceUtils",
            &format!("Exiting JVM with code {code}"),
        );
    }
    Err(Halt(code))
}

/// How the connection is kept safe, and who we are: by the file of `-zk-tls-config-file` and by Java's system properties.
fn security(file: Option<&str>, java: &JavaOptions) -> Result<ClientSecurity, String> {
    let properties = match file {
        Some(file) => properties::parse(
            &std::fs::read(file).map_err(|error| format!("Error: {file}: {error}"))?,
        ),
        None => Properties::new(),
    };
    let tls = tls_of_tool(properties, java).map_err(|error| chain(&error))?;
    let tls = tls.map(|tls| tls.config()).transpose().map_err(|error| chain(&error))?;
    let login = login(java).map_err(|error| chain(&error))?;
    Ok(ClientSecurity { tls, login })
}

/// What stands in front of the command.
struct Options {
    servers: String,
    timeout: Duration,
    tls_config_file: Option<String>,
    command: Vec<String>,
}

impl Options {
    fn read(words: &[String]) -> Result<Options, String> {
        let mut options = Options {
            servers: "localhost:2181".to_owned(),
            timeout: Duration::from_secs(30),
            tls_config_file: None,
            command: Vec::new(),
        };
        let mut words = words.to_vec();
        // Kafka's option may stand behind the command too.
        if let Some(position) = words.iter().position(|word| word == TLS_CONFIG_FILE) {
            if position + 1 == words.len() {
                return Err(format!("Error: no filename provided with option {TLS_CONFIG_FILE}"));
            }
            options.tls_config_file = words.drain(position..position + 2).nth(1);
        }
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words.next().cloned().ok_or(format!("Error: no argument found for option {word}"))
            };
            match word.as_str() {
                "-server" => options.servers = value()?,
                "-timeout" => {
                    let milliseconds = value()?
                        .parse()
                        .map_err(|_| "Error: -timeout takes a number of milliseconds".to_owned())?;
                    options.timeout = Duration::from_millis(milliseconds);
                }
                "-client-configuration" => {
                    value()?;
                    return Err(format!("Error: {word} is not supported; use {TLS_CONFIG_FILE}"));
                }
                // Read-only servers are not among ours; waiting is what we do anyway.
                word if word.starts_with('-') => {}
                word => {
                    options.command.push(word.to_owned());
                    options.command.extend(words.by_ref().cloned());
                }
            }
        }
        Ok(options)
    }
}

/// Where lines go; watches print from a thread of their own.
struct Screen {
    out: Mutex<Box<dyn Write + Send>>,
    err: Mutex<Box<dyn Write + Send>>,
    print_watches: AtomicBool,
}

impl Screen {
    /// As `println` does.
    fn say(&self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    fn print(&self, text: &str) {
        // Nobody can be told that nobody listens.
        let _ = self.out.lock().write_all(text.as_bytes());
    }

    fn complain(&self, text: &str) {
        let _ = self.err.lock().write_all(format!("{text}\n").as_bytes()); // As above.
    }

    fn tell(&self, event: &WatchedEvent) {
        if self.print_watches.load(Ordering::Relaxed) {
            let path = event.path.as_deref().unwrap_or("null");
            let (state, kind) = (event.state, event.kind);
            self.print(&format!(
                "\nWATCHER::\n\nWatchedEvent state:{state} type:{kind} path:{path}\n"
            ));
        }
    }
}

/// Why a command did not do what it should: a line, and the exit code.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    text: String,
    code: u8,
    /// Java's shell dies of it.
    is_death: bool,
}

impl Failure {
    fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code: 1, is_death: false }
    }

    /// An exception that Java's shell does not catch.
    fn death(exception: &str) -> Failure {
        let text = format!("Exception in thread \"main\" {exception}");
        Failure { text, code: 1, is_death: true }
    }
}

/// How the shell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    code: u8,
    is_death: bool,
}

/// Runs the command of the options, or reads commands.
fn shell(
    options: &Options,
    security: ClientSecurity,
    screen: Arc<Screen>,
    input: &mut dyn BufRead,
) -> End {
    screen.say(&format!("Connecting to {}", options.servers));
    let mut shell = Shell {
        screen,
        servers: options.servers.clone(),
        timeout: options.timeout,
        security,
        connection: None,
        closed: false,
        history: Vec::new(),
        is_interactive: options.command.is_empty(),
        end: End { code: 0, is_death: false },
    };
    if !options.command.is_empty() {
        // It needs no server, and is over before Java's shell has one.
        if options.command[0] != "version" {
            shell.connect();
        }
        shell.run(&options.command);
        return shell.leave();
    }
    shell.screen.say("Welcome to ZooKeeper!");
    shell.screen.say("JLine support is disabled");
    shell.connect();
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return shell.leave(),
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\n', '\r']);
        let words = split_line(line);
        if words.is_empty() {
            continue;
        }
        shell.history.push(line.to_owned());
        if shell.run(&words) == Flow::Quit {
            return shell.leave();
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Flow {
    On,
    Quit,
}

struct Shell {
    screen: Arc<Screen>,
    servers: String,
    timeout: Duration,
    security: ClientSecurity,
    connection: Option<Connection>,
    /// The user closed the connection: commands do not open it again.
    closed: bool,
    history: Vec<String>,
    is_interactive: bool,
    /// How it would end now.
    end: End,
}

impl Shell {
    fn run(&mut self, words: &[String]) -> Flow {
        match self.process(words) {
            // The exit code is that of the command before.
            Ok(Flow::Quit) => Flow::Quit,
            Ok(Flow::On) => {
                self.end.code = 0;
                Flow::On
            }
            Err(failure) => {
                self.screen.complain(&failure.text);
                self.end = End { code: failure.code, is_death: failure.is_death };
                if failure.is_death { Flow::Quit } else { Flow::On }
            }
        }
    }

    fn process(&mut self, words: &[String]) -> Result<Flow, Failure> {
        let command = words.first().map_or("", String::as_str);
        if !USAGE.iter().any(|(name, _)| *name == command) {
            self.usage();
            let text = format!("Command not found: Command not found {command}");
            return Err(Failure { code: 127, ..Failure::new(text) });
        }
        match command {
            "quit" => {
                self.close();
                return Ok(Flow::Quit);
            }
            "redo" if words.len() > 1 => return self.redo(&words[1]),
            "history" => {
                let last = self.history.len().saturating_sub(1);
                for number in last.saturating_sub(10)..=last {
                    let line = self.history.get(number).map_or("null", String::as_str);
                    self.screen.say(&format!("{number} - {line}"));
                }
            }
            "printwatches" => match words.get(1) {
                None => {
                    let on = self.screen.print_watches.load(Ordering::Relaxed);
                    self.screen.say(&format!("printwatches is {}", if on { "on" } else { "off" }));
                }
                Some(word) => self.screen.print_watches.store(word == "on", Ordering::Relaxed),
            },
            "connect" => {
                self.close();
                if let Some(servers) = words.get(1) {
                    self.servers = servers.clone();
                }
                self.closed = false;
                self.connect();
            }
            _ => {}
        }
        if self.closed {
            self.screen.say("Not connected");
            return Ok(Flow::On);
        }
        commands::run(self, command, words)?;
        Ok(Flow::On)
    }

    fn redo(&mut self, number: &str) -> Result<Flow, Failure> {
        // The line of this command itself is the last.
        let before = self.history.len().saturating_sub(1);
        let line = number
            .parse()
            .ok()
            .filter(|number| *number < before)
            .map(|number: usize| self.history[number].clone());
        let Some(line) = line else {
            return Err(Failure::new("Command index out of range"));
        };
        let words = split_line(&line);
        if words.first().is_some_and(|word| word == "redo") {
            return Err(Failure::new("No redoing redos"));
        }
        if let Some(last) = self.history.last_mut() {
            *last = line;
        }
        Ok(self.run(&words))
    }

    fn usage(&self) {
        self.screen.complain("ZooKeeper -server host:port [-zk-tls-config-file <file>] cmd args");
        for (name, arguments) in USAGE {
            self.screen.complain(&format!("\t{name} {arguments}"));
        }
    }

    /// Connects, or says why not; commands try again.
    fn connect(&mut self) {
        let key = self.connection.take().map(Connection::into_key);
        match Client::connect_as(&self.servers, self.timeout, key.as_ref(), &self.security) {
            Ok((client, events)) => {
                self.connection = Some(Connection::begin(client, events, &self.screen));
            }
            Err(ClientError::Expired) => {
                let event = WatchedEvent { state: "Expired", kind: "None", path: None };
                self.screen.tell(&event);
                self.closed = true;
            }
            Err(ClientError::Connect(error)) => {
                let reason = match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => {
                        "java.net.ConnectException: Connection refused".to_owned()
                    }
                    _ => error.to_string(),
                };
                tracing::warn!(
                    class = "org.apache.zookeeper.ClientCnxn",
                    throwable = reason,
                    "Session 0x0 for server {}, Closing socket connection. Attempting reconnect except it is a \
                     SessionExpiredException.",
                    self.servers
                );
            }
            Err(error) => tracing::warn!(class = "org.apache.zookeeper.ClientCnxn", "{error}"),
        }
    }

    /// The connection, opened again if it was lost. `path` is what the command is about.
    fn client(&mut self, path: &str) -> Result<&Client, Failure> {
        if self.connection.as_ref().is_none_or(Connection::is_lost) {
            self.connect();
        }
        match &self.connection {
            Some(connection) => Ok(&connection.client),
            None => Err(commands::failure(ClientError::Lost, path)),
        }
    }

    /// Goes without a word, as Java's shell does: the session ends when its time is over.
    fn leave(mut self) -> End {
        if let Some(connection) = self.connection.take() {
            connection.leave();
        }
        self.end
    }

    /// Ends the session.
    fn close(&mut self) {
        self.closed = true;
        if let Some(connection) = self.connection.take() {
            connection.close();
        }
    }
}

/// A connection, and the thread that prints what its watches see.
struct Connection {
    client: Client,
    ended: Arc<Ended>,
    printer: JoinHandle<()>,
}

/// How a connection ended, if it did.
#[derive(Default)]
struct Ended {
    closing: AtomicBool,
    leaving: AtomicBool,
    lost: AtomicBool,
}

impl Connection {
    fn begin(client: Client, events: Receiver<WatchedEvent>, screen: &Arc<Screen>) -> Connection {
        // The first event says that we are connected: before anything that a command prints.
        if let Ok(event) = events.recv() {
            screen.tell(&event);
        }
        let ended = Arc::new(Ended::default());
        let printer = thread::spawn({
            let (screen, ended) = (screen.clone(), ended.clone());
            move || {
                for event in events {
                    if ended.leaving.load(Ordering::SeqCst) {
                        return;
                    }
                    if event.state == "Disconnected" {
                        ended.lost.store(true, Ordering::SeqCst);
                        if ended.closing.load(Ordering::SeqCst) {
                            screen.tell(&WatchedEvent { state: "Closed", ..event });
                            continue;
                        }
                    }
                    screen.tell(&event);
                }
            }
        });
        Connection { client, ended, printer }
    }

    fn is_lost(&self) -> bool {
        self.ended.lost.load(Ordering::SeqCst)
    }

    fn into_key(self) -> SessionKey {
        self.client.session().clone()
    }

    fn leave(self) {
        self.ended.leaving.store(true, Ordering::SeqCst);
        drop(self.client);
        // It does not panic; if it did, a line is missing.
        let _ = self.printer.join();
    }

    fn close(self) {
        self.ended.closing.store(true, Ordering::SeqCst);
        if let Err(error) = self.client.close() {
            tracing::debug!(%error, "the session ends by itself");
        }
        // It does not panic; if it did, a line is missing.
        let _ = self.printer.join();
    }
}

#[cfg(test)]
mod tests;
