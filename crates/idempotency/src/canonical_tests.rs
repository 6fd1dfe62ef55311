//! The canonical form, by example and against a second reader (`serde_json`).

use super::canonicalize;

fn canonical(document: &str) -> String {
    canonicalize(document.as_bytes()).unwrap()
}

fn refusal(document: &str) -> String {
    canonicalize(document.as_bytes()).unwrap_err().to_string()
}

#[test]
fn order_space_and_escapes_do_not_matter() {
    let plain = canonical(r#"{"items":[{"quantity":2,"sku":"é/\n"}],"note":"x"}"#);
    assert_eq!(
        canonical(
            " {\"note\" : \"\\u0078\",\n\"items\":[ {\"sku\":\"\\u00e9\\/\\u000a\",\"quantity\":2} ] }"
        ),
        plain
    );
    assert_eq!(canonical(r#"{"b":{"d":1,"c":[]},"a":{}}"#), r#"{"a":{},"b":{"c":[],"d":1}}"#);
    assert_eq!(canonical(r#""😀""#), canonical("\"😀\""));
}

#[test]
fn every_value_matters() {
    let variants = [
        "1",
        "1.0",
        "1e0",
        "10e-1",
        "-0",
        "0",
        "\"1\"",
        "null",
        "true",
        "false",
        "[]",
        "{}",
        "[1]",
        "[[1]]",
        "1.10",
        "1.1",
        "9007199254740992.5",
        "9007199254740992.6",
        "9007199254740993",
        "9007199254740992",
        "18446744073709551615",
        "\"\u{e9}\"",
        "\"e\u{301}\"",
        r#"{"a":null}"#,
        r#"{"a":[]}"#,
        "[1,2]",
        "[2,1]",
        r#""\\u0041""#,
        "\"A\"",
    ];
    let forms: std::collections::HashSet<String> = variants.iter().map(|v| canonical(v)).collect();
    assert_eq!(forms.len(), variants.len());
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    assert_eq!(
        refusal(r#"{"items":[{"a":1},{"quantity":1,"quantity":5}]}"#),
        "items[1].quantity: the member stands there twice"
    );
    assert_eq!(refusal(r#"{"a":1,"b":2,"\u0061":1}"#), "a: the member stands there twice");
    assert_eq!(refusal(r#"{"n":18446744073709551616}"#), "n: the integer does not fit in 64 bits");
    assert_eq!(refusal(r#"{"n":-9223372036854775809}"#), "n: the integer does not fit in 64 bits");
    assert_eq!(refusal(r#"{"n":[1e400]}"#), "n[0]: the number is out of range");
    assert_eq!(refusal(r#"{"note":"a\u0000"}"#), "note: the NUL character is not allowed");
}

#[test]
fn what_is_not_json_is_refused() {
    let bad = [
        "",
        " ",
        "{",
        "[",
        "{]",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "'a'",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "nul",
        "truex",
        "1 2",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"",
        "{\"a\"}",
        "{\"a\":}",
        "\u{feff}{}",
        "NaN",
        "Infinity",
        "[1 2]",
        "{\"a\":1 \"b\":2}",
        "// c\n1",
    ];
    for document in bad {
        assert!(canonicalize(document.as_bytes()).is_err(), "{document:?} was accepted");
        assert!(
            serde_json::from_str::<serde_json::Value>(document).is_err(),
            "{document:?}: the second reader differs"
        );
    }
    assert!(canonicalize(b"\"\xff\"").is_err());
    assert!(canonicalize("[".repeat(100_000).as_bytes()).is_err());
    assert!(canonicalize(format!("{}{}", "[".repeat(64), "]".repeat(64)).as_bytes()).is_ok());
}

/// The canonical form says the same as the document, and is its own canonical form.
#[test]
fn a_second_reader_reads_the_same() {
    let document = r#" {"z":[1,-2,3.5,1e3,{"y":"\u00e9\"\\\/\b","x":null}],"a":{"k":true,"b":false},"":""} "#;
    let form = canonical(document);
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&form), read(document));
    assert_eq!(canonical(&form), form);
    for cut in 1..document.trim().len() {
        if let Some(part) = document.trim().get(..cut) {
            assert!(canonicalize(part.as_bytes()).is_err(), "{part:?} was accepted");
        }
    }
}
