//! `setquota`, `listquota` and `delquota`. Source: ZooKeeper's `SetQuotaCommand`, `ListQuotaCommand`,
//! `DelQuotaCommand` and `StatsTrack`.

use std::collections::BTreeMap;

use zookeeper::client::{Client, ClientError, CreateMode};
use zookeeper::code::Refusal;
use zookeeper::data::{Acl, check_path};

use super::arguments::parse;
use super::commands::{failure, path_of, read, usage};
use super::{Failure, Shell};

const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";
/// Options of which one alone may be given: count or bytes, soft or hard.
const GROUP: [&str; 4] = ["n", "b", "N", "B"];

/// Counts or limits, by name; -1 for none.
struct Track(BTreeMap<String, i64>);

impl Track {
    fn parse(data: Option<&[u8]>) -> Track {
        let text = String::from_utf8_lossy(data.unwrap_or_default()).into_owned();
        let pairs = text.split([',', ';']).filter_map(|pair| {
            let mut parts = pair.split('=');
            let (key, value) = (parts.next()?, parts.next()?);
            Some((key.to_owned(), value.parse().unwrap_or(-1)))
        });
        Track(pairs.collect())
    }

    fn get(&self, key: &str) -> i64 {
        self.0.get(key).copied().unwrap_or(-1)
    }

    fn set(&mut self, key: &str, value: i64) {
        self.0.insert(key.to_owned(), value);
    }

    /// Hard limits stand behind a `=`, so that old readers take it for the end.
    fn text(&self) -> String {
        let mut text = format!("count={},bytes={}", self.get("count"), self.get("bytes"));
        let others: Vec<String> = self
            .0
            .iter()
            .filter(|(key, _)| *key != "count" && *key != "bytes")
            .map(|(key, value)| format!(";{key}={value}"))
            .collect();
        if !others.is_empty() {
            text.push('=');
            text.push_str(&others.concat());
        }
        text
    }
}

pub(super) fn list(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &[], &[], 2)?;
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let limits = format!("{ROOT}{path}/{LIMITS}");
    screen.complain(&format!("absolute path is {limits}"));
    let client = shell.client(path)?;
    let read = |at: &str| client.get_data(at, false).map(|(data, _)| Track::parse(data.as_deref()));
    let tracks =
        read(&limits).and_then(|track| Ok((track, read(&format!("{ROOT}{path}/{STATS}"))?)));
    match tracks {
        Ok((limits, stats)) => {
            screen.say(&format!("Output quota for {path} {}", limits.text()));
            screen.say(&format!("Output stat for {path} {}", stats.text()));
            Ok(())
        }
        Err(ClientError::Refused(Refusal::NoNode)) => {
            screen.complain(&format!("quota for {path} does not exist."));
            Ok(())
        }
        Err(error) => Err(failure(error, path)),
    }
}

pub(super) fn set(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = parse(words, &[], &GROUP).map_err(Failure::new)?;
    if parsed.one_of(&GROUP).map_err(Failure::new)?.is_none() {
        return Err(Failure::new(
            "org.apache.commons.cli.MissingOptionException: Missing required option: [-n num soft quota, \
             -b bytes soft quota, -N num hard quota, -B bytes hard quota]",
        ));
    }
    if parsed.words.len() < 2 {
        return Err(usage("setquota"));
    }
    let path = parsed.words[1].as_str();
    let screen = shell.screen.clone();
    if path.starts_with(ROOT) {
        screen.complain(&format!("cannot set a quota under the path: {ROOT}"));
        return Ok(());
    }
    let mut wanted = Vec::new();
    let keys = [
        ("n", "count", 1),
        ("b", "bytes", 0),
        ("N", "countHardLimit", 1),
        ("B", "byteHardLimit", 0),
    ];
    for (option, key, least) in keys {
        let Some(value) = parsed.value(option) else { continue };
        match value.parse::<i64>() {
            Ok(value) if value >= least => wanted.push((key, value)),
            Ok(_) if least == 1 => {
                screen.complain("the num quota must be greater than zero");
                return Ok(());
            }
            Ok(_) => {
                screen.complain("the bytes quota must be greater than or equal to zero");
                return Ok(());
            }
            Err(_) => {
                screen.complain("NumberFormatException happens when parsing the option value");
                return Ok(());
            }
        }
    }
    check_path(path).map_err(Failure::new)?;
    let client = shell.client(path)?;
    let warnings = create(client, path, &wanted)?;
    for warning in warnings {
        screen.say(&warning);
    }
    Ok(())
}

