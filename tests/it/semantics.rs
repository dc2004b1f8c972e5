//! `docs/semantics.md` names a test for each of its sentences: the tests exist.

use std::path::{Path, PathBuf};

/// Names of tests between brackets and backquotes; commands begin with `tests/`.
fn named(page: &str) -> Vec<&str> {
    let bracketed = page.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    let quoted = bracketed.flat_map(|(inside, _)| inside.split('`').skip(1).step_by(2));
    quoted.collect()
}

fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&std::fs::read_to_string(&path).expect("a source file"));
        }
    }
}

#[test]
fn every_sentence_of_the_semantics_has_its_test() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/semantics.md")).expect("docs/semantics.md");
    let mut text = String::new();
    sources(&root.join("src"), &mut text);
    sources(&root.join("tests/it"), &mut text);
    let names = named(&page);
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let there = match name.starts_with("tests/") {
            true => root.join(name).exists(),
            false => text.contains(&format!("fn {name}(")),
        };
        assert!(there, "docs/semantics.md names {name}, which is not there");
    }
    let without = page
        .split("\n- ")
        .skip(1)
        .find(|sentence| !sentence.contains("[`") && !sentence.contains("[command"));
    assert_eq!(without, None, "a sentence without a test");
}
