//! The tests that lines of `docs/compatibility/*.tsv` name: what works is shown by one that is there.

use super::{assert_none, root, table, test_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The tables whose lines name tests, each with the index of the status.
const WITH_TESTS: [(&str, usize); 4] =
    [("rpc.tsv", 3), ("admin.tsv", 2), ("filters.tsv", 2), ("attributes.tsv", 3)];

/// Where tests are: the texts of Java classes by name, and the lists of HBase's own tests that pass.
struct Tests {
    classes: BTreeMap<String, String>,
    of_hbase: BTreeSet<String>,
}

impl Tests {
    fn read() -> Tests {
        let mut classes = BTreeMap::new();
        read_classes(&root().join("testing"), &mut classes);
        let mut of_hbase = BTreeSet::new();
        for list in ["ceiling", "own", "cluster", "coprocessors"] {
            let text = fs::read_to_string(root().join(format!("testing/conformance/{list}.txt"))).unwrap();
            for (class, method) in text.lines().filter_map(|line| line.split_once(' ')) {
                let class = class.rsplit('.').next().unwrap_or(class);
                let method = method.split('[').next().unwrap_or(method); // of a test with parameters
                of_hbase.insert(format!("{class}.{method}"));
            }
        }
        Tests { classes, of_hbase }
    }

    /// Whether there is such a test: `path/of/a.rs::function`, `path/of/a/script.sh`, or `Class.method` of a class below `testing` or
    /// of HBase's own.
    fn has(&self, test: &str) -> bool {
        if let Some((path, function)) = test.split_once("::") {
            let text = fs::read_to_string(root().join(path)).unwrap_or_default();
            return text
                .split("#[test]")
                .chain(text.split("#[tokio::test"))
                .skip(1)
                .any(|after| after.lines().take(4).any(|line| line.contains(&format!("fn {function}("))));
        }
        if test.ends_with(".sh") {
            return root().join(test).is_file();
        }
        let Some((class, method)) = test.split_once('.') else { return false };
        let text = self.classes.get(class);
        self.of_hbase.contains(test) || text.is_some_and(|text| text.contains(&format!("void {method}(")))
    }
}

fn read_classes(dir: &Path, classes: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            read_classes(&path, classes);
        } else if path.extension().is_some_and(|end| end == "java") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_string();
            classes.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

/// What is wrong with the test that a line names; `None`: nothing.
fn wrong_test(tests: &Tests, status: &str, test: &str) -> Option<&'static str> {
    match (status == "works", test.is_empty()) {
        (true, true) => Some("works, and no test shows it: name one, or say answered"),
        (true, false) if !tests.has(test) => Some("names a test that is not there"),
        (false, false) => Some("names a test, and does not work"),
        _ => None,
    }
}

/// "works" was said of each method that is not refused for an empty request, whatever it does.
#[test]
fn what_works_names_a_test_that_is_there() {
    let tests = Tests::read();
    let mut complaints = Vec::new();
    for (name, status_at) in WITH_TESTS {
        for line in table(name) {
            let test = test_of(&line, status_at);
            if let Some(wrong) = wrong_test(&tests, &line[status_at], test) {
                complaints.push(format!("{name}: {}: {wrong}: {test}", line[..status_at].join(" ")));
            }
        }
    }
    assert_none(&complaints);
}

#[test]
fn tests_that_are_not_there_are_found() {
    let tests = Tests::read();
    for test in [
        "PutGetDeleteTest.putAndGet",
        "FilterFacts.values",
        "TestAsyncTableAdminApi2.testAddColumnFamily",
        "TestFromClientSideWithCoprocessor.testDeleteFamilyVersion",
        "testing/compat/stop-master.sh",
        "programs/halcyon/tests/compatibility/named_tests.rs::tests_that_are_not_there_are_found",
    ] {
        assert_eq!(wrong_test(&tests, "works", test), None, "{test}");
        assert!(wrong_test(&tests, "answered", test).is_some(), "{test}");
    }
    for test in [
        "",
        "PutGetDeleteTest",
        "PutGetDeleteTest.gone",
        "GoneTest.putAndGet",
        "TestAsyncTableAdminApi2.testGone",
        "testing/compat/gone.sh",
        "programs/halcyon/tests/compatibility/named_tests.rs::gone",
        "programs/halcyon/tests/compatibility/named_tests.rs::wrong_test",
        "programs/halcyon/tests/gone.rs::gone",
    ] {
        assert!(wrong_test(&tests, "works", test).is_some(), "{test:?}");
    }
    assert_eq!(wrong_test(&tests, "answered", ""), None);
}