/// Sets limits of a path that is there, and has no other quota above or below. Gives warnings.
fn create(client: &Client, path: &str, wanted: &[(&str, i64)]) -> Result<Vec<String>, Failure> {
    let fail = |error| failure(error, path);
    if client.exists(path, false).map_err(fail)?.is_none() {
        return Err(Failure::new(format!("{path} does not exist.")));
    }
    let has_limit = |at: &str| match client.get_children(at, false) {
        Ok((names, _)) => Ok((names.iter().any(|name| name == LIMITS), names)),
        Err(ClientError::Refused(Refusal::NoNode)) => Ok((false, Vec::new())),
        Err(error) => Err(failure(error, at)),
    };
    let own = format!("{ROOT}{path}");
    let mut stack = vec![own.clone()];
    while let Some(at) = stack.pop() {
        let (limited, names) = has_limit(&at)?;
        if limited && at != own {
            let child = &at[ROOT.len()..];
            return Err(Failure::new(format!("{path} has a child {child} which has a quota")));
        }
        stack.extend(names.iter().map(|name| format!("{at}/{name}")));
    }
    let names: Vec<&str> = path.split('/').skip(1).collect();
    let mut above = ROOT.to_owned();
    for name in &names[..names.len() - 1] {
        above = format!("{above}/{name}");
        if has_limit(&above)?.0 {
            let parent = &above[ROOT.len()..];
            return Err(Failure::new(format!("{path} has a parent {parent} which has a quota")));
        }
    }
    let mut at = ROOT.to_owned();
    for name in names {
        at = format!("{at}/{name}");
        make(client, &at, None)?;
    }
    let (limits_path, stats_path) = (format!("{own}/{LIMITS}"), format!("{own}/{STATS}"));
    let existing = match client.get_data(&limits_path, false) {
        Ok((data, _)) => Some(Track::parse(data.as_deref())),
        Err(ClientError::Refused(Refusal::NoNode)) => None,
        Err(error) => return Err(failure(error, path)),
    };
    let is_new = existing.is_none();
    let mut limits = existing.unwrap_or_else(|| {
        Track::parse(Some(b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=-1"))
    });
    for (key, value) in wanted {
        limits.set(key, *value);
    }
    if is_new {
        make(client, &limits_path, Some(limits.text().as_bytes()))?;
        make(client, &stats_path, Some(b"count=0,bytes=0"))?;
    } else {
        client.set_data(&limits_path, Some(limits.text().as_bytes()), -1).map_err(fail)?;
    }
    let (data, _) = client.get_data(&stats_path, false).map_err(fail)?;
    Ok(warnings(&limits, &Track::parse(data.as_deref())))
}

/// Creates a node unless it is there.
fn make(client: &Client, path: &str, data: Option<&[u8]>) -> Result<(), Failure> {
    match client.create(path, data, &Acl::open(), CreateMode::Persistent) {
        Ok(_) | Err(ClientError::Refused(Refusal::NodeExists)) => Ok(()),
        Err(error) => Err(failure(error, path)),
    }
}

fn warnings(limits: &Track, stats: &Track) -> Vec<String> {
    let exceeded = |key: &str, value: i64| limits.get(key) > -1 && limits.get(key) < value;
    let mut warnings = Vec::new();
    let (count, bytes) = (stats.get("count"), stats.get("bytes"));
    if exceeded("count", count) || exceeded("countHardLimit", count) {
        warnings.push(format!(
            "[Warning]: the count quota you create is less than the existing count:{count}"
        ));
    }
    if exceeded("bytes", bytes) || exceeded("byteHardLimit", bytes) {
        warnings.push(format!(
            "[Warning]: the bytes quota you create is less than the existing bytes:{bytes}"
        ));
    }
    warnings
}

pub(super) fn delete(shell: &mut Shell, words: &[String]) -> Result<(), Failure> {
    let parsed = read(words, &GROUP, &[], 2)?;
    let option = parsed.one_of(&GROUP).map_err(Failure::new)?;
    let path = path_of(&parsed)?;
    let screen = shell.screen.clone();
    let client = shell.client(path)?;
    let fail = |error| failure(error, path);
    let (own, limits_path) = (format!("{ROOT}{path}"), format!("{ROOT}{path}/{LIMITS}"));
    let mut limits = match client.get_data(&limits_path, false) {
        Ok((data, _)) => Track::parse(data.as_deref()),
        Err(ClientError::Refused(Refusal::NoNode)) => {
            screen.say(&format!("Quota does not exist for {path}"));
            return Ok(());
        }
        Err(error) => return Err(fail(error)),
    };
    let keys = [("n", "count"), ("b", "bytes"), ("N", "countHardLimit"), ("B", "byteHardLimit")];
    if let Some((_, key)) = keys.iter().find(|(name, _)| Some(*name) == option) {
        limits.set(key, -1);
        client.set_data(&limits_path, Some(limits.text().as_bytes()), -1).map_err(fail)?;
        return Ok(());
    }
    let (names, _) = client.get_children(&own, false).map_err(fail)?;
    for name in names {
        client.delete(&format!("{own}/{name}"), -1).map_err(fail)?;
    }
    let mut at = own;
    while at != ROOT && client.get_children(&at, false).map_err(fail)?.0.is_empty() {
        client.delete(&at, -1).map_err(fail)?;
        let Some((above, _)) = at.rsplit_once('/') else { break };
        at = above.to_owned();
    }
    Ok(())
}
