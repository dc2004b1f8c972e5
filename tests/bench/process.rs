//! Processes under measurement: what they cost, and how they end.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal};

/// CPU that a process has used, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// In the program.
    pub(crate) user: f64,
    /// In the kernel on its behalf.
    pub(crate) kernel: f64,
}

impl Cpu {
    /// Both.
    pub(crate) fn total(self) -> f64 {
        self.user + self.kernel
    }

    /// What was used since `earlier`.
    pub(crate) fn since(self, earlier: Cpu) -> Cpu {
        Cpu { user: self.user - earlier.user, kernel: self.kernel - earlier.kernel }
    }
}

/// CPU of a process so far; nothing for one that is gone.
pub(crate) fn cpu_of(pid: u32) -> Cpu {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| -> f64 {
        fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
    };
    Cpu { user: ticks(11), kernel: ticks(12) }
}

/// CPU of the threads that a process has now, in seconds; finer than ticks, and without threads that ended.
pub(crate) fn cpu_of_threads(pid: u32) -> f64 {
    cpu_by_thread(pid).values().sum()
}

/// The same for each thread, so that what is used between two looks does not miss what ended threads had used before.
pub(crate) fn cpu_by_thread(pid: u32) -> HashMap<OsString, f64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let each = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let nanoseconds = text.split_whitespace().next()?.parse::<f64>().ok()?;
        Some((thread.file_name(), nanoseconds / 1e9))
    });
    each.collect()
}

/// Bytes that a process has written to files so far.
pub(crate) fn written_by(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Whether a process runs; one that has ended and was not waited for does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Sends a signal, and does not wait.
pub(crate) fn signal(pid: u32, kind: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, kind);
    }
}

/// Memory of a process that is its own or mapped in, in bytes.
pub(crate) fn memory_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
    let kilobytes = line.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// A process that ends with this value.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a command; its output goes to `log`.
    pub(crate) fn start(mut command: Command, log: &std::path::Path) -> Result<Process, String> {
        let file = fs::File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = file.try_clone().map_err(|error| error.to_string())?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Process { child })
    }

    /// Starts this very program in another role, which prints the address it listens on.
    pub(crate) fn start_role(arguments: &[&str]) -> Result<(Process, SocketAddr), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let output = child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let address = line.trim().parse().map_err(|_| format!("no address in {line:?}"))?;
        Ok((Process { child }, address))
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits.
    pub(crate) fn terminate(&mut self) {
        signal(self.pid(), Signal::TERM);
        // Nothing is left to do where waiting fails.
        let _ = self.child.wait();
    }

    /// Sends SIGKILL and waits.
    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        // As above.
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
