//! Writes that fly with COMMIT: what a constraint refuses there is a stored refusal like any other.

use serde_json::Value;

use crate::harness::database::{Effects, connect};
use crate::harness::{in_every_world, order};

in_every_world!(
    the_last_pieces_go_to_another_order,
    |builder| builder.env("DATABASE_LOCK_TIMEOUT", "10s"),
    |app| async move {
        // Another order has taken all but one, and has not committed yet: the stock that is read says nothing of it.
        let other = connect(&app.database_url).await;
        other
            .batch_execute("BEGIN; UPDATE products SET stock = 1 WHERE sku = 'TEA-001'")
            .await
            .expect("taken");
        let (api, request) = (app.replica().api, app.request("/v1/orders", "K", &order(2)));
        let refused = tokio::spawn(async move { testkit::send(api, &request).await.expect("an answer") });
        app.waiting_for_lock(1).await;
        other.batch_execute("COMMIT").await.expect("committed");
        let refused = refused.await.expect("an answer");
        assert_eq!((refused.status, &refused.json()["code"]), (422, &Value::from("insufficient-stock")));
        assert_eq!(app.effects("K").await, Effects { records: 1, ..Effects::NONE });
        app.heal();
        let restock = "UPDATE products SET stock = 1000 WHERE sku = 'TEA-001'";
        app.db.batch_execute(restock).await.expect("restocked");
        let again = app.order("K", 2).await;
        assert_eq!((again.status, &again.body), (422, &refused.body), "the key's answer for good");
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(app.order("K2", 2).await.status, 201);
    }
);
