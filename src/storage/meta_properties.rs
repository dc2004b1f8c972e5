//! `meta.properties`: which broker of which cluster a log directory belongs to.
//! Source: `MetaProperties`, `MetaPropertiesEnsemble`.

use std::{
    fmt::Write,
    io,
    path::{Path, PathBuf},
};

use common::{
    ids::{BrokerId, Timestamp},
    properties::{self, Properties},
    topic::Uuid,
};

use crate::atomic_file;

/// The file's name in each log directory.
pub const META_PROPERTIES_FILE: &str = "meta.properties";

const SIZE_MAX: u64 = 1 << 20;

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// 0 with ZooKeeper, 1 with KRaft.
    pub version: u8,
    /// The cluster's id.
    pub cluster_id: Option<String>,
    /// `broker.id` of version 0, `node.id` of version 1.
    pub node_id: Option<BrokerId>,
    /// Of KRaft, and of a migration to it; kept as it is.
    pub directory_id: Option<Uuid>,
}

/// Why a file cannot be used. `Display` is Kafka's text.
#[derive(Debug, thiserror::Error)]
pub enum MetaPropertiesError {
    /// The file could not be read.
    #[error("Error while reading meta.properties file")]
    Read(#[from] io::Error),
    /// Neither 0 nor 1.
    #[error("Unknown meta.properties version number {0}")]
    Version(String),
    /// A number that is none.
    #[error("Unable to read {key} as a base-10 number.")]
    Number {
        /// Which one.
        key: &'static str,
    },
    /// Version 1 must have it.
    #[error("Failed to find {0}")]
    Missing(&'static str),
    /// A directory's id that is none.
    #[error("Unable to read directory.id as a Uuid: {0}")]
    DirectoryId(String),
}

/// Why the directories do not belong to this broker. `Display` is Kafka's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MismatchError {
    /// A directory of KRaft.
    #[error(
        "Found unexpected version in {}. ZK-based brokers that are not migrating only support version 0 (which is implicit when the `version` field is missing).",
        .0.display()
    )]
    Version(PathBuf),
    /// A directory of another cluster.
    #[error("Invalid cluster.id in: {}. Expected {expected}, but read {found}", path.display())]
    ClusterId {
        /// The file.
        path: PathBuf,
        /// The cluster's id, or that of the directories before.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// A directory of another broker.
    #[error(
        "Stored node id {found} doesn't match previous node id {expected} in {}. If you moved your data, make sure your configured node id matches. If you intend to create a new node, you should remove all data in your data directories.",
        path.display()
    )]
    NodeId {
        /// The file.
        path: PathBuf,
        /// `broker.id`, or that of the directories before.
        expected: BrokerId,
        /// What the file says.
        found: BrokerId,
    },
    /// Two directories with one id.
    #[error("Duplicate directory ID {id} found. It was the ID of {}, but also of {}", first.display(), second.display())]
    DirectoryId {
        /// The id.
        id: Uuid,
        /// A directory that has it.
        first: PathBuf,
        /// Another directory that has it.
        second: PathBuf,
    },
}

/// How a directory's file was found.
#[derive(Debug)]
pub enum Found {
    /// The file is there, and can be read.
    Properties(MetaProperties),
    /// There is no file: a new directory.
    Missing,
    /// The directory is not to be used.
    Failed(MetaPropertiesError),
}

/// The files of all log directories.
#[derive(Debug)]
pub struct Ensemble {
    /// Each directory, in the order of their names, and what was found there.
    pub directories: Vec<(PathBuf, Found)>,
}

/// Reads a file's bytes.
pub fn parse(bytes: &[u8]) -> Result<MetaProperties, MetaPropertiesError> {
    let read = properties::parse(bytes);
    let version = match read.get("version").map(String::as_str) {
        None | Some("0") => 0,
        Some("1") => 1,
        Some(other) => return Err(MetaPropertiesError::Version(other.to_owned())),
    };
    let node_id_key = if version == 0 { "broker.id" } else { "node.id" };
    let node_id = number(&read, node_id_key)?;
    if version == 1 && node_id.is_none() {
        return Err(MetaPropertiesError::Missing(node_id_key));
    }
    let directory_id = match read.get("directory.id") {
        None => None,
        Some(text) => {
            Some(Uuid::parse(text).ok_or_else(|| MetaPropertiesError::DirectoryId(text.clone()))?)
        }
    };
    Ok(MetaProperties {
        version,
        cluster_id: read.get("cluster.id").cloned(),
        node_id,
        directory_id,
    })
}

fn number(read: &Properties, key: &'static str) -> Result<Option<BrokerId>, MetaPropertiesError> {
    let Some(text) = read.get(key) else { return Ok(None) };
    text.parse().map(|id| Some(BrokerId(id))).map_err(|_| MetaPropertiesError::Number { key })
}

/// Reads a directory's file; `None` where there is none.
pub fn read(directory: &Path) -> Result<Option<MetaProperties>, MetaPropertiesError> {
    match atomic_file::read(&directory.join(META_PROPERTIES_FILE), SIZE_MAX)? {
        Some(bytes) => parse(&bytes).map(Some),
        None => Ok(None),
    }
}

