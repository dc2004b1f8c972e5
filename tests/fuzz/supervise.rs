//! Watches the process that runs the inputs: tells what it died of, and that it hangs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use common::clock;

/// No input runs this long.
const HANG: Duration = Duration::from_secs(20);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Bytes of an input that a report shows.
const SHOWN_MAX: usize = 2000;

/// A file with the number of the input that runs.
pub(crate) struct Progress(File);

impl Progress {
    pub(crate) fn open(path: &str) -> Progress {
        let file = OpenOptions::new().read(true).write(true).open(path);
        Progress(file.expect("the progress file was made by the parent"))
    }

    pub(crate) fn tell(&self, number: u64) {
        self.0.write_all_at(&number.to_be_bytes(), 0).expect("write the progress file");
    }

    fn number(&self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        Some(u64::from_be_bytes(bytes))
    }
}

/// Runs a target in a child.
pub(crate) fn run(target: &str, seconds: u64, seed: u64) -> ExitCode {
    println!("{target}: {seconds} seconds, seed {seed}");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().to_str().expect("a path of the system is UTF-8");
    let child = Command::new(std::env::current_exe().expect("this program has a path"))
        .args([target, "--seconds", &seconds.to_string(), "--seed", &seed.to_string()])
        .args(["--progress", path])
        .spawn()
        .expect("start this program again");
    let progress = Progress::open(path);
    match watch(child, &progress) {
        Some(status) if status.success() => ExitCode::SUCCESS,
        Some(status) if status.code() == Some(1) => ExitCode::FAILURE, // It told itself.
        ended => {
            let what = match ended {
                Some(status) => format!("the process died ({status}): memory, stack or abort"),
                None => format!("no end after {} s", HANG.as_secs()),
            };
            report(&what, target, seed, progress.number().unwrap_or(0), None);
            ExitCode::FAILURE
        }
    }
}

/// How the child ended; none when it hung and was killed.
fn watch(mut child: Child, progress: &Progress) -> Option<ExitStatus> {
    let mut last = (None, clock::now());
    loop {
        if let Some(status) = child.try_wait().expect("ask for the child") {
            return Some(status);
        }
        let number = progress.number();
        if last.0 != number {
            last = (number, clock::now());
        } else if last.1.elapsed() > HANG {
            child.kill().expect("kill the child");
            child.wait().expect("wait for the child");
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Prints a finding and how to see it again.
pub(crate) fn report(what: &str, target: &str, seed: u64, number: u64, input: Option<&[u8]>) {
    println!("FOUND in {target}, input {number} of seed {seed}: {what}");
    if let Some(input) = input {
        println!("{} bytes: {}", input.len(), hex(input));
    }
    println!(
        "replay: cargo run --release -p tests --bin fuzz -- {target} --seed {seed} --only {number}"
    );
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().take(SHOWN_MAX).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > SHOWN_MAX { shown + "..." } else { shown }
}
