use super::*;

fn operator(filter: &Filter) -> (pb::filter_list::Operator, Vec<String>) {
    let list = pb::FilterList::decode(filter.message.serialized_filter.clone().unwrap()).unwrap();
    let names = list.filters.iter().map(|filter| filter.name.replace(PACKAGE, "")).collect();
    (list.operator(), names)
}

#[test]
fn and_binds_closer_than_or() {
    let filter = Filter::parse("KeyOnlyFilter() OR PageFilter(2) AND FirstKeyOnlyFilter ()").unwrap();
    let (kind, names) = operator(&filter);
    assert_eq!(kind, pb::filter_list::Operator::MustPassOne);
    assert_eq!(names, ["KeyOnlyFilter", "FilterList"]);
    let filter = Filter::parse("(KeyOnlyFilter() OR PageFilter(2)) AND SKIP FirstKeyOnlyFilter()").unwrap();
    let (kind, names) = operator(&filter);
    assert_eq!(kind, pb::filter_list::Operator::MustPassAll);
    assert_eq!(names, ["FilterList", "SkipFilter"]);
}

#[test]
fn the_language_builds_what_the_constructors_build() {
    let column = ("f", "q");
    let binary = || Comparator::binary("v");
    let cases = [
        ("PrefixFilter('it''s')", Filter::prefix("it's")),
        ("PageFilter(25)", Filter::page(25)),
        ("ColumnPaginationFilter(3, 4)", Filter::column_page(3, 4)),
        ("ColumnCountGetFilter(4)", Filter::column_count(4)),
        ("InclusiveStopFilter('z')", Filter::inclusive_stop("z")),
        ("TimestampsFilter(5, 985489)", Filter::timestamps([5, 985_489])),
        ("MultipleColumnPrefixFilter('b', 'a')", Filter::column_prefixes(["a", "b"])),
        ("ColumnRangeFilter('a', true, '', false)", Filter::column_range(Some((b"a", true)), None)),
        (
            "RowFilter(>=, 'binaryprefix:ab')",
            Filter::row(CompareOp::GreaterOrEqual, Comparator::prefix("ab")),
        ),
        ("FamilyFilter(=, 'binary:v')", Filter::family(CompareOp::Equal, binary())),
        (
            "QualifierFilter(!=, 'regexstring:^a.*')",
            Filter::qualifier(CompareOp::NotEqual, Comparator::regex("^a.*")),
        ),
        ("ValueFilter(=,'substring:ABC')", Filter::value(CompareOp::Equal, Comparator::substring("abc"))),
        ("KeyOnlyFilter(true)", Filter::key_only(true)),
        ("WHILE PrefixFilter('a')", Filter::while_match(Filter::prefix("a"))),
        (
            "SingleColumnValueFilter('f', 'q', <, 'binary:v', true, false)",
            SingleColumnValue::new(column.0, column.1, CompareOp::Less, binary())
                .filter_if_missing(true)
                .latest_version_only(false)
                .build(),
        ),
        (
            "SingleColumnValueExcludeFilter('f','q',=,'binary:v')",
            SingleColumnValue::new(column.0, column.1, CompareOp::Equal, binary()).exclude_column().build(),
        ),
        (
            "ColumnValueFilter('f','q',>,'binary:v')",
            Filter::column_value("f", "q", CompareOp::Greater, binary()),
        ),
        (
            "DependentColumnFilter('f','q',true,=,'binary:v')",
            Filter::dependent_column("f", "q", true, Some((CompareOp::Equal, binary()))),
        ),
        ("DependentColumnFilter('f','q')", Filter::dependent_column("f", "q", false, None)),
    ];
    for (text, expected) in cases {
        assert_eq!(Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")), expected, "{text}");
    }
}

#[test]
fn garbage_is_an_error_that_names_the_place() {
    let cases = [
        ("", "filter, at character 1: expected a filter, as in PrefixFilter('a')"),
        ("PrefixFilter('a'", "filter, at character 17: expected , or )"),
        ("PrefixFilter('a", "filter, at character 16: a ' is missing"),
        ("PrefixFilter('a') XOR PageFilter(1)", "filter, at character 19: expected AND, OR or the end"),
        ("PrefixFilter(a)", "PrefixFilter: argument 1 must be in quotes"),
        ("PageFilter('1')", "PageFilter: argument 1 must be without quotes"),
        ("PageFilter(-1)", "PageFilter: '-1' is not a number in range"),
        ("PageFilter()", "PageFilter: expected 1 arguments, found 0"),
        ("NoFilter()", "the filter language has no NoFilter"),
        ("RowFilter(~, 'binary:a')", "RowFilter: '~' is not one of < <= = != >= >"),
        ("RowFilter(=, 'a')", "RowFilter: expected a comparator, as in 'binary:abc'"),
        (
            "RowFilter(<, 'substring:a')",
            "RowFilter: patterns and substrings can only be compared with = and !=",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(Filter::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
    let deep = "(".repeat(100_000);
    assert!(Filter::parse(&deep).is_err());
    let skips = "SKIP ".repeat(100_000);
    assert!(Filter::parse(&skips).is_err());
}

#[test]
fn a_fuzzy_mask_is_sent_as_java_sends_it() {
    let filter = Filter::fuzzy_rows([(b"a?c", [0u8, 1, 0])]);
    let message = pb::FuzzyRowFilter::decode(filter.message.serialized_filter.unwrap()).unwrap();
    assert_eq!(&message.fuzzy_keys_data[0].second[..], b"\xff\x02\xff");
    assert!(message.is_mask_v2());
}
