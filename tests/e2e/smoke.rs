//! The promise in one test: an order is made once, and every retry is its first answer.

use crate::harness::database::Effects;
use crate::harness::in_every_world;

in_every_world!(a_retry_is_the_first_answer_byte_for_byte, |app| async move {
    let first = app.order("K", 2).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(first.header("x-cache-lookup"), None);
    for _ in 0..3 {
        let again = app.order("K", 2).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        for name in ["location", "content-type"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert!(matches!(again.header("x-cache-lookup"), Some("HIT" | "MISS")));
    }
    assert_eq!(app.effects("K").await, Effects::ONCE);
});