/// Writes a directory's file; returns when it would survive a power cut. `now` is the date in it.
pub fn write(directory: &Path, meta: &MetaProperties, now: Timestamp) -> io::Result<()> {
    let mut text = format!("#\n#{}\n", java_date(now));
    if let Some(cluster_id) = &meta.cluster_id {
        line(&mut text, "cluster.id", &escape(cluster_id));
    }
    if let Some(directory_id) = meta.directory_id {
        line(&mut text, "directory.id", &directory_id.to_string());
    }
    line(&mut text, "version", &meta.version.to_string());
    if let Some(node_id) = meta.node_id {
        line(
            &mut text,
            if meta.version == 0 { "broker.id" } else { "node.id" },
            &node_id.to_string(),
        );
    }
    atomic_file::write(&directory.join(META_PROPERTIES_FILE), text.as_bytes())
}

fn line(text: &mut String, key: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{key}={value}");
}

/// A value as `Properties.store` writes it.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for (index, unit) in value.encode_utf16().enumerate() {
        match char::from_u32(u32::from(unit)) {
            Some(' ') if index == 0 => escaped.push_str("\\ "),
            Some('\t') => escaped.push_str("\\t"),
            Some('\n') => escaped.push_str("\\n"),
            Some('\r') => escaped.push_str("\\r"),
            Some('\x0c') => escaped.push_str("\\f"),
            Some(special @ ('\\' | '=' | ':' | '#' | '!')) => escaped.extend(['\\', special]),
            Some(plain @ ' '..='~') => escaped.push(plain),
            // Writing to a string cannot fail.
            _ => drop(write!(escaped, "\\u{unit:04X}")),
        }
    }
    escaped
}

/// A time as `java.util.Date.toString` gives it, in UTC: `Mon Oct 21 10:41:26 UTC 2024`.
fn java_date(now: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = now.0.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_date(days);
    let weekday = DAYS[days.rem_euclid(7) as usize];
    let month = MONTHS[month as usize];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}")
}

/// Year, month from 0 and day of a day counted from 1970-01-01, in the Gregorian calendar. Years are counted from
/// March here, so that the leap day is the last one.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(month < 2);
    (year, month, day)
}

impl Ensemble {
    /// Reads the files of the directories; a directory that is not there yet has none.
    pub fn load(directories: &[PathBuf]) -> Ensemble {
        let mut directories: Vec<(PathBuf, Found)> = directories
            .iter()
            .map(|directory| {
                let found = match read(directory) {
                    Ok(Some(properties)) => Found::Properties(properties),
                    Ok(None) => Found::Missing,
                    Err(error) => Found::Failed(error),
                };
                (directory.clone(), found)
            })
            .collect();
        directories.sort_by(|one, other| one.0.cmp(&other.0));
        Ensemble { directories }
    }

    fn properties(&self) -> impl Iterator<Item = (&PathBuf, &MetaProperties)> {
        self.directories.iter().filter_map(|(path, found)| match found {
            Found::Properties(properties) => Some((path, properties)),
            _ => None,
        })
    }

    /// The cluster id of the first file that has one.
    pub fn cluster_id(&self) -> Option<&str> {
        self.properties().find_map(|(_, properties)| properties.cluster_id.as_deref())
    }

    /// The broker id of the first file that has one.
    pub fn node_id(&self) -> Option<BrokerId> {
        self.properties().find_map(|(_, properties)| properties.node_id)
    }

    /// The directories whose file is there and cannot be read; they are offline.
    pub fn failed(&self) -> impl Iterator<Item = (&Path, &MetaPropertiesError)> {
        self.directories.iter().filter_map(|(path, found)| match found {
            Found::Failed(error) => Some((&**path, error)),
            _ => None,
        })
    }

    /// Whether all files are of this broker, of this cluster, and agree with each other.
    pub fn verify(
        &self,
        cluster_id: Option<&str>,
        node_id: Option<BrokerId>,
    ) -> Result<(), MismatchError> {
        let (mut expected_cluster, mut expected_node) = (cluster_id, node_id);
        let mut seen: Vec<(Uuid, &PathBuf)> = Vec::new();
        for (directory, properties) in self.properties() {
            let path = directory.join(META_PROPERTIES_FILE);
            if properties.version != 0 {
                return Err(MismatchError::Version(path));
            }
            if let Some(found) = properties.cluster_id.as_deref() {
                let expected = *expected_cluster.get_or_insert(found);
                if expected != found {
                    let (expected, found) = (expected.to_owned(), found.to_owned());
                    return Err(MismatchError::ClusterId { path, expected, found });
                }
            }
            if let Some(found) = properties.node_id {
                let expected = *expected_node.get_or_insert(found);
                if expected != found {
                    return Err(MismatchError::NodeId { path, expected, found });
                }
            }
            if let Some(id) = properties.directory_id {
                if let Some((_, first)) = seen.iter().find(|(known, _)| *known == id) {
                    let (first, second) = ((*first).clone(), directory.clone());
                    return Err(MismatchError::DirectoryId { id, first, second });
                }
                seen.push((id, directory));
            }
        }
        Ok(())
    }

