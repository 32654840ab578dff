use super::*;

fn one(text: &str) -> Command {
    let mut commands = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(commands.len(), 1, "{text}");
    commands.remove(0)
}

fn text(text: &str) -> Value {
    Value::Text(text.as_bytes().to_vec())
}

fn map(pairs: &[(&str, Value)]) -> Value {
    Value::Map(Map(pairs.iter().map(|(key, value)| (key.to_string(), value.clone())).collect()))
}

#[test]
fn what_people_type_is_read() {
    let create = one("create 't1', {NAME => 'f1', VERSIONS => 5}, 'f2', SPLITS => ['10', \"\\x20\"]");
    assert_eq!(create.name, "create");
    let family = map(&[("NAME", text("f1")), ("VERSIONS", Value::Integer(5))]);
    let splits = map(&[("SPLITS", Value::List(vec![text("10"), text(" ")]))]);
    assert_eq!(create.arguments, [text("t1"), family, text("f2"), splits]);
    assert_eq!(one("list").arguments, []);
    assert_eq!(one("list()").arguments, []);
    assert_eq!(one("count('t1', INTERVAL => 10)").arguments.len(), 2);
    // quotes left out, and put where none are needed
    let scan = one("scan t1, {'LIMIT' => '3', REVERSED => true}");
    assert_eq!(scan.arguments[0], Value::Word("t1".into()));
    let options = scan.arguments[1].clone().map().unwrap();
    assert_eq!(options.get("limit").unwrap().count().unwrap(), 3);
    assert!(options.get("REVERSED").unwrap().flag().unwrap());
    let put = one("put 'ns:t', 'r', 'f:q', -1.5, 123, nil");
    assert_eq!(put.arguments[3..], [Value::Float(-1.5), Value::Integer(123), Value::Nil]);
}

#[test]
fn quotes_are_rubys() {
    let bytes = |line: &str| one(line).arguments[0].bytes().unwrap();
    assert_eq!(bytes(r"get 'it\'s \x00 \\'"), br"it's \x00 \");
    assert_eq!(bytes(r#"get "\x00\xff\n\"\u00e9\101\e""#), b"\x00\xff\n\"\xc3\xa9A\x1b");
    assert_eq!(bytes(r#"get "\u{1F600}""#), "\u{1F600}".as_bytes());
    assert_eq!(bytes("get 'größe'"), "größe".as_bytes());
    assert_eq!(bytes("get 'a;b # c'"), b"a;b # c");
}

#[test]
fn lines_hold_several_commands_and_commands_several_lines() {
    let names = |text: &str| parse(text).unwrap().into_iter().map(|command| command.name).collect::<Vec<_>>();
    assert_eq!(names("list; status 'simple'\n# nothing\n\nversion # all"), ["list", "status", "version"]);
    assert_eq!(one("create 't',\n  'f',\n  {NAME => 'g',\n VERSIONS =>\n 3\n}").arguments.len(), 3);
    assert_eq!(one("put 't', \\\n 'r'").arguments.len(), 2);
    for part in
        ["create 't',", "create 't', {NAME => 'f'", "get 'r", "get \"r", "x [1", "list(", "a 'b' =>", "a \\"]
    {
        assert_eq!(parse(part), Err(ParseError::Incomplete), "{part}");
    }
}

#[test]
fn garbage_is_an_error_that_says_where() {
    let cases = [
        ("create 't' 'f'", "at character 12: expected , or the end of the command, found 'f'"),
        ("create {1}", "at character 10: expected =>, found }"),
        ("'list'", "at character 1: expected a command, found 'list'"),
        ("get \"\\xzz\"", "at character 6: \\x needs hexadecimal digits"),
        ("list )", "at character 6: expected , or the end of the command, found )"),
        ("x = 5", "at character 3: unexpected ="),
        ("get [1 2]", "at character 8: expected , or ], found 2"),
    ];
    for (line, expected) in cases {
        assert_eq!(parse(line).unwrap_err().to_string(), expected, "{line}");
    }
    assert!(parse(&format!("x {}", "[".repeat(100_000))).is_err());
}
