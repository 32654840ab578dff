//! Lines of shell scripts that look like an assertion and are none.
//!
//! - `set -e` never ends a script at a command after `!`, nor at one before `&&`. So `! grep failed log`, and the first half of
//!   `[ a ] && [ b ]`, assert nothing, unless they are the last line of a function, whose value they are then.
//! - `cargo test` with a filter succeeds when no test has such a name. `testing/compat/cargo-tests.sh` wants a number of tests.

/// The program that runs tests and counts them.
const COUNTED: &str = "testing/compat/cargo-tests.sh";

/// The complaints about a file; none about one that is no shell script.
pub fn check(path: &str, text: &str) -> Vec<String> {
    if !path.ends_with(".sh") && !text.starts_with("#!/usr/bin/env bash") {
        return Vec::new();
    }
    let commands = commands(text);
    let mut complaints = Vec::new();
    for (at, (number, command)) in commands.iter().enumerate() {
        let is_value =
            commands.get(at + 1).is_some_and(|(_, next)| next.starts_with('}') || next.starts_with(") }"));
        if !is_value && asserts_nothing(command) {
            complaints.push(format!("{path}:{number}: asserts nothing under set -e: {command}"));
        }
        if path != COUNTED && runs_chosen_tests(command) {
            complaints.push(format!("{path}:{number}: may match no test; use {COUNTED}: {command}"));
        }
    }
    complaints
}

/// The commands of a script, each with the number of its first line. Those that go over several lines are joined.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || (line.starts_with('#') && !is_open) {
            continue;
        }
        let part = line.strip_suffix('\\').unwrap_or(line).trim_end();
        match commands.last_mut().filter(|_| is_open) {
            Some((_, command)) => {
                command.push(' ');
                command.push_str(part);
            }
            None => commands.push((at + 1, part.to_string())),
        }
        is_open = line.ends_with('\\') || ["&&", "||", "|"].iter().any(|end| line.ends_with(end));
    }
    commands
}

fn asserts_nothing(command: &str) -> bool {
    let outside = without_quotes(command);
    if outside.contains("||") {
        return false;
    }
    let last = outside.rsplit("&&").next().unwrap_or_default().trim_start();
    let is_pair_of_tests = outside.starts_with('[') && outside.contains("&&") && last.starts_with('[');
    (outside.starts_with("! ") && !outside.contains("&&")) || is_pair_of_tests
}

/// `cargo test` that chooses tests by name or takes those that are ignored.
fn runs_chosen_tests(command: &str) -> bool {
    let Some((_, arguments)) = command.split_once("cargo test") else { return false };
    !arguments.contains("--no-run") && (arguments.contains("--ignored") || arguments.contains("::"))
}

/// The command with what is within quotes left out.
fn without_quotes(command: &str) -> String {
    let mut outside = String::new();
    let mut quote = None;
    let mut characters = command.chars();
    while let Some(one) = characters.next() {
        match (quote, one) {
            (None | Some('"'), '\\') => {
                characters.next();
            }
            (None, '"' | '\'') => quote = Some(one),
            (Some(open), _) if open == one => quote = None,
            (None, _) => outside.push(one),
            (Some(_), _) => {}
        }
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check("a/b.sh", text).len()
    }

    /// `! grep -l panicked server-*.log` was to find failed assertions, and the script went on.
    #[test]
    fn negated_commands_assert_nothing() {
        for text in [
            "! grep -l panicked *.log\n",
            "  ! grep -q '||' log\nserver_stop\n",
            "! a \\\n  b\n",
            "! a |\n  b\n",
        ] {
            assert_eq!(complaints(text), 1, "{text}");
        }
        for text in [
            "! grep -q x log || exit 1\n",
            "! a ||\n  b\n",
            "f() {\n  ! grep x log\n}\n",
            "[ -n \"$x\" ] &&\n  ! grep x log || exit 1\n",
            "if ! a; then\n",
            "# ! a\n",
            "! has_load list && b\n",
        ] {
            assert_eq!(complaints(text), 0, "{text}");
        }
        assert!(check("a/b.rs", "! grep x\n").is_empty());
        assert_eq!(check("a/run", "#!/usr/bin/env bash\n! grep x\n").len(), 1);
    }

    #[test]
    fn the_first_of_two_tests_asserts_nothing() {
        assert_eq!(complaints("[ \"$a\" -eq 0 ] && [ \"$b\" -eq 0 ]\n"), 1);
        assert_eq!(complaints("[ a ] && [ b ] || exit 1\n"), 0);
        assert_eq!(complaints("[ a ] && echo b\n"), 0);
        assert_eq!(complaints("f() {\n  [ a ] && [ b ]\n}\n"), 0);
    }

    #[test]
    fn tests_that_are_chosen_are_counted() {
        assert_eq!(complaints("cargo test -p halcyon-wal --test all hbase:: -- --ignored\n"), 1);
        assert_eq!(complaints("cargo test -p halcyon-hfile --test golden -- --ignored\n"), 1);
        assert_eq!(complaints("cargo test --no-run -q -p halcyon --test all\n"), 0);
        assert_eq!(complaints("cargo test --package halcyon --no-fail-fast\n"), 0);
        assert_eq!(complaints("\"$HERE/cargo-tests.sh\" 2 -p halcyon-hfile --test golden -- --ignored\n"), 0);
    }
}