    /// Writes the files that are missing or lack an id; the directories are made if needed. Those that cannot be
    /// written are given back, and count as failed from then on.
    pub fn complete(
        &mut self,
        cluster_id: &str,
        node_id: BrokerId,
        now: Timestamp,
    ) -> Vec<(PathBuf, io::Error)> {
        let mut failed = Vec::new();
        for (directory, found) in &mut self.directories {
            let old = match found {
                Found::Properties(properties) => Some(properties.clone()),
                Found::Missing => None,
                Found::Failed(_) => continue,
            };
            let directory_id = old.as_ref().and_then(|old| old.directory_id);
            let cluster_id = Some(cluster_id.to_owned());
            let new =
                MetaProperties { version: 0, cluster_id, node_id: Some(node_id), directory_id };
            if old.as_ref() == Some(&new) {
                continue;
            }
            tracing::info!(path = %directory.join(META_PROPERTIES_FILE).display(), "rewriting");
            let written =
                std::fs::create_dir_all(&*directory).and_then(|()| write(directory, &new, now));
            *found = match written {
                Ok(()) => Found::Properties(new),
                Err(error) => {
                    let again = io::Error::new(error.kind(), error.to_string());
                    failed.push((directory.clone(), error));
                    Found::Failed(MetaPropertiesError::Read(again))
                }
            };
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{
        BrokerId, Ensemble, MetaProperties, Timestamp, Uuid, java_date, parse, read, write,
    };

    fn properties(node_id: i32) -> MetaProperties {
        MetaProperties {
            version: 0,
            cluster_id: Some("vPeOCWypqUOSepEvx0cbog".to_owned()),
            node_id: Some(BrokerId(node_id)),
            directory_id: None,
        }
    }

    #[test]
    fn a_file_has_javas_form_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        write(folder.path(), &properties(1), Timestamp(1_729_507_286_000)).unwrap();
        let text = std::fs::read_to_string(folder.path().join("meta.properties")).unwrap();
        let expected = "#\n#Mon Oct 21 10:41:26 UTC 2024\ncluster.id=vPeOCWypqUOSepEvx0cbog\nversion=0\nbroker.id=1\n";
        assert_eq!(text, expected);
        assert_eq!(read(folder.path()).unwrap(), Some(properties(1)));
        let odd = MetaProperties {
            cluster_id: Some(" a=b:#\\\u{20ac}".to_owned()),
            directory_id: Some(Uuid(77)),
            ..properties(1)
        };
        write(folder.path(), &odd, Timestamp(0)).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Some(odd));
        assert_eq!(java_date(Timestamp(951_782_400_000)), "Tue Feb 29 00:00:00 UTC 2000");
    }

    #[test]
    fn wrong_files_are_named_as_kafka_does() {
        let error = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("broker.id=x"), "Unable to read broker.id as a base-10 number.");
        assert_eq!(error("version=7"), "Unknown meta.properties version number 7");
        assert_eq!(parse(b"").unwrap().version, 0);
    }

    #[test]
    fn directories_of_others_are_refused_with_kafkas_words() {
        let folder = tempfile::tempdir().unwrap();
        let directories: Vec<PathBuf> =
            ["a", "b"].iter().map(|name| folder.path().join(name)).collect();
        let mut ensemble = Ensemble::load(&directories);
        assert_eq!((ensemble.cluster_id(), ensemble.node_id()), (None, None));
        assert!(ensemble.complete("vPeOCWypqUOSepEvx0cbog", BrokerId(8), Timestamp(0)).is_empty());
        let ensemble = Ensemble::load(&directories);
        assert_eq!(ensemble.node_id(), Some(BrokerId(8)));
        assert_eq!(ensemble.verify(Some("vPeOCWypqUOSepEvx0cbog"), Some(BrokerId(8))), Ok(()));
        let a = directories[0].join("meta.properties").display().to_string();
        let message = |cluster: &str, node| {
            ensemble.verify(Some(cluster), Some(BrokerId(node))).unwrap_err().to_string()
        };
        assert_eq!(
            message("x", 8),
            format!("Invalid cluster.id in: {a}. Expected x, but read vPeOCWypqUOSepEvx0cbog")
        );
        assert_eq!(
            message("vPeOCWypqUOSepEvx0cbog", 9),
            format!(
                "Stored node id 8 doesn't match previous node id 9 in {a}. If you moved your data, make sure your configured node id matches. If you intend to create a new node, you should remove all data in your data directories."
            )
        );
        write(&directories[1], &properties(9), Timestamp(0)).unwrap();
        assert!(Ensemble::load(&directories).verify(None, None).is_err());
        std::fs::write(
            directories[1].join("meta.properties"),
            "version=1\nnode.id=8\ncluster.id=x",
        )
        .unwrap();
        let kraft = Ensemble::load(&directories).verify(Some("x"), None);
        assert!(kraft.is_err());
        std::fs::write(directories[1].join("meta.properties"), "broker.id=x").unwrap();
        assert_eq!(Ensemble::load(&directories).failed().count(), 1);
    }
}
